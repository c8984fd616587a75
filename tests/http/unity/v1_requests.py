"""Requests of native clients beside the `delta/v1` dialect."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import httpx

from headgate.protocol.actions import TableId, encode, join
from tests.http.conftest import Served
from tests.http.unity.conftest import (
    BASE,
    CLOCK,
    Stock,
)
from tests.kit.builders import add, metadata, new_txn_id, protocol

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
