"""delta-spark in a process of its own, and what it is asked.

In one of its own, because its classes must be there when Spark starts and would change how every
other test's session reads SQL. It works while the caller does: `begin` asks, `end` waits.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

WORKER = Path(__file__).with_name("worker.py")


class DeltaSparkError(Exception):
    """delta-spark refused, or failed."""


def sql(text: str, to: Path | None = None) -> dict[str, Any]:
    return {"do": "sql", "text": text, "to": None if to is None else str(to)}


def read(path: Path, to: Path, version: int | None = None) -> dict[str, Any]:
    return {"do": "read", "path": str(path), "to": str(to), "version": version}


@dataclass(frozen=True)
class Answer:
    """What each step gave, up to the one that failed."""

    done: list[Any] = field(default_factory=list)
    error: str | None = None


class DeltaSpark:
    """The process. One request at a time."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._numbers = itertools.count()
        self._output = scratch / "delta-spark.log"
        # Two processes that fill Ivy's cache at the same time spoil it for each other.
        self._resolving = (Path(tempfile.gettempdir()) / "headgate-ivy.lock").open("w")
        fcntl.flock(self._resolving, fcntl.LOCK_EX)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(WORKER), str(scratch)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=scratch,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                text=True,
            )
        self._is_ready = False
        self._is_waited_for = False

    def require(self) -> None:
        """Skip the test where delta-spark cannot be had, and fail it where it must be."""
        if self._is_ready:
            return
        self._is_ready = self._process.poll() is None and self._line() is not None
        self._resolving.close()  # which releases the lock
        if self._is_ready:
            return
        missing = (
            "delta-spark did not start: Spark resolves io.delta:delta-spark_4.2_2.13:4.4.0 from"
            f" Maven Central, or from ~/.ivy2.5.2 where it was before. Its output: {self.output()}"
        )
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)

    def begin(self, *steps: dict[str, Any]) -> None:
        """Ask for steps, done one after the other until one fails."""
        if self._is_waited_for:
            self.end()  # of a test that ended before it looked
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(steps) + "\n")
        self._process.stdin.flush()
        self._is_waited_for = True

    def end(self) -> Answer:
        """Wait for what became of the steps."""
        line = self._line()
        self._is_waited_for = False
        if line is None:
            raise RuntimeError(f"delta-spark is gone. Its output: {self.output()}")
        return Answer(**json.loads(line))

    def ask(self, *steps: dict[str, Any]) -> list[Any]:
        """Have steps done, all of them."""
        self.begin(*steps)
        answer = self.end()
        if answer.error is not None:
            raise DeltaSparkError(answer.error)
        return answer.done

    def rows(self, text: str) -> pa.Table:
        """Run a query."""
        to = self.new_file()
        self.ask(sql(text, to))
        return pq.read_table(to)

    def read(self, path: Path, version: int | None = None) -> pa.Table:
        """Read a table."""
        to = self.new_file()
        self.ask(read(path, to, version))
        return pq.read_table(to)

    def new_file(self) -> Path:
        return self._scratch / f"rows-{next(self._numbers)}.parquet"

    def output(self) -> str:
        return self._output.read_text(errors="replace")[-2000:]

    def close(self) -> None:
        self._resolving.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _line(self) -> str | None:
        assert self._process.stdout is not None
        return self._process.stdout.readline() or None
