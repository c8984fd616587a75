"""Commands that commit to a table: rows from files, properties, its comment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli.context import Globals
from headgate.cli.input_files import Rows, format_of, on_disk
from headgate.cli.options import FilesArgument, FormatOption, TableArgument, pairs
from headgate.cli.render import facts, many, moment

if TYPE_CHECKING:  # these are slow to load
    from headgate.client.table import Table
    from headgate.client.transaction import Committed


def append(
    ctx: typer.Context, name: TableArgument, files: FilesArgument, format: FormatOption = "auto"
) -> None:
    """Add rows from files to a table.

    All of them in one commit, or none.

    CSV has a heading with the names of columns, JSON is one object a line. Columns may come in any
    order; those that are missing become NULL. Values are read as the table's columns say.

    For example:
      headgate append sales.orders monday.csv tuesday.csv
      headgate append sales.orders rows.parquet
      cat rows.jsonl | headgate append sales.orders - --format json
    """

    def write(table: Table, rows: Rows) -> Committed | None:
        return rows.write(table.append) if rows.are_any else None

    _write(ctx.obj, name, files, format, ("Appending to", "appended"), write)


def overwrite(
    ctx: typer.Context, name: TableArgument, files: FilesArgument, format: FormatOption = "auto"
) -> None:
    """Put rows from files in place of all that a table has.

    In one commit: readers see the old rows or the new ones, and the old ones stay in the table's
    past. Files without rows leave a table without rows. They are read as `append` reads them.

    For example:
      headgate overwrite sales.prices prices.csv
      headgate show sales.prices --version 7
    """

    def write(table: Table, rows: Rows) -> Committed:
        return rows.write(table.overwrite)

    _write(ctx.obj, name, files, format, ("Overwriting", "put in place of what was there"), write)


def properties(
    ctx: typer.Context,
    name: TableArgument,
    put: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a property; may come again."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Take a property away; may come again."),
    ] = None,
) -> None:
    """Show the properties of a table, or change some.

    All that are set, or all that are taken away, are one commit. Some properties switch features of
    the table on, and some the catalog keeps and refuses to have changed.

    For example:
      headgate properties sales.orders
      headgate properties sales.orders --set delta.appendOnly=true --set team=sales
      headgate properties sales.orders --unset team
    """
    here: Globals = ctx.obj
    if put and unset:
        raise typer.BadParameter("--set and --unset are a commit each: do one after the other.")
    settled = pairs(put)
    with here.session("Changing properties" if settled or unset else "Reading") as session:
        table = session.table(name)
        committed = table.set_properties(settled) if settled else None
        if unset:
            committed = table.unset_properties(unset)
        known = dict(sorted(table.properties.items()))
    here.output.result(
        {"table": table.name, "version": table.version, "properties": known},
        facts(list(known.items())) if known else "No properties.",
    )
    if committed is not None:
        here.output.say(f"{table.name} is at version {committed.version}.")


def comment(
    ctx: typer.Context,
    name: TableArgument,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What the table is for; nothing takes it away.")
    ],
) -> None:
    """Say what a table is for.

    For example:
      headgate comment sales.orders "what was sold, by day"
      headgate comment sales.orders ""
    """
    here: Globals = ctx.obj
    with here.session("Changing the comment") as session:
        table = session.table(name)
        committed = table.comment(text or None)
    here.output.result(
        {"table": table.name, "version": committed.version, "comment": text or None},
        f"{table.name} is at version {committed.version}: "
        + (f"its comment is {text!r}." if text else "it has no comment."),
    )


def _write(
    here: Globals,
    name: str,
    files: list[str],
    format: str,
    words: tuple[str, str],
    write: Callable[[Any, Rows], Committed | None],
) -> None:
    """Write the rows of files to a table, and tell what came of it."""
    doing, done = words
    inputs = [(file, format_of(file, format)) for file in files]
    with (
        on_disk(inputs) as paths,
        here.output.progress(f"{doing} {name}", "bytes") as progress,
        here.opened() as session,
    ):
        table = session.table(name)
        rows = Rows(paths, table.schema, progress)
        committed = write(table, rows)
    if committed is None:
        here.output.result(
            {"table": table.name, "version": None, "rows": 0},
            "There are no rows: nothing was committed.",
        )
        return
    commit = committed.commits[table.id]
    here.output.result(
        {
            "table": table.name,
            "version": commit.version,
            "rows": rows.count,
            "way": commit.way.value,
            "txnId": committed.txn_id,
            "sequence": committed.sequence,
            "timestamp": moment(committed.timestamp_ms),
        },
        f"{table.name} is at version {commit.version}: {many(rows.count, 'row')} {done},"
        f" {commit.way.value}, txnId {committed.txn_id}.",
    )
