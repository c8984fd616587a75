"""The files of a SQLite database, checked for being the ones that were opened.

SQLite in WAL mode goes on writing to a file that was deleted or replaced under it, and a commit
acknowledged from there is lost. So the store checks that each name still leads to the file it
opened, which costs one `stat` per file, before a unit begins and before it is acknowledged.

The files are never opened here: closing any handle of theirs would end the locks SQLite holds.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from headgate.errors import DamagedError, UnavailableError
from headgate.storage.local import LocalStore

LOG_SUFFIX: Final = "-wal"
_REMEDY: Final = (
    "Restore it from a backup: stop every process that uses it, run `headgate restore`, start "
    "again, then run `headgate fsck --repair`."
)


def make_private(path: str) -> None:
    """Make an empty file that only its owner may read, unless one is there.

    SQLite gives the log and the index beside a database the mode of the database.
    """
    # Not opened, as said above. What is wrong with the path is for SQLite to say.
    with suppress(OSError):
        os.mknod(path, 0o600 | stat.S_IFREG)


def make_private_folder(folder: Path) -> None:
    """Make the folder of a database, durably, for its owner alone; one that is there stays."""
    is_new = not folder.exists()
    LocalStore(folder).make_root()
    if is_new:
        folder.chmod(0o700)


class _Identity(NamedTuple):
    device: int
    inode: int
    size: int

    def is_same_file(self, other: _Identity) -> bool:
        return (self.device, self.inode) == (other.device, other.inode)


class DatabaseFiles:
    """The database and its write-ahead log as this process opened them.

    Once damage is found every later check fails: what was written since is not certain.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100 - the working directory may change
        self._opened: dict[str, _Identity] = {}
        self._damage: str | None = None
        self.is_read_only = _is_read_only(self.path)

    def read_only_uri(self) -> str:
        """Return the address under which SQLite opens the database without writing anything.

        Without a log no process can have it open for writing, and SQLite needs no locks; with one
        SQLite has to read the log, which works where the index of the log is there too.
        """
        log = _identify(self.path + LOG_SUFFIX)
        how = "mode=ro" if log is not None and log.size else "immutable=1"
        return f"file:{quote(self.path)}?{how}"

    def remember(self) -> None:
        """Take the files that are there now for the ones that were opened."""
        for path in (self.path, self.path + LOG_SUFFIX):
            if (found := _identify(path)) is not None:
                self._opened[path] = found

    def check(self) -> bool:
        """Raise `DamagedError` unless the names lead to the files that were opened.

        Returns False if one of them is shorter than it was: that may be damage, or another
        program's VACUUM.
        """
        if self._damage is not None:
            raise self._error()
        is_whole = True
        for path, opened in self._opened.items():
            found = _identify(path)
            if found is None:
                raise self.found_damaged(f"{path} was deleted or moved away")
            if not found.is_same_file(opened):
                raise self.found_damaged(f"{path} was replaced by another file")
            if found.size < opened.size:
                is_whole = False
            if found.size != opened.size:
                self._opened[path] = found
        return is_whole

    def found_damaged(self, what: str) -> DamagedError:
        """Record damage, for good; return the error to raise."""
        self._damage = self._damage or what
        return self._error()

    def _error(self) -> DamagedError:
        return DamagedError(
            f"The catalog's database is damaged, and nothing is committed to it: {self._damage}.",
            remedy=_REMEDY,
        )


def _is_read_only(path: str) -> bool:
    """Return whether the database exists and this process can only read it."""
    if not os.path.exists(path):  # noqa: PTH110 - a string, like all paths here
        return False
    folder = os.path.dirname(path)  # noqa: PTH120 - as above
    return not all(os.access(place, os.W_OK, effective_ids=True) for place in (path, folder))


def _identify(path: str) -> _Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - called for every commit
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnavailableError(
            f"The catalog's file {path} cannot be reached: {error.strerror}."
        ) from error
    return _Identity(found.st_dev, found.st_ino, found.st_size)
