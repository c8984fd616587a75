"""Finds tables by the names that clients send, and describes them in the form of the dialects."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from headgate.api.messages import RatifiedCommit, TableInfo
from headgate.catalog.service import Catalog
from headgate.errors import InvalidArgumentError, InvalidNameError, NotFoundError
from headgate.http.unity import bodies, columns
from headgate.http.unity.problems import Case, DialectError
from headgate.names import DEFAULT_CATALOG, SchemaName, TableName, fold, plain_name
from headgate.protocol import clustering, features
from headgate.protocol.actions import TableId
from headgate.protocol.commit.content import Way
from headgate.protocol.encoding import to_json
from headgate.protocol.paths import STAGED
from headgate.protocol.table_states import TableKind, parse_table_id
from headgate.storage import locations

MANAGED: Final = "MANAGED"
EXTERNAL: Final = "EXTERNAL"
STILL_LISTED_MS: Final = 600_000  # a client may be between its two listings


# Names


def table_name(catalog: str, schema: str, table: str) -> TableName:
    """Return the table name with these parts."""
    return TableName(plain_name(catalog), plain_name(schema), plain_name(table))


def full_name(text: str) -> TableName:
    """Parse `catalog.schema.table`; all three parts are required."""
    parts = text.split(".")
    if len(parts) != 3:
        raise InvalidArgumentError(
            f"{text[:200]!r} is not a full name.", remedy="Write catalog.schema.table."
        )
    return table_name(*parts)


def existing_name(parts: Iterable[str]) -> TableName:
    """Parse the name of a table that should exist; for an invalid name there is no table."""
    # Spark asks this way for tables by their paths, and reads the path if there is no such table.
    text = ".".join(parts)
    try:
        return full_name(text)
    except (InvalidArgumentError, InvalidNameError):
        raise DialectError(Case.NO_TABLE, f"There is no table {text[:500]!r}.") from None


def parse_id(text: str) -> TableId:
    """Parse a table id, in upper or lower case."""
    return parse_table_id(text.lower())


# Finding


def require_schema(catalog: Catalog, name: SchemaName) -> SchemaName:
    """Return a schema's name as it was created; raise if the schema or its catalog is missing."""
    for namespace in catalog.namespaces():
        if namespace.key == name.key:
            return namespace
    require_catalog(catalog, name.catalog)
    raise DialectError(Case.NO_SCHEMA, f"There is no schema {name}.")


def catalogs(catalog: Catalog) -> dict[str, str]:
    """Return the names of the catalogs by their keys."""
    # A catalog exists while it has a schema; the default catalog exists always.
    names = {fold(namespace.catalog): namespace.catalog for namespace in catalog.namespaces()}
    return {DEFAULT_CATALOG: DEFAULT_CATALOG, **names}


def require_catalog(catalog: Catalog, name: str) -> str:
    """Return a catalog's name as it was created; raise if it is missing."""
    found = catalogs(catalog).get(fold(name))
    if found is None:
        raise DialectError(Case.NO_CATALOG, f"There is no catalog {name[:300]!r}.")
    return found


def find(
    catalog: Catalog, name: TableName, describe: Callable[[TableName], TableInfo] | None = None
) -> TableInfo:
    """Describe a table; raise if the table, its schema or its catalog is missing.

    By default inline commits are published first: the client may read the log of the table, or
    write one if there is none.
    """
    try:
        if describe is None:
            return catalog.describe_briefly(name, published=True)
        return describe(name)
    except NotFoundError:
        require_schema(catalog, name.namespace)
        raise DialectError(Case.NO_TABLE, f"There is no table {name}.") from None


def load(catalog: Catalog, name: TableName) -> TableInfo:
    """Describe a table for a client that reads commits from files, and may stage some."""
    described = find(catalog, name, catalog.describe_in_files)
    make_staging_folder(described)
    return described


def make_staging_folder(described: TableInfo) -> None:
    """Create the folder for staged commits, since clients on the JVM do not."""
    if described.kind is TableKind.MANAGED and described.location.startswith("file:"):
        # If it cannot be created, the table can still be read.
        with suppress(OSError):
            (folder(described.location) / STAGED).mkdir(parents=True, exist_ok=True)


def folder(location: str) -> Path:
    """Return the local folder of a `file:` location."""
    return Path(locations.decode(location.removeprefix("file://")))


# Describing


def in_staged_files(described: TableInfo, still_ms: int = STILL_LISTED_MS) -> list[RatifiedCommit]:
    """Return the latest commits that are in staged files, newest first.

    Published ones are listed still for a while.
    """
    listed: list[RatifiedCommit] = []
    since_ms = described.described_ms - still_ms
    for commit in reversed(described.commits):
        is_recent = commit.published_ms is None or commit.published_ms > since_ms
        if (
            commit.way is not Way.STAGED
            or (commit.sequence or 0) <= described.unseen
            or not is_recent
        ):
            break
        listed.append(commit)
    return listed


def fields_of(commit: RatifiedCommit) -> dict[str, Any]:
    """Return the fields of a staged commit, which are alike in both dialects."""
    return {
        "version": commit.version,
        "timestamp": commit.timestamp_ms,
        "file_name": commit.file_name,
        "file_size": commit.size,
        "file_modification_timestamp": commit.modified_ms or commit.timestamp_ms,
    }


def kind_of(described: TableInfo) -> str:
    """Return the type of a table."""
    return EXTERNAL if described.kind is TableKind.EXTERNAL else MANAGED


def format_of(described: TableInfo) -> str:
    """Return the format of a table."""
    if described.kind is TableKind.MANAGED:
        return "DELTA"
    return described.metadata.format.provider.upper()


def properties_of(described: TableInfo) -> dict[str, str]:
    """Return the properties in the log, and those that clients expect to be derived from it."""
    # No others: a client that replaces a table writes all that begin with `delta.` to the log.
    protocol = described.protocol
    if protocol is None:
        return dict(described.metadata.configuration)
    properties = {
        **described.metadata.configuration,
        "delta.minReaderVersion": str(protocol.min_reader_version),
        "delta.minWriterVersion": str(protocol.min_writer_version),
        "delta.lastUpdateVersion": str(described.metadata_version),
        "delta.lastCommitTimestamp": str(described.changed_ms),
    }
    for name in sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}):
        properties[f"{features.ASKING}{name}"] = "supported"
    domains = {domain.domain: domain for domain in described.domains}
    if (paths := clustering.stored_columns(domains)) is not None:
        properties["clusteringColumns"] = to_json(paths).decode()
    return properties


def older_table(described: TableInfo) -> bodies.OlderTable:
    """Return a table in the form of the older REST."""
    metadata = described.metadata
    return bodies.OlderTable(
        name=described.name.table,
        catalog_name=described.name.catalog,
        schema_name=described.name.schema,
        table_type=kind_of(described),
        data_source_format=format_of(described),
        columns=columns.flat(metadata),
        storage_location=described.location,
        comment=metadata.description,
        properties=properties_of(described),
        created_at=described.created_ms,
        updated_at=max(described.changed_ms, described.created_ms),
        table_id=described.table_id,
    )
