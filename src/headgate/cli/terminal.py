"""Tables and progress, drawn with rich. Loaded only when needed, since rich is slow to load."""

import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import accumulate

from rich.console import Console, JustifyMethod, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_PATIENCE_S = 1.0
_SHORT_CELL = 9
_NARROWEST = 8  # of a column; if that is not enough, the last columns are left out
_GAP = 2
_UNBOUNDED = 1_000_000  # width of plain lines, which are never folded
_STYLES = {"ratified": "yellow", "published": "green", "dropped": "red"}


@contextmanager
def progress(
    description: str, amount: Callable[[int, int], str]
) -> Iterator[Callable[[int, int], None]]:
    """Show a spinner and a bar after one second; yield a function that updates them."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(description, total=None, amount="")

    def update(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total, amount=amount(done, total))

    timer = threading.Timer(_PATIENCE_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield update
    finally:
        timer.cancel()
        timer.join()  # else the bar might start after it was stopped
        bar.stop()


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    numbers: Collection[str],
    shorten: Collection[str] | None,
    *,
    truncate: bool = False,
) -> str:
    """Align rows as `output.table` does; `numbers` names the columns of numbers."""
    cells = [[_cell(text) for text in row] for row in rows]
    on_terminal = sys.stdout.isatty()
    folds = on_terminal and shorten is None and not truncate
    headings = [Text(name) for name in columns]
    if on_terminal and truncate:
        headings, *cells = _truncated([headings, *cells], _width())
    if on_terminal and shorten is not None:
        widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
        if sum(max(w, len(c)) + _GAP for w, c in zip(widths, columns, strict=True)) > _width():
            for row in cells:
                for name, cell in zip(columns, row, strict=True):
                    if name in shorten:
                        cell.truncate(_SHORT_CELL, overflow="ellipsis")
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold underline")
    for name, heading in zip([*columns, ""], headings, strict=False):
        justify: JustifyMethod = "right" if name in numbers else "left"
        drawn.add_column(heading, justify=justify, overflow="fold", no_wrap=not folds)
    for cell_row in cells:
        drawn.add_row(*cell_row)
    return _drawn(drawn, _width() if folds else _UNBOUNDED)


def _truncated(lines: Sequence[Sequence[Text]], width: int) -> list[list[Text]]:
    """Narrow the widest columns until a row fits on a line; leave out columns if needed."""
    widths = [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]
    most = max(widths, default=0)
    while most > _NARROWEST and sum(min(w, most) + _GAP for w in widths) - _GAP > width:
        most -= 1
    for line in lines:
        for cell in line:
            cell.truncate(most, overflow="ellipsis")
    ends = list(accumulate(min(w, most) + _GAP for w in widths))
    if not ends or ends[-1] - _GAP <= width:
        return [list(line) for line in lines]
    fits = max(1, sum(end + 1 <= width for end in ends))
    return [[*line[:fits], Text("…", style="dim")] for line in lines]


def _drawn(drawing: RenderableType, width: int) -> str:
    sink = StringIO()
    console = Console(file=sink, force_terminal=sys.stdout.isatty(), width=width, highlight=False)
    console.print(drawing)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())


def _width() -> int:
    return shutil.get_terminal_size().columns


def _cell(text: str | None) -> Text:
    if text is None:
        return Text("NULL", style="dim")
    return Text(text, style=_STYLES.get(text, ""))
