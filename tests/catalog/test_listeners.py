"""Listeners get events in order and at least once, and no commit waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate import _connect
from headgate.api.events import Listener
from headgate.api.status import ListenerEntry
from headgate.catalog import delivery
from headgate.catalog.listeners import WEBHOOK
from headgate.catalog.service import Catalog
from headgate.client.session import Session
from headgate.errors import (
    AlreadyExistsError,
    InTheFutureError,
    InvalidArgumentError,
    InvalidNameError,
    NotFoundError,
    VersionGoneError,
)
from headgate.protocol.actions import Sequence
from headgate.settings import Settings
from tests.kit import postgres, req
from tests.kit.conditions import eventually
from tests.kit.recording_listener import RecordingListener

QUICK = Settings(publish_on_close_ms=200, lease_ms=600)


def catalog_of(session: Session) -> Catalog:
    assert isinstance(session.catalog, Catalog)
    return session.catalog


def connect(lake: str, **changes: Any) -> Session:
    return headgate.connect(lake, publisher=False, settings=replace(QUICK, **changes))


@pytest.fixture(params=["sqlite", "postgresql"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a lake with the tables `a`, `b` and `c`, at sequence 3."""
    address = str(tmp_path / "lake")
    if request.param == "postgresql":
        server: postgres.Postgres = request.getfixturevalue("postgres_server")
        address = server.new_database()
        _connect.init(address, str(tmp_path / "tables"))
    with connect(address) as session:
        for name in "abc":
            session.create_table(name, "id long")
    return address


@pytest.fixture
def session(lake: str) -> Iterator[Session]:
    with connect(lake) as session:
        yield session


def commit(session: Session, *names: str) -> None:
    """Commit something to each of these tables, one after the other."""
    for name in names:
        table = session.table(name)
        table.set_properties({"test.turn": str(table.version)})


def the(session: Session, name: str) -> ListenerEntry:
    [found] = [entry for entry in session.listeners() if entry.name == name]
    return found


@req("EV-01", "EV-02")
def test_a_callable_is_told_of_everything_from_now_on_in_order(session: Session) -> None:
    listener = RecordingListener()
    session.listen("listener", listener)
    commit(session, "a", "b", "a", "c")
    listener.expect(4, 5, 6, 7)
    assert listener.events == list(session.events(after=3))
    eventually(lambda: the(session, "listener").position == 7)
    assert the(session, "listener").kind == "callable"


def test_a_new_one_may_begin_in_the_past_and_not_in_the_future(session: Session) -> None:
    listener = RecordingListener()
    session.listen("listener", listener, after=1)
    listener.expect(2, 3)
    with pytest.raises(InTheFutureError):
        session.listen("other", listener, after=4)


@req("EV-01")
def test_a_listener_goes_on_where_it_was_whoever_committed_meanwhile(lake: str) -> None:
    first, second = RecordingListener(), RecordingListener()
    with connect(lake) as session:
        session.listen("listener", first)
        commit(session, "a", "a")
    assert first.sequences == [4, 5]  # closing waits for what is there already
    with connect(lake) as session:
        commit(session, "b")
    with connect(lake) as session:
        session.listen("listener", second, after=0)  # that is for a new name
        second.expect(6)


def test_a_listener_whose_events_are_deleted_fails_until_it_is_put_elsewhere(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_MAX_PAUSE_S", 0.01)
    catalog = catalog_of(session)
    session.put_listener("down", "https://example.com/", 0)
    with catalog._store.write() as unit:
        unit.delete_events(Sequence(2))
    listener = RecordingListener()
    catalog.deliver(WEBHOOK, lambda target: listener)
    eventually(lambda: the(session, "down").failing is not None)
    assert "Events before sequence 3" in str(the(session, "down").failing)
    assert the(session, "down").position == 0
    with pytest.raises(VersionGoneError, match="after 2"):
        session.put_listener("down", "https://example.com/")
    assert session.put_listener("down", "https://example.com/", 2).failing is None
    listener.expect(3)
    eventually(lambda: the(session, "down").position == 3)


def test_a_listener_that_wants_none_of_the_events_advances_when_there_are_no_more(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_WAIT_S", 0.01)
    session.listen("listener", RecordingListener(), tables=["a"])
    commit(session, "b", "c")
    eventually(lambda: the(session, "listener").position == 5)


@req("EV-01")
@pytest.mark.slow
def test_one_that_fails_is_told_the_same_again_and_later_ones_after_it(session: Session) -> None:
    listener = RecordingListener()
    listener.failures = 3
    session.listen("listener", listener)
    commit(session, "a", "b")
    listener.wait_for(lambda: listener.calls >= 1)
    listener.expect(4, 5)
    assert listener.calls == 5
    eventually(lambda: the(session, "listener").failing is None)


@req("EV-01")
def test_that_one_fails_is_recorded_and_the_pauses_grow(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_PAUSE_S", 3600.0)
    monkeypatch.setattr(delivery, "_MAX_PAUSE_S", 3600.0)
    listener = RecordingListener()
    listener.failures = 1
    session.listen("listener", listener)
    commit(session, "a", "b")
    eventually(lambda: the(session, "listener").failing is not None)
    entry = the(session, "listener")
    assert (entry.failing, entry.position, entry.behind) == ("not now", 3, 2)
    assert listener.calls == 1
    assert session.status().listeners == (entry,)


@req("EV-01")
@pytest.mark.slow
def test_one_that_hangs_holds_up_neither_commits_nor_others_nor_closing(lake: str) -> None:
    hanging, listener = RecordingListener(), RecordingListener()
    hanging.may_return.clear()
    session = connect(lake)
    try:
        session.listen("hanging", hanging)
        session.listen("listener", listener)
        commit(session, "a")
        hanging.wait_for(lambda: hanging.calls == 1)
        commit(session, *"ab" * 10)
        listener.expect(*range(4, 25))
        assert hanging.calls == 1
        assert the(session, "hanging").position == 3
        before = time.monotonic()
    finally:
        session.close()
    assert time.monotonic() - before < 5
    hanging.may_return.set()


def test_a_listener_may_close_its_own_session(lake: str) -> None:
    listener = RecordingListener()
    session = connect(lake)

    def hear(event: headgate.Event) -> None:
        session.close()
        listener(event)

    session.listen("listener", hear)
    commit(session, "a")
    listener.expect(4)
    with connect(lake) as other:  # delivered but not recorded: it comes again
        assert the(other, "listener").position == 3


@req("EV-02")
def test_one_that_names_tables_is_told_only_of_them(session: Session) -> None:
    listener = RecordingListener()
    session.listen("listener", listener, tables=["a", "main.default.C"])
    commit(session, "b", "a", "b", "b", "c", "b")
    listener.expect(5, 8)
    session.rename("b", "d")
    session.create_table("e", "id long")
    commit(session, "a")
    listener.expect(5, 8, 12)


@req("EV-02")
def test_a_pipeline_runs_once_after_all_its_inputs_have_moved(session: Session) -> None:
    runs: list[dict[str, int]] = []
    listener = RecordingListener()

    def pipeline(event: headgate.Event) -> None:
        cut = session.read_cut(["a", "b"], sequence=event.sequence)
        runs.append({name: snapshot.version for name, snapshot in cut.items()})
        listener(event)

    session.listen("pipeline", pipeline, tables=["a", "b"], together=True)
    commit(session, "a", "a", "c", "a")
    commit(session, "b")
    listener.expect(8)
    commit(session, "b", "b")
    commit(session, "a")
    listener.expect(8, 11)
    assert runs == [{"a": 3, "b": 1}, {"a": 4, "b": 3}]


@req("EV-02")
def test_an_input_that_moved_before_a_restart_counts_after_it(lake: str) -> None:
    first, second = RecordingListener(), RecordingListener()
    with connect(lake) as session:
        session.listen("pipeline", first, tables=["a", "b"], together=True)
        commit(session, "c", "a", "c")
    assert first.calls == 0
    with connect(lake) as session:
        session.listen("pipeline", second, tables=["a", "b"], together=True)
        commit(session, "b")
        second.expect(7)
    with connect(lake) as session:
        assert the(session, "pipeline").position == 7


def test_events_nobody_wanted_are_not_gone_through_again(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_RECORD_SKIPPED", 3)
    listener = RecordingListener()
    with connect(lake) as session:
        session.listen("listener", listener, tables=["a"])
        commit(session, *"bbbb")
        eventually(lambda: the(session, "listener").position >= 6)
    with connect(lake) as session:
        assert the(session, "listener").position == 7
    assert listener.calls == 0


@req("EV-01")
@pytest.mark.slow
def test_two_processes_tell_one_listener_one_after_the_other(lake: str) -> None:
    listener = RecordingListener()
    with connect(lake) as one, connect(lake) as two:
        one.listen("listener", listener)
        two.listen("listener", listener)
        for _ in range(10):
            commit(one, "a")
            commit(two, "b")
        listener.wait_for(lambda: len(listener.events) >= 20)
        commit(one, "c")
        listener.wait_for(lambda: 24 in listener.sequences)
    assert listener.sequences == list(range(4, 25))
    assert listener.most_at_once == 1


@req("EV-01")
def test_who_gets_the_lease_late_tells_nothing_that_was_told(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = RecordingListener(), RecordingListener()
    with connect(lake) as one, connect(lake) as two:
        one.listen("listener", first)
        two.listen("listener", second)
        delivery_of_two = catalog_of(two)._listeners._deliveries["listener"]
        take, has_taken = delivery_of_two._acquire, threading.Event()

        def late() -> bool:
            eventually(lambda: the(one, "listener").position == 4)
            is_taken = take()
            has_taken.set()
            return is_taken

        monkeypatch.setattr(delivery_of_two, "_acquire", late)
        commit(one, "a")
        first.expect(4)
        assert has_taken.wait(20)
        eventually(lambda: not delivery_of_two._holds_lease)
        assert second.calls == 0


@req("EV-01")
@pytest.mark.slow
def test_a_listener_that_takes_longer_than_a_lease_is_not_told_elsewhere_meanwhile(
    lake: str,
) -> None:
    slow, other = RecordingListener(), RecordingListener()
    slow.may_return.clear()
    with connect(lake) as one, connect(lake) as two:
        one.listen("listener", slow)
        commit(one, "a")
        slow.wait_for(lambda: slow.calls == 1)
        two.listen("listener", other)
        time.sleep(4 * QUICK.lease_ms / 1000)
        assert other.calls == 0
        slow.may_return.set()
        slow.expect(4)
    assert other.calls == 0


@pytest.mark.slow
def test_the_next_process_goes_on_when_one_leaves(lake: str) -> None:
    first, second = RecordingListener(), RecordingListener()
    with connect(lake) as two:
        with connect(lake) as one:
            one.listen("listener", first)
            commit(two, "a")
            first.expect(4)
            two.listen("listener", second)
        commit(two, "a")
        second.expect(5)


def test_one_that_was_removed_is_told_no_more(session: Session) -> None:
    listener = RecordingListener()
    session.listen("listener", listener)
    commit(session, "a")
    listener.expect(4)
    session.delete_listener("listener")
    commit(session, "a")
    session.close()
    assert listener.sequences == [4]
    assert listener.calls == 1


def test_what_cannot_be_a_listener_is_refused(session: Session) -> None:
    listener = RecordingListener()
    session.listen("listener", listener)
    with pytest.raises(AlreadyExistsError):
        session.listen("listener", listener)
    with pytest.raises(AlreadyExistsError):
        session.put_listener("listener", "https://example.com/x")
    with pytest.raises(InvalidArgumentError):
        session.listen("b", listener, tables=[])
    with pytest.raises(InvalidArgumentError):
        session.listen("b", listener, together=True)
    with pytest.raises(InvalidNameError):
        session.listen("a b", listener)
    with pytest.raises(NotFoundError):
        session.delete_listener("nobody")
    assert [entry.name for entry in session.listeners()] == ["listener"]


# Registered ones


class Post:
    """Makes an listener for each target it is asked for."""

    def __init__(self) -> None:
        self.listeners: dict[str, RecordingListener] = {}

    def __call__(self, target: str) -> Listener:
        return self.listeners.setdefault(target, RecordingListener())

    def at(self, target: str) -> RecordingListener:
        eventually(lambda: target in self.listeners)
        return self.listeners[target]


ONE, TWO = "https://example.com/one", "https://example.com/two"


def test_a_registered_one_is_told_by_a_process_that_knows_how(lake: str) -> None:
    post = Post()
    with connect(lake) as other, connect(lake) as server:
        other.put_listener("hook", ONE, after=1)
        catalog_of(server).deliver(WEBHOOK, post)
        post.at(ONE).expect(2, 3)
        commit(other, "a")
        post.at(ONE).expect(2, 3, 4)
        assert the(other, "hook").kind == "webhook"
    with connect(lake) as session:
        assert the(session, "hook").position == 4


@pytest.mark.slow
def test_another_target_another_place_and_removal_are_obeyed(lake: str) -> None:
    post = Post()
    with connect(lake) as other, connect(lake) as server:
        catalog_of(server).deliver(WEBHOOK, post)
        other.put_listener("hook", ONE)
        commit(other, "a")
        post.at(ONE).expect(4)
        eventually(lambda: the(other, "hook").position == 4)
        other.put_listener("hook", TWO)  # it goes on where it was
        commit(other, "a")
        post.at(TWO).expect(5)
        eventually(lambda: the(other, "hook").position == 5)
        other.put_listener("hook", TWO, after=3)  # delivered again
        post.at(TWO).expect(5, 4, 5)
        eventually(lambda: the(other, "hook").position == 5)
        other.delete_listener("hook")
        eventually(lambda: not catalog_of(server)._listeners._deliveries)
        commit(other, "a")
    assert post.at(ONE).sequences == [4]
    assert post.at(TWO).sequences == [5, 4, 5]


def test_putting_the_same_again_changes_nothing(session: Session) -> None:
    first = session.put_listener("hook", ONE)
    commit(session, "a")
    again = session.put_listener("hook", ONE)
    assert (again.position, again.created_ms) == (first.position, first.created_ms)
    assert again.behind == 1


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://host/x",
        "http://",
        "host/x",
        "http://user:secret@host/x",
        "http://host:port/",
        "http://[::1/",
        "http://host/a b",
        "http://host/\n",
        "http://host/" + "x" * 2000,
    ],
)
def test_what_is_no_url_is_refused(session: Session, url: str) -> None:
    with pytest.raises(InvalidArgumentError):
        session.put_listener("hook", url)
    assert session.listeners() == ()


def test_a_process_that_knows_no_way_leaves_registered_ones_alone(session: Session) -> None:
    session.put_listener("hook", ONE)
    session.listen("listener", RecordingListener())
    commit(session, "a")
    eventually(lambda: the(session, "listener").position == 4)
    assert the(session, "hook").position == Sequence(3)
