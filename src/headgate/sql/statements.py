"""The closed set of SQL statements, as values.

Expressions, conditions and queries are pieces of the user's own text, never printed from a tree.
The values are structs, since creating as many dataclasses takes 100 ms at import.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from headgate.protocol.commit.conflicts import Isolation
from headgate.protocol.schema.alteration import AddedColumn, Position
from headgate.protocol.schema.types import DataType, Path, StructField


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


AsOf = int | Piece  # a version, or a time: an expression without columns


class TableReference(msgspec.Struct, frozen=True):
    """A table that rows are read from; `piece` covers the name and its AS OF."""

    name: Name
    as_of: AsOf | None
    piece: Piece


# Rows


class Query(msgspec.Struct, frozen=True):
    """A query, run by Spark with its table names replaced."""

    whole: Piece


class Values(msgspec.Struct, frozen=True):
    """Literal rows; each cell is an expression, or the word DEFAULT."""

    piece: Piece  # without the word VALUES
    rows: tuple[tuple[Piece, ...], ...]


class PartitionValue(msgspec.Struct, frozen=True):
    """A column of a PARTITION clause and its value."""

    column: str
    value: Piece


class Insert(msgspec.Struct, frozen=True):
    """INSERT INTO, INSERT OVERWRITE, INSERT INTO … REPLACE WHERE."""

    target: Name
    source: Values | Piece  # a Piece is a query
    overwrites: bool = False  # all rows, or those in the given partitions
    replace_where: Piece | None = None  # the condition on the rows to replace
    columns: tuple[str, ...] = ()
    by_name: bool = False
    partition: tuple[PartitionValue, ...] = ()  # without the columns that are dynamic
    evolves_schema: bool = False


class Assignment(msgspec.Struct, frozen=True):
    """A column, or a field inside one, and its new value: an expression, or the word DEFAULT."""

    column: Name
    value: Piece


class Update(msgspec.Struct, frozen=True):
    """UPDATE … SET … WHERE."""

    target: Name
    alias: str | None
    assignments: tuple[Assignment, ...]
    condition: Piece | None


class Delete(msgspec.Struct, frozen=True):
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


class MergeInto(msgspec.Struct, frozen=True):
    """MERGE INTO … USING … ON …, its clauses in the order written."""

    target: Name
    target_alias: str | None
    source: TableReference | Piece  # a Piece is the query inside the parentheses
    source_alias: str | None
    on: Piece
    clauses: tuple[MergeClause, ...]
    evolves_schema: bool = False


# Tables


class AddConstraint(msgspec.Struct, frozen=True):
    """CONSTRAINT … CHECK, of CREATE TABLE or after ADD."""

    name: str
    condition: Piece


class Creation(enum.Enum):
    """What to do if the table exists, or does not."""

    CREATE = "CREATE"
    IF_NOT_EXISTS = "CREATE IF NOT EXISTS"
    OR_REPLACE = "CREATE OR REPLACE"
    REPLACE = "REPLACE"


class CreateTable(msgspec.Struct, frozen=True):
    """CREATE TABLE, CREATE OR REPLACE TABLE, REPLACE TABLE; with AS and a query also filled."""

    name: Name
    creation: Creation
    columns: tuple[StructField, ...]
    properties: Mapping[str, str]
    constraints: tuple[AddConstraint, ...] = ()
    partition_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    query: Piece | None = None


class DropTable(msgspec.Struct, frozen=True):
    """DROP TABLE [IF EXISTS] … [PURGE]."""

    name: Name
    if_exists: bool
    purge: bool = False


class UndropTable(msgspec.Struct, frozen=True):
    """UNDROP TABLE."""

    name: Name


class AddColumns(msgspec.Struct, frozen=True):
    """ADD COLUMN, ADD COLUMNS."""

    columns: tuple[AddedColumn, ...]


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


class DropConstraint(msgspec.Struct, frozen=True):
    """DROP CONSTRAINT [IF EXISTS]."""

    name: str
    if_exists: bool


class AlterColumn(msgspec.Struct, frozen=True):
    """ALTER COLUMN …: one of these is set; a comment or default of None is removed."""

    column: Path
    comment: str | UnsetType = UNSET
    nullable: bool | UnsetType = UNSET
    type: DataType | UnsetType = UNSET
    position: Position | UnsetType = UNSET
    default: str | UnsetType | None = UNSET

    @property
    def given(self) -> dict[str, Any]:
        """What is set, without the column."""
        values = msgspec.structs.asdict(self).items()
        return {key: value for key, value in values if key != "column" and value is not UNSET}


class RenameColumn(msgspec.Struct, frozen=True):
    """RENAME COLUMN … TO."""

    column: Path
    to: str


class DropColumns(msgspec.Struct, frozen=True):
    """DROP COLUMN, DROP COLUMNS."""

    columns: tuple[Path, ...]
    if_exists: bool


ColumnsChange = AddColumns | AlterColumn | RenameColumn | DropColumns
PropertiesChange = SetTableProperties | UnsetTableProperties
TableChange = ColumnsChange | PropertiesChange | RenameTable | AddConstraint | DropConstraint


class AlterTable(msgspec.Struct, frozen=True):
    """ALTER TABLE; only ALTER COLUMN may have several changes."""

    name: Name
    changes: tuple[TableChange, ...]


class Commented(enum.Enum):
    """The kind of object that a comment is on."""

    TABLE = "TABLE"
    SCHEMA = "SCHEMA"
    COLUMN = "COLUMN"  # its name is the table's and one more part


class CommentOn(msgspec.Struct, frozen=True):
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


class Describe(msgspec.Struct, frozen=True):
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


class Show(msgspec.Struct, frozen=True):
    """SHOW …: `name` is the schema of TABLES, the catalog of SCHEMAS, otherwise the table."""

    what: Shown
    name: Name | None = None
    like: str | None = None
    key: str | None = None  # of one property


# Schemas


class CreateSchema(msgspec.Struct, frozen=True):
    """CREATE SCHEMA."""

    name: Name
    if_not_exists: bool
    properties: Mapping[str, str]
    comment: str | None = None
    location: str | None = None


class RenameNamespace(msgspec.Struct, frozen=True):
    """ALTER SCHEMA … RENAME TO, ALTER CATALOG … RENAME TO."""

    name: Name
    to: Name
    is_catalog: bool = False


class DropSchema(msgspec.Struct, frozen=True):
    """DROP SCHEMA … [CASCADE]."""

    name: Name
    if_exists: bool
    cascade: bool


class UseNamespace(msgspec.Struct, frozen=True):
    """USE schema, USE catalog.schema; USE CATALOG catalog."""

    name: Name
    is_catalog: bool = False


# Transactions


class BeginTransaction(msgspec.Struct, frozen=True):
    """BEGIN, BEGIN TXN, START TRANSACTION."""

    whole: Piece
    isolation: Isolation | None
    read_only: bool
    as_of: int | Piece | None  # a sequence, or the expression of a time


class AtomicBlock(msgspec.Struct, frozen=True):
    """BEGIN ATOMIC … END: a transaction that is run again after a conflict."""

    whole: Piece
    isolation: Isolation | None
    retries: int | None
    body: tuple[Statement, ...]


class EndTransaction(msgspec.Struct, frozen=True):
    """COMMIT, END TXN; or ROLLBACK, ABORT."""

    whole: Piece
    commits: bool


class SavepointAction(enum.Enum):
    """What a statement does with a savepoint."""

    SET = "SAVEPOINT"
    ROLL_BACK_TO = "ROLLBACK TO"
    RELEASE = "RELEASE"


class OnSavepoint(msgspec.Struct, frozen=True):
    """SAVEPOINT, ROLLBACK TO, RELEASE."""

    whole: Piece
    action: SavepointAction
    name: str


class ShowTransaction(msgspec.Struct, frozen=True):
    """SHOW TRANSACTION."""

    whole: Piece


# Everything else


class Foreign(msgspec.Struct, frozen=True):
    """A statement that Spark runs: SET, temporary views and functions, CACHE, EXPLAIN.

    `query` is the query inside it, whose table names are replaced.
    """

    whole: Piece
    verb: str
    query: Piece | None = None
    name: Name | None = None  # of the table that CACHE or UNCACHE is for


class Unsupported(msgspec.Struct, frozen=True):
    """A statement that neither the catalog nor Spark can run, such as VACUUM."""

    verb: str


RowStatement = Insert | Update | Delete | MergeInto
SchemaStatement = CreateSchema | DropSchema | RenameNamespace | UseNamespace
NameStatement = DropTable | UndropTable | CommentOn | SchemaStatement
TableStatement = CreateTable | AlterTable | NameStatement | Describe | Show
TransactionStatement = (
    BeginTransaction | AtomicBlock | EndTransaction | OnSavepoint | ShowTransaction
)
Statement = Query | RowStatement | TableStatement | TransactionStatement | Foreign | Unsupported
