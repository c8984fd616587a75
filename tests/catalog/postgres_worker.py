"""One server of several on one PostgreSQL: proposes to tables until it is asked to stop.

Run as `python -m tests.catalog.postgres_worker ADDRESS SCHEMA ROOT THREADS TABLE...`. Begins when
it reads a line; each line it writes is a table's number, a version and a txnId, acknowledged.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from headgate.api.messages import Part, Proposal, Ratified
from headgate.catalog.stores.postgres import PostgresStore
from headgate.clock import RandomIds, SystemClock
from headgate.errors import OutcomeUnknownError, UnavailableError
from headgate.protocol.actions import TableId, TxnId, Version
from tests.catalog.conftest import catalog_on
from tests.kit.builders import add, inline


def main(address: str, schema: str, root: str, threads: str, *tables: str) -> None:
    clock = SystemClock()
    ids = RandomIds(clock)
    store = PostgresStore(address, clock, schema=schema)
    catalog = catalog_on(store, Path(root), clock=clock, ids=ids)
    is_over = threading.Event()

    def work(number: int) -> None:
        count = 0
        while not is_over.is_set():
            count += 1
            table = count % len(tables)
            txn_id = TxnId(str(ids.ordered()))
            proposal = Proposal(
                txn_id=txn_id,
                parts=(
                    Part(
                        table_id=TableId(tables[table]),
                        version=Version(1),  # an append: the catalog moves it
                        content=inline(add(f"{txn_id}.parquet")),
                    ),
                ),
            )
            while True:
                try:
                    answer = catalog.propose(proposal)
                    break
                except (OutcomeUnknownError, UnavailableError):
                    continue  # the same again, under the same txnId
            assert isinstance(answer, Ratified), answer
            [commit] = answer.commits.values()
            # One write, so that lines of threads do not run into each other.
            sys.stdout.write(f"{table} {commit.version} {txn_id}\n")
            sys.stdout.flush()

    print("ready", flush=True)
    sys.stdin.readline()
    working = [threading.Thread(target=work, args=(number,)) for number in range(int(threads))]
    for thread in working:
        thread.start()
    sys.stdin.readline()
    is_over.set()
    for thread in working:
        thread.join()
    catalog.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
