"""What is read for a version: the catalog's word first, and never a gap."""

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.messages import RatifiedCommit
from headgate.protocol.actions import Sequence, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.log.segment import CheckpointFiles, Gap, Segment, newest_checkpoint, plan
from headgate.protocol.paths import (
    LOG,
    Checkpoint,
    Checksum,
    ClassicCheckpoint,
    Compaction,
    LastCheckpoint,
    LogFile,
    MultipartCheckpoint,
    PublishedCommit,
    Stray,
    UuidCheckpoint,
    parse,
)
from tests.kit import req, shows


def published(*versions: int) -> list[LogFile]:
    return [PublishedCommit(Version(version)) for version in versions]


def ratified(version: int, file_name: str | None = None) -> RatifiedCommit:
    return RatifiedCommit(
        version=Version(version),
        way=Way.STAGED if file_name else Way.INLINE,
        txn_id=TxnId(f"txn {version}"),
        sequence=Sequence(version + 1),
        timestamp_ms=1_000 + version,
        size=1,
        sha256="",
        file_name=file_name,
        content=None if file_name else b"{}\n",
    )


def classic(version: int) -> ClassicCheckpoint:
    return ClassicCheckpoint(Version(version))


def parts(version: int, count: int) -> list[LogFile]:
    return [MultipartCheckpoint(Version(version), part + 1, count) for part in range(count)]


def compaction(first: int, last: int) -> Compaction:
    return Compaction(Version(first), Version(last))


def known(*files: Checkpoint | Compaction) -> KnownFile:
    file = files[0]
    is_compaction = isinstance(file, Compaction)
    return KnownFile(
        kind=FileKind.COMPACTION if is_compaction else FileKind.CHECKPOINT,
        first=file.first if isinstance(file, Compaction) else file.version,
        last=file.last if isinstance(file, Compaction) else file.version,
        paths=tuple(file.path for file in files),
    )


def segment(version: int, **given: object) -> Segment:
    found = plan(Version(version), **given)  # type: ignore[arg-type]
    assert isinstance(found, Segment)
    return found


# The log of the RFC's example, as it stands there.
EXAMPLE = """\
00000000000000000000.json
00000000000000000001.json
00000000000000000002.checkpoint.parquet
00000000000000000002.json
00000000000000000003.00000000000000000005.compacted.json
00000000000000000003.json
00000000000000000004.json
00000000000000000005.json
00000000000000000006.json
00000000000000000007.json
_staged_commits/00000000000000000007.016ae953-37a9-438e-8683-9a9a4a79a395.json
_staged_commits/00000000000000000008.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json
_staged_commits/00000000000000000008.b91807ba-fe18-488c-a15e-c4807dbd2174.json
_staged_commits/00000000000000000010.0f707846-cd18-4e01-b40e-84ee0ae987b0.json
_staged_commits/00000000000000000010.7a980438-cb67-4b89-82d2-86f73239b6d6.json
""".splitlines()


@req("CM-17", "CM-18")
def test_the_worked_example_is_read_as_version_9() -> None:
    listed = [parse(f"{LOG}/{name}") for name in EXAMPLE]
    assert not any(isinstance(file, Stray) for file in listed)
    seven = ratified(7, "00000000000000000007.016ae953-37a9-438e-8683-9a9a4a79a395.json")
    eight = ratified(8, "00000000000000000008.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json")
    nine = ratified(9)
    assert plan(Version(9), ratified=[seven, eight, nine], listed=listed) == Segment(  # type: ignore[arg-type]
        version=Version(9),
        base=None,
        checkpoint=CheckpointFiles(Version(2), (classic(2),)),
        entries=(compaction(3, 5), PublishedCommit(Version(6)), seven, eight, nine),
    )


@req("CM-17")
def test_the_catalogs_commit_is_read_and_the_published_one_ignored() -> None:
    two = ratified(2)
    found = segment(3, ratified=[two], listed=published(0, 1, 2, 3))
    assert found.entries == (*published(0, 1), two, *published(3))


@req("CM-18")
@shows("FR3")
@pytest.mark.parametrize(
    "beyond",
    [
        published(3),
        [classic(3)],
        parts(3, 2),
        [UuidCheckpoint(Version(3), UUID(int=1), "json")],
        [compaction(0, 3)],
        [compaction(1, 3)],
        [compaction(3, 4)],
        [Checksum(Version(3)), LastCheckpoint()],
    ],
    ids=lambda files: type(files[0]).__name__,
)
def test_what_is_newer_than_the_version_does_not_exist(beyond: list[LogFile]) -> None:
    assert plan(Version(2), listed=published(0, 1, 2) + beyond) == plan(
        Version(2), listed=published(0, 1, 2)
    )
    # Nor does it when the catalog itself lists it, for a read further back.
    if isinstance(beyond[0], Compaction | ClassicCheckpoint):
        planned = plan(Version(2), listed=published(0, 1, 2), known=[known(beyond[0])])
        assert planned == plan(Version(2), listed=published(0, 1, 2))


@req("RD-06")
@pytest.mark.parametrize("missing", range(6))
def test_a_missing_version_is_a_gap_and_never_fewer_commits(missing: int) -> None:
    listed = [file for file in published(*range(6)) if file != PublishedCommit(Version(missing))]
    assert plan(Version(5), listed=listed) == Gap(Version(missing), Version(missing))


@req("RD-06")
def test_a_gap_is_reported_whole_and_from_where_reading_would_begin() -> None:
    assert plan(Version(9), listed=[*published(7, 8, 9), classic(2)]) == Gap(Version(3), Version(6))
    assert plan(Version(9), listed=published(7, 8, 9)) == Gap(Version(0), Version(6))
    assert plan(Version(9), listed=published(0, 1)) == Gap(Version(2), Version(9))
    assert plan(Version(1)) == Gap(Version(0), Version(1))
    assert plan(Version(2), listed=published(0, 9)) == Gap(Version(1), Version(2))
    assert plan(Version(9), base=Version(4), listed=[*published(*range(8)), classic(9)]) == Gap(
        Version(8), Version(9)
    )


def test_the_newest_complete_checkpoint_is_taken() -> None:
    listed = [*published(*range(8)), classic(1), classic(4), *parts(6, 3)[:2]]
    assert segment(7, listed=listed) == Segment(
        Version(7), None, CheckpointFiles(Version(4), (classic(4),)), tuple(published(5, 6, 7))
    )
    whole = segment(7, listed=[*listed, *parts(6, 3)])
    assert whole.checkpoint == CheckpointFiles(Version(6), tuple(parts(6, 3)))  # type: ignore[arg-type]


@shows("FP15")
def test_parts_of_different_checkpoints_do_not_make_one() -> None:
    two, three = parts(5, 2), parts(5, 3)
    mixed = [two[0], three[1], three[2]]
    assert newest_checkpoint(Version(5), listed=mixed) is None
    assert newest_checkpoint(Version(5), listed=[*mixed, two[1]]) is not None


def test_a_checkpoint_that_turned_out_unusable_is_passed_over() -> None:
    listed = [*published(*range(8)), classic(1), classic(4), *parts(4, 2)]
    first = segment(7, listed=listed).checkpoint
    assert first is not None
    second = segment(7, listed=listed, without=first.paths).checkpoint
    assert second is not None
    assert second.version == 4
    assert second != first
    third = segment(7, listed=listed, without={*first.paths, *second.paths}).checkpoint
    assert third == CheckpointFiles(Version(1), (classic(1),))


@req("RD-05")
def test_of_several_checkpoints_of_one_version_the_same_is_taken_in_any_order() -> None:
    there: list[LogFile] = [
        classic(3),
        *parts(3, 2),
        *(UuidCheckpoint(Version(3), UUID(int=number), "json") for number in (1, 2)),
        compaction(4, 5),
        compaction(4, 6),
        *published(*range(4, 8)),
    ]
    expected = segment(7, listed=there)
    for seed in range(100):
        listed = list(there)
        Random(seed).shuffle(listed)
        assert segment(7, listed=listed) == expected


def test_the_checkpoint_the_catalog_knows_needs_no_listing() -> None:
    found = segment(6, ratified=[ratified(5), ratified(6)], known=[known(classic(4))])
    assert found.checkpoint == CheckpointFiles(Version(4), (classic(4),))
    assert [entry.version for entry in found.entries if isinstance(entry, RatifiedCommit)] == [5, 6]


def test_a_checkpoint_of_the_version_itself_leaves_nothing_to_read() -> None:
    assert segment(4, listed=[*published(*range(5)), classic(4)]).entries == ()


def test_compactions_are_preferred_when_they_lie_wholly_between_checkpoint_and_version() -> None:
    listed = [
        *published(*range(10)),
        classic(2),
        compaction(1, 4),  # begins before the checkpoint ends
        compaction(3, 5),
        compaction(3, 4),  # shorter
        compaction(6, 9),
        compaction(8, 10),  # ends beyond
    ]
    assert segment(9, listed=listed).entries == (compaction(3, 5), compaction(6, 9))
    assert segment(8, listed=listed).entries == (compaction(3, 5), *published(6, 7, 8))
    assert segment(4, listed=listed).entries == (compaction(3, 4),)


@req("CM-17")
def test_a_listed_compaction_does_not_stand_in_for_commits_the_catalog_holds() -> None:
    held = [ratified(4), ratified(5)]
    listed = [*published(*range(6)), compaction(3, 5)]
    assert segment(5, ratified=held, listed=listed).entries == (*published(0, 1, 2, 3), *held)
    planned = segment(5, ratified=held, listed=listed, known=[known(compaction(3, 5))])
    assert planned.entries == (*published(0, 1, 2), compaction(3, 5))


@req("CM-17")
@pytest.mark.parametrize(
    ("first", "last", "is_used"), [(1, 2, True), (1, 3, False), (5, 6, False), (6, 7, True)]
)
def test_a_compaction_that_touches_the_ends_of_what_the_catalog_holds_is_left_out(
    first: int, last: int, is_used: bool
) -> None:
    held = [ratified(version) for version in (3, 4, 5)]
    listed = [*published(*range(8)), compaction(first, last)]
    entries = segment(7, ratified=held, listed=listed).entries
    assert (compaction(first, last) in entries) is is_used


def test_compactions_stand_in_for_commits_that_are_gone() -> None:
    assert segment(5, listed=[compaction(0, 3), *published(4, 5)]).entries == (
        compaction(0, 3),
        *published(4, 5),
    )


def test_a_compaction_that_turned_out_unusable_is_replaced_by_its_commits() -> None:
    listed = [*published(*range(4)), compaction(0, 3)]
    found = segment(3, listed=listed, without=[compaction(0, 3).path])
    assert found.entries == tuple(published(*range(4)))


def test_going_on_from_a_state_in_hand_reads_only_what_came_after() -> None:
    listed = [*published(*range(8)), classic(6), compaction(4, 6)]
    assert segment(7, base=Version(5), listed=listed) == Segment(
        Version(7), Version(5), None, tuple(published(6, 7))
    )
    assert segment(7, base=Version(3), listed=listed).entries == (compaction(4, 6), *published(7))
    assert segment(7, base=Version(7), listed=listed).entries == ()


@st.composite
def logs(draw: st.DrawFn) -> tuple[int, list[LogFile], list[RatifiedCommit]]:
    latest = draw(st.integers(0, 12))
    files: list[LogFile] = list(published(*range(latest + 3)))
    versions = st.integers(0, latest + 2)
    files += map(classic, draw(st.lists(versions, max_size=3)))
    for version in draw(st.lists(versions, max_size=2)):
        files += parts(version, 3)[: draw(st.integers(1, 3))]
    for first, last in draw(st.lists(st.tuples(versions, versions), max_size=4)):
        if first < last:
            files.append(compaction(first, last))
    gone = draw(st.sets(st.integers(0, latest), max_size=2))
    files = [f for f in files if not (isinstance(f, PublishedCommit) and f.version in gone)]
    held_from = draw(st.integers(0, latest + 1))
    return latest, files, [ratified(version) for version in range(held_from, latest + 1)]


@req("RD-05", "RD-06")
@shows("FP17")
@given(logs(), st.integers())
def test_every_plan_joins_without_a_gap_and_no_order_of_listing_changes_it(
    log: tuple[int, list[LogFile], list[RatifiedCommit]], seed: int
) -> None:
    latest, files, held = log
    found = plan(Version(latest), ratified=held, listed=files)
    shuffled, shuffled_held = list(files), list(held)
    Random(seed).shuffle(shuffled)
    Random(seed).shuffle(shuffled_held)
    assert plan(Version(latest), ratified=shuffled_held, listed=shuffled) == found
    if isinstance(found, Gap):
        assert not {found.first, found.last} & {commit.version for commit in held}
        assert not {PublishedCommit(found.first), PublishedCommit(found.last)} & set(files)
        return
    at = -1 if found.checkpoint is None else found.checkpoint.version
    assert at <= latest
    for entry in found.entries:
        first, last = (
            (entry.first, entry.last)
            if isinstance(entry, Compaction)
            else (entry.version, entry.version)
        )
        assert first == at + 1
        at = last
        if isinstance(entry, PublishedCommit):
            assert entry.version not in {commit.version for commit in held}
    assert at == latest
