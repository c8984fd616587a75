"""Readers we did not write, and what each has to be given to read a catalog-managed table.

DuckDB takes a tail of staged commits and a maximum version, and so reads the very table its
catalog describes. Readers by path read a copy of the published log from which the features that
keep them out were taken. Rows come back in one form, so that `==` compares them.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from duckdb_extensions import import_extension  # type: ignore[import-untyped]  # it has none

from headgate.api.messages import RatifiedCommit, Resolved
from headgate.protocol.paths import LOG, STAGED
from headgate.storage.locations import decode

KEEPING_OUT: Final = frozenset({"catalogManaged", "vacuumProtocolCheck"})


# Rows in one form


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table whatever their order, and the names of its columns."""

    columns: tuple[str, ...]
    values: tuple[tuple[object, ...], ...]


def rows(table: pa.Table) -> Rows:
    """Bring an Arrow table into the form in which readers are compared."""
    columns = [column.to_pylist() for column in table.columns]
    values = [tuple(map(_plain, row)) for row in zip(*columns, strict=True)]
    return Rows(tuple(table.column_names), tuple(sorted(values, key=repr)))


def _plain(value: object) -> object:
    match value:
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
        case datetime():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case float() if math.isnan(value):
            return "NaN"
        case dict():
            return tuple((name, _plain(inner)) for name, inner in value.items())
        case list() if value and all(isinstance(item, tuple) for item in value):  # a map
            return tuple(sorted((_pair(item) for item in value), key=repr))
        case list() | tuple():
            return tuple(map(_plain, value))
        case _:
            return value


def _pair(item: Iterable[object]) -> tuple[object, ...]:
    return tuple(map(_plain, item))


# DuckDB, through the catalog's answer


@dataclass(frozen=True, slots=True)
class TailFile:
    """A staged commit as DuckDB's ATTACH takes it."""

    url: str
    timestamp_ms: int
    size: int


def duckdb_reads(resolved: Resolved, scratch: Path, version: int | None = None) -> Rows:
    """Have DuckDB read what a catalog answered, at its latest version or an earlier one."""
    return duckdb_reads_tail(
        resolved.location, tail_of(resolved, scratch), resolved.latest, version
    )


def duckdb_reads_tail(
    location: str, tail: Many[TailFile], latest: int, version: int | None = None
) -> Rows:
    """Have DuckDB read a table given its ratified tail, newest first, and its latest version."""
    options = [f"TYPE delta, max_catalog_version {latest}"]
    if tail:
        options.append(f"log_tail [{', '.join(map(_as_option, tail))}]")
    if version is not None:
        options.append(f"version {version}")
    name = f"witness_{next(_names)}"
    cursor = _duck().cursor()
    cursor.execute(f"ATTACH {_text(_directory(location))} AS {name} ({', '.join(options)})")
    try:
        return rows(cursor.execute(f"SELECT * FROM {name}").to_arrow_table())
    finally:
        cursor.execute(f"DETACH {name}")
        cursor.close()


def tail_of(resolved: Resolved, scratch: Path) -> list[TailFile]:
    """Return the ratified commits as staged files, newest first.

    Staged ones are named where they lie. Inline ones cannot be given to DuckDB: their content is
    put into staged files under `scratch`, a folder of the test's own and not the table's.
    """
    tail: list[TailFile] = []
    for commit in reversed(resolved.commits):
        if (url := _staged(resolved.location, commit, scratch)) is None:
            break  # published, and the catalog keeps no content: it is found in the log
        tail.append(TailFile(url, commit.timestamp_ms, commit.size))
    return tail


def _staged(location: str, commit: RatifiedCommit, scratch: Path) -> str | None:
    if commit.file_name is not None:
        return f"{location}/{STAGED}/{commit.file_name}"
    if commit.content is None:
        return None
    name = f"{commit.version:020d}.00000000-0000-4000-8000-{commit.version:012d}.json"
    folder = scratch / f"tail-{next(_names)}" / STAGED
    folder.mkdir(parents=True)
    (folder / name).write_bytes(commit.content)
    return f"file://{quote(str(folder / name))}"


def _as_option(file: TailFile) -> str:
    return (
        f"{{'file_name': {_text(file.url)}, 'timestamp': {file.timestamp_ms}::BIGINT, "
        f"'file_size': {file.size}::UBIGINT}}"
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _directory(location: str) -> str:
    return decode(location.removeprefix("file://"))


_names: Iterator[int] = itertools.count()


@cache
def _duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    import_extension("delta", con=connection)  # out of its wheel: nothing is fetched
    connection.load_extension("delta")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


# Readers by path


def duckdb_scans(
    path: Path, version: int | None = None, where: str = "TRUE", given: Many[object] = ()
) -> Rows:
    """Have DuckDB read a plain table by path, all of it or the rows a condition holds for."""
    at = "" if version is None else f", version {version}"
    name = f"witness_{next(_names)}"
    cursor = _duck().cursor()
    cursor.execute(f"ATTACH {_text(str(path))} AS {name} (TYPE delta{at})")
    try:
        found = cursor.execute(f"SELECT * FROM {name} WHERE {where}", list(given))
        return rows(found.to_arrow_table())
    finally:
        cursor.execute(f"DETACH {name}")
        cursor.close()


def duckdb_executes(statement: str) -> None:
    """Have DuckDB try something; what it attached is let go of afterwards."""
    cursor = _duck().cursor()
    try:
        cursor.execute(statement)
    finally:
        cursor.execute("DETACH DATABASE IF EXISTS victim")
        cursor.close()


def deltalake_reads(path: Path, version: int | None = None) -> Rows:
    """Have deltalake read a plain table by path."""
    table = DeltaTable(path, version=version)
    found = QueryBuilder().register("witnessed", table).execute("SELECT * FROM witnessed")
    return rows(pa.table(found.read_all()))


def polars_reads(path: Path, version: int | None = None) -> Rows:
    """Have polars read a plain table by path."""
    return rows(pl.read_delta(str(path), version=version).to_arrow())


def plain_copy(location: str, to: Path, *, only_after: int | None = None) -> Path:
    """Copy a table for readers by path: no catalog, and no feature that speaks of one.

    Taken out of both lists of the protocol wherever it is written down: in commits, compactions,
    checkpoints and checksums. Staged commits are left out. `only_after` leaves out the commits up
    to a version, so that its checkpoint has to be read.
    """
    source = Path(_directory(location))
    for path in sorted(source.rglob("*")):
        inner = path.relative_to(source)
        if path.is_dir() or inner.as_posix().startswith(STAGED):
            continue
        target = to / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        if inner.parts[0] != LOG:
            os.link(path, target)
        elif only_after is not None and _is_commit_up_to(path, only_after):
            continue
        elif path.suffix in (".json", ".crc"):
            target.write_bytes(_opened_lines(path.read_bytes()))
        elif path.suffix == ".parquet" and "_sidecars" not in inner.parts:
            _open_checkpoint(path, target)
        else:
            shutil.copyfile(path, target)
    return to


def _is_commit_up_to(path: Path, version: int) -> bool:
    return path.suffix == ".json" and path.stem.isdigit() and int(path.stem) <= version


def _opened_lines(content: bytes) -> bytes:
    lines = []
    for raw in content.splitlines():
        line = json.loads(raw)
        if "protocol" in line:
            raw = json.dumps(line | {"protocol": _opened(line["protocol"])}).encode()
        lines.append(raw + b"\n")
    return b"".join(lines)


def _opened(protocol: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: [feature for feature in value if feature not in KEEPING_OUT]
        if isinstance(value, list)
        else value
        for key, value in protocol.items()
    }


def _open_checkpoint(path: Path, target: Path) -> None:
    table = pq.read_table(path)
    at = table.column_names.index("protocol")
    values = [value and _opened(value) for value in table.column(at).to_pylist()]
    field = table.schema.field(at)
    pq.write_table(table.set_column(at, field, pa.array(values, field.type)), target)


def every_file(location: str) -> dict[str, bytes]:
    """Return all that lies under a table's location, to see that nothing was touched."""
    root = Path(_directory(location))
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
