"""All interleavings of a few processes over the package's own code.

A process is a plain function. Whatever it asks of the database or of storage is one step, and its
state is the list of answers it has heard: to take a step, the function is run again from its
beginning on those answers and stops at the next question. So nothing has to be copied or resumed,
and what is explored is the code that runs, not a copy of it. States that were seen before, by rows,
objects and the answers heard, are not gone on from a second time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from queue import SimpleQueue
from typing import Any

import apsw

from headgate.catalog.decider import Decider
from headgate.catalog.heads import Heads
from headgate.catalog.ratifier import Ratifier, _UnitWork
from headgate.catalog.service import Catalog
from headgate.catalog.stores import sqlite_units
from headgate.catalog.stores.rows import Batch, Epoch
from headgate.errors import UnavailableError
from headgate.settings import Settings
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectMeta
from tests.kit.builders import CountedIds, ManualClock

ROOT = "memory://explored"
Objects = tuple[tuple[str, bytes], ...]  # by path
Step = Callable[["Shared"], tuple[Any, "Shared"]]


@dataclass(frozen=True)
class Shared:
    """What processes have in common: rows, as the bytes of a database, and objects."""

    rows: bytes
    objects: Objects
    seal: int  # the same for databases that hold the same

    def unit(self) -> Any:
        return sqlite_units.SQLiteReadUnit(self._connection())

    def writing_unit(self) -> Any:
        return sqlite_units.SQLiteWriteUnit(self._connection())

    def _connection(self) -> apsw.Connection:
        connection = apsw.Connection(":memory:")
        connection.deserialize("main", self.rows)
        return connection

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self.unit()._fetch(sql)  # type: ignore[no-any-return]

    @property
    def files(self) -> dict[str, bytes]:
        return dict(self.objects)


class _PauseError(BaseException):
    """A process came to its next question."""

    def __init__(self, step: Step | Sequence[Any], name: str) -> None:
        self.step = step
        self.name = name


@dataclass
class _Raised:
    error: Exception


class Process:
    """One run of a process on the answers it has heard: database, storage, clock and chance."""

    def __init__(self, number: int, answers: Sequence[Any]) -> None:
        self.clock = ManualClock()
        self.ids = CountedIds(number)
        self._answers = iter(answers)
        self._pause: _PauseError | None = None

    @property
    def catalog(self) -> Catalog:
        """A catalog in this process, whose writer works at once instead of in a thread."""
        catalog = Catalog.__new__(Catalog)
        with _patched(self):
            catalog.__init__(  # type: ignore[misc]
                self,  # type: ignore[arg-type]
                ROOT,
                store_for=self.store_for,
                clock=self.clock,
                ids=self.ids,
                settings=Settings(listed_ms=0, ticket_after=10**6, verify_staged=0),
                publisher=False,
            )
        return catalog

    def store_for(self, location: str) -> _Store:
        return _Store(self, location)

    def ask(self, name: str, step: Step | Sequence[Any]) -> Any:
        """Take a step, or choose one of several answers; each is explored."""
        if self._pause is not None:  # what runs on the way out belongs to a later moment
            raise self._pause
        for answer in self._answers:
            if isinstance(answer, _Raised):
                raise answer.error
            return answer
        self._pause = _PauseError(step, name)
        raise self._pause

    def choose(self, *choices: Any) -> Any:
        return self.ask("choose", choices)

    # As the catalog's store

    @contextmanager
    def read(self) -> Iterator[Any]:
        yield self.ask("read rows", lambda shared: (shared, shared)).unit()

    @contextmanager
    def read_latest(self) -> Iterator[Any]:
        yield _Look(self)

    def write_batch(self, expected: Epoch, batch: Batch) -> Epoch | None:
        def write(unit: Any) -> Epoch | None:
            if unit.epoch() != expected or unit.decided(batch.undecided):
                return None
            unit.write_batch(batch)
            return unit.epoch()  # type: ignore[no-any-return]

        return self.write_rows(write)  # type: ignore[no-any-return]

    def write_rows(self, do: Callable[[Any], Any]) -> Any:
        return self.ask("write rows", lambda shared: _written(shared, do))

    def close(self) -> None:
        pass


class _Look:
    """Questions of which each is a step."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        with self._process.read() as unit:
            return getattr(unit, name)


class _Immediate(Ratifier):
    """A ratifier that works at once instead of in a thread."""

    def __init__(self, process: Process, decider: Decider) -> None:
        self._explored = process
        self._store = process  # type: ignore[assignment]
        self._decider = decider
        self._clock, self._settings = process.clock, Settings()
        self._heads = Heads()
        self._queue, self._taken = SimpleQueue(), deque()
        self._undone_since = self._stopped = None
        self._singly = self._contended = 0
        self._process = os.getpid()

    def _put(self, work: Any) -> None:
        self._taken.append(work)
        self._batch()

    def _do_in_unit(self, begun: list[Any], most: int) -> list[Any]:
        [work] = begun

        def do(unit: Any) -> Any:
            if isinstance(work, _UnitWork):
                return work.do(unit), None
            postponed, _ = self._decide_in(unit, begun)
            assert not postponed  # nothing else is being decided
            return work.result, work.error

        try:
            work.result, work.error = self._explored.write_rows(do)
        except Exception as error:
            work.error = error
        self._heads.forget()
        return []


def _written(shared: Shared, do: Callable[[Any], Any]) -> tuple[Any, Shared]:
    unit = shared.writing_unit()
    unit._connection.execute("PRAGMA foreign_keys = ON; BEGIN")
    try:
        result = do(unit)
    except Exception as error:
        return _Raised(error), shared
    unit.finish()
    unit._connection.execute("COMMIT")
    return result, sealed(unit._connection, shared.objects)


class _Store:
    """Storage of which each call is a step."""

    def __init__(self, process: Process, location: str) -> None:
        self.url = location
        self._process = process

    def local_path(self, path: str) -> str | None:
        return path  # reading files one after the other, in this very process

    def get(self, path: str) -> bytes:
        return self._call("get", path)  # type: ignore[no-any-return]

    def head(self, path: str) -> ObjectMeta | None:
        return self._call("head", path)  # type: ignore[no-any-return]

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[ObjectMeta]:
        return iter(self._call("list", prefix, start_after, recursive))

    def put_if_absent(self, path: str, content: bytes) -> bool:
        return self._call("put_if_absent", path, content)  # type: ignore[no-any-return]

    def put_many_if_absent(self, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        # Not one step: a reader may look in between, and the publisher may be cut short there.
        return [self.put_if_absent(path, content) for path, content in items]

    def sync(self, paths: Sequence[str]) -> None:
        pass  # what is put here is durable

    def _call(self, method: str, *values: Any) -> Any:
        def call(shared: Shared) -> tuple[Any, Shared]:
            store = MemoryStore(self.url)
            prefix = f"{self.url}/"
            for path, content in shared.objects:
                if path.startswith(prefix):
                    store.put(path.removeprefix(prefix), content)
            try:
                answer = getattr(store, method)(*values)
                answer = tuple(answer) if method == "list" else answer
            except Exception as error:
                return _Raised(error), shared
            if method != "put_if_absent" or not answer:
                return answer, shared
            objects = (*shared.objects, (f"{prefix}{values[0]}", values[1]))
            return answer, Shared(shared.rows, tuple(sorted(objects)), shared.seal)

        return self._process.ask(method, call)


_seals: dict[str, int] = {}


def sealed(connection: apsw.Connection, objects: Objects) -> Shared:
    """Take what a database holds, known again however it came to hold it."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    tables = sorted(str(name) for [name] in names)
    rows = [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]
    content = repr([sorted(found, key=repr) for found in rows])
    seal = _seals.setdefault(content, len(_seals))
    return Shared(connection.serialize("main"), objects, seal)


def empty() -> Shared:
    """Return a catalog with a namespace and nothing in it."""
    connection = apsw.Connection(":memory:")
    connection.execute("PRAGMA page_size = 512")
    folder = resources.files("headgate.catalog.stores.migrations") / "sqlite"
    for script in sorted(folder.iterdir(), key=lambda script: script.name):
        connection.execute(script.read_text())
    connection.execute("INSERT INTO namespaces VALUES ('main', 'default', 'main', 'default', 0)")
    return sealed(connection, ())


@contextmanager
def _patched(process: Process) -> Iterator[None]:
    from headgate.catalog import service

    real = service.Ratifier
    service.Ratifier = lambda _, decider, *__: _Immediate(process, decider)  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        service.Ratifier = real  # type: ignore[misc]


@dataclass
class _Node:
    """Where a process stands, and what it would ask next."""

    answers: tuple[Any, ...]
    step: Step | Sequence[Any] | None = None  # None: it came to its end
    name: str = ""
    result: Any = None
    after: dict[Any, int] = field(default_factory=dict)  # by answer


Body = Callable[[Process], Any]
Check = Callable[[Shared, Sequence[Any]], None]


class Explorer:
    """Walks every order in which processes can take their steps, each state once.

    With `switches`, only orders in which so often at most another process goes on although the one
    before could have: most of what can go wrong goes wrong with two or three.
    """

    def __init__(self, bodies: Sequence[Body], check: Check, switches: int | None = None) -> None:
        self._bodies = bodies
        self._check = check
        self._switches = switches
        self._nodes: list[list[_Node]] = [[] for _ in bodies]
        self._taken: dict[tuple[int, int, int, Objects], list[tuple[Any, Shared]]] = {}
        self.states = 0

    def explore(self, start: Shared) -> list[Any]:
        """Go through all states; give the results of processes at every end."""
        ends: dict[str, Any] = {}
        first = tuple(self._node(number, ()) for number in range(len(self._bodies)))
        path: list[tuple[Shared, tuple[int, ...], int, int, list[str]]]
        path = [(start, first, -1, 0, [])]
        seen: set[tuple[Any, ...]] = set()
        checked: set[tuple[Any, ...]] = set()  # a state is reached with several counts of switches
        while path:
            shared, at, last, switched, story = path.pop()
            self.states += 1
            nodes = [self._nodes[number][node] for number, node in enumerate(at)]
            state = (shared.seal, shared.objects, at)
            if state not in checked:
                checked.add(state)
                results = [node.result if node.step is None else None for node in nodes]
                try:
                    self._check(shared, results)
                except AssertionError as error:
                    raise AssertionError("\n".join([str(error), *story])) from error
                if all(node.step is None for node in nodes):
                    ends.setdefault(repr(results), results)
            for number, node in enumerate(nodes):
                if node.step is None:
                    continue
                is_switch = last not in (-1, number) and nodes[last].step is not None
                switches = switched + is_switch
                if self._switches is not None and switches > self._switches:
                    continue
                for answer, then in self._successors(number, at[number], node, shared):
                    after = self._after(number, node, answer)
                    places = (*at[:number], after, *at[number + 1 :])
                    key: tuple[Any, ...] = (then.seal, then.objects, places)
                    if self._switches is not None:
                        key = (*key, number, switches)
                    if key not in seen:
                        seen.add(key)
                        steps = [*story, f"{number}: {node.name}"]
                        path.append((then, places, number, switches, steps))
        return list(ends.values())

    def _successors(
        self, number: int, place: int, node: _Node, shared: Shared
    ) -> list[tuple[Any, Shared]]:
        if not callable(node.step):
            assert node.step is not None
            return [(choice, shared) for choice in node.step]
        key = (number, place, shared.seal, shared.objects)
        if key not in self._taken:
            self._taken[key] = [node.step(shared)]
        return self._taken[key]

    def _after(self, number: int, node: _Node, answer: Any) -> int:
        if isinstance(answer, Shared):
            key: Any = answer.seal
        elif isinstance(answer, _Raised):
            key = repr(answer.error)
        else:
            key = repr(answer)
        if key not in node.after:
            node.after[key] = self._node(number, (*node.answers, answer))
        return node.after[key]

    def _node(self, number: int, answers: tuple[Any, ...]) -> int:
        node = _Node(answers)
        try:
            node.result = self._bodies[number](Process(number + 1, answers)) or "done"
        except _PauseError as pause:
            node.step, node.name = pause.step, pause.name
        self._nodes[number].append(node)
        return len(self._nodes[number]) - 1


def run(body: Body, start: Shared) -> tuple[Any, Shared]:
    """Run one process alone to its end."""
    answers: list[Any] = []
    while True:
        try:
            return body(Process(0, answers)), start
        except _PauseError as pause:
            step = pause.step
        assert callable(step)
        answer, start = step(start)
        answers.append(answer)


class Losing:
    """A catalog whose answers may get lost, once."""

    def __init__(self, process: Process, catalog: Catalog) -> None:
        self._process = process
        self._catalog = catalog
        self._may_lose = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def propose(self, proposal: Any) -> Any:
        answer = self._catalog.propose(proposal)
        if self._may_lose and self._process.choose("heard", "lost") == "lost":
            self._may_lose = False
            raise UnavailableError("The answer was lost.")
        return answer
