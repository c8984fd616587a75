"""Steps shared by the tests of fsck."""

from __future__ import annotations

import shutil
from pathlib import Path

from headgate.api.messages import (
    Finding,
    Severity,
)
from headgate.protocol.actions import TableId
from headgate.storage import locations
from tests.catalog.conftest import House
from tests.kit.builders import (
    START_MS,
    add,
    file_content,
    new_txn_id,
)


def problems(house: House, *, repair: bool = False) -> list[Finding]:
    """Return what fsck finds wrong with the log: these commits name no real data files."""
    return [
        finding
        for finding in house.database.fsck(repair=repair)
        if finding.severity is not Severity.NOTE and finding.rule not in ("data-file", "RD-06")
    ]


def path_on_disk(house: House, table_id: TableId, path: str) -> Path:
    found = locations.store_for(house.catalog.resolve(table_id).location).local_path(path)
    assert found is not None
    return Path(found)


def older_copy(house: House, table_id: TableId, *, commits: int) -> None:
    """Go back to a copy of the database that was made `commits` ago."""
    house.close()
    copy = house.root.parent / "copy.db"
    shutil.copy(house.root / "headgate.db", copy)
    house.catalog = house._open()
    latest = house.catalog.resolve(table_id).latest
    for number in range(1, commits + 1):
        house.propose(table_id, latest + number, add())
    house.catalog.publish(table_id)
    house.close()
    for suffix in ("", "-wal", "-shm"):
        (house.root / f"headgate.db{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, house.root / "headgate.db")
    house.catalog = house._open()


INTRUDER = file_content(add(), txn_id=new_txn_id(), timestamp_ms=START_MS + 9)
