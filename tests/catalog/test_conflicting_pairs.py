"""Pairs of operations that may conflict, decided by a whole catalog, not by the pure rules alone.

The catalog answers most proposals without asking the rules: there was no other commit, the attempt
only appends, the winners were compared before the lock was taken. Each shortcut must give the
answer that the rules would give.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from headgate.api.messages import Answer, Part, Proposal, Ratified, Rejected, VersionTaken
from headgate.catalog import decider
from headgate.catalog.decider import Decided
from headgate.protocol.actions import (
    Action,
    AddFile,
    DeletionVector,
    DomainMetadata,
    SetTransaction,
    TableId,
    Version,
)
from headgate.protocol.commit import row_ids
from headgate.protocol.commit.conflicts import Isolation, Scan
from headgate.protocol.commit.content import Inline, Way
from headgate.protocol.commit.decide import Need
from headgate.protocol.commit.facts import Gathered
from headgate.protocol.commit.strict_json import read
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.predicates import Compare, Operator
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import add, inline, metadata, new_txn_id, protocol, remove
from tests.protocol.commit.test_conflicts import (
    ATTEMPTS,
    LEVELS,
    TABLE_OF_PAIRS,
    Case,
    cases,
    rejecting,
)

F1, F2, F9 = add("F1", low=1, high=100), add("F2", low=101, high=200), add("F9", low=901, high=999)
P = Compare(("id",), Operator.EQ, 5)
BASE = 1  # the version with these three files, on which every attempt is built


@dataclass(frozen=True)
class Tables:
    """The table that both operations are about, and two others."""

    lake: House
    target: TableId
    source: TableId  # what an INSERT ... SELECT reads; no test writes it
    sink: TableId  # what is written by operations that only read the target

    @classmethod
    def made(cls, lake: House, *features: str) -> Tables:
        tables = cls(
            lake,
            target=lake.create(f"t{uuid4().hex}", features=features).table_id,
            source=_once(lake, "source"),
            sink=_once(lake, "sink"),
        )
        won(lake.propose(tables.target, BASE, F1, F2, F9))
        return tables

    def scan(self, predicate: Compare | None, *files: str, **how: bool) -> Scan:
        return Scan(
            table_id=self.target, version=Version(BASE), predicate=predicate, files=files, **how
        )

    @property
    def scan_of_source(self) -> Scan:
        return Scan(table_id=self.source, version=Version(1), files=())

    @property
    def altered(self) -> Action:
        return metadata(self.target, "id long, more string")

    def head(self, table_id: TableId) -> int:
        return self.lake.catalog.resolve(table_id).latest


def _once(lake: House, name: str) -> TableId:
    """Make a table with one commit; the server takes proposals at once for such as it has seen."""
    known = {entry.name: entry.table_id for entry in lake.database.tables()}
    if f"main.default.{name}" in known:
        return known[f"main.default.{name}"]
    table_id = lake.create(name).table_id
    won(lake.propose(table_id, 1, add()))
    return table_id


@dataclass(frozen=True)
class Operation:
    """What a transaction does to the target, and what it read."""

    actions: tuple[Action, ...]
    scans: tuple[Scan, ...] = ()


def moved(file: AddFile, path: str, *, data_change: bool = True) -> tuple[Action, Action]:
    """Rewrite a file: what was in it is in another now."""
    return (
        remove(file, data_change=data_change),
        replaced(file, path=path, data_change=data_change),
    )


def attempts(tables: Tables) -> dict[str, Operation]:
    reads = tables.scan(P, "F1")
    appends = (add("G", low=1, high=9),)
    return {
        "append only": Operation(appends),
        "target of INSERT SELECT": Operation(appends, (tables.scan_of_source,)),
        "read, feeds elsewhere": Operation((), (reads,)),
        "read, plain SELECT": Operation((), (tables.scan(P, "F1", fed=False),)),
        "DELETE where p": Operation(moved(F1, "F1-new"), (reads,)),
        "overwrite of p": Operation((remove(F1), add("H", low=5, high=5)), (reads,)),
        "INSERT reading its target": Operation(appends, (reads,)),
        "compaction": Operation(
            (
                *moved(F1, "G", data_change=False),
                remove(F2, data_change=False),
            ),
            (tables.scan(None, "F1", "F2"),),
        ),
        "ALTER without a scan": Operation((tables.altered,)),
        "ALTER validating": Operation(
            (tables.altered,), (tables.scan(P, "F1", fed=False, validating=True),)
        ),
        "ALTER and DML": Operation((tables.altered, *moved(F1, "F1-new")), (reads,)),
    }


def winning(tables: Tables, kind: str, case: Case) -> Operation:
    new = add("N", low=1, high=9) if case.may_match else add("N", low=500, high=600)
    old = F1 if case.is_same_file else F9
    match kind:
        case "blind append":
            return Operation((new,))
        case "append that read":
            return Operation((new,), (tables.scan_of_source,))
        case "delete and the like":
            return Operation((remove(old), new))
        case "compaction":
            return Operation(
                (remove(old, data_change=False), replaced(new, data_change=False)),
            )
        case "ALTER":
            return Operation((metadata(tables.target, "id long, other string"),))
        case "protocol":
            return Operation((protocol("appendOnly"),))
        case _:
            raise AssertionError(kind)


# Roads: how a proposal comes to its decision


def at_once(lake: House, proposal: Proposal) -> Answer:
    """Propose as the server does: into the queue at once, and the long way where that is due."""
    answer = Future[Decided | Need]()
    assert lake.database.enqueue(proposal, answer, lambda: None)
    decided = answer.result()
    return decided.answer if isinstance(decided, Decided) else lake.catalog.propose(proposal)


@dataclass(frozen=True)
class Road:
    """A way to a decision.

    `is_far`: winners are compared before the lock is taken. `is_beside`: the transaction writes
    another table too, which no other operation writes.
    """

    way: Way = Way.INLINE
    is_at_once: bool = False
    is_far: bool = False
    is_beside: bool = False

    def propose(self, lake: House, proposal: Proposal) -> Answer:
        return at_once(lake, proposal) if self.is_at_once else lake.catalog.propose(proposal)

    def proposal(
        self, tables: Tables, operation: Operation, isolation: Isolation = LEVELS[0]
    ) -> Proposal:
        """Make a proposal on the base."""
        lake, txn_id = tables.lake, new_txn_id()
        written = {tables.target: (BASE + 1, operation.actions)} if operation.actions else {}
        if self.is_beside or not written:
            written = {tables.sink: (tables.head(tables.sink) + 1, (add(),)), **written}
        # Above the winners' timestamps to come, so that time stands in no attempt's way.
        later_ms = max(map(lake.stamp_of, (tables.target, tables.sink))) + 1_000
        lake.way = self.way
        parts = [
            lake.part(
                table_id,
                version,
                *actions,
                txn_id=txn_id,
                timestamp_ms=later_ms,
            )
            for table_id, (version, actions) in written.items()
        ]
        lake.way = Way.INLINE
        return Proposal(
            txn_id=txn_id, parts=tuple(parts), scans=operation.scans, isolation=isolation
        )


ROADS = {
    "inline": Road(),
    "inline, at once": Road(is_at_once=True),
    "inline, far behind, two tables": Road(is_far=True, is_beside=True),
    "staged": Road(Way.STAGED),
    "staged, far behind, two tables": Road(Way.STAGED, is_far=True, is_beside=True),
}


@pytest.fixture(params=list(ROADS.values()), ids=list(ROADS))
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Road:
    if request.param.is_far:
        monkeypatch.setattr(decider, "FAR_BEHIND", 0)
    assert isinstance(request.param, Road)
    return request.param


def won(answer: Answer) -> Ratified:
    assert isinstance(answer, Ratified), answer
    return answer


def commit(tables: Tables, operation: Operation) -> None:
    """Have a winner ratified."""
    version = tables.head(tables.target) + 1
    won(tables.lake.propose(tables.target, version, *operation.actions, scans=operation.scans))


def decide(
    tables: Tables, road: Road, proposal: Proposal, wanted: set[str], *, is_movable: bool
) -> Answer:
    """Propose, and compare the answer with the rules that reject, or with what follows of none."""
    heads = {table_id: tables.head(table_id) for table_id in (tables.target, tables.sink)}
    written = {part.table_id for part in proposal.parts}
    answer = road.propose(tables.lake, proposal)
    if wanted:
        assert isinstance(answer, Rejected), (wanted, answer)
        assert {conflict.rule for conflict in answer.conflicts} == wanted
        assert {conflict.table_id for conflict in answer.conflicts} == {tables.target}
    elif tables.target not in written or (is_movable and road.way is Way.INLINE):
        versions = {table_id: found.version for table_id, found in won(answer).commits.items()}
        assert versions == {table_id: heads[table_id] + 1 for table_id in written}
        heads |= versions
    else:
        assert isinstance(answer, VersionTaken), answer
        assert answer.latest[tables.target] == heads[tables.target]
    for table_id, head in heads.items():
        assert tables.head(table_id) == head
    return answer


# The table of pairs


def cells(what: str) -> Iterator[tuple[str, str, Case]]:
    head, *lines = [
        [cell.strip() for cell in line.split("|")] for line in TABLE_OF_PAIRS.strip().splitlines()
    ]
    [line] = [line for line in lines if line[0] == what]
    for kind, cell in zip(head[1:], line[1:], strict=True):
        for case in cases(kind):
            yield kind, cell, case


@req("MT-04", "CM-44", "IN-02")
@shows("S8", "FM2", "FC13")
@pytest.mark.slow
@pytest.mark.parametrize("what", ATTEMPTS)
def test_a_catalog_decides_a_late_attempt_as_the_table_of_pairs_says(
    inline_lake: House, road: Road, what: str
) -> None:
    levels = LEVELS if ATTEMPTS[what].scans else LEVELS[-1:]
    for isolation, (kind, cell, case) in itertools.product(levels, cells(what)):
        tables = Tables.made(inline_lake)
        proposal = road.proposal(tables, attempts(tables)[what], isolation)
        commit(tables, winning(tables, kind, case))
        wanted = rejecting(cell, case, isolation)
        decide(tables, road, proposal, wanted, is_movable=not what.startswith("ALTER"))


# What the table does not name


STREAM = SetTransaction(app_id="stream", version=1)
OTHER_STREAM = SetTransaction(app_id="other stream", version=1)
MINE = DomainMetadata(domain="mine", configuration="{}", removed=False)
NOT_MINE = DomainMetadata(domain="mine", configuration="", removed=True)
YOURS = DomainMetadata(domain="yours", configuration="{}", removed=False)
FEATURES = ("domainMetadata", "deletionVectors")


def with_vector(file: AddFile, first: str = "a") -> tuple[Action, Action]:
    """Take a row out of a file by a deletion vector."""
    vector = DeletionVector(
        storage_type="u",
        path_or_inline_dv=first * 20,
        offset=1,
        size_in_bytes=40,
        cardinality=1,
    )
    vectored = replaced(file, deletion_vector=vector)
    return remove(file), vectored


def neutral(tables: Tables) -> Action:
    return metadata(tables.target, properties={"delta.logRetentionDuration": "interval 9 days"})


@dataclass(frozen=True)
class Pair:
    """An attempt, the winners it meets, and the rules that reject it at every level."""

    ours: tuple[Action | Callable[[Tables], Action], ...]
    winners: tuple[tuple[Action | Callable[[Tables], Action], ...], ...]
    rules: frozenset[str] = frozenset()
    is_movable: bool = True


def pair(*ours: object, meets: object, rules: str = "", is_movable: bool = True) -> Pair:
    winners = meets if isinstance(meets, list) else [meets]
    return Pair(ours, tuple(winners), frozenset(rules.split()), is_movable)  # type: ignore[arg-type]


G, N = add("G", low=1, high=9), add("N", low=1, high=9)
FURTHER = protocol(*FEATURES, "appendOnly")
RULED = {
    "a batch of a stream committed twice": pair(G, STREAM, meets=(N, STREAM), rules="R3"),
    "a batch without rows committed twice": pair(STREAM, meets=(STREAM,), rules="R3"),
    "a batch that also removes": pair(STREAM, remove(F1), meets=(N, STREAM), rules="R3"),
    "batches of two streams": pair(G, STREAM, meets=(N, OTHER_STREAM)),
    "a batch and an append": pair(G, STREAM, meets=(N,)),
    "an append and a batch": pair(G, meets=(N, STREAM)),
    "a batch and its own repetition later": pair(
        G, STREAM, meets=[(N, STREAM), (add("M"),)], rules="R3"
    ),
    "a batch of two streams": pair(G, STREAM, OTHER_STREAM, meets=(OTHER_STREAM,), rules="R3"),
    "one domain": pair(MINE, meets=(MINE,), rules="R4"),
    "one domain, with rows": pair(G, MINE, meets=(N, MINE), rules="R4"),
    "a domain that is removed": pair(G, MINE, meets=(NOT_MINE,), rules="R4"),
    "two domains": pair(G, MINE, meets=(N, YOURS)),
    "a domain and an append": pair(G, MINE, meets=(N,)),
    "vectors on one file": pair(*with_vector(F1), meets=with_vector(F1, "b"), rules="R6"),
    "vectors on two files": pair(*with_vector(F1), meets=with_vector(F2)),
    "a vector on a file that went": pair(*with_vector(F1), meets=(remove(F1),), rules="R6"),
    "a removal of a file with a new vector": pair(remove(F1), meets=with_vector(F1), rules="R6"),
    "a vector on a compacted file": pair(
        *with_vector(F1), meets=moved(F1, "M", data_change=False), rules="R6"
    ),
    "an append and a change that concerns no row": pair(G, meets=(neutral,)),
    "two changes that concern no row": pair(neutral, meets=(neutral,), rules="R2"),
    "an append and a new schema with rows": pair(
        G, meets=(lambda tables: tables.altered, N), rules="R2"
    ),
    "an append and a new schema long ago": pair(
        G, meets=[(lambda tables: tables.altered,), (N,)], rules="R2"
    ),
    "an append and a new protocol long ago": pair(G, meets=[(FURTHER,), (N,)], rules="R1"),
    "an append and both": pair(G, meets=(FURTHER, lambda tables: tables.altered), rules="R1 R2"),
    "a new protocol and an append": pair(FURTHER, meets=(N,), is_movable=False),
    "a new schema and an append": pair(lambda tables: tables.altered, meets=(N,), is_movable=False),
}


@req("MT-04", "IN-02")
@shows("S8")
@pytest.mark.parametrize("name", RULED)
def test_a_catalog_decides_streams_domains_vectors_and_metadata_by_their_rules(
    inline_lake: House, road: Road, name: str
) -> None:
    wanted = RULED[name]
    tables = Tables.made(inline_lake, *FEATURES)

    def made(actions: tuple[Action | Callable[[Tables], Action], ...]) -> Operation:
        found = [action(tables) if callable(action) else action for action in actions]
        return Operation(tuple(found))

    proposal = road.proposal(tables, made(wanted.ours))
    for winner in wanted.winners:
        commit(tables, made(winner))
    decide(tables, road, proposal, set(wanted.rules), is_movable=wanted.is_movable)


@shows("S8")
def test_an_append_built_on_the_newest_metadata_passes_later_appends(
    inline_lake: House, road: Road
) -> None:
    tables = Tables.made(inline_lake)
    commit(tables, Operation((tables.altered,)))
    lake, txn_id = inline_lake, new_txn_id()
    lake.way = road.way
    part = lake.part(tables.target, BASE + 2, add(), txn_id=txn_id, timestamp_ms=lake.clock.ms + 99)
    lake.way = Way.INLINE
    commit(tables, Operation((add(),)))
    proposal = Proposal(txn_id=txn_id, parts=(part,))
    decide(tables, road, proposal, set(), is_movable=True)


@shows("FM4")
@pytest.mark.parametrize("is_said_blind", [True, False])
def test_a_writer_that_says_its_append_read_something_is_believed(
    inline_lake: House, road: Road, is_said_blind: bool
) -> None:
    tables = Tables.made(inline_lake)
    reads = Operation((add("G", low=1, high=9),), (tables.scan(P, "F1"),))
    proposal = road.proposal(tables, reads, Isolation.WRITE_SERIALIZABLE)
    read = Part(
        table_id=tables.target,
        version=Version(BASE + 1),
        content=inline(add("N", low=1, high=9), isBlindAppend=is_said_blind),
    )
    won(inline_lake.catalog.propose(Proposal(txn_id=new_txn_id(), parts=(read,))))
    decide(tables, road, proposal, set() if is_said_blind else {"R7"}, is_movable=True)


@req("CM-41")
def test_an_action_that_is_unknown_here_is_not_moved_to_another_version(
    inline_lake: House,
) -> None:
    tables = Tables.made(inline_lake)
    unknown = Inline(commit_info={}, actions=b'{"ofTomorrow":{"version":2}}\n')
    part = Part(table_id=tables.target, version=Version(BASE + 1), content=unknown)
    late = Proposal(txn_id=new_txn_id(), parts=(part,))
    commit(tables, Operation((add(),)))
    decide(tables, Road(), late, set(), is_movable=False)


@req("MT-04")
@shows("FM2", "S8")
def test_a_conflict_in_a_table_that_comes_second_counts_though_the_first_is_not_late(
    inline_lake: House, road: Road
) -> None:
    tables = Tables.made(inline_lake)
    beside = replace(road, is_beside=True)
    proposal = beside.proposal(tables, Operation(moved(F1, "F1-new")))
    assert proposal.parts[0].table_id == tables.sink
    commit(tables, Operation((remove(F1),)))
    decide(tables, beside, proposal, {"R6"}, is_movable=True)


@req("MT-04")
@shows("FM2", "S8")
@pytest.mark.parametrize("way", [Way.INLINE, Way.STAGED])
def test_a_winner_that_comes_after_the_comparison_outside_the_lock_counts(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    monkeypatch.setattr(decider, "FAR_BEHIND", 0)
    tables = Tables.made(inline_lake)
    proposal = Road(way).proposal(tables, Operation((remove(F1),)))
    commit(tables, Operation((add(),)))
    compare = decider.Decider.compare

    def overtaken(self: decider.Decider, *facts: Any) -> Gathered:
        found = compare(self, *facts)
        monkeypatch.setattr(decider.Decider, "compare", compare)
        commit(tables, Operation((remove(F1),)))
        return found

    monkeypatch.setattr(decider.Decider, "compare", overtaken)
    answer = inline_lake.catalog.propose(proposal)
    assert isinstance(answer, Rejected)
    assert [conflict.rule for conflict in answer.conflicts] == ["R6"]


@req("CM-41")
def test_row_ids_of_a_late_append_continue_those_of_the_winner(inline_lake: House) -> None:
    lake = inline_lake
    table_id = lake.create(features=("rowTracking", "domainMetadata")).table_id
    late = lake.proposal(table_id, 1, add(records=5))
    won(lake.propose(table_id, 1, add(records=10)))
    content = won(lake.catalog.propose(late)).commits[table_id].content
    assert content is not None
    [file] = [line.action for line in read(content) if isinstance(line.action, AddFile)]
    assert (file.base_row_id, file.default_row_commit_version) == (10, 2)
    [domain] = [line.action for line in read(content) if isinstance(line.action, DomainMetadata)]
    assert row_ids.mark_in(domain) == 14


@req("CM-41")
@pytest.mark.parametrize("lake", [Way.STAGED], indirect=True)
def test_a_staged_append_cannot_bring_the_row_ids_of_its_old_version_to_the_next(
    lake: House,
) -> None:
    table_id = lake.create(features=("rowTracking", "domainMetadata")).table_id

    def numbered(version: int, first: int, last: int) -> Proposal:
        file = replaced(
            add(records=1 + last - first), base_row_id=first, default_row_commit_version=version
        )
        return lake.proposal(table_id, version, file, row_ids.domain_for(last))

    late = numbered(1, 0, 4)
    won(lake.catalog.propose(numbered(1, 0, 9)))
    assert isinstance(lake.catalog.propose(late), VersionTaken)
    answer = lake.catalog.propose(numbered(2, 0, 4))
    assert isinstance(answer, Rejected)
    rules = {violation.rule for violation in answer.violations}
    assert rules == {"row-ids-taken", "row-id-high-water"}
    won(lake.catalog.propose(numbered(2, 10, 14)))
