"""Catalog-managed tables: filesystem-based access is not supported. Whoever comes by path is warned
or blocked, and the log stays as it was."""

from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import headgate
from headgate.catalog.service import Catalog
from headgate.errors import AlreadyExistsError, InvalidArgumentError, PathAccessError
from headgate.protocol.commit.content import Way
from tests.conformance.conftest import Lake, Story, directory, log_of, ours, rows_of
from tests.kit import req
from tests.kit.builders import ManualClock
from tests.kit.other_readers import (
    deltalake_reads,
    duckdb_executes,
    duckdb_scans,
    every_file,
    plain_copy,
    polars_reads,
)

FRAME = pl.DataFrame({"id": [1], "part": ["x"]})


def attached(path: Path, statement: str, options: str = "") -> None:
    duckdb_executes(f"ATTACH '{path}' AS victim (TYPE delta{options}); {statement}")


READS: dict[str, Callable[[Path], object]] = {
    "deltalake opens": DeltaTable,
    "deltalake opens an old version": lambda path: DeltaTable(path, version=1),
    "deltalake queries": deltalake_reads,
    "polars reads": polars_reads,
    "polars scans": lambda path: pl.scan_delta(str(path)).collect(),
    "DuckDB scans": lambda path: duckdb_executes(f"SELECT * FROM delta_scan('{path}')"),
    "DuckDB attaches": duckdb_scans,
    "DuckDB attaches an old version": lambda path: duckdb_scans(path, 1),
}
WRITES: dict[str, Callable[[Path], object]] = {
    "deltalake appends": lambda path: write_deltalake(path, rows_of([1]), mode="append"),
    "deltalake overwrites": lambda path: write_deltalake(path, rows_of([1]), mode="overwrite"),
    "deltalake deletes": lambda path: DeltaTable(path).delete("id = 1"),
    "deltalake updates": lambda path: DeltaTable(path).update(updates={"id": "id + 1"}),
    "deltalake sets a property": lambda path: DeltaTable(path).alter.set_table_properties(
        {"delta.appendOnly": "true"}
    ),
    "deltalake compacts": lambda path: DeltaTable(path).optimize.compact(),
    "deltalake vacuums": lambda path: DeltaTable(path).vacuum(
        0, dry_run=False, enforce_retention_duration=False
    ),
    "deltalake restores": lambda path: DeltaTable(path).restore(1),
    "deltalake cleans up": lambda path: DeltaTable(path).cleanup_metadata(),
    "deltalake checkpoints": lambda path: DeltaTable(path).create_checkpoint(),
    "polars appends": lambda path: FRAME.write_delta(str(path), mode="append"),
    "DuckDB inserts": lambda path: attached(path, "INSERT INTO victim VALUES (1, 'x')"),
}
ATTEMPTS = READS | WRITES


@pytest.fixture
def story(lake: Lake) -> Story:
    return written(lake)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The same, for tests that see that it stays as it is."""
    lake = Lake(root := tmp_path_factory.mktemp("root"), root / "scratch", ManualClock())
    yield written(lake)
    lake.close()


def written(lake: Lake) -> Story:
    """Make a table with published commits, a checkpoint and an unpublished tail."""
    story = lake.story()
    story.write()
    story.publish(6)
    story.checkpoint(4)
    return story


@req("RD-02")
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_stranger_that_comes_by_path_is_stopped_and_the_log_is_unchanged(
    untouched: Story, attempt: str
) -> None:
    story = untouched
    before = every_file(story.location)
    # `IOException` of DuckDB is an `OSError` by name only.
    with pytest.raises(Exception, match=r"(?i)max.catalog.version") as stopped:
        ATTEMPTS[attempt](directory(story.location))
    assert type(stopped.value).__module__ in (DeltaError.__module__, "_duckdb")
    assert every_file(story.location) == before
    assert ours(story.lake.table()) == story.rows_at(story.latest)


@req("RD-02")
@pytest.mark.slow
def test_nothing_but_the_feature_keeps_readers_out(story: Story, tmp_path: Path) -> None:
    copy = plain_copy(story.location, tmp_path / "copy")
    for attempt in READS.values():
        attempt(copy)


@req("RD-02")
@pytest.mark.parametrize("version", [None, 0, 3])
def test_our_own_client_refuses_and_names_the_id_the_lake_and_the_way(
    untouched: Story, version: int | None
) -> None:
    story = untouched
    before = every_file(story.location)
    for path in (story.location, directory(story.location)):
        with pytest.raises(PathAccessError) as refused:
            headgate.open(path, version=version)
        message, lake = str(refused.value), story.lake.root / "lake"
        assert f"table {story.id} of the lake at {lake}" in message
        assert f"headgate.connect({str(lake)!r})" in message
    assert every_file(story.location) == before


@req("RD-02", "EN-02")
def test_outside_of_its_lake_the_refusal_still_names_the_id(
    untouched: Story, tmp_path: Path
) -> None:
    story = untouched
    moved = tmp_path / "elsewhere"
    for name, content in every_file(story.location).items():
        (moved / name).parent.mkdir(parents=True, exist_ok=True)
        (moved / name).write_bytes(content)
    with pytest.raises(PathAccessError, match=f"it is table {story.id}\\."):
        headgate.open(moved)


@req("EN-02")
def test_another_catalog_neither_manages_it_nor_opens_it_under_a_name(
    untouched: Story, tmp_path: Path
) -> None:
    story = untouched
    before = every_file(story.location)
    with headgate.connect(tmp_path / "other", publisher=False) as other:
        assert isinstance(other.catalog, Catalog)
        with pytest.raises(AlreadyExistsError, match=f"as its table {story.id}"):
            other.catalog.stage_table(story.location)
        # An external table is named unread, so what is there is found out when it is opened.
        other.register_external("theirs", story.location)
        for version in (None, 0, 5):
            with pytest.raises(PathAccessError, match=f"table {story.id} of the lake"):
                other.open_external("theirs", version=version)
        with pytest.raises(InvalidArgumentError, match="external"):
            other.table("theirs")
        assert [entry.latest for entry in other.tables()] == [None]
    assert every_file(story.location) == before


@req("RD-02")
def test_a_catalog_managed_table_is_known_also_from_a_checkpoint_alone(story: Story) -> None:
    for path in log_of(story.location).glob("*.json"):
        if int(path.stem) <= 3:
            path.unlink()
    with pytest.raises(PathAccessError, match=story.id):
        headgate.open(story.location)


@req("RD-02")
def test_the_copy_without_the_feature_is_read_by_our_own_client_as_well(
    story: Story, tmp_path: Path
) -> None:
    story.publish()
    story.append(50, way=Way.STAGED)  # unpublished: by path it cannot be seen
    copy = headgate.open(plain_copy(story.location, tmp_path / "copy"))
    assert copy.version == story.latest - 1
    assert copy.to_arrow().num_rows == len(story.rows_at(story.latest - 1).values)
