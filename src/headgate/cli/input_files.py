"""Rows from files and standard input, for `append` and `overwrite`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headgate.errors import InvalidDataError

if TYPE_CHECKING:  # these are slow to load
    from headgate.api.port import Progress
    from headgate.client.transaction import Committed
    from headgate.protocol.schema.types import StructType

_FORMATS = {".csv": "csv", ".parquet": "parquet"}
_FORMATS |= dict.fromkeys((".json", ".jsonl", ".ndjson"), "json")


class Rows:
    """The rows of several files in order, with progress."""

    def __init__(
        self, files: Sequence[tuple[str, str]], schema: StructType, progress: Progress
    ) -> None:
        from headgate.data.import_files import read_input  # slow to load

        self._files = [path for path, _ in files]
        self._readers = [
            read_input(path, kind, schema, partial(self._report, index))
            for index, (path, kind) in enumerate(files)
        ]
        self._sizes = [Path(path).stat().st_size for path in self._files]
        self._progress = progress
        self._position = ""
        self._remaining = self._batches()
        self.count = 0

    @property
    def is_empty(self) -> bool:
        """True if the files contain no row."""
        first = next(self._remaining, None)
        if first is None:
            return True
        self._remaining = chain([first], self._remaining)
        return False

    def write(self, write: Callable[[Any], Committed]) -> Committed:
        from headgate.data.import_files import InputError  # slow to load

        kind, schema = type(self._readers[0]), self._readers[0].schema
        try:
            return write(kind.from_batches(schema, self._remaining))
        except InputError:  # names the file and the position already
            raise
        except InvalidDataError as error:
            # The rows violate a constraint of the table: add which rows.
            message = f"{self._position}: {error.message}"
            raise InvalidDataError(message, remedy=error.remedy) from error

    def _batches(self) -> Iterator[Any]:
        for file, reader in zip(self._files, self._readers, strict=True):
            before = 0
            for batch in reader:
                if batch.num_rows:
                    self._position = f"{file}, rows {before + 1:,} to {before + batch.num_rows:,}"
                    before += batch.num_rows
                    self.count += batch.num_rows
                    yield batch

    def _report(self, index: int, position: int) -> None:
        self._progress(sum(self._sizes[:index]) + position, sum(self._sizes))


def format_of(file: str, format: str) -> str:
    """Return the format of a file; `auto` is taken from the file extension."""
    if format != "auto":
        return format
    if file == "-":
        raise typer.BadParameter("standard input has no file extension: pass --format csv or json.")
    known = _FORMATS.get(Path(file).suffix.lower())
    if known is None:
        raise typer.BadParameter(f"the extension of {file} is unknown: pass --format.")
    return known


@contextmanager
def on_disk(inputs: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Copy standard input to a temporary file, since the rows are read twice."""
    if all(file != "-" for file, _ in inputs):
        yield list(inputs)
        return
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        spooled = Path(folder, "stdin")
        with spooled.open("wb") as sink:
            shutil.copyfileobj(sys.stdin.buffer, sink)
        try:
            yield [(str(spooled) if file == "-" else file, kind) for file, kind in inputs]
        except InvalidDataError as error:  # the user does not know the temporary file
            message = error.message.replace(str(spooled), "standard input")
            raise InvalidDataError(message, remedy=error.remedy) from error
