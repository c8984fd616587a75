"""A process that writes batches over some tables, each decided on rows that it has just read.

Run as `python -m tests.faults.batch_worker ADDRESS SCHEMA NAME TABLES ATTEMPTS`. Begins when it
reads a line. Each line it writes is an attempt: its number, the epoch it was decided on, and
whether it was written.
"""

from __future__ import annotations

import sys
import time

from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.postgres import PostgresStore
from headgate.catalog.stores.rows import Batch, CatalogClock
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.clock import SystemClock
from headgate.protocol.actions import Sequence, TxnId, Version
from tests.catalog.store_contract.batches import rejection
from tests.catalog.store_contract.rows import commit_row, table_id


def opened(address: str, schema: str) -> CatalogStore:
    if address.startswith("postgresql:"):
        return PostgresStore(address, SystemClock(), schema=schema)
    return SQLiteStore(address, SystemClock())


def attempt(store: CatalogStore, name: str, tables: int) -> str:
    """Write a commit to each table, under one txnId, and a rejection; describe the attempt."""
    with store.read() as unit:
        expected = unit.epoch()
        rows = unit.tables_by_id([table_id(number) for number in range(1, tables + 1)])
    time.sleep(0.001)  # another process may come first
    sequence, txn_id = Sequence(expected.sequence + 1), TxnId(name)
    batch = Batch(
        clocks=[(CatalogClock(sequence, 0), txn_id)],
        commits=[(row.key, commit_row(row.head + 1, sequence, txn_id)) for row in rows],
        tables=[row._replace(head=Version(row.head + 1)) for row in rows],
        rejections=[rejection(f"{name} no")],
        undecided=[txn_id],
    )
    after = store.write_batch(expected, batch)
    return (
        f"{name} {expected.sequence}.{expected.changes} {'stale' if after is None else 'written'}"
    )


def main(address: str, schema: str, name: str, tables: str, attempts: str) -> None:
    store = opened(address, schema)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(attempts)):
        print(attempt(store, f"{name}-{number}", int(tables)), flush=True)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
