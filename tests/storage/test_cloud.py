"""Objects of a bucket, on a local S3 server."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import obstore
import pytest
from obstore.exceptions import GenericError

from headgate.errors import HeadgateError, InvalidArgumentError, NotFoundError, UnavailableError
from headgate.storage.cloud import CloudStore, has_credentials
from headgate.storage.locations import store_for
from headgate.storage.object_store import ObjectStore, PutUnknownError
from tests.storage.object_store_contract import ObjectStoreContract


class TestCloudStore(ObjectStoreContract):
    examples = 8

    @pytest.fixture
    def store(self, bucket: str) -> ObjectStore:
        return CloudStore.from_url(bucket)


@pytest.fixture
def store(bucket: str) -> CloudStore:
    return CloudStore.from_url(bucket)


def test_a_location_below_a_bucket_is_a_store_of_its_own(bucket: str) -> None:
    table = store_for(f"{bucket}/tables/7 8%25x/")
    assert table.put_if_absent("log/p=a%20b", b"1")
    assert [meta.path for meta in table.list("", recursive=True)] == ["log/p=a%20b"]
    assert [meta.path for meta in table.list("log", start_after="log/a")] == ["log/p=a%20b"]
    assert list(table.folders("")) == ["log"]
    assert store_for(bucket).get("tables/7 8%x/log/p=a%20b") == b"1"
    assert table.url == f"{bucket}/tables/7%208%25x"


@pytest.mark.slow
def test_more_than_one_page_is_listed(store: CloudStore) -> None:
    names = {f"log/{number:04}" for number in range(1003)}
    for name in names:
        store.put(name, b"")
    assert {meta.path for meta in store.list("log")} == names
    assert {meta.path for meta in store.list("log", start_after="log/0001")} == {
        name for name in names if name > "log/0001"
    }


def test_names_no_bucket_can_hold_are_refused(store: CloudStore) -> None:
    with pytest.raises(InvalidArgumentError):
        store.put("a\nb", b"")


def test_a_bucket_that_is_not_there_is_not_found(bucket: str) -> None:
    store = CloudStore.from_url(f"{bucket}-missing")
    with pytest.raises(NotFoundError):
        store.get("a")
    with pytest.raises(HeadgateError):
        store.put("a", b"")


class LosesAnswers:
    """obstore's `put` whose answer is lost for the first few calls, after or before the effect."""

    def __init__(self, times: int, *, happens: bool) -> None:
        self.left, self.happens, self._put = times, happens, obstore.put

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            return self._put(*args, **options)
        if self.happens:
            self._put(*args, **options)
        raise GenericError("connection reset")


@pytest.mark.parametrize("happens", [True, False])
@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_answer_is_settled_by_what_is_there(
    store: CloudStore, monkeypatch: pytest.MonkeyPatch, happens: bool, times: int
) -> None:
    monkeypatch.setattr(obstore, "put", LosesAnswers(times, happens=happens))
    assert store.put_if_absent("a", b"ours") is True
    assert store.put_if_absent("a", b"ours") is False
    assert store.get("a") == b"ours"


def test_a_lost_answer_does_not_claim_what_another_put(
    store: CloudStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"theirs")
    monkeypatch.setattr(obstore, "put", LosesAnswers(1, happens=False))
    assert store.put_if_absent("a", b"ours") is False


def test_no_answer_at_all_is_unknown(store: CloudStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstore, "put", LosesAnswers(99, happens=False))
    with pytest.raises(PutUnknownError):
        store.put_if_absent("a", b"ours")
    with pytest.raises(PutUnknownError):
        store.put("a", b"ours")


def test_reading_from_a_server_that_is_down_is_unavailable(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    client = obstore.store.from_url(bucket, retry_config={"max_retries": 0})
    store = CloudStore(bucket, client, client)
    with pytest.raises(UnavailableError):
        store.get("a")
    with pytest.raises(UnavailableError):
        list(store.list("a"))
    with pytest.raises(PutUnknownError):
        store.put_if_absent("a", b"")


# Credentials


def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "HEADGATE_")):
            monkeypatch.delenv(name)


class Requests(BaseHTTPRequestHandler):
    """A bucket, or a metadata service, in which nothing is found; it keeps what it was asked."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("authorization")))
        self.send_error(404)

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def empty_endpoint() -> Iterator[str]:
    Requests.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Requests) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_bucket_is_read_unsigned_where_no_credentials_are_given(
    empty_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_credentials(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT", empty_endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with pytest.raises(NotFoundError):
        CloudStore.from_url("s3://public").get("a")
    assert Requests.asked == [("/public/a", None)]


def test_a_metadata_service_is_asked_only_on_request(
    empty_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_credentials(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", empty_endpoint)
    with pytest.raises(HeadgateError):
        CloudStore.from_url("s3://private").put_if_absent("a", b"")
    assert any("latest" in path for path, _ in Requests.asked)


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        ("s3", "AWS_ACCESS_KEY_ID"),
        ("s3", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        ("gs", "GOOGLE_SERVICE_ACCOUNT"),
        ("az", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("abfss", "AZURE_STORAGE_SAS_TOKEN"),
        *((scheme, "HEADGATE_MACHINE_CREDENTIALS") for scheme in ("s3", "gs", "az", "abfss")),
    ],
)
def test_credentials_are_those_of_the_environment(
    scheme: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert has_credentials(scheme, {name: "1"})
    assert not has_credentials(scheme, {})
    assert not has_credentials(scheme, {name: "", "OTHER": "1"})
