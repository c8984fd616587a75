"""Delta schema types, their JSON, and their short spelling: `id long not null, day date`.

Knows what a schema says (names, types, nullability, column metadata) and what a new one may say.
Does not know rows: enforcing NOT NULL and constraints is the writer's work.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from headgate.errors import InvalidSchemaError, MalformedError, UnsupportedFeatureError
from headgate.names import fold

MAPPING_ID = "delta.columnMapping.id"
MAPPING_NAME = "delta.columnMapping.physicalName"
TYPE_CHANGES = "delta.typeChanges"
INVARIANTS = "delta.invariants"
GENERATION = "delta.generationExpression"
IDENTITY = "delta.identity."
DEFAULT = "CURRENT_DEFAULT"
COMMENT = "comment"
CONSTRAINTS = "delta.constraints."

DEEPEST = 100  # levels of nesting; deeper ones are refused before they exhaust anybody's stack
_MOST_DIGITS = 38
_FORBIDDEN = frozenset(" ,;{}()\n\t=")  # Parquet readers of old stumble over them

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type that is only a name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A number of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class StructField:
    """A named part of a struct; of the schema itself: a column."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class StructType:
    """Named fields, in order. A table's schema is one."""

    fields: tuple[StructField, ...] = ()

    def __str__(self) -> str:
        return f"struct<{','.join(f'{item.name}:{item.type}' for item in self.fields)}>"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Many values of one type."""

    element: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """Values by keys."""

    key: DataType
    value: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


DataType = Primitive | DecimalType | StructType | ArrayType | MapType

STRING = Primitive("string")
LONG = Primitive("long")
INTEGER = Primitive("integer")
SHORT = Primitive("short")
BYTE = Primitive("byte")
FLOAT = Primitive("float")
DOUBLE = Primitive("double")
BOOLEAN = Primitive("boolean")
BINARY = Primitive("binary")
DATE = Primitive("date")
TIMESTAMP = Primitive("timestamp")
TIMESTAMP_NTZ = Primitive("timestamp_ntz")
VARIANT = Primitive("variant")
VOID = Primitive("void")

PRIMITIVES: Mapping[str, Primitive] = {
    primitive.name: primitive
    for primitive in (
        STRING,
        LONG,
        INTEGER,
        SHORT,
        BYTE,
        FLOAT,
        DOUBLE,
        BOOLEAN,
        BINARY,
        DATE,
        TIMESTAMP,
        TIMESTAMP_NTZ,
        VARIANT,
        VOID,
    )
}


# From and to JSON


def from_json(text: str | bytes) -> StructType:
    """Read a `schemaString`."""
    return _from_json(text if isinstance(text, str) else text.decode(errors="surrogateescape"))


def to_json(schema: StructType) -> str:
    """Write a schema as a `schemaString`."""
    return msgspec.json.encode(type_to_object(schema)).decode()


def type_from_object(value: object) -> DataType:
    """Read a type from decoded JSON."""
    return _type(value, (), 0)


def type_to_object(data_type: DataType) -> object:
    """Give a type as plain values, ready for JSON."""
    match data_type:
        case Primitive() | DecimalType():
            return str(data_type)
        case StructType(fields):
            return {"type": "struct", "fields": [_field_to_object(item) for item in fields]}
        case ArrayType(element, contains_null):
            return {
                "type": "array",
                "elementType": type_to_object(element),
                "containsNull": contains_null,
            }
        case MapType(key, value, value_contains_null):
            return {
                "type": "map",
                "keyType": type_to_object(key),
                "valueType": type_to_object(value),
                "valueContainsNull": value_contains_null,
            }


def _field_to_object(item: StructField) -> dict[str, object]:
    return {
        "name": item.name,
        "type": type_to_object(item.type),
        "nullable": item.nullable,
        "metadata": dict(item.metadata),
    }


@functools.lru_cache(maxsize=256)  # the same few schemas are asked for with every commit
def _from_json(text: str) -> StructType:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise MalformedError(f"The schema is not JSON: {error}.") from error
    parsed = _type(value, (), 0)
    if not isinstance(parsed, StructType):
        raise MalformedError(f"The schema is a {parsed}, not a struct.")
    return parsed


_DECIMAL = re.compile(r"decimal(?:\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\))?", re.ASCII)


def _type(value: object, path: Path, depth: int) -> DataType:
    if depth > DEEPEST:
        raise MalformedError(f"The schema nests deeper than {DEEPEST} levels.")
    if isinstance(value, str):
        return _named_type(value, path)
    shape = _members(value, path)
    match shape.get("type"):
        case "struct":
            fields = shape.get("fields")
            if not isinstance(fields, list):
                raise MalformedError(f"The struct {_at(path)} has no fields.")
            return StructType(tuple(_field(item, path, depth) for item in fields))
        case "array":
            return ArrayType(
                _type(shape.get("elementType"), (*path, "element"), depth + 1),
                _flag(shape, "containsNull", path),
            )
        case "map":
            return MapType(
                _type(shape.get("keyType"), (*path, "key"), depth + 1),
                _type(shape.get("valueType"), (*path, "value"), depth + 1),
                _flag(shape, "valueContainsNull", path),
            )
        case str(name):
            raise UnsupportedFeatureError(f"The type {name!r} {_at(path)} is not supported.")
        case _:
            raise MalformedError(f"The type {_at(path)} has no name.")


def _named_type(name: str, path: Path) -> DataType:
    if (primitive := PRIMITIVES.get(name)) is not None:
        return primitive
    if name == "null":  # how `void` was spelled once
        return VOID
    if (found := _DECIMAL.fullmatch(name)) is not None:
        precision, scale = (
            int(digits or default) for digits, default in zip(found.groups(), (10, 0), strict=True)
        )
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            raise MalformedError(f"The type {name!r} {_at(path)} has impossible digits.")
        return DecimalType(precision, scale)
    raise UnsupportedFeatureError(f"The type {name!r} {_at(path)} is not supported.")


def _field(value: object, path: Path, depth: int) -> StructField:
    members = _members(value, path)
    name = members.get("name")
    if not isinstance(name, str):
        raise MalformedError(f"A field {_at(path)} has no name.")
    metadata = members.get("metadata")
    if metadata is None:
        metadata = {}
    return StructField(
        name,
        _type(members.get("type"), (*path, name), depth + 1),
        _flag(members, "nullable", (*path, name)),
        _members(metadata, (*path, name)),
    )


def _members(value: object, path: Path) -> dict[str, object]:
    if not isinstance(value, dict):
        raise MalformedError(f"An object is missing {_at(path)}.")
    return value


def _flag(members: Mapping[str, object], key: str, path: Path) -> bool:
    value = members.get(key, True)
    if not isinstance(value, bool):
        raise MalformedError(f"{key!r} {_at(path)} is neither true nor false.")
    return value


def _at(path: Path) -> str:
    return f"at column {'.'.join(path)!r}" if path else "of the schema"


# The short spelling

_ALIASES: Mapping[str, Primitive] = {
    **PRIMITIVES,
    "int": INTEGER,
    "bigint": LONG,
    "smallint": SHORT,
    "tinyint": BYTE,
    "real": FLOAT,
    "bool": BOOLEAN,
    "timestamp_ltz": TIMESTAMP,
    "null": VOID,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<text>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")"
    r"|(?P<word>\w+)"
    r"|(?P<mark>[,:<>()]))",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)|''|\"\"", re.DOTALL)


def parse_schema(text: str) -> StructType:
    """Read columns as people write them: `id long not null, s struct<a: int> comment 'why'`."""
    return _Spelling(text).schema()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


class _Spelling:
    """A text being read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._next = 0

    def schema(self) -> StructType:
        fields = self._fields(depth=0)
        if self._peek().kind != "end":
            raise self._unexpected("`,` or the end")
        if not fields:
            raise InvalidSchemaError("The schema has no columns.")
        return StructType(fields)

    def _split(self) -> Iterator[_Token]:
        position = 0
        end = len(self._text.rstrip())
        while position < end:
            found = _TOKEN.match(self._text, position)
            if found is None:
                raise self._refused(position, f"{self._text[position:].split()[0][:20]!r}")
            kind = str(found.lastgroup)
            yield _Token(kind, found[kind], found.start(kind))
            position = found.end()
        yield _Token("end", "", len(self._text))

    def _fields(self, depth: int) -> tuple[StructField, ...]:
        fields: list[StructField] = []
        while self._peek().kind in {"word", "quoted"}:
            fields.append(self._field(depth))
            if not self._took(","):
                break
            if self._peek().kind not in {"word", "quoted"}:
                raise self._unexpected("a column")
        return tuple(fields)

    def _field(self, depth: int) -> StructField:
        token = self._take()
        name = token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text
        self._took(":")
        data_type = self._type(depth + 1)
        nullable, metadata = True, dict[str, object]()
        while True:
            if self._took("not"):
                if not self._took("null"):
                    raise self._unexpected("NULL")
                nullable = False
            elif self._took("comment"):
                if self._peek().kind != "text":
                    raise self._unexpected("a comment in quotes")
                metadata[COMMENT] = _ESCAPED.sub(_unescape, self._take().text[1:-1])
            else:
                return StructField(name, data_type, nullable, metadata)

    def _type(self, depth: int) -> DataType:
        if depth > DEEPEST:
            raise InvalidSchemaError(f"The schema nests deeper than {DEEPEST} levels.")
        if self._peek().kind != "word":
            raise self._unexpected("a type")
        token = self._take()
        match token.text.lower():
            case "array":
                self._expect("<")
                element = self._type(depth + 1)
                self._expect(">")
                return ArrayType(element)
            case "map":
                self._expect("<")
                key = self._type(depth + 1)
                self._expect(",")
                value = self._type(depth + 1)
                self._expect(">")
                return MapType(key, value)
            case "struct":
                self._expect("<")
                fields = self._fields(depth)
                self._expect(">")
                return StructType(fields)
            case "decimal" | "dec" | "numeric":
                return self._decimal(token)
            case "char" | "varchar":
                raise self._refused(token.start, f"{token.text!r}: use string")
            case name if name in _ALIASES:
                return _ALIASES[name]
            case _:
                raise self._refused(token.start, f"{token.text!r} is not a type")

    def _decimal(self, token: _Token) -> DecimalType:
        precision, scale = 10, 0
        if self._took("("):
            precision = self._number()
            if self._took(","):
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            raise self._refused(token.start, f"decimal({precision},{scale}) has impossible digits")
        return DecimalType(precision, scale)

    def _number(self) -> int:
        token = self._take()
        if not (token.text.isascii() and token.text.isdigit() and len(token.text) < 4):
            raise self._refused(token.start, f"{token.text!r} is not a number of digits")
        return int(token.text)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _took(self, expected: str) -> bool:
        token = self._peek()
        if token.kind in {"word", "mark"} and token.text.lower() == expected:
            self._take()
            return True
        return False

    def _expect(self, expected: str) -> None:
        if not self._took(expected):
            raise self._unexpected(f"`{expected}`")

    def _unexpected(self, wanted: str) -> InvalidSchemaError:
        token = self._peek()
        found = f"{token.text!r}" if token.kind != "end" else "the end"
        return self._refused(token.start, f"{wanted} was expected, not {found}")

    def _refused(self, position: int, why: str) -> InvalidSchemaError:
        return InvalidSchemaError(f"The schema cannot be read at character {position + 1}: {why}.")


def _unescape(found: re.Match[str]) -> str:
    return found[1] or found[0][0]


# What a schema says


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column, or a field within structs, that holds values of its own."""

    path: Path
    physical: Path  # the names in data files, partition values and statistics
    type: DataType
    nullable: bool  # it, or a struct around it, may be null


def physical_name(item: StructField) -> str:
    """Give the name a field has in files and statistics: under column mapping another one."""
    name = item.metadata.get(MAPPING_NAME)
    return name if isinstance(name, str) else item.name


def field_id(item: StructField) -> int | None:
    """Give the id column mapping knows a field by."""
    number = item.metadata.get(MAPPING_ID)
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def leaf_columns(schema: StructType) -> list[Leaf]:
    """List what has statistics of its own: fields within structs; an array or map is one leaf."""
    return list(_leaves(schema, (), (), nullable=False))


def _leaves(schema: StructType, path: Path, physical: Path, *, nullable: bool) -> Iterator[Leaf]:
    for item in schema.fields:
        below, beneath = (*path, item.name), (*physical, physical_name(item))
        if isinstance(item.type, StructType):
            yield from _leaves(item.type, below, beneath, nullable=nullable or item.nullable)
        else:
            yield Leaf(below, beneath, item.type, nullable or item.nullable)


def find(schema: StructType, path: Sequence[str]) -> StructField | None:
    """Find a field by its names; exactly spelled first, otherwise without regard to case.

    `element`, `key` and `value` lead into arrays and maps, as in the protocol's field paths.
    """
    fields = find_all(schema, path)
    return fields[-1] if fields else None


def find_all(schema: StructType, path: Sequence[str]) -> list[StructField]:
    """Find a field and the struct fields around it, outermost first; empty if there is none."""
    found: list[StructField] = []
    within: DataType = schema
    for position, name in enumerate(path):
        match within:
            case StructType():
                item = _named(within, name)
                if item is None:
                    return []
                found.append(item)
                within = item.type
            case ArrayType(element=inner) if name == "element":
                within = inner
            case MapType(key=inner) if name == "key":
                within = inner
            case MapType(value=inner) if name == "value":
                within = inner
            case _:
                return []
        if position == len(path) - 1 and (not found or found[-1].type is not within):
            return []  # an element, key or value is no field
    return found


def _named(schema: StructType, name: str) -> StructField | None:
    for item in schema.fields:
        if item.name == name:
            return item
    wanted = fold(name)
    return next((item for item in schema.fields if fold(item.name) == wanted), None)


def physical_path(schema: StructType, path: Sequence[str]) -> Path | None:
    """Translate a path within structs into the names statistics go by."""
    fields = find_all(schema, path)
    return tuple(physical_name(item) for item in fields) if len(fields) == len(path) else None


def all_fields(schema: StructType) -> list[tuple[Path, StructField]]:
    """List every field with its path, those within arrays and maps included."""
    return list(_fields_of(schema, ()))


def _fields_of(data_type: DataType, path: Path) -> Iterator[tuple[Path, StructField]]:
    match data_type:
        case StructType(fields):
            for item in fields:
                yield (*path, item.name), item
                yield from _fields_of(item.type, (*path, item.name))
        case ArrayType(element):
            yield from _fields_of(element, (*path, "element"))
        case MapType(key, value):
            yield from _fields_of(key, (*path, "key"))
            yield from _fields_of(value, (*path, "value"))
        case _:
            pass


def contains(data_type: DataType, wanted: Primitive) -> bool:
    """Say whether a type occurs anywhere within another."""
    match data_type:
        case StructType(fields):
            return any(contains(item.type, wanted) for item in fields)
        case ArrayType(element):
            return contains(element, wanted)
        case MapType(key, value):
            return contains(key, wanted) or contains(value, wanted)
        case _:
            return data_type == wanted


def columns_with(schema: StructType, key: str) -> list[Path]:
    """List the fields whose metadata has a key, or one that begins with it if it ends in a dot."""
    if key.endswith("."):
        return [
            p for p, item in all_fields(schema) if any(k.startswith(key) for k in item.metadata)
        ]
    return [path for path, item in all_fields(schema) if key in item.metadata]


def not_null_columns(schema: StructType) -> list[Path]:
    """List the fields within structs that must have a value wherever their struct has one."""
    return list(_not_null(schema, ()))


def _not_null(schema: StructType, path: Path) -> Iterator[Path]:
    for item in schema.fields:
        if not item.nullable:
            yield (*path, item.name)
        if isinstance(item.type, StructType):
            yield from _not_null(item.type, (*path, item.name))


def check_constraints(configuration: Mapping[str, str]) -> dict[str, str]:
    """Give the CHECK constraints of a table: name and SQL expression."""
    return {
        key.removeprefix(CONSTRAINTS): expression
        for key, expression in configuration.items()
        if key.startswith(CONSTRAINTS)
    }


def invariants(schema: StructType) -> dict[Path, str]:
    """Give the SQL expressions that columns carry in `delta.invariants`."""
    found: dict[Path, str] = {}
    for path, item in all_fields(schema):
        if INVARIANTS in item.metadata:
            found[path] = _invariant(item.metadata[INVARIANTS], path)
    return found


class _Expression(msgspec.Struct, frozen=True):
    expression: str


class _Invariant(msgspec.Struct, frozen=True):
    expression: _Expression


def _invariant(value: object, path: Path) -> str:
    try:
        text = msgspec.convert(value, str)
        return msgspec.json.decode(text, type=_Invariant).expression.expression
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise MalformedError(f"The invariant {_at(path)} cannot be read: {error}.") from error


def comment_of(item: StructField) -> str | None:
    """Give a field's comment."""
    comment = item.metadata.get(COMMENT)
    return comment if isinstance(comment, str) else None


# What a new schema may say


def problems(
    schema: StructType, partition_columns: Sequence[str] = (), *, column_mapping: bool = False
) -> list[str]:
    """List every reason why no new table can have this schema; none means it can."""
    if not schema.fields:
        return ["there are no columns"]
    if _depth(schema) > DEEPEST:
        return [f"it nests deeper than {DEEPEST} levels"]
    found = list(_name_problems(schema, (), column_mapping=column_mapping))
    found.extend(_partition_problems(schema, partition_columns))
    return found


def check(
    schema: StructType, partition_columns: Sequence[str] = (), *, column_mapping: bool = False
) -> None:
    """Refuse a schema no new table can have."""
    if found := problems(schema, partition_columns, column_mapping=column_mapping):
        raise InvalidSchemaError(f"The schema cannot be used: {'; '.join(found)}.")


def _depth(data_type: DataType) -> int:
    deepest, level = 0, _inner(data_type)
    while level and deepest <= DEEPEST:
        deepest += 1
        level = [inner for outer in level for inner in _inner(outer)]
    return deepest


def _inner(data_type: DataType) -> list[DataType]:
    match data_type:
        case StructType(fields):
            return [item.type for item in fields]
        case ArrayType(element):
            return [element]
        case MapType(key, value):
            return [key, value]
        case _:
            return []


def _name_problems(data_type: DataType, path: Path, *, column_mapping: bool) -> Iterator[str]:
    structs = [(path, data_type)] if isinstance(data_type, StructType) else []
    if isinstance(data_type, StructType):
        structs.extend(
            inner
            for below, item in all_fields(data_type)
            for inner in _structs_of(item.type, below)
        )
    for where, struct in structs:
        seen: dict[str, str] = {}
        for item in struct.fields:
            name = ".".join((*where, item.name))
            if not item.name:
                yield f"a column {_at(where)} has an empty name"
            elif (twin := seen.setdefault(fold(item.name), item.name)) is not item.name:
                yield f"column {name!r} is there twice, ignoring case ({twin!r})"
            if not column_mapping and (bad := sorted(_FORBIDDEN.intersection(item.name))):
                yield f"column {name!r} contains {bad[0]!r}, which needs column mapping"
        if where and not struct.fields:
            yield f"the struct {_at(where)} has no fields"


def _structs_of(data_type: DataType, path: Path) -> Iterator[tuple[Path, StructType]]:
    # Only through arrays and maps: structs within structs are reached through their fields.
    match data_type:
        case StructType():
            yield path, data_type
        case ArrayType(element):
            yield from _structs_of(element, (*path, "element"))
        case MapType(key, value):
            yield from _structs_of(key, (*path, "key"))
            yield from _structs_of(value, (*path, "value"))
        case _:
            pass


def _partition_problems(schema: StructType, partition_columns: Sequence[str]) -> Iterator[str]:
    columns = {item.name: item for item in schema.fields}
    for position, name in enumerate(partition_columns):
        item = columns.get(name)
        if item is None:
            yield f"there is no column {name!r} to partition by"
        elif name in partition_columns[:position]:
            yield f"column {name!r} is named twice to partition by"
        elif item.type in (VARIANT, VOID) or not isinstance(item.type, Primitive | DecimalType):
            yield f"column {name!r} is a {item.type}, which cannot be partitioned by"
    if partition_columns and columns.keys() <= set(partition_columns):
        yield "every column is partitioned by, so none is left for the files"


def void_problems(schema: StructType) -> list[str]:
    """List where `void` makes it impossible to write rows: it is never stored in files."""
    found = [
        f"column {'.'.join(path)!r} has void within an array or map"
        for path, item in all_fields(schema)
        if isinstance(item.type, ArrayType | MapType) and contains(item.type, VOID)
    ]
    found.extend(
        f"every field of struct {'.'.join(path)!r} is void"
        for path, item in all_fields(schema)
        if isinstance(item.type, StructType) and _is_all_void(item.type)
    )
    if _is_all_void(schema):
        found.append("every column is void")
    return found


def _is_all_void(schema: StructType) -> bool:
    return bool(schema.fields) and all(item.type == VOID for item in schema.fields)


# Column mapping


def without_mapping(schema: StructType) -> StructType:
    """Take column mapping's metadata out: with mode `none` fields go by their own names."""
    return _each_field(
        schema,
        lambda item: replace(
            item,
            metadata={
                key: value
                for key, value in item.metadata.items()
                if not key.startswith("delta.columnMapping.")
            },
        ),
    )


def with_mapping(
    schema: StructType, new_name: Callable[[], str], last_id: int = 0
) -> tuple[StructType, int]:
    """Give every field an id and a physical name it lacks; give the last id too."""
    used = [number for _, item in all_fields(schema) if (number := field_id(item)) is not None]
    last = max([last_id, *used])

    def mapped(item: StructField) -> StructField:
        nonlocal last
        metadata = dict(item.metadata)
        if field_id(item) is None:
            last += 1
            metadata[MAPPING_ID] = last
        metadata.setdefault(MAPPING_NAME, new_name())
        return replace(item, metadata=metadata)

    return _each_field(schema, mapped), last


def _each_field(schema: StructType, change: Callable[[StructField], StructField]) -> StructType:
    def within(data_type: DataType) -> DataType:
        match data_type:
            case StructType():
                return _each_field(data_type, change)
            case ArrayType(element):
                return replace(data_type, element=within(element))
            case MapType(key, value):
                return replace(data_type, key=within(key), value=within(value))
            case _:
                return data_type

    changed = (change(item) for item in schema.fields)
    return StructType(tuple(replace(item, type=within(item.type)) for item in changed))


# Type widening


@dataclass(frozen=True, slots=True)
class TypeChange:
    """One change of a column's type, as `delta.typeChanges` records it."""

    path: Path
    before: DataType
    after: DataType
    within: str | None = None  # `element`, `key`, `value`, or several of them with dots


class _Change(msgspec.Struct, frozen=True, rename="camel"):
    from_type: object
    to_type: object
    field_path: str | None = None


def type_changes(schema: StructType) -> list[TypeChange]:
    """List the changes of type that fields went through, oldest first for each."""
    found: list[TypeChange] = []
    for path, item in all_fields(schema):
        if TYPE_CHANGES in item.metadata:
            try:
                changes = msgspec.convert(item.metadata[TYPE_CHANGES], list[_Change])
            except msgspec.ValidationError as error:
                raise MalformedError(f"The type changes {_at(path)}: {error}.") from error
            found.extend(
                TypeChange(
                    path,
                    _type(change.from_type, path, 0),
                    _type(change.to_type, path, 0),
                    change.field_path,
                )
                for change in changes
            )
    return found


def is_widening(before: DataType, after: DataType) -> bool:
    """Say whether the protocol lets one type widen to another."""
    match before, after:
        case DecimalType(), DecimalType():
            more = after.scale - before.scale
            return after.precision - before.precision >= more >= 0
        case Primitive(name), DecimalType(precision, scale) if name in _WHOLE:
            digits = 20 if before == LONG else 10
            return precision - digits >= scale >= 0
        case Primitive(name), Primitive():
            return after.name in _WIDER.get(name, ())
        case _:
            return False


_WHOLE = frozenset({"byte", "short", "integer", "long"})
_WIDER: Mapping[str, tuple[str, ...]] = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
    # Any type may follow `void`, which no file ever holds; it needs no widening.
}
