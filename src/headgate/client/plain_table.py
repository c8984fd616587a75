"""Tables without a catalog, opened by their paths."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

from headgate.arguments import checked
from headgate.client import arrow_io
from headgate.client.history import HistoryEntry, history_of
from headgate.protocol.actions import Version
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.schema.types import StructType
from headgate.table.snapshot import Snapshot

# pyarrow is imported only by `client.arrow_io`, and has no type annotations.
ArrowTable: TypeAlias = Any


class TableProperties(ABC):
    """The properties of a table at the version of its snapshot."""

    @abstractmethod
    def _known(self) -> Snapshot: ...

    @property
    def location(self) -> str:
        return self._known().location

    @property
    def version(self) -> Version:
        return self._known().version

    @property
    def schema(self) -> StructType:
        return self._known().schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self._known().partition_columns)

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._known().metadata.configuration)


@checked
class PlainTable(TableProperties):
    """A version of a Delta table without a catalog, for reading."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __repr__(self) -> str:
        return f"PlainTable({self.location}, version {self.version})"

    def _known(self) -> Snapshot:
        return self._snapshot

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def to_arrow(
        self, columns: Sequence[str] | None = None, where: Predicate | str | None = None
    ) -> ArrowTable:
        """Read rows as an Arrow table; `where` may be a condition in SQL, such as "id > 5"."""
        return arrow_io.to_arrow(self._snapshot, columns, where)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return the `commitInfo` of the commits that are in the log, newest first."""
        return history_of(self._snapshot, limit)
