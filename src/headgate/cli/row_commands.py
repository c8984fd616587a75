"""Commands that commit to a table: append, overwrite, properties, comment."""

from typing import Annotated

import typer
from typer import Argument, Option

from headgate.cli.context import Globals
from headgate.cli.input_files import Rows, format_of, on_disk
from headgate.cli.options import FilesArgument, FormatOption, TableArgument, pairs
from headgate.cli.output import counted, iso_time, key_values


def append(
    here: Globals, name: TableArgument, files: FilesArgument, format: FormatOption = "auto"
) -> None:
    """Append rows from files to a table.

    All rows are added in one commit, or none.

    CSV needs a heading with the column names, JSON has one object per line. Columns may be in any
    order; missing ones become NULL. Values are parsed according to the types of the table.

    For example:
      headgate append sales.orders monday.csv tuesday.csv
      headgate append sales.orders rows.parquet
      cat rows.jsonl | headgate append sales.orders - --format json
    """
    _write(here, name, files, format, replacing=False)


def overwrite(
    here: Globals, name: TableArgument, files: FilesArgument, format: FormatOption = "auto"
) -> None:
    """Replace all rows of a table with rows from files.

    This is one commit: readers see the old rows or the new ones. Earlier versions keep the old
    rows. Files without rows leave an empty table. The files are read as by `append`.

    For example:
      headgate overwrite sales.prices prices.csv
      headgate show sales.prices --version 7
    """
    _write(here, name, files, format, replacing=True)


def properties(
    here: Globals,
    name: TableArgument,
    assigned: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="Set a property; may be repeated."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        Option("--unset", metavar="KEY", help="Remove a property; may be repeated."),
    ] = None,
) -> None:
    """Show or change the properties of a table.

    All changes of one call are one commit. Some properties activate features of the table; some
    belong to the catalog and cannot be changed.

    For example:
      headgate properties sales.orders
      headgate properties sales.orders --set delta.appendOnly=true --set team=sales
      headgate properties sales.orders --unset team
    """
    if assigned and unset:
        raise typer.BadParameter("--set and --unset need a commit each: run the command twice.")
    new = pairs(assigned)
    with here.session("Changing properties" if new or unset else "Reading") as session:
        table = session.table(name)
        committed = table.set_properties(new) if new else None
        if unset:
            committed = table.unset_properties(unset)
        current = dict(sorted(table.properties.items()))
    here.output.result(
        {"table": table.name, "version": table.version, "properties": current},
        key_values(list(current.items())) if current else "No properties.",
    )
    if committed is not None:
        here.output.note(f"{table.name} is at version {committed.version}.")


def comment(
    here: Globals,
    name: TableArgument,
    text: Annotated[str, Argument(metavar="TEXT", help="The comment; an empty text removes it.")],
) -> None:
    """Set or remove the comment of a table.

    For example:
      headgate comment sales.orders "what was sold, by day"
      headgate comment sales.orders ""
    """
    with here.session("Changing the comment") as session:
        table = session.table(name)
        committed = table.comment(text or None)
    here.output.result(
        {"table": table.name, "version": committed.version, "comment": text or None},
        f"{table.name} is at version {committed.version}: "
        + (f"its comment is {text!r}." if text else "its comment was removed."),
    )


def _write(here: Globals, name: str, files: list[str], format: str, *, replacing: bool) -> None:
    """Write the rows of files to a table and show the result."""
    doing = "Overwriting" if replacing else "Appending to"
    inputs = [(file, format_of(file, format)) for file in files]
    with (
        on_disk(inputs) as paths,
        here.output.progress(f"{doing} {name}", "bytes") as progress,
        here.open() as session,
    ):
        table = session.table(name)
        rows = Rows(paths, table.schema, progress)
        committed = None
        if replacing or not rows.is_empty:
            committed = rows.write(table.overwrite if replacing else table.append)
    if committed is None:
        here.output.result(
            {"table": table.name, "version": None, "rows": 0},
            "The files have no rows: nothing was committed.",
        )
        return
    commit = committed.commits[table.id]
    done = "written, all earlier ones replaced" if replacing else "appended"
    here.output.result(
        {
            "table": table.name,
            "version": commit.version,
            "rows": rows.count,
            "way": commit.way.value,
            "txnId": committed.txn_id,
            "sequence": committed.sequence,
            "timestamp": iso_time(committed.timestamp_ms),
        },
        f"{table.name} is at version {commit.version}: {counted(rows.count, 'row')} {done},"
        f" {commit.way.value}, txnId {committed.txn_id}.",
    )
