"""Parse INSERT, UPDATE, DELETE and MERGE."""

from headgate.protocol.expressions.lexer import TokenKind
from headgate.protocol.expressions.parser import QUERY_STARTS
from headgate.sql import statements
from headgate.sql.cursor import Cursor
from headgate.sql.positions import refused


def insert(cursor: Cursor, whole: statements.Piece) -> statements.Insert:
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
    partition = _partition(cursor)
    if cursor.sees("IF", "NOT", "EXISTS"):
        raise cursor.unsupported("INSERT … IF NOT EXISTS", "Check first if the partition has rows.")
    by_name = cursor.took("BY", "NAME")
    columns: tuple[str, ...] = ()
    if not by_name and cursor.sees("(") and not _begins_query(cursor):
        columns = tuple(cursor.listed(lambda: cursor.identifier("a column")))
        by_name = cursor.took("BY", "NAME")
    mode: statements.Into | statements.Overwrite | statements.ReplaceWhere = (
        statements.Overwrite() if overwrites else statements.Into()
    )
    if cursor.sees("REPLACE"):
        if overwrites or partition or columns or by_name:
            raise cursor.unexpected("a query or VALUES")
        mode = _replace(cursor)
        by_name = cursor.took("BY", "NAME")
    return statements.Insert(
        whole, target, mode, _source(cursor), columns, by_name, partition, evolves_schema
    )


def update(cursor: Cursor, whole: statements.Piece) -> statements.Update:
    """Parse an UPDATE."""
    cursor.expect("UPDATE")
    target = cursor.name("a table")
    alias = cursor.alias(may_be_clause=False)
    cursor.expect("SET")
    assignments = tuple(cursor.several(lambda: _assignment(cursor, "WHERE")))
    condition = cursor.condition() if cursor.took("WHERE") else None
    return statements.Update(whole, target, alias, assignments, condition)


def delete(cursor: Cursor, whole: statements.Piece) -> statements.Delete:
    """Parse a DELETE."""
    cursor.expect("DELETE", "FROM")
    target = cursor.name("a table")
    alias = cursor.alias(may_be_clause=False)
    condition = cursor.condition() if cursor.took("WHERE") else None
    return statements.Delete(whole, target, alias, condition)


def truncate(cursor: Cursor, whole: statements.Piece) -> statements.Delete:
    """Parse TRUNCATE TABLE: a DELETE of every row."""
    cursor.expect("TRUNCATE", "TABLE")
    target = cursor.name("a table")
    if cursor.sees("PARTITION"):
        raise cursor.unsupported("TRUNCATE of a partition", "Use DELETE FROM … WHERE.")
    return statements.Delete(whole, target, None, None)


def merge(cursor: Cursor, whole: statements.Piece) -> statements.MergeInto:
    """Parse a MERGE."""
    cursor.expect("MERGE")
    evolves_schema = cursor.took("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    target = cursor.name("a table")
    target_alias = cursor.alias(may_be_clause=False)
    cursor.expect("USING")
    source: statements.TableReference | statements.Piece
    if cursor.sees("("):
        start = cursor.peek().end
        cursor.skip_group()
        source = _inner(cursor, start, cursor.end - 1)
    else:
        source = cursor.table_reference("a table or a query in parentheses")
    source_alias = cursor.alias(may_be_clause=False)
    cursor.expect("ON")
    on = cursor.condition("WHEN")
    clauses: list[statements.MergeClause] = []
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
    return statements.MergeInto(
        whole, target, target_alias, source, source_alias, on, tuple(clauses), evolves_schema
    )


def _replace(cursor: Cursor) -> statements.ReplaceWhere:
    cursor.expect("REPLACE")
    if cursor.sees_any("ON", "USING"):
        raise cursor.unsupported(
            f"INSERT … REPLACE {cursor.peek().key}", "Use REPLACE WHERE, or MERGE."
        )
    cursor.expect("WHERE")
    return statements.ReplaceWhere(cursor.condition(*QUERY_STARTS, "BY"))


def _partition(cursor: Cursor) -> tuple[statements.PartitionValue, ...]:
    if not cursor.took("PARTITION"):
        return ()

    def value() -> statements.PartitionValue:
        column = cursor.identifier("a partition column")
        return statements.PartitionValue(column, cursor.expression() if cursor.took("=") else None)

    return tuple(cursor.listed(value))


def _begins_query(cursor: Cursor) -> bool:
    """Return True if a parenthesis begins a query and not a list of names."""
    ahead = 1
    while cursor.peek(ahead).key == "(":
        ahead += 1
    return cursor.peek(ahead).is_key(*QUERY_STARTS) and not cursor.peek(ahead + 1).is_key(",", ")")


def _source(cursor: Cursor) -> statements.Values | statements.Piece:
    mark = cursor.mark()
    if word := cursor.took_any("VALUES", "VALUE"):
        if cursor.is_at_end:
            raise cursor.unexpected("a row")
        if (found := _values(cursor)) is not None:
            return found
        if word == "VALUE":
            raise cursor.unexpected("rows in parentheses")
        cursor.back_to(mark)
    elif not cursor.sees_any("(", *QUERY_STARTS):
        raise cursor.unexpected("a query or VALUES")
    return cursor.rest()


def _values(cursor: Cursor) -> statements.Values | None:
    """Parse rows; None if more than rows follow, so that it is a query."""
    start = cursor.peek().start
    rows: list[tuple[statements.Piece, ...]] = []
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
            return statements.Values(cursor.piece(start, cursor.end), tuple(rows))
        if not cursor.took(","):
            return None


def _assignment(cursor: Cursor, *stops: str) -> statements.Assignment:
    column = cursor.name("a column")
    if not cursor.took_any("=", "=="):
        raise cursor.unexpected("`=`")
    return statements.Assignment(column, cursor.expression(*stops))


def _clause(cursor: Cursor) -> statements.MergeClause:
    cursor.expect("WHEN")
    is_not = cursor.took("NOT") or cursor.took("!")
    cursor.expect("MATCHED")
    when = statements.When.NOT_MATCHED if is_not else statements.When.MATCHED
    if is_not and cursor.took("BY"):
        by = cursor.took_any("SOURCE", "TARGET")
        if not by:
            raise cursor.unexpected("`SOURCE` or `TARGET`")
        when = (
            statements.When.NOT_MATCHED_BY_SOURCE if by == "SOURCE" else statements.When.NOT_MATCHED
        )
    condition = cursor.condition("THEN") if cursor.took("AND") else None
    cursor.expect("THEN")
    if when is statements.When.NOT_MATCHED:
        return statements.MergeClause(when, condition, statements.Do.INSERT, *_merge_insert(cursor))
    if cursor.took("DELETE"):
        return statements.MergeClause(when, condition, statements.Do.DELETE)
    if not cursor.took("UPDATE"):
        raise cursor.unexpected("`UPDATE` or `DELETE`")
    cursor.expect("SET")
    if when is statements.When.MATCHED and cursor.took("*"):
        return statements.MergeClause(when, condition, statements.Do.UPDATE)
    given = cursor.several(lambda: _assignment(cursor, "WHEN"))
    columns, values = tuple(a.column for a in given), tuple(a.value for a in given)
    return statements.MergeClause(when, condition, statements.Do.UPDATE, columns, values)


def _merge_insert(
    cursor: Cursor,
) -> tuple[tuple[statements.Name, ...], tuple[statements.Piece, ...] | None]:
    if not cursor.took("INSERT"):
        raise cursor.unexpected("`INSERT`")
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


def _inner(cursor: Cursor, start: int, end: int) -> statements.Piece:
    """Take the text between two parentheses."""
    inner = cursor.text[start:end]
    stripped = inner.strip()
    if not stripped:
        raise refused(cursor.text, end, "a query was expected, not nothing")
    return statements.Piece(stripped, start + inner.index(stripped))
