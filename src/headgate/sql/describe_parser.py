"""Parse DESCRIBE, SHOW and USE."""

from headgate.protocol.expressions.lexer import TokenKind
from headgate.protocol.expressions.parser import QUERY_STARTS
from headgate.sql.cursor import Cursor
from headgate.sql.ddl_parser import property_key
from headgate.sql.keywords import SCHEMA, SCHEMAS
from headgate.sql.statements import (
    Describe,
    Described,
    Foreign,
    Name,
    Show,
    Shown,
    ShowTransaction,
    UseNamespace,
)


def describe(cursor: Cursor) -> Describe | Foreign:
    """Parse DESCRIBE."""
    cursor.take()
    if cursor.took_keyword("FUNCTION", "CATALOG", "PROCEDURE"):
        return foreign(cursor, "DESCRIBE")
    is_query = cursor.sees_any(*QUERY_STARTS) and not cursor.sees("TABLE")
    if cursor.took_keyword("QUERY") or (is_query and cursor.peek(1).key not in ("", ".")):
        return Foreign(cursor.whole, "DESCRIBE", cursor.rest())
    if cursor.took_keyword(*SCHEMA):
        cursor.took("EXTENDED")
        return Describe(Described.SCHEMA, cursor.name("a schema"))
    if word := cursor.took_keyword("DETAIL", "HISTORY"):
        cursor.took("TABLE")
        name = cursor.name("a table")
        has_limit = word == "HISTORY" and cursor.took("LIMIT")
        return Describe(Described(word), name, limit=cursor.integer() if has_limit else None)
    cursor.took_keyword("TABLE")
    is_extended = bool(cursor.took_keyword("EXTENDED", "FORMATTED"))
    name = cursor.name("a table")
    if cursor.sees_any("PARTITION", "AS"):
        raise cursor.unsupported(f"DESCRIBE … {cursor.peek().key}", "Describe the whole table.")
    what = Described.EXTENDED if is_extended else Described.TABLE
    return Describe(what, name, () if cursor.is_at_end else cursor.path())


def show(cursor: Cursor) -> Show | ShowTransaction | Foreign:
    """Parse SHOW."""
    cursor.expect("SHOW")
    if cursor.took("TABLES"):
        return Show(Shown.TABLES, _within(cursor, "a schema"), _like(cursor))
    if cursor.took_any(*SCHEMAS):
        return Show(Shown.SCHEMAS, _within(cursor, "a catalog"), _like(cursor))
    if cursor.took("CATALOGS"):
        return Show(Shown.CATALOGS, None, _like(cursor))
    if cursor.took("COLUMNS"):
        if not cursor.took_any("IN", "FROM"):
            raise cursor.unexpected("IN and a table")
        name = cursor.name("a table")
        if (schema := _within(cursor, "a schema")) is not None:
            name = Name((*schema.parts, *name.parts[-1:]), name.piece)
        return Show(Shown.COLUMNS, name, _like(cursor))
    if cursor.took("TBLPROPERTIES"):
        name = cursor.name("a table")
        if not cursor.took("("):
            return Show(Shown.PROPERTIES, name, _like(cursor))
        key = property_key(cursor)
        cursor.expect(")")
        return Show(Shown.PROPERTIES, name, key=key)
    if cursor.took("CREATE", "TABLE"):
        return Show(Shown.CREATE_TABLE, cursor.name("a table"))
    if cursor.took_any("TRANSACTION", "TXN"):
        return ShowTransaction(cursor.whole)
    if cursor.sees("TABLE", "EXTENDED") or cursor.sees("PARTITIONS"):
        raise cursor.unsupported(
            f"SHOW {cursor.peek().key}", "Use SHOW TABLES, or DESCRIBE DETAIL."
        )
    return foreign(cursor, "SHOW")


def use(cursor: Cursor) -> UseNamespace:
    """Parse USE, and SET CATALOG."""
    if cursor.took("SET", "CATALOG"):
        return UseNamespace(cursor.name("a catalog"), is_catalog=True)
    cursor.expect("USE")
    is_catalog = cursor.took_keyword("CATALOG", *SCHEMA) == "CATALOG"
    return UseNamespace(cursor.name("a catalog" if is_catalog else "a schema"), is_catalog)


def _within(cursor: Cursor, what: str) -> Name | None:
    return cursor.name(what) if cursor.took_any("IN", "FROM") else None


def _like(cursor: Cursor) -> str | None:
    if cursor.took("LIKE"):
        return cursor.string("a pattern")
    return cursor.string() if cursor.peek().kind is TokenKind.STRING else None


def foreign(cursor: Cursor, verb: str) -> Foreign:
    """Take the rest of a statement that Spark runs."""
    cursor.skip_rest()
    return Foreign(cursor.whole, verb)
