"""`delta/v1` as bytes on a wire: loading, committing, making, and what each refusal is called."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headgate.catalog import tables
from headgate.names import TableName
from headgate.protocol.actions import DomainMetadata, TableId, encode, join
from headgate.settings import Settings
from tests.http.conftest import Served, serving
from tests.http.unity.conftest import (
    BASE,
    CLOCK,
    IN_DEFAULT,
    V1,
    Stock,
    add_commit,
    claim,
    error,
    file_bytes,
    make,
    stage,
)
from tests.kit import req, shows
from tests.kit.builders import add, metadata, new_txn_id, protocol, remove
from tests.kit.other_readers import every_file

TABLE_ID = "io.unitycatalog.tableId"
OLDER_COMMITS = f"{BASE}/delta/preview/commits"


def native(served: Served, table_id: str, version: int, *actions: Any) -> httpx.Response:
    """Commit inline, as clients of our own do."""
    lines = join(encode(action) for action in actions or (add(),))
    content = {
        "way": "inline",
        "commitInfo": {"operation": "WRITE"},
        "actions": base64.b64encode(lines).decode(),
    }
    body = {"txnId": new_txn_id(now_ms=CLOCK.now_ms()), "version": version, "content": content}
    return served.http.post(f"/v1/tables/{table_id}/commits", json=body)


def native_table(served: Served, name: str = "ours") -> Stock:
    table_id = TableId(str(uuid.uuid4()))
    first = join(encode(action) for action in (protocol(), metadata(table_id)))
    body = {
        "name": name,
        "tableId": table_id,
        "txnId": new_txn_id(now_ms=CLOCK.now_ms()),
        "first": {
            "way": "inline",
            "commitInfo": {"operation": "CREATE TABLE"},
            "actions": base64.b64encode(first).decode(),
        },
    }
    made = served.http.post("/v1/tables", json=body).json()
    return Stock(served.http, name, table_id, made["location"], made["timestampMs"], {})


def state(served: Served) -> object:
    with served.catalog._store.read() as unit:
        return unit.clock(), served.catalog.tables(dropped=True)


# Asking what is served


def test_the_configuration_names_what_exists_and_every_endpoint_leads_somewhere(
    http: httpx.Client,
) -> None:
    where = {"catalog": "main", "protocol-versions": "1.0"}
    told = http.get(f"{V1}/config", params=where).json()
    assert told["protocol-version"] == "1.0"
    for endpoint in told["endpoints"]:
        method, _, path = endpoint.partition(" ")
        filled = path.format(catalog="main", schema="default", table="t", table_id=uuid.uuid4())
        answer = http.request(method, f"{BASE}/delta{filled}", json={})
        assert answer.status_code in (400, 404), endpoint
        assert "No route matches" not in answer.text


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, (400, "InvalidParameterValueException")),
        ({"catalog": "main"}, (400, "InvalidParameterValueException")),
        ({"catalog": "none", "protocol-versions": "1.0"}, (404, "NoSuchCatalogException")),
        (
            {"catalog": "main", "protocol-versions": "7.3"},
            (400, "InvalidParameterValueException"),
        ),
    ],
)
def test_a_configuration_nobody_can_have_is_refused(
    http: httpx.Client, where: dict[str, str], expected: tuple[int, str]
) -> None:
    assert error(http.get(f"{V1}/config", params=where)) == expected


# Making


def test_a_staging_table_says_what_the_table_must_be(http: httpx.Client) -> None:
    stock = stage(http, "t")
    told = stock.made
    assert told["table-type"] == "MANAGED"
    assert stock.folder.is_dir()
    assert told["location"].endswith(f"/tables/{told['table-id']}")
    assert told["storage-credentials"] == [
        {"prefix": told["location"], "operation": "READ_WRITE", "config": {}}
    ]
    assert told["required-protocol"] == {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": ["catalogManaged", "vacuumProtocolCheck"],
        "writer-features": ["catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"],
    }
    assert told["required-properties"] == {
        "delta.enableInCommitTimestamps": "true",
        TABLE_ID: told["table-id"],
    }
    assert told["suggested-protocol"] == {
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
    assert told["suggested-properties"] == {
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
        told = stage(served.http, "t").made
        assert told["suggested-protocol"] == {"reader-features": [], "writer-features": []}
        assert told["suggested-properties"] == {}
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
    told = loaded["metadata"]
    assert told["table-uuid"] == table.table_id
    assert told["location"] == table.location
    assert told["table-type"] == "MANAGED"
    assert told["columns"]["fields"] == [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    ]
    assert told["partition-columns"] == []
    assert told["last-commit-version"] == 0
    assert told["last-commit-timestamp-ms"] == table.create["last-commit-timestamp-ms"]
    assert told["properties"] == {
        **table.create["properties"],
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
        "delta.feature.catalogManaged": "supported",
        "delta.feature.inCommitTimestamp": "supported",
        "delta.feature.vacuumProtocolCheck": "supported",
        "delta.lastUpdateVersion": "0",
        "delta.lastCommitTimestamp": str(told["last-commit-timestamp-ms"]),
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
    "a place nobody staged": ({"location": "file:///nowhere"}, (404, "NotFoundException")),
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
    told = msgspec.structs.replace(
        metadata(TableId(stock.table_id), properties={"delta.columnMapping.mode": "none"}),
        schema_string=json.dumps(schema).replace("in ner", "inner"),
    )
    content = file_bytes(protocol(), told, timestamp_ms=stock.timestamp_ms)
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
    body = {**stock.create, "columns": columns, "properties": told.configuration}
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
    told = made.json()["metadata"]["properties"]
    assert told["clusteringColumns"] == '[["id"]]'
    assert "delta.rowTracking.rowIdHighWaterMark" not in told
    assert stock.load()["metadata"]["properties"] == told


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


# Loading


def test_unpublished_commits_come_newest_first_and_without_a_gap(table: Stock) -> None:
    for version in (1, 2, 3):
        assert table.commit(version).status_code == 200
    loaded = table.load()
    assert loaded["latest-table-version"] == 3
    assert [commit["version"] for commit in loaded["commits"]] == [3, 2, 1]
    for commit in loaded["commits"]:
        place = table.log / "_staged_commits" / commit["file-name"]
        assert place.stat().st_size == commit["file-size"]
        info = json.loads(place.read_bytes().partition(b"\n")[0])["commitInfo"]
        assert commit["timestamp"] == info["inCommitTimestamp"]
        assert commit["file-modification-timestamp"] > 0


@req("CA-04")
def test_what_came_inline_is_published_before_a_stock_client_is_answered(served: Served) -> None:
    stock = native_table(served)
    assert native(served, stock.table_id, 1).status_code == 200
    assert not (stock.log / f"{1:020d}.json").exists()
    loaded = stock.load()
    assert (loaded["latest-table-version"], loaded["commits"]) == (1, [])
    assert (stock.log / f"{0:020d}.json").exists()
    assert (stock.log / f"{1:020d}.json").exists()


@req("CA-04")
def test_a_staged_tail_above_inline_commits_is_listed_down_to_them(served: Served) -> None:
    stock = native_table(served)
    stock.commit(1)
    native(served, stock.table_id, 2)
    stock.timestamp_ms = CLOCK.now_ms() + 1_000
    assert stock.commit(3).status_code == 200
    assert stock.commit(4).status_code == 200
    loaded = stock.load()
    assert loaded["latest-table-version"] == 4
    assert [commit["version"] for commit in loaded["commits"]] == [4, 3]
    published = sorted(path.name for path in stock.log.glob("*.json"))
    assert published == [f"{version:020d}.json" for version in range(3)]


def test_many_loads_at_once_publish_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    stock = native_table(served)
    for version in (1, 2, 3):
        native(served, stock.table_id, version)
    puts: list[object] = []
    publisher = served.catalog._publisher
    put = publisher._put_batch
    monkeypatch.setattr(publisher, "_put_batch", lambda *a: puts.append(a) or put(*a))
    answers: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: answers.append(stock.load())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer["latest-table-version"] for answer in answers] == [3] * 8
    assert len(puts) == 1


def test_a_published_commit_is_listed_for_a_while(table: Stock) -> None:
    table.commit(1)
    table.publish(1)
    assert table.send(table.change(claim(1))).status_code == 200
    assert [commit["version"] for commit in table.load()["commits"]] == [1]


@req("PB-02")
def test_a_diverged_table_is_503_naming_the_remedy_while_native_readers_go_on(
    served: Served,
) -> None:
    stock = native_table(served)
    native(served, stock.table_id, 1)
    stock.log.mkdir(parents=True, exist_ok=True)
    (stock.log / f"{1:020d}.json").write_bytes(b'{"commitInfo":{}}\n')
    for _ in range(2):
        refused = served.http.get(stock.url)
        assert error(refused) == (503, "InternalServerErrorException")
        assert "headgate fsck" in refused.text
    assert error(stock.commit(2))[0] == 503
    resolved = served.http.get(f"/v1/names/{stock.name}").json()
    assert (resolved["latest"], resolved["commits"][-1]["version"]) == (1, 1)
    assert native(served, stock.table_id, 2).status_code == 200


def test_what_can_be_no_name_is_that_of_no_table(http: httpx.Client) -> None:
    """Spark asks for tables by their paths so, and goes to the path when there is no such name."""
    for place in ("file:%2F%2F%2Fa%2Fb.c", "a%20b", "a.b"):
        url = f"{V1}/catalogs/main/schemas/delta/tables/{place}"
        assert error(http.get(url)) == (404, "NoSuchTableException")


def test_the_folder_for_staged_commits_is_there_when_a_table_was_loaded(served: Served) -> None:
    """The JVM's clients write into it, and do not make it."""
    stock = native_table(served)
    folder = stock.log / "_staged_commits"
    assert not folder.exists()
    stock.load()
    assert folder.is_dir()
    folder.rmdir()
    wanted = {"table_id": stock.table_id, "table_uri": stock.location, "start_version": 0}
    asked = served.http.request("GET", f"{BASE}/delta/preview/commits", json=wanted)
    assert asked.status_code == 200
    assert folder.is_dir()


def test_a_table_is_there_or_not(table: Stock) -> None:
    there = table.http.head(table.url)
    assert (there.status_code, there.content) == (204, b"")
    gone = table.http.head(f"{IN_DEFAULT}/tables/none")
    assert (gone.status_code, gone.content) == (404, b"")
    assert error(table.http.get(f"{IN_DEFAULT}/tables/none")) == (404, "NoSuchTableException")


def test_what_is_no_delta_table_is_refused_by_the_word_clients_look_for(
    http: httpx.Client,
) -> None:
    body = {
        "name": "csv",
        "catalog_name": "main",
        "schema_name": "default",
        "table_type": "EXTERNAL",
        "data_source_format": "CSV",
        "storage_location": "file:///elsewhere/csv",
        "columns": [],
    }
    http.post(f"{BASE}/tables", json=body)
    refused = http.get(f"{IN_DEFAULT}/tables/csv")
    assert error(refused) == (400, "UnsupportedTableFormatException")
    assert "UnsupportedTableFormat" in refused.text


def test_an_external_delta_table_has_no_commits_and_no_version(http: httpx.Client) -> None:
    body = {
        "name": "ext",
        "catalog_name": "main",
        "schema_name": "default",
        "table_type": "EXTERNAL",
        "storage_location": "file:///elsewhere/ext",
        "columns": [{"name": "id", "type_text": "int"}],
    }
    assert http.post(f"{BASE}/tables", json=body).status_code == 200
    loaded = http.get(f"{IN_DEFAULT}/tables/ext").json()
    assert loaded.keys() == {"metadata"}
    assert loaded["metadata"]["table-type"] == "EXTERNAL"


# Committing


def test_a_commit_is_answered_with_the_table_and_read_natively(served: Served) -> None:
    stock = make(served.http)
    answer = stock.commit(1, add("a.parquet"))
    assert answer.status_code == 200
    assert answer.json()["latest-table-version"] == 1
    resolved = served.http.get("/v1/names/t").json()
    assert resolved["latest"] == 1
    assert resolved["commits"][-1]["way"] == "staged"


@req("CM-42")
@shows("FC4")
def test_the_same_commit_again_is_200_whatever_happened_since(served: Served) -> None:
    stock = make(served.http)
    etag = stock.load()["metadata"]["etag"]
    body = stock.change(add_commit(stock.put(1)), claim(0), etag=etag)
    assert stock.send(body).status_code == 200
    before = state(served)
    assert stock.send(body).status_code == 200
    assert state(served) == before
    described = msgspec.structs.replace(metadata(TableId(stock.table_id)), description="new")
    assert stock.commit(2, described).status_code == 200
    assert stock.load()["metadata"]["etag"] != etag
    served.catalog.publish(TableId(stock.table_id))
    for staged in (stock.log / "_staged_commits").iterdir():
        staged.unlink()
    again = stock.send(body)
    assert again.status_code == 200, again.text
    assert stock.load()["latest-table-version"] == 2


@req("CM-42")
@shows("FC7")
def test_two_copies_of_a_commit_at_once_are_ratified_once_and_both_200(served: Served) -> None:
    stock = make(served.http)
    body = stock.change(add_commit(stock.put(1)))
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(stock.send(body).status_code))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 6
    assert stock.load()["latest-table-version"] == 1


@req("CM-14")
def test_a_version_that_another_file_took_is_409_and_the_next_is_200(table: Stock) -> None:
    table.commit(1)
    lost = table.commit(1)
    assert error(lost) == (409, "CommitVersionConflictException")
    assert "1 is the latest" in lost.text
    assert table.commit(2).status_code == 200


def test_a_taken_version_is_409_also_where_our_own_clients_would_be_told_of_a_conflict(
    served: Served,
) -> None:
    stock = make(served.http)
    file = add("a.parquet")
    stock.commit(1, file)
    txn_id = str(uuid.uuid4())
    assert stock.commit(2, remove(file)).status_code == 200
    lost = stock.commit(2, remove(file), txn_id=txn_id)
    assert error(lost) == (409, "CommitVersionConflictException")
    # It looks for conflicts itself, and comes again under the same txnId.
    assert stock.commit(3, add("b.parquet"), txn_id=txn_id).status_code == 200


@req("CM-42")
@shows("FC6")
def test_a_transaction_that_was_committed_is_not_committed_again_at_another_version(
    table: Stock,
) -> None:
    txn_id = str(uuid.uuid4())
    assert table.commit(1, txn_id=txn_id).status_code == 200
    again = table.commit(2, txn_id=txn_id)
    assert error(again) == (400, "BadRequestException")
    assert "already committed as version 1" in again.text
    assert table.load()["latest-table-version"] == 1


@pytest.mark.parametrize("version", [2, 5, 1 << 40])
def test_the_first_commit_is_version_1_and_there_is_never_a_gap(
    served: Served, version: int
) -> None:
    stock = make(served.http)
    assert error(stock.commit(version)) == (400, "InvalidParameterValueException")
    assert stock.load()["latest-table-version"] == 0
    assert stock.commit(1).status_code == 200


@shows("FI1")
@pytest.mark.parametrize(
    "name",
    [
        "../x.json",
        "hello.txt",
        "/etc/passwd",
        "00000000000000000001.json",
        "00000000000000000001.not-a-uuid.json",
        "00000000000000000002.6f9619ff-8b86-4d01-b42d-00cf4fc964ff.json",
        "00000000000000000001.6f9619ff-8b86-4d01-b42d-00cf4fc964ff.json",  # not there
        "",
        "x" * 5000,
        "a\0b",
    ],
)
def test_a_file_that_is_no_staged_commit_or_not_there_is_400(served: Served, name: str) -> None:
    stock = make(served.http)
    before = state(served)
    commit = {**stock.put(1), "file-name": name}
    assert error(stock.send(stock.change(add_commit(commit)))) == (
        400,
        "InvalidParameterValueException",
    )
    assert state(served) == before


@req("AU-02")
@shows("FX15")
@pytest.mark.parametrize(
    "wrong",
    [
        {"file-size": 7},
        {"file-size": 0},
        {"timestamp": 7},
        {"timestamp": 0},
        {"version": 0},
        {"version": -1},
        {"file-modification-timestamp": 0},
        {"version": 1 << 70},
        {"version": "1"},
        {"version": 1.5},
        {"version": None},
    ],
)
def test_a_commit_that_is_not_as_it_says_is_400(served: Served, wrong: dict[str, Any]) -> None:
    stock = make(served.http)
    before = state(served)
    commit = {**stock.put(1), **wrong}
    assert error(stock.send(stock.change(add_commit(commit))))[0] == 400
    assert state(served) == before


CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"hello\n",
    "no commitInfo": encode(add()) + b"\n",
    "no txnId": b'{"commitInfo":{"inCommitTimestamp":9999999999999}}\n',
    "a path outside": file_bytes(add("../../x.parquet"), timestamp_ms=1),
    "a timestamp that does not rise": file_bytes(add(), timestamp_ms=1),
}


@req("AU-02", "CM-36")
@pytest.mark.parametrize("case", CONTENTS)
@req("CM-04")
def test_content_that_breaks_the_protocol_is_400(served: Served, case: str) -> None:
    stock = make(served.http)
    before = state(served)
    commit = stock.put_bytes(1, CONTENTS[case])
    refused = stock.send(stock.change(add_commit({**commit, "timestamp": 1})))
    assert error(refused)[0] == 400
    assert state(served) == before


@req("EN-01")
@shows("FX25")
def test_the_id_and_what_makes_a_table_managed_cannot_be_altered(served: Served) -> None:
    stock = make(served.http)
    own = metadata(TableId(stock.table_id))
    before = state(served)
    for changed in (
        {**own.configuration, TABLE_ID: "x"},
        {key: value for key, value in own.configuration.items() if key != TABLE_ID},
        {**own.configuration, "delta.enableInCommitTimestamps": "false"},
    ):
        content = msgspec.structs.replace(own, configuration=changed)
        update = {"action": "set-properties", "updates": changed}
        refused = stock.send(stock.change(add_commit(stock.put(1, content)), update))
        assert error(refused) == (400, "InvalidParameterValueException")
    alone = {"action": "set-properties", "updates": {TABLE_ID: "x"}}
    assert error(stock.send(stock.change(alone)))[0] == 400
    assert state(served) == before
    assert stock.commit(1).status_code == 200


def test_metadata_changes_with_the_commit_that_brings_it(table: Stock) -> None:
    own = metadata(TableId(table.table_id))
    etag = table.load()["metadata"]["etag"]
    assert table.commit(1).json()["metadata"]["etag"] == etag
    changed = metadata(TableId(table.table_id), "id long, item string", properties={"owner": "me"})
    changed = msgspec.structs.replace(changed, description="new", created_time=own.created_time)
    item = {"name": "item", "type": "string", "nullable": True, "metadata": {}}
    fields = [*table.create["columns"]["fields"], item]
    answer = table.send(
        table.change(
            add_commit(table.put(2, changed)),
            {"action": "set-properties", "updates": {"owner": "me"}},
            {"action": "set-columns", "columns": {"type": "struct", "fields": fields}},
            {"action": "set-table-comment", "comment": "new"},
            claim(0),
            etag=etag,
        )
    )
    assert answer.status_code == 200, answer.text
    told = answer.json()["metadata"]
    assert told["etag"] != etag
    assert told["columns"]["fields"] == fields
    assert told["properties"]["owner"] == "me"
    assert told["last-commit-version"] == 2
    assert table.http.get(f"{BASE}/tables/main.default.t").json()["comment"] == "new"


@pytest.mark.parametrize(
    "cleared",
    [
        {"action": "set-table-comment"},
        {"action": "set-table-comment", "comment": None},
        {"action": "set-table-comment", "comment": ""},
    ],
)
def test_a_comment_that_is_not_there_clears_the_one_that_is(
    table: Stock, cleared: dict[str, Any]
) -> None:
    own = metadata(TableId(table.table_id))
    described = msgspec.structs.replace(own, description="old")
    assert table.commit(1, described).status_code == 200
    answer = table.send(table.change(add_commit(table.put(2, own)), cleared))
    assert answer.status_code == 200, answer.text
    assert "comment" not in table.http.get(f"{BASE}/tables/main.default.t").json()


DECLARED: dict[str, dict[str, Any]] = {
    "a property that is not set": {"action": "set-properties", "updates": {"a": "b"}},
    "a property that is still there": {
        "action": "remove-properties",
        "removals": ["delta.enableInCommitTimestamps"],
    },
    "another protocol": {
        "action": "set-protocol",
        "protocol": {"min-reader-version": 1, "min-writer-version": 2},
    },
    "other columns": {
        "action": "set-columns",
        "columns": {
            "type": "struct",
            "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}],
        },
    },
    "other partitioning": {"action": "set-partition-columns", "partition-columns": ["id"]},
    "another comment": {"action": "set-table-comment", "comment": "x"},
    "a domain": {
        "action": "set-domain-metadata",
        "updates": {"delta.clustering": {"clusteringColumns": [["id"]]}},
    },
    "an unknown domain": {"action": "set-domain-metadata", "updates": {"mine": {}}},
    "an unknown domain to go": {"action": "remove-domain-metadata", "domains": ["mine"]},
    "an unknown action": {"action": "do-something"},
    "no action": {},
}


@req("AU-02")
@pytest.mark.parametrize("case", DECLARED)
def test_what_is_declared_and_not_in_the_commit_is_400(served: Served, case: str) -> None:
    stock = make(served.http)
    before = state(served)
    refused = stock.send(stock.change(add_commit(stock.put(1)), DECLARED[case]))
    assert error(refused)[0] == 400
    assert state(served) == before


def test_what_the_commit_changes_and_nobody_declares_is_taken_from_it(table: Stock) -> None:
    changed = metadata(TableId(table.table_id), "id long, item string")
    answer = table.commit(1, changed)
    assert [field["name"] for field in answer.json()["metadata"]["columns"]["fields"]] == [
        "id",
        "item",
    ]


@shows("FI6")
def test_requirements_that_do_not_hold_are_409_and_those_that_are_missing_400(
    served: Served,
) -> None:
    stock = make(served.http)
    commit = add_commit(stock.put(1))
    before = state(served)
    other = {"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}
    right = {"type": "assert-table-uuid", "uuid": stock.table_id}
    stale = {"type": "assert-etag", "etag": "another"}
    for requirements, expected in (
        ([other], (409, "UpdateRequirementConflictException")),
        ([right, stale], (409, "UpdateRequirementConflictException")),
        ([], (400, "InvalidParameterValueException")),
        ([stale], (400, "InvalidParameterValueException")),
        ([right, right], (400, "InvalidParameterValueException")),
        ([{"type": "assert-weather"}], (400, "BadRequestException")),
    ):
        refused = stock.send({"requirements": requirements, "updates": [commit]})
        assert error(refused) == expected
    for updates in ([], [commit, commit], [claim(0), claim(0)]):
        assert error(stock.send({"requirements": [right], "updates": updates}))[0] == 400
    assert state(served) == before


def test_what_was_asserted_holds_also_for_who_only_says_what_is_published(table: Stock) -> None:
    etag = table.load()["metadata"]["etag"]
    table.commit(1)
    table.publish(1)
    stale = table.send(table.change(claim(1), etag="another"))
    assert error(stale) == (409, "UpdateRequirementConflictException")
    assert table.send(table.change(claim(1), etag=etag)).status_code == 200


def test_how_far_a_managed_table_has_come_is_said_by_its_commits_alone(served: Served) -> None:
    stock = make(served.http)
    before = state(served)
    told = {"last-commit-version": 1, "last-commit-timestamp-ms": 1}
    update = {"action": "update-metadata-snapshot-version", **told}
    for updates in ([update], [update, add_commit(stock.put(1))]):
        refused = stock.send(stock.change(*updates))
        assert error(refused) == (400, "InvalidParameterValueException")
    assert state(served) == before


def test_a_commit_is_answered_with_its_own_metadata_also_where_the_log_cannot_be_published(
    served: Served,
) -> None:
    stock = native_table(served)
    etag = served.http.get(f"{BASE}/tables/main.default.ours").json()["properties"]
    native(served, stock.table_id, 1)
    (stock.log / f"{1:020d}.json").write_bytes(b'{"commitInfo":{}}\n')
    stock.timestamp_ms = CLOCK.now_ms() + 1_000
    own = metadata(TableId(stock.table_id), properties={"owner": "me"})
    put = add_commit(stock.put(2, own))
    answers = [stock.send(stock.change(put)), stock.send(stock.change(put))]
    assert [answer.status_code for answer in answers] == [200, 200]
    for answer in answers:
        told = answer.json()
        assert told.keys() == {"metadata"}
        assert told["metadata"]["etag"] == "2"
        assert told["metadata"]["last-commit-version"] == 2
        assert told["metadata"]["properties"]["owner"] == "me"
    assert "owner" not in etag
    assert error(served.http.get(stock.url))[0] == 503


UNIFORM = {
    "iceberg": {
        "metadata-location": "file:///x/v1.metadata.json",
        "converted-delta-version": 1,
        "converted-delta-timestamp": 1,
    }
}


def test_iceberg_metadata_of_others_is_refused_and_not_forgotten(served: Served) -> None:
    key = "delta.universalFormat.enabledFormats"
    stock = stage(served.http, "t", properties={key: "hudi, Iceberg"})
    refused = served.http.post(f"{IN_DEFAULT}/tables", json=stock.create)
    assert error(refused) == (400, "InvalidParameterValueException")
    assert key in refused.text
    stock = make(served.http)
    before = state(served)
    with_block = {**add_commit(stock.put(1)), "uniform": UNIFORM}
    assert error(stock.send(stock.change(with_block)))[0] == 400
    wanted = metadata(TableId(stock.table_id), properties={key: "iceberg"})
    assert error(stock.commit(1, wanted))[0] == 400
    create = {**stage(served.http, "u").create, "uniform": UNIFORM}
    assert error(served.http.post(f"{IN_DEFAULT}/tables", json=create))[0] == 400
    older = {name.replace("-", "_"): of for name, of in stock.put(1).items()}
    body = {"table_id": stock.table_id, "table_uri": stock.location, "commit_info": older}
    commits = f"{BASE}/delta/preview/commits"
    assert served.http.post(commits, json={**body, "uniform": UNIFORM}).status_code == 400
    assert state(served) == before
    assert stock.send(stock.change({**add_commit(stock.put(1)), "uniform": None})).is_success


@pytest.mark.parametrize("way", ["v1", "preview"])
def test_what_is_too_large_to_be_a_commit_is_refused_once(tmp_path: Path, way: str) -> None:
    """Everything but 400, 404 and 409 would be sent again for minutes."""
    limits = Settings(verify_staged=0, commit_limit_bytes=2_000, request_limit_bytes=20_000)
    for served in serving(tmp_path / "lake", limits):
        stock = make(served.http)
        bodies = []
        for pad, size in (("", 2_001), ("x" * 20_000, 0)):
            put = {**stock.put(1), "pad": pad}
            put["file-size"] = size or put["file-size"]
            older = {name.replace("-", "_"): of for name, of in put.items()}
            where = {"table_id": stock.table_id, "table_uri": stock.location}
            newer = stock.change(add_commit(put))
            bodies.append(newer if way == "v1" else {**where, "commit_info": older})
        for body in bodies:
            url = stock.url if way == "v1" else f"{BASE}/delta/preview/commits"
            assert served.http.post(url, json=body).status_code == 400
        large = served.http.post(f"{BASE}/schemas", json={"name": "x" * 20_000})
        assert large.status_code == 413


def test_a_table_that_is_not_there_is_404_for_a_commit(table: Stock) -> None:
    body = table.change(add_commit(table.put(1)))
    refused = table.http.post(f"{IN_DEFAULT}/tables/none", json=body)
    assert error(refused) == (404, "NoSuchTableException")


# What is said to be published


def published_upto(served: Served) -> int | None:
    [entry] = served.catalog.tables()
    return entry.published


@req("PB-01")
@shows("FP7")
def test_what_is_said_to_be_published_is_believed_only_when_it_was_seen(served: Served) -> None:
    stock = make(served.http)
    stock.commit(1)
    refused = stock.send(stock.change(claim(1)))
    assert error(refused) == (400, "BadRequestException")
    assert published_upto(served) == 0
    stock.publish(1)
    assert stock.send(stock.change(claim(1))).status_code == 200
    assert published_upto(served) == 1
    assert stock.send(stock.change(claim(0))).status_code == 200
    assert published_upto(served) == 1
    assert error(stock.send(stock.change(claim(2))))[0] == 400


def test_before_the_first_commit_there_is_nothing_to_publish_and_with_it_nothing_is_heard(
    served: Served,
) -> None:
    stock = make(served.http)
    older = {"table_id": stock.table_id, "table_uri": stock.location}
    commits = f"{BASE}/delta/preview/commits"
    for version in (0, 1):
        assert error(stock.send(stock.change(claim(version))))[0] == 400
        alone = {**older, "latest_backfilled_version": version}
        assert served.http.post(commits, json=alone).status_code == 400
    body = stock.change(add_commit(stock.put(1)), claim(1))
    for _ in range(2):
        assert stock.send(body).status_code == 200
    assert published_upto(served) == 0
    other = make(served.http, "other")
    first = {name.replace("-", "_"): of for name, of in other.put(1).items()}
    where = {"table_id": other.table_id, "table_uri": other.location}
    claimed = {**where, "commit_info": first, "latest_backfilled_version": 7}
    for _ in range(2):
        assert served.http.post(commits, json=claimed).content == b"200"


@req("PB-01")
def test_a_claim_that_comes_with_a_commit_does_not_undo_it(served: Served) -> None:
    stock = make(served.http)
    stock.commit(1)
    unseen = stock.send(stock.change(add_commit(stock.put(2)), claim(1)))
    assert unseen.status_code == 200
    assert published_upto(served) == 0
    stock.publish(1)
    seen = stock.send(stock.change(add_commit(stock.put(3)), claim(1)))
    assert seen.status_code == 200
    assert published_upto(served) == 1
    ahead = stock.send(stock.change(add_commit(stock.put(4)), claim(4)))
    assert error(ahead)[0] == 400
    assert stock.load()["latest-table-version"] == 3


@req("PB-01", "PB-02")
def test_other_bytes_than_were_ratified_are_not_taken_for_published(served: Served) -> None:
    stock = make(served.http)
    stock.commit(1)
    stock.publish(1).write_bytes(b"{}\n")
    assert error(stock.send(stock.change(claim(1))))[0] == 503
    assert error(served.http.get(stock.url))[0] == 503
    assert published_upto(served) == 0


@req("CM-25")
@shows("FX5")
def test_twenty_commits_of_a_client_that_never_publishes_are_all_taken(tmp_path: Path) -> None:
    settings = Settings(verify_staged=0, unpublished_soft=10)
    for served in serving(tmp_path / "lake", settings, publisher=True):
        stock = make(served.http)
        for version in range(1, 21):
            assert stock.commit(version).status_code == 200
        assert stock.load()["latest-table-version"] == 20


# The rest


def test_a_table_is_renamed_and_dropped(http: httpx.Client) -> None:
    stock = make(http)
    make(http, "taken")
    same = http.post(f"{stock.url}/rename", json={"new-name": "t"})
    assert (same.status_code, same.content) == (204, b"")
    taken = http.post(f"{stock.url}/rename", json={"new-name": "taken"})
    assert error(taken) == (409, "AlreadyExistsException")
    assert http.post(f"{stock.url}/rename", json={"new-name": "u"}).status_code == 204
    assert error(http.get(stock.url)) == (404, "NoSuchTableException")
    moved = http.get(f"{IN_DEFAULT}/tables/u").json()
    assert moved["metadata"]["table-uuid"] == stock.table_id
    # Its answer may have been lost.
    assert http.post(f"{stock.url}/rename", json={"new-name": "u"}).status_code == 204
    other = http.post(f"{stock.url}/rename", json={"new-name": "taken"})
    assert error(other) == (404, "NoSuchTableException")
    assert http.delete(f"{IN_DEFAULT}/tables/u").status_code == 204
    assert error(http.delete(f"{IN_DEFAULT}/tables/u")) == (404, "NoSuchTableException")


@req("CM-40", "LC-03")
@pytest.mark.parametrize(
    "url",
    [f"{BASE}/tables/main.default.t", f"{IN_DEFAULT}/tables/t", "/v1/tables/{table_id}"],
    ids=["older REST", "delta/v1", "native"],
)
def test_a_drop_keeps_every_file_and_commits_are_refused_in_both_dialects_until_an_undrop(
    served: Served, url: str
) -> None:
    stock = make(served.http)
    assert stock.commit(1).status_code == 200
    put = stock.put(2)
    newer = stock.change(add_commit(put))
    older = {
        "table_id": stock.table_id,
        "table_uri": stock.location,
        "commit_info": {name.replace("-", "_"): of for name, of in put.items()},
    }
    before = every_file(stock.location)
    assert served.http.delete(url.format(table_id=stock.table_id)).is_success
    assert every_file(stock.location) == before
    assert error(stock.send(newer)) == (404, "NoSuchTableException")
    assert served.http.post(OLDER_COMMITS, json=older).status_code == 404
    assert make(served.http).table_id != stock.table_id  # the name is free
    assert error(stock.send(newer))[0] == 409  # it names another table now
    table_id, back = TableId(stock.table_id), TableName.parse("back")
    served.catalog.undrop_table(table_id, back)
    assert served.catalog.resolve(back).latest == 1
    assert served.http.post(OLDER_COMMITS, json=older).status_code == 200
    assert served.catalog.resolve(table_id).latest == 2


def test_what_opens_a_table_is_one_entry_without_a_secret(table: Stock) -> None:
    for operation in ("READ", "READ_WRITE"):
        told = table.http.get(f"{table.url}/credentials", params={"operation": operation})
        assert told.json()["storage-credentials"] == [
            {"prefix": table.location, "operation": operation, "config": {}}
        ]
    assert error(table.http.get(f"{table.url}/credentials"))[0] == 400
    staged = stage(table.http, "u")
    told = table.http.get(f"{V1}/staging-tables/{staged.table_id}/credentials")
    assert told.json()["storage-credentials"][0]["prefix"] == staged.location
    unknown = table.http.get(f"{V1}/staging-tables/{uuid.uuid4()}/credentials")
    assert error(unknown) == (404, "NotFoundException")


def test_reports_are_kept_added_up_and_shown(served: Served) -> None:
    stock = make(served.http)
    report = {
        "num-files-added": 2,
        "num-bytes-added": 100,
        "num-files-removed": 1,
        "num-bytes-removed": 40,
        "num-rows-inserted": 7,
        "num-rows-updated": None,
    }
    sizes = {"sorted-bin-boundaries": [0, 1], "file-counts": [3, 4], "total-bytes": [5, 6]}
    for version in (2, 1):  # reports come in any order
        report["file-size-histogram"] = {**sizes, "commit-version": version}
        body = {"table-id": stock.table_id, "report": {"commit-report": report}}
        answer = served.http.post(f"{stock.url}/metrics", json=body)
        assert (answer.status_code, answer.content) == (204, b"")
    told = served.http.get(f"/v1/tables/{stock.table_id}/reports").json()
    assert told.pop("lastMs") > 0
    assert told == {
        "commits": 2,
        "filesAdded": 4,
        "bytesAdded": 200,
        "filesRemoved": 2,
        "bytesRemoved": 80,
        "rowsInserted": 14,
        "fileSizes": {
            "sortedBinBoundaries": [0, 1],
            "fileCounts": [3, 4],
            "totalBytes": [5, 6],
            "commitVersion": 2,
        },
    }
    wrong = served.http.post(f"{stock.url}/metrics", json={**body, "table-id": str(uuid.uuid4())})
    assert error(wrong) == (400, "InvalidParameterValueException")
    for nonsense in (
        {"num-files-added": -1},
        {"num-rows-removed": 1 << 60},
        {"file-size-histogram": {"file-counts": [-1]}},
        {"file-size-histogram": {"sorted-bin-boundaries": list(range(2_000))}},
        {"file-size-histogram": {"total-bytes": list(range(2_000))}},
    ):
        wrong_report = {"table-id": stock.table_id, "report": {"commit-report": nonsense}}
        assert error(served.http.post(f"{stock.url}/metrics", json=wrong_report))[0] == 400
    assert served.http.get(f"/v1/tables/{stock.table_id}/reports").json()["commits"] == 2


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    yield from serving(tmp_path / "lake", auth=True)


def test_who_has_no_token_is_401_in_the_words_of_the_dialect(guarded: Served) -> None:
    secret = guarded.catalog.create_token("me")
    for header in ("Bearer", "Bearer wrong"):
        refused = guarded.http.get(f"{IN_DEFAULT}/tables/t", headers={"authorization": header})
        assert error(refused) == (401, "NotAuthorizedException")
    allowed = guarded.http.get(
        f"{IN_DEFAULT}/tables/t", headers={"authorization": f"Bearer {secret}"}
    )
    assert error(allowed) == (404, "NoSuchTableException")


@shows("FS3")
def test_a_log_ahead_of_the_catalog_is_noticed_and_mended(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for served in serving(lake):
        stock = make(served.http)
        stock.commit(1)
        stock.publish(1)
        served.catalog.backup(str(tmp_path / "copy.db"))
        stock.commit(2)
        stock.publish(2)
    for leftover in lake.glob("headgate.db*"):
        leftover.unlink()
    (tmp_path / "copy.db").rename(lake / "headgate.db")
    for served in serving(lake):
        stock.http = served.http
        refused = stock.commit(2)
        assert error(refused) == (400, "BadRequestException")
        assert "headgate fsck" in refused.text
        served.catalog.fsck(repair=True)
        assert stock.load()["latest-table-version"] == 2
        assert error(stock.commit(2)) == (409, "CommitVersionConflictException")
        assert stock.commit(3).status_code == 200
