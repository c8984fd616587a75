"""The native API as bytes on a wire: statuses, bodies, keys, ids."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
from typing import Any

import pytest

from headgate.catalog.stores.rows import InDoubtError
from headgate.clock import RandomIds
from headgate.errors import UnavailableError
from headgate.http.metrics import Gauge, Metrics
from headgate.names import TableName
from headgate.protocol.actions import encode, join
from tests.http.conftest import Served
from tests.kit import req, shows
from tests.kit.builders import add, metadata, new_table_id, protocol

IDS = RandomIds()


def key() -> str:
    return str(IDS.ordered())


def content(*actions: Any) -> dict[str, Any]:
    lines = join(encode(action) for action in actions)
    return {
        "way": "inline",
        "commitInfo": {"operation": "WRITE"},
        "actions": base64.b64encode(lines).decode(),
    }


def make(served: Served, name: str = "t") -> dict[str, Any]:
    table_id = new_table_id()
    response = served.http.post(
        "/v1/tables",
        json={
            "name": name,
            "tableId": table_id,
            "txnId": key(),
            "first": content(protocol(), metadata(table_id)),
        },
    )
    assert response.status_code == 200, response.text
    return dict(response.json())


def commit(version: int, txn_id: str | None = None, path: str = "") -> dict[str, Any]:
    return {"txnId": txn_id or key(), "version": version, "content": content(add(path))}


def propose(served: Served, table_id: str, body: dict[str, Any]) -> Any:
    return served.http.post(f"/v1/tables/{table_id}/commits", json=body)


def test_a_commit_is_ratified_and_resolved(served: Served) -> None:
    table = make(served)
    answer = propose(served, table["tableId"], commit(1))
    assert answer.status_code == 200
    [ratified] = answer.json()["commits"].values()
    assert (ratified["version"], ratified["way"]) == (1, "inline")
    resolved = served.http.get("/v1/names/main.default.t").json()
    assert resolved["latest"] == 1
    assert resolved["commits"][-1] == ratified
    by_id = served.http.get(f"/v1/tables/{table['tableId']}").json()
    assert by_id["commits"] == resolved["commits"]


def test_the_same_proposal_again_gets_the_first_answer(served: Served) -> None:
    table_id = make(served)["tableId"]
    body = commit(1)
    assert propose(served, table_id, body).json() == propose(served, table_id, body).json()


def test_another_commit_under_a_used_txn_id_is_refused(served: Served) -> None:
    table_id = make(served)["tableId"]
    txn_id = key()
    propose(served, table_id, commit(1, txn_id, "a.parquet"))
    answer = propose(served, table_id, commit(2, txn_id, "b.parquet"))
    assert answer.status_code == 409
    assert served.problem(answer)["code"] == "txn-id-reused"


def test_what_breaks_the_protocol_is_422_with_every_violation(served: Served) -> None:
    table_id = make(served)["tableId"]
    answer = propose(served, table_id, commit(1, path="../elsewhere.parquet"))
    assert answer.status_code == 422
    problem = served.problem(answer)
    assert problem["code"] == "invalid-commit"
    assert problem["answer"]["violations"]
    assert served.http.get(f"/v1/tables/{table_id}").json()["latest"] == 0


def test_names_and_ids_are_answered_in_the_order_they_were_asked_for(served: Served) -> None:
    ids = [make(served, name)["tableId"] for name in ("a", "b", "c")]
    refs = [ids[2], TableName.parse("b"), ids[0], TableName.parse("c")]
    found = served.remote().resolve_many(refs)
    assert [resolved.table_id for resolved in found] == [ids[2], ids[1], ids[0], ids[2]]


@req("CM-10")
def test_a_gap_is_422(served: Served) -> None:
    answer = propose(served, make(served)["tableId"], commit(7))
    assert answer.status_code == 422


@req("CM-14")
def test_a_conflict_is_409_and_carries_the_winners(served: Served) -> None:
    table_id = make(served)["tableId"]
    changed = metadata(table_id, "id long, item string")
    first = {"txnId": key(), "version": 1, "content": content(changed)}
    assert propose(served, table_id, first).status_code == 200
    second = {"txnId": key(), "version": 1, "content": content(changed)}
    answer = propose(served, table_id, second)
    assert answer.status_code == 409
    problem = served.problem(answer)
    assert problem["code"] == "conflict"
    [winner] = problem["answer"]["winners"][table_id]
    assert winner["txnId"] == first["txnId"]


def test_several_tables_are_committed_at_once(served: Served) -> None:
    ids = [make(served, name)["tableId"] for name in ("a", "b")]
    txn_id = key()
    body = {
        "txnId": txn_id,
        "parts": [{"tableId": t, "version": 1, "content": content(add())} for t in ids],
    }
    answer = served.http.post(f"/v1/transactions/{txn_id}/proposal", json=body)
    assert answer.status_code == 200
    assert set(answer.json()["commits"]) == set(ids)
    assert served.http.get(f"/v1/transactions/{txn_id}").json() == answer.json()
    cut = served.http.get("/v1/names", params={"name": ["a", "b"]}).json()["tables"]
    assert [table["latest"] for table in cut] == [1, 1]
    assert len({table["sequence"] for table in cut}) == 1


def test_a_transaction_nobody_decided_is_404(served: Served) -> None:
    answer = served.http.get(f"/v1/transactions/{key()}")
    assert answer.status_code == 404


def test_the_path_and_the_body_name_the_same_transaction(served: Served) -> None:
    body = {"txnId": key(), "parts": []}
    answer = served.http.post(f"/v1/transactions/{key()}/proposal", json=body)
    assert answer.status_code == 400


def test_a_body_is_read_to_the_length_it_says_or_to_its_end(served: Served) -> None:
    path = f"/v1/tables/{make(served)['tableId']}/commits"
    assert served.http.post(path, json=commit(1)).status_code == 200
    assert served.transport.received == 1
    whole = json.dumps(commit(2)).encode()
    in_pieces = served.http.post(path, content=iter([whole[:7], whole[7:]]))  # no length
    assert in_pieces.status_code == 200
    assert served.transport.received == 2


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"name": 1}', b"\xff\xfe", b'{"name":' * 9999])
def test_a_body_that_cannot_be_read_is_400_and_changes_nothing(served: Served, raw: bytes) -> None:
    before = served.http.get("/v1/namespaces").json()
    answer = served.http.post("/v1/namespaces", content=raw)
    assert answer.status_code == 400
    assert served.problem(answer)["code"] == "malformed"
    assert served.http.get("/v1/namespaces").json() == before


@shows("FI2")
@pytest.mark.parametrize("version", [10**20, -1, 1.5, "1", None, True])
def test_a_version_that_is_none_is_refused(served: Served, version: object) -> None:
    table_id = make(served)["tableId"]
    answer = propose(served, table_id, {**commit(1), "version": version})
    assert answer.status_code in (400, 422)
    assert served.http.get(f"/v1/tables/{table_id}").json()["latest"] == 0


@pytest.mark.parametrize(
    "path",
    [
        "/v1/names/a..b",
        "/v1/names/%00",
        "/v1/names/a%2Fb",
        "/v1/tables/not-an-id",
        "/v1/tables/..%2F..%2Fetc",
        "/v1/names/t?at=-1",
        "/v1/names/t?at=1e3",
        "/v1/names/t?at=99999999999999999999",
        "/v1/names/t?at=%FF",
        "/v1/names",
        "/v1/tables?dropped=maybe",
        "/v1/nothing",
        "/",
    ],
)
def test_a_question_that_makes_no_sense_is_refused(served: Served, path: str) -> None:
    answer = served.http.get(path)
    assert 400 <= answer.status_code < 500
    served.problem(answer)


def test_a_method_that_is_not_for_a_path_is_405(served: Served) -> None:
    answer = served.http.put("/v1/namespaces")
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


# Keys


def test_a_change_under_a_used_key_is_answered_and_not_done_again(served: Served) -> None:
    headers = {"idempotency-key": key()}
    first = served.http.post("/v1/staging-tables", json={}, headers=headers)
    again = served.http.post("/v1/staging-tables", json={}, headers=headers)
    assert first.status_code == 200
    assert again.json() == first.json()
    other = served.http.post("/v1/staging-tables", json={})
    assert other.json() != first.json()


def test_a_change_without_an_answer_is_answered_so_again(served: Served) -> None:
    headers = {"idempotency-key": key()}
    for _ in range(2):
        answer = served.http.post("/v1/namespaces", json={"name": "sales"}, headers=headers)
        assert (answer.status_code, answer.content) == (204, b"")
    assert served.http.post("/v1/namespaces", json={"name": "sales"}).status_code == 409


def test_the_same_drop_again_does_not_drop_what_was_brought_back(served: Served) -> None:
    table_id = make(served)["tableId"]
    headers = {"idempotency-key": key()}
    assert served.http.delete(f"/v1/tables/{table_id}", headers=headers).status_code == 200
    back = served.http.patch(f"/v1/tables/{table_id}", json={"state": "active"})
    assert back.status_code == 204
    assert served.http.delete(f"/v1/tables/{table_id}", headers=headers).status_code == 200
    assert served.http.get(f"/v1/tables/{table_id}").status_code == 200


def test_a_used_key_with_another_body_is_409(served: Served) -> None:
    headers = {"idempotency-key": key()}
    served.http.post("/v1/namespaces", json={"name": "a"}, headers=headers)
    answer = served.http.post("/v1/namespaces", json={"name": "b"}, headers=headers)
    assert answer.status_code == 409
    assert served.problem(answer)["code"] == "key-reused"
    assert "main.b" not in served.http.get("/v1/namespaces").json()["namespaces"]


@pytest.mark.parametrize("wrong", ["", "x", "6f9619ff-8b86-4d01-b42d-00cf4fc964ff", "0192" * 100])
def test_a_key_that_is_no_uuid7_is_refused(served: Served, wrong: str) -> None:
    headers = {"idempotency-key": wrong}
    answer = served.http.post("/v1/namespaces", json={"name": "a"}, headers=headers)
    assert answer.status_code == 400


def test_a_key_older_than_answers_are_kept_is_refused(served: Served) -> None:
    old = "01900000-0000-7000-8000-000000000000"
    headers = {"idempotency-key": old}
    answer = served.http.post("/v1/namespaces", json={"name": "a"}, headers=headers)
    assert answer.status_code == 410


def test_the_key_of_a_proposal_is_its_txn_id(served: Served) -> None:
    table_id = make(served)["tableId"]
    answer = served.http.post(
        f"/v1/tables/{table_id}/commits", json=commit(1), headers={"idempotency-key": key()}
    )
    assert answer.status_code == 400


# Ids of requests, limits, pages


def test_the_request_id_comes_back_and_stands_in_the_problem(served: Served) -> None:
    answer = served.http.get("/v1/names/none", headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    assert served.problem(answer)["requestId"] == "mine-1"
    made = served.http.get("/v1/names/none", headers={"x-request-id": "no spaces please"})
    assert made.headers["x-request-id"] != "no spaces please"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/metrics", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/v1/config", 200),
        ("GET", "/nowhere", 404),
        ("POST", "/health", 405),
        ("PUT", "/v1/namespaces", 405),
    ],
)
def test_every_answer_carries_the_request_id(
    served: Served, method: str, path: str, status: int
) -> None:
    answer = served.http.request(method, path, headers={"x-request-id": "mine-2"})
    assert (answer.status_code, answer.headers.get_list("x-request-id")) == (status, ["mine-2"])
    if status >= 400:
        assert served.problem(answer)["requestId"] == "mine-2"
    ids = [served.http.request(method, path).headers["x-request-id"] for _ in range(2)]
    assert len({*ids, "-"}) == 3


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/status"])
def test_a_store_that_cannot_be_reached_is_503_with_the_request_id_and_in_the_log(
    served: Served, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone() -> None:
        raise UnavailableError("The database cannot be reached.")

    monkeypatch.setattr(served.catalog, "ping", gone)
    monkeypatch.setattr(served.catalog, "status", gone)
    answer = served.http.get(path, headers={"x-request-id": "mine-3"})
    assert answer.status_code == 503
    problem = served.problem(answer)
    assert (problem["code"], problem["requestId"]) == ("unavailable", "mine-3")
    [line] = [line for line in caplog.records if line.name == "headgate.http"]
    assert (line.levelname, line.request_id) == ("WARNING", "mine-3")  # type: ignore[attr-defined]


@shows("FC12")
def test_a_server_that_can_decide_nothing_any_more_is_not_healthy(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_id = make(served)["tableId"]
    assert served.http.get("/health").status_code == 200

    def doubt() -> None:
        raise InDoubtError("the sync failed")

    monkeypatch.setattr(served.catalog._store, "_commit", doubt)
    answer = propose(served, table_id, commit(1))
    assert served.problem(answer)["code"] == "outcome-unknown"
    served.catalog._ratifier._thread.join()
    unhealthy = served.http.get("/health")
    assert unhealthy.status_code == 503
    assert "the sync failed" in served.problem(unhealthy)["detail"]


def test_what_a_worker_counts_says_which_worker_counted_it(served: Served) -> None:
    make(served)
    lines = served.http.get("/metrics").text.splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    own = [line for line in samples if f'{{worker="{os.getpid()}"' in line]
    assert {re.split("[{ ]", line)[0] for line in own} == {
        "headgate_requests_total",
        "headgate_requests_under_way",
        "headgate_bodies_bytes",
        "headgate_publishing_failing_tables",
        *(f"headgate_request_seconds_{part}" for part in ("bucket", "sum", "count")),
    }
    assert "headgate_sequence 1" in samples  # of the catalog, in every process


def test_a_large_number_is_told_to_its_last_digit() -> None:
    gauges = {"sequence": Gauge("The last sequence.", 123_456_789_012)}
    assert "headgate_sequence 123456789012" in Metrics("1").text(gauges).splitlines()


def test_a_refusal_is_found_in_the_log_by_its_request_id(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate.http")
    table_id = make(served)["tableId"]
    served.http.get("/v1/names/none", headers={"x-request-id": "asked"})
    served.http.post(
        f"/v1/tables/{table_id}/commits",
        json=commit(1, path="../elsewhere.parquet"),
        headers={"x-request-id": "proposed"},
    )
    lines = {line.request_id: line.getMessage() for line in caplog.records}  # type: ignore[attr-defined]
    assert set(lines) == {"asked", "proposed"}  # what was carried out is logged at `debug` only
    assert lines["asked"].startswith("resolve: 404 in ")
    assert lines["asked"].endswith("not-found: There is no table main.default.none.")
    assert "invalid-commit: " in lines["proposed"]
    caplog.set_level(logging.DEBUG, "headgate.http")
    served.http.get(f"/v1/tables/{table_id}", headers={"x-request-id": "carried-out"})
    assert caplog.records[-1].request_id == "carried-out"  # type: ignore[attr-defined]


def test_a_page_of_tables_leads_to_the_next(served: Served) -> None:
    for name in ("a", "b", "c"):
        make(served, name)
    first = served.http.get("/v1/tables", params={"limit": 2}).json()
    assert [entry["name"] for entry in first["tables"]] == ["main.default.a", "main.default.b"]
    rest = served.http.get("/v1/tables", params={"limit": 2, "after": first["next"]}).json()
    assert [entry["name"] for entry in rest["tables"]] == ["main.default.c"]
    assert "next" not in rest


def test_an_external_table_is_named_resolved_and_dropped(served: Served) -> None:
    body = {"name": "ext", "external": {"location": "file:///elsewhere/t", "format": "parquet"}}
    made = served.http.post("/v1/tables", json=body)
    assert made.status_code == 200
    resolved = served.http.get("/v1/names/ext").json()
    assert (resolved["catalogManaged"], resolved["format"]) == (False, "parquet")
    assert resolved["location"] == "file:///elsewhere/t"
    table_id = resolved["tableId"]
    assert propose(served, table_id, commit(1)).status_code == 400
    inside = {"name": "in", "external": {"location": "file:///elsewhere/t/deeper"}}
    assert served.http.post("/v1/tables", json=inside).status_code == 409
    assert served.http.delete(f"/v1/tables/{table_id}").status_code == 200
    assert served.http.get("/v1/names/ext").status_code == 404
    purged = served.http.delete(f"/v1/tables/{table_id}?purge=true")
    assert purged.json() == {"files": 0}


def test_health_config_and_metrics_are_there(served: Served) -> None:
    assert served.http.get("/health").json()["status"] == "ok"
    assert served.http.get("/v1/config").json()["api"] == "v1"
    served.http.get("/v1/names/none")
    text = served.http.get("/metrics").text
    labels = f'worker="{os.getpid()}",operation="resolve"'
    assert f'headgate_requests_total{{{labels},status="404"}} 1' in text
    assert f"headgate_request_seconds_count{{{labels}}} 1" in text
