"""A background check of the catalog's own database for damage.

Commits only notice damage in the pages they touch. This thread reads the whole database now and
then; once it finds damage the store refuses everything, so that no commit is acknowledged into a
database that cannot be read back.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Final

from headgate.api.messages import Finding, Severity
from headgate.catalog.component import Component, Shared
from headgate.errors import DamagedError, HeadgateError

_log = logging.getLogger(__name__)
_REST: Final = 50  # times as long as a check took: a large database is checked less often
_CLOSE_S: Final = 1.0


def damage_finding(error: DamagedError) -> Finding:
    """Report a damaged database as a finding of `fsck`."""
    says = f"cannot be checked. {error.message}"
    return Finding("database", Severity.ERROR, "catalog", says, error.remedy)


class IntegrityWatch(Component):
    """Checks the database at intervals, until it finds damage or is closed."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._every_s = self._settings.integrity_check_ms / 1000
        self._stopping = threading.Event()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Check from now on, first after one interval, so that short commands pay nothing."""
        if self._every_s > 0:
            self._thread = threading.Thread(
                target=self._run, name="headgate-integrity", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Stop; a check that is under way ends by itself when the store is closed."""
        if self._thread is not None and os.getpid() == self._process:  # no thread crosses a fork
            self._stopping.set()
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        wait_s = self._every_s
        while not self._stopping.wait(wait_s):
            began, problems = self._clock.monotonic(), []
            try:
                problems = self._store.check_integrity()
            except HeadgateError as error:
                if not self._stopping.is_set():
                    _log.warning("the catalog's database could not be checked: %s", error)
            except Exception:  # a thread that dies checks nothing any more
                _log.exception("the catalog's database could not be checked")
            if problems:
                _log.critical("the catalog's database is damaged: %s", "; ".join(problems))
                return
            wait_s = max(self._every_s, _REST * (self._clock.monotonic() - began))
