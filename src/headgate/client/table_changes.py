"""Changes to the metadata of a table: each is a value that is built on a snapshot."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias

from headgate import errors
from headgate.client import arrow_io
from headgate.client.table_definition import AnySchema, columns_of, with_columns
from headgate.client.transaction import OperationInfo, as_text
from headgate.clock import Ids
from headgate.names import did_you_mean, fold
from headgate.protocol import features
from headgate.protocol.actions import Action, Metadata, Protocol
from headgate.protocol.clustering import clustering_columns
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.dependents import dependents
from headgate.protocol.schema import alteration
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.alteration import AddedColumn, Position, dotted
from headgate.table.snapshot import Snapshot

# Checks the rows of a snapshot against a new rule; raises `InvalidDataError` if one breaks it.
RowCheck: TypeAlias = Callable[[Snapshot], None]


class Unchanged(enum.Enum):
    """The type of `UNCHANGED`: leave a value as it is, where None removes it."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED

# Features that an existing table can get: its rows need no check, or the change checks them.
_LATE_FEATURES = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "deletionVectors",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "variantType",
    }
)


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of the metadata of a table, and the operation to record."""

    metadata: Metadata
    operation: OperationInfo
    scans: tuple[Scan, ...] = ()
    schema: delta.StructType | None = None  # the new one, which `metadata` does not contain yet


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A change of a column; what is not set stays."""

    comment: str | Unchanged | None = UNCHANGED
    nullable: bool | None = None
    type: delta.DataType | None = None
    default: str | Unchanged | None = UNCHANGED
    position: Position | None = None


def actions_of(base: Snapshot, change: Alteration, ids: Ids) -> tuple[Action, ...]:
    """Return the actions that set the metadata, and the protocol if it needs new features."""
    protocol, metadata = described(base, change.metadata, change.schema, ids)
    return (metadata,) if protocol == base.protocol else (protocol, metadata)


def described(
    base: Snapshot, metadata: Metadata, schema: delta.StructType | None, ids: Ids
) -> tuple[Protocol, Metadata]:
    """Return metadata with a new schema, if there is one, and a protocol that supports it."""
    if schema is not None:
        metadata = with_columns(metadata, schema, ids, mapped=_is_mapped(base))
    if found := features.unwritable(base.protocol, base.metadata, rows=False):
        raise errors.UnsupportedFeatureError(f"{base.label} cannot be changed: {', '.join(found)}.")
    # A table with the preview of a feature does not get the feature as well.
    known = features.effective(base.protocol)
    asked = features.features_for(metadata.configuration, metadata.schema_string)
    new = [name for name in asked if not known & {name, f"{name}-preview"}]
    if not _LATE_FEATURES.issuperset(new):
        raise errors.UnsupportedFeatureError(
            f"{', '.join(new)} cannot be activated for the existing table {base.label}.",
            remedy="Create a new table with it and copy the rows.",
        )
    return reduce(features.upgraded, new, base.protocol), metadata


# Columns


def new_columns(columns: AnySchema | Sequence[AddedColumn]) -> tuple[AddedColumn, ...]:
    """Convert new columns given in any supported form."""
    if isinstance(columns, list | tuple):
        found = tuple(columns)
        if not all(isinstance(column, AddedColumn) for column in found):
            raise errors.InvalidArgumentError(
                "The list of columns to add has an item that is not an AddedColumn.",
                remedy='Pass text such as "id long", a dict such as {"id": "long"}, a schema, or a '
                "list of AddedColumn.",
            )
    else:
        found = tuple(AddedColumn(item) for item in columns_of(columns).fields)
    if not found:
        raise errors.InvalidArgumentError("No columns to add were passed.")
    return found


def add_columns(base: Snapshot, columns: Sequence[AddedColumn]) -> Alteration:
    """Add columns, which are null in existing rows."""
    schema = alteration.added(base.schema, columns)
    added = [
        {"column": _column_parameters(item.path, item.field)} | _position_parameter(item.position)
        for item in columns
    ]
    operation = OperationInfo("ADD COLUMNS", {"columns": as_text(added)})
    return Alteration(base.metadata, operation, schema=schema)


def alter_column(
    base: Snapshot, path: delta.Path, change: ColumnChange, check_rows: RowCheck | None
) -> Alteration:
    """Change the properties or the position of a column."""
    before = _field(base, path)
    after = _changed(base, path, before, change)
    schema = alteration.edited(base.schema, path, lambda _: after)
    if change.position is not None:
        schema = alteration.moved(schema, path, change.position)
    scans: tuple[Scan, ...] = ()
    if before.nullable and not after.nullable:
        if check_rows is None:
            top = delta.find(schema, path[:1])
            assert top is not None
            arrow_io.check_nulls(base, top)
        else:
            check_rows(base)
        scans = (_all_rows(base),)
    parameters = {"column": as_text(_column_parameters(path, after))}
    parameters |= _position_parameter(change.position)
    return Alteration(base.metadata, OperationInfo("CHANGE COLUMN", parameters), scans, schema)


def rename_column(base: Snapshot, path: delta.Path, to: str) -> Alteration:
    """Rename a column; its physical name in files stays."""
    _refuse_without_mapping(base, "renamed")
    item = _field(base, path)
    _refuse_dependents(base, path, "renamed")
    schema = alteration.edited(base.schema, path, lambda old: replace(old, name=to))
    partition_by = list(base.partition_columns)
    if len(path) == 1:
        partition_by = [to if name == item.name else name for name in partition_by]
    metadata = replaced(base.metadata, partition_columns=partition_by)
    operation = OperationInfo(
        "RENAME COLUMN", {"oldColumnPath": dotted(path), "newColumnPath": dotted((*path[:-1], to))}
    )
    return Alteration(metadata, operation, schema=schema)


def drop_columns(base: Snapshot, paths: Sequence[delta.Path]) -> Alteration:
    """Drop columns from the schema; their values stay in the files."""
    _refuse_without_mapping(base, "dropped")
    schema = base.schema
    clustered = clustering_columns(base.domains, schema)
    for path in paths:
        item = _field(base, path)
        if len(path) == 1 and item.name in base.partition_columns:
            raise errors.InvalidArgumentError(
                f"{base.label} is partitioned by {item.name}, which cannot be dropped.",
                remedy="Replace the table by one with other partition columns.",
            )
        if any(_folded(column)[: len(path)] == _folded(path) for column in clustered):
            raise errors.InvalidArgumentError(
                f"{base.label} is clustered by {dotted(path)}, which cannot be dropped.",
                remedy="Cluster it by other columns first.",
            )
        _refuse_dependents(base, path, "dropped")
        schema = alteration.dropped(schema, path)
    operation = OperationInfo(
        "DROP COLUMNS", {"columns": as_text([dotted(path) for path in paths])}
    )
    return Alteration(base.metadata, operation, schema=schema)


# Constraints


def add_constraint(
    base: Snapshot, name: str, condition: str, check_rows: RowCheck | None
) -> Alteration:
    """Add a CHECK constraint; existing rows are checked first."""
    if not name.strip() or not condition.strip():
        raise errors.InvalidArgumentError("A constraint needs a name and a condition.")
    if (existing := constraint_of(base, name)) is not None:
        raise errors.AlreadyExistsError(
            f"{base.label} has a constraint {existing} already.",
            remedy="Choose another name, or drop the constraint first.",
        )
    if check_rows is None:
        arrow_io.check_condition(base, name, condition)
    else:
        check_rows(base)
    configuration = {**base.properties, f"{delta.CONSTRAINTS}{name.lower()}": condition}
    return Alteration(
        replaced(base.metadata, configuration=configuration),
        OperationInfo("ADD CONSTRAINT", {"name": name, "expr": condition}),
        (_all_rows(base),),
    )


def drop_constraint(base: Snapshot, name: str, *, if_exists: bool) -> Alteration:
    """Drop a CHECK constraint."""
    existing = constraint_of(base, name)
    if existing is None and not if_exists:
        raise errors.NotFoundError(
            f"{base.label} has no constraint {name}.", remedy="See table.properties."
        )
    configuration = dict(base.properties)
    parameters: dict[str, object] = {"name": name}
    if existing is not None:
        parameters["expr"] = configuration.pop(f"{delta.CONSTRAINTS}{existing}")
    parameters["existed"] = "false" if existing is None else "true"
    metadata = replaced(base.metadata, configuration=configuration)
    return Alteration(metadata, OperationInfo("DROP CONSTRAINT", parameters))


def constraint_of(base: Snapshot, name: str) -> str | None:
    """Return the name of a table's constraint as it was written; None if there is none."""
    known = delta.check_constraints(base.properties)
    return next((constraint for constraint in known if fold(constraint) == fold(name)), None)


# Internals


def _changed(
    base: Snapshot, path: delta.Path, item: delta.StructField, change: ColumnChange
) -> delta.StructField:
    if change == ColumnChange():
        raise errors.InvalidArgumentError(f"No change of column {dotted(path)} was passed.")
    metadata = dict(item.metadata)
    for key, value in ((delta.COMMENT, change.comment), (delta.DEFAULT, change.default)):
        if isinstance(value, str):
            metadata[key] = value
        elif value is None:
            metadata.pop(key, None)
    if isinstance(change.default, str):
        if not change.default.strip():
            raise errors.InvalidArgumentError(f"The DEFAULT of column {dotted(path)} is empty.")
        if len(path) > 1 or delta.GENERATION in metadata:
            raise errors.InvalidArgumentError(
                f"Column {dotted(path)} cannot have a DEFAULT: it is generated, or a field of "
                "another column."
            )
    item = replace(item, metadata=metadata)
    if change.nullable is not None:
        item = replace(item, nullable=change.nullable)
    if change.type is not None:
        _refuse_other_type(base, path, item)
        item = alteration.retyped(item, change.type, path)
    return item


def _refuse_other_type(base: Snapshot, path: delta.Path, item: delta.StructField) -> None:
    if not features.is_active(base.protocol, base.metadata, "typeWidening"):
        raise errors.UnsupportedFeatureError(
            f"The type of column {dotted(path)} cannot be changed: {base.label} has no "
            "typeWidening.",
            remedy="Set delta.enableTypeWidening to true first.",
        )
    if len(path) == 1 and item.name in base.partition_columns:
        raise errors.UnsupportedFeatureError(
            f"The type of column {dotted(path)}, which {base.label} is partitioned by, cannot be "
            "changed."
        )
    if delta.GENERATION in item.metadata:
        raise errors.UnsupportedFeatureError(
            f"The type of the generated column {dotted(path)} cannot be changed."
        )
    _refuse_dependents(base, path, "given another type")


def _refuse_dependents(base: Snapshot, path: delta.Path, how: str) -> None:
    if found := dependents(base.metadata, path):
        raise errors.InvalidArgumentError(
            f"Column {dotted(path)} cannot be {how}: used by {', '.join(found)}.",
            remedy="Drop what uses it first.",
        )


def _refuse_without_mapping(base: Snapshot, how: str) -> None:
    if not _is_mapped(base):
        raise errors.UnsupportedFeatureError(
            f"Columns of {base.label} cannot be {how}: it has no columnMapping.",
            remedy="Create the table with delta.columnMapping.mode set to name.",
        )


def _field(base: Snapshot, path: delta.Path) -> delta.StructField:
    item = delta.find(base.schema, path)
    if item is None:
        names = [item.name for item in base.schema.fields]
        raise errors.NotFoundError(
            f"{base.label} has no column {dotted(path)}.{did_you_mean(path[0], names)}",
            remedy=f"Use one of its columns: {', '.join(names)}.",
        )
    return item


def _is_mapped(base: Snapshot) -> bool:
    return features.mapping_mode(base.protocol, base.metadata) != "none"


def _all_rows(base: Snapshot) -> Scan:
    assert base.table_id is not None
    return Scan(table_id=base.table_id, version=base.version, fed=False, validating=True)


def _folded(path: delta.Path) -> delta.Path:
    return tuple(fold(name) for name in path)


def _position_parameter(position: Position | None) -> dict[str, str]:
    return {} if position is None else {"position": str(position)}


def _column_parameters(path: delta.Path, item: delta.StructField) -> dict[str, object]:
    nested = {delta.StructType: "struct", delta.ArrayType: "array", delta.MapType: "map"}
    return {
        "name": dotted(path),
        "type": nested.get(type(item.type)) or str(item.type),
        "nullable": item.nullable,
        "metadata": dict(item.metadata),
    }


def path_of(column: str | Sequence[str]) -> delta.Path:
    """Return the path of a column; a text is the name of a whole column."""
    path = (column,) if isinstance(column, str) else tuple(column)
    if not path:
        raise errors.InvalidArgumentError("No column was passed.")
    return path
