"""The parts of a scenario: its blocks, what it counts, and its claims about both."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.harness import Block

Sizes = Mapping[str, int]
Counts = Mapping[str, Mapping[str, float]]  # operation -> kind of call -> number


class Sense(enum.Enum):
    """How a value is computed from two figures, and which side of its limit is good."""

    FASTER = "x as fast"  # theirs divided by ours: at least
    SHARE = "x the time"  # ours divided by theirs: at most
    FLAT = "x at the smaller size"  # both ours: within a fifth of 1
    SECONDS = "time"  # at most
    BYTES = "peak RSS"  # at most
    COUNT = "calls"  # at most
    FACT = "measured by the side"  # at most
    SLOPE = "slope"  # of a curve over several sides: at most this far from 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A ratio that is reported. With a limit it is a target, and can be missed."""

    says: str
    side: str
    sense: Sense
    limit: float | None = None
    against: str | None = None
    lap: str | None = None  # a part of our time, a kind of call, or a fact (a time, in a ratio)
    against_lap: str | None = None
    why: str = ""  # where our time goes: shown if the target is missed
    points: Mapping[str, float] = field(default_factory=dict)  # of a curve: side -> size


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the plan of measurements."""

    number: int
    title: str
    how: str
    full: Sizes
    quick: Sizes
    blocks: Callable[[Sizes], Sequence[Block]]
    claims: Callable[[Sizes], Sequence[Claim]]
    counts: Callable[[Sizes], Counts | str] | None = (
        None  # a text: the reason why nothing was counted
    )
    counted: str = "calls"
    not_yet: tuple[str, ...] = ()
    not_run: Callable[[], Sequence[str]] = tuple  # what this machine lacks, checked at the call
    is_quick: bool = False  # part of the short run


def floor_of(block: Block | str) -> str:
    """Name the floor of a block among the sides."""
    return f"floor of {block if isinstance(block, str) else block.name}"
