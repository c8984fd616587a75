"""Adoption: ratify commits that the logs have and the catalog lacks.

Needed after an older backup of the catalog was restored. Bytes, versions, txnIds and timestamps
stay as they are, so that a client that repeats its proposal gets its answer. A commit whose bytes
equal a staged file is recorded as that file. The parts of one transaction are ratified together,
under one sequence: they have the same txnId and timestamp. Timestamps rise within every log, so
sorting all missing commits by timestamp gives an order that fits every table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from headgate.api.messages import Finding, Severity
from headgate.catalog.component import Component, Shared
from headgate.catalog.decider import Decider
from headgate.catalog.fsck.log_folder import MOVE_OUT, read_or_none
from headgate.catalog.fsck.table_check import following_timestamp
from headgate.catalog.stores.rows import StoreConstraintError, TableRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import InvalidCommitError, MalformedError
from headgate.failpoints import fail_point
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit import examination
from headgate.protocol.commit.content import Way
from headgate.protocol.commit.examination import Examined
from headgate.protocol.commit.facts import ExaminedPart, ExaminedProposal
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import STAGED, PublishedCommit, parse_staged_name
from headgate.protocol.table_states import TableStatus


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table to repair, and its name in findings."""

    row: TableRow
    name: str


@dataclass(frozen=True, slots=True)
class _MissingCommit:
    """A commit in the log that the catalog lacks."""

    table: NamedTable
    version: Version
    content: bytes
    examined: Examined
    timestamp_ms: int

    @property
    def txn_id(self) -> TxnId:
        assert self.examined.txn_id is not None  # checked by following_timestamp
        return self.examined.txn_id

    @property
    def order(self) -> tuple[int, TxnId]:
        return self.timestamp_ms, self.txn_id

    @property
    def path(self) -> str:
        return PublishedCommit(self.version).path

    def finding(self, rule: str, severity: Severity, says: str, remedy: str = "") -> Finding:
        return Finding(rule, severity, self.table.name, says, remedy, self.version, self.path)


class Adoption(Component):
    """Ratifies the commits that the catalog lacks."""

    def __init__(
        self, shared: Shared, decider: Decider, publish: Callable[[TableId], None]
    ) -> None:
        super().__init__(shared)
        self._decider = decider
        self._publish = publish

    def adopt(self, tables: Sequence[NamedTable], others: Sequence[NamedTable]) -> list[Finding]:
        """Ratify the missing commits of tables, in order.

        If one of their transactions also wrote to another table, that table's missing commits up
        to the transaction are ratified as well.
        """
        found: list[Finding] = []
        chains = {table.row.id: list(self._missing_commits(table)) for table in tables}
        if any(chains.values()):
            for table in others:
                if table.row.id not in chains:
                    chains[table.row.id] = list(self._missing_commits(table))
        needed = _with_dependencies({table.row.id for table in tables}, chains)
        stopped: set[TableId] = set()  # tables with a commit that cannot be ratified
        for _, group in groupby(needed, key=lambda commit: commit.order):
            parts = list(group)
            ids = {commit.table.row.id for commit in parts}
            if ids & stopped:
                stopped |= ids
                continue
            findings = list(self._ratify(parts))
            found += findings
            if not all(finding.repaired for finding in findings):
                stopped |= ids
        return found

    def _now(self, table: NamedTable) -> TableRow | None:
        with self._store.read() as unit:
            return unit.table(table.row.id)

    def _missing_commits(self, table: NamedTable) -> Iterator[_MissingCommit]:
        """Yield the commits after a table's head, up to the first that cannot be ratified."""
        row = self._now(table)
        if row is None or row.state is not TableStatus.ACTIVE:
            return
        log, version, timestamp_ms = self._log_of(row.location), row.head + 1, row.timestamp_ms
        while (content := read_or_none(log, Version(version))) is not None:
            later_ms = following_timestamp(self._store, row, content, timestamp_ms)
            if later_ms is None:
                return
            examined = examination.examine_file(content)
            yield _MissingCommit(
                NamedTable(row, table.name), Version(version), content, examined, later_ms
            )
            version, timestamp_ms = version + 1, later_ms

    def _ratify(self, parts: list[_MissingCommit]) -> Iterator[Finding]:
        for commit in parts:
            self._publish(commit.table.row.id)
            now = self._now(commit.table)
            if now is None or now.head >= commit.version:
                return  # ratified in the meantime, by another repair or by a writer
            if now.published != now.head:
                says = f"is in the log, and version {now.published + 1} is not yet published"
                remedy = "Run `headgate publish`, then `headgate fsck --repair` again."
                yield commit.finding("FS3", Severity.ERROR, says, remedy)
                return
        try:
            self._submit(parts)
        except (InvalidCommitError, MalformedError, StoreConstraintError) as error:
            for commit in parts:
                now = self._now(commit.table)
                if now is not None and now.head < commit.version:
                    reason = getattr(error, "message", "its transaction is already ratified")
                    says = f"cannot be ratified: {reason}"
                    yield commit.finding("AU-01", Severity.ERROR, says, MOVE_OUT)
            return
        for commit in parts:
            says = "was in the log and missing from the catalog"
            yield replaced(commit.finding("FS3", Severity.WARNING, says), repaired=True)

    def _submit(self, parts: list[_MissingCommit]) -> None:
        examined = tuple(self._part(commit) for commit in parts)
        proposal = ExaminedProposal(parts[0].txn_id, examined, self._clock.now_ms())

        def adopt(unit: WriteUnit) -> None:
            for commit in parts:
                now = unit.table(commit.table.row.id)
                if now is None or now.head + 1 != commit.version:
                    says = f"version {commit.version} is not the next"
                    raise InvalidCommitError(commit.table.row.id, [says])
            self._decider.adopt(unit, proposal)
            for commit in parts:
                version, now_ms = commit.version, self._clock.now_ms()
                unit.record_published(commit.table.row.key, version, version, now_ms)

        for commit in parts:
            # It is recorded as published, so it must survive a power loss, whatever wrote it.
            self._log_of(commit.table.row.location).store.sync([commit.path])
        fail_point("fsck.before_adopt")
        self._change(parts[0].txn_id, adopt)
        fail_point("fsck.after_adopt")

    def _part(self, commit: _MissingCommit) -> ExaminedPart:
        """Build the part to ratify, as a staged commit if a staged file has the same bytes.

        Its client knows the staged file's name and may propose it again.
        """
        log, content = self._log_of(commit.table.row.location), commit.content
        part = ExaminedPart(
            commit.table.row.id,
            commit.version,
            Way.PUT_IF_ABSENT,
            commit.examined,
            size=len(content),
            sha256=hashlib.sha256(content).digest(),
            content=content,
        )
        for item in log.store.list(STAGED):
            staged = parse_staged_name(item.path.rpartition("/")[2])
            if staged is None or (staged.version, item.size) != (commit.version, len(content)):
                continue
            if log.read(item.path) == content:
                return part._replace(
                    way=Way.STAGED,
                    file_name=staged.name,
                    modified_ms=item.modified_ms,
                    content=None,
                )
        return part


def _with_dependencies(
    table_ids: set[TableId], chains: dict[TableId, list[_MissingCommit]]
) -> list[_MissingCommit]:
    """Return the commits of tables, and all that must be ratified before or with one of them.

    They are in the order in which they can be ratified.
    """
    upto = {
        table_id: chain[-1].version if table_id in table_ids and chain else Version(-1)
        for table_id, chain in chains.items()
    }
    commits = [commit for chain in chains.values() for commit in chain]
    while True:
        needed = {c.order for c in commits if c.version <= upto[c.table.row.id]}
        chosen = [c for c in commits if c.order in needed]
        further = upto | {c.table.row.id: c.version for c in chosen}  # the last of each chain
        if further == upto:
            return sorted(chosen, key=lambda commit: commit.order)
        upto = further
