"""Parse schemas and types written as text: `id long not null, day date`.

Accepts SQL's names of types as well. Errors name the character. Whether a table can have such
columns is checked in `checks`.
"""

from collections.abc import Mapping

from headgate.errors import InvalidSchemaError
from headgate.protocol.expressions.lexer import Token, TokenKind, UnclosedError, lex, unquote
from headgate.protocol.expressions.token_reader import TokenReader
from headgate.protocol.schema import types
from headgate.protocol.schema.types import DataType, DecimalType, StructField, StructType

_NAMED: Mapping[str, DataType] = {
    **types.PRIMITIVES,
    "int": types.INTEGER,
    "bigint": types.LONG,
    "smallint": types.SHORT,
    "tinyint": types.BYTE,
    "real": types.FLOAT,
    "bool": types.BOOLEAN,
    "timestamp_ltz": types.TIMESTAMP,
    "null": types.VOID,
}


def parse_schema(text: str) -> StructType:
    """Parse columns: `id long not null, s struct<a: int> comment 'why'`."""
    reader = _reader(text)
    fields = _take_fields(reader, depth=0)
    if not reader.is_at_end:
        raise _unexpected(reader, "`,` or the end")
    if not fields:
        raise InvalidSchemaError("The schema has no columns.")
    return StructType(fields)


def parse_type(text: str) -> DataType:
    """Parse a type: `decimal(10, 2)`, `array<int>`."""
    reader = _reader(text)
    data_type = take_type(reader)
    if not reader.is_at_end:
        raise _unexpected(reader, "the end")
    return data_type


def take_type(reader: TokenReader, depth: int = 0, *, has_lengths: bool = False) -> DataType:
    """Take the type that is next; one such as `char(3)` is refused unless `has_lengths`."""
    if depth > types.DEEPEST:
        raise InvalidSchemaError(f"The schema nests deeper than {types.DEEPEST} levels.")
    if reader.peek().kind is not TokenKind.WORD:
        raise _unexpected(reader, "a type")
    token = reader.take()
    match token.text.lower():
        case "array":
            _expect(reader, "<")
            element = take_type(reader, depth + 1, has_lengths=has_lengths)
            _expect(reader, ">")
            return types.ArrayType(element)
        case "map":
            _expect(reader, "<")
            key = take_type(reader, depth + 1, has_lengths=has_lengths)
            _expect(reader, ",")
            value = take_type(reader, depth + 1, has_lengths=has_lengths)
            _expect(reader, ">")
            return types.MapType(key, value)
        case "struct" if reader.took("<>"):  # one token for the lexer
            return StructType(())
        case "struct":
            _expect(reader, "<")
            fields = _take_fields(reader, depth, has_lengths=has_lengths)
            _expect(reader, ">")
            return StructType(fields)
        case "decimal" | "dec" | "numeric":
            return _take_decimal(reader, token)
        case "char" | "varchar" as name if has_lengths:
            _expect(reader, "(")
            length = int(reader.take().text)
            _expect(reader, ")")
            return types.Primitive(f"{name}({length})")
        case "char" | "varchar":
            raise _refused(token.start, f"{token.text!r}: use string")
        case name if name in _NAMED:
            return _NAMED[name]
        case _:
            raise _refused(token.start, f"{token.text!r} is not a type")


def _take_fields(
    reader: TokenReader, depth: int, *, has_lengths: bool = False
) -> tuple[StructField, ...]:
    fields: list[StructField] = []
    while _is_name(reader.peek()):
        fields.append(_take_field(reader, depth, has_lengths=has_lengths))
        if not reader.took(","):
            break
        if not _is_name(reader.peek()):
            raise _unexpected(reader, "a column")
    return tuple(fields)


def _is_name(token: Token) -> bool:
    # A column may have a name such as `5d`, which is a number for the lexer.
    return token.is_name or (token.kind is TokenKind.NUMBER and token.text.isalnum())


def _take_field(reader: TokenReader, depth: int, *, has_lengths: bool) -> StructField:
    name = reader.take().name
    reader.took(":")
    data_type = take_type(reader, depth + 1, has_lengths=has_lengths)
    nullable, metadata = True, dict[str, object]()
    while True:
        if reader.took("NOT"):
            _expect(reader, "NULL")
            nullable = False
        elif reader.took("COMMENT"):
            if reader.peek().kind is not TokenKind.STRING:
                raise _unexpected(reader, "a comment in quotes")
            metadata[types.COMMENT] = unquote(reader.take().text)
        else:
            return StructField(name, data_type, nullable, metadata)


def _take_decimal(reader: TokenReader, start: Token) -> DecimalType:
    precision, scale = 10, 0
    if reader.took("("):
        precision = _take_number(reader)
        if reader.took(","):
            scale = _take_number(reader)
        _expect(reader, ")")
    decimal = DecimalType(precision, scale)
    if not decimal.is_possible:
        raise _refused(start.start, f"{decimal} is out of range")
    return decimal


def _take_number(reader: TokenReader) -> int:
    token = reader.take()
    if not (token.text.isascii() and token.text.isdigit() and len(token.text) < 4):
        raise _refused(token.start, f"{token.text!r} is not a number of digits")
    return int(token.text)


def _reader(text: str) -> TokenReader:
    try:
        return TokenReader(lex(text))
    except UnclosedError as error:
        raise _refused(error.at, error.why) from None


def _expect(reader: TokenReader, key: str) -> None:
    if not reader.took(key):
        raise _unexpected(reader, f"`{key}`")


def _unexpected(reader: TokenReader, expected: str) -> InvalidSchemaError:
    token = reader.peek()
    given = "the end" if reader.is_at_end else repr(token.text[:20])
    return _refused(token.start, f"{expected} was expected, not {given}")


def _refused(position: int, why: str) -> InvalidSchemaError:
    return InvalidSchemaError(f"The schema cannot be read at character {position + 1}: {why}.")
