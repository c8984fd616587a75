"""Delta's Java kernel and delta-storage's two catalog clients, as released, through our server."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from headgate.client.session import Session
from headgate.protocol.actions import TableId, encode
from tests.http.unity.conftest import BASE, CLOCK, file_bytes
from tests.interop.conftest import append, documented, is_whole, local, ours
from tests.interop.kernel import Kernel
from tests.kit.builders import add, metadata, protocol
from tests.kit.server import RunningServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]
DIALECTS = pytest.mark.parametrize("older", [False, True], ids=["delta/v1", "preview"])


@pytest.fixture
def kernel(released_spark: SparkSession, server: RunningServer) -> Callable[..., Kernel]:
    return lambda **how: Kernel(released_spark, server.address, **how)


# The kernel


def test_the_page_is_run_as_it_stands(
    released_spark: SparkSession, server: RunningServer, session: Session
) -> None:
    session.create_table("orders", "id long, item string")
    append(session, (1, "chair"), name="orders")
    first, second = documented("Java kernel")
    names: dict[str, Any] = {}
    exec((first + second).replace("http://127.0.0.1:8750", server.address), names)
    assert names["snapshot"].getVersion() == 1
    assert names["snapshot"].getPath().endswith(f"/{session.table('orders').id}")


@DIALECTS
def test_a_snapshot_is_loaded_now_of_a_version_and_of_a_time(
    kernel: Callable[..., Kernel], server: RunningServer, session: Session, older: bool
) -> None:
    table = session.create_table("t", "id long, who string")
    times = [session.table("t").history()[0].timestamp_ms]
    for number in range(1, 4):
        append(session, (number, "us"))
        times.append(session.table("t").history()[0].timestamp_ms)
    java = kernel(older=older)
    rows = [(1, "us"), (2, "us"), (3, "us")]
    latest = java.load(table)
    assert (latest.getVersion(), java.rows(latest)) == (3, rows)
    for version in range(4):
        past = java.load(table, version=version)
        assert (past.getVersion(), java.rows(past)) == (version, rows[:version])
        then = java.load(table, timestamp_ms=times[version])
        assert (then.getVersion(), java.rows(then)) == (version, rows[:version])
    with pytest.raises(IllegalArgumentException, match="latest version ratified by UC is 3"):
        java.load(table, version=4)
    assert is_whole(server)


@DIALECTS
def test_both_append_in_turns_publish_and_write_a_checkpoint(
    kernel: Callable[..., Kernel],
    server: RunningServer,
    session: Session,
    tmp_path: Path,
    older: bool,
) -> None:
    table = session.create_table("t", "id long, who string")
    java = kernel(older=older)
    rows: list[tuple[Any, ...]] = []
    for turn in range(3):
        append(session, (turn * 10, "us"))
        row = {"id": turn * 10 + 1, "who": "kernel"}
        done = java.append(java.load(table), tmp_path, row, {**row, "id": turn * 10 + 2})
        assert done.getVersion() == turn * 2 + 2
        rows += [(turn * 10, "us"), (turn * 10 + 1, "kernel"), (turn * 10 + 2, "kernel")]
        assert ours(session) == rows
        assert java.rows(java.load(table)) == rows
    log = local(session, "t") / "_delta_log"
    published = java.load(table).publish(java.engine)
    assert (log / f"{6:020d}.json").exists()
    published.writeCheckpoint(java.engine)
    published.writeChecksum(java.engine, _checksum_mode(java))
    assert list(log.glob(f"{6:020d}.checkpoint*"))
    assert (log / f"{6:020d}.crc").exists()
    append(session, (30, "us"))
    rows.append((30, "us"))
    assert java.rows(java.load(table)) == rows
    assert ours(session) == rows
    assert is_whole(server)


def _checksum_mode(java: Kernel) -> Any:
    name = "io.delta.kernel.Snapshot$ChecksumWriteMode"
    loader = java.java.java.lang.Thread.currentThread().getContextClassLoader()
    found = java.java.java.lang.Class.forName(name, True, loader)
    return found.getField("FULL").get(None)


def test_a_table_that_the_kernel_made_is_one_like_any_other(
    kernel: Callable[..., Kernel], server: RunningServer, session: Session, tmp_path: Path
) -> None:
    java = kernel()
    staged = java.client.createStagingTable(_named(java, "t"))
    types = java.delta.types
    schema = types.StructType().add("id", types.LongType.LONG)
    schema = schema.add("who", types.StringType.STRING)
    java.create("t", staged.getTableId().toString(), staged.getLocation(), schema)
    table = session.table("t")
    assert (table.id, table.version) == (staged.getTableId().toString(), 0)
    java.append(java.load(table), tmp_path, {"id": 1, "who": "kernel"})
    append(session, (2, "us"))
    rows = [(1, "kernel"), (2, "us")]
    assert ours(session) == rows
    assert java.rows(java.load(table)) == rows
    assert is_whole(server)


def test_the_one_that_comes_second_rebases_or_is_told_so(
    kernel: Callable[..., Kernel], server: RunningServer, session: Session, tmp_path: Path
) -> None:
    table = session.create_table("t", "id long, who string")
    java = kernel()
    before = java.load(table)
    append(session, (1, "us"))
    done = java.append(before, tmp_path, {"id": 2, "who": "kernel"})
    assert done.getVersion() == 2
    assert ours(session) == [(1, "us"), (2, "kernel")]
    assert is_whole(server)


# delta-storage's clients


def _named(java: Kernel, name: str) -> Any:
    namespace = java.spark.sparkContext._gateway.new_array(java.java.java.lang.String, 2)
    namespace[0], namespace[1] = "main", "default"
    return java.java.io.delta.storage.commit.TableIdentifier(namespace, name)


def _status(java: Kernel, file: Path) -> Any:
    path = java.java.org.apache.hadoop.fs.Path(str(file))
    hadoop = java.spark.sparkContext._jsc.hadoopConfiguration()
    return path.getFileSystem(hadoop).getFileStatus(path)


def _version_0(location: str, table_id: str) -> tuple[Any, Any, int]:
    """Write version 0 as an engine does; give what it says."""
    described, given = metadata(TableId(table_id)), protocol()
    timestamp_ms = CLOCK.now_ms()
    log = Path(location.removeprefix("file://")) / "_delta_log"
    log.mkdir(parents=True)
    content = file_bytes(given, described, timestamp_ms=timestamp_ms)
    (log / f"{0:020d}.json").write_bytes(content)
    return described, given, timestamp_ms


def _commit(
    java: Kernel, table_id: str, location: str, version: int, published: int | None = None
) -> None:
    """Stage a file and have the client propose it."""
    timestamp_ms = CLOCK.now_ms() + version
    name = f"{version:020d}.{java.java.java.util.UUID.randomUUID().toString()}.json"
    folder = Path(location.removeprefix("file://"))
    staged = folder / "_delta_log" / "_staged_commits" / name
    staged.parent.mkdir(exist_ok=True)
    staged.write_bytes(file_bytes(add(f"{version}.parquet"), timestamp_ms=timestamp_ms))
    commit = java.java.io.delta.storage.commit.Commit(version, _status(java, staged), timestamp_ms)
    nothing = java.java.java.util.Optional.empty()
    java.client.commit(
        table_id,
        java.java.java.net.URI.create(location),
        _named(java, "t"),
        java.java.java.util.Optional.of(commit),
        java.optional(published),
        *[nothing] * 4,
        java.java.java.util.ArrayList(),
        nothing,
    )


def _commits(java: Kernel, table_id: str, location: str, *limits: int | None) -> Any:
    return java.client.getCommits(
        table_id,
        java.java.java.net.URI.create(location),
        _named(java, "t"),
        *(java.optional(limit) for limit in limits),
    )


@pytest.fixture
def unverified(tmp_path: Path) -> Any:
    """A server that takes commits of files that are not there: these clients write none."""
    environment = {"HEADGATE_VERIFY_STAGED": "0"}
    with RunningServer(str(tmp_path / "lake"), environment=environment) as running:
        yield running


def test_the_client_of_the_new_dialect_creates_loads_commits_and_asks_for_commits(
    released_spark: SparkSession, unverified: RunningServer
) -> None:
    java = Kernel(released_spark, unverified.address)
    assert java.client.getClass().getSimpleName() == "UCDeltaTokenBasedRestClient"
    staged = java.client.createStagingTable(_named(java, "t"))
    table_id, location = staged.getTableId().toString(), staged.getLocation()
    required = dict(staged.getRequiredProperties())
    assert required["io.unitycatalog.tableId"] == table_id
    assert "catalogManaged" in set(staged.getRequiredProtocol().getReaderFeatures())
    described, given, timestamp_ms = _version_0(location, table_id)
    actions = java.java.org.apache.spark.sql.delta.actions.Action
    made = java.client.createTable(
        java.java.java.net.URI.create(location),
        _named(java, "t"),
        staged.getTableType(),
        actions.fromJson(encode(described).decode()),
        actions.fromJson(encode(given).decode()),
        java.java.java.util.ArrayList(),
        timestamp_ms,
        java.java.java.util.Optional.empty(),
    )
    assert made.getTableId().toString() == table_id
    assert _commits(java, table_id, location, None, None).getLatestTableVersion() == 0
    _commit(java, table_id, location, 1)
    _commit(java, table_id, location, 2)
    loaded = java.client.loadTable(_named(java, "t"))
    assert loaded.getLocation() == location
    configuration = dict(loaded.getMetadata().getConfiguration())
    assert configuration["io.unitycatalog.tableId"] == table_id
    found = _commits(java, table_id, location, None, None)
    assert found.getLatestTableVersion() == 2
    assert sorted(commit.getVersion() for commit in found.getCommits()) == [1, 2]
    with pytest.raises(Py4JJavaError, match="CommitFailedException"):
        _commit(java, table_id, location, 2)


def test_the_client_of_the_older_dialect_creates_commits_and_asks_for_commits(
    released_spark: SparkSession, unverified: RunningServer
) -> None:
    java = Kernel(released_spark, unverified.address, older=True)
    assert java.client.getClass().getSimpleName() == "UCTokenBasedRestClient"
    assert java.client.getMetastoreId()
    with httpx.Client(base_url=unverified.address) as http:
        wish = {"name": "t", "catalog_name": "main", "schema_name": "default"}
        staged = http.post(f"{BASE}/staging-tables", json=wish).json()
    table_id, location = staged["id"], staged["staging_location"]
    described, given, timestamp_ms = _version_0(location, table_id)
    properties = java.java.java.util.HashMap()
    for key, value in described.configuration.items():
        properties.put(key, value)
    actions = java.java.org.apache.spark.sql.delta.actions.Action
    column = java.java.io.delta.storage.commit.uccommitcoordinator.UCClient.ColumnDef
    columns = java.java.java.util.ArrayList()
    columns.add(column("id", "LONG", "bigint", '"long"', True, 0))
    java.client.finalizeCreate(
        "t",
        "main",
        "default",
        location,
        columns,
        actions.fromJson(encode(given).decode()),
        properties,
        timestamp_ms,
        java.java.java.util.ArrayList(),
    )
    assert _commits(java, table_id, location, None, None).getLatestTableVersion() == 0
    for version in (1, 2, 3):
        _commit(java, table_id, location, version)
    found = _commits(java, table_id, location, 2, None)
    assert found.getLatestTableVersion() == 3
    assert sorted(commit.getVersion() for commit in found.getCommits()) == [2, 3]
    found = _commits(java, table_id, location, 1, 2)
    assert sorted(commit.getVersion() for commit in found.getCommits()) == [1, 2]
    with pytest.raises(Py4JJavaError, match="CommitFailedException"):
        _commit(java, table_id, location, 3)


# By path


def test_without_the_connector_delta_spark_refuses_by_path(
    released_spark: SparkSession, server: RunningServer, session: Session
) -> None:
    session.create_table("t", "id long, who string")
    append(session, (1, "us"))
    session.table("t").publish()
    location = session.table("t").location
    log = local(session, "t") / "_delta_log"
    before = sorted(path.name for path in log.glob("*.json"))
    refused = re.compile("catalog.?managed", re.IGNORECASE)
    with pytest.raises(Exception, match=refused):
        released_spark.read.format("delta").load(location).collect()
    rows = released_spark.createDataFrame([(2, "spark")], "id long, who string")
    with pytest.raises(Exception, match=refused):
        rows.write.format("delta").mode("append").save(location)
    assert sorted(path.name for path in log.glob("*.json")) == before
    assert ours(session) == [(1, "us")]
    assert is_whole(server)
