"""Servers to be hurt, clients that remember, and what all are held to at the end."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import headgate
from headgate.api.messages import Answer, Proposal
from headgate.client import arrow_io
from headgate.client.http_connections import Connections, Reply
from headgate.client.remote import RemoteCatalog, RemotePatience
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.transaction import Committed, Patience
from headgate.clock import RandomIds, SystemClock
from headgate.protocol.actions import TxnId
from headgate.storage import locations
from headgate.table.snapshot import Snapshot
from tests.faults.harness import check_lake
from tests.kit.conditions import eventually
from tests.kit.proxy import Fault, HttpProxy, Plan, Request
from tests.kit.server import RunningServer

# What a killed publisher held lapses soon.
SOON = {"HEADGATE_LEASE_MS": "300", "HEADGATE_PUBLISH_EVERY_MS": "200"}
CLOCK = SystemClock()


@contextlib.contextmanager
def serving(
    store: str | Path, *options: str, fail: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[RunningServer]:
    """Run a server that may have a point to die at; `start()` again starts a healthy one."""
    server = RunningServer(str(store), *options, environment={**SOON, **(environment or {})})
    try:
        server.start({"HEADGATE_FAIL": fail})
        yield server
    finally:
        server.__exit__()


class Remembering(RemoteCatalog):
    """A client that keeps what it sent, so that a test can send it again."""

    def __init__(self, *args: Any, sender: Anyone, **named: Any) -> None:
        super().__init__(*args, sender=sender, **named)
        self.sent: list[Proposal] = []
        self.heard = sender.heard

    def propose(self, proposal: Proposal) -> Answer:
        self.sent.append(proposal)
        return super().propose(proposal)


class Anyone:
    """Sends each request to any one of several servers, and keeps how it was answered."""

    def __init__(self, addresses: list[str], answer_s: float, seed: int = 0) -> None:
        self._servers = [
            Connections(address, connect_s=5, answer_s=answer_s) for address in addresses
        ]
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self.heard: list[tuple[int, str | None]] = []

    def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        with self._lock:
            server = self._chance.choice(self._servers)
        reply = server.send(method, path, headers, content)
        self.heard.append((reply.status, reply.retry_after))
        return reply

    def close(self) -> None:
        for server in self._servers:
            server.close()


def remote(*addresses: str, lost_s: float = 20.0, answer_s: float = 60.0) -> Remembering:
    """Connect to a server, or to any of several with each request."""
    return Remembering(
        addresses[0],
        clock=CLOCK,
        ids=RandomIds(CLOCK),
        patience=RemotePatience(lost_s=lost_s, answer_s=answer_s),
        sender=Anyone(list(addresses), answer_s),
    )


def session_on(catalog: Remembering, *, staged: bool = False, unknown_s: float = 60.0) -> Session:
    """Open a session on a connection; a `staged` one sends nothing inline."""
    return Session(
        catalog,
        clock=CLOCK,
        ids=RandomIds(CLOCK),
        store_for=locations.store_for,
        patience=Patience(inline_bytes=0 if staged else 1 << 20, unknown_wait_s=unknown_s),
        on_close=catalog.close,
    )


def session_at(
    *addresses: str, staged: bool = False, unknown_s: float = 60.0, lost_s: float = 20.0
) -> Session:
    return session_on(remote(*addresses, lost_s=lost_s), staged=staged, unknown_s=unknown_s)


# Faults on the way


def strike(fault: Fault, method: str, path: str, times: int = 1) -> Plan:
    """Plan a fault for the first requests that fit, and none for the others."""
    struck = 0

    def plan(request: Request) -> Fault:
        nonlocal struck
        if struck >= times or request.method != method or path not in request.path:
            return Fault.PASS
        struck += 1
        return fault

    return plan


@contextlib.contextmanager
def lossy(server: RunningServer, plan: Plan) -> Iterator[HttpProxy]:
    with HttpProxy(("127.0.0.1", server.port), plan) as proxy:
        yield proxy


# What is written, and what is found


def rows(*values: int) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.int64())})


def values_of(snapshot: Snapshot) -> Counter[int]:
    return Counter(arrow_io.to_arrow(snapshot, None, None).column("value").to_pylist())


def values_in(table: Table) -> Counter[int]:
    return Counter(table.to_arrow().column("value").to_pylist())


def append_to_all(session: Session, tables: list[Table], value: int) -> Committed:
    """Append the same row to several tables, to all or to none."""
    changes = [table._writing(table.snapshot(), rows(value)) for table in tables]
    return session._committer.commit(changes)


def times_in_log(session: Session, table: Table, txn_id: TxnId) -> int:
    """Count how often a transaction is in a table's history."""
    return sum(entry.commit.txn_id == txn_id for entry in table.log())


def files_under(table: Table) -> set[Path]:
    """Name every data file, whether the table still knows it or not."""
    root = Path(locations.decode(table.location.removeprefix("file://")))
    return {path for path in root.rglob("*.parquet") if "_delta_log" not in path.parts}


def hold(store: str | Path) -> None:
    """Hold all that is left in a store, whose servers are gone, to what must be."""
    with headgate.connect(str(store), publisher=False) as session:
        check_lake(session)
        for entry in session.tables():
            table = session.table_by_id(entry.table_id)
            assert table.publish() == table.version
        check_lake(session)


class Writer(threading.Thread):
    """Repeats an action until stopped, in a thread of its own, and keeps what went wrong."""

    def __init__(self, work: Callable[[Writer], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.is_stopping = threading.Event()
        self.tried: list[int] = []
        self.acknowledged: list[int] = []
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._work(self)
        except BaseException as error:
            self.error = error

    def wait_for(self, count: int, within_s: float = 60.0) -> None:
        """Wait until so many of its rows were acknowledged."""
        eventually(lambda: len(self.acknowledged) >= count or not self.is_alive(), within_s)
        if self.error is not None:
            raise self.error

    def end(self, within_s: float = 90.0) -> None:
        """Let it end, and raise what it died of."""
        self.is_stopping.set()
        self.join(within_s)
        assert not self.is_alive(), "a request was neither answered nor did its connection end"
        if self.error is not None:
            raise self.error


def appending(address: str, table: str, first: int, *, staged: bool = False) -> Writer:
    """Append one row after the other, each acknowledged before the next is sent."""

    def work(writer: Writer) -> None:
        with session_at(address, staged=staged) as session:
            handle = session.table(table)
            value = first
            while not writer.is_stopping.is_set():
                writer.tried.append(value)
                handle.append(rows(value))
                writer.acknowledged.append(value)
                value += 1

    return Writer(work)


def check_rows(found: Counter[int], writers: list[Writer]) -> None:
    """Every acknowledged row is there once, and no row that was not sent."""
    assert set(found.values()) <= {1}, [value for value, times in found.items() if times > 1]
    for writer in writers:
        assert set(writer.acknowledged) <= set(found), "an acknowledged row is lost"
    assert set(found) <= {value for writer in writers for value in writer.tried}
