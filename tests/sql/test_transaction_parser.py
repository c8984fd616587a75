"""The statements that begin and end transactions."""

import pytest

from headgate.errors import SyntaxRefusedError
from headgate.protocol.commit.conflicts import Isolation
from headgate.sql.script import parse
from headgate.sql.statements import (
    AtomicBlock,
    BeginTransaction,
    EndTransaction,
    Insert,
    OnSavepoint,
    Piece,
    Query,
    SavepointAction,
    ShowTransaction,
)


@pytest.mark.parametrize(
    ("text", "isolation", "read_only", "as_of"),
    [
        ("BEGIN", None, False, None),
        ("begin txn", None, False, None),
        ("BEGIN TRANSACTION READ ONLY", None, True, None),
        ("BEGIN WORK ISOLATION LEVEL SNAPSHOT", Isolation.SNAPSHOT, False, None),
        ("START TRANSACTION ISOLATION LEVEL SERIALIZABLE", Isolation.SERIALIZABLE, False, None),
        (
            "START TXN ISOLATION LEVEL WRITE SERIALIZABLE READ ONLY",
            Isolation.WRITE_SERIALIZABLE,
            True,
            None,
        ),
        ("BEGIN ISOLATION LEVEL write_serializable", Isolation.WRITE_SERIALIZABLE, False, None),
        ("BEGIN AS OF SEQUENCE 12", None, False, 12),
        ("BEGIN AS OF TIMESTAMP '2026-03-01'", None, False, Piece("'2026-03-01'", 22)),
    ],
)
def test_a_beginning_has_its_options(
    text: str, isolation: Isolation | None, read_only: bool, as_of: int | Piece | None
) -> None:
    assert parse(text) == (BeginTransaction(Piece(text, 0), isolation, read_only, as_of),)


@pytest.mark.parametrize("noun", ["", " TXN", " TRANSACTION", " WORK"])
def test_an_end_commits_or_rolls_back(noun: str) -> None:
    for verb, commits in (("COMMIT", True), ("ROLLBACK", False), ("ABORT", False)):
        text = verb + noun
        assert parse(text) == (EndTransaction(Piece(text, 0), commits),)
    if noun:
        assert parse(f"END{noun}") == (EndTransaction(Piece(f"END{noun}", 0), True),)


@pytest.mark.parametrize(
    ("text", "action", "name"),
    [
        ("SAVEPOINT `a b`", SavepointAction.SET, "a b"),
        ("ROLLBACK TO a", SavepointAction.ROLL_BACK_TO, "a"),
        ("ROLLBACK TRANSACTION TO SAVEPOINT a", SavepointAction.ROLL_BACK_TO, "a"),
        ("RELEASE a", SavepointAction.RELEASE, "a"),
        ("RELEASE SAVEPOINT savepoint", SavepointAction.RELEASE, "savepoint"),
    ],
)
def test_savepoints_are_named(text: str, action: SavepointAction, name: str) -> None:
    assert parse(text) == (OnSavepoint(Piece(text, 0), action, name),)


def test_the_current_transaction_can_be_shown() -> None:
    assert parse("SHOW TXN") == (ShowTransaction(Piece("SHOW TXN", 0)),)


def test_a_block_has_its_statements() -> None:
    text = (
        "BEGIN ATOMIC ISOLATION LEVEL SERIALIZABLE RETRY 2 "
        "INSERT INTO t VALUES (CASE WHEN a THEN 1 END); SELECT 1; END"
    )
    block, query = parse(f"{text}; SELECT 2")
    assert isinstance(block, AtomicBlock)
    assert isinstance(query, Query)
    assert (block.whole.text, block.isolation, block.retries) == (text, Isolation.SERIALIZABLE, 2)
    assert [type(statement) for statement in block.body] == [Insert, Query]
    assert block.body[1].whole == Piece("SELECT 1", text.index("SELECT 1"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("BEGIN ISOLATION LEVEL READ COMMITTED", "READ COMMITTED is not a level"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", "REPEATABLE READ is not a level"),
        ("BEGIN ISOLATION LEVEL FAST", "SNAPSHOT, WRITE SERIALIZABLE or SERIALIZABLE"),
        ("BEGIN SELECT 1", "BEGIN takes ISOLATION LEVEL"),
        ("END", "TXN, TRANSACTION or WORK"),
        ("START", "TRANSACTION"),
        ("COMMIT AND CHAIN", "[Tt]he end of the statement"),
        ("SAVEPOINT", "[Tt]he savepoint's name"),
        ("BEGIN ATOMIC BEGIN; SELECT 1; END", "neither begin nor end inside"),
        ("BEGIN ATOMIC SELECT 1; ROLLBACK; END", "neither begin nor end inside"),
    ],
)
def test_what_is_none_of_them_is_refused(text: str, why: str) -> None:
    with pytest.raises(SyntaxRefusedError, match=why):
        parse(text)
