"""A text that a client sends is repeated neither in an answer nor in the log at its full length."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest

from headgate.catalog.stores.rows import RejectionRow
from headgate.protocol.actions import TxnId
from tests.http.conftest import Served
from tests.http.test_native_api import commit, content, key, make, propose

LONG = "x" * 1_000_000
MOST = 20_000  # bytes of an answer or a line of the log
UNITY = "/api/2.1/unity-catalog"


def requests(table_id: str) -> dict[str, tuple[str, str, Any]]:
    inline = content()
    return {
        "way": ("POST", f"/v1/tables/{table_id}/commits", commit(1) | {"content": {"way": LONG}}),
        "isolation": ("POST", f"/v1/tables/{table_id}/commits", commit(1) | {"isolation": LONG}),
        "check": ("POST", "/v1/checks", {"tableId": LONG}),
        "state": ("PATCH", f"/v1/tables/{table_id}", {"state": LONG}),
        "path": ("GET", f"/v1/tables/{LONG[:6_000]}", None),
        "namespace": ("POST", "/v1/namespaces", {"name": LONG}),
        "location": ("POST", "/v1/staging-tables", {"location": LONG}),
        "listener": ("PUT", "/v1/listeners/x", {"url": LONG}),
        "table": ("POST", "/v1/tables", {"name": LONG, "tableId": table_id}),
        "first": (
            "POST",
            "/v1/tables",
            {"name": "x", "tableId": table_id, "txnId": key(), "first": {**inline, "way": LONG}},
        ),
        "unity": (
            "POST",
            f"{UNITY}/delta/v1/catalogs/main/schemas/default/tables/t",
            {"requirements": [{"type": LONG}], "updates": []},
        ),
        "older unity": ("POST", f"{UNITY}/schemas", {"name": LONG, "catalog_name": LONG}),
    }


@pytest.mark.parametrize("name", requests(""))
def test_a_long_text_is_not_repeated(
    served: Served, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.INFO, "headgate.http")
    method, path, body = requests(make(served)["tableId"])[name]
    answer = served.http.request(method, path, json=body)
    assert 400 <= answer.status_code < 500
    assert len(answer.content) < MOST
    assert caplog.records
    assert all(len(record.getMessage()) < MOST for record in caplog.records)


def line(action: dict[str, Any]) -> bytes:
    return json.dumps(action).encode() + b"\n"


def added(path: str) -> bytes:
    wrong = {"size": -1, "partitionValues": {}, "modificationTime": 0, "dataChange": True}
    return line({"add": {"path": path, **wrong}})


@pytest.mark.parametrize(
    ("actions", "count"),
    [
        (added(LONG[:700_000]), 1),
        (b"".join(added(f"{n}-{LONG[:1_000]}") for n in range(600)), 101),
        (
            line({"domainMetadata": {"domain": f"delta.{LONG[:700_000]}"}}).replace(
                b"}}", b', "configuration": "", "removed": false}}'
            ),
            1,
        ),
    ],
    ids=["a long path", "many paths", "a long domain"],
)
def test_a_long_violation_is_neither_answered_nor_logged_nor_recorded_in_full(
    served: Served, caplog: pytest.LogCaptureFixture, actions: bytes, count: int
) -> None:
    caplog.set_level(logging.INFO, "headgate.http")
    table_id = make(served)["tableId"]
    body = commit(1)
    body["content"]["actions"] = base64.b64encode(actions).decode()
    answer = propose(served, table_id, body)
    assert answer.status_code == 422
    violations = answer.json()["answer"]["violations"]
    assert len(violations) == count
    if count > 1:
        assert violations[-1]["says"] == "there are 500 violations more"
    assert len(answer.content) < 150_000
    assert all(len(record.getMessage()) < MOST for record in caplog.records)
    assert len(recorded(served, body["txnId"]).answer) < 150_000


def recorded(served: Served, txn_id: str) -> RejectionRow:
    with served.catalog._store.read() as unit:
        row = unit.rejection(TxnId(txn_id))
    assert row is not None
    return row
