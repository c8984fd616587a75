"""Load what deciding a proposal depends on, and carry the decision out, in one unit of work.

`protocol.commit.decide` decides. Everything that needs storage or takes long was done before, so
the unit is short. The store's constraints guard who wins a version; no cache decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import assert_never

from cachetools import LRUCache

from headgate.api.messages import Answer, Ratified, RatifiedCommit, Rejected, VersionTaken
from headgate.catalog.ratifier import LATER, Later
from headgate.catalog.stores.port import (
    CatalogClock,
    CommitRow,
    ReadUnit,
    RejectionRow,
    TableRow,
    WriteUnit,
)
from headgate.clock import Clock
from headgate.errors import InvalidCommitError
from headgate.protocol import features
from headgate.protocol.actions import DomainMetadata, Metadata, Protocol, TableId, TxnId, Version
from headgate.protocol.commit import decide as pure
from headgate.protocol.commit.conflicts import Changes, Conflict, Winner
from headgate.protocol.commit.decide import Need, NeedWinners, NextCommit
from headgate.protocol.commit.examination import Violation
from headgate.protocol.commit.facts import (
    Closed,
    ExaminedProposal,
    Facts,
    Gathered,
    Head,
    Ratification,
    Rejection,
    Rules,
    Turn,
)
from headgate.protocol.encoding import from_json, to_json
from headgate.protocol.log.checksums import FileTotals
from headgate.protocol.log.timestamps import DRIFT_MS, MAX_AHEAD_MS
from headgate.protocol.table_states import TableKind, TableStatus
from headgate.settings import Settings

FAR_BEHIND = 64  # winners above which they are compared outside of the unit first
_CONFLICTS_REPORTED = 100
# Stands in place of an intent, which is a hash: the rejection of a file, not of a transaction.
ABANDONED = b"given up"
_WINNERS_SENT = 1_000  # a client that is further behind reads the table again
_WINNERS_BYTES = 1 << 20  # of content; a batch may have to answer hundreds of proposals so


def rules_of(settings: Settings) -> Rules:
    """Return the settings that deciding depends on."""
    required = features.with_requirements(features.named(settings.required_features))
    return Rules(
        rejections_kept_ms=settings.rejections_kept_ms,
        max_ahead_ms=MAX_AHEAD_MS,
        drift_ms=DRIFT_MS,
        turn_after=settings.ticket_after,
        turn_ms=settings.ticket_ms,
        backlog_soft=settings.unpublished_soft,
        backlog_hard=settings.unpublished_hard,
        required=tuple(required),
    )


class Decider:
    """Decides proposals, one at a time, each in the unit of work it is given."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._settings = settings
        self._rules = rules_of(settings)
        self._lost: LRUCache[TxnId, int] = LRUCache(10_000)  # versions lost in a row

    def decide(
        self, unit: WriteUnit, proposal: ExaminedProposal, gathered: Gathered
    ) -> Answer | Need | Later:
        """Ratify every part of a proposal, or none and return what stands in the way.

        A need is returned if it has to be satisfied outside of the unit. Raises what refuses the
        proposal without a record. Spec: MT-01.
        """
        facts = self.facts(unit, proposal, gathered)
        while True:
            match decision := pure.decide(facts, proposal, self._rules):
                case NeedWinners(after):
                    if any(
                        facts.tables[table_id].version - version > FAR_BEHIND
                        for table_id, version in after.items()
                    ):
                        return decision
                    loaded = load_winners(unit, after)
                    facts = facts._replace(winners={**facts.winners, **loaded})
                case pure.NeedReplaced() | pure.NeedPublishing():
                    return decision
                case pure.NeedTurn():
                    return LATER
                case pure.Replay():
                    answer = recorded_answer(unit, proposal.txn_id)
                    assert answer is not None  # else there was nothing to replay
                    return answer
                case pure.Refuse(error):
                    raise error
                case pure.Reject(found, violations):
                    return self._reject(unit, proposal, facts, found, violations)
                case pure.Restage(turn):
                    return self._restage(unit, proposal, facts, turn)
                case pure.Ratify():
                    return self._ratify(unit, proposal, facts, decision)
                case unreachable:
                    assert_never(unreachable)

    def adopt(self, unit: WriteUnit, proposal: ExaminedProposal) -> Ratified:
        """Ratify commits that are in the logs already, unless they cannot be the next versions."""
        facts = self.facts(unit, proposal, Gathered())
        match decision := pure.adopt(facts, proposal, self._rules):
            case pure.Ratify():
                return self._ratify(unit, proposal, facts, decision)
            case pure.Reject(_, violations):
                raise InvalidCommitError(proposal.parts[0].table_id, violations)
            case pure.Refuse(error):
                raise error
            case unreachable:
                assert_never(unreachable)

    def compare(self, unit: ReadUnit, proposal: ExaminedProposal, gathered: Gathered) -> Gathered:
        """Compare a proposal with all winners so far, outside of the unit that will decide it."""
        facts = self.facts(unit, proposal, gathered)
        after = pure.missing_winners(facts, proposal)
        facts = facts._replace(winners=load_winners(unit, after))
        compared = {table_id: facts.tables[table_id].version for table_id in after}
        return gathered._replace(
            compared={**gathered.compared, **compared},
            conflicts=tuple(pure.compare(facts, proposal)),
        )

    def refuse(self, unit: WriteUnit, txn_id: TxnId, violation: Violation) -> Answer:
        """Record that a proposal was rejected before its content could be parsed."""
        answer = recorded_answer(unit, txn_id)
        if answer is not None:
            return answer
        proposal = ExaminedProposal(txn_id, (), 0)
        facts = self.facts(unit, proposal, Gathered())
        return self._reject(unit, proposal, facts, (), (violation,))

    def loses(self, txn_id: TxnId) -> bool:
        """Count that a proposal found its version taken, without a unit of work.

        Returns False, and counts nothing, if it lost so often that it is to get a turn.
        """
        lost = self._lost.get(txn_id, 0) + 1
        if lost >= self._rules.turn_after:
            return False
        self._lost[txn_id] = lost
        return True

    def facts(self, unit: ReadUnit, proposal: ExaminedProposal, gathered: Gathered) -> Facts:
        """Load what deciding a proposal depends on, but for its winners."""
        clock = unit.clock()
        tables: dict[TableId, Head | Closed] = {}
        for table_id in pure.concerned(proposal):
            row = unit.table(table_id)
            if row is not None:
                tables[table_id] = head_of(row)
        return Facts(
            now_ms=self._clock.now_ms(),
            sequence=clock.sequence,
            clock_ms=clock.clock_ms,
            recorded=_recorded(unit, proposal.txn_id),
            tables=tables,
            abandoned=_abandoned(unit, proposal),
            lost=self._lost.get(proposal.txn_id, 0),
            gathered=gathered,
        )

    def _ratify(
        self, unit: WriteUnit, proposal: ExaminedProposal, facts: Facts, decision: pure.Ratify
    ) -> Ratified:
        """Write every part at the head of its table, and take the next sequence. Spec: MT-16."""
        commits: dict[TableId, RatifiedCommit] = {}
        for commit in decision.commits:
            row = unit.table(commit.part.table_id)
            assert row is not None  # its head was loaded in this unit
            recorded = _commit_row(commit, proposal, decision, facts.now_ms)
            unit.insert_commit(row.key, recorded)
            unit.update_table(_with_head(row, commit))
            commits[row.id] = _as_answered(recorded)
        unit.advance_clock(CatalogClock(decision.sequence, decision.clock_ms), proposal.txn_id)
        self._lost.pop(proposal.txn_id, None)
        return Ratified(
            txn_id=proposal.txn_id,
            sequence=decision.sequence,
            timestamp_ms=decision.timestamp_ms,
            commits=commits,
        )

    def _reject(
        self,
        unit: WriteUnit,
        proposal: ExaminedProposal,
        facts: Facts,
        found: tuple[Conflict, ...],
        violations: tuple[Violation, ...],
    ) -> Rejected:
        txn_id = proposal.txn_id
        kept = Rejected(txn_id=txn_id, conflicts=found[:_CONFLICTS_REPORTED], violations=violations)
        unit.insert_rejection(RejectionRow(txn_id, proposal.intent, to_json(kept), facts.now_ms))
        unit.delete_rejections(facts.now_ms - self._settings.rejections_kept_ms)
        for part in proposal.parts:
            row = unit.table(part.table_id)
            if row is not None and row.ticket == txn_id:  # it needs its turn no longer
                unit.update_table(row._replace(ticket=None, ticket_until_ms=0))
        if not found:
            return kept
        # The winners are not kept with the answer: they have rows of their own.
        return Rejected(
            txn_id=txn_id,
            conflicts=kept.conflicts,
            winners=self._winners(unit, proposal, facts),
        )

    def _restage(
        self, unit: WriteUnit, proposal: ExaminedProposal, facts: Facts, turn: Turn | None
    ) -> VersionTaken:
        txn_id = proposal.txn_id
        self._lost[txn_id] = facts.lost + 1
        if turn is not None:  # it lost too often in a row: the others wait for it, for a moment
            for part in proposal.parts:
                row = unit.table(part.table_id)
                assert row is not None  # its head was loaded in this unit
                unit.update_table(row._replace(ticket=txn_id, ticket_until_ms=turn.until_ms))
        return VersionTaken(
            txn_id=txn_id,
            latest={table_id: table.version for table_id, table in facts.tables.items()},
            winners=self._winners(unit, proposal, facts),
        )

    def _winners(
        self, unit: ReadUnit, proposal: ExaminedProposal, facts: Facts
    ) -> dict[TableId, tuple[RatifiedCommit, ...]]:
        winners: dict[TableId, tuple[RatifiedCommit, ...]] = {}
        room = _WINNERS_BYTES
        for part in proposal.parts:
            table, first = facts.tables.get(part.table_id), part.version
            behind = -1 if table is None else table.version - first
            if table is None or not 0 <= behind < _WINNERS_SENT or room <= 0:
                continue  # the client asks for them
            row = unit.table(part.table_id)
            assert row is not None  # its head was loaded in this unit
            if unit.content_bytes(row.key, first, row.head) > room:
                continue
            sent = unit.commits(row.key, first, row.head, content=True)
            room -= sum(len(commit.content or b"") for commit in sent)
            winners[row.id] = tuple(map(as_commit, sent))
        return winners


# Rows as facts


@lru_cache(1_000)
def parsed(protocol: bytes, metadata: bytes) -> tuple[Protocol, Metadata]:
    """Parse a table's protocol and metadata, which seldom change."""
    return from_json(protocol, Protocol), from_json(metadata, Metadata)


def protocol_and_metadata(row: TableRow) -> tuple[Protocol, Metadata]:
    """Return a table's protocol and metadata."""
    return parsed(row.protocol, row.metadata)


def domains_of(row: TableRow) -> tuple[DomainMetadata, ...]:
    """Return a table's metadata domains."""
    return from_json(row.domains, tuple[DomainMetadata, ...])


def head_of(row: TableRow) -> Head | Closed:
    """Return a table's row as deciding sees it."""
    if row.state is not TableStatus.ACTIVE or row.kind is TableKind.EXTERNAL:
        return Closed(row.id, row.kind, row.state, row.head)
    protocol, metadata = protocol_and_metadata(row)
    files = None
    if row.num_files is not None and row.size_bytes is not None:
        files = FileTotals(row.num_files, row.size_bytes)
    return Head(
        table_id=row.id,
        version=row.head,
        timestamp_ms=row.timestamp_ms,
        published=row.published,
        protocol=protocol,
        metadata=metadata,
        metadata_version=row.metadata_version,
        domains=domains_of(row),
        row_id_high_water=row.row_id_high_water,
        files=files,
        turn=None if row.ticket is None else Turn(row.ticket, row.ticket_until_ms),
    )


def load_winners(
    unit: ReadUnit, after: Mapping[TableId, Version]
) -> dict[TableId, tuple[Winner, ...]]:
    """Load what the commits after some versions changed."""
    winners: dict[TableId, tuple[Winner, ...]] = {}
    for table_id, version in after.items():
        row = unit.table(table_id)
        assert row is not None  # its head was loaded in this unit
        first = Version(version + 1)
        winners[table_id] = tuple(
            Winner(
                version=commit.version,
                txn_id=commit.txn_id,
                sequence=commit.sequence,
                changes=from_json(commit.summary or b"{}", Changes),
            )
            for commit in unit.commits(row.key, first, row.head, content=False, summary=True)
        )
    return winners


def _recorded(unit: ReadUnit, txn_id: TxnId) -> Ratification | Rejection | None:
    ratified = unit.transaction_commits(txn_id)
    if ratified:
        return Ratification({table_id: row.intent for table_id, row in ratified})
    rejection = unit.rejection(txn_id)
    return None if rejection is None else Rejection(rejection.intent)


def _abandoned(unit: ReadUnit, proposal: ExaminedProposal) -> list[str]:
    """Return the staged files that were given up: they may be deleted at any moment."""
    names: list[str] = []
    for part in proposal.parts:
        if part.file_name is not None:
            rejection = unit.rejection(file_key(part.table_id, part.file_name))
            if rejection is not None and rejection.intent == ABANDONED:
                names.append(part.file_name)
    return names


# Decisions as rows


def _with_head(row: TableRow, commit: NextCommit) -> TableRow:
    before, after = commit.before, commit.after
    files = after.files
    return row._replace(
        head=after.version,
        timestamp_ms=after.timestamp_ms,
        protocol=row.protocol if after.protocol is before.protocol else to_json(after.protocol),
        metadata=row.metadata if after.metadata is before.metadata else to_json(after.metadata),
        metadata_version=after.metadata_version,
        domains=row.domains if after.domains is before.domains else to_json(after.domains),
        row_id_high_water=after.row_id_high_water,
        num_files=None if files is None else files.num_files,
        size_bytes=None if files is None else files.size_bytes,
        ticket=None,
        ticket_until_ms=0,
    )


def _commit_row(
    commit: NextCommit, proposal: ExaminedProposal, decision: pure.Ratify, now_ms: int
) -> CommitRow:
    part = commit.part
    return CommitRow(
        version=commit.after.version,
        sequence=decision.sequence,
        timestamp_ms=decision.timestamp_ms,
        txn_id=proposal.txn_id,
        way=part.way,
        file_name=part.file_name,
        size=commit.size,
        sha256=commit.sha256,
        modified_ms=part.modified_ms,
        intent=bytes.fromhex(part.examined.intent),
        proposed_ms=proposal.proposed_ms,
        ratified_ms=now_ms,
        published_ms=None,
        summary=to_json(commit.changes),
        content=commit.content,
    )


# Answers


def recorded_answer(unit: ReadUnit, txn_id: TxnId) -> Ratified | Rejected | None:
    """Return the answer that a transaction got; None if it was never decided."""
    found = unit.transaction_commits(txn_id)
    if found:
        rows = dict(found)
        some = next(iter(rows.values()))
        return Ratified(
            txn_id=txn_id,
            sequence=some.sequence,
            timestamp_ms=some.timestamp_ms,
            commits={table_id: _as_answered(row) for table_id, row in rows.items()},
        )
    rejection = unit.rejection(txn_id)
    return None if rejection is None else from_json(rejection.answer, Rejected)


def file_key(table_id: TableId, file_name: str) -> TxnId:
    """Return the key of a staged file's rejection, among those of transactions."""
    return TxnId(f"{table_id}/{file_name}")


def keys_of(proposal: ExaminedProposal) -> list[TxnId]:
    """List the keys under which a proposal may have been decided before."""
    staged = [
        file_key(part.table_id, part.file_name)
        for part in proposal.parts
        if part.file_name is not None
    ]
    return [proposal.txn_id, *staged]


def as_commit(row: CommitRow) -> RatifiedCommit:
    """Convert a commit's row."""
    return RatifiedCommit(
        version=row.version,
        way=row.way,
        txn_id=row.txn_id,
        sequence=row.sequence,
        timestamp_ms=row.timestamp_ms,
        size=row.size,
        sha256=row.sha256.hex(),
        file_name=row.file_name,
        modified_ms=row.modified_ms,
        content=row.content,
        published_ms=row.published_ms,
    )


def _as_answered(row: CommitRow) -> RatifiedCommit:
    """Convert a commit's row for its proposer, which has the bytes of a staged file already."""
    return as_commit(row if row.file_name is None else row._replace(content=None))
