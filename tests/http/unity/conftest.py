"""A client as stock engines are: it writes files itself and speaks a dialect, nothing else."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.clock import SystemClock
from headgate.protocol.actions import Action, Metadata, TableId, encode, join
from headgate.settings import Settings
from tests.http.conftest import Served, serving
from tests.kit.builders import add, metadata, protocol

BASE = "/api/2.1/unity-catalog"
V1 = f"{BASE}/delta/v1"
IN_DEFAULT = f"{V1}/catalogs/main/schemas/default"
CLOCK = SystemClock()


def file_bytes(*actions: Action, timestamp_ms: int, txn_id: str | None = None) -> bytes:
    """Return the content of a commit as a stock client writes it."""
    info: dict[str, Any] = {
        "inCommitTimestamp": timestamp_ms,
        "timestamp": timestamp_ms,
        "operation": "WRITE",
        "txnId": txn_id or str(uuid.uuid4()),
    }
    return join([json.dumps({"commitInfo": info}).encode(), *(encode(item) for item in actions)])


@dataclass
class Stock:
    """A table as its stock client sees it."""

    http: httpx.Client
    name: str
    table_id: str
    location: str
    timestamp_ms: int
    create: dict[str, Any]
    made: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return Path(self.location.removeprefix("file://"))

    @property
    def log(self) -> Path:
        return self.folder / "_delta_log"

    @property
    def url(self) -> str:
        return f"{IN_DEFAULT}/tables/{self.name}"

    def load(self) -> dict[str, Any]:
        response = self.http.get(self.url)
        assert response.status_code == 200, response.text
        return dict(response.json())

    def put(self, version: int, *actions: Action, txn_id: str | None = None) -> dict[str, Any]:
        """Write a staged file; give the `commit` that names it."""
        self.timestamp_ms = max(self.timestamp_ms + 1, CLOCK.now_ms())
        content = file_bytes(*(actions or (add(),)), timestamp_ms=self.timestamp_ms, txn_id=txn_id)
        return self.put_bytes(version, content)

    def put_bytes(self, version: int, content: bytes, name: str | None = None) -> dict[str, Any]:
        name = name or f"{version:020d}.{uuid.uuid4()}.json"
        place = self.log / "_staged_commits" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return {
            "version": version,
            "timestamp": self.timestamp_ms,
            "file-name": name,
            "file-size": len(content),
            "file-modification-timestamp": self.timestamp_ms,
        }

    def change(self, *updates: dict[str, Any], etag: str | None = None) -> dict[str, Any]:
        requirements: list[dict[str, Any]] = [{"type": "assert-table-uuid", "uuid": self.table_id}]
        if etag is not None:
            requirements.append({"type": "assert-etag", "etag": etag})
        return {"requirements": requirements, "updates": list(updates)}

    def send(self, body: Any) -> httpx.Response:
        return self.http.post(self.url, json=body)

    def commit(self, version: int, *actions: Action, **how: Any) -> httpx.Response:
        return self.send(self.change(add_commit(self.put(version, *actions, **how))))

    def publish(self, version: int) -> Path:
        """Copy a staged commit into the log, as clients do."""
        [commit] = [c for c in self.load()["commits"] if c["version"] == version]
        published = self.log / f"{version:020d}.json"
        published.write_bytes((self.log / "_staged_commits" / commit["file-name"]).read_bytes())
        return published


def add_commit(commit: dict[str, Any]) -> dict[str, Any]:
    return {"action": "add-commit", "commit": commit}


def claim(version: int) -> dict[str, Any]:
    return {"action": "set-latest-backfilled-version", "latest-published-version": version}


def kebab_columns(of: Metadata) -> Any:
    names = {
        "elementType": "element-type",
        "containsNull": "contains-null",
        "keyType": "key-type",
        "valueType": "value-type",
        "valueContainsNull": "value-contains-null",
    }

    def renamed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {names.get(key, key): value for key, value in pairs}

    return json.loads(of.schema_string, object_pairs_hook=renamed)


def stage(http: httpx.Client, name: str, first: tuple[Action, ...] = (), **how: Any) -> Stock:
    """Ask for a place, write version 0 there; what is left is to create the table."""
    response = http.post(f"{IN_DEFAULT}/staging-tables", json={"name": name})
    assert response.status_code == 200, response.text
    staged = response.json()
    given = protocol(*how.pop("features", ()))
    described = metadata(TableId(staged["table-id"]), **how)
    timestamp_ms = CLOCK.now_ms()
    body = {
        "name": name,
        "location": staged["location"],
        "table-type": "MANAGED",
        "columns": kebab_columns(described),
        "protocol": {
            "min-reader-version": 3,
            "min-writer-version": 7,
            "reader-features": given.reader_features,
            "writer-features": given.writer_features,
        },
        "properties": described.configuration,
        "partition-columns": described.partition_columns,
        "last-commit-timestamp-ms": timestamp_ms,
    }
    stock = Stock(http, name, staged["table-id"], staged["location"], timestamp_ms, body, staged)
    stock.log.mkdir(parents=True)
    content = file_bytes(given, described, *first, timestamp_ms=timestamp_ms)
    (stock.log / f"{0:020d}.json").write_bytes(content)
    return stock


def make(http: httpx.Client, name: str = "t", **how: Any) -> Stock:
    """Make a table as a stock client does."""
    stock = stage(http, name, **how)
    response = http.post(f"{IN_DEFAULT}/tables", json=stock.create)
    assert response.status_code == 200, response.text
    stock.made = response.json()
    return stock


def error(response: httpx.Response) -> tuple[int, str]:
    """Read an error of `delta/v1`, and hold its form."""
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"]["code"] == response.status_code
    assert body["error"]["message"]
    assert response.headers["content-type"] == "application/json"
    return response.status_code, body["error"]["type"]


def older_error(response: httpx.Response) -> tuple[int, str]:
    """Read an error of the older REST, and hold its form."""
    body = response.json()
    assert body["message"]
    code = body["error_code"]
    assert body["details"] == [{"@type": "google.rpc.ErrorInfo", "reason": code}]
    return response.status_code, code


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    yield from serving(tmp_path / "lake", Settings(verify_staged=0))


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return served.http


@pytest.fixture
def table(http: httpx.Client) -> Stock:
    return make(http)
