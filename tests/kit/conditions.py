"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60.0  # wide, because a test machine may be slow


def eventually(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds, or fail."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.005)
