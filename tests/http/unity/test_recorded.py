"""Exchanges as they were recorded or written down, with the ids and times of this run put in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx

from tests.http.conftest import Served
from tests.http.unity.conftest import BASE, Stock, make

# A table with one commit that is not published, as `delta/v1` loads it.
LOADED = """
{"metadata": {"etag": "<etag>", "table-type": "MANAGED", "table-uuid": "<id>",
   "location": "<location>", "created-time": "<ms>", "updated-time": "<ms>",
   "columns": {"type": "struct", "fields": [
      {"name": "id", "type": "long", "nullable": true, "metadata": {}},
      {"name": "tags", "type": {"type": "array", "element-type": "string", "contains-null": true},
       "nullable": true, "metadata": {}}]},
   "partition-columns": [],
   "properties": {"io.unitycatalog.tableId": "<id>",
      "delta.feature.catalogManaged": "supported", "delta.feature.inCommitTimestamp": "supported",
      "delta.feature.vacuumProtocolCheck": "supported", "delta.minReaderVersion": "3",
      "delta.minWriterVersion": "7", "delta.enableInCommitTimestamps": "true",
      "delta.lastUpdateVersion": "0", "delta.lastCommitTimestamp": "<ms>"},
   "last-commit-version": 0, "last-commit-timestamp-ms": "<ms>"},
 "commits": [{"version": 1, "timestamp": "<ms>", "file-name": "<file>", "file-size": "<size>",
              "file-modification-timestamp": "<ms>"}],
 "latest-table-version": 1}
"""

# What DuckDB 1.5.5 sends with an INSERT.
DUCKDB_COMMIT = """
{"requirements": [{"type": "assert-table-uuid", "uuid": "<id>"},
                  {"type": "assert-etag", "etag": "<etag>"}],
 "updates": [
  {"action": "add-commit", "commit": {"version": 2, "timestamp": "<ms>", "file-name": "<file>",
   "file-size": "<size>", "file-modification-timestamp": "<ms>"}},
  {"action": "set-latest-backfilled-version", "latest-published-version": 1}]}
"""

# What Sail 0.7.2 sends with an INSERT, a SELECT and a CREATE TABLE.
SAIL_COMMIT = """
{"commit_info": {"file_modification_timestamp": "<ms>", "file_name": "<file>",
  "file_size": "<size>", "timestamp": "<ms>", "version": 1},
 "latest_backfilled_version": 0, "table_id": "<id>", "table_uri": "<location>"}
"""
SAIL_ASKS = '{"start_version": 1, "table_id": "<id>", "table_uri": "<location>"}'
SAIL_STAGES = '{"catalog_name": "main", "name": "made", "schema_name": "default"}'
SAIL_NAMES = r"""
{"catalog_name": "main", "columns": [
  {"name": "id", "nullable": true, "position": 0, "type_name": "LONG", "type_text": "long",
   "type_json": "{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}"},
  {"name": "who", "nullable": true, "position": 1, "type_name": "STRING", "type_text": "string",
   "type_json": "{\"name\":\"who\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}}"}],
 "data_source_format": "DELTA", "name": "made", "schema_name": "default",
 "storage_location": "<location>", "table_type": "MANAGED"}
"""


def filled(text: str, stock: Stock, put: dict[str, Any], etag: str = "") -> bytes:
    """Put the values of this run into what was recorded."""
    known = {
        "id": json.dumps(stock.table_id),
        "location": json.dumps(stock.location),
        "etag": json.dumps(etag),
        "ms": str(put["timestamp"]),
        "file": json.dumps(put["file-name"]),
        "size": str(put["file-size"]),
    }
    return re.sub(r'"<(\w+)>"', lambda found: known[found[1]], text).encode()


def shape(value: Any, stock: Stock) -> Any:
    """Take out of an answer what is of this run alone."""
    match value:
        case dict():
            return {key: shape(inner, stock) for key, inner in value.items()} | {
                key: mark
                for key, mark in (("etag", "<etag>"), ("file-size", "<size>"))
                if key in value
            }
        case list():
            return [shape(item, stock) for item in value]
        case stock.table_id:
            return "<id>"
        case stock.location:
            return "<location>"
        case int() if value > 1_700_000_000_000:
            return "<ms>"
        case str() if re.fullmatch(r"17\d{11}", value):
            return "<ms>"
        case str() if value.endswith(".json"):
            return "<file>"
        case _:
            return value


def test_a_table_is_loaded_as_it_is_written_down(http: httpx.Client) -> None:
    stock = make(http, schema="id long, tags array<string>")
    stock.commit(1)
    assert shape(stock.load(), stock) == json.loads(LOADED)


def test_a_commit_of_duckdb_is_taken(table: Stock) -> None:
    table.commit(1)
    table.publish(1)
    etag = table.load()["metadata"]["etag"]
    body = filled(DUCKDB_COMMIT, table, table.put(2), etag)
    for _ in range(2):
        answer = table.http.post(table.url, content=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["latest-table-version"] == 2


def test_a_commit_and_a_question_of_sail_are_taken(table: Stock) -> None:
    put = table.put(1)
    where = f"{BASE}/delta/preview/commits"
    answer = table.http.post(where, content=filled(SAIL_COMMIT, table, put))
    assert (answer.status_code, answer.content) == (200, b"200")
    asked = table.http.request("GET", where, content=filled(SAIL_ASKS, table, put))
    [commit] = asked.json()["commits"]
    assert commit["file_name"] == put["file-name"]
    assert asked.json()["latest_table_version"] == 1


def test_a_table_is_made_as_sail_makes_one(served: Served) -> None:
    http = served.http
    staged = http.post(f"{BASE}/staging-tables", content=SAIL_STAGES.encode()).json()
    place = json.dumps(staged["staging_location"])
    body = SAIL_NAMES.replace('"<location>"', place).encode()
    assert http.post(f"{BASE}/tables", content=body).status_code == 200
    log = Path(staged["staging_location"].removeprefix("file://")) / "_delta_log"
    assert (log / f"{0:020d}.json").is_file()
