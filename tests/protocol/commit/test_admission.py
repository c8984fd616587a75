"""Admission: what may become a version, and every reason why not."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from headgate.protocol.actions import (
    Action,
    AddCdcFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    TxnId,
)
from headgate.protocol.commit.admission import PARTITIONING_CHANGED, judge, judge_first
from headgate.protocol.commit.examination import Examined, examine
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema.types import StructType, to_json
from tests.kit import req, shows
from tests.kit.builders import START_MS, add, inline, inline_vector, metadata, protocol, remove
from tests.protocol.commit.commit_cases import (
    DOMAIN,
    FILE,
    MAX_AHEAD_MS,
    METADATA,
    OTHER,
    PREVIOUS_MS,
    PROTOCOL,
    READER,
    TABLE,
    TXN,
    WRITER,
    changed,
    configured,
    facts,
    in_file,
    judged,
    lists,
    mapped,
    rules,
    with_vector,
    without,
)

# What the table forbids


def test_an_append_that_breaks_nothing_passes() -> None:
    assert judged(in_file(FILE)) == []
    assert judged(examine(inline(FILE))) == []


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (PREVIOUS_MS + 1, []),
        (PREVIOUS_MS, ["timestamp-not-rising"]),
        (PREVIOUS_MS - 3_600_000, ["timestamp-not-rising"]),
        (-1, ["timestamp-not-rising"]),
        (START_MS + MAX_AHEAD_MS, []),
        (START_MS + MAX_AHEAD_MS + 1, ["timestamp-ahead"]),
        (START_MS + 365 * 86_400_000, ["timestamp-ahead"]),
    ],
)
def test_a_timestamp_rises_and_is_not_far_ahead(timestamp_ms: int, expected: list[str]) -> None:
    assert judged(in_file(FILE, timestamp_ms=timestamp_ms)) == expected


@req("CM-04")
def test_content_belongs_to_the_transaction_that_proposes_it() -> None:
    other = TxnId("another")
    for examined in (in_file(FILE), examine(inline(FILE, txnId=TXN))):
        found = judge(examined, facts(), now_ms=START_MS, txn_id=other)
        assert rules(found) == ["txn-id-mismatch"]


PROTOCOLS: dict[str, tuple[Protocol, set[str]]] = {
    "lower versions": (
        Protocol(min_reader_version=1, min_writer_version=2),
        {"protocol-downgrade", "catalog-managed-gone", "timestamps-gone", "feature-gone"},
    ),
    "catalogManaged gone": (without("catalogManaged"), {"catalog-managed-gone"}),
    "catalogManaged gone for readers": (
        lists([name for name in READER if name != "catalogManaged"], WRITER),
        {"protocol-malformed"},
    ),
    "in-commit timestamps gone": (
        without("inCommitTimestamp"),
        {"timestamps-gone", "protocol-malformed"},
    ),
    "another feature gone": (without("vacuumProtocolCheck"), {"feature-gone"}),
    "an unknown feature for readers": (
        lists([*READER, "timeTravelToTomorrow"], [*WRITER, "timeTravelToTomorrow"]),
        {"unreadable-feature"},
    ),
    "an unknown reader version": (
        msgspec.structs.replace(PROTOCOL, min_reader_version=4),
        {"protocol-malformed", "unreadable-feature"},
    ),
    "no list of features": (
        Protocol(min_reader_version=3, min_writer_version=7),
        {"protocol-malformed", "catalog-managed-gone", "timestamps-gone", "feature-gone"},
    ),
    "a feature without what it requires": (
        lists(READER, [*WRITER, "rowTracking"]),
        {"protocol-malformed"},
    ),
    "a feature twice": (lists(READER, [*WRITER, "catalogManaged"]), {"protocol-malformed"}),
}


@req("EN-01")
@shows("FI5")
@pytest.mark.parametrize("case", PROTOCOLS)
def test_a_protocol_that_takes_away_or_cannot_be_is_refused(case: str) -> None:
    after, expected = PROTOCOLS[case]
    assert set(judged(in_file(after))) == expected
    assert set(judged(examine(inline(after)))) == expected


@pytest.mark.parametrize("feature", ["deletionVectors", "appendOnly", "unknownToWriters"])
def test_a_protocol_that_only_adds_passes(feature: str) -> None:
    assert judged(in_file(protocol(feature))) == []


PROTECTED = "delta.requireCheckpointProtectionBeforeVersion"
METADATAS: dict[str, tuple[Metadata, list[str]]] = {
    "another id": (changed(id=OTHER), ["metadata-id-differs"]),
    "another table's id": (configured(**{TABLE_ID_PROPERTY: OTHER}), ["table-id-differs"]),
    "no table id": (configured(**{TABLE_ID_PROPERTY: None}), ["table-id-differs"]),
    "timestamps off": (
        configured(**{"delta.enableInCommitTimestamps": "false"}),
        ["timestamps-off"],
    ),
    "timestamps unset": (
        configured(**{"delta.enableInCommitTimestamps": None}),
        ["timestamps-off"],
    ),
    "no properties at all": (changed(configuration={}), ["table-id-differs", "timestamps-off"]),
    "not Parquet": (
        changed(format=msgspec.structs.replace(METADATA.format, provider="csv")),
        ["not-parquet"],
    ),
    "a schema that is not JSON": (changed(schema_string="id long"), ["schema-malformed"]),
    "a schema that is a list": (changed(schema_string="[]"), ["schema-malformed"]),
    "a schema 100,000 levels deep": (
        changed(schema_string='{"type":"array","elementType":' * 100_000),
        ["schema-malformed"],
    ),
    "an unknown type": (
        changed(schema_string=METADATA.schema_string.replace("long", "longer")),
        ["schema-malformed"],
    ),
    "a column twice": (
        changed(schema_string=to_json(StructType(parse_schema("id long").fields * 2))),
        ["schema-invalid"],
    ),
    "another partitioning": (
        msgspec.structs.replace(
            metadata(TABLE, "id long, day date", ["day"]), created_time=METADATA.created_time
        ),
        [PARTITIONING_CHANGED],
    ),
    "partitioned by no column": (
        changed(partition_columns=["day"]),
        ["schema-invalid", PARTITIONING_CHANGED],
    ),
}


@req("EN-01")
@shows("FI5")
@pytest.mark.parametrize("case", METADATAS)
def test_metadata_that_would_make_it_another_table_is_refused(case: str) -> None:
    after, expected = METADATAS[case]
    assert judged(in_file(after)) == expected
    assert judged(examine(inline(after))) == expected


@pytest.mark.parametrize(
    "after",
    [
        configured(comment="orders"),
        changed(
            description="orders", schema_string=metadata(TABLE, "id long, x string").schema_string
        ),
        configured(**{PROTECTED: "5"}),
    ],
)
def test_metadata_that_adds_passes(after: Metadata) -> None:
    assert judged(in_file(after)) == []


@pytest.mark.parametrize("after", ["9", "", "x", "-1", None])
def test_checkpoint_protection_never_goes_down(after: str | None) -> None:
    before = facts(before=configured(**{PROTECTED: "10"}))
    assert judged(in_file(configured(**{PROTECTED: after})), before) == ["protection-lowered"]
    assert judged(in_file(configured(**{PROTECTED: "11"})), before) == []


# Column mapping


MAPPINGS: dict[str, tuple[Metadata, list[str]]] = {
    "to id": (mapped("id"), ["column-mapping-changed"]),
    "to none": (mapped("none"), ["column-mapping-changed"]),
    "off": (mapped(None), ["column-mapping-changed"]),
    "a greatest id that goes down": (
        mapped("name", ("id", 1, "col-1"), greatest=1),
        ["max-column-id-lowered"],
    ),
    "no greatest id": (
        mapped(greatest=None),
        ["column-mapping-malformed", "column-mapping-malformed", "max-column-id-lowered"],
    ),
    "an id above the greatest": (
        mapped("name", ("id", 1, "col-1"), ("x", 3, "col-3")),
        ["column-mapping-malformed"],
    ),
    "an id twice": (
        mapped("name", ("id", 1, "col-1"), ("x", 1, "col-3")),
        ["column-mapping-malformed"],
    ),
    "no id": (mapped("name", ("id", None, "col-1")), ["column-mapping-malformed"]),
}


@pytest.mark.parametrize("case", MAPPINGS)
def test_column_mapping_keeps_every_columns_identity(case: str) -> None:
    after, expected = MAPPINGS[case]
    assert judged(in_file(after), facts("columnMapping", before=mapped())) == expected


def test_column_mapping_by_name_may_be_turned_on_and_columns_come_and_go() -> None:
    assert judged(in_file(protocol("columnMapping"), mapped())) == []
    assert judged(in_file(protocol("columnMapping"), mapped("id"))) == ["column-mapping-changed"]
    before = facts("columnMapping", before=mapped())
    renamed = mapped("name", ("number", 1, "col-1"), ("x", 3, "col-3"), greatest=3)
    assert judged(in_file(renamed), before) == []


@pytest.mark.parametrize(
    ("feature", "key", "on", "off"),
    [
        ("deletionVectors", "delta.enableDeletionVectors", "true", "false"),
        ("v2Checkpoint", "delta.checkpointPolicy", "v2", "classic"),
        ("changeDataFeed", "delta.enableChangeDataFeed", "TRUE", ""),
    ],
)
def test_a_required_feature_stays_active_where_it_is(
    feature: str, key: str, on: str, off: str
) -> None:
    def judged_with(before: Metadata, after: Metadata, *required: str) -> list[str]:
        known = facts(feature, before=before)
        found = judge(in_file(after), known, now_ms=START_MS, txn_id=TXN, required=required)
        return rules(found)

    active, inactive = (metadata(TABLE, properties={key: value}) for value in (on, off))
    without = metadata(TABLE)
    for after in (inactive, without):
        assert judged_with(active, after, feature) == ["required-feature-off"]
        assert judged_with(active, after, "rowTracking", "inCommitTimestamp") == []
        assert judged_with(after, after, feature) == []  # it was never active: made by other rules
    assert judged_with(active, active, feature) == []
    assert judged_with(without, active, feature) == []


def mapped_add(path: str, column: str = "col-1", **more: Any) -> AddFile:
    """Give an add whose statistics are of a column by this name."""
    stats = {"numRecords": 1, "minValues": {column: 0}, "nullCount": {column: 0}}
    return msgspec.structs.replace(add(path, **more), stats=json.dumps(stats))


def test_partition_values_go_by_physical_names() -> None:
    before = facts("columnMapping", before=mapped(partition_by="day"))
    assert judged(in_file(mapped_add("a", values={"col-2": "1"})), before) == []
    assert judged(in_file(mapped_add("a", values={"day": "1"})), before) == ["partition-values"]
    renamed = mapped("name", ("id", 1, "col-1"), ("date", 2, "col-2"), partition_by="date")
    assert judged(in_file(renamed, mapped_add("a", values={"col-2": "1"})), before) == []


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_new_file_whose_columns_go_by_the_tables_own_names_is_refused(mode: str) -> None:
    before = facts("columnMapping", before=mapped(mode))
    wrong = mapped_add("a", "id")
    assert judged(in_file(wrong), before) == ["column-mapping-ignored"]
    assert judged(in_file(wrong, mapped_add("b", "id")), before) == ["column-mapping-ignored"]
    all_null = msgspec.structs.replace(wrong, stats='{"numRecords":1,"nullCount":{"day":1}}')
    assert judged(in_file(all_null), before) == ["column-mapping-ignored"]
    for right in ("col-1", "dropped long ago"):
        assert judged(in_file(mapped_add("a", right)), before) == []
    assert judged(in_file(msgspec.structs.replace(wrong, stats=None)), before) == []
    # Mapping that was turned on later: columns keep the names they had.
    kept = facts("columnMapping", before=mapped(mode, ("id", 1, "id"), ("day", 2, "col-2")))
    assert judged(in_file(wrong), kept) == []


def test_an_old_file_that_gets_a_vector_may_know_columns_that_are_gone() -> None:
    before = facts("columnMapping", "deletionVectors", before=mapped())
    old = mapped_add("a", "id")
    again = msgspec.structs.replace(old, deletion_vector=inline_vector([0]))
    assert judged(in_file(remove(old), again), before) == []


# Files and features


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"day": "2026-03-01"}, []),
        ({"day": None}, []),
        ({}, ["partition-values"]),
        ({"day": "1", "hour": "2"}, ["partition-values"]),
        ({"hour": "2"}, ["partition-values"]),
    ],
)
def test_partition_values_are_those_of_the_partition_columns(
    values: dict[str, str | None], expected: list[str]
) -> None:
    known = facts(before=metadata(TABLE, "id long, day date", ["day"]))
    assert judged(in_file(add("a", values=values)), known) == expected
    cdc = AddCdcFile(path="c", partition_values=values, size=1, data_change=False)
    assert judged(in_file(cdc), known) == expected


def test_nothing_goes_from_a_table_that_is_append_only() -> None:
    known = facts("appendOnly", **{"delta.appendOnly": "true"})
    assert judged(in_file(remove(FILE)), known) == ["append-only"]
    assert judged(in_file(remove(FILE, data_change=False)), known) == []
    assert judged(in_file(remove(FILE)), facts("appendOnly")) == []


def test_a_deletion_vector_needs_its_feature() -> None:
    assert judged(in_file(remove(FILE), with_vector())) == ["deletion-vectors-unsupported"]
    assert judged(in_file(remove(FILE), with_vector()), facts("deletionVectors")) == []
    assert judged(in_file(remove(FILE), with_vector(), protocol("deletionVectors"))) == []


def test_a_domain_needs_its_feature_and_deltas_own_are_known() -> None:
    unknown = DomainMetadata(domain="delta.tomorrow", configuration="{}", removed=False)
    clustering = DomainMetadata(domain="delta.clustering", configuration="{}", removed=False)
    assert judged(in_file(DOMAIN)) == ["domains-unsupported"]
    assert judged(in_file(DOMAIN, clustering), facts("domainMetadata")) == []
    assert judged(in_file(unknown), facts("domainMetadata")) == ["unknown-domain"]


# Version 0


def first(examined: Examined, txn_id: TxnId | None = TXN) -> list[str]:
    assert examined.violations == ()
    return rules(judge_first(examined, TABLE, now_ms=START_MS, txn_id=txn_id))


def test_version_0_as_we_make_it_passes() -> None:
    assert first(in_file(PROTOCOL, METADATA, FILE)) == []
    assert first(examine(inline(PROTOCOL, METADATA))) == []
    assert first(in_file(PROTOCOL, METADATA), None) == []


def test_version_0_of_a_stranger_may_lack_what_is_only_our_custom() -> None:
    assert first(in_file(without("vacuumProtocolCheck"), METADATA)) == []


FIRSTS: dict[str, tuple[list[Action], list[str]]] = {
    "no protocol": ([METADATA], ["no-protocol"]),
    "no metaData": ([PROTOCOL], ["no-metadata"]),
    "a plain table": (
        [Protocol(min_reader_version=1, min_writer_version=2), METADATA],
        ["not-catalog-managed", "timestamps-gone"],
    ),
    "not catalogManaged": ([without("catalogManaged"), METADATA], ["not-catalog-managed"]),
    "catalogManaged for writers alone": (
        [lists([name for name in READER if name != "catalogManaged"], WRITER), METADATA],
        ["protocol-malformed", "not-catalog-managed"],
    ),
    "no in-commit timestamps": (
        [without("inCommitTimestamp"), METADATA],
        ["protocol-malformed", "timestamps-gone"],
    ),
    "an unknown feature": (
        [lists([*READER, "tomorrow"], [*WRITER, "tomorrow"]), METADATA],
        ["unreadable-feature"],
    ),
    "in-commit timestamps off": (
        [PROTOCOL, configured(**{"delta.enableInCommitTimestamps": "false"})],
        ["timestamps-off"],
    ),
    "another table's id": ([PROTOCOL, metadata(OTHER)], ["table-id-differs"]),
    "a schema that cannot be read": (
        [PROTOCOL, changed(schema_string="{")],
        ["schema-malformed"],
    ),
    "a remove": ([PROTOCOL, METADATA, remove(FILE)], ["remove-in-first"]),
    "a file of another partitioning": (
        [PROTOCOL, METADATA, add("a", values={"day": "1"})],
        ["partition-values"],
    ),
}


@pytest.mark.parametrize("case", FIRSTS)
def test_version_0_that_is_not_of_this_managed_table_is_refused(case: str) -> None:
    actions, expected = FIRSTS[case]
    assert first(in_file(*actions)) == expected


def test_version_0_has_a_time_and_a_transaction_of_its_own() -> None:
    ahead = in_file(PROTOCOL, METADATA, timestamp_ms=START_MS + MAX_AHEAD_MS + 1)
    assert first(ahead) == ["timestamp-ahead"]
    assert first(in_file(PROTOCOL, METADATA), TxnId("another")) == ["txn-id-mismatch"]
