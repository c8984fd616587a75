"""An address becomes a session, for every kind of catalog; what is none is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate import _connect
from headgate._connect import connect, init
from headgate.api.messages import Proposal
from headgate.errors import (
    AlreadyExistsError,
    DamagedError,
    HeadgateError,
    InvalidArgumentError,
    NotEmptyError,
    PathAccessError,
    PermissionDeniedError,
    RefusedError,
    UnavailableError,
    UnsupportedByCatalogError,
    VersionGoneError,
)
from headgate.protocol.actions import TxnId
from headgate.protocol.commit.content import Way
from headgate.settings import Settings
from headgate.storage import local, locations
from tests.kit import req, shows
from tests.kit.postgres import Postgres
from tests.kit.server import RunningServer

WHAT_WORKS = (
    "Use a directory, sqlite:///FILE, postgresql://…, http://…, "
    "file:///DIRECTORY?catalog=filesystem or s3://BUCKET/PREFIX?catalog=filesystem."
)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, to see that nothing changed."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# Directories


@pytest.mark.parametrize("place", ["lake", "deep/er/lake"])
def test_a_missing_directory_becomes_a_lake(tmp_path: Path, place: str) -> None:
    lake = tmp_path / place
    with connect(lake) as session:
        table = session.create_table("t", "id long")
        assert table.location == locations.normalize(f"{lake}/tables/{table.id}")
    assert (lake / "headgate.db").is_file()
    assert (lake / "tables" / table.id / "_delta_log").is_dir()


@pytest.mark.parametrize("place", ["lake", "deep/er/lake"])
def test_a_new_lake_is_named_durably_before_anything_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """What SQLite syncs is of no use when the power takes the directory's own name."""
    lake, synced = tmp_path / place, list[Path]()
    sync = local.DISK.sync

    def noting(fds: Sequence[int]) -> None:
        assert not (lake / "headgate.db").exists()
        synced.extend(Path(f"/proc/self/fd/{fd}").readlink() for fd in fds)
        sync(fds)

    monkeypatch.setattr(local.DISK, "sync", noting)
    monkeypatch.setattr(local.DISK, "durable", {"/"})
    init(lake)
    made = [folder for folder in (lake, *lake.parents) if folder.is_relative_to(tmp_path)][:-1]
    assert {folder.parent.resolve() for folder in made} <= set(synced)
    synced.clear()
    with connect(lake):  # it is there: nothing is made, and nothing waited for
        assert synced == []


def test_a_lake_that_was_removed_is_made_again_by_the_same_process(tmp_path: Path) -> None:
    for _ in range(2):
        with connect(tmp_path / "deep" / "lake") as session:
            session.create_table("t", "id long")
        shutil.rmtree(tmp_path / "deep")


def test_an_empty_directory_becomes_a_lake_and_is_one_the_next_time(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    with connect(str(lake)) as session:
        made = session.create_table("t", "id long")
        made.append(pa.table({"id": [1, 2]}))
    with connect(lake) as session:
        again = session.table("t")
        assert again.id == made.id
        assert again.to_arrow()["id"].to_pylist() == [1, 2]


def test_the_default_address_is_the_lake_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with headgate.connect() as session:
        table = session.create_table("t", "id long")
    monkeypatch.chdir("/")
    with headgate.connect(tmp_path / "lake") as session:  # the root was recorded whole
        assert session.table("t").location == table.location
    assert table.location.startswith(locations.normalize(str(tmp_path / "lake")))


def test_a_directory_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(NotEmptyError, match=r"is not a lake.*new or empty directory"):
        connect(tmp_path)
    with pytest.raises(NotEmptyError):
        connect(f"sqlite://{tmp_path}/new.db")
    assert contents(tmp_path) == {"thesis.txt": b"precious"}


def test_a_file_and_what_is_below_a_file_are_no_directories(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InvalidArgumentError, match="not a directory"):
        connect(tmp_path / "file")
    for below in ("file/lake", "file/deep/lake"):
        with pytest.raises(InvalidArgumentError, match="cannot be used"):
            connect(tmp_path / below)
    assert contents(tmp_path) == {"file": b"precious"}


@pytest.mark.parametrize("address", ["a\0b", "x" * 5000])
def test_what_cannot_be_a_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (connect, init):
        with pytest.raises(InvalidArgumentError, match=r"without NUL|at most 255 bytes"):
            use(address)
    assert list(tmp_path.iterdir()) == []


def test_a_lake_whose_database_is_damaged_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "headgate.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(DamagedError, match=r"damaged.*Restore it from a backup"):
        connect(tmp_path)


def test_a_database_that_lost_everything_is_not_taken_for_a_new_lake(tmp_path: Path) -> None:
    with connect(tmp_path) as session:
        session.create_table("t", "id long")
    (tmp_path / "headgate.db").write_bytes(b"")
    with pytest.raises(DamagedError, match=r"empty.*headgate restore"):
        connect(tmp_path)
    assert (tmp_path / "headgate.db").stat().st_size == 0


def test_a_lake_whose_maker_died_before_its_first_table_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "headgate.db").touch()
    with connect(tmp_path) as session:
        assert session.create_table("t", "id long").version == 0


def test_a_database_of_another_program_is_not_taken_over(tmp_path: Path) -> None:
    import sqlite3

    database = sqlite3.connect(tmp_path / "songs.db")
    database.execute("CREATE TABLE songs (title)")
    database.commit()
    database.close()
    before = contents(tmp_path)
    with pytest.raises(RefusedError, match="another program"):
        connect(f"sqlite://{tmp_path}/songs.db")
    assert contents(tmp_path) == before


# Addresses


def test_a_sqlite_address_names_the_file_and_tables_lie_beside_it(tmp_path: Path) -> None:
    address = f"sqlite://{tmp_path}/lake/mine.db"
    with connect(address) as session:
        table = session.create_table("t", "id long")
    assert (tmp_path / "lake" / "mine.db").is_file()
    assert table.location == locations.normalize(f"{tmp_path}/lake/tables/{table.id}")
    with connect(address) as session:
        assert session.table("t").id == table.id


@pytest.mark.parametrize(
    "address", ["sqlite:", "sqlite://", "sqlite:///", "sqlite:lake.db", "sqlite://lake.db"]
)
def test_a_sqlite_address_without_a_whole_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match="Write sqlite:///path/to/file"):
        connect(address)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address",
    [
        "mysql://host/db",
        "s3://bucket/lake",
        "file:///tmp/lake",
        "file:///tmp/lake?catalog=unity",
        "file:///tmp/lake?catalog=filesystem&catalog=other",
        "file://host/lake?catalog=filesystem",
        "s3://?catalog=filesystem",
        "://",
        "nonsense://x",
    ],
)
def test_an_address_of_no_catalog_is_refused_with_what_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (connect, init):
        with pytest.raises(InvalidArgumentError) as refused:
            use(address)
        assert refused.value.remedy == WHAT_WORKS
    assert list(tmp_path.iterdir()) == []


def test_a_server_is_not_made_by_init_and_must_have_a_host() -> None:
    with pytest.raises(InvalidArgumentError, match="is a server"):
        init("http://localhost:8750")
    for address in ("http://", "http://host/lake?catalog=filesystem", "https://host:port"):
        with pytest.raises(InvalidArgumentError, match="not a valid address"):
            connect(address)


def test_a_server_that_is_not_there_is_unavailable_at_once() -> None:
    with connect("http://127.0.0.1:9") as session, pytest.raises(UnavailableError, match="serve"):
        session.catalog.propose(Proposal(txn_id=TxnId("x"), parts=()))


def test_an_empty_address_is_refused() -> None:
    for use in (connect, init):
        with pytest.raises(InvalidArgumentError, match="Use a directory"):
            use("")


@req("CA-01")
def test_a_filesystem_catalog_needs_no_database(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/lake?catalog=filesystem"
    with connect(address) as session:
        session.create_table("t", "id long").append(pa.table({"id": [1]}))
        with pytest.raises(UnsupportedByCatalogError):
            session.rename("t", "u")
    assert not (tmp_path / "lake" / "headgate.db").exists()
    with connect(address) as session:
        assert session.table("t").to_arrow()["id"].to_pylist() == [1]
    assert (tmp_path / "lake" / "main" / "default" / "t" / "_delta_log").is_dir()


@req("RD-02")
@pytest.mark.parametrize("name", ["t", "sales.Größe"])
def test_a_table_of_a_filesystem_catalog_is_refused_by_path_with_the_way_to_it(
    tmp_path: Path, name: str
) -> None:
    address = f"file://{tmp_path}/my%20lake?catalog=filesystem"
    with connect(address) as session:
        session.create_namespace("sales")
        made = session.create_table(name, "id long")
    with pytest.raises(PathAccessError) as refused:
        headgate.open(made.location)
    assert f"it is table {made.id} of the lake at {address}." in refused.value.message
    way = re.search(r"headgate\.connect\('(.+)'\)\.table\('(.+)'\)", refused.value.remedy)
    assert way is not None
    with connect(way[1]) as session:
        assert session.table(way[2]).id == made.id
    shutil.copytree(tmp_path / "my lake" / "main", tmp_path / "copy")
    for copy in (tmp_path / "copy").rglob("_delta_log"):
        if copy.parents[1].name == "default":  # what lies elsewhere is in no lake
            with pytest.raises(PathAccessError, match="ADDRESS"):
                headgate.open(copy.parent)


# Making a lake


def test_a_lakes_tables_may_lie_elsewhere_and_that_is_recorded(tmp_path: Path) -> None:
    root = init(tmp_path / "lake", str(tmp_path / "else where"))
    assert root == locations.normalize(str(tmp_path / "else where"))
    for number in range(2):
        with connect(tmp_path / "lake") as session:
            table = session.create_table(f"t{number}", "id long")
            table.append(pa.table({"id": [1]}))
        assert table.location == f"{root}/tables/{table.id}"
        assert (tmp_path / "else where" / "tables" / table.id / "_delta_log").is_dir()
    assert not (tmp_path / "lake" / "tables").exists()


def test_a_lake_is_made_once(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert init(lake) == locations.normalize(str(lake))
    before = contents(lake)
    with pytest.raises(AlreadyExistsError, match="already a lake at"):
        init(lake)
    with pytest.raises(AlreadyExistsError):
        init(f"sqlite://{lake}/headgate.db", str(tmp_path / "elsewhere"))
    assert contents(lake) == before
    with connect(lake) as session:
        assert [str(one) for one in session.namespaces()] == ["main.default"]


@pytest.mark.parametrize(
    "root",
    ["ftp://host/x", "s3://", "file://host/x", "a\0b", "memory://x", "s3://user:secret@bucket/x"],
)
def test_a_root_that_is_no_place_is_refused_and_no_lake_is_made(tmp_path: Path, root: str) -> None:
    with pytest.raises(InvalidArgumentError):
        init(tmp_path / "lake", root)
    assert list(tmp_path.iterdir()) == []
    init(tmp_path / "lake", str(tmp_path / "elsewhere"))  # and nothing stands in the way


def test_a_filesystem_catalog_has_its_root_in_its_address(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/lake?catalog=filesystem"
    assert init(address) == locations.normalize(f"{tmp_path}/lake")
    with pytest.raises(InvalidArgumentError, match="Omit the root"):
        init(address, str(tmp_path / "elsewhere"))
    assert list(tmp_path.iterdir()) == []


# Several at once


@shows("FS8")
def test_many_who_make_one_lake_at_once_have_one_lake(tmp_path: Path) -> None:
    def make(number: int) -> str:
        with connect(tmp_path / "lake") as session:
            return session.create_table(f"t{number}", "id long").location

    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(make, range(8)))
    root = locations.normalize(str(tmp_path / "lake"))
    assert all(place.startswith(f"{root}/tables/") for place in places)
    with connect(tmp_path / "lake") as session:
        assert len(session.tables()) == 8


@shows("FS8")
def test_a_lake_that_another_process_makes_this_very_moment_is_no_strangers_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    listing = Path.iterdir

    def overtaken(folder: Path) -> object:
        if folder == lake and not (lake / _connect.DATABASE).exists():
            monkeypatch.setattr(Path, "iterdir", listing)
            init(lake)
        return listing(folder)

    monkeypatch.setattr(Path, "iterdir", overtaken)
    with connect(lake) as session:
        assert session.tables() == ()
    assert Path.iterdir is listing  # it was overtaken indeed


@req("CA-01")
@pytest.mark.slow
def test_a_database_is_a_catalog_for_every_session_on_it(
    postgres_server: Postgres, tmp_path: Path
) -> None:
    address = postgres_server.new_database()
    init(address, root=str(tmp_path / "root"))
    with connect(address) as one, connect(address) as other:
        one.create_namespace("sales")
        table = one.create_table("sales.orders", "id long")
        table.append(pa.table({"id": [1]}))
        other.table("sales.orders").append(pa.table({"id": [2]}))
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]
        assert table.to_arrow(version=1)["id"].to_pylist() == [1]
        other.rename("sales.orders", "sales.bought")
        assert one.table("sales.bought").id == table.id
        assert {s.version for s in one.read_cut(["sales.bought"]).values()} == {2}
        assert table.publish() == 2
        assert other.fsck() == ()
    with connect(address) as again:
        assert sorted(again.table("sales.bought").to_arrow()["id"].to_pylist()) == [1, 2]


@req("CA-01")
@pytest.mark.slow
def test_every_kind_of_address_gives_the_same_session(
    postgres_server: Postgres, tmp_path: Path
) -> None:
    database = postgres_server.new_database()
    init(database, root=str(tmp_path / "root"))
    init(tmp_path / "served")
    files = f"file://{tmp_path}/files?catalog=filesystem"
    with RunningServer(str(tmp_path / "served")) as server:
        for address in (tmp_path / "lake", database, server.address, files):
            with connect(address) as session:
                assert type(session) is headgate.Session
                session.create_namespace("sales")
                table = session.create_table("sales.orders", "id long")
                table.append(pa.table({"id": [1]}))
                table.set_properties({"a": "b"})
                table.overwrite(pa.table({"id": [2]}))
                assert session.table("sales.orders").to_arrow()["id"].to_pylist() == [2]
                assert table.to_arrow(version=1)["id"].to_pylist() == [1]
                assert [entry.version for entry in table.history()] == [3, 2, 1, 0]
                assert [str(entry.name) for entry in session.tables()] == ["main.sales.orders"]
                assert table.publish() == table.checkpoint() == 3
                assert session.fsck() == ()
                assert session.drop("sales.orders") == table.id
                assert session.tables() == ()


@req("CA-01")
@pytest.mark.slow
def test_two_processes_share_a_lake(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with connect(lake) as session:
        table = session.create_table("t", "id long")
        table.append(pa.table({"id": [1]}))
        program = (
            "import headgate, pyarrow as pa\n"
            f"with headgate.connect({str(lake)!r}) as session:\n"
            "    table = session.table('t')\n"
            "    table.append(pa.table({'id': [2]}))\n"
            "    print(sorted(table.to_arrow()['id'].to_pylist()))\n"
        )
        assert run(program) == "[1, 2]"
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]


# Settings and sessions


def test_the_environment_sets_what_the_caller_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_INLINE_LIMIT_BYTES", "0")

    def ways(settings: Settings | None, place: str) -> set[Way]:
        with connect(tmp_path / place, settings=settings, publisher=False) as session:
            table = session.create_table("t", "id long")
            table.append(pa.table({"id": [1]}))
            return {entry.commit.way for entry in table.log()[1:]}

    assert ways(None, "one") == {Way.STAGED}
    assert ways(Settings(), "two") == {Way.INLINE}


@pytest.mark.parametrize("text", ["many", "-1", "1.5", ""])
def test_a_bad_number_in_the_environment_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HEADGATE_PUBLISH_BATCH", text)
    with pytest.raises(InvalidArgumentError, match=r"HEADGATE_PUBLISH_BATCH.*whole number"):
        connect(tmp_path / "lake")
    assert list(tmp_path.iterdir()) == []


def test_a_session_without_a_publisher_leaves_publishing_to_others(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", publisher=False) as session:
        table = session.create_table("t", "id long")
    assert not (tmp_path / "lake" / "tables" / table.id / "_delta_log").exists()
    with connect(tmp_path / "lake") as session:
        session.table("t").append(pa.table({"id": [1]}))
    log = tmp_path / "lake" / "tables" / table.id / "_delta_log"
    assert sorted(path.name for path in log.glob("*.json")) == [f"{v:020d}.json" for v in (0, 1)]


def test_a_closed_session_says_so(tmp_path: Path) -> None:
    session = connect(tmp_path / "lake")
    session.create_table("t", "id long")
    session.close()
    with pytest.raises(HeadgateError):
        session.table("t")
    session.close()


# Public names


@pytest.mark.slow
def test_importing_headgate_loads_nothing_until_a_name_is_used() -> None:
    program = (
        "import sys, headgate\n"
        "heavy = {'pyarrow', 'apsw', 'obstore', 'msgspec', 'pyroaring', 'rich', 'typer'}\n"
        "before = heavy & sys.modules.keys()\n"
        "headgate.errors.HeadgateError\n"
        "then = heavy & sys.modules.keys()\n"
        "headgate.connect\n"
        "print(sorted(before), sorted(then), 'apsw' in sys.modules, 'obstore' in sys.modules)\n"
    )
    assert run(program) == "[] [] True False"


def test_public_names_are_what_their_homes_hold_and_others_are_not_there() -> None:
    assert headgate.connect is _connect.connect
    assert headgate.open is _connect.open
    assert headgate.errors.HeadgateError is HeadgateError
    assert headgate.Session.__module__ == "headgate.client.session"
    assert headgate.Table.__module__ == "headgate.client.table"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        headgate.nonsense  # type: ignore[attr-defined]  # noqa: B018


# Plain tables


def plain_table(folder: Path, versions: int = 2) -> Path:
    """A Delta table without a catalog and without a row."""
    schema = {"type": "struct", "fields": []}
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    first = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "plain",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]
    for version in range(versions):
        lines = first if version == 0 else [{"commitInfo": {"operation": "NOTHING"}}]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (log / f"{version:020d}.json").write_text(text)
    return folder


def test_a_plain_table_is_opened_by_its_path_at_any_version(tmp_path: Path) -> None:
    folder = plain_table(tmp_path / "plain table")
    for path in (folder, str(folder), locations.normalize(str(folder))):
        assert headgate.open(path).version == 1
        assert headgate.open(path, version=0).version == 0
    os.utime(folder / "_delta_log" / f"{0:020d}.json", (100, 100))
    os.utime(folder / "_delta_log" / f"{1:020d}.json", (200, 200))
    assert headgate.open(folder, as_of="1970-01-01T00:03:19Z").version == 0
    assert headgate.open(folder, as_of=200_000).version == 1
    with pytest.raises(VersionGoneError):
        headgate.open(folder, as_of=99_999)
    with pytest.raises(InvalidArgumentError):
        headgate.open(folder, version=0, as_of=200_000)
    with pytest.raises(HeadgateError):
        headgate.open(folder, version=2)
    with pytest.raises(HeadgateError):
        headgate.open(tmp_path / "nothing")


@req("RD-02")
def test_a_table_of_a_catalog_is_not_opened_by_its_path(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as session:
        table = session.create_table("t", "id long")
        table.publish()
        with pytest.raises(PathAccessError, match=table.id) as refused:
            headgate.open(tmp_path / "lake" / "tables" / table.id)
        assert str(tmp_path / "lake") in str(refused.value)


@pytest.mark.parametrize("three_phase", [False, True])
def test_tables_are_stored_under_the_storage_root_of_their_namespace(
    tmp_path: Path, three_phase: bool
) -> None:
    root = f"file://{tmp_path}/elsewhere"
    with headgate.connect(str(tmp_path / "lake")) as session:
        session.create_namespace("sales", storage_root=root)
        table = session.create_table("sales.orders", "id long", three_phase=three_phase)
        table.append(pa.table({"id": [1]}))
        assert session.table("sales.orders").to_arrow()["id"].to_pylist() == [1]
        assert table.location.startswith(f"{root}/__unitystorage/schemas/")
        assert root not in session.create_table("t", "id long").location


@contextmanager
def read_only(root: Path) -> Iterator[None]:
    """Take away the right to write below a directory, from a superuser too."""
    for path in [root, *root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    is_superuser = os.geteuid() == 0
    if is_superuser:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_superuser:
            os.seteuid(0)
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that every user can get to, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_lake_on_read_only_storage_can_be_read(reachable: Path) -> None:
    with connect(reachable / "lake") as session:
        session.create_table("t", "id long").append([{"id": 1}, {"id": 2}])
    with read_only(reachable / "lake"), connect(reachable / "lake") as session:
        assert [entry.name for entry in session.tables()] == ["main.default.t"]
        table = session.table("t")
        assert table.to_arrow(where="id > 1")["id"].to_pylist() == [2]
        assert len(table.history()) == 2
        assert session.status() is not None
        assert session.fsck() == ()
        with pytest.raises(PermissionDeniedError, match="read-only storage"):
            session.create_namespace("more")
        with pytest.raises(PermissionDeniedError, match="read-only storage"):
            session.drop("t")
    with connect(reachable / "lake") as session:
        session.table("t").append([{"id": 3}])


def test_a_lake_that_was_copied_while_in_use_can_be_read_from_read_only_storage(
    reachable: Path,
) -> None:
    with connect(reachable / "lake", publisher=False) as session:
        session.create_table("t", "id long").append([{"id": 1}])
        shutil.copytree(reachable / "lake", reachable / "copy")
    assert (reachable / "copy" / "headgate.db-wal").stat().st_size > 0
    with read_only(reachable / "copy"), connect(reachable / "copy") as session:
        assert session.resolve("t").latest == 1
