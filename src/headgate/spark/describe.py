"""DESCRIBE and SHOW: what the catalog and the log know, as rows with the columns people expect."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame

from headgate.client.detail import TableDetail, detail_of
from headgate.client.history import HistoryEntry, history_of
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.table_definition import ROW_TRACKING_PREFIX
from headgate.errors import NotFoundError
from headgate.names import fold
from headgate.protocol.actions import Metadata
from headgate.protocol.expressions.char_lengths import DECLARED
from headgate.protocol.schema import types as delta
from headgate.spark.relations import Resolver
from headgate.spark.schema_conversion import quoted, to_spark
from headgate.sql import statements
from headgate.sql.statements import Described, Shown

Row = tuple[Any, ...]

_INFO: Final = "info_name string, info_value string"
_DETAIL: Final = (
    "format string, id string, name string, description string, location string,"
    " createdAt timestamp, lastModified timestamp, partitionColumns array<string>,"
    " clusteringColumns array<string>, numFiles long, sizeInBytes long,"
    " properties map<string,string>, minReaderVersion int, minWriterVersion int,"
    " tableFeatures array<string>"
)
_HISTORY: Final = (
    "version long, timestamp timestamp, operation string,"
    " operationParameters map<string,string>, readVersion long, isolationLevel string,"
    " isBlindAppend boolean, operationMetrics map<string,string>, engineInfo string, txnId string"
)


def answer(find: Resolver, statement: statements.Describe | statements.Show) -> DataFrame:
    """Answer a DESCRIBE or SHOW."""
    session = find.engine.session
    if statement.what is Described.SCHEMA:
        rows, schema = _of_schema(session, str(statement.name)), _INFO
    elif isinstance(statement, statements.Show) and statement.what in _LISTS:
        rows, schema = _listed(session, statement)
    else:
        assert statement.name is not None  # the other forms are about a table
        rows, schema = _of_table(session, session.open(find.target(statement.name)), statement)
    return find.engine.spark.createDataFrame(list(rows), schema)


def _of_schema(session: Session, text: str) -> Iterable[Row]:
    name = session.schema_name(text)
    if name.key not in {found.key for found in session.namespaces()}:
        raise NotFoundError(f"There is no schema {name}.")
    return [("Catalog Name", name.catalog), ("Namespace Name", name.schema)]


_LISTS: Final = (Shown.CATALOGS, Shown.SCHEMAS, Shown.TABLES)


def _listed(session: Session, statement: statements.Show) -> tuple[Iterable[Row], str]:
    within, like = None if statement.name is None else str(statement.name), statement.like
    if statement.what is Shown.TABLES:
        schema = session.schema_name(within)
        found = [entry.name for entry in session.tables(str(schema)) if entry.name]
        names = [name.rpartition(".")[2] for name in found]
        listed = [(schema.schema, name, False) for name in names if _is_like(name, like)]
        return listed, "namespace string, tableName string, isTemporary boolean"
    schemas = session.namespaces()
    if statement.what is Shown.CATALOGS:
        catalogs = dict.fromkeys(found.catalog for found in schemas)
        return [(name,) for name in catalogs if _is_like(name, like)], "catalog string"
    names = [s.schema for s in schemas if within is None or fold(s.catalog) == fold(within)]
    return [(name,) for name in names if _is_like(name, like)], "namespace string"


def _of_table(
    session: Session, table: Table, statement: statements.Describe | statements.Show
) -> tuple[Iterable[Row], str]:
    match statement:
        case statements.Describe(Described.DETAIL):
            return [_row(detail_of(table.newest_seen, table.name))], _DETAIL
        case statements.Describe(Described.HISTORY, limit=limit):
            return map(_row, history_of(table.newest_seen, limit, session.catalog)), _HISTORY
        case statements.Describe(column=(_, *_) as column):
            return _column(table, column), _INFO
        case statements.Describe(what):
            extended = _extended(table) if what is Described.EXTENDED else ()
            schema = "col_name string, data_type string, comment string"
            return [*_columns(table), *extended], schema
        case statements.Show(Shown.COLUMNS):
            return [(field.name,) for field in table.schema.fields], "col_name string"
        case statements.Show(Shown.PROPERTIES, key=key):
            known = sorted(table.properties.items())
            return [pair for pair in known if key in (None, pair[0])], "key string, value string"
        case _:
            text = create_text(table.name, table.newest_seen.metadata)
            return [(text,)], "createtab_stmt string"


def _is_like(name: str, like: str | None) -> bool:
    """Match as Spark's SHOW does: `*` for anything, `|` between choices, whatever the case."""
    if like is None:
        return True
    choices = [".*".join(map(re.escape, choice.split("*"))) for choice in like.split("|")]
    return any(re.fullmatch(choice, name, re.IGNORECASE) for choice in choices)


def _described(field: delta.StructField) -> Row:
    return field.name, to_spark(field.type).simpleString(), delta.comment_of(field)


def _columns(table: Table) -> Iterable[Row]:
    yield from map(_described, table.schema.fields)
    if table.partition_columns:
        yield "# Partition Information", "", ""
        yield "# col_name", "data_type", "comment"
        found = [delta.find(table.schema, [name]) for name in table.partition_columns]
        yield from (_described(field) for field in found if field is not None)


def _extended(table: Table) -> Iterable[Row]:
    snapshot = table.newest_seen
    pairs = ",".join(f"{key}={value}" for key, value in sorted(table.properties.items()))
    rows = {
        "": "",
        "# Detailed Table Information": "",
        "Name": table.name,
        "Id": table.id,
        "Comment": snapshot.metadata.description or "",
        "Location": table.location,
        "Provider": "delta",
        "Table Properties": f"[{pairs}]",
    }
    yield from ((key, value, "") for key, value in rows.items())


def _column(table: Table, path: Sequence[str]) -> Iterable[Row]:
    found = delta.find(table.schema, path)
    if found is None:
        raise NotFoundError(f"{table.name} has no column {'.'.join(path)}.")
    yield from zip(("col_name", "data_type", "comment"), _described(found), strict=True)


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


def _spelled(field: delta.StructField, between: str = " ") -> str:
    """Return a column, or a field within one, as SQL text."""
    declared = field.metadata.get(DECLARED)
    text = f"{quoted(field.name)}{between}{_type(field.type) if declared is None else declared}"
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
            return f"STRUCT<{', '.join(_spelled(field, ': ') for field in fields)}>"
        case delta.ArrayType(element):
            return f"ARRAY<{_type(element)}>"
        case delta.MapType(key, value):
            return f"MAP<{_type(key)}, {_type(value)}>"
        case _:
            return to_spark(data_type).simpleString().upper()


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
