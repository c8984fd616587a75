"""The global options, and opening the lake that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import headgate
from headgate.cli.output import Output
from headgate.errors import NotFoundError

if TYPE_CHECKING:
    from headgate.client.session import Session

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Globals:
    """The global options."""

    lake: str = field(repr=False)  # an address may hold a password
    output: Output

    @property
    def shown_lake(self) -> str:
        """The address of the lake without a password."""
        from headgate.storage.locations import shown  # slow to load

        return shown(self.lake)

    def open(self) -> Session:
        """Open the lake. Only `init` creates one, so that a mistyped address does not."""
        from headgate._connect import database_file  # slow to load, and needed only from here on

        if _is_missing(self.lake, database_file(self.lake)):
            raise NotFoundError(
                f"There is no lake at {self.lake}.",
                remedy=f"Create it with `headgate init {self.lake}`, or pass another --lake.",
            )
        return headgate.connect(self.lake)

    def call(self, do: Callable[[Session], Result], description: str = "Connecting") -> Result:
        """Call a function with the opened lake, showing progress meanwhile."""
        with self.session(description) as session:
            return do(session)

    @contextmanager
    def session(self, description: str) -> Iterator[Session]:
        """Open the lake and show progress; write results after this context ends."""
        with self.output.progress(description), self.open() as session:
            yield session


def _is_missing(address: str, database: Path | None) -> bool:
    """Return True if `connect` would create a lake here; it reports all other errors itself."""
    if database is None or database.exists():
        return False
    folder = database.parent
    is_usable = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    return is_usable or address.startswith("sqlite:")
