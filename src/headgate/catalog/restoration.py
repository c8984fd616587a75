"""Restore a lake's database from a backup of the catalog.

The tables stay where they are: a backup has only the catalog's own data. Commits after the backup
are in the tables' logs as far as they were published; `fsck` with `repair` ratifies them again.
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
    """Copy a backup to a database path, overwriting nothing; return the lake's root."""
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
        root = _verified_root(unfinished, backup, clock)
        here = locations.normalize(str(database.parent.resolve()))
        if is_used and here != root:
            raise NotEmptyError(
                f"{database.parent} is not empty, and is not the root of this backup, {root}.",
                remedy="Name that root, or a new directory.",
            )
        _sync(unfinished)
        os.link(unfinished, database)  # unlike a rename, it never overwrites
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


def _verified_root(copy: Path, backup: Path, clock: Clock) -> str:
    """Open the copy as the catalog would, which migrates it; check it and return its root."""
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
