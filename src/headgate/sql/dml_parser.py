"""Parse INSERT, UPDATE, DELETE and MERGE."""

from functools import partial

from headgate.protocol.expressions.lexer import TokenKind
from headgate.protocol.expressions.parser import QUERY_STARTS
from headgate.sql.cursor import Cursor
from headgate.sql.positions import refused
from headgate.sql.statements import (
    Assignment,
    Delete,
    Do,
    Insert,
    MergeClause,
    MergeInto,
    Name,
    PartitionValue,
    Piece,
    TableReference,
    Update,
    Values,
    When,
)


def insert(cursor: Cursor) -> Insert:
    """Parse an INSERT."""
    cursor.expect("INSERT")
    evolves_schema = cursor.took("WITH", "SCHEMA", "EVOLUTION")
    overwrites = cursor.took("OVERWRITE")
    if not overwrites:
        cursor.expect("INTO")
    if cursor.sees("DIRECTORY") or cursor.sees("LOCAL", "DIRECTORY"):
        raise cursor.unsupported("INSERT OVERWRITE DIRECTORY", "Use df.write.")
    cursor.took_before_name("TABLE")
    target = cursor.name("a table")
    evolves_schema |= cursor.took("WITH", "SCHEMA", "EVOLUTION")
    partition = cursor.listed(partial(_partition_value, cursor)) if cursor.took("PARTITION") else []
    if cursor.sees("IF", "NOT", "EXISTS"):
        raise cursor.unsupported("INSERT … IF NOT EXISTS", "Check first if the partition has rows.")
    by_name = cursor.took("BY", "NAME")
    columns: tuple[str, ...] = ()
    if not by_name and cursor.sees("(") and not _begins_query(cursor):
        columns = tuple(cursor.listed(lambda: cursor.identifier("a column")))
        by_name = cursor.took("BY", "NAME")
    replace_where = None
    if cursor.sees("REPLACE"):
        if overwrites or partition or columns or by_name:
            raise cursor.unexpected("a query or VALUES")
        replace_where = _replace_where(cursor)
        by_name = cursor.took("BY", "NAME")
    return Insert(
        target,
        _source(cursor),
        overwrites=overwrites,
        replace_where=replace_where,
        columns=columns,
        by_name=by_name,
        partition=tuple(item for item in partition if item is not None),
        evolves_schema=evolves_schema,
    )


def update(cursor: Cursor) -> Update:
    """Parse an UPDATE."""
    cursor.expect("UPDATE")
    target = cursor.name("a table")
    alias = cursor.alias(may_be_clause=False)
    cursor.expect("SET")
    assignments = tuple(cursor.several(lambda: _assignment(cursor, "WHERE")))
    condition = cursor.condition() if cursor.took("WHERE") else None
    return Update(target, alias, assignments, condition)


def delete(cursor: Cursor) -> Delete:
    """Parse a DELETE."""
    cursor.expect("DELETE", "FROM")
    target = cursor.name("a table")
    alias = cursor.alias(may_be_clause=False)
    condition = cursor.condition() if cursor.took("WHERE") else None
    return Delete(target, alias, condition)


def truncate(cursor: Cursor) -> Delete:
    """Parse TRUNCATE TABLE: a DELETE of every row."""
    cursor.expect("TRUNCATE", "TABLE")
    target = cursor.name("a table")
    if cursor.sees("PARTITION"):
        raise cursor.unsupported("TRUNCATE of a partition", "Use DELETE FROM … WHERE.")
    return Delete(target, None, None)


def merge(cursor: Cursor) -> MergeInto:
    """Parse a MERGE."""
    cursor.expect("MERGE")
    evolves_schema = cursor.took("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    target = cursor.name("a table")
    target_alias = cursor.alias(may_be_clause=False)
    cursor.expect("USING")
    source: TableReference | Piece
    if cursor.sees("("):
        start = cursor.peek().end
        cursor.skip_group()
        source = _inner(cursor, start, cursor.end - 1)
    else:
        source = cursor.table_reference("a table or a query in parentheses")
    source_alias = cursor.alias(may_be_clause=False)
    cursor.expect("ON")
    on = cursor.condition("WHEN")
    clauses: list[MergeClause] = []
    while cursor.sees("WHEN"):
        start = cursor.peek().start
        clause = _clause(cursor)
        earlier = [c for c in clauses if c.when is clause.when]
        if earlier and earlier[-1].condition is None:
            raise refused(
                cursor.text,
                start,
                f"the WHEN {clause.when.value.upper()} before this one takes every row",
                "Give it a condition, or put it last of its kind.",
            )
        clauses.append(clause)
    if not clauses:
        raise cursor.unexpected("`WHEN`")
    return MergeInto(target, target_alias, source, source_alias, on, tuple(clauses), evolves_schema)


def _replace_where(cursor: Cursor) -> Piece:
    cursor.expect("REPLACE")
    if cursor.sees_any("ON", "USING"):
        raise cursor.unsupported(
            f"INSERT … REPLACE {cursor.peek().key}", "Use REPLACE WHERE, or MERGE."
        )
    cursor.expect("WHERE")
    return cursor.condition(*QUERY_STARTS, "BY")


def _partition_value(cursor: Cursor) -> PartitionValue | None:
    """Parse one column of PARTITION; None if it is dynamic."""
    column = cursor.identifier("a partition column")
    return PartitionValue(column, cursor.expression()) if cursor.took("=") else None


def _begins_query(cursor: Cursor) -> bool:
    """Return True if a parenthesis begins a query and not a list of names."""
    ahead = 1
    while cursor.peek(ahead).key == "(":
        ahead += 1
    return cursor.peek(ahead).is_key(*QUERY_STARTS) and not cursor.peek(ahead + 1).is_key(",", ")")


def _source(cursor: Cursor) -> Values | Piece:
    if not cursor.sees_any("(", "VALUE", *QUERY_STARTS):
        raise cursor.unexpected("a query or VALUES")
    start = cursor.peek().start
    if word := cursor.took_any("VALUES", "VALUE"):
        if cursor.is_at_end:
            raise cursor.unexpected("a row")
        if (found := _values(cursor)) is not None:
            return found
        if word == "VALUE":
            raise cursor.unexpected("rows in parentheses")
    cursor.skip_rest()
    return cursor.piece(start, cursor.end)


def _values(cursor: Cursor) -> Values | None:
    """Parse rows; None if more than rows follow, so that it is a query."""
    start = cursor.peek().start
    rows: list[tuple[Piece, ...]] = []
    while True:
        if cursor.sees("("):
            rows.append(tuple(cursor.listed(cursor.expression)))
        elif cursor.peek().kind in (TokenKind.NUMBER, TokenKind.STRING) or cursor.sees_any(
            "-", "NULL"
        ):
            rows.append((cursor.expression(),))
        else:
            return None  # perhaps a struct, which Spark expands to a row
        if cursor.is_at_end:
            return Values(cursor.piece(start, cursor.end), tuple(rows))
        if not cursor.took(","):
            return None


def _assignment(cursor: Cursor, *stops: str) -> Assignment:
    column = cursor.name("a column")
    if not cursor.took_any("=", "=="):
        raise cursor.unexpected("`=`")
    return Assignment(column, cursor.expression(*stops))


def _clause(cursor: Cursor) -> MergeClause:
    cursor.expect("WHEN")
    is_not = cursor.took("NOT") or cursor.took("!")
    cursor.expect("MATCHED")
    when = When.NOT_MATCHED if is_not else When.MATCHED
    if is_not and cursor.took("BY"):
        by = cursor.took_any("SOURCE", "TARGET")
        if not by:
            raise cursor.unexpected("`SOURCE` or `TARGET`")
        when = When.NOT_MATCHED_BY_SOURCE if by == "SOURCE" else When.NOT_MATCHED
    condition = cursor.condition("THEN") if cursor.took("AND") else None
    cursor.expect("THEN")
    if when is When.NOT_MATCHED:
        return MergeClause(when, condition, Do.INSERT, *_merge_insert(cursor))
    if cursor.took("DELETE"):
        return MergeClause(when, condition, Do.DELETE)
    if not cursor.took("UPDATE"):
        raise cursor.unexpected("`UPDATE` or `DELETE`")
    cursor.expect("SET")
    if when is When.MATCHED and cursor.took("*"):
        return MergeClause(when, condition, Do.UPDATE)
    given = cursor.several(lambda: _assignment(cursor, "WHEN"))
    columns, values = tuple(a.column for a in given), tuple(a.value for a in given)
    return MergeClause(when, condition, Do.UPDATE, columns, values)


def _merge_insert(cursor: Cursor) -> tuple[tuple[Name, ...], tuple[Piece, ...] | None]:
    cursor.expect("INSERT")
    if cursor.took("*"):
        return (), None
    columns = tuple(cursor.listed(lambda: cursor.name("a column"))) if cursor.sees("(") else ()
    if not cursor.took_any("VALUES", "VALUE"):
        raise cursor.unexpected("`VALUES`")
    place = cursor.peek().start
    values = tuple(cursor.listed(cursor.expression))
    if columns and len(columns) != len(values):
        raise refused(
            cursor.text, place, f"{len(columns)} columns are named, {len(values)} values are given"
        )
    return columns, values


def _inner(cursor: Cursor, start: int, end: int) -> Piece:
    """Take the text between two parentheses."""
    inner = cursor.text[start:end]
    stripped = inner.strip()
    if not stripped:
        raise refused(cursor.text, end, "a query was expected, not nothing")
    return Piece(stripped, start + inner.index(stripped))
