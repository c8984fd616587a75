"""Write checkpoints of published versions, the hint to the newest one, and version checksums.

A checkpoint is classic, or V2 with a Parquet or JSON head and sidecars. Files go from Arrow columns
to Parquet without becoming Python objects.
"""

import enum
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.errors import InvariantError, NotPublishedError, UnsupportedFeatureError
from headgate.failpoints import fail_point
from headgate.protocol import actions, features, paths
from headgate.protocol.encoding import to_json
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.log.replay import TableState, tombstones_kept_ms
from headgate.protocol.log.segment import CheckpointFiles
from headgate.storage.object_store import ObjectStore
from headgate.table.checkpoints import UnusableError, read_checkpoint
from headgate.table.file_columns import (
    arrow_fields,
    camel,
    ground_of,
    key_column,
    live_files,
    tombstone_table,
    without_overlaid,
)
from headgate.table.log_files import DeltaLog
from headgate.table.parallel import in_parallel

_LEFT_OUT: Final[Mapping[str, Sequence[str]]] = {"remove": ("stats", "tags")}
_HEAD: Final = pa.schema(
    [
        (name, pa.struct(arrow_fields(kind, _LEFT_OUT.get(name, ()), in_log=True)))
        for name, kind in actions.KINDS.items()
        if name not in ("commitInfo", "cdc")
    ]
)
_CLASSIC: Final = pa.schema(
    [field for field in _HEAD if field.name not in ("checkpointMetadata", "sidecar")]
)
_SIDECAR: Final = pa.schema([_HEAD.field("add"), _HEAD.field("remove")])
_DATA_CHANGE: Final = pa.field("dataChange", pa.bool_())  # always false in a checkpoint
_WRITTEN_VECTOR: Final = pa.struct(arrow_fields(actions.DeletionVector, in_log=True))
# Columns with few values repeated many times: elsewhere Parquet would build a dictionary in vain.
_DICTIONARIES: Final = [
    f"{action}.partitionValues.key_value.{side}"
    for action in ("add", "remove")
    for side in ("key", "value")
]
# Columns that every file has, or that readers rely on. Others are left out while no file has a
# value: an empty column costs the writer and every reader a definition level for each file.
_ALWAYS: Final[Mapping[str, frozenset[str]]] = {
    "add": frozenset(
        {"path", "partitionValues", "size", "modificationTime", "dataChange", "stats"}
    ),
    "remove": frozenset({"path", "deletionTimestamp", "dataChange"}),
}
_ROW_GROUP: Final = 128 * 1024
_V2_FEATURE: Final = "v2Checkpoint"


class CheckpointForm(enum.Enum):
    """The layout of a checkpoint."""

    CLASSIC = "classic"  # one file
    V2 = "v2"  # a Parquet head, and sidecars
    V2_JSON = "v2-json"  # a JSON head, and sidecars


def form_for(protocol: actions.Protocol, metadata: actions.Metadata) -> CheckpointForm:
    """Return the layout that the table's `delta.checkpointPolicy` asks for."""
    is_v2 = metadata.configuration.get("delta.checkpointPolicy") == "v2"
    return (
        CheckpointForm.V2
        if is_v2 and features.is_supported(protocol, _V2_FEATURE)
        else CheckpointForm.CLASSIC
    )


def write_checkpoint(
    store: ObjectStore,
    state: TableState,
    *,
    table: str,
    now_ms: int,
    new_uuid: Callable[[], UUID],
    form: CheckpointForm | None = None,
    files_per_sidecar: int = 250_000,
) -> KnownFile:
    """Write a checkpoint of a published version and the hint to it. Spec: CM-27.

    A crash in between leaves unused sidecars or a checkpoint without a hint: both are harmless. An
    existing checkpoint of the version that can be read is kept.
    """
    if store.head(paths.PublishedCommit(state.version).path) is None:
        raise NotPublishedError(table, state.version)
    assert state.protocol is not None
    assert state.metadata is not None
    # Readers that begin at the checkpoint would lose actions that an unknown feature defines.
    if unsupported := features.unwritable(state.protocol, state.metadata, rows=False):
        raise UnsupportedFeatureError(
            f"A checkpoint of {table} version {state.version} cannot be written: it needs"
            f" {', '.join(unsupported)}.",
            remedy="Write it with a client that supports them.",
        )
    form = form or form_for(state.protocol, state.metadata)
    if form is not CheckpointForm.CLASSIC and not features.is_supported(
        state.protocol, _V2_FEATURE
    ):
        raise UnsupportedFeatureError(
            f"{table} does not support {_V2_FEATURE}.",
            remedy="Write a classic checkpoint, or set delta.checkpointPolicy=v2 first.",
        )
    files = {"add": live_files(state, stats=True), "remove": _tombstones(state, now_ms)}
    transactions, domains = state.transactions.merged(), state.domains
    few = [
        actions.encode(action)
        for action in (state.protocol, state.metadata, *transactions.values(), *domains.values())
    ]
    fail_point("checkpoint.before_put")
    if form is CheckpointForm.CLASSIC:
        head: paths.Checkpoint = paths.ClassicCheckpoint(state.version)
        sidecars: list[actions.SidecarFile] = []
        content = _parquet(_fitted(_CLASSIC, files), few, files)
    else:
        sidecars = _put_sidecars(store, files, files_per_sidecar, new_uuid, now_ms)
        few = [
            actions.encode(actions.CheckpointMetadata(version=state.version)),
            *few,
            *map(actions.encode, sidecars),
        ]
        head = paths.UuidCheckpoint(
            state.version, new_uuid(), "json" if form is CheckpointForm.V2_JSON else "parquet"
        )
        content = actions.join(few) if form is CheckpointForm.V2_JSON else _parquet(_HEAD, few, {})
    _put_head(store, head, content)
    fail_point("checkpoint.after_put")
    fields: dict[str, object] = {
        "version": state.version,
        "size": len(few) + sum(map(len, files.values())),
        "sizeInBytes": len(content) + sum(sidecar.size_in_bytes for sidecar in sidecars),
        "numOfAddFiles": len(files["add"]),
    }
    if isinstance(head, paths.UuidCheckpoint):
        name = head.path.rpartition("/")[2]
        fields["v2Checkpoint"] = {
            "path": name,
            "sizeInBytes": len(content),
            "modificationTime": now_ms,
        }
    hint = DeltaLog(store).last_checkpoint()
    fail_point("checkpoint.before_hint")
    if hint is None or hint <= state.version:
        store.put(paths.LAST_CHECKPOINT, json.dumps(fields, separators=(",", ":")).encode())
    return KnownFile(
        kind=FileKind.CHECKPOINT, first=state.version, last=state.version, paths=(head.path,)
    )


def write_checksum(store: ObjectStore, version: actions.Version, checksum: VersionChecksum) -> bool:
    """Put `<v>.crc` unless one exists; the version need not be published. Spec: CM-29."""
    return store.put_if_absent(paths.Checksum(version).path, to_json(checksum) + b"\n")


def _put_head(store: ObjectStore, head: paths.Checkpoint, content: bytes) -> None:
    if store.put_if_absent(head.path, content):
        return
    try:
        read_checkpoint(store, CheckpointFiles(head.version, (head,)))
    except UnusableError:
        store.put(head.path, content)  # replaces one that cannot be read


def _put_sidecars(
    store: ObjectStore,
    files: Mapping[str, pa.Table],
    files_per_sidecar: int,
    new_uuid: Callable[[], UUID],
    now_ms: int,
) -> list[actions.SidecarFile]:
    slices = [
        {action: table.slice(at, files_per_sidecar)}
        for action, table in files.items()
        for at in range(0, table.num_rows, files_per_sidecar)
    ]
    names = [f"{new_uuid()}.parquet" for _ in slices]
    schema = _fitted(_SIDECAR, files)

    def put(part: tuple[str, Mapping[str, pa.Table]]) -> actions.SidecarFile:
        name, some = part
        content = _parquet(schema, [], some)
        if not store.put_if_absent(f"{paths.SIDECARS}/{name}", content):
            raise InvariantError(f"A sidecar {name} exists already.")
        fail_point("checkpoint.after_part")
        return actions.SidecarFile(path=name, size_in_bytes=len(content), modification_time=now_ms)

    return in_parallel(put, list(zip(names, slices, strict=True)))


def _tombstones(state: TableState, now_ms: int) -> pa.Table:
    """Return the removed files whose tombstones have not expired."""
    assert state.metadata is not None
    after = now_ms - tombstones_kept_ms(state.metadata.configuration)
    own = [r for r in state.removed() if (r.deletion_timestamp or 0) > after]
    ground = ground_of(state)
    if ground is None:
        return tombstone_table(own)
    old = ground.tombstones()
    old = old.filter(pc.greater(old["deletion_timestamp"], after))
    return pa.concat_tables([without_overlaid(old, key_column(old), state), tombstone_table(own)])


def _fitted(schema: pa.Schema, files: Mapping[str, pa.Table]) -> pa.Schema:
    """Drop the columns of a schema that no file has a value for."""
    return pa.schema([_needed(f, files[f.name]) if f.name in files else f for f in schema])


def _needed(action: pa.Field, files: pa.Table) -> pa.Field:
    empty = {camel(name) for name in files.column_names if files[name].null_count == len(files)}
    kept = [f for f in action.type if f.name in _ALWAYS[action.name] or f.name not in empty]
    return pa.field(action.name, pa.struct(kept))


def _parquet(schema: pa.Schema, few: Sequence[bytes], files: Mapping[str, pa.Table]) -> bytes:
    sink = io.BytesIO()  # grows in place and returns its bytes without a copy; Arrow's sinks do not
    with pq.ParquetWriter(
        sink, schema, compression="snappy", use_dictionary=_DICTIONARIES, store_schema=False
    ) as writer:
        if few:
            rows = [json.loads(line) for line in few]
            columns = [pa.array([row.get(f.name) for row in rows], f.type) for f in schema]
            writer.write_table(pa.table(columns, schema=schema))
        for action, table in files.items():
            if table.num_rows:
                writer.write_table(_actions(schema, action, table), row_group_size=_ROW_GROUP)
    return sink.getvalue()


def _actions(schema: pa.Schema, action: str, table: pa.Table) -> pa.Table:
    """Convert a table of files to rows of a checkpoint, without copying a column."""
    nulls = {
        field.name: pa.nulls(_ROW_GROUP, field.type) for field in schema if field.name != action
    }
    batches = []
    for batch in table.to_batches(_ROW_GROUP):
        rows = _struct(batch, schema.field(action))
        columns = [
            rows if field.name == action else nulls[field.name].slice(0, len(rows))
            for field in schema
        ]
        batches.append(pa.record_batch(columns, schema=schema))
    return pa.Table.from_batches(batches, schema)


def _struct(batch: pa.RecordBatch, field: pa.Field) -> pa.StructArray:
    by_name = {camel(name): batch.column(name) for name in batch.schema.names}
    children = []
    for child in field.type:
        if child == _DATA_CHANGE:
            column = pa.repeat(pa.scalar(False), batch.num_rows)
        else:
            column = by_name[child.name]
        if child.type == _WRITTEN_VECTOR:
            column = pa.StructArray.from_arrays(
                column.flatten(), fields=list(child.type), mask=column.is_null()
            )
        children.append(column)
    return pa.StructArray.from_arrays(children, fields=list(field.type))
