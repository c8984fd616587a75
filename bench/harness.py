"""Measure sides in turns, and discard figures that cannot be trusted.

Sides take turns, A B A B, each in a process and a directory of its own on one disk, unless a block
is about what they do in one process; what they found is compared before a time counts; the floor is
measured before, between and after, and if it moved too far the block is discarded and measured
again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from bench.watch import Seen

ROOT = Path(__file__).resolve().parents[1]
PATHS = os.pathsep.join([str(ROOT / "src"), str(ROOT)])  # this tree, whatever is installed

ALTERNATIONS = 5
TRIES = 3  # a block whose floor moved is measured again, by default twice at the most
MOVED = 0.30
SAMPLES_FOR_P99 = 1_000


@dataclass(frozen=True, slots=True)
class Side:
    """One measured side: a function `MODULE:FUNCTION(watch, **arguments)` in a process."""

    name: str
    function: str
    arguments: Mapping[str, object]
    units: int = 1  # how many things one sample is about: times are given for one
    is_durable: bool = True
    stays: bool = False  # one process for all alternations, else a new one for each
    reset: Callable[[], None] | None = None  # puts its place back before each process, unmeasured
    within: str | None = None  # sides of one name share a process, which stays; else it has its own
    task: str = ""  # only sides of one task must find the same


@dataclass(frozen=True, slots=True)
class Block:
    """Sides that take turns, and the floor they are compared with."""

    name: str
    per: str  # what one time is the time of
    sides: tuple[Side, ...]
    floor: Side


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one side in one block."""

    median: float
    low: float  # the least and the greatest of the alternations' medians
    high: float
    p99: float | None
    laps: Mapping[str, float]
    cpu: float  # user and system, for one sample
    peak_rss: int
    samples: int
    is_durable: bool = True
    facts: Mapping[str, float] = field(default_factory=dict)  # other measurements, with their unit


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a block, or the reason why there are none."""

    name: str
    per: str
    floor_name: str
    floor: Figures | None
    floor_moved: float
    thrown_away: tuple[float, ...]  # by how much the floor had moved each time
    sides: Mapping[str, Figures]
    names: tuple[str, ...] = ()  # of the sides, also of those without figures
    failure: str | None = None

    @property
    def is_steady(self) -> bool:
        """Return True if the floor did not move during the measurement."""
        return self.failure is None and self.floor_moved <= MOVED


class SideError(Exception):
    """A side died, or its result differs from the others."""


def measure(
    block: Block,
    *,
    alternations: int = ALTERNATIONS,
    tries: int = TRIES,
    say: Callable[[str], None] = lambda _: None,
    shared: Shared | None = None,
) -> Measured:
    """Measure a block until its floor does not move, at most `tries` times.

    Processes that sides share are taken from `shared`, and stay there for the next block.
    """
    if shared is None:
        with Shared() as own:
            return measure(block, alternations=alternations, tries=tries, say=say, shared=own)
    thrown: list[float] = []
    while True:
        try:
            found = _measure_once(block, alternations, say, shared)
        except SideError as error:
            shared.end()  # whatever is left of them
            names = tuple(side.name for side in block.sides)
            return Measured(
                block.name, block.per, block.floor.name, None, 0, (), {}, names, str(error)
            )
        if found.is_steady or len(thrown) + 1 >= tries:
            return dataclasses.replace(found, thrown_away=tuple(thrown))
        thrown.append(found.floor_moved)
        say(f"thrown away: the floor moved by {found.floor_moved:.0%}")


def moved(readings: Sequence[float]) -> float:
    """Return by how much readings of one floor differ."""
    return max(readings) / min(readings) - 1


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the sample that a `share` of all samples does not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _measure_once(
    block: Block, alternations: int, say: Callable[[str], None], shared: Shared
) -> Measured:
    sides = [_Running(side, shared.worker(side)) for side in block.sides]
    floor = _Running(block.floor, shared.worker(block.floor))
    try:
        for side in (floor, *sides):  # warm-up of all
            say(f"warm-up: {side.side.name}")
            side.turn()
        _compare(sides)
        for side in (floor, *sides):
            side.forget()
        floor.turn()
        for number in range(alternations):
            for side in sides:
                say(f"{number + 1} of {alternations}: {side.side.name}")
                side.turn()
            _compare(sides)
            floor.turn()
    finally:
        for side in (floor, *sides):
            if side.side.within is None:
                side.worker.end()
    return Measured(
        block.name,
        block.per,
        block.floor.name,
        floor.figures(),
        moved([statistics.median(turn) for turn in floor.turns]),
        (),
        {side.side.name: side.figures() for side in sides},
        tuple(side.side.name for side in sides),
    )


def _compare(sides: Sequence[_Running]) -> None:
    """Compare the results of the sides. If they differ, none of their times counts."""
    for number, one in enumerate(sides):
        for other in sides[number + 1 :]:
            if one.side.task != other.side.task:
                continue
            assert one.seen is not None
            assert other.seen is not None
            if difference := one.seen.differs_from(other.seen):
                raise SideError(
                    f"{one.side.name} and {other.side.name} found different {difference}"
                )


class Shared:
    """Processes that run several sides, by name."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def worker(self, side: Side) -> _Worker:
        """Return the process that runs a side: its own, or a shared one."""
        if side.within is None:
            return _Worker()
        return self._workers.setdefault(side.within, _Worker())

    def end(self) -> None:
        """End all processes."""
        for worker in self._workers.values():
            worker.end()


class _Worker:
    """A process that runs sides."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def ask(self, side: Side) -> dict[str, Any]:
        """Run one turn of a side, in the current process or a new one."""
        if self._process is None:
            if side.reset is not None:
                side.reset()
            self._begin()
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(question(side))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died(side) from None
        line = self._process.stdout.readline()
        if not line:
            raise self._died(side)
        if not side.stays and side.within is None:
            self.end()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
            process.stdout.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _begin(self) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "bench.worker"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": PATHS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def _died(self, side: Side) -> SideError:
        assert self._errors is not None
        self._errors.seek(0)
        errors = self._errors.read().strip().splitlines()
        return SideError(f"{side.name} died: {errors[-1] if errors else 'no output'}")


def question(side: Side) -> str:
    """Return the line that asks a worker for one turn of a side."""
    asked = {"side": side.name, "function": side.function, "arguments": dict(side.arguments)}
    return json.dumps(asked) + "\n"


@dataclass(slots=True)
class _Running:
    """A side and the results of its turns."""

    side: Side
    worker: _Worker
    seen: Seen | None = None
    turns: list[list[float]] = field(default_factory=list)
    laps: list[dict[str, list[float]]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak_rss: int = 0
    facts: list[dict[str, float]] = field(default_factory=list)
    worst: list[dict[str, float]] = field(default_factory=list)

    def turn(self) -> None:
        answer = self.worker.ask(self.side)
        units = self.side.units
        self.turns.append([sample / units for sample in answer["samples"]])
        laps = {name: [lap / units for lap in found] for name, found in answer["laps"].items()}
        self.laps.append(laps)
        self.cpu.extend(used / units for used in answer["cpu"])
        self.peak_rss = max(self.peak_rss, answer["peak_rss"])
        self.facts.append(answer["facts"])
        self.worst.append(answer["worst"])
        self.seen = Seen(**answer["seen"])

    def forget(self) -> None:
        """Discard the warm-up."""
        self.turns, self.laps, self.cpu, self.peak_rss = [], [], [], 0
        self.facts, self.worst = [], []

    def figures(self) -> Figures:
        medians = [statistics.median(turn) for turn in self.turns]
        samples = [sample for turn in self.turns for sample in turn]
        names = self.laps[0]
        return Figures(
            median=statistics.median(medians),
            low=min(medians),
            high=max(medians),
            p99=percentile(samples, 0.99) if len(samples) >= SAMPLES_FOR_P99 else None,
            laps={
                name: statistics.median(statistics.median(lap[name]) for lap in self.laps)
                for name in names
            },
            cpu=statistics.median(self.cpu),
            peak_rss=self.peak_rss,
            samples=len(samples),
            is_durable=self.side.is_durable,
            facts={
                **{name: statistics.median(f[name] for f in self.facts) for name in self.facts[0]},
                **{name: max(found[name] for found in self.worst) for name in self.worst[0]},
            },
        )
