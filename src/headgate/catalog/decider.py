"""Decide proposals on kept heads, and collect what the decisions change for one batch.

`protocol.commit.decide` decides. Everything that needs storage or takes long was done before. The
batch is written if nothing changed since the heads were read, so no cache decides who wins.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, assert_never

from cachetools import LRUCache

from headgate.api.messages import Answer, Ratified, RatifiedCommit, Rejected, VersionTaken
from headgate.catalog.heads import Heads, KnownTable, Premise, as_winner, load_winners
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import (
    Batch,
    CatalogClock,
    CommitRow,
    Epoch,
    Publication,
    RejectionRow,
    TableRow,
)
from headgate.catalog.stores.writer import WriteUnit
from headgate.clock import Clock
from headgate.errors import InvalidCommitError
from headgate.names import TableName
from headgate.protocol import features
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit import decide as pure
from headgate.protocol.commit.conflicts import Changes, Conflict, Winner
from headgate.protocol.commit.decide import Need, NeedWinners, NextCommit
from headgate.protocol.commit.examination import Violation, reported
from headgate.protocol.commit.facts import (
    Closed,
    ExaminedProposal,
    Facts,
    Gathered,
    Head,
    Ratification,
    RatifiedPart,
    Rejection,
    Rules,
    Turn,
)
from headgate.protocol.encoding import from_json, replaced, to_json
from headgate.protocol.log.timestamps import DRIFT_MS, MAX_AHEAD_MS
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


class Postponed(enum.Enum):
    """Returned instead of an answer: decide the proposal again with a later batch."""

    POSTPONED = enum.auto()


POSTPONED: Final = Postponed.POSTPONED


class Behind(NamedTuple):
    """The commits of a table that a client whose version was taken is sent."""

    key: int
    first: Version
    last: Version


class Decided(NamedTuple):
    """An answer, what is still to be added to it, and the tables as it left them."""

    answer: Answer
    tables: Mapping[TableId, TableRow]
    behind: Mapping[TableId, Behind] = {}


class Draft:
    """What the decisions of one batch change, on top of heads as of one epoch.

    With `unit`, everything is read in that unit, whose locks keep it current. Without, the store
    is read, and `is_stale` says that the epoch was another one: then the draft is worthless.
    """

    def __init__(
        self, heads: Heads, store: CatalogStore | None = None, unit: ReadUnit | None = None
    ) -> None:
        self.heads = heads
        self.clock = heads.clock
        self.is_stale = False
        # A decision that writes nothing was made on these heads: they have to be the latest.
        self.relies_on_heads = False
        self.decided: set[TxnId] = set()
        self._store = store
        self._unit = unit
        self._clocks: list[tuple[CatalogClock, TxnId]] = []
        self._commits: dict[TableId, list[tuple[CommitRow, Changes]]] = {}
        self._tables: dict[TableId, KnownTable] = {}
        self._changed: set[TableId] = set()  # those with changes that decisions made
        self._rejections: list[RejectionRow] = []
        self._published: list[Publication] = []
        # Keys without an outcome: if one has an outcome after all, all is decided again.
        self.undecided: set[TxnId] = set()

    @contextmanager
    def reading(self) -> Iterator[ReadUnit]:
        """Read the store as of the heads' epoch."""
        if self._unit is not None:
            yield self._unit
            return
        assert self._store is not None  # one of both is given
        with self._store.read() as unit:
            self.is_stale = self.is_stale or unit.epoch() != self.heads.epoch
            yield unit

    def table(self, table_id: TableId) -> KnownTable | None:
        return self._tables.get(table_id) or self.heads.table(table_id)

    def holds(self, premise: Premise) -> bool:
        """Return whether a table is still as its proposer described it."""
        table = self.table(premise.table_id)
        return (
            table is not None
            and table.name == premise.name
            and table.row.diverged is None
            and table.row.metadata_version == premise.metadata_version
        )

    def row(self, table_id: TableId) -> TableRow:
        """Return a table that a decision was about."""
        table = self.table(table_id)
        assert table is not None  # its head was a fact
        return table.row

    def change(self, row: TableRow, head: Head | Closed | None = None) -> None:
        """Change what decisions change of a table."""
        known = self.table(row.id)
        assert known is not None  # its head was a fact
        self._changed.add(row.id)
        self._tables[row.id] = known.after(row, head)

    def ratify(self, clock: CatalogClock, txn_id: TxnId) -> None:
        self.clock = clock
        self._clocks.append((clock, txn_id))
        self.decided.add(txn_id)

    def add_commit(self, table_id: TableId, row: CommitRow, changes: Changes) -> None:
        self._commits.setdefault(table_id, []).append((row, changes))

    def reject(self, row: RejectionRow) -> None:
        self._rejections.append(row)
        self.decided.add(row.txn_id)

    def publish(self, table_id: TableId, publication: Publication) -> None:
        """Record that versions of a table are in its log."""
        self._published.append(publication)
        table = self.table(table_id)
        if table is not None and table.row.published < publication.last:
            self._tables[table_id] = table.after(table.row._replace(published=publication.last))

    def winners(self, table_id: TableId, after: Version) -> tuple[Winner, ...]:
        """Return the commits of a table after a version, with those of this draft."""
        found = self.heads.winners(table_id, after)
        if found is None:
            known = self.heads.table(table_id)
            assert known is not None  # its head was a fact
            with self.reading() as unit:
                found = load_winners(unit, known.row, after)
        drafted = (as_winner(*commit) for commit in self._commits.get(table_id, ()))
        return (*found, *(winner for winner in drafted if winner.version > after))

    def batch(self) -> Batch:
        return Batch(
            clocks=self._clocks,
            commits=[
                (self.row(table_id).key, row)
                for table_id, commits in self._commits.items()
                for row, _ in commits
            ],
            tables=[self._tables[table_id].row for table_id in self._changed],
            rejections=self._rejections,
            published=self._published,
            undecided=self.undecided,
        )

    @property
    def is_empty(self) -> bool:
        return not (self._clocks or self._changed or self._rejections or self._published)

    def keep(self, epoch: Epoch) -> None:
        """Take the draft over into the heads, after it was written."""
        self.heads.advance(epoch, self.clock, self._tables, self._commits)
        self.heads.decided.update(dict.fromkeys(self.decided))


class Decider:
    """Decides proposals, one at a time."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._settings = settings
        self._rules = rules_of(settings)
        self._lost: LRUCache[TxnId, int] = LRUCache(10_000)  # versions lost in a row
        self._losing = threading.Lock()

    def decide(
        self, draft: Draft, proposal: ExaminedProposal, gathered: Gathered
    ) -> Decided | Need | Postponed:
        """Ratify every part of a proposal, or none and return what stands in the way.

        A need is returned if it has to be satisfied by the caller. Raises what refuses the
        proposal without a record. Spec: MT-01.
        """
        if proposal.txn_id in draft.decided:  # its first answer is not durable yet
            return POSTPONED
        facts = self._facts(draft, proposal, gathered)
        while True:
            match decision := pure.decide(facts, proposal, self._rules):
                case NeedWinners(after):
                    if any(
                        facts.tables[table_id].version - version > FAR_BEHIND
                        for table_id, version in after.items()
                    ):
                        draft.relies_on_heads = True
                        return decision
                    loaded = {id: draft.winners(id, version) for id, version in after.items()}
                    facts = facts._replace(winners={**facts.winners, **loaded})
                case pure.NeedReplaced() | pure.NeedPublishing():
                    draft.relies_on_heads = True
                    return decision
                case pure.NeedTurn():
                    draft.relies_on_heads = True
                    return POSTPONED
                case pure.Replay():
                    with draft.reading() as unit:
                        answer = recorded_answer(unit, proposal.txn_id)
                    assert answer is not None  # else there was nothing to replay
                    return _decided(draft, proposal, answer)
                case pure.Refuse(error):
                    draft.relies_on_heads = True
                    raise error
                case pure.Reject(found, violations):
                    return self._reject(draft, proposal, facts, found, violations)
                case pure.Restage(turn):
                    return self._restage(draft, proposal, facts, turn)
                case pure.Ratify():
                    return self._ratify(draft, proposal, facts, decision)
                case unreachable:
                    assert_never(unreachable)

    def adopt(self, unit: WriteUnit, proposal: ExaminedProposal) -> Ratified:
        """Ratify commits that are in the logs already, unless they cannot be the next versions."""
        draft = self._draft_in(unit, proposal)
        facts = self._facts(draft, proposal, Gathered())
        match decision := pure.adopt(facts, proposal, self._rules):
            case pure.Ratify():
                answer = self._ratify(draft, proposal, facts, decision).answer
                assert isinstance(answer, Ratified)
                unit.write_batch(draft.batch())
                return answer
            case pure.Reject(_, violations):
                raise InvalidCommitError(proposal.parts[0].table_id, reported(violations))
            case pure.Refuse(error):
                raise error
            case unreachable:
                assert_never(unreachable)

    def compare(self, unit: ReadUnit, proposal: ExaminedProposal, gathered: Gathered) -> Gathered:
        """Compare a proposal with all winners so far, before it is decided."""
        draft = self._draft_in(unit, proposal)
        facts = self._facts(draft, proposal, gathered)
        after = pure.missing_winners(facts, proposal)
        winners = {
            table_id: draft.winners(table_id, version) for table_id, version in after.items()
        }
        facts = facts._replace(winners=winners)
        compared = {table_id: facts.tables[table_id].version for table_id in after}
        return gathered._replace(
            compared={**gathered.compared, **compared},
            conflicts=tuple(pure.compare(facts, proposal)),
        )

    def refuse(self, unit: WriteUnit, txn_id: TxnId, violation: Violation) -> Answer:
        """Record that a proposal was rejected before its content could be parsed."""
        recorded = recorded_answer(unit, txn_id)
        if recorded is not None:
            return recorded
        proposal = ExaminedProposal(txn_id, (), 0)
        draft = self._draft_in(unit, proposal)
        facts = self._facts(draft, proposal, Gathered())
        rejected = self._reject(draft, proposal, facts, (), (violation,))
        unit.write_batch(draft.batch())
        return rejected.answer

    def loses(self, txn_id: TxnId) -> bool:
        """Count that a proposal found its version taken, without deciding it.

        Returns False, and counts nothing, if it lost so often that it is to get a turn.
        """
        with self._losing:
            lost = self._lost.get(txn_id, 0) + 1
            if lost >= self._rules.turn_after:
                return False
            self._lost[txn_id] = lost
            return True

    def _draft_in(self, unit: ReadUnit, proposal: ExaminedProposal) -> Draft:
        """Begin a draft on heads that are read in a unit."""
        heads = Heads()
        heads.load(unit, set(pure.concerned(proposal)))
        heads.decided.update(dict.fromkeys(unit.decided(keys_of(proposal))))
        return Draft(heads, unit=unit)

    def _facts(self, draft: Draft, proposal: ExaminedProposal, gathered: Gathered) -> Facts:
        """Return what deciding a proposal depends on, but for its winners."""
        tables: dict[TableId, Head | Closed] = {}
        for table_id in pure.concerned(proposal):
            table = draft.table(table_id)
            if table is not None:
                tables[table_id] = table.head
        recorded, abandoned = None, list[str]()
        keys = keys_of(proposal)
        if any(key in draft.heads.decided for key in keys):
            with draft.reading() as unit:
                recorded = _recorded(unit, proposal.txn_id)
                abandoned = _abandoned(unit, proposal)
        else:
            draft.undecided.update(keys)
        names: dict[str, TableId | None] = {}
        if proposal.names:
            with draft.reading() as unit:
                names = {name: unit.table_id_of(TableName.parse(name)) for name in proposal.names}
        with self._losing:
            lost = self._lost.get(proposal.txn_id, 0)
        return Facts(
            now_ms=self._clock.now_ms(),
            sequence=draft.clock.sequence,
            clock_ms=draft.clock.clock_ms,
            recorded=recorded,
            tables=tables,
            names=names,
            abandoned=abandoned,
            lost=lost,
            gathered=gathered,
        )

    def _ratify(
        self, draft: Draft, proposal: ExaminedProposal, facts: Facts, decision: pure.Ratify
    ) -> Decided:
        """Write every part at the head of its table, and take the next sequence. Spec: MT-16."""
        commits: dict[TableId, RatifiedCommit] = {}
        for commit in decision.commits:
            row = draft.row(commit.part.table_id)
            recorded = _commit_row(commit, proposal, decision, facts.now_ms)
            draft.add_commit(row.id, recorded, commit.changes)
            draft.change(_row_after(row, commit), commit.after)
            commits[row.id] = _as_answered(recorded)
        draft.ratify(CatalogClock(decision.sequence, decision.clock_ms), proposal.txn_id)
        with self._losing:
            self._lost.pop(proposal.txn_id, None)
        answer = Ratified(
            txn_id=proposal.txn_id,
            sequence=decision.sequence,
            timestamp_ms=decision.timestamp_ms,
            commits=commits,
        )
        return _decided(draft, proposal, answer)

    def _reject(
        self,
        draft: Draft,
        proposal: ExaminedProposal,
        facts: Facts,
        found: tuple[Conflict, ...],
        violations: tuple[Violation, ...],
    ) -> Decided:
        txn_id = proposal.txn_id
        answer = Rejected(
            txn_id=txn_id, conflicts=found[:_CONFLICTS_REPORTED], violations=reported(violations)
        )
        row = RejectionRow(txn_id, proposal.intent, to_json(answer), facts.now_ms)
        for part in proposal.parts:
            table = draft.table(part.table_id)
            if table is not None and table.row.ticket == txn_id:  # it needs its turn no longer
                draft.change(table.row._replace(ticket=None, ticket_until_ms=0))
        draft.reject(row)
        # The winners are not kept with the answer: they have rows of their own.
        return _decided(draft, proposal, answer, are_winners_sent=bool(found))

    def _restage(
        self, draft: Draft, proposal: ExaminedProposal, facts: Facts, turn: Turn | None
    ) -> Decided:
        txn_id = proposal.txn_id
        with self._losing:
            self._lost[txn_id] = facts.lost + 1
        if turn is None:
            draft.relies_on_heads = True
        else:  # it lost too often in a row: the others wait for it, for a moment
            for part in proposal.parts:
                row = draft.row(part.table_id)
                draft.change(row._replace(ticket=txn_id, ticket_until_ms=turn.until_ms))
        answer = VersionTaken(
            txn_id=txn_id,
            latest={table_id: table.version for table_id, table in facts.tables.items()},
        )
        return _decided(draft, proposal, answer, are_winners_sent=not proposal.by_version)


def _decided(
    draft: Draft, proposal: ExaminedProposal, answer: Answer, *, are_winners_sent: bool = False
) -> Decided:
    tables: dict[TableId, TableRow] = {}
    behind: dict[TableId, Behind] = {}
    for part in proposal.parts:
        table = draft.table(part.table_id)
        if table is None:
            continue
        row = tables[part.table_id] = table.row
        if are_winners_sent and 0 <= row.head - part.version < _WINNERS_SENT:
            behind[part.table_id] = Behind(row.key, part.version, row.head)
    return Decided(answer, tables, behind)


def with_winners(unit: ReadUnit, decided: Decided) -> Decided:
    """Add the winners to an answer, as far as they fit; its client asks for others."""
    winners: dict[TableId, tuple[RatifiedCommit, ...]] = {}
    room = _WINNERS_BYTES
    for table_id, (key, first, last) in decided.behind.items():
        if room <= 0 or unit.content_bytes(key, first, last) > room:
            continue
        sent = unit.commits(key, first, last, content=True)
        room -= sum(len(commit.content or b"") for commit in sent)
        winners[table_id] = tuple(map(as_commit, sent))
    answer = decided.answer
    assert not isinstance(answer, Ratified)  # it has no winners
    return decided._replace(answer=replaced(answer, winners=winners), behind={})


def _recorded(unit: ReadUnit, txn_id: TxnId) -> Ratification | Rejection | None:
    ratified = unit.transaction_commits(txn_id)
    if ratified:
        return Ratification(
            {id: RatifiedPart(row.intent, row.version, row.file_name) for id, row in ratified}
        )
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


def _row_after(row: TableRow, commit: NextCommit) -> TableRow:
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
