"""A catalog without server and database: names are directories, and a commit is one put.

Ratifying and publishing are the same: the first put of `<v>.json` takes version v (the RFC's third
way to commit). There is no state except the files, so what needs more is not supported: sequences,
cuts, several tables in one transaction, renaming, undropping, staged and inline commits. Names are
folded to lower case, since a directory has one spelling. Spec: CM-13.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import unquote

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
    Severity,
    StagingTable,
    TableEntry,
    TimelineEntry,
    VersionTaken,
)
from headgate.api.port import Progress, Ref
from headgate.arguments import checked_texts
from headgate.catalog import first_version
from headgate.catalog.fsck.data_files import missing_data_files
from headgate.catalog.fsck.filesystem_log import FilesystemLogCheck
from headgate.catalog.fsck.leftovers import is_fresh, unknown_folder
from headgate.clock import Clock, Ids
from headgate.errors import (
    AlreadyExistsError,
    HeadgateError,
    MalformedError,
    NotEmptyError,
    NotFoundError,
    OutcomeUnknownError,
    TxnIdReusedError,
    UnsupportedByCatalogError,
)
from headgate.failpoints import fail_point
from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, SchemaName, TableName, fold
from headgate.protocol import txn_ids
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit import admission, examination
from headgate.protocol.commit.content import Inline, Put, Way
from headgate.protocol.commit.examination import Examined, Violation, reported
from headgate.protocol.commit.facts import Head
from headgate.protocol.encoding import replaced
from headgate.protocol.log import timestamps
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.paths import LOG, PublishedCommit
from headgate.protocol.table_states import TableStatus
from headgate.storage import locations
from headgate.storage.object_store import ObjectStore, PutUnknownError
from headgate.table import snapshot_loader
from headgate.table.log_files import DeltaLog
from headgate.table.snapshot import Snapshot

_NAMESPACE = "namespace.json"  # names have no dots, so it cannot be a table's directory
_DROPPED = ".dropped"
_FIRST = Version(0)
_FIRST_TRY = Version(-1)
_MAX_ORIGINS = 100_000  # commits whose txnIds are kept in memory


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
        self._root = root
        self._store_for = store_for
        self._files = store_for(root)
        self._clock = clock
        self._places: dict[TableId, _Place] = {}
        self._snapshots: dict[TableId, Snapshot] = {}
        self._tried: OrderedDict[TxnId, Version] = OrderedDict()
        self._origins: dict[tuple[TableId, Version], tuple[TxnId, int]] = {}

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
        start = 0 if first is None else first
        end = place.latest if last is None else min(last, place.latest)
        commits = [self._commit(place, Version(v), content=False) for v in range(start, end + 1)]
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
        if len(self._tried) > 10_000:
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
        if not self._files.put_if_absent(f"{_folder(name)}/{_NAMESPACE}", b"{}\n"):
            raise AlreadyExistsError(f"There is a namespace {name} already.")

    def drop_namespace(self, name: SchemaName) -> None:
        self._require_namespace(name)
        marker = f"{_folder(name)}/{_NAMESPACE}"
        if any(item.path != marker for item in self._files.list(_folder(name), recursive=True)):
            raise NotEmptyError(f"Namespace {name} has tables.")
        self._files.delete(marker)
        self._files.sync([marker])

    def rename_namespace(self, name: SchemaName, new_name: str) -> None:
        raise _unsupported("renaming a namespace")

    def rename_catalog(self, name: str, new_name: str) -> None:
        raise _unsupported("renaming a catalog")

    def namespaces(self) -> tuple[SchemaName, ...]:
        found = {SchemaName(DEFAULT_CATALOG, DEFAULT_SCHEMA)}
        for catalog in self._files.folders(""):
            for schema in self._files.folders(catalog):
                if self._files.head(f"{schema}/{_NAMESPACE}") is not None:
                    found.add(SchemaName(*map(unquote, schema.split("/"))))
        return tuple(sorted(found, key=lambda name: name.key))

    def tables(
        self, namespace: SchemaName | None = None, *, dropped: bool = False
    ) -> tuple[TableEntry, ...]:
        if namespace is not None:
            self._require_namespace(namespace)
        spaces = self.namespaces() if namespace is None else (namespace,)
        return tuple(self._entries(spaces, dropped))

    def stage_table(
        self, location: str | None = None, *, namespace: SchemaName | None = None
    ) -> StagingTable:
        raise _unsupported("staging tables")

    def register_table(self, name: TableName, table_id: TableId) -> Resolved:
        raise _unsupported("registering tables")

    def create_table(
        self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline
    ) -> Resolved:
        self._require_namespace(name.namespace)
        if self._tombstone(name) is not None:
            raise AlreadyExistsError(
                f"{name} was dropped and is still there.", remedy="Purge it first."
            )
        examined = examination.examine(first)
        now_ms = self._clock.now_ms()
        content = first_version.compose(examined, name, table_id, txn_id, now_ms, clock_ms=0)
        location = self._location(name)
        log = DeltaLog(self._store_for(location))
        if not log.is_published(Version(0)) and log.list():
            raise AlreadyExistsError(f"{location} holds files of another table.")
        fail_point("filesystem.before_put")
        was_put = self._put(location, PublishedCommit(Version(0)).path, content, txn_id)
        fail_point("filesystem.after_put")
        if not was_put and self._first(location).txn_id != txn_id:
            raise AlreadyExistsError(f"There is a table {name} already.")
        return self.resolve(name)

    def rename_table(self, table_id: TableId, name: TableName) -> None:
        raise _unsupported("renaming a table")

    def drop_table(self, table_id: TableId) -> None:
        """Put a tombstone beside the table's directory."""
        place = self._find(table_id)
        tombstone = json.dumps({"tableId": table_id}).encode()
        self._files.put_if_absent(_path(place.name) + _DROPPED, tombstone)
        fail_point("registry.after_drop")

    def undrop_table(self, table_id: TableId, name: TableName | None = None) -> None:
        raise _unsupported("undrop")

    def purge_table(self, table_id: TableId, *, progress: Progress | None = None) -> int:
        """Delete a dropped table's files, and its tombstone last, so that a purge can continue."""
        name = next((name for name, found in self._dropped() if found == table_id), None)
        if name is None:
            raise NotFoundError(f"There is no dropped table {table_id}.", remedy="Drop it first.")
        tombstone = _path(name) + _DROPPED
        if self._is_anothers(name, table_id):
            self._files.delete(tombstone)  # its table was purged before
            self._files.sync([tombstone])
            return 0
        self._files.remove_link(_path(name))  # files in the target of a link are kept
        paths = sorted(item.path for item in self._files.list(_path(name), recursive=True))
        in_log = f"{_path(name)}/{LOG}/"
        paths.sort(key=lambda path: path.startswith(in_log))
        for done, path in enumerate(paths, start=1):
            fail_point("registry.purge_between_files")
            if self._tombstone(name) != table_id:
                return 0  # another purge has finished, and the name may be another table's by now
            self._files.delete(path)
            if progress is not None:
                progress(done, len(paths))
        self._files.sync(paths)
        fail_point("registry.before_forget_purged")
        self._files.delete(tombstone)
        self._files.sync([tombstone])
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
        if table_id is not None:
            return tuple(self._checked(self._find(table_id).name, repair=repair))
        found: list[Finding] = []
        names: list[TableName] = []
        for space in self.namespaces():
            for item in self._files.list(_folder(space)):
                if item.path.endswith(_DROPPED):
                    found += self._checked_tombstone(_named_by(space, item.path), repair)
            names += [_named_by(space, f) for f in sorted(self._files.folders(_folder(space)))]
        for done, name in enumerate(names, start=1):
            if self._files.head(_path(name) + _DROPPED) is None:
                found += self._checked(name, repair=repair)
            if progress is not None:
                progress(done, len(names))
        found += self._unknown_folders()
        return tuple(found)

    def _unknown_folders(self) -> Iterator[Finding]:
        """Report tables in folders that are not namespaces, where no reader finds them."""
        folders = [
            folder
            for catalog in sorted(self._files.folders(""))
            for schema in sorted(self._files.folders(catalog))
            for folder in sorted(self._files.folders(schema))
            if self._files.head(f"{folder}/{PublishedCommit(Version(0)).path}") is not None
        ]
        spaces = {_folder(space) for space in self.namespaces()}
        for folder in folders:
            if folder.rpartition("/")[0] in spaces:
                continue
            files = list(self._files.list(folder, recursive=True))
            if not is_fresh(files, self._clock.now_ms()):
                space = ".".join(map(unquote, folder.split("/")[:2]))
                yield replaced(
                    unknown_folder(locations.join(self._root, folder), files),
                    remedy=f"Run `headgate create-namespace {space}` to make it a table of this "
                    "catalog, or move it elsewhere.",
                )

    def _checked_tombstone(self, name: TableName, repair: bool) -> Iterator[Finding]:
        """Report a dropped table, or a tombstone whose table is gone."""
        finding = Finding(
            rule="CM-40",
            severity=Severity.NOTE,
            table=str(name),
            path=_path(name) + _DROPPED,
            says="is dropped, and its files are still there",
            remedy="Run `headgate purge`.",
        )
        try:
            table_id = self._tombstone(name)
        except MalformedError as error:
            remedy = "Delete it, and drop the table again if it is to go."
            yield replaced(finding, severity=Severity.ERROR, says=error.message, remedy=remedy)
            return
        if table_id is None:  # purged meanwhile
            return
        try:
            is_whole = _id_of(self._first(self._location(name))) == table_id
        except (NotFoundError, MalformedError):
            is_whole = False
        if is_whole:
            yield finding
            return
        if repair:
            self.purge_table(table_id)
        yield replaced(
            finding,
            severity=Severity.WARNING,
            says="is the tombstone of a table that no longer exists: a purge was interrupted",
            remedy="Run `headgate fsck --repair`.",
            repaired=repair,
        )

    def _checked(self, name: TableName, *, repair: bool) -> Iterator[Finding]:
        store = self._store_for(self._location(name))
        check = FilesystemLogCheck(str(name), DeltaLog(store), self._clock.now_ms(), repair=repair)
        yield from check.findings()
        listed = {item.path: item.size for item in store.list("", recursive=True)}
        if check.latest < 0:
            if listed:
                yield Finding(
                    rule="LC-01",
                    severity=Severity.WARNING,
                    table=str(name),
                    says=f"has {len(listed)} files but no version 0: it is not a table",
                    remedy="Find out what wrote them; delete them if they are not needed.",
                )
            return
        try:
            snapshot = snapshot_loader.load(
                self, name, version=check.latest, store_for=self._store_for
            )
            yield from missing_data_files(str(name), snapshot, listed)
        except HeadgateError as error:
            yield Finding(
                rule="RD-06",
                severity=Severity.ERROR,
                table=str(name),
                version=check.latest,
                says=f"cannot be read: {error.message}",
                remedy=error.remedy,
            )

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

    def _location(self, name: TableName) -> str:
        return locations.join(self._root, _path(name))

    def _require_namespace(self, name: SchemaName) -> None:
        is_default = name.key == (DEFAULT_CATALOG, DEFAULT_SCHEMA)
        if not is_default and self._files.head(f"{_folder(name)}/{_NAMESPACE}") is None:
            raise NotFoundError(
                f"There is no namespace {name}.",
                remedy="Create it: session.create_namespace(), or `headgate create-namespace`.",
            )

    def _tombstone(self, name: TableName) -> TableId | None:
        """Return the id of the table that was dropped under a name and is not purged yet."""
        try:
            content = self._files.get(_path(name) + _DROPPED)
        except NotFoundError:
            return None
        try:
            return TableId(json.loads(content)["tableId"])
        except (ValueError, KeyError, TypeError):
            raise MalformedError(f"{_path(name)}{_DROPPED} names no table.") from None

    def _is_anothers(self, name: TableName, table_id: TableId) -> bool:
        try:
            return _id_of(self._first(self._location(name))) != table_id
        except NotFoundError:
            return False

    def _refuse_if_another(self, place: _Place, put: str | None) -> None:
        """Delete a commit whose table was purged meanwhile, and perhaps created again."""
        try:
            is_another = _id_of(self._first(place.location)) != place.table_id
        except NotFoundError:
            is_another = True
        if is_another:
            if put is not None:
                self._store_for(place.location).delete(put)
            raise NotFoundError(f"Table {place.table_id} was purged meanwhile.")

    def _find(self, ref: Ref) -> _Place:
        """Find a table's directory by name or id; refuse a dropped table."""
        place = self._by_name(ref) if isinstance(ref, TableName) else self._by_id(ref)
        self._refuse_if_dropped(place)
        return place

    def _refuse_if_dropped(self, place: _Place) -> None:
        if self._tombstone(place.name) == place.table_id:
            raise NotFoundError(f"Table {place.name} is dropped.")

    def _by_name(self, name: TableName) -> _Place:
        location = self._location(name)
        table_id = _id_of(self._first(location))
        known = self._places.get(table_id)
        return known or _Place(name, location, table_id, _FIRST_TRY)

    def _by_id(self, table_id: TableId) -> _Place:
        known = self._places.get(table_id)
        if known is not None:
            # A table created later under the same name is another table.
            if _id_of(self._first(known.location)) == table_id:
                return known
            raise NotFoundError(f"There is no table {table_id}.")
        for entry in self.tables(dropped=True):
            if entry.table_id == table_id and entry.name is not None:
                return self._by_name(TableName.parse(entry.name))
        raise NotFoundError(f"There is no table {table_id}.")

    def _first(self, location: str) -> Examined:
        content = DeltaLog(self._store_for(location)).read_published(Version(0))
        if content is None:
            raise NotFoundError(f"There is no table at {location}.")
        return examination.examine_file(content)

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
        if len(self._origins) >= _MAX_ORIGINS:
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
            return [
                Violation(
                    rule="version-gap",
                    says=f"version {part.version} is proposed while {place.latest} is the latest",
                )
            ]
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

    def _entries(self, spaces: tuple[SchemaName, ...], dropped: bool) -> Iterator[TableEntry]:
        for space in spaces:
            for folder in sorted(self._files.folders(_folder(space))):
                name = _named_by(space, folder)
                try:
                    place = self._seen(self._by_name(name))
                    is_dropped = self._tombstone(name) == place.table_id
                    if is_dropped and not dropped:
                        continue
                    created_ms = self._first(place.location).timestamp_ms or 0
                except (NotFoundError, MalformedError):
                    continue  # a directory without a table
                yield TableEntry(
                    table_id=place.table_id,
                    name=str(name),
                    state=TableStatus.DROPPED if is_dropped else TableStatus.ACTIVE,
                    location=place.location,
                    latest=place.latest,
                    published=place.latest,
                    created_ms=created_ms,
                )

    def _dropped(self) -> Iterator[tuple[TableName, TableId]]:
        """Yield the dropped tables, also those of which only the tombstone is left."""
        for space in self.namespaces():
            for item in self._files.list(_folder(space)):
                if item.path.endswith(_DROPPED):
                    name = _named_by(space, item.path)
                    table_id = self._tombstone(name)
                    if table_id is not None:
                        yield name, table_id


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


def _id_of(first: Examined) -> TableId:
    if first.metadata is None:
        raise MalformedError("Version 0 has no metaData.")
    return TableId(first.metadata.id)


def _named_by(space: SchemaName, path: str) -> TableName:
    """Return the name of the table with a directory or a tombstone."""
    table = path.removesuffix(_DROPPED).rpartition("/")[2]
    return TableName(space.catalog, space.schema, unquote(table))


def _folder(name: SchemaName) -> str:
    return f"{_encoded(name.catalog)}/{_encoded(name.schema)}"


def _path(name: TableName) -> str:
    return f"{_folder(name.namespace)}/{_encoded(name.table)}"


def _encoded(part: str) -> str:
    """Return the directory of a part of a name: special characters are percent-encoded."""
    return re.sub(
        r"[^A-Za-z0-9_-]",
        lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()),
        fold(part),
    )
