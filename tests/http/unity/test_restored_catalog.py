"""Commits of stock clients after the catalog was restored from an older backup."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

from headgate.settings import Settings
from tests.http.conftest import serving
from tests.http.unity.conftest import Stock, add_commit, make
from tests.kit import shows


@shows("FS3")
def test_a_commit_replayed_after_restoring_an_older_backup_gets_its_first_answer(
    tmp_path: Path,
) -> None:
    served = contextmanager(serving)
    lake, backup = tmp_path / "lake", tmp_path / "backup.db"
    settings = Settings(verify_staged=0)
    with served(lake, settings) as before:
        table = make(before.http)
        before.catalog.backup(backup)
        change = table.change(add_commit(table.put(1)))
        first = table.send(change)
        assert first.status_code == 200, first.text
        table.publish(1)
    for path in lake.glob("headgate.db*"):
        path.unlink()
    shutil.copy(backup, lake / "headgate.db")
    with served(lake, settings) as after:
        after.catalog.fsck(repair=True)
        restored = Stock(
            after.http, table.name, table.table_id, table.location, table.timestamp_ms, {}
        )
        again = restored.send(change)
        assert again.status_code == 200, again.text
        assert restored.load()["latest-table-version"] == 1
        lost = restored.commit(1)  # another commit of that version is still refused
        assert lost.status_code == 409
