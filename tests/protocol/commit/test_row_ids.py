"""Row ids: given to inline commits, and checked in the files of others."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocol.actions import (
    Action,
    DomainMetadata,
    RemoveFile,
    Version,
)
from headgate.protocol.commit.content import Inline
from headgate.protocol.commit.examination import examine, examine_file
from headgate.protocol.commit.facts import Head
from tests.kit import req
from tests.kit.builders import START_MS, add, inline, remove
from tests.protocol.commit.commit_cases import (
    DOMAIN,
    FILE,
    TRACKED,
    VECTOR,
    composed,
    facts,
    in_file,
    judged,
    relaxed,
    tracked,
    with_vector,
)

# Row tracking


def mark_of(content: bytes) -> list[int]:
    return [
        json.loads(domain.configuration)["rowIdHighWaterMark"]
        for domain in examine_file(content).domains
        if domain.domain == "delta.rowTracking"
    ]


@req("CM-41")
def test_row_ids_of_racing_appends_are_disjoint_and_follow_the_high_water_mark() -> None:
    attempts = [
        examine(inline(add("a", records=10), add("b", records=5))),
        examine(inline(add("c", records=3))),
        examine(inline(add("d", records=0), add("e", records=7))),
    ]
    mark: int | None = -1
    spans = []
    for version, examined in enumerate(attempts, start=7):
        known = facts(*TRACKED, row_id_high_water=mark)
        assert judged(examined, known) == []
        before = mark
        content, mark = composed(examined, version=Version(version), row_id_high_water=mark)
        stored = examine_file(content)
        for file, bounds in zip(stored.adds, stored.bounds, strict=True):
            assert file.default_row_commit_version == version
            assert file.base_row_id is not None
            assert bounds.num_records is not None
            spans.append(range(file.base_row_id, file.base_row_id + bounds.num_records))
        assert mark_of(content) == [mark]
        # What the catalog wrote is what it would admit from a stranger at this version, no other.
        here = msgspec.structs.replace(stored, violations=())
        at_version = {"version": Version(version - 1), "row_id_high_water": before}
        assert judged(here, _moved(known, **at_version)) == []
        at_version = {"version": Version(version), "row_id_high_water": mark}
        assert set(judged(here, _moved(known, **at_version))) & {
            "row-ids-taken",
            "row-version-differs",
        }
    assert [row for span in spans for row in span] == list(range(25))
    assert mark == 24


def _moved(known: Head, **changes: object) -> Head:
    return known._replace(**changes)


@req("CM-41")
def test_moving_an_attempt_changes_what_depends_on_the_version_and_not_the_intent() -> None:
    sent = examine(inline(add("a", records=10), DOMAIN))
    seventh, _ = composed(sent, row_id_high_water=99)
    eighth, _ = composed(sent, version=Version(8), timestamp_ms=START_MS + 1, row_id_high_water=149)
    one, two = examine_file(seventh), examine_file(eighth)
    assert one.intent == two.intent == sent.intent
    assert (one.adds[0].base_row_id, two.adds[0].base_row_id) == (100, 150)
    assert one.timestamp_ms != two.timestamp_ms
    assert mark_of(seventh) == [109]
    assert mark_of(eighth) == [159]


def test_another_intent_has_another_hash() -> None:
    removed = remove(add("a"))
    kept = msgspec.structs.replace(
        with_vector(), path="a", base_row_id=5, default_row_commit_version=2
    )
    told_apart = [
        [add("a")],
        [add("b")],
        [add("a"), add("b")],
        [add("b"), add("a")],
        [remove(add("a"))],
        [removed, kept],
        # It is added again, so its row ids are not the version's but its own.
        [removed, msgspec.structs.replace(kept, base_row_id=6)],
        [],
    ]
    hashes = [examine(inline(*actions)).intent for actions in told_apart]
    assert len(set(hashes)) == len(told_apart)
    assert examine(inline(add("a"), operation="MERGE")).intent == hashes[0]
    assert in_file(add("a")).intent == hashes[0]


def test_a_file_added_again_keeps_its_row_ids() -> None:
    again = msgspec.structs.replace(with_vector(), base_row_id=5, default_row_commit_version=2)
    examined = examine(inline(remove(FILE), again, add("new", records=2)))
    known = facts("deletionVectors", *TRACKED, row_id_high_water=99)
    assert judged(examined, known) == []
    content, mark = composed(examined, row_id_high_water=99)
    stored = {file.path: file for file in examine_file(content).adds}
    assert stored[FILE.path] == again
    assert stored["new"].base_row_id == 100
    assert mark == 101


def test_a_line_that_gets_row_ids_keeps_every_other_byte_of_its_values() -> None:
    raw = (
        b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true,'
        b'"baseRowId":null,"stats":"{\\"numRecords\\":4}","mine":1.50,"yours":"\\u00e9"}}'
    )
    content, _ = composed(
        examine(Inline(commit_info={}, actions=raw + b"\n")), row_id_high_water=-1
    )
    assert content.split(b"\n")[1] == (
        b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true,'
        b'"baseRowId":0,"stats":"{\\"numRecords\\":4}","mine":1.50,"yours":"\\u00e9",'
        b'"defaultRowCommitVersion":7}}'
    )


def test_a_file_older_than_row_tracking_gets_row_ids_when_added_again() -> None:
    examined = examine(inline(remove(FILE), with_vector()))
    known = facts("deletionVectors", *TRACKED, row_id_high_water=99)
    assert judged(examined, known) == []
    content, mark = composed(examined, row_id_high_water=99)
    assert (examine_file(content).adds[0].base_row_id, mark) == (100, 109)


def test_a_commit_without_new_files_leaves_the_high_water_mark_alone() -> None:
    content, mark = composed(examine(inline(remove(FILE))), row_id_high_water=99)
    assert (mark, mark_of(content)) == (99, [])


def test_a_stale_high_water_mark_is_written_anew() -> None:
    stale = DomainMetadata(
        domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":3}', removed=False
    )
    content, mark = composed(examine(inline(stale, FILE)), row_id_high_water=99)
    assert (mark, mark_of(content)) == (109, [109])


def tracked_remove(base_row_id: int | None) -> RemoveFile:
    return msgspec.structs.replace(remove(FILE), base_row_id=base_row_id)


def marked(mark: int | None) -> DomainMetadata:
    configuration = "{}" if mark is None else f'{{"rowIdHighWaterMark":{mark}}}'
    return DomainMetadata(domain="delta.rowTracking", configuration=configuration, removed=False)


ROW_IDS: dict[str, tuple[list[Action], list[str]]] = {
    "right": ([tracked(), marked(109)], []),
    "none": ([FILE, marked(109)], ["no-row-ids"]),
    "no version": ([tracked(default_row_commit_version=None)], ["no-row-ids"]),
    "of rows that were there": ([tracked(base_row_id=99), marked(109)], ["row-ids-taken"]),
    "of a file that is restored": ([tracked(base_row_id=5, default_row_commit_version=3)], []),
    "of a file that is restored and of a new one": (
        [tracked(path="b", base_row_id=5, default_row_commit_version=3), tracked(), marked(109)],
        [],
    ),
    "of rows that others got meanwhile": (
        [tracked(base_row_id=90, default_row_commit_version=6), marked(99)],
        ["row-ids-taken"],
    ),
    "of rows that others got in part": (
        [tracked(base_row_id=95, default_row_commit_version=6), marked(104)],
        ["row-ids-taken"],
    ),
    "of another version": (
        [tracked(default_row_commit_version=6), marked(109)],
        ["row-version-differs"],
    ),
    "shared by two files": (
        [tracked(), tracked(path="b", base_row_id=109), marked(200)],
        ["row-ids-overlap"],
    ),
    "above the high-water mark": ([tracked(), marked(108)], ["row-id-high-water"]),
    "and no high-water mark": ([tracked()], ["row-id-high-water"]),
    "up to the largest that fits into 64 bits": (
        [tracked(base_row_id=2**63 - 10), marked(2**63 - 1)],
        [],
    ),
    "and a mark that does not fit into 64 bits": (
        [tracked(), marked(2**63)],
        ["row-id-high-water", "row-id-high-water"],
    ),
    "that do not fit into 64 bits": (
        [tracked(base_row_id=2**63 - 9), marked(2**63 - 1)],
        ["row-ids-exhausted", "row-id-high-water"],
    ),
    "and a mark that cannot be read": (
        [tracked(), marked(None)],
        ["row-id-high-water", "row-id-high-water"],
    ),
    "and no number of rows": ([tracked(stats=None), marked(109)], ["no-num-records"]),
    "lost when added again": ([tracked_remove(5), with_vector()], ["row-ids-changed"]),
    "changed when added again": (
        [tracked_remove(5), tracked(base_row_id=6, deletion_vector=VECTOR)],
        ["row-ids-changed"],
    ),
    "changed from the very first when added again": (
        [tracked_remove(0), tracked(base_row_id=6, deletion_vector=VECTOR)],
        ["row-ids-changed"],
    ),
    "new when added again": (
        [tracked_remove(5), tracked(deletion_vector=VECTOR), marked(109)],
        ["row-ids-changed"],
    ),
    "without a version when added again": (
        [
            tracked_remove(5),
            tracked(base_row_id=5, default_row_commit_version=None, deletion_vector=VECTOR),
        ],
        ["no-row-ids"],
    ),
    "first given when added again": (
        [tracked_remove(None), tracked(deletion_vector=VECTOR), marked(109)],
        [],
    ),
    "kept when added again": (
        [tracked_remove(5), tracked(base_row_id=5, deletion_vector=VECTOR)],
        [],
    ),
    "kept when only statistics change": (
        [tracked(base_row_id=5, default_row_commit_version=2, data_change=False)],
        [],
    ),
}


@pytest.mark.parametrize("case", ROW_IDS)
def test_a_strangers_row_ids_are_judged(case: str) -> None:
    actions, expected = ROW_IDS[case]
    known = facts("deletionVectors", *TRACKED, row_id_high_water=99)
    assert judged(in_file(*actions), known) == expected


def test_inline_the_catalog_gives_row_ids_and_nobody_else() -> None:
    known = facts(*TRACKED, row_id_high_water=99)
    assert judged(examine(inline(tracked())), known) == ["row-ids-given"]
    assert judged(examine(inline(msgspec.structs.replace(FILE, stats=None))), known) == [
        "no-num-records"
    ]


# At random


@req("CM-41")
@relaxed
@given(st.lists(st.lists(st.integers(0, 50), max_size=4)), st.integers(-1, 1000))
def test_row_ids_are_given_once_whatever_comes(commits: list[list[int]], mark: int) -> None:
    given_out, start = [], mark
    for version, sizes in enumerate(commits):
        examined = examine(inline(*(add(f"{n}", records=size) for n, size in enumerate(sizes))))
        content, new_mark = composed(examined, version=Version(version), row_id_high_water=mark)
        assert new_mark is not None
        mark = new_mark
        for file, size in zip(examine_file(content).adds, sizes, strict=True):
            assert file.base_row_id is not None
            given_out.extend(range(file.base_row_id, file.base_row_id + size))
        assert mark_of(content) == ([mark] if sizes else [])
    assert given_out == list(range(start + 1, mark + 1))
