"""Where a commit's time goes in the server: HTTP, decoding, judging, database, sync, publishing.

`python -m bench.laps --port N` is our server with clocks around its steps; the clocks are put
around functions from here, and the product has none. They cost a few microseconds a commit
themselves. A step's time is its own, without the steps inside it. A unit of work without
a decision is the publisher's, with its BEGIN and its COMMIT. `GET /laps` returns the sums.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.scenario import Counts

_TICKS = os.sysconf("SC_CLK_TCK")
_DECIDING = "deciding"
_STATEMENTS = "its statements"
_COMMIT = "COMMIT and sync"
_OTHERS = "publisher's statements"
# The publisher's own among the statements of a unit that it shares with proposals.
_ITS_OWN = (" leases ", "UPDATE commits SET published_ms", "UPDATE tables SET published")
_READING, _JUDGING, _ANSWERING = "decoding", "judging content", "encoding"
_LOOP, _PUBLISHING = "HTTP and hops", "publishing"

_stacks = threading.local()


class _Sums:
    """Time and processor time of each step, over all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self.cpu: dict[str, float] = collections.defaultdict(float)

    def add(self, step: str, seconds: float, cpu: float) -> None:
        with self._lock:
            self.seconds[step] += seconds
            self.cpu[step] += cpu


_sums = _Sums()


class _Unit:
    """The statements of the ratifier's unit of work: at COMMIT it is known what they were for."""

    def __init__(self) -> None:
        self.has_decided = False
        self._kept: list[tuple[str, float, float]] = []

    def add(self, statements: str, seconds: float, cpu: float) -> None:
        """Keep the time of a statement; with the last one book them all."""
        step = _COMMIT if statements == "COMMIT" else _STATEMENTS
        if any(words in statements for words in _ITS_OWN):
            step = _OTHERS
        self._kept.append((step, seconds, cpu))
        if statements == "COMMIT":
            for step, *spent in self._kept:
                _sums.add(step if self.has_decided else _OTHERS, *spent)
            self.has_decided, self._kept = False, []


_unit = _Unit()


def laps(tables: int, count: int) -> Counts:
    """Run the server with its clocks; give microseconds for one commit, by step."""
    from bench.load import Plan, load
    from bench.prepared import WORK, fresh
    from bench.server import Server, ask, publish_all

    folder = WORK / "laps"
    fresh(folder)
    made = _made(str(folder), tables)
    found: dict[str, Mapping[str, float]] = {}
    with Server("-m", "bench.laps", environment={"HEADGATE_STORE": str(folder)}) as server:
        load(server.port, [Plan(table_id, 1, 5, 0) for table_id in made])
        done = dict.fromkeys(made, 5)
        for clients, each in ((1, count * 2), (tables, count)):
            chosen = made[:clients]
            publish_all(server.port, made)
            before, cpu = ask(server.port, "GET", "/laps"), server.cpu
            loaded = load(server.port, [Plan(t, done[t] + 1, each, done[t]) for t in chosen])
            publish_all(server.port, made)
            after, cpu = ask(server.port, "GET", "/laps"), server.cpu - cpu
            for table_id in chosen:
                done[table_id] += each
            name = f"{clients} client{'s' if clients > 1 else ''}"
            if clients == 1:
                waited = sum(loaded.latencies)
                found[f"{name}, time"] = _time_row(before, after, waited, loaded.good)
            found[f"{name}, processor"] = _cpu_row(before, after, cpu, loaded.good)
    return found


def _made(lake: str, tables: int) -> list[str]:
    from bench.ours import NAME, connect
    from bench.prepared import SCHEMA

    with connect(lake) as session:
        return [
            session.create_table(f"{NAME}{number}", SCHEMA, partition_by=["day"]).id
            for number in range(tables)
        ]


def _time_row(before: Any, after: Any, waited: float, commits: int) -> dict[str, float]:
    """Split the latency of one client into steps; the rest is HTTP and changes of threads."""
    steps = {
        name: seconds - before["seconds"].get(name, 0.0)
        for name, seconds in after["seconds"].items()
        if name != _OTHERS
    }
    rest = waited - sum(steps.values())
    row = {"all": waited, _LOOP: rest, **{name: steps.get(name, 0.0) for name in _ORDER}}
    return {name: seconds / commits * 1e6 for name, seconds in row.items()}


def _cpu_row(before: Any, after: Any, cpu: float, commits: int) -> dict[str, float]:
    """Split processor time by thread, and within the threads by step."""
    steps = {name: seconds - before["cpu"].get(name, 0.0) for name, seconds in after["cpu"].items()}
    threads = {
        name: seconds - before["threads"].get(name, 0.0)
        for name, seconds in after["threads"].items()
    }
    in_loop = sum(steps.get(name, 0.0) for name in (_READING, _JUDGING, _ANSWERING))
    in_ratifier = sum(steps.get(name, 0.0) for name in (_DECIDING, _STATEMENTS, _COMMIT, _OTHERS))
    # Threads that publish come and go, and take their count with them: they are the rest.
    stayed = sum(threads.get(name, 0.0) for name in ("loop", "ratifier"))
    row = {
        "all": cpu,
        _LOOP: threads.get("loop", 0.0) - in_loop,
        **{name: steps.get(name, 0.0) for name in _ORDER},
        "ratifier's own": threads.get("ratifier", 0.0) - in_ratifier,
        _OTHERS: steps.get(_OTHERS, 0.0),
        _PUBLISHING: cpu - stayed,
    }
    return {name: seconds / commits * 1e6 for name, seconds in row.items()}


_ORDER = (_READING, _JUDGING, _DECIDING, _STATEMENTS, _COMMIT, _ANSWERING)


# In the server's process


class _Application:
    """The server's application with clocks around its steps, in the worker's process."""

    def __init__(self) -> None:
        _put_clocks()
        from headgate.serve import Serving, create_app
        from headgate.settings import Settings

        store = os.environ["HEADGATE_STORE"]
        self._inner = create_app(Serving(store), Settings.from_environment(os.environ), None)
        self.running = self._inner.running

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/laps":
            await self._inner(scope, receive, send)
            return
        laps = {"seconds": _sums.seconds, "cpu": _sums.cpu, "threads": _threads()}
        content = json.dumps(laps).encode()
        headers = [(b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def _put_clocks() -> None:
    import apsw

    from headgate.api import bodies
    from headgate.catalog.decider import Decider
    from headgate.protocol.commit import examination

    class Connection(apsw.Connection):
        def execute(self, statements: str, *arguments: Any, **options: Any) -> Any:
            # Units of work of readers and publishing threads are not counted.
            if threading.current_thread().name != "headgate-ratifier":
                return super().execute(statements, *arguments, **options)
            book = functools.partial(_unit.add, statements)
            return _timed(_STATEMENTS, super().execute, statements, *arguments, book=book)

    apsw.Connection = Connection  # type: ignore[misc]
    bodies.decode = functools.partial(_timed, _READING, bodies.decode)
    bodies.encode = functools.partial(_timed, _ANSWERING, bodies.encode)
    examination.examine = functools.partial(_timed, _JUDGING, examination.examine)
    decide = Decider.decide

    def decided(*arguments: Any, **options: Any) -> Any:
        _unit.has_decided = True
        return _timed(_DECIDING, decide, *arguments, **options)

    Decider.decide = decided  # type: ignore[method-assign]


def _timed(
    step: str,
    function: Callable[..., Any],
    *arguments: Any,
    book: Callable[[float, float], None] | None = None,
    **options: Any,
) -> Any:
    """Call a function, and book the time it takes itself: for its step, or as `book` does."""
    stack = _stack()
    inner = stack[step] = [0.0, 0.0]
    cpu, start = time.thread_time(), time.perf_counter()
    try:
        return function(*arguments, **options)
    finally:
        seconds, used = time.perf_counter() - start, time.thread_time() - cpu
        del stack[step]
        own = (seconds - inner[0], used - inner[1])
        if book is None:
            _sums.add(step, *own)
        else:
            book(*own)
        if stack:
            outer = next(reversed(stack.values()))
            outer[0] += seconds
            outer[1] += used


def _stack() -> dict[str, list[float]]:
    """Return the steps this thread is in, each with the time that went to steps inside it."""
    if not hasattr(_stacks, "steps"):
        _stacks.steps = {}
    found: dict[str, list[float]] = _stacks.steps
    return found


def _threads() -> dict[str, float]:
    """Sum up processor time by kind of thread."""
    known = {str(thread.native_id): thread.name for thread in threading.enumerate()}
    found: dict[str, float] = collections.defaultdict(float)
    for task in Path("/proc/self/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        found[_kind(known.get(task.name))] += (int(fields[11]) + int(fields[12])) / _TICKS
    return dict(found)


def _kind(name: str | None) -> str:
    if name == "headgate-ratifier":
        return "ratifier"
    is_publishing = name is not None and name.startswith("headgate-publish")
    return "publishing" if is_publishing else "loop"


if __name__ == "__main__":
    from bench.server import serve

    serve(_Application, int(sys.argv[-1]))
