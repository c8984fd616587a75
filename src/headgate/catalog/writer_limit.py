"""A limit on concurrent writers per table, so that one slow table cannot take every thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headgate.errors import BusyError
from headgate.protocol.actions import TableId


class WriterLimit:
    """Admits at most so many writers to each table; with None, any number."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._admitted: Counter[TableId] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def admit(self, table_ids: Iterable[TableId]) -> Iterator[None]:
        """Count a writer of some tables; raise BusyError if one of them has reached the limit."""
        if self._limit is None:
            yield
            return
        table_ids = set(table_ids)
        with self._lock:
            for table_id in table_ids:
                if self._admitted[table_id] >= self._limit:
                    raise BusyError(
                        f"{self._limit} writers wait for the storage of table {table_id}."
                    )
            self._admitted.update(table_ids)
        try:
            yield
        finally:
            with self._lock:
                self._admitted.subtract(table_ids)
                for table_id in table_ids:
                    if not self._admitted[table_id]:
                        del self._admitted[table_id]
