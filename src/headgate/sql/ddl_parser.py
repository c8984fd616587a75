"""Parse CREATE, ALTER, DROP and COMMENT ON, for tables and schemas."""

from headgate.errors import SyntaxRefusedError
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.lexer import TokenKind
from headgate.protocol.expressions.parser import QUERY_STARTS
from headgate.protocol.schema.alteration import AddedColumn, After, First, Position
from headgate.protocol.schema.types import COMMENT, DEFAULT, GENERATION, IDENTITY, StructField
from headgate.sql import statements
from headgate.sql.cursor import Cursor
from headgate.sql.keywords import SCHEMA
from headgate.sql.positions import refused
from headgate.sql.statements import AddConstraint, AlterColumn, CreateTable, Creation, Unsupported

_COLUMN_OPTIONS = ("NOT", "COMMENT", "DEFAULT", "GENERATED", "FIRST", "AFTER", "CONSTRAINT")


def create_table(cursor: Cursor, creation: Creation) -> CreateTable | Unsupported:
    """Parse what follows CREATE TABLE or REPLACE TABLE."""
    if cursor.took("IF", "NOT", "EXISTS"):
        if creation is not Creation.CREATE:
            raise cursor.refused("OR REPLACE and IF NOT EXISTS exclude each other")
        creation = Creation.IF_NOT_EXISTS
    table = CreateTable(cursor.name("a table"), creation, (), {})
    if cursor.sees("(") and cursor.peek(1).key != "SELECT":
        elements = cursor.listed(lambda: _element(cursor))
        columns = tuple(item for item in elements if isinstance(item, StructField))
        checks = tuple(item for item in elements if isinstance(item, AddConstraint))
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
            return Unsupported("CLUSTER BY")
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


def create_schema(cursor: Cursor) -> statements.CreateSchema:
    """Parse what follows CREATE SCHEMA."""
    if_not_exists = cursor.took("IF", "NOT", "EXISTS")
    schema = statements.CreateSchema(cursor.name("a schema"), if_not_exists, {})
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


def drop(cursor: Cursor) -> statements.DropTable | statements.DropSchema:
    """Parse DROP TABLE or DROP SCHEMA."""
    cursor.expect("DROP")
    if cursor.took_any(*SCHEMA):
        if_exists = cursor.took("IF", "EXISTS")
        name = cursor.name("a schema")
        how = cursor.took_any("CASCADE", "RESTRICT")
        return statements.DropSchema(name, if_exists, cascade=how == "CASCADE")
    cursor.expect("TABLE")
    if_exists = cursor.took("IF", "EXISTS")
    return statements.DropTable(cursor.name("a table"), if_exists, purge=cursor.took("PURGE"))


def undrop(cursor: Cursor) -> statements.UndropTable:
    """Parse UNDROP TABLE."""
    cursor.expect("UNDROP", "TABLE")
    return statements.UndropTable(cursor.name("a table"))


def comment_on(cursor: Cursor) -> statements.CommentOn:
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
    return statements.CommentOn(on, name, comment)


def alter(cursor: Cursor) -> statements.Statement:
    """Parse ALTER TABLE, ALTER SCHEMA … RENAME TO or ALTER CATALOG … RENAME TO."""
    cursor.expect("ALTER")
    if word := cursor.took_any("CATALOG", *SCHEMA):
        is_catalog = word == "CATALOG"
        what = "a catalog" if is_catalog else "a schema"
        name = cursor.name(what)
        cursor.expect("RENAME", "TO")
        return statements.RenameNamespace(name, cursor.name(what), is_catalog)
    if not cursor.took("TABLE"):
        raise cursor.unsupported(
            f"ALTER {cursor.peek().key or 'nothing'}",
            "Tables can be altered; schemas and catalogs can be renamed.",
        )
    name = cursor.name("a table")
    if cursor.sees("CLUSTER", "BY") or cursor.sees("DROP", "FEATURE"):
        verb = f"{cursor.take().key} {cursor.take().key}"
        cursor.skip_rest()
        return Unsupported(verb)
    if cursor.took_any("ALTER", "CHANGE"):
        cursor.took("COLUMN")
        return statements.AlterTable(name, tuple(cursor.several(lambda: _column_change(cursor))))
    return statements.AlterTable(name, (_change(cursor),))


# Columns


def _element(cursor: Cursor) -> StructField | AddConstraint:
    if cursor.sees("CONSTRAINT") and cursor.peek(1).is_name:
        cursor.take()
        return _check(cursor)
    if cursor.sees("PRIMARY", "KEY") or cursor.sees("FOREIGN", "KEY") or cursor.sees("UNIQUE", "("):
        raise cursor.refused(f"{cursor.peek().key} keys are not supported", "Leave the key out.")
    return _column(cursor, cursor.identifier("a column"))


def _column(cursor: Cursor, name: str, positions: list[Position] | None = None) -> StructField:
    """Parse the type and options of a column; `positions` gets its FIRST or AFTER, if allowed."""
    data_type, nullable, metadata = cursor.data_type(), True, dict[str, object]()
    while True:
        if cursor.took("NOT", "NULL"):
            nullable = False
        elif cursor.took("COMMENT"):
            metadata[COMMENT] = cursor.string("a comment")
        elif cursor.took("DEFAULT"):
            metadata[DEFAULT] = cursor.expression(*_COLUMN_OPTIONS).text
        elif cursor.took("GENERATED"):
            metadata |= _generation(cursor)
        elif positions is not None and (position := _position(cursor)) is not None:
            positions.append(position)
        elif cursor.sees_any("CHECK", "CONSTRAINT", "PRIMARY", "REFERENCES", "UNIQUE", "MASK"):
            raise cursor.refused(
                f"{cursor.peek().key} is not supported after a column",
                "Write CONSTRAINT name CHECK (…) as an element of its own.",
            )
        elif cursor.sees("COLLATE"):
            raise cursor.refused("collations are not supported", "Leave COLLATE out.")
        else:
            return StructField(name, data_type, nullable, metadata)


def _generation(cursor: Cursor) -> dict[str, object]:
    """Parse what follows GENERATED; return the metadata of the column."""
    is_always = cursor.took("ALWAYS")
    if not is_always:
        cursor.expect("BY", "DEFAULT")
    cursor.expect("AS")
    if not is_always or cursor.sees("IDENTITY"):
        cursor.expect("IDENTITY")
        return _identity(cursor, is_always=is_always)
    return {GENERATION: cursor.enclosed(cursor.expression).text}


def _identity(cursor: Cursor, *, is_always: bool) -> dict[str, object]:
    found = {"start": 1, "step": 1, "allowExplicitInsert": not is_always}
    if cursor.took("("):
        while not cursor.took(")"):
            if cursor.took("START", "WITH"):
                found["start"] = cursor.integer()
            elif cursor.took("INCREMENT", "BY"):
                found["step"] = cursor.integer()
            else:
                raise cursor.unexpected("START WITH or INCREMENT BY")
            cursor.took(",")
    if found["step"] == 0:
        raise cursor.refused("the step must not be 0")
    return {f"{IDENTITY}{key}": value for key, value in found.items()}


def _check(cursor: Cursor) -> AddConstraint:
    """Parse what follows CONSTRAINT."""
    name = cursor.identifier("the name of the constraint")
    if not cursor.took("CHECK"):
        raise cursor.refused(
            f"{cursor.peek().key or 'nothing'} constraints are not supported", "Use CHECK (…)."
        )
    return AddConstraint(name, cursor.enclosed(cursor.condition))


def _position(cursor: Cursor) -> Position | None:
    if cursor.took("FIRST"):
        return First()
    return After(cursor.identifier("a column")) if cursor.took("AFTER") else None


# Clauses of CREATE TABLE


def _using(cursor: Cursor) -> None:
    start = cursor.peek().start
    name = cursor.identifier("a format")
    if name.lower() != "delta":
        remedy = "Leave USING out, or write USING delta."
        raise refused(cursor.text, start, f"`{name}` is not Delta", remedy)


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
            columns.append(_column(cursor, names[-1]))

    cursor.listed(item)
    return replaced(table, partition_by=tuple(names), columns=tuple(columns))


_REFUSED_CLAUSES = {
    "LIKE": "Name the columns, or write AS SELECT … LIMIT 0.",
    **dict.fromkeys(["SHALLOW", "DEEP", "CLONE"], "Write AS SELECT * FROM the other table."),
    "OPTIONS": "Write TBLPROPERTIES.",
    **dict.fromkeys(["STORED", "ROW"], "Leave it out: every table is Delta."),
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
        start = cursor.peek().start
        key = property_key(cursor)
        if key in found:
            raise refused(cursor.text, start, f"the property {key!r} is repeated")
        cursor.took("=")
        found[key] = _value(cursor)

    cursor.listed(item)
    return found


def property_key(cursor: Cursor) -> str:
    """Take the key of a property, as a string or as a name."""
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
    """Parse one change of a table, other than ALTER COLUMN."""
    verb = cursor.took_any("ADD", "RENAME", "SET", "UNSET", "DROP")
    if verb == "RENAME" and cursor.took("TO"):
        return statements.RenameTable(cursor.name("a table"))
    if verb == "RENAME":
        cursor.expect("COLUMN")
        column = cursor.path()
        cursor.expect("TO")
        return statements.RenameColumn(column, cursor.identifier("a column"))
    if verb == "SET":
        if not cursor.took("TBLPROPERTIES"):
            raise cursor.unsupported(
                f"SET {cursor.peek().key or 'nothing'}", "Use SET TBLPROPERTIES."
            )
        return statements.SetTableProperties(_properties(cursor))
    if verb == "UNSET":
        cursor.expect("TBLPROPERTIES")
        if_exists = cursor.took("IF", "EXISTS")
        keys = cursor.listed(lambda: property_key(cursor))
        return statements.UnsetTableProperties(tuple(keys), if_exists)
    if not verb:
        if cursor.sees("REPLACE", "COLUMNS"):
            raise cursor.unsupported("REPLACE COLUMNS", "Use ADD, DROP and ALTER COLUMN.")
        raise cursor.unexpected("ADD, ALTER, DROP, RENAME, SET or UNSET")
    object_kind = cursor.took_any("COLUMN", "COLUMNS", "CONSTRAINT")
    if not object_kind:
        raise cursor.unexpected("COLUMN, COLUMNS or CONSTRAINT")
    if verb == "ADD":
        if object_kind == "CONSTRAINT":
            return _check(cursor)
        return statements.AddColumns(tuple(cursor.listed_or_several(lambda: _added(cursor))))
    if_exists = cursor.took("IF", "EXISTS")
    if object_kind == "CONSTRAINT":
        name = cursor.identifier("the name of the constraint")
        cursor.took_any("CASCADE", "RESTRICT")
        return statements.DropConstraint(name, if_exists)
    return statements.DropColumns(tuple(cursor.listed_or_several(cursor.path)), if_exists)


def _added(cursor: Cursor) -> AddedColumn:
    path, positions = cursor.path(), list[Position]()
    field = _column(cursor, path[-1], positions)
    return AddedColumn(field, path[:-1], positions[-1] if positions else None)


def _column_change(cursor: Cursor) -> AlterColumn:
    path = cursor.path()
    if cursor.took("COMMENT"):
        return AlterColumn(path, comment=cursor.string("a comment"))
    if cursor.took("TYPE"):
        return AlterColumn(path, type=cursor.data_type())
    for word in ("SET", "DROP"):
        if cursor.took(word, "NOT", "NULL"):
            return AlterColumn(path, nullable=word == "DROP")
        if cursor.took(word, "DEFAULT"):
            return AlterColumn(path, default=cursor.expression().text if word == "SET" else None)
    position = _position(cursor)
    if position is None:
        raise cursor.unexpected("COMMENT, TYPE, SET, DROP, FIRST or AFTER")
    return AlterColumn(path, position=position)
