"""Commits, tables and clocks, made in a line."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterable, Mapping

from headgate.clock import Clock, uuid7
from headgate.protocol import deletion_vectors
from headgate.protocol.actions import (
    Action,
    AddFile,
    DeletionVector,
    Metadata,
    Protocol,
    RemoveFile,
    TableId,
    TxnId,
    encode,
    join,
)
from headgate.protocol.commit.content import Inline
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema.types import to_json

START_MS = 1_772_000_000_000
MANAGED = ("catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp")
_READER_FEATURES = frozenset(
    {
        "catalogManaged", "vacuumProtocolCheck", "deletionVectors", "columnMapping",
        "timestampNtz", "v2Checkpoint",
    }
)  # fmt: skip


class ManualClock:
    """A clock that a test sets. `sleep` returns at once and moves the monotonic time.

    With `sleep_moves_date`, it moves the date as well.
    """

    def __init__(self, now_ms: int = START_MS, *, sleep_moves_date: bool = False) -> None:
        self.ms = now_ms
        self.waited_s = 0.0
        self._sleep_moves_date = sleep_moves_date

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.waited_s

    def sleep(self, seconds: float) -> None:
        self.waited_s += seconds
        if self._sleep_moves_date:
            self.ms += int(seconds * 1000)


class CountedIds:
    """Ids in order, so that a failure can be repeated; with a clock, ordered ids have its time."""

    def __init__(self, salt: int = 0, clock: Clock | None = None) -> None:
        self._numbers = itertools.count(1)
        self._salt = salt
        self._clock = clock

    def random(self) -> uuid.UUID:
        return uuid.UUID(int=self._salt << 64 | next(self._numbers), version=4)

    def ordered(self) -> uuid.UUID:
        number = self._salt << 32 | next(self._numbers)
        now_ms = START_MS if self._clock is None else self._clock.now_ms()
        return uuid7(now_ms, number.to_bytes(10, "big"))

    def secret(self) -> bytes:
        return (self._salt << 32 | next(self._numbers)).to_bytes(32, "big")


def new_txn_id(number: int = 0, now_ms: int = START_MS) -> TxnId:
    """Return a transaction id; the same number, the same id. Zero: a fresh one."""
    chance = uuid.uuid4().bytes[:10] if number == 0 else number.to_bytes(10, "big")
    return TxnId(str(uuid7(now_ms, chance)))


def new_table_id() -> TableId:
    return TableId(str(uuid.uuid4()))


def protocol(*features: str) -> Protocol:
    """Return the protocol of a managed table with more features."""
    names = sorted({*MANAGED, *features})
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=[name for name in names if name in _READER_FEATURES],
        writer_features=names,
    )


def metadata(
    table_id: TableId,
    schema: str = "id long",
    partition_by: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Metadata:
    """Return the metaData of a managed table."""
    return Metadata(
        id=table_id,
        schema_string=to_json(parse_schema(schema)),
        partition_columns=list(partition_by),
        configuration={
            "delta.enableInCommitTimestamps": "true",
            TABLE_ID_PROPERTY: table_id,
            **(properties or {}),
        },
        created_time=START_MS,
    )


def add(
    path: str = "",
    *,
    size: int = 100,
    values: Mapping[str, str | None] | None = None,
    records: int = 1,
    data_change: bool = True,
    low: int = 0,
    high: int = 9,
) -> AddFile:
    """Return an add of a file with statistics on `id`."""
    stats = {
        "numRecords": records,
        "minValues": {"id": low},
        "maxValues": {"id": high},
        "nullCount": {"id": 0},
    }
    return AddFile(
        path=path or f"{uuid.uuid4()}.parquet",
        partition_values=dict(values or {}),
        size=size,
        modification_time=START_MS,
        data_change=data_change,
        stats=json.dumps(stats),
    )


def remove(of: AddFile, *, data_change: bool = True) -> RemoveFile:
    """Return the remove that undoes an add."""
    return RemoveFile(
        path=of.path,
        deletion_timestamp=START_MS,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=of.partition_values,
        size=of.size,
        deletion_vector=of.deletion_vector,
    )


def inline(*actions: Action, **info: object) -> Inline:
    """Return an inline commit."""
    return Inline(
        commit_info={"operation": "WRITE", **info}, actions=join(encode(item) for item in actions)
    )


def file_content(
    *actions: Action, txn_id: TxnId, timestamp_ms: int = START_MS, **info: object
) -> bytes:
    """Return the content of a staged or published commit."""
    info_fields = {
        "inCommitTimestamp": timestamp_ms,
        "timestamp": timestamp_ms,
        "operation": "WRITE",
        "txnId": txn_id,
        **info,
    }
    first = json.dumps({"commitInfo": info_fields}).encode()
    return join([first, *(encode(item) for item in actions)])


def inline_vector(rows: Iterable[int]) -> DeletionVector:
    """Create a descriptor with the vector in itself."""
    encoded = deletion_vectors.encode(rows)
    return DeletionVector(
        storage_type=deletion_vectors.INLINE,
        path_or_inline_dv=deletion_vectors.z85_encode(encoded + bytes(-len(encoded) % 4)),
        size_in_bytes=len(encoded),
        cardinality=len(deletion_vectors.decode(encoded)),
    )
