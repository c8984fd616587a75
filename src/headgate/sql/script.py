"""Split a script into statements, some of them unknown to Spark, and parse each of them."""

from collections.abc import Callable, Iterator, Sequence

from headgate.protocol.expressions.lexer import Token, TokenKind
from headgate.protocol.expressions.parser import QUERY_STARTS
from headgate.sql import ddl_parser, describe_parser, dml_parser, transaction_parser
from headgate.sql.cursor import Cursor
from headgate.sql.keywords import SCHEMA, UNSUPPORTED
from headgate.sql.positions import refused, tokenize
from headgate.sql.statements import (
    AtomicBlock,
    BeginTransaction,
    Creation,
    EndTransaction,
    Foreign,
    Piece,
    Query,
    Statement,
    Unsupported,
)


def split(text: str) -> tuple[Piece, ...]:
    """Split a script into its statements, without empty ones; BEGIN ATOMIC … END is one."""
    return tuple(_piece(text, group) for group in _groups(text, tokenize(text)))


def parse(text: str) -> tuple[Statement, ...]:
    """Parse all statements of a script."""
    return tuple(_statement(text, group) for group in _groups(text, tokenize(text)))


def _groups(text: str, tokens: Sequence[Token]) -> Iterator[list[Token]]:
    group: list[Token] = []
    is_atomic = False
    for token in tokens:
        if token.kind is TokenKind.END:
            break
        if is_atomic:
            if token.is_key("END") and group[-1].key in (";", "ATOMIC"):
                is_atomic = False
            group.append(token)
        elif token.is_key(";"):
            if group:
                yield group
            group = []
        elif len(group) > 1 and _is_closed(group):
            raise refused(text, token.start, "a `;` was expected after END")
        else:
            group.append(token)
            is_atomic = len(group) == 2 and _is_block(group)
    if is_atomic:
        raise refused(text, group[0].start, "this BEGIN ATOMIC has no END")
    if group:
        yield group


def _is_block(group: Sequence[Token]) -> bool:
    return len(group) > 1 and group[0].is_key("BEGIN") and group[1].is_key("ATOMIC")


def _is_closed(group: Sequence[Token]) -> bool:
    return _is_block(group) and len(group) > 2 and group[-1].is_key("END")


def _piece(text: str, group: Sequence[Token]) -> Piece:
    return Piece(text[group[0].start : group[-1].end], group[0].start)


def _statement(text: str, group: Sequence[Token]) -> Statement:
    end = Token(TokenKind.END, "", group[-1].end, "")
    cursor = Cursor(text, [*group, end])
    first = group[0]
    if _is_block(group):
        return _block(cursor, group)
    if first.is_key("(", *_QUERIES):
        return _query(cursor)
    read = _STATEMENTS.get(first.key) if first.kind is TokenKind.WORD else None
    if read is None:
        remedy = _REMEDIES.get(first.key)
        if remedy is None:
            raise cursor.refused(f"`{first.text[:40]}` does not begin a supported statement")
        raise cursor.unsupported(first.key, remedy)
    statement = read(cursor)
    if not cursor.is_at_end:
        raise cursor.unexpected("the end of the statement")
    return statement


def _block(cursor: Cursor, group: Sequence[Token]) -> AtomicBlock:
    """Parse BEGIN ATOMIC … END and the statements in it."""
    isolation, retries = transaction_parser.atomic_options(cursor)
    rest = [token for token in group if token.start >= cursor.peek().start]
    body: list[Statement] = []
    inner: list[Token] = []
    for token in rest[:-1]:  # the last one is END
        if not token.is_key(";"):
            inner.append(token)
            continue
        if inner:
            body.append(_statement(cursor.text, inner))
        inner = []
    if inner:
        body.append(_statement(cursor.text, inner))
    for statement in body:
        if isinstance(statement, BeginTransaction | AtomicBlock | EndTransaction):
            raise refused(
                cursor.text,
                statement.whole.start,
                "a transaction can neither begin nor end inside BEGIN ATOMIC … END",
            )
    return AtomicBlock(cursor.whole, isolation, retries, tuple(body))


# Queries


def _query(cursor: Cursor) -> Query:
    starts_with_from = cursor.sees("FROM")
    if cursor.took("WITH"):
        _refuse_write_after_with(cursor)
    while not cursor.is_at_end:
        is_insert = cursor.sees("INSERT") and cursor.peek(1).is_key("INTO", "OVERWRITE")
        if starts_with_from and is_insert:
            raise cursor.unsupported(
                "one FROM with several INSERTs",
                "Write each INSERT as a statement of its own, in a transaction.",
            )
        cursor.skip()
    return Query(cursor.whole)


def _refuse_write_after_with(cursor: Cursor) -> None:
    """Skip the named queries, which a query must follow."""
    while not cursor.is_at_end:
        is_group = cursor.sees("(")
        cursor.skip()
        if is_group and cursor.sees_any("INSERT", "UPDATE", "DELETE", "MERGE"):
            raise cursor.unsupported(
                f"WITH before {cursor.peek().key}", "Put the WITH into the query itself."
            )


# Statements for Spark


def _foreign(cursor: Cursor) -> Foreign:
    return describe_parser.foreign(cursor, cursor.take().key)


def _with_expressions(cursor: Cursor) -> Foreign:
    """Parse a statement whose expressions may have queries."""
    verb = cursor.take().key
    return Foreign(cursor.whole, verb, cursor.rest("what to declare"))


def _set(cursor: Cursor) -> Statement:
    if cursor.sees("SET", "CATALOG"):
        return describe_parser.use(cursor)
    if cursor.peek(1).key in ("VAR", "VARIABLE"):
        return _with_expressions(cursor)
    return _foreign(cursor)


def _explain(cursor: Cursor) -> Foreign:
    cursor.expect("EXPLAIN")
    cursor.took_any("EXTENDED", "CODEGEN", "COST", "FORMATTED", "LOGICAL")
    if not cursor.sees_any("(", *QUERY_STARTS):
        raise cursor.refused("EXPLAIN takes a query", "Explain the SELECT inside it.")
    return Foreign(cursor.whole, "EXPLAIN", cursor.rest())


def _cache(cursor: Cursor) -> Foreign:
    cursor.expect("CACHE")
    cursor.took("LAZY")
    cursor.expect("TABLE")
    name = cursor.name("a table")
    query = _final_query(cursor)
    return Foreign(cursor.whole, "CACHE", query, None if query is not None else name)


def _uncache(cursor: Cursor) -> Foreign:
    cursor.expect("UNCACHE", "TABLE")
    cursor.took("IF", "EXISTS")
    return Foreign(cursor.whole, "UNCACHE", None, cursor.name("a table"))


def _final_query(cursor: Cursor) -> Piece | None:
    """Find the query at the end of a statement, with or without AS."""
    while not cursor.is_at_end:
        if cursor.sees_any("SELECT", "WITH", "FROM", "VALUES"):
            return cursor.rest()
        if cursor.took("AS") and cursor.sees_any("(", *QUERY_STARTS):
            return cursor.rest()
        cursor.skip()
    return None


def _create(cursor: Cursor) -> Statement:
    cursor.expect("CREATE")
    replaces = cursor.took("OR", "REPLACE")
    if not replaces and cursor.took_any(*SCHEMA):
        return ddl_parser.create_schema(cursor)
    if cursor.took("TABLE"):
        how = Creation.OR_REPLACE if replaces else Creation.CREATE
        return ddl_parser.create_table(cursor, how)
    cursor.took("GLOBAL")
    is_temporary = bool(cursor.took_any("TEMP", "TEMPORARY"))
    if is_temporary and cursor.took("VIEW"):
        return Foreign(cursor.whole, "CREATE TEMPORARY VIEW", _final_query(cursor))
    if cursor.sees_any("FUNCTION", "VARIABLE"):
        verb = cursor.take().key
        cursor.rest("a name")
        return Foreign(cursor.whole, f"CREATE {verb}")
    if cursor.sees("VIEW"):
        raise cursor.refused("only temporary views are supported", "Write CREATE TEMPORARY VIEW.")
    if cursor.sees("EXTERNAL", "TABLE"):
        raise cursor.unsupported(
            "CREATE EXTERNAL TABLE",
            "Leave EXTERNAL out, or name a table that exists with session.register_external().",
        )
    raise cursor.unexpected("TABLE, SCHEMA, or TEMPORARY VIEW")


def _replace(cursor: Cursor) -> Statement:
    cursor.expect("REPLACE", "TABLE")
    return ddl_parser.create_table(cursor, Creation.REPLACE)


def _drop(cursor: Cursor) -> Statement:
    if cursor.peek(1).key in ("VIEW", "FUNCTION", "TEMPORARY", "TEMP", "VARIABLE"):
        return _foreign(cursor)
    return ddl_parser.drop(cursor)


def _unsupported(cursor: Cursor) -> Unsupported:
    verb = cursor.take().key
    cursor.skip_rest()
    return Unsupported(verb)


_QUERIES = QUERY_STARTS | {"MAP", "REDUCE"}

_STATEMENTS: dict[str, Callable[[Cursor], Statement]] = {
    "INSERT": dml_parser.insert,
    "UPDATE": dml_parser.update,
    "DELETE": dml_parser.delete,
    "TRUNCATE": dml_parser.truncate,
    "MERGE": dml_parser.merge,
    "CREATE": _create,
    "REPLACE": _replace,
    "DROP": _drop,
    "UNDROP": ddl_parser.undrop,
    "ALTER": ddl_parser.alter,
    "COMMENT": ddl_parser.comment_on,
    "DESCRIBE": describe_parser.describe,
    "DESC": describe_parser.describe,
    "SHOW": describe_parser.show,
    "USE": describe_parser.use,
    "SET": _set,
    "RESET": _foreign,
    "CACHE": _cache,
    "UNCACHE": _uncache,
    "CLEAR": _foreign,
    "EXPLAIN": _explain,
    "BEGIN": transaction_parser.begin,
    "START": transaction_parser.begin,
    "COMMIT": transaction_parser.commit,
    "END": transaction_parser.commit,
    "ROLLBACK": transaction_parser.rollback,
    "ABORT": transaction_parser.rollback,
    "SAVEPOINT": transaction_parser.savepoint,
    "RELEASE": transaction_parser.release,
    "DECLARE": _with_expressions,
    "ADD": _foreign,
    "LIST": _foreign,
    **dict.fromkeys(UNSUPPORTED, _unsupported),
}

_REMEDIES = {
    verb: remedy
    for remedy, verbs in {
        "Grants are made through the session.": "DENY GRANT REVOKE",
        "Leave it out: every statement reads the latest version.": "REFRESH",
        "Leave it out: statistics are written with every commit.": "ANALYZE",
        "Leave it out: the log knows every partition.": "MSCK REPAIR",
        "Leave it out: there are no manifests.": "GENERATE",
        "Read the files with Spark, then INSERT.": "COPY IMPORT LOAD",
        "Run `headgate fsck TABLE`.": "FSCK",
        "Upgrade the table through the session.": "CONVERT",
        "Use OPTIMIZE.": "REORG",
        "Use a transaction: nothing is locked.": "LOCK UNLOCK",
        "Write CREATE TABLE … AS SELECT.": "CLONE",
        "Write a DataFrame.": "EXPORT",
        "Write the statement itself.": "CALL EXECUTE",
    }.items()
    for verb in verbs.split()
}
