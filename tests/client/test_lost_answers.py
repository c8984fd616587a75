"""A lost answer, and then another one to the repeated request: a refusal, a busy server.

After a lost answer the commit may be ratified. So the client may report it only as ratified or as
unknown, and must not delete its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from headgate import errors
from headgate.api import bodies, problems
from headgate.api.messages import Ratified, TableEntry
from headgate.catalog.service import Catalog
from headgate.client.http_connections import LostError, Reply, Sender
from headgate.client.remote import RemoteCatalog, RemotePatience
from headgate.client.session import Session
from headgate.client.transaction import Patience
from headgate.clock import RandomIds
from headgate.errors import (
    BusyError,
    ConflictError,
    HeadgateError,
    OutcomeUnknownError,
    Retry,
    UnavailableError,
)
from headgate.names import SchemaName
from headgate.protocol.actions import TxnId
from headgate.settings import Settings
from headgate.storage import locations
from tests.client.conftest import World, ids_in, rows
from tests.http.conftest import Served, serving
from tests.kit import req, shows
from tests.kit.builders import ManualClock
from tests.kit.faulty_catalogs import Fault, ScriptedCatalog, unavailable, unknown
from tests.kit.faulty_stores import CountingStore

LOST = Fault(unavailable, takes_effect=True)
NEVER_ARRIVED = Fault(unavailable)


def kinds_of_errors() -> list[type[HeadgateError]]:
    """Return every class of errors, base classes included."""
    found = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, HeadgateError)
    }
    return sorted(found, key=lambda kind: kind.code)


def raising(kind: type[HeadgateError]) -> Callable[[TxnId], HeadgateError]:
    return lambda txn_id: problems.to_error(_problem(kind))


def _problem(kind: type[HeadgateError]) -> problems.Problem:
    status = problems.status_of(kind.code)
    return problems.Problem(
        type="", title="", status=status, code=kind.code, detail="It does not go."
    )


ERRORS = pytest.mark.parametrize("kind", kinds_of_errors(), ids=lambda kind: kind.code)


def deletions(world: World) -> int:
    return sum(store.count("delete") for store in world.stores.values())


class TestCommitsThroughThePort:
    @req("CM-43")
    @shows("FC4", "FX4")
    @ERRORS
    @pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
    def test_an_error_after_a_lost_answer_is_settled_or_reported_as_unknown(
        self, minimal_world: World, kind: type[HeadgateError], staged: bool
    ) -> None:
        minimal_world.make()
        catalog = ScriptedCatalog(minimal_world.catalog, LOST, Fault(raising(kind)))
        session = minimal_world.session(catalog, **({"inline_bytes": 0} if staged else {}))
        table = session.table("orders")
        if kind.retry is Retry.SAME_AGAIN:
            assert table.append(rows(1)).version == 1
            assert catalog.calls["propose"] == 3
        else:
            with pytest.raises(OutcomeUnknownError) as error:
                table.append(rows(1))
            assert error.value.txn_id == catalog.proposals[0].txn_id
            assert "It does not go" in str(error.value)
            assert catalog.calls["propose"] == 2  # it is for the caller to ask again
        assert len(set(map(repr, catalog.proposals))) == 1
        assert deletions(minimal_world) == 0
        assert ids_in(minimal_world.session().table("orders").to_arrow()) == [1]

    @ERRORS
    def test_an_error_that_is_not_after_a_lost_answer_is_reported_as_it_is(
        self, minimal_world: World, kind: type[HeadgateError]
    ) -> None:
        minimal_world.make()
        catalog = ScriptedCatalog(minimal_world.catalog, *[Fault(raising(kind))] * 2)
        table = minimal_world.session(catalog, inline_bytes=0).table("orders")
        if kind.retry is Retry.SAME_AGAIN:
            assert table.append(rows(1)).version == 1
            return
        with pytest.raises(kind):
            table.append(rows(1))
        assert minimal_world.session().table("orders").version == 0

    @req("CM-43")
    @pytest.mark.parametrize("lost", [unavailable, unknown])
    def test_a_server_that_stays_busy_after_a_lost_answer_leaves_the_outcome_unknown(
        self, minimal_world: World, lost: Callable[[TxnId], Exception]
    ) -> None:
        minimal_world.make()
        busy = [Fault(raising(BusyError))] * 10_000
        catalog = ScriptedCatalog(minimal_world.catalog, Fault(lost, takes_effect=True), *busy)
        with pytest.raises(OutcomeUnknownError):
            minimal_world.session(catalog).table("orders").append(rows(1))
        assert deletions(minimal_world) == 0
        assert 300 <= minimal_world.clock.monotonic() < 305

    @req("CM-43")
    def test_a_busy_server_that_loses_an_answer_in_between_leaves_the_outcome_unknown(
        self, minimal_world: World
    ) -> None:
        minimal_world.make()
        busy = Fault(raising(BusyError))
        catalog = ScriptedCatalog(minimal_world.catalog, busy, busy, LOST, *[busy] * 10_000)
        with pytest.raises(OutcomeUnknownError):
            minimal_world.session(catalog).table("orders").append(rows(1))

    @req("CM-42", "CM-43")
    @shows("FC4")
    @pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
    def test_errors_of_every_passing_kind_in_a_row_end_in_the_first_answer(
        self, minimal_world: World, staged: bool
    ) -> None:
        minimal_world.make()
        passing = [Fault(raising(kind)) for kind in kinds_of_errors() if _passes(kind)]
        catalog = ScriptedCatalog(minimal_world.catalog, *passing, LOST, *passing, LOST, None)
        session = minimal_world.session(catalog, **({"inline_bytes": 0} if staged else {}))
        assert session.table("orders").append(rows(1)).version == 1
        assert len({repr(proposal) for proposal in catalog.proposals}) == 1
        assert ids_in(minimal_world.session().table("orders").to_arrow()) == [1]

    @req("CM-42", "CM-44")
    def test_a_taken_version_after_a_request_that_never_arrived_is_made_good(
        self, world: World
    ) -> None:
        world.make()
        catalog = ScriptedCatalog(world.catalog, NEVER_ARRIVED)
        table = world.session(catalog, inline_bytes=0).table("orders")
        catalog.overtakers = [lambda: world.session().table("orders").append(rows(2))]
        assert table.append(rows(1)).version == 2
        assert ids_in(world.session().table("orders").to_arrow()) == [1, 2]

    @req("CM-42", "CM-43")
    @shows("FC6")
    def test_a_lost_answer_and_then_a_winner_do_not_commit_it_twice(self, world: World) -> None:
        world.make()
        catalog = ScriptedCatalog(world.catalog, LOST, NEVER_ARRIVED)
        table = world.session(catalog, inline_bytes=0).table("orders")
        catalog.overtakers = [
            lambda: None,
            lambda: world.session().table("orders").append(rows(2)),
        ]
        assert table.append(rows(1)).version == 1
        assert ids_in(world.session().table("orders").to_arrow()) == [1, 2]

    @req("CM-47")
    def test_a_conflict_after_a_request_that_never_arrived_is_a_conflict(
        self, full_world: World
    ) -> None:
        """The catalog records what it rejects: the copy that was lost cannot be ratified later."""
        full_world.make().append(rows(1))
        catalog = ScriptedCatalog(full_world.catalog, NEVER_ARRIVED)
        table = full_world.session(catalog).table("orders")
        catalog.overtakers = [lambda: full_world.session().table("orders").overwrite(rows(2))]
        with pytest.raises(ConflictError):
            table.overwrite(rows(3))
        settled = full_world.catalog.propose(catalog.proposals[0])
        assert not isinstance(settled, Ratified)
        assert ids_in(full_world.session().table("orders").to_arrow()) == [2]


def _passes(kind: type[HeadgateError]) -> bool:
    return kind.retry is Retry.SAME_AGAIN


# Over HTTP


class ScriptedSender:
    """Sends the requests of one method by the steps of a script, and all others plainly.

    A step gets the request as a function, and returns the reply or raises.
    """

    def __init__(self, inner: Sender, method: str = "POST") -> None:
        self.inner = inner
        self.method = method
        self.script: list[Callable[[Callable[[], Reply]], Reply]] = []
        self.sent = 0

    def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        def carry() -> Reply:
            return self.inner.send(method, path, headers, content)

        if method != self.method:
            return carry()
        self.sent += 1
        return self.script.pop(0)(carry) if self.script else carry()

    def close(self) -> None:
        pass


def lost(carry: Callable[[], Reply]) -> Reply:
    carry()
    raise LostError("the line went dead")


def never_left(carry: Callable[[], Reply]) -> Reply:
    raise UnavailableError("Nobody listens.")


def instead(reply: Reply, *, takes_effect: bool = False) -> Callable[[Callable[[], Reply]], Reply]:
    def step(carry: Callable[[], Reply]) -> Reply:
        if takes_effect:
            carry()
        return reply

    return step


def cut(carry: Callable[[], Reply]) -> Reply:
    """Deliver half of the answer."""
    reply = carry()
    return Reply(reply.status, reply.content[: len(reply.content) // 2])


def problem(kind: type[HeadgateError]) -> Reply:
    return Reply(problems.status_of(kind.code), bodies.encode(_problem(kind)))


PROXY = {
    f"a proxy's {status}": instead(Reply(status, b"<html>no</html>"))
    for status in (301, 400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504)
}
ANSWERS: dict[str, Callable[[Callable[[], Reply]], Reply]] = {
    **{kind.code: instead(problem(kind)) for kind in kinds_of_errors()},
    **PROXY,
    "a problem of a newer server": instead(
        Reply(409, b'{"type":"x","title":"x","status":409,"code":"of-tomorrow","detail":"x"}')
    ),
    "success without a body": instead(Reply(200, b"")),
    "success with another body": instead(Reply(200, b'{"n":1}')),
    "a timeout": lost,
    "a refused connection": never_left,
}


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    for served in serving(tmp_path / "lake", Settings()):
        yield Wire(served)


class Wire:
    """A server, and a session on it whose requests go wrong by script."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.clock = ManualClock(sleep_moves_date=True)
        self.sender = ScriptedSender(served.transport)
        self.store: CountingStore | None = None
        ids = RandomIds()
        self.remote = RemoteCatalog(
            "http://testserver",
            clock=self.clock,
            ids=ids,
            patience=RemotePatience(lost_s=1, busy_s=1),
            sender=self.sender,
        )
        self.session = Session(
            self.remote, clock=self.clock, ids=ids, store_for=self.store_for, patience=Patience()
        )

    def store_for(self, location: str) -> CountingStore:
        self.store = self.store or CountingStore(locations.store_for(location))
        return self.store

    def rows(self) -> pa.Table:
        plain = self.served.remote()
        session = Session(plain, clock=self.clock, ids=RandomIds(), store_for=locations.store_for)
        return session.table("orders").to_arrow()


class TestCommitsOverHttp:
    @req("CM-43")
    @shows("FC4", "FX4")
    @pytest.mark.parametrize("answer", ANSWERS)
    def test_whatever_follows_a_lost_answer_is_settled_or_reported_as_unknown(
        self, wire: Wire, answer: str
    ) -> None:
        table = wire.session.create_table("orders", "id long, day date")
        wire.sender.script = [lost, ANSWERS[answer]]
        try:
            assert table.append(rows(1)).version == 1
        except OutcomeUnknownError as error:
            outcome = wire.remote.outcome(TxnId(error.txn_id))
            assert isinstance(outcome, Ratified)
        assert wire.store is not None
        assert wire.store.count("delete") == 0
        assert ids_in(wire.rows()) == [1]

    @req("CM-43")
    @shows("FC4", "FX4")
    @pytest.mark.parametrize(
        "answer",
        [
            lost,
            cut,
            instead(Reply(200, b""), takes_effect=True),
            instead(Reply(200, b"<html>logged in</html>"), takes_effect=True),
            instead(Reply(500, b"oh"), takes_effect=True),
            instead(Reply(502, b"<html>bad gateway</html>"), takes_effect=True),
            instead(Reply(504, b""), takes_effect=True),
            instead(problem(HeadgateError), takes_effect=True),
            instead(problem(UnavailableError), takes_effect=True),
            instead(problem(OutcomeUnknownError), takes_effect=True),
        ],
        ids=["lost", "cut", "empty", "html", "500", "502", "504", "error", "503", "unknown"],
    )
    def test_an_answer_that_cannot_be_read_is_a_lost_one(
        self, wire: Wire, answer: Callable[[Callable[[], Reply]], Reply]
    ) -> None:
        table = wire.session.create_table("orders", "id long, day date")
        wire.sender.script = [answer, answer]
        assert table.append(rows(1)).version == 1
        assert wire.sender.sent == 4  # one to create the table
        assert ids_in(wire.rows()) == [1]


CHANGES: dict[str, Callable[[Session], object]] = {
    "create a namespace": lambda session: session.create_namespace("sales"),
    "create a table": lambda session: session.create_table("t", "id long"),
    "rename": lambda session: session.rename("orders", "renamed"),
    "drop": lambda session: session.drop("orders"),
}
DONE: dict[str, Callable[[Catalog], int]] = {
    "create a namespace": lambda catalog: _count(catalog.namespaces(), "main.sales"),
    "create a table": lambda catalog: _count(catalog.tables(), "main.default.t"),
    "rename": lambda catalog: _count(catalog.tables(), "main.default.renamed"),
    "drop": lambda catalog: 1 - len(catalog.tables()),
}
METHODS = {"rename": "PATCH", "drop": "DELETE"}
SETTLED = ("unavailable", "busy", "outcome-unknown", "error", "a timeout", "a refused connection")
REFUSALS = (
    "not-authenticated",
    "permission-denied",
    "not-found",
    "already-exists",
    "key-reused",
    "transaction-expired",
    "malformed",
    "a proxy's 403",
    "a proxy's 502",
    "success without a body",
)


def _count(found: Iterable[TableEntry | SchemaName], name: str) -> int:
    names = [str(one) if isinstance(one, SchemaName) else one.name for one in found]
    return names.count(name)


class TestOtherChangesOverHttp:
    @req("CM-43")
    @pytest.mark.parametrize("answer", [*SETTLED, *REFUSALS])
    @pytest.mark.parametrize("change", CHANGES)
    def test_whatever_follows_a_lost_answer_is_settled_or_reported_as_unknown(
        self, wire: Wire, change: str, answer: str
    ) -> None:
        wire.session.create_table("orders", "id long")
        wire.sender.method = METHODS.get(change, "POST")
        wire.sender.script = [lost, ANSWERS[answer]]
        try:
            CHANGES[change](wire.session)
        except OutcomeUnknownError:
            assert answer in REFUSALS
        assert len(wire.sender.script) == 0
        assert DONE[change](wire.served.catalog) == 1

    @req("CM-43")
    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize(
        "script",
        [[lost, *[never_left] * 999], [PROXY["a proxy's 502"]] * 999],
        ids=["lost, then unreachable", "a proxy's 502"],
    )
    def test_a_change_without_an_answer_is_reported_as_unknown(
        self, wire: Wire, change: str, script: list[Callable[[Callable[[], Reply]], Reply]]
    ) -> None:
        wire.session.create_table("orders", "id long")
        wire.sender.method = METHODS.get(change, "POST")
        wire.sender.script = list(script)
        with pytest.raises(OutcomeUnknownError):
            CHANGES[change](wire.session)
