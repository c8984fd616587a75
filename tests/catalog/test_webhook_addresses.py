"""Which addresses events are posted to, and what a failed delivery discloses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headgate.api.events import Event
from headgate.catalog.webhook_addresses import WebhookAddresses
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnavailableError,
)
from headgate.http.webhooks import Webhook
from headgate.protocol.actions import Sequence
from headgate.settings import Settings
from tests.catalog.conftest import House
from tests.kit.webhook_receiver import Receiver, running_receiver

EVENT = Event(sequence=Sequence(1), timestamp_ms=0, commits=())
NOT_PUBLIC = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0.0.0.0",
    "localhost",
    "LocalHost",
    "a.localhost",
    "localhost.",
    "a.localhost.",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",  # metadata services of clouds
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fe80::1%1]",
    "[fec0::1]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[3fff::1]",
]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


def host_of(url_host: str) -> str:
    return httpx.URL(f"http://{url_host}/").host


@pytest.mark.parametrize("host", NOT_PUBLIC)
def test_a_listener_at_an_address_that_is_not_public_is_refused(host: str) -> None:
    with pytest.raises(PermissionDeniedError, match="not public"):
        WebhookAddresses("").check_host(host_of(host))
    WebhookAddresses("*").check_host(host_of(host))


@pytest.mark.parametrize(
    "host",
    [
        "8.8.8.8",
        "[2606:4700::1111]",
        "[::ffff:8.8.8.8]",
        "[64:ff9b::808:808]",
        "[2002:808:808::1]",
        "example.com",
        "jobs.internal",
    ],
)
def test_public_addresses_and_names_can_be_registered(host: str) -> None:
    WebhookAddresses("").check_host(host_of(host))


def test_networks_can_be_allowed_one_by_one() -> None:
    receivers = WebhookAddresses("10.0.0.0/8, fd00::/8")
    receivers.check_host("10.1.2.3")
    receivers.check_host("fd00::1")
    receivers.check_host("::ffff:10.1.2.3")
    with pytest.raises(PermissionDeniedError):
        receivers.check_host("127.0.0.1")


def test_what_is_not_a_network_is_refused() -> None:
    for wrong in ("internal", "10.0.0.0/8;11.0.0.0/8"):
        with pytest.raises(InvalidArgumentError):
            Settings(listener_networks=wrong)
    with pytest.raises(InvalidArgumentError, match=r"10\.0\.0\.0/99"):
        WebhookAddresses("10.0.0.0/99")


def test_the_catalog_registers_no_listener_at_a_private_address(inline_lake: House) -> None:
    with pytest.raises(PermissionDeniedError):
        inline_lake.database.put_listener("hook", "http://127.0.0.1:9000/")
    assert inline_lake.database.listeners() == ()


def resolves_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let every name resolve to these addresses."""
    real = socket.getaddrinfo

    def lookup(host: str, port: int, *args: Any, **options: Any) -> Any:
        if host != "receiver.example":
            return real(host, port, *args, **options)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def test_a_name_that_resolves_to_a_private_address_is_not_posted_to(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolves_to(monkeypatch, "127.0.0.1")
    url = receiver.url.replace("127.0.0.1", "receiver.example")
    with pytest.raises(PermissionDeniedError):
        Webhook(url, WebhookAddresses(""))(EVENT)
    assert receiver.posted == []


def test_a_name_that_cannot_be_resolved_is_refused_like_one_of_a_private_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusal(host: str) -> str:
        with pytest.raises(PermissionDeniedError) as refused:
            WebhookAddresses("10.0.0.0/8").resolve(host, 80)
        return str(refused.value).replace(host, "")

    resolves_to(monkeypatch, "127.0.0.1")
    assert refusal("receiver.example") == refusal("absent.invalid")
    with pytest.raises(UnavailableError, match="cannot be resolved"):  # any may be named: no secret
        WebhookAddresses("*").resolve("absent.invalid", 80)


@pytest.mark.parametrize("addresses", [("8.8.8.8", "127.0.0.1"), ("127.0.0.1", "8.8.8.8")])
def test_a_name_of_which_one_address_is_private_is_refused(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, str]
) -> None:
    resolves_to(monkeypatch, *addresses)
    with pytest.raises(PermissionDeniedError):
        WebhookAddresses("").resolve("receiver.example", 80)


def test_the_address_that_was_checked_is_the_one_connected_to(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolves_to(monkeypatch, "127.0.0.1")
    url = receiver.url.replace("127.0.0.1", "receiver.example")
    webhook = Webhook(url, WebhookAddresses("127.0.0.0/8"))
    checked = webhook._receivers.resolve("receiver.example", 80)
    monkeypatch.setattr(webhook._receivers, "resolve", lambda host, port: checked)
    resolves_to(monkeypatch, "192.0.2.1")  # what another lookup would give
    webhook(EVENT)
    assert receiver.sequences == [1]
    assert receiver.headers[0]["host"] == httpx.URL(url).netloc.decode()


def test_a_receiver_shows_the_certificate_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "127.0.0.1")
    sent: list[httpx.Request] = []

    def acknowledge(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200)

    transport = httpx.MockTransport(acknowledge)
    Webhook("https://receiver.example:8443/x", WebhookAddresses("*"), transport)(EVENT)
    [request] = sent
    assert str(request.url) == "https://127.0.0.1:8443/x"
    assert request.headers["host"] == "receiver.example:8443"
    # The name that is asked for, and that the certificate is checked against.
    assert request.extensions["sni_hostname"] == "receiver.example"


def test_the_next_address_of_a_host_is_tried_when_one_refuses(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolves_to(monkeypatch, "127.0.0.77", "127.0.0.1")  # nothing listens at the first
    url = receiver.url.replace("127.0.0.1", "receiver.example")
    Webhook(url, WebhookAddresses("127.0.0.0/8"))(EVENT)
    assert receiver.sequences == [1]


def test_a_proxy_in_the_environment_is_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        Webhook(receiver.url, WebhookAddresses("*"))(EVENT)
        assert (receiver.sequences, proxy.posted) == ([1], [])


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.statuses = [307]
    with pytest.raises(HeadgateError):
        Webhook(receiver.url, WebhookAddresses("*"))(EVENT)
    assert len(receiver.posted) == 1


def test_a_failure_tells_neither_what_is_open_nor_what_answers(receiver: Receiver) -> None:
    receiver.statuses = [500, 404, 302]
    reasons = set()
    for url in (receiver.url, receiver.url, receiver.url, "http://127.0.0.1:9/"):
        with pytest.raises(HeadgateError) as failed:
            Webhook(url, WebhookAddresses("*"))(EVENT)
        reasons.add(failed.value.message)
    with running_receiver() as silent:
        silent.may_answer.clear()
        webhook = Webhook(silent.url, WebhookAddresses("*"))
        webhook._http.timeout = httpx.Timeout(0.1)
        with pytest.raises(HeadgateError) as failed:
            webhook(EVENT)
        silent.may_answer.set()
    assert {*reasons, failed.value.message} == {failed.value.message}
    assert "127.0.0.1" not in failed.value.message
