"""Schema changes of ALTER TABLE: add, change, move and drop columns, without checking rows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from headgate import errors
from headgate.names import did_you_mean
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.column_mapping import without_mapping
from headgate.protocol.schema.type_widening import is_widening, retyped_field


@dataclass(frozen=True, slots=True)
class First:
    """The position before all other columns."""

    def __str__(self) -> str:
        return "FIRST"


@dataclass(frozen=True, slots=True)
class After:
    """The position after another column."""

    column: str

    def __str__(self) -> str:
        return f"AFTER {self.column}"


Position = First | After


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A new column; `within` is the path of its struct, also with `element`, `key` and `value`."""

    field: delta.StructField
    within: delta.Path = ()
    position: Position | None = None

    @property
    def path(self) -> delta.Path:
        return (*self.within, self.field.name)


# Changes


def added(schema: delta.StructType, columns: Iterable[AddedColumn]) -> delta.StructType:
    """Add columns one after the other, each at its position."""
    for column in columns:
        item = _checked_new_column(column)

        def grown(
            struct: delta.StructType, column: AddedColumn = column, item: delta.StructField = item
        ) -> delta.StructType:
            if delta.find(struct, [item.name]) is not None:
                raise errors.AlreadyExistsError(f"A column {dotted(column.path)} exists already.")
            return _placed(struct, item, column.position)

        schema = _in_struct(schema, column.within, grown)
    return schema


def edited(
    schema: delta.StructType,
    path: delta.Path,
    change: Callable[[delta.StructField], delta.StructField],
) -> delta.StructType:
    """Replace a field by a changed one."""

    def within(struct: delta.StructType) -> delta.StructType:
        item = _field(struct, path)
        return delta.StructType(tuple(change(i) if i is item else i for i in struct.fields))

    return _in_struct(schema, path[:-1], within)


def moved(schema: delta.StructType, path: delta.Path, position: Position) -> delta.StructType:
    """Move a field within its struct."""
    others, item = dropped(schema, path), delta.find(schema, path)
    assert item is not None
    return _in_struct(others, path[:-1], lambda struct: _placed(struct, item, position))


def dropped(schema: delta.StructType, path: delta.Path) -> delta.StructType:
    """Remove a field."""

    def within(struct: delta.StructType) -> delta.StructType:
        item = _field(struct, path)
        return delta.StructType(tuple(i for i in struct.fields if i is not item))

    return _in_struct(schema, path[:-1], within)


def retyped(
    item: delta.StructField, new_type: delta.DataType, path: delta.Path
) -> delta.StructField:
    """Widen a field's type, and record the old one: existing files keep it."""

    def widened(
        before: delta.DataType, after: delta.DataType, within: delta.Path
    ) -> delta.DataType | None:
        if before == after or str(before) == str(after):
            return before
        if is_widening(before, after):
            return None
        if before == delta.VOID:  # never stored in files
            return after
        raise errors.UnsupportedFeatureError(
            f"Column {dotted((*path, *within))} is {before} and cannot become {after}: "
            "that is not a widening (typeWidening).",
            remedy="Add a new column and fill it from this one.",
        )

    return retyped_field(item, new_type, widened)


def dotted(path: Sequence[str]) -> str:
    """Format a path as in Delta's history."""
    return ".".join(
        f"`{name.replace('`', '``')}`" if "." in name or "`" in name else name for name in path
    )


def _checked_new_column(column: AddedColumn) -> delta.StructField:
    """Refuse a column that existing rows cannot have; drop column mapping of another table."""
    [item] = without_mapping(delta.StructType((column.field,))).fields
    alone = delta.StructType((item,))
    for path, inner in delta.all_fields(alone):
        if not inner.nullable:
            raise errors.InvalidArgumentError(
                f"The new column {dotted((*column.within, *path))} is NOT NULL, and existing rows "
                "have no value for it.",
                remedy="Add it without NOT NULL, fill it, then make it NOT NULL.",
            )
    for key, feature in (
        (delta.DEFAULT, "allowColumnDefaults"),
        (delta.GENERATION, "generatedColumns"),
        (delta.IDENTITY, "identityColumns"),
        (delta.INVARIANTS, "invariants"),
    ):
        if delta.columns_with(alone, key):
            raise errors.UnsupportedFeatureError(
                f"The new column {dotted(column.path)} has a default, an expression or a "
                f"constraint ({feature}), which existing rows would need too.",
                remedy="Add it as a plain column, and set its default afterwards.",
            )
    return item


def _in_struct(
    schema: delta.StructType,
    path: delta.Path,
    change: Callable[[delta.StructType], delta.StructType],
    above: delta.Path = (),
) -> delta.StructType:
    """Change the struct at a path."""
    if not path:
        return change(schema)
    here = (*above, path[0])
    item = _field(schema, here)
    inner = _in_type(item.type, path[1:], change, here)
    return delta.StructType(
        tuple(replace(i, type=inner) if i is item else i for i in schema.fields)
    )


def _in_type(
    data_type: delta.DataType,
    path: delta.Path,
    change: Callable[[delta.StructType], delta.StructType],
    above: delta.Path,
) -> delta.DataType:
    if isinstance(data_type, delta.StructType):
        return _in_struct(data_type, path, change, above)
    if not path or path[0] not in dict(delta.parts(data_type)):
        raise errors.InvalidArgumentError(
            f"Column {dotted(above)} is a {data_type} and has no fields.",
            remedy="Name a struct; element, key and value lead into arrays and maps.",
        )
    name, *rest = path

    def changed(part: str, inner: delta.DataType) -> delta.DataType:
        return _in_type(inner, tuple(rest), change, (*above, name)) if part == name else inner

    return delta.with_parts(data_type, changed)


def _field(struct: delta.StructType, path: delta.Path) -> delta.StructField:
    item = delta.find(struct, path[-1:])
    if item is None:
        known = [item.name for item in struct.fields]
        raise errors.NotFoundError(
            f"There is no column {dotted(path)}.{did_you_mean(path[-1], known)}",
            remedy=f"Use one of {', '.join(known)}.",
        )
    return item


def _placed(
    struct: delta.StructType, item: delta.StructField, position: Position | None
) -> delta.StructType:
    fields = list(struct.fields)
    match position:
        case None:
            fields.append(item)
        case First():
            fields.insert(0, item)
        case After(column):
            fields.insert(fields.index(_field(struct, (column,))) + 1, item)
    return delta.StructType(tuple(fields))
