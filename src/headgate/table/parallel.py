"""Threads for work that mostly waits, for storage or for Arrow."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_WORKERS: Final = 16


def in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply a function to each item; the results are in the order of the items."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(work, items))
