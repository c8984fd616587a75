"""Deciding a proposal inside a unit of work: it wins, it conflicts, or it comes again.

Everything that needs storage or takes long was done before (`Pending`); here only rows are read
and written, so the step is short and always ends. Who wins a version is read inside the unit and
guarded by the store's constraints: no cache decides. Spec: CM-10, CM-11, MT-01.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, assert_never
from uuid import UUID

from headgate.api.messages import (
    Answer,
    Part,
    Proposal,
    Ratified,
    RatifiedCommit,
    Rejected,
    VersionTaken,
)
from headgate.api.table_states import TableKind, TableStatus
from headgate.catalog.ratifier import WaitError
from headgate.catalog.stores.port import (
    CatalogClock,
    CommitRow,
    ReadUnit,
    RejectionRow,
    TableRow,
    WriteUnit,
)
from headgate.clock import Clock
from headgate.errors import (
    InvalidArgumentError,
    InvalidCommitError,
    NotFoundError,
    TransactionExpiredError,
    TxnIdReusedError,
    UnavailableError,
)
from headgate.protocol import features
from headgate.protocol.actions import (
    DomainMetadata,
    Metadata,
    Protocol,
    Sequence,
    TableId,
    TxnId,
    Unknown,
    Version,
)
from headgate.protocol.commit import admission, conflicts, inline_content, row_ids
from headgate.protocol.commit.admission import Facts
from headgate.protocol.commit.conflicts import Changes, Conflict, Scan
from headgate.protocol.commit.content import Inline, Put, Staged, Way
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.encoding import from_json, replaced, to_json
from headgate.protocol.log import checksums, timestamps
from headgate.protocol.log.checksums import Files
from headgate.protocol.schema import types as schemas
from headgate.settings import Settings

_USUAL = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_WAYS = {Inline: Way.INLINE, Staged: Way.STAGED, Put: Way.PUT_IF_ABSENT}
_FAR_BEHIND = 64  # winners above which conflicts are looked for outside the lock first
# What depends on the moment, the settings or the files of the past: it was judged when it was
# ratified first.
_JUDGED_BEFORE = frozenset(
    {admission.PARTITIONING_CHANGED, admission.TIMESTAMP_AHEAD, admission.REQUIRED_OFF}
)
_CONFLICTS_TOLD = 100
# Stands in place of an intent, which is a hash: a rejection of a file and of no transaction.
GIVEN_UP = b"given up"
_WINNERS_SENT = 1_000  # a client that is further behind reads the table anew
_FEW_WINNERS = 16  # they are sent without asking for their sizes first
_WINNERS_BYTES = 1 << 20  # of content; a batch may have to answer hundreds of proposals so


class NotYetError(Exception):
    """Something must be done outside of any lock before this can be decided."""


class BacklogError(NotYetError):
    """So much of a table is unpublished that its writers must wait."""

    def __init__(self, row: TableRow) -> None:
        super().__init__(row.id)
        self.row = row


class FarBehindError(NotYetError):
    """So many winners that they are to be looked at before the lock is taken."""


class FilesToSeeError(NotYetError):
    """The partitioning changes: whether every old file goes was not looked at."""


# No dataclasses: every commit makes one of each, and a frozen one takes several times as long.
class Attempt(NamedTuple):
    """One part of a proposal with its content understood."""

    part: Part
    examined: Examined
    size: int = 0  # of content that is a file already, with its hash and time
    sha256: bytes = b""
    modified_ms: int | None = None
    kept: bytes | None = None  # its bytes, where the file itself may not outlive a power loss


class Pending(NamedTuple):
    """A proposal ready to be decided."""

    proposal: Proposal
    attempts: tuple[Attempt, ...]
    proposed_ms: int
    # Winners up to these versions were held against it already, outside of any lock.
    checked: Mapping[TableId, Version] = MappingProxyType({})
    # Tables whose old files all go with this proposal, so that it may partition them anew; None
    # when nobody looked.
    replaced: frozenset[TableId] | None = frozenset()
    is_held_back: bool = False  # waiting for the publisher was in vain
    # Nothing but a taken version stands in its way: who sent it looks for conflicts itself.
    by_version_alone: bool = False
    found: tuple[Conflict, ...] = ()  # outside of any lock: final, since winners only grow

    @property
    def intent(self) -> bytes:
        """What the whole proposal wants, whatever versions it gets."""
        digest = hashlib.sha256()
        for attempt in sorted(self.attempts, key=lambda attempt: attempt.part.table_id):
            digest.update(attempt.part.table_id.encode())
            digest.update(attempt.examined.intent.encode())
        return digest.digest()


class Decider:
    """Decides proposals, one at a time, each in the unit of work it is given."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._settings = settings
        self._required = features.with_requirements(features.named(settings.required_features))
        self._taken: OrderedDict[TxnId, int] = OrderedDict()
        self._understood: OrderedDict[tuple[bytes, bytes], tuple[Protocol, Metadata]]
        self._understood = OrderedDict()

    def decide(self, unit: WriteUnit, pending: Pending) -> Answer:
        """Ratify every part, or none and say what stood in the way. Spec: MT-01."""
        proposal = pending.proposal
        first = first_answer(unit, pending)
        if first is not None:
            return first
        now_ms = self._clock.now_ms()
        self._refuse_if_ancient(proposal.txn_id, now_ms)
        if gone := self._gone(unit, pending):
            answer = Rejected(txn_id=proposal.txn_id, conflicts=tuple(gone))
            return self._reject(unit, pending, answer, now_ms)
        rows = self._rows(unit, pending, now_ms)
        if found := pending.found or self._conflicts(unit, pending, rows):
            answer = Rejected(
                txn_id=proposal.txn_id,
                conflicts=tuple(found[:_CONFLICTS_TOLD]),
                winners=self._winners(unit, pending, rows),
            )
            return self._reject(unit, pending, answer, now_ms)
        if self._must_come_again(pending, rows):
            return self._taken_answer(unit, pending, rows, now_ms)
        broken = [*self._given_up(unit, pending), *self._violations(pending, rows, now_ms)]
        if broken:
            answer = Rejected(txn_id=proposal.txn_id, violations=tuple(broken))
            return self._reject(unit, pending, answer, now_ms)
        return self._ratify(unit, pending, rows, now_ms)

    def adopt(self, unit: WriteUnit, pending: Pending) -> Ratified:
        """Ratify what stands in the log as the next version, unless it cannot be that."""
        rows = self.rows(unit, pending)
        now_ms = self._clock.now_ms()
        broken = [
            violation
            for violation in self._violations(pending, rows, now_ms)
            if violation.rule not in _JUDGED_BEFORE
        ]
        if broken:
            raise InvalidCommitError(pending.attempts[0].part.table_id, broken)
        return self._ratify(unit, pending, rows, now_ms)

    def _conflicts(
        self, unit: ReadUnit, pending: Pending, rows: Mapping[TableId, TableRow]
    ) -> list[Conflict]:
        return [] if pending.by_version_alone else self.conflicts_of(unit, pending, rows)

    def conflicts_of(
        self, unit: ReadUnit, pending: Pending, rows: Mapping[TableId, TableRow]
    ) -> list[Conflict]:
        """List what winners did that the proposal cannot be moved past, in every table."""
        found: list[Conflict] = []
        proposal = pending.proposal
        for table_id, claims in _claims(pending, rows).items():
            row = rows[table_id]
            attempt, scans = claims.attempt, claims.scans
            seen = max(claims.base, pending.checked.get(table_id, Version(-1)))
            if seen >= row.head:
                continue
            # Nothing a winner can do stands in the way of an append but a change of the ground,
            # and the row says when there was the last: it is not slower for coming late.
            if claims.is_append and row.metadata_version <= seen:
                continue
            _, metadata = self.protocol_and_metadata(row)
            ours = conflicts.UNCHANGED if attempt is None else attempt.examined.changes
            removes = () if attempt is None else attempt.examined.removes
            found += conflicts.conflicts(
                conflicts.Attempt(
                    table_id=table_id,
                    base=claims.base if attempt is None else Version(attempt.part.version - 1),
                    changes=ours,
                    removed=frozenset(file.path for file in removes),
                    scans=scans,
                    isolation=conflicts.level(proposal.isolation, metadata),
                    is_written=attempt is not None,
                    schema=schemas.from_json(metadata.schema_string) if scans else None,
                ),
                self._winning_changes(unit, row, Version(seen + 1)),
            )
        return found

    def refuse(self, unit: WriteUnit, proposal: Proposal, violation: Violation) -> Answer:
        """Record that a proposal was refused before its content could be understood."""
        ratified = ratified_answer(unit, proposal.txn_id)
        if ratified is not None:
            return ratified[0]
        rejection = unit.rejection(proposal.txn_id)
        if rejection is not None:
            return from_json(rejection.answer, Rejected)
        answer = Rejected(txn_id=proposal.txn_id, violations=(violation,))
        return self._reject(unit, Pending(proposal, (), 0), answer, self._clock.now_ms())

    def _gone(self, unit: ReadUnit, pending: Pending) -> list[Conflict]:
        """Name the tables that were dropped meanwhile; the answer stays, also if one comes back."""
        found: list[Conflict] = []
        for part in pending.proposal.parts:
            row = unit.table(part.table_id)
            if row is not None and row.state in (TableStatus.DROPPED, TableStatus.PURGED):
                says = f"is the last there is: the table is {row.state.value}"
                found.append(Conflict(rule="R9", table_id=row.id, version=row.head, says=says))
        return found

    def rows(self, unit: ReadUnit, pending: Pending) -> dict[TableId, TableRow]:
        """Give the rows of every table the proposal writes or read."""
        proposal = pending.proposal
        ids = [part.table_id for part in proposal.parts]
        ids += [scan.table_id for scan in proposal.scans]
        rows: dict[TableId, TableRow] = {}
        for table_id in dict.fromkeys(ids):
            row = unit.table(table_id)
            if row is None or row.state is not TableStatus.ACTIVE:
                state = "unknown" if row is None else row.state.value
                raise NotFoundError(f"Table {table_id} is {state}: nothing can be committed to it.")
            if row.kind is TableKind.EXTERNAL:
                raise InvalidArgumentError(
                    f"Table {table_id} is external: nothing is committed to it through a catalog."
                )
            rows[table_id] = row
        return rows

    def _rows(self, unit: WriteUnit, pending: Pending, now_ms: int) -> dict[TableId, TableRow]:
        rows = self.rows(unit, pending)
        for row in rows.values():
            if row.ticket is None or row.ticket == pending.proposal.txn_id:
                continue
            # More than a ticket's time is left when the clock was set back: it counts as lapsed.
            if 0 < row.ticket_until_ms - now_ms <= self._settings.ticket_ms:
                raise WaitError
        for attempt in pending.attempts:
            self._refuse_backlog(rows[attempt.part.table_id], pending)
        if pending.by_version_alone:
            return rows
        # Also of what it only read: many winners there take as long to be looked through.
        for table_id, claims in _claims(pending, rows).items():
            is_far = rows[table_id].head - claims.base > _FAR_BEHIND
            if is_far and table_id not in pending.checked and not claims.is_append:
                raise FarBehindError
        return rows

    def _refuse_backlog(self, row: TableRow, pending: Pending) -> None:
        unpublished = row.head - row.published
        if unpublished >= self._settings.unpublished_hard:
            raise UnavailableError(
                f"Table {row.id} has {unpublished} unpublished commits: its log cannot be written.",
                remedy="Make its storage writable, or run `headgate fsck`.",
            )
        if unpublished >= self._settings.unpublished_soft and not pending.is_held_back:
            raise BacklogError(row)

    def _must_come_again(self, pending: Pending, rows: Mapping[TableId, TableRow]) -> bool:
        """Say whether a part cannot be ratified as it is and the catalog may not change it.

        Its version is taken and it is bound to it; or it came with a staged part, whose timestamp
        holds for all, and its own table has moved past that.
        """
        stamp = next((a.examined.timestamp_ms for a in pending.attempts if _is_stamped(a)), None)
        return any(
            (attempt.part.version <= rows[attempt.part.table_id].head and not _is_movable(attempt))
            or (
                stamp is not None
                and not _is_stamped(attempt)
                and rows[attempt.part.table_id].timestamp_ms >= stamp
            )
            for attempt in pending.attempts
        )

    def loses(self, txn_id: TxnId) -> bool:
        """Count that a proposal found its version taken, outside of any unit of work.

        Says no, and counts nothing, where it loses so often that it is to have a ticket.
        """
        if self._taken.get(txn_id, 0) + 1 >= self._settings.ticket_after:
            return False
        self._count_lost(txn_id)
        return True

    def _count_lost(self, txn_id: TxnId) -> int:
        lost = self._taken[txn_id] = self._taken.pop(txn_id, 0) + 1
        if len(self._taken) > 10_000:
            self._taken.popitem(last=False)
        return lost

    def _taken_answer(
        self, unit: WriteUnit, pending: Pending, rows: Mapping[TableId, TableRow], now_ms: int
    ) -> VersionTaken:
        txn_id = pending.proposal.txn_id
        if self._count_lost(txn_id) >= self._settings.ticket_after:
            # It lost too often in a row: the others wait for it, for a moment.
            until = now_ms + self._settings.ticket_ms
            for attempt in pending.attempts:
                row = rows[attempt.part.table_id]
                unit.update_table(row._replace(ticket=txn_id, ticket_until_ms=until))
        return VersionTaken(
            txn_id=txn_id,
            latest={table_id: row.head for table_id, row in rows.items()},
            winners=self._winners(unit, pending, rows),
        )

    def _given_up(self, unit: ReadUnit, pending: Pending) -> list[Violation]:
        """Name the staged files that were given up: they may be gone at any moment. Spec: MN-02."""
        found: list[Violation] = []
        for part in pending.proposal.parts:
            if isinstance(part.content, Staged):
                name = part.content.file_name
                rejection = unit.rejection(file_key(part.table_id, name))
                if rejection is not None and rejection.intent == GIVEN_UP:
                    says = f"{name} was given up, since nobody had proposed it for long"
                    found.append(Violation(rule="staged-given-up", says=says))
        return found

    def _violations(
        self, pending: Pending, rows: Mapping[TableId, TableRow], now_ms: int
    ) -> list[Violation]:
        found: list[Violation] = []
        # When the clock was set back, the least timestamp that rises may be far ahead of it.
        least_ms = max(rows[attempt.part.table_id].timestamp_ms for attempt in pending.attempts) + 1
        max_ahead_ms = max(self._settings.max_ahead_ms, least_ms - now_ms)
        stamps = {attempt.examined.timestamp_ms for attempt in pending.attempts} - {None}
        if len(stamps) > 1:
            found.append(
                Violation(rule="timestamps-differ", says="staged parts bring different timestamps")
            )
        for attempt in pending.attempts:
            row = rows[attempt.part.table_id]
            if attempt.part.version > row.head + 1:
                found.append(
                    Violation(
                        rule="version-gap",
                        says=f"version {attempt.part.version} is proposed while {row.head} "
                        "is the latest",
                    )
                )
                continue
            found += attempt.examined.violations
            for violation in admission.judge(
                attempt.examined,
                self.facts(row),
                now_ms=now_ms,
                max_ahead_ms=max_ahead_ms,
                txn_id=pending.proposal.txn_id,
                required=self._required,
            ):
                if violation.rule == admission.PARTITIONING_CHANGED:
                    if pending.replaced is None:
                        raise FilesToSeeError
                    if row.id in pending.replaced:
                        continue
                found.append(violation)
        return found

    def _ratify(
        self, unit: WriteUnit, pending: Pending, rows: Mapping[TableId, TableRow], now_ms: int
    ) -> Ratified:
        """Take the next sequence and write every part at the head of its table. Spec: MT-16."""
        txn_id = pending.proposal.txn_id
        before = unit.clock()
        stamped = [attempt.examined.timestamp_ms for attempt in pending.attempts]
        newest = [rows[attempt.part.table_id].timestamp_ms for attempt in pending.attempts]
        staged_ms = next((stamp for stamp in stamped if stamp is not None), None)
        if staged_ms is None:
            timestamp_ms = timestamps.next_timestamp(now_ms, before.clock_ms, newest)
        else:
            timestamp_ms = staged_ms
        sequence = Sequence(before.sequence + 1)
        clock_ms = timestamps.next_clock(
            before.clock_ms, timestamp_ms, now_ms, self._settings.drift_ms
        )
        commits: dict[TableId, RatifiedCommit] = {}
        is_blind = conflicts.is_blind(
            [attempt.examined.changes for attempt in pending.attempts], pending.proposal.scans
        )
        for attempt in pending.attempts:
            row = rows[attempt.part.table_id]
            changed, commit = self._apply(
                row,
                attempt,
                pending,
                sequence=sequence,
                timestamp_ms=timestamp_ms,
                now_ms=now_ms,
                is_blind=is_blind,
            )
            unit.insert_commit(row.key, commit)
            unit.update_table(changed)
            commits[row.id] = _as_answered(commit)
        unit.advance_clock(CatalogClock(sequence, clock_ms), txn_id)
        self._taken.pop(txn_id, None)
        return Ratified(
            txn_id=txn_id, sequence=sequence, timestamp_ms=timestamp_ms, commits=commits
        )

    def _apply(
        self,
        row: TableRow,
        attempt: Attempt,
        pending: Pending,
        *,
        sequence: Sequence,
        timestamp_ms: int,
        now_ms: int,
        is_blind: bool,
    ) -> tuple[TableRow, CommitRow]:
        """Compute what the table's row becomes, and the commit's."""
        examined = attempt.examined
        version = Version(row.head + 1)
        protocol, metadata = self.protocol_and_metadata(row)
        protocol, metadata = examined.protocol or protocol, examined.metadata or metadata
        high_water = row.row_id_high_water
        content: bytes | None = None
        file_name: str | None = None
        size, sha256 = attempt.size, attempt.sha256
        domains = list(examined.domains)
        match attempt.part.content:
            case Inline():
                if features.is_supported(protocol, "rowTracking") and high_water is None:
                    high_water = -1
                content, high_water = inline_content.compose(
                    examined,
                    txn_id=pending.proposal.txn_id,
                    timestamp_ms=timestamp_ms,
                    version=version,
                    row_id_high_water=high_water,
                )
                if high_water is not None and _writes_mark(examined):
                    domains.append(row_ids.domain_for(high_water))
                size, sha256 = len(content), hashlib.sha256(content).digest()
            case Staged() as staged:
                file_name, content = staged.file_name, attempt.kept
                high_water = row_ids.newest_mark(high_water, examined.domains)
            case Put() as put:  # a version found in the log: its bytes stay as they are
                content = put.content
                high_water = row_ids.newest_mark(high_water, examined.domains)
            case unreachable:
                assert_never(unreachable)
        files = None
        if row.num_files is not None and row.size_bytes is not None:
            before = Files(row.num_files, row.size_bytes)
            files = checksums.files_after(before, examined.adds, examined.removes)
        changed = row._replace(
            head=version,
            timestamp_ms=timestamp_ms,
            protocol=row.protocol if examined.protocol is None else to_json(protocol),
            metadata=row.metadata if examined.metadata is None else to_json(metadata),
            metadata_version=version
            if examined.protocol is not None or examined.metadata is not None
            else row.metadata_version,
            domains=merged_domains(row.domains, domains),
            row_id_high_water=high_water,
            num_files=None if files is None else files.num_files,
            size_bytes=None if files is None else files.size_bytes,
            ticket=None,
            ticket_until_ms=0,
        )
        if changed.metadata_version == version:  # whoever comes next asks for it
            self._remember(changed, protocol, metadata)
        return changed, CommitRow(
            version=version,
            sequence=sequence,
            timestamp_ms=timestamp_ms,
            txn_id=pending.proposal.txn_id,
            way=_WAYS[type(attempt.part.content)],
            file_name=file_name,
            size=size,
            sha256=sha256,
            modified_ms=attempt.modified_ms,
            intent=bytes.fromhex(examined.intent),
            proposed_ms=pending.proposed_ms,
            ratified_ms=now_ms,
            published_ms=None,
            summary=to_json(self._summary(row, examined, is_blind)),
            content=content,
        )

    def _summary(self, row: TableRow, examined: Examined, is_blind: bool) -> Changes:
        """Say what the commit did, as those who come later will be held against it."""
        changes = examined.changes
        if examined.metadata is not None:
            _, before = self.protocol_and_metadata(row)
            neutral = conflicts.is_neutral(before, examined.metadata)
            changes = replaced(changes, neutral=neutral)
        return changes if changes.blind == is_blind else replaced(changes, blind=is_blind)

    def _reject(self, unit: WriteUnit, pending: Pending, answer: Rejected, now_ms: int) -> Rejected:
        # The winners are not kept with the answer: they have rows of their own.
        kept = Rejected(
            txn_id=answer.txn_id, conflicts=answer.conflicts, violations=answer.violations
        )
        unit.insert_rejection(RejectionRow(answer.txn_id, pending.intent, to_json(kept), now_ms))
        unit.delete_rejections(now_ms - self._settings.rejections_kept_ms)
        for attempt in pending.attempts:
            row = unit.table(attempt.part.table_id)
            if row is not None and row.ticket == answer.txn_id:  # it does not come again
                unit.update_table(row._replace(ticket=None, ticket_until_ms=0))
        return answer

    def _refuse_if_ancient(self, txn_id: TxnId, now_ms: int) -> None:
        """Refuse an id so old that its rejection may have been forgotten. Spec: CM-47."""
        oldest_ms = now_ms - self._settings.rejections_kept_ms
        if _USUAL.fullmatch(txn_id) and int(txn_id[:8] + txn_id[9:13], 16) >= oldest_ms:
            return  # nearly all are such, and taking a UUID apart takes as long as judging a file
        try:
            parsed = UUID(txn_id)
        except ValueError:
            return
        if parsed.version == 7 and (parsed.int >> 80) < oldest_ms:
            raise TransactionExpiredError(f"Transaction {txn_id} is too old to be decided.")

    def _winners(
        self, unit: ReadUnit, pending: Pending, rows: Mapping[TableId, TableRow]
    ) -> dict[TableId, tuple[RatifiedCommit, ...]]:
        winners: dict[TableId, tuple[RatifiedCommit, ...]] = {}
        room = min(self._settings.answer_limit_bytes, _WINNERS_BYTES)
        for attempt in pending.attempts:
            row, first = rows[attempt.part.table_id], attempt.part.version
            behind = row.head - first
            if not 0 <= behind < _WINNERS_SENT or room <= 0:
                continue  # the client asks for them
            if (
                behind > _FEW_WINNERS
                and unit.last_version_within(row.key, first, row.head, room) < row.head
            ):
                continue
            found = unit.commits(row.key, first, row.head, content=True)
            room -= sum(len(commit.content or b"") for commit in found)
            winners[row.id] = tuple(map(as_commit, found))
        return winners

    def _winning_changes(
        self, unit: ReadUnit, row: TableRow, first: Version
    ) -> list[conflicts.Winner]:
        return [
            conflicts.Winner(
                version=commit.version,
                txn_id=commit.txn_id,
                sequence=commit.sequence,
                changes=from_json(commit.summary or b"{}", Changes),
            )
            for commit in unit.commits(row.key, first, row.head, content=False, summary=True)
        ]

    def facts(self, row: TableRow) -> Facts:
        """Give what content is judged against."""
        protocol, metadata = self.protocol_and_metadata(row)
        return Facts(
            table_id=row.id,
            version=row.head,
            timestamp_ms=row.timestamp_ms,
            protocol=protocol,
            metadata=metadata,
            row_id_high_water=row.row_id_high_water,
        )

    def protocol_and_metadata(self, row: TableRow) -> tuple[Protocol, Metadata]:
        """Give the table's protocol and metadata, understood."""
        # Keyed by the very bytes, so a unit that was undone leaves nothing wrong behind.
        key = (row.protocol, row.metadata)
        known = self._understood.get(key)
        if known is None:
            known = from_json(row.protocol, Protocol), from_json(row.metadata, Metadata)
            self._remember(row, *known)
        return known

    def _remember(self, row: TableRow, protocol: Protocol, metadata: Metadata) -> None:
        self._understood[row.protocol, row.metadata] = protocol, metadata
        if len(self._understood) > 1_000:
            self._understood.popitem(last=False)


def first_answer(unit: ReadUnit, pending: Pending) -> Ratified | Rejected | None:
    """Give the answer a txnId got before, if it did; refuse it for another intent. Spec: CM-42."""
    txn_id = pending.proposal.txn_id
    ratified = ratified_answer(unit, txn_id)
    if ratified is not None:
        wanted = {attempt.part.table_id: attempt for attempt in pending.attempts}
        if ratified[0].commits.keys() != wanted.keys():
            raise TxnIdReusedError(f"Transaction {txn_id} was ratified for other tables.")
        # Engines that propose files by name are answered by version and name; what they write
        # again under the same txnId may differ in more than a rebase changes.
        if not pending.by_version_alone:
            for table_id, attempt in wanted.items():
                if bytes.fromhex(attempt.examined.intent) != ratified[1][table_id]:
                    raise TxnIdReusedError(f"Transaction {txn_id} was ratified with other content.")
        return ratified[0]
    rejection = unit.rejection(txn_id)
    if rejection is None:
        return None
    # One that was refused before it could be understood has no intent to compare.
    if rejection.intent not in (pending.intent, Pending(pending.proposal, (), 0).intent):
        raise TxnIdReusedError(f"Transaction {txn_id} was rejected with other content.")
    return from_json(rejection.answer, Rejected)


def ratified_answer(unit: ReadUnit, txn_id: TxnId) -> tuple[Ratified, dict[TableId, bytes]] | None:
    """Give what a ratified transaction was answered, and what it wanted of each table."""
    found = unit.transaction_commits(txn_id)
    if not found:
        return None
    rows = dict(found)
    some = next(iter(rows.values()))
    answer = Ratified(
        txn_id=txn_id,
        sequence=some.sequence,
        timestamp_ms=some.timestamp_ms,
        commits={table_id: _as_answered(row) for table_id, row in rows.items()},
    )
    return answer, {table_id: row.intent for table_id, row in rows.items()}


def file_key(table_id: TableId, file_name: str) -> TxnId:
    """Name the rejection of a staged file, which stands among those of transactions."""
    return TxnId(f"{table_id}/{file_name}")


def keys_of(proposal: Proposal) -> list[TxnId]:
    """Name all under which something may have been decided of a proposal before."""
    staged = [
        file_key(part.table_id, part.content.file_name)
        for part in proposal.parts
        if isinstance(part.content, Staged)
    ]
    return [proposal.txn_id, *staged]


def as_commit(row: CommitRow) -> RatifiedCommit:
    """Say a commit's row in the words of the port."""
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
    """Say a commit's row to who proposed it: of a staged file it has the bytes already."""
    return as_commit(row if row.file_name is None else row._replace(content=None))


def _writes_mark(examined: Examined) -> bool:
    """Say whether what is composed of an inline commit has a line with the high-water mark."""
    return any(add.base_row_id is None for add in examined.adds) or any(
        domain.domain == row_ids.DOMAIN for domain in examined.domains
    )


def merged_domains(before: bytes, written: Iterable[DomainMetadata]) -> bytes:
    """Put what a commit says of metadata domains over what was there."""
    written = list(written)
    if not written:
        return before
    merged = {domain.domain: domain for domain in from_json(before, list[DomainMetadata])}
    merged |= {domain.domain: domain for domain in written}
    return to_json([domain for domain in merged.values() if not domain.removed])


@dataclass(frozen=True, slots=True)
class _Claims:
    """What a proposal wants of one table: to write it, to have read it, or both."""

    attempt: Attempt | None
    scans: tuple[Scan, ...]

    @property
    def base(self) -> Version:
        """The version from which on winners matter."""
        bases = [scan.version for scan in self.scans]
        if self.attempt is not None:
            bases.append(Version(self.attempt.part.version - 1))
        return min(bases)

    @property
    def is_append(self) -> bool:
        return self.attempt is not None and not self.scans and _only_adds(self.attempt.examined)


def _claims(pending: Pending, rows: Mapping[TableId, TableRow]) -> dict[TableId, _Claims]:
    """Sort what a proposal wants by table; there may be many tables and many scans.

    There is nothing to sort when it only writes and every version it wants is the next.
    """
    is_behind = any(
        attempt.part.version <= rows[attempt.part.table_id].head for attempt in pending.attempts
    )
    if not is_behind and not pending.proposal.scans:
        return {}
    attempts = {attempt.part.table_id: attempt for attempt in pending.attempts}
    scans: dict[TableId, list[Scan]] = {table_id: [] for table_id in attempts}
    for scan in pending.proposal.scans:
        scans.setdefault(scan.table_id, []).append(scan)
    return {
        table_id: _Claims(attempts.get(table_id), tuple(found)) for table_id, found in scans.items()
    }


def _only_adds(examined: Examined) -> bool:
    """Say whether a commit does nothing but add files."""
    return examined.changes.blind and not examined.txns and not examined.domains


def _is_stamped(attempt: Attempt) -> bool:
    """Say whether the content brings its own timestamp."""
    return attempt.examined.timestamp_ms is not None


def _is_movable(attempt: Attempt) -> bool:
    """Say whether the catalog may move it to another version by itself. Spec: IN-02."""
    examined = attempt.examined
    is_inline = isinstance(attempt.part.content, Inline)
    is_known = not any(isinstance(line.action, Unknown) for line in examined.lines)
    return is_inline and is_known and examined.metadata is None and examined.protocol is None
