"""Tables that a statement reads, all as of one sequence."""

from headgate.api.messages import Resolved
from headgate.api.port import Cuts, require
from headgate.client.session import Session
from headgate.names import TableName
from headgate.table.snapshot import Snapshot

_Key = tuple[str, str, str]


class Cut:
    """Tables as of the sequence of the first one, each resolved and loaded once."""

    def __init__(self, session: Session, first: Resolved | None = None) -> None:
        """Begin with a table that is resolved already, or with none."""
        self._session = session
        self._sequence = None if first is None else first.sequence
        self._resolved: dict[_Key, Resolved | None] = {}
        self._snapshots: dict[_Key, Snapshot] = {}
        if first is not None and first.name is not None:
            self._resolved[TableName.parse(first.name).key] = first

    def find(self, name: TableName) -> Resolved | None:
        """Resolve a table; return None if no table has the name."""
        if name.key not in self._resolved:
            found = self._session.find(str(name), self._sequence)
            self._resolved[name.key] = found
            if found is not None and self._sequence is None:
                self._sequence = found.sequence
        return self._resolved[name.key]

    def resolved(self, name: TableName) -> Resolved:
        """Return a table that was found."""
        found = self.find(name)
        assert found is not None
        return found

    def snapshot(self, name: TableName) -> Snapshot:
        """Load a table that was found, at its latest version in the cut."""
        if name.key not in self._snapshots:
            self._snapshots[name.key] = self._session.load(self.resolved(name))
        return self._snapshots[name.key]

    def require_sequence(self) -> None:
        """Refuse a catalog whose tables cannot be read as of one moment."""
        if self._sequence is None:
            require(self._session.catalog, Cuts)
