"""Spark, started for the command line: quiet, in a thread of its own, and to be interrupted.

All work with Spark is done in that thread. Ctrl-C comes to the main one, which has the running
statement cancelled and waits for what becomes of it, so that nobody has to guess.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.cli.render import Output
from headgate.errors import (
    HeadgateError,
    OutcomeUnknownError,
    UnavailableError,
    UnsupportedFeatureError,
)

if TYPE_CHECKING:  # slow to load, and there only where Spark is
    from headgate.client.session import Session
    from headgate.spark import Lake

Result = TypeVar("Result")
Spark = Any  # a SparkSession; what is of Spark is imported in headgate.spark alone

INTERRUPTED = 130
_CONNECT = "sc://"
_AGAIN_S = 0.2  # between two looks at a statement, or tries to cancel it: it may be between jobs
_LAST_LINES = 5  # of Spark's log, where it did not start


class Engine:
    """A lake on Spark, one statement at a time."""

    def __init__(self, output: Output, session: Session, master: str) -> None:
        """Start Spark, and say so: it takes seconds."""
        self._output = output
        # Tables of Spark's own are no tables of the lake: they go when this ends.
        self._warehouse = tempfile.TemporaryDirectory(prefix="headgate-")
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._work, name="spark", daemon=True).start()
        began = perf_counter()
        output.say("Starting Spark …")
        log = state_folder() / "spark.log"
        with _stderr_into(log):
            self._spark = self._start(master, log)
        self._lake = self._submit(lambda: _lake_of(self._spark, session)).result()
        took = perf_counter() - began
        output.say(f"Spark {self._spark.version} on {master}, ready in {took:.1f} s.")

    def run(self, call: Callable[[Lake], Result]) -> Result:
        """Do something with the lake; Ctrl-C cancels it, and is raised when it has ended."""
        future: Future[Result] = self._submit(lambda: call(self._lake))
        try:
            # Where another thread is given the signal, who waits without end hears of it never.
            while not wait([future], timeout=_AGAIN_S).done:
                pass
            return future.result()
        except KeyboardInterrupt:
            self._cancel(future)
            raise

    def rows(self, frame: Any, most: int | None, page: int) -> Iterator[list[Any]]:
        """Give rows in pages: the first ones, or all, and then never all of them at once."""
        from headgate.spark.failures import translated  # slow to load

        def first() -> Iterator[Any]:
            with translated(writes=False):
                if most is not None:
                    return iter(frame.take(most))
                return iter(frame.toLocalIterator(prefetchPartitions=True))

        def some(rows: Iterator[Any]) -> list[Any]:
            with translated(writes=False):
                return list(islice(rows, page))

        rows = self.run(lambda _: first())
        while found := self.run(lambda _: some(rows)):
            yield found

    def _cancel(self, running: Future[Any]) -> None:
        """Cancel what runs and see what became of it; a second Ctrl-C leaves at once."""
        self._output.say("Cancelling …")
        try:
            while not running.done():
                self._spark.interruptAll()
                wait([running], timeout=_AGAIN_S)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        error = running.exception()
        if isinstance(error, OutcomeUnknownError):
            raise error
        ended = "It was done before it could be cancelled." if error is None else "Cancelled."
        self._output.say(ended)

    def _start(self, master: str, log: Path) -> Spark:
        try:
            return self._submit(lambda: _spark_on(master, self._warehouse.name)).result()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyspark":
                raise
            raise UnsupportedFeatureError(
                "SQL is run by Spark, and PySpark is not installed.",
                remedy="Install it: pip install 'pyspark>=4.0,<4.4'. Java 17 is needed, too.",
            ) from error
        except HeadgateError:
            raise
        except Exception as error:  # of Spark's own there are many kinds
            said = str(error).strip().partition("\n")[0]
            raise UnavailableError(
                f"Spark did not start on {master}: {said}{_end_of(log)}",
                remedy=f"See {log}, or let it all be shown: HEADGATE_DEBUG=1.",
            ) from error

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        self._calls.put((future, call))
        return future

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            del future, call  # else rows of the last statement live on until the next one


def state_folder() -> Path:
    """Give the folder where what outlives a command is kept: history, Spark's log."""
    home = os.environ.get("XDG_STATE_HOME", "")
    # A relative path is to be ignored, says the XDG Base Directory Specification.
    root = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state"
    return root / "headgate"


def _spark_on(master: str, warehouse: str) -> Spark:
    from headgate import spark  # slow to load

    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).disabled = True  # it tells every error once more, as JSON
    if master.startswith(_CONNECT):
        return spark.session("headgate sql", remote=master)
    config = {"spark.sql.warehouse.dir": warehouse}
    return spark.session("headgate sql", master=master, config=config)


def _lake_of(spark: Spark, session: Session) -> Lake:
    from headgate.spark import Lake

    return Lake(spark, session)


@contextlib.contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """Let processes that are started write their errors to a file: Java does not stop talking."""
    if os.environ.get("HEADGATE_DEBUG"):
        yield
        return
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    except OSError:  # then it is not kept
        sink = os.open(os.devnull, os.O_WRONLY)
    sys.stderr.flush()
    before = os.dup(2)
    os.dup2(sink, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(sink)


def _end_of(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in lines)
