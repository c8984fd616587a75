"""The JDK's own HTTP client, which hopes for HTTP/2: what it sends is read, and answered.

Driven through py4j's gateway, so that no code of ours runs in the JVM.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from tests.http.unity.conftest import BASE, add_commit, make
from tests.kit import java, shows
from tests.kit.server import RunningServer

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    java.require()
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    process = subprocess.Popen(
        ["java", "-cp", str(jar), "py4j.GatewayServer", "--die-on-broken-pipe", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    port = int(process.stdout.readline())
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.close()
    process.stdin.close()
    process.kill()
    process.wait()
    process.stdout.close()


def send(jvm: Any, url: str, method: str, body: object) -> tuple[int, str]:
    """Send a request as Java programs do by default."""
    http = jvm.java.net.http
    publisher = http.HttpRequest.BodyPublishers.ofString(json.dumps(body))
    request = (
        http.HttpRequest.newBuilder()
        .uri(jvm.java.net.URI.create(url))
        .header("Content-Type", "application/json")
        .header("Authorization", "Bearer ")
        .method(method, publisher)
        .build()
    )
    client = http.HttpClient.newHttpClient()
    assert client.version().toString() == "HTTP_2"
    answer = client.send(request, http.HttpResponse.BodyHandlers.ofString())
    return answer.statusCode(), answer.body()


@shows("FX20")
def test_a_commit_of_a_java_client_is_read_and_answered(tmp_path: Path, jvm: Any) -> None:
    environment = {"HEADGATE_VERIFY_STAGED": "0"}
    with (
        RunningServer(str(tmp_path / "lake"), environment=environment) as server,
        httpx.Client(base_url=server.address) as http,
    ):
        table = make(http)
        body = table.change(add_commit(table.put(1)))
        status, text = send(jvm, server.address + table.url, "POST", body)
        assert (status, json.loads(text)["latest-table-version"]) == (200, 1)
        commits = f"{server.address}{BASE}/delta/preview/commits"
        snake = {key.replace("-", "_"): value for key, value in table.put(2).items()}
        named = {"table_id": table.table_id, "table_uri": table.location}
        assert send(jvm, commits, "POST", {**named, "commit_info": snake}) == (200, "200")
        status, text = send(jvm, commits, "GET", {**named, "start_version": 1})
        assert status == 200
        assert [commit["version"] for commit in json.loads(text)["commits"]] == [2, 1]
