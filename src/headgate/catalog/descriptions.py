"""Descriptions of tables, each from one instant of the store."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from cachetools import LRUCache

from headgate.api.messages import RatifiedCommit, TableInfo
from headgate.api.port import Ref
from headgate.catalog import lookup, resolver
from headgate.catalog.allowed_locations import AllowedLocations
from headgate.catalog.component import Component, Shared
from headgate.catalog.heads import domains_of, protocol_and_metadata
from headgate.catalog.publisher import Publisher
from headgate.catalog.resolver import Reserve, unbounded
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import NamedTableRow, TableRow
from headgate.errors import HeadgateError, LogDivergedError, NotFoundError, UnavailableError
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Metadata, Protocol, TableId, Version
from headgate.protocol.encoding import from_json, replaced
from headgate.protocol.table_states import TableKind, TableStatus
from headgate.storage import locations

_log = logging.getLogger(__name__)

LISTED = 100  # published commits that are still listed, at most
_KEPT = 1_000  # descriptions, two of each table
_KEPT_COMMITS = 32  # published commits in each: whose versions are known to be taken
_AT_ONCE = 100  # tables of a page that are read before their sizes are known
_TABLE_BYTES = 1_024  # of a table beside its metadata, in memory and in a response
_METADATA_FACTOR = 4  # metadata is larger in a response, where columns have several forms


class Descriptions(Component):
    """Describes tables for clients of other protocols, some of which read files alone."""

    def __init__(self, shared: Shared, allowed: AllowedLocations, publisher: Publisher) -> None:
        super().__init__(shared)
        self._allowed = allowed
        self._publisher = publisher
        with self._store.read() as unit:
            self._unseen = unit.clock().sequence
        # The last descriptions that list commits, by name and by id. They may be out of date.
        self._kept: LRUCache[tuple[str, ...] | TableId, TableInfo] = LRUCache(_KEPT)
        self._keeping = threading.Lock()

    def kept(self, ref: Ref) -> TableInfo | None:
        """Return how a table was described last, without blocking; it may have changed since."""
        with self._keeping:
            return self._kept.get(ref.key if isinstance(ref, TableName) else ref)

    def _keep(self, info: TableInfo) -> TableInfo:
        with self._keeping:
            for key in (info.name.key, info.table_id):
                other = self._kept.get(key)
                if other is None or other.table_id != info.table_id or other.latest <= info.latest:
                    self._kept[key] = info
        return info

    def describe(self, ref: Ref, since: Version | None = None) -> TableInfo:
        """Describe a table with all unpublished commits, and recent ones from `since` on."""
        with self._store.read_latest() as unit:
            named = lookup.active_by(unit, ref)
            if since is not None:
                since = Version(max(since, named.row.published - LISTED + 1))
            return self._keep(self._with_commits(unit, named, since))

    def describe_briefly(self, ref: Ref, *, published: bool = False) -> TableInfo:
        """Describe a table without its commits, which cost most of describing it.

        With `published`, everything that is in no file is published first: a client that learns
        where a table is and finds no log there, or a shorter one, may begin a log of its own.
        Raises `LogDivergedError` as `describe_in_files` does.
        """
        with self._store.read_latest() as unit:
            info = describe(lookup.active_by(unit, ref))
        if not published or (info.published == info.latest and info.diverged is None):
            return info
        return self.describe_in_files(ref)

    def describe_in_files(
        self, ref: Ref, first: Version | None = None, *, deadline: float | None = None
    ) -> TableInfo:
        """Describe a table for a client that reads files alone.

        Commits from `first` on are listed. What is in no file is published first; of many clients
        that ask at once, one publishes and the others wait. A table whose log diverged is refused:
        its readers would read other bytes. Spec: CA-04.
        """
        with self._store.read_latest() as unit:
            info = self._with_commits(unit, lookup.active_by(unit, ref), first)
        upto = info.last_without_file
        if info.diverged is not None:
            raise LogDivergedError(info.diverged)
        deadline = self._publishing_deadline() if deadline is None else deadline
        if upto is not None and self._publisher.publish(info.table_id, upto, deadline) < upto:
            raise UnavailableError(f"Version {upto} of {info.name} could not be published.")
        return info

    def describe_after(
        self, before: TableInfo, after: TableInfo, commit: RatifiedCommit
    ) -> TableInfo:
        """Describe a table after a client's own commit, for a client that reads files alone.

        Nothing is read if the commit is the one after the table was described before.
        """
        info = self.describe_next(before, after, commit)
        return info or self.describe_in_files(after.table_id, commit.version)

    def describe_next(
        self, before: TableInfo, after: TableInfo, commit: RatifiedCommit
    ) -> TableInfo | None:
        """Describe a table after the commit that follows another description, reading nothing.

        None if another commit came between them, or if something is in no file.
        """
        if not before.latest + 1 == commit.version == after.latest or after.diverged is not None:
            return None
        is_changed = after.metadata_version == commit.version
        most = _KEPT_COMMITS + after.latest - after.published
        listed = [
            one
            if one.is_published or one.version > after.published
            else replaced(one, published_ms=after.described_ms)
            for one in before.commits[1 - most :]
        ]
        info = replace(
            after,
            changed_ms=commit.timestamp_ms if is_changed else before.changed_ms,
            commits=(*listed, commit),
        )
        return None if info.last_without_file is not None else self._keep(info)

    def page(
        self,
        namespace: SchemaName,
        after: TableName | None,
        limit: int,
        *,
        reserve: Reserve = unbounded,
    ) -> tuple[tuple[TableInfo, ...], TableName | None]:
        """Describe some tables, by name, and return the name after which the others come.

        Fewer than `limit` if their schemas are large. What is in no file is published first; a
        table for which that fails is left out, and a request for it by name gets the error.
        """
        with self._store.read() as unit:
            found, following = _page_of_tables(unit, namespace, after, limit)
        reserve(sum(map(_size_of, found)))
        deadline = self._publishing_deadline()
        page = []
        for named in found:
            row = named.row
            try:
                if row.published < row.head or row.diverged is not None:
                    self.describe_in_files(row.id, deadline=deadline)
                page.append(describe(named))
            except NotFoundError:
                pass  # dropped in the meantime
            except HeadgateError as error:
                _log.warning("table %s is left out of a listing: %s", named.name, error)
        return tuple(page), following

    def file_of(self, table_id: TableId, version: Version) -> str | None:
        """Return the name of the staged file that became a version; None if none did."""
        with self._store.read_latest() as unit:
            row = lookup.known(unit, table_id)
            found = unit.commits(row.key, version, version, content=False)
        return found[0].file_name if found else None

    def location_of(self, table_id: TableId) -> str:
        """Return the location of a staged or active table; publish an active one first."""
        with self._store.read() as unit:
            row = lookup.known(unit, table_id)
        if row.state not in (TableStatus.STAGING, TableStatus.ACTIVE):
            raise NotFoundError(f"Table {table_id} is {row.state.value}.")
        if row.state is TableStatus.ACTIVE:
            self.describe_briefly(table_id, published=True)
        return row.location

    def open_path(self, location: str, *, creates: bool = False) -> str:
        """Return a location that clients may use by its path, in its one spelling.

        If there is a table, everything of it that is in no file is published first. With `creates`
        the location is for a new table: one in another table or in the lake's own files is refused.
        """
        if creates:
            url = self._allowed.check(location)
        else:
            self._allowed.refuse_unless_allowed(location)
            url = locations.normalize(location)
        with self._store.read() as unit:
            row = unit.overlapping_table(url)
        if creates and row is not None and row.location != url:
            raise lookup.overlap_error(url, row)
        if row is not None and row.state is TableStatus.ACTIVE:
            self.describe_briefly(row.id, published=True)
        return url

    def _with_commits(
        self, unit: ReadUnit, named: NamedTableRow, first: Version | None
    ) -> TableInfo:
        """Describe a table with its commits from a version on, and all that are not published."""
        info, row = describe(named), named.row
        if row.kind is TableKind.EXTERNAL:
            return info
        start = max(0, row.published - LISTED + 1)
        if first is not None:
            start = min(first, row.published + 1)
        commits: tuple[RatifiedCommit, ...] = ()
        if start <= row.head:
            commits = unit.ratified_commits(row.key, Version(start), row.head, with_content=False)
        now_ms = self._clock.now_ms()
        return replace(info, described_ms=now_ms, unseen=self._unseen, commits=commits)

    def _publishing_deadline(self) -> float:
        return self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000


def _page_of_tables(
    unit: ReadUnit, namespace: SchemaName, after: TableName | None, limit: int
) -> tuple[list[NamedTableRow], TableName | None]:
    """Read tables up to a limit or a size; return them, and the name after which others come."""
    page: list[NamedTableRow] = []
    size = 0
    while True:
        count = min(limit + 1 - len(page), _AT_ONCE)
        rows = unit.tables(namespace, after, count)
        for named in rows:
            size += _size_of(named)
            if len(page) == limit or (page and size > resolver.RESPONSE_CONTENT_BYTES):
                return page, page[-1].name
            page.append(named)
        if len(rows) < count:
            return page, None
        after = rows[-1].name


def _size_of(named: NamedTableRow) -> int:
    """Estimate the size of a table's description in a response."""
    return _METADATA_FACTOR * len(named.row.metadata) + _TABLE_BYTES


def describe(named: NamedTableRow) -> TableInfo:
    """Describe a table without its commits, which cost most of describing it."""
    row, name, changed_ms = named
    return _described(row, name, changed_ms or row.timestamp_ms or row.created_ms)


def describe_after(before: TableInfo, row: TableRow, now_ms: int) -> TableInfo:
    """Describe a table as the decision about a proposal left it, without its commits."""
    info = _described(row, before.name, before.changed_ms)
    return replace(info, described_ms=now_ms, unseen=before.unseen)


def _described(row: TableRow, name: TableName, changed_ms: int) -> TableInfo:
    protocol: Protocol | None = None
    if row.kind is TableKind.EXTERNAL:
        metadata = from_json(row.metadata, Metadata)
    else:
        protocol, metadata = protocol_and_metadata(row)
    return TableInfo(
        table_id=row.id,
        name=name,
        kind=row.kind,
        location=row.location,
        created_ms=row.created_ms,
        metadata=metadata,
        metadata_version=row.metadata_version,
        changed_ms=changed_ms,
        latest=row.head,
        published=row.published,
        protocol=protocol,
        domains=domains_of(row),
        diverged=row.diverged,
    )
