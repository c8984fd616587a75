"""Tables: stage, register, create, rename, drop, undrop and list.

Names belong to the catalog and not to the log, so none of this commits anything but a table's
first version. Every change of a name takes a sequence, so that a cut knows what a name meant.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable

from headgate.api.messages import Resolved, StagingTable, TableEntry
from headgate.arguments import checked_texts
from headgate.catalog import first_version, lookup, namespace_details
from headgate.catalog.allowed_locations import TABLES, AllowedLocations
from headgate.catalog.component import Component, Shared
from headgate.catalog.event_feed import EventFeed
from headgate.catalog.first_version import Judge, nothing_more
from headgate.catalog.idempotency import RequestKey
from headgate.catalog.publisher import Publisher
from headgate.catalog.purge import unfinished_purges
from headgate.catalog.resolver import Reader
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import CommitRow, TableRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import (
    AlreadyExistsError,
    HeadgateError,
    InvalidArgumentError,
    InvalidCommitError,
    NotEmptyError,
    NotFoundError,
    RefusedError,
)
from headgate.failpoints import fail_point
from headgate.names import SchemaName, TableName
from headgate.protocol import features
from headgate.protocol.actions import Format, Metadata, TableId, TxnId, Version
from headgate.protocol.commit import examination, row_ids
from headgate.protocol.commit.content import Inline, Way
from headgate.protocol.commit.examination import Violation
from headgate.protocol.encoding import from_json, replaced, to_json
from headgate.protocol.log import checksums
from headgate.protocol.paths import PublishedCommit
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema import types as schemas
from headgate.protocol.table_states import (
    TableKind,
    TableStatus,
    TableTransition,
    parse_table_id,
)
from headgate.storage import locations

_log = logging.getLogger(__name__)

_ZERO = Version(0)
_NONE = Version(-1)


@checked_texts
class TableService(Component):
    """Creates, registers, renames, drops and lists tables."""

    def __init__(
        self,
        shared: Shared,
        allowed: AllowedLocations,
        reader: Reader,
        publisher: Publisher,
        feed: EventFeed,
    ) -> None:
        super().__init__(shared)
        self._allowed = allowed
        self._reader = reader
        self._publisher = publisher
        self._feed = feed

    # Creation

    def stage(
        self,
        location: str | None = None,
        *,
        namespace: SchemaName | None = None,
        key: RequestKey | None = None,
    ) -> StagingTable:
        table_id = TableId(str(self._ids.random()))
        if location is None:
            chosen = self._own_location(table_id, namespace)
        else:
            chosen = self._allowed.check(location)
            self._refuse_unless_free(chosen)
            self._allowed.refuse_inside_table(chosen)

        def stage(unit: WriteUnit) -> StagingTable:
            lookup.refuse_overlap(unit, chosen)
            unit.insert_table(self._new_row(table_id, chosen))
            return StagingTable(table_id=table_id, location=chosen)

        return self._change(table_id, stage, key)

    def register(
        self,
        name: TableName,
        table_id: TableId,
        *,
        key: RequestKey | None = None,
        judge: Judge = nothing_more,
    ) -> Resolved:
        """Check version 0 of a staging table and give the table its name. Spec: LC-02.

        A repeated request gets the first answer. If the table is registered already and `judge`
        finds violations in its version 0, the request is another one and is refused.
        """
        describe = self._reader.resolve_in
        with self._store.read() as unit:
            staging = lookup.known(unit, table_id)
            registered = describe(unit, table_id) if _is_registered(unit, staging, name) else None
        if registered is None:
            self._allowed.refuse_if_linked(staging.location)
        content = self._log_of(staging.location).read_published(_ZERO)
        if registered is not None:
            if content is not None:  # a cleanup may have deleted it
                _refuse_other_request(name, table_id, judge(examination.examine_file(content)))
            return registered
        if content is None:
            says = f"{staging.location} has no version 0"
            raise InvalidCommitError(str(name), [Violation(rule="no-version-0", says=says)])
        examined = examination.examine_file(content)
        # It is recorded as published, so it must survive a power loss, whatever wrote it.
        self._log_of(staging.location).store.sync([PublishedCommit(_ZERO).path])

        def register(unit: WriteUnit) -> Resolved:
            row = lookup.known(unit, table_id)
            if _is_registered(unit, row, name):
                _refuse_other_request(name, table_id, judge(examined))
                return describe(unit, table_id)
            now_ms = self._clock.now_ms()
            row = lookup.after(row, TableTransition.REGISTER)
            first_version.refuse_violations(examined, name, row.id, now_ms, judge=judge)
            self._record_first(unit, row, name, content, now_ms, Way.PUT_IF_ABSENT)
            return describe(unit, table_id)

        fail_point("registry.before_register")
        registered = self._change(table_id, register, key)
        fail_point("registry.after_register")
        return registered

    def register_external(
        self,
        name: TableName,
        location: str,
        format: str = "delta",
        schema_string: str | None = None,
        *,
        key: RequestKey | None = None,
    ) -> Resolved:
        if schema_string is not None:
            schemas.from_json(schema_string)  # raises if it is not a schema
        declared = Metadata(
            id="", format=Format(provider=format), schema_string=schema_string or ""
        )
        return self.declare_external(name, location, declared, key=key)

    def declare_external(
        self, name: TableName, location: str, declared: Metadata, *, key: RequestKey | None = None
    ) -> Resolved:
        """Register an external table; nothing of it is read, written or managed.

        A repeated request gets the first answer even without a key.
        """
        describe = self._reader.resolve_in
        location = self._allowed.check(location)
        format = declared.format.provider
        if not (format.isascii() and format.isalnum() and len(format) <= 40):
            raise InvalidArgumentError(
                f"{format[:60]!r} is not a valid format.",
                remedy="Use delta, parquet, iceberg or csv.",
            )
        table_id = TableId(str(self._ids.random()))

        def register(unit: WriteUnit) -> Resolved:
            lookup.require_namespace(unit, name.namespace)
            existing = unit.table_id_of(name)
            if existing is not None:
                row = lookup.known(unit, existing)
                is_same = row.kind is TableKind.EXTERNAL and row.location == location
                before = replaced(from_json(row.metadata, Metadata), id="")
                if is_same and before == declared and unit.name_of(existing) == name:
                    return describe(unit, existing)
                raise AlreadyExistsError(f"There is a table {name} already.")
            lookup.refuse_overlap(unit, location)
            row = self._new_row(table_id, location)._replace(
                kind=TableKind.EXTERNAL,
                state=TableStatus.ACTIVE,
                metadata=to_json(replaced(declared, id=table_id)),
            )
            unit.insert_table(row)
            unit.assign_name(name, table_id, self._next_sequence(unit))
            return describe(unit, table_id)

        return self._change(str(name), register, key)

    def change_external(
        self, table_id: TableId, change: Callable[[Version, Metadata], Metadata]
    ) -> None:
        """Change the stored metadata of an external table; `change` may raise."""

        def change_metadata(unit: WriteUnit) -> None:
            row = lookup.known(unit, table_id)
            if row.kind is not TableKind.EXTERNAL or row.state is not TableStatus.ACTIVE:
                raise NotFoundError(f"There is no external table {table_id}.")
            before = from_json(row.metadata, Metadata)
            after = change(row.metadata_version, before)
            if after != before:
                row = row._replace(
                    metadata=to_json(after),
                    metadata_version=Version(row.metadata_version + 1),
                    timestamp_ms=self._clock.now_ms(),
                )
                unit.update_table(row)

        self._change(table_id, change_metadata)

    def create(self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline) -> Resolved:
        """Create and name a table in one call; version 0 is inline. Spec: LC-01.

        Where this catalog publishes, version 0 is in the log before the client learns where the
        table is. If publishing fails, the table is created all the same and published later.
        """
        examined = examination.examine(first)
        location = self._own_location(parse_table_id(table_id), name.namespace)
        with self._store.read() as unit:
            staging = unit.table(table_id)
        self._allowed.refuse_if_linked(location if staging is None else staging.location)

        def create(unit: WriteUnit) -> None:
            row = unit.table(table_id)
            if row is not None and row.head >= 0:
                [version_zero] = unit.commits(row.key, _ZERO, _ZERO, content=False)
                if version_zero.txn_id == txn_id:  # a repeated request
                    return
                raise AlreadyExistsError(f"Table {table_id} exists already.")
            if row is None:
                lookup.refuse_overlap(unit, location)
                row = unit.insert_table(self._new_row(table_id, location))
            row = lookup.after(row, TableTransition.REGISTER)
            now_ms = self._clock.now_ms()
            clock_ms = unit.clock().clock_ms
            content = first_version.compose(examined, name, table_id, txn_id, now_ms, clock_ms)
            self._record_first(unit, row, name, content, now_ms, Way.INLINE)

        fail_point("registry.before_register")
        self._change(txn_id, create)
        fail_point("registry.after_register")
        if self._publisher.is_running:
            deadline = self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000
            try:
                self._publisher.publish(table_id, _ZERO, deadline)
            except HeadgateError as error:
                _log.warning("version 0 of %s is not published yet: %s", name, error)
        self._publisher.wake(table_id)
        self._feed.notify()
        with self._store.read() as unit:  # also of a repeated request, after the table was dropped
            return self._reader.resolve_in(unit, table_id, unit.clock().sequence)

    # Names

    def was_renamed(self, old: TableName, new: TableName) -> bool:
        """Return True if the last rename of the table `new` was from `old`."""
        with self._store.read() as unit:
            table_id = unit.table_id_of(new)
            names = [] if table_id is None else unit.names_of(table_id)
        return len(names) > 1 and names[-2].key == old.key

    def rename(self, table_id: TableId, name: TableName, *, key: RequestKey | None = None) -> None:
        def rename(unit: WriteUnit) -> None:
            lookup.active(unit, table_id)
            if unit.name_of(table_id) == name:
                return
            lookup.require_namespace(unit, name.namespace)
            if unit.table_id_of(name) not in (None, table_id):
                raise AlreadyExistsError(f"There is a table {name} already.")
            sequence = self._next_sequence(unit)
            unit.release_name(table_id, sequence)
            unit.assign_name(name, table_id, sequence)

        self._change(table_id, rename, key)

    def drop(self, table_id: TableId, *, key: RequestKey | None = None) -> None:
        def drop(unit: WriteUnit) -> None:
            row = lookup.known(unit, table_id)
            if row.state is TableStatus.DROPPED:
                return
            dropped = lookup.after(row, TableTransition.DROP)
            unit.release_name(table_id, self._next_sequence(unit))
            unit.update_table(dropped._replace(dropped_ms=self._clock.now_ms()))

        self._change(table_id, drop, key)
        fail_point("registry.after_drop")

    def undrop(
        self, table_id: TableId, name: TableName | None = None, *, key: RequestKey | None = None
    ) -> None:
        def undrop(unit: WriteUnit) -> None:
            row = lookup.known(unit, table_id)
            current = unit.name_of(table_id)
            if current is not None and (name is None or current.key == name.key):
                return  # a repeated request
            undropped = lookup.after(row, TableTransition.UNDROP)
            new_name = name or unit.last_name_of(table_id)
            assert new_name is not None  # only a table with a name can be dropped
            lookup.require_namespace(unit, new_name.namespace)
            if unit.table_id_of(new_name) is not None:
                raise AlreadyExistsError(
                    f"Another table has the name {new_name} now.",
                    remedy="Undrop the table under a new name.",
                )
            unit.update_table(undropped._replace(dropped_ms=None))
            unit.assign_name(new_name, table_id, self._next_sequence(unit))

        self._change(table_id, undrop, key)
        self._publisher.wake(table_id)

    # Listings

    def entries(
        self, namespace: SchemaName | None = None, *, dropped: bool = False
    ) -> tuple[TableEntry, ...]:
        with self._store.read() as unit:
            if namespace is not None:
                lookup.require_namespace(unit, namespace)
            listed = [(row, name) for row, name, _ in unit.tables(namespace)]
            if dropped:
                # Listed as well: a purge that was interrupted has to be finished.
                rows = unit.tables_in_state(TableStatus.DROPPED) + unfinished_purges(unit)
                listed += [
                    (row, name)
                    for row in rows
                    if (name := unit.last_name_of(row.id)) is not None
                    and (namespace is None or name.namespace.key == namespace.key)
                ]
        return tuple(_entry(row, name) for row, name in listed)

    def page(
        self, namespace: SchemaName | None, after: TableName | None, limit: int
    ) -> tuple[TableEntry, ...]:
        """List at most `limit` tables after a name, sorted by name.

        The cost does not depend on the size of the catalog.
        """
        with self._store.read() as unit:
            if namespace is not None:
                lookup.require_namespace(unit, namespace)
            rows = unit.tables(namespace, after, limit)
        return tuple(_entry(row, name) for row, name, _ in rows)

    def table_at(self, location: str) -> TableId | None:
        """Return the staged or registered table with this location; None if there is none."""
        normalized = locations.normalize(location)
        with self._store.read() as unit:
            row = unit.overlapping_table(normalized)
        return row.id if row is not None and row.location == normalized else None

    def _own_location(self, table_id: TableId, namespace: SchemaName | None) -> str:
        own = None
        if namespace is not None:
            with self._store.read() as unit:
                own = namespace_details.storage_location(unit, namespace)
        if own is None:
            return locations.join(self._root, f"{TABLES}/{table_id}")
        # Checked again: the location may no longer be allowed.
        return self._allowed.check(locations.join(own, f"{TABLES}/{table_id}"))

    def _new_row(self, table_id: TableId, location: str) -> TableRow:
        return TableRow(
            key=0,
            id=table_id,
            state=TableStatus.STAGING,
            location=location,
            head=_NONE,
            timestamp_ms=0,
            published=_NONE,
            held_from=_ZERO,
            protocol=b"{}",
            metadata=b"{}",
            metadata_version=_NONE,
            domains=b"[]",
            row_id_high_water=None,
            num_files=None,
            size_bytes=None,
            diverged=None,
            ticket=None,
            ticket_until_ms=0,
            created_ms=self._clock.now_ms(),
            dropped_ms=None,
        )

    def _refuse_unless_free(self, location: str) -> None:
        """Refuse a location that is not empty, and name the table that is there. Spec: EN-02.

        If a staging table expires, everything at its location is deleted.
        """
        log = self._log_of(location)
        content = log.read_published(_ZERO)
        if content is None:
            if any(True for _ in log.store.list("", recursive=True)):
                raise NotEmptyError(f"{location} is not empty.")
            return
        first = examination.examine_file(content)
        is_managed = first.protocol is not None and features.is_catalog_managed(first.protocol)
        if is_managed and first.metadata is not None:
            owner = first.metadata.configuration.get(TABLE_ID_PROPERTY, first.metadata.id)
            raise AlreadyExistsError(
                f"{location} is managed by another catalog, as its table {owner}.",
                remedy="Use that catalog, or choose another location.",
            )
        raise AlreadyExistsError(f"{location} already has a Delta table.")

    def _record_first(
        self,
        unit: WriteUnit,
        row: TableRow,
        name: TableName,
        content: bytes,
        now_ms: int,
        way: Way,
    ) -> None:
        """Record version 0, which was checked, and the table's name. Spec: LC-01."""
        examined = examination.examine_file(content)
        txn_id, timestamp_ms = examined.txn_id, examined.timestamp_ms
        assert txn_id is not None  # checked
        assert timestamp_ms is not None
        lookup.require_namespace(unit, name.namespace)
        if unit.table_id_of(name) is not None:
            raise AlreadyExistsError(f"There is a table {name} already.")
        sequence = self._next_sequence(unit, txn_id, timestamp_ms)
        files = checksums.files_after(None, examined.adds, examined.removes)
        is_published = way is Way.PUT_IF_ABSENT
        unit.update_table(
            row._replace(
                head=_ZERO,
                timestamp_ms=timestamp_ms,
                published=_ZERO if is_published else _NONE,
                protocol=to_json(examined.protocol),
                metadata=to_json(examined.metadata),
                metadata_version=_ZERO,
                domains=to_json(checksums.merged_domains((), examined.domains)),
                row_id_high_water=row_ids.newest_mark(None, examined.domains),
                num_files=None if files is None else files.num_files,
                size_bytes=None if files is None else files.size_bytes,
            )
        )
        unit.insert_commit(
            row.key,
            CommitRow(
                version=_ZERO,
                sequence=sequence,
                timestamp_ms=timestamp_ms,
                txn_id=txn_id,
                way=way,
                file_name=None,
                size=len(content),
                sha256=hashlib.sha256(content).digest(),
                modified_ms=None,
                intent=bytes.fromhex(examined.intent),
                proposed_ms=now_ms,
                ratified_ms=now_ms,
                published_ms=now_ms if is_published else None,
                summary=to_json(examined.changes),
                content=content,
            ),
        )
        unit.assign_name(name, row.id, sequence)


def _entry(row: TableRow, name: TableName) -> TableEntry:
    return TableEntry(
        table_id=row.id,
        name=str(name),
        kind=row.kind,
        state=row.state,
        location=row.location,
        latest=row.head if row.head >= 0 else None,
        published=row.published if row.published >= 0 else None,
        created_ms=row.created_ms,
        dropped_ms=row.dropped_ms,
    )


def _refuse_other_request(
    name: TableName, table_id: TableId, differences: Iterable[Violation]
) -> None:
    shown = "; ".join(violation.says for violation in differences)
    if shown:
        raise RefusedError(
            f"Staging table {table_id} was registered as {name} by another request: {shown}.",
            remedy="Request another staging table.",
        )


def _is_registered(unit: ReadUnit, row: TableRow, name: TableName) -> bool:
    """Return True if this registration was carried out before. Spec: LC-02."""
    return row.state is TableStatus.ACTIVE and unit.table_id_of(name) == row.id
