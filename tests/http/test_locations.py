"""What a server's clients may choose as the location of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog.stores.rows import LocationRow
from headgate.client.session import Session
from headgate.clock import RandomIds, SystemClock
from headgate.errors import PermissionDeniedError, UnsupportedByCatalogError
from headgate.names import TableName
from headgate.storage import locations
from tests.http.conftest import Served

UNITY = "/api/2.1/unity-catalog"


def requests(location: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Build every request in which a client chooses a location."""
    external = {
        "name": "ext",
        "catalog_name": "main",
        "schema_name": "default",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": location,
    }
    return {
        "stage": ("/v1/staging-tables", {"location": location}),
        "register": ("/v1/tables", {"name": "ext", "external": {"location": location}}),
        "unity": (f"{UNITY}/tables", external),
        "path": (
            f"{UNITY}/temporary-path-credentials",
            {"url": location, "operation": "PATH_CREATE_TABLE"},
        ),
    }


@pytest.mark.parametrize("way", requests(""))
@pytest.mark.parametrize(
    ("location", "status"),
    [
        ("{outside}/t", 403),
        ("{outside}", 403),
        ("file:///etc", 403),
        ("s3://bucket/x", 403),
        ("az://container/x", 403),
        ("gs://bucket", 403),
        ("memory://x/y", 400),
        ("s3://user:hunter2@bucket/x", 400),
        ("az://", 400),
        ("relative", 400),
        ("", 400),
        ("file:///elsewhere/../etc", 400),
        ("file:///elsewhere/%2e%2e/etc", 400),
        ("file:///elsewhere/" + "x" * 4_000, 400),
    ],
)
def test_a_location_that_no_administrator_allowed_is_refused(
    served: Served, tmp_path: Path, way: str, location: str, status: int
) -> None:
    outside = tmp_path / "outside"
    path, body = requests(location.format(outside=outside))[way]
    answer = served.http.post(path, json=body)
    assert answer.status_code == status
    assert "hunter2" not in answer.text
    assert not outside.exists()
    assert served.catalog.tables() == ()


@pytest.mark.parametrize("way", requests(""))
def test_a_location_under_a_registered_one_is_taken(
    served: Served, tmp_path: Path, way: str
) -> None:
    served.catalog.add_location(str(tmp_path / "landing"))
    path, body = requests(f"file://{tmp_path}/landing/t")[way]
    assert served.http.post(path, json=body).status_code == 200


def test_a_client_sees_the_locations_and_cannot_register_one(
    served: Served, tmp_path: Path
) -> None:
    remote = served.remote()
    assert [entry.url for entry in remote.locations()] == ["file:///elsewhere"]
    with pytest.raises(PermissionDeniedError, match="registered"):
        remote.register_external(TableName.parse("ext"), str(tmp_path / "x"))
    for method in ("POST", "PUT"):
        answer = served.http.request(method, "/v1/locations", json={"url": f"file://{tmp_path}"})
        assert answer.status_code in (404, 405)


def test_a_session_of_a_server_says_where_to_register_a_location(served: Served) -> None:
    clock = SystemClock()
    session = Session(
        served.remote(), clock=clock, ids=RandomIds(clock), store_for=locations.store_for
    )
    with pytest.raises(UnsupportedByCatalogError) as refused:
        session.add_location("s3://bucket/x")
    assert "store" in refused.value.remedy
    assert [entry.url for entry in session.locations()] == ["file:///elsewhere"]


def location_inputs(location: str) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Build every request that names a location, also of one that must be there already."""
    table_id = "00000000-0000-4000-8000-000000000000"
    new = {"name": "x", "catalog_name": "main", "schema_name": "default"}
    declared = {"table_type": "MANAGED", "data_source_format": "DELTA", "columns": []}
    chosen = {way: ("POST", *request) for way, request in requests(location).items()}
    return {
        **chosen,
        "catalog": ("POST", f"{UNITY}/catalogs", {"name": "c", "storage_root": location}),
        "schema": ("POST", f"{UNITY}/schemas", {**new, "storage_root": location}),
        "managed": (
            "POST",
            f"{UNITY}/tables",
            {**new, **declared, "storage_location": location},
        ),
        "v1": (
            "POST",
            f"{UNITY}/delta/v1/catalogs/main/schemas/default/tables",
            {
                "name": "x",
                "location": location,
                "table-type": "MANAGED",
                "columns": {
                    "type": "struct",
                    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
                },
                "protocol": {"min-reader-version": 3, "min-writer-version": 7},
                "properties": {},
            },
        ),
        "commits": (
            "GET",
            f"{UNITY}/delta/preview/commits",
            {"table_id": table_id, "table_uri": location, "start_version": 0},
        ),
        "commit": (
            "POST",
            f"{UNITY}/delta/preview/commits",
            {"table_id": table_id, "table_uri": location, "latest_backfilled_version": 0},
        ),
    }


@pytest.mark.parametrize("way", location_inputs(""))
def test_no_location_is_an_error_of_the_server_or_shows_a_password(
    served: Served, way: str
) -> None:
    with served.catalog._store.write() as unit:  # registered where an account was configured
        for url in ("az://container", "abfss://container"):
            unit.insert_location(LocationRow(url, 0))
    for location in (
        "az://container/x",
        "az://container",
        "az://",
        "abfss://container/x",
        "abfss://container@account/x",
        "abfss://a@b@c/x",
        "gs://bucket/x/__unitystorage/y",
        "s3://user:hunter2@bucket/x/__unitystorage/y",
        "s3://user:hunter2@bucket",
        "s3://:hunter2@/x",
        "s3://bucket/\0",
        "s3://bucket/\ud800",
        "s3://bucket/%ff",
        "s3://[::1/x",
        "http://[::1/x",
        "file://",
        "file:",
        "file:////",
        "://x",
        "x" * 5_000,
        "memory://",
        "\0",
        "/\0",
        "/elsewhere/" + "a/" * 1_500,
    ):
        method, path, body = location_inputs(location)[way]
        raw = json.dumps(body).encode()
        answer = served.http.request(
            method, path, content=raw, headers={"content-type": "application/json"}
        )
        assert answer.status_code < 500, (location, answer.text)
        assert "hunter2" not in answer.text
