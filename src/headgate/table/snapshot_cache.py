"""Snapshots kept in memory, as the starting point of later reads."""

import threading
from collections import OrderedDict

from headgate.protocol.actions import TableId, Version
from headgate.table.snapshot import Snapshot


class SnapshotCache:
    """Snapshots by table id and version, evicted by least recent use.

    Not a `cachetools.LRUCache`: the size of a snapshot grows when its log is read, after it was put
    here; adding up sizes there counts as a use; and the newest is kept however large it is.
    """

    def __init__(self, max_files: int = 1_000_000, max_snapshots: int = 64) -> None:
        self._max_files = max_files
        self._max_snapshots = max_snapshots
        self._lock = threading.Lock()
        self._snapshots: OrderedDict[tuple[TableId, Version], Snapshot] = OrderedDict()

    def newest(self, table_id: TableId, version: Version) -> Snapshot | None:
        """Return the newest snapshot of a table at or below a version."""
        with self._lock:
            versions = [v for table, v in self._snapshots if table == table_id and v <= version]
            return self._snapshots[table_id, max(versions)] if versions else None

    def put(self, snapshot: Snapshot) -> None:
        """Keep a snapshot of a managed table."""
        if snapshot.table_id is None:
            return
        key = (snapshot.table_id, snapshot.version)
        with self._lock:
            if not snapshot.is_read:
                # One unread snapshot of a table is enough: each holds the commits of its resolve.
                for other, held in list(self._snapshots.items()):
                    if other[0] == key[0] and not held.is_read:
                        del self._snapshots[other]
            self._snapshots[key] = snapshot
            self._snapshots.move_to_end(key)
            files = sum(map(_files_in_memory, self._snapshots.values()))
            while len(self._snapshots) > 1 and (
                files > self._max_files or len(self._snapshots) > self._max_snapshots
            ):
                files -= _files_in_memory(self._snapshots.popitem(last=False)[1])


def _files_in_memory(snapshot: Snapshot) -> int:
    return snapshot.num_files if snapshot.is_read else 0
