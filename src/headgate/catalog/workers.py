"""A small thread pool for work in lanes; each lane is worked on by one thread at a time.

A lane whose storage hangs keeps its thread, which then no longer counts towards the pool's size:
another thread may take its place, up to a bound. Threads end when there is nothing to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

FEW: Final = 4  # lanes worked on side by side
MOST: Final = 64  # threads, those that hang included; beyond it lanes wait for one of them
_LOOKS_AT_CLOSING: Final = 4


class Workers:
    """Runs `work` for lanes, at most once at a time for each."""

    def __init__(self, work: Callable[[str], None]) -> None:
        self._work = work
        self._changes = threading.Condition()
        self._due: dict[str, None] = {}  # in the order in which they came
        self._at_work: dict[str, int] = {}  # how many looks each turn has lasted
        self._threads: set[threading.Thread] = set()
        self._is_closing = False

    def give(self, lanes: Iterable[str]) -> None:
        """Queue lanes; one that is being worked on is worked on again afterwards."""
        with self._changes:
            if not self._is_closing:
                self._due.update(dict.fromkeys(lanes))
                self._start()

    def look(self) -> None:
        """Detect lanes that hang since the previous look."""
        with self._changes:
            for lane in self._at_work:
                self._at_work[lane] += 1
            self._start()

    def close(self, last: Iterable[str], seconds: float) -> bool:
        """Work on these lanes a last time, then stop; return True if all ended in time."""
        with self._changes:
            self._is_closing = True
            self._due = dict.fromkeys(last)
            self._start()
        for _ in range(_LOOKS_AT_CLOSING):
            with self._changes:
                timeout_s = max(seconds, 0) / _LOOKS_AT_CLOSING
                if self._changes.wait_for(lambda: not self._threads, timeout_s):
                    return True
            self.look()
        with self._changes:
            self._due.clear()
        return False

    def _start(self) -> None:
        """Start as many threads as there are queued lanes, up to the bound."""
        hanging = sum(looks > 1 for looks in self._at_work.values())
        room = min(FEW + hanging, MOST)
        waiting = sum(lane not in self._at_work for lane in self._due)
        # Those that have no lane yet are about to take one.
        wanted = min(room, len(self._at_work) + waiting)
        while len(self._threads) < wanted:
            thread = threading.Thread(target=self._run, name="headgate-publishing", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _run(self) -> None:
        try:
            while (lane := self._take()) is not None:
                try:
                    self._work(lane)
                finally:
                    with self._changes:
                        del self._at_work[lane]
        finally:
            with self._changes:
                self._end()

    def _take(self) -> str | None:
        with self._changes:
            for lane in self._due:
                if lane not in self._at_work:
                    del self._due[lane]
                    self._at_work[lane] = 0
                    return lane
            self._end()  # under the same lock: a lane queued later starts another thread
            return None

    def _end(self) -> None:
        self._threads.discard(threading.current_thread())
        self._changes.notify_all()
