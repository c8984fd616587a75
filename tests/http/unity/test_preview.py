"""`delta/preview/commits`: committing, and asking for commits with a body in a GET."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headgate.protocol.actions import TableId
from tests.http.conftest import Served
from tests.http.unity.conftest import BASE, CLOCK, Stock, file_bytes, make, older_error
from tests.http.unity.v1_requests import native, native_table, state
from tests.kit import req, shows
from tests.kit.builders import add, metadata, protocol

COMMITS = f"{BASE}/delta/preview/commits"
SAIL = {"User-Agent": "Sail/0.7.2"}
TABLE_ID = "io.unitycatalog.tableId"


def body_of(stock: Stock, commit: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Say a commit in the older words."""
    body: dict[str, Any] = {"table_id": stock.table_id, "table_uri": stock.location, **more}
    if commit is not None:
        body["commit_info"] = {key.replace("-", "_"): value for key, value in commit.items()}
    return body


def commit(stock: Stock, version: int, *actions: Any, **more: Any) -> httpx.Response:
    return stock.http.post(COMMITS, json=body_of(stock, stock.put(version, *actions), **more))


def asked(stock: Stock, start: int = 1, **more: Any) -> dict[str, Any]:
    """Ask as Sail and the JVM do: a GET with a body."""
    body = {"table_id": stock.table_id, "table_uri": stock.location, "start_version": start, **more}
    response = stock.http.request("GET", COMMITS, json=body, headers=SAIL)
    assert response.status_code == 200, response.text
    return dict(response.json())


@req("CM-48")
def test_a_commit_is_answered_with_200_in_its_body(table: Stock) -> None:
    answer = commit(table, 1)
    assert (answer.status_code, answer.content) == (200, b"200")
    assert answer.headers["content-type"] == "application/json"
    found = asked(table)
    assert found["latest_table_version"] == 1
    [listed] = found["commits"]
    assert listed["version"] == 1
    assert (table.log / "_staged_commits" / listed["file_name"]).is_file()


def test_a_new_table_has_no_commits_and_version_0(table: Stock) -> None:
    assert asked(table) == {"commits": [], "latest_table_version": 0}


@shows("FX19")
def test_every_version_of_the_range_is_named_newest_first(served: Served) -> None:
    stock = native_table(served)
    native(served, stock.table_id, 1)
    stock.timestamp_ms = CLOCK.now_ms() + 1_000
    for version in (2, 3, 4):
        assert commit(stock, version).status_code == 200
    lost = stock.put(2)
    refused = stock.http.post(COMMITS, json=body_of(stock, lost))
    assert older_error(refused) == (409, "COMMIT_VERSION_CONFLICT")
    served.catalog.publish(TableId(stock.table_id), 2)  # type: ignore[arg-type]
    found = asked(stock)
    assert found["latest_table_version"] == 4
    assert [listed["version"] for listed in found["commits"]] == [4, 3, 2, 1]
    names = [listed["file_name"] for listed in found["commits"]]
    assert lost["file-name"] not in names
    assert [name.startswith("0000") for name in names] == [True, True, False, False]
    for name, version in zip(names[2:], (2, 1), strict=True):
        assert name == f"{stock.location}/_delta_log/{version:020d}.json"
        assert Path(name.removeprefix("file://")).is_file()
    for name in names[:2]:
        assert (stock.log / "_staged_commits" / name).is_file()
    for listed in found["commits"]:
        assert listed["file_size"] > 0
        assert listed["timestamp"] > 0
        assert listed["file_modification_timestamp"] > 0
    assert [c["version"] for c in asked(stock, 2, end_version=3)["commits"]] == [3, 2]
    assert [c["version"] for c in asked(stock, 0)["commits"]] == [4, 3, 2, 1]
    assert asked(stock, 9)["commits"] == []


@req("CA-04")
def test_others_than_sail_are_told_of_staged_files_alone(served: Served) -> None:
    """The Java kernel refuses an answer that names any other."""
    stock = make(served.http)
    for version in (1, 2):
        assert commit(stock, version).status_code == 200
    wanted = {"table_id": stock.table_id, "table_uri": stock.location, "start_version": 0}

    def listed(**more: int) -> tuple[list[int], int]:
        answer = served.http.request("GET", COMMITS, json={**wanted, **more}).json()
        folder = stock.log / "_staged_commits"
        assert all((folder / row["file_name"]).is_file() for row in answer["commits"])
        return [row["version"] for row in answer["commits"]], answer["latest_table_version"]

    assert listed() == ([2, 1], 2)
    assert listed(end_version=1) == ([1], 2)
    native(served, stock.table_id, 3)
    stock.timestamp_ms = CLOCK.now_ms() + 1_000
    assert commit(stock, 4).status_code == 200
    assert listed() == ([4], 4)
    assert [row["version"] for row in asked(stock)["commits"]] == [4, 3, 2, 1]


def test_300_versions_come_in_one_answer(served: Served) -> None:
    stock = native_table(served)
    for version in range(1, 301):
        assert native(served, stock.table_id, version).status_code == 200
    assert [c["version"] for c in asked(stock)["commits"]] == list(range(300, 0, -1))


def test_the_range_may_stand_in_the_query(table: Stock) -> None:
    commit(table, 1)
    where = {"table_id": table.table_id, "table_uri": table.location, "start_version": 1}
    assert table.http.get(COMMITS, params=where, headers=SAIL).json() == asked(table)
    refused = table.http.get(COMMITS)
    assert older_error(refused) == (400, "INVALID_ARGUMENT")
    assert "start_version" in refused.text


@pytest.mark.parametrize("form", ["file:{}", "{}", "file://{}/", "file:////{}"])
def test_a_place_may_be_spelled_in_every_form(table: Stock, form: str) -> None:
    spelled = form.format(table.location.removeprefix("file://"))
    body = {**body_of(table, table.put(1)), "table_uri": spelled}
    assert table.http.post(COMMITS, json=body).status_code == 200
    wanted = {"table_id": table.table_id, "table_uri": spelled, "start_version": 1}
    assert table.http.request("GET", COMMITS, json=wanted).json()["latest_table_version"] == 1


def test_the_same_commit_again_is_200_in_either_dialect(served: Served) -> None:
    stock = make(served.http)
    put = stock.put(1)
    body = body_of(stock, put)
    assert stock.http.post(COMMITS, json=body).status_code == 200
    before = state(served)
    assert stock.http.post(COMMITS, json=body).content == b"200"
    same = stock.change({"action": "add-commit", "commit": put})
    assert stock.send(same).status_code == 200
    assert state(served) == before


@req("CM-42")
@shows("FC6")
def test_a_transaction_is_not_committed_at_a_second_version(table: Stock) -> None:
    txn_id = str(uuid.uuid4())
    first = table.put(1, txn_id=txn_id)
    assert table.http.post(COMMITS, json=body_of(table, first)).status_code == 200
    again = table.http.post(COMMITS, json=body_of(table, table.put(2, txn_id=txn_id)))
    assert older_error(again) == (400, "FAILED_PRECONDITION")
    assert "already committed as version 1" in again.text


@req("EN-01")
@shows("FX25")
def test_the_id_of_a_table_cannot_be_altered(served: Served) -> None:
    stock = make(served.http)
    own = metadata(TableId(stock.table_id))
    before = state(served)
    for changed in ({**own.configuration, TABLE_ID: "x"}, {}):
        content = msgspec.structs.replace(own, configuration=changed)
        declared = {"properties": {"properties": changed}}
        refused = commit(stock, 1, content, metadata=declared)
        assert older_error(refused) == (400, "INVALID_ARGUMENT")
        silently = commit(stock, 1, content)
        assert older_error(silently) == (400, "INVALID_ARGUMENT")
    assert state(served) == before


@req("AU-02")
def test_metadata_is_taken_from_the_commit_and_may_not_be_said_otherwise(table: Stock) -> None:
    own = metadata(TableId(table.table_id), properties={"owner": "me"})
    changed = msgspec.structs.replace(own, description="new")
    right = {"description": "new", "properties": {"properties": own.configuration}}
    wrong = {"description": "old"}
    refused = commit(table, 1, changed, metadata=wrong)
    assert older_error(refused) == (400, "INVALID_ARGUMENT")
    assert commit(table, 1, changed, metadata=right).status_code == 200
    shown = table.http.get(f"{BASE}/tables/main.default.t").json()
    assert (shown["comment"], shown["properties"]["owner"]) == ("new", "me")
    undeclared = msgspec.structs.replace(own, description="newer")
    assert commit(table, 2, undeclared).status_code == 200
    assert table.http.get(f"{BASE}/tables/main.default.t").json()["comment"] == "newer"


@req("PB-01")
def test_what_is_published_is_believed_only_when_it_was_seen(served: Served) -> None:
    stock = make(served.http)
    commit(stock, 1)
    claim = body_of(stock, latest_backfilled_version=1)
    refused = stock.http.post(COMMITS, json=claim)
    assert older_error(refused) == (400, "FAILED_PRECONDITION")
    stock.publish(1)
    assert stock.http.post(COMMITS, json=claim).content == b"200"
    [entry] = served.catalog.tables()
    assert entry.published == 1
    assert commit(stock, 2, latest_backfilled_version=1).status_code == 200
    ahead = commit(stock, 3, latest_backfilled_version=3)
    assert older_error(ahead) == (400, "INVALID_ARGUMENT")


REFUSED: dict[str, tuple[dict[str, Any], tuple[int, str]]] = {
    "an unknown table": ({"table_id": str(uuid.uuid4())}, (404, "NOT_FOUND")),
    "no id": ({"table_id": "x"}, (400, "INVALID_ARGUMENT")),
    "another place": ({"table_uri": "file:///elsewhere"}, (400, "INVALID_ARGUMENT")),
    "no place": ({"table_uri": "ftp://x/y"}, (400, "INVALID_ARGUMENT")),
    "nothing at all": ({"commit_info": None}, (400, "INVALID_ARGUMENT")),
    "metadata without a commit": (
        {"commit_info": None, "latest_backfilled_version": 0, "metadata": {"description": "x"}},
        (400, "INVALID_ARGUMENT"),
    ),
    "metadata without a part": ({"metadata": {}}, (400, "INVALID_ARGUMENT")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_and_changes_nothing(served: Served, case: str) -> None:
    changed, expected = REFUSED[case]
    stock = make(served.http)
    body = {**body_of(stock, stock.put(1)), **changed}
    before = state(served)
    assert older_error(served.http.post(COMMITS, json=body)) == expected
    assert state(served) == before


def test_a_gap_and_a_first_commit_that_is_not_version_1_are_400(table: Stock) -> None:
    assert older_error(commit(table, 5)) == (400, "INVALID_ARGUMENT")
    assert older_error(commit(table, 0)) == (400, "INVALID_ARGUMENT")
    assert commit(table, 1).status_code == 200


def test_a_table_is_made_in_the_older_way_and_again_is_200(served: Served) -> None:
    http = served.http
    name = {"name": "old", "catalog_name": "main", "schema_name": "default"}
    staged = http.post(f"{BASE}/staging-tables", json=name).json()
    assert staged.keys() == {"id", "name", "catalog_name", "schema_name", "staging_location"}
    folder = Path(staged["staging_location"].removeprefix("file://"))
    assert folder.is_dir()
    own = metadata(TableId(staged["id"]))
    (folder / "_delta_log").mkdir()
    content = file_bytes(protocol(), own, timestamp_ms=CLOCK.now_ms())
    (folder / "_delta_log" / f"{0:020d}.json").write_bytes(content)
    body = {
        **name,
        "table_type": "MANAGED",
        "data_source_format": "DELTA",
        "storage_location": f"file:{folder}/",
        "columns": [{"name": "id", "type_text": "bigint", "type_json": '"long"', "position": 0}],
        "properties": {**own.configuration, "delta.feature.catalogManaged": "supported"},
    }
    made = http.post(f"{BASE}/tables", json=body)
    assert made.status_code == 200, made.text
    assert made.json()["table_id"] == staged["id"]
    assert http.post(f"{BASE}/tables", json=body).json() == made.json()
    assert http.get(f"{BASE}/tables/main.default.old").json() == made.json()
    elsewhere = {**body, "storage_location": "file:///nowhere"}
    assert older_error(http.post(f"{BASE}/tables", json=elsewhere)) == (404, "NOT_FOUND")
    wrong = {**body, "name": "other"}
    refused = http.post(f"{BASE}/tables", json=wrong)
    assert refused.status_code == 400
    taken = http.post(f"{BASE}/staging-tables", json=name)
    assert older_error(taken) == (400, "TABLE_ALREADY_EXISTS")
    resolved = http.get("/v1/names/old").json()
    assert (resolved["tableId"], resolved["latest"]) == (staged["id"], 0)


def test_a_body_in_pieces_is_read_also_in_a_get(table: Stock) -> None:
    commit(table, 1, add())
    wanted = {"table_id": table.table_id, "table_uri": table.location, "start_version": 1}
    raw = json.dumps(wanted).encode()
    answer = table.http.request("GET", COMMITS, content=iter([raw[:5], raw[5:]]))
    assert answer.json() == asked(table)
    broken = table.http.request("GET", COMMITS, content=b"{")
    assert older_error(broken) == (400, "INVALID_ARGUMENT")


def declared(**more: Any) -> dict[str, Any]:
    """Return a table as an engine declares it that writes no log before the table has a name."""
    fields = [
        {"name": "id", "type": "long", "nullable": False, "metadata": {"comment": "which"}},
        {"name": "day", "type": "date", "nullable": True, "metadata": {}},
    ]
    columns = [
        {"name": field["name"], "type_json": json.dumps(field), "nullable": True}
        for field in fields
    ]
    return {
        "name": "new",
        "catalog_name": "main",
        "schema_name": "default",
        "table_type": "MANAGED",
        "data_source_format": "DELTA",
        "columns": [columns[0], {**columns[1], "partition_index": 0}],
        "comment": "ours",
        "properties": {"delta.enableDeletionVectors": "true", "owner": "me"},
        **more,
    }


def test_a_table_that_is_named_before_it_has_a_log_gets_version_0_from_what_is_declared(
    served: Served,
) -> None:
    http = served.http
    name = {"name": "new", "catalog_name": "main", "schema_name": "default"}
    staged = http.post(f"{BASE}/staging-tables", json=name).json()
    body = declared(storage_location=staged["staging_location"])
    made = http.post(f"{BASE}/tables", json=body)
    assert made.status_code == 200, made.text
    shown = made.json()
    assert shown["table_id"] == staged["id"]
    assert shown["comment"] == "ours"
    assert shown["properties"]["owner"] == "me"
    assert shown["properties"][TABLE_ID] == staged["id"]
    for feature in ("catalogManaged", "vacuumProtocolCheck", "deletionVectors"):
        assert shown["properties"][f"delta.feature.{feature}"] == "supported"
    first, second = shown["columns"]
    assert (first["type_text"], first["nullable"], first["comment"]) == ("bigint", False, "which")
    assert (second["type_text"], second["partition_index"]) == ("date", 0)
    log = Path(staged["staging_location"].removeprefix("file://")) / "_delta_log"
    assert (log / f"{0:020d}.json").is_file()
    assert http.post(f"{BASE}/tables", json=body).json() == shown
    for other in (
        {"comment": "theirs"},
        {"columns": [{"name": "x", "type_text": "int"}]},
        {"properties": {"owner": "you"}},
        {"name": "another"},
    ):
        refused = http.post(f"{BASE}/tables", json={**body, **other})
        assert older_error(refused) == (400, "INVALID_ARGUMENT")
    [entry] = served.catalog.tables()
    assert (entry.table_id, entry.latest, entry.published) == (staged["id"], 0, 0)


def test_what_is_derived_from_the_log_is_not_written_into_it(http: httpx.Client) -> None:
    name = {"name": "new", "catalog_name": "main", "schema_name": "default"}
    staged = http.post(f"{BASE}/staging-tables", json=name).json()
    derived = {
        "delta.minReaderVersion": "3",
        "delta.lastUpdateVersion": "7",
        "delta.lastCommitTimestamp": "1",
        "delta.rowTracking.rowIdHighWaterMark": "41",
        "delta.feature.rowTracking": "supported",
        "clusteringColumns": "[]",
    }
    body = declared(storage_location=staged["staging_location"], properties=derived)
    made = http.post(f"{BASE}/tables", json=body)
    assert made.status_code == 200, made.text
    log = Path(staged["staging_location"].removeprefix("file://")) / "_delta_log"
    lines = [json.loads(line) for line in (log / f"{0:020d}.json").read_bytes().splitlines()]
    [written] = [line["metaData"] for line in lines if "metaData" in line]
    assert derived.keys().isdisjoint(written["configuration"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": []},
        {"columns": [{"name": "id"}]},
        {"columns": [{"name": "id", "type_json": "{"}]},
        {"columns": [{"name": "id", "type_json": '{"name": "id"}'}]},
        {"columns": [{"name": "id", "type_text": "what"}]},
        {"properties": {TABLE_ID: "x"}, "columns": [{"name": "a,b", "type_text": "int"}]},
        {"storage_location": "file:///nowhere"},
        {"table_type": "VIEW"},
        {"properties": {"delta.universalFormat.enabledFormats": "iceberg"}},
        {"properties": {TABLE_ID: "x"}},
        {"properties": {"delta.enableInCommitTimestamps": "false"}},
        {"name": "a/b"},
    ],
)
def test_a_declaration_that_is_no_table_is_refused_and_changes_nothing(
    served: Served, wrong: dict[str, Any]
) -> None:
    http = served.http
    name = {"name": "new", "catalog_name": "main", "schema_name": "default"}
    staged = http.post(f"{BASE}/staging-tables", json=name).json()
    before = state(served)
    body = {**declared(storage_location=staged["staging_location"]), **wrong}
    refused = http.post(f"{BASE}/tables", json=body)
    assert older_error(refused)[0] in (400, 404)
    assert state(served) == before
    right = declared(storage_location=staged["staging_location"])
    assert http.post(f"{BASE}/tables", json=right).status_code == 200
