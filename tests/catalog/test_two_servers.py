"""Two servers on one PostgreSQL decide as one."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.api.messages import Part, Proposal, Ratified, Rejected, VersionTaken
from headgate.catalog.service import Catalog
from headgate.catalog.stores.postgres import PostgresStore
from headgate.catalog.stores.writer import WriteUnit
from headgate.clock import RandomIds, SystemClock
from headgate.errors import OutcomeUnknownError, UnavailableError
from headgate.names import TableName
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit.content import Staged
from headgate.protocol.paths import StagedCommit
from headgate.settings import Settings
from tests.catalog.conftest import catalog_on
from tests.kit import req, shows
from tests.kit.builders import add, file_content, inline, metadata, new_table_id, protocol, remove
from tests.kit.conditions import eventually
from tests.kit.postgres import Postgres
from tests.kit.proxy import ByteProxy, Cut

PATIENCE = 20  # seconds until a test fails for a call that hangs
IDS = RandomIds()


def txn() -> TxnId:
    return TxnId(str(IDS.ordered()))


@dataclass
class Site:
    """A database, a place for tables, and as many servers on them as one likes."""

    server: Postgres
    schema: str
    root: Path
    closing: ExitStack

    def open(self, address: str | None = None, **more: float) -> Catalog:
        clock = SystemClock()
        address = address or self.server.address()
        store = PostgresStore(address, clock, schema=self.schema, **more)
        # The files of these commits are nowhere.
        settings = Settings(verify_staged=0)
        catalog = catalog_on(store, self.root, clock=clock, ids=IDS, settings=settings)
        self.closing.callback(catalog.close)
        return catalog

    def start(self, threads: int, *tables: TableId) -> subprocess.Popen[str]:
        """Start a server in a process of its own; it waits for a line to begin."""
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.catalog.postgres_worker"),
                *(self.server.address(), self.schema, str(self.root), str(threads), *tables),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.closing.callback(_end, process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> list[tuple[int, int, str]]:
    """What a server acknowledged, once it has ended: table, version, txnId."""
    assert process.stdout is not None
    lines = process.stdout.read().split("\n")[:-1]  # of one that was killed the last may be cut
    process.wait()
    return [(int(table), int(version), txn_id) for table, version, txn_id in map(str.split, lines)]


@pytest.fixture
def site(postgres_server: Postgres, tmp_path: Path) -> Iterator[Site]:
    with postgres_server.schema() as schema, ExitStack() as closing:
        yield Site(postgres_server, schema, tmp_path, closing)


def create(catalog: Catalog, name: str = "t") -> TableId:
    table_id = new_table_id()
    first = inline(protocol(), metadata(table_id, "id long"), operation="CREATE TABLE")
    catalog.create_table(TableName.parse(name), table_id, txn(), first)
    return table_id


def append(table_id: TableId, version: int, txn_id: TxnId | None = None) -> Proposal:
    txn_id = txn_id or txn()
    content = inline(add(f"{txn_id}.parquet"))
    return Proposal(
        txn_id=txn_id, parts=(Part(table_id=table_id, version=Version(version), content=content),)
    )


def commits_of(catalog: Catalog, table_id: TableId) -> list[tuple[int, str]]:
    return [(entry.commit.version, entry.commit.txn_id) for entry in catalog.timeline(table_id)]


# One after the other


@req("CA-03", "CM-10", "CM-11")
@shows("FS1")
def test_what_one_server_acknowledged_the_other_knows_at_once_and_decides_by(site: Site) -> None:
    one, two = site.open(), site.open()
    table_id = create(one)
    seen = two.resolve(table_id)
    assert seen.latest == 0
    assert isinstance(one.propose(append(table_id, 1)), Ratified)
    assert two.resolve(table_id).latest == 1

    # Staged for a version that is taken by now, and an append that may be moved.
    staged, txn_id = StagedCommit(Version(1), IDS.random()), txn()
    content = file_content(add("x"), txn_id=txn_id, timestamp_ms=seen.timestamp_ms + 1)
    two._log_of(seen.location).stage(staged, content)
    part = Part(
        table_id=table_id,
        version=Version(1),
        content=Staged(file_name=staged.name, size=len(content)),
    )
    taken = two.propose(Proposal(txn_id=txn_id, parts=(part,)))
    assert isinstance(taken, VersionTaken)
    assert taken.latest == {table_id: 1}
    moved = two.propose(append(table_id, 1))
    assert isinstance(moved, Ratified)
    assert moved.commits[table_id].version == 2
    assert one.resolve(table_id).latest == 2


@req("CA-03", "CM-42")
@shows("FS1", "FC7")
def test_one_proposal_sent_to_both_servers_is_ratified_once_and_answered_alike(site: Site) -> None:
    catalogs = [site.open(), site.open()]
    table_id = create(catalogs[0])
    for _ in range(20):
        proposal = append(table_id, 1)
        start = threading.Barrier(2)

        def send(
            catalog: Catalog, proposal: Proposal = proposal, start: threading.Barrier = start
        ) -> object:
            start.wait(PATIENCE)
            return catalog.propose(proposal)

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(send, catalogs)
        assert isinstance(first, Ratified)
        assert first == second
    assert len(commits_of(catalogs[1], table_id)) == 21


@req("CA-03", "CM-11")
@shows("FS1")
def test_two_servers_cannot_both_remove_one_file(site: Site) -> None:
    one, two = site.open(), site.open()
    table_id = create(one)
    file = add("a.parquet")
    first = Part(table_id=table_id, version=Version(1), content=inline(file))
    assert isinstance(one.propose(Proposal(txn_id=txn(), parts=(first,))), Ratified)

    def delete(catalog: Catalog) -> object:
        part = Part(table_id=table_id, version=Version(2), content=inline(remove(file)))
        return catalog.propose(Proposal(txn_id=txn(), parts=(part,)))

    assert isinstance(delete(one), Ratified)
    assert isinstance(delete(two), Rejected)


# At once


@pytest.mark.slow
@req("CA-03", "CM-10", "CM-11")
@shows("FS1", "S2")
@pytest.mark.parametrize("tables", [1, 8])
def test_servers_that_propose_at_once_take_every_version_once_and_each_gets_its_share(
    site: Site, tables: int
) -> None:
    catalog = site.open()
    ids = [create(catalog, f"t{number}") for number in range(tables)]
    servers = [site.start(4, *ids) for _ in range(2)]
    for server in servers:
        say(server)
    time.sleep(3)
    for server in servers:
        say(server)
    acknowledged = [heard(server) for server in servers]
    assert [server.returncode for server in servers] == [0, 0]
    fewest, most = sorted(map(len, acknowledged))
    assert fewest >= most / 2, (fewest, most)
    everything = [commit for one in acknowledged for commit in one]
    for number, table_id in enumerate(ids):
        mine = sorted((version, txn_id) for of, version, txn_id in everything if of == number)
        assert [version for version, _ in mine] == list(range(1, len(mine) + 1))
        assert commits_of(catalog, table_id)[1:] == mine
    with catalog._store.read() as unit:  # one number each, and none left out
        assert unit.clock().sequence == len(everything) + tables


@pytest.mark.slow
@req("CA-03")
@shows("FS1", "FC9")
def test_a_server_killed_in_the_midst_holds_up_nobody_and_loses_nothing(site: Site) -> None:
    catalog = site.open()
    table_id = create(catalog)
    doomed, other = site.start(4, table_id), site.start(2, table_id)
    for server in (doomed, other):
        say(server)
    time.sleep(1)
    doomed.kill()
    time.sleep(1)
    say(other)
    acknowledged = [*heard(doomed), *heard(other)]
    assert other.returncode == 0
    kept = commits_of(catalog, table_id)[1:]
    assert [version for version, _ in kept] == list(range(1, len(kept) + 1))
    assert {(version, txn_id) for _, version, txn_id in acknowledged} <= set(kept)
    assert max(Counter(txn_id for _, txn_id in kept).values()) == 1
    # Of each thread, one unanswered proposal of the killed process may be there.
    assert len(kept) <= len(acknowledged) + 4


@req("CA-03")
@shows("FS1", "FC9")
def test_a_server_killed_while_it_waits_for_the_lock_holds_up_nobody_and_loses_nothing(
    site: Site,
) -> None:
    catalog = site.open()
    ids = [create(catalog, f"t{number}") for number in range(4)]
    doomed, other = site.start(4, *ids), site.start(4, *ids)
    for server in (doomed, other):
        say(server)
    waiting = (
        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%clock%'"
    )

    def count_waiting() -> int:
        with site.server.connect() as admin:
            return len(admin.execute(waiting).fetchall())

    for _ in range(3):  # both have committed between
        time.sleep(0.2)
        with catalog._store.write():
            eventually(lambda: count_waiting() == 2)
    with catalog._store.write():
        eventually(lambda: count_waiting() == 2)
        doomed.kill()
        doomed.wait()
    time.sleep(0.5)
    say(other)
    heard_of_doomed, heard_of_other = heard(doomed), heard(other)
    assert other.returncode == 0
    assert heard_of_doomed
    kept = {
        (number, version, txn_id)
        for number, table_id in enumerate(ids)
        for version, txn_id in commits_of(catalog, table_id)[1:]
    }
    acknowledged = {*heard_of_doomed, *heard_of_other}
    assert acknowledged <= kept
    assert len({txn_id for *_, txn_id in kept}) == len(kept)
    # Of each thread, one unanswered proposal of the killed process may be there.
    assert len(kept) <= len(acknowledged) + 4
    # The other one went on.
    assert len(heard_of_other) > len(heard_of_doomed)


@req("CA-03")
@shows("FS1")
def test_a_server_that_stops_in_mid_batch_is_passed_over_and_finds_out(site: Site) -> None:
    stopped, other = site.open(pause=0.3), site.open()
    table_id = create(other)
    is_in, go_on = threading.Event(), threading.Event()

    def stop(unit: WriteUnit) -> None:
        unit.set_setting("late", "I am")
        is_in.set()
        assert go_on.wait(PATIENCE)

    holding = stopped._ratifier.submit("stop", stop)
    assert is_in.wait(PATIENCE)
    late = append(table_id, 1)
    with ThreadPoolExecutor(1) as pool:
        proposing = pool.submit(stopped.propose, late)
        answer = other.propose(append(table_id, 1))  # waits until the server ended the other
        assert isinstance(answer, Ratified)
        assert answer.commits[table_id].version == 1
        go_on.set()
        with pytest.raises(UnavailableError):
            holding.result(PATIENCE)
        try:
            moved = proposing.result(PATIENCE)
        except UnavailableError:  # it was in the same batch: nothing happened
            moved = stopped.propose(late)
    assert isinstance(moved, Ratified)
    assert moved.commits[table_id].version == 2  # and not 1, as it was when it stopped
    assert [version for version, _ in commits_of(other, table_id)] == [0, 1, 2]
    with other._store.read() as unit:
        assert unit.setting("late") is None


# Connections that break under a catalog


@contextmanager
def cut_at_the_commit(
    site: Site, is_committed: bool, *, times: int
) -> Iterator[tuple[Catalog, Proposal, Cut]]:
    """Give a proposal, and a catalog whose connection is cut each time that it writes it."""
    with ByteProxy(("127.0.0.1", site.server.port)) as proxy:
        address = site.server.address().replace(str(site.server.port), str(proxy.port))
        catalog = site.open(address)
        table_id = create(catalog)
        assert isinstance(catalog.propose(append(table_id, 1)), Ratified)
        proposal = append(table_id, 2)
        written = proposal.txn_id.encode()
        cut = Cut(written, is_passed_on=is_committed, waits_for_answer=True, times=times)
        proxy.cut = cut
        yield catalog, proposal, cut
        catalog.close()


@req("CM-43")
@shows("FS7", "FC4")
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_catalog_whose_connection_is_lost_at_the_commit_answers_unknown_and_goes_on(
    site: Site, is_committed: bool
) -> None:
    # The batch is sent once more, which cannot write it twice: that is lost, too.
    with cut_at_the_commit(site, is_committed, times=2) as (catalog, proposal, _):
        [part] = proposal.parts
        table_id = part.table_id
        with pytest.raises(OutcomeUnknownError) as unknown:
            catalog.propose(proposal)
        assert unknown.value.txn_id == proposal.txn_id
        outcome = settled(lambda: catalog.outcome(proposal.txn_id))
        assert (outcome is not None) is (is_committed)
        again = catalog.propose(proposal)  # the same again settles it, in the same process
        assert isinstance(again, Ratified)
        assert again.commits[table_id].version == 2
        assert outcome in (None, again)
        assert len(commits_of(catalog, table_id)) == 3


@req("CM-43")
@shows("FS7", "FC4", "S3")
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_connection_lost_once_at_the_commit_is_replaced_and_the_commit_made_once(
    site: Site, is_committed: bool
) -> None:
    with cut_at_the_commit(site, is_committed, times=1) as (catalog, proposal, cut):
        [part] = proposal.parts
        table_id = part.table_id
        answer = catalog.propose(proposal)
        assert cut.done == 1
        assert isinstance(answer, Ratified)
        assert answer.commits[table_id].version == 2
        assert len(commits_of(catalog, table_id)) == 3


def settled(ask: Callable[[], object]) -> object:
    """Ask once more if the connection that answers is one of those that were cut."""
    try:
        return ask()
    except UnavailableError:
        return ask()


@pytest.mark.slow
@shows("FS7")
def test_a_catalog_whose_connections_are_ended_again_and_again_loses_and_doubles_nothing(
    site: Site,
) -> None:
    catalog = site.open()
    table_id = create(catalog)
    is_over = threading.Event()

    def propose(_: int) -> list[tuple[int, str]]:
        acknowledged: list[tuple[int, str]] = []
        while not is_over.is_set():
            proposal = append(table_id, 1)
            while True:
                try:
                    answer = catalog.propose(proposal)
                    break
                except (OutcomeUnknownError, UnavailableError):
                    continue
            assert isinstance(answer, Ratified)
            acknowledged.append((answer.commits[table_id].version, proposal.txn_id))
        return acknowledged

    with ThreadPoolExecutor(4) as pool, site.server.connect() as admin:
        proposing = [pool.submit(propose, number) for number in range(4)]
        try:
            for _ in range(30):
                time.sleep(0.05)
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'headgate'"
                )
        finally:
            is_over.set()
        acknowledged = sorted(commit for one in proposing for commit in one.result(PATIENCE))
    assert commits_of(catalog, table_id)[1:] == acknowledged
