"""Where the rows of `append` come from: files, standard input, and how far along they are."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headgate.errors import InvalidDataError

if TYPE_CHECKING:  # these are slow to load
    from headgate.client.table import Table
    from headgate.client.transaction import Committed

_FORMATS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}


class Rows:
    """The rows of several files, one after the other, and how far along they are."""

    def __init__(
        self, files: Sequence[str], readers: Sequence[Any], advance: Callable[[int], None]
    ) -> None:
        self._files = files
        self._readers = readers
        self._advance = advance
        self._where = ""
        self.count = 0

    def append_to(self, target: Table) -> Committed | None:
        """Append all rows in one commit; without any, none is made."""
        batches = self._batches()
        first = next(batches, None)
        if first is None:
            return None
        kind = type(self._readers[0])
        try:
            return target.append(kind.from_batches(first.schema, chain([first], batches)))
        except InvalidDataError as error:
            if error.message.startswith(tuple(self._files)):
                raise
            # A rule of the table was broken, not one of the format: say by which rows.
            message = f"{self._where}: {error.message}"
            raise InvalidDataError(message, remedy=error.remedy) from error

    def _batches(self) -> Iterator[Any]:
        for file, reader in zip(self._files, self._readers, strict=True):
            before = 0
            for batch in reader:
                if batch.num_rows:
                    self._where = f"{file}, rows {before + 1:,} to {before + batch.num_rows:,}"
                    before += batch.num_rows
                    self.count += batch.num_rows
                    self._advance(batch.num_rows)
                    yield batch


def format_of(file: str, asked: str) -> str:
    """Say in which format a file is, if need be by its ending."""
    if asked != "auto":
        return asked
    if file == "-":
        raise typer.BadParameter("standard input has no ending to go by: say --format csv or json.")
    found = _FORMATS.get(Path(file).suffix.lower())
    if found is None:
        raise typer.BadParameter(f"the ending of {file} tells no format: say --format.")
    return found


@contextmanager
def on_disk(inputs: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Put standard input into a file: it is read twice, and once is all a pipe gives."""
    if all(file != "-" for file, _ in inputs):
        yield list(inputs)
        return
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        spooled = Path(folder, "stdin")
        with spooled.open("wb") as sink:
            shutil.copyfileobj(sys.stdin.buffer, sink)
        try:
            yield [(str(spooled) if file == "-" else file, kind) for file, kind in inputs]
        except InvalidDataError as error:  # the user knows of no such file
            message = error.message.replace(str(spooled), "standard input")
            raise InvalidDataError(message, remedy=error.remedy) from error
