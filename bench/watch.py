"""What one side is measured with: time, processor time and memory of its own process.

A side calls `measure` around what counts, as often as it has samples, and `lap` where a sample has
parts that are worth telling apart. What it does outside of `measure` costs it nothing.
"""

from __future__ import annotations

import os
import resource
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

BEGIN = "/headgate-bench-begins"
END = "/headgate-bench-ends"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a side found, to be held against what the others found; None: it cannot say."""

    rows: int
    checksum: int | None = None
    records: int | None = None

    def differs_from(self, other: Seen) -> str | None:
        """Say in what two sides differ, of the things both can tell."""
        for name in ("rows", "checksum", "records"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                return f"{name}: {mine} and {theirs}"
        return None


@dataclass(slots=True)
class Watch:
    """The samples of one side in one alternation."""

    samples: list[float] = field(default_factory=list)
    laps: dict[str, list[float]] = field(default_factory=dict)
    cpu: list[float] = field(default_factory=list)
    peak_rss: int = 0
    _since: float = 0.0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure one sample."""
        _forget_peak()
        _mark(BEGIN)
        cpu = _cpu()
        start = self._since = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.cpu.append(_cpu() - cpu)
        _mark(END)
        self.samples.append(seconds)
        self.peak_rss = max(self.peak_rss, _peak())

    def lap(self, name: str) -> None:
        """End a part of the sample under way."""
        now = time.perf_counter()
        self.laps.setdefault(name, []).append(now - self._since)
        self._since = now


def fingerprint(texts: Iterable[str]) -> int:
    """Sum texts up, in whatever order they come."""
    return sum(zlib.crc32(text.encode()) for text in texts) & (1 << 64) - 1


def checkpoint_seen(log: Path, version: int) -> Seen:
    """Sum up the files of a classic checkpoint, whoever wrote it."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = log / f"{version:020d}.checkpoint.parquet"
    column = pq.ParquetFile(path).read(columns=["add.path"])["add"]
    paths = pc.struct_field(column, "path").drop_null()
    return Seen(rows=len(paths), checksum=fingerprint(paths.to_pylist()))


def _mark(name: str) -> None:
    # Who counts system calls sees by these names where a sample begins and where it ends.
    if "HEADGATE_BENCH_MARKS" in os.environ:
        Path(name).exists()


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(found.ru_utime + found.ru_stime for found in used)


def _forget_peak() -> None:
    with suppress(OSError):  # then the peak is that of the whole life of the process
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
