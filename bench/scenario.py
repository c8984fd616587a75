"""What a scenario is made of: its blocks, what it counts, and what it claims of both."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.harness import Block

Sizes = Mapping[str, int]
Counts = Mapping[str, Mapping[str, float]]  # what was done -> kind of call -> how often


class Sense(enum.Enum):
    """How a value is made of two figures, and on which side of its limit it belongs."""

    FASTER = "x as fast"  # theirs through ours: at least
    SHARE = "x the time"  # ours through theirs: at most
    FLAT = "x at the smaller size"  # both ours: within a fifth of 1
    SECONDS = "time"  # at most
    BYTES = "peak RSS"  # at most
    COUNT = "calls"  # at most


@dataclass(frozen=True, slots=True)
class Claim:
    """A ratio worth telling. With a limit it is a target, and can be missed."""

    says: str
    side: str
    sense: Sense
    limit: float | None = None
    against: str | None = None
    lap: str | None = None  # a part of our time, or a kind of call
    against_lap: str | None = None
    why: str = ""  # where our time goes: told when the target is missed


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
    counts: Callable[[Sizes], Counts | str] | None = None  # a text says why nothing was counted
    not_yet: tuple[str, ...] = ()
    is_quick: bool = False  # part of the short run


def floor_of(block: Block | str) -> str:
    """Name the floor of a block among the sides."""
    return f"floor of {block if isinstance(block, str) else block.name}"
