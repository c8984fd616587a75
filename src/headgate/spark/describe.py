"""DESCRIBE and SHOW: what the catalog and the log know, as rows with the columns people expect."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame

from headgate.client.detail import TableDetail, detail_of
from headgate.client.history import HistoryEntry, history_of
from headgate.client.table import Table
from headgate.client.table_definition import ROW_TRACKING_PREFIX
from headgate.errors import NotFoundError
from headgate.names import SchemaName, fold
from headgate.protocol.actions import Metadata
from headgate.protocol.expressions.char_lengths import DECLARED
from headgate.protocol.schema import types as delta
from headgate.spark.engine import Engine
from headgate.spark.relations import Resolver
from headgate.spark.schema_conversion import quoted, to_spark
from headgate.sql import statements
from headgate.sql.statements import Described, Shown

Row = tuple[Any, ...]


def tell(
    engine: Engine, find_in: Resolver, statement: statements.Describe | statements.Show
) -> DataFrame:
    """Answer a DESCRIBE or SHOW."""
    teller = _Teller(engine, find_in)
    if isinstance(statement, statements.Describe):
        rows, schema = teller.describe(statement)
    else:
        rows, schema = teller.show(statement)
    return engine.spark.createDataFrame(list(rows), schema)


class _Teller:
    def __init__(self, engine: Engine, find_in: Resolver) -> None:
        self._session = engine.session
        self._find = find_in

    def describe(self, statement: statements.Describe) -> tuple[Iterable[Row], str]:
        match statement.what:
            case Described.SCHEMA | Described.SCHEMA_EXTENDED:
                name = self._session.schema_name(".".join(statement.name.parts))
                if name.key not in {found.key for found in self._session.namespaces()}:
                    raise NotFoundError(f"There is no schema {name}.")
                rows = [("Catalog Name", name.catalog), ("Namespace Name", name.schema)]
                return rows, "info_name string, info_value string"
            case Described.DETAIL:
                table = self._table(statement.name)
                return [_row(detail_of(table.newest_seen, table.name))], _DETAIL
            case Described.HISTORY:
                table = self._table(statement.name)
                found = history_of(table.newest_seen, statement.limit, self._session.catalog)
                return list(map(_row, found)), _HISTORY
            case Described.TABLE | Described.EXTENDED:
                table = self._table(statement.name)
                if statement.column:
                    return _column(table, statement.column), "info_name string, info_value string"
                rows = list(_columns(table))
                if statement.what is Described.EXTENDED:
                    rows += _extended(table)
                return rows, "col_name string, data_type string, comment string"

    def show(self, statement: statements.Show) -> tuple[Iterable[Row], str]:
        match statement.what:
            case Shown.CATALOGS:
                catalogs = dict.fromkeys(found.catalog for found in self._session.namespaces())
                return [(n,) for n in catalogs if _is_like(n, statement.like)], "catalog string"
            case Shown.SCHEMAS:
                asked = None if statement.name is None else fold(str(statement.name))
                names = [
                    found.schema
                    for found in self._session.namespaces()
                    if asked is None or fold(found.catalog) == asked
                ]
                chosen = [(n,) for n in names if _is_like(n, statement.like)]
                return chosen, "namespace string"
            case Shown.TABLES:
                schema = self._schema(statement.name)
                found = [entry.name for entry in self._session.tables(str(schema)) if entry.name]
                names = [name.rpartition(".")[2] for name in found]
                listed = [(schema.schema, n, False) for n in names if _is_like(n, statement.like)]
                return listed, "namespace string, tableName string, isTemporary boolean"
        assert statement.name is not None  # the other forms are about a table
        table = self._table(statement.name)
        match statement.what:
            case Shown.COLUMNS:
                return [(field.name,) for field in table.schema.fields], "col_name string"
            case Shown.PROPERTIES:
                known = sorted(table.properties.items())
                rows = [pair for pair in known if statement.key in (None, pair[0])]
                return rows, "key string, value string"
            case Shown.CREATE_TABLE:
                text = create_text(table.name, table.newest_seen.metadata)
                return [(text,)], "createtab_stmt string"

    def _table(self, name: statements.Name) -> Table:
        return self._session.open(self._find.target(name))

    def _schema(self, name: statements.Name | None) -> SchemaName:
        return self._session.schema_name(None if name is None else ".".join(name.parts))


def _is_like(name: str, like: str | None) -> bool:
    """Match as Spark's SHOW does: `*` for anything, `|` between choices, whatever the case."""
    if like is None:
        return True
    choices = [".*".join(map(re.escape, choice.split("*"))) for choice in like.split("|")]
    return any(re.fullmatch(choice, name, re.IGNORECASE) for choice in choices)


def _columns(table: Table) -> Iterable[Row]:
    for field in table.schema.fields:
        yield field.name, to_spark(field.type).simpleString(), delta.comment_of(field)
    if table.partition_columns:
        yield "# Partition Information", "", ""
        yield "# col_name", "data_type", "comment"
        for name in table.partition_columns:
            found = delta.find(table.schema, [name])
            if found is not None:
                yield found.name, to_spark(found.type).simpleString(), delta.comment_of(found)


def _extended(table: Table) -> Iterable[Row]:
    snapshot = table.newest_seen
    yield "", "", ""
    yield "# Detailed Table Information", "", ""
    yield "Name", table.name, ""
    yield "Id", table.id, ""
    yield "Comment", snapshot.metadata.description or "", ""
    yield "Location", table.location, ""
    yield "Provider", "delta", ""
    pairs = ",".join(f"{key}={value}" for key, value in sorted(table.properties.items()))
    yield "Table Properties", f"[{pairs}]", ""


def _column(table: Table, path: Sequence[str]) -> Iterable[Row]:
    found = delta.find(table.schema, path)
    if found is None:
        raise NotFoundError(f"{table.name} has no column {'.'.join(path)}.")
    yield "col_name", found.name
    yield "data_type", to_spark(found.type).simpleString()
    yield "comment", delta.comment_of(found)


_DETAIL = (
    "format string, id string, name string, description string, location string,"
    " createdAt timestamp, lastModified timestamp, partitionColumns array<string>,"
    " clusteringColumns array<string>, numFiles long, sizeInBytes long,"
    " properties map<string,string>, minReaderVersion int, minWriterVersion int,"
    " tableFeatures array<string>"
)


_HISTORY = (
    "version long, timestamp timestamp, operation string,"
    " operationParameters map<string,string>, readVersion long, isolationLevel string,"
    " isBlindAppend boolean, operationMetrics map<string,string>, engineInfo string, txnId string"
)


def _row(entry: TableDetail | HistoryEntry) -> Row:
    """Return the fields of an entry as Spark takes them, in the order of its columns."""
    return tuple(_cell(item.name, getattr(entry, item.name)) for item in fields(entry))


def _cell(name: str, value: Any) -> Any:
    if name.endswith("_ms"):
        return None if value is None else datetime.fromtimestamp(value / 1000, UTC)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {k: v if isinstance(v, str) else json.dumps(v) for k, v in value.items()}
    return value


# A table as the statement that would make it


def create_text(name: str, metadata: Metadata) -> str:
    """Write the CREATE TABLE that makes a table like this one."""
    label = ".".join(map(_name, name.split(".")))
    lines = [_spelled(field) for field in delta.from_json(metadata.schema_string).fields]
    text = f"CREATE TABLE {label} (\n  " + ",\n  ".join(lines) + ")\nUSING delta"
    if metadata.partition_columns:
        text += f"\nPARTITIONED BY ({', '.join(map(quoted, metadata.partition_columns))})"
    if metadata.description:
        text += f"\nCOMMENT {_literal(metadata.description)}"
    kept = {
        key: value
        for key, value in sorted(metadata.configuration.items())
        if not key.startswith((delta.CONSTRAINTS, ROW_TRACKING_PREFIX, "io.unitycatalog."))
        and fold(key) not in _GIVEN
    }
    if kept:
        pairs = ",\n  ".join(f"{_literal(k)} = {_literal(v)}" for k, v in kept.items())
        text += f"\nTBLPROPERTIES (\n  {pairs})"
    for rule, condition in sorted(delta.check_constraints(metadata.configuration).items()):
        text += f";\nALTER TABLE {label} ADD CONSTRAINT {quoted(rule)} CHECK ({condition})"
    return text


_GIVEN = frozenset({"delta.enableincommittimestamps", "delta.columnmapping.maxcolumnid"})
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _name(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else quoted(part)


def _spelled(field: delta.StructField) -> str:
    declared = field.metadata.get(DECLARED)
    text = f"{quoted(field.name)} {_type(field.type) if declared is None else declared}"
    if any(key.startswith(delta.IDENTITY) for key in field.metadata):
        text += _identity(field)
    if isinstance(expression := field.metadata.get(delta.GENERATION), str):
        text += f" GENERATED ALWAYS AS ({expression})"
    if not field.nullable:
        text += " NOT NULL"
    if isinstance(default := field.metadata.get(delta.DEFAULT), str):
        text += f" DEFAULT {default}"
    if (comment := delta.comment_of(field)) is not None:
        text += f" COMMENT {_literal(comment)}"
    return text


def _identity(field: delta.StructField) -> str:
    identity = {key.removeprefix(delta.IDENTITY): value for key, value in field.metadata.items()}
    always = "BY DEFAULT" if identity.get("allowExplicitInsert") is True else "ALWAYS"
    start, step = identity.get("start", 1), identity.get("step", 1)
    return f" GENERATED {always} AS IDENTITY (START WITH {start} INCREMENT BY {step})"


def _type(data_type: delta.DataType) -> str:
    """Return a type as SQL text, which cannot express that an array or a map has no nulls."""
    match data_type:
        case delta.StructType(fields):
            return f"STRUCT<{', '.join(map(_inner, fields))}>"
        case delta.ArrayType(element):
            return f"ARRAY<{_type(element)}>"
        case delta.MapType(key, value):
            return f"MAP<{_type(key)}, {_type(value)}>"
        case _:
            return to_spark(data_type).simpleString().upper()


def _inner(field: delta.StructField) -> str:
    text = f"{quoted(field.name)}: {_type(field.type)}"
    if not field.nullable:
        text += " NOT NULL"
    if (comment := delta.comment_of(field)) is not None:
        text += f" COMMENT {_literal(comment)}"
    return text


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
