"""A table as its users meet it: read it, write it, ask about it.

A `Table` goes by the table's id: a rename does not disturb it, and what is made anew under the
same name is another table. A `PlainTable` is one without a catalog, opened by path to be read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headgate.api.messages import RatifiedCommit, Resolved, TimelineEntry
from headgate.api.port import ManagingCatalog, Progress, Publishing, Timelines, require
from headgate.arguments import When, checked, milliseconds
from headgate.client import arrow_io, maintenance, table_changes
from headgate.client.detail import TableDetail, detail_of
from headgate.client.table_changes import UNCHANGED, Alteration, ColumnChange, RowCheck, Unchanged
from headgate.client.table_definition import (
    ROW_TRACKING_PREFIX,
    AnySchema,
    AnyType,
    Wanted,
    added_metrics,
    making,
    property_text,
    property_texts,
    refuse_removals,
    replacement,
    type_of,
)
from headgate.client.transaction import (
    Change,
    Committed,
    Committer,
    Operation,
    as_text,
    content_of,
)
from headgate.errors import (
    ConflictError,
    InvalidArgumentError,
    InvalidDataError,
    InvariantError,
    MalformedError,
    NotFoundError,
    RefusedError,
)
from headgate.protocol import features
from headgate.protocol.actions import (
    Action,
    AddFile,
    TableId,
    TxnId,
    Version,
    removals,
)
from headgate.protocol.actions import Sequence as SequenceNumber
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.data_paths import normal_path
from headgate.protocol.encoding import from_json, replaced
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema.changes import AddedColumn, Position
from headgate.protocol.schema.types import CONSTRAINTS, StructType, find
from headgate.storage import locations
from headgate.storage.port import ObjectStore
from headgate.table import snapshot_loader
from headgate.table.log_files import DeltaLog
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_cache import SnapshotCache

# pyarrow has its home in `client.arrow_io` and brings no types of its own.
ArrowTable: TypeAlias = Any

# What makes a table the catalog's, or is decided when it is made. Spec: EN-01.
_PROTECTED = frozenset(
    {
        TABLE_ID_PROPERTY,
        "delta.enableInCommitTimestamps",
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.columnMapping.mode",
        "delta.columnMapping.maxColumnId",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.requireCheckpointProtectionBeforeVersion",
    }
)
_PROTECTED_PREFIXES = (features.ASKING, CONSTRAINTS, ROW_TRACKING_PREFIX)
_PUBLISHED_AT_ONCE = 250  # commits, where somebody wants to hear how far it is
_MOST_UNSEEN = 64  # commits an append is built behind before the handle looks at the table again


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What a commit says of itself; what it does not say is None or empty."""

    version: Version
    timestamp_ms: int | None
    operation: str | None
    parameters: Mapping[str, object]
    metrics: Mapping[str, object]
    read_version: int | None
    isolation: str | None
    is_blind_append: bool | None
    txn_id: str | None
    engine: str | None


@checked
class Table:
    """A catalog-managed table, by its id. Spec: LC-04.

    The properties tell of the version this handle saw last; reads ask the catalog for the latest
    first, and never go back behind what was seen. Safe for many threads.
    """

    def __init__(
        self,
        committer: Committer,
        store_for: Callable[[str], ObjectStore],
        resolved: Resolved,
        cache: SnapshotCache,
    ) -> None:
        self.committer = committer  # whose clock and ids also engines go by
        self._catalog = committer.catalog
        self._store_for = store_for
        self._cache = cache  # of the whole session
        self._lock = threading.Lock()
        self._id = resolved.table_id
        self._name = resolved.name
        self._ways = resolved.ways
        self._latest = self._load(resolved)
        self._reached = self._latest.version  # of commits made here, perhaps not seen yet

    def __repr__(self) -> str:
        return f"Table({self.name}, version {self.version})"

    @property
    def name(self) -> str:
        """The name the table had when it was seen last, or its id if it had none."""
        return self._name or self._id

    @property
    def id(self) -> TableId:
        return self._id

    @property
    def location(self) -> str:
        return self._latest.location

    @property
    def version(self) -> Version:
        return self._known().version

    @property
    def schema(self) -> StructType:
        return self._known().schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self._known().partition_columns)

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._known().metadata.configuration)

    @property
    def newest_seen(self) -> Snapshot:
        """The newest snapshot this handle has loaded; reading it sends no request."""
        return self._latest

    # Reading

    def snapshot(
        self,
        version: int | None = None,
        as_of: When | None = None,
        sequence: int | None = None,
    ) -> Snapshot:
        """Give the table at its latest version, or as it was. Spec: RD-01, CM-38."""
        refuse_several(version, as_of, sequence)
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
        rows: ArrowTable = arrow_io.to_arrow(
            self.snapshot(version, as_of, sequence), columns, where
        )
        return rows

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Tell what each commit says of itself, newest first, as far back as the log goes."""
        return history_of(self._catalog, self.snapshot(), limit)

    def detail(self) -> TableDetail:
        """Describe the table as it is now."""
        snapshot = self.snapshot()  # which also tells the name of now
        return detail_of(snapshot, self.name)

    def log(self, first: int | None = None, last: int | None = None) -> tuple[TimelineEntry, ...]:
        """Tell when each commit was proposed, ratified and published, and how it came."""
        # A protocol is what is asked for, and not a class to be made.
        timelines = require(self._catalog, Timelines)  # type: ignore[type-abstract]
        return timelines.timeline(
            self.id,
            None if first is None else Version(first),
            None if last is None else Version(last),
        )

    # Writing

    def append(self, rows: ArrowTable) -> Committed:
        """Add rows: of Arrow, pandas or polars, or a list of dicts. Spec: IN-01, CM-44."""
        rows = arrow_io.rows_of(rows, self._latest.schema)
        if hasattr(rows, "read_next_batch"):  # a stream passes once: no second try with its rows
            return self._commit(self._appending(self.snapshot(), rows))
        # No call before the proposal: a blind append is moved past whatever came meanwhile. Unless
        # that is so much that looking through it each time would cost more than the call.
        base = self._latest
        if self._reached - base.version > _MOST_UNSEEN:
            base = self._refreshed()
        try:
            return self._commit(self._appending(base, rows))
        except (ConflictError, InvalidDataError):
            # The base may be as old as this handle, and what happened before this call began is
            # no race the caller has lost.
            newest = self.snapshot()
            if newest.version == base.version:
                raise
            return self._commit(self._appending(newest, rows))

    def overwrite(self, rows: ArrowTable) -> Committed:
        """Put these rows in place of all that are there now."""
        base = self.snapshot()
        rows = arrow_io.rows_of(rows, base.schema)
        refuse_removals(base)
        adds = self._write_files(base, rows)
        gone = list(base.files())
        return self._commit(
            self._change(
                base,
                actions=(*removals(gone, self.committer.clock.now_ms()), *adds),
                operation=Operation(
                    "WRITE",
                    {"mode": "Overwrite", "partitionBy": as_text(base.partition_columns)},
                    added_metrics(adds) | _removed(gone),
                ),
                scans=(Scan(table_id=self._id, version=base.version),),
            )
        )

    def remove(self, paths: Iterable[str]) -> Committed:
        """Take whole files out of the table, by the paths its log has for them."""
        base = self.snapshot()
        refuse_removals(base)
        wanted = {normal_path(path): path for path in paths}
        gone = [file for file in base.files() if normal_path(file.path) in wanted]
        if missing := sorted(wanted.keys() - {normal_path(file.path) for file in gone}):
            raise InvalidArgumentError(
                f"{self.name} has no file {wanted[missing[0]]} at version {base.version}.",
                remedy="Name files that are in the table now.",
            )
        if not gone:
            raise InvalidArgumentError("No file to remove was named.")
        return self._commit(
            self._change(
                base,
                actions=removals(gone, self.committer.clock.now_ms()),
                operation=Operation("DELETE", {"predicate": "[]"}, _removed(gone)),
            )
        )

    def set_properties(self, properties: Mapping[str, str | int | bool]) -> Committed:
        """Set table properties, and support the features that they switch on."""
        for key in properties:
            _refuse_protected(key)
        told = property_texts(properties)
        operation = Operation("SET TBLPROPERTIES", {"properties": as_text(told)})

        def build(base: Snapshot) -> Alteration:
            after = {**base.metadata.configuration, **told}
            return Alteration(replaced(base.metadata, configuration=after), operation)

        return self._alter(build)

    def unset_properties(self, keys: Iterable[str], *, if_exists: bool = False) -> Committed:
        """Take table properties away; one that is not there is refused unless told otherwise."""
        gone = list(keys)
        for key in gone:
            _refuse_protected(key)
        operation = Operation(
            "UNSET TBLPROPERTIES",
            {"properties": as_text(gone), "ifExists": property_text(if_exists)},
        )

        def build(base: Snapshot) -> Alteration:
            before = base.metadata.configuration
            missing = [key for key in gone if key not in before]
            if missing and not if_exists:
                raise NotFoundError(
                    f"{self.name} has no property {missing[0]}.", remedy="See table.properties."
                )
            kept = {key: value for key, value in before.items() if key not in gone}
            return Alteration(replaced(base.metadata, configuration=kept), operation)

        return self._alter(build)

    def comment(self, text: str | None) -> Committed:
        """Say what the table is for; None takes the comment away."""
        operation = Operation("SET TBLPROPERTIES", {"properties": as_text({"comment": text})})

        def build(base: Snapshot) -> Alteration:
            return Alteration(replaced(base.metadata, description=text), operation)

        return self._alter(build)

    def add_columns(self, columns: AnySchema | Sequence[AddedColumn]) -> Committed:
        """Add columns, at the end or where each says; rows that are there have nulls in them."""
        new = table_changes.new_columns(columns)
        return self._alter(lambda base: table_changes.add_columns(base, new, self._new_column_name))

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
        """Change a column, or by its path a field within one; what is not named stays.

        No comment or default is None. A type can only become wider, and only with typeWidening.
        For NOT NULL every row is looked at, by `check` if there is one.
        """
        path = table_changes.path_of(column)
        change = ColumnChange(
            comment, nullable, None if type is None else type_of(type), default, position
        )
        # Who is about to look at every row begins with the newest.
        base = self.snapshot() if nullable is False else None
        return self._alter(
            lambda base: table_changes.alter_column(
                base, path, change, check, self._new_column_name
            ),
            base,
        )

    def rename_column(self, column: str | Sequence[str], to: str) -> Committed:
        """Give a column another name, on tables with column mapping."""
        path = table_changes.path_of(column)
        return self._alter(
            lambda base: table_changes.rename_column(base, path, to, self._new_column_name)
        )

    def drop_columns(
        self, columns: Iterable[str | Sequence[str]], *, if_exists: bool = False
    ) -> Committed | None:
        """Drop columns, on tables with column mapping; None if none of them was there."""
        paths = [table_changes.path_of(column) for column in columns]
        if not paths:
            raise InvalidArgumentError("No column to drop was named.")
        base = None
        if if_exists:
            base = self.snapshot()
            paths = [path for path in paths if find(base.schema, path) is not None]
            if not paths:
                return None
        return self._alter(
            lambda base: table_changes.drop_columns(base, paths, self._new_column_name), base
        )

    def add_constraint(
        self, name: str, condition: str, *, check: RowCheck | None = None
    ) -> Committed:
        """Have a condition in SQL hold for every row; those that are there are looked at first.

        By Arrow, which refuses what it cannot evaluate exactly, or by `check` if there is one.
        """
        return self._alter(
            lambda base: table_changes.add_constraint(base, name, condition, check), self.snapshot()
        )

    def drop_constraint(self, name: str, *, if_exists: bool = False) -> Committed | None:
        """Have a condition hold no more; None if it may be missing and is."""
        base = None
        if if_exists:
            base = self.snapshot()
            if not table_changes.has_constraint(base, name):
                return None
        return self._alter(
            lambda base: table_changes.drop_constraint(base, name, if_exists=if_exists), base
        )

    def replace(
        self, wanted: Wanted, operation: str = "REPLACE TABLE", base: Snapshot | None = None
    ) -> Committed:
        """Replace this table by an empty one with the same id, in one more version.

        `base` is the snapshot to start from, by default the latest.
        """

        def change(base: Snapshot) -> Change:
            made = replacement(base, wanted, self.committer.ids, self.committer.clock.now_ms())
            told = making(operation, made.metadata, _removed(made.removed))
            return self._change(base, made.actions, told, made.scans)

        return self._anew(change, base or self.snapshot())

    def commit(
        self,
        base: Snapshot,
        actions: Sequence[Action],
        operation: Operation,
        scans: Sequence[Scan] = (),
        *,
        txn_id: TxnId | None = None,
    ) -> Committed:
        """Propose what an engine built on a snapshot of this table, its files being there."""
        change = self._change(base, tuple(actions), operation, tuple(scans))
        return self._commit(change, txn_id)

    # Upkeep

    def publish(self, upto: int | None = None, progress: Progress | None = None) -> Version:
        """Have ratified commits copied into the log; give the last version that is there.

        `progress` is called with how many are, and how many were due.
        """
        # A protocol is what is asked for, and not a class to be made.
        publishing = require(self._catalog, Publishing)  # type: ignore[type-abstract]
        target = None if upto is None else Version(upto)
        if progress is None:
            return publishing.publish(self._id, target)
        latest = self.snapshot().version
        if target is not None and target > latest:
            return publishing.publish(self._id, target)  # refused before anything is done
        target = latest if target is None else target
        first = done = publishing.publish(self._id, Version(0))  # which only asks how far it is
        while done < target:
            done = publishing.publish(self._id, Version(min(done + _PUBLISHED_AT_ONCE, target)))
            progress(min(done, target) - first, target - first)
        return done

    def checkpoint(self, version: int | None = None, kind: str | None = None) -> Version:
        """Write a checkpoint of a published version, by default in the form the table asks for.

        `kind` is `classic`, `v2` or `v2-json`. Spec: CM-27.
        """
        snapshot = self.snapshot(version)
        maintenance.checkpoint(
            self._catalog, self._id, snapshot, kind, self.committer.clock, self.committer.ids
        )
        return snapshot.version

    def write_checksum(self, version: int | None = None) -> Version:
        """Write the version checksum, also of a version not yet published. Spec: CM-29."""
        snapshot = self.snapshot(version)
        maintenance.write_checksum(self._catalog, self._id, snapshot)
        return snapshot.version

    # Inside

    def _refreshed(self) -> Snapshot:
        # Taken before the catalog is asked: another thread may commit meanwhile.
        latest, reached = self._latest, max(self._latest.version, self._reached)
        resolved = self._catalog.resolve(self._id)
        self._name = resolved.name
        if resolved.latest < reached:
            # Who answers is behind: an older copy of the catalog, or one that lost commits.
            raise InvariantError(
                f"{self.name} went back from version {reached} to {resolved.latest}."
            )
        return self._saw(self._load(resolved, latest))

    def _load(self, resolved: Resolved, base: Snapshot | None = None) -> Snapshot:
        return snapshot_loader.load_resolved(
            self._catalog, resolved, base=base, cache=self._cache, store_for=self._store_for
        )

    def _saw(self, snapshot: Snapshot) -> Snapshot:
        """Remember the newest snapshot, and give it: what one saw never goes back."""
        with self._lock:
            latest = self._latest
            if (snapshot.version, snapshot.sequence or 0) >= (latest.version, latest.sequence or 0):
                self._latest = snapshot
            return self._latest

    def _known(self) -> Snapshot:
        """Give the newest snapshot seen here, own commits included."""
        return self._latest if self._latest.version >= self._reached else self._refreshed()

    def _commit(self, change: Change, txn_id: TxnId | None = None) -> Committed:
        committed = self.committer.commit([change], txn_id=txn_id)
        with self._lock:
            self._reached = max(self._reached, committed.version)
        # Where the catalog moved it past commits that were not seen here, the next look at the
        # table asks for them. Not now: what was ratified must not end in an error.
        if (after := committed.snapshots.get(self._id)) is not None:
            self._saw(after)
        return committed

    def _change(
        self,
        base: Snapshot,
        actions: tuple[Action, ...],
        operation: Operation,
        scans: tuple[Scan, ...] = (),
    ) -> Change:
        return Change(self._id, base, self._ways, actions, operation, scans)

    def _appending(self, base: Snapshot, rows: ArrowTable) -> Change:
        adds = self._write_files(base, rows)
        return self._change(
            base,
            actions=tuple(adds),
            operation=Operation(
                "WRITE",
                {"mode": "Append", "partitionBy": as_text(base.partition_columns)},
                added_metrics(adds),
            ),
        )

    def _write_files(self, base: Snapshot, rows: ArrowTable) -> list[AddFile]:
        return arrow_io.write_files(
            base,
            rows,
            store=base.store,
            new_id=self.committer.ids.random,
            now_ms=self.committer.clock.now_ms(),
        )

    def _alter(
        self, build: Callable[[Snapshot], Alteration], base: Snapshot | None = None
    ) -> Committed:
        """Commit other metadata, built on what is known here or on a snapshot just taken.

        The catalog lets none pass that is built on metadata no longer there, so nobody is asked
        beforehand; and nothing is refused for what an older version says.
        """

        def change(base: Snapshot) -> Change:
            altered = build(base)
            actions = table_changes.actions_of(base, altered.metadata)
            return self._change(base, actions, altered.operation, altered.scans)

        return self._anew(change, base or self._known())

    def _anew(self, build: Callable[[Snapshot], Change], base: Snapshot) -> Committed:
        """Commit what is built on a snapshot; built again if that was not the newest."""
        try:
            return self._commit(build(base))
        except (ConflictError, RefusedError):
            newest = self.snapshot()
            if newest.version == base.version:
                raise
            return self._commit(build(newest))

    def _new_column_name(self) -> str:
        return f"col-{self.committer.ids.random()}"


@checked
class PlainTable:
    """A Delta table without a catalog, at one version, to be read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __repr__(self) -> str:
        return f"PlainTable({self.location}, version {self.version})"

    @property
    def location(self) -> str:
        return self._snapshot.location

    @property
    def version(self) -> Version:
        return self._snapshot.version

    @property
    def schema(self) -> StructType:
        return self._snapshot.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self._snapshot.partition_columns)

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._snapshot.metadata.configuration)

    def snapshot(self) -> Snapshot:
        """Give the table at the version it was opened at."""
        return self._snapshot

    def to_arrow(
        self, columns: Sequence[str] | None = None, where: Predicate | str | None = None
    ) -> ArrowTable:
        """Read rows as an Arrow table; `where` may be a condition in SQL, such as "id > 5"."""
        rows: ArrowTable = arrow_io.to_arrow(self._snapshot, columns, where)
        return rows

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Tell what each commit says of itself, newest first, as far back as the log goes."""
        return _history(self._snapshot, {}, limit)


def open_path(
    path: str,
    version: int | None = None,
    as_of: When | None = None,
    store_for: Callable[[str], ObjectStore] = locations.store_for,
) -> PlainTable:
    """Open a plain Delta table by its path; a catalog-managed one is refused. Spec: RD-02."""
    refuse_several(version, as_of)
    return PlainTable(
        snapshot_loader.load_path(
            path,
            version=None if version is None else Version(version),
            as_of_ms=None if as_of is None else milliseconds(as_of),
            store_for=store_for,
        )
    )


def history_of(
    catalog: ManagingCatalog, snapshot: Snapshot, limit: int | None = None
) -> list[HistoryEntry]:
    """Return what the commits of a managed table record of themselves, newest first."""
    assert snapshot.table_id is not None
    first = 0 if limit is None else max(0, snapshot.version - limit + 1)
    held = catalog.ratified_commits(snapshot.table_id, Version(first), snapshot.version)
    return _history(snapshot, {commit.version: commit for commit in held.commits}, limit)


def refuse_several(
    version: int | None, as_of: When | None = None, sequence: int | None = None
) -> None:
    """Refuse more than one of the ways to choose a snapshot."""
    if sum(value is not None for value in (version, as_of, sequence)) > 1:
        raise InvalidArgumentError(
            "A snapshot is chosen by more than one of `version`, `as_of` and `sequence`.",
            remedy="Pass only one of them.",
        )


def _history(
    snapshot: Snapshot, held: Mapping[Version, RatifiedCommit], limit: int | None
) -> list[HistoryEntry]:
    versions = range(snapshot.version, -1, -1)
    log = DeltaLog(snapshot.store)
    entries: list[HistoryEntry] = []
    for version in versions[: len(versions) if limit is None else limit]:
        commit = held.get(Version(version))
        if commit is not None:
            content = content_of(log, commit)
        else:
            content = log.read_published(Version(version))
        if content is None:
            break  # cleaned away
        entries.append(_entry(Version(version), content))
    return entries


def _entry(version: Version, content: bytes) -> HistoryEntry:
    told = next(_told(content), {})
    timestamp = told.get("inCommitTimestamp", told.get("timestamp"))
    read = told.get("readVersion")
    return HistoryEntry(
        version=version,
        timestamp_ms=timestamp if isinstance(timestamp, int) else None,
        operation=_text(told.get("operation")),
        parameters=_mapping(told.get("operationParameters")),
        metrics=_mapping(told.get("operationMetrics")),
        read_version=read if isinstance(read, int) else None,
        isolation=_text(told.get("isolationLevel")),
        is_blind_append=told.get("isBlindAppend") is True if "isBlindAppend" in told else None,
        txn_id=_text(told.get("txnId")),
        engine=_text(told.get("engineInfo")),
    )


def _told(content: bytes) -> Iterator[Mapping[str, object]]:
    for raw in content.split(b"\n"):
        if b'"commitInfo"' in raw:
            try:
                line = from_json(raw, dict[str, object])
            except MalformedError:
                continue
            if "commitInfo" in line:
                yield _mapping(line["commitInfo"])


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _removed(files: Sequence[AddFile]) -> dict[str, int]:
    return {
        "numRemovedFiles": len(files),
        "numRemovedBytes": sum(file.size for file in files),
    }


def _refuse_protected(key: str) -> None:
    if key in _PROTECTED or key.startswith(_PROTECTED_PREFIXES):
        raise InvalidArgumentError(
            f"The property {key} cannot be changed by hand.",
            remedy="Leave it: the catalog and its features keep it.",
        )
