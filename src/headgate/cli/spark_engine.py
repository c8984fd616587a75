"""Spark for the command line: quiet, in its own thread, interruptible.

All work with Spark is done in that thread. The main thread receives Ctrl-C, cancels the running
statement and waits for its outcome.
"""

from __future__ import annotations

import contextlib
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

from headgate import errors
from headgate.cli.output import Output

if TYPE_CHECKING:  # slow to load, and needs PySpark
    from headgate.client.session import Session
    from headgate.spark.sql_runner import Connection

Result = TypeVar("Result")
Spark = Any  # a SparkSession; only headgate.spark imports PySpark

INTERRUPTED = 130
_CONNECT = "sc://"
_POLL_S = 0.2  # a statement is cancelled repeatedly, since it may be between two jobs
_LAST_LINES = 5  # of the log, shown if Spark does not start


class SparkRunner:
    """A connection to a lake on Spark, one statement at a time."""

    def __init__(self, output: Output, session: Session, master: str) -> None:
        """Start Spark, which takes seconds."""
        self._output = output
        # Spark's own tables do not belong to the lake: they are deleted at the end.
        self._warehouse = tempfile.TemporaryDirectory(prefix="headgate-")
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._work, name="spark", daemon=True).start()
        started = perf_counter()
        output.note("Starting Spark …")
        log = state_folder() / "spark.log"
        with _stderr_to(log):
            self._spark = self._start(master, log)
        from headgate.spark import Lake  # slow to load, and needs PySpark

        self._connection = self._submit(lambda: Lake(self._spark, session).connection()).result()
        took = perf_counter() - started
        output.note(f"Spark {self._spark.version} on {master}, ready in {took:.1f} s.")

    @property
    def is_in_transaction(self) -> bool:
        return self._connection.transaction is not None

    def run(self, call: Callable[[Connection], Result]) -> Result:
        """Call a function with the connection. Ctrl-C cancels it, and is raised after its end."""
        future: Future[Result] = self._submit(lambda: call(self._connection))
        try:
            # Waiting without a timeout would miss a signal that another thread receives.
            while not wait([future], timeout=_POLL_S).done:
                pass
            return future.result()
        except KeyboardInterrupt:
            self._cancel(future)
            raise

    def rows(self, frame: Any, most: int | None, page: int) -> Iterator[list[Any]]:
        """Yield the first `most` rows, or all, in pages; never all of them in memory."""
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
        while next_page := self.run(lambda _: some(rows)):
            yield next_page

    def _cancel(self, running: Future[Any]) -> None:
        """Cancel the running statement and report its outcome; a second Ctrl-C exits at once."""
        self._output.note("Cancelling …")
        try:
            while not running.done():
                self._spark.interruptAll()
                wait([running], timeout=_POLL_S)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        error = running.exception()
        if isinstance(error, errors.OutcomeUnknownError):
            raise error
        outcome = "It finished before it could be cancelled." if error is None else "Cancelled."
        self._output.note(outcome)

    def _start(self, master: str, log: Path) -> Spark:
        try:
            return self._submit(lambda: _spark_on(master, self._warehouse.name)).result()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyspark":
                raise
            raise errors.UnsupportedFeatureError(
                "SQL runs on Spark, and PySpark is not installed.",
                remedy="Install it: pip install 'pyspark>=4.0,<4.4'. It needs Java 17.",
            ) from error
        except errors.HeadgateError:
            raise
        except Exception as error:  # Spark raises many kinds of exceptions
            reason = str(error).strip().partition("\n")[0]
            raise errors.UnavailableError(
                f"Spark did not start on {master}: {reason}{_end_of(log)}",
                remedy=f"See {log}, or set HEADGATE_DEBUG=1 to see all output of Spark.",
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
            # Else the rows of this statement would stay in memory until the next one.
            del future, call


def state_folder() -> Path:
    """Return the folder for the history of the prompt and the log of Spark."""
    home = os.environ.get("XDG_STATE_HOME", "")
    # The XDG Base Directory Specification says to ignore relative paths.
    root = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state"
    return root / "headgate"


def _spark_on(master: str, warehouse: str) -> Spark:
    from headgate import spark  # slow to load

    if master.startswith(_CONNECT):
        return spark.session("headgate sql", remote=master)
    config = {"spark.sql.warehouse.dir": warehouse}
    return spark.session("headgate sql", master=master, config=config)


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Redirect the stderr of processes started meanwhile to a file: Java logs a lot."""
    if os.environ.get("HEADGATE_DEBUG"):
        yield
        return
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    except OSError:  # then the log is discarded
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
