"""`delta/v1` on the wire: staging and creating tables."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headgate.catalog import tables
from headgate.protocol.actions import DomainMetadata, TableId
from headgate.settings import Settings
from tests.http.conftest import Served, serving
from tests.http.unity.conftest import (
    BASE,
    IN_DEFAULT,
    V1,
    Stock,
    add_commit,
    error,
    file_bytes,
    make,
    stage,
)
from tests.http.unity.v1_requests import OLDER_COMMITS, TABLE_ID, native, state
from tests.kit import req
from tests.kit.builders import metadata, protocol


def test_a_staging_table_says_what_the_table_must_be(http: httpx.Client) -> None:
    stock = stage(http, "t")
    shown = stock.made
    assert shown["table-type"] == "MANAGED"
    assert stock.folder.is_dir()
    assert shown["location"].endswith(f"/tables/{shown['table-id']}")
    assert shown["storage-credentials"] == [
        {"prefix": shown["location"], "operation": "READ_WRITE", "config": {}}
    ]
    assert shown["required-protocol"] == {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": ["catalogManaged", "vacuumProtocolCheck"],
        "writer-features": ["catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"],
    }
    assert shown["required-properties"] == {
        "delta.enableInCommitTimestamps": "true",
        TABLE_ID: shown["table-id"],
    }
    assert shown["suggested-protocol"] == {
        "reader-features": ["columnMapping", "deletionVectors", "v2Checkpoint"],
        "writer-features": [
            "columnMapping",
            "deletionVectors",
            "domainMetadata",
            "rowTracking",
            "v2Checkpoint",
        ],
    }
    # What the stock server requires or suggests beyond what this one requires.
    assert shown["suggested-properties"] == {
        "delta.checkpoint.writeStatsAsJson": "true",
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpointPolicy": "v2",
        "delta.columnMapping.maxColumnId": None,
        "delta.columnMapping.mode": "name",
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
        "delta.parquet.compression.codec": "zstd",
        "delta.randomizeFilePrefixes": "true",
        "delta.rowTracking.materializedRowCommitVersionColumnName": None,
        "delta.rowTracking.materializedRowIdColumnName": None,
    }


def test_what_is_suggested_to_engines_can_be_switched_off_or_replaced(tmp_path: Path) -> None:
    nothing = Settings(suggested_features="", suggested_properties="")
    for served in serving(tmp_path / "nothing", nothing):
        shown = stage(served.http, "t").made
        assert shown["suggested-protocol"] == {"reader-features": [], "writer-features": []}
        assert shown["suggested-properties"] == {}
    other = Settings(suggested_features="", suggested_properties=" delta.a = x y , b=1")
    for served in serving(tmp_path / "other", other):
        assert stage(served.http, "t").made["suggested-properties"] == {"delta.a": "x y", "b": "1"}


def test_a_required_feature_stays_active_whoever_commits(tmp_path: Path) -> None:
    key = "delta.enableDeletionVectors"
    required = Settings(verify_staged=0, required_features="deletionVectors")
    how = {"features": ("deletionVectors",), "properties": {key: "true"}}
    for served in serving(tmp_path / "lake", required):
        stock = make(served.http, **how)
        own = metadata(TableId(stock.table_id), properties={key: "true"})
        before = state(served)
        for value in (None, "false"):
            changed = {name: text for name, text in own.configuration.items() if name != key}
            changed |= {} if value is None else {key: value}
            without = msgspec.structs.replace(own, configuration=changed)
            refused = stock.commit(1, without)
            assert error(refused) == (400, "InvalidParameterValueException")
            assert key in refused.text
            older = {name.replace("-", "_"): of for name, of in stock.put(1, without).items()}
            body = {"table_id": stock.table_id, "table_uri": stock.location, "commit_info": older}
            assert served.http.post(f"{BASE}/delta/preview/commits", json=body).status_code == 400
            assert native(served, stock.table_id, 1, without).status_code == 422
        assert state(served) == before
        assert stock.commit(1, msgspec.structs.replace(own, description="x")).status_code == 200
    for served in serving(tmp_path / "other"):
        stock = make(served.http, **how)
        assert stock.commit(1, metadata(TableId(stock.table_id))).status_code == 200


def test_what_new_tables_must_have_is_a_setting(tmp_path: Path) -> None:
    settings = Settings(
        verify_staged=0,
        required_features="deletionVectors",
        suggested_features="rowTracking, v2Checkpoint",
    )
    for served in serving(tmp_path / "lake", settings):
        without = stage(served.http, "t")
        assert "deletionVectors" in without.made["required-protocol"]["reader-features"]
        assert without.made["required-properties"]["delta.enableDeletionVectors"] == "true"
        assert without.made["suggested-protocol"] == {
            "reader-features": ["v2Checkpoint"],
            "writer-features": ["domainMetadata", "rowTracking", "v2Checkpoint"],
        }
        suggested = without.made["suggested-properties"]
        assert suggested["delta.enableRowTracking"] == "true"
        refused = served.http.post(f"{IN_DEFAULT}/tables", json=without.create)
        assert error(refused) == (400, "InvalidParameterValueException")
        assert "deletionVectors" in refused.text
        make(
            served.http,
            features=("deletionVectors",),
            properties={"delta.enableDeletionVectors": "true"},
        )


@req("CM-39")
def test_nobody_sees_or_changes_a_table_before_it_is_created_under_a_name(
    served: Served,
) -> None:
    stock = stage(served.http, "t")
    assert (stock.log / f"{0:020d}.json").exists()  # two phases of three
    put = stock.put(1)
    wanted = {"table_id": stock.table_id, "table_uri": stock.location, "start_version": 0}
    older = {
        "table_id": stock.table_id,
        "table_uri": stock.location,
        "commit_info": {name.replace("-", "_"): of for name, of in put.items()},
    }
    refused = [
        served.http.get(stock.url),
        served.http.head(stock.url),
        served.http.get(f"{BASE}/tables/main.default.t"),
        served.http.get("/v1/names/t"),
        served.http.get(f"/v1/tables/{stock.table_id}"),
        served.http.get(f"/v1/tables/{stock.table_id}/commits"),
        served.http.request("GET", OLDER_COMMITS, json=wanted),
        served.http.post(OLDER_COMMITS, json=older),
        stock.send(stock.change(add_commit(put))),
    ]
    assert [answer.status_code for answer in refused] == [404] * len(refused)
    listed = {"catalog_name": "main", "schema_name": "default"}
    assert served.http.get(f"{BASE}/tables", params=listed).json()["tables"] == []
    assert served.catalog.tables(dropped=True) == ()
    made = served.http.post(f"{IN_DEFAULT}/tables", json=stock.create)
    assert (made.status_code, made.json()["latest-table-version"]) == (200, 0)
    assert served.http.post(OLDER_COMMITS, json=older).status_code == 200


def test_a_table_is_made_and_loaded(table: Stock) -> None:
    loaded = table.load()
    assert loaded == table.made
    assert loaded["latest-table-version"] == 0
    assert loaded["commits"] == []
    shown = loaded["metadata"]
    assert shown["table-uuid"] == table.table_id
    assert shown["location"] == table.location
    assert shown["table-type"] == "MANAGED"
    assert shown["columns"]["fields"] == [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    ]
    assert shown["partition-columns"] == []
    assert shown["last-commit-version"] == 0
    assert shown["last-commit-timestamp-ms"] == table.create["last-commit-timestamp-ms"]
    assert shown["properties"] == {
        **table.create["properties"],
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
        "delta.feature.catalogManaged": "supported",
        "delta.feature.inCommitTimestamp": "supported",
        "delta.feature.vacuumProtocolCheck": "supported",
        "delta.lastUpdateVersion": "0",
        "delta.lastCommitTimestamp": str(shown["last-commit-timestamp-ms"]),
    }


def test_a_log_may_have_an_id_of_its_own_and_keeps_it(served: Served) -> None:
    stock = stage(served.http, "t")
    own = msgspec.structs.replace(metadata(TableId(stock.table_id)), id=str(uuid.uuid4()))
    content = file_bytes(protocol(), own, timestamp_ms=stock.timestamp_ms)
    (stock.log / f"{0:020d}.json").write_bytes(content)
    assert served.http.post(f"{IN_DEFAULT}/tables", json=stock.create).status_code == 200
    described = msgspec.structs.replace(own, description="ours")
    assert stock.commit(1, described).status_code == 200
    other = msgspec.structs.replace(own, id=str(uuid.uuid4()))
    assert error(stock.commit(2, other))[0] == 400
    assert not [f for f in served.catalog.fsck() if f.severity.value == "error"]


def test_a_creation_may_declare_properties_that_the_log_lacks(http: httpx.Client) -> None:
    stock = stage(http, "t")
    declared = {**stock.create["properties"], "delta.checkpointPolicy": "v2", "owner": "me"}
    made = http.post(f"{IN_DEFAULT}/tables", json={**stock.create, "properties": declared})
    assert made.status_code == 200, made.text
    # The log decides what the table has.
    assert made.json()["metadata"]["properties"].keys().isdisjoint({"delta.checkpointPolicy"})
    assert stock.load() == made.json()


def test_a_property_declared_with_another_value_than_the_log_has_is_refused(
    http: httpx.Client,
) -> None:
    stock = stage(http, "t", properties={"owner": "me"})
    declared = {**stock.create["properties"], "owner": "you"}
    refused = http.post(f"{IN_DEFAULT}/tables", json={**stock.create, "properties": declared})
    assert error(refused) == (400, "InvalidParameterValueException")
    assert "owner" in refused.text


def test_a_required_property_may_be_declared_where_the_log_lacks_it(tmp_path: Path) -> None:
    settings = Settings(verify_staged=0, required_features="v2Checkpoint")
    for served in serving(tmp_path / "lake", settings):
        stock = stage(served.http, "t", features=("v2Checkpoint",))
        refused = served.http.post(f"{IN_DEFAULT}/tables", json=stock.create)
        assert error(refused) == (400, "InvalidParameterValueException")
        assert "delta.checkpointPolicy" in refused.text
        declared = {**stock.create["properties"], "delta.checkpointPolicy": "v2"}
        body = {**stock.create, "properties": declared}
        assert served.http.post(f"{IN_DEFAULT}/tables", json=body).status_code == 200
        assert stock.commit(1).status_code == 200


def test_an_emptied_comment_is_answered_as_an_empty_one(table: Stock) -> None:
    """Spark's COMMENT ON … IS NULL writes an empty description, and stock tests expect it back."""
    older = f"{BASE}/tables/main.default.t"
    assert "comment" not in table.http.get(older).json()
    own = metadata(TableId(table.table_id))
    for version, comment in enumerate(("ours", ""), start=1):
        described = msgspec.structs.replace(own, description=comment)
        body = table.change(
            add_commit(table.put(version, described)),
            {"action": "set-table-comment", "comment": comment},
        )
        assert table.send(body).status_code == 200
        assert table.http.get(older).json()["comment"] == comment
        listed = table.http.get(
            f"{BASE}/tables", params={"catalog_name": "main", "schema_name": "default"}
        )
        assert [row["comment"] for row in listed.json()["tables"]] == [comment]


@req("LC-02")
def test_the_same_creation_again_is_answered_as_the_first_time(table: Stock) -> None:
    again = table.http.post(f"{IN_DEFAULT}/tables", json=table.create)
    assert again.status_code == 200
    assert again.json() == table.made
    table.commit(1)
    later = table.http.post(f"{IN_DEFAULT}/tables", json=table.create)
    assert (later.status_code, later.json()["latest-table-version"]) == (200, 1)


@req("LC-02")
@pytest.mark.parametrize(
    "other",
    [
        {"comment": "another"},
        {"properties": {"delta.enableInCommitTimestamps": "false"}},
        {"partition-columns": ["id"]},
        {
            "columns": {
                "type": "struct",
                "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}],
            }
        },
        {"name": "another"},
    ],
)
def test_another_creation_at_a_staging_table_that_is_a_table_already_is_refused(
    served: Served, table: Stock, other: dict[str, Any]
) -> None:
    before = state(served)
    refused = table.http.post(f"{IN_DEFAULT}/tables", json={**table.create, **other})
    assert error(refused) == (400, "InvalidParameterValueException")
    assert state(served) == before
    assert table.commit(1).status_code == 200
    refused = table.http.post(f"{IN_DEFAULT}/tables", json={**table.create, **other})
    assert error(refused) == (400, "InvalidParameterValueException")


def test_of_two_creations_at_once_at_a_staging_table_another_one_is_refused(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = stage(http, "t")
    first: list[httpx.Response] = []
    is_overtaken = False

    def overtake(point: str) -> None:
        nonlocal is_overtaken
        if point == "registry.before_register" and not is_overtaken:
            is_overtaken = True
            first.append(http.post(f"{IN_DEFAULT}/tables", json=stock.create))

    monkeypatch.setattr(tables, "fail_point", overtake)
    other = {**stock.create, "comment": "another"}
    second = http.post(f"{IN_DEFAULT}/tables", json=other)
    assert [answer.status_code for answer in first] == [200]
    assert error(second) == (400, "InvalidParameterValueException")


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "{}", "file://{}/", "file:////{}"])
def test_a_place_may_be_spelled_in_every_form(http: httpx.Client, form: str) -> None:
    stock = stage(http, "t")
    spelled = form.format(stock.location.removeprefix("file://"))
    made = http.post(f"{IN_DEFAULT}/tables", json={**stock.create, "location": spelled})
    assert made.status_code == 200, made.text
    assert made.json()["metadata"]["location"] == stock.location


CREATIONS: dict[str, tuple[dict[str, Any], tuple[int, str]]] = {
    "a place that was not staged": ({"location": "file:///nowhere"}, (404, "NotFoundException")),
    "another type": ({"table-type": "EXTERNAL"}, (400, "InvalidParameterValueException")),
    "other columns": (
        {
            "columns": {
                "type": "struct",
                "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}],
            }
        },
        (400, "InvalidParameterValueException"),
    ),
    "no columns": (
        {"columns": {"type": "struct", "fields": []}},
        (400, "InvalidParameterValueException"),
    ),
    "a column without metadata": (
        {"columns": {"type": "struct", "fields": [{"name": "id", "type": "long"}]}},
        (400, "InvalidParameterValueException"),
    ),
    "columns that are none": ({"columns": {"type": []}}, (400, "BadRequestException")),
    "no table id among the properties": (
        {"properties": {"delta.enableInCommitTimestamps": "true"}},
        (400, "InvalidParameterValueException"),
    ),
    "other partitioning": (
        {"partition-columns": ["id"]},
        (400, "InvalidParameterValueException"),
    ),
    "a comment that is not there": ({"comment": "x"}, (400, "InvalidParameterValueException")),
    "a domain that is not there": (
        {"domain-metadata": {"delta.clustering": {"clusteringColumns": [["id"]]}}},
        (400, "InvalidParameterValueException"),
    ),
    "an unknown domain": (
        {"domain-metadata": {"mine": {}}},
        (400, "InvalidParameterValueException"),
    ),
    "a name that is none": ({"name": "a/b"}, (400, "InvalidParameterValueException")),
    "another protocol": (
        {"protocol": {"min-reader-version": 1, "min-writer-version": 2}},
        (400, "InvalidParameterValueException"),
    ),
}


@pytest.mark.parametrize("case", CREATIONS)
def test_a_creation_that_says_otherwise_than_the_log_is_refused(served: Served, case: str) -> None:
    changed, expected = CREATIONS[case]
    stock = stage(served.http, "t")
    before = state(served)
    refused = served.http.post(f"{IN_DEFAULT}/tables", json={**stock.create, **changed})
    assert error(refused) == expected
    assert state(served) == before
    assert served.http.post(f"{IN_DEFAULT}/tables", json=stock.create).status_code == 200


def test_a_name_that_is_taken_is_409(http: httpx.Client) -> None:
    make(http)
    assert error(http.post(f"{IN_DEFAULT}/staging-tables", json={"name": "T"})) == (
        409,
        "AlreadyExistsException",
    )
    other = stage(http, "u")
    taken = http.post(f"{IN_DEFAULT}/tables", json={**other.create, "name": "t"})
    assert error(taken) == (409, "AlreadyExistsException")


def test_a_schema_that_is_not_there_shows_when_a_table_is_staged(http: httpx.Client) -> None:
    where = f"{V1}/catalogs/main/schemas/none/staging-tables"
    assert error(http.post(where, json={"name": "t"})) == (404, "NoSuchSchemaException")
    where = f"{V1}/catalogs/none/schemas/default/staging-tables"
    assert error(http.post(where, json={"name": "t"})) == (404, "NoSuchCatalogException")


def test_nested_types_are_kebab_case_and_metadata_of_fields_comes_back_verbatim(
    http: httpx.Client,
) -> None:
    stock = stage(http, "t")
    note = {"elementType": "kept", "deep": {"containsNull": [1, 2.5, None, True]}, "comment": "ä"}
    array = {"type": "array", "elementType": "integer", "containsNull": False}
    inner = {"name": "in ner", "type": array, "nullable": False, "metadata": note}
    struct = {"type": "struct", "fields": [inner]}
    whole = {"type": "map", "keyType": "string", "valueType": struct, "valueContainsNull": True}
    field = {"name": "m", "type": whole, "nullable": True, "metadata": note}
    schema = {"type": "struct", "fields": [field]}
    shown = msgspec.structs.replace(
        metadata(TableId(stock.table_id), properties={"delta.columnMapping.mode": "none"}),
        schema_string=json.dumps(schema).replace("in ner", "inner"),
    )
    content = file_bytes(protocol(), shown, timestamp_ms=stock.timestamp_ms)
    (stock.log / f"{0:020d}.json").write_bytes(content)
    kebab_array = {"type": "array", "element-type": "integer", "contains-null": False}
    kebab_inner = {"name": "inner", "type": kebab_array, "nullable": False, "metadata": note}
    kebab_field = {
        "name": "m",
        "type": {
            "type": "map",
            "key-type": "string",
            "value-type": {"type": "struct", "fields": [kebab_inner]},
            "value-contains-null": True,
        },
        "nullable": True,
        "metadata": note,
    }
    columns = {"type": "struct", "fields": [kebab_field]}
    body = {**stock.create, "columns": columns, "properties": shown.configuration}
    made = http.post(f"{IN_DEFAULT}/tables", json=body)
    assert made.status_code == 200, made.text
    assert made.json()["metadata"]["columns"] == columns


def test_columns_clustered_by_and_row_ids_are_told_among_the_properties(
    http: httpx.Client,
) -> None:
    domains = (
        DomainMetadata(
            domain="delta.clustering",
            configuration='{"clusteringColumns":[["id"]],"domainName":"delta.clustering"}',
            removed=False,
        ),
        DomainMetadata(
            domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":41}', removed=False
        ),
    )
    features = ("clustering", "domainMetadata", "rowTracking")
    stock = stage(http, "t", first=domains, features=features)
    declared = {
        "delta.clustering": {"clusteringColumns": [["id"]]},
        "delta.rowTracking": {"rowIdHighWaterMark": 41},
    }
    body = {**stock.create, "domain-metadata": declared}
    made = http.post(f"{IN_DEFAULT}/tables", json=body)
    assert made.status_code == 200, made.text
    shown = made.json()["metadata"]["properties"]
    assert shown["clusteringColumns"] == '[["id"]]'
    assert "delta.rowTracking.rowIdHighWaterMark" not in shown
    assert stock.load()["metadata"]["properties"] == shown


def test_clustering_columns_have_the_names_that_the_log_has_for_them(http: httpx.Client) -> None:
    domain = DomainMetadata(
        domain="delta.clustering",
        configuration='{"clusteringColumns":[["col-1"]],"domainName":"delta.clustering"}',
        removed=False,
    )
    features = ("clustering", "columnMapping", "domainMetadata")
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    stock = stage(http, "t", features=features, properties=mapping)
    own = metadata(TableId(stock.table_id), properties=mapping)
    physical = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    columns = json.loads(own.schema_string)
    columns["fields"][0]["metadata"] = physical
    own = msgspec.structs.replace(own, schema_string=json.dumps(columns))
    content = file_bytes(protocol(*features), own, domain, timestamp_ms=stock.timestamp_ms)
    (stock.log / f"{0:020d}.json").write_bytes(content)
    made = http.post(f"{IN_DEFAULT}/tables", json={**stock.create, "columns": columns})
    assert made.status_code == 200, made.text
    assert stock.load()["metadata"]["properties"]["clusteringColumns"] == '[["col-1"]]'
