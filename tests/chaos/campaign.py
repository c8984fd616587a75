"""The driver: starts servers and writers, hurts all of them, stops, and has the rest checked.

Everything it does is drawn from a seed. What the machine makes of the order of events is not, so
the same seed is the same kind of weather, and not the same drops of rain.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from headgate import _connect
from tests.chaos import checks
from tests.chaos.history import load
from tests.chaos.writer import ANSWER_S, TABLES, UNKNOWN_S
from tests.faults.harness import ROOT, TREE
from tests.faults.server_harness import SOON, session_at
from tests.kit.postgres import Postgres
from tests.kit.proxy import ByteProxy, Cut, Fault, HttpProxy, Request, passing
from tests.kit.server import RunningServer

LOSSES = {
    Fault.DROP_BEFORE: 2,
    Fault.DROP_AFTER: 3,
    Fault.CUT_BODY: 1,
    Fault.CUT_ANSWER: 2,
    Fault.DOUBLE: 3,
    Fault.DELAY: 2,
    Fault.ANSWER_500: 1,
    Fault.ANSWER_503: 1,
}
SHARE_LOST = 0.08  # of all requests
END_S = 3 * UNKNOWN_S + 2 * ANSWER_S  # within which every writer must have come to an end


class BrokenError(Exception):
    """Something did not hold."""


@dataclass(frozen=True)
class Wanted:
    """What a campaign is to be."""

    seconds: float
    seed: int
    folder: Path  # for the lake and the histories
    writers: int = 4
    postgres: Postgres | None = None  # None: SQLite, and one server

    @property
    def name(self) -> str:
        return "sqlite" if self.postgres is None else "postgresql"


@dataclass
class Campaign:
    """One run."""

    wanted: Wanted
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.wanted.seed)
        self._histories = self.wanted.folder / "histories"
        self._histories.mkdir(parents=True)
        self._writers: list[subprocess.Popen[bytes]] = []
        self._servers: list[RunningServer] = []
        self._lines: list[HttpProxy] = []
        self._database: ByteProxy | None = None
        self._began = time.monotonic()
        self.store = ""

    def run(self) -> str:
        """Run it to its end; give a line that sums it up, or raise what did not hold."""
        with ExitStack() as stack:
            self._start(stack)
            try:
                self._hurt()
            finally:
                # Whatever happened: no process is left behind, and the connection works again.
                for line in self._lines:
                    line.plan = passing
                if self._database is not None:
                    self._database.cut = None
                for server in self._servers:
                    self._start_again(server)
                self._end_writers()
            settled = self._settle()
        history = load(self._histories.iterdir())
        for txn_id, outcome in settled.items():
            self.counts[f"unknown, then {outcome}"] += 1
            if outcome == "ratified":
                history.ratified.setdefault(txn_id, {})
        self.counts["reads"] = history.reads
        self.counts["acknowledged"] = len(history.ratified)
        self.counts["refused"] = len(history.rejected)
        checks.hold(self.store, history, self.wanted.folder / "scratch")
        return self.summary("all held")

    def summary(self, outcome: str) -> str:
        """Sum up in a line."""
        seconds = time.monotonic() - self._began
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        what = f"chaos on {self.wanted.name}, seed {self.wanted.seed}, {seconds:.0f} s"
        return f"{what}: {counts}: {outcome}"

    # Starting

    def _start(self, stack: ExitStack) -> None:
        database = self.wanted.postgres
        if database is None:
            self.store = served = str(self.wanted.folder / "lake")
            count = 1
        else:
            self.store = database.new_database()
            _connect.init(self.store, root=str(self.wanted.folder / "lake"))
            self._database = stack.enter_context(ByteProxy(("127.0.0.1", database.port)))
            served = self.store.replace(f":{database.port}/", f":{self._database.port}/")
            count = 2
        for _ in range(count):
            server = RunningServer(served, environment=SOON)
            self._servers.append(stack.enter_context(server))
            line = HttpProxy(("127.0.0.1", server.port), self._loss, delay_s=0.5)
            self._lines.append(stack.enter_context(line))
        with session_at(self._servers[0].address) as session:
            for table in TABLES:
                session.create_table(table, "value long")
        for _ in range(self.wanted.writers):
            self._start_writer()

    def _start_writer(self) -> None:
        number = len(list(self._histories.iterdir()))
        left_s = max(self._began + self.wanted.seconds - time.monotonic(), 1)
        history = self._histories / f"{number:04}.jsonl"
        history.touch()
        with (self.wanted.folder / "writers.log").open("ab") as log:
            writer = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.chaos.writer", str(history)),
                    *(str(self._chance.randrange(2**32)), str(left_s)),
                    *(line.address for line in self._lines),
                ],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": TREE},
                stderr=log,
            )
        self._writers.append(writer)

    def _loss(self, _: Request) -> Fault:
        if self._chance.random() >= SHARE_LOST:
            return Fault.PASS
        [fault] = self._chance.choices(list(LOSSES), list(LOSSES.values()))
        self.counts["requests hurt"] += 1
        return fault

    # Hurting

    def _hurt(self) -> None:
        deck: list[Callable[[], None]] = []
        while time.monotonic() < self._began + self.wanted.seconds:
            if not deck:  # each gets its turn, in an order of chance
                deck = self._harms()
                self._chance.shuffle(deck)
            time.sleep(self._chance.uniform(0.3, 1.5))
            deck.pop()()

    def _harms(self) -> list[Callable[[], None]]:
        harms = [
            *[self._kill_a_writer] * 3,
            *[self._kill_a_worker] * 2,
            *[self._pause_a_server] * 2,
            self._kill_a_server,
            self._stop_a_server,
            self._cut_all_lines,
        ]
        if self._database is not None:
            harms += [*[self._cut_at_commit] * 3, self._cut_the_database_off]
            harms.append(self._kill_the_database)
        return harms

    def _kill_a_writer(self) -> None:
        victim = self._writers.pop(self._chance.randrange(len(self._writers)))
        victim.kill()
        victim.wait()
        self.counts["writers killed"] += 1
        self._start_writer()

    def _kill_a_worker(self) -> None:
        server = self._any_server()
        server.kill_worker()
        self.counts["servers killed"] += 1
        with suppress(AssertionError):
            server.wait_until_ready(10)
        self._start_again(server)

    def _kill_a_server(self) -> None:
        server = self._any_server()
        server.kill()
        self.counts["servers killed"] += 1
        time.sleep(self._chance.uniform(0, 1))
        server.start()

    def _stop_a_server(self) -> None:
        server = self._any_server()
        if server.stop() != 0:
            raise BrokenError(f"a server that was asked to stop did not: {server.log()[-2000:]}")
        self.counts["servers stopped"] += 1
        server.start()

    def _start_again(self, server: RunningServer) -> None:
        """Have it serve, also when its parent gave up on workers that die one after the other."""
        if not server.is_ready():
            server.kill()
            server.start()

    def _pause_a_server(self) -> None:
        """Let a server stand still, and go on as if nothing had been."""
        workers = self._any_server().workers
        with paused(workers):
            time.sleep(self._chance.uniform(0.2, 2))
        self.counts["servers paused"] += 1

    def _cut_all_lines(self) -> None:
        self._chance.choice(self._lines).cut_all()
        self.counts["lines cut"] += 1

    def _cut_at_commit(self) -> None:
        assert self._database is not None
        # With its end, so that it is not the level of isolation at a BEGIN.
        self._database.cut = Cut(b"COMMIT\0", is_passed_on=self._chance.random() < 0.5)
        self.counts["commits cut"] += 1

    def _cut_the_database_off(self) -> None:
        assert self._database is not None
        self._database.cut_all()
        self.counts["databases cut off"] += 1

    def _kill_the_database(self) -> None:
        assert self.wanted.postgres is not None
        self.wanted.postgres.kill()
        self.wanted.postgres.start()
        self.counts["databases killed"] += 1

    def _any_server(self) -> RunningServer:
        return self._chance.choice(self._servers)

    # Ending

    def _end_writers(self) -> None:
        deadline = time.monotonic() + END_S
        for writer in self._writers:
            try:
                code = writer.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                for one in self._writers:
                    one.kill()
                raise BrokenError("a writer got neither an answer nor an unknown outcome") from None
            if code != 0:
                log = (self.wanted.folder / "writers.log").read_text()[-3000:]
                raise BrokenError(f"a writer ended with {code}:\n{log}")

    def _settle(self) -> dict[str, str]:
        """Propose again every proposal of unknown outcome: each is answered now."""
        history = load(self._histories.iterdir())
        with session_at(self._servers[-1].address) as session:
            return checks.settle(session, history)


@contextmanager
def paused(workers: list[int]) -> Iterator[None]:
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)
