"""Arguments that several commands take, and how they are read."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.errors import InvalidArgumentError

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="table, schema.table or catalog.schema.table.")
]
DroppedArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="The name it had, or its id: `headgate show -d`.")
]
FilesArgument = Annotated[
    list[str], typer.Argument(metavar="FILE", help="Files; - is standard input.")
]
FormatOption = Annotated[
    str, typer.Option(metavar="FORMAT", help="csv, json, parquet; auto: by the file's ending.")
]


def names(text: str) -> list[str]:
    """Read names that are separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def pairs(texts: list[str] | None) -> dict[str, str]:
    """Read properties, each written as KEY=VALUE."""
    return dict(map(_pair, texts or ()))


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise InvalidArgumentError(f"{text!r} is no property.", remedy="Write it as KEY=VALUE.")
    return key, value
