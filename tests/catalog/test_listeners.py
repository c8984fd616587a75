"""Listeners are told in order and at least once, and no commit waits for any of them."""

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
from tests.kit.hearing import Ear, eventually

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
    ear = Ear()
    session.listen("ear", ear)
    commit(session, "a", "b", "a", "c")
    ear.heard(4, 5, 6, 7)
    assert ear.events == list(session.events(after=3))
    eventually(lambda: the(session, "ear").position == 7)
    assert the(session, "ear").kind == "callable"


def test_a_new_one_may_begin_in_the_past_and_not_in_the_future(session: Session) -> None:
    ear = Ear()
    session.listen("ear", ear, after=1)
    ear.heard(2, 3)
    with pytest.raises(InTheFutureError):
        session.listen("other", ear, after=4)


@req("EV-01")
def test_a_listener_goes_on_where_it_was_whoever_committed_meanwhile(lake: str) -> None:
    first, second = Ear(), Ear()
    with connect(lake) as session:
        session.listen("ear", first)
        commit(session, "a", "a")
    assert first.sequences == [4, 5]  # closing waits for what is there already
    with connect(lake) as session:
        commit(session, "b")
    with connect(lake) as session:
        session.listen("ear", second, after=0)  # that is for a new name
        second.heard(6)


def test_a_listener_whose_events_are_deleted_fails_until_it_is_put_elsewhere(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_MAX_PAUSE_S", 0.01)
    catalog = catalog_of(session)
    session.put_listener("down", "https://example.com/", 0)
    with catalog._store.write() as unit:
        unit.delete_events(Sequence(2))
    ear = Ear()
    catalog.deliver(WEBHOOK, lambda target: ear)
    eventually(lambda: the(session, "down").failing is not None)
    assert "Events before sequence 3" in str(the(session, "down").failing)
    assert the(session, "down").position == 0
    with pytest.raises(VersionGoneError, match="after 2"):
        session.put_listener("down", "https://example.com/")
    assert session.put_listener("down", "https://example.com/", 2).failing is None
    ear.heard(3)
    eventually(lambda: the(session, "down").position == 3)


def test_a_listener_that_wants_none_of_the_events_advances_when_there_are_no_more(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_WAIT_S", 0.01)
    session.listen("ear", Ear(), tables=["a"])
    commit(session, "b", "c")
    eventually(lambda: the(session, "ear").position == 5)


@req("EV-01")
@pytest.mark.slow
def test_one_that_fails_is_told_the_same_again_and_later_ones_after_it(session: Session) -> None:
    ear = Ear()
    ear.failures = 3
    session.listen("ear", ear)
    commit(session, "a", "b")
    ear.wait_for(lambda: ear.calls >= 1)
    ear.heard(4, 5)
    assert ear.calls == 5
    eventually(lambda: the(session, "ear").failing is None)


@req("EV-01")
def test_that_one_fails_is_recorded_and_the_pauses_grow(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_PAUSE_S", 3600.0)
    monkeypatch.setattr(delivery, "_MAX_PAUSE_S", 3600.0)
    ear = Ear()
    ear.failures = 1
    session.listen("ear", ear)
    commit(session, "a", "b")
    eventually(lambda: the(session, "ear").failing is not None)
    entry = the(session, "ear")
    assert (entry.failing, entry.position, entry.behind) == ("not now", 3, 2)
    assert ear.calls == 1
    assert session.status().listeners == (entry,)


@req("EV-01")
@pytest.mark.slow
def test_one_that_hangs_holds_up_neither_commits_nor_others_nor_closing(lake: str) -> None:
    hanging, ear = Ear(), Ear()
    hanging.may_return.clear()
    session = connect(lake)
    try:
        session.listen("hanging", hanging)
        session.listen("ear", ear)
        commit(session, "a")
        hanging.wait_for(lambda: hanging.calls == 1)
        commit(session, *"ab" * 10)
        ear.heard(*range(4, 25))
        assert hanging.calls == 1
        assert the(session, "hanging").position == 3
        before = time.monotonic()
    finally:
        session.close()
    assert time.monotonic() - before < 5
    hanging.may_return.set()


def test_a_listener_may_close_its_own_session(lake: str) -> None:
    ear = Ear()
    session = connect(lake)

    def hear(event: headgate.Event) -> None:
        session.close()
        ear(event)

    session.listen("ear", hear)
    commit(session, "a")
    ear.heard(4)
    with connect(lake) as other:  # heard, and nobody was left to record it: it will come again
        assert the(other, "ear").position == 3


@req("EV-02")
def test_one_that_names_tables_is_told_only_of_them(session: Session) -> None:
    ear = Ear()
    session.listen("ear", ear, tables=["a", "main.default.C"])
    commit(session, "b", "a", "b", "b", "c", "b")
    ear.heard(5, 8)
    session.rename("b", "d")
    session.create_table("e", "id long")
    commit(session, "a")
    ear.heard(5, 8, 12)


@req("EV-02")
def test_a_pipeline_runs_once_after_all_its_inputs_have_moved(session: Session) -> None:
    runs: list[dict[str, int]] = []
    ear = Ear()

    def pipeline(event: headgate.Event) -> None:
        cut = session.read_cut(["a", "b"], sequence=event.sequence)
        runs.append({name: snapshot.version for name, snapshot in cut.items()})
        ear(event)

    session.listen("pipeline", pipeline, tables=["a", "b"], together=True)
    commit(session, "a", "a", "c", "a")
    commit(session, "b")
    ear.heard(8)
    commit(session, "b", "b")
    commit(session, "a")
    ear.heard(8, 11)
    assert runs == [{"a": 3, "b": 1}, {"a": 4, "b": 3}]


@req("EV-02")
def test_an_input_that_moved_before_a_restart_counts_after_it(lake: str) -> None:
    first, second = Ear(), Ear()
    with connect(lake) as session:
        session.listen("pipeline", first, tables=["a", "b"], together=True)
        commit(session, "c", "a", "c")
    assert first.calls == 0
    with connect(lake) as session:
        session.listen("pipeline", second, tables=["a", "b"], together=True)
        commit(session, "b")
        second.heard(7)
    with connect(lake) as session:
        assert the(session, "pipeline").position == 7


def test_events_nobody_wanted_are_not_gone_through_again(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_RECORD_SKIPPED", 3)
    ear = Ear()
    with connect(lake) as session:
        session.listen("ear", ear, tables=["a"])
        commit(session, *"bbbb")
        eventually(lambda: the(session, "ear").position >= 6)
    with connect(lake) as session:
        assert the(session, "ear").position == 7
    assert ear.calls == 0


@req("EV-01")
@pytest.mark.slow
def test_two_processes_tell_one_listener_one_after_the_other(lake: str) -> None:
    ear = Ear()
    with connect(lake) as one, connect(lake) as two:
        one.listen("ear", ear)
        two.listen("ear", ear)
        for _ in range(10):
            commit(one, "a")
            commit(two, "b")
        ear.wait_for(lambda: len(ear.events) >= 20)
        commit(one, "c")
        ear.wait_for(lambda: 24 in ear.sequences)
    assert ear.sequences == list(range(4, 25))
    assert ear.most_at_once == 1


@req("EV-01")
def test_who_gets_the_lease_late_tells_nothing_that_was_told(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Ear(), Ear()
    with connect(lake) as one, connect(lake) as two:
        one.listen("ear", first)
        two.listen("ear", second)
        delivery_of_two = catalog_of(two)._listeners._deliveries["ear"]
        take, has_taken = delivery_of_two._acquire, threading.Event()

        def late() -> bool:
            eventually(lambda: the(one, "ear").position == 4)
            is_taken = take()
            has_taken.set()
            return is_taken

        monkeypatch.setattr(delivery_of_two, "_acquire", late)
        commit(one, "a")
        first.heard(4)
        assert has_taken.wait(20)
        eventually(lambda: not delivery_of_two._holds_lease)
        assert second.calls == 0


@req("EV-01")
@pytest.mark.slow
def test_a_listener_that_takes_longer_than_a_lease_is_not_told_elsewhere_meanwhile(
    lake: str,
) -> None:
    slow, other = Ear(), Ear()
    slow.may_return.clear()
    with connect(lake) as one, connect(lake) as two:
        one.listen("ear", slow)
        commit(one, "a")
        slow.wait_for(lambda: slow.calls == 1)
        two.listen("ear", other)
        time.sleep(4 * QUICK.lease_ms / 1000)
        assert other.calls == 0
        slow.may_return.set()
        slow.heard(4)
    assert other.calls == 0


@pytest.mark.slow
def test_the_next_process_goes_on_when_one_leaves(lake: str) -> None:
    first, second = Ear(), Ear()
    with connect(lake) as two:
        with connect(lake) as one:
            one.listen("ear", first)
            commit(two, "a")
            first.heard(4)
            two.listen("ear", second)
        commit(two, "a")
        second.heard(5)


def test_one_that_was_removed_is_told_no_more(session: Session) -> None:
    ear = Ear()
    session.listen("ear", ear)
    commit(session, "a")
    ear.heard(4)
    session.delete_listener("ear")
    commit(session, "a")
    session.close()
    assert ear.sequences == [4]
    assert ear.calls == 1


def test_what_cannot_be_a_listener_is_refused(session: Session) -> None:
    ear = Ear()
    session.listen("ear", ear)
    with pytest.raises(AlreadyExistsError):
        session.listen("ear", ear)
    with pytest.raises(AlreadyExistsError):
        session.put_listener("ear", "https://example.com/x")
    with pytest.raises(InvalidArgumentError):
        session.listen("b", ear, tables=[])
    with pytest.raises(InvalidArgumentError):
        session.listen("b", ear, together=True)
    with pytest.raises(InvalidNameError):
        session.listen("a b", ear)
    with pytest.raises(NotFoundError):
        session.delete_listener("nobody")
    assert [entry.name for entry in session.listeners()] == ["ear"]


# Registered ones


class Post:
    """Makes an ear for each target it is asked for."""

    def __init__(self) -> None:
        self.ears: dict[str, Ear] = {}

    def __call__(self, target: str) -> Listener:
        return self.ears.setdefault(target, Ear())

    def at(self, target: str) -> Ear:
        eventually(lambda: target in self.ears)
        return self.ears[target]


ONE, TWO = "https://example.com/one", "https://example.com/two"


def test_a_registered_one_is_told_by_a_process_that_knows_how(lake: str) -> None:
    post = Post()
    with connect(lake) as other, connect(lake) as server:
        other.put_listener("hook", ONE, after=1)
        catalog_of(server).deliver(WEBHOOK, post)
        post.at(ONE).heard(2, 3)
        commit(other, "a")
        post.at(ONE).heard(2, 3, 4)
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
        post.at(ONE).heard(4)
        eventually(lambda: the(other, "hook").position == 4)
        other.put_listener("hook", TWO)  # it goes on where it was
        commit(other, "a")
        post.at(TWO).heard(5)
        eventually(lambda: the(other, "hook").position == 5)
        other.put_listener("hook", TWO, after=3)  # told again
        post.at(TWO).heard(5, 4, 5)
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
    session.listen("ear", Ear())
    commit(session, "a")
    eventually(lambda: the(session, "ear").position == 4)
    assert the(session, "hook").position == Sequence(3)
