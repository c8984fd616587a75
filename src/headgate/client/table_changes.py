"""Other metadata for a table that is there: each change a value, built on a snapshot.

Says what the table is to be and what the commit tells of itself. Rows that a change depends on are
checked by Arrow, or by whom an engine names.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from headgate.client import arrow_io
from headgate.client.table_definition import AnySchema, columns_of
from headgate.client.transaction import Operation, as_text
from headgate.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedFeatureError,
)
from headgate.names import did_you_mean, fold
from headgate.protocol import features
from headgate.protocol.actions import Action, Metadata
from headgate.protocol.clustering import clustering_columns
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.dependents import dependents
from headgate.protocol.schema import changes
from headgate.protocol.schema.changes import AddedColumn, Position, dotted
from headgate.protocol.schema.checks import check
from headgate.protocol.schema.evolution import with_schema
from headgate.protocol.schema.types import (
    COMMENT,
    CONSTRAINTS,
    DEFAULT,
    GENERATION,
    ArrayType,
    DataType,
    MapType,
    Path,
    StructField,
    StructType,
    check_constraints,
    find,
)
from headgate.table.snapshot import Snapshot

# Looks at the rows of a snapshot and raises `InvalidDataError` if one breaks the rule to come.
RowCheck: TypeAlias = Callable[[Snapshot], None]


class Unchanged(enum.Enum):
    """What stands for "leave it", where None means "take it away"."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED

# Features that can come to a table that has rows without a look at them, or whose change looks.
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
    """What the table is to be, and what the commit says of itself."""

    metadata: Metadata
    operation: Operation
    scans: tuple[Scan, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """What is to change of a column; what is not named stays."""

    comment: str | Unchanged | None = UNCHANGED
    nullable: bool | None = None
    type: DataType | None = None
    default: str | Unchanged | None = UNCHANGED
    position: Position | None = None


def actions_of(base: Snapshot, metadata: Metadata) -> tuple[Action, ...]:
    """Change the metadata, and the protocol to one with the features it asks for."""
    if found := features.unwritable(base.protocol, base.metadata, rows=False):
        raise UnsupportedFeatureError(f"{base.label} cannot be changed: {', '.join(found)}.")
    asked = features.features_for(metadata.configuration, metadata.schema_string)
    new = [name for name in asked if not _is_supported(base, name)]
    if not _LATE_FEATURES.issuperset(new):
        raise UnsupportedFeatureError(
            f"{', '.join(new)} cannot be switched on for {base.label}, which is there already.",
            remedy="Make a new table with it and copy the rows.",
        )
    protocol = base.protocol
    for feature in new:
        protocol = features.upgraded(protocol, feature)
    return (metadata,) if protocol == base.protocol else (protocol, metadata)


# Columns


def new_columns(columns: AnySchema | Sequence[AddedColumn]) -> tuple[AddedColumn, ...]:
    """Read new columns in any of the forms they can be given in."""
    if isinstance(columns, list | tuple):
        found = tuple(columns)
        if not all(isinstance(column, AddedColumn) for column in found):
            raise InvalidArgumentError(
                "Columns to add cannot be given as this list.",
                remedy='Pass text such as "id long", a dict such as {"id": "long"}, a schema, or a '
                "list of AddedColumn.",
            )
    else:
        found = tuple(AddedColumn(item) for item in columns_of(columns).fields)
    if not found:
        raise InvalidArgumentError("No column to add was named.")
    return found


def add_columns(
    base: Snapshot, columns: Sequence[AddedColumn], new_name: Callable[[], str]
) -> Alteration:
    """Add columns that rows which are there read as null."""
    schema = changes.added(base.schema, columns)
    told = [_told_with(item.path, item.field, item.position) for item in columns]
    operation = Operation("ADD COLUMNS", {"columns": as_text(told)})
    return Alteration(_with_schema(base, schema, new_name), operation)


def alter_column(
    base: Snapshot,
    path: Path,
    change: ColumnChange,
    check_rows: RowCheck | None,
    new_name: Callable[[], str],
) -> Alteration:
    """Change what a column says, and where it stands; its name stays."""
    before = _field(base, path)
    after = _changed(base, path, before, change)
    schema = changes.edited(base.schema, path, lambda _: after)
    if change.position is not None:
        schema = changes.moved(schema, path, change.position)
    scans: tuple[Scan, ...] = ()
    if before.nullable and not after.nullable:
        if check_rows is None:
            top = find(schema, path[:1])
            assert top is not None
            arrow_io.check_nulls(base, top)
        else:
            check_rows(base)
        scans = (_all_rows(base),)
    told = _told(path, after)
    parameters: dict[str, object] = {"column": as_text(told)}
    if change.position is not None:
        parameters["position"] = str(change.position)
    metadata = _with_schema(base, schema, new_name)
    return Alteration(metadata, Operation("CHANGE COLUMN", parameters), scans)


def rename_column(base: Snapshot, path: Path, to: str, new_name: Callable[[], str]) -> Alteration:
    """Give a column another name; files know it by one that stays."""
    _refuse_without_mapping(base, "renamed")
    item = _field(base, path)
    _refuse_dependents(base, path, "renamed")
    schema = changes.edited(base.schema, path, lambda old: replace(old, name=to))
    partition_by = list(base.partition_columns)
    if len(path) == 1:
        partition_by = [to if name == item.name else name for name in partition_by]
    metadata = replaced(base.metadata, partition_columns=partition_by)
    operation = Operation(
        "RENAME COLUMN",
        {"oldColumnPath": dotted(path), "newColumnPath": dotted((*path[:-1], to))},
    )
    return Alteration(_with_schema(base, schema, new_name, metadata), operation)


def drop_columns(base: Snapshot, paths: Sequence[Path], new_name: Callable[[], str]) -> Alteration:
    """Take columns out of the schema; files keep what they hold of them."""
    _refuse_without_mapping(base, "dropped")
    schema = base.schema
    clustered = clustering_columns(base.domains, schema)
    for path in paths:
        item = _field(base, path)
        if len(path) == 1 and item.name in base.partition_columns:
            raise InvalidArgumentError(
                f"{base.label} is partitioned by {item.name}, which cannot be dropped.",
                remedy="Replace the table with one that is partitioned otherwise.",
            )
        if any(_folded(column)[: len(path)] == _folded(path) for column in clustered):
            raise InvalidArgumentError(
                f"{base.label} is clustered by {dotted(path)}, which cannot be dropped.",
                remedy="Cluster it by other columns first.",
            )
        _refuse_dependents(base, path, "dropped")
        schema = changes.dropped(schema, path)
    operation = Operation("DROP COLUMNS", {"columns": as_text([dotted(path) for path in paths])})
    return Alteration(_with_schema(base, schema, new_name), operation)


# Constraints


def add_constraint(
    base: Snapshot, name: str, condition: str, check_rows: RowCheck | None
) -> Alteration:
    """Have a condition hold for every row from now on; it must hold for those that are there."""
    if not name.strip() or not condition.strip():
        raise InvalidArgumentError("A constraint has a name and a condition.")
    if (there := _constraint(base, name)) is not None:
        raise AlreadyExistsError(
            f"{base.label} has a constraint {there} already.",
            remedy="Choose another name, or drop the constraint first.",
        )
    if check_rows is None:
        arrow_io.check_condition(base, name, condition)
    else:
        check_rows(base)
    configuration = {**base.properties, f"{CONSTRAINTS}{name.lower()}": condition}
    return Alteration(
        replaced(base.metadata, configuration=configuration),
        Operation("ADD CONSTRAINT", {"name": name, "expr": condition}),
        (_all_rows(base),),
    )


def drop_constraint(base: Snapshot, name: str, *, if_exists: bool) -> Alteration:
    """Have a condition hold no more."""
    there = _constraint(base, name)
    if there is None and not if_exists:
        raise NotFoundError(
            f"{base.label} has no constraint {name}.", remedy="See table.properties."
        )
    configuration = dict(base.properties)
    parameters: dict[str, object] = {"name": name}
    if there is not None:
        parameters["expr"] = configuration.pop(f"{CONSTRAINTS}{there}")
    parameters["existed"] = "false" if there is None else "true"
    metadata = replaced(base.metadata, configuration=configuration)
    return Alteration(metadata, Operation("DROP CONSTRAINT", parameters))


def has_constraint(base: Snapshot, name: str) -> bool:
    """Say whether a table has a constraint of this name."""
    return _constraint(base, name) is not None


def _constraint(base: Snapshot, name: str) -> str | None:
    known = check_constraints(base.properties)
    return next((there for there in known if fold(there) == fold(name)), None)


# Inside


def _with_schema(
    base: Snapshot,
    schema: StructType,
    new_name: Callable[[], str],
    metadata: Metadata | None = None,
) -> Metadata:
    mapped = _is_mapped(base)
    after = with_schema(metadata or base.metadata, schema, mapped=mapped, new_name=new_name)
    check(schema, after.partition_columns, column_mapping=mapped)
    return after


def _changed(base: Snapshot, path: Path, item: StructField, change: ColumnChange) -> StructField:
    if change == ColumnChange():
        raise InvalidArgumentError(f"Nothing was said to change of column {dotted(path)}.")
    metadata = dict(item.metadata)
    for key, value in ((COMMENT, change.comment), (DEFAULT, change.default)):
        if isinstance(value, str):
            metadata[key] = value
        elif value is None:
            metadata.pop(key, None)
    if isinstance(change.default, str):
        if not change.default.strip():
            raise InvalidArgumentError(f"The DEFAULT of column {dotted(path)} is no SQL.")
        if len(path) > 1 or GENERATION in metadata:
            raise InvalidArgumentError(
                f"Column {dotted(path)} can have no DEFAULT: only whole columns that are not "
                "generated do."
            )
    item = replace(item, metadata=metadata)
    if change.nullable is not None:
        item = replace(item, nullable=change.nullable)
    if change.type is not None:
        _refuse_other_type(base, path, item)
        item = changes.retyped(item, change.type, path)
    return item


def _refuse_other_type(base: Snapshot, path: Path, item: StructField) -> None:
    if not features.is_active(base.protocol, base.metadata, "typeWidening"):
        raise UnsupportedFeatureError(
            f"The type of column {dotted(path)} cannot be changed: {base.label} has no "
            "typeWidening.",
            remedy="Set delta.enableTypeWidening to true first.",
        )
    if len(path) == 1 and item.name in base.partition_columns:
        raise UnsupportedFeatureError(
            f"The type of column {dotted(path)}, which {base.label} is partitioned by, cannot be "
            "changed."
        )
    if GENERATION in item.metadata:
        raise UnsupportedFeatureError(
            f"The type of the generated column {dotted(path)} cannot be changed."
        )
    _refuse_dependents(base, path, "given another type")


def _refuse_dependents(base: Snapshot, path: Path, how: str) -> None:
    if found := dependents(base.metadata, path):
        raise InvalidArgumentError(
            f"Column {dotted(path)} cannot be {how}: {', '.join(found)} goes by it.",
            remedy="Drop what goes by it first.",
        )


def _refuse_without_mapping(base: Snapshot, how: str) -> None:
    if not _is_mapped(base):
        raise UnsupportedFeatureError(
            f"Columns of {base.label} cannot be {how}: it has no columnMapping.",
            remedy="Make the table with delta.columnMapping.mode set to name.",
        )


def _field(base: Snapshot, path: Path) -> StructField:
    item = find(base.schema, path)
    if item is None:
        names = [item.name for item in base.schema.fields]
        raise NotFoundError(
            f"{base.label} has no column {dotted(path)}.{did_you_mean(path[0], names)}",
            remedy=f"Name one it has: {', '.join(names)}.",
        )
    return item


def _is_supported(base: Snapshot, feature: str) -> bool:
    # Who has the preview of a feature is not given the feature as well.
    return features.is_supported(base.protocol, feature) or features.is_supported(
        base.protocol, f"{feature}-preview"
    )


def _is_mapped(base: Snapshot) -> bool:
    return features.mapping_mode(base.protocol, base.metadata) != "none"


def _all_rows(base: Snapshot) -> Scan:
    assert base.table_id is not None
    return Scan(table_id=base.table_id, version=base.version, fed=False, validating=True)


def _folded(path: Path) -> Path:
    return tuple(fold(name) for name in path)


def _told_with(path: Path, item: StructField, position: Position | None) -> dict[str, object]:
    told: dict[str, object] = {"column": _told(path, item)}
    if position is not None:
        told["position"] = str(position)
    return told


def _told(path: Path, item: StructField) -> dict[str, object]:
    return {
        "name": dotted(path),
        "type": _type_name(item.type),
        "nullable": item.nullable,
        "metadata": dict(item.metadata),
    }


def _type_name(data_type: DataType) -> str:
    match data_type:
        case StructType():
            return "struct"
        case ArrayType():
            return "array"
        case MapType():
            return "map"
        case _:
            return str(data_type)


def path_of(column: str | Sequence[str]) -> Path:
    """Read a column's path: a text is the name of a whole column."""
    path = (column,) if isinstance(column, str) else tuple(column)
    if not path:
        raise InvalidArgumentError("No column was named.")
    return path
