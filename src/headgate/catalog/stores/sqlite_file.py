"""Checks that the files of a SQLite database are still the ones that were opened.

In WAL mode SQLite continues to write to a file that was deleted or replaced, and a commit
acknowledged from there is lost. So the store checks that each path still refers to the file it
opened, with one `stat` per file, before a unit begins and before it is acknowledged.

The files are never opened here: closing any handle to them would release SQLite's locks.
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
    """Create an empty file that only its owner may read, unless it exists.

    SQLite gives the log and the index beside a database the mode of the database.
    """
    # Never opened, see above. SQLite itself reports what is wrong with the path.
    with suppress(OSError):
        os.mknod(path, 0o600 | stat.S_IFREG)


def make_private_folder(folder: Path) -> None:
    """Create the folder of a database, durably and private to its owner, unless it exists."""
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

    After damage is found every later check fails: what was written since is not certain.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100 - the working directory may change
        self._opened: dict[str, _Identity] = {}
        self._damage: str | None = None
        self.is_read_only = _is_read_only(self.path)

    def read_only_uri(self) -> str:
        """Return the URI with which SQLite opens the database without writing anything.

        Without a log no process has the database open for writing, and SQLite needs no locks. With
        a log SQLite must read it, which works if the index of the log exists too.
        """
        log = _identify(self.path + LOG_SUFFIX)
        mode = "mode=ro" if log is not None and log.size else "immutable=1"
        return f"file:{quote(self.path)}?{mode}"

    def remember(self) -> None:
        """Remember the files that exist now as the ones that were opened."""
        for path in (self.path, self.path + LOG_SUFFIX):
            if (current := _identify(path)) is not None:
                self._opened[path] = current

    def check(self) -> bool:
        """Raise `DamagedError` unless the paths still refer to the files that were opened.

        Returns False if a file is shorter than before: that may be damage, or a VACUUM by another
        program.
        """
        if self._damage is not None:
            raise self._error()
        is_whole = True
        for path, opened in self._opened.items():
            current = _identify(path)
            if current is None:
                raise self.record_damage(f"{path} was deleted or moved away")
            if not current.is_same_file(opened):
                raise self.record_damage(f"{path} was replaced by another file")
            if path == self.path and not current.size:
                # Not left to SQLite: it deletes the log beside an empty database.
                raise self.record_damage(f"{path} was truncated to no bytes")
            if current.size < opened.size:
                is_whole = False
            if current.size != opened.size:
                self._opened[path] = current
        return is_whole

    def record_damage(self, damage: str) -> DamagedError:
        """Record damage, so that every later check fails; return the error to raise."""
        self._damage = self._damage or damage
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
        status = os.stat(path)  # noqa: PTH116 - called for every commit
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnavailableError(
            f"The catalog's file {path} cannot be accessed: {error.strerror}."
        ) from error
    return _Identity(status.st_dev, status.st_ino, status.st_size)
