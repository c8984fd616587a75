"""Parse DESCRIBE, SHOW and USE."""

from headgate.protocol.expressions.lexer import TokenKind
from headgate.protocol.expressions.parser import QUERY_STARTS
from headgate.sql import statements
from headgate.sql.cursor import Cursor
from headgate.sql.keywords import SCHEMA


def describe(cursor: Cursor, whole: statements.Piece) -> statements.Describe | statements.Foreign:
    """Parse DESCRIBE."""
    cursor.take()
    if cursor.took_keyword("FUNCTION", "CATALOG", "PROCEDURE"):
        return foreign(cursor, whole, "DESCRIBE")
    is_query = cursor.sees_any(*QUERY_STARTS) and not cursor.sees("TABLE")
    if cursor.took_keyword("QUERY") or (is_query and cursor.peek(1).key not in ("", ".")):
        return statements.Foreign(whole, "DESCRIBE", cursor.rest())
    if cursor.took_keyword(*SCHEMA):
        is_extended = cursor.took("EXTENDED")
        what = statements.Described.SCHEMA_EXTENDED if is_extended else statements.Described.SCHEMA
        return statements.Describe(whole, what, cursor.name("a schema"))
    if word := cursor.took_keyword("DETAIL", "HISTORY"):
        what = statements.Described(word)
        cursor.took("TABLE")
        name = cursor.name("a table")
        has_limit = what is statements.Described.HISTORY and cursor.took("LIMIT")
        return statements.Describe(whole, what, name, limit=cursor.integer() if has_limit else None)
    cursor.took_keyword("TABLE")
    is_extended = bool(cursor.took_keyword("EXTENDED", "FORMATTED"))
    what = statements.Described.EXTENDED if is_extended else statements.Described.TABLE
    name = cursor.name("a table")
    if cursor.sees_any("PARTITION", "AS"):
        raise cursor.unsupported(f"DESCRIBE … {cursor.peek().key}", "Describe the whole table.")
    return statements.Describe(whole, what, name, () if cursor.is_at_end else cursor.path())


def show(
    cursor: Cursor, whole: statements.Piece
) -> statements.Show | statements.Foreign | statements.Unsupported:
    """Parse SHOW."""
    cursor.expect("SHOW")
    if cursor.took("TABLES"):
        return statements.Show(
            whole, statements.Shown.TABLES, _within(cursor, "a schema"), _like(cursor)
        )
    if cursor.took_any("SCHEMAS", "DATABASES", "NAMESPACES"):
        return statements.Show(
            whole, statements.Shown.SCHEMAS, _within(cursor, "a catalog"), _like(cursor)
        )
    if cursor.took("CATALOGS"):
        return statements.Show(whole, statements.Shown.CATALOGS, None, _like(cursor))
    if cursor.took("COLUMNS"):
        if not cursor.took_any("IN", "FROM"):
            raise cursor.unexpected("IN and a table")
        name = cursor.name("a table")
        if (schema := _within(cursor, "a schema")) is not None:
            name = statements.Name((*schema.parts, *name.parts[-1:]), name.piece)
        return statements.Show(whole, statements.Shown.COLUMNS, name, _like(cursor))
    if cursor.took("TBLPROPERTIES"):
        name = cursor.name("a table")
        if not cursor.took("("):
            return statements.Show(whole, statements.Shown.PROPERTIES, name, _like(cursor))
        quoted = cursor.peek().kind is TokenKind.STRING
        key = cursor.string() if quoted else str(cursor.name("a property"))
        cursor.expect(")")
        return statements.Show(whole, statements.Shown.PROPERTIES, name, key=key)
    if cursor.took("CREATE", "TABLE"):
        return statements.Show(whole, statements.Shown.CREATE_TABLE, cursor.name("a table"))
    if cursor.took_any("TRANSACTION", "TXN"):
        return statements.Unsupported(whole, "SHOW TRANSACTION")
    if cursor.sees("TABLE", "EXTENDED") or cursor.sees("PARTITIONS"):
        raise cursor.unsupported(
            f"SHOW {cursor.peek().key}", "Use SHOW TABLES, or DESCRIBE DETAIL."
        )
    return foreign(cursor, whole, "SHOW")


def use(cursor: Cursor, whole: statements.Piece) -> statements.UseNamespace:
    """Parse USE, and SET CATALOG."""
    if cursor.took("SET", "CATALOG"):
        return statements.UseNamespace(whole, cursor.name("a catalog"), is_catalog=True)
    cursor.expect("USE")
    is_catalog = cursor.took_keyword("CATALOG", *SCHEMA) == "CATALOG"
    return statements.UseNamespace(
        whole, cursor.name("a catalog" if is_catalog else "a schema"), is_catalog
    )


def _within(cursor: Cursor, what: str) -> statements.Name | None:
    return cursor.name(what) if cursor.took_any("IN", "FROM") else None


def _like(cursor: Cursor) -> str | None:
    if cursor.took("LIKE"):
        return cursor.string("a pattern")
    return cursor.string() if cursor.peek().kind is TokenKind.STRING else None


def foreign(cursor: Cursor, whole: statements.Piece, verb: str) -> statements.Foreign:
    """Take the rest of a statement that Spark runs."""
    cursor.skip_rest()
    return statements.Foreign(whole, verb, None)
