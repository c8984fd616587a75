"""Apply actions to the state of a table.

A state is an immutable value that shares data with earlier ones: the newest action of each file is
in layers, small new ones over larger old ones, so that applying some commits costs what those
commits hold and not what the table holds. The files of a checkpoint are the ground below the layers
and stay in columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from headgate.protocol.actions import (
    AddFile,
    DomainMetadata,
    FileKey,
    Known,
    Metadata,
    RemoveFile,
    SetTransaction,
    Version,
    Wrapped,
)
from headgate.protocol.actions import Protocol as TableProtocol
from headgate.protocol.data_paths import normal_path
from headgate.protocol.properties import interval_ms

K = TypeVar("K")
V = TypeVar("V")


class Ground(Protocol):
    """The live files of a checkpoint, held in columns."""

    @property
    def num_files(self) -> int: ...

    @property
    def size_in_bytes(self) -> int: ...

    def sizes(self, keys: Collection[FileKey]) -> Mapping[FileKey, int]:
        """Return the sizes of those of these files that exist."""


@dataclass(frozen=True, slots=True)
class Layered(Generic[K, V]):
    """An immutable mapping to which entries can be added cheaply."""

    layers: tuple[dict[K, V], ...] = ()  # newest last, each more than twice the next

    def over(self, newer: dict[K, V]) -> Layered[K, V]:
        """Return the mapping with `newer` on top; the caller must not change `newer` afterwards."""
        if not newer:
            return self
        layers = [*self.layers, newer]
        # Neighbours of comparable size are merged, so a lookup visits few layers and every entry is
        # copied a logarithmic number of times at most.
        while len(layers) > 1 and len(layers[-2]) <= 2 * len(layers[-1]):
            top = layers.pop()
            layers[-1] = layers[-1] | top
        return Layered(tuple(layers))

    def get(self, key: K) -> V | None:
        for layer in reversed(self.layers):
            if (value := layer.get(key)) is not None:
                return value
        return None

    def merged(self) -> Mapping[K, V]:
        """Return all entries as one mapping, which must not be changed."""
        if len(self.layers) == 1:
            return self.layers[0]
        merged: dict[K, V] = {}
        for layer in self.layers:
            merged |= layer
        return merged


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one version, as its log defines it."""

    version: Version
    protocol: TableProtocol | None = None
    metadata: Metadata | None = None
    metadata_file: str | None = None  # the file of the log that the metadata was read from
    timestamp_ms: int | None = None  # in-commit timestamp of this version, if its commit was read
    ground: Ground | None = None
    layers: Layered[FileKey, AddFile | RemoveFile] = field(default_factory=Layered)
    transactions: Layered[str, SetTransaction] = field(default_factory=Layered)
    all_domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    num_files: int = 0
    size_in_bytes: int = 0

    @property
    def domains(self) -> dict[str, DomainMetadata]:
        """The domains that were not removed."""
        return {name: domain for name, domain in self.all_domains.items() if not domain.removed}

    def added(self) -> Iterator[AddFile]:
        """Return the live files of the layers, without those of the ground."""
        return (a for a in self.layers.merged().values() if isinstance(a, AddFile))

    def removed(self) -> Iterator[RemoveFile]:
        """Return the tombstones of the layers, for the next checkpoint."""
        return (a for a in self.layers.merged().values() if isinstance(a, RemoveFile))

    def overlaid(self) -> Collection[FileKey]:
        """Return the keys of all files that have an action in a layer."""
        return self.layers.merged().keys()


EMPTY = TableState(Version(-1))


def on_ground(version: Version, ground: Ground) -> TableState:
    """Return a state that has only the live files of a checkpoint."""
    return TableState(
        version=version,
        ground=ground,
        num_files=ground.num_files,
        size_in_bytes=ground.size_in_bytes,
    )


def apply(state: TableState, version: Version, actions: Iterable[Wrapped]) -> TableState:
    """Return the state after the commits up to `version`, whose actions are given in order.

    Which commit an action is from does not matter, since a later action wins; `timestamp_ms` is
    that of the last `commitInfo`.
    """
    files: dict[FileKey, AddFile | RemoveFile] = {}
    transactions: dict[str, SetTransaction] = {}
    domains: dict[str, DomainMetadata] = {}
    protocol, metadata, timestamp_ms = state.protocol, state.metadata, None
    for line in actions:
        if (add := line.add) is not None:
            vector = add.deletion_vector
            files[normal_path(add.path), None if vector is None else vector.unique_id] = add
        elif (info := line.commit_info) is not None:
            timestamp_ms = info.in_commit_timestamp
        elif (remove := line.remove) is not None:
            vector = remove.deletion_vector
            files[normal_path(remove.path), None if vector is None else vector.unique_id] = remove
        elif line.meta_data is not None:
            metadata = line.meta_data
        elif line.protocol is not None:
            protocol = line.protocol
        elif (txn := line.txn) is not None:
            transactions[txn.app_id] = txn
        elif (domain := line.domain_metadata) is not None:
            domains[domain.domain] = domain
    num_files, size_in_bytes = _count(state, files)
    return replace(
        state,
        version=version,
        protocol=protocol,
        metadata=metadata,
        timestamp_ms=timestamp_ms,
        layers=state.layers.over(files),
        transactions=state.transactions.over(transactions),
        all_domains={**state.all_domains, **domains} if domains else state.all_domains,
        num_files=num_files,
        size_in_bytes=size_in_bytes,
    )


def contradiction(actions: Iterable[Wrapped]) -> str | None:
    """Return a contradiction between the actions of a compaction, if there is one."""
    # It holds the net effect of its commits without their order: if it both adds and removes a
    # file, readers cannot know which was last.
    seen: dict[object, Known] = {}
    for line in actions:
        match action := line.action():
            case AddFile() | RemoveFile():
                key: object = action.key
                problem = f"both adds and removes, or adds twice, {action.path!r}"
            case SetTransaction(app_id=name):
                key, problem = ("txn", name, None), f"has two txn actions of {name!r}"
            case DomainMetadata(domain=name):
                key, problem = ("domain", name, None), f"has two domainMetadata actions of {name!r}"
            case Metadata():
                key, problem = "metaData", "has two metaData actions"
            case TableProtocol():
                key, problem = "protocol", "has two protocol actions"
            case _:
                continue
        if seen.setdefault(key, action) != action:
            return problem
    return None


def _count(state: TableState, files: Mapping[FileKey, AddFile | RemoveFile]) -> tuple[int, int]:
    """Count files and bytes exactly: an add may repeat a live file, a remove may name none."""
    num_files, size_in_bytes = state.num_files, state.size_in_bytes
    for action in files.values():
        if isinstance(action, AddFile):
            num_files += 1
            size_in_bytes += action.size
    deeper: list[FileKey] = []
    if state.layers.layers:
        for key in files:
            before = state.layers.get(key)
            if isinstance(before, AddFile):
                num_files -= 1
                size_in_bytes -= before.size
            elif before is None:
                deeper.append(key)
    else:
        deeper.extend(files)
    if state.ground is not None and deeper:
        replaced = state.ground.sizes(deeper)
        num_files -= len(replaced)
        size_in_bytes -= sum(replaced.values())
    return num_files, size_in_bytes


_RETENTION = "delta.deletedFileRetentionDuration"
_WEEK_MS = 604_800_000


def tombstones_kept_ms(configuration: Mapping[str, str]) -> int:
    """Return how long tombstones are kept: a week, or what the table's property says."""
    retention_ms = interval_ms(configuration.get(_RETENTION, ""))
    return _WEEK_MS if retention_ms is None else retention_ms  # too long only costs space
