"""Predicates over columns; NaN equals itself and is greater than every number."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import msgspec

Literal = bool | int | float | str  # dates, timestamps and decimals in Delta's text format
Column = tuple[str, ...]  # a path into nested structs, by logical names


class Operator(enum.Enum):
    """How a column is compared with a literal."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class _PredicateNode(msgspec.Struct, frozen=True, tag_field="is"):
    pass


class Compare(_PredicateNode, frozen=True, tag="compare"):
    """A column compared with a literal."""

    column: Column
    operator: Operator
    value: Literal


class In(_PredicateNode, frozen=True, tag="in"):
    """A column equal to one of several literals."""

    column: Column
    values: tuple[Literal, ...]


class IsNull(_PredicateNode, frozen=True, tag="null"):
    """A column that is null."""

    column: Column


class And(_PredicateNode, frozen=True, tag="and"):
    """All of several predicates."""

    items: tuple[Predicate, ...]


class Or(_PredicateNode, frozen=True, tag="or"):
    """Any of several predicates."""

    items: tuple[Predicate, ...]


class Not(_PredicateNode, frozen=True, tag="not"):
    """The negation of a predicate."""

    item: Predicate


Predicate = Compare | In | IsNull | And | Or | Not


def columns(predicate: Predicate) -> frozenset[Column]:
    """Return all columns that a predicate uses."""
    used: set[Column] = set()
    pending = [predicate]
    while pending:
        match pending.pop():
            case Compare(column=column) | In(column=column) | IsNull(column=column):
                used.add(column)
            case And(items=items) | Or(items=items):
                pending.extend(items)
            case Not(item=item):
                pending.append(item)
    return frozenset(used)


def value_at(values: Mapping[str, object] | None, path: Sequence[str]) -> object:
    """Return the value at a path of nested names, or None."""
    found: object = values
    for name in path:
        if not isinstance(found, dict) and not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found
