"""The write unit of the PostgreSQL store: each statement is one round trip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from headgate.catalog.stores import postgres_batch
from headgate.catalog.stores.port import Batch, CatalogClock, Epoch
from headgate.catalog.stores.postgres_reader import (
    PostgresReadUnit,
    Transaction,
    refuse_unless_storable,
)
from headgate.catalog.stores.reader import Row, Statement, Values
from headgate.catalog.stores.writer import SQLWriteUnit, consistent
from headgate.errors import HeadgateError


class WriteTransaction(Transaction, Protocol):
    """A transaction that may change something."""

    def change(self, sql: str, values: Values) -> tuple[int, list[Row]]:
        """Execute a statement; return how many rows it changed, and the rows that it returns.

        Raises `StoreConstraintError` when a constraint rejects it.
        """
        ...


class PostgresWriteUnit(PostgresReadUnit, SQLWriteUnit):
    """A unit that has locked the clock's row, so nothing else changes the catalog meanwhile."""

    tick = (
        "WITH inserted AS (INSERT INTO sequences VALUES ($1, $2, $3)) "
        "UPDATE clock SET sequence = $1, clock_ms = $2"
    )
    count_change = "UPDATE clock SET changes = changes + 1"
    _transaction: WriteTransaction

    def __init__(self, transaction: WriteTransaction, began: Epoch, clock: CatalogClock) -> None:
        PostgresReadUnit.__init__(self, transaction)
        SQLWriteUnit.__init__(self)
        self._began = began
        self._clock = clock  # when it began
        self._lost: HeadgateError | None = None

    def epoch(self) -> Epoch:
        stored = self._stored_epoch()
        return Epoch(stored.sequence, stored.changes + self._is_counted())

    def clock(self) -> CatalogClock:
        return self._clock if self.sequence is None else super().clock()

    def _stored_epoch(self) -> Epoch:
        return (
            self._began if self.sequence is None else self._began._replace(sequence=self.sequence)
        )

    def lost(self) -> HeadgateError | None:
        return self._lost

    def write_batch(self, batch: Batch) -> None:
        rest = batch._replace(undecided=())
        if any(rest):
            sql, values = postgres_batch.statement(self._stored_epoch(), rest, is_counted=False)
            with consistent():
                self._change(sql, *values)
        for clock, _ in batch.clocks:
            self.sequence = clock.sequence

    def _run(self, sql: str, *values: object) -> tuple[int, list[Row]]:
        self.refuse_if_lost()
        refuse_unless_storable(values)
        with self._watched():
            return self._transaction.change(sql, values)

    def _fetch_each(self, *statements: Statement) -> list[list[Row]]:
        self.refuse_if_lost()
        for _, values in statements:
            refuse_unless_storable(values)
        with self._watched():
            return self._transaction.fetch(list(statements))

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except HeadgateError as error:
            self._lost = error
            raise
