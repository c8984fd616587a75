"""One function per command, a few lines over `Session` and `Table`.

What a command's docstring says before its examples is its help; the examples are the end of it.
Libraries that are slow to load come in only where rows are moved: `--help` does without them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from headgate.cli import views
from headgate.cli.context import Globals
from headgate.cli.operator_commands import (
    backup,
    events,
    listener,
    location,
    restore,
    status,
    token,
)
from headgate.cli.options import DroppedArgument, TableArgument, names, pairs
from headgate.cli.render import many
from headgate.cli.row_commands import append, comment, overwrite, properties
from headgate.cli.serve_command import serve
from headgate.cli.sql_command import sql
from headgate.errors import AlreadyExistsError, DamagedError, RefusedError
from headgate.names import SchemaName, TableName

_EXAMPLES = "\nFor example:\n"


# A lake


def init(
    ctx: typer.Context,
    address: Annotated[
        str | None, typer.Argument(metavar="ADDRESS", help="Where; else --lake, else ./lake.")
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where the tables will lie; else beside the database."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a lake that exists as it is.")
    ] = False,
) -> None:
    """Make a lake.

    A lake cannot be moved afterwards: it keeps the full place of every table.

    For example:
      headgate init
      headgate init /data/lake
      headgate init /data/lake --root s3://bucket/lake
    """
    from headgate import _connect  # slow to load
    from headgate.storage.locations import shown

    here: Globals = ctx.obj
    lake = here.lake if address is None else address
    try:
        made = _connect.init(lake, root)
    except AlreadyExistsError:
        if not if_not_exists:
            raise
        lake = shown(lake)
        here.output.result({"lake": lake, "created": False}, f"{lake} is a lake already.")
        return
    lake = shown(lake)
    verb = "A lake is made by its first table" if "catalog=filesystem" in lake else "Made a lake"
    here.output.result(
        {"lake": lake, "root": made}, f"{verb} at {lake}; its tables will lie under {made}."
    )
    if address is not None and address != "lake":
        here.output.say(f"Use it with --lake {lake}, or HEADGATE_LAKE={lake}.")


def create_namespace(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="schema or catalog.schema.")],
    storage_root: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Store its tables there, not under the lake's root."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a namespace that exists as it is.")
    ] = False,
) -> None:
    """Make a namespace for tables.

    For example:
      headgate create-namespace sales
    """
    here: Globals = ctx.obj
    with here.session("Making a namespace") as session:
        session.create_namespace(name, storage_root=storage_root, if_not_exists=if_not_exists)
    full = str(SchemaName.parse(name))
    here.output.result({"namespace": full}, f"Made the namespace {full}.")


def drop_namespace(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="schema or catalog.schema.")],
) -> None:
    """Remove a namespace that has no tables.

    For example:
      headgate drop-namespace sales
    """
    here: Globals = ctx.obj
    with here.session("Removing a namespace") as session:
        session.drop_namespace(name)
    full = str(SchemaName.parse(name))
    here.output.result({"namespace": full}, f"Removed the namespace {full}.")


def rename_namespace(
    ctx: typer.Context,
    old: Annotated[str, typer.Argument(metavar="NAME", help="schema or catalog.schema.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
) -> None:
    """Rename a namespace within its catalog.

    Its tables keep their ids, data and history.

    For example:
      headgate create-namespace sales
      headgate rename-namespace sales sales_2026
    """
    here: Globals = ctx.obj
    with here.session("Renaming a namespace") as session:
        session.rename_namespace(old, new)
    before = SchemaName.parse(old)
    after = str(SchemaName.parse(new, catalog=before.catalog))
    here.output.result({"namespace": after}, f"Renamed the namespace {before} to {after}.")


def rename_catalog(
    ctx: typer.Context,
    old: Annotated[str, typer.Argument(metavar="NAME", help="A catalog other than main.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
) -> None:
    """Rename a catalog with all its namespaces and tables.

    For example:
      headgate create-namespace other.sales
      headgate rename-catalog other archive
    """
    here: Globals = ctx.obj
    with here.session("Renaming a catalog") as session:
        session.rename_catalog(old, new)
    here.output.result({"catalog": new}, f"Renamed the catalog {old} to {new}.")


# A table


def create(
    ctx: typer.Context,
    name: TableArgument,
    schema: Annotated[
        str, typer.Argument(metavar="SCHEMA", help='Columns: "id long not null, day date".')
    ],
    partition_by: Annotated[
        str, typer.Option(metavar="COLUMN,...", help="Columns that part the files.")
    ] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A table property; may come again."),
    ] = None,
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for.")] = None,
    create_namespace: Annotated[
        bool, typer.Option("--create-namespace", help="Make the namespace if it is not there.")
    ] = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a table that is there as it is.")
    ] = False,
) -> None:
    """Make a table.

    Types are Delta's: string, long, integer, short, byte, double, float, decimal(10,2), boolean,
    date, timestamp, timestamp_ntz, binary, array<...>, map<..., ...>, struct<name: type, ...>.

    For example:
      headgate create orders "id long not null, item string"
      headgate create sales.orders "id long, day date" --partition-by day --create-namespace
      headgate create sales.orders "id long, day date" --if-not-exists
      headgate create events "id long, n int" --property delta.constraints.positive="n > 0"
    """
    here: Globals = ctx.obj
    settled = pairs(properties)
    with here.session("Making a table") as session:
        if create_namespace:
            namespace = TableName.parse(name).namespace
            if namespace.key not in {known.key for known in session.namespaces()}:
                session.create_namespace(str(namespace))
        is_new = True
        try:
            made = session.create_table(name, schema, names(partition_by), settled, comment)
        except AlreadyExistsError:
            if not if_not_exists or session.find_name(name) is None:
                raise
            made, is_new = session.table(name), False
    here.output.result(
        {"table": made.name, "tableId": made.id, "location": made.location, "created": is_new},
        f"Made {made.name}, id {made.id}."
        if is_new
        else f"{made.name} is there already, id {made.id}: nothing was done.",
    )


def register_external(
    ctx: typer.Context,
    name: TableArgument,
    location: Annotated[str, typer.Argument(metavar="URL", help="Where it lies.")],
    format: Annotated[
        str, typer.Option(metavar="FORMAT", help="delta, parquet, iceberg, csv, ...")
    ] = "delta",
    schema: Annotated[
        str | None, typer.Option(metavar="SCHEMA", help="Its columns, if they are to be told.")
    ] = None,
) -> None:
    """Name a table that lies somewhere and is not managed.

    Nothing of it is read or written; dropping takes the name away, purging touches no file.

    For example:
      headgate register-external sales.archive s3://bucket/archive
      headgate register-external sales.raw /data/raw --format csv --schema "id long, item string"
    """
    here: Globals = ctx.obj
    with here.session("Naming a table") as session:
        made = session.register_external(name, location, format, schema)
    here.output.result(
        {"table": made.name, "tableId": made.table_id, "location": made.location},
        f"Named {made.name}, an external {made.format} table at {made.location}.",
    )


def show(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="A table; without one: all of them.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Show at most N rows.")] = 10,
    version: Annotated[
        int | None, typer.Option(metavar="V", help="The table as it was at a version.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME", help="As it was then: 2026-03-01T00:00:00Z.")
    ] = None,
    sequence: Annotated[
        int | None, typer.Option(metavar="N", help="As it was at a sequence of the catalog.")
    ] = None,
    columns: Annotated[
        str, typer.Option(metavar="COLUMN,...", help="Show only these columns of the rows.")
    ] = "",
    dropped: Annotated[
        bool, typer.Option("--dropped", "-d", help="Without a table: the dropped ones too.")
    ] = False,
) -> None:
    """Show the tables of the lake, or one table.

    Of one table: where it stands, its columns and some rows, as they are or as they were.

    For example:
      headgate show
      headgate show sales.orders --limit 3
      headgate show sales.orders --version 7
      headgate show sales.orders --as-of 2026-03-01T12:00:00Z --columns id,item
    """
    from headgate.client.arrow_io import to_arrow  # slow to load

    here: Globals = ctx.obj
    if name is None:
        if columns or any(asked is not None for asked in (version, as_of, sequence)):
            raise typer.BadParameter("--version, --as-of, --sequence and --columns need a TABLE.")
        with here.session("Reading") as session:
            entries, namespaces = session.tables(dropped=dropped), session.namespaces()
        views.show_lake(
            here.output,
            here.shown_lake,
            entries,
            [str(known) for known in namespaces],
            dropped=dropped,
        )
        return
    with here.session("Reading") as session:
        resolved = session.resolve(name)
        if not resolved.catalog_managed:
            views.show_external(here.output, resolved)
            return
        found = session.table(name)
        snapshot = found.snapshot(version, as_of, sequence)
        entry = next((e for e in session.tables() if e.table_id == found.id), None)
        # One row more than asked for tells whether there are more.
        rows = to_arrow(snapshot, names(columns) or None, limit=limit + 1)
    views.show_table(here.output, found.name, snapshot, entry, rows, limit)


def log(
    ctx: typer.Context,
    name: TableArgument,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="The newest N commits only.")] = 20,
) -> None:
    """Show a table's commits, newest first.

    How each one came, and when it was proposed, ratified and published; the latter two as the time
    that had passed since the proposal.

    For example:
      headgate log sales.orders
      headgate log sales.orders --limit 1000 --json
    """
    here: Globals = ctx.obj
    with here.session("Reading") as session:
        found = session.table(name)
        entries = found.log(max(0, found.version - limit + 1))[::-1][:limit]
        told = {entry.version: entry for entry in found.history(limit)}
    views.show_log(here.output, found.name, entries, told)
    if entries and entries[-1].commit.version > 0:
        here.output.say(f"Older ones: --limit {found.version + 1}.")


def publish(
    ctx: typer.Context,
    name: TableArgument,
    up_to: Annotated[
        int | None, typer.Option(metavar="V", help="The last version to publish.")
    ] = None,
) -> None:
    """Copy ratified commits into the table's log.

    In order, byte for byte. The catalog does so by itself; this is for when one cannot wait.

    For example:
      headgate publish sales.orders
      headgate publish sales.orders --up-to 9
    """
    here: Globals = ctx.obj
    with here.output.progress("Publishing", "commits") as progress, here.opened() as session:
        found = session.table(name)
        last = found.publish(up_to, progress)
    here.output.result(
        {"table": found.name, "published": last},
        f"{found.name} is published up to version {last}.",
    )


def checkpoint(
    ctx: typer.Context,
    name: TableArgument,
    version: Annotated[
        int | None, typer.Option(metavar="V", help="A published version; else the latest.")
    ] = None,
    v2: Annotated[
        bool, typer.Option("--v2", help="With sidecars; the table must support v2Checkpoint.")
    ] = False,
) -> None:
    """Write a checkpoint of a published version.

    Readers begin there instead of at version 0.

    For example:
      headgate checkpoint sales.orders
      headgate checkpoint sales.orders --version 9 --v2
    """
    here: Globals = ctx.obj
    with here.session("Writing a checkpoint") as session:
        found = session.table(name)
        written = found.checkpoint(version, "v2" if v2 else None)
    here.output.result(
        {"table": found.name, "version": written},
        f"Wrote a checkpoint of {found.name} at version {written}.",
    )


def rename(
    ctx: typer.Context,
    old: TableArgument,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
) -> None:
    """Give a table another name.

    Its id, data and history stay; whoever has it open goes on.

    For example:
      headgate rename sales.orders sales.orders_2026
    """
    here: Globals = ctx.obj
    with here.session("Renaming") as session:
        session.rename(old, new)
    full = str(TableName.parse(new))
    here.output.result({"table": full}, f"{TableName.parse(old)} is now {full}.")


def drop(ctx: typer.Context, name: TableArgument) -> None:
    """Take a table's name away.

    Its data and log stay until it is purged, so it can be undropped.

    For example:
      headgate drop sales.orders
    """
    here: Globals = ctx.obj
    with here.session("Dropping") as session:
        table_id = session.drop(name)
    full = str(TableName.parse(name))
    here.output.result({"table": full, "tableId": table_id}, f"Dropped {full}, id {table_id}.")
    here.output.say("Its files are still there: see `headgate undrop` and `headgate purge`.")


def undrop(
    ctx: typer.Context,
    name: DroppedArgument,
    to: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The name to have; else the old one.")
    ] = None,
) -> None:
    """Bring a dropped table back.

    Of several that had the name, the one dropped last; name another by its id.

    For example:
      headgate undrop sales.orders
      headgate undrop sales.orders --as sales.orders_again
    """
    here: Globals = ctx.obj
    with here.session("Bringing it back") as session:
        back = session.undrop(name, to)
    here.output.result(
        {"table": back.name, "tableId": back.id, "version": back.version},
        f"{back.name} is back at version {back.version}, id {back.id}.",
    )


def purge(
    ctx: typer.Context,
    name: DroppedArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete the files of a dropped table for good.

    For example:
      headgate purge sales.orders
      headgate purge 6f0d5a4e-5d43-4c55-9d0f-1f7a3a9f2a11 --yes
    """
    here: Globals = ctx.obj
    if not yes and not here.output.confirm(f"Delete all files of the dropped table {name}?"):
        raise RefusedError("Nothing was purged.", remedy="Say --yes to be asked nothing.")
    with here.output.progress("Purging", "files") as progress, here.opened() as session:
        gone = session.purge(name, progress)
    here.output.result(
        {"table": name, "files": gone}, f"Purged {name}: {many(gone, 'file')} deleted."
    )


def fsck(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="A table; without one: all of them.")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired.")] = False,
) -> None:
    """Check the catalog against the tables' logs.

    Changes nothing without --repair. Each finding comes with its remedy. Exit code 1 if anything
    is wrong and was not repaired; notes do not count. A repair deletes no file of a log: what takes
    the place of a ratified commit is renamed to _set_aside-… in the same folder, and so is a
    damaged checkpoint that no version needs.

    For example:
      headgate fsck
      headgate fsck sales.orders --repair
    """
    here: Globals = ctx.obj
    try:
        with here.output.progress("Checking", "tables") as progress, here.opened() as session:
            found = session.fsck(name, repair=repair, progress=progress)
    except DamagedError as error:  # the catalog's database cannot even be opened
        from headgate.catalog.integrity_watch import damage_finding  # slow to load

        found = (damage_finding(error),)
    if views.show_findings(here.output, found):
        raise typer.Exit(1)


COMMANDS: tuple[Callable[..., None], ...] = (
    init,
    serve,
    create_namespace,
    drop_namespace,
    rename_namespace,
    rename_catalog,
    create,
    register_external,
    append,
    overwrite,
    properties,
    comment,
    show,
    log,
    sql,
    publish,
    checkpoint,
    rename,
    drop,
    undrop,
    purge,
    fsck,
    events,
    status,
    backup,
    restore,
    token,
    listener,
    location,
)


def name_of(command: Callable[..., None]) -> str:
    """Give the word by which a command is called."""
    return command.__name__.replace("_", "-")


def help_of(command: Callable[..., None]) -> str:
    """Give what a command says of itself, without its examples."""
    return (inspect.getdoc(command) or "").partition(_EXAMPLES)[0].strip()


def examples_of(command: Callable[..., None]) -> str:
    """Give a command's examples, laid out as they are written."""
    return "\b" + _EXAMPLES + (inspect.getdoc(command) or "").partition(_EXAMPLES)[2]
