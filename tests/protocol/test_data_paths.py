"""One file has many spellings and one normal form."""

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidArgumentError
from headgate.protocol import data_paths
from headgate.protocol.actions import AddFile, DeletionVector, RemoveFile, Version, Wrapped
from headgate.protocol.commit.conflicts import Attempt, Changes, Scan, Winner, conflicts
from headgate.protocol.data_paths import UNUSUAL, is_absolute, normal_path
from headgate.protocol.log.checksums import FileTotals, files_after
from headgate.protocol.log.replay import EMPTY, apply
from headgate.storage.locations import DataPath, data_path
from tests.kit.fake_catalog import ID

SPELLINGS = [
    ["/x/y", "file:/x/y", "file:///x/y", "FILE://localhost/x/y", "file:/x//y", "/x/./y", "/%78/y"],
    ["/a b/c", "/a%20b/c", "file:/a%20b/c", "file:///a%20b//c"],
    ["s3://b/k/x", "s3a://b/k/x", "s3n://b/k/x", "S3://b/k//x", "s3://b/k%2Fx", "s3://b/k%2fx"],
    ["abfss://c@a/x", "abfs://c@a/x"],
    ["gs://b/x", "gcs://b/x", "GCS://b//x"],
    ["az://c/x", "azure://c/x"],
    ["p=1:2/x", "p=1%3A2/x", "p=1%3a2/x", "./p=1:2/x", "p=1:2//x"],
    ["p=ä/x", "p=%C3%A4/x", "p=%c3%a4/x"],
    ["p=a%2520b/x", "p=a%25%32%30b/x"],
]
DIFFERENT = [
    "x", "y/x", "/y/x", "s3://y/x", "gs://y/x", "s3://y/z/x", "y/../x", "%2Fy/x", "y%252Fx", "Y/x",
    "s3%3A//y/x", "%ff/x", "file://host/y/x",
]  # fmt: skip


@pytest.mark.parametrize("spellings", SPELLINGS)
def test_spellings_of_one_file_have_one_normal_form(spellings: list[str]) -> None:
    assert len({normal_path(path) for path in spellings}) == 1


@pytest.mark.parametrize("spellings", SPELLINGS)
def test_spellings_of_one_file_are_opened_at_one_place(spellings: list[str]) -> None:
    assert len({data_path(path) for path in spellings}) == 1


def test_different_files_have_different_normal_forms() -> None:
    assert len({normal_path(path) for path in DIFFERENT}) == len(DIFFERENT)


def test_an_ordinary_relative_path_is_its_own_normal_form() -> None:
    for path in ("part-00000-1.c000.snappy.parquet", "day=2026-01-01/part-0.parquet", "a b"):
        assert normal_path(path) is path


@settings(deadline=None)
@given(st.text(st.sampled_from("ab%2Ff:/.")) | st.text())
def test_the_test_for_unusual_paths_misses_none(path: str) -> None:
    if re.search(UNUSUAL, path) is None:
        assert normal_path(path) == path


@settings(deadline=None)
@given(st.text(st.sampled_from("ab%2Ff:/.")))
def test_paths_with_one_normal_form_are_the_same_place(path: str) -> None:
    for other in (path.replace("/", "//"), path.replace("a", "%61")):
        if normal_path(other) == normal_path(path) and not is_absolute(path):
            try:
                place = data_path(path)
            except InvalidArgumentError:
                continue  # not a path that can be opened
            assert data_path(other) == place


def test_the_quick_way_and_the_plain_one_come_to_the_same_for_every_short_path() -> None:
    for letters in (product("a%2F:/.", repeat=length) for length in range(6)):
        for path in map("".join, letters):
            assert normal_path(path) == data_paths._normal(path), path


# Everything that compares files


def add(path: str, vector: DeletionVector | None = None) -> AddFile:
    return AddFile(
        path=path,
        partition_values={},
        size=1,
        modification_time=0,
        data_change=True,
        deletion_vector=vector,
    )


def remove(path: str, vector: DeletionVector | None = None) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, size=1, deletion_vector=vector)


@pytest.mark.parametrize("spellings", SPELLINGS)
def test_a_remove_takes_away_the_file_however_the_add_spelled_it(spellings: list[str]) -> None:
    for one in spellings:
        for other in spellings:
            state = apply(EMPTY, Version(0), [Wrapped(add=add(one))])
            state = apply(state, Version(1), [Wrapped(remove=remove(other))])
            assert (list(state.added()), state.num_files) == ([], 0)
            assert [tombstone.path for tombstone in state.removed()] == [other]


def test_a_vector_at_an_absolute_path_is_one_vector_however_it_is_spelled() -> None:
    old, new = (
        DeletionVector(
            storage_type="p", path_or_inline_dv=path, offset=1, size_in_bytes=1, cardinality=1
        )
        for path in ("file:/x/v%20.bin", "/x/v .bin")
    )
    state = apply(EMPTY, Version(0), [Wrapped(add=add("f", old))])
    state = apply(state, Version(1), [Wrapped(remove=remove("f", new))])
    assert state.num_files == 0


@pytest.mark.parametrize("spellings", SPELLINGS)
def test_a_file_removed_by_two_commits_is_a_conflict_however_each_spells_it(
    spellings: list[str],
) -> None:
    first, second = spellings[:2]
    winner = Winner(Version(1), Changes(removed=((first, None),), data_change=True))
    attempt = Attempt(ID, Version(0), Changes(), frozenset({second}))
    assert [conflict.rule for conflict in conflicts(attempt, [winner])] == ["R6"]
    scan = Scan(table_id=ID, version=Version(0), files=(second,))
    attempt = Attempt(ID, Version(0), Changes(), frozenset(), (scan,))
    assert [conflict.rule for conflict in conflicts(attempt, [winner])] == ["R5"]


def test_a_file_replaced_under_another_spelling_is_counted_once() -> None:
    after = files_after(FileTotals(3, 30), [add("p=1:2/x")], [remove("p=1%3A2/x")])
    assert after == FileTotals(3, 30)


def test_a_path_with_empty_segments_is_opened_without_them() -> None:
    assert data_path("a//./b") == DataPath("a/b", is_relative=True)
    assert data_path("s3://b//a/./x") == DataPath("s3://b/a/x", is_relative=False)
