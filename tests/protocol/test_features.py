import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidArgumentError
from headgate.protocol import features
from headgate.protocol.actions import Metadata, Protocol
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.features import FEATURES, FeatureKind, Writes
from headgate.protocol.schema.types import to_json
from tests.kit import req

relaxed = settings(deadline=None)

LEGACY = {
    (1, 1): set[str](),
    (1, 2): {"appendOnly", "invariants"},
    (1, 3): {"appendOnly", "invariants", "checkConstraints"},
    (1, 4): {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
    },
    (2, 5): {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "columnMapping",
    },
    (2, 6): {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "columnMapping",
        "identityColumns",
    },
}


def legacy(reader: int, writer: int) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=writer)


def listing(readers: list[str], writers: list[str]) -> Protocol:
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=readers,
        writer_features=writers,
    )


def metadata(columns: str = "id long", **properties: str) -> Metadata:
    return Metadata(
        id="5f3c", schema_string=to_json(parse_schema(columns)), configuration=properties
    )


def described(key: str, value: object) -> Metadata:
    field = {"name": "x", "type": "long", "nullable": True, "metadata": {key: value}}
    return Metadata(id="5f3c", schema_string=json.dumps({"type": "struct", "fields": [field]}))


names = st.sampled_from(sorted(FEATURES))


def test_the_rows_name_only_features_that_have_rows() -> None:
    for feature in FEATURES.values():
        assert set(feature.requires) <= FEATURES.keys()
        if feature.kind is FeatureKind.READER_WRITER:
            assert (feature.legacy_reader is None) == (feature.legacy_writer is None)


@pytest.mark.parametrize("versions", LEGACY)
def test_old_version_numbers_imply_features(versions: tuple[int, int]) -> None:
    protocol = legacy(*versions)
    assert features.effective(protocol) == LEGACY[versions]
    assert features.valid(protocol) == []


def test_listed_features_are_the_ones_supported_and_no_others() -> None:
    protocol = listing(["deletionVectors"], ["deletionVectors", "appendOnly"])
    assert features.effective(protocol) == {"deletionVectors", "appendOnly"}
    assert features.is_supported(protocol, "appendOnly")
    assert not features.is_supported(protocol, "invariants")


def test_an_old_reader_version_beside_writers_features_implies_column_mapping() -> None:
    protocol = Protocol(
        min_reader_version=2,
        min_writer_version=7,
        writer_features=["columnMapping", "identityColumns"],
    )
    assert features.effective(protocol) == {"columnMapping", "identityColumns"}
    assert features.readers_features(protocol) == {"columnMapping"}
    assert features.valid(protocol) == []


@req("CM-35")
def test_a_table_is_catalog_managed_with_reader_3_writer_7_and_the_feature_in_both_lists() -> None:
    both = ["catalogManaged"], ["catalogManaged", "inCommitTimestamp"]
    assert features.is_catalog_managed(listing(*both))


@req("CM-35")
@pytest.mark.parametrize(
    "halfway",
    [
        legacy(3, 7),
        listing([], []),
        listing(["catalogManaged"], ["inCommitTimestamp"]),
        listing([], ["catalogManaged", "inCommitTimestamp"]),
        Protocol(
            min_reader_version=1,
            min_writer_version=7,
            writer_features=["catalogManaged", "inCommitTimestamp"],
        ),
        Protocol(
            min_reader_version=2,
            min_writer_version=7,
            reader_features=["catalogManaged"],
            writer_features=["catalogManaged", "inCommitTimestamp"],
        ),
        Protocol(
            min_reader_version=3,
            min_writer_version=6,
            reader_features=["catalogManaged"],
            writer_features=["catalogManaged"],
        ),
    ],
)
def test_a_table_half_way_there_is_not_catalog_managed(halfway: Protocol) -> None:
    assert not features.is_catalog_managed(halfway)


@pytest.mark.parametrize(
    ("protocol", "problem"),
    [
        (legacy(0, 1), "no reader version 0"),
        (legacy(4, 7), "no reader version 4"),
        (legacy(1, 8), "no writer version 8"),
        (legacy(3, 7), "readerFeatures require"),
        (
            Protocol(min_reader_version=3, min_writer_version=5, reader_features=[]),
            "needs writer version 7",
        ),
        (
            Protocol(min_reader_version=1, min_writer_version=2, writer_features=[]),
            "writerFeatures require",
        ),
        (
            Protocol(
                min_reader_version=1,
                min_writer_version=7,
                reader_features=[],
                writer_features=[],
            ),
            "readerFeatures require",
        ),
        (listing(["deletionVectors"], []), "not in writerFeatures"),
        (listing([], ["deletionVectors"]), "not supported for readers"),
        (listing(["appendOnly"], ["appendOnly"]), "is a writer feature"),
        (listing([], ["appendOnly", "appendOnly"]), "twice"),
        (listing(["catalogManaged"], ["catalogManaged"]), "requires inCommitTimestamp"),
        (listing([], ["rowTracking"]), "requires domainMetadata"),
        (
            Protocol(min_reader_version=1, min_writer_version=7, writer_features=["columnMapping"]),
            "not supported for readers",
        ),
    ],
)
def test_a_malformed_protocol_is_told_what_is_wrong(protocol: Protocol, problem: str) -> None:
    assert any(problem in message for message in features.valid(protocol))


@pytest.mark.timeout(30)
def test_many_features_are_checked_in_proportion_to_their_number() -> None:
    names = [f"feature{number}" for number in range(100_000)]  # about a megabyte
    protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=names, writer_features=names
    )
    assert features.valid(protocol) == []


def test_a_feature_nobody_knows_is_valid_and_refused_by_name() -> None:
    protocol = listing(["shining"], ["shining", "shimmering"])
    assert features.valid(protocol) == []
    assert features.unreadable(protocol) == ["shining"]
    assert features.unwritable(protocol, metadata()) == ["shimmering", "shining"]
    assert features.is_active(protocol, metadata(), "shimmering")


def test_versions_too_new_are_refused() -> None:
    assert features.unreadable(legacy(4, 8)) == ["reader version 4"]
    assert features.unwritable(legacy(4, 8), metadata()) == ["reader version 4", "writer version 8"]


@pytest.mark.parametrize("versions", LEGACY)
def test_every_old_protocol_can_be_read_and_written(versions: tuple[int, int]) -> None:
    assert features.unreadable(legacy(*versions)) == []
    assert features.unwritable(legacy(*versions), metadata()) == []


def test_a_protocol_of_a_managed_table_can_be_read_and_written() -> None:
    protocol = features.protocol_of_version0(["catalogManaged", "vacuumProtocolCheck"])
    assert protocol == listing(
        ["catalogManaged", "vacuumProtocolCheck"],
        ["catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"],
    )
    assert features.unreadable(protocol) == []
    assert features.unwritable(protocol, metadata()) == []


ACTIVE = {
    "generatedColumns": described("delta.generationExpression", "y + 1"),
    "identityColumns": described("delta.identity.start", 1),
    "allowColumnDefaults": described("CURRENT_DEFAULT", "5"),
    "variantType": metadata("v struct<x: variant>"),
    "icebergCompatV2": metadata(**{"delta.enableIcebergCompatV2": "true"}),
}


@pytest.mark.parametrize("name", ACTIVE)
def test_what_cannot_be_written_is_refused_only_while_active(name: str) -> None:
    protocol = features.protocol_of_version0([name])
    assert features.unwritable(protocol, ACTIVE[name]) == [name]
    assert features.unwritable(protocol, metadata()) == []


def test_metadata_of_a_table_whose_rows_cannot_be_written_may_still_change() -> None:
    for name, active in ACTIVE.items():
        protocol = features.protocol_of_version0([name])
        refused = features.unwritable(protocol, active, rows=False)
        assert refused == ([name] if FEATURES[name].writes is Writes.NOTHING else [])


def test_shredded_variants_cannot_be_read() -> None:
    protocol = features.protocol_of_version0(["variantShredding"])
    assert features.unreadable(protocol) == ["variantShredding"]


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("appendOnly", metadata(**{"delta.appendOnly": "TRUE"})),
        ("invariants", described("delta.invariants", "{}")),
        ("checkConstraints", metadata(**{"delta.constraints.c": "id > 0"})),
        ("changeDataFeed", metadata(**{"delta.enableChangeDataFeed": "true"})),
        ("columnMapping", metadata(**{"delta.columnMapping.mode": "id"})),
        ("deletionVectors", metadata(**{"delta.enableDeletionVectors": "true"})),
        ("rowTracking", metadata(**{"delta.enableRowTracking": "true"})),
        ("timestampNtz", metadata("t array<timestamp_ntz>")),
        ("v2Checkpoint", metadata(**{"delta.checkpointPolicy": "v2"})),
        ("inCommitTimestamp", metadata(**{"delta.enableInCommitTimestamps": "true"})),
        ("typeWidening", metadata(**{"delta.enableTypeWidening": "true"})),
    ],
)
def test_a_feature_is_active_when_supported_and_its_condition_holds(
    name: str, active: Metadata
) -> None:
    supported = features.protocol_of_version0([name])
    assert features.is_active(supported, active, name)
    assert not features.is_active(supported, metadata(), name)
    assert not features.is_active(legacy(1, 1), active, name)


def test_a_feature_without_a_condition_is_active_once_supported() -> None:
    protocol = features.protocol_of_version0(["catalogManaged"])
    assert features.is_active(protocol, metadata(), "catalogManaged")
    assert not features.is_active(protocol, metadata(), features.IN_COMMIT_TIMESTAMP)
    turned_on = metadata(**{"delta.enableInCommitTimestamps": "true"})
    assert features.is_active(protocol, turned_on, features.IN_COMMIT_TIMESTAMP)


def test_column_mapping_counts_only_where_it_is_supported() -> None:
    by_name = metadata(**{"delta.columnMapping.mode": "name"})
    assert features.mapping_mode(legacy(2, 5), by_name) == "name"
    assert features.mapping_mode(legacy(1, 2), by_name) == "none"
    assert features.mapping_mode(legacy(2, 5), metadata()) == "none"


def test_properties_and_types_ask_for_their_features() -> None:
    properties = {
        "delta.enableRowTracking": "true",
        "delta.enableDeletionVectors": "false",
        "delta.enableTypeWidening": "true",
        "delta.constraints.c": "id > 0",
        "delta.feature.catalogManaged": "supported",
        "owner": "me",
    }
    assert features.features_for(properties, parse_schema("t timestamp_ntz, v variant")) == [
        "catalogManaged",
        "checkConstraints",
        "domainMetadata",
        "inCommitTimestamp",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "variantType",
    ]
    assert features.without_asking(properties).keys() == properties.keys() - {
        "delta.feature.catalogManaged"
    }


@pytest.mark.parametrize(
    "feature",
    [f for f in FEATURES.values() if isinstance(f.active_when, features.Property)],
    ids=lambda feature: feature.name,
)
def test_every_feature_is_asked_for_by_its_property(feature: features.Feature) -> None:
    assert isinstance(feature.active_when, features.Property)
    finished = feature.name.removesuffix("-preview")  # a preview only where there is nothing else
    wanted = finished if finished in FEATURES else feature.name
    for value in feature.active_when.values:
        assert wanted in features.features_for({"other": "true", feature.active_when.key: value})
    assert wanted not in features.features_for({feature.active_when.key: "no"})


def test_nothing_asked_for_needs_no_feature() -> None:
    assert features.features_for({}, parse_schema("id long, s struct<a: int>")) == []


@pytest.mark.parametrize("schema", ["id long not null", "id long, s struct<a: int not null>"])
def test_a_column_that_may_not_be_null_needs_what_delta_spark_asks_for(schema: str) -> None:
    assert features.features_for({}, parse_schema(schema)) == ["invariants"]


@given(st.sets(names))
@relaxed
def test_a_new_tables_protocol_is_valid_and_has_what_was_asked_for(wanted: set[str]) -> None:
    protocol = features.protocol_of_version0(wanted)
    assert features.valid(protocol) == []
    assert features.effective(protocol) >= wanted


@given(st.sampled_from(sorted(LEGACY)) | st.sets(names), names)
@relaxed
def test_an_upgrade_adds_a_feature_and_loses_none(
    start: tuple[int, int] | set[str], name: str
) -> None:
    before = legacy(*start) if isinstance(start, tuple) else features.protocol_of_version0(start)
    after = features.upgraded(before, name)
    assert features.is_supported(after, name)
    assert features.drops(before, after) == []
    assert features.valid(after) == []
    assert after.min_reader_version >= before.min_reader_version
    assert after.min_writer_version >= before.min_writer_version
    assert features.upgraded(after, name) == after


def test_an_upgrade_keeps_features_nobody_knows() -> None:
    before = listing(["shining"], ["shimmering", "shining"])
    assert features.upgraded(before, "appendOnly") == listing(
        ["shining"], ["appendOnly", "shimmering", "shining"]
    )


def test_an_upgrade_for_writers_leaves_readers_alone() -> None:
    assert features.upgraded(legacy(1, 2), "domainMetadata") == Protocol(
        min_reader_version=1,
        min_writer_version=7,
        writer_features=["appendOnly", "domainMetadata", "invariants"],
    )


def test_a_lost_feature_is_named() -> None:
    before = listing(["deletionVectors"], ["deletionVectors", "appendOnly"])
    assert features.drops(before, legacy(1, 2)) == ["deletionVectors"]
    assert features.drops(before, listing([], [])) == ["appendOnly", "deletionVectors"]


def test_features_are_read_by_their_names_and_what_is_none_is_refused() -> None:
    assert features.named("") == []
    assert features.named(" v2Checkpoint,, deletionVectors ") == ["v2Checkpoint", "deletionVectors"]
    for wrong in ("deletionVector", "DELETIONVECTORS", "geospatial"):  # the last is not read here
        with pytest.raises(InvalidArgumentError, match=wrong) as refused:
            features.named(f"rowTracking, {wrong}")
        assert "deletionVectors" in refused.value.remedy
