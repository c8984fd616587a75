"""Which values Delta's own table properties can have.

Other engines refuse to open a table whose property they cannot read, so no such value is set here.
Keys that do not begin with `delta.` may have any value. An unknown one that does is refused, as
delta-spark refuses it: it would be misspelled, and have no effect. Only what our own users set is
checked; what other engines commit is theirs.
"""

from __future__ import annotations

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
    """What a property can be, as a test and in words."""

    fit: Callable[[str], bool]
    said: str


def _one_of(*values: str) -> _Values:
    known = {value.lower() for value in values}
    *most, last = values
    return _Values(lambda text: text.lower() in known, f"{', '.join(most)} or {last}")


def _whole(least: int) -> _Values:
    return _Values(lambda text: _is_whole(text, least), f"a whole number from {least} on")


def _is_whole(text: str, least: int) -> bool:
    try:
        return int(text) >= least
    except ValueError:
        return False


_SWITCH = _one_of("true", "false")
_WHILE = _Values(lambda text: interval_ms(text) is not None, "a time such as `interval 7 days`")

_KNOWN: Mapping[str, _Values] = {
    column_mapping.MODE: _one_of("none", "name", "id"),
    "delta.appendOnly": _SWITCH,
    "delta.checkpoint.writeStatsAsJson": _SWITCH,
    "delta.checkpoint.writeStatsAsStruct": _SWITCH,
    "delta.checkpointInterval": _whole(1),
    # Delta reads this one to the letter.
    "delta.checkpointPolicy": _Values(lambda text: text in ("classic", "v2"), "classic or v2"),
    "delta.dataSkippingNumIndexedCols": _whole(-1),
    "delta.dataSkippingStringPrefixLength": _whole(0),
    "delta.deletedFileRetentionDuration": _WHILE,
    "delta.enableChangeDataFeed": _SWITCH,
    "delta.enableDeletionVectors": _SWITCH,
    "delta.enableExpiredLogCleanup": _SWITCH,
    "delta.enableIcebergCompatV1": _SWITCH,
    "delta.enableIcebergCompatV2": _SWITCH,
    "delta.enableIcebergCompatV3": _SWITCH,
    "delta.enableRowTracking": _SWITCH,
    "delta.enableTypeWidening": _SWITCH,
    "delta.enableVariantShredding": _SWITCH,
    "delta.isolationLevel": _one_of("Serializable", "WriteSerializable", "SnapshotIsolation"),
    "delta.logRetentionDuration": _WHILE,
    "delta.randomPrefixLength": _whole(1),
    "delta.randomizeFilePrefixes": _SWITCH,
    "delta.setTransactionRetentionDuration": _WHILE,
}

_PREFIX = "delta."
# Known as well, with values that are not checked here: of delta-spark, the kernels, Databricks and
# Fabric.
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
    """List the keys that begin like Delta's own and are not known, each with a likely meaning."""
    known = _KNOWN.keys() | _OTHERS
    return [
        f"Delta has no property {key!r}.{did_you_mean(key, known)}"
        for key in properties
        if key.lower().startswith(_PREFIX)
        and key not in known
        and not key.startswith(_OPEN_PREFIXES)
    ]


def problems(properties: Mapping[str, str]) -> list[str]:
    """List the properties whose value nobody could read."""
    return [
        f"{key} is {value!r}, and can be {_KNOWN[key].said}"
        for key, value in properties.items()
        if key in _KNOWN and not _KNOWN[key].fit(value)
    ]


def interval_ms(text: str) -> int | None:
    """Read a length of time as Delta writes it: `interval 1 week 12 hours`; None if it is none."""
    words = text.lower().removeprefix("interval").split()
    try:
        pairs = list(zip(words[::2], words[1::2], strict=True))
        found = sum(int(count) * _UNITS_MS[unit.removesuffix("s")] for count, unit in pairs)
    except (ValueError, KeyError):
        return None
    return found if pairs and found >= 0 else None


# The key under which a managed table's log names its id, shared with Unity Catalog's clients.
TABLE_ID_PROPERTY = "io.unitycatalog.tableId"
