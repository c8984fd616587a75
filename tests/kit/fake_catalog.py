"""A catalog that is a list of ratified contents, for tests of readers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from uuid import UUID

from headgate.api.messages import Answer, Proposal, RatifiedCommit, RatifiedCommits, Resolved
from headgate.api.port import Ref
from headgate.protocol.actions import (
    Action,
    CommitInfo,
    Metadata,
    Protocol,
    Sequence,
    TableId,
    TxnId,
    Version,
    decode,
    encode,
    join,
)
from headgate.protocol.commit.content import Way
from headgate.protocol.encoding import replaced
from headgate.protocol.log import replay
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.paths import PublishedCommit, StagedCommit
from headgate.storage.object_store import ObjectStore
from headgate.table.checkpoint_writer import CheckpointForm, write_checkpoint
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_loader import load

ID = TableId("5f3c9c5e-9d4e-4c7e-8f50-0a4c8a3e1b11")
LOCATION = "memory://lake/table"


def content(version: int, *actions: Action) -> bytes:
    info = CommitInfo(in_commit_timestamp=1_000 * (version + 1), txn_id=f"txn {version}")
    return join(map(encode, (info, *actions)))


class FakeCatalog:
    """A catalog over a list of ratified contents, with every freedom the port leaves it."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.name = "main.default.t"
        self.commits: list[RatifiedCommit] = []
        self.contents: list[bytes] = []
        self.listed_from = 0  # `resolve` gives the commits from here on
        self.held_from: int | None = None  # `ratified_commits` gives contents from here on
        self.checkpoint: KnownFile | None = None
        self.compactions: tuple[KnownFile, ...] = ()
        self.checksum: VersionChecksum | None = None
        self.checksum_file: KnownFile | None = None
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.describes = (
            False  # whether `resolve` brings protocol, metadata and counts. Spec: CM-22
        )
        self.calls: list[str] = []
        self.after_resolve: Callable[[], None] = lambda: None

    @property
    def latest(self) -> int:
        return len(self.commits) - 1

    def ratify(self, *actions: Action, way: Way = Way.INLINE, raw: bytes | None = None) -> int:
        version = len(self.commits)
        bytes_ = content(version, *actions) if raw is None else raw
        staged = StagedCommit(Version(version), UUID(int=version + 1))
        if way is Way.STAGED:
            self.store.put(staged.path, bytes_)
        self.contents.append(bytes_)
        self.commits.append(
            RatifiedCommit(
                version=Version(version),
                way=way,
                txn_id=TxnId(f"txn {version}"),
                sequence=Sequence(version + 1),
                timestamp_ms=1_000 * (version + 1),
                size=len(bytes_),
                sha256=hashlib.sha256(bytes_).hexdigest(),
                file_name=staged.name if way is Way.STAGED else None,
                content=bytes_ if way is Way.INLINE else None,
            )
        )
        return version

    def publish(self, upto: int | None = None, *, forget: bool = True) -> None:
        last = self.latest if upto is None else upto
        for version in range(last + 1):
            self.store.put_if_absent(PublishedCommit(Version(version)).path, self.contents[version])
        if forget:
            self.listed_from = max(self.listed_from, last + 1)

    def checkpoint_at(
        self, version: int, form: CheckpointForm = CheckpointForm.CLASSIC
    ) -> KnownFile:
        snapshot = self.load(version=Version(version))
        uuids = iter(UUID(int=version * 1000 + n + 1) for n in range(100))
        return write_checkpoint(
            self.store,
            snapshot.state,
            table="t",
            now_ms=0,
            new_uuid=lambda: next(uuids),
            form=form,
            files_per_sidecar=2,
        )

    def load(self, store: ObjectStore | None = None, **how: object) -> Snapshot:
        return load(self, ID, store_for=lambda _: store or self.store, **how)  # type: ignore[arg-type]

    def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
        self.calls.append("resolve")
        latest = self.latest if at is None else int(at) - 1
        resolved = Resolved(
            table_id=ID,
            location=LOCATION,
            name=self.name,
            latest=Version(latest),
            timestamp_ms=self.commits[latest].timestamp_ms,
            sequence=at,
            commits=tuple(self.commits[self.listed_from : latest + 1]),
            held_from=None if self.held_from is None else Version(self.held_from),
            checkpoint=self.checkpoint,
            compactions=self.compactions,
            checksum=self.checksum,
            checksum_file=self.checksum_file,
            protocol=self.protocol,
            metadata=self.metadata,
        )
        if self.describes:
            resolved = self._with_description(resolved)
        self.after_resolve()
        return resolved

    def _with_description(self, resolved: Resolved) -> Resolved:
        whole = b"\n".join(self.contents[: resolved.latest + 1])
        state = replay.apply(replay.EMPTY, resolved.latest, decode(whole))
        assert state.protocol is not None
        assert state.metadata is not None
        checksum = VersionChecksum(
            table_size_bytes=state.size_in_bytes,
            num_files=state.num_files,
            metadata=state.metadata,
            protocol=state.protocol,
            domain_metadata=tuple(state.domains.values()),
        )
        return replaced(
            resolved,
            protocol=state.protocol,
            metadata=state.metadata,
            checksum=self.checksum or checksum,
        )

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        self.calls.append("ratified_commits")
        held = self.latest + 1 if self.held_from is None else self.held_from
        stop = self.latest if last is None else last
        return RatifiedCommits(
            latest=Version(self.latest),
            commits=tuple(self.commits[max(held, first or 0) : stop + 1]),
        )

    def propose(self, proposal: Proposal) -> Answer:
        raise NotImplementedError
