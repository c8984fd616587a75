"""Find the expressions and properties of a table that refer to a column by name."""

import re
from collections.abc import Iterator

from headgate.names import fold
from headgate.protocol.actions import Metadata
from headgate.protocol.expressions.lexer import TokenKind, UnclosedError, lex
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.alteration import dotted

STATISTICS_COLUMNS = "delta.dataSkippingStatsColumns"


def dependents(metadata: Metadata, path: delta.Path) -> list[str]:
    """List what refers to a column by name: constraints, generated columns, statistics."""
    schema = delta.from_json(metadata.schema_string)
    texts = {
        f"constraint {name}": text
        for name, text in delta.check_constraints(metadata.configuration).items()
    }
    texts |= {f"invariant of {dotted(at)}": text for at, text in delta.invariants(schema).items()}
    texts |= {
        f"generated column {dotted(at)}": str(item.metadata[delta.GENERATION])
        for at, item in delta.all_fields(schema)
        if delta.GENERATION in item.metadata
    }
    if STATISTICS_COLUMNS in metadata.configuration:
        texts[f"property {STATISTICS_COLUMNS}"] = metadata.configuration[STATISTICS_COLUMNS]
    names = {fold(name) for name in path}
    return [what for what, text in texts.items() if names <= set(_names(text))]


def _names(expression: str) -> Iterator[str]:
    """Yield the folded words of an expression that may be names of columns."""
    try:
        tokens = lex(expression)
    except UnclosedError:
        tokens = []
        yield from map(fold, re.findall(r"\w+", expression))
    for token in tokens:
        if token.is_name or token.kind is TokenKind.NUMBER:
            yield fold(token.name)
        elif token.kind is TokenKind.STRING and '"' in token.text:
            # In double quotes it is a name if Spark's settings say so.
            yield from map(fold, re.findall(r"\w+", token.text))
