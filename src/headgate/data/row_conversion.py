"""Convert rows to a table's columns and types, keeping every value, and check its rules."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.data.arrow_types import arrow_schema, arrow_type, is_list
from headgate.data.constraints import Constraint, parse_constraint
from headgate.data.nested_arrays import (
    Convert,
    list_array,
    map_array,
    map_entries,
    struct_array,
    variant_array,
)
from headgate.errors import InvalidDataError
from headgate.names import did_you_mean, fold
from headgate.protocol.expressions.char_lengths import CharLengths, char_lengths
from headgate.protocol.schema import types as delta

Path = tuple[str, ...]
_SHOWN: Final = 5
_INTEGER_DIGITS: Final = 20


def constraints_of(schema: delta.StructType, properties: Mapping[str, str]) -> list[Constraint]:
    """Parse all CHECK constraints and invariants of a table; refuse one that cannot be checked."""
    columns = arrow_schema(schema)
    return [parse_constraint(name, text, columns) for name, text in delta.rules(schema, properties)]


def conform(rows: pa.RecordBatch, schema: delta.StructType) -> pa.RecordBatch:
    """Convert rows to the columns and types of a table; refuse rows that do not fit."""
    lengths = CharLengths(parts={fold(item.name): char_lengths(item) for item in schema.fields})
    arrays = _reordered(schema, list(rows.schema), rows.columns, rows.num_rows, (), lengths)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))


def check_rows(
    rows: pa.RecordBatch, schema: delta.StructType, constraints: Sequence[Constraint]
) -> None:
    """Refuse rows with nulls in NOT NULL columns, or rows that violate a constraint."""
    for item, values in zip(schema.fields, rows.columns, strict=True):
        _check_nulls(values, item.type, item.nullable, (item.name,))
    for constraint in constraints:
        violations = constraint.violations(rows)
        if (count := pc.sum(violations).as_py() or 0) > 0:
            shown = rows.filter(violations).slice(0, _SHOWN)
            raise InvalidDataError(
                f"{count} row{'s' if count > 1 else ''} of {rows.num_rows} break the constraint"
                f" {constraint.name} ({constraint.text}), such as {_described(shown, constraint)}."
            )


def _described(rows: pa.RecordBatch, constraint: Constraint) -> str:
    used = {fold(path[0]) for path in constraint.columns}
    columns = [name for name in rows.schema.names if fold(name) in used] or rows.schema.names
    return "; ".join(
        ", ".join(f"{name} = {value!r}" for name, value in row.items())
        for row in rows.select(columns).to_pylist()
    )


# Types


def _reordered(
    schema: delta.StructType,
    given: Sequence[pa.Field],
    arrays: Sequence[pa.Array],
    length: int,
    path: Path,
    lengths: CharLengths,
) -> list[pa.Array]:
    """Put columns, or the fields of a struct, in the table's order, in the table's types."""
    by_name: dict[str, int] = {}
    known = {fold(item.name) for item in schema.fields}
    for index, field in enumerate(given):
        if fold(field.name) in by_name:
            raise InvalidDataError(f"Column {_dotted((*path, field.name))} is given twice.")
        if fold(field.name) not in known:
            names = [item.name for item in schema.fields]
            raise InvalidDataError(
                f"The table has no column {_dotted((*path, field.name))}; it has"
                f" {', '.join(names)}.{did_you_mean(field.name, names)}"
            )
        by_name[fold(field.name)] = index
    converted: list[pa.Array] = []
    for item in schema.fields:
        position = by_name.get(fold(item.name))
        if position is not None:
            within = (*path, item.name)
            converted.append(_converted(arrays[position], item.type, within, lengths.at(item.name)))
        elif item.nullable:
            converted.append(pa.nulls(length, arrow_type(item.type)))
        else:
            raise InvalidDataError(
                f"Column {_dotted((*path, item.name))} is missing, and it may not be null."
            )
    return converted


def _converted(values: pa.Array, to: delta.DataType, path: Path, lengths: CharLengths) -> pa.Array:
    target = arrow_type(to)
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    elif pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target)

    def within(name: str, part: delta.DataType) -> Convert:
        return partial(_converted, to=part, path=(*path, name), lengths=lengths.at(name))

    match to:
        case delta.StructType() if pa.types.is_struct(values.type):
            inner = [values.field(i) for i in range(values.type.num_fields)]
            arrays = _reordered(to, list(values.type), inner, len(values), path, lengths)
            return struct_array(values, arrays, target)
        case delta.ArrayType() if is_list(values.type):
            return list_array(values, within("element", to.element), target)
        case delta.MapType() if pa.types.is_map(values.type):
            return map_array(values, within("key", to.key), within("value", to.value), target)
        case _ if to == delta.VARIANT and (variants := variant_array(values)) is not None:
            return variants
        case _ if pa.types.is_nested(target):
            raise _type_error(values.type, to, path)
        case _:
            leaf = _leaf(values, to, path)
            return leaf if lengths.length is None else _limited(leaf, path, lengths, lengths.length)


def _leaf(values: pa.Array, to: delta.DataType, path: Path) -> pa.Array:
    target = arrow_type(to)
    if values.type == target:
        return values
    if not _keeps_values(values.type, target):
        raise _type_error(values.type, to, path)
    try:
        if pa.types.is_integer(values.type) and pa.types.is_decimal(target):
            # Arrow requires precision for any integer; it is enough that these values fit.
            values = values.cast(pa.decimal256(_INTEGER_DIGITS + target.scale, target.scale))
        return values.cast(target)
    except pa.ArrowInvalid as error:
        raise InvalidDataError(
            f"Column {_dotted(path)} is {to}, and a value of {values.type} does not fit: {error}."
        ) from error


def _limited(texts: pa.Array, path: Path, declared: CharLengths, length: int) -> pa.Array:
    """Trim trailing spaces and pad to a declared length, as Spark does; refuse longer strings."""
    lengths = pc.utf8_length(pc.utf8_rtrim(texts, characters=" "))
    if (pc.max(lengths).as_py() or 0) > length:
        longest = texts.filter(pc.greater(lengths, length))
        raise InvalidDataError(
            f"Column {_dotted(path)} is {declared.type}, and {len(longest)} of {len(texts)} texts"
            f" are longer, such as {longest[0].as_py()!r}."
        )
    trimmed = pc.utf8_slice_codeunits(texts, 0, length)
    return pc.utf8_rpad(trimmed, length) if declared.is_char else trimmed


def _keeps_values(given: pa.DataType, to: pa.DataType) -> bool:
    """Return True if a type may be cast to another; values out of range fail during the cast."""
    types = pa.types
    if types.is_integer(given):
        return bool(types.is_integer(to) or types.is_floating(to) or types.is_decimal(to))
    if types.is_floating(given):
        return bool(types.is_floating(to) and given.bit_width <= to.bit_width)
    if types.is_decimal(given):
        return bool(types.is_decimal(to))
    if types.is_date(given):
        return bool(types.is_date(to))
    if types.is_timestamp(given):
        # Only the caller knows which time zone connects an instant and a wall clock.
        return bool(types.is_timestamp(to)) and (given.tz is None) == (to.tz is None)
    if types.is_large_string(given) or types.is_string_view(given):
        return bool(types.is_string(to))
    if types.is_large_binary(given) or types.is_binary_view(given):
        return bool(types.is_binary(to))
    return bool(types.is_fixed_size_binary(given) and types.is_binary(to))


def _type_error(given: pa.DataType, to: delta.DataType, path: Path) -> InvalidDataError:
    return InvalidDataError(f"Column {_dotted(path)} is {to}, and the rows have {given}.")


# Nulls


def _check_nulls(values: pa.Array, data_type: delta.DataType, nullable: bool, path: Path) -> None:
    """Refuse nulls in NOT NULL columns and fields."""
    # A null struct with a NOT NULL field is refused even if the struct itself may be null, as
    # delta-spark does: its readers rely on the field.
    if not nullable and values.null_count:
        raise InvalidDataError(
            f"Column {_dotted(path)} may not be null, and {values.null_count} of"
            f" {len(values)} values are."
        )
    match data_type:
        case delta.StructType(fields):
            for index, item in enumerate(fields):
                if _has_rule(item):
                    inner = pc.struct_field(values, [index])
                    _check_nulls(inner, item.type, item.nullable, (*path, item.name))
        case delta.ArrayType(element, contains_null):
            flat = values.flatten()
            _check_inner(flat, element, contains_null, (*path, "element"))
        case delta.MapType(key, value, value_contains_null):
            entries = map_entries(values)
            _check_inner(entries.field(0), key, False, (*path, "key"))
            _check_inner(entries.field(1), value, value_contains_null, (*path, "value"))
        case _:
            pass


def _check_inner(values: pa.Array, data_type: delta.DataType, nullable: bool, path: Path) -> None:
    # The fields of a null element are not checked.
    _check_nulls(values.drop_null() if nullable else values, data_type, nullable, path)


def _has_rule(item: delta.StructField) -> bool:
    match item.type:
        case delta.StructType(fields):
            return not item.nullable or any(_has_rule(inner) for inner in fields)
        case delta.ArrayType() | delta.MapType():
            return True
        case _:
            return not item.nullable


def _dotted(path: Path) -> str:
    return repr(".".join(path))
