"""What the global options say, and how a command opens the lake they name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import headgate
from headgate.cli.render import Output
from headgate.errors import NotFoundError

if TYPE_CHECKING:
    from headgate.client.session import Session


@dataclass(frozen=True, slots=True)
class Globals:
    """What the global options say."""

    lake: str = field(repr=False)  # an address may hold a password
    output: Output

    @property
    def shown_lake(self) -> str:
        """The lake's address, without a password."""
        from headgate.storage.locations import shown  # slow to load

        return shown(self.lake)

    def opened(self) -> Session:
        """Open the lake; only `init` makes one, so that a slip of the pen does not."""
        from headgate._connect import DATABASE  # slow to load, and needed only from here on

        if _is_missing(self.lake, DATABASE):
            raise NotFoundError(
                f"There is no lake at {self.lake}.",
                remedy=f"Make one with `headgate init {self.lake}`, or name yours with --lake.",
            )
        return headgate.connect(self.lake)

    @contextmanager
    def session(self, doing: str) -> Iterator[Session]:
        """Open the lake for what one command does; what it found is told after."""
        with self.output.progress(doing), self.opened() as session:
            yield session


def _is_missing(address: str, database: str) -> bool:
    """Say whether connecting would make a lake here; what else is wrong `connect` will tell."""
    if address.startswith("sqlite:///"):
        return not Path(address.removeprefix("sqlite://")).exists()
    if not address or "://" in address:
        return False
    folder = Path(address)
    is_usable = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    return is_usable and not (folder / database).exists()
