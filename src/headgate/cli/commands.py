"""The commands, one function each, in the order of `headgate --help`.

The docstring of a function is the help of its command; its examples are shown at the end. Libraries
that are slow to load are imported in the functions, so that `--help` does not load them.
"""

import inspect
from collections.abc import Callable
from typing import Annotated

import typer
from typer import Argument, Option

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
from headgate.cli.options import (
    DroppedArgument,
    IfNotExistsOption,
    NamespaceArgument,
    NewNameArgument,
    OptionalTableArgument,
    TableArgument,
    names,
    pairs,
)
from headgate.cli.output import counted
from headgate.cli.row_commands import append, comment, overwrite, properties
from headgate.cli.serve_command import serve
from headgate.cli.sql_command import sql
from headgate.errors import AlreadyExistsError, DamagedError, RefusedError
from headgate.names import SchemaName, TableName

_EXAMPLES = "\nFor example:\n"


# A lake


def init(
    here: Globals,
    address: Annotated[
        str | None,
        Argument(metavar="ADDRESS", help="Where to create it; default: --lake, or ./lake."),
    ] = None,
    root: Annotated[
        str | None,
        Option(metavar="URL", help="Where its tables are stored; default: beside the database."),
    ] = None,
    if_not_exists: IfNotExistsOption = False,
) -> None:
    """Create a lake.

    A lake cannot be moved afterwards: it stores the absolute location of every table.

    For example:
      headgate init
      headgate init /data/lake
      headgate init /data/lake --root s3://bucket/lake
    """
    from headgate import _connect  # slow to load
    from headgate.storage.locations import shown

    lake = here.lake if address is None else address
    try:
        root = _connect.init(lake, root)
    except AlreadyExistsError:
        if not if_not_exists:
            raise
        lake = shown(lake)
        here.output.result({"lake": lake, "created": False}, f"There is already a lake at {lake}.")
        return
    lake = shown(lake)
    is_filesystem = "catalog=filesystem" in lake
    done = "The first table will create a lake" if is_filesystem else "Created a lake"
    here.output.result(
        {"lake": lake, "root": root}, f"{done} at {lake}; its tables are stored under {root}."
    )
    if address is not None and address != "lake":
        here.output.note(f"Use it with --lake {lake}, or HEADGATE_LAKE={lake}.")


def create_namespace(
    here: Globals,
    name: NamespaceArgument,
    storage_root: Annotated[
        str | None,
        Option(metavar="URL", help="Where its tables are stored; default: the lake's root."),
    ] = None,
    if_not_exists: IfNotExistsOption = False,
) -> None:
    """Create a namespace for tables.

    For example:
      headgate create-namespace sales
    """
    with here.session("Creating a namespace") as session:
        session.create_namespace(name, storage_root=storage_root, if_not_exists=if_not_exists)
    full = str(SchemaName.parse(name))
    here.output.result({"namespace": full}, f"Created the namespace {full}.")


def drop_namespace(here: Globals, name: NamespaceArgument) -> None:
    """Drop an empty namespace.

    For example:
      headgate drop-namespace sales
    """
    here.call(lambda session: session.drop_namespace(name), "Dropping a namespace")
    full = str(SchemaName.parse(name))
    here.output.result({"namespace": full}, f"Dropped the namespace {full}.")


def rename_namespace(here: Globals, old: NamespaceArgument, new: NewNameArgument) -> None:
    """Rename a namespace within its catalog.

    Its tables keep their ids, data and history.

    For example:
      headgate create-namespace sales
      headgate rename-namespace sales sales_2026
    """
    here.call(lambda session: session.rename_namespace(old, new), "Renaming a namespace")
    before = SchemaName.parse(old)
    after = str(SchemaName.parse(new, catalog=before.catalog))
    here.output.result({"namespace": after}, f"Renamed the namespace {before} to {after}.")


def rename_catalog(
    here: Globals,
    old: Annotated[str, Argument(metavar="NAME", help="A catalog other than main.")],
    new: NewNameArgument,
) -> None:
    """Rename a catalog with all its namespaces and tables.

    For example:
      headgate create-namespace other.sales
      headgate rename-catalog other archive
    """
    here.call(lambda session: session.rename_catalog(old, new), "Renaming a catalog")
    here.output.result({"catalog": new}, f"Renamed the catalog {old} to {new}.")


# A table


def create(
    here: Globals,
    name: TableArgument,
    schema: Annotated[
        str, Argument(metavar="SCHEMA", help='Columns: "id long not null, day date".')
    ],
    partition_by: Annotated[
        str, Option(metavar="COLUMN,...", help="Columns to partition by.")
    ] = "",
    properties: Annotated[
        list[str] | None,
        Option("--property", metavar="KEY=VALUE", help="A table property; may be repeated."),
    ] = None,
    comment: Annotated[str | None, Option(metavar="TEXT", help="A comment on the table.")] = None,
    create_namespace: Annotated[
        bool, Option("--create-namespace", help="Create the namespace if it does not exist.")
    ] = False,
    if_not_exists: IfNotExistsOption = False,
) -> None:
    """Create a table.

    Types: string, long, integer, short, byte, double, float, decimal(10,2), boolean,
    date, timestamp, timestamp_ntz, binary, array<...>, map<..., ...>, struct<name: type, ...>.

    For example:
      headgate create orders "id long not null, item string"
      headgate create sales.orders "id long, day date" --partition-by day --create-namespace
      headgate create sales.orders "id long, day date" --if-not-exists
      headgate create events "id long, n int" --property delta.constraints.positive="n > 0"
    """
    with here.session("Creating a table") as session:
        if create_namespace:
            namespace = TableName.parse(name).namespace
            session.create_namespace(str(namespace), if_not_exists=True)
        is_new = True
        try:
            table = session.create_table(
                name, schema, names(partition_by), pairs(properties), comment
            )
        except AlreadyExistsError:
            existing = session.find(name) if if_not_exists else None
            if existing is None or not existing.catalog_managed:
                raise
            table, is_new = session.open(existing), False
    here.output.result(
        {"table": table.name, "tableId": table.id, "location": table.location, "created": is_new},
        f"Created {table.name}, id {table.id}."
        if is_new
        else f"{table.name} already exists, id {table.id}: nothing was changed.",
    )


def register_external(
    here: Globals,
    name: TableArgument,
    location: Annotated[str, Argument(metavar="URL", help="Its location.")],
    format: Annotated[
        str, Option(metavar="FORMAT", help="delta, parquet, iceberg, csv, ...")
    ] = "delta",
    schema: Annotated[
        str | None, Option(metavar="SCHEMA", help="Its columns, to be shown to clients.")
    ] = None,
) -> None:
    """Register a table that the catalog does not manage.

    Its files are not read or written. Dropping it removes the name; purging deletes no files.

    For example:
      headgate register-external sales.archive s3://bucket/archive
      headgate register-external sales.raw /data/raw --format csv --schema "id long, item string"
    """
    with here.session("Registering a table") as session:
        table = session.register_external(name, location, format, schema)
    here.output.result(
        {"table": table.name, "tableId": table.table_id, "location": table.location},
        f"Registered {table.name}, an external {table.format} table at {table.location}.",
    )


def show(
    here: Globals,
    name: OptionalTableArgument = None,
    limit: Annotated[int, Option(metavar="N", min=0, help="Show at most N rows.")] = 10,
    version: Annotated[
        int | None, Option(metavar="V", help="Show this version of the table.")
    ] = None,
    as_of: Annotated[
        str | None, Option(metavar="TIME", help="Show the version at a time: 2026-03-01T00:00:00Z.")
    ] = None,
    sequence: Annotated[
        int | None, Option(metavar="N", help="Show the version at a sequence of the catalog.")
    ] = None,
    columns: Annotated[
        str, Option(metavar="COLUMN,...", help="Show only these columns of the rows.")
    ] = "",
    dropped: Annotated[
        bool, Option("--dropped", "-d", help="Without TABLE: include dropped tables.")
    ] = False,
) -> None:
    """Show the tables of the lake, or one table.

    For one table the command shows its state, its columns and some rows, at the latest or an
    earlier version.

    For example:
      headgate show
      headgate show sales.orders --limit 3
      headgate show sales.orders --version 7
      headgate show sales.orders --as-of 2026-03-01T12:00:00Z --columns id,item
    """
    from headgate.client.arrow_io import to_arrow  # slow to load

    if name is None:
        if columns or any(option is not None for option in (version, as_of, sequence)):
            raise typer.BadParameter("--version, --as-of, --sequence and --columns need a TABLE.")
        with here.session("Reading") as session:
            entries, namespaces = session.tables(dropped=dropped), session.namespaces()
        views.show_lake(
            here.output,
            here.shown_lake,
            entries,
            [str(namespace) for namespace in namespaces],
            dropped=dropped,
        )
        return
    with here.session("Reading") as session:
        resolved = session.resolve(name)
        if not resolved.catalog_managed:
            views.show_external(here.output, resolved)
            return
        if sequence is None:
            snapshot = session.load(resolved, version, as_of)
        else:
            snapshot = session.snapshot(name, version, as_of, sequence)
        entries = session.tables(str(session.table_name(name).namespace))
        entry = next((e for e in entries if e.table_id == resolved.table_id), None)
        # One more row than requested shows whether there are more.
        rows = to_arrow(snapshot, names(columns) or None, limit=limit + 1)
    views.show_table(here.output, resolved.name or name, snapshot, entry, rows, limit)


def log(
    here: Globals,
    name: TableArgument,
    limit: Annotated[int, Option(metavar="N", min=1, help="Show only the newest N commits.")] = 20,
) -> None:
    """Show the commits of a table, newest first.

    For each commit: how it was made, and when it was proposed, ratified and published. The latter
    two are shown as the time since the proposal.

    For example:
      headgate log sales.orders
      headgate log sales.orders --limit 1000 --json
    """
    with here.session("Reading") as session:
        table = session.table(name)
        entries = table.log(max(0, table.version - limit + 1))[::-1][:limit]
        history = {entry.version: entry for entry in table.history(limit)}
    views.show_log(here.output, table.name, entries, history)
    if entries and entries[-1].commit.version > 0:
        here.output.note(f"There are older commits: use --limit {table.version + 1}.")


def publish(
    here: Globals,
    name: TableArgument,
    up_to: Annotated[int | None, Option(metavar="V", help="The last version to publish.")] = None,
) -> None:
    """Publish ratified commits: copy them to the table's log.

    The catalog publishes by itself; use this command when you cannot wait.

    For example:
      headgate publish sales.orders
      headgate publish sales.orders --up-to 9
    """
    with here.output.progress("Publishing", "commits") as progress, here.open() as session:
        table = session.table(name)
        last = table.publish(up_to, progress)
    here.output.result(
        {"table": table.name, "published": last}, f"{table.name} is published up to version {last}."
    )


def checkpoint(
    here: Globals,
    name: TableArgument,
    version: Annotated[
        int | None, Option(metavar="V", help="A published version; default: the latest.")
    ] = None,
    v2: Annotated[
        bool, Option("--v2", help="Write sidecars; the table must support v2Checkpoint.")
    ] = False,
) -> None:
    """Write a checkpoint of a published version.

    Readers then start from it instead of version 0.

    For example:
      headgate checkpoint sales.orders
      headgate checkpoint sales.orders --version 9 --v2
    """
    with here.session("Writing a checkpoint") as session:
        table = session.table(name)
        written = table.checkpoint(version, "v2" if v2 else None)
    here.output.result(
        {"table": table.name, "version": written},
        f"Wrote a checkpoint of {table.name} at version {written}.",
    )


def rename(here: Globals, old: TableArgument, new: NewNameArgument) -> None:
    """Rename a table.

    Its id, data and history stay the same. Programs that have it open are not affected.

    For example:
      headgate rename sales.orders sales.orders_2026
    """
    here.call(lambda session: session.rename(old, new), "Renaming")
    full = str(TableName.parse(new))
    here.output.result({"table": full}, f"Renamed {TableName.parse(old)} to {full}.")


def drop(here: Globals, name: TableArgument) -> None:
    """Drop a table: remove its name and keep its files.

    It can be restored with `headgate undrop` until it is purged.

    For example:
      headgate drop sales.orders
    """
    table_id = here.call(lambda session: session.drop(name), "Dropping")
    full = str(TableName.parse(name))
    here.output.result({"table": full, "tableId": table_id}, f"Dropped {full}, id {table_id}.")
    here.output.note("Its files are kept: see `headgate undrop` and `headgate purge`.")


def undrop(
    here: Globals,
    name: DroppedArgument,
    to: Annotated[
        str | None, Option("--as", metavar="NAME", help="Its new name; default: the former one.")
    ] = None,
) -> None:
    """Restore a dropped table.

    If several tables had the name, the one dropped last is restored; use the id for another one.

    For example:
      headgate undrop sales.orders
      headgate undrop sales.orders --as sales.orders_again
    """
    table = here.call(lambda session: session.undrop(name, to), "Restoring")
    here.output.result(
        {"table": table.name, "tableId": table.id, "version": table.version},
        f"Restored {table.name} at version {table.version}, id {table.id}.",
    )


def purge(
    here: Globals,
    name: DroppedArgument,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete the files of a dropped table permanently.

    For example:
      headgate purge sales.orders
      headgate purge 6f0d5a4e-5d43-4c55-9d0f-1f7a3a9f2a11 --yes
    """
    if not yes and not here.output.confirm(f"Delete all files of the dropped table {name}?"):
        raise RefusedError("Nothing was purged.", remedy="Pass --yes to skip the question.")
    with here.output.progress("Purging", "files") as progress, here.open() as session:
        deleted = session.purge(name, progress)
    here.output.result(
        {"table": name, "files": deleted}, f"Purged {name}: {counted(deleted, 'file')} deleted."
    )


def fsck(
    here: Globals,
    name: OptionalTableArgument = None,
    repair: Annotated[
        bool, Option("--repair", help="Carry out the repairs that are possible.")
    ] = False,
) -> None:
    """Compare the catalog with the logs of its tables.

    Each finding has a remedy. Without --repair nothing is changed. The exit code is 1 if an error
    or a warning is left. Repairs delete no file of a log: a file in the place of a ratified commit,
    or a damaged checkpoint that no version needs, is renamed to _set_aside-… in the same folder.

    For example:
      headgate fsck
      headgate fsck sales.orders --repair
    """
    try:
        with here.output.progress("Checking", "tables") as progress, here.open() as session:
            findings = session.fsck(name, repair=repair, progress=progress)
    except DamagedError as error:  # the catalog's database cannot even be opened
        from headgate.catalog.integrity_watch import damage_finding  # slow to load

        findings = (damage_finding(error),)
    if views.show_findings(here.output, findings):
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
    """Return the name of a command."""
    return command.__name__.replace("_", "-")


def help_of(command: Callable[..., None]) -> str:
    """Return the help of a command without its examples."""
    return (inspect.getdoc(command) or "").partition(_EXAMPLES)[0].strip()


def examples_of(command: Callable[..., None]) -> str:
    """Return the examples of a command, with their line breaks."""
    return "\b" + _EXAMPLES + (inspect.getdoc(command) or "").partition(_EXAMPLES)[2]
