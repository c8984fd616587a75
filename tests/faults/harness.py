"""Starting processes, killing them, and looking at what they left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import headgate
from headgate.api.messages import Severity
from headgate.catalog.service import Catalog
from headgate.client.session import Session
from headgate.errors import NotFoundError
from tests.kit import plain_replay

ROOT = Path(__file__).parents[2]
TREE = os.pathsep.join([str(ROOT / "src"), str(ROOT)])  # what processes run: this very code


@dataclass
class Output:
    """What a process printed before it ended."""

    code: int
    lines: list[dict[str, object]]
    stderr: str

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    def values(self, key: str, table: str) -> list[int]:
        return [
            line[key]  # type: ignore[misc]
            for line in self.lines
            if isinstance(line.get(key), int) and str(line.get("table", "")).endswith(f".{table}")
        ]

    def words(self, key: str) -> set[str]:
        return {line[key] for line in self.lines if isinstance(line.get(key), str)}  # type: ignore[misc]


@dataclass
class Running:
    """A process that was started."""

    process: subprocess.Popen[str]
    output: Output | None = field(default=None)

    def kill(self) -> None:
        self.process.kill()

    def wait(self, timeout: float = 100) -> Output:
        out, err = self.process.communicate(timeout=timeout)
        # A killed process may have written half a line, which does not count.
        lines = [json.loads(line) for line in out.splitlines(keepends=True) if line.endswith("\n")]
        return Output(self.process.returncode, lines, err)


def start(scenario: str, lake: Path | str, number: int = 0, *, fail: str = "") -> Running:
    """Start a scenario in a process of its own, on a lake or against a server."""
    environment = {
        **os.environ,
        "HEADGATE_FAIL": fail,
        "HEADGATE_LEASE_MS": "300",  # what a killed publisher held lapses soon
        "PYTHONPATH": TREE,
    }
    return Running(
        subprocess.Popen(
            [sys.executable, "-m", "tests.faults.worker", scenario, str(lake), str(number)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )


def run(scenario: str, lake: Path | str, number: int = 0, *, fail: str = "") -> Output:
    """Run a scenario in a process of its own, to its end."""
    return start(scenario, lake, number, fail=fail).wait()


def values_in(session: Session, table: str) -> Counter[int]:
    """Read a table, as often as each value is there; a table that is not there has none."""
    try:
        return Counter(session.table(table).to_arrow().column("value").to_pylist())
    except NotFoundError:
        return Counter()


def check_values(session: Session, output: Output, table: str) -> None:
    """Every acknowledged value is there once, and no value that was not sent. Invariants S3, S4."""
    found = values_in(session, table)
    tried, acknowledged = output.values("attempt", table), output.values("ok", table)
    assert set(acknowledged) <= set(found), (acknowledged, found, output.stderr)
    assert set(found) <= set(tried), (tried, found, output.stderr)
    assert not found or set(found.values()) == {1}, found


def check_lake(session: Session) -> None:
    """Hold the whole lake against its logs, and its snapshots against plain replay.

    Twice: by the product's own checker, and by a replay that has none of its code.
    """
    assert isinstance(session.catalog, Catalog)
    errors = [f for f in session.fsck() if f.severity is Severity.ERROR]
    assert errors == []
    for entry in session.tables():
        assert entry.latest is not None
        commits = session.catalog.timeline(entry.table_id)
        assert [line.commit.version for line in commits] == list(range(entry.latest + 1))
        stamps = [line.commit.timestamp_ms for line in commits]
        assert stamps == sorted(set(stamps))
        assert len({line.commit.txn_id for line in commits}) == len(commits)
        plain_replay.hold(session, entry.table_id)


def go_on(lake: Path, table: str) -> None:
    """Show that the lake still works: append, publish, read."""
    with headgate.connect(lake, publisher=False) as session:
        handle = session.table(table)
        before = handle.to_arrow().num_rows
        handle.append(pa.table({"value": pa.array([424242], pa.int64())}))
        assert handle.to_arrow().num_rows == before + 1
        assert handle.publish() == handle.version
        check_lake(session)
