"""Bodies of the two dialects: `delta/v1` in kebab-case, the older REST in snake_case.

Maps and arrays are never null, since clients do not look; what is absent is left out. Unknown
fields are passed over, as every client of theirs does.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.api.bodies import decode
from headgate.protocol.encoding import to_json

__all__ = ["decode", "encode"]


def encode(value: object) -> bytes:
    """Write a body."""
    return to_json(value)


class _Kebab(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    pass


class _Snake(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


# Errors


class ErrorModel(_Kebab, frozen=True, kw_only=True):
    """What went wrong, in `delta/v1`."""

    message: str
    type: str
    code: int


class ErrorResponse(_Kebab, frozen=True, kw_only=True):
    """An answer that is an error."""

    error: ErrorModel


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The same again, for clients that look here."""

    reason: str
    type: str = msgspec.field(name="@type", default="google.rpc.ErrorInfo")


class OlderError(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is an error, in the older REST."""

    error_code: str
    message: str
    details: tuple[ErrorDetail, ...]


# `delta/v1`


class Config(_Kebab, frozen=True, kw_only=True):
    """What is served."""

    endpoints: tuple[str, ...]
    protocol_version: str


class Credential(_Kebab, frozen=True, kw_only=True, omit_defaults=False):
    """What opens a place; for files nothing is needed."""

    prefix: str
    operation: str  # READ or READ_WRITE
    config: dict[str, str] = {}


class Credentials(_Kebab, frozen=True, kw_only=True):
    """What opens a table."""

    storage_credentials: tuple[Credential, ...]


class NewStagingTable(_Kebab, frozen=True, kw_only=True):
    """A wish for a place."""

    name: str


class DeltaProtocol(_Kebab, frozen=True, kw_only=True):
    """The log's protocol, said apart from the log."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class RequiredProtocol(DeltaProtocol, frozen=True, kw_only=True, omit_defaults=False):
    """What a new table must support."""


class SuggestedProtocol(_Kebab, frozen=True, kw_only=True, omit_defaults=False):
    """What a new table had better support."""

    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class StagingTable(_Kebab, frozen=True, kw_only=True, omit_defaults=False):
    """A place and an id, and what a table there must be."""

    table_id: str
    table_type: str
    location: str
    storage_credentials: tuple[Credential, ...]
    required_protocol: RequiredProtocol
    suggested_protocol: SuggestedProtocol
    required_properties: dict[str, str]
    suggested_properties: dict[str, str | None]  # null: the engine generates the value


class NewTable(_Kebab, frozen=True, kw_only=True):
    """A staging table to be named, and what its creator says of version 0."""

    name: str
    location: str
    table_type: str
    columns: dict[str, Any]
    protocol: DeltaProtocol
    properties: dict[str, str | None]
    last_commit_timestamp_ms: int
    comment: str | None = None
    partition_columns: tuple[str, ...] | None = None
    domain_metadata: dict[str, Any] | None = None
    uniform: Any = None  # refused


class Commit(_Kebab, frozen=True, kw_only=True):
    """A commit that lies in a staged file."""

    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


class TableMetadata(_Kebab, frozen=True, kw_only=True):
    """What a table is, apart from its rows."""

    etag: str
    table_type: str
    table_uuid: str
    location: str
    created_time: int
    updated_time: int
    columns: Any  # a StructType, nested types in kebab-case
    partition_columns: list[str] | msgspec.UnsetType = msgspec.UNSET
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    last_commit_version: int | None = None
    last_commit_timestamp_ms: int | None = None


class LoadedTable(_Kebab, frozen=True, kw_only=True):
    """A table and its latest commits."""

    metadata: TableMetadata
    commits: tuple[Commit, ...] | msgspec.UnsetType = msgspec.UNSET
    latest_table_version: int | None = None


class AssertTableUuid(_Kebab, frozen=True, kw_only=True, tag_field="type", tag="assert-table-uuid"):
    """It must be this very table."""

    uuid: str


class AssertEtag(_Kebab, frozen=True, kw_only=True, tag_field="type", tag="assert-etag"):
    """Its metadata must be what it was."""

    etag: str


class _Update(_Kebab, frozen=True, kw_only=True, tag_field="action"):
    pass


class AddCommit(_Update, frozen=True, kw_only=True, tag="add-commit"):
    """A staged file is to be the next version."""

    commit: Commit
    uniform: Any = None  # refused


class SetPublished(_Update, frozen=True, kw_only=True, tag="set-latest-backfilled-version"):
    """The log is said to hold all versions up to one."""

    latest_published_version: int


class SetProperties(_Update, frozen=True, kw_only=True, tag="set-properties"):
    """Properties that the commit sets."""

    updates: dict[str, str | None]


class RemoveProperties(_Update, frozen=True, kw_only=True, tag="remove-properties"):
    """Properties that the commit takes away."""

    removals: tuple[str, ...]


class SetProtocol(_Update, frozen=True, kw_only=True, tag="set-protocol"):
    """The protocol after the commit."""

    protocol: DeltaProtocol


class SetColumns(_Update, frozen=True, kw_only=True, tag="set-columns"):
    """The columns after the commit."""

    columns: dict[str, Any]


class SetPartitionColumns(_Update, frozen=True, kw_only=True, tag="set-partition-columns"):
    """The partitioning after the commit."""

    partition_columns: tuple[str, ...]


class SetTableComment(_Update, frozen=True, kw_only=True, tag="set-table-comment"):
    """The comment after the commit; without one, or with an empty one, there is none."""

    comment: str | None = None


class SetDomainMetadata(_Update, frozen=True, kw_only=True, tag="set-domain-metadata"):
    """Metadata domains that the commit sets."""

    updates: dict[str, Any]


class RemoveDomainMetadata(_Update, frozen=True, kw_only=True, tag="remove-domain-metadata"):
    """Metadata domains that the commit takes away."""

    domains: tuple[str, ...]


class SetSnapshotVersion(
    _Update, frozen=True, kw_only=True, tag="update-metadata-snapshot-version"
):
    """How far the log of a table that is not managed has come."""

    last_commit_version: int
    last_commit_timestamp_ms: int


Requirement = AssertTableUuid | AssertEtag
Update = (
    AddCommit
    | SetPublished
    | SetProperties
    | RemoveProperties
    | SetProtocol
    | SetColumns
    | SetPartitionColumns
    | SetTableComment
    | SetDomainMetadata
    | RemoveDomainMetadata
    | SetSnapshotVersion
)


class TableChange(_Kebab, frozen=True, kw_only=True):
    """All that is to happen to a table at once, and what must hold for it."""

    requirements: tuple[Requirement, ...]
    updates: tuple[Update, ...]


class NewName(_Kebab, frozen=True, kw_only=True):
    """Another name in the same schema."""

    new_name: str


class FileSizeHistogram(_Kebab, frozen=True, kw_only=True):
    """How many files of which sizes the table has."""

    sorted_bin_boundaries: tuple[int, ...] = ()
    file_counts: tuple[int, ...] = ()
    total_bytes: tuple[int, ...] = ()
    commit_version: int | None = None


class CommitReport(_Kebab, frozen=True, kw_only=True):
    """How much a commit wrote."""

    num_files_added: int = 0
    num_bytes_added: int = 0
    num_files_removed: int = 0
    num_bytes_removed: int = 0
    num_rows_inserted: int | None = None
    num_rows_removed: int | None = None
    num_rows_updated: int | None = None
    file_size_histogram: FileSizeHistogram | None = None


class Report(_Kebab, frozen=True, kw_only=True):
    """A report of one kind."""

    commit_report: CommitReport | None = None


class Metrics(_Kebab, frozen=True, kw_only=True):
    """What a writer tells after a commit."""

    table_id: str
    report: Report


# The older REST


class NewCatalog(_Snake, frozen=True, kw_only=True):
    """A catalog to be made."""

    name: str
    comment: str | None = None
    properties: dict[str, str | None] | None = None
    storage_root: str | None = None


class CatalogInfo(_Snake, frozen=True, kw_only=True):
    """A catalog."""

    name: str
    id: str
    comment: str | None = None
    properties: dict[str, str] = {}
    storage_root: str | None = None
    storage_location: str | None = None
    created_at: int | None = None
    updated_at: int | None = None


class ChangedRemarks(_Snake, frozen=True, kw_only=True):
    """What to change of a catalog or a schema; what is absent stays."""

    comment: str | None = None
    properties: dict[str, str | None] | None = None
    new_name: str | None = None


class Catalogs(_Snake, frozen=True, kw_only=True):
    """A page of catalogs."""

    catalogs: tuple[CatalogInfo, ...]
    next_page_token: str | None = None


class NewSchema(_Snake, frozen=True, kw_only=True):
    """A schema to be made."""

    name: str
    catalog_name: str
    comment: str | None = None
    properties: dict[str, str | None] | None = None
    storage_root: str | None = None


class SchemaInfo(_Snake, frozen=True, kw_only=True):
    """A schema."""

    name: str
    catalog_name: str
    full_name: str
    schema_id: str
    comment: str | None = None
    properties: dict[str, str] = {}
    storage_root: str | None = None
    storage_location: str | None = None
    created_at: int | None = None
    updated_at: int | None = None


class Schemas(_Snake, frozen=True, kw_only=True):
    """A page of schemas."""

    schemas: tuple[SchemaInfo, ...]
    next_page_token: str | None = None


class ColumnInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A column, for those who read no schema of Delta's."""

    name: str
    type_text: str
    type_json: str
    type_name: str
    type_precision: int = 0
    type_scale: int = 0
    position: int
    nullable: bool
    comment: str | msgspec.UnsetType = msgspec.UNSET
    partition_index: int | msgspec.UnsetType = msgspec.UNSET


class DeclaredColumn(_Snake, frozen=True, kw_only=True):
    """A column as a client declares it."""

    name: str
    type_text: str | None = None
    type_json: str | None = None
    nullable: bool = True
    comment: str | None = None
    partition_index: int | None = None


class TableInfo(_Snake, frozen=True, kw_only=True):
    """A table, in the older words."""

    name: str
    catalog_name: str
    schema_name: str
    table_type: str
    data_source_format: str
    columns: tuple[ColumnInfo, ...] | msgspec.UnsetType = msgspec.UNSET
    storage_location: str
    comment: str | None = None
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    created_at: int
    updated_at: int
    table_id: str


class Tables(_Snake, frozen=True, kw_only=True):
    """A page of tables."""

    tables: tuple[TableInfo, ...]
    next_page_token: str | None = None


class OlderNewTable(_Snake, frozen=True, kw_only=True):
    """A table to be named: one that was staged, or one that lies somewhere."""

    name: str
    catalog_name: str
    schema_name: str
    table_type: str
    storage_location: str
    columns: tuple[DeclaredColumn, ...] | None = None
    data_source_format: str = "DELTA"
    comment: str | None = None
    properties: dict[str, str | None] | None = None


class OlderNewStagingTable(_Snake, frozen=True, kw_only=True):
    """A wish for a place."""

    name: str
    catalog_name: str
    schema_name: str


class OlderStagingTable(_Snake, frozen=True, kw_only=True):
    """A place and an id."""

    id: str
    name: str
    catalog_name: str
    schema_name: str
    staging_location: str


class TableAccess(_Snake, frozen=True, kw_only=True):
    """A wish for what opens a table."""

    table_id: str
    operation: str


class PathAccess(_Snake, frozen=True, kw_only=True):
    """A wish for what opens a place."""

    url: str
    operation: str


class OlderCredentials(_Snake, frozen=True, kw_only=True):
    """What opens a place; for files nothing is needed."""

    url: str


class Summary(_Snake, frozen=True, kw_only=True):
    """What the catalog is as a whole."""

    metastore_id: str


# `delta/preview/commits`


class CommitInfo(_Snake, frozen=True, kw_only=True, omit_defaults=False):
    """A commit that lies in a file."""

    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


class PropertiesOf(_Snake, frozen=True, kw_only=True):
    """All properties after a commit."""

    properties: dict[str, str | None] = {}


class ChangedMetadata(_Snake, frozen=True, kw_only=True):
    """What a commit changes besides rows."""

    description: str | None = None
    properties: PropertiesOf | None = None
    schema: dict[str, Any] | None = None


class OlderCommit(_Snake, frozen=True, kw_only=True):
    """A commit, a published claim, or both."""

    table_id: str
    table_uri: str
    commit_info: CommitInfo | None = None
    latest_backfilled_version: int | None = None
    metadata: ChangedMetadata | None = None
    uniform: Any = None  # refused


class WantedCommits(_Snake, frozen=True, kw_only=True):
    """The range of commits that is asked for."""

    table_id: str
    table_uri: str
    start_version: int
    end_version: int | None = None


class Commits(_Snake, frozen=True, kw_only=True, omit_defaults=False):
    """The commits of a range, newest first."""

    commits: tuple[CommitInfo, ...]
    latest_table_version: int
