"""Arguments that several commands share, and their parsing."""

from typing import Annotated, Literal

from typer import Argument, Option

from headgate.errors import InvalidArgumentError

TableArgument = Annotated[
    str, Argument(metavar="TABLE", help="table, schema.table or catalog.schema.table.")
]
DroppedArgument = Annotated[
    str, Argument(metavar="TABLE", help="Its former name, or its id: `headgate show -d`.")
]
FilesArgument = Annotated[list[str], Argument(metavar="FILE", help="Files; - for standard input.")]
FormatOption = Annotated[
    str, Option(metavar="FORMAT", help="csv, json, parquet; auto: from the file extension.")
]

RowFormat = Literal["table", "json", "csv"]


def names(text: str) -> list[str]:
    """Parse names separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def pairs(texts: list[str] | None) -> dict[str, str]:
    """Parse properties, each written as KEY=VALUE."""
    return dict(map(_pair, texts or ()))


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise InvalidArgumentError(
            f"{text!r} is not a valid property.", remedy="Write it as KEY=VALUE."
        )
    return key, value
