"""How the demonstration tells what it does: steps as they go, tables, checks that must hold."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from rich.console import Console
from rich.table import Table

_PLAIN_WIDTH = 150

console = Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
began = perf_counter()
timings: list[tuple[str, float]] = []
held: list[str] = []


def title(text: str) -> None:
    """Begin a chapter."""
    console.print(f"\n[bold]{text}[/]")


@contextmanager
def step(doing: str) -> Iterator[None]:
    """Show what is being done while it is, and note how long it took."""
    since = perf_counter()
    with console.status(doing):
        yield
    timings.append((doing, perf_counter() - since))


def tell(text: str) -> None:
    """Say what happened, and when."""
    console.print(f"[dim]{perf_counter() - began:>6.1f} s[/]  ", end="")
    console.print(text, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """Print a line that belongs to the one above."""
    console.print(f"          {text}", markup=False, soft_wrap=True)


def check(what: str, found: object, expected: object) -> None:
    """End everything, and loudly, where a result is not what was computed without Spark."""
    if found != expected:
        console.print(f"[bold red]WRONG[/]: {what}")
        console.print(f"  expected {expected!r}\n  found    {found!r}", markup=False)
        sys.exit(f"The demonstration failed its own check: {what}.")
    held.append(what)


def draw(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Draw a table; columns of numbers to the right."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold underline")
    for place, name in enumerate(columns):
        are_numbers = all(_is_number(row[place]) for row in rows)
        drawn.add_column(name, justify="right" if are_numbers else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row])
    console.print(drawn)


def _is_number(cell: object) -> bool:
    return str(cell).lstrip("+-").replace(",", "").partition(" ")[0].replace(".", "").isdigit()
