"""Every order of the steps of two writers, a publisher and a reader, over the package's own code.

The names of what must hold are those of `model/CatalogCommits.tla`. Each broken rule is found.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from headgate.api.messages import Part, Proposal
from headgate.client.transaction import Change, Committer, OperationInfo
from headgate.errors import ConflictError
from headgate.names import TableName
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.paths import PublishedCommit
from headgate.table import snapshot_loader
from headgate.table.log_files import DeltaLog
from headgate.table.ratified_content import ratified_content
from tests.kit import req, shows
from tests.kit.builders import add, inline, metadata, protocol
from tests.world.explorer import ROOT, Explorer, Losing, Process, Shared, empty, run

A = TableId(str(UUID(int=0xA, version=4)))
B = TableId(str(UUID(int=0xB, version=4)))
TABLES = (A, B)


def _create(process: Process) -> None:
    for number, table_id in enumerate(TABLES):
        process.catalog.create_table(
            TableName.parse(f"t{number}"),
            table_id,
            TxnId(f"made-{number}"),
            inline(protocol(), metadata(table_id)),
        )
        process.catalog.publish(table_id)


START = run(_create, empty())[1]


def location(table_id: TableId) -> str:
    return f"{ROOT}/tables/{table_id}"


# Processes


def writer(name: str, tables: Sequence[TableId], way: Way) -> Callable[[Process], Any]:
    """Append a file to each table with the client's own code, over a line that may lose once."""

    def body(process: Process) -> Any:
        catalog = process.catalog
        bases = [
            snapshot_loader.load(catalog, found, store_for=process.store_for)  # type: ignore[arg-type]
            for found in catalog.resolve_many(tables)
        ]
        changes = [
            Change(
                table_id=table_id,
                base=base,
                ways=(way,),
                actions=(add(f"{name}.parquet"),),
                operation=OperationInfo("WRITE"),
            )
            for table_id, base in zip(tables, bases, strict=True)
        ]
        committer = Committer(Losing(process, catalog), process.clock, process.ids)  # type: ignore[arg-type]
        try:
            committer.commit(changes)
        except ConflictError:
            return f"{name} refused"
        return f"{name} acked"

    return body


def publisher(*tables: TableId) -> Callable[[Process], Any]:
    """Publish what is there, then let the catalog forget it."""

    def body(process: Process) -> Any:
        catalog = process.catalog
        for table_id in tables:
            upto = catalog.publish(table_id)
            with process.read() as unit:
                key = unit.table(table_id).key
            forget(process, key, upto)

    return body


def forget(process: Process, key: int, upto: Version) -> None:
    process.catalog._ratifier.submit("forget", lambda unit: unit.delete_content(key, upto)).result()


def client_that_publishes(process: Process) -> None:
    """Publish as a client does by itself, and report it to the catalog."""
    catalog = process.catalog
    resolved = catalog.resolve(A)
    log = DeltaLog(process.store_for(location(A)))  # type: ignore[arg-type]
    contents = [(commit.version, ratified_content(log, commit)) for commit in resolved.commits]
    log.publish_many([(version, content) for version, content in contents if content])
    catalog.confirm_published(A, resolved.latest)


def reader(*tables: TableId) -> Callable[[Process], Any]:
    """Read tables at one sequence with the client's own code."""

    def body(process: Process) -> Any:
        catalog = process.catalog
        found = [
            snapshot_loader.load(catalog, resolved, store_for=process.store_for)  # type: ignore[arg-type]
            for resolved in catalog.resolve_many(tables)
        ]
        return {
            snapshot.table_id: (snapshot.version, sorted(file.path for file in snapshot.files()))
            for snapshot in found
        }

    return body


# What must hold


class Look:
    """A shared state as the model's variables."""

    def __init__(self, shared: Shared) -> None:
        rows = shared.query(
            "SELECT id, version, txn_id, sha256, content, file_name FROM commits "
            "JOIN tables ON table_key = key ORDER BY version"
        )
        files = shared.files
        self.ratified: dict[TableId, list[str]] = {table_id: [] for table_id in TABLES}
        self.tracked: dict[TableId, set[int]] = {table_id: set() for table_id in TABLES}
        self.published: dict[TableId, dict[int, bytes]] = {}
        self.contents: dict[TableId, list[bytes]] = {table_id: [] for table_id in TABLES}
        for table_id in TABLES:
            paths = {
                v: f"{location(table_id)}/{PublishedCommit(Version(v)).path}" for v in range(9)
            }
            self.published[table_id] = {v: files[p] for v, p in paths.items() if p in files}
        for table_id, version, txn_id, _, content, file_name in rows:
            staged = files.get(f"{location(table_id)}/_delta_log/_staged_commits/{file_name}")
            self.ratified[table_id].append(txn_id)
            held = content or staged
            if held is not None:
                self.tracked[table_id].add(version)
            self.contents[table_id].append(held or self.published[table_id].get(version, b""))
        self._added = {
            table_id: [_added_by(content) for content in contents]
            for table_id, contents in self.contents.items()
        }

    def added(self, table_id: TableId, upto: int | None = None) -> list[str]:
        commits = self._added[table_id][: None if upto is None else upto + 1]
        return [path for paths in commits for path in paths]


@functools.cache
def _added_by(content: bytes) -> list[str]:
    """Return the paths of the files that a commit adds."""
    return [json.loads(line)["add"]["path"] for line in content.splitlines() if b'"add"' in line]


def at_most_once(look: Look, results: Sequence[Any]) -> None:
    for table_id in TABLES:
        added = look.added(table_id)
        assert len(added) == len(set(added)), "AtMostOnce"
        assert len(set(look.ratified[table_id])) == len(look.ratified[table_id]), "AtMostOnce"


def all_or_nothing(look: Look, results: Sequence[Any]) -> None:
    assert ("both.parquet" in look.added(A)) == ("both.parquet" in look.added(B)), "AllOrNothing"


def ack_means_in(look: Look, results: Sequence[Any]) -> None:
    for result in results:
        if isinstance(result, str) and result.endswith(" acked"):
            assert f"{result.split()[0]}.parquet" in look.added(A), "AckMeansIn"


def pub_is_ratified(look: Look, results: Sequence[Any]) -> None:
    for table_id in TABLES:
        for version, content in look.published[table_id].items():
            assert version < len(look.ratified[table_id]), "PubIsRatified"
            assert content == look.contents[table_id][version], "PubIsRatified"


def pub_is_prefix(look: Look, results: Sequence[Any]) -> None:
    for table_id in TABLES:
        published = look.published[table_id]
        assert set(published) == set(range(len(published))), "PubIsPrefix"


def nothing_lost(look: Look, results: Sequence[Any]) -> None:
    for table_id in TABLES:
        there = look.tracked[table_id] | set(look.published[table_id])
        assert there == set(range(len(look.ratified[table_id]))), "NothingLost"


def read_no_gap(look: Look, results: Sequence[Any]) -> None:
    for result in results:
        if isinstance(result, dict):
            for table_id, (version, files) in result.items():
                assert files == sorted(look.added(table_id, version)), "ReadNoGap"


def read_no_fracture(look: Look, results: Sequence[Any]) -> None:
    for result in results:
        if isinstance(result, dict) and len(result) == 2:
            inside = {"both.parquet" in files for _, files in result.values()}
            assert len(inside) == 1, "ReadNoFracture"


RULES = (
    at_most_once,
    all_or_nothing,
    ack_means_in,
    pub_is_ratified,
    pub_is_prefix,
    nothing_lost,
    read_no_gap,
    read_no_fracture,
)


def check(shared: Shared, results: Sequence[Any]) -> None:
    look = looked(shared)
    for rule in RULES:
        rule(look, results)


_looks: dict[tuple[int, object], Look] = {}


def looked(shared: Shared) -> Look:
    key = (shared.seal, shared.objects)
    if key not in _looks:
        _looks[key] = Look(shared)
    return _looks[key]


def explored(
    bodies: Sequence[Callable[[Process], Any]], switches: int | None = None, start: Shared = START
) -> list[Any]:
    _looks.clear()
    explorer = Explorer(bodies, check, switches)
    ends = explorer.explore(start)
    print(f"{explorer.states} states, {len(ends)} ends")
    assert ends
    return ends


SCOPES = {
    "staged writer, publisher, reader": (writer("one", [A], Way.STAGED), publisher(A), reader(A)),
    "two writers, inline and staged": (
        writer("one", [A], Way.INLINE),
        writer("two", [A], Way.STAGED),
    ),
    "writer over two tables, publisher, reader of both": (
        writer("both", [A, B], Way.INLINE),
        publisher(A),
        reader(A, B),
    ),
    "two publishers of one commit": (
        writer("one", [A], Way.STAGED),
        publisher(A),
        client_that_publishes,
    ),
    "two writers, publisher, reader": (
        writer("one", [A], Way.INLINE),
        writer("both", [A, B], Way.INLINE),
        publisher(A),
        reader(A, B),
    ),
}


@req("CM-10", "CM-42", "CM-23", "MT-01", "MT-02", "RD-01")
@shows("FC5", "FM1", "FM5", "FP1", "FP3", "FP5", "FR2", "FX1", "S3", "S7", "S9", "S11", "S17")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scope", SCOPES)
def test_every_order_of_steps_keeps_what_the_model_keeps(scope: str) -> None:
    # The largest has 400,000 states: all of them only in a long run.
    is_bounded = len(SCOPES[scope]) > 3 and not os.environ.get("HEADGATE_LONG")
    for results in explored(SCOPES[scope], 2 if is_bounded else None):
        answered = [result for result in results if isinstance(result, str) and result != "done"]
        assert all(result.endswith(" acked") for result in answered)  # appends do not conflict


# Broken rules


def resending_under_a_new_id(process: Process) -> Any:
    catalog = process.catalog
    for number in range(2):
        part = Part(table_id=A, version=Version(1 + number), content=inline(add("one.parquet")))
        catalog.propose(Proposal(txn_id=TxnId(f"try-{number}"), parts=(part,)))
        if process.choose("heard", "lost") == "heard":
            return None
    return None


def appended(process: Process) -> None:
    part = Part(table_id=A, version=Version(1), content=inline(add("first.parquet")))
    process.catalog.propose(Proposal(txn_id=TxnId("first"), parts=(part,)))


def committing_table_by_table(process: Process) -> None:
    for table_id in TABLES:
        part = Part(table_id=table_id, version=Version(1), content=inline(add("both.parquet")))
        process.catalog.propose(Proposal(txn_id=TxnId(f"part-{table_id}"), parts=(part,)))


def forgetting_before_the_put(process: Process) -> None:
    with process.read() as unit:
        row = unit.table(A)
        commits = unit.commits(row.key, Version(1), row.head, content=True)
    forget(process, row.key, row.head)
    log = DeltaLog(process.store_for(location(A)))  # type: ignore[arg-type]
    log.publish_many([(commit.version, commit.content) for commit in commits])


def publishing_the_last_first(process: Process) -> None:
    with process.read() as unit:
        row = unit.table(A)
        commits = unit.commits(row.key, Version(1), row.head, content=True)
    log = DeltaLog(process.store_for(location(A)))  # type: ignore[arg-type]
    log.publish_many([(commit.version, commit.content) for commit in reversed(commits)])


def listing_before_asking(process: Process) -> Any:
    log = DeltaLog(process.store_for(location(A)))  # type: ignore[arg-type]
    listed = [item.file for item in log.list() if isinstance(item.file, PublishedCommit)]
    catalog = process.catalog
    resolved = catalog.resolve(A)
    contents = {file.version: log.read(file.path) for file in listed}
    contents |= {commit.version: commit.content or b"" for commit in resolved.commits}
    lines = b"".join(contents.values()).splitlines()
    files = [json.loads(line)["add"]["path"] for line in lines if b'"add"' in line]
    return {A: (resolved.latest, sorted(files))}


def reading_table_by_table(process: Process) -> Any:
    first, second = reader(A)(process), reader(B)(process)
    return {**first, **second}


BROKEN = {
    "AtMostOnce": (resending_under_a_new_id,),
    "AllOrNothing": (committing_table_by_table,),
    "NothingLost": (writer("one", [A], Way.INLINE), forgetting_before_the_put),
    "PubIsPrefix": (
        writer("one", [A], Way.INLINE),
        publishing_the_last_first,
    ),
    "ReadNoGap": (
        writer("one", [A], Way.INLINE),
        publisher(A),
        listing_before_asking,
    ),
    "ReadNoFracture": (writer("both", [A, B], Way.INLINE), reading_table_by_table),
}


@shows("FR2", "FX1")
@pytest.mark.slow
@pytest.mark.parametrize("rule", BROKEN)
def test_a_process_that_breaks_a_rule_is_found_out(rule: str) -> None:
    start = START
    if rule in ("ReadNoGap", "PubIsPrefix"):  # they take two versions to be broken
        _, start = run(appended, START)
    with pytest.raises(AssertionError, match=f"^{rule}"):
        explored(BROKEN[rule], start=start)
