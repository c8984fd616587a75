"""Find out what a condition or query is made of, and what it implies about the files of a table."""

from collections.abc import Collection
from dataclasses import dataclass

from headgate.protocol.expressions.implied import all_of, implied_predicate
from headgate.protocol.expressions.lexer import TokenKind
from headgate.protocol.expressions.parser import begins_query, parse_tokens
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.schema.types import StructType
from headgate.sql.keywords import CALLING_NOTHING, CHOOSING, NONDETERMINISTIC, ROWWISE
from headgate.sql.positions import tokenize
from headgate.sql.rewrite import StandIn

SUBSTITUTION = "${"  # in `${name}` Spark substitutes the value of a setting, unknown here


@dataclass(frozen=True, slots=True)
class Contents:
    """What a condition or query is made of, besides columns and literals."""

    nondeterministic: tuple[str, ...]  # functions that return another value each time
    has_subquery: bool
    is_rowwise: bool  # every function is known to depend on one row only
    is_choosing: bool  # a query that may return other rows each time


def contents(text: str) -> Contents:
    """Find out what a condition or query is made of."""
    tokens = tokenize(text)
    nondeterministic: list[str] = []
    has_subquery = False
    is_choosing = SUBSTITUTION in text
    is_rowwise = not is_choosing
    for at, token in enumerate(tokens[:-1]):
        following = tokens[at + 1]
        calls = token.is_name and following.is_key("(")
        if calls and (token.kind is TokenKind.QUOTED or token.key not in CALLING_NOTHING):
            is_rowwise &= token.kind is TokenKind.WORD and token.key in ROWWISE
        if calls and token.name.upper() in NONDETERMINISTIC:
            nondeterministic.append(token.name)
        is_choosing |= token.is_key(*CHOOSING)
        has_subquery |= (
            token.key == "(" and at + 2 < len(tokens) and begins_query(following, tokens[at + 2])
        )
    return Contents(tuple(nondeterministic), has_subquery, is_rowwise, is_choosing)


def condition_predicate(
    condition: str,
    schema: StructType,
    *,
    labels: Collection[tuple[str, ...]] = (),
    others: Collection[str] = (),
    is_utc: bool = False,
) -> Predicate | None:
    """Return what a condition implies about the files of one table: see `implied_predicate`."""
    if SUBSTITUTION in condition:
        return None
    tree = parse_tokens(tokenize(condition))
    return implied_predicate(tree, schema, labels=labels, others=others, is_utc=is_utc)


def table_predicate(
    stand_in: StandIn, schema: StructType, *, is_utc: bool = False
) -> Predicate | None:
    """Return what a query implies about the files of one of its tables; None for nothing."""
    reference, name = stand_in.reference, stand_in.table
    labels: list[tuple[str, ...]] = [(reference.label,)]
    if reference.alias is None:
        labels += [(name.schema, name.table), (name.catalog, name.schema, name.table)]
    implied = [
        condition_predicate(
            condition.text, schema, labels=labels, others=reference.others, is_utc=is_utc
        )
        for condition in reference.conditions
    ]
    return all_of([predicate for predicate in implied if predicate is not None])
