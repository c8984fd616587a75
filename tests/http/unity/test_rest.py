"""The older REST: catalogs, schemas, tables, what opens them, and how it says no."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.http.unity import preview, rest, v1
from headgate.names import SchemaName
from tests.http.conftest import Served
from tests.http.unity.conftest import (
    BASE,
    CLOCK,
    IN_DEFAULT,
    V1,
    Stock,
    add_commit,
    error,
    make,
    older_error,
)

OPERATIONS = [
    (row.method, row.path) for dialect in (rest, v1, preview) for row in dialect.operations
]
MAKE: dict[str, Any] = {"name": "sales", "catalog_name": "main"}


def test_the_catalog_of_a_new_lake_is_main_with_its_default_schema(http: httpx.Client) -> None:
    [catalog] = http.get(f"{BASE}/catalogs").json()["catalogs"]
    assert catalog["name"] == "main"
    assert http.get(f"{BASE}/catalogs/main").json() == catalog
    [schema] = http.get(f"{BASE}/schemas", params={"catalog_name": "main"}).json()["schemas"]
    assert (schema["full_name"], schema["catalog_name"]) == ("main.default", "main")
    assert http.get(f"{BASE}/schemas/main.default").json() == schema


def test_a_catalog_is_made_used_and_removed(http: httpx.Client) -> None:
    assert http.post(f"{BASE}/catalogs", json={"name": "other"}).json()["name"] == "other"
    again = http.post(f"{BASE}/catalogs", json={"name": "OTHER"})
    assert older_error(again) == (400, "CATALOG_ALREADY_EXISTS")
    assert http.get(f"{BASE}/schemas/other.default").status_code == 200
    http.post(f"{BASE}/schemas", json={"name": "s", "catalog_name": "other"})
    refused = http.delete(f"{BASE}/catalogs/other")
    assert older_error(refused) == (400, "FAILED_PRECONDITION")
    gone = http.delete(f"{BASE}/catalogs/other", params={"force": "true"})
    assert (gone.status_code, gone.content) == (200, b"200")
    assert older_error(http.get(f"{BASE}/catalogs/other")) == (404, "CATALOG_NOT_FOUND")


@pytest.mark.parametrize("kind", ["catalogs", "schemas"])
def test_tables_are_stored_under_the_storage_root_of_their_catalog_or_schema(
    served: Served, tmp_path: Path, kind: str
) -> None:
    http, root = served.http, f"file://{tmp_path}/allowed/root"
    served.catalog.add_location(f"file://{tmp_path}/allowed")
    catalog = {"name": "other"} | ({"storage_root": root} if kind == "catalogs" else {})
    schema = {"name": "sales", "catalog_name": "other"}
    schema |= {"storage_root": f"{root}/"} if kind == "schemas" else {}
    made = {
        "catalogs": http.post(f"{BASE}/catalogs", json=catalog).json(),
        "schemas": http.post(f"{BASE}/schemas", json=schema).json(),
    }
    other = "catalogs" if kind == "schemas" else "schemas"
    assert "storage_root" not in made[other]
    shown = made[kind]
    assert shown["storage_root"] == root
    own_id = shown["id" if kind == "catalogs" else "schema_id"]
    assert shown["storage_location"] == f"{root}/__unitystorage/{kind}/{own_id}"
    name = "other" if kind == "catalogs" else "other.sales"
    assert http.get(f"{BASE}/{kind}/{name}").json() == shown

    wanted = f"{shown['storage_location']}/tables/"
    in_sales = f"{V1}/catalogs/other/schemas/sales"
    staged = http.post(f"{in_sales}/staging-tables", json={"name": "t"}).json()
    assert staged["location"] == f"{wanted}{staged['table-id']}"
    parts = {"name": "t", "catalog_name": "other", "schema_name": "sales"}
    older = http.post(f"{BASE}/staging-tables", json=parts).json()
    assert older["staging_location"] == f"{wanted}{older['id']}"
    native = http.post("/v1/staging-tables", json={"namespace": "other.sales"}).json()
    assert native["location"] == f"{wanted}{native['tableId']}"
    # Others stay where they were, and a rename changes nothing of that.
    elsewhere = http.post(f"{IN_DEFAULT}/staging-tables", json={"name": "t"}).json()
    assert tmp_path.name in elsewhere["location"]
    assert "/allowed/" not in elsewhere["location"]
    http.patch(f"{BASE}/catalogs/other", json={"new_name": "renamed"})
    moved = http.post(f"{in_sales.replace('other', 'renamed')}/staging-tables", json={"name": "t"})
    assert moved.json()["location"].startswith(wanted)

    served.catalog.remove_location(f"file://{tmp_path}/allowed")
    refused = http.post(f"{BASE}/staging-tables", json={**parts, "catalog_name": "renamed"})
    assert older_error(refused) == (403, "PERMISSION_DENIED")


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("file:///nowhere/allowed", (403, "PERMISSION_DENIED")),
        ("s3://bucket/x", (403, "PERMISSION_DENIED")),
        ("relative", (400, "INVALID_ARGUMENT")),
        ("memory://x", (400, "INVALID_ARGUMENT")),
        ("file:///elsewhere/__unitystorage/x", (400, "INVALID_ARGUMENT")),
        ("file:///elsewhere/../nowhere", (400, "INVALID_ARGUMENT")),
    ],
)
def test_a_storage_root_that_is_not_allowed_is_refused_and_nothing_made(
    served: Served, root: str, expected: tuple[int, str]
) -> None:
    before = served.catalog.namespaces()
    for kind, body in (
        ("catalogs", {"name": "other"}),
        ("schemas", {"name": "sales", "catalog_name": "main"}),
    ):
        refused = served.http.post(f"{BASE}/{kind}", json={**body, "storage_root": root})
        assert older_error(refused) == expected
        native = served.http.post("/v1/namespaces", json={"name": "x", "storageRoot": root})
        assert native.status_code in (400, 403)
    assert served.catalog.namespaces() == before


def test_a_storage_root_within_a_table_is_refused(served: Served, table: Stock) -> None:
    place = "file:///elsewhere/mine"
    served.http.post("/v1/tables", json={"name": "ext", "external": {"location": place}})
    for location in (table.location, place):
        within = {"name": "x", "storage_root": f"{location}/inner"}
        refused = served.http.post(f"{BASE}/catalogs", json=within)
        assert refused.status_code == 400, refused.text
    assert [name.catalog for name in served.catalog.namespaces()] == ["main"]


def test_a_storage_root_within_the_folder_of_all_tables_is_refused(served: Served) -> None:
    root = f"{served.catalog.status().root}/tables/x"
    for kind, body in (
        ("catalogs", {"name": "other"}),
        ("schemas", {"name": "sales", "catalog_name": "main"}),
    ):
        refused = served.http.post(f"{BASE}/{kind}", json={**body, "storage_root": root})
        assert refused.status_code == 400, refused.text


def test_catalogs_and_schemas_tell_when_they_were_made(http: httpx.Client) -> None:
    since_ms = CLOCK.now_ms()
    schema = http.post(f"{BASE}/schemas", json=MAKE).json()
    assert since_ms <= schema["created_at"] <= CLOCK.now_ms()
    assert http.get(f"{BASE}/schemas/main.sales").json() == schema
    listed = http.get(f"{BASE}/schemas", params={"catalog_name": "main"}).json()["schemas"]
    assert schema in listed
    [catalog] = http.get(f"{BASE}/catalogs").json()["catalogs"]
    assert catalog["created_at"] == min(one["created_at"] for one in listed)
    http.delete(f"{BASE}/schemas/main.sales")
    http.delete(f"{BASE}/schemas/main.default")
    assert "created_at" not in http.get(f"{BASE}/catalogs/main").json()  # it was never created


def test_a_schema_is_made_once_and_is_there_for_the_native_api(served: Served) -> None:
    made = served.http.post(f"{BASE}/schemas", json=MAKE)
    assert made.json()["full_name"] == "main.sales"
    again = served.http.post(f"{BASE}/schemas", json=MAKE)
    assert older_error(again) == (400, "SCHEMA_ALREADY_EXISTS")
    assert "main.sales" in served.http.get("/v1/namespaces").json()["namespaces"]
    unknown = served.http.post(f"{BASE}/schemas", json={**MAKE, "catalog_name": "none"})
    assert older_error(unknown) == (404, "CATALOG_NOT_FOUND")


def test_an_answer_that_says_nothing_has_the_body_200(http: httpx.Client) -> None:
    make(http)
    dropped = http.delete(f"{BASE}/tables/main.default.t")
    assert (dropped.status_code, dropped.content) == (200, b"200")
    assert dropped.headers["content-type"] == "application/json"
    http.post(f"{BASE}/schemas", json=MAKE)
    assert http.delete(f"{BASE}/schemas/main.sales").content == b"200"


def test_a_schema_with_tables_goes_only_by_force_and_its_tables_can_come_back(
    served: Served,
) -> None:
    stock = make(served.http)
    refused = served.http.delete(f"{BASE}/schemas/main.default")
    assert older_error(refused) == (400, "FAILED_PRECONDITION")
    assert served.http.get(stock.url).status_code == 200
    gone = served.http.delete(f"{BASE}/schemas/main.default", params={"force": "true"})
    assert gone.content == b"200"
    assert older_error(served.http.get(f"{BASE}/schemas/main.default")) == (404, "SCHEMA_NOT_FOUND")
    [entry] = served.catalog.tables(dropped=True)
    assert entry.table_id == stock.table_id


def test_catalogs_schemas_and_tables_come_in_pages(http: httpx.Client) -> None:
    for name in ("a", "b", "c"):
        http.post(f"{BASE}/catalogs", json={"name": f"y{name}"})
        http.post(f"{BASE}/schemas", json={"name": f"x{name}", "catalog_name": "main"})
        make(http, name)
    kinds: dict[str, dict[str, str]] = {
        "catalogs": {},
        "schemas": {"catalog_name": "main"},
        "tables": {"catalog_name": "main", "schema_name": "default"},
    }
    expected = {
        "catalogs": ["main", "ya", "yb", "yc"],
        "schemas": ["default", "xa", "xb", "xc"],
        "tables": ["a", "b", "c"],
    }
    for kind, where in kinds.items():
        found: list[str] = []
        token: dict[str, str] = {}
        while True:
            page = http.get(f"{BASE}/{kind}", params={**where, "max_results": 2, **token}).json()
            assert len(page[kind]) <= 2
            found += [item["name"] for item in page[kind]]
            if "next_page_token" not in page:
                break
            token = {"page_token": page["next_page_token"]}
        wanted = expected[kind]
        assert found == wanted
        whole = http.get(f"{BASE}/{kind}", params={**where, "max_results": 0}).json()
        assert len(whole[kind]) == len(wanted)
        negative = http.get(f"{BASE}/{kind}", params={**where, "max_results": -1})
        assert older_error(negative) == (400, "INVALID_ARGUMENT")


def test_a_listed_table_has_all_that_clients_do_not_check_for_null(table: Stock) -> None:
    where = {"catalog_name": "main", "schema_name": "default"}
    [listed] = table.http.get(f"{BASE}/tables", params=where).json()["tables"]
    assert listed == table.http.get(f"{BASE}/tables/main.default.t").json()
    assert listed["table_type"] == "MANAGED"
    assert listed["data_source_format"] == "DELTA"
    assert listed["storage_location"] == table.location
    assert listed["table_id"] == table.table_id
    assert listed["created_at"] > 0
    assert listed["properties"]["delta.feature.catalogManaged"] == "supported"
    [column] = listed["columns"]
    assert {k: column[k] for k in ("name", "type_text", "type_name", "position", "nullable")} == {
        "name": "id",
        "type_text": "bigint",
        "type_name": "LONG",
        "position": 0,
        "nullable": True,
    }
    assert (column["type_precision"], column["type_scale"]) == (0, 0)
    field = json.loads(column["type_json"])
    assert field == {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    brief = {**where, "omit_columns": "true", "omit_properties": "true"}
    [short] = table.http.get(f"{BASE}/tables", params=brief).json()["tables"]
    assert "columns" not in short
    assert "properties" not in short


def test_columns_of_every_type_are_told_in_the_words_of_ddl(http: httpx.Client) -> None:
    schema = (
        "d decimal(10,2), i int, s smallint, t tinyint, f float, g double, b boolean, x binary, "
        "y date, z timestamp, a array<struct<n: int>>, m map<string,bigint>, v string"
    )
    make(http, schema=schema)
    columns = http.get(f"{BASE}/tables/main.default.t").json()["columns"]
    assert [column["type_text"] for column in columns] == [
        "decimal(10,2)",
        *("int", "smallint", "tinyint", "float", "double", "boolean", "binary", "date"),
        *("timestamp", "array<struct<n:int>>", "map<string,bigint>", "string"),
    ]
    assert [column["type_name"] for column in columns] == [
        *("DECIMAL", "INT", "SHORT", "BYTE", "FLOAT", "DOUBLE", "BOOLEAN", "BINARY", "DATE"),
        *("TIMESTAMP", "ARRAY", "MAP", "STRING"),
    ]
    assert (columns[0]["type_precision"], columns[0]["type_scale"]) == (10, 2)


def test_no_map_and_no_array_is_null_in_any_answer(http: httpx.Client) -> None:
    stock = make(http)
    place = "file:///elsewhere/ext"
    body = {
        "name": "ext",
        "catalog_name": "main",
        "schema_name": "default",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": place,
        "columns": [],
    }
    assert http.post(f"{BASE}/tables", json=body).status_code == 200
    where = {"catalog_name": "main", "schema_name": "default"}
    answers = [
        http.get(f"{BASE}/catalogs"),
        http.get(f"{BASE}/schemas", params={"catalog_name": "main"}),
        http.get(f"{BASE}/tables", params=where),
        http.get(f"{BASE}/tables/main.default.ext"),
        http.get(stock.url),
        http.get(f"{IN_DEFAULT}/tables/ext"),
    ]
    for answer in answers:
        assert answer.status_code == 200
        assert not [value for value in values_of(answer.json()) if value is None]


def values_of(value: Any) -> Iterator[Any]:
    yield value
    within = value.values() if isinstance(value, dict) else value
    for inner in within if isinstance(value, dict | list) else ():
        yield from values_of(inner)


def test_an_external_table_is_named_told_and_dropped_by_both_apis(served: Served) -> None:
    body = {
        "name": "ext",
        "catalog_name": "main",
        "schema_name": "default",
        "table_type": "EXTERNAL",
        "data_source_format": "PARQUET",
        "storage_location": "file:/elsewhere//ext/",
        "columns": [
            {"name": "id", "type_text": "bigint"},
            {"name": "d", "type_json": '{"name":"d","type":"decimal(9,1)","nullable":true}'},
        ],
    }
    made = served.http.post(f"{BASE}/tables", json=body)
    assert made.status_code == 200, made.text
    shown = served.http.get(f"{BASE}/tables/main.default.ext").json()
    assert shown == made.json()
    assert (shown["table_type"], shown["data_source_format"]) == ("EXTERNAL", "PARQUET")
    assert shown["storage_location"] == "file:///elsewhere/ext"
    assert [column["type_text"] for column in shown["columns"]] == ["bigint", "decimal(9,1)"]
    assert served.http.get("/v1/names/ext").json()["catalogManaged"] is False
    assert served.http.delete(f"{BASE}/tables/main.default.ext").content == b"200"
    assert served.http.get("/v1/names/ext").status_code == 404


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/tables/main.default.none", "TABLE_NOT_FOUND"),
        ("/tables/main.none.t", "SCHEMA_NOT_FOUND"),
        ("/tables/none.default.t", "CATALOG_NOT_FOUND"),
        ("/schemas/main.none", "SCHEMA_NOT_FOUND"),
        ("/schemas/none.none", "CATALOG_NOT_FOUND"),
        ("/catalogs/none", "CATALOG_NOT_FOUND"),
        ("/schemas?catalog_name=none", "CATALOG_NOT_FOUND"),
        ("/tables?catalog_name=main&schema_name=none", "SCHEMA_NOT_FOUND"),
        # What can be no name is that of no table: Spark asks so for paths.
        ("/tables/t", "TABLE_NOT_FOUND"),
        ("/tables/a.b.c.d", "TABLE_NOT_FOUND"),
        ("/tables/main.delta.file:%2F%2F%2Fa%2Fb", "TABLE_NOT_FOUND"),
    ],
)
def test_what_is_not_there_is_404_by_its_kind(http: httpx.Client, path: str, code: str) -> None:
    assert older_error(http.get(f"{BASE}{path}")) == (404, code)


@pytest.mark.parametrize(
    "path",
    [
        "/schemas/x",
        "/schemas",
        "/tables",
    ],
)
def test_what_is_no_name_is_400(http: httpx.Client, path: str) -> None:
    assert older_error(http.get(f"{BASE}{path}")) == (400, "INVALID_ARGUMENT")


def test_paths_are_taken_decoded(http: httpx.Client) -> None:
    stock = make(http, "my_table")
    assert http.get(f"{BASE}/tables/main%2Edefault%2Emy%5Ftable").status_code == 200
    assert http.get(stock.url.replace("my_table", "my%5Ftable")).status_code == 200
    odd = stock.url.replace("/tables/", "/t%61bles/")
    assert http.get(odd).status_code == 200


def test_a_table_and_a_place_are_opened_without_a_secret(table: Stock) -> None:
    body = {"table_id": table.table_id, "operation": "READ_WRITE"}
    opened = table.http.post(f"{BASE}/temporary-table-credentials", json=body)
    assert opened.json() == {"url": table.location}
    staged = table.http.post(
        f"{BASE}/staging-tables",
        json={"name": "new", "catalog_name": "main", "schema_name": "default"},
    ).json()
    body = {"table_id": staged["id"], "operation": "READ_WRITE"}
    opened = table.http.post(f"{BASE}/temporary-table-credentials", json=body)
    assert opened.json() == {"url": staged["staging_location"]}
    path = {"url": "file:/elsewhere//place/", "operation": "PATH_READ"}
    opened = table.http.post(f"{BASE}/temporary-path-credentials", json=path)
    assert opened.json() == {"url": "file:///elsewhere/place"}
    wrong = table.http.post(
        f"{BASE}/temporary-table-credentials", json={**body, "operation": "EVERYTHING"}
    )
    assert older_error(wrong) == (400, "INVALID_ARGUMENT")


def test_the_summary_names_this_catalog_and_always_the_same(http: httpx.Client) -> None:
    first = http.get(f"{BASE}/metastore_summary").json()
    assert first["metastore_id"]
    assert http.get(f"{BASE}/metastore_summary").json() == first


def test_a_catalog_and_a_schema_are_renamed_and_keep_id_tables_and_remarks(
    http: httpx.Client,
) -> None:
    declared = {"comment": "ours", "properties": {"owner": "me"}}
    made = http.post(f"{BASE}/catalogs", json={"name": "old", **declared}).json()
    schema = http.post(
        f"{BASE}/schemas", json={"name": "s", "catalog_name": "old", **declared}
    ).json()
    new_name = {"new_name": "new", "comment": "theirs"}
    changed = http.patch(f"{BASE}/catalogs/old", json=new_name)
    assert changed.status_code == 200, changed.text
    assert http.patch(f"{BASE}/catalogs/old", json=new_name).json() == changed.json()  # replayed
    assert changed.json() == {
        **made,
        "name": "new",
        "comment": "theirs",
        "updated_at": changed.json()["updated_at"],
    }
    assert older_error(http.get(f"{BASE}/catalogs/old")) == (404, "CATALOG_NOT_FOUND")
    moved = http.get(f"{BASE}/schemas/new.s").json()
    assert moved == {**schema, "catalog_name": "new", "full_name": "new.s"}
    renamed = http.patch(f"{BASE}/schemas/new.s", json={"new_name": "t"}).json()
    assert http.patch(f"{BASE}/schemas/new.s", json={"new_name": "t"}).json() == renamed
    assert (renamed["full_name"], renamed["schema_id"]) == ("new.t", schema["schema_id"])
    assert (renamed["comment"], renamed["properties"]) == ("ours", {"owner": "me"})
    assert older_error(http.get(f"{BASE}/schemas/new.s")) == (404, "SCHEMA_NOT_FOUND")
    # The old names are free, for others.
    again = http.post(f"{BASE}/catalogs", json={"name": "old"}).json()
    assert again["id"] != made["id"]
    assert "comment" not in again


def test_a_schema_with_stock_tables_is_renamed(table: Stock) -> None:
    assert table.commit(1).status_code == 200
    before = table.http.get(f"{BASE}/schemas/main.default").json()
    renamed = table.http.patch(f"{BASE}/schemas/main.default", json={"new_name": "other"})
    assert renamed.status_code == 200, renamed.text
    assert renamed.json()["schema_id"] == before["schema_id"]  # although it came with the lake
    shown = table.http.get(f"{BASE}/tables/main.other.t").json()
    assert shown["table_id"] == table.table_id
    assert older_error(table.http.get(f"{BASE}/tables/main.default.t"))[0] == 404
    commit = table.change(add_commit(table.put(2)))
    assert table.http.post(table.url.replace("default", "other"), json=commit).status_code == 200


def test_a_name_that_is_taken_or_cannot_change_is_refused_with_all_that_comes_with_it(
    http: httpx.Client,
) -> None:
    for name in ("a", "b"):
        http.post(f"{BASE}/catalogs", json={"name": name})
        http.post(f"{BASE}/schemas", json={"name": name, "catalog_name": "main"})
    cases = [
        ("catalogs/a", "B", (400, "CATALOG_ALREADY_EXISTS")),
        ("catalogs/main", "other", (400, "INVALID_ARGUMENT")),
        ("catalogs/none", "other", (404, "CATALOG_NOT_FOUND")),
        ("catalogs/none", "a", (404, "CATALOG_NOT_FOUND")),
        ("catalogs/a", "Main", (400, "CATALOG_ALREADY_EXISTS")),
        ("catalogs/a", "a.b", (400, "INVALID_ARGUMENT")),
        ("schemas/main.a", "B", (400, "SCHEMA_ALREADY_EXISTS")),
        ("schemas/main.none", "other", (404, "SCHEMA_NOT_FOUND")),
        ("schemas/main.none", "a", (404, "SCHEMA_NOT_FOUND")),
        ("schemas/main.a", "", (400, "INVALID_ARGUMENT")),
    ]
    for path, name, expected in cases:
        before = http.get(f"{BASE}/{path}").json()
        changed = http.patch(f"{BASE}/{path}", json={"new_name": name, "comment": "x"})
        assert older_error(changed) == expected
        assert http.get(f"{BASE}/{path}").json() == before


def test_no_catalog_takes_the_name_of_an_empty_main(http: httpx.Client) -> None:
    http.post(f"{BASE}/catalogs", json={"name": "a"})
    assert http.delete(f"{BASE}/schemas/main.default").content == b"200"
    refused = http.patch(f"{BASE}/catalogs/a", json={"new_name": "main"})
    assert older_error(refused) == (400, "CATALOG_ALREADY_EXISTS")


def test_a_rename_that_another_carried_out_is_no_replay(http: httpx.Client) -> None:
    for name in ("a", "b"):
        http.post(f"{BASE}/catalogs", json={"name": name})
        http.post(f"{BASE}/schemas", json={"name": name, "catalog_name": "main"})
    for kind, prefix, code in (
        ("catalogs", "", "CATALOG_NOT_FOUND"),
        ("schemas", "main.", "SCHEMA_NOT_FOUND"),
    ):
        http.patch(f"{BASE}/{kind}/{prefix}a", json={"new_name": "c"})
        http.delete(f"{BASE}/{kind}/{prefix}b", params={"force": "true"})
        refused = http.patch(f"{BASE}/{kind}/{prefix}b", json={"new_name": "c"})
        assert older_error(refused) == (404, code)


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (("catalogs", {"name": "other"}), "catalogs/Other"),
        (("schemas", {"name": "sales", "catalog_name": "main"}), "schemas/MAIN.sales"),
    ],
)
def test_what_is_said_of_a_catalog_or_a_schema_is_kept_and_goes_with_it(
    served: Served, made: tuple[str, dict[str, str]], path: str
) -> None:
    http, (kind, body) = served.http, made
    declared = {"comment": "ours", "properties": {"owner": "me", "none": None}}
    shown = http.post(f"{BASE}/{kind}", json={**body, **declared}).json()
    assert (shown["comment"], shown["properties"]) == ("ours", {"owner": "me"})
    assert shown["updated_at"] == shown["created_at"]
    assert http.get(f"{BASE}/{path}").json() == shown
    listed = http.get(f"{BASE}/{kind}", params={"catalog_name": "main"}).json()[kind]
    assert shown in listed
    changed = http.patch(f"{BASE}/{path}", json={"comment": "theirs"}).json()
    assert (changed["comment"], changed["properties"]) == ("theirs", {"owner": "me"})
    assert changed["updated_at"] >= shown["updated_at"]
    assert http.patch(f"{BASE}/{path}", json={"comment": "theirs"}).json() == changed
    cleared = http.patch(f"{BASE}/{path}", json={"comment": "", "properties": {}}).json()
    assert cleared["comment"] == ""
    assert "properties" not in cleared
    http.patch(f"{BASE}/{path}", json=declared)
    assert http.get(f"{BASE}/{path}").json()["comment"] == "ours"
    others = [row for row in listed if row["name"] != body["name"]]
    assert others
    assert not [row for row in others if "comment" in row]
    assert http.delete(f"{BASE}/{path}").content == b"200"
    served.catalog.create_namespace(SchemaName(body.get("catalog_name", "other"), "sales"))
    again = http.get(f"{BASE}/{path}").json()
    assert again["name"] == body["name"]
    assert "comment" not in again
    assert "properties" not in again


def test_an_empty_token_is_taken_where_nobody_asks_for_one(http: httpx.Client) -> None:
    for header in ("Bearer", "Bearer ", "Bearer x"):
        answer = http.get(f"{BASE}/catalogs", headers={"authorization": header})
        assert answer.status_code == 200


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"null", b'{"name": null}', b"\xff"])
def test_a_body_that_is_none_is_400(http: httpx.Client, raw: bytes) -> None:
    answer = http.post(f"{BASE}/schemas", content=raw)
    assert older_error(answer) == (400, "INVALID_ARGUMENT")


NOWHERE = ["", "/", "/nothing", "/tables/a/b", "/functions", "/delta/v2/x", "/delta/v1x", "/%FF"]
NOWHERE_NEWER = ["/delta/v1", "/delta/v1/", "/delta/v1/catalogs/main", "/delta/v1/%00"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_what_leads_nowhere_is_told_in_the_form_of_its_dialect(
    http: httpx.Client, method: str
) -> None:
    for path in NOWHERE:
        assert older_error(http.request(method, f"{BASE}{path}")) == (404, "NOT_FOUND")
    for path in NOWHERE_NEWER:
        assert error(http.request(method, f"{BASE}{path}")) == (404, "NotFoundException")
    beside = http.request(method, f"{BASE}x")
    assert beside.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_another_method_is_405_in_the_form_of_the_dialect(
    http: httpx.Client, operation: tuple[str, str]
) -> None:
    _, path = operation
    is_newer = path.startswith(f"{BASE}/delta/v1/")
    expected = (405, "BadRequestException") if is_newer else (405, "INVALID_ARGUMENT")
    allowed = {method for method, of in OPERATIONS if of == path}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - allowed:
        answer = http.request(method, re.sub(r"\{\w+\}", "x", path))
        assert (error if is_newer else older_error)(answer) == expected
        assert set(answer.headers["allow"].split(", ")) == allowed
