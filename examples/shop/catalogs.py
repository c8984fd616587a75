"""Features of the catalog: conflicts, repeated proposals, a catalog without a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

import headgate
from headgate.api.messages import Part, Proposal, Ratified
from headgate.clock import RandomIds
from headgate.errors import ConflictError
from headgate.protocol.commit.content import Inline
from headgate.spark import Lake
from shop import orders
from shop.output import check, log, note, step, title
from shop.pipeline import DAILY, check_gold, count_silver


class _SecondThoughtsError(Exception):
    """The reason to roll back."""


def conflict(lake: Lake, bea: headgate.Session, files: list[Path]) -> None:
    """Replace the totals twice at once: one writer wins, the other learns which commit won."""
    title("A conflict and its winner")
    gold, beas = lake.session.table("gold.daily"), bea.table("gold.daily")
    stale = beas.to_arrow()  # still contains the deleted customer

    def rows_while_ann_commits() -> Iterator[pa.RecordBatch]:
        # Bea has read the table and is still writing.
        with step("gold: INSERT OVERWRITE while Bea writes"):
            lake.sql(f"INSERT OVERWRITE gold.daily {DAILY}")
        commit = gold.log()[-1].commit
        log(f"Ann replaced the totals: version {commit.version}, txnId {commit.txn_id}")
        yield from stale.to_batches()

    rows = pa.RecordBatchReader.from_batches(stale.schema, rows_while_ann_commits())
    try:
        beas.overwrite(rows)
    except ConflictError as error:
        log(f"Bea was refused: {error.message}")
        winner = gold.log()[-1].commit.txn_id
        check("the error names the winner", error.conflicts[0].txn_id, winner)
    else:
        check("one of two overwrites is refused", "both were ratified", "one was ratified")
    check_gold(lake, orders.sales(orders.without_deleted_customer(orders.newest(files))))


def transactions(lake: Lake, bea: headgate.Session) -> None:
    """Roll a transaction back, and have one rejected."""
    title("Transactions that do not happen")
    before = count_silver(lake)
    with (
        step("silver and gold: DELETE everything, and ROLLBACK"),
        suppress(_SecondThoughtsError),
        lake.transaction() as undone,
    ):
        lake.sql("DELETE FROM silver.orders; DELETE FROM gold.daily")
        inside = count_silver(lake)
        raise _SecondThoughtsError
    log(
        f"inside there were {inside[0]} orders; it is {undone.state.value}: {before[0]:,} are there"
    )
    check("a rollback leaves everything as it was", count_silver(lake), before)

    beas = bea.table("gold.daily")
    version = beas.version
    try:
        with step("silver and gold: DELETE, while Bea writes"), lake.transaction() as lost:
            lake.sql("DELETE FROM silver.orders WHERE order_id < 100; DELETE FROM gold.daily")
            beas.overwrite(beas.to_arrow())
    except ConflictError as error:
        log(f"Ann was refused: {error.message}")
    check("a rejected transaction changes no table", count_silver(lake), before)
    check("only Bea changed gold", (lost.state.value, beas.version), ("rejected", version + 1))


def repeat_a_proposal(session: headgate.Session) -> None:
    """Propose the same commit twice, like a client whose answer was lost."""
    title("The same txnId again gets the same answer")
    table = session.table("bronze.orders")
    actions = b'{"txn":{"appId":"deliveries","version":8}}\n'  # "delivery 8 has been loaded"
    content = Inline(commit_info={"operation": "STREAMING UPDATE"}, actions=actions)
    proposal = Proposal(
        txn_id=str(RandomIds().ordered()),
        parts=(Part(table_id=table.id, version=table.version + 1, content=content),),
    )
    first, second = session.catalog.propose(proposal), session.catalog.propose(proposal)
    check("the same proposal gets the same answer", second, first)
    assert isinstance(first, Ratified)
    version = first.commits[table.id].version
    log(f"proposed twice, ratified once: version {version}, sequence {first.sequence}, both times")


def filesystem_catalog(folder: Path) -> None:
    """Use a catalog without a database: writing the next file of the log wins the version."""
    title("A filesystem catalog: commits by put-if-absent")
    address = f"{folder.resolve().as_uri()}?catalog=filesystem"
    with headgate.connect(address) as ann, headgate.connect(address) as bea:
        ann.create_table("notes", "id long, text string")
        anns, beas = ann.table("notes"), bea.table("notes")
        anns.append(pa.table({"id": [1], "text": ["Ann was here"]}))
        beas.append(pa.table({"id": [2], "text": ["Bea too, one version later"]}))
        for entry in beas.log():
            commit = entry.commit
            state = "published" if commit.is_published else "ratified"
            note(f"{commit.version}  {commit.way.value}  {state}  {commit.txn_id}")
        check("both rows are there", sorted(beas.to_arrow()["id"].to_pylist()), [1, 2])
