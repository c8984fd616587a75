"""A listener that records its events, and fails or hangs on request."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headgate.api.events import Event
from tests.kit.conditions import PATIENCE_S


class RecordingListener:
    """Records events; fails while `failures` is positive, waits while `may_return` is not set."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.calls = 0  # including failed ones
        self.failures = 0  # how many of the next calls fail
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

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, or fail."""
        with self._changes:
            assert self._changes.wait_for(condition, PATIENCE_S), (self.sequences, self.calls)

    def expect(self, *sequences: int) -> None:
        """Wait until exactly these sequences were delivered, in this order."""
        self.wait_for(lambda: len(self.events) >= len(sequences))
        assert self.sequences == list(sequences)
