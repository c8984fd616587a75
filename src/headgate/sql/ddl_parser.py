"""Parse CREATE, ALTER, DROP and COMMENT ON, for tables and schemas."""

from headgate.errors import SyntaxRefusedError
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.lexer import TokenKind
from headgate.protocol.expressions.parser import QUERY_STARTS
from headgate.protocol.schema.alteration import After, First, Position
from headgate.sql import statements
from headgate.sql.cursor import Cursor
from headgate.sql.keywords import SCHEMA
from headgate.sql.statements import ColumnDefinition, CreateTable, Creation, Piece, Unsupported

_COLUMN_OPTIONS = ("NOT", "COMMENT", "DEFAULT", "GENERATED", "FIRST", "AFTER", "CONSTRAINT")


def create_table(cursor: Cursor, whole: Piece, creation: Creation) -> CreateTable | Unsupported:
    """Parse what follows CREATE TABLE or REPLACE TABLE."""
    if cursor.took("IF", "NOT", "EXISTS"):
        if creation is not Creation.CREATE:
            raise cursor.refused("OR REPLACE and IF NOT EXISTS exclude each other")
        creation = Creation.IF_NOT_EXISTS
    table = CreateTable(whole, cursor.name("a table"), creation, (), {})
    if cursor.sees("(") and cursor.peek(1).key != "SELECT":
        elements = cursor.listed(lambda: _element(cursor))
        columns = tuple(item for item in elements if isinstance(item, ColumnDefinition))
        checks = tuple(item for item in elements if isinstance(item, statements.CheckClause))
        table = replaced(table, columns=columns, constraints=checks)
    seen: set[str] = set()
    while not cursor.is_at_end:
        clause = cursor.peek().key
        if clause in seen:
            raise cursor.refused(f"{clause} is repeated")
        seen.add(clause)
        if cursor.took("USING"):
            _using(cursor)
        elif cursor.took("PARTITIONED"):
            table = _partitioned_by(cursor, table)
        elif cursor.sees("CLUSTER", "BY"):
            cursor.skip_rest()
            return Unsupported(whole, "CLUSTER BY")
        elif cursor.took("LOCATION"):
            table = replaced(table, location=cursor.string("a location"))
        elif cursor.took("COMMENT"):
            table = replaced(table, comment=cursor.string("a comment"))
        elif cursor.took("TBLPROPERTIES"):
            table = replaced(table, properties=_properties(cursor))
        elif cursor.took("AS") or cursor.sees_any("(", *QUERY_STARTS):
            table = replaced(table, query=cursor.rest())
        else:
            raise _unknown_clause(cursor)
    return table


def create_schema(cursor: Cursor, whole: Piece) -> statements.CreateSchema:
    """Parse what follows CREATE SCHEMA."""
    if_not_exists = cursor.took("IF", "NOT", "EXISTS")
    schema = statements.CreateSchema(whole, cursor.name("a schema"), if_not_exists, {})
    while not cursor.is_at_end:
        if cursor.took("COMMENT"):
            schema = replaced(schema, comment=cursor.string("a comment"))
        elif cursor.took("LOCATION") or cursor.took("MANAGED", "LOCATION"):
            schema = replaced(schema, location=cursor.string("a location"))
        elif cursor.took("WITH", "DBPROPERTIES") or cursor.took("WITH", "PROPERTIES"):
            schema = replaced(schema, properties=_properties(cursor))
        else:
            raise cursor.unexpected("COMMENT, LOCATION, WITH DBPROPERTIES, or the end")
    return schema


def drop(cursor: Cursor, whole: Piece) -> statements.DropTable | statements.DropSchema:
    """Parse DROP TABLE or DROP SCHEMA."""
    cursor.expect("DROP")
    if cursor.took_any(*SCHEMA):
        if_exists = cursor.took("IF", "EXISTS")
        name = cursor.name("a schema")
        how = cursor.took_any("CASCADE", "RESTRICT")
        return statements.DropSchema(whole, name, if_exists, cascade=how == "CASCADE")
    cursor.expect("TABLE")
    if_exists = cursor.took("IF", "EXISTS")
    name = cursor.name("a table")
    return statements.DropTable(whole, name, if_exists, purge=cursor.took("PURGE"))


def undrop(cursor: Cursor, whole: Piece) -> statements.UndropTable:
    """Parse UNDROP TABLE."""
    cursor.expect("UNDROP", "TABLE")
    return statements.UndropTable(whole, cursor.name("a table"))


def comment_on(cursor: Cursor, whole: Piece) -> statements.CommentOn:
    """Parse COMMENT ON."""
    cursor.expect("COMMENT", "ON")
    word = cursor.took_any("TABLE", "COLUMN", *SCHEMA)
    if not word:
        raise cursor.unexpected("TABLE, COLUMN or SCHEMA")
    on = statements.Commented.SCHEMA if word in SCHEMA else statements.Commented(word)
    name = cursor.name()
    if on is statements.Commented.COLUMN and len(name.parts) < 2:
        raise cursor.unexpected("a column with its table: table.column")
    cursor.expect("IS")
    comment = None if cursor.took("NULL") else cursor.string("a comment or NULL")
    return statements.CommentOn(whole, on, name, comment)


def alter(cursor: Cursor, whole: Piece) -> statements.Statement:
    """Parse ALTER TABLE, ALTER SCHEMA … RENAME TO or ALTER CATALOG … RENAME TO."""
    cursor.expect("ALTER")
    if cursor.took_any(*SCHEMA):
        return statements.RenameSchema(whole, *_renaming(cursor, "a schema"))
    if cursor.took("CATALOG"):
        return statements.RenameCatalog(whole, *_renaming(cursor, "a catalog"))
    if not cursor.took("TABLE"):
        raise cursor.unsupported(
            f"ALTER {cursor.peek().key or 'nothing'}",
            "Tables can be altered; schemas and catalogs can be renamed.",
        )
    name = cursor.name("a table")
    if cursor.sees("CLUSTER", "BY") or cursor.sees("DROP", "FEATURE"):
        verb = f"{cursor.take().key} {cursor.take().key}"
        cursor.skip_rest()
        return Unsupported(whole, verb)
    return statements.AlterTable(whole, name, _change(cursor))


# Columns


def _renaming(cursor: Cursor, what: str) -> tuple[statements.Name, statements.Name]:
    name = cursor.name(what)
    cursor.expect("RENAME", "TO")
    return name, cursor.name(what)


def _element(cursor: Cursor) -> ColumnDefinition | statements.CheckClause:
    if cursor.sees("CONSTRAINT") and cursor.peek(1).is_name:
        cursor.take()
        return _check(cursor)
    if cursor.sees("PRIMARY", "KEY") or cursor.sees("FOREIGN", "KEY") or cursor.sees("UNIQUE", "("):
        raise cursor.refused(f"{cursor.peek().key} keys are not supported", "Leave the key out.")
    column = ColumnDefinition(cursor.identifier("a column"), cursor.data_type())
    return _with_options(cursor, column)


def _with_options(cursor: Cursor, column: ColumnDefinition) -> ColumnDefinition:
    while (changed := _option(cursor, column)) is not None:
        column = changed
    return column


def _option(cursor: Cursor, column: ColumnDefinition) -> ColumnDefinition | None:
    """Parse one option of a column; None if there is none."""
    if cursor.took("NOT", "NULL"):
        return replaced(column, nullable=False)
    if cursor.took("COMMENT"):
        return replaced(column, comment=cursor.string("a comment"))
    if cursor.took("DEFAULT"):
        return replaced(column, default=cursor.expression(*_COLUMN_OPTIONS))
    if cursor.took("GENERATED"):
        return _generated(cursor, column)
    if cursor.sees_any("CHECK", "CONSTRAINT", "PRIMARY", "REFERENCES", "UNIQUE", "MASK"):
        raise cursor.refused(
            f"{cursor.peek().key} is not supported after a column",
            "Write CONSTRAINT name CHECK (…) as an element of its own.",
        )
    if cursor.sees("COLLATE"):
        raise cursor.refused("collations are not supported", "Leave COLLATE out.")
    return None


def _generated(cursor: Cursor, column: ColumnDefinition) -> ColumnDefinition:
    is_always = cursor.took("ALWAYS")
    if not is_always:
        cursor.expect("BY", "DEFAULT")
    cursor.expect("AS")
    if cursor.took("IDENTITY"):
        return replaced(column, identity=_identity(cursor, is_always=is_always))
    if not is_always:
        raise cursor.unexpected("`IDENTITY`")
    cursor.expect("(")
    expression = cursor.expression()
    cursor.expect(")")
    return replaced(column, generated=expression)


def _identity(cursor: Cursor, *, is_always: bool) -> statements.Identity:
    identity = statements.Identity(is_always)
    if not cursor.took("("):
        return identity
    while not cursor.took(")"):
        if cursor.took("START", "WITH"):
            identity = replaced(identity, start=cursor.integer())
        elif cursor.took("INCREMENT", "BY"):
            identity = replaced(identity, step=cursor.integer())
        else:
            raise cursor.unexpected("START WITH or INCREMENT BY")
        cursor.took(",")
    if identity.step == 0:
        raise cursor.refused("the step must not be 0")
    return identity


def _check(cursor: Cursor) -> statements.CheckClause:
    """Parse what follows CONSTRAINT."""
    name = cursor.identifier("the name of the constraint")
    if not cursor.sees("CHECK"):
        raise cursor.refused(
            f"{cursor.peek().key or 'nothing'} constraints are not supported", "Use CHECK (…)."
        )
    cursor.take()
    cursor.expect("(")
    condition = cursor.condition()
    cursor.expect(")")
    return statements.CheckClause(name, condition)


def _position(cursor: Cursor) -> Position | None:
    if cursor.took("FIRST"):
        return First()
    return After(cursor.identifier("a column")) if cursor.took("AFTER") else None


# Clauses of CREATE TABLE


def _using(cursor: Cursor) -> None:
    mark = cursor.mark()
    name = cursor.identifier("a format")
    if name.lower() != "delta":
        cursor.back_to(mark)
        raise cursor.refused(f"`{name}` is not Delta", "Leave USING out, or write USING delta.")


def _partitioned_by(cursor: Cursor, table: CreateTable) -> CreateTable:
    cursor.expect("BY")
    names: list[str] = []
    columns = list(table.columns)

    def item() -> None:
        names.append(cursor.identifier("a column"))
        if cursor.sees("("):
            raise cursor.refused(
                "a table can only be partitioned by columns",
                "Add a column GENERATED ALWAYS AS (…) and partition by that.",
            )
        if not cursor.sees_any(",", ")"):
            column = ColumnDefinition(names[-1], cursor.data_type())
            columns.append(_with_options(cursor, column))

    cursor.listed(item)
    return replaced(table, partition_by=tuple(names), columns=tuple(columns))


_REFUSED_CLAUSES = {
    "LIKE": "Name the columns, or write AS SELECT … LIMIT 0.",
    "SHALLOW": "Write AS SELECT * FROM the other table.",
    "DEEP": "Write AS SELECT * FROM the other table.",
    "CLONE": "Write AS SELECT * FROM the other table.",
    "OPTIONS": "Write TBLPROPERTIES.",
    "STORED": "Leave it out: every table is Delta.",
    "ROW": "Leave it out: every table is Delta.",
    "CLUSTERED": "Write CLUSTER BY (columns).",
    "DEFAULT": "Leave the collation out.",
}


def _unknown_clause(cursor: Cursor) -> SyntaxRefusedError:
    key = cursor.peek().key
    if cursor.peek().kind is TokenKind.WORD and key in _REFUSED_CLAUSES:
        return cursor.unsupported(key, _REFUSED_CLAUSES[key])
    return cursor.unexpected("a clause of CREATE TABLE, or AS and a query")


def _properties(cursor: Cursor) -> dict[str, str]:
    found: dict[str, str] = {}

    def item() -> None:
        start = cursor.mark()
        key = _key(cursor)
        if key in found:
            cursor.back_to(start)
            raise cursor.refused(f"the property {key!r} is repeated")
        cursor.took("=")
        found[key] = _value(cursor)

    cursor.listed(item)
    return found


def _key(cursor: Cursor) -> str:
    if cursor.peek().kind is TokenKind.STRING:
        return cursor.string()
    return str(cursor.name("a property"))


def _value(cursor: Cursor) -> str:
    if cursor.peek().kind is TokenKind.STRING:
        return cursor.string()
    if word := cursor.took_any("TRUE", "FALSE"):
        return word.lower()
    sign = cursor.took_any("-")
    if cursor.peek().kind is not TokenKind.NUMBER:
        raise cursor.unexpected("a value: a string, a number, TRUE or FALSE")
    return sign + cursor.take().text


# ALTER TABLE


def _change(cursor: Cursor) -> statements.TableChange:
    verb = cursor.took_any("ADD", "RENAME", "SET", "UNSET", "DROP", "ALTER", "CHANGE")
    if not verb:
        if cursor.sees("REPLACE", "COLUMNS"):
            raise cursor.unsupported("REPLACE COLUMNS", "Use ADD, DROP and ALTER COLUMN.")
        raise cursor.unexpected("ADD, ALTER, DROP, RENAME, SET or UNSET")
    match verb:
        case "ADD":
            return _add(cursor)
        case "RENAME":
            if cursor.took("TO"):
                return statements.RenameTable(cursor.name("a table"))
            cursor.expect("COLUMN")
            column = cursor.path()
            cursor.expect("TO")
            return statements.RenameColumn(column, cursor.identifier("a column"))
        case "SET":
            if not cursor.sees("TBLPROPERTIES"):
                raise cursor.unsupported(
                    f"SET {cursor.peek().key or 'nothing'}", "Use SET TBLPROPERTIES."
                )
            cursor.take()
            return statements.SetTableProperties(_properties(cursor))
        case "UNSET":
            cursor.expect("TBLPROPERTIES")
            if_exists = cursor.took("IF", "EXISTS")
            return statements.UnsetTableProperties(
                tuple(cursor.listed(lambda: _key(cursor))), if_exists
            )
        case "DROP":
            return _drop(cursor)
        case _:
            cursor.took("COLUMN")
            changes = cursor.several(
                lambda: statements.AlterColumn(cursor.path(), _column_change(cursor))
            )
            return statements.AlterColumns(tuple(changes))


def _add(cursor: Cursor) -> statements.TableChange:
    if cursor.took("CONSTRAINT"):
        return statements.AddConstraint(_check(cursor))
    if not cursor.took_any("COLUMN", "COLUMNS"):
        raise cursor.unexpected("COLUMN, COLUMNS or CONSTRAINT")
    return statements.AddColumns(tuple(cursor.listed_or_several(lambda: _added(cursor))))


def _added(cursor: Cursor) -> statements.ColumnAddition:
    path = cursor.path()
    column = _with_options(cursor, ColumnDefinition(path[-1], cursor.data_type()))
    position = None
    while (given := _position(cursor)) is not None:
        position = given
        column = _with_options(cursor, column)
    return statements.ColumnAddition(path[:-1], column, position)


def _drop(cursor: Cursor) -> statements.TableChange:
    if cursor.took("CONSTRAINT"):
        if_exists = cursor.took("IF", "EXISTS")
        name = cursor.identifier("the name of the constraint")
        cursor.took_any("CASCADE", "RESTRICT")
        return statements.DropConstraint(name, if_exists)
    if not cursor.took_any("COLUMN", "COLUMNS"):
        raise cursor.unexpected("COLUMN, COLUMNS or CONSTRAINT")
    if_exists = cursor.took("IF", "EXISTS")
    return statements.DropColumns(tuple(cursor.listed_or_several(cursor.path)), if_exists)


def _column_change(cursor: Cursor) -> statements.ColumnChange:
    if cursor.took("COMMENT"):
        return statements.SetComment(cursor.string("a comment"))
    if cursor.took("TYPE"):
        return statements.SetType(cursor.data_type())
    if cursor.took("SET", "NOT", "NULL"):
        return statements.SetNullable(False)
    if cursor.took("DROP", "NOT", "NULL"):
        return statements.SetNullable(True)
    if cursor.took("SET", "DEFAULT"):
        return statements.SetDefault(cursor.expression())
    if cursor.took("DROP", "DEFAULT"):
        return statements.SetDefault(None)
    position = _position(cursor)
    if position is None:
        raise cursor.unexpected("COMMENT, TYPE, SET, DROP, FIRST or AFTER")
    return statements.Move(position)
