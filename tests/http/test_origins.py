"""Requests that a browser sends on behalf of a foreign web page are not served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headgate.errors import InvalidArgumentError, PermissionDeniedError
from headgate.http.origins import Origins
from headgate.settings import Settings
from tests.faults.server_harness import serving as serving_process
from tests.http.conftest import Served, serving

UNITY = "/api/2.1/unity-catalog"
CREATING = [
    ("/v1/namespaces", '{"name": "mine"}'),
    (f"{UNITY}/schemas", '{"name": "mine", "catalog_name": "main"}'),
]


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Served]:
    """A server as on the machine of one user: without authentication, on a loopback address."""
    for served in serving(tmp_path / "lake"):
        served.server.origins = Origins("127.0.0.1", ["lake.example.com"])
        yield served


def is_created(served: Served) -> bool:
    return any(str(name) == "main.mine" for name in served.catalog.namespaces())


def post(served: Served, path: str, body: str, **headers: str) -> httpx.Response:
    sent = {"host": "127.0.0.1:8750", "content-type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    return served.http.post(path, content=body, headers=sent)


@pytest.mark.parametrize(("path", "body"), CREATING)
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://127.0.0.1:9999",
        "http://127.0.0.1.evil.example:8750",
        "http://evil.example/127.0.0.1:8750",
        "file://",
        "",
    ],
)
def test_a_request_of_a_foreign_page_is_403_and_changes_nothing(
    local: Served, path: str, body: str, origin: str
) -> None:
    answer = post(local, path, body, origin=origin)
    assert answer.status_code == 403
    assert not is_created(local)


@pytest.mark.parametrize(("path", "body"), CREATING)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8750",
        "127.0.0.1.evil.example",
        "169.254.1.1",
        "localhost.x",
        "",
    ],
)
def test_a_foreign_host_is_403_and_changes_nothing(
    local: Served, path: str, body: str, host: str
) -> None:
    assert post(local, path, body, host=host).status_code == 403
    assert local.http.get("/metrics", headers={"host": host}).status_code == 403
    assert not is_created(local)


@pytest.mark.parametrize(("path", "body"), CREATING)
@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json", ""],
)
def test_a_body_that_is_not_declared_as_json_is_415_and_changes_nothing(
    local: Served, path: str, body: str, kind: str
) -> None:
    assert post(local, path, body, content_type=kind).status_code == 415
    undeclared = local.http.build_request("POST", path, content=body, headers={"host": "localhost"})
    undeclared.headers.pop("content-type", None)
    assert local.http.send(undeclared).status_code == 415
    assert not is_created(local)


@pytest.mark.parametrize(("path", "body"), CREATING)
@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "application/json; charset=utf-8"},
        {"content_type": "Application/JSON"},
        {"host": "localhost:8750", "origin": "http://localhost:8750"},
        {"host": "[::1]:8750"},
        {"host": "lake.example.com", "origin": "https://lake.example.com"},
        {"origin": "https://lake.example.com"},
        {"host": "LOCALHOST"},
    ],
)
def test_clients_and_the_servers_own_pages_are_served(
    local: Served, path: str, body: str, headers: dict[str, str]
) -> None:
    assert post(local, path, body, **headers).status_code == 200 or is_created(local)


def test_a_request_without_a_body_needs_no_content_type(local: Served) -> None:
    post(local, *CREATING[0])
    headers = {"host": "localhost"}
    assert local.http.delete("/v1/namespaces/mine", headers=headers).status_code == 204


def test_with_authentication_any_host_is_served_unless_some_are_named() -> None:
    Origins(None, []).check(b"catalog.example.com", None)
    Origins(None, ["*"]).check(b"catalog.example.com", None)
    with pytest.raises(PermissionDeniedError):
        Origins(None, ["other.example.com"]).check(b"catalog.example.com", None)


def test_a_web_page_is_foreign_also_where_any_host_is_served() -> None:
    with pytest.raises(PermissionDeniedError):
        Origins(None, []).check(b"catalog.example.com", b"https://evil.example")


@pytest.mark.parametrize("allowed", ["fd00::1", "::1", "[fd00::1]", "..", "-"])
def test_an_allowed_address_may_lack_brackets_and_allows_nothing_else(allowed: str) -> None:
    origins = Origins("127.0.0.1", [allowed])
    for origin in (b"null", b"", b"http://", b"http://fd00"):
        with pytest.raises(PermissionDeniedError):
            origins.check(b"127.0.0.1", origin)
    for host in (b"", b"fd00", b":8750"):
        with pytest.raises(PermissionDeniedError):
            origins.check(host, None)
    if allowed.strip("[]") == "fd00::1":
        origins.check(b"[fd00::1]:8750", b"http://[fd00::1]:8750")


def test_names_of_hosts_are_settings() -> None:
    assert Settings(allowed_hosts="lake.example.com, 10.0.0.1, [fd00::1]").allowed_hosts
    with pytest.raises(InvalidArgumentError, match="allowed_hosts"):
        Settings(allowed_hosts="http://lake.example.com")


@pytest.mark.slow
@pytest.mark.faults
def test_a_server_without_tokens_checks_the_host_and_its_setting(tmp_path: Path) -> None:
    environment = {"HEADGATE_ALLOWED_HOSTS": "lake.example.com"}
    with (
        serving_process(tmp_path / "lake", environment=environment) as server,
        httpx.Client(base_url=server.address) as http,
    ):
        statuses = {
            host: http.get("/v1/tables", headers={"host": host}).status_code
            for host in (f"127.0.0.1:{server.port}", "lake.example.com", "evil.example")
        }
    assert list(statuses.values()) == [200, 200, 403]
