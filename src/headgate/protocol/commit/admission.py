"""May this content become a version? Every reason why not is a `Violation`.

`examination` read the content by itself; here it is held against the table as it stands. What
others did meanwhile is `conflicts`' business, which files are there is the catalog's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many

import msgspec

from headgate.errors import HeadgateError
from headgate.protocol import features
from headgate.protocol.actions import AddFile, Metadata, Protocol, TableId, TxnId, Version
from headgate.protocol.commit import row_ids
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.commit.row_ids import DOMAIN as ROW_TRACKING
from headgate.protocol.data_paths import normal_path
from headgate.protocol.log.timestamps import MAX_AHEAD_MS
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema import checks, column_mapping, types
from headgate.protocol.statistics import parse_statistics

# The one violation that is not final: a commit that removes every file may partition anew.
PARTITIONING_CHANGED = "partitioning-changed"
TIMESTAMP_AHEAD = "timestamp-ahead"
REQUIRED_OFF = "required-feature-off"

TIMESTAMPS_PROPERTY = "delta.enableInCommitTimestamps"
PROTECTED_BEFORE_PROPERTY = "delta.requireCheckpointProtectionBeforeVersion"
DELTA_DOMAINS = frozenset({ROW_TRACKING, "delta.clustering"})


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What the catalog knows of a table at the version before; made for every commit."""

    table_id: TableId
    version: Version
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    row_id_high_water: int | None = None


def judge(
    examined: Examined,
    facts: Facts,
    *,
    now_ms: int,
    max_ahead_ms: int = MAX_AHEAD_MS,
    txn_id: TxnId,
    required: Iterable[str] = (),
) -> list[Violation]:
    """List what keeps content from being the next version, beyond what it breaks by itself.

    Features that are `required` of tables stay active where they are.
    Spec: AU-02, EN-01, CM-04, CM-36.
    """
    found = list(_txn_id_violations(examined, txn_id))
    found.extend(_timestamp_violations(examined, facts.timestamp_ms, now_ms, max_ahead_ms))
    protocol, metadata = facts.protocol, facts.metadata
    if examined.protocol is not None:
        protocol = examined.protocol
        found.extend(_protocol_violations(facts.protocol, protocol))
    if examined.metadata is not None:
        metadata = examined.metadata
        found.extend(_identity_violations(metadata, facts.table_id))
        found.extend(_log_id_violations(metadata, facts))
        found.extend(_schema_violations(protocol, metadata, facts.metadata))
        found.extend(_metadata_violations(facts, protocol, metadata))
        found.extend(_required_violations(facts, protocol, metadata, required))
    found.extend(
        _action_violations(
            examined, protocol, metadata, Version(facts.version + 1), facts.row_id_high_water
        )
    )
    return found


def judge_first(
    examined: Examined,
    table_id: TableId,
    *,
    now_ms: int,
    max_ahead_ms: int = MAX_AHEAD_MS,
    txn_id: TxnId | None,
) -> list[Violation]:
    """List what keeps content from being version 0 of a managed table. Spec: LC-02."""
    found: list[Violation] = []
    if txn_id is not None:
        found.extend(_txn_id_violations(examined, txn_id))
    found.extend(_timestamp_violations(examined, None, now_ms, max_ahead_ms))
    protocol, metadata = examined.protocol, examined.metadata
    if protocol is None:
        found.append(Violation(rule="no-protocol", says="version 0 has no protocol"))
    else:
        found.extend(_first_protocol_violations(protocol))
    if metadata is None:
        found.append(Violation(rule="no-metadata", says="version 0 has no metaData"))
    else:
        found.extend(_identity_violations(metadata, table_id))
    if examined.removes:
        says = "version 0 removes files where none can be"
        found.append(Violation(rule="remove-in-first", says=says))
    if protocol is not None and metadata is not None:
        found.extend(_schema_violations(protocol, metadata, None))
        found.extend(_action_violations(examined, protocol, metadata, Version(0), None))
    return found


def _txn_id_violations(examined: Examined, txn_id: TxnId) -> Iterator[Violation]:
    if examined.txn_id is not None and examined.txn_id != txn_id:
        says = f"commitInfo has txnId {examined.txn_id}, the proposal {txn_id}"
        yield Violation(rule="txn-id-mismatch", says=says)


def _timestamp_violations(
    examined: Examined, previous_ms: int | None, now_ms: int, max_ahead_ms: int
) -> Iterator[Violation]:
    stamp = examined.timestamp_ms
    if stamp is None:  # inline: the catalog gives it
        return
    if stamp < 0 or (previous_ms is not None and stamp <= previous_ms):
        says = f"inCommitTimestamp {stamp} is not after {previous_ms}, that of the version before"
        yield Violation(rule="timestamp-not-rising", says=says)
    if stamp > now_ms + max_ahead_ms:
        says = f"inCommitTimestamp {stamp} is more than {max_ahead_ms} ms ahead of {now_ms}"
        yield Violation(rule=TIMESTAMP_AHEAD, says=says)


_LOST = {
    features.CATALOG_MANAGED: "catalog-managed-gone",
    features.IN_COMMIT_TIMESTAMP: "timestamps-gone",
}


def _protocol_violations(before: Protocol, after: Protocol) -> Iterator[Violation]:
    for problem in features.valid(after):
        yield Violation(rule="protocol-malformed", says=f"in the protocol {problem}")
    if (
        after.min_reader_version < before.min_reader_version
        or after.min_writer_version < before.min_writer_version
    ):
        says = (
            f"the protocol goes down from {before.min_reader_version}/{before.min_writer_version}"
            f" to {after.min_reader_version}/{after.min_writer_version}"
        )
        yield Violation(rule="protocol-downgrade", says=says)
    for name in features.drops(before, after):
        says = f"feature {name} is taken away; dropping one is an operation of its own"
        yield Violation(rule=_LOST.get(name, "feature-gone"), says=says)
    for name in sorted(set(features.unreadable(after)).difference(features.unreadable(before))):
        yield Violation(rule="unreadable-feature", says=f"{name} is unknown here to readers")


def _first_protocol_violations(protocol: Protocol) -> Iterator[Violation]:
    for problem in features.valid(protocol):
        yield Violation(rule="protocol-malformed", says=f"in the protocol {problem}")
    if not features.is_catalog_managed(protocol):
        says = (
            f"a managed table has reader version {features.READER_WITH_FEATURES}, writer version"
            f" {features.WRITER_WITH_FEATURES} and {features.CATALOG_MANAGED} among the features"
            " of both"
        )
        yield Violation(rule="not-catalog-managed", says=says)
    if not features.is_supported(protocol, features.IN_COMMIT_TIMESTAMP):
        says = f"{features.IN_COMMIT_TIMESTAMP} is not supported"
        yield Violation(rule="timestamps-gone", says=says)
    for name in features.unreadable(protocol):
        yield Violation(rule="unreadable-feature", says=f"{name} is unknown here to readers")


def _identity_violations(metadata: Metadata, table_id: TableId) -> Iterator[Violation]:
    """Check what makes the table this one and no other, in any version."""
    if (named := metadata.configuration.get(TABLE_ID_PROPERTY)) != table_id:
        says = f"{TABLE_ID_PROPERTY} is {named!r}, the table's id {table_id}"
        yield Violation(rule="table-id-differs", says=says)
    if metadata.configuration.get(TIMESTAMPS_PROPERTY, "").strip().lower() != "true":
        says = f"{TIMESTAMPS_PROPERTY} is not true"
        yield Violation(rule="timestamps-off", says=says)
    if metadata.format.provider != "parquet":
        says = f"data files are {metadata.format.provider!r}, not parquet"
        yield Violation(rule="not-parquet", says=says)


def _log_id_violations(metadata: Metadata, facts: Facts) -> Iterator[Violation]:
    """Check that the log keeps the id it has for itself, which its first writer may have chosen."""
    if metadata.id not in (facts.metadata.id, facts.table_id):
        says = f"metaData.id is {metadata.id!r}, and was {facts.metadata.id!r}"
        yield Violation(rule="metadata-id-differs", says=says)


def _schema_violations(
    protocol: Protocol, metadata: Metadata, before: Metadata | None
) -> Iterator[Violation]:
    struct = _schema_of(metadata)
    if isinstance(struct, Violation):
        yield struct
        return
    mode = features.mapping_mode(protocol, metadata)
    if (
        before is None
        or before.schema_string != metadata.schema_string
        or before.partition_columns != metadata.partition_columns
    ) and struct.fields:
        is_mapped = mode != "none"
        for problem in checks.problems(
            struct, metadata.partition_columns, column_mapping=is_mapped
        ):
            yield Violation(rule="schema-invalid", says=f"in the schema {problem}")
    if mode != "none":
        yield from _mapping_violations(struct, metadata)


def _mapping_violations(struct: types.StructType, metadata: Metadata) -> Iterator[Violation]:
    """Check that under column mapping every field has an id of its own and a physical name."""
    greatest = _number(metadata, column_mapping.MAX_COLUMN_ID)
    seen: set[int] = set()
    for path, field in types.all_fields(struct):
        name, number = ".".join(path), column_mapping.field_id(field)
        if number is None or not isinstance(field.metadata.get(column_mapping.MAPPING_NAME), str):
            problem = "has no id or no physical name"
        elif number in seen:
            problem = f"has id {number}, which another column has"
        elif greatest is None or number > greatest:
            problem = f"has id {number} above {column_mapping.MAX_COLUMN_ID} {greatest}"
        else:
            problem = None
        if problem is not None:
            says = f"column {name!r} {problem}"
            yield Violation(rule="column-mapping-malformed", says=says)
        if number is not None:
            seen.add(number)


def _metadata_violations(facts: Facts, protocol: Protocol, after: Metadata) -> Iterator[Violation]:
    """Check what metadata must keep of the version before."""
    before = facts.metadata
    old, new = features.mapping_mode(facts.protocol, before), features.mapping_mode(protocol, after)
    if old != new and (old, new) != ("none", "name"):
        says = f"column mapping cannot go from {old} to {new}"
        yield Violation(rule="column-mapping-changed", says=says)
    for key, rule in (
        (column_mapping.MAX_COLUMN_ID, "max-column-id-lowered"),
        (PROTECTED_BEFORE_PROPERTY, "protection-lowered"),
    ):
        least = _number(before, key)
        given = _number(after, key)
        if least is not None and (given is None or given < least):
            says = f"{key} goes down from {least} to {after.configuration.get(key)}"
            yield Violation(rule=rule, says=says)
    partitioned_by = _partition_names(facts.protocol, before)
    if partitioned_by is not None and partitioned_by != _partition_names(protocol, after):
        says = (
            f"partition columns change from {before.partition_columns} to {after.partition_columns}"
        )
        yield Violation(rule=PARTITIONING_CHANGED, says=says)


def _required_violations(
    facts: Facts, protocol: Protocol, after: Metadata, required: Iterable[str]
) -> Iterator[Violation]:
    for name in required:
        condition = features.FEATURES[name].active_when
        if not isinstance(condition, features.Property) or condition.key == TIMESTAMPS_PROPERTY:
            continue  # nothing that a property could turn off, or judged for every table
        was_active = features.is_active(facts.protocol, facts.metadata, name)
        if was_active and not features.is_active(protocol, after, name):
            says = (
                f"tables here must have the feature {name}, and {condition.key} becomes "
                f"{after.configuration.get(condition.key)!r}"
            )
            yield Violation(rule=REQUIRED_OFF, says=says)


def _action_violations(
    examined: Examined,
    protocol: Protocol,
    metadata: Metadata,
    version: Version,
    row_id_high_water: int | None,
) -> Iterator[Violation]:
    supported = features.effective(protocol)
    if examined.adds or examined.cdcs:
        yield from _partition_violations(examined, protocol, metadata)
    if examined.adds and features.mapping_mode(protocol, metadata) != "none":
        yield from _unmapped_violations(examined, metadata)
    if "deletionVectors" not in supported:
        for add, number in zip(examined.adds, examined.add_lines, strict=True):
            if add.deletion_vector is not None:
                says = f"{add.path!r} has a deletion vector, which the table does not support"
                yield Violation(rule="deletion-vectors-unsupported", says=says, line=number)
    if examined.removes and features.is_active(protocol, metadata, "appendOnly"):
        for remove in examined.removes:
            if remove.data_change:
                says = f"{remove.path!r} is removed from a table that is append-only"
                yield Violation(rule="append-only", says=says)
    if examined.domains:
        yield from _domain_violations(examined, supported)
    if "rowTracking" in supported:
        yield from _row_id_violations(examined, version, row_id_high_water)


def _partition_violations(
    examined: Examined, protocol: Protocol, metadata: Metadata
) -> Iterator[Violation]:
    names = _partition_names(protocol, metadata)
    if names is None:
        return  # the schema cannot be read, which is said elsewhere
    wanted = set(names)
    for add, number in zip(examined.adds, examined.add_lines, strict=True):
        if add.partition_values.keys() != wanted:
            says = (
                f"{add.path!r} has partition values for {sorted(add.partition_values)}, not {names}"
            )
            yield Violation(rule="partition-values", says=says, line=number)
    for cdc in examined.cdcs:
        if cdc.partition_values.keys() != wanted:
            says = (
                f"{cdc.path!r} has partition values for {sorted(cdc.partition_values)}, not {names}"
            )
            yield Violation(rule="partition-values", says=says)


def _unmapped_violations(examined: Examined, metadata: Metadata) -> Iterator[Violation]:
    """Look for new files whose columns go by the table's own names: all would be read as null.

    DuckDB 1.5.5 writes such files. A writer writes all of its files alike, so one is looked at.
    """
    struct = _schema_of(metadata)
    if isinstance(struct, Violation):
        return  # which is said elsewhere
    physical = {column_mapping.physical_name(field) for field in struct.fields}
    unknown = {field.name for field in struct.fields} - physical
    # A file that only gets another deletion vector may know columns that were dropped since.
    old = {normal_path(file.path) for file in examined.removes}
    for add, number in zip(examined.adds, examined.add_lines, strict=True):
        if add.stats is not None and normal_path(add.path) not in old:
            told = parse_statistics(add.stats)
            names = {*(told.min_values or ()), *(told.null_count or ())} & unknown
            if names:
                says = f"{add.path!r} has column {min(names)!r}, whose physical name is another"
                yield Violation(rule="column-mapping-ignored", says=says, line=number)
            return


def _domain_violations(examined: Examined, supported: frozenset[str]) -> Iterator[Violation]:
    for domain in examined.domains:
        if "domainMetadata" not in supported:
            says = f"domain {domain.domain!r} is set and domainMetadata is not supported"
            yield Violation(rule="domains-unsupported", says=says)
        elif domain.domain.startswith("delta.") and domain.domain not in DELTA_DOMAINS:
            says = f"domain {domain.domain!r} is Delta's and unknown here"
            yield Violation(rule="unknown-domain", says=says)
        elif domain.domain == ROW_TRACKING and row_ids.mark_in(domain) is None:
            says = f"domain {ROW_TRACKING} is removed or has no rowIdHighWaterMark"
            yield Violation(rule="row-id-high-water", says=says)


# Row tracking


def _row_id_violations(
    examined: Examined, version: Version, row_id_high_water: int | None
) -> Iterator[Violation]:
    used = -1 if row_id_high_water is None else row_id_high_water
    removed = {normal_path(file.path): file.base_row_id for file in examined.removes}
    # Who gives out ids says up to which. One that stayed behind may say what was reached already,
    # so files that bring old ids are believed to be old where nothing, or more than that, is said.
    marks = [mark for mark in map(row_ids.mark_in, examined.domains) if mark is not None]
    may_restore = not examined.is_inline and (not marks or max(marks) > used)
    ranges: list[tuple[int, int]] = []
    given = 0  # by the catalog
    for add, number, bounds in zip(examined.adds, examined.add_lines, examined.bounds, strict=True):
        rule = problem = None
        path = normal_path(add.path)
        # A file added again has ids already, unless it is older than row tracking here.
        is_again = (
            path in removed
            or not add.data_change
            or (may_restore and _had_ids_before(add, bounds.num_records, version, used))
        )
        if is_again and add.base_row_id is not None and add.base_row_id <= used:
            if removed.get(path) not in (None, add.base_row_id):
                rule, problem = "row-ids-changed", "is added again with other row ids"
            elif add.default_row_commit_version is None:
                rule, problem = "no-row-ids", "is added again without its rows' version"
        elif removed.get(path) is not None:
            rule, problem = "row-ids-changed", "is added again and loses its row ids"
        elif bounds.num_records is None:
            rule, problem = "no-num-records", "has no numRecords, which row tracking needs"
        elif examined.is_inline:
            if add.base_row_id is not None or add.default_row_commit_version is not None:
                rule, problem = "row-ids-given", "brings row ids, which the catalog gives"
            given += max(bounds.num_records, 0)
        elif add.base_row_id is None or add.default_row_commit_version is None:
            rule, problem = "no-row-ids", "has no row ids, which the table tracks"
        elif add.base_row_id <= used:
            rule, problem = (
                "row-ids-taken",
                f"has row ids from {add.base_row_id}, used up to {used}",
            )
        elif add.default_row_commit_version != version:
            rule, problem = "row-version-differs", f"has not {version} as its rows' version"
        else:
            ranges.append((add.base_row_id, add.base_row_id + max(bounds.num_records, 0)))
        if rule is not None:
            yield Violation(rule=rule, says=f"{add.path!r} {problem}", line=number)
    if max(used + given, *(end - 1 for _, end in ranges), 0) > row_ids.GREATEST:
        says = "the rows need row ids of more than 64 bits"
        yield Violation(rule="row-ids-exhausted", says=says)
    yield from _range_violations(examined, sorted(ranges))
    for mark in marks:
        if mark < used:
            says = f"the high-water mark of row ids goes back from {used} to {mark}"
            yield Violation(rule="row-id-high-water", says=says)


def _had_ids_before(add: AddFile, records: int | None, version: Version, used: int) -> bool:
    """Say whether a file's rows got their ids in an earlier version: it is restored."""
    return (
        add.base_row_id is not None
        and add.default_row_commit_version is not None
        and add.default_row_commit_version < version
        and add.base_row_id + (records or 0) - 1 <= used
    )


def _range_violations(examined: Examined, ranges: Many[tuple[int, int]]) -> Iterator[Violation]:
    if any(end > start for (_, end), (start, _) in itertools.pairwise(ranges)):
        yield Violation(rule="row-ids-overlap", says="two files share row ids")
    marks = [row_ids.mark_in(domain) for domain in examined.domains]
    last = max((end - 1 for _, end in ranges), default=None)
    if last is not None and not any(mark is not None and mark >= last for mark in marks):
        says = f"row ids go up to {last} and domain {ROW_TRACKING} does not say so"
        yield Violation(rule="row-id-high-water", says=says)


# What metadata says


def _schema_of(metadata: Metadata) -> types.StructType | Violation:
    try:
        return types.from_json(metadata.schema_string)
    except HeadgateError as error:
        return Violation(rule="schema-malformed", says=error.message.rstrip("."))


def _partition_names(protocol: Protocol, metadata: Metadata) -> list[str] | None:
    """Give the names partition values go by; None if the schema cannot be read."""
    if not metadata.partition_columns or features.mapping_mode(protocol, metadata) == "none":
        return metadata.partition_columns
    struct = _schema_of(metadata)
    if isinstance(struct, Violation):
        return None
    columns = {field.name: column_mapping.physical_name(field) for field in struct.fields}
    return [columns.get(name, name) for name in metadata.partition_columns]


def _number(metadata: Metadata, key: str) -> int | None:
    text = metadata.configuration.get(key, "").strip()
    return int(text) if _DIGITS.fullmatch(text) is not None else None


_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
