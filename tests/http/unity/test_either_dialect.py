"""What the protocol asks of a catalog, of commits that come by either dialect."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from headgate.catalog import descriptions
from headgate.protocol.actions import TableId, Version
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.settings import Settings
from tests.http.conftest import Served, serving
from tests.http.unity.conftest import Stock, add_commit, claim, make
from tests.http.unity.test_preview import COMMITS, asked, body_of
from tests.http.unity.v1_requests import native, native_table, state
from tests.kit import req, shows

Send = Callable[[Stock, dict[str, Any]], httpx.Response]


def by_v1(stock: Stock, commit: dict[str, Any]) -> httpx.Response:
    return stock.send(stock.change(add_commit(commit)))


def by_preview(stock: Stock, commit: dict[str, Any]) -> httpx.Response:
    return stock.http.post(COMMITS, json=body_of(stock, commit))


@pytest.fixture(params=[by_v1, by_preview], ids=["v1", "preview"])
def send(request: pytest.FixtureRequest) -> Send:
    chosen: Send = request.param
    return chosen


@req("CM-02")
@shows("FI2")
@pytest.mark.parametrize("named", [1, 3])
def test_a_staged_file_becomes_the_version_in_its_name_or_none(
    served: Served, send: Send, named: int
) -> None:
    stock = make(served.http)
    assert send(stock, stock.put(1)).status_code == 200
    before = state(served)
    refused = send(stock, {**stock.put(named), "version": 2})
    assert refused.status_code == 400
    assert f"can only become version {named}" in refused.text
    assert state(served) == before


@req("CM-04")
def test_a_txn_id_is_that_of_one_transaction(served: Served, send: Send) -> None:
    one, other = make(served.http, "one"), make(served.http, "other")
    ratified, rejected = str(uuid4()), str(uuid4())
    assert send(one, one.put(1, txn_id=ratified)).status_code == 200
    assert send(one, one.put(9, txn_id=rejected)).status_code == 400
    before = state(served)
    for stock, version, txn_id in [
        (other, 1, ratified),
        (one, 2, ratified),
        (other, 1, rejected),
        (one, 2, rejected),
    ]:
        assert send(stock, stock.put(version, txn_id=txn_id)).status_code == 400
    assert state(served) == before


@req("CM-10", "CM-47")
@shows("FI6", "FM8", "S1", "S5")
def test_a_commit_refused_for_a_gap_stays_refused_once_the_gap_is_filled(
    served: Served, send: Send
) -> None:
    stock = make(served.http)
    first, ahead = stock.put(1), stock.put(2)
    refused = send(stock, ahead)
    assert refused.status_code == 400
    assert stock.load()["latest-table-version"] == 0
    assert send(stock, first).status_code == 200
    again = send(stock, ahead)
    assert (again.status_code, again.json()) == (400, refused.json())
    assert stock.load()["latest-table-version"] == 1


@req("CM-47")
def test_a_commit_refused_for_a_missing_file_is_taken_once_the_file_is_there(
    served: Served, send: Send
) -> None:
    """Nothing is known of a transaction whose content was never seen."""
    stock = make(served.http)
    commit = stock.put(1)
    file = stock.log / "_staged_commits" / commit["file-name"]
    content = file.read_bytes()
    file.unlink()
    before = state(served)
    assert send(stock, commit).status_code == 400
    assert state(served) == before
    file.write_bytes(content)
    assert send(stock, commit).status_code == 200
    assert stock.load()["latest-table-version"] == 1


@req("CM-11")
@shows("S2")
def test_of_two_files_for_one_version_one_is_ratified_whatever_is_sent_again(
    served: Served, send: Send
) -> None:
    stock = make(served.http)
    files = [stock.put(1), stock.put(1)]
    answers = [send(stock, file).status_code for file in (*files, *files)]
    assert answers == [200, 409, 200, 409]
    [listed] = stock.load()["commits"]
    assert listed["file-name"] == files[0]["file-name"]


@req("CM-42")
@shows("FC5")
def test_the_same_commit_again_is_answered_so_after_publishing_and_a_restart(
    tmp_path: Path, send: Send
) -> None:
    opened, settings = contextmanager(serving), Settings(verify_staged=0)
    with opened(tmp_path / "lake", settings) as served:
        stock = make(served.http)
        commit = stock.put(1)
        assert send(stock, commit).status_code == 200
        assert send(stock, stock.put(2)).status_code == 200
        assert served.catalog.publish(TableId(stock.table_id)) == 2
    (stock.log / "_staged_commits" / commit["file-name"]).unlink()
    with opened(tmp_path / "lake", settings) as served:
        stock = replace(stock, http=served.http)
        before = state(served)
        assert send(stock, commit).status_code == 200
        other = {**commit, "file-name": f"{1:020d}.{uuid4()}.json"}
        assert send(stock, other).status_code == 409
        assert state(served) == before


@req("CM-11", "CM-42")
@shows("FC4", "S2")
def test_another_file_for_a_version_of_long_ago_is_not_taken_for_the_one_that_won(
    served: Served, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptions, "LISTED", 1)
    stock = make(served.http)
    won, lost = stock.put(1), stock.put(1)
    for commit in (won, stock.put(2)):
        assert send(stock, commit).status_code == 200
    table_id, version = TableId(stock.table_id), Version(1)
    served.catalog.publish(table_id)
    assert served.catalog.describe(table_id, version).commit_at(version) is None
    assert [send(stock, commit).status_code for commit in (lost, won)] == [409, 200]


@req("CM-08", "CM-20", "CM-26")
def test_commits_are_named_until_published_and_the_latest_version_for_ever(
    tmp_path: Path, send: Send
) -> None:
    """Of those that came inline, a stock client finds the published files."""
    opened, settings = contextmanager(serving), Settings(verify_staged=0)

    def listed(stock: Stock) -> tuple[list[int], list[int], int, int]:
        loaded, found = stock.load(), asked(stock)
        return (
            [commit["version"] for commit in loaded["commits"]],
            [commit["version"] for commit in found["commits"]],
            loaded["latest-table-version"],
            found["latest_table_version"],
        )

    with opened(tmp_path / "lake", settings) as served:
        stock = native_table(served)
        assert native(served, stock.table_id, 1).status_code == 200
        stock.timestamp_ms = served.catalog.resolve(TableId(stock.table_id)).timestamp_ms
        for version in range(2, 32):
            assert send(stock, stock.put(version)).status_code == 200
        assert listed(stock) == ([*range(31, 1, -1)], [*range(31, 0, -1)], 31, 31)
        assert sorted(path.name for path in stock.log.glob("*.json"))[1] == f"{1:020d}.json"
    with opened(tmp_path / "lake", settings) as served:
        # What a power loss may have taken is published before it is named.
        stock = replace(stock, http=served.http)
        assert listed(stock)[2:] == (31, 31)
        named = {commit["version"] for commit in stock.load()["commits"]}
        published = {int(path.stem) for path in stock.log.glob("*.json")}
        assert named | published == {*range(32)}
        path = f"_delta_log/{31:020d}.checkpoint.parquet"
        (stock.folder / path).write_bytes(b"PAR1")
        served.catalog.publish(TableId(stock.table_id))
        last = Version(31)
        checkpoint = KnownFile(kind=FileKind.CHECKPOINT, first=last, last=last, paths=(path,))
        served.catalog.add_file(TableId(stock.table_id), checkpoint)
    with opened(tmp_path / "lake", settings) as served:
        stock = replace(stock, http=served.http)
        assert served.catalog.ratified_commits(TableId(stock.table_id)).commits == ()
        assert listed(stock)[2:] == (31, 31)


@req("CM-25")
@shows("FX5", "L5")
def test_a_backlog_holds_a_writer_back_until_there_is_room(
    tmp_path: Path, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody publishes but for those who wait for it."""
    settings = Settings(verify_staged=0, unpublished_soft=10, publish_every_ms=3_600_000)
    opened = contextmanager(serving)
    with opened(tmp_path / "lake", settings, publisher=True) as served:
        monkeypatch.setattr(served.catalog._publisher, "wake", lambda table_id: None)
        stock = make(served.http)
        for version in range(1, 31):
            assert send(stock, stock.put(version)).status_code == 200
            [entry] = served.catalog.tables()
            assert entry.latest == version
            assert version - (entry.published or 0) <= 10


@req("PB-01")
@shows("FP7", "S12")
def test_nothing_is_forgotten_on_the_word_of_a_client(served: Served) -> None:
    """Neither on a claim alone, in either dialect, nor on one that comes with a commit."""
    stock = make(served.http)
    table_id = TableId(stock.table_id)
    assert by_v1(stock, stock.put(1)).status_code == 200
    [ratified] = served.catalog.ratified_commits(table_id, Version(1)).commits
    assert ratified.content is not None  # the catalog's own copy

    def is_held() -> bool:
        return served.catalog.ratified_commits(table_id, Version(1)).commits[0] == ratified

    assert stock.send(stock.change(claim(1))).status_code == 400
    alone = body_of(stock, latest_backfilled_version=1)
    assert stock.http.post(COMMITS, json=alone).status_code == 400
    with_it = stock.change(add_commit(stock.put(2)), claim(1))
    assert stock.send(with_it).status_code == 200
    older = body_of(stock, stock.put(3), latest_backfilled_version=1)
    assert stock.http.post(COMMITS, json=older).status_code == 200
    assert is_held()
    torn = stock.log / f"{1:020d}.json"
    torn.write_bytes(ratified.content[:-1])
    assert stock.send(stock.change(claim(1))).status_code == 503
    assert is_held()
