"""`headgate` on a machine whose next sync fails, once a test asks for it.

Run as a program. The environment names a file; while it is there its text says which sync fails,
of the `database` or of `files`. The one that fails takes the file away. In the
publisher process of the server `sitecustomize.py` beside this file does it.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import apsw

from headgate.cli.main import main
from headgate.storage.disk import Disk

ASKED = "HEADGATE_TEST_FAILING_SYNC"
_BASE = "unix"


def _is_asked(what: str) -> bool:
    asked = Path(os.environ[ASKED])
    try:
        if asked.read_text() != what:
            return False
        asked.unlink()
    except FileNotFoundError:
        return False
    return True


class _FailingFiles(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("failing", _BASE, makedefault=True)

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        return _FailingFile(_BASE, name, flags)


class _FailingFile(apsw.VFSFile):
    def xSync(self, flags: int) -> None:  # noqa: N802
        if _is_asked("database"):
            raise apsw.IOError("the disk could not sync")
        super().xSync(flags)


def fail_files() -> None:
    """Let a sync of files fail on request, in this process."""
    sync = Disk.sync_together

    def failing(self: Disk, fds: list[int]) -> None:
        if _is_asked("files"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(self, fds)

    Disk.sync_together = failing  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    files = _FailingFiles()  # registered for as long as it is kept
    fail_files()
    sys.exit(main())
