"""Values that other engines can read, and values that they cannot."""

import pytest

from headgate.protocol import features
from headgate.protocol.properties import problems, unknown


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.columnMapping.mode", "id"),
        ("delta.columnMapping.mode", "None"),
        ("delta.appendOnly", "TRUE"),
        ("delta.checkpointInterval", "1"),
        ("delta.checkpointPolicy", "classic"),
        ("delta.dataSkippingNumIndexedCols", "-1"),
        ("delta.isolationLevel", "writeserializable"),
        ("delta.logRetentionDuration", "interval 30 days"),
        ("delta.deletedFileRetentionDuration", "1 week 12 hours"),
        ("delta.tomorrow", "whatever"),
        ("owner", ""),
    ],
)
def test_a_value_that_can_be_read_is_fine(key: str, value: str) -> None:
    assert problems({key: value}) == []


@pytest.mark.parametrize(
    ("key", "value", "known"),
    [
        ("delta.columnMapping.mode", "weird", "none, name or id"),
        ("delta.enableDeletionVectors", "maybe", "true or false"),
        ("delta.appendOnly", "", "true or false"),
        ("delta.appendOnly", "1", "true or false"),
        ("delta.checkpointInterval", "0", "an integer from 1 on"),
        ("delta.checkpointInterval", "1.5", "an integer from 1 on"),
        ("delta.checkpointPolicy", "V2", "classic or v2"),
        ("delta.dataSkippingNumIndexedCols", "-2", "an integer from -1 on"),
        ("delta.isolationLevel", "Chaos", "Serializable, WriteSerializable or SnapshotIsolation"),
        ("delta.logRetentionDuration", "whenever", "an interval such as `interval 7 days`"),
        ("delta.logRetentionDuration", "interval -1 days", "an interval such as `interval 7 days`"),
    ],
)
def test_a_value_that_nobody_can_read_is_told_with_those_that_can_be(
    key: str, value: str, known: str
) -> None:
    assert problems({key: value, "owner": "me"}) == [f"{key} is {value!r}, and can be {known}"]


def test_every_property_that_activates_a_feature_we_read_has_its_values_known() -> None:
    asked = [
        (feature.name, feature.active_when.key)
        for feature in features.FEATURES.values()
        if isinstance(feature.active_when, features.Property) and feature.reads
    ]
    unknown = [name for name, key in asked if not problems({key: "nonsense"})]
    # The first is the catalog's to set, and no table can be made with the others.
    assert unknown == ["inCommitTimestamp", "icebergWriterCompatV1", "icebergWriterCompatV3"]


@pytest.mark.parametrize("key", ["delta.appendOnyl", "delta.appendonly", "Delta.appendOnly"])
def test_a_key_that_is_almost_one_of_deltas_is_listed_with_the_right_one(key: str) -> None:
    [message] = unknown([key, "delta.appendOnly", "owner"])
    assert message == f"Delta has no property {key!r}. Did you mean 'delta.appendOnly'?"


def test_a_key_that_begins_like_deltas_and_is_like_none_is_listed() -> None:
    assert unknown(["delta.zzz"]) == ["Delta has no property 'delta.zzz'."]


@pytest.mark.parametrize(
    "key",
    [
        "owner",
        "deltas.own",
        "delta.constraints.paid",
        "delta.feature.v2Checkpoint",
        "delta.autoOptimize.autoCompact",
        "delta.parquet.compression.codec",
        "delta.dataSkippingStatsColumns",
        "delta.universalFormat.enabledFormats",
        "delta.columnMapping.mode",
    ],
)
def test_keys_that_delta_knows_and_keys_of_others_are_not_listed(key: str) -> None:
    assert unknown([key]) == []
