"""Events, listeners and status over HTTP: the same answers as in process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headgate._connect import embedded_catalog
from headgate.catalog.listeners import WEBHOOK
from headgate.catalog.service import Catalog
from headgate.catalog.webhook_addresses import WebhookAddresses
from headgate.client.remote import RemoteCatalog
from headgate.client.session import Session
from headgate.clock import RandomIds, SystemClock
from headgate.errors import (
    InTheFutureError,
    NotFoundError,
    UnsupportedByCatalogError,
    VersionGoneError,
)
from headgate.http import app
from headgate.http.server import Server
from headgate.http.webhooks import SEQUENCE_HEADER, Webhook
from headgate.protocol.actions import Sequence
from headgate.settings import Settings
from headgate.storage import locations
from tests.kit import req
from tests.kit.asgi import AsgiTransport
from tests.kit.conditions import eventually
from tests.kit.webhook_receiver import running_receiver

CLOCK = SystemClock()
IDS = RandomIds(CLOCK)


class Served:
    """A server of the feed without a socket, and a session beside it on the same catalog."""

    def __init__(self, catalog: Catalog, server: Server, transport: AsgiTransport) -> None:
        self.catalog = catalog
        self.server = server
        self.http = httpx.Client(base_url="http://testserver", transport=transport, timeout=60)
        self.remote = RemoteCatalog("http://testserver", clock=CLOCK, ids=IDS, sender=transport)
        self.session, self.far = (
            Session(known, clock=CLOCK, ids=IDS, store_for=locations.store_for)  # type: ignore[arg-type]
            for known in (catalog, self.remote)
        )

    def commit(self, name: str) -> None:
        table = self.session.table(name)
        table.set_properties({"test.turn": str(table.version)})


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    settings = Settings(
        longest_wait_ms=5_000,
        publish_on_close_ms=200,
        lease_ms=600,
        listener_networks="127.0.0.0/8",
    )
    catalog = embedded_catalog(
        str(tmp_path / "lake"), settings=settings, publisher=False, clock=CLOCK, ids=IDS
    )
    server = Server(
        catalog=catalog,
        settings=settings,
        clock=CLOCK,
        ids=IDS,
    )
    transport = AsgiTransport(app.Application(server))
    with transport.running():
        served = Served(catalog, server, transport)
        for name in "ab":
            served.session.create_table(name, "id long")
        with served.http:
            yield served
    catalog.close()


@req("EV-02")
def test_a_reader_of_the_feed_gets_what_the_catalog_gives(served: Served) -> None:
    for name in "aba":
        served.commit(name)
    assert list(served.far.events()) == list(served.session.events())
    assert [event.sequence for event in served.far.events(after=3)] == [4, 5]
    assert [event.sequence for event in served.far.events(tables=["b"])] == [2, 4]
    body = served.http.get("/v1/events?after=4").json()
    [event] = body["events"]
    assert set(event) == {"sequence", "timestampMs", "txnId", "commits"}
    assert set(event["commits"][0]) == {
        *("tableId", "name", "version", "way", "size", "timestampMs"),
    }


def test_pages_are_bounded_and_limits_obeyed(served: Served) -> None:
    served.commit("a")
    assert len(served.http.get("/v1/events?limit=2").json()["events"]) == 2
    assert len(served.http.get("/v1/events?limit=100000").json()["events"]) == 3
    for query in ("limit=0", "after=-1", "after=x", "wait=x"):
        assert served.http.get(f"/v1/events?{query}").status_code == 400, query


@req("EV-02")
def test_who_waits_is_answered_when_it_happens_and_holds_no_thread(served: Served) -> None:
    found: list[list[int]] = []

    def wait() -> None:
        events = served.http.get("/v1/events?after=2&wait=5").json()["events"]
        found.append([event["sequence"] for event in events])

    # More than there are threads to read with.
    threads = [threading.Thread(target=wait) for _ in range(40)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(served.catalog._feed._waiting) == 40)
    assert served.http.get("/v1/status").status_code == 200
    served.commit("a")
    for thread in threads:
        thread.join(20)
    assert found == [[3]] * 40


@pytest.mark.slow
def test_who_waits_in_vain_is_answered_with_nothing(served: Served) -> None:
    assert served.http.get("/v1/events?after=2&wait=1").json() == {"events": []}
    assert served.remote.events(Sequence(2), wait_s=0.2) == ()


def test_who_was_further_than_the_catalog_is_told_so(served: Served) -> None:
    for wait in ("", "&wait=5"):
        response = served.http.get(f"/v1/events?after=9{wait}")
        assert (response.status_code, response.json()["code"]) == (422, "in-the-future")
    with pytest.raises(InTheFutureError):
        list(served.far.events(after=9))


def test_deleted_events_are_410_and_the_answer_names_where_to_go_on(served: Served) -> None:
    served.commit("a")
    with served.catalog._store.write() as unit:
        unit.delete_events(Sequence(1))
    for wait in ("", "&wait=5"):
        response = served.http.get(f"/v1/events?after=0{wait}")
        assert (response.status_code, response.json()["code"]) == (410, "version-gone")
        assert "after 1" in response.json()["remedy"]
    response = served.http.put("/v1/listeners/late", json={"url": "http://127.0.0.1/", "after": 0})
    assert (response.status_code, response.json()["code"]) == (410, "version-gone")
    with pytest.raises(VersionGoneError, match="after 1"):
        list(served.far.events(after=0))
    for query in ("", "?wait=5", "?after=1"):
        events = served.http.get(f"/v1/events{query}").json()["events"]
        assert [event["sequence"] for event in events] == [2, 3], query
    assert [event.sequence for event in served.far.events()] == [2, 3]


@req("EV-02")
def test_events_are_followed_from_afar(served: Served) -> None:
    events = served.far.events(after=2, follow=True)
    served.commit("a")
    assert next(events).sequence == 3
    timer = threading.Timer(0.1, lambda: served.commit("b"))
    timer.start()
    assert next(events).sequence == 4
    timer.join()


def test_status_is_the_same_from_afar_and_in_numbers(served: Served) -> None:
    served.commit("a")
    near, far = served.session.status(), served.far.status()
    assert far.tables == near.tables == {"active": 2}
    assert (far.sequence, far.unpublished, far.tails) == (3, 3, near.tails)
    text = served.http.get("/metrics").text
    assert "\nheadgate_unpublished_commits 3\n" in text
    assert "\nheadgate_tables_active 2\n" in text
    assert "\nheadgate_sequence 3\n" in text
    assert "\n# TYPE headgate_publisher_lag_seconds gauge\n" in text


@req("CA-01")
def test_tokens_and_backups_are_not_to_be_had_from_a_server(served: Served) -> None:
    for ask in (lambda: served.far.create_token("a"), lambda: served.far.backup("x")):
        with pytest.raises(UnsupportedByCatalogError, match="own store"):
            ask()
    with pytest.raises(UnsupportedByCatalogError):
        served.far.listen("ear", print)


def test_listeners_are_put_listed_and_deleted(served: Served) -> None:
    put = served.far.put_listener("hook", "http://127.0.0.1:1/x", after=1)
    assert (put.position, put.behind) == (1, 1)
    assert served.far.listeners() == served.session.listeners() == (put,)
    response = served.http.put("/v1/listeners/hook", json={"url": "file:///etc/passwd"})
    assert response.status_code == 400
    served.far.delete_listener("hook")
    assert served.far.listeners() == ()
    with pytest.raises(NotFoundError):
        served.far.delete_listener("hook")


def test_a_change_sent_twice_under_one_key_is_answered_as_the_first_time(served: Served) -> None:
    key = {"idempotency-key": str(IDS.ordered())}
    url = {"url": "http://127.0.0.1:1/x"}
    first = served.http.put("/v1/listeners/hook", json=url, headers=key)
    served.commit("a")
    again = served.http.put("/v1/listeners/hook", json=url, headers=key)
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    gone = {"idempotency-key": str(IDS.ordered())}
    assert served.http.delete("/v1/listeners/hook", headers=gone).status_code == 204
    assert served.http.delete("/v1/listeners/hook", headers=gone).status_code == 204


# Webhooks


def local_webhook(url: str) -> Webhook:
    return Webhook(url, WebhookAddresses("127.0.0.0/8"))


@req("EV-01", "EV-02")
@pytest.mark.slow
def test_a_webhook_is_posted_every_event_until_it_is_heard(served: Served) -> None:
    served.catalog.deliver(WEBHOOK, local_webhook)
    with running_receiver() as receiver:
        receiver.statuses = [500, 302, 404]
        served.far.put_listener("hook", receiver.url, after=1)
        receiver.wait_for(lambda: len(receiver.posted) >= 4)
        served.commit("a")
        receiver.wait_for(lambda: len(receiver.posted) >= 5)
        assert receiver.sequences == [2, 2, 2, 2, 3]
        assert [int(h[SEQUENCE_HEADER]) for h in receiver.headers] == receiver.sequences
        assert {h["content-type"] for h in receiver.headers} == {"application/json"}
        events = served.http.get("/v1/events?after=2").json()["events"]
        assert receiver.posted[-1:] == events
        eventually(lambda: served.session.listeners()[0].position == 3)
        assert served.session.listeners()[0].failing is None


@req("EV-01")
def test_a_receiver_that_cannot_be_reached_or_hangs_touches_no_commit(served: Served) -> None:
    served.catalog.deliver(WEBHOOK, local_webhook)
    with running_receiver() as hanging:
        hanging.may_answer.clear()
        served.far.put_listener("hanging", hanging.url)
        served.far.put_listener("gone", "http://127.0.0.1:9/x")
        served.commit("a")
        hanging.wait_for(lambda: len(hanging.posted) == 1)
        for name in "ab" * 5:
            served.commit(name)
        eventually(lambda: served.session.listeners()[0].failing is not None)
        gone, held = served.session.listeners()
        assert (gone.name, gone.position) == ("gone", 2)
        assert gone.failing is not None
        assert (held.position, held.behind) == (2, 11)
        assert len(hanging.posted) == 1
        hanging.may_answer.set()
        hanging.wait_for(lambda: len(hanging.posted) == 11)
        assert hanging.sequences == list(range(3, 14))
