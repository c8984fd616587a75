"""Recognize queries that only count the rows of a table."""

from dataclasses import dataclass

from headgate.sql.cursor import Cursor
from headgate.sql.positions import tokenize
from headgate.sql.statements import Piece, TableReference

_COLUMN = "count(1)"  # the name in Spark, whatever is counted


@dataclass(frozen=True, slots=True)
class Count:
    """The number of a table's rows, in a column of this name."""

    table: TableReference
    column: str


def find_count(script: str, piece: Piece) -> Count | None:
    """Parse `SELECT count(*) FROM t`, with or without aliases; None for any other query."""
    cursor = Cursor(script, tokenize(script, piece.start, piece.end))
    if not cursor.took("SELECT", "COUNT", "("):
        return None
    if not cursor.took("*") and not (cursor.peek().text == "1" and cursor.take()):
        return None
    if not cursor.took(")"):
        return None
    column = None if cursor.sees("FROM") else cursor.alias()
    if not cursor.took("FROM") or not cursor.peek().is_name or cursor.sees("IDENTIFIER", "("):
        return None
    table = cursor.table_reference()
    cursor.alias()
    return Count(table, column or _COLUMN) if cursor.is_at_end else None
