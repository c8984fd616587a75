"""What must hold when a campaign is over, whatever happened in it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import headgate
from headgate.api.messages import Ratified, Rejected, TimelineEntry
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.errors import HeadgateError
from headgate.protocol.actions import Version
from headgate.protocol.paths import STAGED
from headgate.table.log_files import DeltaLog
from tests.chaos.history import History
from tests.chaos.writer import HOT, PAIR, TABLES
from tests.kit import other_readers, plain_replay

Timelines = dict[str, tuple[TimelineEntry, ...]]


def settle(session: Session, history: History) -> dict[str, str]:
    """Propose again every proposal without an answer; return the outcome of each."""
    outcomes: dict[str, str] = {}
    for txn_id in history.unsettled:
        # One that had to come again at another version may have won with any of its tries.
        for proposal in history.proposals[txn_id]:
            try:
                answer = session.catalog.propose(proposal)
            except HeadgateError as error:
                outcomes[txn_id] = error.code
                continue
            match answer:
                case Ratified():
                    outcomes[txn_id] = "ratified"
                case Rejected():
                    outcomes[txn_id] = "rejected"
                case _:
                    outcomes.setdefault(txn_id, "not ratified")
    return outcomes


def hold(store: str, history: History, scratch: Path) -> None:
    """Check all of it; the servers are gone by now."""
    assert not history.broken, history.broken
    with headgate.connect(store, publisher=False) as session:
        tables = {name: session.table(name) for name in TABLES}
        for table in tables.values():
            assert table.publish() == table.snapshot().version
        timelines = {name: table.log() for name, table in tables.items()}
        ids = {table.id: name for name, table in tables.items()}
        versions_are_contiguous_and_times_rise(timelines)
        what_was_told_is_so(timelines, ids, history)
        transactions_are_whole(timelines, ids, history)
        for name, table in tables.items():
            published_bytes_are_the_ratified(table, timelines[name])
            plain_replay.hold(session, table.id)
        readers_agree(session, tables, scratch)
    the_checker_is_content(store)


def versions_are_contiguous_and_times_rise(timelines: Timelines) -> None:
    for name, entries in timelines.items():
        assert [entry.commit.version for entry in entries] == list(range(len(entries))), name
        stamps = [entry.commit.timestamp_ms for entry in entries]
        assert stamps == sorted(set(stamps)), name
        sequences = [entry.commit.sequence or 0 for entry in entries]
        assert sequences == sorted(set(sequences)), name


def what_was_told_is_so(timelines: Timelines, ids: dict[str, str], history: History) -> None:
    """Acknowledged proposals are there once, at their version; refused ones nowhere; no others."""
    places = {
        name: {entry.commit.txn_id: entry.commit.version for entry in entries}
        for name, entries in timelines.items()
    }
    for name, entries in timelines.items():
        times = Counter(entry.commit.txn_id for entry in entries)
        assert set(times.values()) == {1}, f"{name}: a transaction is there twice"
        strangers = set(times) - set(history.proposals)
        assert len(strangers) == 1, f"{name}: {strangers}"  # the one that made the table
    for txn_id, versions in history.ratified.items():
        for table_id, version in versions.items():
            assert places[ids[table_id]].get(txn_id) == version, f"{txn_id} is lost"
    for txn_id in history.rejected:
        assert not any(txn_id in found for found in places.values()), f"{txn_id} was refused"
    settled = set(history.ratified) | set(history.rejected)
    for found in places.values():
        known = {t for t in found if t in history.proposals}
        assert known <= settled, f"there, and never acknowledged: {known - settled}"


def transactions_are_whole(timelines: Timelines, ids: dict[str, str], history: History) -> None:
    """Of several tables: in all of them under one sequence, so in every cut all or none."""
    places = {
        name: {entry.commit.txn_id: entry.commit.sequence for entry in entries}
        for name, entries in timelines.items()
    }
    for txn_id, proposals in history.proposals.items():
        written = {ids[part.table_id] for part in proposals[-1].parts}
        found = {places[name].get(txn_id) for name in written}
        assert len(found) == 1, f"{txn_id} is half there"


def published_bytes_are_the_ratified(table: Table, entries: tuple[TimelineEntry, ...]) -> None:
    log = DeltaLog(table.snapshot().store)
    for entry in entries:
        content = log.read_published(Version(entry.commit.version))
        assert content is not None, f"{table.name} {entry.commit.version}"
        assert hashlib.sha256(content).hexdigest() == entry.commit.sha256
        assert f'"txnId":"{entry.commit.txn_id}"'.encode() in content.replace(b": ", b":")
        if entry.commit.file_name is not None:
            assert log.read(f"{STAGED}/{entry.commit.file_name}") == content


def readers_agree(session: Session, tables: dict[str, Table], scratch: Path) -> None:
    """DuckDB, which replays the log itself, reads what our reader reads."""
    for table in tables.values():
        ours = table.to_arrow()
        values = ours.column("value").to_pylist()
        assert len(values) == len(set(values)), f"{table.name}: a row is there twice"
        resolved = session.catalog.resolve(table.id)
        assert other_readers.duckdb_reads(resolved, scratch) == other_readers.rows(ours), table.name
    one, other = (other_readers.rows(tables[name].to_arrow()) for name in PAIR)
    assert one == other
    assert tables[HOT].to_arrow().num_rows > 0


def the_checker_is_content(store: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "--lake", store, "fsck"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
