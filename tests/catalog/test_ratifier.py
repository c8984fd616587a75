"""The one writer thread: it decides each, commits once, and answers all, whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from headgate import failpoints
from headgate.catalog.decider import Decider
from headgate.catalog.ratifier import Ratifier
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import InDoubtError, RolledBackError
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.catalog.stores.writer import WriteUnit
from headgate.clock import SystemClock
from headgate.errors import (
    NotFoundError,
    OutcomeUnknownError,
    Retry,
    UnavailableError,
)
from headgate.settings import Settings
from tests.kit import req, shows
from tests.kit.builders import ManualClock

PATIENCE = 20  # seconds until a test fails for a call that hangs
POINTS = sorted(point for point in failpoints.POINTS if point.startswith("ratifier."))


class WatchedStore:
    """A store that counts its commits and fails them on request."""

    def __init__(self, inner: CatalogStore) -> None:
        self.inner = inner
        self.commits = 0
        self.before_begin: Callable[[], None] = lambda: None
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None

    def read(self) -> AbstractContextManager[ReadUnit]:
        return self.inner.read()

    def read_latest(self) -> AbstractContextManager[ReadUnit]:
        return self.inner.read_latest()

    @contextmanager
    def write(self) -> Iterator[WriteUnit]:
        self.before_begin()
        with self.inner.write() as unit:
            yield unit
            self.before_commit()
        self.commits += 1
        self.after_commit()

    def describe(self) -> str:
        return self.inner.describe()

    def check_integrity(self) -> list[str]:
        return []

    def backup(self, target: Path) -> None:
        self.inner.backup(target)

    def close(self) -> None:
        self.inner.close()

    def kept(self) -> set[str]:
        with self.inner.read() as unit:
            return {key for key in map(str, range(1000)) if unit.setting(key) is not None}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WatchedStore]:
    made = WatchedStore(SQLiteStore(str(tmp_path / "headgate.db"), SystemClock()))
    yield made
    made.close()


def ratifier_of(
    store: WatchedStore,
    on_stopped: Callable[[str], object] = lambda why: None,
    *,
    clock: ManualClock | None = None,
    settings: Settings | None = None,
) -> Ratifier:
    clock, settings = clock or ManualClock(), settings or Settings()
    return Ratifier(store, Decider(clock, settings), clock, settings, on_stopped)


@pytest.fixture
def ratifier(store: WatchedStore) -> Iterator[Ratifier]:
    made = ratifier_of(store)
    yield made
    made.close()


def keep(key: object) -> Callable[[WriteUnit], str]:
    """Work that leaves a trace."""

    def do(unit: WriteUnit) -> str:
        unit.set_setting(str(key), "kept")
        return f"answer {key}"

    return do


def refuse(key: object) -> Callable[[WriteUnit], str]:
    """Work that leaves a trace and is refused then."""

    def do(unit: WriteUnit) -> str:
        unit.set_setting(str(key), "kept")
        raise NotFoundError(f"There is no {key}.")

    return do


class Gate:
    """Work that holds the ratifier up, so that what is submitted meanwhile waits together."""

    def __init__(self, ratifier: Ratifier) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()
        self.answer = ratifier.submit("gate", self._pass)
        assert self._reached.wait(PATIENCE)

    def open(self) -> None:
        self._opened.set()

    def _pass(self, _: WriteUnit) -> None:
        self._reached.set()
        assert self._opened.wait(PATIENCE)


def settled(*answers: Future[str]) -> list[object]:
    """Return all answers and errors; no call may hang. L1."""
    done, hanging = wait(answers, PATIENCE)
    assert not hanging, f"{len(hanging)} of {len(answers)} were never answered"
    assert done
    return [None if one.cancelled() else one.exception() or one.result() for one in answers]


def test_the_answer_comes_after_the_commit_and_never_before(
    store: WatchedStore, ratifier: Ratifier
) -> None:
    seen: list[bool] = []
    store.before_commit = lambda: seen.append(answer.done())
    submitted = threading.Event()

    def wait_and_keep(unit: WriteUnit) -> str:
        submitted.wait(PATIENCE)
        return keep(1)(unit)

    answer = ratifier.submit("1", wait_and_keep)
    submitted.set()
    assert settled(answer) == ["answer 1"]
    assert seen == [False]
    assert store.kept() == {"1"}


def test_all_that_waits_shares_one_commit(store: WatchedStore, ratifier: Ratifier) -> None:
    gate = Gate(ratifier)
    answers = [ratifier.submit(str(key), keep(key)) for key in range(100)]
    gate.open()
    assert settled(*answers) == [f"answer {key}" for key in range(100)]
    assert store.commits == 1
    assert len(store.kept()) == 100


def test_work_runs_in_the_order_it_came_and_sees_what_came_before_it(
    ratifier: Ratifier,
) -> None:
    gate = Gate(ratifier)

    def count(unit: WriteUnit) -> str:
        number = int(unit.setting("count") or 0) + 1
        unit.set_setting("count", str(number))
        return str(number)

    answers = [ratifier.submit("count", count) for _ in range(20)]
    gate.open()
    assert settled(*answers) == [str(number) for number in range(1, 21)]


def test_a_refusal_undoes_itself_alone_and_the_batch_goes_on(
    store: WatchedStore, ratifier: Ratifier
) -> None:
    gate = Gate(ratifier)
    one = ratifier.submit("1", keep(1))
    two = ratifier.submit("2", refuse(2))
    three = ratifier.submit("3", keep(3))
    gate.open()
    first, refusal, third = settled(one, two, three)
    assert (first, third) == ("answer 1", "answer 3")
    assert isinstance(refusal, NotFoundError)
    assert store.commits == 1
    assert store.kept() == {"1", "3"}


def test_an_error_of_no_kind_we_know_is_answered_and_undone_too(
    store: WatchedStore, ratifier: Ratifier
) -> None:
    def stumble(unit: WriteUnit) -> str:
        unit.set_setting("1", "kept")
        raise ZeroDivisionError

    [results] = settled(ratifier.submit("1", stumble))
    assert isinstance(results, ZeroDivisionError)
    assert settled(ratifier.submit("2", keep(2))) == ["answer 2"]
    assert store.kept() == {"2"}


@pytest.mark.parametrize(("waiting", "batches"), [(255, 1), (256, 2), (600, 3)])
def test_a_batch_takes_at_most_256(
    store: WatchedStore, ratifier: Ratifier, waiting: int, batches: int
) -> None:
    gate = Gate(ratifier)  # it is one of the first batch
    answers = [ratifier.submit(str(key), keep(key)) for key in range(waiting)]
    gate.open()
    settled(*answers)
    assert store.commits == batches


def test_a_batch_takes_at_most_20_ms(store: WatchedStore) -> None:
    clock = ManualClock()
    ratifier = ratifier_of(store, clock=clock)
    gate = Gate(ratifier)

    def slow(_: WriteUnit) -> str:
        clock.sleep(0.005)
        return ""

    answers = [ratifier.submit("slow", slow) for _ in range(10)]
    gate.open()
    settled(*answers)
    ratifier.close()
    assert store.commits == 2  # each ends with the piece that passed 20 ms


@req("CM-43")
@shows("FC12", "S6", "L1")
def test_doubt_about_the_commit_makes_every_answer_unknown_and_stops_the_catalog(
    store: WatchedStore, ratifier: Ratifier
) -> None:
    def doubt() -> None:
        raise InDoubtError("the sync failed")

    store.after_commit = doubt
    gate = Gate(ratifier)
    answers = [ratifier.submit(f"txn-{key}", keep(key)) for key in range(3)]
    refused = ratifier.submit("txn-refused", refuse(3))
    gate.open()
    results = settled(*answers, refused)
    assert [type(one) for one in results] == [OutcomeUnknownError] * 4
    for key, one in enumerate(results[:3]):
        assert isinstance(one, OutcomeUnknownError)
        assert one.txn_id == f"txn-{key}"
        assert one.retry is Retry.SAME_AGAIN
        assert "the sync failed" in one.message
    # Nobody is acknowledged after that: a second sync would prove nothing.
    store.after_commit = lambda: None
    with pytest.raises(UnavailableError, match=r"outcome unknown.*Connect again"):
        ratifier.submit("later", keep(9))
    assert store.kept() == {"0", "1", "2"}  # here it had happened after all


@shows("FC12")
def test_whoever_runs_it_is_told_that_it_stopped_and_not_that_it_was_closed(
    store: WatchedStore,
) -> None:
    reasons: list[str] = []
    closed = ratifier_of(store, reasons.append)
    closed.close()
    assert reasons == []

    def doubt() -> None:
        raise InDoubtError("the sync failed")

    store.after_commit = doubt
    heard = threading.Event()
    ratifier = ratifier_of(store, lambda why: (reasons.append(why), heard.set()))
    settled(ratifier.submit("1", keep(1)))
    assert heard.wait(PATIENCE)
    assert len(reasons) == 1
    assert "the sync failed" in reasons[0]
    with pytest.raises(UnavailableError, match="the sync failed"):
        ratifier.refuse_if_stopped()


@shows("FC12", "L1")
def test_what_waits_behind_a_batch_in_doubt_is_told_that_nothing_happened(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubt() -> None:
        raise InDoubtError("the sync failed")

    store.before_commit = doubt
    monkeypatch.setattr("headgate.catalog.ratifier._BATCH", 2)
    ratifier = ratifier_of(store)
    gate = Gate(ratifier)
    answers = [ratifier.submit(str(key), keep(key)) for key in range(4)]
    gate.open()
    results = settled(*answers)
    assert isinstance(results[0], OutcomeUnknownError)
    assert all(type(one) is UnavailableError for one in results[1:])
    assert store.kept() == set()
    ratifier.close()  # closing what has stopped is fine


@req("CM-43")
@shows("FS7", "L1")
def test_doubt_about_a_lost_connection_is_told_to_its_batch_and_the_rest_goes_on(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose() -> None:
        store.after_commit = lambda: None
        raise InDoubtError("the connection was lost", is_store_usable=True)

    store.after_commit = lose
    monkeypatch.setattr("headgate.catalog.ratifier._BATCH", 2)
    ratifier = ratifier_of(store)
    gate = Gate(ratifier)
    answers = [ratifier.submit(f"txn-{key}", keep(key)) for key in range(4)]
    gate.open()
    results = settled(*answers)
    assert isinstance(results[0], OutcomeUnknownError)  # it shared a unit with the gate
    assert results[0].txn_id == "txn-0"
    assert results[1:] == ["answer 1", "answer 2", "answer 3"]
    assert settled(ratifier.submit("later", keep(9))) == ["answer 9"]
    assert store.kept() == {"0", "1", "2", "3", "9"}
    ratifier.close()


@shows("FC11", "S5")
def test_a_full_disk_refuses_the_whole_batch_and_the_next_one_works(
    store: WatchedStore, ratifier: Ratifier
) -> None:
    def fill() -> None:
        raise UnavailableError("The catalog's disk is full.")

    store.before_commit = fill
    gate = Gate(ratifier)
    answers = [
        ratifier.submit("1", keep(1)),
        ratifier.submit("2", refuse(2)),
        ratifier.submit("3", keep(3)),
    ]
    gate.open()
    assert [type(one) for one in settled(*answers)] == [UnavailableError] * 3
    assert store.kept() == set()
    store.before_commit = lambda: None
    assert settled(ratifier.submit("4", keep(4))) == ["answer 4"]
    assert store.kept() == {"4"}


@shows("FC11")
def test_a_real_disk_that_fills_up_in_mid_batch_refuses_the_batch_and_the_next_one_works(
    store: WatchedStore, ratifier: Ratifier
) -> None:
    inner = store.inner
    assert isinstance(inner, SQLiteStore)
    [[pages]] = inner._writer.execute("PRAGMA page_count")
    inner._writer.execute(f"PRAGMA max_page_count = {pages}")
    gate = Gate(ratifier)

    def large(unit: WriteUnit) -> str:
        unit.set_setting("2", "x" * 1_000_000)
        return ""

    answers = [
        ratifier.submit("1", keep(1)),
        ratifier.submit("2", large),
        ratifier.submit("3", keep(3)),
    ]
    gate.open()
    results = settled(*answers)
    assert [type(one) for one in results] == [UnavailableError] * 3
    assert all("disk is full" in str(one) for one in results)
    inner._writer.execute("PRAGMA max_page_count = 1000000")
    assert settled(ratifier.submit("4", keep(4))) == ["answer 4"]
    assert store.kept() == {"4"}


@shows("FS4", "L1")
def test_a_database_held_by_others_is_told_to_who_waited_longest_and_the_rest_goes_on(
    store: WatchedStore, ratifier: Ratifier
) -> None:
    gate = Gate(ratifier)

    def hold() -> None:
        store.before_begin = lambda: None
        raise UnavailableError("Other processes held it.")

    def arm(_: WriteUnit) -> str:
        store.before_begin = hold
        return ""

    gate.open()
    settled(ratifier.submit("arm", arm))
    first = ratifier.submit("1", keep(1))
    assert isinstance(settled(first)[0], UnavailableError)
    assert settled(ratifier.submit("2", keep(2))) == ["answer 2"]
    assert store.kept() == {"2"}


@shows("FS4", "L1")
def test_a_unit_that_the_database_took_back_is_run_again_in_its_order(
    store: WatchedStore, ratifier: Ratifier
) -> None:
    times = 0

    def take_back() -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise RolledBackError("A deadlock was found.")

    store.before_commit = take_back
    gate = Gate(ratifier)
    answers = [
        ratifier.submit("1", keep(1)),
        ratifier.submit("2", refuse(2)),
        ratifier.submit("3", keep(3)),
    ]
    gate.open()
    one, two, three = settled(*answers)
    assert (one, three) == ("answer 1", "answer 3")
    assert isinstance(two, NotFoundError)
    assert (times, store.commits) == (3, 1)
    assert store.kept() == {"1", "3"}


@shows("FS4", "L1")
def test_what_the_database_takes_back_for_too_long_is_told_to_have_not_happened(
    store: WatchedStore,
) -> None:
    clock = ManualClock()
    ratifier = ratifier_of(store, clock=clock, settings=Settings(store_patience_ms=1_000))

    def take_back() -> None:
        clock.sleep(0.3)
        raise RolledBackError("A deadlock was found.")

    store.before_commit = take_back
    [results] = settled(ratifier.submit("1", keep(1)))
    assert isinstance(results, UnavailableError)
    assert 1.0 <= clock.waited_s < 2.0
    store.before_commit = lambda: None
    assert settled(ratifier.submit("2", keep(2))) == ["answer 2"]
    assert store.kept() == {"2"}
    ratifier.close()


@shows("L1")
def test_closing_answers_all_that_waits(store: WatchedStore, ratifier: Ratifier) -> None:
    gate = Gate(ratifier)
    answers = [ratifier.submit(str(key), keep(key)) for key in range(5)]
    closing = threading.Thread(target=ratifier.close)
    closing.start()
    gate.open()
    assert settled(*answers) == [f"answer {key}" for key in range(5)]
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert store.kept() == {"0", "1", "2", "3", "4"}


def test_nothing_is_taken_after_closing_and_closing_again_is_fine(ratifier: Ratifier) -> None:
    ratifier.close()
    with pytest.raises(UnavailableError, match=r"it was closed.*Connect again"):
        ratifier.submit("1", keep(1))
    ratifier.close()


@shows("L1")
def test_whoever_submits_while_it_is_closed_is_answered(store: WatchedStore) -> None:
    for _ in range(20):
        ratifier = ratifier_of(store)
        start = threading.Barrier(9)

        def submit(
            _: int, ratifier: Ratifier = ratifier, start: threading.Barrier = start
        ) -> list[Future[str]]:
            start.wait(PATIENCE)
            taken: list[Future[str]] = []
            with suppress(UnavailableError):
                taken.extend(ratifier.submit(str(key), keep(key)) for key in range(20))
            return taken

        with ThreadPoolExecutor(8) as pool:
            submitting = pool.map(submit, range(8))
            start.wait(PATIENCE)
            ratifier.close()
            taken = [answer for answers in submitting for answer in answers]
        if taken:
            results = settled(*taken)
            assert all(isinstance(one, str | UnavailableError) for one in results)


@shows("L1")
def test_whoever_submits_at_the_very_moment_it_stops_is_answered(ratifier: Ratifier) -> None:
    inner = ratifier._queue

    class LastMoment:
        """Stops the ratifier after a submitter has looked, and before it puts its work."""

        get, get_nowait = inner.get, inner.get_nowait

        def put(self, work: object) -> None:
            if work is not None:
                ratifier.close()
            inner.put(work)  # type: ignore[arg-type]

    ratifier._queue = LastMoment()  # type: ignore[assignment]
    [results] = settled(ratifier.submit("1", keep(1)))
    assert type(results) is UnavailableError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@req("CM-43")
@shows("L1", "S6", "FC9")
@pytest.mark.parametrize("point", POINTS)
def test_a_thread_that_dies_anywhere_leaves_nobody_hanging(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr("headgate.catalog.ratifier._BATCH", 3)
    ratifier = ratifier_of(store)
    gate = Gate(ratifier)
    nth = 3 if point == "ratifier.after_decide" else 2 if point == "ratifier.before_begin" else 1
    failpoints.arm(f"{point}:raise@{nth}")
    try:
        answers = [ratifier.submit(str(key), keep(key)) for key in range(8)]
        gate.open()
        results = settled(*answers)
    finally:
        failpoints.arm("")
    kept = store.kept()
    for key, one in enumerate(results):
        match one:
            case str():  # answered as applied: so it is
                assert str(key) in kept
            case OutcomeUnknownError():  # in or out: to be asked again
                assert one.txn_id == str(key)
            case UnavailableError():  # answered as not applied: so it is
                assert str(key) not in kept
            case _:
                pytest.fail(f"{key} was answered {one!r}")
    assert any(isinstance(one, OutcomeUnknownError) for one in results)
    with pytest.raises(UnavailableError, match="FailPointError"):
        ratifier.submit("later", keep(9))
    ratifier.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@shows("L1")
def test_work_that_raises_what_no_code_catches_stops_the_thread_and_nobody_hangs(
    store: WatchedStore, ratifier: Ratifier
) -> None:
    def interrupt(_: WriteUnit) -> str:
        raise KeyboardInterrupt

    gate = Gate(ratifier)
    answers = [
        ratifier.submit("1", keep(1)),
        ratifier.submit("2", interrupt),
        ratifier.submit("3", keep(3)),
    ]
    gate.open()
    one, two, three = settled(*answers)
    assert isinstance(one, OutcomeUnknownError)
    assert isinstance(two, OutcomeUnknownError)
    assert type(three) is UnavailableError
    assert store.kept() == set()
    ratifier.close()  # what its thread says as it ends must not be heard in another test
    assert not ratifier._thread.is_alive()


@shows("L1")
def test_an_answer_that_nobody_waits_for_any_more_disturbs_nobody(
    store: WatchedStore, ratifier: Ratifier
) -> None:
    gate = Gate(ratifier)
    answers = [ratifier.submit(str(key), keep(key)) for key in range(3)]
    assert answers[1].cancel()
    gate.open()
    assert settled(*answers) == ["answer 0", None, "answer 2"]
    assert settled(ratifier.submit("3", keep(3))) == ["answer 3"]
    assert store.kept() == {"0", "1", "2", "3"}  # what was on its way is done all the same
