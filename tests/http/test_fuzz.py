"""Whatever is sent to any route: no 5xx, answers as the document says, no change on a refusal.

Requests are drawn from our own OpenAPI document, half of them breaking it; beside them stand the
hostile inputs of the ledger, each sent to every route that takes such input.
"""

from __future__ import annotations

import base64
import json
import os
import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
import schemathesis.openapi
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headgate.api.messages import Severity
from headgate.clock import RandomIds
from headgate.http import openapi
from headgate.http.operations import Operation
from headgate.http.routes import operations
from headgate.http.unity import preview, rest, v1
from headgate.protocol.actions import encode, join
from headgate.protocol.table_states import TableStatus
from headgate.settings import Settings
from headgate.storage import locations
from tests.http.conftest import Served, serving
from tests.kit import req, shows
from tests.kit.builders import add, metadata, new_table_id, protocol
from tests.kit.invalid_texts import places, spoiled

IDS = RandomIds()
DIALECTS = "/api/2.1/unity-catalog/"
SETTINGS = Settings(verify_staged=0, longest_wait_ms=0)
OPERATIONS = {operation.name: operation for operation in operations}
IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
EXAMPLES = 200 if IS_LONG else 8
# To make a failure small takes minutes with bodies like these, and what failed is reported anyway.
PHASES = [Phase.generate, Phase.shrink] if IS_LONG else [Phase.generate]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENT = openapi.document(list(OPERATIONS.values()), "0")
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    for served in serving(tmp_path_factory.mktemp("fuzz") / "lake", SETTINGS):
        yield World(served)


class World:
    """A server with some tables in it, and what it holds at any moment."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.http = served.http
        self.tables = [self.make(f"t{number}") for number in range(3)]
        # Chance may drop and purge these; the others stay for the tests that come after it.
        self.fuzzed = [self.make(f"fuzzed{number}") for number in range(3)]
        self.gone = self.make("gone")
        self.http.delete(f"/v1/tables/{self.gone}")

    def make(self, name: str) -> str:
        table_id = new_table_id()
        body = {
            "name": name,
            "tableId": table_id,
            "txnId": key(),
            "first": content(protocol(), metadata(table_id)),
        }
        assert self.http.post("/v1/tables", json=body).status_code == 200
        return table_id

    def state(self) -> object:
        """Return all that a refusal must leave alone."""
        catalog = self.served.catalog
        with catalog._store.read() as unit:
            clock, staging = unit.clock(), unit.tables_in_state(TableStatus.STAGING)
            listeners = unit.listeners()
        return (
            clock.sequence,
            catalog.namespaces(),
            catalog.tables(dropped=True),
            [row.id for row in staging],
            listeners,
        )

    def is_refused(self, response: httpx.Response, before: object) -> None:
        """Hold a refusal to what every one has to be."""
        assert 400 <= response.status_code < 500, (response.status_code, response.text)
        problem = self.served.problem(response)
        assert problem["remedy"]
        assert self.state() == before


def key() -> str:
    return str(IDS.ordered())


def content(*actions: Any) -> dict[str, Any]:
    return raw_content(join(encode(action) for action in actions))


def raw_content(lines: bytes, **info: object) -> dict[str, Any]:
    return {
        "way": "inline",
        "commitInfo": {"operation": "WRITE", **info},
        "actions": base64.b64encode(lines).decode(),
    }


# Drawn from the document


@req("CA-06")
@shows("FI2", "FI3")
@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_the_document_allows_and_what_it_does_not_is_answered_as_it_says(
    world: World, name: str
) -> None:
    operation = OPERATIONS[name]
    drawn = SCHEMA[operation.path][operation.method]
    modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=PHASES,
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        case = data.draw(drawn.as_strategy(data.draw(st.sampled_from(modes))))
        if data.draw(st.integers(0, 3)):  # mostly of a table that is there: else all is 404
            known = {
                "tableId": st.sampled_from([*world.fuzzed, world.gone]),
                "name": st.sampled_from(["t0", "main.default.t1", "gone", "default"]),
            }
            for parameter in case.path_parameters.keys() & known.keys():
                case.path_parameters[parameter] = data.draw(known[parameter])
            if isinstance(case.body, dict) and "txnId" in case.path_parameters:
                case.body["txnId"] = case.path_parameters["txnId"]
        before = world.state()
        try:
            response = send(world.http, case.as_transport_kwargs("http://testserver"))
        except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeEncodeError):
            return  # cannot be expressed in HTTP
        case.validate_response(response, checks=CHECKS)
        if response.status_code >= 400:
            assert world.state() == before

    run()
    errors = [f for f in world.served.catalog.fsck() if f.severity is Severity.ERROR]
    assert errors == []


def send(http: httpx.Client, wanted: dict[str, Any]) -> httpx.Response:
    """Send what was made for another library."""
    cookies = wanted.pop("cookies", None) or {}
    headers = dict(wanted.pop("headers"))
    if cookies:
        headers["cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    data = wanted.pop("data", None)
    if data is not None:
        wanted["content" if isinstance(data, str | bytes) else "data"] = data
    response = http.request(**wanted, headers=headers)
    response.elapsed = timedelta()  # not measured: there is no network
    return response


# What the document and the page say


@req("CA-06")
def test_the_server_gives_the_very_document_that_is_kept_in_the_docs(world: World) -> None:
    assert world.http.get("/openapi.json").json()["paths"] == DOCUMENT["paths"]
    kept = json.loads(Path("docs/openapi.json").read_text())
    as_delivered = openapi.document(operations, kept["info"]["version"])
    assert json.loads(json.dumps(as_delivered)) == kept


@req("CA-06")
def test_the_page_names_every_operation_and_every_code_of_the_server() -> None:
    page = Path("docs/http.md").read_text()
    for operation in OPERATIONS.values():
        assert f"| {operation.method} | `{operation.path}` |" in page
        assert operation.summary in page
        for code in operation.problems:
            assert f"`{code}`" in page


def _routes_below(node: Any, parts: list[str]) -> Iterator[tuple[str, str]]:
    for method in node.methods:
        yield method, "/".join(parts)
    for part, following in node.fixed.items():
        yield from _routes_below(following, [*parts, part])
    if node.free is not None:
        yield from _routes_below(node.free, [*parts, f"{{{node.name}}}"])


@req("CA-06")
def test_every_route_of_the_application_is_in_the_document_and_the_other_way_round(
    world: World,
) -> None:
    application = world.served.transport._app
    served = set(_routes_below(application._routes._root, []))
    native = {row for row in served if not row[1].startswith(DIALECTS)}
    described = {
        (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert native == described
    spoken = [row for dialect in (rest, v1, preview) for row in dialect.operations]
    assert served - native == {(row.method, row.path) for row in spoken}
    # What is for those who run a server, and is described on the page about that.
    others = set(application.pages)
    assert others == {"/health", "/health/ready", "/metrics", "/openapi.json"}
    page = Path("docs/operating.md").read_text()
    assert all(f"`{path}`" in page for path in others)


@req("CA-06")
def test_a_method_that_a_path_does_not_have_is_405_and_told_those_it_has(world: World) -> None:
    for path, methods in DOCUMENT["paths"].items():
        answer = world.http.request("TRACE", re.sub(r"\{\w+\}", "x", path))
        assert answer.status_code == 405
        allowed = {word.strip() for word in answer.headers["allow"].split(",")}
        assert allowed == {method.upper() for method in methods}


# Hostile input, to every route that takes such input


def filled(operation: Operation, world: World, **given_values: str) -> str:
    values = {"tableId": world.tables[0], "name": "t0", "txnId": key(), **given_values}
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], operation.path)


def with_parameter(name: str) -> list[str]:
    return [row.name for row in OPERATIONS.values() if f"{{{name}}}" in row.path]


def with_body() -> list[str]:
    return [row.name for row in OPERATIONS.values() if row.body is not None]


DEEP = b"[" * 100_000
BODIES = {
    "empty": b"",
    "not JSON": b"name=x",
    "cut off": b'{"name": "x"',
    "an array": b"[]",
    "a number": b"1e999",
    "NaN": b'{"name": NaN, "txnId": NaN, "upto": NaN, "url": NaN, "kind": NaN, "repair": NaN, '
    b'"location": NaN, "state": NaN, "tableId": NaN}',
    "a lone surrogate": b'{"name": "\\ud800", "txnId": "\\ud800", "upto": "\\ud800", "url": '
    b'"\\ud800", "kind": "\\ud800", "repair": "\\ud800", "location": 1, "tableId": "\\ud800"}',
    "bad UTF-8": b'{"name": "\xff\xfe"}',
    "a BOM": b'\xef\xbb\xbf{"name": "x"}',
    "100,000 levels": DEEP,
    "100,000 levels inside": b'{"name": ' + DEEP,
    "NUL": b"\0" * 100,
    "another charset": '{"name": "x"}'.encode("utf-16"),
    "null": b"null",
}


@shows("FI3")
@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("name", with_body())
def test_a_body_that_is_none_is_400_with_a_reason(world: World, name: str, raw: bytes) -> None:
    operation = OPERATIONS[name]
    before = world.state()
    response = world.http.request(
        operation.method,
        filled(operation, world),
        content=raw,
        headers={"content-type": "application/json"},
    )
    world.is_refused(response, before)
    assert response.status_code == 400


IDS_THAT_ARE_NONE = [
    "..",
    "%2e%2e",
    "..%2F..%2Fetc%2Fpasswd",
    "%00",
    "x" * 5000,
    "%F0%9F%92%A5",
    "0" * 32,
    "'%20OR%201=1--",
    "00000000-0000-4000-8000-000000000000",
]


@shows("FI1")
@pytest.mark.parametrize("wrong", IDS_THAT_ARE_NONE)
@pytest.mark.parametrize("name", with_parameter("tableId"))
def test_an_id_that_is_none_is_refused_by_every_route(world: World, name: str, wrong: str) -> None:
    operation = OPERATIONS[name]
    before = world.state()
    response = world.http.request(
        operation.method, filled(operation, world, tableId=wrong), json=valid_body(operation, world)
    )
    world.is_refused(response, before)


def valid_body(operation: Operation, world: World) -> Any:
    """Return a body that would do, so that it is the rest which is refused."""
    bodies: dict[str, Any] = {
        "propose": {"txnId": key(), "version": 1, "content": content(add())},
        "confirm_published": {"upto": 0},
        "publish": {},
        "add_file": {"kind": "checksum", "first": 0, "last": 0, "paths": ["x"]},
        "change_table": {"name": "renamed"},
        "put_listener": {"url": "https://example.com/"},
    }
    return bodies.get(operation.name)


def full_bodies(world: World) -> dict[str, list[Any]]:
    """Return bodies with every text that a route reads."""
    table_id, new_id = world.tables[0], new_table_id()
    first = content(protocol(), metadata(new_id))
    scan = {"tableId": table_id, "version": 0, "files": ["a.parquet"]}
    inline = raw_content(b"", operationParameters={"mode": "Append"}, engineInfo="x")
    staged = {"way": "staged", "fileName": f"{1:020d}.{uuid.uuid4()}.json", "size": 9}
    parts = [{"tableId": table_id, "version": 1, "content": part} for part in (inline, staged)]
    return {
        "propose": [
            {
                "txnId": key(),
                "version": 1,
                "content": part["content"],
                "scans": [scan],
                "isolation": "Serializable",
            }
            for part in parts
        ],
        "propose_many": [{"txnId": key(), "parts": parts, "scans": [scan]}],
        "add_file": [{"kind": "checksum", "first": 0, "last": 0, "paths": ["x"]}],
        "change_table": [{"name": "renamed", "state": "active"}],
        "create_namespace": [{"name": "n", "storageRoot": "file:///elsewhere/n"}],
        "stage_table": [{"location": "file:///elsewhere/s", "namespace": "default"}],
        "register_table": [
            {"name": "new", "tableId": new_id, "txnId": key(), "first": first},
            {
                "name": "new",
                "external": {
                    "location": "file:///elsewhere/e",
                    "format": "delta",
                    "schemaString": '{"type":"struct","fields":[]}',
                },
            },
        ],
        "rename_namespace": [{"name": "n"}],
        "rename_catalog": [{"name": "c"}],
        "put_listener": [{"url": "https://example.com/"}],
    }


WITHOUT_TEXTS = {"publish", "confirm_published", "fsck"}


@shows("FI3")
@pytest.mark.parametrize("name", with_body())
def test_a_text_that_is_not_unicode_is_400_wherever_it_is(world: World, name: str) -> None:
    operation = OPERATIONS[name]
    bodies = full_bodies(world)
    assert (name in bodies) != (name in WITHOUT_TEXTS), name
    for body in bodies.get(name, []):
        for place in places(body):
            before = world.state()
            raw = json.dumps(spoiled(body, place)).encode()
            assert b"\\ud800" in raw
            response = world.http.request(
                operation.method,
                filled(operation, world),
                content=raw,
                headers={"content-type": "application/json"},
            )
            assert response.status_code == 400, (place, response.text)
            world.is_refused(response, before)


NAMES_THAT_ARE_NONE = [
    "a/b",
    "../x",
    "a%b",
    "a`b",
    "a b",
    "a..b",
    ".",
    "",
    "a.b.c.d",
    "\U0001f4a5",
    "x" * 256,
    "a\0b",
    "a\\b",
    "a'b",
    "T0",  # differs from one that is there in case only
]


@shows("FI9")
@pytest.mark.parametrize("wrong", NAMES_THAT_ARE_NONE)
def test_a_name_that_is_none_makes_and_renames_nothing(world: World, wrong: str) -> None:
    table_id = new_table_id()
    first = content(protocol(), metadata(table_id))
    asked = [
        (
            "POST",
            "/v1/tables",
            {"name": wrong, "tableId": table_id, "txnId": key(), "first": first},
        ),
        ("POST", "/v1/tables", {"name": wrong, "external": {"location": "s3://b/x"}}),
        ("PATCH", f"/v1/tables/{world.tables[1]}", {"name": wrong}),
        ("PATCH", f"/v1/tables/{world.gone}", {"name": wrong, "state": "active"}),
    ]
    if wrong != "T0":
        asked.append(("POST", "/v1/namespaces", {"name": wrong}))
    for method, path, body in asked:
        if wrong == "" and method == "PATCH":
            continue
        before = world.state()
        world.is_refused(world.http.request(method, path, json=body), before)


@shows("FI9")
@pytest.mark.parametrize("name", ["größe", "表", "a-b_c@d", "x" * 255, "Ünïcode"])
def test_a_name_in_any_script_is_kept_and_found_and_never_a_path(world: World, name: str) -> None:
    table_id = world.make(name)
    found = world.http.get(f"/v1/names/{httpx.URL('http://x').join(name).path[1:]}").json()
    assert (found["tableId"], found["name"]) == (table_id, f"main.default.{name}")
    assert found["location"].endswith(table_id)
    world.http.delete(f"/v1/tables/{table_id}")


NUMBERS_THAT_ARE_NONE = [
    "-1", "1.5", "1e3", "", "x", "%31%00", "9" * 20, "9" * 5000, "%C2%B2", "0x10", "%201", "+1",
]  # fmt: skip


@shows("FI2")
@pytest.mark.parametrize("wrong", NUMBERS_THAT_ARE_NONE, ids=lambda text: text[:24] or "empty")
def test_a_number_that_is_none_is_refused_by_every_route(world: World, wrong: str) -> None:
    for operation in OPERATIONS.values():
        for parameter in operation.query:
            if parameter.kind != "integer":
                continue
            before = world.state()
            response = world.http.request(
                operation.method, f"{filled(operation, world)}?{parameter.name}={wrong}"
            )
            world.is_refused(response, before)


def staged(world: World, file_name: str, version: int = 1) -> httpx.Response:
    return world.http.post(
        f"/v1/tables/{world.tables[0]}/commits",
        json={
            "txnId": key(),
            "version": version,
            "content": {"way": "staged", "fileName": file_name, "size": 10},
        },
    )


@shows("FI1", "FI2")
@pytest.mark.parametrize(
    "file_name",
    [
        "../00000000000000000001.json",
        "/etc/passwd",
        "%2e%2e/x.json",
        "a\0b",
        "",
        "00000000000000000001.json",
        "1.00000000-0000-4000-8000-000000000000.json",
        "00000000000000000002.00000000-0000-4000-8000-000000000000.json",
        "00000000000000000001.not-a-uuid.json",
        "00000000000000000001.00000000-0000-4000-8000-000000000000.json/../x",
        "x" * 10_000,
    ],
)
def test_a_staged_file_that_is_none_is_refused_and_nothing_recorded(
    world: World, file_name: str
) -> None:
    before = world.state()
    world.is_refused(staged(world, file_name), before)


@shows("FI1")
def test_a_staged_file_of_another_table_and_a_link_out_of_the_table_are_refused(
    world: World, tmp_path: Path
) -> None:
    name = "00000000000000000001.00000000-0000-4000-8000-000000000001.json"
    folders = []
    for table_id in world.tables[:2]:
        location = world.http.get(f"/v1/tables/{table_id}").json()["location"]
        root = Path(locations.decode(location.removeprefix("file://")))
        folders.append(root / "_delta_log" / "_staged_commits")
        folders[-1].mkdir(parents=True, exist_ok=True)
    (folders[1] / name).write_text("{}")  # of the other table
    before = world.state()
    world.is_refused(staged(world, name), before)
    secret = tmp_path / "secret"
    secret.write_text('{"commitInfo":{}}\n')
    linked = name.replace("0001.json", "0002.json")
    (folders[0] / linked).symlink_to(secret)
    before = world.state()
    answer = staged(world, linked)
    world.is_refused(answer, before)
    assert "secret" not in answer.text


def proposed(world: World, lines: bytes, **info: object) -> httpx.Response:
    table_id = world.tables[2]
    latest = world.http.get(f"/v1/tables/{table_id}").json()["latest"]
    return world.http.post(
        f"/v1/tables/{table_id}/commits",
        json={"txnId": key(), "version": latest + 1, "content": raw_content(lines, **info)},
    )


def line(**action: object) -> bytes:
    return json.dumps(action).encode() + b"\n"


FILE = {
    "path": "a.parquet",
    "partitionValues": {},
    "size": 1,
    "modificationTime": 1,
    "dataChange": True,
}
GONE = {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": True}
CONTENTS = {
    "not JSON": b"nothing\n",
    "duplicate keys": b'{"add":{"path":"a","path":"b"}}\n',
    "NaN": b'{"add":{"size":NaN}}\n',
    "a lone surrogate": b'{"add":{"path":"\\ud800"}}\n',
    "100,000 levels": b'{"x":' + DEEP + b"\n",
    "CRLF": line(add=FILE)[:-1] + b"\r\n",
    "a BOM": b"\xef\xbb\xbf" + line(add=FILE),
    "an empty line": b"\n" + line(add=FILE),
    "a commitInfo of its own": line(commitInfo={"txnId": "x"}),
    "two metaData": 2 * line(metaData={"id": "x"}),
    "two protocols": 2 * line(protocol={"minReaderVersion": 1, "minWriterVersion": 2}),
    "add and remove of one path": line(add=FILE) + line(remove=GONE),
    "a path outside": line(add={**FILE, "path": "../x.parquet"}),
    "an absolute path outside": line(add={**FILE, "path": "file:///etc/passwd"}),
    "an escaped path outside": line(add={**FILE, "path": "%2e%2e/x.parquet"}),
    "a negative size": line(add={**FILE, "size": -1}),
    "a size of 10^20": line(add={**FILE, "size": 10**20}),
    "a protocol downgrade": line(protocol={"minReaderVersion": 1, "minWriterVersion": 2}),
    "catalogManaged gone": line(
        protocol={
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [],
            "writerFeatures": ["inCommitTimestamp"],
        }
    ),
    "an unknown reader feature": line(
        protocol={
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["catalogManaged", "vacuumProtocolCheck", "fromTheFuture"],
            "writerFeatures": [
                "catalogManaged",
                "vacuumProtocolCheck",
                "inCommitTimestamp",
                "fromTheFuture",
            ],
        }
    ),
}


@shows("FI3", "FI4", "FI5")
@pytest.mark.parametrize("lines", CONTENTS.values(), ids=CONTENTS)
def test_a_commit_that_breaks_the_protocol_is_refused_with_a_reason(
    world: World, lines: bytes
) -> None:
    before = world.state()
    answer = proposed(world, lines)
    world.is_refused(answer, before)
    assert answer.status_code in (400, 413, 422)


@shows("FI5", "FX25")
def test_another_table_id_another_partitioning_and_time_switched_off_are_refused(
    world: World,
) -> None:
    table_id = world.tables[2]
    proposed(world, join([encode(add(values={}))]))
    for changed in (
        metadata(new_table_id()),
        metadata(table_id, "id long", partition_by=["id"]),
        metadata(table_id, properties={"delta.enableInCommitTimestamps": "false"}),
        metadata(table_id, properties={"io.unitycatalog.tableId": new_table_id()}),
    ):
        before = world.state()
        world.is_refused(proposed(world, join([encode(changed)])), before)


@shows("FI4")
def test_an_unknown_action_is_kept_and_not_dropped(world: World) -> None:
    strange = line(fromTheFuture={"a": [1, 2, {"b": None}]})
    answer = proposed(world, strange + join([encode(add())]))
    assert answer.status_code == 200, answer.text
    [commit] = answer.json()["commits"].values()
    assert strange.rstrip() in base64.b64decode(commit["content"])


@shows("FI6")
def test_gaps_taken_versions_and_used_ids_each_have_a_code_of_their_own(world: World) -> None:
    table_id = world.make("codes")
    path = f"/v1/tables/{table_id}/commits"
    txn_id = key()
    first = {
        "txnId": txn_id,
        "version": 1,
        "content": content(metadata(table_id, "id long, b long")),
    }
    assert world.http.post(path, json=first).status_code == 200
    asked = {
        "invalid-commit": {"txnId": key(), "version": 9, "content": content(add())},
        "conflict": {"txnId": key(), "version": 1, "content": content(metadata(table_id))},
        "txn-id-reused": {"txnId": txn_id, "version": 2, "content": content(add())},
    }
    for code, body in asked.items():
        before = world.state()
        answer = world.http.post(path, json=body)
        world.is_refused(answer, before)
        assert answer.json()["code"] == code
    world.http.delete(f"/v1/tables/{table_id}")


@shows("FI8")
def test_an_old_client_of_a_table_that_was_dropped_and_made_again_is_refused_by_id(
    world: World,
) -> None:
    old = world.make("again")
    world.http.delete(f"/v1/tables/{old}")
    new = world.make("again")
    before = world.state()
    answer = world.http.post(
        f"/v1/tables/{old}/commits", json={"txnId": key(), "version": 1, "content": content(add())}
    )
    world.is_refused(answer, before)
    assert world.http.get("/v1/names/again").json()["tableId"] == new
    world.http.delete(f"/v1/tables/{new}")
