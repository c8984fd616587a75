"""Who is at each table, so that one slow table does not take every thread of a server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headgate.errors import BusyError
from headgate.protocol.actions import TableId


class Crowd:
    """Turns away who would be one too many at a table; without a bound, nobody."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._here: Counter[TableId] = Counter()
        self._counting = threading.Lock()

    @contextmanager
    def at(self, table_ids: Iterable[TableId]) -> Iterator[None]:
        """Be at some tables, or raise that there are enough at one of them."""
        if self._most is None:
            yield
            return
        table_ids = set(table_ids)
        with self._counting:
            for table_id in table_ids:
                if self._here[table_id] >= self._most:
                    raise BusyError(
                        f"{self._most} writers wait for the storage of table {table_id}."
                    )
            self._here.update(table_ids)
        try:
            yield
        finally:
            with self._counting:
                self._here.subtract(table_ids)
                for table_id in table_ids:
                    if not self._here[table_id]:
                        del self._here[table_id]
