"""`delta/v1` on the wire: configuration, loading, rename, drop and reports."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.names import TableName
from headgate.protocol.actions import TableId
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
    make,
    stage,
)
from tests.http.unity.v1_requests import OLDER_COMMITS, native, native_table
from tests.kit import req, shows
from tests.kit.other_readers import every_file

# Asking what is served


def test_the_configuration_names_what_exists_and_every_endpoint_leads_somewhere(
    http: httpx.Client,
) -> None:
    where = {"catalog": "main", "protocol-versions": "1.0"}
    shown = http.get(f"{V1}/config", params=where).json()
    assert shown["protocol-version"] == "1.0"
    for endpoint in shown["endpoints"]:
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
    put = publisher._put
    monkeypatch.setattr(publisher, "_put", lambda *a: puts.append(a) or put(*a))
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
        shown = table.http.get(f"{table.url}/credentials", params={"operation": operation})
        assert shown.json()["storage-credentials"] == [
            {"prefix": table.location, "operation": operation, "config": {}}
        ]
    assert error(table.http.get(f"{table.url}/credentials"))[0] == 400
    staged = stage(table.http, "u")
    shown = table.http.get(f"{V1}/staging-tables/{staged.table_id}/credentials")
    assert shown.json()["storage-credentials"][0]["prefix"] == staged.location
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
    shown = served.http.get(f"/v1/tables/{stock.table_id}/reports").json()
    assert shown.pop("lastMs") > 0
    assert shown == {
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
