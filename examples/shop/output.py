"""Output of the demonstration: titles, steps, tables, checks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from rich.console import Console
from rich.table import Table

_PLAIN_WIDTH = 150

console = Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
started = perf_counter()
timings: list[tuple[str, float]] = []
passed: list[str] = []  # descriptions of the checks


def title(text: str) -> None:
    """Print the title of a section."""
    console.print(f"\n[bold]{text}[/]")


@contextmanager
def step(description: str) -> Iterator[None]:
    """Show a step while it runs, and record its time."""
    since = perf_counter()
    with console.status(description):
        yield
    timings.append((description, perf_counter() - since))


def log(text: str) -> None:
    """Print a line with the time since the start."""
    console.print(f"[dim]{perf_counter() - started:>6.1f} s[/]  ", end="")
    console.print(text, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """Print an indented line."""
    console.print(f"          {text}", markup=False, soft_wrap=True)


def check(description: str, actual: object, expected: object) -> None:
    """Exit with an error if a result is not as expected."""
    if actual != expected:
        console.print(f"[bold red]WRONG[/]: {description}")
        console.print(f"  expected {expected!r}\n  actual   {actual!r}", markup=False)
        sys.exit(f"The demonstration failed its own check: {description}.")
    passed.append(description)


def draw(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, numbers to the right."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold underline")
    for index, name in enumerate(columns):
        are_numbers = all(_is_number(row[index]) for row in rows)
        drawn.add_column(name, justify="right" if are_numbers else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row])
    console.print(drawn)


def _is_number(cell: object) -> bool:
    return str(cell).lstrip("+-").replace(",", "").partition(" ")[0].replace(".", "").isdigit()
