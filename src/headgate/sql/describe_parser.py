"""Parse DESCRIBE, SHOW, USE, and the statements of maintenance."""

from __future__ import annotations

from headgate.protocol.expressions.lexer import TokenKind
from headgate.protocol.expressions.parser import QUERY_STARTS
from headgate.sql.cursor import Cursor
from headgate.sql.statements import (
    Describe,
    Described,
    Foreign,
    Name,
    Optimize,
    Piece,
    Restore,
    Show,
    Shown,
    UseNamespace,
    Vacuum,
)

_SCHEMA = ("SCHEMA", "DATABASE", "NAMESPACE")


def describe(cursor: Cursor, whole: Piece) -> Describe | Foreign:
    """Parse DESCRIBE."""
    cursor.take()
    if cursor.sees_any("FUNCTION", "CATALOG", "PROCEDURE") and not _is_last(cursor):
        return _foreign(cursor, whole, "DESCRIBE", None)
    if cursor.sees("QUERY") and not _is_last(cursor):
        cursor.take()
        return _foreign(cursor, whole, "DESCRIBE", cursor.rest())
    if cursor.sees_any(*QUERY_STARTS) and not cursor.sees("TABLE") and not _is_last(cursor):
        return _foreign(cursor, whole, "DESCRIBE", cursor.rest())
    if cursor.sees_any(*_SCHEMA) and not _is_last(cursor):
        cursor.take()
        extended = cursor.took("EXTENDED")
        what = Described.SCHEMA_EXTENDED if extended else Described.SCHEMA
        return Describe(whole, what, cursor.name("a schema"))
    if cursor.sees_any("DETAIL", "HISTORY") and not _is_last(cursor):
        what = Described(cursor.take().key)
        cursor.took("TABLE")
        name = cursor.name("a table")
        limit = None
        if what is Described.HISTORY and cursor.took("LIMIT"):
            limit = cursor.integer()
        return Describe(whole, what, name, limit=limit)
    if cursor.sees("TABLE") and not _is_last(cursor):
        cursor.take()
    what = Described.TABLE
    if cursor.sees_any("EXTENDED", "FORMATTED") and not _is_last(cursor):
        cursor.take()
        what = Described.EXTENDED
    name = cursor.name("a table")
    if cursor.sees_any("PARTITION", "AS"):
        raise cursor.refused(
            f"DESCRIBE … {cursor.peek().key} is not known here", "Describe the whole table."
        )
    return Describe(whole, what, name, () if cursor.is_at_end else cursor.path())


def show(cursor: Cursor, whole: Piece) -> Show | Foreign:
    """Parse SHOW."""
    cursor.expect("SHOW")
    if cursor.took("TABLES"):
        schema = cursor.name("a schema") if cursor.took_any("IN", "FROM") else None
        return Show(whole, Shown.TABLES, schema, _like(cursor))
    if cursor.took_any("SCHEMAS", "DATABASES", "NAMESPACES"):
        catalog = cursor.name("a catalog") if cursor.took_any("IN", "FROM") else None
        return Show(whole, Shown.SCHEMAS, catalog, _like(cursor))
    if cursor.took("CATALOGS"):
        return Show(whole, Shown.CATALOGS, None, _like(cursor))
    if cursor.took("COLUMNS"):
        if not cursor.took_any("IN", "FROM"):
            raise cursor.unexpected("IN and a table")
        name = cursor.name("a table")
        if cursor.took_any("IN", "FROM"):
            schema = cursor.name("a schema")
            name = Name((*schema.parts, *name.parts[-1:]), name.piece)
        return Show(whole, Shown.COLUMNS, name, _like(cursor))
    if cursor.took("TBLPROPERTIES"):
        name = cursor.name("a table")
        if not cursor.took("("):
            return Show(whole, Shown.PROPERTIES, name, _like(cursor))
        quoted = cursor.peek().kind is TokenKind.STRING
        key = cursor.string() if quoted else str(cursor.name("a property"))
        cursor.expect(")")
        return Show(whole, Shown.PROPERTIES, name, key=key)
    if cursor.took("CREATE", "TABLE"):
        return Show(whole, Shown.CREATE_TABLE, cursor.name("a table"))
    if cursor.took_any("TRANSACTION", "TXN"):
        return Show(whole, Shown.TRANSACTION)
    if cursor.sees("TABLE", "EXTENDED") or cursor.sees("PARTITIONS"):
        raise cursor.refused(
            f"SHOW {cursor.peek().key} is not known here", "Use SHOW TABLES, or DESCRIBE DETAIL."
        )
    return _foreign(cursor, whole, "SHOW", None)


def use(cursor: Cursor, whole: Piece) -> UseNamespace:
    """Parse USE, and SET CATALOG."""
    if cursor.took("SET", "CATALOG"):
        return UseNamespace(whole, cursor.name("a catalog"), is_catalog=True)
    cursor.expect("USE")
    is_catalog = False
    if cursor.sees_any("CATALOG", *_SCHEMA) and not _is_last(cursor):
        is_catalog = cursor.take().key == "CATALOG"
    return UseNamespace(whole, cursor.name("a catalog" if is_catalog else "a schema"), is_catalog)


def optimize(cursor: Cursor, whole: Piece) -> Optimize:
    """Parse OPTIMIZE."""
    cursor.expect("OPTIMIZE")
    if cursor.sees("TABLE") and cursor.peek(1).is_name:
        cursor.take()
    name = cursor.name("a table")
    full = cursor.took("FULL")
    condition = cursor.condition("ZORDER") if cursor.took("WHERE") else None
    columns = []
    if cursor.took("ZORDER"):
        cursor.expect("BY")
        columns = cursor.listed(cursor.path) if cursor.sees("(") else cursor.several(cursor.path)
    return Optimize(whole, name, full, condition, tuple(columns))


def vacuum(cursor: Cursor, whole: Piece) -> Vacuum:
    """Parse VACUUM."""
    cursor.expect("VACUUM")
    if cursor.sees("TABLE") and cursor.peek(1).is_name:
        cursor.take()
    name = cursor.name("a table")
    if cursor.sees("LITE") or cursor.sees("USING"):
        raise cursor.refused(f"VACUUM … {cursor.peek().key} is not known here", "Leave it out.")
    cursor.took("FULL")
    hours: float | None = None
    is_dry = False
    while not cursor.is_at_end:
        if hours is None and cursor.took("RETAIN"):
            token = cursor.peek()
            if token.kind is not TokenKind.NUMBER or not token.text.replace(".", "", 1).isdecimal():
                raise cursor.unexpected("a number of hours")
            hours = float(cursor.take().text)
            cursor.expect("HOURS")
        elif not is_dry and cursor.took("DRY"):
            cursor.expect("RUN")
            is_dry = True
        else:
            raise cursor.unexpected("RETAIN n HOURS, DRY RUN, or the end")
    return Vacuum(whole, name, hours, is_dry)


def restore(cursor: Cursor, whole: Piece) -> Restore:
    """Parse RESTORE."""
    cursor.expect("RESTORE")
    if cursor.sees("TABLE") and cursor.peek(1).is_name:
        cursor.take()
    name = cursor.name("a table")
    cursor.took("TO")
    as_of = cursor.as_of()
    if as_of is None:
        raise cursor.unexpected("VERSION AS OF or TIMESTAMP AS OF")
    return Restore(whole, name, as_of)


def _like(cursor: Cursor) -> str | None:
    if cursor.took("LIKE"):
        return cursor.string("a pattern")
    return cursor.string() if cursor.peek().kind is TokenKind.STRING else None


def _is_last(cursor: Cursor) -> bool:
    """Return True if the next word is the last one: then it is a table named like a keyword."""
    following = cursor.peek(1)
    return following.kind is TokenKind.END or following.key == "."


def _foreign(cursor: Cursor, whole: Piece, verb: str, query: Piece | None) -> Foreign:
    if not cursor.is_at_end:
        cursor.rest()
    return Foreign(whole, verb, query)
