"""A catalog that was lost comes back from a backup and from the logs of its tables. FS3."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate.api.messages import Part, Proposal, Ratified
from headgate.catalog.service import Catalog
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.client.session import Session
from headgate.clock import SystemClock
from headgate.errors import LogAheadError
from headgate.protocol.actions import encode, join
from headgate.protocol.commit.content import Inline
from tests.cli.conftest import Run
from tests.kit import shows
from tests.kit.builders import add
from tests.kit.postgres import Postgres


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids_in(session: Session, name: str) -> list[int]:
    return sorted(session.table(name).to_arrow().column("id").to_pylist())


def txn_ids(session: Session, name: str) -> list[str]:
    return [entry.commit.txn_id for entry in session.table(name).log()]


def lose_the_database(lake: Path) -> None:
    """Move the database and what lies beside it away, as the manual says."""
    lost = lake.parent / "lost"
    lost.mkdir()
    for path in lake.glob("headgate.db*"):
        path.rename(lost / path.name)


@pytest.fixture
def lake(run: Run, tmp_path: Path) -> Path:
    """A lake with two tables, and a backup of its catalog in `backup.db`."""
    lake = tmp_path / "lake"
    run("init")
    with headgate.connect(lake, publisher=False) as session:
        for name in ("orders", "quiet"):
            session.create_table(name, "id long").append(rows(1))
            session.table(name).publish()
    assert run("backup", "backup.db").code == 0
    return lake


@shows("FS3")
def test_published_commits_after_the_backup_are_restored_with_rows_and_txn_ids(
    run: Run, lake: Path
) -> None:
    with headgate.connect(lake, publisher=False) as session:
        orders = session.table("orders")
        for value in (2, 3, 4):
            orders.append(rows(value))
        # One more, whose sender will ask for it again.
        proposal = Proposal(
            txn_id=str(session.ids.ordered()),
            parts=(
                Part(
                    table_id=orders.id,
                    version=orders.version + 1,  # type: ignore[arg-type]
                    content=Inline(
                        commit_info={"operation": "WRITE"},
                        actions=join([encode(add("nowhere.parquet", size=1))]),
                    ),
                ),
            ),
        )
        answer = session.catalog.propose(proposal)
        assert isinstance(answer, Ratified)
        orders.publish()
        before = txn_ids(session, "orders")
        session.table("orders").snapshot(4)  # readable before
    lose_the_database(lake)
    restored = run("restore", "backup.db", "lake")
    assert restored.code == 0, restored.err
    assert "fsck --repair" in restored.err

    with headgate.connect(lake, publisher=False) as session:
        assert session.table("orders").version == 1
        with pytest.raises(LogAheadError):
            session.table("orders").append(rows(99))
        session.table("quiet").append(rows(2))  # others go on
    found = run("fsck")
    assert found.code == 1
    assert "[FS3]" in found.out
    assert "Move the file" not in found.out  # who did would lose commits that were acknowledged

    findings = json.loads(run("fsck", "--repair", "--json").out)["findings"]
    repaired = [(one["version"], one["repaired"]) for one in findings if one["rule"] == "FS3"]
    assert repaired == [(2, True), (3, True), (4, True), (5, True)]
    with headgate.connect(lake, publisher=False) as session:
        assert txn_ids(session, "orders") == before
        assert sorted(session.table("orders").to_arrow(version=4).column("id").to_pylist()) == [
            1,
            2,
            3,
            4,
        ]
        again = session.catalog.propose(proposal)
        assert isinstance(again, Ratified)
        assert {t: c.version for t, c in again.commits.items()} == {
            t: c.version for t, c in answer.commits.items()
        }
        assert txn_ids(session, "orders") == before
        session.table("orders").append(rows(5))
        assert session.table("orders").version == 6
        assert ids_in(session, "quiet") == [1, 2]
        # Every ratification has its event again, one sequence each.
        versions = [c.version for e in session.events(tables=["orders"]) for c in e.commits]
        assert versions == [0, 1, 2, 3, 4, 5, 6]


@shows("FS3")
def test_a_catalog_on_postgresql_is_restored_from_a_dump_and_the_logs(
    run: Run, tmp_path: Path, postgres_server: Postgres
) -> None:
    lost, dump = postgres_server.new_database(), tmp_path / "lake.dump"
    assert run("init", lost, "--root", tmp_path / "root").code == 0
    with headgate.connect(lost, publisher=False) as session:
        session.create_table("orders", "id long").append(rows(1))
        session.table("orders").publish()
        postgres_server.tool("pg_dump", "--format=custom", f"--file={dump}", f"--dbname={lost}")
        for value in (2, 3):
            session.table("orders").append(rows(value))
        session.table("orders").publish()
        before = txn_ids(session, "orders")
    restored = postgres_server.new_database()
    postgres_server.tool("pg_restore", f"--dbname={restored}", dump)
    found = run("--lake", restored, "fsck")
    assert (found.code, found.out.count("[FS3]"), "Move" in found.out) == (1, 2, False)
    assert run("--lake", restored, "fsck", "--repair").code == 0
    with headgate.connect(restored, publisher=False) as session:
        assert txn_ids(session, "orders") == before
        session.table("orders").append(rows(4))
        assert ids_in(session, "orders") == [1, 2, 3, 4]


@shows("FS3")
def test_a_restored_catalog_is_unchanged_without_later_commits(run: Run, lake: Path) -> None:
    with headgate.connect(lake, publisher=False) as session:
        before = {name: (ids_in(session, name), txn_ids(session, name)) for name in ("orders",)}
    lose_the_database(lake)
    assert run("restore", "backup.db", "lake").code == 0
    assert run("fsck").code == 0
    with headgate.connect(lake, publisher=False) as session:
        assert {n: (ids_in(session, n), txn_ids(session, n)) for n in before} == before
        session.table("orders").append(rows(2))


def test_a_backup_is_consistent_while_others_commit(run: Run, lake: Path, tmp_path: Path) -> None:
    with headgate.connect(lake, publisher=False) as session:
        session.table("orders").append(rows(2))
        assert isinstance(session.catalog, Catalog)
        session.backup(tmp_path / "two.db")
        session.table("orders").append(rows(3))
    again = run("backup", "two.db")
    assert (again.code, "[already-exists]" in again.err) == (1, True)
    lose_the_database(lake)
    run("restore", "two.db", "lake")
    with headgate.connect(lake, publisher=False) as session:
        assert ids_in(session, "orders") == [1, 2]


def test_a_database_is_restored_elsewhere_and_its_tables_stay(
    run: Run, lake: Path, tmp_path: Path
) -> None:
    lose_the_database(lake)
    ran = run("restore", "backup.db", "elsewhere", "--json")
    assert json.loads(ran.out)["root"] == f"file://{lake}"
    with headgate.connect(tmp_path / "elsewhere", publisher=False) as session:
        assert ids_in(session, "orders") == [1]
        made = session.create_table("new", "id long")
        assert made.location.startswith(f"file://{lake}/")
    file = tmp_path / "third" / "catalog.db"
    assert run("restore", "backup.db", f"sqlite://{file}").code == 0
    with headgate.connect(f"sqlite://{file}", publisher=False) as session:
        assert ids_in(session, "orders") == [1]


def test_nothing_is_overwritten(run: Run, lake: Path, tmp_path: Path) -> None:
    before = (lake / "headgate.db").read_bytes()
    ran = run("restore", "backup.db", "lake")
    assert (ran.code, "[already-exists]" in ran.err) == (1, True)
    assert (lake / "headgate.db").read_bytes() == before
    # What SQLite left beside a database that is gone would be taken for the new one's.
    (lake / "headgate.db").unlink()
    (lake / "headgate.db-wal").write_bytes(b"of another")
    ran = run("restore", "backup.db", "lake")
    assert (ran.code, "headgate.db-wal" in ran.err) == (1, True)
    assert not (lake / "headgate.db").exists()
    # A directory with other files.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary").write_text("dear")
    ran = run("restore", "backup.db", "mine")
    assert (ran.code, "[not-empty]" in ran.err) == (1, True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["diary"]


@pytest.mark.parametrize("content", [None, b"", b"SQLite format 3\0 and no more", b"x" * 5000])
def test_restoring_an_invalid_backup_is_refused_and_changes_nothing(
    run: Run, lake: Path, tmp_path: Path, content: bytes | None
) -> None:
    lose_the_database(lake)
    if content is not None:
        (tmp_path / "bad.db").write_bytes(content)
    before = sorted(path.name for path in lake.iterdir())
    ran = run("restore", "bad.db", "lake")
    assert ran.code in (1, 3), ran
    assert sorted(path.name for path in lake.iterdir()) == before


def test_a_database_without_a_catalog_is_not_a_backup(run: Run, lake: Path, tmp_path: Path) -> None:
    SQLiteStore(str(tmp_path / "empty.db"), SystemClock()).close()
    ran = run("restore", "empty.db", "new")
    assert (ran.code, "holds no catalog" in ran.err) == (1, True)
    assert not (tmp_path / "new" / "headgate.db").exists()


def test_only_a_database_in_a_file_is_restored(run: Run, lake: Path) -> None:
    assert run("restore", "backup.db", "postgresql://localhost/x").code == 2
    shutil.copy(lake.parent / "backup.db", lake.parent / "copy.db")
    assert run("restore", "copy.db", "").code == 2
