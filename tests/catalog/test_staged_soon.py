"""Staged files queued from the event loop get the answers, and leave the rows, of the pool's way.

The same steps are taken in two lakes. In one, proposals are queued if they can be; in the other,
each reads the table first, as in a thread. `ways` says how each proposal of the first was decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.catalog.proposer import StagedProposal
from headgate.catalog.stores.postgres import PostgresStore
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.errors import InvalidArgumentError
from headgate.http.unity.problems import Case
from headgate.names import TableName
from headgate.protocol.actions import Version
from headgate.settings import Settings
from tests.catalog.two_servers import CONTENTS, FILES, SETTINGS, TwoServers
from tests.kit import shows
from tests.kit.postgres import Postgres

Step = tuple[str, int, dict[str, Any]]  # method, server, arguments


# Of a used id at a taken version. The first is seen by a server that does not know of the version.
REFUSALS = [("TxnIdReusedError", None), ("DialectError", Case.VERSION_TAKEN)]


def step(method: str, number: int = 0, **how: Any) -> Step:
    return method, number, how


def again(which: int, number: int = 0, **how: Any) -> Step:
    return step("propose", number, which=which, **how)


commit = step("commit")


def take(steps: list[Step], lake: TwoServers) -> list[object]:
    return [getattr(lake, method)(number, **how) for method, number, how in steps]


def outcomes(steps: list[Step], pair: tuple[TwoServers, TwoServers]) -> list[object]:
    """Take the same steps in both lakes, which must not differ in anything."""
    queued, pooled = pair
    found = take(steps, queued)
    for one, other in zip(found, take(steps, pooled), strict=True):
        assert one == other or (one in REFUSALS and other in REFUSALS)
    assert queued.rows() == pooled.rows()
    assert set(pooled.ways) <= {"in the pool"}
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[TwoServers, TwoServers]]:
    with ExitStack() as closing:
        made = []
        for number, is_soon in enumerate((True, False)):
            root = tmp_path / str(number)
            if request.param == "sqlite":
                made.append(on_sqlite(root, is_soon=is_soon))
            else:
                server: Postgres = request.getfixturevalue("postgres_server")
                made.append(on_postgres(server, closing, root, is_soon=is_soon))
            closing.callback(made[-1].close)
        yield made[0], made[1]


def on_sqlite(root: Path, *, is_soon: bool, settings: Settings = SETTINGS) -> TwoServers:
    root.mkdir()
    path = str(root / "headgate.db")
    return TwoServers(root, is_soon, lambda clock: SQLiteStore(path, clock), settings)


def on_postgres(server: Postgres, closing: ExitStack, root: Path, *, is_soon: bool) -> TwoServers:
    schema = closing.enter_context(server.schema())
    address = server.address()
    return TwoServers(root, is_soon, lambda clock: PostgresStore(address, clock, schema=schema))


QUEUED, POOL, STALE = "queued", "in the pool", "NeedDescription"
OTHER = step("commit", 1)
# Steps, and how the last proposal is decided.
CASES: dict[str, tuple[list[Step], str]] = {
    "the next version": ([commit], QUEUED),
    "one version after the other": ([commit, commit, commit], QUEUED),
    "by its id": ([step("commit", by_id=True)], QUEUED),
    "a taken version": ([commit, step("commit", ahead=-1)], QUEUED),
    "a version that was taken long ago": (
        [commit, step("wait", 1), step("commit", ahead=-1)],
        POOL,
    ),
    "one that another server took": ([OTHER, step("commit", ahead=-1)], QUEUED),
    "the first version": ([commit, step("commit", ahead=-9)], QUEUED),
    "a version ahead": ([step("commit", ahead=1)], POOL),
    "far ahead": ([step("commit", ahead=1_000)], POOL),
    "the same file again": ([commit, again(-1)], POOL),
    "the same file on the other server": ([OTHER, again(-1)], QUEUED),
    "the same file long after": (
        [commit, commit, step("publish"), step("wait", 1), OTHER, again(-3)],
        POOL,
    ),
    "its id at another version": ([commit, step("commit", txn_of=-1)], QUEUED),
    "its id in another file at a version that is taken": (
        [OTHER, step("commit", txn_of=0, ahead=-1)],
        QUEUED,
    ),
    "its id in another file": ([commit, step("commit", txn_of=-1, ahead=-1)], QUEUED),
    "the id of one that lost": (
        [commit, step("commit", ahead=-1), step("commit", txn_of=-1)],
        QUEUED,
    ),
    "one that lost often": (
        [commit, *(step("commit", ahead=-1, txn_of=-1 if turn else None) for turn in range(3))],
        POOL,
    ),
    "metadata": ([step("commit", content="metadata"), commit], QUEUED),
    "a deletion vector": ([commit, step("commit", content="vector")], QUEUED),
    "a violation in an action": ([step("commit", content="violation")], QUEUED),
    "a violation of its form": ([step("commit", content="two infos")], POOL),
    "an id that is too long": ([step("commit", content="long id")], POOL),
    "a large file": ([step("commit", content="large")], QUEUED),
    "half a file": ([step("commit", content="torn")], POOL),
    "no data file": ([step("commit", content="no file")], POOL),
    "a data file of another size": ([step("commit", content="another size")], POOL),
    "no staged file": ([step("commit", file="missing")], POOL),
    "a staged file of another size": ([step("commit", file="longer")], POOL),
    "a judge that objects": ([step("commit", is_judged=True)], POOL),
    "metadata of another server": ([step("commit", 1, content="metadata"), commit], POOL),
    "a version with another's metadata": (
        [step("commit", 1, content="metadata"), step("commit", ahead=-1)],
        STALE,
    ),
    "after an inline commit": ([step("commit_inline"), commit], POOL),
    "after an inline commit of the other": ([step("commit_inline", 1), commit], POOL),
    "before the log was looked at": (
        [step("publish"), step("restart"), step("commit", ahead=-1), commit],
        POOL,
    ),
    "after a restart": ([step("publish"), step("restart"), commit, commit], QUEUED),
    "after both": ([step("commit_inline"), commit, commit], POOL),
    "after one that is published": (
        [step("commit_inline"), step("publish"), commit, commit],
        QUEUED,
    ),
    **{
        f"{what}, {which}, {how}": ([*before, step("commit", by_id=how == "by its id")], STALE)
        for what, changes in {
            "renamed": ["rename"],
            "renamed twice": ["rename", "rename"],
            "dropped": ["drop"],
            "diverged": ["diverge"],
        }.items()
        for which in ("here", "by the other")
        for how in ("by name", "by its id")
        for before in [[step(change, int(which != "here")) for change in changes]]
    },
    "renamed there and back": ([step("rename", 1), step("rename_back", 1), commit], QUEUED),
    "dropped, and made again": ([step("drop", 1), step("create", 1), commit], POOL),
    "renamed, and made again": ([step("rename", 1), step("create", 1), commit], POOL),
    "what was made again": ([step("drop", 1), step("create", 1), commit, commit, commit], QUEUED),
    "of a table that was replaced": (
        [step("drop", 1), step("create", 1), again(0, by_id=True)],
        POOL,
    ),
}


@shows("FC4")
@pytest.mark.parametrize("case", CASES)
def test_what_is_queued_ends_as_in_the_pool(pair: tuple[TwoServers, TwoServers], case: str) -> None:
    steps, way = CASES[case]
    outcomes(steps, pair)
    ways = pair[0].ways
    assert ways[-1] == way if way != STALE else ways[-2:] == [STALE, POOL]


def test_content_above_the_limit_of_inline_commits_is_synced_in_the_pool(tmp_path: Path) -> None:
    few = replace(SETTINGS, inline_limit_bytes=39_999)
    queued, pooled = (
        on_sqlite(tmp_path / name, is_soon=is_soon, settings=few)
        for name, is_soon in (("0", True), ("1", False))
    )
    outcomes([step("commit", content="large"), commit], (queued, pooled))
    assert queued.ways == [POOL, QUEUED]
    queued.close()
    pooled.close()


def test_a_proposal_for_an_external_table_is_not_queued(tmp_path: Path) -> None:
    lake = on_sqlite(tmp_path / "lake", is_soon=True)
    server, name = lake.servers[0], TableName.parse("elsewhere")
    server.register_external(name, f"file://{tmp_path}/elsewhere")
    before = server.describe(name)
    assert server.kept_description(name) == before
    proposed = StagedProposal(before, Version(1), lake.puts[0].staged)
    assert not server.enqueue(proposed, Future(), lambda: None)
    with pytest.raises(InvalidArgumentError):
        server.decide(proposed)
    lake.close()


def steps() -> st.SearchStrategy[list[Step]]:
    servers = st.sampled_from([0, 0, 0, 1])  # which knows the latest most of the time
    commits = st.fixed_dictionaries(
        {},
        optional={
            "content": st.sampled_from(CONTENTS),
            "ahead": st.sampled_from([-2, -1, -1, 1]),
            "file": st.sampled_from(FILES),
            "txn_of": st.integers(0, 20),
            "by_id": st.booleans(),
        },
    )
    changes = [
        "rename",
        "rename_back",
        "drop",
        "create",
        "publish",
        "commit_inline",
        "wait",
        "diverge",
    ]
    return st.lists(
        st.one_of(
            st.tuples(st.just("commit"), servers, st.just({})),
            st.tuples(st.just("commit"), servers, commits),
            st.tuples(
                st.just("propose"),
                servers,
                st.fixed_dictionaries({"which": st.integers(0, 20), "by_id": st.booleans()}),
            ),
            st.tuples(st.sampled_from(changes), servers, st.just({})),
        ),
        max_size=12,
    )


@pytest.mark.slow
def test_random_steps_end_as_in_the_pool(tmp_path_factory: pytest.TempPathFactory) -> None:
    ways: set[str] = set()
    without_turns = replace(SETTINGS, ticket_after=1_000)  # a turn ends when this clock moves

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps())
    def run(taken: list[Step]) -> None:
        root = tmp_path_factory.mktemp("lakes")
        queued = on_sqlite(root / "0", is_soon=True, settings=without_turns)
        pooled = on_sqlite(root / "1", is_soon=False, settings=without_turns)
        try:
            outcomes(taken, (queued, pooled))
        finally:
            for lake in (queued, pooled):
                lake.close()
        ways.update(queued.ways)

    run()
    assert ways >= {QUEUED, POOL}
