"""Table names, `catalog.schema.table`, and their parsing.

Names keep their case and are unique ignoring case, so lookups use `key`. Storage locations
come from table ids, never from names.
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
    """The name of a namespace."""

    catalog: str
    schema: str

    @classmethod
    def parse(cls, text: str, catalog: str = DEFAULT_CATALOG) -> SchemaName:
        """Parse `schema` or `catalog.schema`."""
        match _parts(text):
            case [schema]:
                return cls(plain_name(catalog), schema)
            case [first, schema]:
                return cls(first, schema)
            case _:
                raise InvalidNameError(f"{text!r} is not a valid name of a namespace.")

    @property
    def key(self) -> tuple[str, str]:
        """The parts without case, which are unique."""
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
        """Parse `table`, `schema.table` or `catalog.schema.table`."""
        match _parts(text):
            case [table]:
                return cls(plain_name(catalog), plain_name(schema), table)
            case [second, table]:
                return cls(plain_name(catalog), second, table)
            case [first, second, table]:
                return cls(first, second, table)
            case _:
                raise InvalidNameError(f"{text!r} has more than three parts.")

    @property
    def namespace(self) -> SchemaName:
        return SchemaName(self.catalog, self.schema)

    @property
    def key(self) -> tuple[str, str, str]:
        """The parts without case, which are unique."""
        return (fold(self.catalog), fold(self.schema), fold(self.table))

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"


def fold(part: str) -> str:
    """Return the form in which all spellings of a name are equal."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", part).casefold())


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored and sent: it has no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known name; empty if there is none."""
    by_fold = {fold(name): name for name in known}
    matches = difflib.get_close_matches(fold(wrong), by_fold, n=1)
    return f" Did you mean {by_fold[matches[0]]!r}?" if matches else ""


def plain_name(text: str) -> str:
    """Check a name without parts, such as that of a listener or a token."""
    part = unicodedata.normalize("NFC", text)
    if not 1 <= len(part) <= _LONGEST:
        raise InvalidNameError(
            f"A part of a name must have 1 to {_LONGEST} characters, not {len(part)}."
        )
    for character in part:
        # Marks belong to letters in many scripts (Devanagari, Thai), so they count as letters.
        if unicodedata.category(character)[0] not in "LMN" and character not in "_@-":
            raise InvalidNameError(f"{part!r} contains {character!r}.")
    return part


def _parts(text: str) -> list[str]:
    # A name cannot contain a dot, quoted or not, so splitting is safe. Backticks are allowed
    # because people copy names from SQL.
    return [plain_name(part[1:-1] if _is_quoted(part) else part) for part in text.split(".")]


def _is_quoted(part: str) -> bool:
    return len(part) > 2 and part[0] == part[-1] == "`"
