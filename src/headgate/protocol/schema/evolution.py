"""Schema evolution: add new columns and fields of written rows to a schema, and widen types."""

from collections.abc import Callable

from headgate.names import fold
from headgate.protocol.actions import Metadata
from headgate.protocol.encoding import replaced
from headgate.protocol.schema.column_mapping import MAX_COLUMN_ID, with_mapping
from headgate.protocol.schema.type_widening import is_widening_within_family, retyped_field
from headgate.protocol.schema.types import DataType, Path, StructField, StructType, to_json

Widens = Callable[[Path], bool]  # whether the type of the column or field at a path may change


def never(path: Path) -> bool:
    """Return False: keep every type."""
    return False


def merged(
    schema: StructType, given: StructType, widens: Widens = never, path: Path = ()
) -> StructType:
    """Add the columns and nested fields that a schema lacks; each may be null.

    A type that `widens` allows to change becomes the given one if that is wider; the field records
    the change.
    """
    by_name = {fold(item.name): item for item in given.fields}
    kept = [
        _merged_field(item, by_name[fold(item.name)].type, widens, (*path, item.name))
        if fold(item.name) in by_name
        else item
        for item in schema.fields
    ]
    known = {fold(item.name) for item in schema.fields}
    # Nullable, since existing rows have no value. Its other metadata belongs to its source.
    new = [StructField(i.name, i.type) for i in given.fields if fold(i.name) not in known]
    return StructType((*kept, *new))


def _merged_field(item: StructField, given: DataType, widens: Widens, path: Path) -> StructField:
    may_widen = widens(path)

    def merged_type(before: DataType, given: DataType, within: Path) -> DataType | None:
        if isinstance(before, StructType) and isinstance(given, StructType):
            return merged(before, given, widens, (*path, *within))
        return None if may_widen and is_widening_within_family(before, given) else before

    return retyped_field(item, given, merged_type)


def with_schema(
    metadata: Metadata, schema: StructType, *, mapped: bool, new_name: Callable[[], str]
) -> Metadata:
    """Replace the schema in metadata; with column mapping new fields get names and ids."""
    configuration = dict(metadata.configuration)
    if mapped:
        last = configuration.get(MAX_COLUMN_ID, "0")
        schema, highest = with_mapping(schema, new_name, int(last) if last.isdigit() else 0)
        configuration[MAX_COLUMN_ID] = str(highest)
    return replaced(metadata, schema_string=to_json(schema), configuration=configuration)
