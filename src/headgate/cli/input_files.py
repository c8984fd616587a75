"""Where the rows of `append` come from: files, standard input, and how far along they are."""

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
        self, files: Sequence[tuple[str, str]], schema: StructType, progress: Progress
    ) -> None:
        from headgate.client.arrow_io import read_input  # slow to load

        self._files = [path for path, _ in files]
        self._readers = [
            read_input(path, kind, schema, partial(self._heard, place))
            for place, (path, kind) in enumerate(files)
        ]
        self._sizes = [Path(path).stat().st_size for path in self._files]
        self._progress = progress
        self._where = ""
        self._waiting = self._batches()
        self.count = 0

    @property
    def are_any(self) -> bool:
        """Whether there is a row."""
        first = next(self._waiting, None)
        if first is None:
            return False
        self._waiting = chain([first], self._waiting)
        return True

    def write(self, write: Callable[[Any], Committed]) -> Committed:
        """Have all rows written in one commit."""
        from headgate.client.arrow_io import InputError  # slow to load

        kind, schema = type(self._readers[0]), self._readers[0].schema
        try:
            return write(kind.from_batches(schema, self._waiting))
        except InputError:  # says itself where in which file
            raise
        except InvalidDataError as error:
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
                    yield batch

    def _heard(self, place: int, position: int) -> None:
        self._progress(sum(self._sizes[:place]) + position, sum(self._sizes))


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
