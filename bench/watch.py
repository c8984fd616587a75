"""Measure one side: time, processor time and memory.

A side calls `measure` around each sample, and `lap` between parts of a sample that are reported
separately. Work outside of `measure` does not count. A side that starts servers, or has very many
short samples, measures them `together`: time for each `sample`, processor time and memory for all
of them, of all processes below this one.
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
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of a side, which must equal those of the others; None: not known."""

    rows: int | None
    checksum: int | None = None
    records: int | None = None

    def differs_from(self, other: Seen) -> str | None:
        """Describe the first difference in what both sides know; None if there is none."""
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
    facts: dict[str, float] = field(default_factory=dict)  # reported as the median of the turns
    worst: dict[str, float] = field(default_factory=dict)  # reported as the maximum of the turns
    _since: float = 0.0
    _things: int = 1  # that the sample under way is about

    def begin(self) -> None:
        """Forget the previous turn."""
        self.samples, self.laps, self.cpu, self.peak_rss = [], {}, [], 0
        self.facts, self.worst = {}, {}

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

    @contextmanager
    def together(self) -> Iterator[None]:
        """Measure processor time and memory of many samples at once, servers included."""
        _forget_peak()
        already, self._things = len(self.samples), 1
        cpu = _cpu() + tree_cpu(os.getpid())
        yield
        used = _cpu() + tree_cpu(os.getpid()) - cpu
        self.cpu.append(used / max(1, len(self.samples) - already) / self._things)
        below = sum(map(_peak_of, descendants(os.getpid())))
        self.peak_rss = max(self.peak_rss, _peak() + below)

    def record(self, seconds: float, count: int) -> None:
        """Record a sample that was measured elsewhere, with the number of things it is about."""
        self.samples.append(seconds / max(1, count))
        self._things = max(1, count)

    @contextmanager
    def sample(self) -> Iterator[None]:
        """Measure the time of one sample of many."""
        start = self._since = time.perf_counter()
        yield
        self.samples.append(time.perf_counter() - start)

    def lap(self, name: str) -> None:
        """End a part of the sample under way."""
        now = time.perf_counter()
        self.laps.setdefault(name, []).append(now - self._since)
        self._since = now


def fingerprint(texts: Iterable[str]) -> int:
    """Return a checksum of texts in any order."""
    return sum(zlib.crc32(text.encode()) for text in texts) & (1 << 64) - 1


def checkpoint_seen(log: Path, version: int) -> Seen:
    """Return number and checksum of the files of a classic checkpoint, of any writer."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = log / f"{version:020d}.checkpoint.parquet"
    column = pq.ParquetFile(path).read(columns=["add.path"])["add"]
    paths = pc.struct_field(column, "path").drop_null()
    return Seen(rows=len(paths), checksum=fingerprint(paths.to_pylist()))


def _mark(name: str) -> None:
    # The counter of system calls recognises by these names where a sample begins and ends.
    if "HEADGATE_BENCH_MARKS" in os.environ:
        Path(name).exists()


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(found.ru_utime + found.ru_stime for found in used)


def _forget_peak() -> None:
    with suppress(OSError):  # then the peak is that of the whole life of the process
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    return _peak_of("self") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _peak_of(pid: int | str) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it is gone, or this system does not report it
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


def descendants(pid: int) -> list[int]:
    """List the processes below one, nearest first."""
    below = _children()
    found = list(below.get(pid, []))
    for child in found:  # it grows while it is walked
        found += below.get(child, [])
    return found


def children(pid: int) -> list[int]:
    """List the processes that one started itself."""
    return _children().get(pid, [])


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            found.setdefault(int(fields[1]), []).append(int(path.parent.name))
    return found


def tree_cpu(pid: int) -> float:
    """Sum up the processor time of all processes below one that are still there."""
    return sum(map(process_cpu, descendants(pid)))


def process_cpu(pid: int) -> float:
    """Return the processor time of one process and its ended children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS
