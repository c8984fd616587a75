"""Read, write and change tables."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from headgate import errors
from headgate.api.messages import Resolved, TimelineEntry
from headgate.api.port import Progress, Publishing, Timelines, require
from headgate.arguments import When, checked, milliseconds, refuse_several
from headgate.client import arrow_io, maintenance, table_changes
from headgate.client.detail import TableDetail, detail_of
from headgate.client.history import HistoryEntry, history_of
from headgate.client.plain_table import ArrowTable, TableProperties
from headgate.client.table_changes import UNCHANGED, Alteration, ColumnChange, RowCheck, Unchanged
from headgate.client.table_definition import (
    AnySchema,
    AnyType,
    TableDefinition,
    added_metrics,
    property_text,
    property_texts,
    refuse_protected,
    refuse_removals,
    removed_metrics,
    replacement,
    table_operation,
    type_of,
)
from headgate.client.transaction import Change, Committed, Committer, OperationInfo, as_text
from headgate.protocol.actions import Action, TableId, TxnId, Version, removals
from headgate.protocol.actions import Sequence as SequenceNumber
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.data_paths import normal_path
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.schema.alteration import AddedColumn, Position
from headgate.protocol.schema.types import find
from headgate.storage.object_store import ObjectStore
from headgate.table import snapshot_loader
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_cache import SnapshotCache

_PUBLISHED_AT_ONCE = 250  # commits between two reports of progress
_MAX_UNSEEN = 64  # commits of its own that a handle may not have loaded before an append


@checked
class Table(TableProperties):
    """A catalog-managed table, by its id. Spec: LC-04.

    Its properties are of the version that this handle saw last. A read resolves the table first,
    and never returns an older version than one seen before. Threads may share a table.
    """

    def __init__(
        self,
        committer: Committer,
        store_for: Callable[[str], ObjectStore],
        resolved: Resolved,
        cache: SnapshotCache,
    ) -> None:
        self.committer = committer
        self._catalog = committer.catalog
        self._store_for = store_for
        self._cache = cache  # shared by all tables of the session
        self._lock = threading.Lock()
        self._id = resolved.table_id
        self._name = resolved.name
        self._ways = resolved.ways
        self._latest = self._load(resolved)
        self._reached = self._latest.version  # of own commits, which may not be loaded yet

    def __repr__(self) -> str:
        return f"Table({self.name}, version {self.version})"

    @property
    def name(self) -> str:
        """The name of the table when it was resolved last, or its id if it had none."""
        return self._name or self._id

    @property
    def id(self) -> TableId:
        return self._id

    @property
    def location(self) -> str:
        return self._latest.location

    @property
    def newest_seen(self) -> Snapshot:
        """The newest snapshot this handle has loaded; reading it sends no request."""
        return self._latest

    # Reading

    def snapshot(
        self, version: int | None = None, as_of: When | None = None, sequence: int | None = None
    ) -> Snapshot:
        """Load the latest version, or an earlier one. Spec: RD-01, CM-38."""
        refuse_several(version=version, as_of=as_of, sequence=sequence)
        if version is None and as_of is None and sequence is None:
            return self._refreshed()
        return snapshot_loader.load(
            self._catalog,
            self._id,
            version=None if version is None else Version(version),
            as_of_ms=None if as_of is None else milliseconds(as_of),
            sequence=None if sequence is None else SequenceNumber(sequence),
            base=self._latest,
            cache=self._cache,
            store_for=self._store_for,
        )

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        as_of: When | None = None,
        sequence: int | None = None,
        where: Predicate | str | None = None,
    ) -> ArrowTable:
        """Read rows as an Arrow table; `where` may be a condition in SQL, such as "id > 5"."""
        return arrow_io.to_arrow(self.snapshot(version, as_of, sequence), columns, where)

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return the `commitInfo` of the commits that are in the log, newest first."""
        return history_of(self.snapshot(), limit, self._catalog)

    def detail(self) -> TableDetail:
        return detail_of(self.snapshot(), self.name)  # loading also updates the name

    def log(self, first: int | None = None, last: int | None = None) -> tuple[TimelineEntry, ...]:
        """Return when each commit was proposed, ratified and published, and in which way."""
        timelines = require(self._catalog, Timelines)
        return timelines.timeline(
            self.id,
            None if first is None else Version(first),
            None if last is None else Version(last),
        )

    # Writing

    def append(self, rows: ArrowTable) -> Committed:
        """Add rows from Arrow, pandas, polars or a list of dicts. Spec: IN-01, CM-44."""
        rows = arrow_io.rows_of(rows, self._latest.schema)
        if hasattr(rows, "read_next_batch"):  # a stream can be read only once
            return self._commit(self._writing(self.snapshot(), rows))
        # A blind append is rebased past any commits, so the table is not resolved first; unless
        # there are so many that reading them costs more than resolving.
        base = self._latest
        if self._reached - base.version > _MAX_UNSEEN:
            base = self._refreshed()
        try:
            return self._commit(self._writing(base, rows))
        except (errors.ConflictError, errors.InvalidDataError):
            # The base may be as old as this handle; commits before this call do not conflict.
            newest = self.snapshot()
            if newest.version == base.version:
                raise
            return self._commit(self._writing(newest, rows))

    def overwrite(self, rows: ArrowTable) -> Committed:
        """Replace all rows."""
        base = self.snapshot()
        rows = arrow_io.rows_of(rows, base.schema)
        refuse_removals(base)
        return self._commit(self._writing(base, rows, replaces=True))

    def remove(self, paths: Iterable[str]) -> Committed:
        """Remove whole files, by their paths in the log."""
        base = self.snapshot()
        refuse_removals(base)
        given = {normal_path(path): path for path in paths}
        removed = [file for file in base.files() if normal_path(file.path) in given]
        if missing := sorted(given.keys() - {normal_path(file.path) for file in removed}):
            raise errors.InvalidArgumentError(
                f"{self.name} has no file {given[missing[0]]} at version {base.version}.",
                remedy="Pass paths of files that are in the table now.",
            )
        if not removed:
            raise errors.InvalidArgumentError("No files to remove were passed.")
        return self._commit(
            self._change(
                base,
                actions=removals(removed, self.committer.clock.now_ms()),
                operation=OperationInfo("DELETE", {"predicate": "[]"}, removed_metrics(removed)),
            )
        )

    def set_properties(self, properties: Mapping[str, str | int | bool]) -> Committed:
        """Set table properties; add the table features that they need."""
        refuse_protected(properties)
        texts = property_texts(properties)
        operation = OperationInfo("SET TBLPROPERTIES", {"properties": as_text(texts)})

        def build(base: Snapshot) -> Alteration:
            after = {**base.metadata.configuration, **texts}
            return Alteration(replaced(base.metadata, configuration=after), operation)

        return self._alter(build)

    def unset_properties(self, keys: Iterable[str], *, if_exists: bool = False) -> Committed:
        """Remove table properties; with `if_exists` they need not be set."""
        unset = list(keys)
        refuse_protected(unset)
        operation = OperationInfo(
            "UNSET TBLPROPERTIES",
            {"properties": as_text(unset), "ifExists": property_text(if_exists)},
        )

        def build(base: Snapshot) -> Alteration:
            before = base.metadata.configuration
            missing = [key for key in unset if key not in before]
            if missing and not if_exists:
                raise errors.NotFoundError(
                    f"{self.name} has no property {missing[0]}.", remedy="See table.properties."
                )
            kept = {key: value for key, value in before.items() if key not in unset}
            return Alteration(replaced(base.metadata, configuration=kept), operation)

        return self._alter(build)

    def comment(self, text: str | None) -> Committed:
        """Set the comment of the table; None removes it."""
        operation = OperationInfo("SET TBLPROPERTIES", {"properties": as_text({"comment": text})})
        return self._alter(
            lambda base: Alteration(replaced(base.metadata, description=text), operation)
        )

    def add_columns(self, columns: AnySchema | Sequence[AddedColumn]) -> Committed:
        """Add columns, at the end or at their positions; existing rows have nulls in them."""
        new = table_changes.new_columns(columns)
        return self._alter(lambda base: table_changes.add_columns(base, new))

    def alter_column(
        self,
        column: str | Sequence[str],
        *,
        comment: str | Unchanged | None = UNCHANGED,
        nullable: bool | None = None,
        type: AnyType | None = None,
        default: str | Unchanged | None = UNCHANGED,
        position: Position | None = None,
        check: RowCheck | None = None,
    ) -> Committed:
        """Change a column, or a field within one by its path; what is not passed stays.

        A comment or default of None is removed. A type can only be widened, with typeWidening.
        Before NOT NULL every row is checked, by `check` if it is passed.
        """
        path = table_changes.path_of(column)
        change = ColumnChange(
            comment, nullable, None if type is None else type_of(type), default, position
        )
        # A check of every row starts from the latest version.
        base = self.snapshot() if nullable is False else None
        return self._alter(lambda base: table_changes.alter_column(base, path, change, check), base)

    def rename_column(self, column: str | Sequence[str], to: str) -> Committed:
        """Rename a column of a table with column mapping."""
        path = table_changes.path_of(column)
        return self._alter(lambda base: table_changes.rename_column(base, path, to))

    def drop_columns(
        self, columns: Iterable[str | Sequence[str]], *, if_exists: bool = False
    ) -> Committed | None:
        """Drop columns of a table with column mapping; with `if_exists` None if none exists."""
        paths = [table_changes.path_of(column) for column in columns]
        if not paths:
            raise errors.InvalidArgumentError("No columns to drop were passed.")
        base = None
        if if_exists:
            base = self.snapshot()
            paths = [path for path in paths if find(base.schema, path) is not None]
            if not paths:
                return None
        return self._alter(lambda base: table_changes.drop_columns(base, paths), base)

    def add_constraint(
        self, name: str, condition: str, *, check: RowCheck | None = None
    ) -> Committed:
        """Add a CHECK constraint: a condition in SQL that every row must satisfy.

        Existing rows are checked first: by `check` if it is passed, else by Arrow, which refuses
        conditions that it cannot evaluate exactly.
        """
        return self._alter(
            lambda base: table_changes.add_constraint(base, name, condition, check), self.snapshot()
        )

    def drop_constraint(self, name: str, *, if_exists: bool = False) -> Committed | None:
        """Drop a CHECK constraint; with `if_exists` return None if there is none."""
        base = None
        if if_exists:
            base = self.snapshot()
            if table_changes.constraint_of(base, name) is None:
                return None
        return self._alter(
            lambda base: table_changes.drop_constraint(base, name, if_exists=if_exists), base
        )

    def replace(
        self,
        definition: TableDefinition,
        operation: str = "REPLACE TABLE",
        base: Snapshot | None = None,
    ) -> Committed:
        """Replace this table by an empty one with the same id, as the version after `base`."""

        def change(base: Snapshot) -> Change:
            made = replacement(base, definition, self.committer.ids, self.committer.clock.now_ms())
            recorded = table_operation(operation, made.metadata, removed_metrics(made.removed))
            return self._change(base, made.actions, recorded, made.scans)

        return self._commit_built(change, base or self.snapshot())

    def commit(
        self,
        base: Snapshot,
        actions: Sequence[Action],
        operation: OperationInfo,
        scans: Sequence[Scan] = (),
        *,
        txn_id: TxnId | None = None,
    ) -> Committed:
        """Commit actions that an engine built on a snapshot; their files must exist."""
        change = self._change(base, tuple(actions), operation, tuple(scans))
        return self._commit(change, txn_id)

    # Maintenance

    def publish(self, upto: int | None = None, progress: Progress | None = None) -> Version:
        """Publish ratified commits; return the last published version."""
        publishing = require(self._catalog, Publishing)
        target = None if upto is None else Version(upto)
        if progress is None:
            return publishing.publish(self._id, target)
        latest = self.snapshot().version
        if target is not None and target > latest:
            return publishing.publish(self._id, target)  # which refuses the version
        target = latest if target is None else target
        first = done = publishing.publish(self._id, Version(0))  # publishes nothing
        while done < target:
            done = publishing.publish(self._id, Version(min(done + _PUBLISHED_AT_ONCE, target)))
            progress(min(done, target) - first, target - first)
        return done

    def checkpoint(self, version: int | None = None, kind: str | None = None) -> Version:
        """Write a `classic`, `v2` or `v2-json` checkpoint, or the required one. Spec: CM-27."""
        snapshot = self.snapshot(version)
        maintenance.checkpoint(
            self._catalog, self._id, snapshot, kind, self.committer.clock, self.committer.ids
        )
        return snapshot.version

    def write_checksum(self, version: int | None = None) -> Version:
        """Write the checksum of a version, published or not. Spec: CM-29."""
        snapshot = self.snapshot(version)
        maintenance.write_checksum(self._catalog, self._id, snapshot)
        return snapshot.version

    # Internals

    def _refreshed(self) -> Snapshot:
        # Read before the request: another thread may commit meanwhile.
        latest, reached = self._latest, max(self._latest.version, self._reached)
        resolved = self._catalog.resolve(self._id)
        self._name = resolved.name
        if resolved.latest < reached:
            # The catalog is an older copy, or has lost commits.
            raise errors.InvariantError(
                f"{self.name} went back from version {reached} to {resolved.latest}."
            )
        return self._keep_newest(self._load(resolved, latest))

    def _load(self, resolved: Resolved, base: Snapshot | None = None) -> Snapshot:
        return snapshot_loader.load(
            self._catalog, resolved, base=base, cache=self._cache, store_for=self._store_for
        )

    def _keep_newest(self, snapshot: Snapshot) -> Snapshot:
        """Keep a snapshot if it is newer than the one kept; return the newest."""
        with self._lock:
            latest = self._latest
            if (snapshot.version, snapshot.sequence or 0) >= (latest.version, latest.sequence or 0):
                self._latest = snapshot
            return self._latest

    def _known(self) -> Snapshot:
        """Return the newest snapshot seen, with all own commits."""
        return self._latest if self._latest.version >= self._reached else self._refreshed()

    def _commit(self, change: Change, txn_id: TxnId | None = None) -> Committed:
        committed = self.committer.commit([change], txn_id=txn_id)
        with self._lock:
            self._reached = max(self._reached, committed.version)
        # If the catalog rebased the commit past unknown ones, the next read loads them. Not here:
        # an error in loading must not hide that the commit is ratified.
        if (after := committed.snapshots.get(self._id)) is not None:
            self._keep_newest(after)
        return committed

    def _change(
        self,
        base: Snapshot,
        actions: tuple[Action, ...],
        operation: OperationInfo,
        scans: tuple[Scan, ...] = (),
    ) -> Change:
        return Change(self._id, base, self._ways, actions, operation, scans)

    def _writing(self, base: Snapshot, rows: ArrowTable, *, replaces: bool = False) -> Change:
        """Write rows as files; return the change that adds them, or replaces all rows by them."""
        ids, now_ms = self.committer.ids, self.committer.clock.now_ms()
        adds = arrow_io.write_files(base, rows, store=base.store, new_id=ids.random, now_ms=now_ms)
        actions: tuple[Action, ...] = tuple(adds)
        metrics = added_metrics(adds)
        scans: tuple[Scan, ...] = ()
        if replaces:
            removed = list(base.files())
            actions = (*removals(removed, now_ms), *actions)
            metrics |= removed_metrics(removed)
            scans = (Scan(table_id=self._id, version=base.version),)
        mode = "Overwrite" if replaces else "Append"
        parameters = {"mode": mode, "partitionBy": as_text(base.partition_columns)}
        return self._change(base, actions, OperationInfo("WRITE", parameters, metrics), scans)

    def _alter(
        self, build: Callable[[Snapshot], Alteration], base: Snapshot | None = None
    ) -> Committed:
        """Commit a change of metadata, built on the newest snapshot seen or on `base`."""
        # The catalog rejects a change that is built on old metadata, so the table is not resolved
        # first.

        def change(base: Snapshot) -> Change:
            altered = build(base)
            actions = table_changes.actions_of(base, altered, self.committer.ids)
            return self._change(base, actions, altered.operation, altered.scans)

        return self._commit_built(change, base or self._known())

    def _commit_built(self, build: Callable[[Snapshot], Change], base: Snapshot) -> Committed:
        """Build a change and commit it; build it again if its base was not the latest version."""
        try:
            return self._commit(build(base))
        except (errors.ConflictError, errors.RefusedError):
            newest = self.snapshot()
            if newest.version == base.version:
                raise
            return self._commit(build(newest))
