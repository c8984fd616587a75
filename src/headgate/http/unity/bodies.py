"""Bodies of the two dialects: `delta/v1` in kebab-case, the older REST in snake_case.

Maps and arrays are never null, since clients do not check; what is absent is left out. Unknown
fields are ignored, as all clients of these dialects do. Where both dialects have a body of the same
name, that of the older REST begins with `Older`.
"""

from typing import Any

import msgspec


class _Kebab(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    pass


class _Snake(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


# Errors


class ErrorModel(_Kebab, frozen=True, kw_only=True):
    """An error in `delta/v1`."""

    message: str
    type: str
    code: int


class ErrorResponse(_Kebab, frozen=True, kw_only=True):
    """A response with an error in `delta/v1`."""

    error: ErrorModel


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The error code again, for clients that read it here."""

    reason: str
    type: str = msgspec.field(name="@type", default="google.rpc.ErrorInfo")


class OlderError(msgspec.Struct, frozen=True, kw_only=True):
    """A response with an error in the older REST."""

    error_code: str
    message: str
    details: tuple[ErrorDetail, ...]


# `delta/v1`


class ConfigResponse(_Kebab, frozen=True, kw_only=True):
    """The supported endpoints and version."""

    endpoints: tuple[str, ...]
    protocol_version: str


class Credential(_Kebab, frozen=True, kw_only=True, omit_defaults=False):
    """Credentials for a location; files need none."""

    prefix: str
    operation: str  # READ or READ_WRITE
    config: dict[str, str] = {}


class Credentials(_Kebab, frozen=True, kw_only=True):
    """Credentials for a table."""

    storage_credentials: tuple[Credential, ...]


class CreateStagingTableRequest(_Kebab, frozen=True, kw_only=True):
    """A request for a staging table."""

    name: str


class Features(_Kebab, frozen=True, kw_only=True, omit_defaults=False):
    """Table features."""

    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class DeltaProtocol(Features, frozen=True, kw_only=True, omit_defaults=False):
    """The protocol action of a log."""

    min_reader_version: int
    min_writer_version: int


class StagingTableResponse(_Kebab, frozen=True, kw_only=True, omit_defaults=False):
    """A staging table, and the requirements for a table created there."""

    table_id: str
    table_type: str
    location: str
    storage_credentials: tuple[Credential, ...]
    required_protocol: DeltaProtocol
    suggested_protocol: Features
    required_properties: dict[str, str]
    suggested_properties: dict[str, str | None]  # null: the engine generates the value


class CreateTableRequest(_Kebab, frozen=True, kw_only=True):
    """A name for a staging table, and what its creator declares of version 0."""

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
    """A staged commit."""

    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


class TableMetadata(_Kebab, frozen=True, kw_only=True):
    """The description of a table."""

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
    """Requires that the table has this id."""

    uuid: str


class AssertEtag(_Kebab, frozen=True, kw_only=True, tag_field="type", tag="assert-etag"):
    """Requires that the metadata did not change."""

    etag: str


class _Update(_Kebab, frozen=True, kw_only=True, tag_field="action"):
    pass


class AddCommit(_Update, frozen=True, kw_only=True, tag="add-commit"):
    """Proposes a staged file as the next version."""

    commit: Commit
    uniform: Any = None  # refused


class SetPublished(_Update, frozen=True, kw_only=True, tag="set-latest-backfilled-version"):
    """Claims that all versions up to one are published."""

    latest_published_version: int


class SetProperties(_Update, frozen=True, kw_only=True, tag="set-properties"):
    """Sets properties."""

    updates: dict[str, str | None]


class RemoveProperties(_Update, frozen=True, kw_only=True, tag="remove-properties"):
    """Removes properties."""

    removals: tuple[str, ...]


class SetProtocol(_Update, frozen=True, kw_only=True, tag="set-protocol"):
    """Sets the protocol."""

    protocol: DeltaProtocol


class SetColumns(_Update, frozen=True, kw_only=True, tag="set-columns"):
    """Sets the columns."""

    columns: dict[str, Any]


class SetPartitionColumns(_Update, frozen=True, kw_only=True, tag="set-partition-columns"):
    """Sets the partitioning."""

    partition_columns: tuple[str, ...]


class SetTableComment(_Update, frozen=True, kw_only=True, tag="set-table-comment"):
    """Sets the comment; None or an empty one removes it."""

    comment: str | None = None


class SetDomainMetadata(_Update, frozen=True, kw_only=True, tag="set-domain-metadata"):
    """Sets metadata domains."""

    updates: dict[str, Any]


class RemoveDomainMetadata(_Update, frozen=True, kw_only=True, tag="remove-domain-metadata"):
    """Removes metadata domains."""

    domains: tuple[str, ...]


class SetSnapshotVersion(
    _Update, frozen=True, kw_only=True, tag="update-metadata-snapshot-version"
):
    """Reports the latest version of an external table."""

    last_commit_version: int
    last_commit_timestamp_ms: int


Requirement = AssertTableUuid | AssertEtag
# In the order in which the dialect applies updates: later ones may depend on earlier ones.
_CommitUpdate = AddCommit | SetPublished
_SchemaUpdate = SetColumns | SetPartitionColumns | SetProtocol
_PropertyUpdate = SetProperties | RemoveProperties | SetDomainMetadata | RemoveDomainMetadata
Update = _CommitUpdate | _SchemaUpdate | _PropertyUpdate | SetTableComment | SetSnapshotVersion


class TableUpdate(_Kebab, frozen=True, kw_only=True):
    """Updates of a table, applied together, and their requirements."""

    requirements: tuple[Requirement, ...]
    updates: tuple[Update, ...]


class TableRename(_Kebab, frozen=True, kw_only=True):
    """A new name in the same schema."""

    new_name: str


class FileSizeHistogram(_Kebab, frozen=True, kw_only=True):
    """The numbers and sizes of a table's files."""

    sorted_bin_boundaries: tuple[int, ...] = ()
    file_counts: tuple[int, ...] = ()
    total_bytes: tuple[int, ...] = ()
    commit_version: int | None = None


class CommitReport(_Kebab, frozen=True, kw_only=True):
    """What a commit wrote."""

    num_files_added: int = 0
    num_bytes_added: int = 0
    num_files_removed: int = 0
    num_bytes_removed: int = 0
    num_rows_inserted: int | None = None
    num_rows_removed: int | None = None
    num_rows_updated: int | None = None
    file_size_histogram: FileSizeHistogram | None = None


class Report(_Kebab, frozen=True, kw_only=True):
    """A report."""

    commit_report: CommitReport | None = None


class CommitMetrics(_Kebab, frozen=True, kw_only=True):
    """A writer's report of its commit."""

    table_id: str
    report: Report


# The older REST


class NewCatalog(_Snake, frozen=True, kw_only=True):
    """A catalog to create."""

    name: str
    comment: str | None = None
    properties: dict[str, str | None] | None = None
    storage_root: str | None = None


class _Details(_Snake, frozen=True, kw_only=True):
    name: str
    comment: str | None = None
    properties: dict[str, str] = {}
    storage_root: str | None = None
    storage_location: str | None = None
    created_at: int | None = None
    updated_at: int | None = None


class CatalogInfo(_Details, frozen=True, kw_only=True):
    """A catalog."""

    id: str


class ChangedDetails(_Snake, frozen=True, kw_only=True):
    """A change of a catalog or a schema; what is absent stays."""

    comment: str | None = None
    properties: dict[str, str | None] | None = None
    new_name: str | None = None


class Catalogs(_Snake, frozen=True, kw_only=True):
    """A page of catalogs."""

    catalogs: tuple[CatalogInfo, ...]
    next_page_token: str | None = None


class NewSchema(NewCatalog, frozen=True, kw_only=True):
    """A schema to create."""

    catalog_name: str


class SchemaInfo(_Details, frozen=True, kw_only=True):
    """A schema."""

    catalog_name: str
    full_name: str
    schema_id: str


class Schemas(_Snake, frozen=True, kw_only=True):
    """A page of schemas."""

    schemas: tuple[SchemaInfo, ...]
    next_page_token: str | None = None


class ColumnInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A column, for clients that do not read Delta's schemas."""

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


class _InSchema(_Snake, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    schema_name: str


class OlderTable(_InSchema, frozen=True, kw_only=True):
    """A table in the older REST."""

    table_type: str
    data_source_format: str
    columns: tuple[ColumnInfo, ...] | msgspec.UnsetType = msgspec.UNSET
    storage_location: str
    comment: str | None = None
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    created_at: int
    updated_at: int
    table_id: str


class OlderTables(_Snake, frozen=True, kw_only=True):
    """A page of tables."""

    tables: tuple[OlderTable, ...]
    next_page_token: str | None = None


class OlderNewTable(_InSchema, frozen=True, kw_only=True):
    """A name for a staging table, or an external table to register."""

    table_type: str
    storage_location: str
    columns: tuple[DeclaredColumn, ...] | None = None
    data_source_format: str = "DELTA"
    comment: str | None = None
    properties: dict[str, str | None] | None = None


class OlderNewStagingTable(_InSchema, frozen=True, kw_only=True):
    """A request for a staging table."""


class OlderStagingTable(_InSchema, frozen=True, kw_only=True):
    """A staging table."""

    id: str
    staging_location: str


class TableAccess(_Snake, frozen=True, kw_only=True):
    """A request for credentials for a table."""

    table_id: str
    operation: str


class PathAccess(_Snake, frozen=True, kw_only=True):
    """A request for credentials for a location."""

    url: str
    operation: str


class OlderCredentials(_Snake, frozen=True, kw_only=True):
    """Credentials for a location; files need none."""

    url: str


class Summary(_Snake, frozen=True, kw_only=True):
    """The id of the catalog service."""

    metastore_id: str


# `delta/preview/commits`


class OlderCommit(_Snake, frozen=True, kw_only=True, omit_defaults=False):
    """A staged or published commit."""

    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


class PropertiesOf(_Snake, frozen=True, kw_only=True):
    """All properties after a commit."""

    properties: dict[str, str | None] = {}


class ChangedMetadata(_Snake, frozen=True, kw_only=True):
    """The metadata that a commit changes."""

    description: str | None = None
    properties: PropertiesOf | None = None
    schema: dict[str, Any] | None = None


class CommitOrClaim(_Snake, frozen=True, kw_only=True):
    """A commit, a claim of what is published, or both."""

    table_id: str
    table_uri: str
    commit_info: OlderCommit | None = None
    latest_backfilled_version: int | None = None
    metadata: ChangedMetadata | None = None
    uniform: Any = None  # refused


class CommitRange(_Snake, frozen=True, kw_only=True):
    """A request for a range of commits."""

    table_id: str
    table_uri: str
    start_version: int
    end_version: int | None = None


class OlderCommits(_Snake, frozen=True, kw_only=True, omit_defaults=False):
    """The commits of a range, newest first."""

    commits: tuple[OlderCommit, ...]
    latest_table_version: int
