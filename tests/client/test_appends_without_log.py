"""Planning from the catalog's answer: a table is opened and appended to without its log."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from headgate.client.table import Table
from headgate.errors import InvalidDataError
from headgate.protocol.actions import Version, decode
from headgate.protocol.commit.content import Way
from headgate.protocol.log import replay
from headgate.protocol.log.replay import TableState
from headgate.protocol.paths import LOG, STAGED, PublishedCommit
from headgate.table.log_files import DeltaLog
from headgate.table.ratified_content import ratified_content
from headgate.table.snapshot import Snapshot
from tests.client.conftest import World, ids_in, rows
from tests.kit import req
from tests.kit.faulty_stores import Call, CountingStore

LONG = 300


def with_history(world: World, count: int = LONG, **made: object) -> Table:
    """A table with many commits, most of them published."""
    table = world.make(**made)  # type: ignore[arg-type]
    for number in range(count):
        table.set_properties({"number": number})
    table.publish(upto=count - 20)
    return table


def kept(world: World, table: Table) -> CountingStore:
    """Count what the table's storage is asked for from now on."""
    store = world.store_for(table.location)
    store.calls.clear()
    return store


def is_data(call: Call) -> bool:
    return call.method.startswith("put") and not any(path.startswith(LOG) for path in call.paths)


@req("CM-22")
@pytest.mark.slow
@pytest.mark.parametrize("way", [Way.INLINE, Way.STAGED])
def test_opening_a_table_and_appending_to_it_reads_nothing_of_a_long_log(
    full_world: World, way: Way
) -> None:
    made = with_history(full_world)
    catalog = full_world.losing()
    store = kept(full_world, made)
    session = full_world.session if way is Way.INLINE else full_world.staging_session
    table = session(catalog).table("orders")
    assert table.version == LONG
    assert [field.name for field in table.schema.fields] == ["id", "day"]
    assert table.properties["number"] == str(LONG - 1)
    assert table.snapshot().num_files == 0
    assert not store.calls
    for number in range(5):
        table.append(rows(number))
    assert table.version == LONG + 5
    assert table.snapshot().num_files == 5
    assert set(catalog.calls) == {"resolve", "propose"}
    others = [call for call in store.calls if not is_data(call)]
    if way is Way.STAGED:  # the client stages, and the catalog reads the staged file
        assert {path.rpartition("/")[0] for call in others for path in call.paths} == {STAGED}
    else:
        assert not others
    assert ids_in(table.to_arrow()) == [0, 1, 2, 3, 4]


@req("CM-22")
def test_rows_are_checked_by_the_constraints_in_the_catalogs_answer(full_world: World) -> None:
    made = full_world.make(schema="id long not null, day date")
    store = kept(full_world, made)
    table = full_world.session().table("orders")
    missing = pa.table({"id": pa.nulls(1, pa.int64()), "day": pa.nulls(1, pa.date32())})
    with pytest.raises(InvalidDataError):
        table.append(missing)
    assert not any(path.startswith(LOG) for call in store.calls for path in call.paths)


@req("CM-22")
def test_row_ids_go_on_without_a_look_at_the_log(full_world: World) -> None:
    """Staged commits have row ids from the client, above the mark in the catalog's answer."""
    made = full_world.make(properties={"delta.enableRowTracking": "true"})
    made.append(rows(1, 2, 3))
    store = kept(full_world, made)
    table = full_world.staging_session().table("orders")
    table.append(rows(4, 5))
    full_world.session().table("orders").append(rows(6))
    table.append(rows(7))
    assert store.count("get", prefix=f"{LOG}/0") == 0
    found = sorted(full_world.session().table("orders").snapshot().files(), key=first_row)
    assert [first_row(file) for file in found] == [0, 3, 5, 6]


def first_row(file: object) -> int:
    base = file.base_row_id  # type: ignore[attr-defined]
    assert isinstance(base, int)
    return base


def test_a_cut_of_many_tables_reads_only_those_that_are_read(full_world: World) -> None:
    one, two = full_world.make("one"), full_world.make("two")
    for table in (one, two):
        table.append(rows(1))
        table.publish()
    stores = [kept(full_world, table) for table in (one, two)]
    cut = full_world.session().read_cut(["one", "two"])
    assert [snapshot.version for snapshot in cut.values()] == [1, 1]
    assert not any(store.calls for store in stores)


# The catalog against the log


def replayed(world: World, table: Table, version: int) -> TableState:
    """The table by its commits alone, from the first to the one asked for."""
    log = DeltaLog(world.store_for(table.location))
    held = {
        commit.version: commit
        for commit in world.catalog.ratified_commits(table.id, Version(0)).commits
    }
    contents = []
    for number in map(Version, range(version + 1)):
        commit = held.get(number)
        content = log.read_published(number) if commit is None else ratified_content(log, commit)
        assert content is not None
        contents.append(content)
    return replay.apply(replay.EMPTY, Version(version), decode(b"\n".join(contents)))


def steps(world: World, chance: random.Random) -> list[Callable[[Table], object]]:
    """All that may happen to a table, each with something of chance in it."""
    number = chance.randrange(1_000)
    staging = world.staging_session()

    def checkpoint(table: Table) -> None:
        table.publish()
        table.checkpoint(kind=chance.choice(["classic", "v2", "v2-json"]))

    def remove(table: Table) -> None:
        files = [file.path for file in table.snapshot().files()]
        if files:
            table.remove(chance.sample(files, chance.randint(1, len(files))))

    def unset(table: Table) -> None:
        keys = [key for key in table.properties if key.startswith("p")]
        if keys:
            table.unset_properties(chance.sample(keys, 1))

    return [
        lambda table: table.append(rows(number)),
        lambda table: staging.table("orders").append(rows(number, number + 1)),
        lambda table: table.overwrite(rows(number)),
        remove,
        lambda table: table.set_properties({f"p{number % 5}": number}),
        lambda table: table.set_properties({"delta.enableChangeDataFeed": number % 2 == 0}),
        lambda table: table.set_properties({"delta.enableDeletionVectors": True}),
        unset,
        lambda table: table.comment(str(number)),
        lambda table: table.publish(upto=chance.randint(0, table.version)),
        checkpoint,
    ]


@req("CM-22", "RD-03")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_the_catalogs_answer_equals_the_log_after_every_step(full_world: World, seed: int) -> None:
    chance = random.Random(seed)
    table = full_world.make(
        properties={
            "delta.feature.v2Checkpoint": "supported",
            **({"delta.enableRowTracking": "true"} if seed % 2 else {}),
        }
    )
    sequences = []
    for _ in range(30):
        chance.choice(steps(full_world, chance))(table)
        resolved = full_world.catalog.resolve(table.id)
        state = replayed(full_world, table, resolved.latest)
        assert resolved.protocol == state.protocol
        assert resolved.metadata == state.metadata
        checksum = resolved.checksum
        assert checksum is not None
        assert (checksum.num_files, checksum.table_size_bytes) == (
            state.num_files,
            state.size_in_bytes,
        )
        assert {d.domain: d for d in checksum.domain_metadata or ()} == state.domains
        own = table._latest  # as the handle carried it through its own commits
        if own.version == resolved.latest:
            assert (own.protocol, own.metadata) == (state.protocol, state.metadata)
            assert own.num_files == state.num_files
            assert own.size_in_bytes == state.size_in_bytes
            assert own.domains == state.domains
        sequences.append((resolved.sequence, resolved.latest))
    for sequence, version in sequences:
        then = full_world.catalog.resolve(table.id, sequence)
        state = replayed(full_world, table, version)
        assert then.latest == version
        assert then.protocol in (None, state.protocol)
        assert then.metadata in (None, state.metadata)
    cold = full_world.session().table("orders").snapshot()
    assert {file.path for file in cold.files()} == {file.path for file in table.snapshot().files()}


# Late reads


@req("RD-06")
def test_a_loaded_version_is_read_from_the_answer_even_if_the_log_changes(
    full_world: World,
) -> None:
    made = full_world.make()
    for number in range(4):
        made.append(rows(number))
    pinned = full_world.session().table("orders").snapshot()
    made.overwrite(rows(9))
    made.publish()
    made.checkpoint()
    assert full_world.catalog.ratified_commits(made.id).commits == ()
    store = full_world.store_for(made.location)
    for version in range(made.version):
        store.delete(PublishedCommit(Version(version)).path)
    assert (pinned.version, len(pinned.files())) == (4, 4)
    assert ids_in(full_world.session().table("orders").to_arrow()) == [9]


def test_a_pinned_version_of_a_table_that_was_dropped_is_read_still(full_world: World) -> None:
    made = full_world.make()
    for number in range(40):
        made.append(rows(number))
    made.publish()
    pinned = full_world.session().table("orders").snapshot()
    full_world.session().drop("orders")
    assert len(pinned.files()) == 40


def test_a_snapshot_of_the_table_after_a_commit_is_found_without_asking(full_world: World) -> None:
    table = full_world.make()
    table.append(rows(1))
    catalog = full_world.losing()
    mine = full_world.session(catalog).table("orders")
    committed = mine.append(rows(2))
    after = committed.snapshots[mine.id]
    assert (after.version, after.num_files, after.is_read) == (2, 2, False)
    assert dict(catalog.calls) == {"resolve": 1, "propose": 1}
    assert after.timestamp_ms == committed.timestamp_ms
    assert isinstance(after, Snapshot)
    assert len(after.files()) == 2
