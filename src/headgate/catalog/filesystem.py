"""A catalog without server and database: names are directories, and a commit is one put.

Ratifying and publishing are the same: the first put of `<v>.json` takes version v (the RFC's third
way to commit). There is no state except the files, so what needs more is not supported: sequences,
cuts, several tables in one transaction, renaming, undropping, staged and inline commits. Names are
folded to lower case, since a directory has one spelling. Spec: CM-13.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from headgate.api.messages import (
    Answer,
    Finding,
    Part,
    Proposal,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    Rejected,
    Resolved,
    StagingTable,
    TableEntry,
    TimelineEntry,
    VersionTaken,
)
from headgate.api.port import Progress, Ref
from headgate.arguments import checked_texts
from headgate.catalog import first_version
from headgate.catalog.filesystem_folders import (
    Folders,
    folder_of,
    marker_of,
    path_of,
    tombstone_of,
)
from headgate.catalog.fsck.filesystem_check import FilesystemCheck
from headgate.clock import Clock, Ids
from headgate.errors import (
    AlreadyExistsError,
    MalformedError,
    NotEmptyError,
    NotFoundError,
    OutcomeUnknownError,
    TxnIdReusedError,
    UnsupportedByCatalogError,
)
from headgate.failpoints import fail_point
from headgate.names import SchemaName, TableName
from headgate.protocol import txn_ids
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit import admission, examination
from headgate.protocol.commit.content import Inline, Put, Way
from headgate.protocol.commit.examination import Examined, Violation, reported
from headgate.protocol.commit.facts import Head
from headgate.protocol.log import timestamps
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.paths import LOG, PublishedCommit
from headgate.protocol.table_states import TableStatus
from headgate.storage.object_store import ObjectStore, PutUnknownError
from headgate.table import snapshot_loader
from headgate.table.log_files import DeltaLog
from headgate.table.snapshot import Snapshot

_FIRST = Version(0)
_FIRST_TRY = Version(-1)
_ORIGINS = 100_000  # commits whose txnIds are kept in memory
_TRIED = 10_000  # transactions whose lowest version is kept in memory


@dataclass(frozen=True, slots=True)
class _Place:
    """A table's directory, and the latest version that this process has seen in it."""

    name: TableName
    location: str
    table_id: TableId
    latest: Version
    unsynced: Version = _FIRST  # the first version that may not survive a power loss


@checked_texts
class FilesystemCatalog:
    """The directories under one root, as a catalog."""

    def __init__(
        self,
        root: str,
        *,
        store_for: Callable[[str], ObjectStore],
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._folders = Folders(root, store_for)
        self._files = self._folders.files
        self._store_for = store_for
        self._clock = clock
        self._places: dict[TableId, _Place] = {}
        self._snapshots: dict[TableId, Snapshot] = {}
        self._tried: OrderedDict[TxnId, Version] = OrderedDict()
        self._origins: dict[tuple[TableId, Version], tuple[TxnId, int]] = {}
        self.namespaces = self._folders.namespaces

    # Reading

    def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
        """Return a table's location and latest version; everything else is in its log."""
        if at is not None:
            raise _unsupported("sequences")
        place = self._seen(self._find(ref))
        head = self._commit(place, place.latest)
        return Resolved(
            table_id=place.table_id,
            location=place.location,
            name=str(place.name),
            ways=(Way.PUT_IF_ABSENT,),
            latest=place.latest,
            timestamp_ms=head.timestamp_ms,
            clock_ms=max(head.timestamp_ms, self._clock.now_ms()),
        )

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        """Return the latest version; every commit is published, so the catalog holds none."""
        return RatifiedCommits(latest=self._seen(self._find(table_id)).latest)

    def timeline(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> tuple[TimelineEntry, ...]:
        """Return every commit of a range; all three times are its in-commit timestamp."""
        place = self._seen(self._find(table_id))
        end = place.latest if last is None else min(last, place.latest)
        commits = [
            self._commit(place, Version(v), content=False) for v in range(first or 0, end + 1)
        ]
        return tuple(
            TimelineEntry(
                commit=commit, proposed_ms=commit.timestamp_ms, ratified_ms=commit.timestamp_ms
            )
            for commit in commits
        )

    # Committing

    def propose(self, proposal: Proposal) -> Answer:
        part, content = _only_put(proposal)
        place = self._seen(self._by_id(part.table_id))
        examined = examination.examine_file(content)
        # A replay is searched for from the lowest version at which the transaction was proposed.
        since = min(part.version, self._tried.get(proposal.txn_id, part.version))
        self._tried[proposal.txn_id] = since
        if len(self._tried) > _TRIED:
            self._tried.popitem(last=False)
        replay = self._replay(place, since, proposal.txn_id, examined)
        if replay is not None:
            self._sync(place, proposal.txn_id)
            return replay
        self._refuse_if_dropped(place)
        if part.version <= place.latest:
            return self._taken(place, part.version, proposal.txn_id)
        violations = self._violations(place, part, examined, proposal.txn_id)
        if violations:
            return Rejected(txn_id=proposal.txn_id, violations=reported(violations))
        place = self._sync(place, proposal.txn_id)
        fail_point("filesystem.before_put")
        path = PublishedCommit(part.version).path
        was_put = self._put(place.location, path, content, proposal.txn_id)
        fail_point("filesystem.after_put")
        self._refuse_if_another(place, path if was_put else None)
        # The put is synced, or else the file that was there.
        place = self._seen(replace(place, unsynced=Version(part.version + 1)))
        if not was_put:
            replay = self._replay(place, part.version, proposal.txn_id, examined)
            return replay or self._taken(place, part.version, proposal.txn_id)
        return _ratified(place.table_id, self._commit(place, part.version))

    # Publishing

    def publish(self, table_id: TableId, upto: Version | None = None) -> Version:
        """Return the latest version: what is ratified is published."""
        latest = self._seen(self._find(table_id)).latest
        if upto is not None and upto > latest:
            raise NotFoundError(
                f"Table {table_id} has no version {upto}.", remedy=f"Its latest is {latest}."
            )
        return latest

    def confirm_published(self, table_id: TableId, upto: Version) -> Version:
        return self.publish(table_id, upto)

    def add_file(self, table_id: TableId, file: KnownFile) -> None:
        """Do nothing: readers of a filesystem catalog find such files by listing."""
        self.publish(table_id, file.last)

    # Names and tables

    def create_namespace(self, name: SchemaName, *, storage_root: str | None = None) -> None:
        if storage_root is not None:
            raise _unsupported("storage roots")
        if not self._files.put_if_absent(marker_of(name), b"{}\n"):
            raise AlreadyExistsError(f"There is a namespace {name} already.")

    def drop_namespace(self, name: SchemaName) -> None:
        self._folders.require_namespace(name)
        marker = marker_of(name)
        if any(item.path != marker for item in self._files.list(folder_of(name), recursive=True)):
            raise NotEmptyError(f"Namespace {name} has tables.")
        self._folders.delete(marker)

    def rename_namespace(self, name: SchemaName, new_name: str) -> None:
        raise _unsupported("renaming a namespace")

    def rename_catalog(self, name: str, new_name: str) -> None:
        raise _unsupported("renaming a catalog")

    def tables(
        self, namespace: SchemaName | None = None, *, dropped: bool = False
    ) -> tuple[TableEntry, ...]:
        if namespace is not None:
            self._folders.require_namespace(namespace)
        entries: list[TableEntry] = []
        for name in self._folders.names((namespace,) if namespace else self.namespaces()):
            try:
                place = self._seen(self._by_name(name))
                is_dropped = self._folders.dropped_table(name) == place.table_id
                first = self._folders.first(name)
            except (NotFoundError, MalformedError):
                continue  # a directory without a table
            if first is not None and (dropped or not is_dropped):
                entries.append(
                    TableEntry(
                        table_id=place.table_id,
                        name=str(name),
                        state=TableStatus.DROPPED if is_dropped else TableStatus.ACTIVE,
                        location=place.location,
                        latest=place.latest,
                        published=place.latest,
                        created_ms=first.timestamp_ms or 0,
                    )
                )
        return tuple(entries)

    def stage_table(
        self, location: str | None = None, *, namespace: SchemaName | None = None
    ) -> StagingTable:
        raise _unsupported("staging tables")

    def register_table(self, name: TableName, table_id: TableId) -> Resolved:
        raise _unsupported("registering tables")

    def create_table(
        self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline
    ) -> Resolved:
        self._folders.require_namespace(name.namespace)
        if self._folders.dropped_table(name) is not None:
            raise AlreadyExistsError(
                f"{name} was dropped and is still there.", remedy="Purge it first."
            )
        examined = examination.examine(first)
        now_ms = self._clock.now_ms()
        content = first_version.compose(examined, name, table_id, txn_id, now_ms, clock_ms=0)
        location, log = self._folders.location(name), self._folders.log(name)
        if not log.is_published(_FIRST) and log.list():
            raise AlreadyExistsError(f"{location} holds files of another table.")
        fail_point("filesystem.before_put")
        was_put = self._put(location, PublishedCommit(_FIRST).path, content, txn_id)
        fail_point("filesystem.after_put")
        winner = None if was_put else self._folders.first(name)
        if winner is not None and winner.txn_id != txn_id:
            raise AlreadyExistsError(f"There is a table {name} already.")
        return self.resolve(name)

    def rename_table(self, table_id: TableId, name: TableName) -> None:
        raise _unsupported("renaming a table")

    def drop_table(self, table_id: TableId) -> None:
        """Put a tombstone beside the table's directory."""
        place = self._find(table_id)
        self._folders.put_tombstone(place.name, table_id)
        fail_point("registry.after_drop")

    def undrop_table(self, table_id: TableId, name: TableName | None = None) -> None:
        raise _unsupported("undrop")

    def purge_table(self, table_id: TableId, *, progress: Progress | None = None) -> int:
        """Delete a dropped table's files, and its tombstone last, so that a purge can continue."""
        dropped_table = self._folders.dropped_table
        name = next(
            (name for name in self._folders.tombstones() if dropped_table(name) == table_id), None
        )
        if name is None:
            raise NotFoundError(f"There is no dropped table {table_id}.", remedy="Drop it first.")
        folder, tombstone = path_of(name), tombstone_of(name)
        if self._folders.table_id(name) not in (None, table_id):
            self._folders.delete(tombstone)  # its table was purged before
            return 0
        self._files.remove_link(folder)  # files in the target of a link are kept
        paths = sorted(item.path for item in self._files.list(folder, recursive=True))
        paths.sort(key=lambda path: path.startswith(f"{folder}/{LOG}/"))
        for done, path in enumerate(paths, start=1):
            fail_point("registry.purge_between_files")
            if dropped_table(name) != table_id:
                return 0  # another purge has finished, and the name may be another table's by now
            self._files.delete(path)
            if progress is not None:
                progress(done, len(paths))
        self._files.sync(paths)
        fail_point("registry.before_forget_purged")
        self._folders.delete(tombstone)
        self._places.pop(table_id, None)
        self._snapshots.pop(table_id, None)
        return len(paths)

    # Checking

    def fsck(
        self,
        table_id: TableId | None = None,
        *,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Finding, ...]:
        """Check one table's log or all for consistency; nothing else records what was committed.

        A repair finishes purges that were cut short, and renames damaged checkpoints, compactions
        and checksums.
        """
        check = FilesystemCheck(
            self._folders,
            lambda name, version: snapshot_loader.load(
                self, name, version=version, store_for=self._store_for
            ),
            self.purge_table,
            self._clock.now_ms(),
            repair,
        )
        if table_id is not None:
            return tuple(check.table(self._find(table_id).name))
        return tuple(check.everything(progress))

    # Internals

    def _put(self, location: str, path: str, content: bytes, txn_id: TxnId) -> bool:
        try:
            return self._store_for(location).put_if_absent(path, content)
        except PutUnknownError as error:
            raise OutcomeUnknownError(txn_id, error.message) from error

    def _sync(self, place: _Place, txn_id: TxnId) -> _Place:
        """Make all versions durable: their writers may not have synced them."""
        versions = range(place.unsynced, place.latest + 1)
        paths = [PublishedCommit(Version(version)).path for version in versions]
        try:
            self._store_for(place.location).sync(paths)
        except PutUnknownError as error:
            raise OutcomeUnknownError(txn_id, error.message) from error
        synced = replace(place, unsynced=Version(place.latest + 1))
        self._places[place.table_id] = synced
        return synced

    def _refuse_if_another(self, place: _Place, put: str | None) -> None:
        """Delete a commit whose table was purged meanwhile, and perhaps created again."""
        if self._folders.table_id(place.name) != place.table_id:
            if put is not None:
                self._store_for(place.location).delete(put)
            raise NotFoundError(f"Table {place.table_id} was purged meanwhile.")

    def _find(self, ref: Ref) -> _Place:
        """Find a table's directory by name or id; refuse a dropped table."""
        place = self._by_name(ref) if isinstance(ref, TableName) else self._by_id(ref)
        self._refuse_if_dropped(place)
        return place

    def _refuse_if_dropped(self, place: _Place) -> None:
        if self._folders.dropped_table(place.name) == place.table_id:
            raise NotFoundError(f"Table {place.name} is dropped.")

    def _by_name(self, name: TableName) -> _Place:
        table_id = self._folders.table_id(name)
        if table_id is None:
            raise NotFoundError(f"There is no table at {self._folders.location(name)}.")
        known = self._places.get(table_id)
        return known or _Place(name, self._folders.location(name), table_id, _FIRST_TRY)

    def _by_id(self, table_id: TableId) -> _Place:
        known = self._places.get(table_id)
        if known is None:
            for entry in self.tables(dropped=True):
                if entry.table_id == table_id and entry.name is not None:
                    return self._by_name(TableName.parse(entry.name))
        # A table created later under the same name is another table.
        elif self._folders.table_id(known.name) == table_id:
            return known
        raise NotFoundError(f"There is no table {table_id}.")

    def _seen(self, place: _Place) -> _Place:
        """Find the latest version: the highest one that has every other before it.

        The first time, begin at what is listed; a listing may be stale or unordered.
        """
        log = DeltaLog(self._store_for(place.location))
        latest, unsynced = place.latest, place.unsynced
        if latest == _FIRST_TRY:
            listed = {
                item.file.version for item in log.list() if isinstance(item.file, PublishedCommit)
            }
            latest = min(listed, default=_FIRST_TRY)
            unsynced = max(latest, _FIRST)
            while latest + 1 in listed:
                latest = Version(latest + 1)
        while log.is_published(Version(latest + 1)):
            latest = Version(latest + 1)
        if latest < 0:
            raise NotFoundError(f"There is no table {place.name}.")
        seen = replace(place, latest=latest, unsynced=unsynced)
        self._places[place.table_id] = seen
        return seen

    def _commit(self, place: _Place, version: Version, *, content: bool = True) -> RatifiedCommit:
        found = DeltaLog(self._store_for(place.location)).read_published(version)
        if found is None:
            raise NotFoundError(f"Version {version} of {place.name} is no longer in the log.")
        examined = examination.examine_file(found)
        txn_id, timestamp_ms = examined.txn_id or TxnId(""), examined.timestamp_ms or 0
        if len(self._origins) >= _ORIGINS:
            self._origins.clear()
        self._origins[place.table_id, version] = (txn_id, timestamp_ms)
        return RatifiedCommit(
            version=version,
            way=Way.PUT_IF_ABSENT,
            txn_id=txn_id,
            timestamp_ms=timestamp_ms,
            size=len(found),
            sha256=hashlib.sha256(found).hexdigest(),
            content=found if content else None,
            published_ms=timestamp_ms,
        )

    def _replay(
        self, place: _Place, since: Version, txn_id: TxnId, examined: Examined
    ) -> Ratified | None:
        """Find the commit of a transaction that was proposed before, also below version `since`.

        No commit is older than its txnId, except for differences between clocks. An id without a
        time, or with one in the future, may be that of any commit in the log. Spec: CM-42.
        """
        margin_ms = timestamps.MAX_AHEAD_MS
        begun_ms = txn_ids.begun_ms(txn_id)
        if begun_ms is None or begun_ms > self._clock.now_ms() + margin_ms:
            begun_ms = 0
        for number in range(place.latest, -1, -1):
            version = Version(number)
            try:
                found, timestamp_ms = self._origin(place, version)
            except NotFoundError:
                return None  # this and all earlier ones were cleaned up
            if found == txn_id:
                return self._ratified_before(place, version, txn_id, examined)
            # One without a timestamp was written by another client.
            if version < since and 0 < timestamp_ms < begun_ms - margin_ms:
                return None
        return None

    def _ratified_before(
        self, place: _Place, version: Version, txn_id: TxnId, examined: Examined
    ) -> Ratified:
        try:
            winner = self._commit(place, version)
        except NotFoundError as error:  # cleaned up since it was read
            raise OutcomeUnknownError(txn_id, error.message) from None
        assert winner.content is not None  # just read
        if examination.examine_file(winner.content).intent != examined.intent:
            raise TxnIdReusedError(f"Transaction {txn_id} was ratified with other content.")
        return _ratified(place.table_id, winner)

    def _origin(self, place: _Place, version: Version) -> tuple[TxnId, int]:
        """Return the txnId and the timestamp of a commit; each is read once in a process."""
        known = self._origins.get((place.table_id, version))
        if known is not None:
            return known
        try:
            commit = self._commit(place, version, content=False)
        except MalformedError:  # damaged, or of another client: not the one that is searched for
            return TxnId(""), 0
        return commit.txn_id, commit.timestamp_ms

    def _taken(self, place: _Place, version: Version, txn_id: TxnId) -> VersionTaken:
        versions = range(version, place.latest + 1)
        return VersionTaken(
            txn_id=txn_id,
            latest={place.table_id: place.latest},
            winners={place.table_id: tuple(self._commit(place, Version(v)) for v in versions)},
        )

    def _violations(
        self, place: _Place, part: Part, examined: Examined, txn_id: TxnId
    ) -> list[Violation]:
        if part.version > place.latest + 1:
            says = f"version {part.version} is proposed while {place.latest} is the latest"
            return [Violation(rule="version-gap", says=says)]
        base = self._snapshots.get(place.table_id)
        # At that version: a later commit of others is a lost race, not a violation.
        snapshot = snapshot_loader.load(
            self, place.table_id, version=place.latest, base=base, store_for=self._store_for
        )
        self._snapshots[place.table_id] = snapshot
        head = Head(
            table_id=place.table_id,
            version=snapshot.version,
            timestamp_ms=snapshot.timestamp_ms or 0,
            protocol=snapshot.protocol,
            metadata=snapshot.metadata,
        )
        now_ms = self._clock.now_ms()
        found = admission.judge(
            examined,
            head,
            now_ms=now_ms,
            # If the clock was set back, the next timestamp may be far ahead of it.
            max_ahead_ms=max(timestamps.MAX_AHEAD_MS, head.timestamp_ms + 1 - now_ms),
            txn_id=txn_id,
        )
        if any(violation.rule == admission.PARTITIONING_CHANGED for violation in found):
            gone = {file.key for file in examined.removes}
            if all(file.key in gone for file in snapshot.files()):  # all old files are removed
                found = [v for v in found if v.rule != admission.PARTITIONING_CHANGED]
        return [*examined.violations, *found]


def _unsupported(operation: str) -> UnsupportedByCatalogError:
    return UnsupportedByCatalogError(f"Filesystem catalogs do not support {operation}.")


def _only_put(proposal: Proposal) -> tuple[Part, bytes]:
    if len(proposal.parts) != 1:
        raise UnsupportedByCatalogError(
            "Filesystem catalogs commit to one table at a time, and this proposal has "
            f"{len(proposal.parts)}."
        )
    [part] = proposal.parts
    if not isinstance(part.content, Put):
        raise UnsupportedByCatalogError("Filesystem catalogs commit only by put-if-absent.")
    return part, part.content.content


def _ratified(table_id: TableId, commit: RatifiedCommit) -> Ratified:
    return Ratified(
        txn_id=commit.txn_id, timestamp_ms=commit.timestamp_ms, commits={table_id: commit}
    )
