"""Answers are bounded and written off the event loop; further pages give the rest."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.api import bodies
from headgate.api.messages import Part, Proposal, Ratified, RatifiedCommit, VersionTaken
from headgate.catalog import decider, resolver
from headgate.catalog.stores.reader import ReadUnit
from headgate.http import endpoint
from headgate.http.budget import Share
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit.content import Staged
from headgate.protocol.paths import STAGED, StagedCommit
from headgate.settings import Settings
from headgate.storage import locations
from headgate.table import snapshot_loader
from tests.http.conftest import Served, serving
from tests.http.test_native_api import IDS, commit, content, key, make, propose
from tests.kit import req, shows
from tests.kit.builders import add, file_content, inline
from tests.kit.conditions import eventually

LIMIT = 4_000


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server whose responses are small."""
    monkeypatch.setattr(resolver, "RESPONSE_CONTENT_BYTES", LIMIT)
    monkeypatch.setattr(decider, "_WINNERS_BYTES", LIMIT)
    yield from serving(tmp_path / "lake", Settings(verify_staged=0))


def fill(served: Served, count: int, name: str = "t") -> TableId:
    """Make a table with commits, every seventh of them large."""
    table_id = TableId(make(served, name)["tableId"])
    for version in range(1, count + 1):
        paths = [f"{version}-{n}.parquet" for n in range(9 if version % 7 == 0 else 1)]
        answer = served.catalog.propose(
            Proposal(
                txn_id=TxnId(key()),
                parts=(
                    Part(
                        table_id=table_id,
                        version=Version(version),
                        content=inline(*(add(path) for path in paths)),
                    ),
                ),
            )
        )
        assert isinstance(answer, Ratified)
    return table_id


def held(contents: Iterable[bytes | None]) -> int:
    return sum(len(one or b"") for one in contents)


@req("CM-20")
@shows("FS5")
def test_ratified_commits_come_in_pages_that_are_bounded_and_together_are_all(
    small: Served,
) -> None:
    table_id = fill(small, 60)
    first, pages, found = None, 0, []
    while True:
        query = "" if first is None else f"?first={first}"
        raw = small.http.get(f"/v1/tables/{table_id}/commits{query}").content
        page = bodies.decode(raw, bodies.CommitPage)
        assert page.latest == 60
        assert held(c.content for c in page.commits) <= LIMIT
        found += page.commits
        pages += 1
        if page.next is None:
            break
        assert page.next == page.commits[-1].version + 1
        first = page.next
    assert pages > 3
    assert tuple(found) == small.catalog.ratified_commits(table_id).commits


@req("CM-20")
def test_a_client_gets_the_same_from_pages_as_from_the_catalog_itself(small: Served) -> None:
    table_id, remote = fill(small, 60), small.remote()
    ends = st.none() | st.integers(0, 65).map(Version)

    @given(ends, ends)
    @settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
    def same(first: Version | None, last: Version | None) -> None:
        known = small.catalog.ratified_commits(table_id, first, last)
        assert remote.ratified_commits(table_id, first, last) == known
        assert remote.timeline(table_id, first, last) == small.catalog.timeline(
            table_id, first, last
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolver, "_PAGE", 25)
        same()
        whole = small.http.get(f"/v1/tables/{table_id}/timeline").json()
        assert (len(whole["entries"]), whole["next"]) == (25, 25)


@req("CM-20")
def test_what_is_forgotten_between_two_pages_leaves_no_gap(small: Served) -> None:
    table_id, remote = fill(small, 60), small.remote()
    send = remote._sender.send
    asked: list[str] = []

    def forget_then_send(method: str, path: str, *rest: object) -> object:
        asked.append(path)
        if len(asked) == 3:  # a checkpoint of version 40 comes between the second and the third

            def forget(unit: object) -> None:
                row = unit.table(table_id)  # type: ignore[attr-defined]
                unit.delete_content(row.key, Version(40))  # type: ignore[attr-defined]

            small.catalog._ratifier.submit("forget", forget).result()
        return send(method, path, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote._sender, "send", forget_then_send)
        found = remote.ratified_commits(table_id)
    assert len(asked) > 3
    assert found == small.catalog.ratified_commits(table_id)
    assert [one.version for one in found.commits] == list(range(41, 61))


@req("CM-20")
def test_what_is_ratified_between_two_pages_is_in_the_last(small: Served) -> None:
    table_id, remote = fill(small, 60), small.remote()
    send = remote._sender.send
    asked: list[str] = []

    def commit_then_send(method: str, path: str, *rest: object) -> object:
        asked.append(path)
        if len(asked) == 3:
            answer = propose(small, table_id, commit(61))
            assert answer.status_code == 200
        return send(method, path, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote._sender, "send", commit_then_send)
        found = remote.ratified_commits(table_id)
    assert len(asked) > 3
    assert found == small.catalog.ratified_commits(table_id)
    assert (found.latest, [one.version for one in found.commits]) == (61, list(range(62)))


@req("CM-21")
@shows("FS5")
@pytest.mark.parametrize("count", [40, 90])
def test_a_long_tail_is_resolved_as_far_as_there_is_room_and_read_whole(
    small: Served, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    table_id, remote = fill(small, count), small.remote()
    read: list[int] = []
    whole = ReadUnit.ratified_commits

    def counted(unit: ReadUnit, *asked: Any) -> tuple[RatifiedCommit, ...]:
        found = whole(unit, *asked)
        read.append(len(found))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(ReadUnit, "ratified_commits", counted)
        resolved = remote.resolve(table_id)
    assert read == [len(resolved.commits)]  # and no more than is listed
    versions = [one.version for one in resolved.commits]
    assert versions == list(range(versions[0], count + 1))
    assert 0 < held(one.content for one in resolved.commits) <= LIMIT
    assert len(versions) < count
    assert resolved.held_from == 0
    snapshot = snapshot_loader.load(remote, table_id, store_for=locations.store_for)
    assert snapshot.version == count
    assert len([*snapshot.files()]) == sum(9 if v % 7 == 0 else 1 for v in range(1, count + 1))


@shows("FS5")
def test_tables_resolved_together_share_the_room_of_one_answer(small: Served) -> None:
    ids = [fill(small, 30, name) for name in "abcd"]
    remote = small.remote()
    found = remote.resolve_many(ids)
    assert held(one.content for table in found for one in table.commits) <= LIMIT + 2_000
    assert found[-1].commits == ()
    assert [table.latest for table in found] == [30] * 4
    for table_id in ids:
        snapshot = snapshot_loader.load(remote, table_id, store_for=locations.store_for)
        assert snapshot.version == 30


@req("CM-14")
@shows("FS5")
def test_winners_that_are_too_many_for_an_answer_are_left_for_the_client_to_ask(
    small: Served,
) -> None:
    table_id, remote = fill(small, 60), small.remote()
    store = locations.store_for(remote.resolve(table_id).location)

    def taken(version: int) -> VersionTaken:
        txn_id = TxnId(key())
        staged = StagedCommit(Version(version), IDS.random())
        raw = file_content(add(), txn_id=txn_id, timestamp_ms=small.server.clock.now_ms())
        store.put_if_absent(f"{STAGED}/{staged.name}", raw)
        part = Part(
            table_id=table_id,
            version=Version(version),
            content=Staged(file_name=staged.name, size=len(raw)),
        )
        answer = remote.propose(Proposal(txn_id=txn_id, parts=(part,)))
        assert isinstance(answer, VersionTaken)
        return answer

    near, far = taken(58), taken(2)
    assert [one.version for one in near.winners[table_id]] == [58, 59, 60]
    assert (far.winners, far.latest) == ({}, {table_id: 60})


@shows("FS5")
def test_winners_that_are_few_and_large_are_left_for_the_client_to_ask(small: Served) -> None:
    table_id, remote = fill(small, 2), small.remote()
    large = inline(*(add(f"{'x' * 100}-{n}") for n in range(20)))
    for version in (3, 4):
        part = Part(table_id=table_id, version=Version(version), content=large)
        answer = remote.propose(Proposal(txn_id=TxnId(key()), parts=(part,)))
        assert isinstance(answer, Ratified)
    store = locations.store_for(remote.resolve(table_id).location)
    txn_id = TxnId(key())
    staged = StagedCommit(Version(3), IDS.random())
    raw = file_content(add(), txn_id=txn_id, timestamp_ms=small.server.clock.now_ms())
    store.put_if_absent(f"{STAGED}/{staged.name}", raw)
    content = Staged(file_name=staged.name, size=len(raw))
    part = Part(table_id=table_id, version=Version(3), content=content)
    taken = remote.propose(Proposal(txn_id=txn_id, parts=(part,)))
    assert isinstance(taken, VersionTaken)
    assert (taken.winners, taken.latest) == ({}, {table_id: 4})


@shows("FS5")
def test_tables_with_long_descriptions_come_in_shorter_pages_and_all_of_them(
    small: Served,
) -> None:
    names = [f"t{number:02}" for number in range(12)]
    for name in names:
        make(small, name)
    where = {"catalog_name": "main", "schema_name": "default", "max_results": "12"}
    found, pages, token = [], 0, ""
    while token is not None:
        path = "/api/2.1/unity-catalog/tables"
        page = small.http.get(path, params={**where, "page_token": token}).json()
        found += [table["name"] for table in page["tables"]]
        pages += 1
        token = page.get("next_page_token")
    assert found == names
    assert pages > 2


# The memory in which responses are made

LARGE = {
    "commits": "/v1/tables/{id}/commits",
    "resolve": "/v1/tables/{id}",
    "resolve many": f"/v1/names?{'&'.join(['name=another1'] * 150)}",  # each of them is small
    "timeline": "/v1/tables/{id}/timeline",
    "tables": "/api/2.1/unity-catalog/tables?catalog_name=main&schema_name=default",
}


@pytest.fixture
def tight(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """A server with little memory, and a time for which a response waits for some."""
    limits = Settings(verify_staged=0, bodies_limit_bytes=4 << 20, request_body_ms=request.param)
    for served in serving(tmp_path / "lake", limits):
        fill(served, 150)
        for number in range(30):
            make(served, f"another{number}")
        yield served


def all_taken(served: Served) -> Share:
    """Have others hold all memory for large bodies."""
    share = Share(served.server.budget)
    assert share.resize(7 << 19)  # an eighth is for small bodies
    return share


def path_of(served: Served, kind: str) -> str:
    return LARGE[kind].format(id=served.http.get("/v1/names/t").json()["tableId"])


@shows("FS5")
@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("tight", [30_000], indirect=True)
def test_a_large_response_is_made_when_there_is_memory_for_it(
    tight: Served, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = path_of(tight, kind)
    written: list[object] = []
    write = endpoint.encoded

    def watched(answer: object) -> object:
        written.append(answer)
        return write(answer)

    others = all_taken(tight)
    monkeypatch.setattr(endpoint, "encoded", watched)
    with ThreadPoolExecutor(20) as clients:
        answers = [clients.submit(tight.http.get, path) for _ in range(20)]
        eventually(lambda: len(tight.server.budget._large.waiting) == 20)
        # Neither memory nor threads are taken from those who need little.
        assert tight.http.get("/v1/names/another1").status_code == 200
        assert len(written) == 1
        tight.transport._loop.call_soon_threadsafe(others.release)
        assert {answer.result().status_code for answer in answers} == {200}
        assert tight.server.budget.used == 0


@shows("FS5")
@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("tight", [1_000], indirect=True)
def test_a_large_response_without_memory_is_refused_before_it_is_made(
    tight: Served, kind: str
) -> None:
    path = path_of(tight, kind)
    others = all_taken(tight)
    refused = tight.http.get(path)
    assert refused.status_code == 429, refused.text[:200]
    tight.transport._loop.call_soon_threadsafe(others.release)
    assert tight.http.get(path).status_code == 200


@shows("FS5")
def test_what_is_large_is_read_and_written_by_threads_and_not_by_the_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_id = make(served)["tableId"]
    seen: list[tuple[str, int, bool]] = []

    def watched(name: str) -> None:
        do = getattr(bodies, name)

        def wrapped(value: object, *rest: object) -> object:
            result = do(value, *rest)
            size = len(result if name == "encode" else value)  # type: ignore[arg-type]
            is_loop = threading.current_thread() is served.transport._thread
            seen.append((name, size, is_loop))
            return result

        monkeypatch.setattr(bodies, name, wrapped)

    watched("decode")
    watched("encode")
    many = {"txnId": key(), "version": 1, "content": content(*(add(f"{n}") for n in range(2_000)))}
    assert propose(served, table_id, many).status_code == 200
    assert propose(served, table_id, commit(2)).status_code == 200
    assert served.http.get(f"/v1/tables/{table_id}/commits").status_code == 200
    assert served.http.get(f"/v1/tables/{table_id}").status_code == 200
    changed = {
        "name": "x",
        "external": {"location": "file:///elsewhere/x", "schemaString": "x" * 100_000},
    }
    assert served.http.post("/v1/tables", json=changed, headers={"idempotency-key": key()})
    large = [one for one in seen if one[1] > 64 << 10]
    assert {name for name, _, _ in large} == {"decode", "encode"}
    assert not any(is_loop for _, _, is_loop in large), large
