"""Namespaces and tables: stage, register, rename, drop, undrop, purge.

Names belong to the catalog and not to the log: none of this commits anything to a table but its
first version. Every change of a name takes a sequence, so a cut knows what a name meant.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from headgate.api.messages import Resolved, StagingTable, TableEntry
from headgate.api.port import Progress
from headgate.api.status import Remarks
from headgate.catalog import lookup, namespace_details
from headgate.catalog.allowed_locations import TABLES, AllowedLocations
from headgate.catalog.idempotency import RequestKey, once, refuse_if_answered, refuse_if_none
from headgate.catalog.publisher import lease_of
from headgate.catalog.ratifier import LATER, Later, Ratifier
from headgate.catalog.stores.port import (
    CatalogClock,
    CatalogStore,
    CommitRow,
    ReadUnit,
    TableRow,
    WriteUnit,
)
from headgate.clock import Clock, Ids
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
from headgate.names import DEFAULT_CATALOG, SchemaName, TableName, fold
from headgate.protocol import features
from headgate.protocol.actions import Format, Metadata, Sequence, TableId, TxnId, Version
from headgate.protocol.commit import admission, examination, inline_content, row_ids
from headgate.protocol.commit.content import Inline, Way
from headgate.protocol.commit.decide import merged_domains
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.encoding import from_json, replaced, to_json
from headgate.protocol.log import checksums, timestamps
from headgate.protocol.paths import LOG, PublishedCommit
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema import types as schemas
from headgate.protocol.table_states import (
    TableKind,
    TableStatus,
    TableTransition,
    allows,
    parse_table_id,
    step,
)
from headgate.settings import Settings
from headgate.storage import locations
from headgate.table.log_files import DeltaLog

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

Judge = Callable[[Examined], Iterable[Violation]]  # of what its sender said of the content

_UNITY_STORAGE = "__unitystorage"  # the folder of a storage root that Unity Catalog reserves
_ZERO = Version(0)
_NONE = Version(-1)


def nothing_more(examined: Examined) -> Iterable[Violation]:
    """Judge content by itself: its sender said nothing of it."""
    return ()


@dataclass(frozen=True, slots=True)
class ExternalTable:
    """A table that lies somewhere and is not managed."""

    location: str
    format: str
    schema_string: str | None
    comment: str | None = None
    partition_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def declared(self, table_id: TableId) -> Metadata:
        """Say what is kept of it besides its place."""
        return Metadata(
            id=table_id,
            description=self.comment,
            format=Format(provider=self.format),
            schema_string=self.schema_string or "",
            partition_columns=list(self.partition_columns),
            configuration=dict(self.properties),
        )

    def is_told_by(self, row: TableRow) -> bool:
        """Say whether a row tells of this very table."""
        return (
            row.kind is TableKind.EXTERNAL
            and row.location == self.location
            and from_json(row.metadata, Metadata) == self.declared(row.id)
        )

    def refuse_if_wrong(self) -> None:
        """Refuse a format that is no word, and columns that are no schema."""
        if not (self.format.isascii() and self.format.isalnum() and len(self.format) <= 40):
            raise InvalidArgumentError(
                f"{self.format[:60]!r} is no format.", remedy="Write delta, parquet, iceberg, csv."
            )
        if self.schema_string is not None:
            schemas.from_json(self.schema_string)


class Registry:
    """What has a name, and what a name means."""

    def __init__(
        self,
        store: CatalogStore,
        ratifier: Ratifier,
        root: str,
        allowed: AllowedLocations,
        log_of: Callable[[str], DeltaLog],
        clock: Clock,
        ids: Ids,
        settings: Settings,
    ) -> None:
        self._store = store
        self._ratifier = ratifier
        self._root = root
        self._allowed = allowed
        self._log_of = log_of
        self._clock = clock
        self._ids = ids
        self._settings = settings

    # Namespaces

    def create_namespace(
        self,
        name: SchemaName,
        key: RequestKey | None = None,
        said: Remarks | None = None,
        of_catalog: Remarks | None = None,
    ) -> None:
        """Create a namespace with its remarks, and those of a catalog that it is the first in."""
        own = self._new_remarks(said or Remarks(), "schemas")
        of_new_catalog = self._new_remarks(of_catalog or Remarks(), "catalogs")

        def create(unit: WriteUnit) -> None:
            known = unit.namespaces()
            if any(namespace.key == name.key for namespace in known):
                raise AlreadyExistsError(f"There is a namespace {name} already.")
            unit.insert_namespace(name, self._clock.now_ms())
            written: list[tuple[SchemaName | str, Remarks]] = [(name, own)]
            if not any(namespace.key[0] == name.key[0] for namespace in known):
                written.append((name.catalog, of_new_catalog))
            for of, new in written:
                if new.storage_location is not None:
                    self._refuse_overlap(unit, new.storage_location)
                namespace_details.write(unit, of, new)

        self._do(str(name), create, key)

    def _new_remarks(self, said: Remarks, kind: str) -> Remarks:
        """Add an id, and check the storage root: it must be an allowed location."""
        new_id = str(self._ids.random())
        if said.storage_root is None:
            return replaced(said, id=new_id)
        if _UNITY_STORAGE in said.storage_root:
            shown = locations.shown(said.storage_root)
            raise InvalidArgumentError(
                f"The storage root {shown[:200]!r} contains {_UNITY_STORAGE}, which is reserved.",
                remedy="Choose another storage root.",
            )
        self._allowed.refuse_unless_allowed(said.storage_root)
        root = locations.without_links(said.storage_root)
        place = self._allowed.check(locations.join(root, f"{_UNITY_STORAGE}/{kind}/{new_id}"))
        return replaced(said, id=new_id, storage_root=root, storage_location=place)

    def change_remarks(
        self,
        of: SchemaName | str,
        change: Callable[[Remarks], Remarks],
        new_name: str | None = None,
    ) -> None:
        """Change what is stored of a schema, or of a catalog, and rename it if asked."""

        def write(unit: WriteUnit) -> None:
            if isinstance(of, SchemaName):
                _require_namespace(unit, of)
            said = namespace_details.read_one(unit, of)
            changed = change(said)
            if changed != said:
                changed = replaced(changed, changed_ms=self._clock.now_ms())
                namespace_details.write(unit, of, changed)
            if new_name is not None:
                self._rename_container(unit, of, new_name)

        self._do(str(of), write)

    def rename_namespace(
        self, name: SchemaName, new_name: str, key: RequestKey | None = None
    ) -> None:
        """Rename a schema within its catalog; its tables keep their ids, data and history."""

        def rename(unit: WriteUnit) -> None:
            _require_namespace(unit, name)
            self._rename_container(unit, name, new_name)

        self._do(str(name), rename, key)

    def rename_catalog(self, name: str, new_name: str, key: RequestKey | None = None) -> None:
        """Rename a catalog with all its schemas and tables."""
        self._do(name, lambda unit: self._rename_container(unit, name, new_name), key)

    def _rename_container(self, unit: WriteUnit, of: SchemaName | str, new_name: str) -> None:
        """Rename a schema or a catalog; every table in it changes its name at one sequence."""
        made_ms = unit.namespace_creation_times()
        if isinstance(of, SchemaName):
            [old] = [known for known in made_ms if known.key == of.key]
            moves = {old: SchemaName(old.catalog, new_name)}
            is_taken = any(known.key == moves[old].key for known in made_ms if known != old)
        else:
            moves = {
                known: SchemaName(new_name, known.schema)
                for known in made_ms
                if known.key[0] == fold(of)
            }
            _refuse_catalog_rename(of, is_known=bool(moves))
            others = {known.key[0] for known in made_ms} - {fold(of)} | {fold(DEFAULT_CATALOG)}
            is_taken = fold(new_name) in others
        if is_taken:
            kind = "schema" if isinstance(of, SchemaName) else "catalog"
            raise AlreadyExistsError(f"There is a {kind} {new_name} already.")
        if all(old == new for old, new in moves.items()):
            return
        moved = [
            (row.id, TableName(new.catalog, new.schema, name.table))
            for old, new in moves.items()
            for row, name, _ in unit.tables(old)
        ]
        if moved:
            sequence = self._turn(unit)
            for table_id, _ in moved:
                unit.release_name(table_id, sequence)
            for table_id, name in moved:
                unit.assign_name(name, table_id, sequence)
        for old, new in moves.items():
            unit.delete_namespace(old)
            unit.insert_namespace(new, made_ms[old])
        self._move_remarks(unit, of, new_name)

    def _move_remarks(self, unit: WriteUnit, of: SchemaName | str, new_name: str) -> None:
        before = namespace_details.read_one(unit, of)
        former = of if isinstance(of, str) else of.schema
        after = replaced(
            before,
            id=before.id or namespace_details.id_of(of),
            former_name=former,
            changed_ms=self._clock.now_ms(),
        )
        if isinstance(of, str):
            namespace_details.move(unit, of, new_name)
            namespace_details.write(unit, new_name, after)
        else:
            namespace_details.write(unit, of, None)
            namespace_details.write(unit, SchemaName(of.catalog, new_name), after)

    def drop_namespace(self, name: SchemaName, key: RequestKey | None = None) -> None:
        """Remove an empty namespace."""

        def drop(unit: WriteUnit) -> None:
            _require_namespace(unit, name)
            if unit.tables(name, limit=1):
                raise NotEmptyError(f"Namespace {name} has tables.")
            unit.delete_namespace(name)
            namespace_details.write(unit, name, None)
            if not any(known.key[0] == name.key[0] for known in unit.namespaces()):
                namespace_details.write(unit, name.catalog, None)

        self._do(str(name), drop, key)

    # Creation

    def stage(
        self,
        location: str | None = None,
        namespace: SchemaName | None = None,
        key: RequestKey | None = None,
    ) -> StagingTable:
        """Return an id and a location for a table that has no name yet. Spec: CM-39.

        Without a location it is under the storage root of the namespace, or of the lake.
        """
        table_id = TableId(str(self._ids.random()))
        if location is None:
            place = self._place(table_id, namespace)
        else:
            place = self._allowed.check(location)
            self._refuse_unless_free(place)

        def stage(unit: WriteUnit) -> StagingTable:
            self._refuse_overlap(unit, place)
            unit.insert_table(self._new_row(table_id, place))
            return StagingTable(table_id=table_id, location=place)

        return self._do(table_id, stage, key)

    def register(
        self,
        name: TableName,
        table_id: TableId,
        describe: Callable[[ReadUnit, TableId], Resolved],
        key: RequestKey | None = None,
        judge: Judge = nothing_more,
    ) -> Resolved:
        """Judge version 0 of a staging table and give the table its name. Spec: LC-02.

        The same request again is answered as the first time; one that `judge` does not accept for
        version 0 is another request, and refused.
        """
        with self._store.read() as unit:
            staging = lookup.known(unit, table_id)
            registered = describe(unit, table_id) if _is_registered(unit, staging, name) else None
        content = self._log_of(staging.location).read_published(_ZERO)
        if registered is not None:
            if content is not None:  # a cleanup may have removed it
                _refuse_other_request(name, table_id, judge(examination.examine_file(content)))
            return registered
        if content is None:
            raise InvalidCommitError(
                str(name),
                [Violation(rule="no-version-0", says=f"{staging.location} holds no version 0")],
            )
        examined = examination.examine_file(content)
        # Recorded as published, so it must outlive a power loss, whoever wrote it.
        self._log_of(staging.location).store.sync([PublishedCommit(_ZERO).path])

        def register(unit: WriteUnit) -> Resolved:
            row = lookup.known(unit, table_id)
            if _is_registered(unit, row, name):
                _refuse_other_request(name, table_id, judge(examined))
                return describe(unit, table_id)
            _refuse_unless_allowed(row, TableTransition.REGISTER)
            now_ms = self._clock.now_ms()
            self._judge(examined, row.id, now_ms, name, txn_id=None, more=judge)
            assert examined.timestamp_ms is not None  # judged
            assert examined.txn_id is not None  # judged
            self._begin(
                unit,
                row,
                name,
                examined,
                content,
                txn_id=examined.txn_id,
                timestamp_ms=examined.timestamp_ms,
                now_ms=now_ms,
                way=Way.PUT_IF_ABSENT,
            )
            return describe(unit, table_id)

        fail_point("registry.before_register")
        registered = self._do(table_id, register, key)
        fail_point("registry.after_register")
        return registered

    def register_external(
        self,
        name: TableName,
        wanted: ExternalTable,
        describe: Callable[[ReadUnit, TableId], Resolved],
        key: RequestKey | None = None,
    ) -> Resolved:
        """Name a table that lies somewhere; nothing of it is read, written or managed.

        The very same again is answered as the first time: not every sender has a key.
        """
        place = self._allowed.check(wanted.location)
        wanted = replace(wanted, location=place)
        wanted.refuse_if_wrong()
        table_id = TableId(str(self._ids.random()))

        def register(unit: WriteUnit) -> Resolved:
            _require_namespace(unit, name.namespace)
            there = unit.table_id_of(name)
            if there is not None:
                if unit.name_of(there) == name and wanted.is_told_by(lookup.known(unit, there)):
                    return describe(unit, there)
                raise AlreadyExistsError(f"There is a table {name} already.")
            self._refuse_overlap(unit, place)
            row = self._new_row(table_id, place)._replace(
                kind=TableKind.EXTERNAL,
                state=TableStatus.ACTIVE,
                metadata=to_json(wanted.declared(table_id)),
            )
            unit.insert_table(row)
            unit.assign_name(name, table_id, self._turn(unit))
            return describe(unit, table_id)

        return self._do(str(name), register, key)

    def change_external(
        self, table_id: TableId, change: Callable[[Version, Metadata], Metadata]
    ) -> None:
        """Declare something else of a table that is not managed; `change` may refuse."""

        def declare(unit: WriteUnit) -> None:
            row = lookup.known(unit, table_id)
            if row.kind is not TableKind.EXTERNAL or row.state is not TableStatus.ACTIVE:
                raise NotFoundError(f"There is no external table {table_id}.")
            before = from_json(row.metadata, Metadata)
            after = change(row.metadata_version, before)
            if after != before:
                unit.update_table(
                    row._replace(
                        metadata=to_json(after),
                        metadata_version=Version(row.metadata_version + 1),
                        timestamp_ms=self._clock.now_ms(),
                    )
                )

        self._do(table_id, declare)

    def create(self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline) -> None:
        """Make and name a table in one call; version 0 comes inline. Spec: LC-01."""
        examined = examination.examine(first)
        place = self._place(parse_table_id(table_id), name.namespace)

        def create(unit: WriteUnit) -> None:
            row = unit.table(table_id)
            if row is not None and row.head >= 0:
                [version_zero] = unit.commits(row.key, _ZERO, _ZERO, content=False)
                if version_zero.txn_id == txn_id:  # told again, whatever became of it since
                    return
                raise AlreadyExistsError(f"Table {table_id} exists already.")
            if row is None:
                self._refuse_overlap(unit, place)
                row = unit.insert_table(self._new_row(table_id, place))
            _refuse_unless_allowed(row, TableTransition.REGISTER)
            now_ms = self._clock.now_ms()
            self._judge(examined, table_id, now_ms, name, txn_id=txn_id)
            assert examined.protocol is not None  # judged
            timestamp_ms = timestamps.next_timestamp(now_ms, unit.clock().clock_ms, ())
            is_tracked = features.is_supported(examined.protocol, "rowTracking")
            content, _ = inline_content.compose(
                examined,
                txn_id=txn_id,
                timestamp_ms=timestamp_ms,
                version=_ZERO,
                row_id_high_water=-1 if is_tracked else None,
            )
            stored = examination.examine_file(content)
            self._begin(
                unit,
                row,
                name,
                stored,  # with the row ids it was given
                content,
                txn_id=txn_id,
                timestamp_ms=timestamp_ms,
                now_ms=now_ms,
                way=Way.INLINE,
            )

        fail_point("registry.before_register")
        self._do(txn_id, create)
        fail_point("registry.after_register")

    # The life of a name

    def was_renamed(self, old: TableName, new: TableName) -> bool:
        """Say whether a table has a name, and had another just before it."""
        with self._store.read() as unit:
            table_id = unit.table_id_of(new)
            names = [] if table_id is None else unit.names_of(table_id)
        return len(names) > 1 and names[-2].key == old.key

    def rename(self, table_id: TableId, name: TableName, key: RequestKey | None = None) -> None:
        """Give the table another name; id, place and history stay. Spec: LC-04."""

        def rename(unit: WriteUnit) -> None:
            row = lookup.known(unit, table_id)
            if row.state is not TableStatus.ACTIVE:
                raise NotFoundError(f"Table {table_id} is {row.state.value}.")
            if unit.name_of(table_id) == name:
                return
            _require_namespace(unit, name.namespace)
            if unit.table_id_of(name) not in (None, table_id):
                raise AlreadyExistsError(f"There is a table {name} already.")
            sequence = self._turn(unit)
            unit.release_name(table_id, sequence)
            unit.assign_name(name, table_id, sequence)

        self._do(table_id, rename, key)

    def drop(self, table_id: TableId, key: RequestKey | None = None) -> None:
        """Take the name away; nothing is committed and nothing deleted. Spec: CM-40."""

        def drop(unit: WriteUnit) -> None:
            row = lookup.known(unit, table_id)
            if row.state is TableStatus.DROPPED:
                return
            _refuse_unless_allowed(row, TableTransition.DROP)
            unit.release_name(table_id, self._turn(unit))
            unit.update_table(
                row._replace(
                    state=step(row.state, TableTransition.DROP), dropped_ms=self._clock.now_ms()
                )
            )

        self._do(table_id, drop, key)
        fail_point("registry.after_drop")

    def undrop(
        self, table_id: TableId, name: TableName | None, key: RequestKey | None = None
    ) -> None:
        """Bring a dropped table back, under its old name or another. Spec: LC-03."""

        def undrop(unit: WriteUnit) -> None:
            row = lookup.known(unit, table_id)
            if _is_back(unit, row, name):
                return
            _refuse_unless_allowed(row, TableTransition.UNDROP)
            wanted = name or unit.last_name_of(table_id)
            assert wanted is not None  # only what had a name can be dropped
            _require_namespace(unit, wanted.namespace)
            if unit.table_id_of(wanted) is not None:
                raise AlreadyExistsError(
                    f"There is another table {wanted} by now.", remedy="Undrop it under a new name."
                )
            unit.update_table(
                row._replace(state=step(row.state, TableTransition.UNDROP), dropped_ms=None)
            )
            unit.assign_name(wanted, table_id, self._turn(unit))

        self._do(table_id, undrop, key)

    def purge(
        self,
        table_id: TableId,
        key: RequestKey | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete a dropped table's files, resumably; give how many went. Spec: CM-40.

        The table is purged in the catalog first: what is deleted can no longer be undropped,
        whatever dies in between. A purge that was cut short goes on when it is called again; one
        that came to its end is answered under its key.
        """
        deadline = self._clock.monotonic() + self._settings.lease_ms / 1000
        if key is not None:  # before anything is deleted
            refuse_if_none(key, self._clock.now_ms(), self._settings.rejections_kept_ms)

        def purge(unit: WriteUnit) -> TableRow | Later:
            if key is not None:
                refuse_if_answered(unit, key)
            row = lookup.known(unit, table_id)
            if row.state is not TableStatus.PURGED:
                _refuse_unless_allowed(row, TableTransition.PURGE)
                lease, now_ms = lease_of(table_id), self._clock.now_ms()
                until_ms = now_ms + self._settings.lease_ms
                is_free = unit.acquire_lease(lease, "purge", now_ms, until_ms)
                if not is_free and self._clock.monotonic() < deadline:
                    return LATER  # what its publisher puts now would stay behind
                unit.release_lease(lease, "purge")
                row = row._replace(state=step(row.state, TableTransition.PURGE))
                unit.update_table(row)
            return row

        row = self._do(table_id, purge)
        if not is_unfinished(row):  # told again: by now another table may lie there
            return 0
        if row.kind is TableKind.EXTERNAL:  # its files are not ours
            return self._do(table_id, lambda unit: self._finish_purge(unit, table_id, 0), key)
        self._refuse_if_moved(row.location)
        files = self._log_of(row.location).store
        if files.remove_link():
            _log.warning("%s was a link: what it led to is left", row.location)
        paths = sorted(item.path for item in files.list("", recursive=True))
        # Data before the log: what is left of a purge cut short is still known for a table.
        paths.sort(key=lambda path: path.startswith(f"{LOG}/"))
        for done, path in enumerate(paths, start=1):
            fail_point("registry.purge_between_files")
            files.delete(path)
            if progress is not None:
                progress(done, len(paths))
        files.sync(paths)
        files.remove_folders()
        fail_point("registry.before_forget_purged")
        return self._do(table_id, lambda unit: self._finish_purge(unit, table_id, len(paths)), key)

    def _refuse_if_moved(self, location: str) -> None:
        """Refuse to delete below a folder that became a link after a client chose the location.

        When it was chosen no folder on its way was one.
        """
        if locations.contains(locations.join(self._root, TABLES), location):
            return  # we chose it, and whoever may put links above it has the lake anyway
        above = location.rpartition("/")[0]
        if locations.without_links(above) != locations.normalize(above):
            raise RefusedError(
                f"{location} leads through a link by now: nothing is deleted there.",
                remedy="Remove the link, then purge the table again.",
            )

    def _finish_purge(self, unit: WriteUnit, table_id: TableId, files: int) -> int:
        row = lookup.known(unit, table_id)
        unit.delete_content(row.key, row.head)
        unit.update_table(row._replace(purged_ms=self._clock.now_ms()))
        return files

    def expire_staging(self, older_than_ms: int) -> list[TableId]:
        """Give up places that were staged and never registered, and delete what lies there."""
        before_ms = self._clock.now_ms() - older_than_ms
        left = {row.id for row in self.stale_staging(before_ms) if self._is_left(row, before_ms)}
        if not left:
            return []

        def expire(unit: WriteUnit) -> list[TableRow]:
            expired = [row for row in unit.tables_in_state(TableStatus.STAGING) if row.id in left]
            for row in expired:
                unit.update_table(row._replace(state=step(row.state, TableTransition.EXPIRE)))
            return expired

        expired = self._do("staging", expire)
        for row in expired:
            self.finish_purge(row.id)
        return [row.id for row in expired]

    def finish_purge(self, table_id: TableId) -> None:
        """Purge a table that nobody waits for; log a failure, since the next turn tries again."""
        try:
            self.purge(table_id)
        except HeadgateError as error:  # the others are not to wait for this one's storage
            _log.warning("table %s is not purged yet: %s", table_id, error)

    def stale_staging(self, before_ms: int) -> list[TableRow]:
        """Give the staging tables from before a time: nobody registered them."""
        with self._store.read() as unit:
            return [
                row
                for row in unit.tables_in_state(TableStatus.STAGING)
                if row.created_ms < before_ms
            ]

    def _is_left(self, row: TableRow, before_ms: int) -> bool:
        """Say whether nobody is at work in a staging table's place any more.

        A long first write is still under way while files come. And a version after the first is of
        a table that was registered: a catalog that does not know it is an older copy.
        """
        log = self._log_of(row.location)
        if log.is_published(Version(1)):
            return False
        return all(item.modified_ms < before_ms for item in log.store.list("", recursive=True))

    def entries(self, namespace: SchemaName | None, *, dropped: bool) -> list[TableEntry]:
        """List tables, the dropped ones too if asked."""
        with self._store.read() as unit:
            if namespace is not None:
                _require_namespace(unit, namespace)
            found = [(row, name) for row, name, _ in unit.tables(namespace)]
            if dropped:
                # A purge that was cut short is still to be finished, so it is shown.
                unfinished = [
                    row for row in unit.tables_in_state(TableStatus.PURGED) if is_unfinished(row)
                ]
                rows = [*unit.tables_in_state(TableStatus.DROPPED), *unfinished]
                gone = [(row, unit.last_name_of(row.id)) for row in rows]
                found += [
                    (row, name)
                    for row, name in gone
                    if name is not None
                    and (namespace is None or name.namespace.key == namespace.key)
                ]
        return [_entry(row, name) for row, name in found]

    def page(
        self, namespace: SchemaName | None, after: TableName | None, limit: int
    ) -> list[TableEntry]:
        """List some tables, by name, at a cost that does not grow with the catalog."""
        with self._store.read() as unit:
            if namespace is not None:
                _require_namespace(unit, namespace)
            return [_entry(row, name) for row, name, _ in unit.tables(namespace, after, limit)]

    def lying_at(self, location: str) -> TableId | None:
        """Give the table that lies at a place, staged or named; None if none does."""
        place = locations.normalize(location)
        with self._store.read() as unit:
            row = unit.overlapping_table(place)
        return row.id if row is not None and row.location == place else None

    # How it is done

    def _do(
        self, name: str, work: Callable[[WriteUnit], Result | Later], key: RequestKey | None = None
    ) -> Result:
        if key is not None:
            work = once(key, work, self._clock.now_ms(), self._settings.rejections_kept_ms)
        return self._ratifier.submit(name, work).result()

    def _place(self, table_id: TableId, namespace: SchemaName | None) -> str:
        own = None
        if namespace is not None:
            with self._store.read() as unit:
                own = namespace_details.storage_location(unit, namespace)
        if own is None:
            return locations.join(self._root, f"{TABLES}/{table_id}")
        # Checked again: the location may no longer be allowed.
        return self._allowed.check(locations.join(own, f"{TABLES}/{table_id}"))

    def _turn(
        self, unit: WriteUnit, txn_id: TxnId | None = None, timestamp_ms: int = 0
    ) -> Sequence:
        """Take the next sequence."""
        before = unit.clock()
        now_ms = self._clock.now_ms()
        clock_ms = timestamps.next_clock(before.clock_ms, max(timestamp_ms, now_ms), now_ms)
        sequence = Sequence(before.sequence + 1)
        unit.advance_clock(CatalogClock(sequence, clock_ms), txn_id)
        return sequence

    def _new_row(self, table_id: TableId, place: str) -> TableRow:
        return TableRow(
            key=0,
            id=table_id,
            state=TableStatus.STAGING,
            location=place,
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

    def _refuse_overlap(self, unit: ReadUnit, place: str) -> None:
        other = unit.overlapping_table(place)
        if other is not None:
            raise AlreadyExistsError(
                f"{place} overlaps table {other.id} at {other.location}.",
                remedy="Tables do not lie in each other: choose another location.",
            )

    def _refuse_unless_free(self, place: str) -> None:
        """Refuse a place that is not empty, naming the table that is there. Spec: EN-02.

        What is staged may expire, and then all that lies there goes: nothing may be there before.
        """
        log = self._log_of(place)
        content = log.read_published(_ZERO)
        if content is None:
            if any(True for _ in log.store.list("", recursive=True)):
                raise NotEmptyError(f"{place} is not empty.")
            return
        found = examination.examine_file(content)
        is_managed = found.protocol is not None and features.is_catalog_managed(found.protocol)
        if is_managed and found.metadata is not None:
            owner = found.metadata.configuration.get(TABLE_ID_PROPERTY, found.metadata.id)
            raise AlreadyExistsError(
                f"{place} is managed by another catalog, as its table {owner}.",
                remedy="Use that catalog, or choose another location.",
            )
        raise AlreadyExistsError(f"{place} holds a Delta table already.")

    def _judge(
        self,
        examined: Examined,
        table_id: TableId,
        now_ms: int,
        name: TableName,
        txn_id: TxnId | None,
        more: Judge = nothing_more,
    ) -> None:
        violations = [
            *examined.violations,
            *more(examined),
            *admission.judge_first(
                examined,
                table_id,
                now_ms=now_ms,
                txn_id=txn_id,
            ),
        ]
        if violations:
            raise InvalidCommitError(str(name), violations)

    def _begin(
        self,
        unit: WriteUnit,
        row: TableRow,
        name: TableName,
        examined: Examined,
        content: bytes,
        *,
        txn_id: TxnId,
        timestamp_ms: int,
        now_ms: int,
        way: Way,
    ) -> None:
        """Record version 0 and the name, together. Spec: LC-01."""
        _require_namespace(unit, name.namespace)
        if unit.table_id_of(name) is not None:
            raise AlreadyExistsError(f"There is a table {name} already.")
        sequence = self._turn(unit, txn_id, timestamp_ms)
        checksum = checksums.advance(
            None,
            adds=examined.adds,
            removes=examined.removes,
            metadata=examined.metadata,
            protocol=examined.protocol,
        )
        is_published = way is Way.PUT_IF_ABSENT
        unit.update_table(
            row._replace(
                state=step(row.state, TableTransition.REGISTER),
                head=_ZERO,
                timestamp_ms=timestamp_ms,
                published=_ZERO if is_published else _NONE,
                protocol=to_json(examined.protocol),
                metadata=to_json(examined.metadata),
                metadata_version=_ZERO,
                domains=to_json(merged_domains((), examined.domains)),
                row_id_high_water=row_ids.newest_mark(None, examined.domains),
                num_files=None if checksum is None else checksum.num_files,
                size_bytes=None if checksum is None else checksum.table_size_bytes,
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


def is_unfinished(row: TableRow) -> bool:
    """Say whether a purge was begun and not ended."""
    return row.state is TableStatus.PURGED and row.purged_ms is None


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


def _require_namespace(unit: ReadUnit, name: SchemaName) -> None:
    if not any(known.key == name.key for known in unit.namespaces()):
        raise NotFoundError(
            f"There is no namespace {name}.",
            remedy="Create it: session.create_namespace(), or `headgate create-namespace`.",
        )


def _refuse_catalog_rename(name: str, *, is_known: bool) -> None:
    if fold(name) == fold(DEFAULT_CATALOG):
        raise InvalidArgumentError(
            f"The catalog {DEFAULT_CATALOG} is part of every lake and cannot be renamed.",
            remedy="Create another catalog and rename its schemas or tables as needed.",
        )
    if not is_known:
        raise NotFoundError(f"There is no catalog {name}.")


def _refuse_other_request(
    name: TableName, table_id: TableId, differences: Iterable[Violation]
) -> None:
    found = "; ".join(violation.says for violation in differences)
    if found:
        raise RefusedError(
            f"Staging table {table_id} is {name} already, created by another request: {found}.",
            remedy="Request another staging table.",
        )


def _refuse_unless_allowed(row: TableRow, event: TableTransition) -> None:
    if not allows(row.state, event):
        raise RefusedError(
            f"Table {row.id} is {row.state.value}: it cannot {event.value}.",
            remedy="See `headgate show --dropped` for the state of each table.",
        )


def _is_back(unit: ReadUnit, row: TableRow, name: TableName | None) -> bool:
    """Say whether this very undrop was carried out before: its answer may have been lost."""
    if row.state is not TableStatus.ACTIVE:
        return False
    now = unit.name_of(row.id)
    return name is None or (now is not None and now.key == name.key)


def _is_registered(unit: ReadUnit, row: TableRow, name: TableName) -> bool:
    """Say whether this very registration was carried out before. Spec: LC-02."""
    return row.state is TableStatus.ACTIVE and unit.table_id_of(name) == row.id
