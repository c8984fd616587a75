"""Two catalogs on one store, whose clients propose staged files by name, in one of two ways.

Everything is made from numbers, so that the same steps can be taken in another lake and compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from headgate.api.messages import Part, Proposal, RatifiedCommit, TableInfo
from headgate.api.port import Ref
from headgate.catalog.proposer import StagedProposal
from headgate.catalog.service import Catalog
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import TableRow
from headgate.clock import Clock
from headgate.errors import HeadgateError
from headgate.http.unity import commits
from headgate.names import TableName
from headgate.protocol.actions import (
    Action,
    AddFile,
    DeletionVector,
    TableId,
    TxnId,
    Version,
)
from headgate.protocol.commit.content import Staged
from headgate.protocol.commit.decide import NEEDS
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import StagedCommit
from headgate.settings import Settings
from headgate.storage import locations
from tests.catalog.conftest import catalog_on
from tests.kit.builders import (
    CountedIds,
    ManualClock,
    add,
    file_content,
    inline,
    metadata,
    new_txn_id,
    protocol,
    remove,
)

NAME = TableName.parse("t")
SETTINGS = Settings(verify_staged=1, unpublished_wait_ms=1_000)
VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="a" * 20, offset=1, size_in_bytes=40, cardinality=1
)
DATA = add("data.parquet")
CONTENTS = (
    "add",
    "metadata",
    "vector",
    "violation",
    "no file",
    "another size",
    "two infos",
    "torn",
    "long id",
    "large",
)
FILES = ("as declared", "missing", "longer")


class Answer(Future[Any]):
    """What the event loop awaits."""

    def wake(self) -> None:
        pass


@dataclass
class Put:
    """A staged file, and what was made of it."""

    table_id: TableId
    version: Version
    staged: Staged
    judge: Callable[[Examined], Iterable[Violation]]
    txn_id: TxnId


@dataclass
class TwoServers:
    """Two catalogs on one store; `is_soon` says which way their clients go first."""

    root: Path
    is_soon: bool
    open_store: Callable[[Clock], CatalogStore]
    settings: Settings = SETTINGS
    clock: ManualClock = field(default_factory=ManualClock)
    servers: list[Catalog] = field(default_factory=list)
    tables: list[TableId] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)
    ways: list[str] = field(default_factory=list)  # how each proposal was decided
    names: int = 0

    def __post_init__(self) -> None:
        self.servers = [self._open(salt) for salt in (1, 2)]
        self.create(0)
        for number in (0, 1, 0):  # each has looked at the log; the first one knows the latest
            self.commit(number)
        self.ways.clear()

    def _open(self, salt: int) -> Catalog:
        store, ids = self.open_store(self.clock), CountedIds(salt)
        return catalog_on(store, self.root, clock=self.clock, ids=ids, settings=self.settings)

    def restart(self, number: int) -> None:
        self.servers[number].close()
        self.servers[number] = self._open(3 + number)

    def close(self) -> None:
        for server in self.servers:
            server.close()

    @property
    def table_id(self) -> TableId:
        """The table that had the name last."""
        return self.tables[-1]

    def row(self, table_id: TableId | None = None) -> TableRow:
        with self.servers[0]._store.read_latest() as unit:
            row = unit.table(table_id or self.table_id)
        assert row is not None
        return row

    # Changes of tables

    def create(self, number: int) -> object:
        table_id = TableId(str(UUID(int=len(self.tables) + 1, version=4)))
        first = inline(protocol("deletionVectors"), metadata(table_id), operation="CREATE TABLE")
        txn_id = new_txn_id(10_000 + len(self.tables))
        outcome = self._outcome(
            lambda: self.servers[number].create_table(NAME, table_id, txn_id, first).latest
        )
        if outcome == 0:
            self.tables.append(table_id)
            self.servers[number].publish(table_id)
            location = self.row().location
            for path in ("data.parquet", "another.parquet"):
                locations.store_for(location).put(path, b"x" * (100 if path == DATA.path else 99))
        return outcome

    def rename(self, number: int) -> object:
        self.names += 1
        name = TableName.parse(f"u{self.names}")
        return self._change(lambda: self.servers[number].rename_table(self.table_id, name))

    def rename_back(self, number: int) -> object:
        return self._change(lambda: self.servers[number].rename_table(self.table_id, NAME))

    def drop(self, number: int) -> object:
        return self._change(lambda: self.servers[number].drop_table(self.table_id))

    def diverge(self, number: int) -> object:
        def diverge() -> None:
            with self.servers[number]._store.write() as unit:
                unit.set_diverged(self.row().key, "its log has other bytes")

        return self._change(diverge)

    def publish(self, number: int) -> object:
        return self._change(lambda: self.servers[number].publish(self.table_id))

    def _change(self, do: Callable[[], object]) -> object:
        # For a second after a version was seen as taken, clients get that answer in any case.
        self.clock.ms += 2_000
        return self._outcome(do)

    def wait(self, number: int) -> None:
        self.clock.ms += (10, 5_000)[number]

    # Commits

    def commit_inline(self, number: int) -> object:
        proposal_id = new_txn_id(20_000 + len(self.puts) + self.row().head)
        first = inline(add("inline.parquet"))

        def commit() -> object:
            version = Version(self.row().head + 1)
            part = Part(table_id=self.table_id, version=version, content=first)
            answer = self.servers[number].propose(Proposal(txn_id=proposal_id, parts=(part,)))
            return type(answer).__name__

        return self._outcome(commit)

    def commit(
        self,
        number: int,
        content: str = "add",
        *,
        ahead: int = 0,
        file: str = "as declared",
        txn_of: int | None = None,
        is_judged: bool = False,
        by_id: bool = False,
    ) -> object:
        """Stage a file and propose it, as the version after the latest and some more."""
        self.clock.ms += 1
        version = Version(max(1, self.row().head + 1 + ahead))
        txn_id = new_txn_id(1 + len(self.puts))
        if txn_of is not None and self.puts:
            txn_id = self.puts[txn_of % len(self.puts)].txn_id
        staged = self._stage(version, self._content(content, version, txn_id), file)
        objection = Violation(rule="not-as-declared", says="it has a file")
        judge = lambda examined: [objection] if is_judged else []  # noqa: E731
        self.puts.append(Put(self.table_id, version, staged, judge, txn_id))
        return self.propose(number, -1, by_id=by_id)

    def _content(self, content: str, version: Version, txn_id: TxnId) -> bytes:
        configuration = metadata(self.table_id, properties={"a": str(len(self.puts))})
        actions: dict[str, list[Action]] = {
            "add": [DATA],
            "metadata": [configuration],
            "vector": [remove(DATA), _with_vector()],
            "violation": [add("data.parquet", values={"nothing": "1"})],
            "no file": [add("missing.parquet")],
            "another size": [add("another.parquet")],
        }
        if content == "long id":
            txn_id = TxnId("x" * 300)
        pad = "x" * 40_000 if content == "large" else ""
        whole = file_content(
            *actions.get(content, [DATA]), txn_id=txn_id, timestamp_ms=self.clock.ms, pad=pad
        )
        if content == "two infos":
            return whole + whole
        return whole[:-9] if content == "torn" else whole

    def _stage(self, version: Version, content: bytes, file: str) -> Staged:
        commit = StagedCommit(version, UUID(int=len(self.puts) + 1, version=4))
        store = locations.store_for(self.row().location)
        if file != "missing":
            store.put(commit.path, content)
            local = store.local_path(commit.path)
            assert local is not None
            os.utime(local, ns=(self.clock.ms * 1_000_000,) * 2)
        return Staged(file_name=commit.name, size=len(content) + (file == "longer"))

    def propose(self, number: int, which: int, *, by_id: bool = False) -> object:
        """Propose a staged file, for the first time or again."""
        put = self.puts[which % len(self.puts) if which >= 0 else which]
        ref: Ref = put.table_id if by_id else NAME
        server = self.servers[number]
        outcome = self._queued(server, ref, put) if self.is_soon else None
        if outcome is None:
            self.ways.append("in the pool")
            outcome = self._outcome(lambda: self._in_pool(server, ref, put))
        return outcome

    def _queued(self, server: Catalog, ref: Ref, put: Put) -> object | None:
        before = server.kept_description(ref)
        if before is None or before.table_id != put.table_id:
            return None
        answer = Answer()
        proposed = StagedProposal(before, put.version, put.staged, put.judge)
        try:
            meaning = commits.enqueue(server, proposed, None, answer)  # type: ignore[arg-type]
        except HeadgateError:
            return None
        if meaning is None:
            return None
        try:
            found = answer.result(20)
        except HeadgateError as error:
            self.ways.append("queued")
            return _refusal(error)
        if isinstance(found, NEEDS):
            self.ways.append(type(found).__name__)
            return None
        self.ways.append("queued")
        return self._outcome(lambda: self._seen(server, before, *meaning(found)))

    def _in_pool(self, server: Catalog, ref: Ref, put: Put) -> object:
        before = server.describe(ref, put.version)
        if before.table_id != put.table_id:
            return "another table"
        proposed = StagedProposal(before, put.version, put.staged, put.judge)
        return self._seen(server, before, *commits.propose(server, proposed, None))

    def _seen(
        self, server: Catalog, before: TableInfo, after: TableInfo, commit: RatifiedCommit
    ) -> object:
        server.describe_next(before, after, commit)
        # A repeated proposal may see the table as it was, or as it is.
        is_first = commit.version == after.latest
        shown = replace(after, commits=(), described_ms=0, location="", unseen=0, changed_ms=0)
        won = replaced(commit, content=None, published_ms=None)
        return won, shown if is_first else None

    @staticmethod
    def _outcome(do: Callable[[], object]) -> object:
        try:
            return do()
        except HeadgateError as error:
            return _refusal(error)

    # What is left

    def rows(self) -> object:
        with self.servers[0]._store.read_latest() as unit:
            found = []
            for table_id in self.tables:
                row = unit.table(table_id)
                assert row is not None
                listed = unit.commits(row.key, Version(0), row.head, content=True, summary=True)
                found.append((row._replace(location=""), listed))
            rejections = {put.txn_id: unit.rejection(put.txn_id) for put in self.puts}
            return unit.clock(), unit.names_by_id(self.tables), found, rejections


def _with_vector() -> AddFile:
    assert DATA.stats is not None
    wide = DATA.stats[:-1] + ',"tightBounds":false}'
    return replaced(DATA, deletion_vector=VECTOR, stats=wide)


def _refusal(error: HeadgateError) -> object:
    return type(error).__name__, getattr(error, "case", None)
