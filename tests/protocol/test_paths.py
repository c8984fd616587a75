from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.protocol import paths
from headgate.protocol.actions import Version
from headgate.protocol.paths import (
    Checksum,
    ClassicCheckpoint,
    Compaction,
    LastCheckpoint,
    LogFile,
    MultipartCheckpoint,
    PublishedCommit,
    Sidecar,
    StagedCommit,
    Stray,
    UuidCheckpoint,
)
from tests.kit import req, shows

relaxed = settings(deadline=None)
ID = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")

versions = st.integers(0, 2**63 - 1).map(Version)
ranges = st.tuples(versions, versions).map(sorted)
parts = st.integers(1, 10**10 - 1).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))
files: st.SearchStrategy[LogFile] = st.one_of(
    st.builds(PublishedCommit, versions),
    st.builds(StagedCommit, versions, st.uuids()),
    st.builds(ClassicCheckpoint, versions),
    st.builds(lambda v, part: MultipartCheckpoint(v, *part), versions, parts),
    st.builds(UuidCheckpoint, versions, st.uuids(), st.sampled_from(["json", "parquet"])),
    st.builds(lambda both: Compaction(*both), ranges),
    st.builds(Checksum, versions),
    st.builds(Sidecar, st.uuids().map("{}.parquet".format)),
    st.just(LastCheckpoint()),
)


@req("CM-01", "CM-09")
@given(files)
@relaxed
def test_a_log_file_of_any_version_comes_back_from_its_path(file: LogFile) -> None:
    assert paths.parse(file.path) == file


@req("CM-01")
def test_a_staged_commit_lies_under_staged_commits_with_20_digits_and_its_uuid() -> None:
    staged = StagedCommit(Version(7), ID)
    assert staged.path == f"_delta_log/_staged_commits/00000000000000000007.{ID}.json"
    assert staged.name == f"00000000000000000007.{ID}.json"


@req("CM-09")
def test_a_published_commit_lies_in_the_log_with_20_digits() -> None:
    assert PublishedCommit(Version(7)).path == "_delta_log/00000000000000000007.json"


@given(versions, st.uuids())
@relaxed
def test_a_staged_commit_comes_back_from_its_name_alone(version: Version, uuid: UUID) -> None:
    staged = StagedCommit(version, uuid)
    assert paths.parse_staged_name(staged.name) == staged


V = "00000000000000000007"
REFUSED_NAMES = [
    "",
    f"{V}.json",
    f"{V}..json",
    f"{V}.{ID}",
    f"{V}.{ID}.JSON",
    f"{V}.{ID}.json.tmp",
    f"{V}.{ID}.json\n",
    f"{V}.{ID}.json\x00",
    f" {V}.{ID}.json",
    f"7.{ID}.json",
    f"0{V}.{ID}.json",
    f"{V[1:]}.{ID}.json",
    f"-{V[1:]}.{ID}.json",
    f"{'9' * 20}.{ID}.json",
    f"{10**20}.{ID}.json",
    f"{2**63:020d}.{ID}.json",
    f"1.5{V[3:]}.{ID}.json",
    f"{chr(0x667) * 20}.{ID}.json",
    f"{V}.{str(ID).upper()}.json",
    f"{V}.{ID.hex}.json",
    f"{V}.{{{ID}}}.json",
    f"{V}.not-a-uuid.json",
    f"{V}.{str(ID)[:-1]}g.json",
    f"../{V}.{ID}.json",
    f"/{V}.{ID}.json",
    f"_delta_log/_staged_commits/{V}.{ID}.json",
    f"%2e%2e/{V}.{ID}.json",
    f"{V}.{ID}.json/../../x",
]


@req("CM-01")
@shows("FI2")
@pytest.mark.parametrize("name", REFUSED_NAMES, ids=range(len(REFUSED_NAMES)))
def test_a_staged_name_of_any_other_shape_is_none_of_ours(name: str) -> None:
    assert paths.parse_staged_name(name) is None


STRAYS = [
    "",
    "_delta_log",
    "_delta_log/",
    f"{V}.json",
    f"x/_delta_log/{V}.json",
    f"/_delta_log/{V}.json",
    f"_delta_log//{V}.json",
    f"_delta_log/{V}.json.tmp",
    f"_delta_log/.{V}.json.crc",
    f"_delta_log/{V}.parquet",
    f"_delta_log/{V}.checkpoint.json",
    f"_delta_log/{V}.checkpoint.{ID}.avro",
    f"_delta_log/{V}.checkpoint.0000000000.0000000002.parquet",
    f"_delta_log/{V}.checkpoint.0000000003.0000000002.parquet",
    f"_delta_log/{V}.checkpoint.1.2.parquet",
    f"_delta_log/{V}.00000000000000000006.compacted.json",
    f"_delta_log/{V}.{'9' * 20}.compacted.json",
    f"_delta_log/{V}.{V}.json",
    f"_delta_log/{'9' * 20}.json",
    f"_delta_log/{V}.{ID}.json",
    f"_delta_log/_staged_commits/{V}.json",
    f"_delta_log/_staged_commits/x/{V}.{ID}.json",
    "_delta_log/_sidecars/x/y.parquet",
    "_delta_log/_sidecars/x.json",
    "_delta_log/_last_checkpoint.tmp",
    "_delta_log/_commits/x",
]


@req("CM-01", "CM-09")
@pytest.mark.parametrize("path", STRAYS, ids=range(len(STRAYS)))
def test_a_path_of_any_other_shape_is_a_stray(path: str) -> None:
    assert paths.parse(path) == Stray(path)


@given(files, st.data())
@relaxed
def test_a_path_changed_by_one_character_is_another_file_or_a_stray(
    file: LogFile, data: st.DataObject
) -> None:
    path = file.path
    at = data.draw(st.integers(0, len(path) - 1))
    letter = data.draw(st.sampled_from("0a9.-_/é%\\\n"))
    changed = path[:at] + letter + path[at + 1 :]
    assert paths.parse(changed).path == changed


@given(st.text(max_size=60))
@relaxed
def test_any_text_is_a_path(text: str) -> None:
    assert paths.parse(text).path == text
    assert paths.parse(f"_delta_log/{text}").path == f"_delta_log/{text}"
