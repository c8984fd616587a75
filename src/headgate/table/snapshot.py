"""One version of one table: its metadata at once, its files when they are asked for."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.api.messages import RatifiedCommit, Resolved
from headgate.errors import MalformedError, UnsupportedFeatureError
from headgate.names import fold
from headgate.protocol import actions, features
from headgate.protocol.actions import Sequence as SequenceNumber
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.expressions.predicates import columns as columns_of
from headgate.protocol.expressions.pruner import Pruner
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.replay import TableState
from headgate.protocol.paths import PublishedCommit
from headgate.protocol.schema import types as schemas
from headgate.protocol.schema.column_mapping import physical_path, without_mapping
from headgate.protocol.statistics import num_records
from headgate.storage.object_store import ObjectStore
from headgate.table import pruning
from headgate.table.file_columns import add_files, ground_files, live_files
from headgate.table.log_files import DeltaLog
from headgate.table.log_state import in_commit_timestamp
from headgate.table.statistics_columns import count_rows


@dataclass(frozen=True, slots=True)
class Unread:
    """A version that is known from its catalog, and whose log was not read yet."""

    checksum: VersionChecksum | None  # what the catalog counted, if it did
    commits: tuple[RatifiedCommit, ...]  # from the catalog's answer, for reading the log later
    before: TableState | None  # an earlier version that was read already
    read: Callable[[], TableState]


class LazyState:
    """The state of a version, read from its log once, on first use. Safe for many threads."""

    def __init__(self, held: TableState | Unread) -> None:
        self.held = held
        self._lock = threading.Lock()

    def read(self) -> TableState:
        """Return the state; a first call that fails may be repeated."""
        with self._lock:
            if isinstance(self.held, Unread):
                self.held = self.held.read()
            return self.held


_RESTORE: Final = "Restore the file from a backup, or read another version."


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """One version of one table. Immutable; safe for many threads.

    What the catalog answered is available at once. The log is read on first use of anything else,
    once, at this version, however late that is; only then can it fail. Spec: CM-22.
    """

    location: str
    store: ObjectStore
    version: actions.Version
    protocol: actions.Protocol
    metadata: actions.Metadata
    lazy_state: LazyState
    table_id: actions.TableId | None = None
    name: str | None = None
    committed_ms: int | None = None  # as far as the catalog answered it
    answer: Resolved | None = None  # the catalog's, without commits
    sequence: SequenceNumber | None = None  # up to which this is known to be the latest version

    def at_sequence(self, sequence: SequenceNumber) -> Snapshot:
        """Return this version, known to be the latest as of a later sequence."""
        # Both share everything that either of them reads from the log.
        later = copy.copy(self)  # keeps the cached properties
        object.__setattr__(later, "sequence", sequence)
        return later

    @property
    def state(self) -> TableState:
        """The table as its log defines it; reads the log on first use."""
        return self.lazy_state.read()

    @property
    def state_in_memory(self) -> TableState | None:
        """The state of this version, or of an earlier one, if it was read already."""
        held = self.lazy_state.held
        return held.before if isinstance(held, Unread) else held

    @property
    def is_read(self) -> bool:
        """Whether the log was read."""
        return not isinstance(self.lazy_state.held, Unread)

    @property
    def unread_commits(self) -> tuple[RatifiedCommit, ...]:
        """The commits of the catalog's answer, until the log was read."""
        held = self.lazy_state.held
        return held.commits if isinstance(held, Unread) else ()

    @property
    def label(self) -> str:
        """The table's name or location, for messages."""
        return self.name or self.location

    @property
    def known_timestamp_ms(self) -> int | None:
        """When the version was committed, if that is known without reading anything more."""
        held = self.lazy_state.held
        if self.committed_ms is not None or isinstance(held, Unread):
            return self.committed_ms
        return held.timestamp_ms

    @cached_property
    def timestamp_ms(self) -> int | None:
        """When the version was committed: its in-commit timestamp, or else the file's time."""
        if self.committed_ms is not None:
            return self.committed_ms
        if not features.is_active(self.protocol, self.metadata, features.IN_COMMIT_TIMESTAMP):
            file = self.store.head(PublishedCommit(self.version).path)
            return None if file is None else file.modified_ms
        if self.state.timestamp_ms is not None:
            return self.state.timestamp_ms
        content = DeltaLog(self.store).read_published(self.version)
        return None if content is None else in_commit_timestamp(content)

    @cached_property
    def schema(self) -> schemas.StructType:
        try:
            return schemas.from_json(self.metadata.schema_string)
        except (MalformedError, UnsupportedFeatureError) as error:
            raise type(error)(
                f"{self.label} version {self.version}: the schema {self._metadata_place} cannot be"
                f" read: {error.message}",
                remedy=error.remedy if isinstance(error, UnsupportedFeatureError) else _RESTORE,
            ) from error

    @cached_property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns by which it is partitioned, as the schema spells them."""
        by_name = {fold(field.name): field.name for field in self.schema.fields}
        for name in self.metadata.partition_columns:
            if fold(name) not in by_name:
                raise MalformedError(
                    f"{self.label} version {self.version}: the schema {self._metadata_place} has"
                    f" no column {name!r}, by which the table is partitioned.",
                    remedy=_RESTORE,
                )
        return tuple(by_name[fold(name)] for name in self.metadata.partition_columns)

    @property
    def _metadata_place(self) -> str:
        """Where the metadata was read, for messages."""
        held = self.lazy_state.held
        file = held.metadata_file if isinstance(held, TableState) else None
        return "as its catalog has it" if file is None else f"in {file}"

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.configuration

    @property
    def num_files(self) -> int:
        counted = self._counted
        return self.state.num_files if counted is None else counted.num_files

    @property
    def size_in_bytes(self) -> int:
        counted = self._counted
        return self.state.size_in_bytes if counted is None else counted.table_size_bytes

    @cached_property
    def set_transactions(self) -> Mapping[str, actions.SetTransaction]:
        return self.state.transactions.merged()

    @cached_property
    def domains(self) -> Mapping[str, actions.DomainMetadata]:
        counted = self._counted
        if counted is None or counted.domain_metadata is None:
            return self.state.domains
        return {domain.domain: domain for domain in counted.domain_metadata if not domain.removed}

    @property
    def _counted(self) -> VersionChecksum | None:
        """What the catalog counted, until the log was read."""
        held = self.lazy_state.held
        return held.checksum if isinstance(held, Unread) else None

    def files(self, where: Predicate | None = None) -> list[actions.AddFile]:
        """Return the live files that may hold matching rows, by partition values and statistics."""
        ground, added = ground_files(self.state, stats=True), self.state.added()
        if where is None:
            return [*add_files(ground), *added]
        schema = self.schema
        if features.mapping_mode(self.protocol, self.metadata) == "none":
            schema = without_mapping(schema)
        pruner = Pruner(where, schema)
        used = {physical_path(schema, column[:1]) for column in columns_of(where)}
        partitions = {physical_path(schema, (name,)) for name in self.partition_columns}
        partitioning = sorted(path[0] for path in used & partitions if path is not None)
        ground = pruning.by_partitions(ground, partitioning, pruner)
        if used - partitions:
            names = {path[0] for path in partitions if path is not None}
            ground = pruning.by_whole_numbers(ground, where, schema, names)
            ground = pruning.by_statistics(ground, pruner, with_partitions=bool(used & partitions))
        return [*add_files(ground), *(add for add in added if pruning.may_match(pruner, add))]

    def file_columns(self, *, stats: bool = False) -> pa.Table:
        """Return all live files as Arrow columns, in no particular order."""
        return live_files(self.state, stats=stats)

    @cached_property
    def num_rows(self) -> int | None:
        """The number of live rows by the files' statistics; None if a file has none."""
        return count_rows(self.file_columns(stats=True))

    def some_file(self) -> actions.AddFile | None:
        """Return a file that has live rows, preferably without deleted ones; None if none has."""
        files = self.file_columns(stats=True)
        has_no_vector = pc.is_null(files["deletion_vector"])
        for part in (files.filter(has_no_vector), files.filter(pc.invert(has_no_vector))):
            for at in range(part.num_rows):
                [file] = add_files(part.slice(at, 1))
                deleted = file.deletion_vector.cardinality if file.deletion_vector else 0
                if (num_records(file) or 0) > deleted:
                    return file
        return None
