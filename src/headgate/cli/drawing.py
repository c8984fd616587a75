"""What is drawn with rich, loaded when something is to be drawn: tables in columns, progress."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO

from rich.console import Console, JustifyMethod, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_PATIENCE_S = 1.0
_SHORT_CELL = 9
_UNBOUNDED = 1_000_000  # columns: plain lines are never folded
_STYLES = {"ratified": "yellow", "published": "green", "dropped": "red"}


@contextmanager
def progress(doing: str, unit: str) -> Iterator[Callable[[int], None]]:
    """Show on a terminal that work goes on, once it takes over a second."""
    counted = TextColumn("{task.completed:,} " + unit) if unit else TextColumn("")
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        counted,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(doing, total=None)
    timer = threading.Timer(_PATIENCE_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda steps: bar.advance(task, steps)
    finally:
        timer.cancel()
        timer.join()  # else it might begin after the end
        bar.stop()


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    numbers: Collection[str],
    short: Collection[str] | None,
) -> str:
    """Align rows as `render.table` says; `numbers` names the columns that hold them."""
    cells = [[_cell(text) for text in row] for row in rows]
    on_terminal = sys.stdout.isatty()
    folds = on_terminal and short is None
    if on_terminal and short is not None:
        widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
        if sum(max(w, len(c)) + 2 for w, c in zip(widths, columns, strict=True)) > _width():
            for row in cells:
                for name, cell in zip(columns, row, strict=True):
                    if name in short:
                        cell.truncate(_SHORT_CELL, overflow="ellipsis")
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold underline")
    for name in columns:
        justify: JustifyMethod = "right" if name in numbers else "left"
        drawn.add_column(Text(name), justify=justify, overflow="fold", no_wrap=not folds)
    for cell_row in cells:
        drawn.add_row(*cell_row)
    return _drawn(drawn, _width() if folds else _UNBOUNDED)


def _drawn(what: RenderableType, width: int) -> str:
    sink = StringIO()
    console = Console(file=sink, force_terminal=sys.stdout.isatty(), width=width, highlight=False)
    console.print(what)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())


def _width() -> int:
    return shutil.get_terminal_size().columns


def _cell(text: str | None) -> Text:
    if text is None:
        return Text("NULL", style="dim")
    return Text(text, style=_STYLES.get(text, ""))
