"""What the catalog does while the pipeline runs: conflicts, repeated proposals, no database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import headgate
from headgate.api.messages import Part, Proposal, Ratified
from headgate.clock import RandomIds
from headgate.errors import ConflictError
from headgate.protocol.commit.content import Inline
from headgate.spark import Lake
from shop import orders
from shop.pipeline import DAILY, check_gold
from shop.telling import check, note, step, tell, title


def conflict(lake: Lake, bea: headgate.Session, files: list[Path]) -> None:
    """Replace the totals twice at once: one wins, and the other is told by whom it was beaten."""
    title("A conflict and its winner")
    gold, beas = lake.session.table("gold.daily"), bea.table("gold.daily")
    stale = beas.to_arrow()  # the forgotten customer is still in these

    def while_ann_is_faster() -> Iterator[pa.RecordBatch]:
        # Bea has read the table and is still writing her rows.
        with step("gold: INSERT OVERWRITE while Bea writes"):
            lake.sql(f"INSERT OVERWRITE gold.daily {DAILY}")
        won = gold.log()[-1].commit
        tell(f"Ann replaced the totals: version {won.version}, txnId {won.txn_id}")
        yield from stale.to_batches()

    rows = pa.RecordBatchReader.from_batches(stale.schema, while_ann_is_faster())
    try:
        beas.overwrite(rows)
    except ConflictError as error:
        tell(f"Bea was refused: {error.message}")
        winner = gold.log()[-1].commit.txn_id
        check("the loser is told the winner", error.conflicts[0].txn_id, winner)
    else:
        check("of two that replace a table one is refused", "both won", "one won")
    check_gold(lake, orders.sales(orders.without_forgotten(orders.newest(files))))


def the_same_again(session: headgate.Session) -> None:
    """Propose the same twice, as a client does whose answer was lost."""
    title("The same txnId again, answered as the first time")
    table = session.table("bronze.orders")
    seen = b'{"txn":{"appId":"deliveries","version":8}}\n'  # "delivery 8 has been loaded"
    content = Inline(commit_info={"operation": "STREAMING UPDATE"}, actions=seen)
    proposal = Proposal(
        txn_id=str(RandomIds().ordered()),
        parts=(Part(table_id=table.id, version=table.version + 1, content=content),),
    )
    first, second = session.catalog.propose(proposal), session.catalog.propose(proposal)
    check("the same proposal gets the same answer", second, first)
    assert isinstance(first, Ratified)
    version = first.commits[table.id].version
    tell(f"asked twice, ratified once: version {version}, sequence {first.sequence}, both times")


def no_database(folder: Path) -> None:
    """Do without a database: who puts the next file into the log has won that version."""
    title("A filesystem catalog: commits by put-if-absent")
    address = f"{folder.resolve().as_uri()}?catalog=filesystem"
    with headgate.connect(address) as ann, headgate.connect(address) as bea:
        ann.create_table("notes", "id long, text string")
        anns, beas = ann.table("notes"), bea.table("notes")
        anns.append(pa.table({"id": [1], "text": ["Ann was here"]}))
        beas.append(pa.table({"id": [2], "text": ["Bea too, one version later"]}))
        for entry in beas.log():
            commit = entry.commit
            note(f"{commit.version}  {commit.way.value}  {commit.state.value}  {commit.txn_id}")
        check("both rows are there", sorted(beas.to_arrow()["id"].to_pylist()), [1, 2])
