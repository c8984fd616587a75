"""Predicates against partition values and min/max: what was read, what may be skipped."""

from __future__ import annotations

import enum

import msgspec

Literal = bool | int | float | str  # dates, timestamps and decimals in Delta's own spelling
Column = tuple[str, ...]  # a path into nested structs, by logical names


class Operator(enum.Enum):
    """How a column is held against a value."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class _Node(msgspec.Struct, frozen=True, tag_field="is"):
    pass


class Compare(_Node, frozen=True, tag="compare"):
    """A column against a literal."""

    column: Column
    operator: Operator
    value: Literal


class In(_Node, frozen=True, tag="in"):
    """A column against several literals."""

    column: Column
    values: tuple[Literal, ...]


class IsNull(_Node, frozen=True, tag="null"):
    """A column without a value."""

    column: Column


class And(_Node, frozen=True, tag="and"):
    """All of them."""

    items: tuple[Predicate, ...]


class Or(_Node, frozen=True, tag="or"):
    """Any of them."""

    items: tuple[Predicate, ...]


class Not(_Node, frozen=True, tag="not"):
    """The other rows."""

    item: Predicate


Predicate = Compare | In | IsNull | And | Or | Not
