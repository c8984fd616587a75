"""Table features: what each requires, what activates it, and how far this client handles it.

A feature is *supported* if the protocol lists it or its version numbers imply it, and *active* if
it is supported and its condition in the metadata holds.
"""

import enum
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Set

import msgspec

from headgate.errors import InvalidArgumentError
from headgate.protocol.actions import Metadata, Protocol
from headgate.protocol.encoding import replaced
from headgate.protocol.schema import column_mapping
from headgate.protocol.schema import types as delta

CATALOG_MANAGED = "catalogManaged"
IN_COMMIT_TIMESTAMP = "inCommitTimestamp"

READER_WITH_FEATURES = 3
WRITER_WITH_FEATURES = 7


class FeatureKind(enum.Enum):
    """Which clients must support a feature."""

    WRITER = "writer"
    READER_WRITER = "reader and writer"


class Writes(enum.Enum):
    """What this client may write to a table on which a feature is active."""

    EVERYTHING = "everything"
    NO_ROWS = "no rows"  # but metadata and removals of whole files
    NOTHING = "nothing"


class Property(msgspec.Struct, frozen=True):
    """Active when a property has one of these values."""

    key: str
    values: tuple[str, ...] = ("true",)


class PropertyPrefix(msgspec.Struct, frozen=True):
    """Active when any property has this prefix."""

    prefix: str


class ColumnKey(msgspec.Struct, frozen=True):
    """Active when some column's metadata has this key, or one below it if it ends in a dot."""

    key: str


class ColumnType(msgspec.Struct, frozen=True):
    """Active when the type occurs in the schema."""

    type: delta.Primitive


Condition = Property | PropertyPrefix | ColumnKey | ColumnType


class Feature(msgspec.Struct, frozen=True):
    """A feature of the Delta protocol, and how far this client handles it."""

    name: str
    kind: FeatureKind
    active_when: Condition | None = None  # None: as soon as it is supported
    requires: tuple[str, ...] = ()
    legacy_reader: int | None = None  # implied by reader versions from this one on
    legacy_writer: int | None = None
    reads: bool = True  # meaningless for writer features
    writes: Writes = Writes.EVERYTHING


_W, _RW = FeatureKind.WRITER, FeatureKind.READER_WRITER
_NO_ROWS, _NOTHING = Writes.NO_ROWS, Writes.NOTHING
_MAPPED = Property(column_mapping.MODE, ("name", "id"))
_COLLATIONS = ColumnKey("__COLLATIONS")
_SHREDDING = Property("delta.enableVariantShredding")
_REDIRECT = Property("delta.redirectReaderWriter-preview")
_ADAPTIVE = (CATALOG_MANAGED, "rowTracking", "domainMetadata", "deletionVectors", "columnMapping")


def _enabled(name: str) -> Property:
    return Property(f"delta.enable{name}")


def _iceberg(name: str, *requires: str) -> Feature:
    return Feature(f"iceberg{name}", _W, _enabled(f"Iceberg{name}"), requires, writes=_NOTHING)


FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("appendOnly", _W, Property("delta.appendOnly"), legacy_writer=2),
        Feature("invariants", _W, ColumnKey(delta.INVARIANTS), legacy_writer=2),
        Feature("checkConstraints", _W, PropertyPrefix(delta.CONSTRAINTS), legacy_writer=3),
        # We add and remove whole files: without `cdc` actions readers derive changes from them.
        Feature("changeDataFeed", _W, _enabled("ChangeDataFeed"), legacy_writer=4),
        Feature(
            "generatedColumns", _W, ColumnKey(delta.GENERATION), legacy_writer=4, writes=_NO_ROWS
        ),
        Feature("columnMapping", _RW, _MAPPED, legacy_reader=2, legacy_writer=5),
        Feature("identityColumns", _W, ColumnKey(delta.IDENTITY), legacy_writer=6, writes=_NO_ROWS),
        Feature("deletionVectors", _RW, _enabled("DeletionVectors")),
        Feature("domainMetadata", _W),
        Feature("rowTracking", _W, _enabled("RowTracking"), ("domainMetadata",)),
        Feature("timestampNtz", _RW, ColumnType(delta.TIMESTAMP_NTZ)),
        Feature("v2Checkpoint", _RW, Property("delta.checkpointPolicy", ("v2",))),
        Feature("vacuumProtocolCheck", _RW),
        Feature(IN_COMMIT_TIMESTAMP, _W, _enabled("InCommitTimestamps")),
        Feature(CATALOG_MANAGED, _RW, requires=(IN_COMMIT_TIMESTAMP,)),
        Feature("checkpointProtection", _W),
        Feature("clustering", _W, requires=("domainMetadata",)),
        Feature("typeWidening", _RW, _enabled("TypeWidening")),
        Feature("typeWidening-preview", _RW, _enabled("TypeWidening")),
        Feature("variantType", _RW, ColumnType(delta.VARIANT), writes=_NO_ROWS),
        Feature("variantType-preview", _RW, ColumnType(delta.VARIANT), writes=_NO_ROWS),
        Feature("variantShredding", _RW, _SHREDDING, ("variantType",), reads=False),
        Feature("variantShredding-preview", _RW, _SHREDDING, reads=False),
        # Values for columns that a write leaves out are SQL expressions.
        Feature("allowColumnDefaults", _W, ColumnKey(delta.DEFAULT), writes=_NO_ROWS),
        Feature("materializePartitionColumns", _W, writes=_NO_ROWS),
        _iceberg("CompatV1", "columnMapping"),
        _iceberg("CompatV2", "columnMapping"),
        _iceberg("CompatV3", "columnMapping", "rowTracking"),
        _iceberg("WriterCompatV1", "icebergCompatV2"),
        _iceberg("WriterCompatV3", "icebergCompatV3"),
        Feature("collations", _W, _COLLATIONS, writes=_NO_ROWS),
        Feature("collations-preview", _W, _COLLATIONS, writes=_NO_ROWS),
        Feature("columnMappingUsageTracking", _W, requires=("columnMapping",), writes=_NOTHING),
        Feature("geospatial", _RW, reads=False),
        Feature("geospatial-dev", _RW, reads=False),
        Feature("timestampNanos", _RW, requires=("timestampNtz",), reads=False),
        Feature("redirectReaderWriter-preview", _RW, _REDIRECT, reads=False),
        Feature("redirectWriterOnly-preview", _W, writes=_NOTHING),
        Feature("adaptiveMetadata-preview", _RW, requires=_ADAPTIVE, reads=False),
    )
}

# Without the previews of features that have been released.
_FINISHED = tuple(
    feature
    for feature in FEATURES.values()
    if not (feature.name.endswith("-preview") and feature.name.removesuffix("-preview") in FEATURES)
)

# A property with this prefix requests a feature in CREATE or ALTER TABLE; it is never stored.
ASKING = "delta.feature."


# Supported and active features


def effective(protocol: Protocol) -> frozenset[str]:
    """Return the features a protocol supports, including those its version numbers imply."""
    return readers_features(protocol) | writers_features(protocol)


def readers_features(protocol: Protocol) -> frozenset[str]:
    """Return the features a reader must support."""
    if protocol.min_reader_version >= READER_WITH_FEATURES:
        return frozenset(protocol.reader_features or ())
    return _implied_for_readers(protocol.min_reader_version)


def _implied_for_readers(version: int) -> frozenset[str]:
    return frozenset(
        feature.name
        for feature in FEATURES.values()
        if feature.legacy_reader is not None and feature.legacy_reader <= version
    )


def writers_features(protocol: Protocol) -> frozenset[str]:
    """Return the features a writer must support."""
    if protocol.min_writer_version >= WRITER_WITH_FEATURES:
        return frozenset(protocol.writer_features or ())
    return frozenset(
        feature.name
        for feature in FEATURES.values()
        if feature.legacy_writer is not None
        and feature.legacy_writer <= protocol.min_writer_version
        and (feature.legacy_reader or 0) <= protocol.min_reader_version
    )


def is_supported(protocol: Protocol, name: str) -> bool:
    """Return True if a protocol supports a feature."""
    if (
        protocol.min_reader_version >= READER_WITH_FEATURES
        and protocol.min_writer_version >= WRITER_WITH_FEATURES
    ):  # fast path: both lists are present
        return name in (protocol.writer_features or ()) or name in (protocol.reader_features or ())
    return name in effective(protocol)


def is_active(protocol: Protocol, metadata: Metadata, name: str) -> bool:
    """Return True if a feature is supported and its condition holds, or if it is unknown."""
    if not is_supported(protocol, name):
        return False
    feature = FEATURES.get(name)
    return feature is None or _holds(
        feature.active_when, metadata.configuration, metadata.schema_string
    )


def is_catalog_managed(protocol: Protocol) -> bool:
    """Return True if a table is catalog-managed, by versions and both lists. Spec: CM-35."""
    return (
        protocol.min_reader_version == READER_WITH_FEATURES
        and protocol.min_writer_version == WRITER_WITH_FEATURES
        and CATALOG_MANAGED in (protocol.reader_features or ())
        and CATALOG_MANAGED in (protocol.writer_features or ())
    )


def mapping_mode(protocol: Protocol, metadata: Metadata) -> str:
    """Return the mode of column mapping that is active: `none`, `name` or `id`."""
    if is_active(protocol, metadata, "columnMapping"):
        return metadata.configuration[column_mapping.MODE].lower()
    return "none"


def _holds(
    condition: Condition | None, properties: Mapping[str, str], schema: delta.StructType | str
) -> bool:
    match condition:
        case Property(key, values):
            return properties.get(key, "").strip().lower() in values
        case PropertyPrefix(prefix):
            return any(key.startswith(prefix) for key in properties)
        case ColumnKey(key):
            return bool(delta.columns_with(_parsed(schema), key))
        case ColumnType(data_type):
            return delta.contains(_parsed(schema), data_type)
        case None:
            return True


def _parsed(schema: delta.StructType | str) -> delta.StructType:
    return delta.from_json(schema) if isinstance(schema, str) else schema


# What this client supports


def unreadable(protocol: Protocol) -> list[str]:
    """List the features and protocol versions that keep this client from reading."""
    found = []
    if protocol.min_reader_version > READER_WITH_FEATURES:
        found.append(f"reader version {protocol.min_reader_version}")
    for name in sorted(readers_features(protocol)):
        feature = FEATURES.get(name)
        if feature is None or (feature.kind is FeatureKind.READER_WRITER and not feature.reads):
            found.append(name)
    return found


def unwritable(
    protocol: Protocol, metadata: Metadata, *, rows: bool = True, handled: Set[str] = frozenset()
) -> list[str]:
    """List the features and versions that keep this client from writing.

    With `rows=False`, from writing anything but new rows. `handled` are features that the caller
    takes care of when it computes the rows.
    """
    found = unreadable(protocol)
    if protocol.min_writer_version > WRITER_WITH_FEATURES:
        found.append(f"writer version {protocol.min_writer_version}")
    for name in sorted(writers_features(protocol)):
        feature = FEATURES.get(name)
        if feature is None:
            found.append(name)
            continue
        if feature.writes is Writes.NO_ROWS and (not rows or name in handled):
            continue
        if feature.writes is not Writes.EVERYTHING and is_active(protocol, metadata, name):
            found.append(name)
    return sorted(set(found))


# Creating protocols


def named(text: str) -> list[str]:
    """Parse a comma-separated list of features; refuse unknown and unreadable ones."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = sorted(feature.name for feature in _FINISHED if feature.reads)
    for name in names:
        if name not in known:
            raise InvalidArgumentError(
                f"The feature {name!r} is not supported.",
                remedy=f"Use Delta's spelling. Supported are {', '.join(known)}.",
            )
    return names


def with_requirements(names: Iterable[str]) -> list[str]:
    """Return features and all features they require, sorted."""
    closure: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in closure:
            closure.add(name)
            pending.extend(FEATURES[name].requires if name in FEATURES else ())
    return sorted(closure)


def protocol_of_version0(features: Iterable[str]) -> Protocol:
    """Return the protocol of a new table with these features and all they require."""
    return _listing(with_requirements(features), frozenset(), reader_version=1)


def upgraded(protocol: Protocol, feature: str) -> Protocol:
    """Add a feature and all it requires, and keep all that is supported."""
    missing = [name for name in with_requirements([feature]) if not is_supported(protocol, name)]
    if not missing and protocol.min_writer_version >= WRITER_WITH_FEATURES:
        return protocol
    names = sorted(effective(protocol).union(missing))
    listed = readers_features(protocol)
    after = _listing(names, listed, reader_version=protocol.min_reader_version)
    return replaced(after, unknown=protocol.unknown)


def _listing(names: Iterable[str], readers: frozenset[str], *, reader_version: int) -> Protocol:
    names = sorted(names)
    for_readers = sorted(
        name for name in names if name in readers or _kind(name) is FeatureKind.READER_WRITER
    )
    implied = _implied_for_readers(reader_version)
    if reader_version < READER_WITH_FEATURES and implied.issuperset(for_readers):
        # Old readers support all of these: the table stays readable for them.
        return Protocol(
            min_reader_version=reader_version,
            min_writer_version=WRITER_WITH_FEATURES,
            writer_features=names,
        )
    return Protocol(
        min_reader_version=READER_WITH_FEATURES,
        min_writer_version=WRITER_WITH_FEATURES,
        reader_features=for_readers,
        writer_features=names,
    )


def _kind(name: str) -> FeatureKind | None:
    feature = FEATURES.get(name)
    return None if feature is None else feature.kind


def features_for(
    properties: Mapping[str, str], schema: delta.StructType | str | None = None
) -> list[str]:
    """List the features that properties and a schema need or request, with all they require."""
    requested = {
        key.removeprefix(ASKING)
        for key, value in properties.items()
        if key.startswith(ASKING) and value.strip().lower() in {"supported", "enabled"}
    }
    needed = {
        feature.name
        for feature in _FINISHED
        if isinstance(feature.active_when, Property | PropertyPrefix)
        and _holds(feature.active_when, properties, "")
    }
    if schema is not None:
        needed |= _needed_by(schema)
    requested |= {name for name in needed if f"{name}-preview" not in requested}
    return with_requirements(requested)


@functools.lru_cache(maxsize=256)  # every commit to a table has the same schema
def _needed_by(schema: delta.StructType | str) -> frozenset[str]:
    parsed = _parsed(schema)
    needed = {
        feature.name
        for feature in _FINISHED
        if isinstance(feature.active_when, ColumnKey | ColumnType)
        and _holds(feature.active_when, {}, parsed)
    }
    if _has_not_null(parsed):
        # The protocol does not require it, but delta-spark does not open such a table without it.
        needed.add("invariants")
    return frozenset(needed)


def _has_not_null(schema: delta.StructType) -> bool:
    return any(
        not item.nullable or (isinstance(item.type, delta.StructType) and _has_not_null(item.type))
        for item in schema.fields
    )


def without_asking(properties: Mapping[str, str]) -> dict[str, str]:
    """Drop the properties that only request a feature."""
    return {key: value for key, value in properties.items() if not key.startswith(ASKING)}


def drops(before: Protocol, after: Protocol) -> list[str]:
    """List the features that a change of protocol would remove. Spec: EN-01."""
    return sorted(effective(before) - effective(after))


# Validating protocols


def valid(protocol: Protocol) -> list[str]:
    """List what makes a protocol malformed; unknown features are allowed."""
    found = list(_version_problems(protocol))
    readers, writers = protocol.reader_features or [], protocol.writer_features or []
    known_to_writers = set(writers)
    for listed, whose in ((readers, "readerFeatures"), (writers, "writerFeatures")):
        twice = sorted(name for name, count in Counter(listed).items() if count > 1)
        found.extend(f"{name} is twice in {whose}" for name in twice)
    for name in sorted(set(readers)):
        if name not in known_to_writers:
            found.append(f"{name} is in readerFeatures and not in writerFeatures")
        if _kind(name) is FeatureKind.WRITER:
            found.append(f"{name} is a writer feature and is in readerFeatures")
    supported_by_readers = readers_features(protocol)
    found.extend(
        f"{name} is in writerFeatures and not supported for readers"
        for name in sorted(known_to_writers - supported_by_readers)
        if _kind(name) is FeatureKind.READER_WRITER
    )
    found.extend(
        f"{name} requires {required}"
        for name in sorted(effective(protocol))
        for required in (FEATURES[name].requires if name in FEATURES else ())
        if not is_supported(protocol, required)
    )
    return found


def _version_problems(protocol: Protocol) -> Iterable[str]:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if not 1 <= reader <= READER_WITH_FEATURES:
        yield f"there is no reader version {reader}"
    if not 1 <= writer <= WRITER_WITH_FEATURES:
        yield f"there is no writer version {writer}"
    if reader >= READER_WITH_FEATURES and writer < WRITER_WITH_FEATURES:
        yield f"reader version {reader} needs writer version {WRITER_WITH_FEATURES}"
    if (protocol.reader_features is not None) != (reader >= READER_WITH_FEATURES):
        yield f"readerFeatures require reader version {READER_WITH_FEATURES}, and no other"
    if (protocol.writer_features is not None) != (writer >= WRITER_WITH_FEATURES):
        yield f"writerFeatures require writer version {WRITER_WITH_FEATURES}, and no other"
