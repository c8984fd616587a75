"""A lake, tables with a plain model of their history, and catalogs with terse or late answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate
from headgate.api.messages import Answer, Proposal, RatifiedCommits, Resolved
from headgate.api.port import ManagingCatalog, Ref
from headgate.client.transaction import Patience
from headgate.clock import RandomIds
from headgate.protocol.actions import Sequence, TableId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.paths import LOG
from headgate.settings import Settings
from headgate.storage import locations
from tests.kit.builders import ManualClock
from tests.kit.other_readers import Rows, rows

SCHEMA = "id long, part string"
PARTS = ("a b", "c/d%", None, "ü=1")
LISTED_MS = Settings().listed_ms
WAYS = (Way.INLINE, Way.STAGED)


def rows_of(ids: Iterable[int]) -> pa.Table:
    """Make the rows with these ids; an id says all of its row."""
    ids = list(ids)
    parts = [PARTS[number % len(PARTS)] for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "part": pa.array(parts, pa.string())})


def expected(ids: Iterable[int]) -> Rows:
    """Return the rows with these ids as every reader gives them."""
    return rows(rows_of(ids))


def ours(table: headgate.Table, version: int | None = None) -> Rows:
    """Read with our own reader."""
    return rows(table.to_arrow(version=version))


def directory(location: str) -> Path:
    """Return the local path of a location."""
    return Path(locations.decode(location.removeprefix("file://")))


def log_of(location: str) -> Path:
    return directory(location) / LOG


def published(location: str, version: int) -> Path:
    return log_of(location) / f"{version:020d}.json"


@dataclass
class Lake:
    """A lake with two clients: one sends its commits inline, the other stages them."""

    root: Path
    scratch: Path
    clock: ManualClock
    partition_by: tuple[str, ...] = ("part",)
    _sessions: list[headgate.Session] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sessions = {
            Way.INLINE: self.connect(),
            Way.STAGED: self.connect(inline_limit_bytes=0),
        }

    @property
    def catalog(self) -> ManagingCatalog:
        return self.sessions[Way.INLINE].catalog

    def connect(self, **settings: int) -> headgate.Session:
        """Connect another client, as another process would."""
        session = headgate.connect(
            self.root / "lake", publisher=False, clock=self.clock, settings=Settings(**settings)
        )
        self._sessions.append(session)
        return session

    def through(
        self, catalog: ManagingCatalog, patience: Patience | None = None
    ) -> headgate.Session:
        """Connect a client through a wrapper of the catalog."""
        return headgate.Session(
            catalog,
            clock=self.clock,
            ids=RandomIds(self.clock),
            store_for=locations.store_for,
            patience=patience,
        )

    def story(self, name: str = "orders", **how: Any) -> Story:
        """Make a table and an empty model of its history."""
        how = {"schema": SCHEMA, "partition_by": self.partition_by, **how}
        self.sessions[Way.INLINE].create_table(name, **how)
        return Story(self, name)

    def table(self, name: str = "orders", way: Way = Way.INLINE) -> headgate.Table:
        """Open a table with empty caches."""
        patience = Patience(inline_bytes=0) if way is Way.STAGED else None
        return self.through(self.sessions[way].catalog, patience).table(name)

    def resolve(self, name: str = "orders") -> Resolved:
        return self.catalog.resolve(self.table(name).id)

    def forget(self) -> None:
        """Let so much time pass that what is published is no longer listed."""
        self.clock.ms += LISTED_MS + 1

    def close(self) -> None:
        for session in self._sessions:
            session.close()


class Story:
    """A table and a plain model of it: which files each version has, and which ids they hold."""

    def __init__(self, lake: Lake, name: str) -> None:
        self.lake = lake
        self.name = name
        self.handles = {way: lake.table(name, way) for way in WAYS}
        self.location = self.handles[Way.INLINE].location
        self.id = self.handles[Way.INLINE].id
        self.versions: list[dict[str, tuple[int, ...]]] = [{}]
        self.times_ms = [self._timestamp_ms(0)]

    @property
    def latest(self) -> int:
        return len(self.versions) - 1

    @property
    def rows(self) -> list[Rows]:
        """The rows of each version."""
        return [self.rows_at(version) for version in range(len(self.versions))]

    def rows_at(self, version: int) -> Rows:
        return expected(number for ids in self.versions[version].values() for number in ids)

    def append(self, *ids: int, way: Way = Way.INLINE) -> None:
        committed = self._handle(way).append(rows_of(ids))
        self._tell(committed.version, self.versions[-1] | self._added(committed.version))

    def overwrite(self, *ids: int, way: Way = Way.INLINE) -> None:
        committed = self._handle(way).overwrite(rows_of(ids))
        self._tell(committed.version, self._added(committed.version))

    def remove(self, nth: int = 0, way: Way = Way.INLINE) -> None:
        """Remove one file; nothing happens where there is none."""
        if paths := sorted(self.versions[-1]):
            path = paths[nth % len(paths)]
            committed = self._handle(way).remove([path])
            left = {other: ids for other, ids in self.versions[-1].items() if other != path}
            self._tell(committed.version, left)

    def set_property(self, value: str, way: Way = Way.INLINE) -> None:
        committed = self._handle(way).set_properties({"number": value})
        self._tell(committed.version, self.versions[-1])

    def publish(self, upto: int | None = None) -> None:
        self.handles[Way.INLINE].publish(upto)

    def checkpoint(self, version: int, kind: str | None = None) -> None:
        self.handles[Way.INLINE].checkpoint(version, kind)

    def write(self) -> None:
        """Make a history of every kind of commit, inline and staged in turn, nothing published."""
        self.append(0, 1, 2, 3)
        self.append(4, 5, way=Way.STAGED)
        self.set_property("first", way=Way.STAGED)
        self.remove(1)
        self.append(6, 7, 8, way=Way.STAGED)
        self.overwrite(9, 10, 11, way=Way.STAGED)
        self.append(12, 13)
        self.remove(0, way=Way.STAGED)
        self.append(14, 15, 16, 17, way=Way.STAGED)

    def _handle(self, way: Way) -> headgate.Table:
        self.lake.clock.ms += 1000
        return self.handles[way]

    def _tell(self, version: Version, files: Mapping[str, tuple[int, ...]]) -> None:
        assert version == len(self.versions)
        self.versions.append(dict(files))
        self.times_ms.append(self._timestamp_ms(version))

    def _timestamp_ms(self, version: int) -> int:
        return next(
            line["commitInfo"]["inCommitTimestamp"] for line in lines(self.lake, self.id, version)
        )

    def _added(self, version: int) -> dict[str, tuple[int, ...]]:
        """Read the new files themselves, without any reader of tables."""
        added = {}
        for line in lines(self.lake, self.id, version):
            if "add" in line:
                path = line["add"]["path"]
                data = pq.ParquetFile(directory(self.location) / locations.decode(path))
                added[path] = tuple(data.read().column(0).to_pylist())
        return added


def content(lake: Lake, table_id: TableId, version: int) -> bytes:
    """Return the bytes of one ratified commit, from wherever the catalog says they are."""
    [commit] = lake.catalog.ratified_commits(table_id, Version(version), Version(version)).commits
    if commit.content is not None:
        return commit.content
    location = lake.catalog.resolve(table_id).location
    if commit.file_name is not None:
        return (log_of(location) / "_staged_commits" / commit.file_name).read_bytes()
    return published(location, version).read_bytes()


def lines(lake: Lake, table_id: TableId, version: int) -> list[dict[str, Any]]:
    """Return the actions of one ratified commit as plain JSON."""
    return [json.loads(line) for line in content(lake, table_id, version).splitlines()]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "scratch").mkdir()
    made = Lake(tmp_path, tmp_path / "scratch", ManualClock())
    yield made
    made.close()


@dataclass
class Intruder:
    """Somebody with access to storage and no regard for the catalog."""

    location: str
    MARK = 666

    def commit(self, version: int) -> bytes:
        """Write a row of the intruder's own, and give a commit that adds it."""
        name = f"intruder-{uuid4()}.parquet"
        path = directory(self.location) / name
        pq.write_table(pa.table({"id": pa.array([self.MARK], pa.int64())}), path)
        stats = {"numRecords": 1, "minValues": {"id": self.MARK}, "maxValues": {"id": self.MARK}}
        lines = [
            {
                "commitInfo": {
                    "inCommitTimestamp": 1_900_000_000_000 + version,
                    "txnId": str(uuid4()),
                    "operation": "WRITE",
                }
            },
            {
                "add": {
                    "path": name,
                    "partitionValues": {"part": None},
                    "size": path.stat().st_size,
                    "modificationTime": 0,
                    "dataChange": True,
                    "stats": json.dumps(stats),
                }
            },
        ]
        return b"".join(json.dumps(line).encode() + b"\n" for line in lines)

    def put(self, version: int) -> bytes:
        """Put a file where the commit of a version belongs."""
        put = self.commit(version)
        published(self.location, version).write_bytes(put)
        return put


class TerseCatalog:
    """Wraps a catalog; describes as little as the port allows.

    Only what is unpublished is listed and given; nothing of the past, of checkpoints or
    of what the table is.
    """

    def __init__(self, inner: ManagingCatalog) -> None:
        self.inner = inner

    def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
        resolved = self.inner.resolve(ref, at)
        return msgspec.structs.replace(
            resolved,
            commits=tuple(commit for commit in resolved.commits if commit.published_ms is None),
            held_from=None,
            protocol=None,
            metadata=None,
            checkpoint=None,
            compactions=(),
            checksum=None,
        )

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        held = self.inner.ratified_commits(table_id, first, last)
        unpublished = tuple(commit for commit in held.commits if commit.published_ms is None)
        return RatifiedCommits(latest=held.latest, commits=unpublished)

    def propose(self, proposal: Proposal) -> Answer:
        return self.inner.propose(proposal)


class Meanwhile:
    """Another catalog; something happens between each of its answers and the reader's next step."""

    def __init__(self, inner: ManagingCatalog, happens: Callable[[], object]) -> None:
        self.inner = inner
        self.happens = happens

    def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
        resolved = self.inner.resolve(ref, at)
        self.happens()
        return resolved

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        answer = self.inner.ratified_commits(table_id, first, last)
        self.happens()
        return answer

    def propose(self, proposal: Proposal) -> Answer:
        return self.inner.propose(proposal)
