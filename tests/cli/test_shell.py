"""The prompt's own decisions: when a statement is whole, and what a word may become."""

from types import SimpleNamespace

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from headgate.cli.sql_prompt import Names, is_complete
from headgate.errors import UnavailableError


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "SELECT 1;",
        "SELECT 1; -- that was it",
        "SELECT ';' ;",
        "SELECT 1; SELECT 2;",
        "BEGIN ATOMIC INSERT INTO t VALUES (1); END;",
        "nonsense;",
        "SELECT 1 END;",
        "exit",
        "QUIT ",
        "exit;",
    ],
)
def test_a_complete_statement_is_run(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT 1; SELECT 2",
        "SELECT ';",
        "SELECT `a;",
        "SELECT 1 /* ;",
        "SELECT 1 -- ;",
        "BEGIN ATOMIC INSERT INTO t VALUES (1);",
        "exit now",
    ],
)
def test_an_incomplete_statement_gets_another_line(text: str) -> None:
    assert not is_complete(text)


class Known:
    """A session that knows some tables, and counts how often it is asked."""

    def __init__(self) -> None:
        self.names = ["main.default.orders", "main.sales.orders", "west.sales.items"]
        self.asked = 0

    def tables(self) -> list[SimpleNamespace]:
        self.asked += 1
        if not self.names:
            raise UnavailableError("The server is gone.")
        return [SimpleNamespace(name=name) for name in [*self.names, None]]


def offered(names: Names, text: str) -> list[str]:
    return [found.text for found in names.get_completions(Document(text), CompleteEvent())]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SEL", ["SELECT"]),
        ("sel", ["select"]),
        ("SELECT * FROM ord", ["orders", "order"]),
        ("SELECT * FROM sales.", ["sales.orders"]),
        ("SELECT * FROM Main.s", ["main.sales.orders"]),
        ("SELECT * FROM west", ["west.sales.items"]),
        ("SELECT * FROM ", []),
        ("SELECT qqq", []),
    ],
)
def test_words_are_completed_to_keywords_and_tables(text: str, words: list[str]) -> None:
    assert offered(Names(Known()), text) == words  # type: ignore[arg-type]


def test_tables_are_read_once_per_statement() -> None:
    known = Known()
    names = Names(known)  # type: ignore[arg-type]
    offered(names, "ord")
    offered(names, "orde")
    assert known.asked == 1
    known.names.append("main.default.ordinary")
    names.refresh()
    assert "ordinary" in offered(names, "ord")


def test_keywords_are_completed_without_a_catalog() -> None:
    known = Known()
    known.names.clear()
    assert offered(Names(known), "sel") == ["select"]  # type: ignore[arg-type]
