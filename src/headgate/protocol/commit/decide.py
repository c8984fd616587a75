"""Decide a proposal: ratify every part of it, or none and report what stands in the way.

`decide` is a pure function. Its caller loads the facts, carries the decision out in the same
transaction of the database, and calls it again with more facts when the decision is a need.
Spec: CM-10, CM-11, MT-01.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from headgate import errors
from headgate.protocol import features, txn_ids
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit import admission, conflicts, inline_content, row_ids
from headgate.protocol.commit.conflicts import Changes, Conflict, Scan
from headgate.protocol.commit.content import Way
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.commit.facts import (
    Closed,
    ExaminedPart,
    ExaminedProposal,
    Facts,
    Head,
    Ratification,
    Rejection,
    Rules,
    Turn,
)
from headgate.protocol.encoding import replaced
from headgate.protocol.log import checksums, timestamps
from headgate.protocol.schema import types
from headgate.protocol.table_states import TableStatus

# Violations that depend on the present, the settings or earlier files: a commit that is in the
# log already was checked for them when it was ratified.
_CHECKED_BEFORE = frozenset(
    {admission.PARTITIONING_CHANGED, admission.TIMESTAMP_AHEAD, admission.REQUIRED_OFF}
)
_NO_INTENT = hashlib.sha256().digest()

# Decisions


class NextCommit(NamedTuple):
    """A commit of a ratified transaction, and its table before and after it."""

    part: ExaminedPart
    before: Head
    after: Head
    changes: Changes
    size: int
    sha256: bytes
    content: bytes | None  # to be stored with the commit


class Ratify(NamedTuple):
    """Every part becomes the next version of its table. Spec: MT-16."""

    sequence: Sequence
    clock_ms: int
    timestamp_ms: int
    commits: tuple[NextCommit, ...]


class Reject(NamedTuple):
    """The proposal is rejected, which is final."""

    conflicts: tuple[Conflict, ...] = ()
    violations: tuple[Violation, ...] = ()


class Restage(NamedTuple):
    """A version is taken and nothing else is wrong: propose again after the latest one."""

    turn: Turn | None  # granted because it lost often


class Replay(NamedTuple):
    """The proposal was decided before: return the first answer."""


class Refuse(NamedTuple):
    """The proposal cannot be decided; nothing is recorded."""

    error: errors.HeadgateError


class NeedWinners(NamedTuple):
    """The changes of all commits after these versions are needed."""

    after: Mapping[TableId, Version]


class NeedReplaced(NamedTuple):
    """The caller must check whether the proposal removes every file of these tables."""

    tables: tuple[TableId, ...]


class NeedPublishing(NamedTuple):
    """A table has so many unpublished commits that its writers must wait."""

    head: Head


class NeedDescription(NamedTuple):
    """The table is not as the proposal was made for: its proposer must look at it again."""


class NeedTurn(NamedTuple):
    """Another transaction has the turn."""


Need = NeedWinners | NeedReplaced | NeedPublishing | NeedDescription
NEEDS = (NeedWinners, NeedReplaced, NeedPublishing, NeedDescription)
Decision = (
    Ratify
    | Reject
    | Restage
    | Replay
    | Refuse
    | NeedWinners
    | NeedReplaced
    | NeedPublishing
    | NeedTurn
)


def decide(facts: Facts, proposal: ExaminedProposal, rules: Rules) -> Decision:
    """Decide a proposal: ratify all parts, or none. Spec: CM-10, CM-11, MT-01."""
    if facts.recorded is not None:
        return _replay(facts.recorded, proposal)
    if _is_expired(proposal.txn_id, facts.now_ms - rules.rejections_kept_ms):
        error = errors.TransactionExpiredError(
            f"Transaction {proposal.txn_id} is too old to be decided."
        )
        return Refuse(error)
    if gone := _gone(facts, proposal):
        return Reject(conflicts=gone)
    heads = _heads(facts, proposal)
    if isinstance(heads, Refuse):
        return heads
    if renamed := _renamed(facts, proposal):
        return Reject(conflicts=renamed)
    if (need := _waits(heads, proposal, facts, rules)) is not None:
        return need
    if facts.gathered.conflicts:
        return Reject(conflicts=facts.gathered.conflicts)
    if not proposal.by_version:
        if missing := missing_winners(facts, proposal):
            return NeedWinners(missing)
        if found := tuple(compare(facts, proposal)):
            return Reject(conflicts=found)
    if _must_restage(heads, proposal):
        return Restage(_next_turn(facts, proposal, rules))
    violations = list(_violations(heads, proposal, facts, rules))
    if facts.gathered.replaced is None:
        changed = [
            part.table_id for part, v in violations if v.rule == admission.PARTITIONING_CHANGED
        ]
        if changed:
            return NeedReplaced(tuple(changed))
    if violations:
        return Reject(violations=tuple(violation for _, violation in violations))
    return _ratify(heads, proposal, facts, rules)


def adopt(facts: Facts, proposal: ExaminedProposal, rules: Rules) -> Ratify | Reject | Refuse:
    """Ratify commits that are in the logs already, unless they cannot be the next versions."""
    heads = _heads(facts, proposal)
    if isinstance(heads, Refuse):
        return heads
    violations = tuple(
        violation
        for _, violation in _violations(heads, proposal, facts, rules)
        if violation.rule not in _CHECKED_BEFORE
    )
    return Reject(violations=violations) if violations else _ratify(heads, proposal, facts, rules)


def compare(facts: Facts, proposal: ExaminedProposal) -> Iterator[Conflict]:
    """List the conflicts of the proposal with the loaded winners, in every table."""
    for table_id, claim in _claims(facts.tables, proposal).items():
        winners, head = facts.winners.get(table_id), facts.tables[table_id]
        if not winners or not isinstance(head, Head):
            continue
        part, scans = claim.part, claim.scans
        yield from conflicts.conflicts(
            conflicts.Attempt(
                table_id=table_id,
                base=claim.base if part is None else Version(part.version - 1),
                changes=conflicts.UNCHANGED if part is None else part.examined.changes,
                removed=frozenset(() if part is None else (f.path for f in part.examined.removes)),
                scans=scans,
                isolation=conflicts.level(proposal.isolation, head.metadata),
                is_written=part is not None,
                schema=types.from_json(head.metadata.schema_string) if scans else None,
            ),
            winners,
        )


# Recorded before


def _replay(
    recorded: Ratification | Rejection, proposal: ExaminedProposal
) -> Replay | Refuse | Restage:
    """Return the first answer, or refuse a txnId with another intent. Spec: CM-42."""
    txn_id = proposal.txn_id
    match recorded:
        case Ratification(ratified):
            if ratified.keys() != {part.table_id for part in proposal.parts}:
                problem = "was ratified for other tables"
            elif proposal.by_version:
                # The content that such engines stage again under a txnId may differ by more than
                # a rebase, so the file is compared.
                [part] = proposal.parts
                won = ratified[part.table_id]
                if won.version == part.version:
                    return Replay() if won.file_name == part.file_name else Restage(None)
                problem = f"is already committed as version {won.version} of table {part.table_id}"
            elif any(
                bytes.fromhex(part.examined.intent) != ratified[part.table_id].intent
                for part in proposal.parts
            ):
                problem = "was ratified with other content"
            else:
                return Replay()
        case Rejection(intent):
            # A proposal that was rejected before it could be parsed has no intent to compare.
            if intent in (proposal.intent, _NO_INTENT):
                return Replay()
            problem = "was rejected with other content"
        case unreachable:
            assert_never(unreachable)
    return Refuse(errors.TxnIdReusedError(f"Transaction {txn_id} {problem}."))


def _is_expired(txn_id: TxnId, oldest_ms: int) -> bool:
    """Return whether an id is so old that its rejection may be deleted. Spec: CM-47."""
    begun_ms = txn_ids.begun_ms(txn_id)
    return begun_ms is not None and begun_ms < oldest_ms


# Tables


def concerned(proposal: ExaminedProposal) -> Iterable[TableId]:
    """List the tables that a proposal writes or read, each once."""
    written = [part.table_id for part in proposal.parts]
    return dict.fromkeys(written + [scan.table_id for scan in proposal.scans])


def _heads(facts: Facts, proposal: ExaminedProposal) -> dict[TableId, Head] | Refuse:
    heads: dict[TableId, Head] = {}
    for table_id in concerned(proposal):
        head = facts.tables.get(table_id)
        if not isinstance(head, Head):
            return Refuse(_closed(table_id, head))
        heads[table_id] = head
    return heads


def _gone(facts: Facts, proposal: ExaminedProposal) -> tuple[Conflict, ...]:
    """List the tables that were dropped; the answer stays, even if one is undropped later."""
    return tuple(
        Conflict(
            rule="R9",
            table_id=table.table_id,
            version=table.version,
            says=f"is the last one: the table is {table.status.value}",
        )
        for part in proposal.parts
        if isinstance(table := facts.tables.get(part.table_id), Closed)
        and table.status in (TableStatus.DROPPED, TableStatus.PURGED)
    )


def _renamed(facts: Facts, proposal: ExaminedProposal) -> tuple[Conflict, ...]:
    """List the tables that no longer have the names by which statements reached them."""
    return tuple(
        Conflict(
            rule="R8",
            table_id=table_id,
            version=facts.tables[table_id].version,
            says=f"is the last one of a table that is no longer called {name}",
        )
        for name, table_id in proposal.names.items()
        if table_id in facts.tables and facts.names.get(name) != table_id
    )


def _closed(table_id: TableId, table: Closed | None) -> errors.HeadgateError:
    if table is None or table.status is not TableStatus.ACTIVE:
        status = "unknown" if table is None else table.status.value
        return errors.NotFoundError(
            f"Table {table_id} is {status}: nothing can be committed to it."
        )
    return errors.InvalidArgumentError(
        f"Table {table_id} is external: a catalog cannot commit to it."
    )


def _waits(
    heads: Mapping[TableId, Head], proposal: ExaminedProposal, facts: Facts, rules: Rules
) -> NeedTurn | NeedPublishing | Refuse | None:
    """Return what a proposal has to wait for before it may be decided."""
    for head in heads.values():
        turn = head.turn
        if turn is None or turn.txn_id == proposal.txn_id:
            continue
        # If more than a turn's time is left, the clock was set back: the turn has expired.
        if 0 < turn.until_ms - facts.now_ms <= rules.turn_ms:
            return NeedTurn()
    for part in proposal.parts:
        head = heads[part.table_id]
        unpublished = head.version - head.published
        if unpublished >= rules.backlog_hard:
            return Refuse(
                errors.UnavailableError(
                    f"Table {head.table_id} has {unpublished} unpublished commits: its log cannot "
                    "be written.",
                    remedy="Make its storage writable, or run `headgate fsck`.",
                )
            )
        if unpublished >= rules.backlog_soft and not facts.gathered.is_past_backlog:
            return NeedPublishing(head)
    return None


# Winners


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a proposal does to one table: it writes it, has read it, or both."""

    part: ExaminedPart | None
    scans: tuple[Scan, ...]

    @property
    def base(self) -> Version:
        """The version after which winners matter."""
        bases = [scan.version for scan in self.scans]
        if self.part is not None:
            bases.append(Version(self.part.version - 1))
        return min(bases)

    @property
    def is_append(self) -> bool:
        """Whether it only adds files."""
        if self.part is None or self.scans:
            return False
        examined = self.part.examined
        return examined.changes.blind and not examined.txns and not examined.domains


def _claims(
    tables: Mapping[TableId, Head | Closed], proposal: ExaminedProposal
) -> dict[TableId, _Claim]:
    """Group a proposal by table; empty if no winner can conflict: it only writes next versions."""
    is_behind = any(part.version <= tables[part.table_id].version for part in proposal.parts)
    if not is_behind and not proposal.scans:
        return {}
    parts = {part.table_id: part for part in proposal.parts}
    scans: dict[TableId, list[Scan]] = {table_id: [] for table_id in parts}
    for scan in proposal.scans:
        scans.setdefault(scan.table_id, []).append(scan)
    return {
        table_id: _Claim(parts.get(table_id), tuple(of_table))
        for table_id, of_table in scans.items()
    }


def missing_winners(facts: Facts, proposal: ExaminedProposal) -> dict[TableId, Version]:
    """Return the versions after which winners are still to be compared, by table."""
    missing: dict[TableId, Version] = {}
    for table_id, claim in _claims(facts.tables, proposal).items():
        head = facts.tables[table_id]
        if not isinstance(head, Head):
            continue
        compared = max(claim.base, facts.gathered.compared.get(table_id, Version(-1)))
        # Only a change of protocol or metadata can conflict with an append, and the head has the
        # version of the last one, so an append seldom needs winners.
        is_safe = claim.is_append and head.metadata_version <= compared
        if compared < head.version and not is_safe and table_id not in facts.winners:
            missing[table_id] = compared
    return missing


def _must_restage(heads: Mapping[TableId, Head], proposal: ExaminedProposal) -> bool:
    """Return whether a part can be ratified neither as it is nor after a change by the catalog."""
    # Its version is taken and its content belongs to that version; or the proposal has a staged
    # part, whose timestamp is that of all parts, and the part's table is past that timestamp.
    stamp = proposal.staged_timestamp_ms
    for part in proposal.parts:
        head = heads[part.table_id]
        if part.version <= head.version and not part.is_movable:
            return True
        is_stamped = part.examined.timestamp_ms is not None
        if stamp is not None and not is_stamped and head.timestamp_ms >= stamp:
            return True
    return False


def _next_turn(facts: Facts, proposal: ExaminedProposal, rules: Rules) -> Turn | None:
    if facts.lost + 1 < rules.turn_after:
        return None
    return Turn(proposal.txn_id, facts.now_ms + rules.turn_ms)


# Violations


def _violations(
    heads: Mapping[TableId, Head], proposal: ExaminedProposal, facts: Facts, rules: Rules
) -> Iterator[tuple[ExaminedPart, Violation]]:
    parts = proposal.parts
    for part in parts:
        if part.file_name is not None and part.file_name in facts.abandoned:  # Spec: MN-02
            why = f"{part.file_name} was abandoned because it was not proposed for a long time"
            yield part, Violation("staged-given-up", why)
    # When the clock was set back, the least timestamp that rises may be far ahead of it.
    least_ms = max(heads[part.table_id].timestamp_ms for part in parts) + 1
    max_ahead_ms = max(rules.max_ahead_ms, least_ms - facts.now_ms)
    if len({part.examined.timestamp_ms for part in parts} - {None}) > 1:
        yield parts[0], Violation("timestamps-differ", "staged parts have different timestamps")
    for part in parts:
        head = heads[part.table_id]
        if part.version > head.version + 1:
            why = f"version {part.version} is proposed while {head.version} is the latest"
            yield part, Violation("version-gap", why)
            continue
        for violation in part.examined.violations:
            yield part, violation
        for violation in admission.judge(
            part.examined,
            head,
            now_ms=facts.now_ms,
            max_ahead_ms=max_ahead_ms,
            txn_id=proposal.txn_id,
            required=rules.required,
        ):
            is_replaced = part.table_id in (facts.gathered.replaced or ())
            if violation.rule != admission.PARTITIONING_CHANGED or not is_replaced:
                yield part, violation


# Ratification


def _ratify(
    heads: Mapping[TableId, Head], proposal: ExaminedProposal, facts: Facts, rules: Rules
) -> Ratify:
    """Make every part the next version of its table, at the next sequence."""
    parts = proposal.parts
    timestamp_ms = proposal.staged_timestamp_ms
    if timestamp_ms is None:
        newest = [heads[part.table_id].timestamp_ms for part in parts]
        timestamp_ms = timestamps.next_timestamp(facts.now_ms, facts.clock_ms, newest)
    is_blind = conflicts.is_blind([part.examined.changes for part in parts], proposal.scans)
    return Ratify(
        sequence=Sequence(facts.sequence + 1),
        clock_ms=timestamps.next_clock(facts.clock_ms, timestamp_ms, facts.now_ms, rules.drift_ms),
        timestamp_ms=timestamp_ms,
        commits=tuple(
            _next_commit(heads[part.table_id], part, proposal.txn_id, timestamp_ms, is_blind)
            for part in parts
        ),
    )


def _next_commit(
    head: Head, part: ExaminedPart, txn_id: TxnId, timestamp_ms: int, is_blind: bool
) -> NextCommit:
    """Compute a table's next commit, and its head after it."""
    examined = part.examined
    version = Version(head.version + 1)
    protocol, metadata = examined.protocol or head.protocol, examined.metadata or head.metadata
    high_water = head.row_id_high_water
    content, size, sha256 = part.content, part.size, part.sha256
    domains = list(examined.domains)
    if part.way is Way.INLINE:
        if features.is_supported(protocol, "rowTracking") and high_water is None:
            high_water = -1
        content, high_water = inline_content.compose(
            examined,
            txn_id=txn_id,
            timestamp_ms=timestamp_ms,
            version=version,
            row_id_high_water=high_water,
        )
        if high_water is not None and _writes_high_water(examined):
            domains.append(row_ids.domain_for(high_water))
        size, sha256 = len(content), hashlib.sha256(content).digest()
    else:
        high_water = row_ids.newest_mark(high_water, examined.domains)
    files = head.files
    if files is not None:
        files = checksums.files_after(files, examined.adds, examined.removes)
    is_changed = examined.protocol is not None or examined.metadata is not None
    after = head._replace(
        version=version,
        timestamp_ms=timestamp_ms,
        protocol=protocol,
        metadata=metadata,
        metadata_version=version if is_changed else head.metadata_version,
        domains=checksums.merged_domains(head.domains, domains),
        row_id_high_water=high_water,
        files=files,
        turn=None,
    )
    return NextCommit(
        part=part,
        before=head,
        after=after,
        changes=_changes(head, examined, is_blind),
        size=size,
        sha256=sha256,
        content=content,
    )


def _writes_high_water(examined: Examined) -> bool:
    """Return whether the composed content has a line with the high-water mark of row ids."""
    return any(add.base_row_id is None for add in examined.adds) or any(
        domain.domain == row_ids.DOMAIN for domain in examined.domains
    )


def _changes(head: Head, examined: Examined, is_blind: bool) -> Changes:
    """Sum up what the commit did, to compare later proposals with."""
    changes = examined.changes
    if examined.metadata is not None:
        is_neutral = conflicts.is_neutral(head.metadata, examined.metadata)
        changes = replaced(changes, neutral=is_neutral)
    return changes if changes.blind == is_blind else replaced(changes, blind=is_blind)
