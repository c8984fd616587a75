"""Locations in one spelling, and the paths a log writes down."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InvalidArgumentError
from headgate.storage.local import LocalStore
from headgate.storage.locations import (
    DataPath,
    contains,
    data_path,
    join,
    mount,
    normalize,
    path_within,
    store_for,
)
from headgate.storage.memory import MemoryStore
from tests.kit import shows
from tests.storage.object_store_contract import PATHS

HERE = Path.cwd().as_posix()


@pytest.mark.parametrize(
    ("location", "spelled"),
    [
        ("/a/b", "file:///a/b"),
        ("/a/b/", "file:///a/b"),
        ("//a//b", "file:///a/b"),
        ("/a/../b/.", "file:///b"),
        ("/a b%20c", "file:///a%20b%2520c"),
        ("a/b", f"file://{HERE}/a/b"),
        ("./a", f"file://{HERE}/a"),
        (".", f"file://{HERE}"),
        ("/", "file:///"),
        ("file:/a/b/", "file:///a/b"),
        ("file:///a/b", "file:///a/b"),
        ("file://localhost/a", "file:///a"),
        ("FILE:///A", "file:///A"),
        ("file:///a b%20c", "file:///a%20b%20c"),
        ("file:///a%2520b", "file:///a%2520b"),
        ("file:///caf%C3%A9", "file:///caf%C3%A9"),
        ("file:///café", "file:///caf%C3%A9"),
        ("file:///p=1/a+b", "file:///p=1/a+b"),
        ("file:///100%", "file:///100%25"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/t/7/", "s3://bucket/t/7"),
        ("s3n://bucket/t", "s3://bucket/t"),
        ("gcs://bucket/t", "gs://bucket/t"),
        ("abfs://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("memory://name/x y", "memory://name/x%20y"),
    ],
)
def test_a_location_has_one_spelling(location: str, spelled: str) -> None:
    assert normalize(location) == spelled
    assert normalize(spelled) == spelled


@pytest.mark.parametrize(
    "location",
    [
        "", "a\0b", "file:a/b", "file://host/a", "file:///a/../b", "file:///a/%2e%2e/b",
        "file:///a%00", "file:///%ff", "s3://", "s3:///a", "s3://b/a//b", "s3://b/../c",
        "s3://b/a?x=1", "s3://b/a#x", "ftp://b/a", "http://b/a", "hdfs://b/a", "s3://b/./a",
    ],
)  # fmt: skip
def test_what_is_no_location_is_refused(location: str) -> None:
    with pytest.raises(InvalidArgumentError):
        normalize(location)


@given(PATHS)
def test_any_local_path_survives_its_spelling(path: str) -> None:
    url = normalize(f"/{path}")
    assert url.isascii()
    assert normalize(url) == url
    assert path_within("file:///", url) == path
    assert LocalStore(f"/{path}").url == url


@given(PATHS, PATHS)
def test_joining_and_cutting_are_inverse(base: str, path: str) -> None:
    for root in (f"/{base}", "s3://bucket", "/"):
        joined = join(root, path)
        assert path_within(root, joined) == path
        assert contains(root, joined)
        assert not contains(joined, root)
        assert path_within(joined, root) is None


@pytest.mark.parametrize("path", ["", "..", "../t8", "a/../../t8", "/a", "a//b", ".hg-1"])
def test_a_path_that_leads_elsewhere_is_not_joined(path: str) -> None:
    with pytest.raises(InvalidArgumentError):
        join("/lake/t7", path)


def test_containing_goes_by_whole_segments() -> None:
    assert contains("/a/b", "file:/a/b/c")
    assert contains("/a/b", "/a/b/")
    assert contains("/", "/a")
    assert contains("s3://bucket", "s3a://bucket/x")
    assert not contains("/a/b", "/a/bc")
    assert not contains("/a/b", "/a")
    assert not contains("s3://bucket", "s3://bucket2/x")
    assert not contains("/a", "s3://a/a")
    assert path_within("/a", "/a") is None


@pytest.mark.parametrize(
    ("raw", "is_relative", "value"),
    [
        ("part-0.parquet", True, "part-0.parquet"),
        ("p=a%20b/x.parquet", True, "p=a b/x.parquet"),
        ("p=a%2520b/x.parquet", True, "p=a%20b/x.parquet"),
        ("p=12:30/x", True, "p=12:30/x"),
        ("p=a+b/x", True, "p=a+b/x"),
        ("file:/t/x%20y", False, "file:///t/x%20y"),
        ("/t/x%20y", False, "file:///t/x%20y"),
        ("s3a://bucket/t/x", False, "s3://bucket/t/x"),
    ],
)
def test_the_path_of_an_action_is_decoded_once(raw: str, is_relative: bool, value: str) -> None:
    assert data_path(raw) == DataPath(value, is_relative)


def is_inside(location: str, raw: str) -> bool:
    try:
        path = data_path(raw)
        return path.is_relative or path_within(location, path.value) is not None
    except InvalidArgumentError:
        return False


@shows("FI1")
@pytest.mark.parametrize(
    "raw",
    [
        "", "..", "../x", "a/../../x", "%2e%2e/x", "%2E%2e/x", "a/%2e%2e/%2e%2e/x", "..%2fx",
        "x%00y", "/etc/passwd", "file:///etc/passwd", "file:///lake/t7/../t8/x",
        "file:///lake/t7/%2e%2e/t8/x", "file:///lake/t77/x", "file:///lake/t7", "//lake/t8/x",
        "s3://lake/t7/x", "http://evil/x", "javascript:x", "%ff", "\ud800", ".hg-1", "\0",
    ],
)  # fmt: skip
def test_a_path_that_leads_out_of_the_table_is_not_inside(raw: str) -> None:
    assert not is_inside("file:///lake/t7", raw)


@pytest.mark.parametrize(
    "raw", ["x", "p=1/x", "file:/lake/t7/x", "/lake/t7/x", "..x", "%2e%2ex", "a//b", "./x"]
)
def test_a_path_below_the_table_is_inside(raw: str) -> None:
    assert is_inside("/lake/t7/", raw)


@given(st.text())
def test_every_text_is_a_path_inside_or_is_not(raw: str) -> None:
    if is_inside("/lake/t7", raw):
        path = data_path(raw)
        place = join("/lake/t7", path.value) if path.is_relative else path.value
        assert normalize(place).startswith("file:///lake/t7/")
        assert "/../" not in place


def test_a_place_has_one_store_however_it_is_spelled(tmp_path: Path) -> None:
    store = store_for(f"{tmp_path}/t 1")
    assert store_for(f"file:{tmp_path}/t%201/") is store
    assert store.url == normalize(f"{tmp_path}/t 1")
    store.put("a", b"1")
    assert (tmp_path / "t 1" / "a").read_bytes() == b"1"


def test_memory_is_shared_by_all_who_name_it() -> None:
    store_for("memory://shared/tables/7").put("log/0", b"0")
    assert store_for("memory://shared/tables").get("7/log/0") == b"0"
    assert store_for("memory://shared").get("tables/7/log/0") == b"0"
    assert store_for("memory://other").head("tables/7/log/0") is None


def test_a_mounted_store_serves_all_that_lies_below() -> None:
    before = store_for("memory://mounted/t/7")
    mine = MemoryStore("memory://mounted")
    mount("memory://mounted/", mine)
    assert store_for("memory://mounted") is mine
    assert store_for("memory://mounted/t/7") is not before
    store_for("memory://mounted/t/7").put("a", b"1")
    assert mine.get("t/7/a") == b"1"


def test_a_store_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        store_for("ftp://host/x")
