"""A catalog, storage and clients in one process, with faults on request and a model beside them.

Time advances only when a caller waits or a test moves it. A `Line` between clients and the catalog
loses and doubles calls; storage fails before or after its effect; an armed fail point is a crash,
and the world goes on with a new catalog on what the old one left. The model knows what was wished
for, what was answered and what was seen, and never asks the catalog what is right.
"""

from __future__ import annotations

import enum
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import apsw

from headgate.api.messages import Answer, Proposal, Ratified, Rejected
from headgate.catalog.filesystem import FilesystemCatalog
from headgate.catalog.service import Catalog
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.clock import Clock
from headgate.errors import (
    ConflictError,
    HeadgateError,
    InvalidCommitError,
    LogAheadError,
    NotFoundError,
    OutcomeUnknownError,
    TransactionExpiredError,
    UnavailableError,
)
from headgate.failpoints import FailPointError, arm
from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, SchemaName
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.paths import LOG, STAGED, PublishedCommit
from headgate.settings import Settings
from headgate.storage import locations
from headgate.storage.local import LocalStore
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import Folder, ObjectStore, PutUnknownError
from tests.kit.builders import START_MS, CountedIds, ManualClock
from tests.kit.faulty_stores import FailingStore, PowerLossError

_T = TypeVar("_T")
NAMESPACE = SchemaName(DEFAULT_CATALOG, DEFAULT_SCHEMA)


DEATHS = (FailPointError, PowerLossError)


class CrashError(Exception):
    """The catalog's process died in the middle of a call, and a new one is running."""


@contextmanager
def quiet_deaths() -> Iterator[None]:
    """Let threads die of what a test does to them without a word."""
    loud = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not isinstance(args.exc_value, DEATHS):
            loud(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = loud
        arm("")


# Time and ids


class WorldClock(ManualClock):
    """Advances only when a caller waits or a test moves it; long waits are cut short."""

    naps = 0  # in a row

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.naps += 1
        self.ms += max(1, round(seconds * 1000)) << min(self.naps // 100, 16)


# The model: what was proposed, answered and seen


class Fate(enum.Enum):
    """The answer to a proposal."""

    OPEN = "open"  # none yet, or an unknown outcome
    ACKED = "acked"
    REFUSED = "refused"


@dataclass
class Wish:
    """A proposed transaction, at any versions."""

    proposal: Proposal
    tables: frozenset[TableId]
    fate: Fate = Fate.OPEN
    versions: dict[TableId, Version] = field(default_factory=dict)
    tried: set[tuple[TableId, Version]] = field(default_factory=set)


@dataclass(frozen=True)
class Seen:
    """A ratified commit as it was when it was seen first."""

    version: int
    txn_id: TxnId
    sha256: bytes
    timestamp_ms: int
    sequence: int
    content: bytes

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.content.splitlines() if line]

    def actions(self, kind: str) -> list[dict[str, Any]]:
        return [line[kind] for line in self.lines if kind in line]


@dataclass
class Model:
    """What is expected, in plain dictionaries."""

    history: dict[TableId, list[Seen]] = field(default_factory=dict)
    wishes: dict[TxnId, Wish] = field(default_factory=dict)
    created: set[TableId] = field(default_factory=set)  # acknowledged creations
    purged: set[TableId] = field(default_factory=set)  # or asked to be
    cut: dict[TableId, int] = field(default_factory=dict)  # newest version cleaned away
    intruders: set[tuple[TableId, int]] = field(default_factory=set)
    reached: dict[tuple[str, TableId], int] = field(default_factory=dict)  # by whom, how far
    sequence: int = 0

    def wish(self, proposal: Proposal) -> None:
        tables = frozenset(part.table_id for part in proposal.parts)
        wish = self.wishes.setdefault(proposal.txn_id, Wish(proposal, tables))
        wish.proposal = proposal
        wish.tried |= {(part.table_id, part.version) for part in proposal.parts}

    def record(self, answer: Answer) -> None:
        """Take note of an answer that was heard; two answers never contradict each other."""
        wish = self.wishes[answer.txn_id]
        match answer:
            case Ratified(commits=commits):
                versions = {table_id: commit.version for table_id, commit in commits.items()}
                assert wish.fate is not Fate.REFUSED, f"{answer.txn_id} was refused before"
                assert wish.versions in ({}, versions), (
                    f"{answer.txn_id} was answered {wish.versions} before"
                )
                wish.fate, wish.versions = Fate.ACKED, versions
            case Rejected():
                self.refuse(answer.txn_id)
            case _:  # the version is taken: not an outcome, and never an answer to a winner
                assert wish.fate is not Fate.ACKED, f"{answer.txn_id} was ratified before"

    def hear_nothing_new(self, txn_id: TxnId, error: HeadgateError) -> None:
        """Record a missing decision: a ratified proposal is never answered as lost."""
        if self.wishes[txn_id].fate is Fate.ACKED:
            is_no = isinstance(error, NotFoundError | LogAheadError)
            assert not is_no, f"{txn_id} was ratified, and answered {error}"

    def refuse(self, txn_id: TxnId) -> None:
        wish = self.wishes[txn_id]
        assert wish.fate is not Fate.ACKED, f"{txn_id} was ratified before"
        wish.fate = Fate.REFUSED

    def unsettled(self) -> list[Wish]:
        return [wish for wish in self.wishes.values() if wish.fate is Fate.OPEN]

    def head(self, table_id: TableId) -> int:
        return len(self.history[table_id]) - 1

    def live(self, table_id: TableId, version: int | None = None) -> list[str]:
        """Replay a table plainly: which files it has at a version."""
        files: dict[str, None] = {}
        for seen in self.history[table_id][: None if version is None else version + 1]:
            for action in seen.actions("remove"):
                files.pop(action["path"], None)
            for action in seen.actions("add"):
                files[action["path"]] = None
        return list(files)

    def configuration(self, table_id: TableId, version: int | None = None) -> dict[str, str]:
        """Replay a table plainly: which properties it has at a version."""
        found: dict[str, str] = {}
        for seen in self.history[table_id][: None if version is None else version + 1]:
            for action in seen.actions("metaData"):
                found = action["configuration"]
        return found

    def at_sequence(self, table_id: TableId, sequence: int) -> int:
        return sum(seen.sequence <= sequence for seen in self.history[table_id]) - 1

    def at_time(self, table_id: TableId, timestamp_ms: int) -> int:
        return sum(seen.timestamp_ms <= timestamp_ms for seen in self.history[table_id]) - 1

    def reach(self, who: str, table_id: TableId, version: int) -> None:
        """One client's reads and commits never go backwards: invariant S18."""
        before = self.reached.get((who, table_id), -1)
        assert version >= before, f"S18: {who} saw {before} of {table_id}, and now {version}"
        self.reached[who, table_id] = version


# The truth: rows and files, read past the catalog


@dataclass(frozen=True)
class Row:
    """A commit as the catalog's own rows have it."""

    version: int
    txn_id: TxnId
    sha256: bytes
    timestamp_ms: int
    sequence: int
    file_name: str | None
    content: bytes | None
    is_published: bool


@dataclass(frozen=True)
class Truth:
    """A table as rows and files have it."""

    table_id: TableId
    state: str
    location: str
    head: int
    published: int
    held_from: int
    is_diverged: bool
    rows: list[Row]
    files: dict[str, bytes]  # everything below its location

    def published_bytes(self, version: int) -> bytes | None:
        return self.files.get(PublishedCommit(Version(version)).path)

    def tracked_bytes(self, row: Row) -> bytes | None:
        """What the catalog itself still leads to: its own content, or a staged file."""
        if row.content is not None:
            return row.content
        return self.files.get(f"{STAGED}/{row.file_name}") if row.file_name else None

    @property
    def published_versions(self) -> list[int]:
        names = (path.removeprefix(f"{LOG}/") for path in self.files if path.startswith(LOG))
        return sorted(
            int(name[:20]) for name in names if name[20:] == ".json" and name[:20].isdigit()
        )


# Places


class Place(Protocol):
    """Where a world keeps its things."""

    root: str

    def store_for(self, location: str) -> ObjectStore: ...

    def bare(self) -> ObjectStore:
        """The storage below the root, with no faults in the way."""
        ...

    def open_store(self, clock: Clock) -> SQLiteStore: ...

    def rows(self) -> apsw.Connection: ...

    def restart(self) -> None:
        """Be there for the next process, after the one before died."""
        ...


class MemoryPlace:
    """Tables in memory, the database in a folder that should be in memory too."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.root = "memory://world"
        self.failing = FailingStore(MemoryStore(self.root, clock.now_ms))
        self._database = str(folder / "headgate.db")

    def store_for(self, location: str) -> ObjectStore:
        path = locations.path_within(self.root, location)
        return self.failing if not path else Folder(self.failing, path, location)

    def bare(self) -> ObjectStore:
        return self.failing.inner

    def open_store(self, clock: Clock) -> SQLiteStore:
        return SQLiteStore(self._database, clock)

    def rows(self) -> apsw.Connection:
        return apsw.Connection(self._database)

    def restart(self) -> None:
        pass  # what was written is there


class LocalPlace(MemoryPlace):
    """Tables and database on a real disk."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        (folder / "lake").mkdir()
        self.root = locations.normalize(str(folder / "lake"))
        self.failing = FailingStore(LocalStore(folder / "lake"))


# The line between clients and the catalog

_CHANGES = frozenset(
    {
        "propose", "publish", "confirm_published", "add_file", "create_table", "register_table",
        "rename_table", "drop_table", "undrop_table", "purge_table",
    }
)  # fmt: skip
_REPEATABLE = _CHANGES - {"undrop_table", "purge_table"}  # those are refused the second time


class Line:
    """A catalog as clients reach it: calls get lost, answers get lost, calls come twice."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lost_requests = self.lost_answers = self.doubled = 0
        self.calls: Counter[str] = Counter()

    def call(self, name: str, *args: Any, **named: Any) -> Any:
        self.calls[name] += 1
        world = self.world
        if name == "propose":
            world.model.wish(args[0])
        if name in _CHANGES and self.lost_requests:
            self.lost_requests -= 1
            raise UnavailableError("The line went dead before the request came through.")
        result = world.do(lambda: getattr(world.door, name)(*args, **named))
        if name in _REPEATABLE and self.doubled:
            self.doubled -= 1
            result = world.do(lambda: getattr(world.door, name)(*args, **named))
        if name in _CHANGES and self.lost_answers:
            self.lost_answers -= 1
            raise UnavailableError("The line went dead before the answer came through.")
        if name == "propose":
            world.model.record(result)
        return result


def _line_to(world: World) -> Any:
    """Return a line with the methods of a world's catalog, and no others."""

    def forward(name: str) -> Callable[..., Any]:
        return lambda self, *args, **named: self.call(name, *args, **named)

    catalog = world.catalog
    names = [n for n in dir(catalog) if not n.startswith("_") and callable(getattr(catalog, n))]
    methods = {name: forward(name) for name in names if name != "close"}
    return type("Line", (Line,), methods)(world)


# The world

# Possible answers that decide nothing.
_NOT_NOW = (UnavailableError, OutcomeUnknownError, PutUnknownError, NotFoundError, LogAheadError)


class World:
    """Everything, and the ways to disturb it."""

    def __init__(
        self,
        place_at: Callable[[Clock], Place],
        *,
        settings: Settings | None = None,
        has_database: bool = True,
    ) -> None:
        self.clock = WorldClock(START_MS)
        self.ids = CountedIds(1, self.clock)
        self.place = place_at(self.clock)
        self.settings = settings or Settings(verify_staged=0)
        self.has_database = has_database
        self.model = Model()
        self.crashes = 0
        self.seal = b""  # of the state that was found in order last
        self.catalog: Catalog | FilesystemCatalog
        self._store: SQLiteStore | None = None
        self._rows: apsw.Connection | None = None
        self.open()
        self.line = _line_to(self)

    @property
    def door(self) -> Any:
        """What clients speak to: the catalog itself, or what stands before it."""
        return self.catalog

    # Running and dying

    def open(self) -> None:
        """Start the catalog on whatever is there."""
        if not self.has_database:
            self.catalog = FilesystemCatalog(
                self.place.root,
                store_for=self.place.store_for,
                clock=self.clock,
                ids=self.ids,
            )
            return
        self._store = store = self.place.open_store(self.clock)
        with store.read() as unit:
            is_new = not unit.namespaces()
        if is_new:
            with store.write() as writing:
                writing.insert_namespace(NAMESPACE, self.clock.now_ms())
        self.catalog = Catalog(
            store,
            self.place.root,
            store_for=self.place.store_for,
            clock=self.clock,
            ids=self.ids,
            settings=self.settings,
            publisher=False,
        )
        self._rows = self.place.rows()

    def crash(self) -> None:
        """Let the catalog's process die, and start another on what it left."""
        self.crashes += 1
        arm("")
        self.place.restart()
        self.leave()
        self.open()

    def leave(self) -> None:
        """Let go of a catalog without a word to it: nothing is finished, nothing published."""
        arm("")
        if self._rows is not None:
            self._rows.close()
        if self._store is not None:
            assert isinstance(self.catalog, Catalog)
            self.catalog._ratifier.close()
            self._store.close()

    def do(self, call: Callable[[], _T]) -> _T:
        """Run something in the catalog's process, which may die of it."""
        self.clock.naps = 0
        try:
            result = call()
        except DEATHS:
            self.crash()
            raise CrashError from None
        except HeadgateError:
            if self._has_died:  # the writer's thread died, and this is what the caller heard
                self.crash()
            raise
        if self._has_died:
            self.crash()
            raise CrashError
        return result

    @property
    def _has_died(self) -> bool:
        return isinstance(self.catalog, Catalog) and self.catalog._ratifier._stopped is not None

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Let storage work while a check reads."""
        failing = getattr(self.place, "failing", None)
        if failing is None:
            yield
            return
        times, failing.times = failing.times, 0
        try:
            yield
        finally:
            failing.times = times

    def bare_store_for(self, location: str) -> ObjectStore:
        """Return a table's storage with no faults in the way."""
        path = locations.path_within(self.place.root, location)
        bare = self.place.bare()
        return bare if not path else Folder(bare, path, location)

    # Wishes

    def propose(self, proposal: Proposal) -> Answer | HeadgateError | None:
        """Send a proposal over the line; give what was heard, None for nothing."""
        try:
            answer: Answer = self.line.propose(proposal)
        except CrashError:
            return None
        except (InvalidCommitError, TransactionExpiredError, ConflictError) as error:
            self.model.refuse(proposal.txn_id)
            return error
        except _NOT_NOW as error:
            tables = {part.table_id for part in proposal.parts}
            if self.has_database or not tables & self.model.purged:  # else nothing remembers
                self.model.hear_nothing_new(proposal.txn_id, error)
            return error
        return answer

    def propose_together(self, proposals: Sequence[Proposal]) -> None:
        """Have proposals decided in one batch, in their order."""
        catalog = self.catalog
        assert isinstance(catalog, Catalog)
        ratifier = catalog._ratifier
        is_held, go_on = threading.Event(), threading.Event()

        def hold(unit: object) -> None:
            is_held.set()
            go_on.wait()

        held = ratifier.submit("hold", hold)
        while not is_held.wait(0.001):
            if held.done():  # the writer's thread died before it came to this
                break
        heard: dict[TxnId, Answer] = {}

        def ask(proposal: Proposal) -> None:
            with suppress(HeadgateError, *DEATHS):
                heard[proposal.txn_id] = catalog.propose(proposal)

        threads = []
        for proposal in proposals:
            self.model.wish(proposal)
            before = ratifier._queue.qsize()
            threads.append(threading.Thread(target=ask, args=(proposal,), daemon=True))
            threads[-1].start()
            while threads[-1].is_alive() and ratifier._queue.qsize() == before:
                threads[-1].join(0.0005)
        go_on.set()
        for thread in threads:
            thread.join()
        held.exception()
        if self._has_died:
            self.crash()
        for answer in heard.values():
            self.model.record(answer)

    # The truth

    def tables(self) -> dict[TableId, Truth]:
        """Read rows and files, past the catalog."""
        truths = self._tables_of_database() if self.has_database else self._tables_of_folders()
        return {truth.table_id: truth for truth in truths}

    def observe(self) -> dict[TableId, Truth]:
        """Look at every table; what is new is taken into the model, what is old must be as it was.

        Invariants S1, S2 and the finding half of S9 are checked on the way, since the model cannot
        go on without them.
        """
        found = self.tables()
        for table_id, truth in found.items():
            history = self.model.history.setdefault(table_id, [])
            if table_id in self.model.purged and not truth.rows:
                continue  # a filesystem catalog keeps nothing of what it purged
            versions = [row.version for row in truth.rows]
            assert versions == list(range(truth.head + 1)), f"S1: {table_id} has {versions}"
            assert len(versions) >= len(history), f"S2: {table_id} lost versions"
            for seen, row in zip(history, truth.rows, strict=False):
                known = (seen.txn_id, seen.sha256, seen.timestamp_ms, seen.sequence)
                found_now = (row.txn_id, row.sha256, row.timestamp_ms, row.sequence)
                assert known == found_now, f"S2: {table_id} version {row.version} changed"
            for row in truth.rows[len(history) :]:
                content = self._content(truth, row)
                history.append(
                    Seen(
                        row.version,
                        row.txn_id,
                        row.sha256,
                        row.timestamp_ms,
                        row.sequence,
                        content,
                    )
                )
        for table_id in self.model.history.keys() - found.keys():
            assert table_id in self.model.purged, f"S2: table {table_id} is gone"
        return found

    def _content(self, truth: Truth, row: Row) -> bytes:
        for content in (truth.tracked_bytes(row), truth.published_bytes(row.version)):
            if content is not None and hashlib.sha256(content).digest() == row.sha256:
                return content
        raise AssertionError(f"S9: version {row.version} of {truth.table_id} is nowhere")

    def _files(self, location: str) -> dict[str, bytes]:
        bare = self.place.bare()
        prefix = locations.path_within(self.place.root, location) or ""
        return {
            item.path.removeprefix(f"{prefix}/"): bare.get(item.path)
            for item in bare.list(prefix, recursive=True)
        }

    def _tables_of_database(self) -> Iterable[Truth]:
        assert self._rows is not None
        with self._rows:
            tables: list[Any] = self._rows.execute(
                "SELECT key, id, state, location, head, published, held_from, diverged FROM tables"
            ).fetchall()
            commits: list[Any] = self._rows.execute(
                "SELECT table_key, version, txn_id, sha256, timestamp_ms, sequence, file_name, "
                "content, published_ms IS NOT NULL FROM commits ORDER BY version"
            ).fetchall()
        for key, table_id, state, location, head, published, held_from, diverged in tables:
            rows = [Row(*row[1:]) for row in commits if row[0] == key]
            yield Truth(
                table_id,
                state,
                location,
                head,
                published,
                held_from,
                diverged is not None,
                rows,
                self._files(location),
            )

    def _tables_of_folders(self) -> Iterable[Truth]:
        for path in [item.path for item in self.place.bare().list("", recursive=True)]:
            folder, is_first, _ = path.partition(f"/{PublishedCommit(Version(0)).path}")
            if not is_first:
                continue
            files = self._files(f"{self.place.root}/{folder}")
            rows: list[Row] = []
            while (name := PublishedCommit(Version(len(rows))).path) in files:
                seen = Seen(0, TxnId(""), b"", 0, 0, files[name])
                try:
                    [info] = seen.actions("commitInfo")
                except ValueError:
                    break  # no commit: an intruder's
                rows.append(
                    Row(
                        len(rows),
                        info["txnId"],
                        hashlib.sha256(files[name]).digest(),
                        info["inCommitTimestamp"],
                        0,
                        None,
                        None,
                        is_published=True,
                    )
                )
            [metadata] = Seen(0, TxnId(""), b"", 0, 0, files[name_of(0)]).actions("metaData")
            is_dropped = self.place.bare().head(f"{folder}.dropped") is not None
            head = len(rows) - 1
            yield Truth(
                metadata["id"],
                "dropped" if is_dropped else "active",
                f"{self.place.root}/{folder}",
                head,
                head,
                head + 1,
                False,
                rows,
                files,
            )

    def dump(self) -> str:
        """Tell what happened and how things are, for who has to find out why."""
        lines = [f"clock {self.clock.ms}, {self.crashes} crashes"]
        for table_id, truth in self.tables().items():
            lines.append(
                f"table {table_id} {truth.state}: head {truth.head}, published {truth.published}, "
                f"held from {truth.held_from}{', diverged' if truth.is_diverged else ''}"
            )
            lines += [f"  {row.version}: {row.txn_id} {row.file_name or ''}" for row in truth.rows]
            lines += [f"  {path} ({len(content)})" for path, content in truth.files.items()]
        lines += [f"wish {wish.fate.value}: {txn}" for txn, wish in self.model.wishes.items()]
        return "\n".join(lines)


def name_of(version: int) -> str:
    """Return the path of a published commit."""
    return PublishedCommit(Version(version)).path
