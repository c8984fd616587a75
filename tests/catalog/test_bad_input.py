"""Bad input gets a clear refusal and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.api.messages import Answer, Part, Proposal, Ratified, Rejected, VersionTaken
from headgate.errors import HeadgateError
from headgate.names import TableName
from headgate.protocol.actions import Action, AddFile, Format, Protocol, TableId, Version
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.commit.content import Inline, Staged, Way
from headgate.protocol.commit.row_ids import domain_for
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import LOG, STAGED, PublishedCommit
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.settings import Settings
from headgate.storage import locations
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import (
    MANAGED,
    START_MS,
    ManualClock,
    add,
    file_content,
    inline,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
    remove,
)

UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


def refused(house: House, proposal: Proposal) -> str:
    """Propose, demand a refusal that changes nothing, and give its code or first rule."""
    [part] = proposal.parts
    before = house.catalog.resolve(part.table_id)
    answer: Answer | HeadgateError
    try:
        answer = house.catalog.propose(proposal)
    except HeadgateError as error:
        answer = error
    if isinstance(answer, HeadgateError):
        code = answer.code
        assert answer.remedy
    else:
        assert isinstance(answer, Rejected), answer
        code = answer.violations[0].rule
    after = house.catalog.resolve(part.table_id)
    assert (after.latest, after.commits, after.protocol, after.metadata) == (
        before.latest,
        before.commits,
        before.protocol,
        before.metadata,
    )
    return code


@shows("FI1", "FI2")
@pytest.mark.parametrize(
    "name",
    [
        f"../{1:020d}.{UUID}.json",
        f"../../other/_delta_log/_staged_commits/{1:020d}.{UUID}.json",
        f"%2e%2e/{1:020d}.{UUID}.json",
        f"/etc/{1:020d}.{UUID}.json",
        f"{1:020d}.{UUID}.json\0",
        f"{1:020d}.{UUID.upper()}.json",
        f"{1:019d}.{UUID}.json",
        f"{1:020d}.json",
        f"{1:020d}..json",
        f"{10**20}.{UUID}.json",
        f"-{1:019d}.{UUID}.json",
        f"{2:020d}.{UUID}.json",
        f"{1:020d}.{UUID}.json/..",
        "",
    ],
)
def test_a_staged_name_that_is_none_of_this_table_and_version_is_refused(
    lake: House, name: str
) -> None:
    table = lake.create()
    part = Part(
        table_id=table.table_id, version=Version(1), content=Staged(file_name=name, size=10)
    )
    assert refused(lake, Proposal(txn_id=new_txn_id(), parts=(part,))) == "invalid-commit"


@shows("FI11")
def test_a_table_whose_files_have_more_bytes_than_fit_into_64_bits_can_be_written(
    inline_lake: House,
) -> None:
    house = inline_lake
    table_id = new_table_id()
    huge = [add(size=2**63 - 1) for _ in range(2)]
    first = inline(protocol(), metadata(table_id), *huge)
    house.catalog.create_table(TableName.parse("t"), table_id, new_txn_id(), first)
    assert isinstance(house.propose(table_id, 1, add()), Ratified)
    assert house.catalog.resolve(table_id).latest == 1


@shows("FI11")
def test_rows_without_row_ids_left_are_refused(inline_lake: House) -> None:
    house = inline_lake
    table_id = house.create(features=("rowTracking", "domainMetadata")).table_id
    assert isinstance(house.propose(table_id, 1, add(records=2**63 - 10)), Ratified)
    two = house.proposal(table_id, 2, add(records=5), add(records=6))
    assert refused(house, two) == "row-ids-exhausted"
    assert isinstance(house.propose(table_id, 2, add(records=5), add(records=5)), Ratified)
    assert refused(house, house.proposal(table_id, 3, add(records=1))) == "row-ids-exhausted"
    house.way = Way.STAGED
    beyond = house.proposal(table_id, 3, domain_for(2**63))
    assert refused(house, beyond) == "row-id-high-water"
    house.way = Way.INLINE
    assert isinstance(house.propose(table_id, 3, add(records=0)), Ratified)


@shows("FI1")
def test_a_staged_name_that_is_a_link_out_of_the_table_is_refused(lake: House) -> None:
    table, other = lake.create(), lake.create("other")
    lake.way = Way.STAGED
    theirs = lake.proposal(other.table_id, 1, add())
    [part] = theirs.parts
    assert isinstance(part.content, Staged)
    root = locations.store_for(table.location).local_path("x")
    assert root is not None
    folder = Path(root).parent / STAGED
    folder.mkdir(parents=True, exist_ok=True)
    target = locations.store_for(other.location).local_path(f"{STAGED}/{part.content.file_name}")
    assert target is not None
    (folder / part.content.file_name).symlink_to(target)
    ours = Part(table_id=table.table_id, version=Version(1), content=part.content)
    assert refused(lake, Proposal(txn_id=theirs.txn_id, parts=(ours,)))


@shows("FC2", "FC3")
@pytest.mark.parametrize("cut", [0, 1, 50, -1, -2])
def test_a_staged_file_that_is_empty_or_cut_off_is_never_ratified(lake: House, cut: int) -> None:
    lake.way = Way.STAGED
    table = lake.create()
    txn_id = new_txn_id()
    whole = file_content(add(), add(), txn_id=txn_id, timestamp_ms=START_MS + 1)
    name = f"{1:020d}.{UUID}.json"
    store = locations.store_for(table.location)
    store.put_if_absent(f"{STAGED}/{name}", whole[:cut])
    for size in (len(whole), len(whole[:cut])):
        part = Part(
            table_id=table.table_id, version=Version(1), content=Staged(file_name=name, size=size)
        )
        assert refused(lake, Proposal(txn_id=new_txn_id(), parts=(part,)))


BROKEN = {
    "not JSON": b"hello\n",
    "duplicate keys": b'{"add":{"path":"a","path":"b","partitionValues":{},"size":1,'
    b'"modificationTime":1,"dataChange":true}}\n',
    "NaN": b'{"add":{"path":"a","partitionValues":{},"size":NaN,"modificationTime":1,'
    b'"dataChange":true}}\n',
    "lone surrogate": b'{"add":{"path":"\\ud800","partitionValues":{},"size":1,'
    b'"modificationTime":1,"dataChange":true}}\n',
    "deep": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "huge integer": b'{"txn":{"appId":"a","version":1' + b"0" * 30 + b"}}\n",
    "byte order mark": b'\xef\xbb\xbf{"txn":{"appId":"a","version":1}}\n',
    "not UTF-8": b'{"x":"\xff"}\n',
    "two keys": b'{"txn":{"appId":"a","version":1},"add":{}}\n',
    "an array": b"[]\n",
    "wrong types": b'{"add":{"path":1}}\n',
    "a blank line": b"\n",
}


@req("AU-02")
@shows("FI3")
@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_content_that_cannot_be_understood_is_refused_however_it_comes(
    lake: House, content: bytes
) -> None:
    table = lake.create()
    txn_id = new_txn_id()
    lines = file_content(txn_id=txn_id, timestamp_ms=START_MS + 1) + content
    name = f"{1:020d}.{UUID}.json"
    locations.store_for(table.location).put_if_absent(f"{STAGED}/{name}", lines)
    staged = Staged(file_name=name, size=len(lines))
    part = Part(table_id=table.table_id, version=Version(1), content=staged)
    assert refused(lake, Proposal(txn_id=txn_id, parts=(part,))) == "malformed"
    body = Inline(commit_info={}, actions=content)
    part = Part(table_id=table.table_id, version=Version(1), content=body)
    assert refused(lake, Proposal(txn_id=txn_id, parts=(part,))) == "malformed"


@req("AU-02")
@shows("FI3")
def test_a_file_with_nothing_in_it_is_refused_and_a_commit_that_does_nothing_is_one(
    lake: House,
) -> None:
    table = lake.create()
    name = f"{1:020d}.{UUID}.json"
    locations.store_for(table.location).put_if_absent(f"{STAGED}/{name}", b"")
    staged = Staged(file_name=name, size=0)
    part = Part(table_id=table.table_id, version=Version(1), content=staged)
    assert refused(lake, Proposal(txn_id=new_txn_id(), parts=(part,))) == "malformed"
    body = Inline(commit_info={"operation": "NOTHING"}, actions=b"")
    part = Part(table_id=table.table_id, version=Version(1), content=body)
    answer = lake.catalog.propose(Proposal(txn_id=new_txn_id(), parts=(part,)))
    assert isinstance(answer, Ratified)
    assert lake.catalog.resolve(table.table_id).latest == 1


def _info(**fields: object) -> bytes:
    return json.dumps({"commitInfo": fields}).encode() + b"\n"


@req("AU-02", "CM-04", "CM-36")
@shows("FI4")
@pytest.mark.parametrize(
    "first",
    [
        b"",
        _info(txnId="x"),
        _info(inCommitTimestamp=START_MS + 1),
        _info(inCommitTimestamp=START_MS + 1, txnId=""),
        _info(inCommitTimestamp=START_MS + 1, txnId="another"),
        _info(inCommitTimestamp=START_MS + 1, txnId="x") * 2,
        b'{"txn":{"appId":"a","version":1}}\n' + _info(inCommitTimestamp=START_MS + 1, txnId="x"),
    ],
    ids=["none", "no time", "no txnId", "empty txnId", "another's txnId", "two", "not first"],
)
def test_a_staged_commit_without_its_provenance_is_refused(lake: House, first: bytes) -> None:
    table = lake.create()
    lines = first + inline(add()).actions
    name = f"{1:020d}.{UUID}.json"
    locations.store_for(table.location).put_if_absent(f"{STAGED}/{name}", lines)
    part = Part(
        table_id=table.table_id,
        version=Version(1),
        content=Staged(file_name=name, size=len(lines)),
    )
    assert refused(lake, Proposal(txn_id="x", parts=(part,)))  # type: ignore[arg-type]


@req("AU-02")
@shows("FI4")
@pytest.mark.parametrize(
    "path",
    [
        "../x.parquet",
        "a/../../x.parquet",
        "%2e%2e/x.parquet",
        "/etc/passwd",
        "file:///etc/passwd",
        "s3://other/x.parquet",
        "a%00b.parquet",
        f"{LOG}/{5:020d}.json",
        "",
    ],
)
def test_a_file_outside_the_table_is_refused(inline_lake: House, path: str) -> None:
    table = inline_lake.create()
    file = AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)
    for action in (file, remove(file)):
        assert refused(inline_lake, inline_lake.proposal(table.table_id, 1, action))


@req("AU-02")
@shows("FI4")
def test_two_metadata_or_a_file_twice_are_refused_and_every_violation_is_named(
    inline_lake: House,
) -> None:
    table = inline_lake.create()
    file = add()
    proposal = inline_lake.proposal(
        table.table_id,
        1,
        metadata(table.table_id),
        metadata(table.table_id),
        file,
        file,
        add("../out.parquet"),
    )
    answer = inline_lake.catalog.propose(proposal)
    assert isinstance(answer, Rejected)
    assert {violation.rule for violation in answer.violations} == {
        "two-metadata",
        "added-twice",
        "path-outside",
    }


@req("AU-02")
@shows("FI11")
def test_files_that_are_not_there_or_have_another_size_are_refused(tmp_path: Path) -> None:
    large = 64 << 20
    for way, file in (
        (Way.STAGED, add("gone.parquet", size=5)),
        (Way.STAGED, add("there.parquet", size=5)),
        (Way.INLINE, add("gone.parquet", size=large)),
        (Way.INLINE, add("there.parquet", size=large)),
    ):
        house = House(tmp_path / file.path / way.value, way, ManualClock(), Settings())
        try:
            table = house.create()
            store = locations.store_for(table.location)
            store.put("there.parquet", b"1234")
            assert refused(house, house.proposal(table.table_id, 1, file)).startswith("file-")
            right = house.proposal(table.table_id, 1, add("there.parquet", size=4))
            assert isinstance(house.catalog.propose(right), Ratified)
        finally:
            house.close()


@shows("FI11")
def test_a_scan_that_lies_harms_nobody_but_its_own_transaction(inline_lake: House) -> None:
    house = inline_lake
    table, other = house.create("t"), house.create("u")
    file = add()
    house.propose(table.table_id, 1, file)
    house.propose(table.table_id, 2, remove(file))
    liar = Scan(table_id=table.table_id, version=Version(1), files=())
    answer = house.propose(other.table_id, 1, add(), scans=(liar,))
    assert isinstance(answer, Ratified | Rejected)
    assert house.catalog.resolve(table.table_id).latest == 2
    # What it removes is checked whatever it says it read.
    lost = house.propose(table.table_id, 2, remove(file), scans=(liar,))
    assert isinstance(lost, Rejected)
    assert "R6" in {conflict.rule for conflict in lost.conflicts}


def test_an_unknown_action_is_kept_not_dropped(inline_lake: House) -> None:
    table = inline_lake.create()
    odd = b'{"fromTheFuture":{"a":[1,2,{"b":null}]}}\n'
    content = Inline(commit_info={}, actions=odd + inline(add()).actions)
    part = Part(table_id=table.table_id, version=Version(1), content=content)
    answer = inline_lake.catalog.propose(Proposal(txn_id=new_txn_id(), parts=(part,)))
    assert isinstance(answer, Ratified)
    stored = answer.commits[table.table_id].content
    assert stored is not None
    assert odd in stored


def _managed(*left_out: str, more: str = "") -> Protocol:
    """The protocol of a managed table, without some features."""
    names = [name for name in (*MANAGED, *more.split()) if name not in left_out]
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=[name for name in names if name != "inCommitTimestamp"],
        writer_features=names,
    )


# A change, and the rules that refuse it: those and no others.
UNMAKING: dict[str, tuple[Callable[[TableId], Action], str]] = {
    "downgrade": (
        lambda i: Protocol(min_reader_version=1, min_writer_version=2),
        "protocol-downgrade catalog-managed-gone timestamps-gone feature-gone",
    ),
    "lower reader version": (
        lambda i: replaced(_managed(), min_reader_version=2),
        "protocol-downgrade protocol-malformed",
    ),
    "lower writer version": (
        lambda i: replaced(_managed(), min_writer_version=6),
        "protocol-downgrade protocol-malformed timestamps-gone",
    ),
    "catalogManaged gone": (lambda i: _managed("catalogManaged"), "catalog-managed-gone"),
    "timestamps gone": (
        lambda i: _managed("inCommitTimestamp"),
        "timestamps-gone protocol-malformed",
    ),
    "another feature gone": (lambda i: _managed("vacuumProtocolCheck"), "feature-gone"),
    "unknown reader feature": (lambda i: _managed(more="unheardOf"), "unreadable-feature"),
    "timestamps off": (
        lambda i: metadata(i, properties={"delta.enableInCommitTimestamps": "false"}),
        "timestamps-off",
    ),
    "id property": (
        lambda i: metadata(i, properties={TABLE_ID_PROPERTY: UUID}),
        "table-id-differs",
    ),
    "id": (
        lambda i: replaced(metadata(i), id=UUID),
        "metadata-id-differs",
    ),
    "no Parquet": (
        lambda i: replaced(metadata(i), format=Format(provider="csv")),
        "not-parquet",
    ),
    "schema": (
        lambda i: replaced(metadata(i), schema_string="id long"),
        "schema-malformed",
    ),
}


@req("EN-01", "CM-36")
@shows("FI5", "S20", "FX25")
@pytest.mark.parametrize("house", list(Way), indirect=True)
@pytest.mark.parametrize("change", UNMAKING)
def test_a_commit_that_would_unmake_the_table_is_refused_by_its_own_rule(
    house: House, change: str
) -> None:
    table = house.create()
    action, rules = UNMAKING[change]
    answer = house.propose(table.table_id, 1, action(table.table_id))
    assert isinstance(answer, Rejected)
    assert {violation.rule for violation in answer.violations} == set(rules.split())
    after = house.catalog.resolve(table.table_id)
    assert (after.latest, after.protocol, after.metadata) == (0, table.protocol, table.metadata)


@req("EN-01")
@shows("FI5")
@pytest.mark.parametrize("change", UNMAKING)
def test_a_commit_that_would_unmake_a_table_is_not_taken_late_or_beside_another(
    inline_lake: House, change: str
) -> None:
    house = inline_lake
    table, other = house.create(), house.create("other")
    assert isinstance(house.propose(table.table_id, 1, add()), Ratified)
    txn_id = new_txn_id()
    action, rules = UNMAKING[change]
    parts = {
        version: house.part(table.table_id, version, action(table.table_id), txn_id=txn_id)
        for version in (1, 2)
    }
    beside = house.part(other.table_id, 1, add(), txn_id=txn_id)
    for late in ((parts[1],), (beside, parts[1])):
        answer = house.catalog.propose(Proposal(txn_id=new_txn_id(), parts=late))
        assert isinstance(answer, Rejected | VersionTaken)
    answer = house.catalog.propose(Proposal(txn_id=txn_id, parts=(beside, parts[2])))
    assert isinstance(answer, Rejected)
    assert {violation.rule for violation in answer.violations} == set(rules.split())
    after = house.catalog.resolve(table.table_id)
    assert (after.latest, after.protocol, after.metadata) == (1, table.protocol, table.metadata)
    assert house.catalog.resolve(other.table_id).latest == 0


APPEND_ONLY = {"delta.appendOnly": "true"}
OLD = add("old.parquet")


@req("AU-02")
@pytest.mark.parametrize("lake", [Way.INLINE, Way.STAGED], indirect=True)
@pytest.mark.parametrize(
    ("actions", "is_refused"),
    [
        ((remove(OLD),), True),
        ((add("new.parquet"), remove(OLD)), True),
        ((remove(OLD), add("new.parquet", data_change=False)), True),
        ((remove(OLD, data_change=False), add("new.parquet", data_change=False)), False),
        ((add("new.parquet"), remove(OLD, data_change=False)), False),
        ((add("new.parquet"),), False),
    ],
    ids=["remove", "add, remove", "rewrite", "compact", "add, compact", "add"],
)
def test_nothing_goes_from_an_append_only_table_whatever_comes_with_it(
    lake: House, actions: tuple[Action, ...], is_refused: bool
) -> None:
    table_id = lake.create(features=("appendOnly",), properties=APPEND_ONLY).table_id
    lake.propose(table_id, 1, OLD)
    answer = lake.propose(table_id, 2, *actions)
    if is_refused:
        assert isinstance(answer, Rejected)
        assert [violation.rule for violation in answer.violations] == ["append-only"]
    else:
        assert isinstance(answer, Ratified)


@req("AU-02")
@pytest.mark.parametrize("lake", [Way.INLINE, Way.STAGED], indirect=True)
def test_append_only_is_judged_by_what_the_commit_itself_makes_of_it(lake: House) -> None:
    """Switched on together with a removal it refuses it; switched off it does not."""
    table_id = lake.create(features=("appendOnly",)).table_id
    lake.propose(table_id, 1, OLD)
    on, off = metadata(table_id, properties=APPEND_ONLY), metadata(table_id)
    answer = lake.propose(table_id, 2, on, remove(OLD), add())
    assert isinstance(answer, Rejected)
    assert [violation.rule for violation in answer.violations] == ["append-only"]
    assert isinstance(lake.propose(table_id, 2, on), Ratified)
    assert isinstance(lake.propose(table_id, 3, off, remove(OLD), add()), Ratified)


@shows("FI5")
def test_partitioning_changes_only_when_every_old_file_goes(inline_lake: House) -> None:
    house = inline_lake
    table = house.create(schema="id long, day date")
    old = [add(), add()]
    house.propose(table.table_id, 1, *old)
    changed = metadata(table.table_id, "id long, day date", partition_by=["day"])
    fresh = add("new.parquet", values={"day": "2026-01-01"})
    partly = house.proposal(table.table_id, 2, changed, remove(old[0]), fresh)
    assert refused(house, partly) == "partitioning-changed"
    whole = house.proposal(table.table_id, 2, changed, *map(remove, old), fresh)
    assert isinstance(house.catalog.propose(whole), Ratified)


@req("AU-01", "CM-18", "CM-05")
@shows("S13", "FR3")
def test_files_put_behind_the_catalogs_back_do_not_become_part_of_the_table(lake: House) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    lake.catalog.publish(table.table_id)
    before = lake.catalog.resolve(table.table_id)
    store = locations.store_for(table.location)
    stray = file_content(add("stray.parquet"), txn_id=new_txn_id(), timestamp_ms=START_MS + 99)
    store.put_if_absent(PublishedCommit(Version(2)).path, stray)
    store.put_if_absent(f"{STAGED}/{2:020d}.{UUID}.json", stray)
    after = lake.catalog.resolve(table.table_id)
    assert (after.latest, after.commits) == (before.latest, before.commits)


@pytest.mark.slow
@req("AU-02")
@shows("FI3", "FI4", "L1")
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_bytes_come_the_answer_is_a_refusal_or_a_version(
    inline_lake: House, data: st.DataObject
) -> None:
    house = inline_lake
    known = {str(name) for name in house.catalog.tables()}
    table = house.catalog.tables()[0] if known else None
    table_id = table.table_id if table else house.create().table_id
    latest = house.catalog.resolve(table_id).latest
    good = inline(add(), add()).actions
    kind = data.draw(st.sampled_from(["bytes", "mutated", "spliced"]))
    if kind == "bytes":
        actions = data.draw(st.binary(max_size=200))
    elif kind == "mutated":
        place = data.draw(st.integers(0, len(good) - 1))
        actions = good[:place] + data.draw(st.binary(min_size=1, max_size=4)) + good[place + 1 :]
    else:
        cut = data.draw(st.integers(0, len(good)))
        actions = good[:cut] + good[data.draw(st.integers(0, len(good))) :]
    version = data.draw(st.sampled_from([latest + 1, latest, latest + 2, 0, -1, 2**63]))
    part = Part(
        table_id=table_id,
        version=Version(version),
        content=Inline(commit_info={}, actions=actions),
    )
    try:
        answer = house.catalog.propose(Proposal(txn_id=new_txn_id(), parts=(part,)))
    except HeadgateError:
        moved = False
    else:
        moved = isinstance(answer, Ratified)
    assert house.catalog.resolve(table_id).latest == latest + moved


def test_a_version_below_zero_is_no_version(inline_lake: House) -> None:
    table = inline_lake.create()
    for version in (-1, -(2**63)):
        part = Part(table_id=table.table_id, version=Version(version), content=inline(add()))
        assert refused(inline_lake, Proposal(txn_id=new_txn_id(), parts=(part,)))


def test_a_managed_table_stays_managed_and_gains_features_on_purpose(inline_lake: House) -> None:
    table = inline_lake.create()
    answer = inline_lake.propose(table.table_id, 1, protocol("appendOnly"))
    assert isinstance(answer, Ratified)
    resolved = inline_lake.catalog.resolve(table.table_id)
    assert resolved.protocol == protocol("appendOnly")
