"""Rows a caller brings -> rows of the table: its columns, its types, its rules.

Only what keeps every value is done: wider numbers, other layouts of the same text. Anything else
is refused with the column, what was expected and what was found. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.data.arrow_types import arrow_schema, arrow_type, is_list
from headgate.data.constraints import Constraint, parse_constraint
from headgate.data.reader import as_list, list_offsets
from headgate.errors import InvalidDataError
from headgate.names import did_you_mean, fold
from headgate.protocol.schema.char_lengths import NOTHING, Declared, declared
from headgate.protocol.schema.types import (
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    check_constraints,
    invariants,
)

Path = tuple[str, ...]
_SHOWN: Final = 5
_INTEGER_DIGITS: Final = 20


def constraints_of(schema: StructType, properties: Mapping[str, str]) -> list[Constraint]:
    """Read every CHECK constraint and invariant of a table; refuse one that cannot be checked."""
    columns = arrow_schema(schema)
    found = [
        parse_constraint(name, text, columns)
        for name, text in sorted(check_constraints(properties).items())
    ]
    for path, text in invariants(schema).items():
        found.append(parse_constraint(f"on column {'.'.join(path)}", text, columns))
    return found


def conform(rows: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """Give the same rows in the table's columns and types; refuse what does not fit."""
    given = [rows.schema.field(i) for i in range(len(rows.schema))]
    columns = [rows.column(i) for i in range(len(given))]
    said = Declared(fields={fold(item.name): declared(item) for item in schema.fields})
    arrays = _matched(schema, given, columns, rows.num_rows, (), said)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))


def check_rows(rows: pa.RecordBatch, schema: StructType, constraints: Sequence[Constraint]) -> None:
    """Refuse rows of the table's types that break its rules."""
    for item, values in zip(schema.fields, rows.columns, strict=True):
        _check_nulls(values, item.type, item.nullable, (item.name,))
    for constraint in constraints:
        broken = constraint.broken_rows(rows)
        if (count := pc.sum(broken).as_py() or 0) > 0:
            shown = rows.filter(broken).slice(0, _SHOWN)
            raise InvalidDataError(
                f"{count} row{'s' if count > 1 else ''} of {rows.num_rows} break the constraint"
                f" {constraint.name} ({constraint.text}), such as {_told(shown, constraint)}."
            )


def _told(rows: pa.RecordBatch, constraint: Constraint) -> str:
    used = {fold(path[0]) for path in constraint.columns}
    columns = [name for name in rows.schema.names if fold(name) in used] or rows.schema.names
    return "; ".join(
        ", ".join(f"{name} = {value!r}" for name, value in row.items())
        for row in rows.select(columns).to_pylist()
    )


# Types


def _matched(
    schema: StructType,
    given: Sequence[pa.Field],
    arrays: Sequence[pa.Array],
    length: int,
    path: Path,
    said: Declared,
) -> list[pa.Array]:
    """Put columns, or the fields of a struct, in the table's order."""
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
    found: list[pa.Array] = []
    for item in schema.fields:
        position = by_name.get(fold(item.name))
        if position is not None:
            inner = said.fields.get(fold(item.name), NOTHING)
            found.append(_fitted(arrays[position], item.type, (*path, item.name), inner))
        elif item.nullable:
            found.append(pa.nulls(length, arrow_type(item.type)))
        else:
            raise InvalidDataError(
                f"Column {_dotted((*path, item.name))} is missing, and it may not be null."
            )
    return found


def _fitted(values: pa.Array, wanted: DataType, path: Path, said: Declared) -> pa.Array:
    target = arrow_type(wanted)
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    elif pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target)
    mask = values.is_null() if values.null_count else None
    match wanted:
        case StructType() if pa.types.is_struct(values.type):
            given = [values.type.field(i) for i in range(values.type.num_fields)]
            inner = [values.field(i) for i in range(len(given))]
            arrays = _matched(wanted, given, inner, len(values), path, said)
            fields = [target.field(i) for i in range(target.num_fields)]
            return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
        case ArrayType(element) if is_list(values.type):
            of_element, *_ = (*said.within, NOTHING)
            flat = _fitted(values.flatten(), element, (*path, "element"), of_element)
            return pa.ListArray.from_arrays(list_offsets(values), flat, type=target, mask=mask)
        case MapType(key, value) if pa.types.is_map(values.type):
            of_key, of_value, *_ = (*said.within, NOTHING, NOTHING)
            listed = as_list(values)
            entries = listed.flatten()
            return pa.MapArray.from_arrays(
                list_offsets(listed),
                _fitted(entries.field(0), key, (*path, "key"), of_key),
                _fitted(entries.field(1), value, (*path, "value"), of_value),
                type=target,
                mask=mask,
            )
        case StructType() | ArrayType() | MapType():
            raise _misfit(values.type, wanted, path)
        case _ if wanted == VARIANT:
            return _variant(values, path)
        case _:
            leaf = _leaf(values, wanted, path)
            return leaf if said.length is None else _as_long_as_said(leaf, path, said, said.length)


def _leaf(values: pa.Array, wanted: DataType, path: Path) -> pa.Array:
    target = arrow_type(wanted)
    if values.type == target:
        return values
    if not _keeps_values(values.type, target):
        raise _misfit(values.type, wanted, path)
    try:
        if pa.types.is_integer(values.type) and pa.types.is_decimal(target):
            # Arrow asks for room for any integer; what counts is whether these fit.
            values = values.cast(pa.decimal256(_INTEGER_DIGITS + target.scale, target.scale))
        return values.cast(target)
    except pa.ArrowInvalid as error:
        raise InvalidDataError(
            f"Column {_dotted(path)} is {wanted}, and a value of {values.type} does not fit:"
            f" {error}."
        ) from error


def _as_long_as_said(texts: pa.Array, path: Path, said: Declared, length: int) -> pa.Array:
    """Cut spaces that are too many and fill up, as Spark does; refuse what is too long."""
    lengths = pc.utf8_length(pc.utf8_rtrim(texts, characters=" "))
    if (pc.max(lengths).as_py() or 0) > length:
        longest = texts.filter(pc.greater(lengths, length))
        raise InvalidDataError(
            f"Column {_dotted(path)} is {said.type}, and {len(longest)} of {len(texts)} texts are"
            f" longer, such as {longest[0].as_py()!r}."
        )
    cut = pc.utf8_slice_codeunits(texts, 0, length)
    return pc.utf8_rpad(cut, length) if said.is_char else cut


def _variant(values: pa.Array, path: Path) -> pa.Array:
    target = arrow_type(VARIANT)
    fields = [target.field(i) for i in range(target.num_fields)]
    names = [values.type.field(i).name for i in range(values.type.num_fields)]
    if not pa.types.is_struct(values.type) or sorted(names) != ["metadata", "value"]:
        raise _misfit(values.type, VARIANT, path)
    arrays = [values.field(names.index(field.name)).cast(field.type) for field in fields]
    return pa.StructArray.from_arrays(
        arrays, fields=fields, mask=values.is_null() if values.null_count else None
    )


def _keeps_values(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Say whether a type may be brought to another; what does not fit in range is found later."""
    types = pa.types
    if types.is_integer(found):
        return bool(
            types.is_integer(wanted) or types.is_floating(wanted) or types.is_decimal(wanted)
        )
    if types.is_floating(found):
        return bool(types.is_floating(wanted) and found.bit_width <= wanted.bit_width)
    if types.is_decimal(found):
        return bool(types.is_decimal(wanted))
    if types.is_date(found):
        return bool(types.is_date(wanted))
    if types.is_timestamp(found):
        # An instant is no reading of a wall clock: nobody but the caller knows the zone.
        return bool(types.is_timestamp(wanted)) and (found.tz is None) == (wanted.tz is None)
    if types.is_large_string(found) or types.is_string_view(found):
        return bool(types.is_string(wanted))
    if types.is_large_binary(found) or types.is_binary_view(found):
        return bool(types.is_binary(wanted))
    return bool(types.is_fixed_size_binary(found) and types.is_binary(wanted))


def _misfit(found: pa.DataType, wanted: DataType, path: Path) -> InvalidDataError:
    return InvalidDataError(f"Column {_dotted(path)} is {wanted}, and the rows have {found}.")


# Nulls


def _check_nulls(values: pa.Array, data_type: DataType, nullable: bool, path: Path) -> None:
    """Refuse nulls where none may be.

    A field that must not be null within a struct that may be is refused for a null struct too, as
    Delta on Spark does: its readers rely on the field.
    """
    if not nullable and values.null_count:
        raise InvalidDataError(
            f"Column {_dotted(path)} may not be null, and {values.null_count} of"
            f" {len(values)} values are."
        )
    match data_type:
        case StructType(fields):
            for index, item in enumerate(fields):
                if _has_rule(item):
                    inner = pc.struct_field(values, [index])
                    _check_nulls(inner, item.type, item.nullable, (*path, item.name))
        case ArrayType(element, contains_null):
            flat = values.flatten()
            _check_inner(flat, element, contains_null, (*path, "element"))
        case MapType(key, value, value_contains_null):
            entries = as_list(values).flatten()
            _check_inner(entries.field(0), key, False, (*path, "key"))
            _check_inner(entries.field(1), value, value_contains_null, (*path, "value"))
        case _:
            pass


def _check_inner(values: pa.Array, data_type: DataType, nullable: bool, path: Path) -> None:
    # Where elements may be null, what they would hold is not asked for.
    _check_nulls(values.drop_null() if nullable else values, data_type, nullable, path)


def _has_rule(item: StructField) -> bool:
    match item.type:
        case StructType(fields):
            return not item.nullable or any(_has_rule(inner) for inner in fields)
        case ArrayType() | MapType():
            return True
        case _:
            return not item.nullable


def _dotted(path: Path) -> str:
    return repr(".".join(path))
