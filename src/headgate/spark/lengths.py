"""Texts of a declared length: columns that Spark made as `char(n)` or `varchar(n)`.

In a table they are strings; what was declared is a text in the column's metadata, with the column's
whole type. Spaces too many at the end are cut, as Spark does, and `char` is filled up with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.errors import UnsupportedFeatureError
from headgate.names import fold
from headgate.protocol.schema import ArrayType, DataType, MapType, StructField, StructType
from headgate.spark.places import Holds, Path, in_elements, in_field, in_keys, in_values

DECLARED: Final = "__CHAR_VARCHAR_TYPE_STRING"
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>`(?:[^`]|``)*`|[^\s:<>,()`]+)\s*(?P<colon>:)?|(?P<mark>[<>,()]))"
)


@dataclass(frozen=True, slots=True)
class Declared:
    """What was declared of a type: a length, or something of the types within."""

    length: int | None = None
    is_char: bool = False
    fields: Mapping[str, Declared] = field(default_factory=dict)  # by folded names
    within: tuple[Declared, ...] = ()  # of an array its element, of a map key and value

    @property
    def says_something(self) -> bool:
        """Whether a length is declared anywhere."""
        inner = (*self.fields.values(), *self.within)
        return self.length is not None or any(item.says_something for item in inner)


def declared(item: StructField) -> Declared:
    """Read what a column's metadata says of its texts' lengths."""
    text = item.metadata.get(DECLARED)
    if text is None:
        return Declared()
    try:
        return _Reading(str(text)).whole()
    except ValueError:
        raise UnsupportedFeatureError(
            f"Column {item.name!r} is declared as {text!r}, which cannot be read."
        ) from None


class _Reading:
    """A type as Spark spells it, read from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, bool]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            if (found := _TOKEN.match(text, at)) is None:
                raise ValueError(text)
            word = found["name"] or found["mark"]
            self._tokens.append((word, found["colon"] is not None))
            at = found.end()
        self._tokens.append(("", False))
        self._next = 0

    def whole(self) -> Declared:
        found = self._type()
        self._expect("")
        return found

    def _type(self) -> Declared:
        match self._take()[0].lower():
            case "struct":
                return Declared(fields=dict(self._fields()))
            case "array" | "map":
                self._expect("<")
                within = [self._type()]
                while self._took(","):
                    within.append(self._type())
                self._expect(">")
                return Declared(within=tuple(within))
            case "char" | "varchar" as word:
                self._expect("(")
                length = int(self._take()[0])
                self._expect(")")
                return Declared(length, is_char=word == "char")
            case "":
                raise ValueError
            case _:
                if self._took("("):
                    while not self._took(")"):
                        self._take()
                return Declared()

    def _fields(self) -> Iterator[tuple[str, Declared]]:
        self._expect("<")
        while not self._took(">"):
            name, has_colon = self._take()
            if not has_colon:
                raise ValueError(name)
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            yield fold(name), self._type()
            self._took(",")

    def _take(self) -> tuple[str, bool]:
        if self._next >= len(self._tokens):
            raise ValueError
        self._next += 1
        return self._tokens[self._next - 1]

    def _took(self, word: str) -> bool:
        if self._tokens[min(self._next, len(self._tokens) - 1)][0] != word:
            return False
        self._next += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._took(word):
            raise ValueError(word)


# Rows


def fitted(column: Column, data_type: DataType, said: Declared) -> Column:
    """Cut spaces that are too many, and fill up; what is too long stays as it is."""
    if not said.says_something:
        return column
    if said.length is not None:
        fits = F.char_length(F.rtrim(column)) <= said.length
        if said.is_char:
            return F.when(fits, F.rpad(column, said.length, " ")).otherwise(column)
        return F.when(fits, F.substring(column, 1, said.length)).otherwise(column)
    match data_type:
        case StructType(fields):
            parts = [
                fitted(
                    column.getField(item.name),
                    item.type,
                    said.fields.get(fold(item.name), Declared()),
                ).alias(item.name)
                for item in fields
            ]
            return F.when(column.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(column, lambda item: fitted(item, element, said.within[0]))
        case MapType(key, value):
            keyed = F.transform_keys(column, lambda item, _: fitted(item, key, said.within[0]))
            return F.transform_values(keyed, lambda _, item: fitted(item, value, said.within[1]))
        case _:
            return column


def lengths(data_type: DataType, said: Declared, path: Path) -> Iterator[tuple[Holds, str]]:
    """Give a condition for each text of a declared length, and the place of the text."""
    if not said.says_something:
        return
    if (length := said.length) is not None:
        word = "char" if said.is_char else "varchar"
        yield (
            lambda column: column.isNull() | (F.char_length(column) <= length),
            f"{'.'.join(path)}, which is {word}({length})",
        )
    match data_type:
        case StructType(fields):
            for item in fields:
                inner = said.fields.get(fold(item.name), Declared())
                for holds, what in lengths(item.type, inner, (*path, item.name)):
                    yield in_field(item.name, holds), what
        case ArrayType(element):
            for holds, what in lengths(element, said.within[0], (*path, "element")):
                yield in_elements(holds), what
        case MapType(key, value):
            for holds, what in lengths(key, said.within[0], (*path, "key")):
                yield in_keys(holds), what
            for holds, what in lengths(value, said.within[1], (*path, "value")):
                yield in_values(holds), what
        case _:
            return
