"""Validate the values of Delta's table properties.

Other engines refuse to open a table with a property value they cannot parse, so none is set here.
Keys that do not begin with `delta.` may have any value; an unknown key that does is refused, as by
delta-spark, since it is probably misspelled. Only properties set by our own users are checked.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headgate.names import did_you_mean
from headgate.protocol.schema import column_mapping

_UNITS_MS: Mapping[str, int] = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


@dataclass(frozen=True, slots=True)
class _Values:
    """The valid values of a property, as a function and as a description."""

    is_valid: Callable[[str], bool]
    description: str


def _one_of(*values: str) -> _Values:
    known = {value.lower() for value in values}
    *most, last = values
    return _Values(lambda text: text.lower() in known, f"{', '.join(most)} or {last}")


def _whole(least: int) -> _Values:
    return _Values(lambda text: _is_integer(text, least), f"an integer from {least} on")


def _is_integer(text: str, least: int) -> bool:
    try:
        return int(text) >= least
    except ValueError:
        return False


_INTERVAL = _Values(
    lambda text: interval_ms(text) is not None, "an interval such as `interval 7 days`"
)

_KNOWN: Mapping[str, _Values] = {
    column_mapping.MODE: _one_of("none", "name", "id"),
    "delta.checkpointInterval": _whole(1),
    # The only one whose value is case-sensitive.
    "delta.checkpointPolicy": _Values(lambda text: text in ("classic", "v2"), "classic or v2"),
    "delta.dataSkippingNumIndexedCols": _whole(-1),
    "delta.dataSkippingStringPrefixLength": _whole(0),
    "delta.deletedFileRetentionDuration": _INTERVAL,
    "delta.isolationLevel": _one_of("Serializable", "WriteSerializable", "SnapshotIsolation"),
    "delta.logRetentionDuration": _INTERVAL,
    "delta.randomPrefixLength": _whole(1),
    "delta.setTransactionRetentionDuration": _INTERVAL,
} | dict.fromkeys(
    [
        "delta.appendOnly",
        "delta.randomizeFilePrefixes",
        "delta.checkpoint.writeStatsAsJson",
        "delta.checkpoint.writeStatsAsStruct",
        "delta.enableChangeDataFeed",
        "delta.enableDeletionVectors",
        "delta.enableExpiredLogCleanup",
        "delta.enableIcebergCompatV1",
        "delta.enableIcebergCompatV2",
        "delta.enableIcebergCompatV3",
        "delta.enableRowTracking",
        "delta.enableTypeWidening",
        "delta.enableVariantShredding",
    ],
    _one_of("true", "false"),
)

_PREFIX = "delta."
# Properties of delta-spark, the kernels, Databricks and Fabric whose values are not checked.
_OTHERS = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        "autoOptimize",
        "castIcebergTimeType",
        "checkpoint.partSize",
        "checkpointRetentionDuration",
        "columnMapping.maxColumnId",
        "compatibility.symlinkFormatManifest.enabled",
        "dataSkippingStatsColumns",
        "enableFullRetentionRollback",
        "enableIcebergWriterCompatV1",
        "enableIcebergWriterCompatV3",
        "enableInCommitTimestamps",
        "ignoreProtocolDefaults",
        "inCommitTimestampEnablementTimestamp",
        "inCommitTimestampEnablementVersion",
        "lastCommitTimestamp",
        "lastUpdateVersion",
        "minReaderVersion",
        "minWriterVersion",
        "redirectReaderWriter",
        "redirectWriterOnly",
        "requireCheckpointProtectionBeforeVersion",
        "rowTrackingSuspended",
        "sampleRetentionDuration",
        "targetFileSize",
        "tuneFileSizesForRewrites",
    )
)
_OPEN_PREFIXES = tuple(
    f"{_PREFIX}{name}."
    for name in (
        "autoOptimize",
        "constraints",
        "feature",
        "parquet",
        "rowTracking",
        "targetFileSize",
        "universalFormat",
        "workloadBasedColumns",
    )
)


def unknown(properties: Iterable[str]) -> list[str]:
    """List the unknown keys that begin with `delta.`, each with the key that may be meant."""
    known = _KNOWN.keys() | _OTHERS
    return [
        f"Delta has no property {key!r}.{did_you_mean(key, known)}"
        for key in properties
        if key.lower().startswith(_PREFIX)
        and key not in known
        and not key.startswith(_OPEN_PREFIXES)
    ]


def problems(properties: Mapping[str, str]) -> list[str]:
    """List the properties whose values are invalid."""
    return [
        f"{key} is {value!r}, and can be {_KNOWN[key].description}"
        for key, value in properties.items()
        if key in _KNOWN and not _KNOWN[key].is_valid(value)
    ]


def interval_ms(text: str) -> int | None:
    """Parse an interval such as `interval 1 week 12 hours`; None if it is malformed."""
    words = text.lower().removeprefix("interval").split()
    try:
        pairs = list(zip(words[::2], words[1::2], strict=True))
        total = sum(int(count) * _UNITS_MS[unit.removesuffix("s")] for count, unit in pairs)
    except (ValueError, KeyError):
        return None
    return total if pairs and total >= 0 else None


# The property that holds a managed table's id, shared with Unity Catalog's clients.
TABLE_ID_PROPERTY = "io.unitycatalog.tableId"
