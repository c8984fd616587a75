"""The closed set of SQL statements, as values.

Expressions, conditions and queries are pieces of the user's own text, never printed from a tree.
The values are structs, since creating as many dataclasses takes 100 ms at import.
"""

import enum
from collections.abc import Mapping

import msgspec

from headgate.protocol.schema.alteration import Position
from headgate.protocol.schema.types import DataType

Path = tuple[str, ...]  # a column, or a nested field, outermost name first


class Piece(msgspec.Struct, frozen=True):
    """A piece of the user's text; `start` is its place in the whole of it."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset after the piece."""
        return self.start + len(self.text)


class Name(msgspec.Struct, frozen=True):
    """A name of one or more parts, without quotes."""

    parts: tuple[str, ...]
    piece: Piece

    def __str__(self) -> str:
        return ".".join(self.parts)


class VersionAsOf(msgspec.Struct, frozen=True):
    """An earlier version."""

    version: int


class TimestampAsOf(msgspec.Struct, frozen=True):
    """A time, as an expression without columns."""

    moment: Piece


AsOf = VersionAsOf | TimestampAsOf


class TableReference(msgspec.Struct, frozen=True):
    """A table that rows are read from; `piece` covers the name and its AS OF."""

    name: Name
    as_of: AsOf | None
    piece: Piece


class _Statement(msgspec.Struct, frozen=True):
    whole: Piece


class _NamedStatement(_Statement, frozen=True):
    name: Name


# Rows


class Query(_Statement, frozen=True):
    """A query, run by Spark with its table names replaced."""


class Values(msgspec.Struct, frozen=True):
    """Literal rows; each cell is an expression, or the word DEFAULT."""

    piece: Piece  # without the word VALUES
    rows: tuple[tuple[Piece, ...], ...]


class Into(msgspec.Struct, frozen=True):
    """Append rows."""


class Overwrite(msgspec.Struct, frozen=True):
    """Replace all rows, or those in the given partitions."""


class ReplaceWhere(msgspec.Struct, frozen=True):
    """Replace the rows that match a condition."""

    condition: Piece


class PartitionValue(msgspec.Struct, frozen=True):
    """A column of a PARTITION clause; without a value it is dynamic."""

    column: str
    value: Piece | None


class Insert(_Statement, frozen=True):
    """INSERT INTO, INSERT OVERWRITE, INSERT INTO … REPLACE WHERE."""

    target: Name
    mode: Into | Overwrite | ReplaceWhere
    source: Values | Piece  # a Piece is a query
    columns: tuple[str, ...] = ()
    by_name: bool = False
    partition: tuple[PartitionValue, ...] = ()
    evolves_schema: bool = False


class Assignment(msgspec.Struct, frozen=True):
    """A column, or a field inside one, and its new value: an expression, or the word DEFAULT."""

    column: Name
    value: Piece


class Update(_Statement, frozen=True):
    """UPDATE … SET … WHERE."""

    target: Name
    alias: str | None
    assignments: tuple[Assignment, ...]
    condition: Piece | None


class Delete(_Statement, frozen=True):
    """DELETE FROM … WHERE; TRUNCATE TABLE is one without a condition."""

    target: Name
    alias: str | None
    condition: Piece | None


class When(enum.Enum):
    """The rows to which a clause of MERGE applies."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


class Do(enum.Enum):
    """What a clause of MERGE does with its rows."""

    UPDATE = "update"
    INSERT = "insert"
    DELETE = "delete"


class MergeClause(msgspec.Struct, frozen=True):
    """WHEN … [AND condition] THEN action."""

    when: When
    condition: Piece | None
    do: Do
    columns: tuple[Name, ...] = ()  # of an INSERT, none: the values are for all, in order
    values: tuple[Piece, ...] | None = None  # None: DELETE, or `*`


class MergeInto(_Statement, frozen=True):
    """MERGE INTO … USING … ON …, its clauses in the order written."""

    target: Name
    target_alias: str | None
    source: TableReference | Piece  # a Piece is the query inside the parentheses
    source_alias: str | None
    on: Piece
    clauses: tuple[MergeClause, ...]
    evolves_schema: bool = False


# Tables


class Identity(msgspec.Struct, frozen=True):
    """A column whose values the writer generates by counting."""

    is_always: bool  # otherwise only if no value is given
    start: int = 1
    step: int = 1


class ColumnDefinition(msgspec.Struct, frozen=True):
    """A column in CREATE TABLE or ADD COLUMN."""

    name: str
    type: DataType
    nullable: bool = True
    comment: str | None = None
    default: Piece | None = None
    generated: Piece | None = None
    identity: Identity | None = None


class CheckClause(msgspec.Struct, frozen=True):
    """A named CHECK constraint."""

    name: str
    condition: Piece


class Creation(enum.Enum):
    """What to do if the table exists, or does not."""

    CREATE = "CREATE"
    IF_NOT_EXISTS = "CREATE IF NOT EXISTS"
    OR_REPLACE = "CREATE OR REPLACE"
    REPLACE = "REPLACE"


class CreateTable(_NamedStatement, frozen=True):
    """CREATE TABLE, CREATE OR REPLACE TABLE, REPLACE TABLE; with AS and a query also filled."""

    creation: Creation
    columns: tuple[ColumnDefinition, ...]
    properties: Mapping[str, str]
    constraints: tuple[CheckClause, ...] = ()
    partition_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    query: Piece | None = None


class DropTable(_NamedStatement, frozen=True):
    """DROP TABLE [IF EXISTS] … [PURGE]."""

    if_exists: bool
    purge: bool = False


class UndropTable(_NamedStatement, frozen=True):
    """UNDROP TABLE."""


class ColumnAddition(msgspec.Struct, frozen=True):
    """A new column; `within` is the path of its struct, empty for the table."""

    within: Path
    column: ColumnDefinition
    position: Position | None


class AddColumns(msgspec.Struct, frozen=True):
    """ADD COLUMN, ADD COLUMNS."""

    columns: tuple[ColumnAddition, ...]


class RenameTable(msgspec.Struct, frozen=True):
    """RENAME TO."""

    to: Name


class SetTableProperties(msgspec.Struct, frozen=True):
    """SET TBLPROPERTIES."""

    properties: Mapping[str, str]


class UnsetTableProperties(msgspec.Struct, frozen=True):
    """UNSET TBLPROPERTIES [IF EXISTS]."""

    keys: tuple[str, ...]
    if_exists: bool


class AddConstraint(msgspec.Struct, frozen=True):
    """ADD CONSTRAINT … CHECK."""

    check: CheckClause


class DropConstraint(msgspec.Struct, frozen=True):
    """DROP CONSTRAINT [IF EXISTS]."""

    name: str
    if_exists: bool


class SetComment(msgspec.Struct, frozen=True):
    """COMMENT '…'."""

    comment: str


class SetNullable(msgspec.Struct, frozen=True):
    """SET NOT NULL, DROP NOT NULL."""

    nullable: bool


class SetType(msgspec.Struct, frozen=True):
    """TYPE …."""

    type: DataType


class Move(msgspec.Struct, frozen=True):
    """FIRST, AFTER …."""

    position: Position


class SetDefault(msgspec.Struct, frozen=True):
    """SET DEFAULT …, DROP DEFAULT."""

    default: Piece | None


ColumnChange = SetComment | SetNullable | SetType | Move | SetDefault


class AlterColumn(msgspec.Struct, frozen=True):
    """ALTER COLUMN …; one statement may have several."""

    column: Path
    change: ColumnChange


class AlterColumns(msgspec.Struct, frozen=True):
    """The columns of one ALTER COLUMN."""

    columns: tuple[AlterColumn, ...]


class RenameColumn(msgspec.Struct, frozen=True):
    """RENAME COLUMN … TO."""

    column: Path
    to: str


class DropColumns(msgspec.Struct, frozen=True):
    """DROP COLUMN, DROP COLUMNS."""

    columns: tuple[Path, ...]
    if_exists: bool


ColumnsChange = AddColumns | AlterColumns | RenameColumn | DropColumns
PropertiesChange = SetTableProperties | UnsetTableProperties
TableChange = ColumnsChange | PropertiesChange | RenameTable | AddConstraint | DropConstraint


class AlterTable(_NamedStatement, frozen=True):
    """ALTER TABLE."""

    change: TableChange


class Commented(enum.Enum):
    """The kind of object that a comment is on."""

    TABLE = "TABLE"
    SCHEMA = "SCHEMA"
    COLUMN = "COLUMN"  # its name is the table's and one more part


class CommentOn(_Statement, frozen=True):
    """COMMENT ON … IS; NULL removes the comment."""

    on: Commented
    name: Name
    comment: str | None


# Inspection


class Described(enum.Enum):
    """What DESCRIBE returns."""

    TABLE = "TABLE"
    EXTENDED = "EXTENDED"
    DETAIL = "DETAIL"
    HISTORY = "HISTORY"
    SCHEMA = "SCHEMA"
    SCHEMA_EXTENDED = "SCHEMA EXTENDED"


class Describe(_Statement, frozen=True):
    """DESCRIBE of a table, one of its columns, or a schema."""

    what: Described
    name: Name
    column: Path = ()
    limit: int | None = None


class Shown(enum.Enum):
    """What SHOW lists."""

    TABLES = "TABLES"
    CATALOGS = "CATALOGS"
    SCHEMAS = "SCHEMAS"
    COLUMNS = "COLUMNS"
    PROPERTIES = "TBLPROPERTIES"
    CREATE_TABLE = "CREATE TABLE"


class Show(_Statement, frozen=True):
    """SHOW …: `name` is the schema of TABLES, the catalog of SCHEMAS, otherwise the table."""

    what: Shown
    name: Name | None = None
    like: str | None = None
    key: str | None = None  # of one property


# Schemas


class CreateSchema(_NamedStatement, frozen=True):
    """CREATE SCHEMA."""

    if_not_exists: bool
    properties: Mapping[str, str]
    comment: str | None = None
    location: str | None = None


class RenameSchema(_NamedStatement, frozen=True):
    """ALTER SCHEMA … RENAME TO."""

    to: Name


class RenameCatalog(_NamedStatement, frozen=True):
    """ALTER CATALOG … RENAME TO."""

    to: Name


class DropSchema(_NamedStatement, frozen=True):
    """DROP SCHEMA … [CASCADE]."""

    if_exists: bool
    cascade: bool


class UseNamespace(_NamedStatement, frozen=True):
    """USE schema, USE catalog.schema; USE CATALOG catalog."""

    is_catalog: bool = False


# Everything else


class Foreign(_Statement, frozen=True):
    """A statement that Spark runs: SET, temporary views and functions, CACHE, EXPLAIN.

    `query` is the query inside it, whose table names are replaced.
    """

    verb: str
    query: Piece | None
    name: Name | None = None  # of the table that CACHE or UNCACHE is for


class Unsupported(_Statement, frozen=True):
    """A statement that neither the catalog nor Spark can run, such as BEGIN or VACUUM."""

    verb: str


RowStatement = Insert | Update | Delete | MergeInto
SchemaStatement = CreateSchema | DropSchema | RenameSchema | RenameCatalog | UseNamespace
NameStatement = DropTable | UndropTable | CommentOn | SchemaStatement
TableStatement = CreateTable | AlterTable | NameStatement | Describe | Show
Statement = Query | RowStatement | TableStatement | Foreign | Unsupported
