"""Tables that others write are the same tables to us: files, records, every version."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from duckdb_extensions import import_extension

from headgate.protocol.actions import Version
from headgate.protocol.log import checksums
from headgate.storage.local import LocalStore
from headgate.storage.locations import data_path
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_loader import load_path
from tests.kit import req
from tests.kit.fake_catalog import FakeCatalog
from tests.table.snapshot_cases import FIRST, add

TABLES = Path(__file__).parent / "tables"


def located(snapshot: Snapshot) -> list[str]:
    """Give the paths of a snapshot's files on this machine."""
    root = urlsplit(snapshot.store.url).path
    return sorted(unquote(root) + "/" + data_path(file.path).value for file in snapshot.files())


def theirs(table: DeltaTable) -> list[str]:
    return sorted(uri.removeprefix("file://") for uri in table.file_uris())


def records(snapshot: Snapshot) -> int:
    """Count rows by statistics and deletion vectors."""
    total = 0
    for file in snapshot.files():
        assert file.stats is not None
        total += json.loads(file.stats)["numRecords"]
        if file.deletion_vector is not None:
            total -= file.deletion_vector.cardinality
    return total


def rows(count: int, start: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": range(start, start + count),
            "part": [("a b", "c/d%", None)[n % 3] for n in range(count)],
        }
    )


def agrees_with_deltalake(root: Path) -> None:
    latest = DeltaTable(root)
    for version in range(latest.version() + 1):
        table = DeltaTable(root, version=version)
        snapshot = load_path(str(root), version=Version(version))
        assert snapshot.version == version
        assert located(snapshot) == theirs(table)
        assert all(Path(path).is_file() for path in located(snapshot))
        assert snapshot.num_files == len(theirs(table))
        assert snapshot.metadata.id == str(table.metadata().id)
        counted = QueryBuilder().register("t", table).execute("SELECT count(*) AS n FROM t")
        assert records(snapshot) == pa.table(counted.read_all())["n"][0].as_py()


@pytest.mark.slow
def test_what_deltalake_writes_is_read_with_the_same_files_at_every_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "t"
    write_deltalake(root, rows(30), partition_by=["part"])
    write_deltalake(
        root,
        rows(6, 30),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction("stream", 5)]),
    )
    DeltaTable(root).delete("id % 2 = 0")
    DeltaTable(root).create_checkpoint()
    write_deltalake(root, rows(9, 100), mode="append")
    DeltaTable(root).update(updates={"id": "id + 1000"}, predicate="id > 104")
    DeltaTable(root).optimize.compact()
    write_deltalake(root, rows(3, 500), mode="overwrite")
    agrees_with_deltalake(root)
    assert not list(root.glob("_delta_log/*.crc"))  # nothing to compare with, nothing logged
    assert caplog.messages == []
    snapshot = load_path(str(root))
    assert snapshot.set_transactions["stream"].version == 5
    assert snapshot.partition_columns == ("part",)
    assert {file.partition_values["part"] for file in snapshot.files()} == {"a b", "c/d%", None}


@pytest.mark.slow
def test_what_polars_writes_is_read_with_the_same_files_at_every_version(tmp_path: Path) -> None:
    root = tmp_path / "t"
    frame = pl.DataFrame({"id": list(range(20)), "part": ["x", "y"] * 10})
    frame.write_delta(root, delta_write_options={"partition_by": ["part"]})
    frame.write_delta(root, mode="append")
    frame.head(3).write_delta(root, mode="overwrite")
    agrees_with_deltalake(root)


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        import_extension("delta", con=connection)
        connection.load_extension("delta")
        yield connection


@pytest.mark.slow
def test_what_duckdb_appends_is_read_with_the_same_files(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    root = tmp_path / "t"
    # It cannot find again what it writes under partition values with special characters.
    write_deltalake(root, pa.table({"id": range(6), "part": ["x", "y"] * 3}), partition_by=["part"])
    duck.execute(f"ATTACH '{root}' AS t (TYPE delta)")
    duck.execute("INSERT INTO t SELECT range + 100, 'x' FROM range(50)")
    duck.execute("INSERT INTO t VALUES (7, 'new'), (8, 'new')")
    duck.execute("DETACH t")
    snapshot = load_path(str(root))
    assert snapshot.version == 2
    assert located(snapshot) == theirs(DeltaTable(root))
    assert records(snapshot) == 58
    [(counted,)] = duck.execute(f"SELECT count(*) FROM delta_scan('{root}')").fetchall()
    assert counted == 58


@pytest.mark.slow
@req("RD-02")
def test_strangers_refuse_a_catalog_managed_table_by_path_and_leave_it_unchanged(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    catalog = FakeCatalog(LocalStore(tmp_path))
    catalog.ratify(*FIRST)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "f1.parquet")
    catalog.ratify(add("f1.parquet", (tmp_path / "f1.parquet").stat().st_size))
    catalog.publish()
    more = pa.table({"id": [2], "day": ["mon"]})

    def inserts() -> None:
        duck.execute(f"ATTACH '{tmp_path}' AS t (TYPE delta)")
        duck.execute("INSERT INTO t VALUES (2, 'mon')")

    attempts: list[Callable[[], object]] = [
        lambda: load_path(str(tmp_path)),
        lambda: DeltaTable(tmp_path).to_pyarrow_table(),
        lambda: write_deltalake(tmp_path, more, mode="append"),
        lambda: pl.read_delta(str(tmp_path)),
        lambda: pl.from_arrow(more).write_delta(tmp_path, mode="append"),  # type: ignore[union-attr]
        lambda: duck.execute(f"SELECT * FROM delta_scan('{tmp_path}')").fetchall(),
        inserts,
    ]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("_delta_log/*")}
    for attempt in attempts:
        with pytest.raises(Exception, match=r"(?i)catalog.?managed"):
            attempt()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("_delta_log/*")} == before


# Tables that delta-spark wrote, each beside what Spark read of it


@cache
def about(case: str) -> dict[str, Any]:
    case_file: dict[str, Any] = json.loads((TABLES / case / "case.json").read_text())
    return case_file


CASES = sorted(path.parent.name for path in TABLES.glob("*/case.json"))


@pytest.mark.parametrize("case", CASES)
def test_a_table_of_delta_spark_has_the_files_spark_counted(case: str) -> None:
    case_file = about(case)
    snapshot = load_path(str(TABLES / case / "table"))
    assert snapshot.version == case_file["latest"]
    assert snapshot.num_files == case_file["files"]
    assert snapshot.num_files == snapshot.file_columns().num_rows == len(snapshot.files())
    assert list(snapshot.partition_columns) == case_file["partition_by"]
    protocol = snapshot.protocol
    assert [protocol.min_reader_version, protocol.min_writer_version] == case_file["protocol"]


@pytest.mark.parametrize("case", CASES)
def test_a_table_of_delta_spark_has_the_records_spark_read(case: str) -> None:
    case_file = about(case)
    versions = [
        *case_file["versions"],
        *(v["version"] for v in case_file.get("versions_of_old_schema", [])),
    ]
    for version in set(versions):
        snapshot = load_path(str(TABLES / case / "table"), version=Version(version))
        if any(file.stats is None for file in snapshot.files()):
            continue  # the number of rows in these files is not recorded
        expected = pq.read_metadata(TABLES / case / "expected" / f"v{version}.parquet").num_rows
        assert records(snapshot) == expected


@pytest.mark.parametrize("case", CASES)
def test_a_version_checksum_of_delta_spark_comes_out_the_same(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = TABLES / case / "table"
    for path in sorted(root.glob("_delta_log/*.crc")):
        version = Version(int(path.stem))
        if version < about(case).get("first_version", 0):
            continue
        checksum = json.loads(path.read_text())
        caplog.clear()
        snapshot = load_path(str(root), version=version)
        assert caplog.messages == []  # compared with the file, down to the schema
        assert checksums.parse(path.read_bytes()).num_files == checksum["numFiles"]
        assert (snapshot.num_files, snapshot.size_in_bytes) == (
            checksum["numFiles"],
            checksum["tableSizeBytes"],
        )
        if (timestamp_ms := checksum.get("inCommitTimestampOpt")) is not None:
            assert snapshot.timestamp_ms == timestamp_ms
        if (transactions := checksum.get("setTransactions")) is not None:
            assert {t["appId"]: t["version"] for t in transactions} == {
                app_id: txn.version for app_id, txn in snapshot.set_transactions.items()
            }
        if (domains := checksum.get("domainMetadata")) is not None:
            assert {d["domain"] for d in domains} == set(snapshot.domains)
