"""Names of tables: `catalog.schema.table`, parsed once, at the edge.

A part keeps its case and is unique ignoring case, so every lookup goes by `key`. A name is never a
path: storage locations come from table ids.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from headgate.errors import InvalidNameError

DEFAULT_CATALOG = "main"
DEFAULT_SCHEMA = "default"
_LONGEST = 255


@dataclass(frozen=True, slots=True)
class SchemaName:
    """A namespace of tables."""

    catalog: str
    schema: str

    @classmethod
    def parse(cls, text: str, catalog: str = DEFAULT_CATALOG) -> SchemaName:
        """Read `schema` or `catalog.schema`."""
        match _parts(text):
            case [schema]:
                return cls(_part(catalog), schema)
            case [of, schema]:
                return cls(of, schema)
            case _:
                raise InvalidNameError(f"{text!r} is not a namespace.")

    @property
    def key(self) -> tuple[str, str]:
        """What is unique: the parts without regard to case."""
        return (fold(self.catalog), fold(self.schema))

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}"


@dataclass(frozen=True, slots=True)
class TableName:
    """The full name of a table."""

    catalog: str
    schema: str
    table: str

    @classmethod
    def parse(
        cls, text: str, catalog: str = DEFAULT_CATALOG, schema: str = DEFAULT_SCHEMA
    ) -> TableName:
        """Read `table`, `schema.table` or `catalog.schema.table`; missing parts are given."""
        match _parts(text):
            case [table]:
                return cls(_part(catalog), _part(schema), table)
            case [of, table]:
                return cls(_part(catalog), of, table)
            case [first, second, table]:
                return cls(first, second, table)
            case _:
                raise InvalidNameError(f"{text!r} has more than three parts.")

    @property
    def namespace(self) -> SchemaName:
        """The schema the table is in."""
        return SchemaName(self.catalog, self.schema)

    @property
    def key(self) -> tuple[str, str, str]:
        """What is unique: the parts without regard to case."""
        return (fold(self.catalog), fold(self.schema), fold(self.table))

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"


def fold(part: str) -> str:
    """Give the form in which two spellings of one name are equal."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", part).casefold())


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return a question that names the known name most like a wrong one; empty if none is."""
    by_fold = {fold(name): name for name in known}
    found = difflib.get_close_matches(fold(wrong), by_fold, n=1)
    return f" Did you mean {by_fold[found[0]]!r}?" if found else ""


def plain_name(text: str) -> str:
    """Read the name of what is no table and has no parts: a listener, a token."""
    return _part(text)


def _parts(text: str) -> list[str]:
    # A dot cannot be part of a name, quoted or not, so splitting is safe; backticks are allowed
    # because people copy names out of SQL.
    return [_part(part[1:-1] if _is_quoted(part) else part) for part in text.split(".")]


def _is_quoted(part: str) -> bool:
    return len(part) > 2 and part[0] == part[-1] == "`"


def _part(part: str) -> str:
    part = unicodedata.normalize("NFC", part)
    if not 1 <= len(part) <= _LONGEST:
        raise InvalidNameError(f"A part of a name has 1 to {_LONGEST} characters, not {len(part)}.")
    for character in part:
        # Marks belong to letters in many scripts (Devanagari, Thai), so they count as letters.
        if unicodedata.category(character)[0] not in "LMN" and character not in "_@-":
            raise InvalidNameError(f"{part!r} contains {character!r}.")
    return part
