"""Plain Delta tables without a catalog: a log of one commit, our writer, readers of others."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import deltalake
import duckdb
import pyarrow as pa
from duckdb_extensions import import_extension
from hypothesis import strategies as st

from headgate.client.arrow_io import write_files
from headgate.data.arrow_types import arrow_schema
from headgate.protocol.actions import AddFile, Metadata, Protocol, encode, join
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    to_json,
)
from headgate.storage.local import LocalStore
from headgate.storage.object_store import ObjectStore

WRITER_ONLY = {
    "allowColumnDefaults",
    "checkConstraints",
    "generatedColumns",
    "identityColumns",
    "invariants",
}


@dataclass(frozen=True)
class Plain:
    """A table that has a schema and, so far, no files."""

    schema: StructType
    partitioned_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    features: Sequence[str] = ()

    @property
    def protocol(self) -> Protocol:
        features = set(self.features)
        if delta.contains(self.schema, delta.TIMESTAMP_NTZ):
            features.add("timestampNtz")
        if "delta.columnMapping.mode" in self.properties:
            features.add("columnMapping")
        return Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=sorted(features - WRITER_ONLY),
            writer_features=sorted(features),
        )

    @property
    def metadata(self) -> Metadata:
        return Metadata(
            id="5f1e0f3e-0000-4000-8000-000000000000",
            schema_string=to_json(self.schema),
            partition_columns=list(self.partitioned_by),
            configuration=dict(self.properties),
            created_time=0,
        )

    def commit(self, adds: Iterable[AddFile]) -> bytes:
        return join([encode(self.protocol), encode(self.metadata), *map(encode, adds)])


def table(columns: str, *partitioned_by: str, **properties: str) -> Plain:
    """Create a table from the SQL text of its columns; `__` in a property is a dot."""
    named = {key.replace("__", "."): value for key, value in properties.items()}
    features = ["checkConstraints"] if any("constraints" in key for key in named) else []
    return Plain(parse_schema(columns), partitioned_by, named, features)


def ids() -> Any:
    numbers = itertools.count(1)
    return lambda: UUID(int=next(numbers) << 64 | 0xABCDEF)


def write(plain: Plain, rows: Any, store: ObjectStore, **options: Any) -> list[AddFile]:
    return write_files(plain, rows, store=store, new_id=ids(), now_ms=7, **options)


def written(plain: Plain, rows: Any, root: Path, **options: Any) -> list[AddFile]:
    """Write rows and the commit that adds them, at a path any reader can open."""
    store = LocalStore(root)
    adds = write(plain, rows, store, **options)
    store.put(f"_delta_log/{0:020d}.json", plain.commit(adds))
    return adds


def rows_of(plain: Plain, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(plain.schema))


# Other readers


def read_by_deltalake(root: Path) -> pa.Table:
    return deltalake.DeltaTable(str(root)).to_pyarrow_table()


def read_by_duckdb(root: Path) -> pa.Table:
    with duckdb.connect() as connection:
        import_extension("delta", con=connection)
        connection.execute("LOAD delta; SET TimeZone = 'UTC'")
        return connection.execute("FROM delta_scan($1)", [str(root)]).to_arrow_table()


def as_bag(rows: pa.Table) -> list[str]:
    """Return rows as sorted texts, since readers return them in any order."""
    return sorted(text_of(row) for row in rows.to_pylist())


def text_of(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {text_of(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(text_of(inner) for inner in value) + "]"
    if isinstance(value, tuple):  # the entries of a map are in no order
        return "(" + ", ".join(text_of(inner) for inner in value) + ")"
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat() + ("Z" if value.tzinfo else "")
    return repr(value)


# Random rows

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type, with nulls in nested values."""
    match data_type:
        case DecimalType(precision, scale):
            greatest = 10**precision - 1
            return st.integers(-greatest, greatest).map(lambda n: Decimal(n).scaleb(-scale, WIDE))
        case StructType(fields):
            return st.fixed_dictionaries({f.name: nullable(values_of(f.type)) for f in fields})
        case ArrayType(element):
            return st.lists(nullable(values_of(element)), max_size=4)
        case MapType(key, value):
            inner = nullable(values_of(value))
            return st.dictionaries(values_of(key), inner, max_size=3).map(lambda d: [*d.items()])
        case _:
            return LEAVES[str(data_type)]


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


WIDE = Context(prec=40)
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXTS,
    "long": whole(64),
    "integer": whole(32),
    "short": whole(16),
    "byte": whole(8),
    "float": st.floats(width=32),
    "double": st.floats(),
    "boolean": st.booleans(),
    "binary": st.binary(max_size=10),
    "date": st.dates(),
    "timestamp": st.datetimes().map(lambda t: t.replace(tzinfo=dt.UTC)),
    "timestamp_ntz": st.datetimes(),
}
PRIMITIVES: list[DataType] = [
    *(delta.PRIMITIVES[name] for name in LEAVES),
    DecimalType(5, 2),
    DecimalType(18, 0),
    DecimalType(38, 10),
]


def types() -> st.SearchStrategy[DataType]:
    return st.recursive(st.sampled_from(PRIMITIVES), _nested, max_leaves=4)


def _nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    keys = st.sampled_from([delta.STRING, delta.INTEGER, delta.DATE])
    return (
        st.builds(ArrayType, inner)
        | st.builds(MapType, keys, inner)
        | st.lists(inner, min_size=1, max_size=3).map(_struct)
    )


def _struct(types: Sequence[DataType]) -> StructType:
    return StructType(tuple(StructField(f"f{i}", kind) for i, kind in enumerate(types)))


@st.composite
def tables(
    draw: st.DrawFn, columns: st.SearchStrategy[DataType] | None = None
) -> tuple[StructType, list[dict[str, Any]]]:
    """Draw a schema of some columns and some rows of it."""
    kinds = draw(st.lists(columns if columns is not None else types(), min_size=1, max_size=4))
    fields = tuple(StructField(f"c{i}", kind) for i, kind in enumerate(kinds))
    row = st.fixed_dictionaries({f.name: nullable(values_of(f.type)) for f in fields})
    return StructType(fields), draw(st.lists(row, max_size=12))
