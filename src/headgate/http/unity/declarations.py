"""Compare what a client declares of its commit with the content, which alone counts."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from headgate.api.messages import TableInfo
from headgate.errors import InvalidArgumentError
from headgate.http.unity import bodies, columns
from headgate.protocol import clustering, features
from headgate.protocol.actions import DomainMetadata, Metadata, Protocol
from headgate.protocol.commit import row_ids
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.encoding import from_json
from headgate.protocol.schema import types as schemas

# Properties that the server derives from the log, so that the log does not have them.
DERIVED: Final = (
    features.ASKING,
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "clusteringColumns",
    "delta.lastUpdateVersion",
    "delta.lastCommitTimestamp",
    "delta.rowTracking.rowIdHighWaterMark",
)
_DOMAINS: Final = frozenset({clustering.DOMAIN, row_ids.DOMAIN})
_MARK: Final = "rowIdHighWaterMark"
_UNIFORM: Final = "delta.universalFormat.enabledFormats"


def contradictions(
    updates: Iterable[bodies.Update], examined: Examined, before: TableInfo | None = None
) -> Iterator[Violation]:
    """List the declared updates that a commit does not make; `before` is None at creation."""
    yield from asks_for_uniform(examined)
    metadata = examined.metadata or (None if before is None else before.metadata)
    protocol = examined.protocol or (None if before is None else before.protocol)
    if metadata is None:
        return  # a violation by itself
    merged = {
        domain.domain: domain
        for domain in (*(() if before is None else before.domains), *examined.domains)
    }
    domains = {name: domain for name, domain in merged.items() if not domain.removed}
    for update in updates:
        if isinstance(update, bodies.AddCommit):
            declared = update.commit.timestamp
            if examined.timestamp_ms not in (None, declared):
                yield _differs(
                    f"the timestamp is declared as {declared}, and is {examined.timestamp_ms}"
                )
        for difference in _differences(update, metadata, protocol, domains):
            yield _differs(difference)


def _differences(
    update: bodies.Update,
    metadata: Metadata,
    protocol: Protocol | None,
    domains: Mapping[str, DomainMetadata],
) -> Iterator[str]:
    found = metadata.configuration
    match update:
        case bodies.SetProperties(updates=declared):
            for key, value in declared.items():
                is_in_log = value is not None and not key.startswith(DERIVED)
                if is_in_log and found.get(key) != value:
                    yield f"property {key} is declared as {value!r}, and is {found.get(key)!r}"
        case bodies.RemoveProperties(removals=keys):
            yield from (f"property {key} is not removed" for key in keys if key in found)
        case bodies.SetProtocol(protocol=wanted):
            if protocol is not None and _parts(protocol) != _parts(wanted):
                yield "the protocol is not the one that is declared"
        case bodies.SetColumns(columns=wanted_columns):
            actual = schemas.from_json(metadata.schema_string)
            if not columns.same(actual, columns.from_kebab(wanted_columns)):
                yield "the columns are not those that are declared"
        case bodies.SetPartitionColumns(partition_columns=names):
            if metadata.partition_columns != list(names):
                yield f"partition columns are {metadata.partition_columns}, not {list(names)}"
        case bodies.SetTableComment(comment=comment):
            if (metadata.description or "") != (comment or ""):
                yield f"the comment is {metadata.description!r}, not {comment!r}"
        case bodies.SetDomainMetadata(updates=configurations):
            refuse_unknown_domains(configurations)
            for name, configuration in configurations.items():
                yield from _domain_difference(name, configuration, domains.get(name))
        case bodies.RemoveDomainMetadata(domains=names):
            refuse_unknown_domains(names)
            yield from (f"domain {name} is not removed" for name in names if name in domains)
        case bodies.AddCommit() | bodies.SetPublished() | bodies.SetSnapshotVersion():
            pass


def _parts(protocol: Protocol | bodies.DeltaProtocol) -> tuple[object, ...]:
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        set(protocol.reader_features or ()),
        set(protocol.writer_features or ()),
    )


def _domain_difference(name: str, declared: Any, domain: DomainMetadata | None) -> Iterator[str]:
    if domain is None:
        yield f"domain {name} is declared, and not in the commit"
    elif name == row_ids.DOMAIN:
        mark = from_json(domain.configuration.encode(), dict[str, Any]).get(_MARK)
        if not isinstance(declared, dict) or declared.get(_MARK) != mark:
            yield f"domain {name} has {_MARK} {mark}, which is not what is declared"


def refuse_unknown_domains(names: Iterable[str]) -> None:
    """Raise for a metadata domain that this dialect cannot represent."""
    for name in names:
        if name not in _DOMAINS:
            raise InvalidArgumentError(f"The domain {name[:200]!r} is unknown.")


def column_names_differ(
    metadata: Metadata, declared: Collection[bodies.DeclaredColumn]
) -> Iterator[Violation]:
    """Compare the names of columns declared in the older REST, if any, with those of the log."""
    # Types are not compared: engines write them in several ways.
    found = [field.name for field in schemas.from_json(metadata.schema_string).fields]
    if declared and sorted(column.name for column in declared) != sorted(found):
        yield _differs("the columns are not those that are declared")


def asks_for_uniform(examined: Examined) -> Iterator[Violation]:
    """Yield a violation if a commit requires Iceberg metadata."""
    if examined.metadata is not None and has_uniform(examined.metadata.configuration):
        says = f"{_UNIFORM} has iceberg, and this catalog does not store Iceberg metadata"
        yield Violation(rule="uniform", says=says)


def has_uniform(properties: Mapping[str, str]) -> bool:
    """Return whether properties require Iceberg metadata."""
    return "iceberg" in properties.get(_UNIFORM, "").lower()


def refuse_uniform(block: object) -> None:
    """Raise if a client sends a location of Iceberg metadata, which would not be maintained."""
    if block is not None:
        raise InvalidArgumentError(
            "This catalog does not store Iceberg metadata that engines write.",
            remedy=f"Remove iceberg from {_UNIFORM}.",
        )


def _differs(says: str) -> Violation:
    return Violation(rule="not-as-declared", says=says)
