"""The clock and the source of ids, passed as arguments so that tests can replace them."""

import os
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time for records, monotonic time for waiting."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC. May jump."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""


class SystemClock:
    """The clock of the operating system."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Ids(Protocol):
    """A source of new ids."""

    def random(self) -> uuid.UUID:
        """Return a random UUID, for tables, staged files and data files."""

    def ordered(self) -> uuid.UUID:
        """Return a UUIDv7, which starts with the time, for transactions."""

    def secret(self) -> bytes:
        """Return 256 random bits, for tokens."""


class RandomIds:
    """Ids from the random numbers of the operating system."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def random(self) -> uuid.UUID:
        return uuid.uuid4()

    def ordered(self) -> uuid.UUID:
        return uuid7(self._clock.now_ms(), os.urandom(10))

    def secret(self) -> bytes:
        return os.urandom(32)


def uuid7(now_ms: int, random: bytes) -> uuid.UUID:
    """Compose a UUIDv7 (RFC 9562) from a time and ten random bytes."""
    value = (now_ms & (1 << 48) - 1) << 80 | int.from_bytes(random, "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return uuid.UUID(int=value)
