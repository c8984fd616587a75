"""Whatever is sent in either dialect: no 5xx, an error in its form, and no change on a refusal."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headgate.api.messages import Severity
from headgate.http.operations import Operation
from headgate.http.unity import preview, rest, v1
from headgate.protocol.actions import TableId
from headgate.protocol.table_states import TableStatus
from headgate.settings import Settings
from tests.http.conftest import Served, serving
from tests.http.unity.conftest import (
    BASE,
    V1,
    Stock,
    add_commit,
    claim,
    error,
    make,
    older_error,
    stage,
)
from tests.kit import shows
from tests.kit.invalid_texts import places, spoiled

SETTINGS = Settings(verify_staged=0)
OPERATIONS = {
    f"{row.method} {row.path.removeprefix(BASE)}": row
    for dialect in (rest, v1, preview)
    for row in dialect.operations
}
IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
EXAMPLES = 400 if IS_LONG else 25
PHASES = [Phase.generate, Phase.shrink] if IS_LONG else [Phase.generate]


class World:
    """A server with some tables, and what it holds at any moment."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.http = served.http
        self.tables = [make(served.http, name) for name in ("t0", "t1")]
        self.staged = stage(served.http, "waiting")
        named = served.http.post(
            f"{BASE}/tables",
            json={
                "name": "ext",
                "catalog_name": "main",
                "schema_name": "default",
                "table_type": "EXTERNAL",
                "storage_location": "file:///elsewhere/ext",
                "columns": [],
            },
        )
        self.external = named.json()["table_id"]

    def repair(self) -> None:
        """Have again what was renamed, dropped or used up."""
        if self.http.get(f"{BASE}/schemas/main.default").status_code == 404:
            self.http.post(f"{BASE}/schemas", json={"name": "default", "catalog_name": "main"})
        for place, stock in enumerate(self.tables):
            if self.http.head(stock.url).status_code != 204:
                self.tables[place] = make(self.http, stock.name)
        with self.served.catalog._store.read() as unit:
            if TableId(self.staged.table_id) not in [
                row.id for row in unit.tables_in_state(TableStatus.STAGING)
            ]:
                self.staged = stage(self.http, f"waiting{uuid.uuid4().hex}")

    def state(self) -> object:
        """Return all that a refusal must leave alone."""
        catalog = self.served.catalog
        with catalog._store.read() as unit:
            clock, staging = unit.clock(), unit.tables_in_state(TableStatus.STAGING)
        return (
            clock.sequence,
            catalog.namespaces(),
            catalog.tables(dropped=True),
            [row.id for row in staging],
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    for served in serving(tmp_path_factory.mktemp("fuzz") / "lake", SETTINGS):
        yield World(served)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["", "../x", "main", "t0", "\0", "\ud800", "a/b", "x" * 300, "file:///x"]),
)
JSONS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["t0", "t1", "ext", "none", "main", "default", "main.default", "main.default.t0", "a.b.c.d"]
)
PARTS = st.one_of(NAMES, NAMES, st.text(min_size=1, max_size=12))


def declarations() -> list[dict[str, Any]]:
    """Return every declaration that an external table may have."""
    protocol = {"min-reader-version": 1, "min-writer-version": 2, "writer-features": ["x"]}
    field = {"name": "a", "type": "long", "nullable": True, "metadata": {}}
    clustering = {"clusteringColumns": [["a"]]}
    return [
        {"action": "set-columns", "columns": {"type": "struct", "fields": [field]}},
        {"action": "set-partition-columns", "partition-columns": ["a"]},
        {"action": "set-protocol", "protocol": protocol},
        {"action": "set-properties", "updates": {"a": "b"}},
        {"action": "remove-properties", "removals": ["c"]},
        {"action": "set-domain-metadata", "updates": {"delta.clustering": clustering}},
        {"action": "remove-domain-metadata", "domains": ["delta.rowTracking"]},
        {"action": "set-table-comment", "comment": "x"},
        {
            "action": "update-metadata-snapshot-version",
            "last-commit-version": 1,
            "last-commit-timestamp-ms": 1,
        },
    ]


def plausible(world: World, operation: Operation) -> list[Any]:
    """Return bodies that would do, or nearly: what is drawn changes them in one place or two."""
    world.repair()
    stock: Stock = world.tables[0]
    put = stock.put(stock.load()["latest-table-version"] + 1)
    snake = {key.replace("-", "_"): value for key, value in put.items()}
    place = {"name": "new", "catalog_name": "main", "schema_name": "default"}
    known: dict[str, list[Any]] = {
        "unity_update_table": [
            stock.change(add_commit(put), claim(0), etag="0"),
            stock.change({"action": "set-properties", "updates": {"a": "b"}}),
            {
                "requirements": [{"type": "assert-table-uuid", "uuid": world.external}],
                "updates": declarations(),
            },
            stock.change(add_commit(put), {"action": "set-columns", "columns": {}}),
        ],
        "unity_stage_table": [{"name": "new"}],
        "unity_create_table": [world.staged.create],
        "unity_report_metrics": [
            {"table-id": stock.table_id, "report": {"commit-report": {"num-files-added": 1}}}
        ],
        "unity_rename_table": [{"new-name": "t9"}],
        "unity_create_catalog": [{"name": "c9", "comment": "x", "properties": {"a": "b"}}],
        "unity_change_catalog": [{"comment": "x", "properties": {"a": "b"}}],
        "unity_create_schema": [{"name": "s9", "catalog_name": "main", "comment": "x"}],
        "unity_change_schema": [{"comment": "x", "properties": {"a": "b"}}],
        "unity_name_table": [
            {**place, "table_type": "MANAGED", "storage_location": world.staged.location},
            {
                **place,
                "table_type": "EXTERNAL",
                "storage_location": "file:///elsewhere/y",
                "columns": [{"name": "a", "type_text": "int"}],
            },
        ],
        "unity_stage_older_table": [place],
        "unity_open_table": [{"table_id": stock.table_id, "operation": "READ"}],
        "unity_open_path": [{"url": "file:///elsewhere/x", "operation": "PATH_READ"}],
        "unity_add_commit": [
            {"table_id": stock.table_id, "table_uri": stock.location, "commit_info": snake},
            {
                "table_id": stock.table_id,
                "table_uri": stock.location,
                "latest_backfilled_version": 0,
            },
        ],
        "unity_commits": [
            {"table_id": stock.table_id, "table_uri": stock.location, "start_version": 0}
        ],
    }
    return known.get(operation.name, [{}])


def changed(data: st.DataObject, body: Any) -> Any:
    """Put something else into one place of a body."""
    match body:
        case dict() if body and data.draw(st.integers(0, 3)):
            key = data.draw(st.sampled_from(sorted(body)))
            if data.draw(st.integers(0, 5)) == 0:
                return {name: value for name, value in body.items() if name != key}
            return {**body, key: changed(data, body[key])}
        case list() if body and data.draw(st.integers(0, 3)):
            place = data.draw(st.integers(0, len(body) - 1))
            return [*body[:place], changed(data, body[place]), *body[place + 1 :]]
        case _:
            return data.draw(JSONS)


def encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):  # escapes can express any text and number
        return json.dumps(value).encode()


@shows("FI3")
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_text_that_is_not_unicode_is_400_wherever_it_is(world: World, name: str) -> None:
    operation = OPERATIONS[name]
    known = {"table_id": world.tables[0].table_id, "catalog": "main", "schema": "default"}
    path = re.sub(r"\{(\w+)\}", lambda part: known.get(part[1], "t0"), operation.path)
    for body in plausible(world, operation):
        for place in places(body):
            before = world.state()
            content = encoded(spoiled(body, place))
            assert b"\\ud800" in content
            response = world.http.request(operation.method, path, content=content)
            assert response.status_code == 400, (place, response.text)
            (error if path.startswith(f"{V1}/") else older_error)(response)
            assert world.state() == before


@shows("FI2", "FI3")
@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_whatever_is_sent_is_answered_in_the_form_of_the_dialect_and_a_refusal_changes_nothing(
    world: World, name: str
) -> None:
    operation = OPERATIONS[name]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=PHASES,
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        body = data.draw(st.sampled_from(plausible(world, operation)))
        for _ in range(data.draw(st.integers(0, 2))):
            body = changed(data, body)
        known = {
            "table_id": st.sampled_from([world.tables[0].table_id, str(uuid.uuid4()), "x"]),
            "catalog": st.one_of(st.just("main"), PARTS),
            "schema": st.one_of(st.just("default"), PARTS),
        }
        path = re.sub(
            r"\{(\w+)\}",
            lambda part: escaped(data.draw(known.get(part[1], PARTS))),
            operation.path,
        )
        query = data.draw(
            st.dictionaries(
                st.sampled_from(
                    [
                        *("catalog_name", "schema_name", "max_results", "page_token", "force"),
                        *("catalog", "protocol-versions", "operation", "start_version"),
                        *("table_id", "table_uri", "omit_columns"),
                    ]
                ),
                st.one_of(NAMES, st.text(max_size=8), st.sampled_from(["1", "-1", "true", "1.0"])),
                max_size=4,
            )
        )
        before = world.state()
        try:
            response = world.http.request(
                operation.method, path, params=query, content=encoded(body)
            )
        except (httpx.InvalidURL, UnicodeEncodeError):
            return  # cannot be expressed in HTTP
        assert response.status_code < 500 or response.status_code == 501, response.text
        if response.status_code >= 400:
            assert world.state() == before
            if operation.method != "HEAD":
                is_newer = path.startswith(f"{V1}/")
                (error if is_newer else older_error)(response)

    run()
    found = [f for f in world.served.catalog.fsck() if f.severity is Severity.ERROR]
    errors = [f for f in found if f.rule != "data-file"]  # their files are nowhere
    assert errors == []


def escaped(part: str) -> str:
    return "".join(
        letter if letter.isascii() and letter.isalnum() else percent(letter) for letter in part
    )


def percent(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode(errors="surrogatepass"))
