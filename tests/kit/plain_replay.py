"""A table replayed with nothing but `json`, and what a log on disk must be: a second opinion.

Nothing here is the product's own reading of a log. From the catalog come its ratified commits, as
anyone is given them; all the rest is files. What does not hold is an `AssertionError` that names
the invariant. Spec: `faults.md`, S1 to S3, S9 to S14, S16, S19.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headgate.api.port import Timelines, require
from headgate.client.session import Session
from headgate.protocol.actions import TableId
from headgate.table.snapshot import Snapshot

_COMMIT = re.compile(r"([0-9]{20})\.json")
_STANDS_FOR = re.compile(
    r"(?:[0-9]{20}\.)?([0-9]{20})\.(?:checkpoint(?:\..+)?\.(?:parquet|json)|compacted\.json)"
)


@dataclass
class State:
    """What a table is after some of its commits."""

    files: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)  # live, by path
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    txn_ids: list[str] = field(default_factory=list)  # by version
    stamps: list[int] = field(default_factory=list)

    @property
    def version(self) -> int:
        return len(self.txn_ids) - 1

    @property
    def paths(self) -> list[str]:
        return sorted(path for path, _ in self.files)

    def take(self, lines: list[dict[str, Any]]) -> None:
        """Go on by one commit: what it removes is gone, what it adds is there."""
        for line in lines:
            if "remove" in line:
                self.files.pop(_key(line["remove"]), None)
        for line in lines:
            if "add" in line:
                self.files[_key(line["add"])] = line["add"]
            self.metadata = line.get("metaData", self.metadata)
            self.protocol = line.get("protocol", self.protocol)
        self.txn_ids.append(lines[0]["commitInfo"]["txnId"])
        self.stamps.append(lines[0]["commitInfo"]["inCommitTimestamp"])


def hold(session: Session, table_id: TableId) -> None:
    """Hold a table's files against what was ratified, and its snapshots against plain replay."""
    # A protocol is what is asked for, and not a class to be made.
    timelines = require(session.catalog, Timelines)
    ratified = [entry.commit for entry in timelines.timeline(table_id)]
    hashes = {int(commit.version): commit.sha256 for commit in ratified}
    table = session.table_by_id(table_id)
    folder = Path(unquote(urlsplit(table.location).path))
    held: dict[int, bytes] = {}
    for commit in session.catalog.ratified_commits(table_id).commits:
        if commit.content is not None:
            held[commit.version] = commit.content
        elif commit.file_name is not None:
            path = folder / "_delta_log" / "_staged_commits" / commit.file_name
            if path.exists():  # else it has to be published
                held[commit.version] = path.read_bytes()
    state = replayed(folder, hashes, held)
    expected = [(commit.txn_id, commit.timestamp_ms) for commit in ratified]
    found = list(zip(state.txn_ids, state.stamps, strict=True))
    assert expected == found, "S2: commits differ from the catalog's rows"
    same(table.snapshot(), state)
    for (name, _), action in state.files.items():
        file = folder / unquote(name)
        assert file.is_file(), f"S9: {name} is live, and is not there"
        assert file.stat().st_size == action["size"], f"S9: {name} has another size"
    half = state.version // 2
    same(table.snapshot(version=half), replayed(folder, hashes, held, upto=half))


def replayed(
    folder: Path, ratified: Mapping[int, str], held: Mapping[int, bytes], upto: int | None = None
) -> State:
    """Replay a table from what is held and what is published, up to a version or to the latest.

    `ratified` is the hash of every version, `held` the bytes that the catalog still leads to.
    """
    latest = len(ratified) - 1
    assert sorted(ratified) == list(range(latest + 1)), f"S1: versions {sorted(ratified)}"
    log = folder / "_delta_log"
    names = [path.name for path in log.iterdir()] if log.is_dir() else []
    published = sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))
    assert published == list(range(len(published))), f"S11: published are {published}"
    assert len(published) <= latest + 1, f"S10: {published[-1]} is published, not ratified"
    for name in names:
        if (match := _STANDS_FOR.fullmatch(name)) is not None:
            assert int(match[1]) < len(published), f"S14: {name} stands for what is not published"
    state = State()
    for version in range(latest + 1 if upto is None else upto + 1):
        contents = [held[version]] if version in held else []
        if version < len(published):
            contents.append((log / f"{version:020d}.json").read_bytes())
        assert contents, f"S9: version {version} is nowhere"
        for content in contents:
            found = hashlib.sha256(content).hexdigest()
            assert found == ratified[version], f"S10: other bytes in version {version}"
        state.take(_lines(contents[0], version))
    assert len(set(state.txn_ids)) == len(state.txn_ids), f"S3: {state.txn_ids}"
    rising = all(before < after for before, after in itertools.pairwise(state.stamps))
    assert rising, f"S19: {state.stamps}"
    return state


def same(snapshot: Snapshot, state: State) -> None:
    """Hold a snapshot against plain replay."""
    version = state.version
    assert snapshot.version == version, f"S16: read {snapshot.version} for {version}"
    found = sorted(file.path for file in snapshot.files())
    assert found == state.paths, f"S16: the files of version {version}"
    assert snapshot.timestamp_ms == state.stamps[-1], f"S19: the time of version {version}"
    assert dict(snapshot.properties) == state.metadata["configuration"], f"S16: {version}"
    assert snapshot.metadata.schema_string == state.metadata["schemaString"], f"S16: {version}"
    features = set(snapshot.protocol.writer_features or ())
    assert features == set(state.protocol["writerFeatures"]), f"S16: {version}"


def _lines(content: bytes, version: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [json.loads(line) for line in content.splitlines() if line]
    kinds = list(itertools.chain.from_iterable(lines))
    assert len(kinds) == len(lines), f"S20: a line of version {version} is not one action"
    assert kinds[:1] == ["commitInfo"], f"S20: version {version} does not begin with commitInfo"
    assert kinds.count("commitInfo") == 1, f"S20: version {version} has commitInfo twice"
    info = lines[0]["commitInfo"]
    assert info.get("txnId"), f"S20: version {version} has no txnId"
    assert isinstance(info.get("inCommitTimestamp"), int), f"S20: version {version} has no time"
    return lines


def _key(action: dict[str, Any]) -> tuple[str, str]:
    vector = action.get("deletionVector")
    return action["path"], json.dumps(vector, sort_keys=True) if vector else ""
