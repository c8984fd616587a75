"""Any sequence of steps, compared with a model in plain Python."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import (
    AnswerRow,
    CatalogClock,
    CommitRow,
    ListenerRow,
    RejectionRow,
    StoreConstraintError,
    TableRow,
    TokenRow,
)
from headgate.catalog.stores.writer import WriteUnit
from headgate.names import TableName
from headgate.protocol.actions import Sequence, TxnId, Version
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.table_states import TableStatus
from tests.catalog.store_contract.rows import (
    OpenStore,
    UndoneError,
    commit_row,
    name,
    table_id,
    table_row,
)


class ModelContract:
    examples = 30

    @pytest.mark.slow
    def test_any_sequence_of_steps_matches_a_model_in_plain_python(
        self, open_store: OpenStore
    ) -> None:
        numbers = iter(range(10**6))

        @settings(
            max_examples=self.examples,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(st.lists(UNITS, max_size=12))
        def run(units: list[Unit]) -> None:
            store = open_store(f"model-{next(numbers)}")
            model = Model()
            for unit in units:
                apply_unit(store, model, unit)
            store.close()

        run()


@dataclass
class Model:
    """The rows of a store."""

    clock: tuple[int, int] = (0, 0)
    ticks: list[tuple[int, int, str | None]] = field(default_factory=list)
    tables: dict[int, TableRow] = field(default_factory=dict)  # by number
    commits: dict[int, list[CommitRow]] = field(default_factory=dict)
    names: list[list[Any]] = field(default_factory=list)  # name, number, from, to
    files: dict[tuple[int, int], KnownFile] = field(default_factory=dict)
    rejections: dict[str, RejectionRow] = field(default_factory=dict)
    leases: dict[str, tuple[str, int]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, TokenRow] = field(default_factory=dict)
    answers: dict[str, AnswerRow] = field(default_factory=dict)
    listeners: dict[str, ListenerRow] = field(default_factory=dict)

    def table_named(self, key: tuple[str, str, str]) -> int | None:
        return next((n for of, n, _, to in self.names if to is None and of.key == key), None)

    def name_of(self, number: int) -> TableName | None:
        return next((of for of, n, _, to in self.names if to is None and n == number), None)


class ModelConstraintError(Exception):
    """A constraint of the model rejected a step, so the store must reject it, too."""


Step = tuple[Any, ...]
Unit = tuple[list[tuple[list[Step], bool]], bool]  # savepoints, each kept or not; the whole, too

NUMBERS = st.integers(1, 3)
NAMES = st.sampled_from(["a", "A", "b"])
STEPS = st.one_of(
    st.tuples(st.just("tick"), st.integers(0, 5)),
    st.tuples(st.just("table"), NUMBERS),
    st.tuples(st.just("commit"), NUMBERS, st.integers(0, 1), st.integers(0, 3)),
    st.tuples(st.just("publish"), NUMBERS, st.integers(0, 3)),
    st.tuples(st.just("delete content"), NUMBERS, st.integers(0, 3)),
    st.tuples(st.just("name"), NUMBERS, NAMES),
    st.tuples(st.just("release name"), NUMBERS),
    st.tuples(st.just("file"), NUMBERS, st.integers(0, 3)),
    st.tuples(st.just("reject"), st.integers(0, 3)),
    st.tuples(st.just("delete rejections"), st.integers(0, 4)),
    st.tuples(st.just("delete events"), st.integers(0, 6)),
    st.tuples(st.just("lease"), st.sampled_from("xy"), st.sampled_from("pq"), st.integers(0, 4)),
    st.tuples(st.just("release lease"), st.sampled_from("xy"), st.sampled_from("pq")),
    st.tuples(st.just("state"), NUMBERS, st.sampled_from(list(TableStatus))),
    st.tuples(st.just("set"), st.sampled_from("kl"), st.sampled_from("vw")),
    st.tuples(st.just("token"), st.sampled_from("kl"), st.integers(0, 2)),
    st.tuples(st.just("revoke"), st.sampled_from("kl"), st.integers(0, 4)),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("delete answers"), st.integers(0, 4)),
    st.tuples(st.just("listener"), st.sampled_from("kl"), st.integers(0, 3)),
    st.tuples(st.just("advance"), st.sampled_from("kl"), st.integers(0, 3)),
    st.tuples(st.just("delete listener"), st.sampled_from("kl")),
)
UNITS = st.tuples(
    st.lists(st.tuples(st.lists(STEPS, max_size=4), st.booleans()), max_size=4), st.booleans()
)


def apply_unit(store: CatalogStore, model: Model, unit: Unit) -> None:
    """Apply one unit to the store and to the model, and compare them."""
    savepoints, is_kept = unit
    trial = copy.deepcopy(model)
    try:
        with store.write() as writing:
            for steps, survives in savepoints:
                attempt = copy.deepcopy(trial)
                try:
                    with writing.savepoint():
                        for step in steps:
                            apply_step(writing, attempt, step)
                        compare(writing, attempt)
                        if not survives:
                            raise UndoneError
                    trial = attempt
                except (UndoneError, StoreConstraintError):
                    compare(writing, trial)
            if not is_kept:
                raise UndoneError
        model.__dict__.update(trial.__dict__)
    except UndoneError:
        pass
    with store.read() as reading:
        compare(reading, model)


def apply_step(unit: WriteUnit, model: Model, step: Step) -> None:
    """Apply a step to both: both must accept or reject it, and return the same."""
    step = resolved(model, step)
    try:
        expected = apply_to_model(model, step)
    except ModelConstraintError:
        with pytest.raises(StoreConstraintError):
            apply_to_store(unit, step)
        raise StoreConstraintError from None
    assert apply_to_store(unit, step) == expected


def resolved(model: Model, step: Step) -> Step:
    """Replace what a step says relative to the model by values."""
    sequence, clock_ms = model.clock
    match step:
        case "tick", int(by):
            return ("tick", sequence + 1, clock_ms + by, None)
        case "commit", number, skip, txn:
            count = len(model.commits.get(number, ()))
            txn_id = str(txn) if txn else f"{number}-{count}-{skip}"
            return ("commit", number, commit_row(max(count - skip, 0), sequence + 1, txn_id))
        case "name", number, text:
            return ("name", number, name(text), sequence)
        case "release name", number:
            return ("release name", number, sequence)
        case _:
            return step


def apply_to_model(model: Model, step: Step) -> object:
    """Apply a step to the model; return what the store must return."""
    match step:
        case "tick", sequence, clock_ms, txn_id:
            model.clock = (sequence, clock_ms)
            model.ticks.append((sequence, clock_ms, txn_id))
        case "table", number:
            if number in model.tables:
                raise ModelConstraintError
            model.tables[number] = table_row(number)
            model.commits[number] = []
        case "commit", number, CommitRow() as commit:
            commits = model.commits.get(number)
            if commits is None or commit.version < len(commits):
                raise ModelConstraintError
            if any(other.txn_id == commit.txn_id for other in commits):
                raise ModelConstraintError
            commits.append(commit)
            model.tables[number] = model.tables[number]._replace(head=commit.version)
            apply_to_model(model, ("tick", commit.sequence, model.clock[1], commit.txn_id))
        case "publish", number, upto:
            row = model.tables.get(number)
            if row is not None and upto > row.head:
                raise ModelConstraintError
            if row is not None:
                model.commits[number] = [
                    commit._replace(published_ms=commit.published_ms or 7)
                    if commit.version <= upto
                    else commit
                    for commit in model.commits[number]
                ]
                model.tables[number] = row._replace(published=Version(max(row.published, upto)))
        case "delete content", number, upto:
            row = model.tables.get(number)
            if row is not None:
                model.commits[number] = [
                    commit._replace(content=None)
                    if row.held_from <= commit.version <= upto
                    else commit
                    for commit in model.commits[number]
                ]
                held_from = Version(max(row.held_from, upto + 1))
                model.tables[number] = row._replace(held_from=held_from)
        case "name", number, of, since:
            is_taken = model.table_named(of.key) is not None or model.name_of(number) is not None
            if number not in model.tables or is_taken:
                raise ModelConstraintError
            model.names.append([of, number, since, None])
        case "release name", number, until:
            for entry in model.names:
                if entry[1] == number and entry[3] is None:
                    entry[3] = until
        case "file", number, last:
            if number not in model.tables:
                raise ModelConstraintError
            model.files[number, last] = known_file(last)
        case "reject", number:
            if str(number) in model.rejections:
                raise ModelConstraintError
            model.rejections[str(number)] = rejection(number)
        case "delete events", last:
            model.ticks = [tick for tick in model.ticks[:-1] if tick[0] > last] + model.ticks[-1:]
        case "delete rejections", before_ms:
            model.rejections = {
                txn: row for txn, row in model.rejections.items() if row.decided_ms >= before_ms
            }
        case "lease", lease, holder, now_ms:
            held_by, until = model.leases.get(lease, (holder, 0))
            if held_by != holder and until > now_ms:
                return False
            model.leases[lease] = (holder, now_ms + 2)
            return True
        case "release lease", lease, holder:
            if model.leases.get(lease, ("", 0))[0] == holder:
                del model.leases[lease]
        case "state", number, state:
            if number in model.tables:
                model.tables[number] = model.tables[number]._replace(state=state)
        case "set", key, value:
            model.settings[key] = value
        case "token", key, secret:
            row = TokenRow(key, b"%d" % secret, secret)
            if key in model.tokens or any(
                other.secret_sha256 == row.secret_sha256 for other in model.tokens.values()
            ):
                raise ModelConstraintError
            model.tokens[key] = row
        case "revoke", key, now_ms:
            if key in model.tokens and model.tokens[key].revoked_ms is None:
                model.tokens[key] = model.tokens[key]._replace(revoked_ms=now_ms)
        case "answer", number:
            if str(number) in model.answers:
                raise ModelConstraintError
            model.answers[str(number)] = kept_answer(number)
        case "delete answers", before_ms:
            model.answers = {
                key: row for key, row in model.answers.items() if row.decided_ms >= before_ms
            }
        case "listener", key, position:
            model.listeners[key] = listener(key, position)
        case "advance", key, position:
            if key in model.listeners:
                row = model.listeners[key]
                model.listeners[key] = row._replace(
                    position=Sequence(max(row.position, position)), failing=str(position)
                )
        case "delete listener", key:
            model.listeners.pop(key, None)
        case _:
            raise AssertionError(step)
    return None


def apply_to_store(unit: WriteUnit, step: Step) -> object:
    """Apply a step to the store."""
    match step:
        case "tick", sequence, clock_ms, txn_id:
            unit.advance_clock(CatalogClock(sequence, clock_ms), txn_id)
        case "table", number:
            unit.insert_table(table_row(number))
        case "commit", number, CommitRow() as commit:
            row = unit.table(table_id(number))
            unit.insert_commit(0 if row is None else row.key, commit)
            assert row is not None
            unit.update_table(row._replace(head=commit.version))
            unit.advance_clock(CatalogClock(commit.sequence, unit.clock().clock_ms), commit.txn_id)
        case "publish", number, upto:
            unit.record_published(key_of(unit, number), Version(0), Version(upto), 7)
        case "delete content", number, upto:
            unit.delete_content(key_of(unit, number), Version(upto))
        case "name", number, of, since:
            unit.assign_name(of, table_id(number), since)
        case "release name", number, until:
            unit.release_name(table_id(number), until)
        case "file", number, last:
            unit.insert_file(key_of(unit, number), known_file(last))
        case "reject", number:
            unit.insert_rejection(rejection(number))
        case "delete events", last:
            unit.delete_events(Sequence(last))
        case "delete rejections", before_ms:
            unit.delete_rejections(before_ms)
        case "lease", lease, holder, now_ms:
            return unit.acquire_lease(lease, holder, now_ms, now_ms + 2)
        case "release lease", lease, holder:
            unit.release_lease(lease, holder)
        case "state", number, state:
            row = unit.table(table_id(number))
            if row is not None:
                unit.update_table(row._replace(state=state))
        case "set", key, value:
            unit.set_setting(key, value)
        case "token", key, secret:
            unit.insert_token(TokenRow(key, b"%d" % secret, secret))
        case "revoke", key, now_ms:
            unit.revoke_token(key, now_ms)
        case "answer", number:
            unit.insert_answer(kept_answer(number))
        case "delete answers", before_ms:
            unit.delete_answers(before_ms)
        case "listener", key, position:
            unit.put_listener(listener(key, position))
        case "advance", key, position:
            unit.advance_listener(key, Sequence(position), str(position))
        case "delete listener", key:
            unit.delete_listener(key)
        case _:
            raise AssertionError(step)
    return None


def key_of(unit: ReadUnit, number: int) -> int:
    """Return a table's key, or a key that no table has."""
    row = unit.table(table_id(number))
    return 0 if row is None else row.key


def known_file(last: int) -> KnownFile:
    return KnownFile(
        kind=FileKind.CHECKPOINT, first=Version(last), last=Version(last), paths=(f"{last}",)
    )


def rejection(number: int) -> RejectionRow:
    return RejectionRow(TxnId(str(number)), b"intent", b"answer", number)


def kept_answer(number: int) -> AnswerRow:
    return AnswerRow(str(number), b"asked", b"answered", number)


def listener(key: str, position: int) -> ListenerRow:
    return ListenerRow(key, "webhook", f"to {position}", Sequence(position), position)


def compare(unit: ReadUnit, model: Model) -> None:
    """Compare everything a store returns with the model."""
    assert unit.clock() == model.clock
    assert unit.oldest_event() == (model.ticks[0][:2] if model.ticks else None)
    for ms in range(model.clock[1] + 2):
        expected = max((tick[:2] for tick in model.ticks if tick[1] <= ms), default=None)
        assert unit.clock_at(ms) == expected
    assert unit.tokens() == sorted(model.tokens.values())
    for number in range(4):
        assert unit.answer(str(number)) == model.answers.get(str(number))
    assert unit.listeners() == sorted(model.listeners.values())
    compare_events(unit, model)
    for key in "kl":
        assert unit.setting(key) == model.settings.get(key)
    for number in range(4):
        assert unit.rejection(TxnId(str(number))) == model.rejections.get(str(number))
    for number in range(1, 4):
        compare_table(unit, model, number)
    for text in "ab":
        here = [entry for entry in model.names if entry[0].key == name(text).key]
        for at in (None, *range(model.clock[0] + 2)):
            named = [n for _, n, since, to in here if is_current(since, to, at)]
            found = unit.table_id_of(name(text), None if at is None else Sequence(at))
            assert found == (table_id(named[0]) if named else None)
    tails = [row.id for row in model.tables.values() if row.published < row.head]
    active = [row.id for row in model.tables.values() if row.state is TableStatus.ACTIVE]
    assert sorted(row.id for row in unit.unpublished_tables()) == sorted(set(tails) & set(active))
    for txn_id in ("1", "2", "3"):
        expected_commits = {
            table_id(number): commit
            for number, commits in model.commits.items()
            for commit in commits
            if commit.txn_id == txn_id
        }
        assert dict(unit.transaction_commits(TxnId(txn_id))) == expected_commits


def compare_events(unit: ReadUnit, model: Model) -> None:
    events = unit.events(Sequence(0), 1000)
    assert [event[:3] for event in events] == model.ticks
    for event in events:
        commits = [
            (table_id(number), commit._replace(content=None, summary=None))
            for number, commits in model.commits.items()
            for commit in commits
            if commit.sequence == event.sequence
        ]
        assert sorted(event.commits) == sorted(commits)
        for changes, end in ((event.names_assigned, 2), (event.names_released, 3)):
            names = [
                (str(entry[0]), table_id(entry[1]))
                for entry in model.names
                if entry[end] == event.sequence
            ]
            assert sorted((str(of), number) for of, number in changes) == sorted(names)


def compare_table(unit: ReadUnit, model: Model, number: int) -> None:
    row, expected = unit.table(table_id(number)), model.tables.get(number)
    if expected is None:
        assert row is None
        return
    assert row is not None
    assert row == expected._replace(key=row.key)
    commits = model.commits[number]
    assert unit.commits(row.key, Version(0), Version(99), content=True, summary=True) == commits
    for at in range(model.clock[0] + 2):
        versions = [commit.version for commit in commits if commit.sequence <= at]
        assert unit.version_at(row.key, Sequence(at)) == (versions[-1] if versions else None)
    assert unit.name_of(row.id) == model.name_of(number)
    files = [file for (of, _), file in model.files.items() if of == number]
    newest = max(files, key=lambda file: file.last, default=None)
    assert unit.files(row.key, Version(99)) == ([] if newest is None else [newest])


def is_current(since: int, to: int | None, at: int | None) -> bool:
    if at is None:
        return to is None
    return since <= at and (to is None or at < to)
