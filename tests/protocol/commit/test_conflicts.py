"""Conflicts: every cell of the table of operations, and what the rules say beyond it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import pytest

from headgate.protocol.actions import (
    AddFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Sequence,
    SetTransaction,
    TableId,
    TxnId,
    Version,
)
from headgate.protocol.commit.conflicts import (
    MOST_FILES,
    Attempt,
    Changes,
    FileSummary,
    Isolation,
    Scan,
    Winner,
    conflicts,
    is_blind,
    is_neutral,
    level,
    summarize,
)
from headgate.protocol.expressions.predicates import And, Compare, Operator, Predicate
from headgate.protocol.expressions.schema_text import parse_schema

TABLE = TableId("11111111-1111-4111-8111-111111111111")
ELSEWHERE = TableId("22222222-2222-4222-8222-222222222222")
BASE = Version(3)
SCHEMA = parse_schema("id long, room long, slot long, on_call boolean")
LEVELS = list(Isolation)

SNAPSHOT, WRITE_SERIALIZABLE, SERIALIZABLE = LEVELS


def equals(column: str, value: bool | int) -> Compare:
    return Compare((column,), Operator.EQ, value)


def file(path: str, first: int, last: int) -> FileSummary:
    bounds = [msgspec.Raw(msgspec.json.encode({"id": value})) for value in (first, last)]
    return FileSummary(path=path, min_values=bounds[0], max_values=bounds[1])


def scan(
    predicate: Predicate | None,
    *files: str,
    fed: bool = True,
    validating: bool = False,
    table_id: TableId = TABLE,
    version: int = BASE,
) -> Scan:
    return Scan(
        table_id=table_id,
        version=Version(version),
        predicate=predicate,
        files=files,
        fed=fed,
        validating=validating,
    )


def attempt(
    changes: Changes | None = None,
    *scans: Scan,
    isolation: Isolation = WRITE_SERIALIZABLE,
) -> Attempt:
    return Attempt(
        table_id=TABLE,
        base=BASE,
        changes=changes or Changes(),
        removed=frozenset(path for path, _ in (changes.removed or () if changes else ())),
        scans=scans,
        isolation=isolation,
        is_written=changes is not None,
        schema=SCHEMA,
    )


def winner(changes: Changes, version: int = BASE + 1) -> Winner:
    return Winner(Version(version), changes, TxnId(f"txn-{version}"), Sequence(100 + version))


def rules(attempt: Attempt, *winners: Winner) -> list[str]:
    return [conflict.rule for conflict in conflicts(attempt, winners)]


# Every pair of operations
#
# The table stands at version 3 with F1 (ids 1 to 100) and F2 (101 to 200). Attempts that look for
# rows look for `id = 5`, so they read F1.

P = equals("id", 5)

# A cell gives the lowest level that rejects, and by which rules: a all, w write_serializable and
# up, s serializable only, - never. R5 and R6 need the same file, R7 one that may match.
TABLE_OF_PAIRS = """
attempt \\ winner          | blind append | append that read | delete and the like | compaction | ALTER | protocol
append only               | -            | -                | -                   | -          | a R2  | a R1
target of INSERT SELECT   | -            | -                | -                   | -          | a R2  | a R1
read, feeds elsewhere     | s R7         | w R7             | w R5 R7             | -          | w R2  | w R1
read, plain SELECT        | s R7         | s R7             | s R5 R7             | -          | s R2  | s R1
DELETE where p            | s R7         | w R7             | a R6, w R5 R7       | a R6       | a R2  | a R1
overwrite of p            | s R7         | w R7             | a R6, w R5 R7       | a R6       | a R2  | a R1
INSERT reading its target | s R7         | w R7             | w R5 R7             | -          | a R2  | a R1
compaction                | -            | -                | a R6                | a R6       | a R2  | a R1
ALTER without a scan      | -            | -                | -                   | -          | a R2  | a R1
ALTER validating          | a R7         | a R7             | a R5 R7             | -          | a R2  | a R1
ALTER and DML             | w R7         | w R7             | a R6, w R5 R7       | a R6       | a R2  | a R1
"""  # noqa: E501

READS = scan(P, "F1")
REWRITES = Changes(added=(file("F1-new", 1, 100),), removed=(("F1", None),), data_change=True)
APPENDS = Changes(added=(file("G", 1, 9),), data_change=True, blind=True)

ATTEMPTS = {
    "append only": attempt(APPENDS),
    "target of INSERT SELECT": attempt(
        msgspec.structs.replace(APPENDS, blind=False), scan(None, "X", table_id=ELSEWHERE)
    ),
    "read, feeds elsewhere": attempt(None, READS),
    "read, plain SELECT": attempt(None, scan(P, "F1", fed=False)),
    "DELETE where p": attempt(REWRITES, READS),
    "overwrite of p": attempt(
        Changes(added=(file("H", 5, 5),), removed=(("F1", None),), data_change=True), READS
    ),
    "INSERT reading its target": attempt(msgspec.structs.replace(APPENDS, blind=False), READS),
    "compaction": attempt(
        Changes(added=(file("G", 1, 200),), removed=(("F1", None), ("F2", None))),
        scan(None, "F1", "F2"),
    ),
    "ALTER without a scan": attempt(Changes(metadata=True)),
    "ALTER validating": attempt(Changes(metadata=True), scan(P, "F1", fed=False, validating=True)),
    "ALTER and DML": attempt(msgspec.structs.replace(REWRITES, metadata=True), READS),
}


@dataclass(frozen=True)
class Case:
    """A winner of one kind, in one of its forms."""

    changes: Changes
    is_same_file: bool = False
    may_match: bool = False


def cases(kind: str) -> Iterator[Case]:
    """Give a kind of winner on the same file and another, with rows that may match and cannot."""
    for same, matching in itertools.product((True, False), repeat=2):
        added = (file("N", 1, 9) if matching else file("N", 500, 600),)
        removed = (("F1" if same else "F9", None),)
        match kind:
            case "blind append":
                if not same:
                    yield Case(Changes(added=added, data_change=True, blind=True), False, matching)
            case "append that read":
                if not same:
                    yield Case(Changes(added=added, data_change=True), False, matching)
            case "delete and the like":
                changes = Changes(added=added, removed=removed, data_change=True)
                yield Case(changes, same, matching)
            case "compaction":
                yield Case(Changes(added=added, removed=removed), same, matching)
            case "ALTER":
                if same and matching:
                    yield Case(Changes(metadata=True))
            case "protocol":
                if same and matching:
                    yield Case(Changes(protocol=True))
            case _:
                raise AssertionError(kind)


FROM_LEVEL = {"a": SNAPSHOT, "w": WRITE_SERIALIZABLE, "s": SERIALIZABLE}


def rejecting(cell: str, case: Case, isolation: Isolation) -> set[str]:
    """Read off a cell which rules reject at a level."""
    found = set()
    for part in cell.split(","):
        letter, *names = part.split()
        if letter == "-" or LEVELS.index(isolation) < LEVELS.index(FROM_LEVEL[letter]):
            continue
        for name in names:
            needs = {"R5": case.is_same_file, "R6": case.is_same_file, "R7": case.may_match}
            if needs.get(name, True):
                found.add(name)
    return found


def pairs() -> Iterator[object]:
    head, *lines = [
        [cell.strip() for cell in line.split("|")] for line in TABLE_OF_PAIRS.strip().splitlines()
    ]
    assert {line[0] for line in lines} == set(ATTEMPTS)
    for line in lines:
        for kind, cell in zip(head[1:], line[1:], strict=True):
            for case, isolation in itertools.product(cases(kind), LEVELS):
                form = f"{'same' if case.is_same_file else 'other'} file, " + (
                    "may match" if case.may_match else "cannot match"
                )
                name = f"{line[0]} / {kind}, {form} / {isolation.value}"
                yield pytest.param(line[0], cell, case, isolation, id=name)


@pytest.mark.parametrize(("what", "cell", "case", "isolation"), list(pairs()))
def test_a_pair_of_operations_conflicts_as_the_table_says(
    what: str, cell: str, case: Case, isolation: Isolation
) -> None:
    ours = replace(ATTEMPTS[what], isolation=isolation)
    found = rules(ours, winner(case.changes))
    assert found == sorted(rejecting(cell, case, isolation))


# What is reported


def test_every_conflict_with_every_winner_is_reported() -> None:
    ours = attempt(
        Changes(
            added=(file("F1-new", 1, 100),),
            removed=(("F1", None),),
            app_ids=("stream",),
            domains=("mine",),
            data_change=True,
        ),
        READS,
    )
    all_at_once = Changes(
        protocol=True,
        metadata=True,
        app_ids=("stream", "other"),
        domains=("mine",),
        added=(file("N", 1, 9),),
        removed=(("F1", None), ("F9", None)),
        data_change=True,
    )
    found = conflicts(ours, [winner(all_at_once, 4), winner(Changes(), 5), winner(all_at_once, 6)])
    expected = ["R1", "R2", "R3", "R4", "R5", "R6", "R7"]
    assert [(c.version, c.rule) for c in found] == [
        *((4, rule) for rule in expected),
        *((6, rule) for rule in expected),
    ]
    assert {c.rule: c.files for c in found if c.files} == {
        "R5": ("F1",),
        "R6": ("F1",),
        "R7": ("N",),
    }
    assert {(c.table_id, c.txn_id, c.sequence) for c in found if c.version == 6} == {
        (TABLE, "txn-6", 106)
    }
    assert str(found[0]) == "R1: version 4 changed the protocol"


def test_winners_the_attempt_has_seen_do_not_count() -> None:
    ours = attempt(REWRITES, READS)
    seen = winner(Changes(metadata=True, removed=(("F1", None),), data_change=True), BASE)
    assert conflicts(ours, [seen]) == []


def test_a_scan_of_an_older_version_counts_winners_from_there() -> None:
    older = scan(P, "F1", version=1)
    ours = attempt(msgspec.structs.replace(APPENDS, blind=False), older)
    rewritten = winner(Changes(removed=(("F1", None),), metadata=True, data_change=True), 2)
    assert rules(ours, rewritten) == ["R2", "R5"]
    assert rules(attempt(APPENDS), rewritten) == []


@pytest.mark.parametrize("added", [(file("a%20b", 5, 5),), None])
def test_rows_that_a_blind_append_brought_are_not_replaced_by_what_was_read_before_it(
    added: tuple[FileSummary, ...] | None,
) -> None:
    append = winner(Changes(added=added, data_change=True, blind=True), BASE)
    older = scan(P, "F1", version=BASE - 1)
    replaces = Changes(removed=(("F1", None), ("a%20b", None)), data_change=True)
    assert rules(attempt(replaces, older), append) == ["R7"]
    assert rules(attempt(replaces, scan(P, "F1", "a b")), append) == []
    # One that takes none of them out may have come before the append.
    assert rules(attempt(APPENDS, older), append) == []
    later = replace(append, version=Version(BASE + 1))
    assert rules(attempt(replaces, older), later) == []


def test_two_metadata_changes_always_collide_and_a_neutral_one_disturbs_nobody_else() -> None:
    neutral = winner(Changes(metadata=True, neutral=True))
    for name, ours in ATTEMPTS.items():
        expected = ["R2"] if ours.changes.metadata else []
        assert rules(replace(ours, isolation=SERIALIZABLE), neutral) == expected, name


@pytest.mark.parametrize("isolation", LEVELS)
def test_a_validating_scan_must_hold_whatever_else_the_attempt_does(isolation: Isolation) -> None:
    validating = scan(P, "F1", fed=False, validating=True)
    ours = attempt(APPENDS, validating, isolation=isolation)
    phantom = msgspec.structs.replace(APPENDS, added=(file("N", 5, 5),))
    assert rules(ours, winner(phantom)) == ["R7"]
    assert rules(ours, winner(REWRITES)) == ["R5", "R7"]


def test_two_commits_of_one_application_conflict() -> None:
    theirs = winner(Changes(app_ids=("stream",)))
    writes = attempt(Changes(app_ids=("stream",)), isolation=SNAPSHOT)
    assert rules(writes, theirs) == ["R3"]
    assert rules(attempt(APPENDS, isolation=SERIALIZABLE), theirs) == []


def test_a_domain_both_change_collides_unless_it_can_be_merged() -> None:
    def changing(domain: str) -> Changes:
        return Changes(domains=(domain,))

    mine = attempt(changing("mine"), isolation=SNAPSHOT)
    assert rules(mine, winner(changing("mine"))) == ["R4"]
    assert rules(mine, winner(changing("yours"))) == []
    row_tracking = changing("delta.rowTracking")
    assert rules(attempt(row_tracking), winner(row_tracking)) == []


def test_of_too_many_files_any_may_be_ours() -> None:
    many = winner(Changes(added=None, removed=None, data_change=True))
    assert rules(attempt(REWRITES, READS), many) == ["R5", "R6", "R7"]
    assert rules(attempt(APPENDS), many) == []
    assert rules(attempt(None, scan(P)), many) == ["R7"]  # it read no file that could be gone


def test_of_a_scan_without_a_list_of_files_any_file_that_goes_may_have_been_read() -> None:
    ours = attempt(None, Scan(table_id=TABLE, version=BASE, predicate=P))
    gone = Changes(removed=(("F9", None),), data_change=True)
    assert rules(ours, winner(gone)) == ["R5"]


def test_a_file_without_bounds_may_match_anything() -> None:
    ours = attempt(None, READS)
    theirs = Changes(added=(FileSummary(path="N"),), data_change=True)
    assert rules(ours, winner(theirs)) == ["R7"]


def test_without_a_schema_any_file_may_match() -> None:
    ours = replace(attempt(None, READS), schema=None)
    theirs = Changes(added=(file("N", 500, 600),), data_change=True)
    assert rules(ours, winner(theirs)) == ["R7"]


def test_a_new_deletion_vector_is_a_removal_of_the_file_with_the_old_one() -> None:
    theirs = Changes(added=(file("F1", 1, 100),), removed=(("F1", "uabc@1"),), data_change=True)
    assert rules(attempt(REWRITES, READS, isolation=SNAPSHOT), winner(theirs)) == ["R6"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("file:/lake/t/F1", "/lake/t/F1"), ("day=1/F%31", "day=1/F1"), ("F1", "./F1")],
)
def test_a_file_is_recognized_in_another_spelling(ours: str, theirs: str) -> None:
    removing = attempt(Changes(removed=((ours, None),), data_change=True))
    reading = attempt(None, scan(P, ours))
    for other in (removing, reading):
        rule = "R6" if other is removing else "R5"
        assert rules(other, winner(Changes(removed=((theirs, None),), data_change=True))) == [rule]
    with_scan = replace(removing, scans=(scan(P, ours, version=BASE - 1),), base=Version(BASE + 1))
    replaced = Changes(added=(FileSummary(path=theirs),), data_change=True, blind=True)
    assert rules(with_scan, winner(replaced)) == ["R7"]  # it removes what the winner added


def test_a_table_may_ask_for_more_isolation_than_the_transaction() -> None:
    def asking(value: str) -> Metadata:
        return Metadata(id=TABLE, schema_string="{}", configuration={"delta.isolationLevel": value})

    assert level(SNAPSHOT, asking("Serializable")) is SERIALIZABLE
    assert level(SNAPSHOT, asking("WriteSerializable")) is SNAPSHOT
    assert level(SERIALIZABLE, asking("WriteSerializable")) is SERIALIZABLE
    assert level(WRITE_SERIALIZABLE, None) is WRITE_SERIALIZABLE


# Summing up a commit


def added(path: str, *, data_change: bool = True, stats: str | None = None) -> AddFile:
    return AddFile(
        path=path,
        partition_values={"day": "1"},
        size=1,
        modification_time=0,
        data_change=data_change,
        stats=stats,
    )


def test_a_summary_keeps_what_others_can_collide_with() -> None:
    stats = '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":9}}'
    vector = DeletionVector(
        storage_type="u", path_or_inline_dv="x" * 20, offset=1, size_in_bytes=4, cardinality=1
    )
    changes = summarize(
        adds=[added("N", stats=stats), added("M", stats="not JSON")],
        removes=[RemoveFile(path="F", data_change=False, deletion_vector=vector)],
        txns=[SetTransaction(app_id="stream", version=1)],
        domains=[DomainMetadata(domain="mine", configuration="{}", removed=False)],
        metadata=Metadata(id=TABLE, schema_string="{}"),
        protocol=Protocol(min_reader_version=3, min_writer_version=7),
    )
    assert changes == Changes(
        protocol=True,
        metadata=True,
        app_ids=("stream",),
        domains=("mine",),
        added=(
            FileSummary(
                path="N",
                partition_values={"day": "1"},
                min_values=msgspec.Raw(b'{"id":1}'),
                max_values=msgspec.Raw(b'{"id":9}'),
            ),
            FileSummary(path="M", partition_values={"day": "1"}),
        ),
        removed=(("F", "u" + "x" * 20 + "@1"),),
        data_change=True,
    )


@pytest.mark.parametrize("data_change", [True, False])
def test_a_commit_that_only_removes_files_changes_data_unless_it_says_otherwise(
    data_change: bool,
) -> None:
    gone = RemoveFile(path="F1", data_change=data_change)
    changes = summarize(removes=[gone])
    assert changes.data_change is data_change
    assert rules(attempt(None, READS), winner(changes)) == (["R5"] if data_change else [])


def test_a_summary_can_be_kept_and_read_again() -> None:
    changes = summarize(adds=[added("N", stats='{"minValues":{"id":1}}'), added("M")])
    assert msgspec.json.decode(msgspec.json.encode(changes), type=Changes) == changes


def test_a_summary_names_no_files_when_there_are_too_many() -> None:
    most = [added(f"{number}") for number in range(MOST_FILES + 1)]
    gone = [RemoveFile(path=file.path, data_change=True) for file in most]
    assert summarize(adds=most, removes=gone).added is None
    assert summarize(adds=most, removes=gone).removed is None
    assert summarize(adds=most[1:]).added is not None


TXN = SetTransaction(app_id="stream", version=1)
ROW_IDS = DomainMetadata(domain="delta.rowTracking", configuration="{}", removed=False)


@pytest.mark.parametrize(
    ("changes", "blind"),
    [
        pytest.param(summarize(adds=[added("N")]), True, id="adds"),
        pytest.param(summarize(adds=[added("N")], txns=[TXN]), True, id="a batch of a stream"),
        pytest.param(summarize(adds=[added("N")], domains=[ROW_IDS]), True, id="row ids"),
        pytest.param(
            summarize(adds=[added("N"), added("M", data_change=False)]), False, id="a file moved"
        ),
        pytest.param(
            summarize(removes=[RemoveFile(path="F", data_change=True)]), False, id="a remove"
        ),
        pytest.param(
            summarize(metadata=Metadata(id=TABLE, schema_string="{}")), False, id="metadata"
        ),
        pytest.param(
            summarize(protocol=Protocol(min_reader_version=3, min_writer_version=7)),
            False,
            id="protocol",
        ),
        pytest.param(
            summarize(domains=[DomainMetadata(domain="mine", configuration="{}", removed=False)]),
            False,
            id="a domain",
        ),
        pytest.param(summarize(adds=[added("N")], only_these=False), False, id="unknown actions"),
        pytest.param(
            summarize(adds=[added("N")], says_blind=False), False, id="declared otherwise"
        ),
    ],
)
def test_a_blind_append_only_adds_files_of_new_rows(changes: Changes, blind: bool) -> None:
    assert changes.blind is blind


def test_a_transaction_is_blind_in_all_tables_or_in_none() -> None:
    fed, shown = scan(None, table_id=ELSEWHERE), scan(None, fed=False, table_id=ELSEWHERE)
    assert is_blind([APPENDS, APPENDS], [shown])
    assert not is_blind([APPENDS, APPENDS], [shown, fed])
    assert not is_blind([APPENDS, REWRITES], [])


BEFORE = Metadata(
    id=TABLE,
    schema_string='{"type":"struct","fields":[]}',
    configuration={"delta.appendOnly": "false", "delta.checkpointInterval": "10"},
)


@pytest.mark.parametrize(
    ("key", "value", "neutral"),
    [
        ("comment", "orders", True),
        ("delta.checkpointInterval", "100", True),
        ("delta.logRetentionDuration", "interval 7 days", True),
        ("delta.deletedFileRetentionDuration", "interval 7 days", True),
        ("delta.requireCheckpointProtectionBeforeVersion", "9", True),
        ("headgate.owner", "sales", True),
        ("delta.appendOnly", "true", False),
        ("delta.enableDeletionVectors", "true", False),
        ("anything.else", "x", False),
    ],
)
def test_a_property_is_neutral_when_no_row_depends_on_it(
    key: str, value: str, neutral: bool
) -> None:
    changed = {**BEFORE.configuration, key: value}
    after = msgspec.structs.replace(BEFORE, configuration=changed)
    assert is_neutral(BEFORE, after) is is_neutral(after, BEFORE) is neutral


@pytest.mark.parametrize(
    ("change", "neutral"),
    [
        ({"description": "all orders", "name": "orders", "created_time": 5}, True),
        ({"schema_string": '{"type":"struct","fields":[{}]}'}, False),
        ({"partition_columns": ["day"]}, False),
        ({"id": ELSEWHERE}, False),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else str(value),
)
def test_schema_partitioning_and_id_are_not_neutral(
    change: dict[str, object], neutral: bool
) -> None:
    assert is_neutral(BEFORE, msgspec.structs.replace(BEFORE, **change)) is neutral


# Worked examples


@pytest.mark.parametrize("isolation", LEVELS)
def test_two_appends_pass_each_other(isolation: Isolation) -> None:
    second = attempt(APPENDS, isolation=isolation)
    assert conflicts(second, [winner(APPENDS)]) == []


@pytest.mark.parametrize("isolation", LEVELS)
def test_of_two_deletes_in_one_file_the_second_is_rejected_and_in_another_file_passes(
    isolation: Isolation,
) -> None:
    def delete(row: int, path: str, first: int, last: int) -> Attempt:
        changes = Changes(
            added=(file(f"{path}-{row}", first, last),),
            removed=((path, None),),
            data_change=True,
        )
        return attempt(changes, scan(equals("id", row), path), isolation=isolation)

    first = winner(delete(5, "F1", 1, 100).changes)
    assert "R6" in rules(delete(50, "F1", 1, 100), first)
    assert rules(delete(150, "F2", 101, 200), first) == []


def test_write_skew_is_rejected_by_what_was_read() -> None:
    rewritten = Changes(
        added=(FileSummary(path="D1-new"),), removed=(("D1", None),), data_change=True
    )
    on_call = attempt(None, scan(equals("on_call", True), "D1"))
    passes, *rejects = (
        rules(replace(on_call, isolation=isolation), winner(rewritten)) for isolation in LEVELS
    )
    assert passes == []
    assert rejects == [["R5", "R7"]] * 2


def test_a_phantom_is_rejected_unless_a_blind_append_brought_it() -> None:
    booked = And((equals("room", 1), equals("slot", 9)))
    one = msgspec.Raw(b'{"room":1,"slot":9}')
    booking = Changes(
        added=(FileSummary(path="G", min_values=one, max_values=one),), data_change=True
    )
    blind = msgspec.structs.replace(booking, blind=True)
    second = attempt(booking, scan(booked))
    by_level = [replace(second, isolation=isolation) for isolation in LEVELS]
    assert [rules(ours, winner(booking)) for ours in by_level] == [[], ["R7"], ["R7"]]
    assert [rules(ours, winner(blind)) for ours in by_level] == [[], [], ["R7"]]
    other = msgspec.Raw(b'{"room":2,"slot":9}')
    elsewhere = Changes(
        added=(FileSummary(path="G", min_values=other, max_values=other),), data_change=True
    )
    assert [rules(ours, winner(elsewhere)) for ours in by_level] == [[], [], []]


@pytest.mark.parametrize("isolation", LEVELS)
def test_compaction_and_delete_stop_each_other_and_nobody_else(isolation: Isolation) -> None:
    compacts = replace(ATTEMPTS["compaction"], isolation=isolation)
    deletes = replace(ATTEMPTS["DELETE where p"], isolation=isolation)
    reads = replace(ATTEMPTS["read, feeds elsewhere"], isolation=isolation)
    assert rules(compacts, winner(deletes.changes)) == ["R6"]
    assert rules(deletes, winner(compacts.changes)) == ["R6"]
    assert rules(reads, winner(compacts.changes)) == []
    assert rules(compacts, winner(APPENDS)) == []


def test_a_changed_schema_stops_an_append_and_an_append_stops_what_rewrites_all_rows() -> None:
    alters = attempt(
        Changes(metadata=True, removed=(("F1", None),), added=(), data_change=True),
        scan(None, "F1"),
    )
    assert rules(attempt(APPENDS), winner(alters.changes)) == ["R2"]
    by_level = [replace(alters, isolation=isolation) for isolation in LEVELS]
    assert [rules(ours, winner(APPENDS)) for ours in by_level] == [[], ["R7"], ["R7"]]
