"""The closed set of SQL statements, as values.

Expressions, conditions and queries are pieces of the user's own text, never printed from a tree.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.protocol.commit.conflicts import Isolation
from headgate.protocol.schema.alteration import Position
from headgate.protocol.schema.types import DataType

Path = tuple[str, ...]  # a column, or a nested field, outermost name first


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the user's text; `start` is its place in the whole of it."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset after the piece."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Name:
    """A name of one or more parts, without quotes."""

    parts: tuple[str, ...]
    piece: Piece

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class VersionAsOf:
    """An earlier version."""

    version: int


@dataclass(frozen=True, slots=True)
class TimestampAsOf:
    """A time, as an expression without columns."""

    moment: Piece


AsOf = VersionAsOf | TimestampAsOf


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table that rows are read from; `piece` covers the name and its AS OF."""

    name: Name
    as_of: AsOf | None
    piece: Piece


@dataclass(frozen=True, slots=True)
class _Statement:
    whole: Piece


@dataclass(frozen=True, slots=True)
class _NamedStatement(_Statement):
    name: Name


# Rows


@dataclass(frozen=True, slots=True)
class Query(_Statement):
    """A query, run by Spark with its table names replaced."""


@dataclass(frozen=True, slots=True)
class Values:
    """Literal rows; each cell is an expression, or the word DEFAULT."""

    piece: Piece  # without the word VALUES
    rows: tuple[tuple[Piece, ...], ...]


@dataclass(frozen=True, slots=True)
class Into:
    """Append rows."""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replace all rows, or those in the given partitions."""


@dataclass(frozen=True, slots=True)
class ReplaceWhere:
    """Replace the rows that match a condition."""

    condition: Piece


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """A column of a PARTITION clause; without a value it is dynamic."""

    column: str
    value: Piece | None


@dataclass(frozen=True, slots=True)
class Insert(_Statement):
    """INSERT INTO, INSERT OVERWRITE, INSERT INTO … REPLACE WHERE."""

    target: Name
    mode: Into | Overwrite | ReplaceWhere
    source: Values | Piece  # a Piece is a query
    columns: tuple[str, ...] = ()
    by_name: bool = False
    partition: tuple[PartitionValue, ...] = ()
    evolves_schema: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column, or a field inside one, and its new value: an expression, or the word DEFAULT."""

    column: Name
    value: Piece


@dataclass(frozen=True, slots=True)
class Update(_Statement):
    """UPDATE … SET … WHERE."""

    target: Name
    alias: str | None
    assignments: tuple[Assignment, ...]
    condition: Piece | None


@dataclass(frozen=True, slots=True)
class Delete(_Statement):
    """DELETE FROM … WHERE; TRUNCATE TABLE is one without a condition."""

    target: Name
    alias: str | None
    condition: Piece | None


class MergeCase(enum.Enum):
    """The rows to which a clause of MERGE applies."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "NOT MATCHED BY SOURCE"


@dataclass(frozen=True, slots=True)
class MergeUpdate:
    """UPDATE SET a = …."""

    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class MergeUpdateAll:
    """UPDATE SET *."""


@dataclass(frozen=True, slots=True)
class MergeInsert:
    """INSERT (a, b) VALUES (…, …); without columns the values are for all, in order."""

    columns: tuple[Name, ...]
    values: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class MergeInsertAll:
    """INSERT *."""


@dataclass(frozen=True, slots=True)
class MergeDelete:
    """DELETE."""


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN … [AND condition] THEN action."""

    when: MergeCase
    condition: Piece | None
    action: MergeUpdate | MergeUpdateAll | MergeInsert | MergeInsertAll | MergeDelete


@dataclass(frozen=True, slots=True)
class MergeInto(_Statement):
    """MERGE INTO … USING … ON …, its clauses in the order written."""

    target: Name
    target_alias: str | None
    source: TableReference | Piece  # a Piece is the query inside the parentheses
    source_alias: str | None
    on: Piece
    clauses: tuple[MergeClause, ...]
    evolves_schema: bool = False


# Tables


@dataclass(frozen=True, slots=True)
class Identity:
    """A column whose values the writer generates by counting."""

    is_always: bool  # otherwise only if no value is given
    start: int = 1
    step: int = 1


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column in CREATE TABLE or ADD COLUMN."""

    name: str
    type: DataType
    nullable: bool = True
    comment: str | None = None
    default: Piece | None = None
    generated: Piece | None = None
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class CheckClause:
    """A named CHECK constraint."""

    name: str
    condition: Piece


class Creation(enum.Enum):
    """What to do if the table exists, or does not."""

    CREATE = "CREATE"
    IF_NOT_EXISTS = "CREATE IF NOT EXISTS"
    OR_REPLACE = "CREATE OR REPLACE"
    REPLACE = "REPLACE"


@dataclass(frozen=True, slots=True)
class CreateTable(_NamedStatement):
    """CREATE TABLE, CREATE OR REPLACE TABLE, REPLACE TABLE; with AS and a query also filled."""

    creation: Creation
    columns: tuple[ColumnDefinition, ...]
    properties: Mapping[str, str]
    constraints: tuple[CheckClause, ...] = ()
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[Path, ...] = ()
    location: str | None = None
    comment: str | None = None
    query: Piece | None = None


@dataclass(frozen=True, slots=True)
class DropTable(_NamedStatement):
    """DROP TABLE [IF EXISTS] … [PURGE]."""

    if_exists: bool
    purge: bool = False


@dataclass(frozen=True, slots=True)
class UndropTable(_NamedStatement):
    """UNDROP TABLE."""


@dataclass(frozen=True, slots=True)
class ColumnAddition:
    """A new column; `within` is the path of its struct, empty for the table."""

    within: Path
    column: ColumnDefinition
    position: Position | None


@dataclass(frozen=True, slots=True)
class AddColumns:
    """ADD COLUMN, ADD COLUMNS."""

    columns: tuple[ColumnAddition, ...]


@dataclass(frozen=True, slots=True)
class RenameTable:
    """RENAME TO."""

    to: Name


@dataclass(frozen=True, slots=True)
class SetTableProperties:
    """SET TBLPROPERTIES."""

    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnsetTableProperties:
    """UNSET TBLPROPERTIES [IF EXISTS]."""

    keys: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """ADD CONSTRAINT … CHECK."""

    check: CheckClause


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """DROP CONSTRAINT [IF EXISTS]."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class SetComment:
    """COMMENT '…'."""

    comment: str


@dataclass(frozen=True, slots=True)
class SetNullable:
    """SET NOT NULL, DROP NOT NULL."""

    nullable: bool


@dataclass(frozen=True, slots=True)
class SetType:
    """TYPE …."""

    type: DataType


@dataclass(frozen=True, slots=True)
class Move:
    """FIRST, AFTER …."""

    position: Position


@dataclass(frozen=True, slots=True)
class SetDefault:
    """SET DEFAULT …, DROP DEFAULT."""

    default: Piece | None


ColumnChange = SetComment | SetNullable | SetType | Move | SetDefault


@dataclass(frozen=True, slots=True)
class AlterColumn:
    """ALTER COLUMN …; one statement may have several."""

    column: Path
    change: ColumnChange


@dataclass(frozen=True, slots=True)
class AlterColumns:
    """The columns of one ALTER COLUMN."""

    columns: tuple[AlterColumn, ...]


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """RENAME COLUMN … TO."""

    column: Path
    to: str


@dataclass(frozen=True, slots=True)
class DropColumns:
    """DROP COLUMN, DROP COLUMNS."""

    columns: tuple[Path, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ClusterBy:
    """CLUSTER BY (…); none after CLUSTER BY NONE."""

    columns: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class DropFeature:
    """DROP FEATURE … [TRUNCATE HISTORY]."""

    feature: str
    truncates_history: bool


TableChange = (
    AddColumns
    | RenameTable
    | SetTableProperties
    | UnsetTableProperties
    | AddConstraint
    | DropConstraint
    | AlterColumns
    | RenameColumn
    | DropColumns
    | ClusterBy
    | DropFeature
)


@dataclass(frozen=True, slots=True)
class AlterTable(_NamedStatement):
    """ALTER TABLE."""

    change: TableChange


class Commented(enum.Enum):
    """The kind of object that a comment is on."""

    TABLE = "TABLE"
    SCHEMA = "SCHEMA"
    COLUMN = "COLUMN"  # its name is the table's and one more part


@dataclass(frozen=True, slots=True)
class CommentOn(_Statement):
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


@dataclass(frozen=True, slots=True)
class Describe(_Statement):
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
    TRANSACTION = "TRANSACTION"


@dataclass(frozen=True, slots=True)
class Show(_Statement):
    """SHOW …: `name` is the schema of TABLES, the catalog of SCHEMAS, otherwise the table."""

    what: Shown
    name: Name | None = None
    like: str | None = None
    key: str | None = None  # of one property


# Schemas


@dataclass(frozen=True, slots=True)
class CreateSchema(_NamedStatement):
    """CREATE SCHEMA."""

    if_not_exists: bool
    properties: Mapping[str, str]
    comment: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class RenameSchema(_NamedStatement):
    """ALTER SCHEMA … RENAME TO."""

    to: Name


@dataclass(frozen=True, slots=True)
class RenameCatalog(_NamedStatement):
    """ALTER CATALOG … RENAME TO."""

    to: Name


@dataclass(frozen=True, slots=True)
class DropSchema(_NamedStatement):
    """DROP SCHEMA … [CASCADE]."""

    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class UseNamespace(_NamedStatement):
    """USE schema, USE catalog.schema; USE CATALOG catalog."""

    is_catalog: bool = False


# Transactions


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """The options of a transaction."""

    isolation: Isolation | None = None
    read_only: bool = False  # AS OF implies it
    as_of_sequence: int | None = None
    as_of_timestamp: Piece | None = None
    retry: int | None = None


@dataclass(frozen=True, slots=True)
class Begin(_Statement):
    """BEGIN, START TRANSACTION."""

    options: TransactionOptions


@dataclass(frozen=True, slots=True)
class Atomic(_Statement):
    """BEGIN ATOMIC … END."""

    options: TransactionOptions
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class CommitTransaction(_Statement):
    """COMMIT, END TXN."""


@dataclass(frozen=True, slots=True)
class Rollback(_Statement):
    """ROLLBACK, ABORT; ROLLBACK TO a savepoint."""

    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class Savepoint(_Statement):
    """SAVEPOINT."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseSavepoint(_Statement):
    """RELEASE SAVEPOINT."""

    name: str


# Maintenance


@dataclass(frozen=True, slots=True)
class Optimize(_NamedStatement):
    """OPTIMIZE … [WHERE] [ZORDER BY]."""

    full: bool
    condition: Piece | None
    zorder_by: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Vacuum(_NamedStatement):
    """VACUUM … [RETAIN n HOURS] [DRY RUN]."""

    retain_hours: float | None
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Restore(_NamedStatement):
    """RESTORE TABLE … TO VERSION | TIMESTAMP AS OF."""

    as_of: AsOf


# Everything else


@dataclass(frozen=True, slots=True)
class Foreign(_Statement):
    """A statement that Spark runs: SET, temporary views and functions, CACHE, EXPLAIN.

    `query` is the query inside it, whose table names are replaced.
    """

    verb: str
    query: Piece | None
    name: Name | None = None  # of the table that CACHE or UNCACHE is for


Statement = (
    Query
    | Insert
    | Update
    | Delete
    | MergeInto
    | CreateTable
    | DropTable
    | UndropTable
    | AlterTable
    | CommentOn
    | Describe
    | Show
    | CreateSchema
    | DropSchema
    | RenameCatalog
    | RenameSchema
    | UseNamespace
    | Begin
    | Atomic
    | CommitTransaction
    | Rollback
    | Savepoint
    | ReleaseSavepoint
    | Optimize
    | Vacuum
    | Restore
    | Foreign
)
