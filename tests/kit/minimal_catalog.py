"""The smallest catalog that clients work with: three methods over a dictionary.

It implements nothing optional, so a client must refuse everything beyond by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from headgate.api.messages import (
    Answer,
    Part,
    Proposal,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    Resolved,
    VersionTaken,
)
from headgate.api.port import Ref
from headgate.errors import NotFoundError
from headgate.names import TableName
from headgate.protocol.actions import CommitInfo as Info
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Inline, Put, Staged, Way
from headgate.protocol.commit.strict_json import read
from headgate.protocol.paths import STAGED, PublishedCommit
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.storage.object_store import ObjectStore


@dataclass
class MinimalTable:
    """A name, a location, and all ratified commits from version 0 on."""

    name: TableName
    location: str
    commits: list[RatifiedCommit] = field(default_factory=list)

    @property
    def latest(self) -> Version:
        return Version(len(self.commits) - 1)


class MinimalCatalog:
    """Resolve, ratified commits and propose; nothing else. Spec: CA-02, CA-05."""

    def __init__(
        self,
        store_for: Callable[[str], ObjectStore],
        now_ms: Callable[[], int],
        ways: tuple[Way, ...] = (Way.INLINE, Way.STAGED),
    ) -> None:
        self.tables: dict[TableId, MinimalTable] = {}
        self._store_for = store_for
        self._now_ms = now_ms
        self._ways = ways
        self._sequence = 0

    def make(
        self,
        name: TableName,
        table_id: TableId,
        location: str,
        *,
        schema_string: str,
        partition_columns: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        features: Iterable[str] = (),
    ) -> None:
        """Write version 0 and register the table; not part of the port."""
        readers = ["catalogManaged", "vacuumProtocolCheck"]
        configuration = {
            "delta.enableInCommitTimestamps": "true",
            TABLE_ID_PROPERTY: table_id,
            **(properties or {}),
        }
        lines: list[dict[str, object]] = [
            {"commitInfo": {"inCommitTimestamp": self._now_ms(), "txnId": f"made-{table_id}"}},
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": readers,
                    "writerFeatures": [*readers, "inCommitTimestamp", *features],
                }
            },
            {
                "metaData": {
                    "id": table_id,
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": schema_string,
                    "partitionColumns": list(partition_columns),
                    "configuration": configuration,
                }
            },
        ]
        content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        assert self._store_for(location).put_if_absent(_published(Version(0)), content)
        self.adopt(name, table_id, location)

    def adopt(self, name: TableName, table_id: TableId, location: str) -> None:
        """Register a table whose version 0 is in its log; not part of the port."""
        self.tables[table_id] = MinimalTable(name, location)
        content = self._store_for(location).get(PublishedCommit(Version(0)).path)
        self._ratify(table_id, Version(0), Way.PUT_IF_ABSENT, content)

    def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
        for table_id, table in self.tables.items():
            if ref == table_id or ref == table.name:
                return Resolved(
                    table_id=table_id,
                    location=table.location,
                    name=str(table.name),
                    ways=self._ways,
                    latest=table.latest,
                    timestamp_ms=table.commits[-1].timestamp_ms,
                    commits=self._held(table, Version(0), table.latest),
                )
        raise NotFoundError(f"Table {ref} not found.")

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        table = self.tables[table_id]
        wanted = self._held(table, first or Version(0), table.latest if last is None else last)
        return RatifiedCommits(latest=table.latest, commits=wanted)

    def propose(self, proposal: Proposal) -> Answer:
        [part] = proposal.parts
        table = self.tables[part.table_id]
        for commit in table.commits:
            if commit.txn_id == proposal.txn_id:
                return self._answer(part.table_id, commit)
        if part.version == table.latest + 1:
            content = self._content(table, part, proposal.txn_id)
            if content is not None:
                return self._answer(part.table_id, self._ratify_part(part, content))
        return VersionTaken(
            txn_id=proposal.txn_id,
            latest={part.table_id: table.latest},
            winners={part.table_id: self._held(table, part.version, table.latest)},
        )

    def publish_and_forget(self, table_id: TableId) -> None:
        """Publish all commits and stop listing them; not part of the port."""
        table = self.tables[table_id]
        store = self._store_for(table.location)
        for version, commit in enumerate(table.commits):
            if commit.published_ms is None:
                content = commit.content or store.get(f"{STAGED}/{commit.file_name}")
                assert store.put_if_absent(_published(commit.version), content)
                table.commits[version] = msgspec.structs.replace(
                    commit, published_ms=self._now_ms(), content=None
                )

    def _content(self, table: MinimalTable, part: Part, txn_id: TxnId) -> bytes | None:
        store = self._store_for(table.location)
        match part.content:
            case Inline(commit_info=given, actions=actions):
                time = max(self._now_ms(), table.commits[-1].timestamp_ms + 1)
                info = {"inCommitTimestamp": time, "txnId": txn_id} | given
                return json.dumps({"commitInfo": info}).encode() + b"\n" + actions
            case Staged(file_name=name):
                return store.get(f"{STAGED}/{name}")
            case Put(content=content):
                return content if store.put_if_absent(_published(part.version), content) else None

    def _ratify_part(self, part: Part, content: bytes) -> RatifiedCommit:
        match part.content:
            case Inline():
                return self._ratify(part.table_id, part.version, Way.INLINE, content)
            case Staged(file_name=name):
                return self._ratify(part.table_id, part.version, Way.STAGED, content, name)
            case Put():
                return self._ratify(part.table_id, part.version, Way.PUT_IF_ABSENT, content)

    def _ratify(
        self,
        table_id: TableId,
        version: Version,
        way: Way,
        content: bytes,
        file_name: str | None = None,
    ) -> RatifiedCommit:
        info = read(content)[0].action
        assert isinstance(info, Info)
        assert info.txn_id
        assert info.in_commit_timestamp is not None
        self._sequence += 1
        commit = RatifiedCommit(
            version=version,
            way=way,
            txn_id=TxnId(info.txn_id),
            sequence=Sequence(self._sequence),
            timestamp_ms=info.in_commit_timestamp,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            file_name=file_name,
            content=content if way is Way.INLINE else None,
            published_ms=self._now_ms() if way is Way.PUT_IF_ABSENT else None,
        )
        self.tables[table_id].commits.append(commit)
        return commit

    def _held(
        self, table: MinimalTable, first: Version, last: Version
    ) -> tuple[RatifiedCommit, ...]:
        """Leave out published commits: a catalog need not list them."""
        wanted = table.commits[first : last + 1]
        return tuple(commit for commit in wanted if commit.published_ms is None)

    def _answer(self, table_id: TableId, commit: RatifiedCommit) -> Ratified:
        return Ratified(
            txn_id=commit.txn_id,
            sequence=commit.sequence,
            timestamp_ms=commit.timestamp_ms,
            commits={table_id: commit},
        )


def _published(version: Version) -> str:
    return PublishedCommit(version).path
