"""Convert Delta schemas to Arrow schemas and back; a variant is a struct, as in data files."""

from typing import Any, Final

import pyarrow as pa

from headgate.errors import InvalidSchemaError, UnsupportedFeatureError
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.column_mapping import field_id, physical_name

FIELD_ID: Final = b"PARQUET:field_id"
_MOST_DIGITS: Final = 38

VARIANT: Final = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), False)]
)
_PRIMITIVES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "variant": VARIANT,
    "void": pa.null(),
}


def arrow_schema(schema: delta.StructType) -> pa.Schema:
    """Return the Arrow schema in which a table's rows are read."""
    return pa.schema(list(arrow_type(schema)))


def file_schema(schema: delta.StructType, without: frozenset[str] = frozenset()) -> pa.Schema:
    """Return the schema of data files: physical names, field ids, no void or partition columns."""
    kept = delta.StructType(tuple(item for item in schema.fields if item.name not in without))
    return pa.schema(list(arrow_type(kept, in_files=True)))


def delta_schema(schema: pa.Schema) -> delta.StructType:
    """Return the Delta schema of a new table for rows of an Arrow schema."""
    return delta.StructType(tuple(_delta_field(field, (field.name,)) for field in schema))


# Delta to Arrow


def arrow_type(data_type: delta.DataType, *, in_files: bool = False) -> pa.DataType:
    """Return the Arrow type in which values of a Delta type are read, or stored in data files."""
    match data_type:
        case delta.Primitive(name):
            return _PRIMITIVES[name]
        case delta.DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case delta.StructType(fields):
            if in_files:
                fields = tuple(item for item in fields if item.type != delta.VOID)
            return pa.struct([_arrow_field(item, in_files=in_files) for item in fields])
        case delta.ArrayType(element, contains_null):
            inner = arrow_type(element, in_files=in_files)
            return pa.list_(pa.field("element", inner, contains_null))
        case delta.MapType(key, value, value_contains_null):
            keys, values = (arrow_type(side, in_files=in_files) for side in (key, value))
            return pa.map_(keys, pa.field("value", values, value_contains_null))


def _arrow_field(item: delta.StructField, *, in_files: bool) -> pa.Field:
    inner = arrow_type(item.type, in_files=in_files)
    if not in_files:
        return pa.field(item.name, inner, item.nullable)
    number = field_id(item)
    metadata = None if number is None else {FIELD_ID: str(number)}
    return pa.field(physical_name(item), inner, item.nullable, metadata)


# Arrow to Delta

_BY_ID: Final = {
    kind.id: primitive
    for primitive, kinds in {
        delta.BYTE: (pa.int8(),),
        # Delta has no unsigned numbers: each becomes the next wider signed one.
        delta.SHORT: (pa.int16(), pa.uint8()),
        delta.INTEGER: (pa.int32(), pa.uint16()),
        delta.LONG: (pa.int64(), pa.uint32()),
        delta.FLOAT: (pa.float16(), pa.float32()),
        delta.DOUBLE: (pa.float64(),),
        delta.BOOLEAN: (pa.bool_(),),
        delta.STRING: (pa.string(), pa.large_string(), pa.string_view()),
        delta.BINARY: (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)),
        delta.DATE: (pa.date32(), pa.date64()),
    }.items()
    for kind in kinds
}


def _delta_field(field: pa.Field, path: tuple[str, ...]) -> delta.StructField:
    return delta.StructField(field.name, delta_type(field.type, path), field.nullable)


def delta_type(of: pa.DataType, path: tuple[str, ...] = ("value",)) -> delta.DataType:
    """Return the Delta type of a new column for values of an Arrow type."""
    if (primitive := _BY_ID.get(of.id)) is not None:
        return primitive
    if pa.types.is_timestamp(of):
        return delta.TIMESTAMP if of.tz else delta.TIMESTAMP_NTZ
    if pa.types.is_decimal(of):
        if of.precision > _MOST_DIGITS or not 0 <= of.scale <= of.precision:
            raise InvalidSchemaError(
                f"Column {_dotted(path)} is {of}; a Delta decimal has at most {_MOST_DIGITS}"
                " digits, any number of them after the point."
            )
        return delta.DecimalType(of.precision, of.scale)
    if pa.types.is_dictionary(of) or pa.types.is_run_end_encoded(of):
        return delta_type(of.value_type, path)
    if pa.types.is_map(of):
        return delta.MapType(
            delta_type(of.key_type, (*path, "key")),
            delta_type(of.item_type, (*path, "value")),
            of.item_field.nullable,
        )
    if is_list(of):
        return delta.ArrayType(
            delta_type(of.value_type, (*path, "element")), of.value_field.nullable
        )
    if pa.types.is_struct(of):
        return delta.StructType(tuple(_delta_field(field, (*path, field.name)) for field in of))
    if isinstance(of, pa.BaseExtensionType):
        if of.extension_name in ("arrow.parquet.variant", "parquet.variant"):
            return delta.VARIANT
        if of.extension_name == "arrow.json":
            return delta.STRING
        raise UnsupportedFeatureError(
            f"Column {_dotted(path)} is {of.extension_name}, for which Delta has no type.",
            remedy="Cast it to its storage type.",
        )
    if pa.types.is_null(of):
        raise InvalidSchemaError(
            f"Column {_dotted(path)} has only nulls and no type.",
            remedy="Cast it to a type, or leave the column out.",
        )
    if pa.types.is_uint64(of):
        raise InvalidSchemaError(
            f"Column {_dotted(path)} is uint64, which does not fit any integer type of Delta.",
            remedy="Cast it to int64 or to decimal(20,0).",
        )
    raise UnsupportedFeatureError(
        f"Column {_dotted(path)} is {of}, for which Delta has no type.",
        remedy="Cast it to a type Delta has, such as long, string or timestamp.",
    )


def is_list(of: pa.DataType) -> bool:
    """Return True for any of Arrow's list types."""
    kinds = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")
    return any(getattr(pa.types, f"is_{kind}")(of) for kind in kinds)


def is_bytes(of: pa.DataType) -> bool:
    """Return True for any of Arrow's types of strings and binary values."""
    return _BY_ID.get(of.id) in (delta.STRING, delta.BINARY)


def _dotted(path: tuple[str, ...]) -> str:
    return repr(".".join(path))
