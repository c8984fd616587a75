"""Commit Protocol: however commits travel, and whatever is published or checkpointed between them,
the table has one history; a plain model, our reader, DuckDB and deltalake agree on it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headgate
from headgate.protocol.commit.content import Way
from headgate.settings import Settings
from tests.conformance.conftest import (
    WAYS,
    Lake,
    TerseCatalog,
    directory,
    log_of,
    ours,
    rows_of,
)
from tests.kit import req, shows
from tests.kit.builders import ManualClock
from tests.kit.other_readers import deltalake_reads, duckdb_reads, duckdb_scans, plain_copy

KINDS = ("classic", "v2", "v2-json")
WRITES = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(0, 99), max_size=6), st.sampled_from(WAYS)),
    st.tuples(st.just("append"), st.lists(st.integers(0, 99), max_size=6), st.sampled_from(WAYS)),
    st.tuples(
        st.just("overwrite"), st.lists(st.integers(0, 99), max_size=6), st.sampled_from(WAYS)
    ),
    st.tuples(st.just("remove"), st.integers(0, 9), st.sampled_from(WAYS)),
    st.tuples(st.just("set"), st.integers(0, 9), st.sampled_from(WAYS)),
)
UPKEEP = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 20), st.none()),
    st.tuples(st.just("checkpoint"), st.integers(0, 20), st.sampled_from(KINDS)),
    st.tuples(st.just("forget"), st.none(), st.none()),
)
HISTORIES = st.lists(st.one_of(WRITES, WRITES, UPKEEP), min_size=1, max_size=14)
BOUNDED = settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@req("IN-01", "CM-15", "CM-16")
@shows("FX13", "S16")
@pytest.mark.slow
@BOUNDED
@given(history=HISTORIES)
def test_any_history_is_read_by_all_as_a_plain_model_has_it(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[Any, ...]]
) -> None:
    root = tmp_path_factory.mktemp("root")
    lake = Lake(root, root / "scratch", ManualClock())
    try:
        follow(lake, history, root)
    finally:
        lake.close()


def follow(lake: Lake, history: list[tuple[Any, ...]], root: Path) -> None:
    story = lake.story(properties={"delta.feature.v2Checkpoint": "supported"})
    up_to = -1  # published
    for what, number, how in history:
        match what:
            case "append":
                story.append(*number, way=how)
            case "overwrite":
                story.overwrite(*number, way=how)
            case "remove":
                story.remove(number, how)
            case "set":
                story.set_property(str(number), how)
            case "publish":
                up_to = max(up_to, min(number, story.latest))
                story.publish(up_to)
            case "checkpoint" if up_to >= 0:
                story.checkpoint(number % (up_to + 1), how)
            case "forget":
                lake.forget()
        assert ours(lake.table()) == story.rows_at(story.latest)
    story.append(1000, way=Way.STAGED)  # so that there is a tail in any case
    resolved = lake.resolve()
    terse = lake.through(TerseCatalog(lake.catalog))
    for version in range(story.latest + 1):
        wanted = story.rows_at(version)
        assert ours(lake.table(), version) == wanted
        assert ours(terse.table("orders"), version) == wanted
        assert duckdb_reads(resolved, lake.scratch, version) == wanted
    story.publish()
    copy = plain_copy(story.location, root / "copy")
    assert deltalake_reads(copy) == story.rows_at(story.latest)
    assert duckdb_scans(copy) == story.rows_at(story.latest)


# Inline or staged


def description_of(table: headgate.Table) -> dict[str, Any]:
    """Say all of a snapshot that does not come from chance: names of files, ids and times."""
    snapshot = table.snapshot()
    files = [
        (sorted(f.partition_values.items(), key=repr), f.size, json.loads(f.stats or "{}"))
        for f in snapshot.files()
    ]
    return {
        "version": snapshot.version,
        "files": sorted(files, key=repr),
        "protocol": snapshot.protocol,
        "schema": snapshot.schema,
        "properties": {k: v for k, v in snapshot.properties.items() if "tableId" not in k},
        "comment": snapshot.metadata.description,
        "timestamp": snapshot.timestamp_ms,
        "rows": ours(table),
    }


def same_writes(table: headgate.Table, clock: ManualClock) -> None:
    for number in range(4):
        clock.ms += 1000
        table.append(rows_of(range(number, number * 5 + 1)))
    table.comment("changed")
    table.set_properties({"of mine": "x" * 400})
    table.remove([min(file.path for file in table.snapshot().files())])
    table.overwrite(rows_of(range(40, 50)))
    table.append(rows_of(range(3)))


@req("IN-01")
@pytest.mark.slow
def test_the_limit_for_inline_commits_changes_how_they_travel_and_nothing_else(
    tmp_path: Path,
) -> None:
    found: dict[int, dict[str, Any]] = {}
    ways: dict[int, set[Way]] = {}
    for limit in (0, 300, 600, Settings().inline_limit_bytes):
        clock = ManualClock()
        with headgate.connect(
            tmp_path / f"lake-{limit}",
            publisher=False,
            clock=clock,
            settings=Settings(inline_limit_bytes=limit),
        ) as session:
            # Not partitioned: which of several files is the least is a matter of chance.
            table = session.create_table("orders", "id long, part string")
            same_writes(table, clock)
            ways[limit] = {entry.commit.way for entry in table.log(first=1)}
            staged = list((log_of(table.location) / "_staged_commits").glob("*.json"))
            assert len(staged) == sum(e.commit.way is Way.STAGED for e in table.log(first=1))
            assert [*directory(table.location).glob("_delta_log/*.json")] == []
            found[limit] = description_of(session.table("orders"))
            table.publish()
            assert description_of(session.table("orders")) == found[limit]
    assert ways[0] == {Way.STAGED}
    assert ways[300] == ways[600] == {Way.STAGED, Way.INLINE}
    assert ways[Settings().inline_limit_bytes] == {Way.INLINE}
    assert all(one == found[0] for one in found.values())
