"""Numbers that no catalog can hold, in every place of every request: refused, and never a 500."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.http.operations import Operation
from headgate.http.routes import operations
from headgate.http.unity import preview, rest, v1
from tests.http import test_fuzz as native
from tests.http.conftest import Served, serving
from tests.http.unity import test_fuzz as unity
from tests.kit import shows

NATIVE = {operation.name: operation for operation in operations}
UNITY = {
    operation.name: operation for dialect in (rest, v1, preview) for operation in dialect.operations
}
# As JSON is written, since not every number can be held by what writes it.
NUMBERS = [
    str(-(2**63) - 1),
    str(-(2**63)),
    str(-(2**64)),
    str(2**63),
    str(2**64),
    "-1",
    "9" * 400,
    "-" + "9" * 5000,
    "1e400",
    "-1e400",
    "1.5",
    "-0.0",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    yield from serving(tmp_path_factory.mktemp("numbers") / "lake", native.SETTINGS)


@pytest.fixture(scope="module")
def world(served: Served) -> native.World:
    return native.World(served)


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[unity.World]:
    for served in serving(tmp_path_factory.mktemp("numbers") / "lake", unity.SETTINGS):
        yield unity.World(served)


def with_each_value_replaced(body: Any, number: str) -> Iterator[str]:
    """Write a body with a number in place of each of its scalar values in turn."""
    mark = "<here>"
    for replaced in _replaced(body, mark):
        yield json.dumps(replaced).replace(f'"{mark}"', number)


def _replaced(value: Any, mark: str) -> Iterator[Any]:
    match value:
        case dict():
            for key, inner in value.items():
                for changed in _replaced(inner, mark):
                    yield {**value, key: changed}
        case list():
            for place, inner in enumerate(value):
                for changed in _replaced(inner, mark):
                    yield [*value[:place], changed, *value[place + 1 :]]
        case _:
            yield mark


def native_bodies(operation: Operation, world: native.World) -> list[Any]:
    """Return bodies that would do, with every optional number in them."""
    txn_id, table_id = native.key(), world.tables[0]
    content = native.content(native.add())
    staged = {
        "way": "staged",
        "fileName": "00000000000000000001.00000000-0000-4000-8000-000000000001.json",
        "size": 1,
        "modifiedMs": 1,
    }
    proposals = [
        {"txnId": txn_id, "version": 1, "content": content},
        {"txnId": txn_id, "version": 1, "content": staged},
    ]
    parts = [{"tableId": table_id, "version": 1, "content": content}]
    known: dict[str, list[Any]] = {
        "propose": proposals,
        "propose_many": [{"txnId": txn_id, "parts": parts}],
        "confirm_published": [{"upto": 0}],
        "publish": [{"upto": 0}],
        "add_file": [
            {"kind": "checkpoint", "first": 0, "last": 0, "paths": ["x"], "size": 1},
            {"kind": "compaction", "first": 0, "last": 1, "paths": ["x"], "size": 1},
        ],
        "change_table": [{"name": "renamed", "state": "active"}],
        "put_listener": [{"url": "https://example.com/", "after": 1}],
        "stage_table": [{"location": "x"}],
        "register_table": [{"name": "n", "tableId": table_id, "txnId": txn_id, "first": content}],
        "create_namespace": [{"name": "n"}],
        "rename_namespace": [{"name": "n"}],
        "rename_catalog": [{"name": "n"}],
        "fsck": [{"tableId": table_id, "repair": False}],
    }
    return known.get(operation.name, [])


@shows("FI3")
@pytest.mark.parametrize("name", [n for n, row in NATIVE.items() if row.body is not None])
def test_a_number_out_of_range_in_a_native_body_is_refused(world: native.World, name: str) -> None:
    operation = NATIVE[name]
    bodies = native_bodies(operation, world)
    assert bodies
    for number in NUMBERS:
        for body in bodies:
            path = native.filled(operation, world, txnId=body.get("txnId", ""))
            for raw in with_each_value_replaced(body, number):
                answer = world.http.request(operation.method, path, content=raw)
                assert answer.status_code < 500, (raw[:500], answer.text)


@shows("FI3")
@pytest.mark.parametrize("name", UNITY)
def test_a_number_out_of_range_in_a_body_of_the_dialects_is_refused(
    stock: unity.World, name: str
) -> None:
    operation = UNITY[name]
    if operation.method not in ("POST", "PATCH", "PUT") and not operation.reads_body:
        return
    bodies = unity.plausible(stock, operation)
    if name == "unity_report_metrics":
        bodies += [metrics_report(stock)]
    for body in bodies:
        for number in NUMBERS:
            for raw in with_each_value_replaced(body, number):
                answer = stock.http.request(
                    operation.method, unity_path(operation, stock), content=raw
                )
                assert answer.status_code < 500 or answer.status_code == 501, (raw, answer.text)


def metrics_report(stock: unity.World) -> dict[str, Any]:
    counts = ("num-files-added", "num-bytes-added", "num-files-removed", "num-bytes-removed")
    counts += ("num-rows-inserted", "num-rows-removed", "num-rows-updated")
    histogram = {
        "sorted-bin-boundaries": [0, 1],
        "file-counts": [1],
        "total-bytes": [1],
        "commit-version": 1,
    }
    commit = {**dict.fromkeys(counts, 1), "file-size-histogram": histogram}
    return {"table-id": stock.tables[0].table_id, "report": {"commit-report": commit}}


def unity_path(operation: Operation, stock: unity.World) -> str:
    values = {"table_id": stock.tables[0].table_id, "catalog": "main", "schema": "default"}
    return re.sub(r"\{(\w+)\}", lambda part: values.get(part[1], "t0"), operation.path)


QUERIES = [
    *("max_results", "page_token", "start_version", "end_version", "protocol-versions"),
    *("first", "last", "at", "minSequence", "after", "wait", "limit", "timestampMs"),
]


@shows("FI3")
@pytest.mark.parametrize("name", [*NATIVE, *UNITY])
def test_a_number_out_of_range_in_a_query_is_refused(
    world: native.World, stock: unity.World, name: str
) -> None:
    operation = NATIVE.get(name) or UNITY[name]
    if operation.is_changing:
        return
    is_native = name in NATIVE
    http = (world if is_native else stock).http
    path = native.filled(operation, world) if is_native else unity_path(operation, stock)
    base = {"table_id": stock.tables[0].table_id, "table_uri": stock.tables[0].location}
    for query in QUERIES:
        for number in (*NUMBERS, "\u0661", "1_000", "0x10", " 1", "+1", ""):
            values = {**({} if is_native else {**base, "start_version": "0"}), query: number}
            answer = http.request(operation.method, path, params=values)
            assert answer.status_code < 500 or answer.status_code == 501, (values, answer.text)
