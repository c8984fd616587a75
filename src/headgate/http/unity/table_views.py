"""What both dialects need of a table: to find it, to tell of it, to hold what is said against it.

A client declares what its commit changes; the catalog takes that from the content. Here the two
are held against each other: what was declared and is not so is a violation.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from headgate.api.messages import RatifiedCommit, StagingTable, TableInfo
from headgate.catalog.service import Catalog
from headgate.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    InvalidNameError,
    NotFoundError,
)
from headgate.http.unity import bodies, columns
from headgate.http.unity.problems import Case, SaidError
from headgate.names import DEFAULT_CATALOG, SchemaName, TableName, fold, plain_name
from headgate.protocol import clustering, features
from headgate.protocol.actions import (
    DomainMetadata,
    Metadata,
    Protocol,
    TableId,
    TxnId,
    encode,
    join,
)
from headgate.protocol.commit import row_ids
from headgate.protocol.commit.admission import TIMESTAMPS_PROPERTY
from headgate.protocol.commit.content import Inline, Way
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.encoding import from_json, to_json
from headgate.protocol.paths import STAGED
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema import types as schemas
from headgate.protocol.schema.types import StructType
from headgate.protocol.table_states import TableKind, parse_table_id
from headgate.settings import Settings
from headgate.storage import locations

MANAGED: Final = "MANAGED"
EXTERNAL: Final = "EXTERNAL"
_DERIVED = (
    features.ASKING,
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.lastUpdateVersion",
    "delta.lastCommitTimestamp",
    "delta.rowTracking.rowIdHighWaterMark",
    "clusteringColumns",
)
# Properties whose values an engine generates when it creates a table with a feature.
_GENERATED: Final = {
    "columnMapping": ("delta.columnMapping.maxColumnId",),
    "rowTracking": (
        "delta.rowTracking.materializedRowIdColumnName",
        "delta.rowTracking.materializedRowCommitVersionColumnName",
    ),
}
_STILL_LISTED_MS: Final = 600_000  # a client may be between its two looks
_UNIFORM: Final = "delta.universalFormat.enabledFormats"
DOMAINS: Final = frozenset({clustering.DOMAIN, row_ids.DOMAIN})


# Finding


def table_name(catalog: str, schema: str, table: str) -> TableName:
    """Read a table's name from its three parts."""
    return TableName(plain_name(catalog), plain_name(schema), plain_name(table))


def full_name(text: str) -> TableName:
    """Read `catalog.schema.table`, all three."""
    parts = text.split(".")
    if len(parts) != 3:
        raise InvalidArgumentError(
            f"{text[:200]!r} is no full name.", remedy="Write catalog.schema.table."
        )
    return table_name(*parts)


def wanted_name(parts: Iterable[str]) -> TableName:
    """Read the name of a table that should be there; what can be no name is that of none.

    Spark asks so for tables by their paths, and goes to the path when there is no such name.
    """
    text = ".".join(parts)
    try:
        return full_name(text)
    except (InvalidArgumentError, InvalidNameError):
        raise SaidError(Case.NO_TABLE, f"There is no table {text[:500]!r}.") from None


def require_schema(catalog: Catalog, name: SchemaName) -> SchemaName:
    """Give the schema as it was made, or say whether it or its catalog is missing."""
    known = catalog.namespaces()
    for namespace in known:
        if namespace.key == name.key:
            return namespace
    require_catalog(catalog, name.catalog)
    raise SaidError(Case.NO_SCHEMA, f"There is no schema {name}.")


def catalogs(catalog: Catalog) -> dict[str, str]:
    """Give the catalogs by what is unique in their names.

    One is there when a schema is in it; the one that every lake begins with is there always.
    """
    names = {fold(namespace.catalog): namespace.catalog for namespace in catalog.namespaces()}
    return {DEFAULT_CATALOG: DEFAULT_CATALOG, **names}


def require_catalog(catalog: Catalog, name: str) -> str:
    """Give a catalog's name as it was made."""
    found = catalogs(catalog).get(fold(name))
    if found is not None:
        return found
    raise SaidError(Case.NO_CATALOG, f"There is no catalog {name[:300]!r}.")


def find(
    catalog: Catalog, name: TableName, look: Callable[[TableName], TableInfo] | None = None
) -> TableInfo:
    """Describe a table, or say what of its name is missing.

    By default everything that is in no file is published first: whoever is told of the table may
    read its log, or begin one where there is none.
    """
    try:
        if look is None:
            return catalog.describe_briefly(name, published=True)
        return look(name)
    except NotFoundError:
        require_schema(catalog, name.namespace)
        raise SaidError(Case.NO_TABLE, f"There is no table {name}.") from None


def load(catalog: Catalog, name: TableName) -> TableInfo:
    """Describe a table for those who know files alone, and who are about to stage some."""
    described = find(catalog, name, catalog.describe_in_files)
    make_staging_folder(described)
    return described


def make_staging_folder(described: TableInfo) -> None:
    """Make the folder for staged commits: the JVM's clients write into it and do not make it."""
    if described.kind is TableKind.MANAGED and described.location.startswith("file:"):
        staged = _folder(described.location) / STAGED
        with suppress(OSError):  # who cannot write there cannot stage, and can still read
            staged.mkdir(parents=True, exist_ok=True)


def _folder(location: str) -> Path:
    return Path(locations.decode(location.removeprefix("file://")))


def refuse_if_there(catalog: Catalog, name: TableName) -> None:
    """Refuse a name that a table has."""
    require_schema(catalog, name.namespace)
    try:
        catalog.describe(name)
    except NotFoundError:
        return
    raise SaidError(Case.TABLE_THERE, f"There is a table {name} already.")


def staged_at(catalog: Catalog, location: str) -> TableId:
    """Give the staging table that lies at a place: the place is its key."""
    found = catalog.table_at(location)
    if found is None:
        raise NotFoundError(
            f"No table was staged at {location[:500]}.",
            remedy="Ask for a staging table first, and use its location.",
        )
    return found


def register(
    catalog: Catalog,
    name: TableName,
    location: str,
    judge: Callable[[Examined], Iterable[Violation]],
) -> TableInfo:
    """Name a staging table; the same again is answered as the first time."""
    require_schema(catalog, name.namespace)
    table_id = staged_at(catalog, location)
    try:
        catalog.register_table(name, table_id, judge=judge)
    except AlreadyExistsError as error:
        raise SaidError(Case.TABLE_THERE, error.message, remedy=error.remedy) from None
    return catalog.describe_in_files(table_id)


def begin(
    catalog: Catalog, name: TableName, location: str, first: Callable[[TableId], Inline]
) -> TableInfo:
    """Make version 0 of a staging table whose engine writes no log before it is named."""
    table_id = staged_at(catalog, location)
    # Always the same, so that the same again is known for what it is.
    txn_id = TxnId(str(uuid.uuid5(uuid.UUID(table_id), "version 0")))
    try:
        catalog.create_table(name, table_id, txn_id, first(table_id))
    except AlreadyExistsError as error:
        raise SaidError(Case.TABLE_THERE, error.message, remedy=error.remedy) from None
    return catalog.describe_in_files(table_id)


def version_0(
    settings: Settings,
    table_id: TableId,
    schema: StructType,
    partition_columns: list[str],
    properties: Mapping[str, str | None],
    comment: str | None,
) -> Inline:
    """Give the content of version 0 of a table with these columns and properties."""
    given = {key: value for key, value in properties.items() if value is not None}
    if _wants_uniform(given):
        refuse_uniform(given)
    required = required_properties(settings, table_id)
    for key, value in required.items():
        if given.get(key, value) != value:
            raise InvalidArgumentError(
                f"Property {key} is declared as {given[key]!r}; it must be {value!r}.", remedy=""
            )
    kept = {key: value for key, value in given.items() if not key.startswith(_DERIVED)}
    asked = features.features_for(given, schema)
    protocol = features.protocol_of_version0(
        [*features.effective(required_protocol(settings)), *asked]
    )
    metadata = Metadata(
        id=table_id,
        description=comment,
        schema_string=schemas.to_json(schema),
        partition_columns=partition_columns,
        configuration={**kept, **required},
    )
    return Inline(
        commit_info={"operation": "CREATE TABLE"},
        actions=join([encode(protocol), encode(metadata)]),
    )


def stage(catalog: Catalog, name: TableName) -> StagingTable:
    """Give a place for a table that is to have a name nobody has."""
    refuse_if_there(catalog, name)
    staged = catalog.stage_table(namespace=name.namespace)
    if staged.location.startswith("file:"):  # some clients list it before they write anything
        _folder(staged.location).mkdir(parents=True, exist_ok=True)
    return staged


# Telling


def in_staged_files(described: TableInfo) -> list[RatifiedCommit]:
    """Give the commits that lie in staged files, newest first, down to the first that does not."""
    listed: list[RatifiedCommit] = []
    since_ms = described.described_ms - _STILL_LISTED_MS
    for commit in reversed(described.commits):
        is_recent = (commit.published_ms or described.described_ms) >= since_ms
        if (
            commit.way is not Way.STAGED
            or (commit.sequence or 0) <= described.unseen
            or not is_recent
        ):
            break
        listed.append(commit)
    return listed


def kind_of(described: TableInfo) -> str:
    """Say whose a table is."""
    return EXTERNAL if described.kind is TableKind.EXTERNAL else MANAGED


def format_of(described: TableInfo) -> str:
    """Say how a table's files are encoded."""
    if described.kind is TableKind.MANAGED:
        return "DELTA"
    return described.metadata.format.provider.upper()


def properties_of(described: TableInfo) -> dict[str, str]:
    """Give the properties: what the log has, and what clients read off them. Nothing else.

    Whoever replaces a table writes all that begins with `delta.` back into the log.
    """
    protocol = described.protocol
    if protocol is None:
        return dict(described.metadata.configuration)
    told = {
        **described.metadata.configuration,
        "delta.minReaderVersion": str(protocol.min_reader_version),
        "delta.minWriterVersion": str(protocol.min_writer_version),
        "delta.lastUpdateVersion": str(described.metadata_version),
        "delta.lastCommitTimestamp": str(described.changed_ms),
    }
    for name in sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}):
        told[f"{features.ASKING}{name}"] = "supported"
    domains = {domain.domain: domain for domain in described.domains}
    if (paths := clustering.stored_columns(domains)) is not None:
        told["clusteringColumns"] = to_json(paths).decode()
    return told


def info(described: TableInfo) -> bodies.TableInfo:
    """Tell of a table in the older words."""
    metadata = described.metadata
    return bodies.TableInfo(
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


# What new tables are asked to be


def required_protocol(settings: Settings) -> Protocol:
    """Give the protocol that a new table must have at the least."""
    return features.protocol_of_version0(
        [features.CATALOG_MANAGED, *features.named(settings.required_features)]
    )


def suggested_protocol(settings: Settings) -> Protocol:
    """Give the features that a new table had better have, and does not have to."""
    required = features.effective(required_protocol(settings))
    wanted = features.with_requirements(features.named(settings.suggested_features))
    protocol = features.protocol_of_version0([*required, *wanted])
    return Protocol(
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        reader_features=[f for f in protocol.reader_features or () if f not in required],
        writer_features=[f for f in protocol.writer_features or () if f not in required],
    )


def suggested_properties(settings: Settings) -> dict[str, str | None]:
    """Return the properties suggested for a new table; None: the engine generates the value."""
    names = suggested_protocol(settings).writer_features or ()
    generated = [key for name in names for key in _GENERATED.get(name, ())]
    entries = (entry.split("=") for entry in settings.suggested_properties.split(",") if entry)
    return {
        **activating(names),
        **dict.fromkeys(generated),
        **{key.strip(): value.strip() for key, value in entries},
    }


def required_properties(settings: Settings, table_id: TableId) -> dict[str, str]:
    """Give the properties that a new table must have, with their values."""
    own = {TIMESTAMPS_PROPERTY: "true", TABLE_ID_PROPERTY: table_id}
    return {**activating(features.effective(required_protocol(settings))), **own}


def activating(names: Iterable[str]) -> dict[str, str]:
    """Give the properties that make features active, where a property does."""
    return {condition.key: condition.values[0] for condition in _conditions(names)}


def _conditions(names: Iterable[str]) -> list[features.Property]:
    rows = [features.FEATURES[name] for name in sorted(names) if name in features.FEATURES]
    return [row.active_when for row in rows if isinstance(row.active_when, features.Property)]


def lacks_required(
    settings: Settings, examined: Examined, declared: Mapping[str, str | None]
) -> Iterator[Violation]:
    """List what version 0 lacks of what new tables must have.

    A property that only the request declares is enough: kernel-rs cannot write
    `delta.checkpointPolicy` to the log, and the stock server checks the request alone.
    """
    wanted = required_protocol(settings)
    if examined.protocol is None or examined.metadata is None:
        return  # which is said elsewhere
    for has, needs, whose in (
        (examined.protocol.reader_features, wanted.reader_features, "readers"),
        (examined.protocol.writer_features, wanted.writer_features, "writers"),
    ):
        for name in sorted(set(needs or ()) - set(has or ())):
            says = f"new tables must have the feature {name}, for {whose}"
            yield Violation(rule="required-feature", says=says)
    for condition in _conditions(features.effective(wanted)):
        logged = examined.metadata.configuration.get(condition.key)
        found = (logged or declared.get(condition.key) or "").strip().lower()
        if found not in condition.values:
            says = f"new tables must have the property {condition.key}={condition.values[0]}"
            yield Violation(rule="required-property", says=says)


# What was said, against what is so


def contradictions(
    updates: Iterable[bodies.Update], examined: Examined, before: TableInfo
) -> Iterator[Violation]:
    """List what was declared of a commit and is not so."""
    yield from asks_for_uniform(examined)
    metadata = examined.metadata or before.metadata
    protocol = examined.protocol or before.protocol
    for update in updates:
        match update:
            case bodies.SetProperties(updates=wanted):
                yield from properties_differ(metadata, wanted)
            case bodies.RemoveProperties(removals=gone):
                for key in gone:
                    if key in metadata.configuration:
                        yield _differs(f"property {key} is to go, and is still there")
            case bodies.SetProtocol(protocol=wanted_protocol):
                yield from protocol_differs(protocol, wanted_protocol)
            case bodies.SetColumns(columns=wanted_columns):
                yield from columns_differ(metadata, columns.from_kebab(wanted_columns))
            case bodies.SetPartitionColumns(partition_columns=names):
                yield from partitioning_differs(metadata, names)
            case bodies.SetTableComment(comment=comment):
                yield from comment_differs(metadata, comment)
            case bodies.SetDomainMetadata(updates=wanted_domains):
                yield from domains_differ(examined, before.domains, wanted_domains)
            case bodies.RemoveDomainMetadata(domains=names):
                refuse_unknown_domains(names)
                left = _domains_after(examined, before.domains)
                for name in names:
                    if name in left:
                        yield _differs(f"domain {name} is to go, and is still there")
            case bodies.AddCommit(commit=commit):
                if examined.timestamp_ms not in (None, commit.timestamp):
                    yield _differs(
                        f"the timestamp is declared as {commit.timestamp}, and is "
                        f"{examined.timestamp_ms}"
                    )
            case bodies.SetPublished() | bodies.SetSnapshotVersion():
                pass


def refuse_uniform(block: object) -> None:
    """Refuse a place of Iceberg metadata: kept by nobody, it would be believed to be followed."""
    if block is not None:
        raise InvalidArgumentError(
            "Iceberg metadata that engines write is not kept here.",
            remedy=f"Take iceberg out of {_UNIFORM}.",
        )


def asks_for_uniform(examined: Examined) -> Iterator[Violation]:
    """Say whether a commit wants Iceberg metadata to follow it, whose place would be told here."""
    if examined.metadata is not None and _wants_uniform(examined.metadata.configuration):
        says = f"{_UNIFORM} has iceberg, whose metadata engines cannot tell of here"
        yield Violation(rule="uniform", says=says)


def _wants_uniform(properties: Mapping[str, str]) -> bool:
    return "iceberg" in properties.get(_UNIFORM, "").lower()


def properties_differ(metadata: Metadata, wanted: Mapping[str, str | None]) -> Iterator[Violation]:
    """List properties that the log does not have as they were declared."""
    for key, value in wanted.items():
        if value is None or key.startswith(_DERIVED):
            continue  # told by us, and not in the log
        if metadata.configuration.get(key) != value:
            found = metadata.configuration.get(key)
            yield _differs(f"property {key} is declared as {value!r}, and is {found!r}")


def declared_properties_differ(
    metadata: Metadata, declared: Mapping[str, str | None]
) -> Iterator[Violation]:
    """List properties of a creation that the log has with another value.

    A property that the log lacks is accepted, as by the stock server, and not kept.
    """
    present = {key: value for key, value in declared.items() if key in metadata.configuration}
    return properties_differ(metadata, present)


def protocol_differs(
    protocol: Protocol | None, wanted: bodies.DeltaProtocol
) -> Iterator[Violation]:
    """Say whether the log's protocol is not the declared one."""
    if protocol is None:
        return  # which is said elsewhere
    told = (
        wanted.min_reader_version,
        wanted.min_writer_version,
        set(wanted.reader_features),
        set(wanted.writer_features),
    )
    found = (
        protocol.min_reader_version,
        protocol.min_writer_version,
        set(protocol.reader_features or ()),
        set(protocol.writer_features or ()),
    )
    if told != found:
        yield _differs("the protocol is not the one that is declared")


def columns_differ(metadata: Metadata, wanted: StructType) -> Iterator[Violation]:
    """Say whether the log's columns are not the declared ones."""
    if not columns.same(schemas.from_json(metadata.schema_string), wanted):
        yield _differs("the columns are not those that are declared")


def column_names_differ(
    metadata: Metadata, declared: Collection[bodies.DeclaredColumn]
) -> Iterator[Violation]:
    """Compare the names of columns declared in the older REST, if any, with those of the log.

    Types are not compared: engines write them in several ways.
    """
    found = [field.name for field in schemas.from_json(metadata.schema_string).fields]
    if declared and sorted(column.name for column in declared) != sorted(found):
        yield _differs("the columns are not those that are declared")


def partitioning_differs(metadata: Metadata, names: Iterable[str]) -> Iterator[Violation]:
    """Say whether the log's partitioning is not the declared one."""
    if metadata.partition_columns != list(names):
        yield _differs(f"partition columns are {metadata.partition_columns}, not {list(names)}")


def comment_differs(metadata: Metadata, comment: str | None) -> Iterator[Violation]:
    """Say whether the log's comment is not the declared one; none and an empty one are the same."""
    if (metadata.description or "") != (comment or ""):
        yield _differs(f"the comment is {metadata.description!r}, not {comment!r}")


def domains_differ(
    examined: Examined, before: Iterable[DomainMetadata], wanted: Mapping[str, Any]
) -> Iterator[Violation]:
    """List domains that the log does not have as they were declared."""
    refuse_unknown_domains(wanted)
    after = _domains_after(examined, before)
    for name, told in wanted.items():
        if name not in after:
            yield _differs(f"domain {name} is declared, and not in the commit")
        elif name == row_ids.DOMAIN:
            found = from_json(after[name].configuration.encode(), dict[str, Any])
            key = "rowIdHighWaterMark"
            if not isinstance(told, dict) or told.get(key) != found.get(key):
                yield _differs(f"domain {name} says {found.get(key)}, and not what is declared")


def refuse_unknown_domains(names: Iterable[str]) -> None:
    """Refuse a domain that has no form in this dialect."""
    for name in names:
        if name not in DOMAINS:
            raise InvalidArgumentError(f"The domain {name[:200]!r} is unknown.")


def _domains_after(
    examined: Examined, before: Iterable[DomainMetadata]
) -> dict[str, DomainMetadata]:
    merged = {domain.domain: domain for domain in (*before, *examined.domains)}
    return {name: domain for name, domain in merged.items() if not domain.removed}


def _differs(says: str) -> Violation:
    return Violation(rule="not-as-declared", says=says)


def parse_id(text: str) -> TableId:
    """Read a table's id, however its letters are spelled."""
    return parse_table_id(text.lower())
