"""What Spark declares of texts, read from a column's metadata."""

import pytest

from headgate.errors import UnsupportedFeatureError
from headgate.protocol.expressions.char_lengths import DECLARED, CharLengths, char_lengths
from headgate.protocol.schema.types import STRING, StructField

FIVE, THREE = CharLengths(5), CharLengths(3, is_char=True)
SPELLED = {
    "varchar(5)": FIVE,
    "CHAR(3)": THREE,
    "varchar(65535)": CharLengths(65_535),
    "string": CharLengths(),
    "array<varchar(5)>": CharLengths(parts={"element": FIVE}),
    "map<char(3),array<varchar(5)>>": CharLengths(
        parts={"key": THREE, "value": CharLengths(parts={"element": FIVE})}
    ),
    "struct<a:varchar(5),B c:decimal(10,2)>": None,
    "struct<A:varchar(5),`b c:d``<`:char(3),n:decimal(10,2)>": CharLengths(
        parts={"a": FIVE, "b c:d`<": THREE, "n": CharLengths()}
    ),
    "struct<a:struct<b:int>>": CharLengths(parts={"a": CharLengths(parts={"b": CharLengths()})}),
    "varchar(x)": None,
    "varchar(5": None,
    "varchar(5)>": None,
    "array<": None,
    "": None,
}


@pytest.mark.parametrize("text", SPELLED)
def test_what_was_declared_is_read_as_spark_spells_it(text: str) -> None:
    field, wanted = StructField("v", STRING, metadata={DECLARED: text}), SPELLED[text]
    if wanted is None:
        with pytest.raises(UnsupportedFeatureError, match="'v' is declared as"):
            char_lengths(field)
    else:
        assert char_lengths(field) == wanted
