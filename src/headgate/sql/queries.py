"""Find the tables in a query, and the conditions that each of their rows must meet.

Parses blocks, FROM clauses, joins and named queries. Expressions are only searched for the queries
inside them, so any expression that Spark can evaluate is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.names import fold
from headgate.protocol.expressions.lexer import Token, TokenKind
from headgate.protocol.expressions.parser import begins_query
from headgate.sql.cursor import Cursor
from headgate.sql.keywords import CLAUSES, NOT_AN_ALIAS, SET_OPERATORS
from headgate.sql.positions import refused, tokenize
from headgate.sql.statements import Piece, TableReference

_JOINS = frozenset({"JOIN", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "NATURAL"})
_AFTER_BLOCK = CLAUSES | SET_OPERATORS | {"|>"}
_AFTER_RELATION = _AFTER_BLOCK | _JOINS | {"PIVOT", "UNPIVOT"}

Names = frozenset[str]  # of the named queries that are visible, folded


@dataclass(frozen=True, slots=True)
class Reference:
    """A table in a query.

    `conditions` are met by every row of it that can matter to the result. `label` is what columns
    of it are qualified with, `others` what those of its neighbours are, folded.
    """

    table: TableReference
    alias: str | None
    alias_at: int | None  # the offset where an alias may be inserted, if one is allowed
    conditions: tuple[Piece, ...]
    others: frozenset[str]
    block: Piece

    @property
    def label(self) -> str:
        return self.alias or self.table.name.parts[-1]


def find_references(script: str, piece: Piece | None = None) -> tuple[Reference, ...]:
    """Find every table in a query or expression, a piece of a script, in the order of the text."""
    piece = piece or Piece(script, 0)
    finder = _Finder(Cursor(script, tokenize(script, piece.start, piece.end)))
    try:
        finder.everything()
    except RecursionError:
        raise refused(script, piece.start, "this is nested too deeply") from None
    return tuple(sorted(finder.found, key=lambda reference: reference.table.piece.start))


@dataclass(slots=True)
class _Relation:
    """Something in a FROM clause, while its block is being read."""

    label: str | None
    table: TableReference | None = None
    alias: str | None = None
    alias_at: int | None = None
    # Whether a condition on the joined rows is one on its own rows: not on the nullable side of an
    # outer join, nor sampled, pivoted or with renamed columns.
    is_open: bool = True
    conditions: list[Piece] = field(default_factory=list)


class _Finder:
    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.found: list[Reference] = []

    def everything(self) -> None:
        cursor = self._cursor
        none: Names = frozenset()
        if self._begins_query() or cursor.sees("("):
            self._query(none)
        self._scan(none)
        if not cursor.is_at_end:
            raise cursor.unexpected("the end")

    def _begins_query(self, ahead: int = 0) -> bool:
        return begins_query(self._cursor.peek(ahead), self._cursor.peek(ahead + 1))

    # Queries and blocks

    def _query(self, names: Names) -> None:
        """Read a query, up to its closing parenthesis or the end."""
        if self._cursor.took("WITH"):
            names = self._with(names)
        self._term(names)
        self._rest_of_query(names)

    def _with(self, names: Names) -> Names:
        cursor = self._cursor
        is_recursive = cursor.took("RECURSIVE")
        while True:
            name = fold(cursor.identifier("the name of a query"))
            if cursor.sees("(") and not self._begins_query(1):
                cursor.skip_group()  # names for its columns
            while not cursor.sees_any("(", "AS") and not cursor.is_at_end:
                cursor.take()  # MAX RECURSION LEVEL n
            cursor.took("AS")
            cursor.expect("(")
            self._query(names | {name} if is_recursive else names)
            cursor.expect(")")
            names |= {name}
            if not cursor.took(","):
                return names

    def _rest_of_query(self, names: Names) -> None:
        cursor = self._cursor
        while not cursor.is_at_end and not cursor.sees_any(")", "]"):
            if self._is_set_operator():
                self._set_operation(names)
            elif cursor.took("|>"):
                self._close(self._pipe(names), cursor.peek().start)
            else:
                self._scan(names, SET_OPERATORS | {"|>"})

    def _is_set_operator(self) -> bool:
        cursor = self._cursor
        if not cursor.sees_any(*SET_OPERATORS):
            return False
        ahead = 1
        while cursor.peek(ahead).key in ("ALL", "DISTINCT", "BY", "NAME", "("):
            ahead += 1
        return self._begins_query(ahead)

    def _set_operation(self, names: Names) -> None:
        cursor = self._cursor
        cursor.take()
        while cursor.took_any("ALL", "DISTINCT", "BY", "NAME"):
            pass
        self._term(names)

    def _term(self, names: Names) -> None:
        cursor = self._cursor
        if cursor.took("("):
            self._query(names)
            cursor.expect(")")
        elif cursor.took("TABLE"):
            start = cursor.peek().start
            self._close([self._table(names, has_alias=False)], start)
        elif cursor.took("VALUES"):
            self._inline_rows(names)
        elif cursor.sees("FROM"):
            self._from_first(names)
        elif cursor.sees_any("SELECT", "MAP", "REDUCE"):
            self._block(names)

    def _block(self, names: Names) -> None:
        cursor = self._cursor
        start = cursor.take().start
        self._scan(names, _AFTER_BLOCK | {"FROM"})
        relations: list[_Relation] = []
        if cursor.took("FROM"):
            relations = self._from(names)
        where = self._clauses(names, relations)
        if where is not None:
            _meet(relations, where)
        while cursor.took("|>"):
            relations += self._pipe(names)
        self._close(relations, start)

    def _from_first(self, names: Names) -> None:
        cursor = self._cursor
        start = cursor.take().start
        relations = self._from(names)
        wheres = [self._clauses(names, relations)]
        while cursor.sees_any("SELECT", "MAP", "REDUCE"):
            cursor.take()
            self._scan(names, _AFTER_BLOCK)
            wheres.append(self._clauses(names, relations))
        while cursor.took("|>"):
            relations += self._pipe(names)
        if len(wheres) == 2 and wheres[1] is not None:  # only one SELECT uses the rows
            _meet(relations, wheres[1])
        self._close(relations, start)

    def _clauses(self, names: Names, relations: list[_Relation]) -> Piece | None:
        """Read the clauses after FROM; return the condition of WHERE."""
        cursor = self._cursor
        where: Piece | None = None
        while True:
            if cursor.took("LATERAL", "VIEW"):
                relations.append(self._lateral_view(names))
            elif cursor.took("WHERE"):
                where = self._piece(names, _AFTER_BLOCK)
            elif cursor.sees_clause and not cursor.sees_any("SELECT", "LATERAL"):
                cursor.take()
                self._scan(names, _AFTER_BLOCK)
            else:
                return where

    def _lateral_view(self, names: Names) -> _Relation:
        cursor = self._cursor
        cursor.took("OUTER")
        cursor.name("a function")
        self._group(names)
        label = cursor.alias()
        if cursor.took("AS") or (cursor.peek().is_name and not cursor.sees_any(*_AFTER_RELATION)):
            cursor.several(lambda: cursor.identifier("a column"))
        return _Relation(label)

    def _pipe(self, names: Names) -> list[_Relation]:
        """Read one step of a pipe, which does not filter the tables of the steps before it."""
        relations: list[_Relation] = []
        if (join := self._join()) is not None:
            relations = self._joined(names, [], join)
            for relation in relations:
                relation.is_open = False
                relation.conditions.clear()
        elif self._is_set_operator():
            self._set_operation(names)
        self._scan(names, frozenset({"|>"}))
        return relations

    def _close(self, relations: Iterable[_Relation], start: int) -> None:
        """End a block that began at `start`, and record its tables."""
        relations = list(relations)
        block = self._cursor.piece(start, max(start, self._cursor.end))
        labels = [fold(relation.label) for relation in relations if relation.label is not None]
        for relation in relations:
            if relation.table is None or relation.label is None:
                continue
            own = fold(relation.label)
            is_clear = labels.count(own) == 1
            self.found.append(
                Reference(
                    relation.table,
                    relation.alias,
                    relation.alias_at,
                    tuple(relation.conditions) if is_clear else (),
                    frozenset(labels) - {own},
                    block,
                )
            )

    # FROM

    def _from(self, names: Names) -> list[_Relation]:
        relations = self._relation(names)
        while self._cursor.took(","):
            relations += self._relation(names)
        return relations

    def _relation(self, names: Names) -> list[_Relation]:
        cursor = self._cursor
        cursor.took("LATERAL")
        relations = self._primary(names)
        while True:
            if (join := self._join()) is not None:
                relations = self._joined(names, relations, join)
            elif cursor.sees_any("PIVOT", "UNPIVOT"):
                cursor.take()
                while cursor.took_any("INCLUDE", "EXCLUDE", "NULLS"):
                    pass
                self._group(names)
                cursor.alias()
                _shut(relations)
            else:
                return relations

    def _join(self) -> tuple[str, bool] | None:
        """Take the words of a join; return its kind and whether it is NATURAL, or None."""
        cursor = self._cursor
        for words, kind in _JOIN_KINDS.items():
            if cursor.took(*words):
                return kind
        return None

    def _joined(
        self, names: Names, left: list[_Relation], join: tuple[str, bool]
    ) -> list[_Relation]:
        cursor = self._cursor
        kind, by_names = join
        cursor.took("LATERAL")
        right = self._primary(names)
        on: Piece | None = None
        if cursor.took("ON"):
            on = self._piece(names, _AFTER_RELATION)
        elif cursor.took("USING"):
            cursor.skip_group()
            by_names = True
        if on is not None:
            # The condition filters the rows that the join drops if it fails, but not those that it
            # keeps, with nulls or because nothing matches.
            if kind in ("INNER", "RIGHT", "SEMI"):
                _meet(left, on)
            if kind in ("INNER", "LEFT", "SEMI", "ANTI"):
                _meet(right, on)
        if kind in ("RIGHT", "FULL"):
            _shut(left)
        # After SEMI and ANTI the columns of the right side cannot be named; after USING a plain
        # name is the left side's.
        if kind in ("LEFT", "FULL", "SEMI", "ANTI") or (by_names and kind == "INNER"):
            _shut(right)
        return left + right

    def _primary(self, names: Names) -> list[_Relation]:
        cursor = self._cursor
        if cursor.sees("("):
            return self._parenthesis(names)
        if cursor.sees("VALUES") and self._begins_query():
            cursor.take()
            return [_Relation(self._inline_rows(names))]
        if not cursor.peek().is_name:
            return []  # a parameter, or an error that Spark reports
        if cursor.sees("STREAM") and self._is_stream():
            raise cursor.refused("a query cannot read a stream", "Use spark.readStream.")
        if self._is_function():
            cursor.name()
            self._group(names)
            return [_Relation(self._alias()[0])]
        return [self._table(names, has_alias=True)]

    def _is_function(self) -> bool:
        cursor = self._cursor
        if cursor.sees("IDENTIFIER"):
            return False
        ahead = 1
        while cursor.peek(ahead).key == "." and cursor.peek(ahead + 1).is_name:
            ahead += 2
        return cursor.peek(ahead).is_key("(")

    def _is_stream(self) -> bool:
        """Return True if STREAM is the keyword and not a table: then a name follows."""
        following = self._cursor.peek(1)
        is_free = following.kind is TokenKind.QUOTED or following.key not in NOT_AN_ALIAS
        return following.is_name and is_free

    def _table(self, names: Names, *, has_alias: bool) -> _Relation:
        cursor = self._cursor
        table = cursor.table_reference()
        parts = table.name.parts
        is_named_query = len(parts) == 1 and fold(parts[0]) in names and table.as_of is None
        if not has_alias:
            return _Relation(parts[-1], None if is_named_query else table, is_open=False)
        if cursor.sees("WITH", "(") or cursor.sees("WITH", "OPTIONS", "("):
            cursor.take()
            cursor.took("OPTIONS")
            cursor.skip_group()
        is_sampled = self._sample(names)
        alias_at = cursor.end
        alias, is_renamed = self._alias()
        return _Relation(
            alias or parts[-1],
            None if is_named_query else table,
            alias,
            alias_at,
            is_open=not (is_sampled or is_renamed),
        )

    def _parenthesis(self, names: Names) -> list[_Relation]:
        cursor = self._cursor
        cursor.expect("(")
        relations: list[_Relation] = []
        if self._begins_query():
            self._query(names)
            is_query = True
        else:
            start = cursor.peek().start
            relations = self._relation(names)
            is_query = not cursor.sees(")")  # set operators, ORDER BY
            if is_query:
                self._close(relations, start)
                self._rest_of_query(names)
        cursor.expect(")")
        is_sampled = self._sample(names)
        alias, is_renamed = self._alias()
        if is_query:
            return [_Relation(alias)]
        if is_sampled or is_renamed or alias is not None:
            _shut(relations)
        return [*relations, _Relation(alias)] if alias is not None else relations

    def _inline_rows(self, names: Names) -> str | None:
        """Read rows after VALUES; return their alias."""
        cursor = self._cursor
        while True:
            if cursor.sees("("):
                self._group(names)
            else:
                cursor.take()
            self._scan(names, at_alias=True)
            if not cursor.took(","):
                return self._alias()[0]

    def _sample(self, names: Names) -> bool:
        cursor = self._cursor
        if not cursor.took("TABLESAMPLE"):
            return False
        self._group(names)
        if cursor.took("REPEATABLE"):
            cursor.skip_group()
        return True

    def _alias(self) -> tuple[str | None, bool]:
        """Take an alias; also return whether it renames the columns."""
        cursor = self._cursor
        alias = cursor.alias()
        if alias is None or not cursor.sees("("):
            return alias, False
        cursor.skip_group()
        return alias, True

    # Expressions

    def _piece(self, names: Names, stops: frozenset[str]) -> Piece | None:
        cursor = self._cursor
        start = cursor.peek().start
        self._scan(names, stops, at_comma=True)
        return cursor.piece(start, cursor.end) if cursor.end > start else None

    def _scan(
        self,
        names: Names,
        stops: frozenset[str] = frozenset(),
        *,
        at_comma: bool = False,
        at_alias: bool = False,
    ) -> None:
        """Skip to one of the words after an operand, to a closing bracket or the end."""
        cursor = self._cursor
        begun = False
        while not cursor.is_at_end:
            token = cursor.peek()
            if token.kind is TokenKind.SIGN:
                if token.key in (")", "]") or token.key in stops:
                    return
                if token.key == "," and (at_comma or at_alias):
                    return
                if token.key in ("(", "["):
                    self._group(names)
                    begun = True
                    continue
            elif token.is_name and not cursor.is_behind_dot:
                is_free = begun or at_alias
                if is_free and cursor.has_operand and self._ends(token, stops, at_alias):
                    return
                if not stops & SET_OPERATORS and self._is_set_operator():
                    self._set_operation(names)
                    continue
                if self._is_table_argument():
                    self._table_argument(names)
                    continue
            cursor.take()
            begun = True

    def _ends(self, token: Token, stops: frozenset[str], at_alias: bool) -> bool:
        if at_alias:
            return True
        if token.kind is not TokenKind.WORD or token.key not in stops:
            return False
        if token.key in SET_OPERATORS:
            return self._is_set_operator()
        return token.key not in CLAUSES or self._cursor.sees_clause

    def _group(self, names: Names) -> None:
        """Read the content of brackets: a query, or expressions."""
        cursor = self._cursor
        if not cursor.sees_any("(", "["):
            raise cursor.unexpected("`(`")
        opened = cursor.take()
        is_query = opened.key == "(" and self._begins_query()
        if is_query and not self._is_table_argument():
            self._query(names)
        self._scan(names)
        closing = ")" if opened.key == "(" else "]"
        if cursor.is_at_end:
            raise refused(cursor.text, opened.start, f"the `{opened.key}` is never closed")
        cursor.expect(closing)

    def _is_table_argument(self) -> bool:
        """Return True if TABLE t or TABLE(…) is an argument of a function here."""
        cursor = self._cursor
        last = cursor.last
        if not cursor.sees("TABLE") or last is None or last.key not in ("(", ",", "=>"):
            return False
        return cursor.peek(1).is_name or cursor.peek(1).key == "("

    def _table_argument(self, names: Names) -> None:
        cursor = self._cursor
        cursor.expect("TABLE")
        if cursor.sees("(") and self._begins_query(1):
            self._group(names)
            return
        is_enclosed = cursor.took("(")
        start = cursor.peek().start
        self._close([self._table(names, has_alias=False)], start)
        if is_enclosed:
            cursor.expect(")")


def _meet(relations: Iterable[_Relation], condition: Piece) -> None:
    for relation in relations:
        if relation.is_open:
            relation.conditions.append(condition)


def _shut(relations: Iterable[_Relation]) -> None:
    for relation in relations:
        relation.is_open = False


_JOIN_KINDS = {
    ((*(["NATURAL"] if is_natural else []), *spelling.split())): (kind, is_natural)
    for is_natural in (False, True)
    for kind, spellings in {
        "INNER": ["JOIN", "INNER JOIN", "CROSS JOIN"],
        "LEFT": ["LEFT JOIN", "LEFT OUTER JOIN"],
        "RIGHT": ["RIGHT JOIN", "RIGHT OUTER JOIN"],
        "FULL": ["FULL JOIN", "FULL OUTER JOIN"],
        "SEMI": ["SEMI JOIN", "LEFT SEMI JOIN"],
        "ANTI": ["ANTI JOIN", "LEFT ANTI JOIN"],
    }.items()
    for spelling in spellings
}
