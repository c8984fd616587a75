"""The port of a catalog's store.

A `CatalogStore` gives two kinds of unit: `read()` sees everything as of one instant, and
`write()` is applied as a whole or not at all. `write_batch()` writes what was decided on rows read
before, unless anything changed since: the epoch says so. The store's own constraints prevent two
winners; code above it need not.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import Batch, Epoch
from headgate.catalog.stores.writer import WriteUnit


class CatalogStore(Protocol):
    """A database of one catalog."""

    def read(self) -> AbstractContextManager[ReadUnit]:
        """Begin a read transaction: everything in it is as of one instant."""
        ...

    def read_latest(self) -> AbstractContextManager[ReadUnit]:
        """Read without a transaction: each query sees the latest rows.

        Cheaper than `read`, for a single query or for rows that never change.
        """
        ...

    def write(self) -> AbstractContextManager[WriteUnit]:
        """Begin a write transaction, durable once the block ends without an error."""
        ...

    def write_batch(self, expected: Epoch, batch: Batch) -> Epoch | None:
        """Write a batch durably if the epoch is as expected; return the epoch after it.

        Returns None, and writes nothing, if anything changed since or a key has an outcome already.
        """
        ...

    def check_integrity(self) -> list[str]:
        """Check the whole database for damage; return what was found.

        After damage was found, the store refuses all reads and writes with `DamagedError`.
        """
        ...

    def describe(self) -> str:
        """Return which database this is, without its password."""
        ...

    def local_file(self) -> Path | None:
        """Return the database's file on this machine; None if it is on a server.

        All files whose names begin with its name belong to the database, too.
        """
        ...

    def backup(self, target: Path) -> None:
        """Copy the database, as of one instant, to a new file while others go on."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...
