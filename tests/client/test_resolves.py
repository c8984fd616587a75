"""A read and a write resolve their table once; a blind append does not resolve it at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.table_definition import TableDefinition
from tests.client.conftest import World, ids_in, rows
from tests.kit.resolve_count import count_resolves

BY_NAME: dict[str, Callable[[Session], object]] = {
    "snapshot": lambda session: session.snapshot("orders").files(),
    "earlier snapshot": lambda session: session.snapshot("orders", version=1).files(),
    "table": lambda session: session.table("orders").schema,
    "create if not exists": lambda session: session.create_table(
        "orders", "id long", if_not_exists=True
    ),
    "replace": lambda session: session.replace_table("orders", "id long"),
    "create or replace": lambda session: session.replace_table("orders", "v long", or_create=True),
    "read of two": lambda session: session.read_cut(["orders"]),
}
ONCE: dict[str, Callable[[Table], object]] = {
    "read": lambda table: table.to_arrow(),
    "read of a version": lambda table: table.to_arrow(version=1),
    "history": lambda table: table.history(),
    "detail": lambda table: table.detail(),
    "overwrite": lambda table: table.overwrite(rows(2)),
    "remove": lambda table: table.remove([table.newest_seen.files()[0].path]),
    "replace": lambda table: table.replace(TableDefinition.parse("v string")),
    "not null": lambda table: table.alter_column("id", nullable=False),
    "add constraint": lambda table: table.add_constraint("positive", "id > 0"),
    "drop column if exists": lambda table: table.drop_columns(["nothing"], if_exists=True),
}
NEVER: dict[str, Callable[[Table], object]] = {
    "append": lambda table: table.append(rows(2)),
    "two appends": lambda table: [table.append(rows(2)), table.append(rows(3))],
    "schema after an append": lambda table: [table.append(rows(2)), table.schema],
    "set properties": lambda table: table.set_properties({"team": "sales"}),
    "comment": lambda table: table.comment("what was sold"),
    "add columns": lambda table: table.add_columns("v string"),
}


@pytest.fixture
def session(near_world: World) -> Session:
    near_world.make().append(rows(1))
    return near_world.session()


@pytest.mark.parametrize("run", BY_NAME.values(), ids=list(BY_NAME))
def test_a_call_by_name_resolves_the_table_once(
    run: Callable[[Session], object],
    session: Session,
    near_world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved = count_resolves(monkeypatch, near_world.catalog)
    run(session)
    assert resolved == ["main.default.orders"]


@pytest.mark.parametrize("run", ONCE.values(), ids=list(ONCE))
def test_a_read_or_write_through_a_table_resolves_it_once(
    run: Callable[[Table], object],
    session: Session,
    near_world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = session.table("orders")
    resolved = count_resolves(monkeypatch, near_world.catalog)
    run(table)
    assert resolved == [table.id]


@pytest.mark.parametrize("run", NEVER.values(), ids=list(NEVER))
def test_a_write_that_reads_nothing_does_not_resolve_the_table(
    run: Callable[[Table], object],
    session: Session,
    near_world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = session.table("orders")
    resolved = count_resolves(monkeypatch, near_world.catalog)
    run(table)
    assert resolved == []


class TestSessionSnapshot:
    def test_it_is_of_the_latest_version_each_time(self, near_world: World) -> None:
        table = near_world.make()
        reader = near_world.session()
        for number in range(3):
            assert reader.snapshot("orders").version == number
            table.append(rows(number))

    def test_a_time_and_a_sequence_choose_an_earlier_version(self, near_world: World) -> None:
        table = near_world.make()
        first, second = table.append(rows(1)), table.append(rows(2))
        session = near_world.session()
        assert session.snapshot("orders", as_of=first.timestamp_ms).version == first.version
        assert session.snapshot("orders", sequence=first.sequence).version == first.version
        assert session.snapshot("orders", sequence=second.sequence).version == second.version

    def test_it_is_read_as_the_table_is(self, session: Session) -> None:
        from headgate.client import arrow_io

        assert ids_in(arrow_io.to_arrow(session.snapshot("orders"))) == [1]
