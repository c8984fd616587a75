"""Read CSV, JSON lines and Parquet files as rows of a table, batch by batch.

Values are parsed by the types of the table's columns, never guessed; errors name the file, the line
and the column. Times without a zone are UTC. Binary values in JSON are base64.
"""

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from headgate import errors
from headgate.data.arrow_types import arrow_schema, arrow_type
from headgate.data.row_conversion import conform
from headgate.names import fold
from headgate.protocol.partition_values import parse_partition_value
from headgate.protocol.scalars import DistantDate, DistantMoment
from headgate.protocol.schema import types as delta

FORMATS: Final = ("csv", "json", "parquet")
_JSON_LINES: Final = 8192
_HAS_ZONE: Final = r"(?:Z|[+-]\d\d(?::?\d\d)?)$"
_NO_NUMBERS: Final = (delta.BOOLEAN, delta.STRING, delta.BINARY, delta.VARIANT)
_REMEDY: Final = "Correct the file, then append it again. Nothing was committed."


class InputError(errors.InvalidDataError):
    """The content of an input file does not fit the table; says where in which file."""


Progress = Callable[[int], None]  # called with the number of bytes read so far


def read_input(
    path: str | Path, format: str, schema: delta.StructType, progress: Progress = lambda _: None
) -> pa.RecordBatchReader:
    """Read a file as rows of a schema; `progress` gets the number of bytes read so far."""
    readers = {"csv": _read_csv, "json": _read_json, "parquet": _read_parquet}
    if format not in readers:
        raise errors.InvalidArgumentError(
            f"The input format {format!r} is not supported.",
            remedy=f"Use one of {', '.join(FORMATS)}.",
        )
    path = Path(path)
    if not path.is_file():
        raise errors.NotFoundError(f"There is no file {path}.", remedy="Check the path.")
    batches = _conformed(path, readers[format](path, schema, progress), schema)
    return pa.RecordBatchReader.from_batches(arrow_schema(schema), batches)


def _conformed(
    path: Path, batches: Iterator[pa.RecordBatch], schema: delta.StructType
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        try:
            yield conform(batch, schema)
        except errors.InvalidDataError as error:
            raise InputError(f"{path}: {error.message}", remedy=_REMEDY) from error


@contextmanager
def _arrow_errors(path: Path, names: list[str]) -> Iterator[None]:
    """Convert Arrow's errors to ours, with the place in the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        message = re.sub(r"Row #(\d+): ", "", str(error))
        row = re.search(r"Row #(\d+)", str(error))
        where = f" row {row[1]} (the heading is row 1)" if row else ""
        if column := re.match(r"In CSV column #(\d+): ", message):
            message = message[column.end() :]
            where += f" column {names[int(column[1])]!r}" if names else ""
        raise InputError(f"{path}{where}: {message}.", remedy=_REMEDY) from error


# Parquet


def _read_parquet(
    path: Path, schema: delta.StructType, progress: Progress
) -> Iterator[pa.RecordBatch]:
    with (
        _arrow_errors(path, []),
        pq.ParquetFile(
            path, coerce_int96_timestamp_unit="us", arrow_extensions_enabled=False
        ) as file,
    ):
        leaves = (file.schema.column(i) for i in range(len(file.schema)))
        instants = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
        size, rows, done = path.stat().st_size, file.metadata.num_rows, 0
        for batch in file.iter_batches():
            done += batch.num_rows
            progress(size * done // rows if rows else size)  # columns are scattered over the file
            for name in instants:  # this old type is an instant, but Arrow reads it without a zone
                index = batch.schema.get_field_index(name)
                if index >= 0:
                    moment = batch.column(index).cast(pa.timestamp("us", "UTC"))
                    batch = batch.set_column(index, name, moment)
            yield batch


# CSV

_IN_ORDER: Final = pv.ReadOptions(use_threads=False)  # otherwise errors do not name the row
_WITH_LINES: Final = pv.ParseOptions(newlines_in_values=True)
_CODECS: Final = {".bz2": "bz2", ".gz": "gzip", ".lz4": "lz4", ".zst": "zstd"}  # as Arrow has them


def _read_csv(path: Path, schema: delta.StructType, progress: Progress) -> Iterator[pa.RecordBatch]:
    known = {fold(item.name): item for item in schema.fields}
    names, codec = _heading(path), _CODECS.get(path.suffix)
    types: dict[str, pa.DataType] = {}
    moments: dict[str, delta.DataType] = {}
    for name in names:
        item = known.get(fold(name))
        if item is None:
            raise InputError(
                f"{path} has a column {name!r}, and the table has"
                f" {', '.join(item.name for item in schema.fields)}.",
                remedy=_REMEDY,
            )
        if (
            not isinstance(item.type, delta.Primitive | delta.DecimalType)
            or item.type == delta.VARIANT
        ):
            raise errors.UnsupportedFeatureError(
                f"Column {item.name!r} is {item.type}, which CSV cannot represent.",
                remedy="Use JSON lines or Parquet.",
            )
        types[name] = arrow_type(item.type)
        if item.type in (delta.TIMESTAMP, delta.TIMESTAMP_NTZ):
            types[name], moments[name] = pa.string(), item.type
    with (
        _arrow_errors(path, names),
        pa.OSFile(str(path)) as file,
        pv.open_csv(
            pa.CompressedInputStream(file, codec) if codec else file,
            read_options=_IN_ORDER,
            parse_options=_WITH_LINES,
            convert_options=pv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ) as reader,
    ):
        for batch in reader:
            progress(file.tell())
            yield _with_moments(batch, moments, path)


def _heading(path: Path) -> list[str]:
    with (
        _arrow_errors(path, []),
        pv.open_csv(path, read_options=_IN_ORDER, parse_options=_WITH_LINES) as reader,
    ):
        return list(reader.schema.names)


def _with_moments(
    batch: pa.RecordBatch, moments: Mapping[str, delta.DataType], path: Path
) -> pa.RecordBatch:
    for name, data_type in moments.items():
        values = batch.column(name)
        if data_type == delta.TIMESTAMP:
            zoned = pc.match_substring_regex(values, _HAS_ZONE)
            with_zone = pc.binary_join_element_wise(values, "Z", "")
            values = pc.if_else(zoned, values, with_zone)
        try:
            moment = values.cast(arrow_type(data_type))
        except pa.ArrowInvalid as error:
            raise InputError(f"{path} column {name!r}: {error}.", remedy=_REMEDY) from error
        batch = batch.set_column(batch.schema.get_field_index(name), name, moment)
    return batch


# JSON lines


def _read_json(
    path: Path, schema: delta.StructType, progress: Progress
) -> Iterator[pa.RecordBatch]:
    columns = arrow_schema(schema)
    with path.open("rb") as lines:
        numbered = enumerate(lines, start=1)
        while chunk := list(islice(numbered, _JSON_LINES)):
            progress(lines.tell())
            rows = [_row(path, number, raw, schema) for number, raw in chunk if raw.strip()]
            arrays = [
                pa.array([row.get(field.name) for row in rows], field.type) for field in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=columns)


def _row(path: Path, number: int, raw: bytes, schema: delta.StructType) -> dict[str, Any]:
    try:
        found = json.loads(raw, parse_float=Decimal, object_pairs_hook=_members)
        if not isinstance(found, dict):
            raise _ValueError((), "an object with one member per column is expected")
        return _struct(found, schema, ())
    except (ValueError, RecursionError) as error:
        where = f"{path} line {number}"
        if isinstance(error, _ValueError) and error.path:
            where += f" column {'.'.join(error.path)!r}"
        raise InputError(f"{where}: {error}.", remedy=_REMEDY) from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from its members; refuse duplicate names, which would be ambiguous."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _ValueError((), f"{twice!r} is given twice")
    return members


class _ValueError(ValueError):
    """A value does not have its column's type."""

    def __init__(self, path: tuple[str, ...], what: str) -> None:
        super().__init__(what)
        self.path = path


def _struct(
    found: Mapping[str, Any], schema: delta.StructType, path: tuple[str, ...]
) -> dict[str, Any]:
    known = {fold(item.name): item for item in schema.fields}
    row: dict[str, Any] = {}
    for name, value in found.items():
        item = known.get(fold(name))
        if item is None:
            raise _ValueError((*path, name), "the table has no such column")
        if item.name in row:
            raise _ValueError((*path, name), "it is given twice, ignoring case")
        row[item.name] = _value(value, item.type, (*path, item.name))
    return row


def _value(value: Any, data_type: delta.DataType, path: tuple[str, ...]) -> Any:
    if value is None:
        return None
    match data_type:
        case delta.StructType() if isinstance(value, dict):
            return _struct(value, data_type, path)
        case delta.ArrayType(element) if isinstance(value, list):
            return [_value(one, element, (*path, "element")) for one in value]
        case delta.MapType(key, inner) if isinstance(value, dict):
            return [
                (_text_value(name, key, (*path, "key")), _value(one, inner, (*path, "value")))
                for name, one in value.items()
            ]
        case delta.Primitive() | delta.DecimalType():
            return _leaf(value, data_type, path)
        case _:
            raise _mismatch(value, data_type, path)


def _mismatch(
    value: Any, data_type: delta.DataType, path: tuple[str, ...], why: str = ""
) -> _ValueError:
    shown = json.dumps(value, default=str)[:80]
    return _ValueError(path, f"{shown} is not of type {data_type}{why}")


def _leaf(value: Any, data_type: delta.DataType, path: tuple[str, ...]) -> Any:
    match value:
        case bool() if data_type == delta.BOOLEAN:
            return value
        case bool():
            raise _mismatch(value, data_type, path)
        case str() if data_type == delta.STRING:
            return value
        case str() if data_type == delta.BINARY:
            try:
                return base64.b64decode(value, validate=True)
            except ValueError:
                raise _mismatch(value, data_type, path, ": base64 is expected") from None
        case int() | Decimal() if data_type in (delta.FLOAT, delta.DOUBLE):
            return _number(value, data_type, path)
        case int() | Decimal() | str() if data_type not in _NO_NUMBERS:
            return _text_value(str(value), data_type, path)
        case _:
            raise _mismatch(value, data_type, path)


def _number(value: int | Decimal, data_type: delta.DataType, path: tuple[str, ...]) -> float:
    try:
        number = float(value)
        if data_type == delta.FLOAT:
            struct.pack("<f", number)
    except OverflowError:
        number = math.inf
    if math.isinf(number):  # JSON has no infinity: the number overflowed
        raise _ValueError(path, f"{Decimal(value):.6e} is too great for {data_type}")
    return number


def _text_value(text: str, data_type: delta.DataType, path: tuple[str, ...]) -> Any:
    if data_type == delta.STRING:
        return text
    try:
        if isinstance(data_type, delta.DecimalType):
            text = f"{Decimal(text):f}"  # partition values have no exponent, JSON numbers may
        value = parse_partition_value(text, data_type)
    except (errors.MalformedError, InvalidOperation):
        raise _ValueError(path, f"{text[:80]!r} is not of type {data_type}") from None
    if isinstance(value, DistantDate | DistantMoment):
        raise _ValueError(path, f"{text[:80]!r} is not within the years 1 to 9999")
    return value
