"""Reads of tables and their commits, each from one instant of the store."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import Final, TypeAlias

from headgate.api.messages import (
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    Rejected,
    Resolved,
    TimelineEntry,
)
from headgate.api.port import Ref
from headgate.catalog import lookup
from headgate.catalog.component import Component
from headgate.catalog.decider import as_commit, recorded_answer
from headgate.catalog.heads import domains_of, protocol_and_metadata
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import TableRow
from headgate.errors import InTheFutureError, NotFoundError, VersionGoneError
from headgate.names import TableName
from headgate.protocol.actions import Metadata, Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.encoding import from_json
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import FileKind
from headgate.protocol.log.timestamps import moment
from headgate.protocol.table_states import TableKind, TableStatus

RESPONSE_CONTENT_BYTES: Final = 4 << 20  # of commits' content; the rest is read in pages
_LISTED: Final = 32  # published commits still listed, at the most
_PAGE: Final = 10_000  # commits of one page
_ROW_BYTES: Final = 512  # of a commit beside its content, in memory and in an answer

# Called with the size of a response before its large parts are read; raises to prevent that.
Reserve: TypeAlias = Callable[[int], None]


def unbounded(_: int) -> None:
    """Reserve nothing: the caller has its memory to itself."""


class Reader(Component):
    """Reads what Delta clients need of tables."""

    def resolve(
        self, ref: Ref, at: Sequence | None = None, reserve: Reserve = unbounded
    ) -> Resolved:
        with self._store.read() as unit:
            return self.resolve_in(unit, ref, at, reserve=reserve)

    def resolve_many(
        self, refs: Many[Ref], at: Sequence | None = None, reserve: Reserve = unbounded
    ) -> tuple[Resolved, ...]:
        found: list[Resolved] = []
        room = RESPONSE_CONTENT_BYTES
        total = 0

        def reserve_more(size: int) -> None:
            nonlocal total
            total += size
            reserve(total)

        with self._store.read() as unit:
            for ref in refs:
                found.append(self.resolve_in(unit, ref, at, room, reserve_more))
                room -= sum(len(commit.content or b"") for commit in found[-1].commits)
        return tuple(found)

    def sequence_at(self, timestamp_ms: int | None = None) -> Sequence:
        with self._store.read() as unit:
            latest = unit.clock()
            if timestamp_ms is None:
                return latest.sequence
            if timestamp_ms > max(latest.clock_ms, self._clock.now_ms()):
                raise InTheFutureError(
                    f"The catalog's clock has not reached {moment(timestamp_ms)} yet."
                )
            found = unit.clock_at(timestamp_ms)
            oldest = unit.oldest_event() if found is None else None
        if oldest is not None and oldest.sequence > 1:
            raise VersionGoneError(
                f"Events before {moment(oldest.clock_ms)} are past their retention and deleted: "
                f"the sequence at {moment(timestamp_ms)} is no longer known.",
                remedy="Pass a later time or a sequence, or read each table as of the time by "
                "itself.",
            )
        return Sequence(0) if found is None else found.sequence

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        with self._store.read() as unit:
            row, start, end = _held(unit, table_id, first, last)
            commits = unit.ratified_commits(row.key, start, end)
        return RatifiedCommits(latest=row.head, commits=commits)

    def ratified_page(
        self,
        table_id: TableId,
        first: Version | None = None,
        last: Version | None = None,
        reserve: Reserve = unbounded,
    ) -> tuple[RatifiedCommits, Version | None]:
        """Return as many of them as fit into one response, and the version of the next one."""
        with self._store.read() as unit:
            row, start, end = _held(unit, table_id, first, last)
            stop = Version(min(end, start + _PAGE - 1))
            size = unit.content_bytes(row.key, start, stop)
            if size > RESPONSE_CONTENT_BYTES:
                stop = unit.last_version_within(row.key, start, stop, RESPONSE_CONTENT_BYTES)
                size = unit.content_bytes(row.key, start, stop)
            reserve(size + _ROW_BYTES * (stop - start + 1))
            commits = unit.ratified_commits(row.key, start, stop)
        following = Version(stop + 1) if stop < end else None
        return RatifiedCommits(latest=row.head, commits=commits), following

    def outcome(self, txn_id: TxnId) -> Ratified | Rejected | None:
        with self._store.read() as unit:
            return recorded_answer(unit, txn_id)

    def timeline(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> tuple[TimelineEntry, ...]:
        with self._store.read() as unit:
            row, start, end = _recorded(unit, table_id, first, last)
            return _timeline(unit, row, start, end)

    def timeline_page(
        self,
        table_id: TableId,
        first: Version | None = None,
        last: Version | None = None,
        reserve: Reserve = unbounded,
    ) -> tuple[tuple[TimelineEntry, ...], Version | None]:
        """Return the first of them, and the version of the next one."""
        with self._store.read() as unit:
            row, start, end = _recorded(unit, table_id, first, last)
            stop = Version(min(end, start + _PAGE - 1))
            reserve(_ROW_BYTES * (stop - start + 1))
            entries = _timeline(unit, row, start, stop)
        return entries, Version(stop + 1) if stop < end else None

    def resolve_in(
        self,
        unit: ReadUnit,
        ref: Ref,
        at: Sequence | None = None,
        room: int | None = None,
        reserve: Reserve = unbounded,
    ) -> Resolved:
        """Resolve a table within a unit, with at most `room` bytes of commits."""
        clock = unit.clock()
        sequence = clock.sequence if at is None else at
        clock_ms = max(clock.clock_ms, self._clock.now_ms())
        if sequence > clock.sequence:
            raise InTheFutureError(f"The catalog has not reached sequence {at} yet.")
        if isinstance(ref, TableName):
            table_id = unit.table_id_of(ref, at)
            if table_id is None:
                raise NotFoundError(f"There is no table {ref}.")
        else:
            table_id = ref
        row = unit.table(table_id) if at is not None else lookup.active(unit, table_id)
        if row is None:
            raise NotFoundError(f"There is no table {table_id}.")
        if row.state is TableStatus.PURGED:
            raise NotFoundError(f"Table {table_id} is purged.")
        name = unit.name_of(table_id, at)
        if row.kind is TableKind.EXTERNAL:
            declared = from_json(row.metadata, Metadata)
            is_described = declared.schema_string or declared.configuration or declared.description
            return Resolved(
                table_id=row.id,
                location=row.location,
                name=None if name is None else str(name),
                catalog_managed=False,
                format=declared.format.provider,
                latest=row.head,
                timestamp_ms=0,
                sequence=sequence,
                clock_ms=clock_ms,
                metadata=declared if is_described else None,
            )
        latest = row.head if at is None else unit.version_at(row.key, at)
        if latest is None:
            raise NotFoundError(f"Table {table_id} did not exist at sequence {at}.")
        room = RESPONSE_CONTENT_BYTES if room is None else room
        listed = self._listed(unit, row, latest, room, reserve)
        known = unit.files(row.key, latest)
        checkpoints = [file for file in known if file.kind is FileKind.CHECKPOINT]
        checkpoint = max(checkpoints, key=lambda file: file.last, default=None)
        above = -1 if checkpoint is None else checkpoint.last
        compactions = [f for f in known if f.kind is FileKind.COMPACTION and f.first > above]
        is_current = row.metadata_version <= latest
        protocol, metadata = protocol_and_metadata(row) if is_current else (None, None)
        checksum = self._checksum(unit, row) if latest == row.head else None
        checksum_file = next((file for file in known if file.kind is FileKind.CHECKSUM), None)
        return Resolved(
            table_id=row.id,
            location=row.location,
            name=None if name is None else str(name),
            ways=(Way.INLINE, Way.STAGED),
            latest=latest,
            timestamp_ms=listed[-1].timestamp_ms,
            sequence=sequence,
            clock_ms=clock_ms,
            commits=listed if room > 0 else (),
            held_from=row.held_from,
            protocol=protocol,
            metadata=metadata,
            checkpoint=checkpoint,
            compactions=tuple(sorted(compactions, key=lambda file: file.first)),
            checksum=checksum,
            checksum_file=checksum_file if checksum is None else None,
        )

    def _listed(
        self, unit: ReadUnit, row: TableRow, latest: Version, room: int, reserve: Reserve
    ) -> tuple[RatifiedCommit, ...]:
        """Return the commits to list: the unpublished, and those published a moment ago.

        Only the newest of them, as far as there is room: `ratified_commits` returns the others.
        """
        first = Version(max(0, min(row.published, latest) - _LISTED + 1))
        size = unit.content_bytes(row.key, first, latest)
        if size > room:
            first = unit.last_version_within(row.key, latest, first, room)
            size = unit.content_bytes(row.key, first, latest)
        reserve(size + _ROW_BYTES * (latest - first + 1) + 2 * len(row.metadata))
        rows = unit.ratified_commits(row.key, first, latest)
        since_ms = self._clock.now_ms() - self._settings.listed_ms
        start = len(rows) - 1
        room -= len(rows[start].content or b"")
        while start > 0:
            before = rows[start - 1]
            room -= len(before.content or b"")
            is_recent = before.published_ms is None or before.published_ms >= since_ms
            if not is_recent or room < 0:
                break
            start -= 1
        return rows[start:]

    def _checksum(self, unit: ReadUnit, row: TableRow) -> VersionChecksum | None:
        if row.num_files is None or row.size_bytes is None:
            return None
        [head] = unit.commits(row.key, row.head, row.head, content=False)
        protocol, metadata = protocol_and_metadata(row)
        return VersionChecksum(
            table_size_bytes=row.size_bytes,
            num_files=row.num_files,
            metadata=metadata,
            protocol=protocol,
            txn_id=head.txn_id,
            in_commit_timestamp_opt=row.timestamp_ms,
            domain_metadata=domains_of(row),
        )


def _held(
    unit: ReadUnit, table_id: TableId, first: Version | None, last: Version | None
) -> tuple[TableRow, Version, Version]:
    """Return a table, and which part of a range of its commits the catalog holds."""
    row = unit.table(table_id)
    if row is None or row.state not in (TableStatus.ACTIVE, TableStatus.DROPPED):
        raise NotFoundError(f"There is no table {table_id}.")
    start = row.held_from if first is None else max(first, row.held_from)
    end = row.head if last is None else min(last, row.head)
    return row, Version(start), Version(end)


def _recorded(
    unit: ReadUnit, table_id: TableId, first: Version | None, last: Version | None
) -> tuple[TableRow, Version, Version]:
    """Return a table, and which part of a range of its commits the catalog recorded."""
    row = lookup.known(unit, table_id)
    return row, first or Version(0), row.head if last is None else min(last, row.head)


def _timeline(
    unit: ReadUnit, row: TableRow, first: Version, last: Version
) -> tuple[TimelineEntry, ...]:
    return tuple(
        TimelineEntry(
            commit=as_commit(commit),
            proposed_ms=commit.proposed_ms,
            ratified_ms=commit.ratified_ms,
        )
        for commit in unit.commits(row.key, first, last, content=False)
    )
