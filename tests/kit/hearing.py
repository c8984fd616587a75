"""Listeners that remember, fail and hang when told to."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headgate.api.events import Event

PATIENCE_S = 20.0


class Ear:
    """Remembers the events it was told of; may fail or hang first."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.calls = 0  # those that failed included
        self.failures = 0  # still to come
        self.may_return = threading.Event()
        self.may_return.set()
        self._changes = threading.Condition()
        self.at_once = 0
        self.most_at_once = 0

    def __call__(self, event: Event, /) -> None:
        with self._changes:
            self.calls += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self._changes.notify_all()
        try:
            self.may_return.wait(PATIENCE_S)
            with self._changes:
                if self.failures:
                    self.failures -= 1
                    raise RuntimeError("not now")
                self.events.append(event)
        finally:
            with self._changes:
                self.at_once -= 1
                self._changes.notify_all()

    @property
    def sequences(self) -> list[int]:
        return [event.sequence for event in self.events]

    def wait_for(self, what: Callable[[], bool]) -> None:
        """Wait until something is so, or fail."""
        with self._changes:
            assert self._changes.wait_for(what, PATIENCE_S), (self.sequences, self.calls)

    def heard(self, *sequences: int) -> None:
        """Wait until exactly these were told, in this order."""
        self.wait_for(lambda: len(self.events) >= len(sequences))
        assert self.sequences == list(sequences)


def eventually(what: Callable[[], bool]) -> None:
    """Wait until something is so that nobody announces."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S * 100)):
        if what():
            return
        pause.wait(0.01)
    raise AssertionError("it never came about")
