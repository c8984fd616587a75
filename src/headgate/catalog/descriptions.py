"""Descriptions of tables, each from one instant of the store."""

from __future__ import annotations

from dataclasses import replace

from headgate.api.messages import RatifiedCommit, TableInfo
from headgate.catalog.decider import domains_of, protocol_and_metadata
from headgate.catalog.stores.port import NamedTableRow, ReadUnit, TableRow
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Metadata, Sequence, Version
from headgate.protocol.encoding import from_json
from headgate.protocol.table_states import TableKind

LISTED = 100  # published commits that are still listed, at most
_AT_ONCE = 100  # tables of a page that are read before their sizes are known
_TABLE_BYTES = 1_024  # of a table beside its metadata, in memory and in a response
_METADATA_FACTOR = 4  # metadata is larger in a response, where columns have several forms


def page_of_tables(
    unit: ReadUnit,
    namespace: SchemaName,
    after: TableName | None,
    limit: int,
    max_bytes: int,
) -> tuple[list[NamedTableRow], TableName | None]:
    """Read at most `limit` tables and `max_bytes`, and return the name after which others come."""
    page: list[NamedTableRow] = []
    size = 0
    while True:
        count = min(limit + 1 - len(page), _AT_ONCE)
        rows = unit.tables(namespace, after, count)
        for named in rows:
            size += size_of(named)
            if len(page) == limit or (page and size > max_bytes):
                return page, page[-1].name
            page.append(named)
        if len(rows) < count:
            return page, None
        after = rows[-1].name


def size_of(named: NamedTableRow) -> int:
    """Estimate the size of a table's description in a response."""
    return _METADATA_FACTOR * len(named.row.metadata) + _TABLE_BYTES


def describe(named: NamedTableRow) -> TableInfo:
    """Describe a table without its commits, which cost most of describing it."""
    row, name, changed_ms = named
    if row.kind is TableKind.EXTERNAL:
        return TableInfo(
            table_id=row.id,
            name=name,
            kind=row.kind,
            location=row.location,
            created_ms=row.created_ms,
            metadata=from_json(row.metadata, Metadata),
            metadata_version=row.metadata_version,
            changed_ms=row.timestamp_ms or row.created_ms,
            latest=row.head,
            published=row.published,
        )
    assert changed_ms is not None  # version 0 is a commit too
    return _managed(row, name, changed_ms)


def describe_with_commits(
    unit: ReadUnit, named: NamedTableRow, first: Version | None, now_ms: int, unseen: Sequence
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
    return replace(info, described_ms=now_ms, unseen=unseen, commits=commits)


def describe_after(before: TableInfo, row: TableRow, now_ms: int) -> TableInfo:
    """Describe a table as the decision about a proposal left it, without its commits."""
    info = _managed(row, before.name, before.changed_ms)
    return replace(info, described_ms=now_ms, unseen=before.unseen)


def with_commit(before: TableInfo, after: TableInfo, commit: RatifiedCommit) -> TableInfo:
    """Add its newest commit to a table that was described before and after it."""
    is_changed = after.metadata_version == commit.version
    return replace(
        after,
        changed_ms=commit.timestamp_ms if is_changed else before.changed_ms,
        commits=(*before.commits, commit),
    )


def _managed(row: TableRow, name: TableName, changed_ms: int) -> TableInfo:
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
