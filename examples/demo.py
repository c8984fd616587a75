"""A tour of Headgate, and what `make run` does: a lake in ./lake-demo, and what happened to it.

Two tables of a small shop, two writers. Everything here is the public API, but for the replay,
which speaks to the catalog as the client itself does.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from time import perf_counter

import pyarrow as pa
from rich.console import Console

import headgate
from headgate.clock import RandomIds
from headgate.errors import ConflictError
from headgate.protocol.catalog_port import Ratified
from headgate.protocol.commits import Inline, Part, Proposal
from headgate.settings import Settings

LAKE = Path("lake-demo")
MARK = LAKE / "made-by-the-demo"  # only what the demo made, the demo removes
DAYS = [date(2026, 3, day) for day in (1, 2, 3)]
console = Console(highlight=False, soft_wrap=True)
began = perf_counter()


def main() -> None:
    """Tell the whole story."""
    make_room()
    # Nobody publishes in the background here, so that we can watch it being done.
    with (
        headgate.connect(LAKE, publisher=False) as ann,
        # Bea's commits are too large to travel inline, or so she says: hers are staged.
        headgate.connect(LAKE, publisher=False, settings=Settings(inline_limit_bytes=0)) as bea,
    ):
        MARK.touch()
        make_tables(ann)
        two_ways_to_commit(ann, bea)
        a_conflict_and_its_winner(ann, bea)
        the_same_again(ann)
        publishing(ann)
        the_past(ann)
    no_database()
    what_came_of_it()


def make_tables(session: headgate.Session) -> None:
    """Make two tables: one call each, and version 0 is there with the name."""
    title("A lake and two tables")
    session.create_namespace("sales")
    orders = session.create_table(
        "sales.orders",
        "id long not null, day date, item string, amount decimal(10,2)",
        partition_by=["day"],
        properties={"delta.constraints.positive": "amount > 0"},
    )
    totals = session.create_table("sales.totals", "day date, amount decimal(18,2)")
    for table in (orders, totals):
        tell(f"{table.name} at version {table.version}, id {table.id}")


def two_ways_to_commit(ann: headgate.Session, bea: headgate.Session) -> None:
    """Append from two writers: neither waits for the other, none overwrites the other."""
    title("Commits inline and staged")
    anns, beas = ann.table("sales.orders"), bea.table("sales.orders")  # both see version 0
    for table, ids in ((anns, (1, 2, 3)), (beas, (4, 5)), (anns, (6,))):
        commit = table.append(some_orders(*ids)).commits[table.id]
        tell(
            f"version {commit.version}, {commit.way.value}: {len(ids)} orders, {commit.size} bytes"
        )
    totals = ann.table("sales.totals")
    totals.append(totals_of(anns.to_arrow()))
    tell(f"the totals of {len(DAYS)} days in {totals}")


def a_conflict_and_its_winner(ann: headgate.Session, bea: headgate.Session) -> None:
    """Replace the totals twice at once: one wins, and the other is told by whom it was beaten."""
    title("A conflict and its winner")
    anns, beas = ann.table("sales.totals"), bea.table("sales.totals")
    rows = totals_of(ann.table("sales.orders").to_arrow())

    def while_ann_is_faster() -> Iterator[pa.RecordBatch]:
        won = anns.overwrite(rows)  # Bea has read the table and is still writing her rows
        tell(f"Ann replaced the totals: version {won.versions[anns.id]}, txnId {won.txn_id}")
        yield from rows.to_batches()

    try:
        beas.overwrite(pa.RecordBatchReader.from_batches(rows.schema, while_ann_is_faster()))
    except ConflictError as error:
        tell(f"Bea was refused: {error}")
        tell(f"the winner's txnId, as Bea was told: {error.conflicts[0].txn_id}")
    again = beas.overwrite(rows)
    tell(f"Bea read the table again and replaced them: version {again.versions[beas.id]}")


def the_same_again(session: headgate.Session) -> None:
    """Propose the same twice, as a client does whose answer was lost."""
    title("The same txnId again, answered as the first time")
    orders = session.table("sales.orders")
    seen = b'{"txn":{"appId":"loader","version":7}}\n'  # "the loader has seen batch 7"
    proposal = Proposal(
        txn_id=str(RandomIds().ordered()),
        parts=(
            Part(
                table_id=orders.id,
                version=orders.version + 1,
                content=Inline(commit_info={"operation": "STREAMING UPDATE"}, actions=seen),
            ),
        ),
    )
    first = session.catalog.propose(proposal)
    second = session.catalog.propose(proposal)
    assert isinstance(first, Ratified)
    assert first == second
    version = first.commits[orders.id].version
    tell(f"asked twice, ratified once: version {version}, sequence {first.sequence}, both times")


def publishing(session: headgate.Session) -> None:
    """Copy the ratified commits into the log, where other engines look for them."""
    title("Publishing")
    orders = session.table("sales.orders")
    show_log(orders)
    tell(f"published up to version {orders.publish(upto=2)}, as asked")
    tell(f"published up to version {orders.publish()}: all of it")
    show_log(orders)
    session.table("sales.totals").publish()


def the_past(session: headgate.Session) -> None:
    """Read what was: by version, by time, and both tables as of one moment of the catalog."""
    title("Time travel, and a cut over both tables")
    orders = session.table("sales.orders")
    second = orders.log()[2].commit
    then = orders.to_arrow(as_of=second.timestamp_ms)  # or as_of="2026-03-01T00:00:00Z"
    tell(f"version 1 had {orders.to_arrow(version=1).num_rows} orders")
    tell(f"at {moment(second.timestamp_ms)} there were {then.num_rows}")
    tell(f"now there are {orders.to_arrow().num_rows}")
    sequence = session.table("sales.totals").log()[1].commit.sequence
    cut = session.read_cut(["sales.orders", "sales.totals"], sequence=sequence)
    versions = ", ".join(f"{name} version {snapshot.version}" for name, snapshot in cut.items())
    tell(f"at sequence {sequence}, one moment for all tables: {versions}")


def no_database() -> None:
    """Do without a database: who puts the next file into the log has won that version."""
    title("A filesystem catalog: commits by put-if-absent")
    address = f"{(LAKE / 'filesystem-catalog').resolve().as_uri()}?catalog=filesystem"
    with headgate.connect(address) as ann, headgate.connect(address) as bea:
        ann.create_table("notes", "id long, text string")
        anns, beas = ann.table("notes"), bea.table("notes")
        anns.append(pa.table({"id": [1], "text": ["Ann was here"]}))
        beas.append(pa.table({"id": [2], "text": ["Bea too, one version later"]}))
        show_log(beas)
        tell(f"rows: {beas.to_arrow().sort_by('id').to_pylist()}")


def what_came_of_it() -> None:
    """Open the lake anew, as anyone would tomorrow, and read."""
    title("What came of it")
    opened = perf_counter()
    with headgate.connect(LAKE) as session:
        for entry in session.tables():
            tell(f"{entry.name}: version {entry.latest}, published up to {entry.published}")
        totals = session.table("sales.totals").to_arrow().sort_by("day")
    tell(f"opened and read in {1000 * (perf_counter() - opened):.0f} ms:")
    for row in totals.to_pylist():
        note(f"{row['day']}  {row['amount']:>8}")

    title("Try next")
    command = Path(sys.executable).with_name("headgate")
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    for words in ("show", "log sales.orders", "show sales.orders --version 1", "fsck", "--help"):
        note(f"{command} --lake {LAKE} {words}")


# Small things


def make_room() -> None:
    """Remove what an earlier run left, and nothing else."""
    if LAKE.exists() and not MARK.exists():
        sys.exit(f"{LAKE} is there and was not made by this demo: move it away first.")
    shutil.rmtree(LAKE, ignore_errors=True)


def some_orders(*ids: int) -> pa.Table:
    """Make up some orders."""
    rows = [
        {"id": i, "day": DAYS[i % 3], "item": ("bolt", "nut", "gear")[i % 3], "amount": i * 10}
        for i in ids
    ]
    columns = [("id", pa.int64()), ("day", pa.date32()), ("item", pa.string())]
    return pa.Table.from_pylist(rows, pa.schema([*columns, ("amount", pa.int64())]))


def totals_of(orders: pa.Table) -> pa.Table:
    """Sum the orders up by day."""
    return orders.group_by("day").aggregate([("amount", "sum")]).rename_columns(["day", "amount"])


def show_log(table: headgate.Table) -> None:
    """Print a table's timeline, one commit a line."""
    for entry, told in zip(table.log(), reversed(table.history()), strict=True):
        commit = entry.commit
        note(
            f"{commit.version}  {commit.way.value:<6}  {commit.state.value:<9}"
            f"  {moment(commit.timestamp_ms)}  {commit.txn_id}  {told.operation}"
        )


def moment(milliseconds: int) -> str:
    """Write a time."""
    text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def title(text: str) -> None:
    """Begin a chapter."""
    console.print(f"\n[bold]{text}[/]")


def note(text: str) -> None:
    """Print a line that belongs to the one above."""
    console.print(f"           {text}", markup=False)


def tell(text: str) -> None:
    """Say what happened, and when."""
    console.print(f"[dim]{1000 * (perf_counter() - began):>6.0f} ms[/]  ", end="")
    console.print(text, markup=False)


if __name__ == "__main__":
    main()
