"""Requests and answers lost, cut or doubled: what came of it is right, or honestly unknown."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.api.messages import Answer, Proposal, Ratified, Rejected
from headgate.client.http_connections import Reply
from headgate.client.remote import RemoteCatalog, RemotePatience
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.transaction import Committed, OperationInfo
from headgate.clock import RandomIds
from headgate.errors import (
    ConflictError,
    HeadgateError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from headgate.protocol.actions import TableId, Version
from headgate.protocol.commit.content import Staged
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import STAGED, StagedCommit
from headgate.table.log_files import DeltaLog
from tests.faults.server_harness import (
    CLOCK,
    Remembering,
    append_to_all,
    files_under,
    hold,
    lossy,
    remote,
    rows,
    serving,
    session_at,
    session_on,
    strike,
    times_in_log,
    values_in,
    values_of,
)
from tests.kit import req, shows
from tests.kit.proxy import Fault
from tests.kit.server import RunningServer

pytestmark = pytest.mark.faults

FAULTS = [fault for fault in Fault if fault is not Fault.PASS]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for all tests of this file; each has tables of its own."""
    lake = tmp_path_factory.mktemp("answers") / "lake"
    with serving(lake) as running:
        yield running
        assert running.stop() == 0
    hold(lake)


@pytest.fixture
def direct(server: RunningServer) -> Iterator[Session]:
    """A client over a good line, which looks at what became of it."""
    with session_at(server.address) as session:
        yield session


def new_name() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


def new_table(session: Session) -> Table:
    table = session.create_table(new_name(), "value long")
    table.append(rows(0))
    return table


# Each kind of request: what is done over the bad line, and what must be so afterwards


def append(direct: Session, bad: Session) -> None:
    table = new_table(direct)
    done = bad.table(table.name).append(rows(1))
    has_appended_once(direct, table, done)


def append_staged(direct: Session, bad: Session) -> None:
    table = new_table(direct)
    with session_on(bad.catalog, staged=True) as staging:  # type: ignore[arg-type]
        done = staging.table(table.name).append(rows(1))
        has_appended_once(direct, table, done)


def has_appended_once(direct: Session, table: Table, done: Committed) -> None:
    assert done.version == 2
    assert values_in(table) == {0: 1, 1: 1}
    assert times_in_log(direct, table, done.txn_id) == 1


def append_to_two(direct: Session, bad: Session) -> None:
    tables = [new_table(direct), new_table(direct)]
    done = append_to_all(bad, [bad.table(table.name) for table in tables], 1)
    for table in tables:
        assert done.versions[table.id] == 2
        assert values_in(table) == {0: 1, 1: 1}


def create(direct: Session, bad: Session) -> None:
    made = bad.create_table(new_name(), "value long")
    has_been_made(direct, made)


def create_in_three_phases(direct: Session, bad: Session) -> None:
    made = bad.create_table(new_name(), "value long", three_phase=True)
    has_been_made(direct, made)


def has_been_made(direct: Session, made: Table) -> None:
    found = direct.table(made.name)
    assert (found.id, found.version) == (made.id, 0)
    found.append(rows(1))
    assert values_in(found) == {1: 1}


def rename(direct: Session, bad: Session) -> None:
    table, name = new_table(direct), new_name()
    bad.rename(table.name, name)
    assert direct.table(name).id == table.id
    with pytest.raises(NotFoundError):
        direct.table(table.name)


def drop(direct: Session, bad: Session) -> None:
    table = new_table(direct)
    assert bad.drop(table.name) == table.id
    with pytest.raises(NotFoundError):
        direct.table(table.name)
    assert values_in(direct.undrop(table.id)) == {0: 1}


def undrop(direct: Session, bad: Session) -> None:
    table = new_table(direct)
    direct.drop(table.name)
    assert bad.undrop(table.id).id == table.id
    assert values_in(direct.table(table.name)) == {0: 1}


def purge(direct: Session, bad: Session) -> None:
    table = new_table(direct)
    neighbour = new_table(direct)
    direct.drop(table.name)
    bad.purge(table.id)
    assert not files_under(table)
    assert values_in(neighbour) == {0: 1}


def make_namespace(direct: Session, bad: Session) -> None:
    name = f"n_{uuid.uuid4().hex[:12]}"
    bad.create_namespace(name)
    assert f"main.{name}" in map(str, direct.namespaces())


def drop_namespace(direct: Session, bad: Session) -> None:
    name = f"n_{uuid.uuid4().hex[:12]}"
    direct.create_namespace(name)
    bad.drop_namespace(name)
    assert f"main.{name}" not in map(str, direct.namespaces())


def publish(direct: Session, bad: Session) -> None:
    table = new_table(direct)
    assert bad.table(table.name).publish() == 1
    assert DeltaLog(table.snapshot().store).read_published(Version(1)) is not None


def tell_of_a_checkpoint(direct: Session, bad: Session) -> None:
    table = new_table(direct)
    table.publish()
    assert bad.table(table.name).checkpoint() == 1
    found = direct.catalog.resolve(table.id).checkpoint
    assert found is not None
    assert found.last == 1


def resolve(direct: Session, bad: Session) -> None:
    table = new_table(direct)
    assert values_in(bad.table(table.name)) == {0: 1}


@dataclass(frozen=True)
class Kind:
    """A kind of request: which ones are hit, and who sends them."""

    do: Callable[[Session, Session], None]
    method: str
    path: str


KINDS = [
    Kind(append, "POST", "/commits"),
    Kind(append_staged, "POST", "/commits"),
    Kind(append_to_two, "POST", "/proposal"),
    Kind(create, "POST", "/v1/tables"),
    Kind(create_in_three_phases, "POST", "/v1/staging-tables"),
    Kind(create_in_three_phases, "POST", "/v1/tables"),
    Kind(rename, "PATCH", "/v1/tables"),
    Kind(drop, "DELETE", "/v1/tables"),
    Kind(undrop, "PATCH", "/v1/tables"),
    Kind(purge, "DELETE", "purge=true"),
    Kind(make_namespace, "POST", "/v1/namespaces"),
    Kind(drop_namespace, "DELETE", "/v1/namespaces"),
    Kind(publish, "POST", "/publication"),
    Kind(tell_of_a_checkpoint, "POST", "/files"),
    Kind(resolve, "GET", "/v1/names"),
]


@req("CM-42", "CM-43")
@shows("FC4", "FC7", "S3", "S4", "S6", "L1", "L3")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value.replace(" ", "-"))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.do.__name__}{kind.path}")
def test_whatever_happens_to_a_request_it_is_carried_out_once(
    server: RunningServer, direct: Session, kind: Kind, fault: Fault
) -> None:
    with (
        lossy(server, strike(fault, kind.method, kind.path)) as proxy,
        session_at(proxy.address) as bad,
    ):
        kind.do(direct, bad)
        assert fault in [struck for _, struck in proxy.seen]


@req("CM-43")
@shows("FC4", "S6", "L3")
@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
def test_when_every_answer_is_lost_the_outcome_is_unknown_and_nothing_is_deleted(
    server: RunningServer, direct: Session, staged: bool
) -> None:
    table = new_table(direct)
    with (
        lossy(server, strike(Fault.DROP_AFTER, "POST", "/commits", times=1000)) as proxy,
        session_at(proxy.address, staged=staged, unknown_s=0.3) as bad,
    ):
        handle = bad.table(table.name)
        with pytest.raises(OutcomeUnknownError) as unknown:
            handle.append(rows(1))
        assert len(proxy.seen) > 2  # it asked again
        assert len(files_under(table)) == 2
        # Asked by its id over the same line, which loses answers to proposals alone.
        settled = bad.outcome(unknown.value.txn_id)
    assert isinstance(settled, Ratified)
    assert values_in(table) == {0: 1, 1: 1}


@req("CM-43")
@shows("FC4", "S6")
def test_when_no_request_comes_through_the_outcome_is_unknown_too_and_asking_tells(
    server: RunningServer, direct: Session
) -> None:
    table = new_table(direct)
    with (
        lossy(server, strike(Fault.CUT_BODY, "POST", "/commits", times=1000)) as proxy,
        session_at(proxy.address, unknown_s=0.3) as bad,
    ):
        with pytest.raises(OutcomeUnknownError) as unknown:
            bad.table(table.name).append(rows(1))
        assert bad.outcome(unknown.value.txn_id) is None
        # The same again, once the line is good, is the first time.
        proxy.plan = strike(Fault.PASS, "", "")
        assert isinstance(bad.catalog, Remembering)
        again = bad.catalog.propose(bad.catalog.sent[-1])
        assert isinstance(again, Ratified)
    assert values_in(table) == {0: 1, 1: 1}
    assert times_in_log(direct, table, again.txn_id) == 1


def lost_proposal(
    server: RunningServer, table: Table, *, staged: bool
) -> tuple[Proposal, Remembering]:
    """Have a commit ratified whose client hears nothing; give what it sent."""
    with lossy(server, strike(Fault.DROP_AFTER, "POST", "/commits", times=1000)) as proxy:
        bad = session_at(proxy.address, staged=staged, unknown_s=0.0)
        with pytest.raises(OutcomeUnknownError):
            bad.table(table.name).append(rows(1))
        assert isinstance(bad.catalog, Remembering)
        proposal = bad.catalog.sent[0]
        bad.close()
    return proposal, remote(server.address)


def is_there_once(answer: Answer, session: Session, table: Table, version: int) -> None:
    assert isinstance(answer, Ratified)
    assert answer.commits[table.id].version == version
    assert times_in_log(session, table, answer.txn_id) == 1
    assert values_in(table)[1] == 1


@req("CM-42")
@shows("FC5", "S3")
@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
def test_a_resend_is_answered_after_the_commit_was_published_and_its_content_forgotten(
    server: RunningServer, direct: Session, staged: bool
) -> None:
    table = new_table(direct)
    proposal, client = lost_proposal(server, table, staged=staged)
    table.append(rows(2))
    table.publish()
    table.checkpoint()
    held = direct.catalog.ratified_commits(table.id, Version(2), Version(2)).commits
    assert all(commit.content is None for commit in held)
    is_there_once(client.propose(proposal), direct, table, 2)
    client.close()


@req("CM-42")
@shows("FC6", "S3")
def test_a_client_that_gave_up_and_proposes_the_same_at_the_next_version_gets_the_first_answer(
    server: RunningServer, direct: Session
) -> None:
    table = new_table(direct)
    proposal, client = lost_proposal(server, table, staged=False)
    later = replaced(proposal, parts=(replaced(proposal.parts[0], version=Version(3)),))
    is_there_once(client.propose(later), direct, table, 2)
    assert table.snapshot().version == 2
    client.close()


@req("CM-42")
@shows("FC6", "S3")
def test_a_staged_commit_rebased_after_its_answer_was_lost_gets_the_first_answer(
    server: RunningServer, direct: Session
) -> None:
    table = new_table(direct)
    proposal, client = lost_proposal(server, table, staged=True)
    [part] = proposal.parts
    assert isinstance(part.content, Staged)
    log = DeltaLog(table.snapshot().store)
    content = log.read(f"{STAGED}/{part.content.file_name}")
    again = StagedCommit(Version(3), uuid.uuid4())
    log.stage(again, content)
    rebased = replaced(
        part, version=Version(3), content=Staged(file_name=again.name, size=len(content))
    )
    is_there_once(client.propose(replaced(proposal, parts=(rebased,))), direct, table, 2)
    assert table.snapshot().version == 2
    client.close()


@req("CM-42")
@shows("FC7", "S2", "S3")
@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
def test_copies_of_one_request_at_the_same_time_are_one_commit_and_equal_answers(
    server: RunningServer, direct: Session, staged: bool
) -> None:
    table = new_table(direct)
    with (
        lossy(server, strike(Fault.DROP_BEFORE, "POST", "/commits", times=1000)) as proxy,
        session_at(proxy.address, staged=staged, unknown_s=0.0) as bad,
    ):
        with pytest.raises(OutcomeUnknownError):
            bad.table(table.name).append(rows(1))
        assert isinstance(bad.catalog, Remembering)
        proposal = bad.catalog.sent[0]
    answers: list[Answer] = []
    ready = threading.Barrier(8)

    def send() -> None:
        client = remote(server.address)
        ready.wait()
        answers.append(client.propose(proposal))
        client.close()

    copies = [threading.Thread(target=send) for _ in range(8)]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.join()
    assert len(answers) == 8
    # Only whether it is published, and still held, may differ from one moment to the next.
    known = {(a.txn_id, a.sequence, a.timestamp_ms) for a in answers if isinstance(a, Ratified)}
    assert len(known) == 1
    for answer in answers:
        is_there_once(answer, direct, table, 2)


@shows("FC8")
def test_a_resend_is_answered_after_its_staged_file_was_cleaned_away(
    server: RunningServer, direct: Session
) -> None:
    table = new_table(direct)
    proposal, client = lost_proposal(server, table, staged=True)
    table.publish()
    content = proposal.parts[0].content
    assert isinstance(content, Staged)
    table.snapshot().store.delete(f"{STAGED}/{content.file_name}")
    is_there_once(client.propose(proposal), direct, table, 2)
    client.close()


@shows("S5")
def test_a_refusal_that_was_lost_is_the_same_refusal_again(
    server: RunningServer, direct: Session
) -> None:
    table = new_table(direct)
    with (
        lossy(server, strike(Fault.DROP_AFTER, "POST", "/commits")) as proxy,
        session_at(proxy.address) as bad,
    ):
        stale = bad.table(table.name)
        before = stale.snapshot()
        table.set_properties({"headgate.test.first": "1"})
        second = replaced(before.metadata, description="second")
        with pytest.raises(ConflictError):
            stale.commit(before, [second], OperationInfo("SET TBLPROPERTIES"))
        assert isinstance(bad.catalog, Remembering)
        proposal = bad.catalog.sent[-1]
        assert isinstance(bad.catalog.propose(proposal), Rejected)
    assert times_in_log(direct, table, proposal.txn_id) == 0


@shows("FR7")
def test_while_the_catalog_is_down_pinned_reads_go_on_and_new_ones_say_unavailable(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "lake") as server:
        session = session_at(server.address, lost_s=0.5, unknown_s=0.5)
        table = session.create_table("t", "value long")
        table.append(rows(1, 2))
        table.publish()
        pinned = table.snapshot()
        server.kill()
        assert values_of(pinned) == {1: 1, 2: 1}
        for question in (
            table.to_arrow,
            lambda: session.table("t"),
            session.tables,
            lambda: session.read_cut(["t"]),
        ):
            began = time.monotonic()
            with pytest.raises(UnavailableError):
                question()
            # All it may take is the patience this client was given; wide, for slow machines.
            assert time.monotonic() - began < 15
        # Nothing was sent, or the outcome is unknown; never is it called done or refused.
        with pytest.raises((UnavailableError, OutcomeUnknownError)):
            table.append(rows(3))
        server.start()
        assert values_in(table) == {1: 1, 2: 1}
        table.append(rows(3))
        assert values_in(table) == {1: 1, 2: 1, 3: 1}
        session.close()


# Answers that are none


class Same:
    """Gives the same reply to every request."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def send(self, *_: object) -> Reply:
        return self._reply

    def close(self) -> None:
        pass


def answering(status: int, content: bytes) -> RemoteCatalog:
    """Connect to something that always gives the same answer."""
    return RemoteCatalog(
        "http://nowhere",
        clock=CLOCK,
        ids=RandomIds(CLOCK),
        patience=RemotePatience(lost_s=0.05),
        sender=Same(Reply(status, content)),
    )


MISTAKE = b'{"type":"urn:headgate:error","title":"","status":500,"code":"error","detail":"A bug."}'


@req("CM-43")
@shows("S6")
@pytest.mark.parametrize(
    ("status", "content"),
    [
        pytest.param(500, MISTAKE, id="our own mistake"),
        pytest.param(500, b"", id="nothing"),
        pytest.param(502, b"<html>bad gateway</html>", id="a gateway's"),
        pytest.param(200, b"<html>welcome to this hotel</html>", id="a page"),
        pytest.param(200, b"{}", id="not an answer"),
    ],
)
def test_an_answer_that_decides_nothing_leaves_the_outcome_unknown(
    status: int, content: bytes
) -> None:
    catalog = answering(status, content)
    proposal = Proposal(txn_id=str(RandomIds().ordered()), parts=())  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknownError):
        catalog.propose(proposal)
    with pytest.raises(OutcomeUnknownError):
        catalog.publish(TableId("0"))
    with pytest.raises(HeadgateError) as asked:
        catalog.tables()
    assert not isinstance(asked.value, OutcomeUnknownError)  # a question leaves nothing open
