"""No dialect names a table before its log has everything that a client could look for there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.protocol.table_states import TableStatus
from tests.http.conftest import Served
from tests.http.test_native_api import commit, make, propose
from tests.http.unity.conftest import BASE, IN_DEFAULT, V1
from tests.kit import req

Table = dict[str, Any]
LISTED = {"catalog_name": "main", "schema_name": "default"}


def ask_for_commits(http: httpx.Client, table: Table) -> httpx.Response:
    where = {"table_id": table["tableId"], "table_uri": table["location"], "start_version": 0}
    return http.get(f"{BASE}/delta/preview/commits", params=where)


def ask_for_table_credentials(http: httpx.Client, table: Table) -> httpx.Response:
    body = {"table_id": table["tableId"], "operation": "READ"}
    return http.post(f"{BASE}/temporary-table-credentials", json=body)


def ask_for_path_credentials(http: httpx.Client, table: Table) -> httpx.Response:
    body = {"url": f"{table['location']}/_delta_log", "operation": "PATH_READ"}
    return http.post(f"{BASE}/temporary-path-credentials", json=body)


ROUTES: dict[str, Callable[[httpx.Client, Table], httpx.Response]] = {
    "the table": lambda http, table: http.get(f"{BASE}/tables/main.default.t"),
    "the tables of a schema": lambda http, table: http.get(f"{BASE}/tables", params=LISTED),
    "whether it is there": lambda http, table: http.head(f"{IN_DEFAULT}/tables/t"),
    "to load it": lambda http, table: http.get(f"{IN_DEFAULT}/tables/t"),
    "its credentials": lambda http, table: http.get(
        f"{IN_DEFAULT}/tables/t/credentials", params={"operation": "READ"}
    ),
    "its credentials by id": lambda http, table: http.get(
        f"{V1}/staging-tables/{table['tableId']}/credentials"
    ),
    "its credentials in the older REST": ask_for_table_credentials,
    "the credentials of its path": ask_for_path_credentials,
    "its commits": ask_for_commits,
}


def log_of(table: Table) -> Path:
    return Path(table["location"].removeprefix("file://")) / "_delta_log"


def versions(table: Table) -> list[str]:
    return sorted(path.name for path in log_of(table).glob("*.json"))


@req("CA-04")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("last", [0, 2])
def test_a_table_is_named_once_its_log_has_all_that_came_inline(
    served: Served, route: str, last: int
) -> None:
    table = make(served)
    for version in range(1, last + 1):
        assert propose(served, table["tableId"], commit(version)).status_code == 200
    assert versions(table) == []
    assert ROUTES[route](served.http, table).is_success
    assert versions(table) == [f"{version:020d}.json" for version in range(last + 1)]


@req("CA-04")
@pytest.mark.parametrize("route", ROUTES)
def test_a_table_whose_log_cannot_be_written_is_not_named(served: Served, route: str) -> None:
    table = make(served)
    block(table)
    answer = ROUTES[route](served.http, table)
    if route == "the tables of a schema":
        assert answer.json() == {"tables": []}
    else:
        assert answer.status_code >= 400


def test_tables_that_cannot_be_published_do_not_keep_others_out_of_a_listing(
    served: Served,
) -> None:
    tables = {name: make(served, name) for name in "abcd"}
    block(tables["b"])
    found: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = served.http.get(f"{BASE}/tables", params={**LISTED, **token, "max_results": 2})
        found += [table["name"] for table in page.json()["tables"]]
        if "next_page_token" not in page.json():
            break
        token = {"page_token": page.json()["next_page_token"]}
    assert found == ["a", "c", "d"]
    shutil.rmtree(log_of(tables["b"]).parent)
    listed = served.http.get(f"{BASE}/tables", params=LISTED).json()["tables"]
    assert [table["name"] for table in listed] == ["a", "b", "c", "d"]


def test_a_table_that_cannot_be_published_can_be_renamed_and_dropped(served: Served) -> None:
    table = make(served)
    block(table)
    renamed = served.http.post(f"{IN_DEFAULT}/tables/t/rename", json={"new-name": "u"})
    assert renamed.status_code < 300
    assert served.http.delete(f"{BASE}/tables/main.default.u").status_code == 200
    [entry] = served.catalog.tables(dropped=True)
    assert entry.state is TableStatus.DROPPED


def block(table: Table) -> None:
    """Put something where the table's log would be."""
    log_of(table).parent.mkdir(parents=True)
    log_of(table).write_text("no folder")
