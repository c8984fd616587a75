"""A proposal over several tables is ratified whole or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate.api.messages import Proposal, Ratified, Rejected, VersionTaken
from headgate.errors import InvalidArgumentError, TooLargeError
from headgate.protocol.actions import AddFile, Sequence, TableId, TxnId
from headgate.protocol.commit.conflicts import Isolation, Scan
from headgate.protocol.encoding import replaced
from headgate.storage import locations
from headgate.table import snapshot_loader
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import add, inline, new_txn_id, remove


def over(house: House, versions: dict[TableId, int], txn_id: TxnId | None = None) -> Proposal:
    txn_id = txn_id or new_txn_id()
    stamp = max(house.clock.ms, *(house.stamp_of(table) + 1 for table in versions))
    return Proposal(
        txn_id=txn_id,
        parts=tuple(
            house.part(table, version, add(), txn_id=txn_id, timestamp_ms=stamp)
            for table, version in versions.items()
        ),
    )


def files_of(house: House, table: TableId) -> list[AddFile]:
    """Read a table's log as a reader does."""
    return snapshot_loader.load(house.catalog, table, store_for=locations.store_for).files()


def heads(house: House, tables: list[TableId]) -> list[int]:
    return [house.catalog.resolve(table).latest for table in tables]


@req("MT-01", "MT-16")
@shows("S7")
def test_tables_of_one_proposal_get_one_sequence_and_one_timestamp(lake: House) -> None:
    tables = [lake.create(f"t{i}").table_id for i in range(8)]
    lake.propose(tables[0], 1, add())
    versions = {table: 2 if table == tables[0] else 1 for table in tables}
    answer = lake.catalog.propose(over(lake, versions))
    assert isinstance(answer, Ratified)
    assert {table: commit.version for table, commit in answer.commits.items()} == versions
    assert len({commit.timestamp_ms for commit in answer.commits.values()}) == 1
    assert {commit.sequence for commit in answer.commits.values()} == {answer.sequence}


@req("MT-01", "MT-04")
@shows("FM2", "S7")
def test_one_table_of_eight_in_conflict_rejects_all_and_is_named(lake: House) -> None:
    tables = [lake.create(f"t{i}").table_id for i in range(8)]
    file = add()
    for table in tables:
        lake.propose(table, 1, file)
    txn_id = new_txn_id()
    stamp = max(lake.clock.ms, *(lake.stamp_of(table) + 1 for table in tables))
    parts = tuple(
        lake.part(table, 2, remove(file), txn_id=txn_id, timestamp_ms=stamp) for table in tables
    )
    lake.propose(tables[5], 2, remove(file))
    before = heads(lake, tables)
    answer = lake.catalog.propose(Proposal(txn_id=txn_id, parts=parts))
    assert isinstance(answer, Rejected)
    assert {(conflict.rule, conflict.table_id) for conflict in answer.conflicts} == {
        ("R6", tables[5])
    }
    assert {table: [c.version for c in won] for table, won in answer.winners.items()} == {
        tables[5]: [2]
    }
    assert heads(lake, tables) == before
    lake.propose(tables[0], 2, add())  # what was staged for this version means nothing
    assert file.path in {found.path for found in files_of(lake, tables[0])}


@req("MT-01")
@shows("FM2")
def test_one_invalid_part_refuses_all(lake: House) -> None:
    tables = [lake.create(f"t{i}").table_id for i in range(3)]
    txn_id = new_txn_id()
    bad = add("../../elsewhere.parquet")
    parts = tuple(
        lake.part(table, 1, bad if table == tables[1] else add(), txn_id=txn_id) for table in tables
    )
    answer = lake.catalog.propose(Proposal(txn_id=txn_id, parts=parts))
    assert isinstance(answer, Rejected)
    assert heads(lake, tables) == [0, 0, 0]


@req("MT-06")
@shows("FC4")
def test_a_transaction_proposed_again_gets_its_first_answer(lake: House) -> None:
    tables = [lake.create(f"t{i}").table_id for i in range(3)]
    proposal = over(lake, dict.fromkeys(tables, 1))
    first = lake.catalog.propose(proposal)
    assert lake.catalog.propose(proposal) == first
    for table in tables:
        lake.catalog.publish(table)
    lake.restart()
    again = lake.catalog.propose(proposal)
    assert isinstance(again, Ratified)
    assert isinstance(first, Ratified)
    assert again.sequence == first.sequence
    assert heads(lake, tables) == [1, 1, 1]
    outcome = lake.database.outcome(proposal.txn_id)
    assert isinstance(outcome, Ratified)
    assert outcome.commits.keys() == set(tables)


@req("MT-06")
def test_a_rejected_transaction_proposed_again_is_rejected_for_the_same_reasons(
    lake: House,
) -> None:
    tables = [lake.create(f"t{i}").table_id for i in range(3)]
    file = add()
    for table in tables:
        lake.propose(table, 1, file)
    txn_id = new_txn_id()
    stamp = max(lake.stamp_of(table) for table in tables) + 1
    parts = tuple(
        lake.part(table, 2, remove(file), txn_id=txn_id, timestamp_ms=stamp) for table in tables
    )
    proposal = Proposal(txn_id=txn_id, parts=parts)
    lake.propose(tables[1], 2, remove(file))
    first = lake.catalog.propose(proposal)
    assert isinstance(first, Rejected)
    lake.propose(tables[1], 3, file)  # what it removes is there again
    for table in tables:
        lake.catalog.publish(table)
    lake.restart()
    again = lake.catalog.propose(proposal)
    assert again == replaced(first, winners={})  # they are commits of the table like any other
    assert lake.database.outcome(txn_id) == again
    assert heads(lake, tables) == [1, 3, 1]


@req("MT-01")
@shows("FM3")
def test_transactions_over_the_same_tables_in_opposite_order_all_end(inline_lake: House) -> None:
    house = inline_lake
    a, b = (house.create(name).table_id for name in "ab")
    orders = [{a: 1, b: 1}, {b: 1, a: 1}]

    def propose(number: int) -> object:
        return house.catalog.propose(over(house, orders[number % 2]))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(propose, range(40)))
    assert all(isinstance(answer, Ratified) for answer in answers)
    assert heads(house, [a, b]) == [40, 40]


@shows("FM6", "FI8", "S25")
def test_a_transaction_over_a_table_dropped_and_made_again_is_refused_by_id(lake: House) -> None:
    old, other = lake.create("t").table_id, lake.create("u").table_id
    proposal = over(lake, {old: 1, other: 1})
    lake.catalog.drop_table(old)
    new = lake.create("t").table_id
    answer = lake.catalog.propose(proposal)
    assert isinstance(answer, Rejected)
    assert {(c.rule, c.table_id) for c in answer.conflicts} == {("R9", old)}
    assert heads(lake, [new, other]) == [0, 0]


@req("MT-02")
@shows("FM5", "S17", "FX3")
def test_a_cut_of_several_tables_never_shows_part_of_a_transaction(inline_lake: House) -> None:
    house = inline_lake
    tables = [house.create(f"t{i}").table_id for i in range(4)]

    def write(_: int) -> None:
        house.catalog.propose(over(house, dict.fromkeys(tables, 1)))

    def read(_: int) -> bool:
        cut = house.database.resolve_many(tables)
        latest = {resolved.latest for resolved in cut}
        contiguous = all(
            [commit.version for commit in resolved.commits]
            == list(range(resolved.commits[0].version, resolved.latest + 1))
            for resolved in cut
        )
        return len(latest) == 1 and contiguous and len({r.sequence for r in cut}) == 1

    with ThreadPoolExecutor(4) as pool:
        writes = pool.map(write, range(50))
        assert all(pool.map(read, range(50)))
        list(writes)
    for sequence in range(4, 55):
        cut = house.database.resolve_many(tables, Sequence(sequence))
        assert len({resolved.latest for resolved in cut}) == 1


def test_more_tables_or_bytes_than_the_limit_are_refused_by_its_name(inline_lake: House) -> None:
    house = inline_lake
    table = house.create().table_id
    part = house.part(table, 1, add(), txn_id=new_txn_id())
    many = tuple(
        type(part)(table_id=TableId(str(i)), version=part.version, content=part.content)
        for i in range(1001)
    )
    with pytest.raises(TooLargeError, match="1000 are the limit"):
        house.catalog.propose(Proposal(txn_id=new_txn_id(), parts=many))
    huge = type(part)(
        table_id=table,
        version=part.version,
        content=inline(*(add("x" * 900) for _ in range(1200))),
    )
    with pytest.raises(TooLargeError, match="are the limit"):
        house.catalog.propose(Proposal(txn_id=new_txn_id(), parts=(huge,)))
    with pytest.raises(InvalidArgumentError, match="two parts for one table"):
        house.catalog.propose(Proposal(txn_id=new_txn_id(), parts=(part, part)))
    assert heads(house, [table]) == [0]


def test_a_transaction_over_a_thousand_tables_is_ratified_whole(inline_lake: House) -> None:
    house = inline_lake
    tables = [house.create(f"t{i}").table_id for i in range(1000)]
    txn_id = new_txn_id()
    parts = tuple(house.part(table, 1, add(), txn_id=txn_id, timestamp_ms=1) for table in tables)
    answer = house.catalog.propose(Proposal(txn_id=txn_id, parts=parts))
    assert isinstance(answer, Ratified)
    assert set(heads(house, tables)) == {1}


@shows("FM4")
@pytest.mark.parametrize("isolation", list(Isolation))
def test_write_skew_over_two_tables_is_rejected_but_at_snapshot(
    inline_lake: House, isolation: Isolation
) -> None:
    house = inline_lake
    day, night = (house.create(name).table_id for name in ("day", "night"))
    there = {day: add("d.parquet"), night: add("n.parquet")}
    for table, file in there.items():
        house.propose(table, 1, file)

    def off_call(writes: TableId, reads: TableId) -> Proposal:
        txn_id = new_txn_id()
        scan = Scan(table_id=reads, version=house.catalog.resolve(reads).latest)
        part = house.part(writes, 2, remove(there[writes]), txn_id=txn_id)
        return Proposal(txn_id=txn_id, parts=(part,), scans=(scan,), isolation=isolation)

    first, second = off_call(day, night), off_call(night, day)
    assert isinstance(house.catalog.propose(first), Ratified)
    answer = house.catalog.propose(second)
    if isolation is Isolation.SNAPSHOT:
        assert isinstance(answer, Ratified)
    else:
        assert isinstance(answer, Rejected)
        assert {(c.rule, c.table_id) for c in answer.conflicts} == {("R5", day)}


def test_a_staged_part_whose_version_is_taken_comes_again_with_all_its_tables(
    lake: House,
) -> None:
    a, b = (lake.create(name).table_id for name in "ab")
    proposal = over(lake, {a: 1, b: 1})
    lake.propose(b, 1, add())
    answer = lake.catalog.propose(proposal)
    if isinstance(answer, VersionTaken):
        assert answer.latest == {a: 0, b: 1}
        answer = lake.catalog.propose(over(lake, {a: 1, b: 2}, txn_id=proposal.txn_id))
    assert isinstance(answer, Ratified)
    assert heads(lake, [a, b]) == [1, 2]
