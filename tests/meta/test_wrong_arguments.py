"""No wrong argument of a public function ends in an error of Python's own, or in `unavailable`."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate import _connect
from headgate.api.events import Event, Listener
from headgate.client.open_transaction import Transaction
from headgate.client.plain_table import PlainTable
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.table_definition import TableDefinition
from headgate.client.transaction import OperationInfo
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.settings import Settings
from headgate.storage import locations
from tests.kit.wrong_arguments import public_methods, unexpected

ROWS = pa.table({"id": [1, 2]})
SAMPLES: Mapping[str, object] = {
    "to": "u",
    "schema": "id long",
    "location": "file:///nowhere/at/all",
    "url": "http://localhost:1/",
    "listener": lambda event: None,
    "names": ["t"],
    "target": "backup.db",
    "definition": TableDefinition(parse_schema("id long")),
    "fill": lambda new: [],
    "run": lambda transaction: None,
    "rows": ROWS,
    "paths": ["part.parquet"],
    "properties": {"owner": "me"},
    "keys": ["owner"],
    "columns": "more long",
    "column": "id",
    "condition": "id > 0",
    "operation": OperationInfo("WRITE"),
    "actions": (),
    "address": "other",
    "path": "t",
    "store_for": locations.store_for,
}
FUNCTIONS: tuple[Callable[..., object], ...] = (
    headgate.connect,
    headgate.open,
    _connect.init,
    Settings,
)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.chdir(tmp_path)
    with _connect.connect("lake", publisher=False) as opened:
        opened.create_table("t", "id long", properties={"owner": "me"}).append(ROWS)
        yield opened


def samples(session: Session) -> Mapping[str, object]:
    return {
        **SAMPLES,
        "catalog": session.catalog,
        "clock": session.clock,
        "ids": session.ids,
        "resolved": session.resolve("t"),
        "base": session.table("t").snapshot(),
        "snapshot": session.table("t").snapshot(),
    }


@pytest.mark.parametrize("method", public_methods(Session))
def test_no_wrong_argument_breaks_a_method_of_a_session(session: Session, method: str) -> None:
    call = Session if method == "__init__" else getattr(session, method)
    assert unexpected(call, samples(session)) == []


@pytest.mark.parametrize("method", [m for m in public_methods(Table) if m != "__init__"])
def test_no_wrong_argument_breaks_a_method_of_a_table(session: Session, method: str) -> None:
    assert unexpected(getattr(session.table("t"), method), samples(session)) == []


@pytest.mark.parametrize("method", [m for m in public_methods(Transaction) if m != "__init__"])
def test_no_wrong_argument_breaks_a_method_of_a_transaction(session: Session, method: str) -> None:
    assert unexpected(getattr(session.transaction(), method), samples(session)) == []


@pytest.mark.parametrize("method", [m for m in public_methods(Table) if m != "__init__"])
def test_no_wrong_argument_breaks_a_method_of_a_table_in_a_transaction(
    session: Session, method: str
) -> None:
    table = session.transaction().table("t")
    assert unexpected(getattr(table, method), samples(session)) == []


@pytest.mark.parametrize("method", public_methods(PlainTable))
def test_no_wrong_argument_breaks_a_method_of_a_plain_table(session: Session, method: str) -> None:
    table = PlainTable(session.table("t").snapshot())
    call = PlainTable if method == "__init__" else getattr(table, method)
    assert unexpected(call, samples(session)) == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_wrong_argument_breaks_a_function(
    session: Session, function: Callable[..., object]
) -> None:
    assert unexpected(function, samples(session)) == []


def test_every_public_class_and_function_is_swept() -> None:
    swept = {Session, Table, Transaction, *FUNCTIONS}
    others = {Event, Listener, headgate.errors}  # values that we make, and a shape of functions
    assert {getattr(headgate, name) for name in headgate.__all__} <= swept | others
