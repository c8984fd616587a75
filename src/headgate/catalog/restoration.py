"""A backup of the catalog becomes a lake's database again.

The tables stay where they are: a backup holds what the catalog knows, and the storage holds the
rest. What was committed after the backup stands in the tables' logs as far as it was published;
`fsck` with `repair` ratifies it again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.catalog.stores.sqlite_file import make_private, make_private_folder
from headgate.clock import Clock
from headgate.errors import (
    AlreadyExistsError,
    DamagedError,
    InvalidArgumentError,
    NotEmptyError,
    NotFoundError,
    UnavailableError,
)
from headgate.storage import locations

_BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database


def restore(backup: Path, database: Path, clock: Clock) -> str:
    """Put a backup in a database's place and give where its tables lie; overwrite nothing."""
    if not backup.is_file():
        raise NotFoundError(f"There is no file {backup}.", remedy="Name a backup.")
    for path in (database, *(database.with_name(f"{database.name}{end}") for end in _BESIDE)):
        # A log of other changes would be applied to the database it is found beside.
        if path.exists():
            raise AlreadyExistsError(
                f"{path} is there already.",
                remedy=f"Stop what uses it, and move {database.name}* to another place.",
            )
    unfinished = database.with_name(f".{database.name}.{os.getpid()}.unfinished")
    try:
        make_private_folder(database.parent)
        is_used = any(database.parent.iterdir())
        make_private(str(unfinished))
        shutil.copyfile(backup, unfinished)
        root = _looked_at(unfinished, backup, clock)
        here = locations.normalize(str(database.parent.resolve()))
        if is_used and here != root:
            raise NotEmptyError(
                f"{database.parent} is not empty, and not where the tables of this backup lie, "
                f"which is {root}.",
                remedy="Name that place, or a new directory.",
            )
        _sync(unfinished)
        os.link(unfinished, database)  # unlike a rename, it takes no other's place
        _sync(database.parent)
    except FileExistsError:
        raise AlreadyExistsError(f"{database} is there already.", remedy="Use it.") from None
    except OSError as error:
        raise UnavailableError(
            f"{database} cannot be written: {error}.", remedy="Name a place that can be written."
        ) from error
    finally:
        for end in ("", *_BESIDE):
            unfinished.with_name(f"{unfinished.name}{end}").unlink(missing_ok=True)
    return root


def _looked_at(copy: Path, backup: Path, clock: Clock) -> str:
    """Open the copy as the catalog would, which brings it up to date; give its root."""
    store = SQLiteStore(str(copy), clock)
    try:
        if problems := store.check_integrity():
            raise DamagedError(
                f"{backup} is damaged: {problems[0]}.", remedy="Restore an older backup."
            )
        with store.read() as unit:
            root = unit.setting("root")
    finally:
        store.close()
    if root is None:
        raise InvalidArgumentError(
            f"{backup} holds no catalog.", remedy="Name what `headgate backup` wrote."
        )
    return root


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
