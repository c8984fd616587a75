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
OptionalTableArgument = Annotated[
    str | None, Argument(metavar="TABLE", help="A table; default: all tables.")
]
NamespaceArgument = Annotated[str, Argument(metavar="NAME", help="schema or catalog.schema.")]
NewNameArgument = Annotated[str, Argument(metavar="NEW", help="Its new name.")]
IfNotExistsOption = Annotated[bool, Option("--if-not-exists", help="Do nothing if it exists.")]
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
