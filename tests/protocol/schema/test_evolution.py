"""Schemas that grow with the rows written: new columns and fields, and wider types."""

from __future__ import annotations

import pytest

from headgate.protocol.schema.evolution import merged
from headgate.protocol.schema.type_widening import (
    TYPE_CHANGES,
    is_widening,
    is_widening_within_family,
    type_changes,
)
from headgate.protocol.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    Path,
    Primitive,
    StructField,
    StructType,
)

WHOLE = [Primitive(name) for name in ("byte", "short", "integer", "long")]
OTHERS = [Primitive(name) for name in ("float", "double", "date", "timestamp_ntz", "string")]
DECIMALS = [DecimalType(4, 2), DecimalType(10, 2), DecimalType(12, 4), DecimalType(38, 10)]
TYPES: list[DataType] = [*WHOLE, *OTHERS, *DECIMALS]


def always(path: Path) -> bool:
    return True


def struct(**types: DataType) -> StructType:
    return StructType(tuple(StructField(name, of) for name, of in types.items()))


@pytest.mark.parametrize("before", TYPES, ids=str)
@pytest.mark.parametrize("after", TYPES, ids=str)
def test_a_write_widens_a_type_within_its_family_and_leaves_every_other(
    before: DataType, after: DataType
) -> None:
    found = merged(struct(a=before), struct(a=after), always).fields[0]
    crosses = before in WHOLE and after not in WHOLE
    widens = before != after and is_widening(before, after) and not crosses
    assert is_widening_within_family(before, after) is widens
    assert found.type == (after if widens else before)
    assert (TYPE_CHANGES in found.metadata) is widens


def test_types_stay_unless_the_rule_lets_them_change() -> None:
    before, given = struct(a=WHOLE[0], b=WHOLE[0]), struct(a=WHOLE[3], b=WHOLE[3])
    assert merged(before, given) == before
    asked: list[Path] = []

    def only_b(path: Path) -> bool:
        asked.append(path)
        return path == ("b",)

    found = merged(before, given, only_b)
    assert [item.type for item in found.fields] == [WHOLE[0], WHOLE[3]]
    assert asked == [("a",), ("b",)]


def test_a_change_within_arrays_and_maps_is_recorded_by_the_field_around_it() -> None:
    before = struct(
        xs=ArrayType(MapType(WHOLE[0], WHOLE[1], True), True), st=struct(in_it=WHOLE[2])
    )
    given = struct(
        xs=ArrayType(MapType(WHOLE[1], WHOLE[2], True), True),
        st=struct(in_it=WHOLE[3], new=OTHERS[0]),
    )
    found = merged(before, given, always)
    assert [(change.path, change.within) for change in type_changes(found)] == [
        (("xs",), "element.key"),
        (("xs",), "element.value"),
        (("st", "in_it"), None),
    ]
    inner = found.fields[1].type
    assert isinstance(inner, StructType)
    assert [item.name for item in inner.fields] == ["in_it", "new"]
