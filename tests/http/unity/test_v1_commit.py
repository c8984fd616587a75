"""`delta/v1` on the wire: commits, and reports of published versions."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.protocol.actions import DomainMetadata, TableId, encode
from headgate.settings import Settings
from tests.http.conftest import Served, serving
from tests.http.unity.conftest import (
    BASE,
    CLOCK,
    IN_DEFAULT,
    Stock,
    add_commit,
    claim,
    error,
    file_bytes,
    make,
    stage,
)
from tests.http.unity.v1_requests import TABLE_ID, native, native_table, state
from tests.kit import req, shows
from tests.kit.builders import add, metadata, remove

# Committing


@req("CM-48")
def test_a_commit_is_answered_with_the_table_and_read_natively(served: Served) -> None:
    stock = make(served.http)
    commit = stock.put(1, add("a.parquet"))
    answer = stock.send(stock.change(add_commit(commit)))
    assert answer.status_code == 200
    assert answer.json()["latest-table-version"] == 1
    [listed] = answer.json()["commits"]
    changed = "file-modification-timestamp"  # here it is that of the file
    assert {**listed, changed: 0} == {**commit, changed: 0}
    resolved = served.http.get("/v1/names/t").json()
    assert resolved["latest"] == 1
    assert resolved["commits"][-1]["way"] == "staged"


@req("CM-42")
@shows("FC4")
def test_the_same_commit_again_is_200_whatever_happened_since(served: Served) -> None:
    stock = make(served.http)
    etag = stock.load()["metadata"]["etag"]
    body = stock.change(add_commit(stock.put(1)), claim(0), etag=etag)
    assert stock.send(body).status_code == 200
    before = state(served)
    assert stock.send(body).status_code == 200
    assert state(served) == before
    described = msgspec.structs.replace(metadata(TableId(stock.table_id)), description="new")
    assert stock.commit(2, described).status_code == 200
    assert stock.load()["metadata"]["etag"] != etag
    served.catalog.publish(TableId(stock.table_id))
    for staged in (stock.log / "_staged_commits").iterdir():
        staged.unlink()
    again = stock.send(body)
    assert again.status_code == 200, again.text
    assert stock.load()["latest-table-version"] == 2


@req("CM-42")
@shows("FC7")
def test_two_copies_of_a_commit_at_once_are_ratified_once_and_both_200(served: Served) -> None:
    stock = make(served.http)
    body = stock.change(add_commit(stock.put(1)))
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(stock.send(body).status_code))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 6
    assert stock.load()["latest-table-version"] == 1


@req("CM-14")
def test_a_version_that_another_file_took_is_409_and_the_next_is_200(table: Stock) -> None:
    table.commit(1)
    lost = table.commit(1)
    assert error(lost) == (409, "CommitVersionConflictException")
    assert "1 is the latest" in lost.text
    assert table.commit(2).status_code == 200


def test_a_taken_version_is_409_also_where_our_own_clients_would_be_told_of_a_conflict(
    served: Served,
) -> None:
    stock = make(served.http)
    file = add("a.parquet")
    stock.commit(1, file)
    txn_id = str(uuid.uuid4())
    assert stock.commit(2, remove(file)).status_code == 200
    lost = stock.commit(2, remove(file), txn_id=txn_id)
    assert error(lost) == (409, "CommitVersionConflictException")
    # It looks for conflicts itself, and comes again under the same txnId.
    assert stock.commit(3, add("b.parquet"), txn_id=txn_id).status_code == 200


@req("CM-42")
@shows("FC6")
def test_a_transaction_that_was_committed_is_not_committed_again_at_another_version(
    table: Stock,
) -> None:
    txn_id = str(uuid.uuid4())
    assert table.commit(1, txn_id=txn_id).status_code == 200
    again = table.commit(2, txn_id=txn_id)
    assert error(again) == (400, "BadRequestException")
    assert "already committed as version 1" in again.text
    assert table.load()["latest-table-version"] == 1


@pytest.mark.parametrize("version", [2, 5, 1 << 40])
def test_the_first_commit_is_version_1_and_there_is_never_a_gap(
    served: Served, version: int
) -> None:
    stock = make(served.http)
    assert error(stock.commit(version)) == (400, "InvalidParameterValueException")
    assert stock.load()["latest-table-version"] == 0
    assert stock.commit(1).status_code == 200


@shows("FI1")
@pytest.mark.parametrize(
    "name",
    [
        "../x.json",
        "hello.txt",
        "/etc/passwd",
        "00000000000000000001.json",
        "00000000000000000001.not-a-uuid.json",
        "00000000000000000002.6f9619ff-8b86-4d01-b42d-00cf4fc964ff.json",
        "00000000000000000001.6f9619ff-8b86-4d01-b42d-00cf4fc964ff.json",  # not there
        "",
        "x" * 5000,
        "a\0b",
    ],
)
def test_a_file_that_is_no_staged_commit_or_not_there_is_400(served: Served, name: str) -> None:
    stock = make(served.http)
    before = state(served)
    commit = {**stock.put(1), "file-name": name}
    assert error(stock.send(stock.change(add_commit(commit)))) == (
        400,
        "InvalidParameterValueException",
    )
    assert state(served) == before


@req("AU-02")
@shows("FX15")
@pytest.mark.parametrize(
    "wrong",
    [
        {"file-size": 7},
        {"file-size": 0},
        {"timestamp": 7},
        {"timestamp": 0},
        {"version": 0},
        {"version": -1},
        {"file-modification-timestamp": 0},
        {"version": 1 << 70},
        {"version": "1"},
        {"version": 1.5},
        {"version": None},
    ],
)
def test_a_commit_that_is_not_as_it_says_is_400(served: Served, wrong: dict[str, Any]) -> None:
    stock = make(served.http)
    before = state(served)
    commit = {**stock.put(1), **wrong}
    assert error(stock.send(stock.change(add_commit(commit))))[0] == 400
    assert state(served) == before


CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"hello\n",
    "no commitInfo": encode(add()) + b"\n",
    "no txnId": b'{"commitInfo":{"inCommitTimestamp":9999999999999}}\n',
    "a path outside": file_bytes(add("../../x.parquet"), timestamp_ms=1),
    "a timestamp that does not rise": file_bytes(add(), timestamp_ms=1),
}


@req("AU-02", "CM-36")
@pytest.mark.parametrize("case", CONTENTS)
@req("CM-04")
def test_content_that_breaks_the_protocol_is_400(served: Served, case: str) -> None:
    stock = make(served.http)
    before = state(served)
    commit = stock.put_bytes(1, CONTENTS[case])
    refused = stock.send(stock.change(add_commit({**commit, "timestamp": 1})))
    assert error(refused)[0] == 400
    assert state(served) == before


@req("EN-01")
@shows("FX25")
def test_the_id_and_what_makes_a_table_managed_cannot_be_altered(served: Served) -> None:
    stock = make(served.http)
    own = metadata(TableId(stock.table_id))
    before = state(served)
    for changed in (
        {**own.configuration, TABLE_ID: "x"},
        {key: value for key, value in own.configuration.items() if key != TABLE_ID},
        {**own.configuration, "delta.enableInCommitTimestamps": "false"},
    ):
        content = msgspec.structs.replace(own, configuration=changed)
        update = {"action": "set-properties", "updates": changed}
        refused = stock.send(stock.change(add_commit(stock.put(1, content)), update))
        assert error(refused) == (400, "InvalidParameterValueException")
    alone = {"action": "set-properties", "updates": {TABLE_ID: "x"}}
    assert error(stock.send(stock.change(alone)))[0] == 400
    assert state(served) == before
    assert stock.commit(1).status_code == 200


def test_metadata_changes_with_the_commit_that_brings_it(table: Stock) -> None:
    own = metadata(TableId(table.table_id))
    etag = table.load()["metadata"]["etag"]
    assert table.commit(1).json()["metadata"]["etag"] == etag
    changed = metadata(TableId(table.table_id), "id long, item string", properties={"owner": "me"})
    changed = msgspec.structs.replace(changed, description="new", created_time=own.created_time)
    item = {"name": "item", "type": "string", "nullable": True, "metadata": {}}
    fields = [*table.create["columns"]["fields"], item]
    answer = table.send(
        table.change(
            add_commit(table.put(2, changed)),
            {"action": "set-properties", "updates": {"owner": "me"}},
            {"action": "set-columns", "columns": {"type": "struct", "fields": fields}},
            {"action": "set-table-comment", "comment": "new"},
            claim(0),
            etag=etag,
        )
    )
    assert answer.status_code == 200, answer.text
    shown = answer.json()["metadata"]
    assert shown["etag"] != etag
    assert shown["columns"]["fields"] == fields
    assert shown["properties"]["owner"] == "me"
    assert shown["last-commit-version"] == 2
    assert table.http.get(f"{BASE}/tables/main.default.t").json()["comment"] == "new"


@pytest.mark.parametrize(
    "cleared",
    [
        {"action": "set-table-comment"},
        {"action": "set-table-comment", "comment": None},
        {"action": "set-table-comment", "comment": ""},
    ],
)
def test_a_comment_that_is_not_there_clears_the_one_that_is(
    table: Stock, cleared: dict[str, Any]
) -> None:
    own = metadata(TableId(table.table_id))
    described = msgspec.structs.replace(own, description="old")
    assert table.commit(1, described).status_code == 200
    answer = table.send(table.change(add_commit(table.put(2, own)), cleared))
    assert answer.status_code == 200, answer.text
    assert "comment" not in table.http.get(f"{BASE}/tables/main.default.t").json()


DECLARED: dict[str, dict[str, Any]] = {
    "a property that is not set": {"action": "set-properties", "updates": {"a": "b"}},
    "an empty property that is not set": {"action": "set-properties", "updates": {"a": ""}},
    "a property that is still there": {
        "action": "remove-properties",
        "removals": ["delta.enableInCommitTimestamps"],
    },
    "another protocol": {
        "action": "set-protocol",
        "protocol": {"min-reader-version": 1, "min-writer-version": 2},
    },
    "other columns": {
        "action": "set-columns",
        "columns": {
            "type": "struct",
            "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}],
        },
    },
    "other partitioning": {"action": "set-partition-columns", "partition-columns": ["id"]},
    "another comment": {"action": "set-table-comment", "comment": "x"},
    "a domain": {
        "action": "set-domain-metadata",
        "updates": {"delta.clustering": {"clusteringColumns": [["id"]]}},
    },
    "an unknown domain": {"action": "set-domain-metadata", "updates": {"mine": {}}},
    "an unknown domain to go": {"action": "remove-domain-metadata", "domains": ["mine"]},
    "an unknown action": {"action": "do-something"},
    "no action": {},
}


@req("AU-02", "CM-47")
@pytest.mark.parametrize("case", DECLARED)
def test_what_is_declared_and_not_in_the_commit_is_400(served: Served, case: str) -> None:
    stock = make(served.http)
    before = state(served)
    commit = add_commit(stock.put(1))
    refused = stock.send(stock.change(commit, DECLARED[case]))
    assert error(refused)[0] == 400
    assert state(served) == before
    assert stock.send(stock.change(commit)).status_code == 200  # it was not rejected itself


@shows("FI6")
def test_the_etag_of_an_earlier_description_is_409(table: Stock) -> None:
    stale = table.load()["metadata"]["etag"]
    own = metadata(TableId(table.table_id), properties={"owner": "me"})
    assert table.commit(1, own).status_code == 200
    current = table.load()["metadata"]["etag"]
    assert int(stale) < int(current)
    for wrong in (stale, str(int(current) + 1)):
        refused = table.send(table.change(add_commit(table.put(2)), etag=wrong))
        assert error(refused)[0] == 409
    assert table.load()["latest-table-version"] == 1
    taken = table.send(table.change(add_commit(table.put(2)), etag=current))
    assert taken.status_code == 200, taken.text


@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_that_claims_what_does_not_exist_as_published_is_400(
    table: Stock, version: int
) -> None:
    for earlier in range(1, version):
        assert table.commit(earlier).status_code == 200
    refused = table.send(table.change(add_commit(table.put(version)), claim(version + 5)))
    assert error(refused)[0] == 400
    assert table.load()["latest-table-version"] == version - 1


def test_a_domain_that_a_commit_removes_is_declared_as_removed(served: Served) -> None:
    stock = make(served.http, features=("domainMetadata", "clustering"))

    def clustered(*, removed: bool) -> DomainMetadata:
        columns = '{"clusteringColumns":[["id"]],"domainName":"delta.clustering"}'
        return DomainMetadata(domain="delta.clustering", configuration=columns, removed=removed)

    gone = {"action": "remove-domain-metadata", "domains": ["delta.clustering"]}
    set_ = {"action": "set-domain-metadata", "updates": {"delta.clustering": {}}}
    assert stock.commit(1, clustered(removed=False)).status_code == 200
    still_there = stock.send(stock.change(add_commit(stock.put(2)), gone))
    assert error(still_there)[0] == 400
    removing = stock.put(2, clustered(removed=True))
    assert error(stock.send(stock.change(add_commit(removing), set_)))[0] == 400
    removing = stock.put(2, clustered(removed=True))
    answer = stock.send(stock.change(add_commit(removing), gone))
    assert answer.status_code == 200, answer.text


def test_what_the_commit_changes_and_nobody_declares_is_taken_from_it(table: Stock) -> None:
    changed = metadata(TableId(table.table_id), "id long, item string")
    answer = table.commit(1, changed)
    assert [field["name"] for field in answer.json()["metadata"]["columns"]["fields"]] == [
        "id",
        "item",
    ]


@shows("FI6")
def test_requirements_that_do_not_hold_are_409_and_those_that_are_missing_400(
    served: Served,
) -> None:
    stock = make(served.http)
    commit = add_commit(stock.put(1))
    before = state(served)
    other = {"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}
    right = {"type": "assert-table-uuid", "uuid": stock.table_id}
    stale = {"type": "assert-etag", "etag": "another"}
    for requirements, expected in (
        ([other], (409, "UpdateRequirementConflictException")),
        ([right, stale], (409, "UpdateRequirementConflictException")),
        ([], (400, "InvalidParameterValueException")),
        ([stale], (400, "InvalidParameterValueException")),
        ([right, right], (400, "InvalidParameterValueException")),
        ([{"type": "assert-weather"}], (400, "BadRequestException")),
    ):
        refused = stock.send({"requirements": requirements, "updates": [commit]})
        assert error(refused) == expected
    for updates in ([], [commit, commit], [claim(0), claim(0)]):
        assert error(stock.send({"requirements": [right], "updates": updates}))[0] == 400
    assert state(served) == before


def test_what_was_asserted_holds_also_for_who_only_says_what_is_published(table: Stock) -> None:
    etag = table.load()["metadata"]["etag"]
    table.commit(1)
    table.publish(1)
    stale = table.send(table.change(claim(1), etag="another"))
    assert error(stale) == (409, "UpdateRequirementConflictException")
    assert table.send(table.change(claim(1), etag=etag)).status_code == 200


def test_how_far_a_managed_table_has_come_is_said_by_its_commits_alone(served: Served) -> None:
    stock = make(served.http)
    before = state(served)
    shown = {"last-commit-version": 1, "last-commit-timestamp-ms": 1}
    update = {"action": "update-metadata-snapshot-version", **shown}
    for updates in ([update], [update, add_commit(stock.put(1))]):
        refused = stock.send(stock.change(*updates))
        assert error(refused) == (400, "InvalidParameterValueException")
    assert state(served) == before


@req("CM-48")
def test_a_commit_is_answered_with_its_own_metadata_also_where_the_log_cannot_be_published(
    served: Served,
) -> None:
    stock = native_table(served)
    etag = served.http.get(f"{BASE}/tables/main.default.ours").json()["properties"]
    native(served, stock.table_id, 1)
    (stock.log / f"{1:020d}.json").write_bytes(b'{"commitInfo":{}}\n')
    stock.timestamp_ms = CLOCK.now_ms() + 1_000
    own = metadata(TableId(stock.table_id), properties={"owner": "me"})
    put = add_commit(stock.put(2, own))
    answers = [stock.send(stock.change(put)), stock.send(stock.change(put))]
    assert [answer.status_code for answer in answers] == [200, 200]
    for answer in answers:
        shown = answer.json()
        assert shown.keys() == {"metadata"}
        assert shown["metadata"]["etag"] == "2"
        assert shown["metadata"]["last-commit-version"] == 2
        assert shown["metadata"]["properties"]["owner"] == "me"
    assert "owner" not in etag
    assert error(served.http.get(stock.url))[0] == 503


UNIFORM = {
    "iceberg": {
        "metadata-location": "file:///x/v1.metadata.json",
        "converted-delta-version": 1,
        "converted-delta-timestamp": 1,
    }
}


def test_iceberg_metadata_of_others_is_refused_and_not_forgotten(served: Served) -> None:
    key = "delta.universalFormat.enabledFormats"
    stock = stage(served.http, "t", properties={key: "hudi, Iceberg"})
    refused = served.http.post(f"{IN_DEFAULT}/tables", json=stock.create)
    assert error(refused) == (400, "InvalidParameterValueException")
    assert key in refused.text
    stock = make(served.http)
    before = state(served)
    with_block = {**add_commit(stock.put(1)), "uniform": UNIFORM}
    assert error(stock.send(stock.change(with_block)))[0] == 400
    wanted = metadata(TableId(stock.table_id), properties={key: "iceberg"})
    assert error(stock.commit(1, wanted))[0] == 400
    create = {**stage(served.http, "u").create, "uniform": UNIFORM}
    assert error(served.http.post(f"{IN_DEFAULT}/tables", json=create))[0] == 400
    older = {name.replace("-", "_"): of for name, of in stock.put(1).items()}
    body = {"table_id": stock.table_id, "table_uri": stock.location, "commit_info": older}
    commits = f"{BASE}/delta/preview/commits"
    assert served.http.post(commits, json={**body, "uniform": UNIFORM}).status_code == 400
    assert state(served) == before
    assert stock.send(stock.change({**add_commit(stock.put(1)), "uniform": None})).is_success


@pytest.mark.parametrize("way", ["v1", "preview"])
def test_what_is_too_large_to_be_a_commit_is_refused_once(tmp_path: Path, way: str) -> None:
    """Everything but 400, 404 and 409 would be sent again for minutes."""
    limits = Settings(verify_staged=0, commit_limit_bytes=2_000, request_limit_bytes=20_000)
    for served in serving(tmp_path / "lake", limits):
        stock = make(served.http)
        bodies = []
        for pad, size in (("", 2_001), ("x" * 20_000, 0)):
            put = {**stock.put(1), "pad": pad}
            put["file-size"] = size or put["file-size"]
            older = {name.replace("-", "_"): of for name, of in put.items()}
            where = {"table_id": stock.table_id, "table_uri": stock.location}
            newer = stock.change(add_commit(put))
            bodies.append(newer if way == "v1" else {**where, "commit_info": older})
        for body in bodies:
            url = stock.url if way == "v1" else f"{BASE}/delta/preview/commits"
            assert served.http.post(url, json=body).status_code == 400
        large = served.http.post(f"{BASE}/schemas", json={"name": "x" * 20_000})
        assert large.status_code == 413


def test_a_table_that_is_not_there_is_404_for_a_commit(table: Stock) -> None:
    body = table.change(add_commit(table.put(1)))
    refused = table.http.post(f"{IN_DEFAULT}/tables/none", json=body)
    assert error(refused) == (404, "NoSuchTableException")


# Reports of published versions


def published_upto(served: Served) -> int | None:
    [entry] = served.catalog.tables()
    return entry.published


@req("PB-01")
@shows("FP7")
def test_what_is_said_to_be_published_is_believed_only_when_it_was_seen(served: Served) -> None:
    stock = make(served.http)
    stock.commit(1)
    refused = stock.send(stock.change(claim(1)))
    assert error(refused) == (400, "BadRequestException")
    assert published_upto(served) == 0
    stock.publish(1)
    assert stock.send(stock.change(claim(1))).status_code == 200
    assert published_upto(served) == 1
    assert stock.send(stock.change(claim(0))).status_code == 200
    assert published_upto(served) == 1
    assert error(stock.send(stock.change(claim(2))))[0] == 400


def test_before_the_first_commit_there_is_nothing_to_publish_and_with_it_nothing_is_heard(
    served: Served,
) -> None:
    stock = make(served.http)
    older = {"table_id": stock.table_id, "table_uri": stock.location}
    commits = f"{BASE}/delta/preview/commits"
    for version in (0, 1):
        assert error(stock.send(stock.change(claim(version))))[0] == 400
        alone = {**older, "latest_backfilled_version": version}
        assert served.http.post(commits, json=alone).status_code == 400
    body = stock.change(add_commit(stock.put(1)), claim(1))
    for _ in range(2):
        assert stock.send(body).status_code == 200
    assert published_upto(served) == 0
    other = make(served.http, "other")
    first = {name.replace("-", "_"): of for name, of in other.put(1).items()}
    where = {"table_id": other.table_id, "table_uri": other.location}
    claimed = {**where, "commit_info": first, "latest_backfilled_version": 7}
    for _ in range(2):
        assert served.http.post(commits, json=claimed).content == b"200"


@req("PB-01")
def test_a_claim_that_comes_with_a_commit_does_not_undo_it(served: Served) -> None:
    stock = make(served.http)
    stock.commit(1)
    unseen = stock.send(stock.change(add_commit(stock.put(2)), claim(1)))
    assert unseen.status_code == 200
    assert published_upto(served) == 0
    stock.publish(1)
    seen = stock.send(stock.change(add_commit(stock.put(3)), claim(1)))
    assert seen.status_code == 200
    assert published_upto(served) == 1
    ahead = stock.send(stock.change(add_commit(stock.put(4)), claim(4)))
    assert error(ahead)[0] == 400
    assert stock.load()["latest-table-version"] == 3


@req("PB-01", "PB-02")
def test_other_bytes_than_were_ratified_are_not_taken_for_published(served: Served) -> None:
    stock = make(served.http)
    stock.commit(1)
    stock.publish(1).write_bytes(b"{}\n")
    assert error(stock.send(stock.change(claim(1))))[0] == 503
    assert error(served.http.get(stock.url))[0] == 503
    assert published_upto(served) == 0


@req("CM-25")
@shows("FX5")
def test_twenty_commits_of_a_client_that_never_publishes_are_all_taken(tmp_path: Path) -> None:
    settings = Settings(verify_staged=0, unpublished_soft=10)
    for served in serving(tmp_path / "lake", settings, publisher=True):
        stock = make(served.http)
        for version in range(1, 21):
            assert stock.commit(version).status_code == 200
        assert stock.load()["latest-table-version"] == 20
