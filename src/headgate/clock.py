"""The only door to real time and real chance, handed down from the roots.

Everything else takes a `Clock` and `Ids` as arguments, so a test can set both.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is recorded, monotonic time for what is waited for."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Ids(Protocol):
    """Where new ids come from."""

    def random(self) -> uuid.UUID:
        """Give a UUID of pure chance: table ids, staged files, data files."""
        ...

    def ordered(self) -> uuid.UUID:
        """Give a UUIDv7, which begins with the time: transaction ids."""
        ...

    def secret(self) -> bytes:
        """Give 256 bits that nobody can guess: tokens."""
        ...


class RandomIds:
    """Ids from the system's source of chance."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def random(self) -> uuid.UUID:
        return uuid.uuid4()

    def ordered(self) -> uuid.UUID:
        return uuid7(self._clock.now_ms(), os.urandom(10))

    def secret(self) -> bytes:
        return os.urandom(32)


def uuid7(now_ms: int, chance: bytes) -> uuid.UUID:
    """Compose a UUIDv7 (RFC 9562) from a time and ten bytes of chance."""
    value = (now_ms & (1 << 48) - 1) << 80 | int.from_bytes(chance, "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return uuid.UUID(int=value)
