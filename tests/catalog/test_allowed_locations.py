"""Where clients may put tables, and what no table may be put in."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate._connect import embedded_catalog, init
from headgate.catalog.service import Catalog
from headgate.clock import RandomIds, SystemClock
from headgate.errors import (
    AlreadyExistsError,
    HeadgateError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import TableId, TxnId
from headgate.protocol.commit.content import Inline
from headgate.settings import Settings
from headgate.storage import locations
from tests.kit.builders import inline, metadata, protocol

NAME = TableName.parse("t")


def opened(lake: Path, *, any_location: bool) -> Catalog:
    clock = SystemClock()
    return embedded_catalog(
        str(lake),
        settings=Settings(),
        publisher=False,
        clock=clock,
        ids=RandomIds(clock),
        any_location=any_location,
    )


def first(table_id: TableId) -> Inline:
    """Return version 0 of a table."""
    return inline(protocol(), metadata(table_id))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "lake"


@pytest.fixture
def catalog(lake: Path) -> Iterator[Catalog]:
    catalog = opened(lake, any_location=False)
    yield catalog
    catalog.close()


def choose_every_way(catalog: Catalog, location: str) -> Iterator[HeadgateError | None]:
    """Choose a location in every way that a client can."""
    for choose in (
        lambda: catalog.stage_table(location),
        lambda: catalog.register_external(NAME, location),
        lambda: catalog.check_location(location),
    ):
        try:
            choose()
        except HeadgateError as error:
            yield error
        else:
            yield None


def refusals(catalog: Catalog, location: str) -> set[type[HeadgateError] | None]:
    errors = choose_every_way(catalog, location)
    return {None if error is None else type(error) for error in errors}


@pytest.mark.parametrize("place", ["beside", "lake-2/t", "lake/../beside", "landing-2"])
def test_a_location_is_refused_outside_of_the_root_and_of_registered_ones(
    catalog: Catalog, lake: Path, place: str
) -> None:
    catalog.add_location(str(lake.parent / "landing"))
    assert refusals(catalog, f"{lake.parent}/{place}") == {PermissionDeniedError}
    assert not (lake.parent / place).exists()


def test_a_location_is_taken_under_the_root_and_under_a_registered_one(
    catalog: Catalog, lake: Path
) -> None:
    catalog.add_location(str(lake.parent / "landing"))
    for place in (lake / "mine", lake.parent / "landing" / "a b", lake.parent / "landing"):
        assert catalog.check_location(str(place)) == locations.normalize(str(place))
    staged = catalog.stage_table(str(lake / "mine"))
    assert staged.location == locations.normalize(str(lake / "mine"))
    catalog.register_external(NAME, f"file:{lake.parent}/landing/ext")


@pytest.mark.parametrize("any_location", [False, True], ids=["server", "embedded"])
@pytest.mark.parametrize(
    "place",
    [
        ".",
        "..",
        "tables",
        "tables/x",
        "headgate.db",
        "headgate.db/x",
        "headgate.db-wal",
        "headgate.db-shm/x",
        "link",
        "link/tables/x",
    ],
)
def test_no_table_is_put_into_the_lakes_own_files(
    lake: Path, place: str, any_location: bool
) -> None:
    catalog = opened(lake, any_location=any_location)
    try:
        (lake / "link").symlink_to(lake)
        catalog.add_location(str(lake.parent.parent))
        assert refusals(catalog, str(lake / place)) == {AlreadyExistsError}
    finally:
        catalog.close()


def test_a_database_outside_of_the_root_is_not_inside_a_table(tmp_path: Path) -> None:
    lake = tmp_path.resolve() / "lake"
    init(lake, root=str(tmp_path / "data"))
    catalog = opened(lake, any_location=True)
    try:
        data = lake.with_name("data")
        for place in (lake, lake.parent, lake / "headgate.db-journal", data, data / "tables"):
            assert refusals(catalog, str(place)) == {AlreadyExistsError}
    finally:
        catalog.close()


@pytest.mark.parametrize("linked", ["root", "database"])
def test_the_lakes_own_files_are_known_however_the_lake_was_opened(
    tmp_path: Path, linked: str
) -> None:
    tmp_path = tmp_path.resolve()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    lake = tmp_path / ("link" if linked == "database" else "real") / "lake"
    init(lake, root=str(tmp_path / ("link" if linked == "root" else "real") / "data"))
    catalog = opened(lake, any_location=True)
    try:
        for place in ("data", "data/tables/x", "lake", "lake/headgate.db-wal"):
            assert refusals(catalog, str(tmp_path / "real" / place)) == {AlreadyExistsError}
    finally:
        catalog.close()
    catalog = opened(lake, any_location=False)
    try:
        for way in ("real", "link"):
            found = catalog.check_location(str(tmp_path / way / "data" / "mine"))
            assert found == locations.normalize(str(tmp_path / "real" / "data" / "mine"))
    finally:
        catalog.close()


@pytest.mark.parametrize("any_location", [False, True], ids=["server", "embedded"])
@pytest.mark.parametrize(
    "location",
    [
        "memory://x/y",
        "s3://user:hunter2@bucket/x",
        "s3://user@bucket/x",
        "s3://bucket:9000/x",
        "gs://user:hunter2@bucket/x",
        "abfss://container:hunter2@account.dfs.core.windows.net/x",
        "az://",
        "s3:///x",
        "file://elsewhere/x",
        "https://host/x",
        "s3://bucket/x?versionId=1",
        "s3://bucket/a/../b",
        "file:///a/%2e%2e/b",
        "file:///a/%00",
        "file:relative",
        "file:///" + "x" * 3_000,
    ],
)
def test_what_is_no_location_of_a_table_is_refused_without_its_password(
    lake: Path, location: str, any_location: bool
) -> None:
    catalog = opened(lake, any_location=any_location)
    try:
        for error in choose_every_way(catalog, location):
            assert isinstance(error, InvalidArgumentError)
            assert "hunter2" not in f"{error}{error.remedy}"
        with pytest.raises(InvalidArgumentError):
            catalog.add_location(location)
    finally:
        catalog.close()


def test_a_relative_path_is_not_the_servers_own(catalog: Catalog) -> None:
    catalog.add_location("file:///")
    assert refusals(catalog, "x/y") == {InvalidArgumentError}


def test_a_location_whose_account_is_not_configured_is_refused(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ACCOUNT_NAME"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(InvalidArgumentError, match="Account must be specified"):
        catalog.add_location("az://container/x")


def test_a_link_under_an_allowed_location_leads_to_no_other(catalog: Catalog, lake: Path) -> None:
    landing, victim = lake.parent / "landing", lake.parent / "victim"
    landing.mkdir()
    victim.mkdir()
    (landing / "link").symlink_to(victim)
    catalog.add_location(str(landing))
    assert refusals(catalog, str(landing / "link" / "t")) == {PermissionDeniedError}


@pytest.mark.parametrize("linked", ["", "/later"])
def test_no_table_is_created_through_a_link_that_was_put_there_after_it_was_staged(
    catalog: Catalog, lake: Path, linked: str
) -> None:
    landing, victim = lake.parent / "landing", lake.parent / "victim"
    victim.mkdir()
    (victim / "later").mkdir()
    catalog.add_location(str(landing))
    staged = catalog.stage_table(str(landing / "in" / "later"))
    folder = landing / f"in{linked}"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(victim)
    txn_id = TxnId(str(uuid.uuid4()))
    for create in (
        lambda: catalog.create_table(NAME, staged.table_id, txn_id, first(staged.table_id)),
        lambda: catalog.register_table(NAME, staged.table_id),
    ):
        with pytest.raises(PermissionDeniedError, match="A link leads from"):
            create()
    assert [path.name for path in victim.rglob("*")] == ["later"]
    folder.unlink()
    catalog.create_table(NAME, staged.table_id, txn_id, first(staged.table_id))
    catalog.publish(staged.table_id)
    assert (landing / "in" / "later" / "_delta_log").is_dir()


def test_a_table_is_created_under_a_root_and_a_location_that_are_links(tmp_path: Path) -> None:
    tmp_path = tmp_path.resolve()
    real = tmp_path / "real"
    (real / "data").mkdir(parents=True)
    (tmp_path / "root").symlink_to(real / "data")
    init(tmp_path / "lake", root=str(tmp_path / "root"))
    catalog = opened(tmp_path / "lake", any_location=False)
    try:
        landing = tmp_path / "landing"
        catalog.add_location(str(landing))
        staged = [catalog.stage_table(), catalog.stage_table(str(landing / "t"))]
        landing.symlink_to(real)  # by the administrator who registered it
        names = [TableName.parse("own"), TableName.parse("chosen")]
        for name, table in zip(names, staged, strict=True):
            txn_id = TxnId(str(uuid.uuid4()))
            catalog.create_table(name, table.table_id, txn_id, first(table.table_id))
            assert catalog.resolve(name).location == table.location
        catalog.publish(staged[0].table_id)
        log = real / "data" / "tables" / staged[0].table_id / "_delta_log"
        assert [path.name for path in log.glob("*.json")] == [f"{0:020}.json"]
    finally:
        catalog.close()


@pytest.mark.parametrize("place", ["mine/below", "tables/x", "headgate.db", "."])
def test_a_path_for_a_new_table_is_in_no_table_and_none_of_the_lakes_files(
    catalog: Catalog, lake: Path, place: str
) -> None:
    catalog.stage_table(str(lake / "mine"))
    with pytest.raises(AlreadyExistsError):
        catalog.open_path(str(lake / place), creates=True)
    free = locations.normalize(str(lake / "free"))
    assert catalog.open_path(str(lake / "free"), creates=True) == free


def test_two_spellings_of_one_folder_are_one_location(lake: Path) -> None:
    catalog = opened(lake, any_location=True)
    try:
        (lake.parent / "real").mkdir()
        (lake.parent / "alias").symlink_to(lake.parent / "real")
        real = locations.normalize(str(lake.parent / "real" / "t"))
        assert catalog.stage_table(str(lake.parent / "alias" / "t")).location == real
        with pytest.raises(AlreadyExistsError, match="overlaps"):
            catalog.stage_table(real)
    finally:
        catalog.close()


def test_no_table_is_put_into_another_one(catalog: Catalog, lake: Path) -> None:
    catalog.stage_table(str(lake / "outer" / "mine"))
    for place in ("outer/mine", "outer/mine/below", "outer"):
        with pytest.raises(AlreadyExistsError, match="overlaps"):
            catalog.register_external(NAME, str(lake / place))
    catalog.register_external(NAME, str(lake / "outer" / "mine-2"))


@pytest.mark.parametrize("any_location", [False, True], ids=["server", "embedded"])
def test_no_table_is_put_into_one_that_the_catalog_does_not_know(
    lake: Path, any_location: bool
) -> None:
    catalog = opened(lake, any_location=any_location)
    try:
        log = lake / "plain" / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_text("{}")
        for place in ("plain/t", "plain/a/b"):
            with pytest.raises(AlreadyExistsError, match=r"inside the Delta table at .*/plain\b"):
                catalog.stage_table(str(lake / place))
        namespace = SchemaName.parse("s")
        with pytest.raises(AlreadyExistsError, match="inside the Delta table"):
            catalog.create_namespace(namespace, storage_root=str(lake / "plain" / "s"))
        catalog.stage_table(str(lake / "plain-2" / "t"))
    finally:
        catalog.close()


def test_locations_are_listed_added_once_and_removed(catalog: Catalog, lake: Path) -> None:
    landing = lake.parent / "landing"
    added = catalog.add_location(f"{landing}/")
    assert added.url == locations.normalize(str(landing))
    assert catalog.add_location(str(landing)) == added
    assert catalog.locations() == (added,)
    staged = catalog.stage_table(str(landing / "t"))
    catalog.remove_location(str(landing))
    assert catalog.locations() == ()
    assert catalog.location_of(staged.table_id) == staged.location
    assert refusals(catalog, str(landing / "other")) == {PermissionDeniedError}
    with pytest.raises(NotFoundError, match="location list"):
        catalog.remove_location(str(landing))
