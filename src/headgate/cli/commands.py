"""One function per command, a few lines over `Session` and `Table`.

What a command's docstring says before its examples is its help; the examples are the end of it.
Libraries that are slow to load come in only where rows are moved: `--help` does without them.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import headgate
from headgate.cli.render import Output, facts, later, many, moment, size, table
from headgate.errors import InvalidArgumentError, InvalidDataError, NotFoundError
from headgate.names import SchemaName, TableName

if TYPE_CHECKING:
    from headgate.client.session import Session
    from headgate.client.table import HistoryEntry, Table
    from headgate.client.transaction import Committed
    from headgate.log.snapshots import Snapshot
    from headgate.protocol.catalog_port import Finding, TableEntry, TimelineEntry

_FORMATS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}

_EXAMPLES = "\nFor example:\n"

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="table, schema.table or catalog.schema.table.")
]
DroppedArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="The name it had, or its id: `headgate show -d`.")
]


@dataclass(frozen=True, slots=True)
class Globals:
    """What the global options say."""

    lake: str
    output: Output

    def opened(self) -> Session:
        """Open the lake; only `init` makes one, so that a slip of the pen does not."""
        from headgate.connecting import DATABASE  # slow to load, and needed only from here on

        if _is_missing(self.lake, DATABASE):
            raise NotFoundError(
                f"There is no lake at {self.lake}.",
                remedy=f"Make one with `headgate init {self.lake}`, or name yours with --lake.",
            )
        return headgate.connect(self.lake)

    @contextmanager
    def session(self, doing: str) -> Iterator[Session]:
        """Open the lake for what one command does; what it found is told after."""
        with self.output.progress(doing), self.opened() as session:
            yield session


def _is_missing(address: str, database: str) -> bool:
    """Say whether connecting would make a lake here; what else is wrong `connect` will tell."""
    if address.startswith("sqlite:///"):
        return not Path(address.removeprefix("sqlite://")).exists()
    if not address or "://" in address:
        return False
    folder = Path(address)
    is_usable = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    return is_usable and not (folder / database).exists()


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
) -> None:
    """Make a lake.

    A lake cannot be moved afterwards: it keeps the full place of every table.

    For example:
      headgate init
      headgate init /data/lake
      headgate init /data/lake --root s3://bucket/lake
    """
    from headgate import connecting  # slow to load

    here: Globals = ctx.obj
    lake = here.lake if address is None else address
    made = connecting.init(lake, root)
    verb = "A lake is made by its first table" if "catalog=filesystem" in lake else "Made a lake"
    here.output.result(
        {"lake": lake, "root": made}, f"{verb} at {lake}; its tables will lie under {made}."
    )
    if address is not None and address != "lake":
        here.output.say(f"Use it with --lake {lake}, or HEADGATE_LAKE={lake}.")


def create_namespace(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="schema or catalog.schema.")],
) -> None:
    """Make a namespace for tables.

    For example:
      headgate create-namespace sales
    """
    here: Globals = ctx.obj
    with here.session("Making a namespace") as session:
        session.create_namespace(name)
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
) -> None:
    """Make a table.

    Types are Delta's: string, long, integer, short, byte, double, float, decimal(10,2), boolean,
    date, timestamp, timestamp_ntz, binary, array<...>, map<..., ...>, struct<name: type, ...>.

    For example:
      headgate create orders "id long not null, item string"
      headgate create sales.orders "id long, day date" --partition-by day --create-namespace
      headgate create events "id long, n int" --property delta.constraints.positive="n > 0"
    """
    here: Globals = ctx.obj
    settled = dict(_pair(text) for text in properties or ())
    with here.session("Making a table") as session:
        if create_namespace:
            namespace = TableName.parse(name).namespace
            if namespace.key not in {known.key for known in session.namespaces()}:
                session.create_namespace(str(namespace))
        made = session.create_table(name, schema, _split(partition_by), settled, comment)
    here.output.result(
        {"table": made.name, "tableId": made.id, "location": made.location},
        f"Made {made.name}, id {made.id}.",
    )


def append(
    ctx: typer.Context,
    name: TableArgument,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files; - is standard input.")],
    format: Annotated[
        str, typer.Option(metavar="FORMAT", help="csv, json, parquet; auto: by the file's ending.")
    ] = "auto",
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
    from headgate.client.arrow import read_input  # slow to load

    here: Globals = ctx.obj
    inputs = [(file, _format(file, format)) for file in files]
    with (
        _on_disk(inputs) as paths,
        here.output.progress(f"Appending to {name}", "rows") as advance,
        here.opened() as session,
    ):
        target = session.table(name)
        readers = [read_input(path, kind, target.schema) for path, kind in paths]
        rows = _Rows([path for path, _ in paths], readers, advance)
        committed = rows.append_to(target)
    if committed is None:
        here.output.result(
            {"table": target.name, "version": None, "rows": 0},
            "There are no rows: nothing was committed.",
        )
        return
    commit = committed.commits[target.id]
    here.output.result(
        {
            "table": target.name,
            "version": commit.version,
            "rows": rows.count,
            "way": commit.way.value,
            "txnId": committed.txn_id,
            "sequence": committed.sequence,
            "timestamp": moment(committed.timestamp_ms),
        },
        f"{target.name} is at version {commit.version}: {many(rows.count, 'row')} appended,"
        f" {commit.way.value}, txnId {committed.txn_id}.",
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
    from headgate.client.arrow import to_arrow  # slow to load

    here: Globals = ctx.obj
    if name is None:
        if columns or any(asked is not None for asked in (version, as_of, sequence)):
            raise typer.BadParameter("--version, --as-of, --sequence and --columns need a TABLE.")
        with here.session("Reading") as session:
            entries, namespaces = session.tables(dropped=dropped), session.namespaces()
        _show_lake(here, entries, [str(known) for known in namespaces], dropped=dropped)
        return
    with here.session("Reading") as session:
        found = session.table(name)
        snapshot = found.snapshot(version, as_of, sequence)
        entry = next((e for e in session.tables() if e.table_id == found.id), None)
        # One row more than asked for tells whether there are more.
        rows = to_arrow(snapshot, _split(columns) or None, limit=limit + 1)
    _show_table(here.output, found.name, snapshot, entry, rows, limit)


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
    here.output.result(
        {"table": found.name, "commits": [_commit(e, told.get(e.commit.version)) for e in entries]},
        table(
            ("version", "way", "state", "proposed", "ratified", "published", "txnId", "what"),
            [
                (
                    entry.commit.version,
                    entry.commit.way.value,
                    entry.commit.state.value,
                    moment(entry.proposed_ms),
                    later(entry.ratified_ms, entry.proposed_ms),
                    later(entry.commit.published_ms, entry.proposed_ms),
                    entry.commit.txn_id,
                    _what(told.get(entry.commit.version)),
                )
                for entry in entries
            ],
            short=["txnId"],
        ),
    )
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
    with here.session("Publishing") as session:
        found = session.table(name)
        last = found.publish(up_to)
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
        here.output.say("Nothing was purged. Say --yes to be asked nothing.")
        raise typer.Exit(1)
    with here.session("Purging") as session:
        gone = session.purge(name)
    here.output.result(
        {"table": name, "files": gone}, f"Purged {name}: {many(gone, 'file')} deleted."
    )


def fsck(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="A table; without one: all of them.")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended.")] = False,
) -> None:
    """Hold the catalog against the tables' logs.

    Changes nothing without --repair. Each finding comes with its remedy. Exit code 1 if an error
    is left.

    For example:
      headgate fsck
      headgate fsck sales.orders --repair
    """
    here: Globals = ctx.obj
    with here.session("Checking") as session:
        found = session.fsck(name, repair=repair)
    errors = [one for one in found if one.severity.value == "error" and not one.repaired]
    here.output.result(
        {
            "findings": [
                {
                    "rule": one.rule,
                    "severity": one.severity.value,
                    "table": one.table,
                    "version": one.version,
                    "path": one.path,
                    "says": one.says,
                    "remedy": one.remedy,
                    "repaired": one.repaired,
                }
                for one in found
            ],
            "errors": len(errors),
        },
        "\n".join(map(_finding, found)) or "Catalog and logs agree.",
    )
    if errors:
        raise typer.Exit(1)


COMMANDS: tuple[Callable[..., None], ...] = (
    init,
    create_namespace,
    drop_namespace,
    create,
    append,
    show,
    log,
    publish,
    checkpoint,
    rename,
    drop,
    undrop,
    purge,
    fsck,
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


# What `show` shows


def _show_lake(
    here: Globals, tables: Sequence[TableEntry], namespaces: Sequence[str], *, dropped: bool
) -> None:
    entries = sorted(tables, key=lambda entry: (entry.name or "", entry.created_ms))
    columns = ["table", "latest", "published", "made"]
    if dropped:
        columns += ["state", "dropped", "id"]
    rows = [
        [
            entry.name,
            entry.latest,
            entry.published,
            moment(entry.created_ms),
            entry.state.value,
            moment(entry.dropped_ms) or "-",
            entry.table_id,
        ][: len(columns)]
        for entry in entries
    ]
    here.output.result(
        {
            "lake": here.lake,
            "namespaces": namespaces,
            "tables": [
                {
                    "table": entry.name,
                    "tableId": entry.table_id,
                    "state": entry.state.value,
                    "location": entry.location,
                    "latest": entry.latest,
                    "published": entry.published,
                    "created": moment(entry.created_ms),
                    "dropped": moment(entry.dropped_ms),
                }
                for entry in entries
            ],
        },
        table(columns, rows, empty="No tables.", short=()),
    )
    here.output.say(f"Namespaces: {', '.join(namespaces)}.")


def _show_table(
    output: Output,
    name: str,
    snapshot: Snapshot,
    entry: TableEntry | None,
    rows: Any,
    limit: int,
) -> None:
    names, values = rows.column_names, list(zip(*map(_values, rows.columns), strict=True))
    published = None if entry is None else entry.published
    known: list[tuple[str, object]] = [
        ("table", name),
        ("id", snapshot.table_id),
        ("location", snapshot.location),
        ("version", f"{snapshot.version}, of {moment(snapshot.timestamp_ms)}"),
        ("latest", "-" if entry is None else entry.latest),
        ("published", "nothing" if published is None else f"up to {published}"),
        ("files", f"{snapshot.num_files:,}, {size(snapshot.size_in_bytes)}"),
    ]
    if snapshot.metadata.description is not None:
        known.append(("comment", snapshot.metadata.description))
    if snapshot.partition_columns:
        known.append(("partitioned by", ", ".join(snapshot.partition_columns)))
    known += [("property", f"{key}={value}") for key, value in sorted(snapshot.properties.items())]
    described = [
        {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "comment": field.metadata.get("comment"),
        }
        for field in snapshot.schema.fields
    ]
    text = [
        facts(known),
        table(
            ("column", "type", "null"),
            [(c["name"], c["type"], "" if c["nullable"] else "not null") for c in described],
        ),
    ]
    if limit:
        text.append(table(names, values[:limit], empty="No rows."))
    output.result(
        {
            "table": name,
            "tableId": snapshot.table_id,
            "location": snapshot.location,
            "version": snapshot.version,
            "timestamp": moment(snapshot.timestamp_ms),
            "latest": None if entry is None else entry.latest,
            "published": published,
            "files": snapshot.num_files,
            "bytes": snapshot.size_in_bytes,
            "comment": snapshot.metadata.description,
            "partitionBy": list(snapshot.partition_columns),
            "properties": dict(snapshot.properties),
            "columns": described,
            "rows": [dict(zip(names, row, strict=True)) for row in values[:limit]],
        },
        "\n\n".join(text),
    )
    if limit and len(values) > limit:
        output.say(f"There are more rows: --limit {limit * 10}.")


def _values(column: Any) -> list[object]:
    try:
        return list(column.to_pylist(maps_as_pydicts="strict"))
    except (ValueError, OverflowError, KeyError):  # times Python has no years for, for one
        return list(column.cast("string").to_pylist())


def _commit(entry: TimelineEntry, told: HistoryEntry | None) -> dict[str, object]:
    commit = entry.commit
    return {
        "version": commit.version,
        "way": commit.way.value,
        "state": commit.state.value,
        "txnId": commit.txn_id,
        "sequence": commit.sequence,
        "timestamp": moment(commit.timestamp_ms),
        "proposed": moment(entry.proposed_ms),
        "ratified": moment(entry.ratified_ms),
        "published": moment(commit.published_ms),
        "bytes": commit.size,
        "sha256": commit.sha256,
        "operation": told and told.operation,
        "parameters": told and dict(told.parameters),
        "metrics": told and dict(told.metrics),
    }


def _finding(found: Finding) -> str:
    where = "" if found.version is None else f" version {found.version}"
    path = "" if found.path is None else f" ({found.path})"
    said = f"{found.severity.value}: {found.table}{where}{path} {found.says.rstrip('.')}."
    remedy = "Repaired." if found.repaired else found.remedy
    return f"{said} [{found.rule}]\n  {remedy}".rstrip()


def _what(told: HistoryEntry | None) -> str:
    """Sum up what a commit says it did."""
    if told is None:
        return "-"
    words = [told.operation or "-"]
    if mode := told.parameters.get("mode"):
        words.append(str(mode))
    for metric, thing in (("numOutputRows", "row"), ("numRemovedFiles", "file removed")):
        count = told.metrics.get(metric)
        if isinstance(count, str) and count.isdigit() and count != "0":
            words.append(f"{int(count):,} {thing}" if count == "1" else _plural(count, thing))
    return f"{words[0]} {', '.join(words[1:])}".rstrip()


def _plural(count: str, thing: str) -> str:
    first, _, rest = thing.partition(" ")
    return f"{int(count):,} {first}s {rest}".rstrip()


# What `append` reads


class _Rows:
    """The rows of several files, one after the other, and how far along they are."""

    def __init__(
        self, files: Sequence[str], readers: Sequence[Any], advance: Callable[[int], None]
    ) -> None:
        self._files = files
        self._readers = readers
        self._advance = advance
        self._where = ""
        self.count = 0

    def append_to(self, target: Table) -> Committed | None:
        """Append all rows in one commit; without any, none is made."""
        batches = self._batches()
        first = next(batches, None)
        if first is None:
            return None
        kind = type(self._readers[0])
        try:
            return target.append(kind.from_batches(first.schema, chain([first], batches)))
        except InvalidDataError as error:
            if error.message.startswith(tuple(self._files)):
                raise
            # A rule of the table was broken, not one of the format: say by which rows.
            message = f"{self._where}: {error.message}"
            raise InvalidDataError(message, remedy=error.remedy) from error

    def _batches(self) -> Iterator[Any]:
        for file, reader in zip(self._files, self._readers, strict=True):
            before = 0
            for batch in reader:
                if batch.num_rows:
                    self._where = f"{file}, rows {before + 1:,} to {before + batch.num_rows:,}"
                    before += batch.num_rows
                    self.count += batch.num_rows
                    self._advance(batch.num_rows)
                    yield batch


def _format(file: str, asked: str) -> str:
    if asked != "auto":
        return asked
    if file == "-":
        raise typer.BadParameter("standard input has no ending to go by: say --format csv or json.")
    found = _FORMATS.get(Path(file).suffix.lower())
    if found is None:
        raise typer.BadParameter(f"the ending of {file} tells no format: say --format.")
    return found


@contextmanager
def _on_disk(inputs: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Put standard input into a file: it is read twice, and once is all a pipe gives."""
    if all(file != "-" for file, _ in inputs):
        yield list(inputs)
        return
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        spooled = Path(folder, "stdin")
        with spooled.open("wb") as sink:
            shutil.copyfileobj(sys.stdin.buffer, sink)
        try:
            yield [(str(spooled) if file == "-" else file, kind) for file, kind in inputs]
        except InvalidDataError as error:  # the user knows of no such file
            message = error.message.replace(str(spooled), "standard input")
            raise InvalidDataError(message, remedy=error.remedy) from error


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise InvalidArgumentError(f"{text!r} is no property.", remedy="Write it as KEY=VALUE.")
    return key, value
