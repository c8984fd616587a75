"""Random transactions over several tables, recorded and checked by what their levels promise."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.api.messages import Resolved
from headgate.api.port import Ref
from headgate.client import transaction
from headgate.client.open_transaction import Transaction
from headgate.client.own_writes import OwnTable, OwnWrites
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.errors import ConflictError
from headgate.protocol.commit import conflicts
from headgate.protocol.commit.conflicts import Scan
from tests.client.conftest import World, near_world, worlds
from tests.histories.history import Add, Level, Outcome, Read, Recorded, Rows, check
from tests.kit import req

__all__ = ["near_world"]

IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
TABLES = ("a", "b", "c")
KEYS = 3
CLIENTS = 4


@dataclass
class Client:
    """One who runs a transaction, a step at a time."""

    session: Session
    number: int
    txn: Transaction | None = None
    recorded: Recorded | None = None


class Campaign:
    """Clients whose steps are interleaved at random."""

    def __init__(self, world: World, seed: int, levels: tuple[Level, ...] = tuple(Level)) -> None:
        self.random = random.Random(seed)
        self.levels = levels
        self.history: list[Recorded] = []
        self._values = iter(range(1, 1_000_000))
        self._world = world
        for name in TABLES:
            world.make(name, "k int, v long")
        self._clients = [Client(world.session(), number) for number in range(CLIENTS)]

    def run(self, transactions: int) -> None:
        while len(self.history) < transactions or any(c.txn for c in self._clients):
            client = self.random.choice(self._clients)
            if client.txn is None:
                if len(self.history) < transactions:
                    self._begin(client)
            elif self.random.random() < 0.25:
                self._end(client)
            else:
                self._step(client)

    def final(self) -> dict[Rows, list[int]]:
        session = self._world.session()
        found: dict[Rows, list[int]] = {(name, k): [] for name in TABLES for k in range(KEYS)}
        for name in TABLES:
            rows = session.table(name).to_arrow().to_pydict()
            for k, v in zip(rows["k"], rows["v"], strict=True):
                found[name, k].append(v)
        return found

    def _begin(self, client: Client) -> None:
        level = self.random.choice(self.levels)
        client.txn = client.session.transaction(isolation=level.value)
        assert client.txn.begun is not None
        name = f"txn-{len(self.history)}"
        client.recorded = Recorded(name, level, client.txn.begun)
        self.history.append(client.recorded)

    def _step(self, client: Client) -> None:
        assert client.txn is not None
        assert client.recorded is not None
        rows = (self.random.choice(TABLES), self.random.randrange(KEYS))
        table = client.txn.table(rows[0])
        if self.random.random() < 0.5:
            client.recorded.steps.append(Read(rows, self._read(table, rows[1])))
            return
        value = next(self._values)
        table.append([{"k": rows[1], "v": value}])
        client.recorded.steps.append(Add(rows, value))

    def _read(self, table: Table, key: int) -> frozenset[int]:
        return frozenset(table.to_arrow(columns=["v"], where=f"k = {key}")["v"].to_pylist())

    def _end(self, client: Client) -> None:
        txn, recorded = client.txn, client.recorded
        assert txn is not None
        assert recorded is not None
        client.txn = client.recorded = None
        if self.random.random() < 0.1:
            txn.rollback()
            recorded.outcome = Outcome.FAIL
            return
        try:
            txn.commit()
        except ConflictError:
            recorded.outcome = Outcome.FAIL
        else:
            recorded.outcome, recorded.sequence = Outcome.OK, txn.sequence


@pytest.fixture
def seed() -> int:
    return int(os.environ["HEADGATE_SEED"])


@pytest.fixture
def embedded_world(tmp_path: Path) -> Iterator[World]:
    yield from worlds("embedded", tmp_path)


@pytest.mark.slow
@req("MT-03", "MT-12")
def test_no_level_has_an_anomaly_that_it_does_not_allow(near_world: World, seed: int) -> None:
    campaign = Campaign(near_world, seed)
    campaign.run(2_000 if IS_LONG else 125)
    assert check(campaign.history, campaign.final()) == []
    outcomes = [txn.outcome for txn in campaign.history]
    assert outcomes.count(Outcome.OK) > len(outcomes) // 10
    assert outcomes.count(Outcome.FAIL) > len(outcomes) // 20


class TestBrokenRules:
    """With one rule switched off the check finds what it lets pass."""

    def kinds(self, world: World, level: Level) -> set[str]:
        campaign = Campaign(world, 1, (level,))
        campaign.run(125)
        return {anomaly.kind for anomaly in check(campaign.history, campaign.final())}

    @pytest.mark.slow
    def test_without_r7_phantoms(
        self, embedded_world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(conflicts, "_counts_new_files", lambda *_: False)
        assert self.kinds(embedded_world, Level.SERIALIZABLE) == {"cycle"}

    @pytest.mark.slow
    def test_write_skew_where_blindness_is_judged_by_table(
        self, embedded_world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def by_table(parts: Iterable[conflicts.Changes], _: Iterable[Scan]) -> bool:
            return all(part.blind for part in parts)

        true_info = transaction.commit_info

        def info(*args: Any, is_blind: bool) -> dict[str, object]:
            return true_info(*args, is_blind=True)

        monkeypatch.setattr(conflicts, "is_blind", by_table)
        monkeypatch.setattr(transaction, "commit_info", info)
        assert self.kinds(embedded_world, Level.WRITE_SERIALIZABLE) == {"cycle"}

    @pytest.mark.slow
    def test_fractured_reads_where_each_table_is_read_as_of_its_first_use(
        self, embedded_world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def now(self: OwnWrites, ref: Ref) -> Resolved:
            return self._catalog.resolve(ref)

        monkeypatch.setattr(OwnWrites, "_resolved", now)
        assert "fractured read" in self.kinds(embedded_world, Level.SNAPSHOT)

    @pytest.mark.slow
    def test_own_writes_that_are_hidden(
        self, embedded_world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(OwnTable, "described", lambda self, _: self.base)
        monkeypatch.setattr(OwnTable, "head", property(lambda self: self.base.latest))
        assert "own writes" in self.kinds(embedded_world, Level.SNAPSHOT)
