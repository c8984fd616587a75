"""Lakes and plain copies that the scenarios work on, built once and kept for the next run.

A lake remembers where it lies, so each is built and used at one place below `work`; what is kept
is put back there by links, all but the database, which is copied. Of equal parameters come equal
files in every log, so that what different readers find can be compared.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

import headgate
from headgate.api.messages import Part, Proposal, Ratified
from headgate.catalog.service import Catalog
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.clock import RandomIds, SystemClock
from headgate.protocol.actions import AddFile, RemoveFile, TxnId, Version, encode, join
from headgate.protocol.commit.content import Inline, Staged
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import ClassicCheckpoint, StagedCommit
from headgate.settings import Settings
from headgate.table.snapshot import Snapshot

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "bench"
KEPT = CACHE / "kept"
WORK = CACHE / "work"
_ASIDE = CACHE / "aside"

NAME = "bench"
SCHEMA = "id long, day string, amount double, name string"
MODIFIED_MS = 1_700_000_000_000
PLAIN_LACKS = ("catalogManaged", "vacuumProtocolCheck")

_THREADS = 8
_WIDE_COMMIT = 50_000  # files in one commit of a wide table
_UNPUBLISHED = 20_000  # commits at a time, well below the catalog's limit
_TAIL = 10  # commits above its checkpoint


@dataclass(frozen=True, slots=True)
class Prepared:
    """A lake, and the same log as a plain table."""

    name: str
    kept: Path
    place: Path

    @property
    def lake(self) -> Path:
        return self.place / "lake"

    @property
    def plain(self) -> Path:
        return self.place / "plain"

    def put_back(self) -> None:
        """Restore the folder to its state when it was built."""
        _remove(self.place)
        WORK.mkdir(parents=True, exist_ok=True)
        # Links are enough: writers of a log replace files and never change one.
        subprocess.run(["cp", "-al", str(self.kept), str(self.place)], check=True)
        for database in self.place.glob("lake/headgate.db*"):
            kept = self.kept / "lake" / database.name
            database.unlink()
            shutil.copyfile(kept, database)


def narrow(commits: int, way: str, published: bool = True) -> Prepared:
    """Return a table of many commits with a file each, `inline` or `staged`, without checkpoint."""
    state = "published" if published else "backlog"

    def build(place: Path) -> None:
        with _session(place) as session:
            table = session.create_table(NAME, SCHEMA, partition_by=["day"])
            if way == "inline":
                for first in range(0, commits, _UNPUBLISHED):
                    append_inline(session, table, range(first, min(commits, first + _UNPUBLISHED)))
                    if published:
                        table.publish()
            else:
                _append_staged(session, table, map(_lines, range(commits), range(1, commits + 1)))
            if published:
                table.publish()
            else:
                table.publish(0)
            location = local(table.location)
        if published:
            copy_plain(location, place / "plain")

    return kept(f"narrow-{commits}-{way}-{state}", build)


def wide(files: int) -> Prepared:
    """Return a table whose checkpoint has many files, with a few commits above it."""

    def build(place: Path) -> None:
        with _session(place) as session:
            table = session.create_table(NAME, SCHEMA, partition_by=["day"])
            starts = range(0, files, _WIDE_COMMIT)
            ends = [min(files, first + _WIDE_COMMIT) for first in starts]
            _append_staged(session, table, map(_lines, starts, ends))
            table.publish()
            snapshot = table.snapshot()
            log = local(table.location) / "_delta_log"
            put_checkpoint(log, snapshot, files, plain=False)
            catalog = _catalog(session)
            path = ClassicCheckpoint(snapshot.version).path
            catalog.add_file(
                table.id,
                KnownFile(
                    kind=FileKind.CHECKPOINT,
                    first=snapshot.version,
                    last=snapshot.version,
                    paths=(path,),
                ),
            )
            _append_tail(session, table, files, snapshot.version)
            table.publish()
        _remove(log / "_staged_commits")
        for version in range(snapshot.version):
            (log / f"{version:020d}.json").unlink()
        copy_plain(log.parent, place / "plain")
        put_checkpoint(place / "plain" / "_delta_log", snapshot, files, plain=True)

    return kept(f"wide-{files}", build)


def fresh(place: Path) -> None:
    """Make sure that a path does not exist."""
    put_aside(place)
    place.parent.mkdir(parents=True, exist_ok=True)


def put_aside(place: Path) -> None:
    """Move a folder away, and remove it when the run is over.

    For minutes after many files were removed, ext4 passes over the numbers they had one by one
    whenever a file is made near by, which then costs ten times as much.
    """
    if place.exists():
        _ASIDE.mkdir(parents=True, exist_ok=True)
        place.rename(_ASIDE / uuid4().hex)


def clear_work() -> None:
    """Remove the working data of a run; prepared data stays."""
    _remove(WORK)
    _remove(_ASIDE)


def clear_kept() -> None:
    """Remove the prepared data."""
    _remove(KEPT)


# What tables hold


def add_file(index: int) -> AddFile:
    """Return the file of one index: the same one each time, in every table."""
    digest = hashlib.md5(str(index).encode(), usedforsecurity=False).hexdigest()
    return AddFile(
        path=_path(index, digest),
        partition_values={"day": _day(index)},
        size=100_000 + index % 9_973,
        modification_time=MODIFIED_MS + index,
        data_change=True,
        stats=_stats(index, digest),
    )


def _lines(first: int, end: int) -> bytes:
    return join(encode(add_file(index)) for index in range(first, end))


def add_columns(files: int, first: int = 0) -> pa.StructArray:
    """Return many files as the `add` column of a checkpoint."""
    digests = [
        hashlib.md5(str(index).encode(), usedforsecurity=False).hexdigest()
        for index in range(first, first + files)
    ]
    indexes = range(first, first + files)
    days = pa.array([_day(index) for index in indexes], pa.string())
    keys = pa.array(["day"], pa.string()).take(pa.array([0] * files, pa.int32()))
    offsets = pa.array(range(files + 1), pa.int32())
    return pa.StructArray.from_arrays(
        [
            pa.array(map(_path, indexes, digests), pa.string()),
            pa.MapArray.from_arrays(offsets, keys, days),
            pa.array([100_000 + index % 9_973 for index in indexes], pa.int64()),
            pa.array(range(MODIFIED_MS + first, MODIFIED_MS + first + files), pa.int64()),
            pa.repeat(pa.scalar(False), files),
            pa.nulls(files, _MAP),
            pa.array(map(_stats, indexes, digests), pa.string()),
        ],
        fields=list(_ADD),
    )


def _path(index: int, digest: str) -> str:
    unique = f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"
    return f"day={_day(index)}/part-{index % 200:05d}-{unique}.c000.snappy.parquet"


def _day(index: int) -> str:
    return f"2026-{index % 12 + 1:02d}-{index % 28 + 1:02d}"


def _stats(index: int, digest: str) -> str:
    name = digest[:8]
    return (
        f'{{"numRecords":{1_000 + index % 7},"minValues":{{"id":{index * 1_000},'
        f'"amount":{index % 89}.25,"name":"a{name}"}},"maxValues":{{"id":{index * 1_000 + 999},'
        f'"amount":{index % 89 + 10}.75,"name":"z{name}"}},'
        '"nullCount":{"id":0,"amount":3,"name":1}}'
    )


# Building


def _session(place: Path) -> Session:
    place.mkdir(parents=True, exist_ok=True)
    # The files that these commits name do not exist, and are not read.
    settings = Settings(verify_staged=0, unpublished_hard=10**9)
    return headgate.connect(place / "lake", publisher=False, settings=settings)


def _catalog(session: Session) -> Catalog:
    assert isinstance(session.catalog, Catalog)
    return session.catalog


def local(location: str) -> Path:
    """Return the local folder of a table."""
    return Path(location.removeprefix("file://"))


def append_inline(session: Session, table: Table, indexes: range, threads: int = _THREADS) -> None:
    """Commit a file each, from several threads: one sync then serves several commits."""
    ids = RandomIds()
    waiting: Iterator[int] = iter(indexes)
    lock = threading.Lock()
    latest = session.catalog.resolve(table.id).latest
    failures: list[BaseException] = []

    def work() -> None:
        nonlocal latest
        while not failures:
            with lock:
                index = next(waiting, None)
            if index is None:
                return
            try:
                answer = session.catalog.propose(
                    Proposal(
                        txn_id=TxnId(str(ids.ordered())),
                        parts=(
                            Part(
                                table_id=table.id,
                                version=Version(latest + 1),  # if it is taken, it is moved
                                content=inline(_lines(index, index + 1)),
                            ),
                        ),
                    )
                )
                assert isinstance(answer, Ratified), answer
                with lock:
                    latest = max(latest, answer.commits[table.id].version)
            except BaseException as error:
                failures.append(error)

    started = [threading.Thread(target=work) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failures:
        raise failures[0]


def inline(actions: bytes, *, is_blind: bool = True) -> Inline:
    """Return the content of a commit as a client would send it."""
    commit_info: dict[str, object] = {
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": '["day"]'},
        "isBlindAppend": is_blind,
        "engineInfo": "bench",
    }
    return Inline(commit_info=commit_info, actions=actions)


def _append_staged(session: Session, table: Table, contents: Iterator[bytes]) -> None:
    """Commit by staged files, one after the other."""
    ids = RandomIds()
    # Counted here: each answer of the catalog would contain all unpublished commits.
    resolved = session.catalog.resolve(table.id)
    version, timestamp_ms = resolved.latest, resolved.timestamp_ms
    for actions in contents:
        version, timestamp_ms = Version(version + 1), max(SystemClock().now_ms(), timestamp_ms + 1)
        txn_id = TxnId(str(ids.ordered()))
        commit_info = {
            "inCommitTimestamp": timestamp_ms,
            "txnId": txn_id,
            "timestamp": timestamp_ms,
            **inline(b"").commit_info,
        }
        first = json.dumps({"commitInfo": commit_info}, separators=(",", ":"))
        content = first.encode() + b"\n" + actions
        staged = StagedCommit(version, ids.random())
        path = local(table.location) / staged.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)  # a file for measuring need not outlive a power loss
        part = Part(
            table_id=table.id,
            version=version,
            content=Staged(file_name=staged.name, size=len(content)),
        )
        answer = session.catalog.propose(Proposal(txn_id=txn_id, parts=(part,)))
        assert isinstance(answer, Ratified), answer


def _append_tail(session: Session, table: Table, files: int, checkpoint: Version) -> None:
    """Commit a few times above the checkpoint: each adds ten files and removes one."""
    ids = RandomIds()
    for number in range(_TAIL):
        gone = add_file(number)
        actions = [
            RemoveFile(
                path=gone.path,
                deletion_timestamp=SystemClock().now_ms(),
                data_change=True,
                extended_file_metadata=True,
                partition_values=gone.partition_values,
                size=gone.size,
            ),
            *(add_file(files + number * 10 + place) for place in range(10)),
        ]
        content = inline(join(map(encode, actions)), is_blind=False)
        part = Part(table_id=table.id, version=Version(checkpoint + 1 + number), content=content)
        txn_id = TxnId(str(ids.ordered()))
        answer = session.catalog.propose(Proposal(txn_id=txn_id, parts=(part,)))
        assert isinstance(answer, Ratified), answer


def copy_plain(table: Path, plain: Path) -> None:
    """Copy a log as that of a plain table: without two features, with the same commits."""
    log = plain / "_delta_log"
    log.mkdir(parents=True)
    for path in (table / "_delta_log").glob("*.json"):
        content = path.read_bytes()
        if b'"protocol"' in content:
            (log / path.name).write_bytes(b"".join(map(_without_features, content.splitlines())))
        else:
            (log / path.name).hardlink_to(path)


def _without_features(line: bytes) -> bytes:
    action = json.loads(line)
    if "protocol" in action:
        for kind in ("readerFeatures", "writerFeatures"):
            listed = action["protocol"].get(kind, [])
            action["protocol"][kind] = [name for name in listed if name not in PLAIN_LACKS]
    return json.dumps(action, separators=(",", ":")).encode() + b"\n"


# A checkpoint with the layout that pyarrow chooses, not that of any writer of Delta

_MAP = pa.map_(pa.string(), pa.string())
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("tags", _MAP),
        ("stats", pa.string()),
    ]
)
_CHECKPOINT = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        ("add", _ADD),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _MAP),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)


def put_checkpoint(log: Path, snapshot: Snapshot, files: int, *, plain: bool) -> None:
    """Write a checkpoint of `files` files and the hint at it."""
    lacks = PLAIN_LACKS if plain else ()
    protocol, metadata = snapshot.protocol, snapshot.metadata
    few = pa.Table.from_pylist(
        [
            {
                "protocol": {
                    "minReaderVersion": protocol.min_reader_version,
                    "minWriterVersion": protocol.min_writer_version,
                    "readerFeatures": [f for f in protocol.reader_features or () if f not in lacks],
                    "writerFeatures": [f for f in protocol.writer_features or () if f not in lacks],
                }
            },
            {
                "metaData": {
                    "id": metadata.id,
                    "format": {"provider": "parquet", "options": []},
                    "schemaString": metadata.schema_string,
                    "partitionColumns": list(metadata.partition_columns),
                    "configuration": list(metadata.configuration.items()),
                    "createdTime": metadata.created_time,
                }
            },
        ],
        schema=_CHECKPOINT,
    )
    adds = pa.table(
        [
            add_columns(files) if field.name == "add" else pa.nulls(files, field.type)
            for field in _CHECKPOINT
        ],
        schema=_CHECKPOINT,
    )
    path = log / f"{snapshot.version:020d}.checkpoint.parquet"
    pq.write_table(pa.concat_tables([few, adds]), path)
    hint = {"version": snapshot.version, "size": files + 2, "sizeInBytes": path.stat().st_size}
    (log / "_last_checkpoint").write_text(json.dumps(hint))


# Keeping


def kept(name: str, build: Callable[[Path], None], *sources: Path) -> Prepared:
    """Build a lake, unless one of these sources is kept from an earlier run."""
    place = WORK / name
    found = KEPT / f"{name}-{_recipe(sources)}"
    if not found.exists():
        for outdated in KEPT.glob(f"{name}-*"):
            _remove(outdated)
        _remove(place)
        build(place)
        KEPT.mkdir(parents=True, exist_ok=True)
        place.rename(found)
    return Prepared(name, found, place)


def _recipe(sources: Iterable[Path]) -> str:
    """Return a hash of code and place: prepared data of others would not fit."""
    digest = hashlib.sha256(str(ROOT).encode())
    stores = ROOT / "src" / "headgate" / "catalog" / "stores"
    statements = sorted((stores / "migrations" / "sqlite").glob("*.sql"))
    written = sorted(stores.glob("sqlite*.py"))
    for source in [Path(__file__), *statements, *written, *sources]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
