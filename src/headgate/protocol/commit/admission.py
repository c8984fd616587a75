"""Check whether examined content may become the next version of its table.

Every reason against it is a `Violation`. What other writers did meanwhile is checked in
`conflicts`, and which files exist by the catalog.
"""

import itertools
import re
from collections.abc import Iterable, Iterator

from headgate.errors import HeadgateError
from headgate.protocol import actions, features
from headgate.protocol.commit import row_ids
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.commit.facts import Head
from headgate.protocol.commit.row_ids import DOMAIN as ROW_TRACKING
from headgate.protocol.data_paths import normal_path
from headgate.protocol.log.timestamps import MAX_AHEAD_MS
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema import checks, column_mapping, types
from headgate.protocol.statistics import Bounds, parse_statistics

# The only violation that is not final: a commit that removes every file may repartition the table.
PARTITIONING_CHANGED = "partitioning-changed"
TIMESTAMP_AHEAD = "timestamp-ahead"
REQUIRED_OFF = "required-feature-off"

TIMESTAMPS_PROPERTY = "delta.enableInCommitTimestamps"
_PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"
_DELTA_DOMAINS = frozenset({ROW_TRACKING, "delta.clustering"})
_FEATURE_RULES = {
    features.CATALOG_MANAGED: "catalog-managed-gone",
    features.IN_COMMIT_TIMESTAMP: "timestamps-gone",
}
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)


def judge(
    examined: Examined,
    head: Head,
    *,
    now_ms: int,
    max_ahead_ms: int = MAX_AHEAD_MS,
    txn_id: actions.TxnId,
    required: Iterable[str] = (),
) -> list[Violation]:
    """List what keeps content from being the next version of a table.

    What the content violates by itself is in `examined.violations`. The features in `required`
    must stay active where they are. Spec: AU-02, EN-01, CM-04, CM-36.
    """
    found = list(_txn_id_violations(examined, txn_id))
    found.extend(_timestamp_violations(examined, head.timestamp_ms, now_ms, max_ahead_ms))
    protocol, metadata = head.protocol, head.metadata
    if examined.protocol is not None:
        protocol = examined.protocol
        found.extend(_protocol_violations(head.protocol, protocol))
    if examined.metadata is not None:
        metadata = examined.metadata
        found.extend(_identity_violations(metadata, head.table_id))
        found.extend(_log_id_violations(metadata, head))
        found.extend(_schema_violations(protocol, metadata, head.metadata))
        found.extend(_metadata_violations(head, protocol, metadata))
        found.extend(_required_violations(head, protocol, metadata, required))
    version = actions.Version(head.version + 1)
    high_water = head.row_id_high_water
    found.extend(_action_violations(examined, protocol, metadata, version, high_water))
    return found


def judge_first(
    examined: Examined,
    table_id: actions.TableId,
    *,
    now_ms: int,
    max_ahead_ms: int = MAX_AHEAD_MS,
    txn_id: actions.TxnId | None,
) -> list[Violation]:
    """List what keeps content from being version 0 of a managed table. Spec: LC-02."""
    found: list[Violation] = []
    if txn_id is not None:
        found.extend(_txn_id_violations(examined, txn_id))
    found.extend(_timestamp_violations(examined, None, now_ms, max_ahead_ms))
    protocol, metadata = examined.protocol, examined.metadata
    if protocol is None:
        found.append(Violation("no-protocol", "version 0 has no protocol"))
    else:
        found.extend(_first_protocol_violations(protocol))
    if metadata is None:
        found.append(Violation("no-metadata", "version 0 has no metaData"))
    else:
        found.extend(_identity_violations(metadata, table_id))
    if examined.removes:
        found.append(Violation("remove-in-first", "version 0 removes files, and there are none"))
    if protocol is not None and metadata is not None:
        found.extend(_schema_violations(protocol, metadata, None))
        found.extend(_action_violations(examined, protocol, metadata, actions.Version(0), None))
    return found


def _txn_id_violations(examined: Examined, txn_id: actions.TxnId) -> Iterator[Violation]:
    if examined.txn_id is not None and examined.txn_id != txn_id:
        why = f"commitInfo has txnId {examined.txn_id}, the proposal {txn_id}"
        yield Violation("txn-id-mismatch", why)


def _timestamp_violations(
    examined: Examined, previous_ms: int | None, now_ms: int, max_ahead_ms: int
) -> Iterator[Violation]:
    stamp = examined.timestamp_ms
    if stamp is None:  # inline: the catalog assigns it
        return
    if stamp < 0 or (previous_ms is not None and stamp <= previous_ms):
        why = f"inCommitTimestamp {stamp} is not after {previous_ms}, that of the previous version"
        yield Violation("timestamp-not-rising", why)
    if stamp > now_ms + max_ahead_ms:
        why = f"inCommitTimestamp {stamp} is more than {max_ahead_ms} ms ahead of {now_ms}"
        yield Violation(TIMESTAMP_AHEAD, why)


# Protocol


def _protocol_violations(before: actions.Protocol, after: actions.Protocol) -> Iterator[Violation]:
    yield from _malformed_protocol(after)
    if (
        after.min_reader_version < before.min_reader_version
        or after.min_writer_version < before.min_writer_version
    ):
        why = (
            f"the protocol goes down from {before.min_reader_version}/{before.min_writer_version}"
            f" to {after.min_reader_version}/{after.min_writer_version}"
        )
        yield Violation("protocol-downgrade", why)
    for name in features.drops(before, after):
        why = f"feature {name} is missing; a feature can only be dropped by DROP FEATURE"
        yield Violation(_FEATURE_RULES.get(name, "feature-gone"), why)
    yield from _unreadable(set(features.unreadable(after)).difference(features.unreadable(before)))


def _first_protocol_violations(protocol: actions.Protocol) -> Iterator[Violation]:
    yield from _malformed_protocol(protocol)
    if not features.is_catalog_managed(protocol):
        why = (
            f"a managed table has reader version {features.READER_WITH_FEATURES}, writer version"
            f" {features.WRITER_WITH_FEATURES} and {features.CATALOG_MANAGED} among the features"
            " of both"
        )
        yield Violation("not-catalog-managed", why)
    if not features.is_supported(protocol, features.IN_COMMIT_TIMESTAMP):
        yield Violation("timestamps-gone", f"{features.IN_COMMIT_TIMESTAMP} is not supported")
    yield from _unreadable(features.unreadable(protocol))


def _malformed_protocol(protocol: actions.Protocol) -> Iterator[Violation]:
    for problem in features.valid(protocol):
        yield Violation("protocol-malformed", f"in the protocol {problem}")


def _unreadable(names: Iterable[str]) -> Iterator[Violation]:
    for name in sorted(names):
        yield Violation("unreadable-feature", f"{name} is not supported here for reading")


# Metadata


def _identity_violations(
    metadata: actions.Metadata, table_id: actions.TableId
) -> Iterator[Violation]:
    """Check what the metadata of this table must have in every version."""
    if (given := metadata.configuration.get(TABLE_ID_PROPERTY)) != table_id:
        why = f"{TABLE_ID_PROPERTY} is {given!r}, but the table's id is {table_id}"
        yield Violation("table-id-differs", why)
    if metadata.configuration.get(TIMESTAMPS_PROPERTY, "").strip().lower() != "true":
        yield Violation("timestamps-off", f"{TIMESTAMPS_PROPERTY} is not true")
    if metadata.format.provider != "parquet":
        yield Violation("not-parquet", f"data files are {metadata.format.provider!r}, not parquet")


def _log_id_violations(metadata: actions.Metadata, head: Head) -> Iterator[Violation]:
    """Check that the log keeps its own id, which its first writer may have chosen."""
    if metadata.id not in (head.metadata.id, head.table_id):
        why = f"metaData.id is {metadata.id!r}, and was {head.metadata.id!r}"
        yield Violation("metadata-id-differs", why)


def _schema_violations(
    protocol: actions.Protocol, metadata: actions.Metadata, before: actions.Metadata | None
) -> Iterator[Violation]:
    struct = _schema_of(metadata)
    if isinstance(struct, Violation):
        yield struct
        return
    is_mapped = features.mapping_mode(protocol, metadata) != "none"
    if (
        before is None
        or before.schema_string != metadata.schema_string
        or before.partition_columns != metadata.partition_columns
    ) and struct.fields:
        for problem in checks.problems(
            struct, metadata.partition_columns, column_mapping=is_mapped
        ):
            yield Violation("schema-invalid", f"in the schema {problem}")
    if is_mapped:
        yield from _mapping_violations(struct, metadata)


def _mapping_violations(
    struct: types.StructType, metadata: actions.Metadata
) -> Iterator[Violation]:
    """Check that with column mapping every field has an id of its own and a physical name."""
    greatest = _number(metadata, column_mapping.MAX_COLUMN_ID)
    seen: set[int] = set()
    for path, field in types.all_fields(struct):
        number = column_mapping.field_id(field)
        problem = None
        if number is None or not isinstance(field.metadata.get(column_mapping.MAPPING_NAME), str):
            problem = "has no id or no physical name"
        elif number in seen:
            problem = f"has id {number}, as another column has"
        elif greatest is None or number > greatest:
            problem = f"has id {number} above {column_mapping.MAX_COLUMN_ID} {greatest}"
        if problem is not None:
            yield Violation("column-mapping-malformed", f"column {'.'.join(path)!r} {problem}")
        if number is not None:
            seen.add(number)


def _metadata_violations(
    head: Head, protocol: actions.Protocol, after: actions.Metadata
) -> Iterator[Violation]:
    """Check what metadata must keep from the previous version."""
    before = head.metadata
    old, new = features.mapping_mode(head.protocol, before), features.mapping_mode(protocol, after)
    if old != new and (old, new) != ("none", "name"):
        why = f"column mapping cannot change from {old} to {new}"
        yield Violation("column-mapping-changed", why)
    for key, rule in (
        (column_mapping.MAX_COLUMN_ID, "max-column-id-lowered"),
        (_PROTECTED_BEFORE, "protection-lowered"),
    ):
        least, given = _number(before, key), _number(after, key)
        if least is not None and (given is None or given < least):
            why = f"{key} goes down from {least} to {after.configuration.get(key)}"
            yield Violation(rule, why)
    partitioned_by = _partition_names(head.protocol, before)
    if partitioned_by is not None and partitioned_by != _partition_names(protocol, after):
        why = (
            f"partition columns change from {before.partition_columns} to {after.partition_columns}"
        )
        yield Violation(PARTITIONING_CHANGED, why)


def _required_violations(
    head: Head, protocol: actions.Protocol, after: actions.Metadata, required: Iterable[str]
) -> Iterator[Violation]:
    for name in required:
        condition = features.FEATURES[name].active_when
        if not isinstance(condition, features.Property) or condition.key == TIMESTAMPS_PROPERTY:
            continue  # no property can turn it off, or it is checked for every table
        was_active = features.is_active(head.protocol, head.metadata, name)
        if was_active and not features.is_active(protocol, after, name):
            value = after.configuration.get(condition.key)
            why = f"feature {name} is required here, and {condition.key} becomes {value!r}"
            yield Violation(REQUIRED_OFF, why)


# Actions


def _action_violations(
    examined: Examined,
    protocol: actions.Protocol,
    metadata: actions.Metadata,
    version: actions.Version,
    row_id_high_water: int | None,
) -> Iterator[Violation]:
    supported = features.effective(protocol)
    if examined.adds or examined.cdcs:
        yield from _partition_violations(examined, protocol, metadata)
    if examined.adds and features.mapping_mode(protocol, metadata) != "none":
        yield from _unmapped_violations(examined, metadata)
    if "deletionVectors" not in supported:
        for add, line in zip(examined.adds, examined.add_lines, strict=True):
            if add.deletion_vector is not None:
                why = f"{add.path!r} has a deletion vector, which the table does not support"
                yield Violation("deletion-vectors-unsupported", why, line)
    if examined.removes and features.is_active(protocol, metadata, "appendOnly"):
        for remove in examined.removes:
            if remove.data_change:
                why = f"{remove.path!r} is removed from a table that is append-only"
                yield Violation("append-only", why)
    if examined.domains:
        yield from _domain_violations(examined, supported)
    if "rowTracking" in supported:
        yield from _row_id_violations(examined, version, row_id_high_water)


def _partition_violations(
    examined: Examined, protocol: actions.Protocol, metadata: actions.Metadata
) -> Iterator[Violation]:
    names = _partition_names(protocol, metadata)
    if names is None:
        return  # the schema is malformed, which is another violation
    expected = set(names)
    files: Iterable[tuple[actions.AddFile | actions.AddCdcFile, int | None]] = itertools.chain(
        zip(examined.adds, examined.add_lines, strict=True), ((cdc, None) for cdc in examined.cdcs)
    )
    for file, line in files:
        if file.partition_values.keys() != expected:
            given = sorted(file.partition_values)
            why = f"{file.path!r} has partition values for {given}, not {names}"
            yield Violation("partition-values", why, line)


def _unmapped_violations(examined: Examined, metadata: actions.Metadata) -> Iterator[Violation]:
    """Find a new file whose columns have logical names: all of them would be read as null."""
    # DuckDB 1.5.5 writes such files. A writer writes all its files alike, so one is checked.
    struct = _schema_of(metadata)
    if isinstance(struct, Violation):
        return  # which is another violation
    physical = {column_mapping.physical_name(field) for field in struct.fields}
    unknown = {field.name for field in struct.fields} - physical
    # A file that only gets another deletion vector may have columns that were dropped since.
    old = {normal_path(file.path) for file in examined.removes}
    for add, line in zip(examined.adds, examined.add_lines, strict=True):
        if add.stats is not None and normal_path(add.path) not in old:
            statistics = parse_statistics(add.stats)
            names = {*(statistics.min_values or ()), *(statistics.null_count or ())} & unknown
            if names:
                why = f"{add.path!r} has column {min(names)!r}, whose physical name is another"
                yield Violation("column-mapping-ignored", why, line)
            return


def _domain_violations(examined: Examined, supported: frozenset[str]) -> Iterator[Violation]:
    for domain in examined.domains:
        name = domain.domain
        if "domainMetadata" not in supported:
            why = f"domain {name!r} is set and domainMetadata is not supported"
            yield Violation("domains-unsupported", why)
        elif name.startswith("delta.") and name not in _DELTA_DOMAINS:
            yield Violation("unknown-domain", f"domain {name!r} is reserved for Delta and unknown")
        elif name == ROW_TRACKING and row_ids.mark_in(domain) is None:
            why = f"domain {ROW_TRACKING} is removed or has no rowIdHighWaterMark"
            yield Violation("row-id-high-water", why)


# Row tracking


def _row_id_violations(
    examined: Examined, version: actions.Version, row_id_high_water: int | None
) -> Iterator[Violation]:
    used = -1 if row_id_high_water is None else row_id_high_water
    removed = {normal_path(file.path): file.base_row_id for file in examined.removes}
    # A writer that assigns ids writes a higher mark. Without one, or with one that was based on an
    # older version, files that have old ids are taken as restored.
    marks = [mark for mark in map(row_ids.mark_in, examined.domains) if mark is not None]
    may_restore = not examined.is_inline and (not marks or max(marks) > used)
    ranges: list[tuple[int, int]] = []
    assigned = 0  # ids, by the catalog
    for add, line, bounds in zip(examined.adds, examined.add_lines, examined.bounds, strict=True):
        path = normal_path(add.path)
        # A file that is added again has ids already, unless it is older than row tracking here.
        is_again = (
            path in removed
            or not add.data_change
            or (may_restore and _had_ids_before(add, bounds.num_records, version, used))
        )
        found = None
        if is_again and add.base_row_id is not None and add.base_row_id <= used:
            if removed.get(path) not in (None, add.base_row_id):
                found = "row-ids-changed", "is added again with other row ids"
            elif add.default_row_commit_version is None:
                found = "no-row-ids", "is added again without defaultRowCommitVersion"
        elif removed.get(path) is not None:
            found = "row-ids-changed", "is added again without its row ids"
        else:
            found = _new_id_problem(examined, add, bounds, version, used)
            records = max(bounds.num_records or 0, 0)
            if examined.is_inline:
                assigned += records
            elif found is None and add.base_row_id is not None:
                ranges.append((add.base_row_id, add.base_row_id + records))
        if found is not None:
            rule, problem = found
            yield Violation(rule, f"{add.path!r} {problem}", line)
    if max(used + assigned, *(end - 1 for _, end in ranges), 0) > row_ids.GREATEST:
        yield Violation("row-ids-exhausted", "the rows need row ids of more than 64 bits")
    yield from _range_violations(sorted(ranges), marks)
    for mark in marks:
        if mark < used:
            why = f"the high-water mark of row ids goes back from {used} to {mark}"
            yield Violation("row-id-high-water", why)


def _new_id_problem(
    examined: Examined, add: actions.AddFile, bounds: Bounds, version: actions.Version, used: int
) -> tuple[str, str] | None:
    """Return the rule that the row ids of a new file violate, and how."""
    if bounds.num_records is None:
        return "no-num-records", "has no numRecords, which row tracking needs"
    if examined.is_inline:
        if add.base_row_id is not None or add.default_row_commit_version is not None:
            return "row-ids-given", "has row ids, which the catalog assigns"
        return None
    if add.base_row_id is None or add.default_row_commit_version is None:
        return "no-row-ids", "has no row ids, and the table has row tracking"
    if add.base_row_id <= used:
        return "row-ids-taken", f"has row ids from {add.base_row_id}, which are used up to {used}"
    if add.default_row_commit_version != version:
        return "row-version-differs", f"has a defaultRowCommitVersion other than {version}"
    return None


def _had_ids_before(
    add: actions.AddFile, records: int | None, version: actions.Version, used: int
) -> bool:
    """Return True if a file's rows got their ids in an earlier version: it is restored."""
    return (
        add.base_row_id is not None
        and add.default_row_commit_version is not None
        and add.default_row_commit_version < version
        and add.base_row_id + (records or 0) - 1 <= used
    )


def _range_violations(ranges: list[tuple[int, int]], marks: list[int]) -> Iterator[Violation]:
    if any(end > start for (_, end), (start, _) in itertools.pairwise(ranges)):
        yield Violation("row-ids-overlap", "two files share row ids")
    last = max((end - 1 for _, end in ranges), default=None)
    if last is not None and (not marks or max(marks) < last):
        why = f"row ids go up to {last}, above the mark in domain {ROW_TRACKING}"
        yield Violation("row-id-high-water", why)


# Parts of metadata


def _schema_of(metadata: actions.Metadata) -> types.StructType | Violation:
    try:
        return types.from_json(metadata.schema_string)
    except HeadgateError as error:
        return Violation("schema-malformed", error.message.rstrip("."))


def _partition_names(protocol: actions.Protocol, metadata: actions.Metadata) -> list[str] | None:
    """Return the physical names of the partition columns; None if the schema is malformed."""
    if not metadata.partition_columns or features.mapping_mode(protocol, metadata) == "none":
        return metadata.partition_columns
    struct = _schema_of(metadata)
    if isinstance(struct, Violation):
        return None
    columns = {field.name: column_mapping.physical_name(field) for field in struct.fields}
    return [columns.get(name, name) for name in metadata.partition_columns]


def _number(metadata: actions.Metadata, key: str) -> int | None:
    text = metadata.configuration.get(key, "").strip()
    return int(text) if _DIGITS.fullmatch(text) is not None else None
