"""Find the tables in a query, and the conditions that each of their rows must meet.

Parses blocks, FROM clauses, joins and named queries. Expressions are only searched for the queries
inside them, so any expression that Spark can evaluate is accepted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headgate.names import fold
from headgate.protocol.expressions.lexer import Token, TokenKind
from headgate.protocol.expressions.parser import begins_query
from headgate.sql.cursor import Cursor
from headgate.sql.keywords import CLAUSES, NOT_AN_ALIAS, SET_OPERATORS
from headgate.sql.positions import refused, tokenize
from headgate.sql.statements import Piece, TableReference

_JOINS = frozenset({"JOIN", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "NATURAL"})
_COUNTED = "count(1)"  # the name of a column in Spark, whatever is counted
_AFTER_BLOCK = CLAUSES | SET_OPERATORS | {"|>"}
_AFTER_RELATION = _AFTER_BLOCK | _JOINS | {"PIVOT", "UNPIVOT"}


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
    finder = _Finder(script, tokenize(script, piece.start, piece.end))
    try:
        finder.everything()
    except RecursionError:
        raise refused(script, piece.start, "this is nested too deeply") from None
    return tuple(sorted(finder.found, key=lambda reference: reference.table.piece.start))


def find_count(script: str, piece: Piece) -> tuple[TableReference, str] | None:
    """Parse `SELECT count(*) FROM t`, with or without aliases; None for any other query.

    Returns the table, and the name of the column with the number of its rows.
    """
    cursor = Cursor(script, tokenize(script, piece.start, piece.end))
    if not cursor.took("SELECT", "COUNT", "("):
        return None
    if not cursor.took("*") and not (cursor.peek().text == "1" and cursor.take()):
        return None
    if not cursor.took(")"):
        return None
    column = None if cursor.sees("FROM") else cursor.alias()
    if not cursor.took("FROM") or not cursor.peek().is_name or cursor.sees("IDENTIFIER", "("):
        return None
    table = cursor.table_reference()
    cursor.alias()
    return (table, column or _COUNTED) if cursor.is_at_end else None


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


class _Finder(Cursor):
    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        super().__init__(text, tokens)
        self.found: list[Reference] = []
        self._names: frozenset[str] = frozenset()  # of the named queries that are visible, folded

    def everything(self) -> None:
        if self._begins_query() or self.sees("("):
            self._query()
        self._skip_to()
        if not self.is_at_end:
            raise self.unexpected("the end")

    def _begins_query(self, ahead: int = 0) -> bool:
        return begins_query(self.peek(ahead), self.peek(ahead + 1))

    # Queries and blocks

    def _query(self) -> None:
        """Read a query, up to its closing parenthesis or the end."""
        outer = self._names
        if self.took("WITH"):
            self._with()
        self._term()
        self._rest_of_query()
        self._names = outer

    def _with(self) -> None:
        is_recursive = self.took("RECURSIVE")
        while True:
            name = fold(self.identifier("the name of a query"))
            if self.sees("(") and not self._begins_query(1):
                self.skip_group()  # names for its columns
            while not self.sees_any("(", "AS") and not self.is_at_end:
                self.take()  # MAX RECURSION LEVEL n
            self.took("AS")
            self.expect("(")
            outer = self._names
            self._names |= {name} if is_recursive else set()
            self._query()
            self._names = outer | {name}
            self.expect(")")
            if not self.took(","):
                return

    def _rest_of_query(self) -> None:
        while not self.is_at_end and not self.sees_any(")", "]"):
            if self._is_set_operator():
                self._set_operation()
            elif self.took("|>"):
                self._close(self._pipe(), self.peek().start)
            else:
                self._skip_to(SET_OPERATORS | {"|>"})

    def _is_set_operator(self) -> bool:
        if not self.sees_any(*SET_OPERATORS):
            return False
        ahead = 1
        while self.peek(ahead).key in ("ALL", "DISTINCT", "BY", "NAME", "("):
            ahead += 1
        return self._begins_query(ahead)

    def _set_operation(self) -> None:
        self.take()
        while self.took_any("ALL", "DISTINCT", "BY", "NAME"):
            pass
        self._term()

    def _term(self) -> None:
        if self.took("("):
            self._query()
            self.expect(")")
        elif self.took("TABLE"):
            start = self.peek().start
            self._close([self._table(has_alias=False)], start)
        elif self.took("VALUES"):
            self._inline_rows()
        elif self.sees_any("FROM", "SELECT", "MAP", "REDUCE"):
            self._block()

    def _block(self) -> None:
        """Read SELECT … FROM …, or FROM … and one SELECT or several."""
        start = self.peek().start
        relations: list[_Relation] = []
        if self.took("FROM"):
            relations = self._from()
            self._clauses(relations)
        wheres: list[Piece | None] = []
        while self.took_any("SELECT", "MAP", "REDUCE"):
            self._skip_to(_AFTER_BLOCK | {"FROM"})
            if self.took("FROM"):
                relations += self._from()
            wheres.append(self._clauses(relations))
        while self.took("|>"):
            relations += self._pipe()
        if len(wheres) == 1 and wheres[0] is not None:  # only one SELECT uses the rows
            _meet(relations, wheres[0])
        self._close(relations, start)

    def _clauses(self, relations: list[_Relation]) -> Piece | None:
        """Read the clauses after FROM; return the condition of WHERE."""
        where: Piece | None = None
        while True:
            if self.took("LATERAL", "VIEW"):
                relations.append(self._lateral_view())
            elif self.took("WHERE"):
                where = self._piece(_AFTER_BLOCK)
            elif self.sees_clause and not self.sees_any("SELECT", "LATERAL"):
                self.take()
                self._skip_to(_AFTER_BLOCK)
            else:
                return where

    def _lateral_view(self) -> _Relation:
        self.took("OUTER")
        self.name("a function")
        self._group()
        label = self.alias()
        if self.took("AS") or (self.peek().is_name and not self.sees_any(*_AFTER_RELATION)):
            self.several(lambda: self.identifier("a column"))
        return _Relation(label)

    def _pipe(self) -> list[_Relation]:
        """Read one step of a pipe, which does not filter the tables of the steps before it."""
        relations: list[_Relation] = []
        if (join := self._join()) is not None:
            relations = self._joined([], join)
            for relation in relations:
                relation.is_open = False
                relation.conditions.clear()
        elif self._is_set_operator():
            self._set_operation()
        self._skip_to(frozenset({"|>"}))
        return relations

    def _close(self, relations: Iterable[_Relation], start: int) -> None:
        """End a block that began at `start`, and record its tables."""
        relations = list(relations)
        block = self.piece(start, max(start, self.end))
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

    def _from(self) -> list[_Relation]:
        relations = self._relation()
        while self.took(","):
            relations += self._relation()
        return relations

    def _relation(self) -> list[_Relation]:
        self.took("LATERAL")
        relations = self._primary()
        while True:
            if (join := self._join()) is not None:
                relations = self._joined(relations, join)
            elif self.sees_any("PIVOT", "UNPIVOT"):
                self.take()
                while self.took_any("INCLUDE", "EXCLUDE", "NULLS"):
                    pass
                self._group()
                self.alias()
                _shut(relations)
            else:
                return relations

    def _join(self) -> tuple[str, bool] | None:
        """Take the words of a join; return its kind and whether it is NATURAL, or None."""
        for words, kind in _JOIN_KINDS.items():
            if self.took(*words):
                return kind
        return None

    def _joined(self, left: list[_Relation], join: tuple[str, bool]) -> list[_Relation]:
        kind, by_names = join
        self.took("LATERAL")
        right = self._primary()
        on: Piece | None = None
        if self.took("ON"):
            on = self._piece(_AFTER_RELATION)
        elif self.took("USING"):
            self.skip_group()
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

    def _primary(self) -> list[_Relation]:
        if self.sees("("):
            return self._parenthesis()
        if self.sees("VALUES") and self._begins_query():
            self.take()
            return [_Relation(self._inline_rows())]
        if not self.peek().is_name:
            return []  # a parameter, or an error that Spark reports
        if self.sees("STREAM") and self._is_stream():
            raise self.refused("a query cannot read a stream", "Use spark.readStream.")
        if self._is_function():
            self.name()
            self._group()
            return [_Relation(self._alias()[0])]
        return [self._table(has_alias=True)]

    def _is_function(self) -> bool:
        if self.sees("IDENTIFIER"):
            return False
        ahead = 1
        while self.peek(ahead).key == "." and self.peek(ahead + 1).is_name:
            ahead += 2
        return self.peek(ahead).is_key("(")

    def _is_stream(self) -> bool:
        """Return True if STREAM is the keyword and not a table: then a name follows."""
        following = self.peek(1)
        is_free = following.kind is TokenKind.QUOTED or following.key not in NOT_AN_ALIAS
        return following.is_name and is_free

    def _table(self, *, has_alias: bool) -> _Relation:
        table = self.table_reference()
        parts = table.name.parts
        is_named_query = len(parts) == 1 and fold(parts[0]) in self._names and table.as_of is None
        if not has_alias:
            return _Relation(parts[-1], None if is_named_query else table, is_open=False)
        if self.sees("WITH", "(") or self.sees("WITH", "OPTIONS", "("):
            self.take()
            self.took("OPTIONS")
            self.skip_group()
        is_sampled = self._sample()
        alias_at = self.end
        alias, is_renamed = self._alias()
        return _Relation(
            alias or parts[-1],
            None if is_named_query else table,
            alias,
            alias_at,
            is_open=not (is_sampled or is_renamed),
        )

    def _parenthesis(self) -> list[_Relation]:
        self.expect("(")
        relations: list[_Relation] = []
        if self._begins_query():
            self._query()
            is_query = True
        else:
            start = self.peek().start
            relations = self._relation()
            is_query = not self.sees(")")  # set operators, ORDER BY
            if is_query:
                self._close(relations, start)
                self._rest_of_query()
        self.expect(")")
        is_sampled = self._sample()
        alias, is_renamed = self._alias()
        if is_query:
            return [_Relation(alias)]
        if is_sampled or is_renamed or alias is not None:
            _shut(relations)
        return [*relations, _Relation(alias)] if alias is not None else relations

    def _inline_rows(self) -> str | None:
        """Read rows after VALUES; return their alias."""
        while True:
            if self.sees("("):
                self._group()
            else:
                self.take()
            self._skip_to(at_alias=True)
            if not self.took(","):
                return self._alias()[0]

    def _sample(self) -> bool:
        if not self.took("TABLESAMPLE"):
            return False
        self._group()
        if self.took("REPEATABLE"):
            self.skip_group()
        return True

    def _alias(self) -> tuple[str | None, bool]:
        """Take an alias; also return whether it renames the columns."""
        alias = self.alias()
        if alias is None or not self.sees("("):
            return alias, False
        self.skip_group()
        return alias, True

    # Expressions

    def _piece(self, stops: frozenset[str]) -> Piece | None:
        start = self.peek().start
        self._skip_to(stops, at_comma=True)
        return self.piece(start, self.end) if self.end > start else None

    def _skip_to(
        self,
        stops: frozenset[str] = frozenset(),
        *,
        at_comma: bool = False,
        at_alias: bool = False,
    ) -> None:
        """Skip to one of the words after an operand, to a closing bracket or the end."""
        begun = False
        while not self.is_at_end:
            token = self.peek()
            if token.kind is TokenKind.SIGN:
                if token.key in (")", "]") or token.key in stops:
                    return
                if token.key == "," and (at_comma or at_alias):
                    return
                if token.key in ("(", "["):
                    self._group()
                    begun = True
                    continue
            elif token.is_name and not self.is_after_dot:
                is_free = begun or at_alias
                if is_free and self.has_operand and self._ends(token, stops, at_alias):
                    return
                if not stops & SET_OPERATORS and self._is_set_operator():
                    self._set_operation()
                    continue
                if self._is_table_argument():
                    self._table_argument()
                    continue
            self.take()
            begun = True

    def _ends(self, token: Token, stops: frozenset[str], at_alias: bool) -> bool:
        if at_alias:
            return True
        if token.kind is not TokenKind.WORD or token.key not in stops:
            return False
        if token.key in SET_OPERATORS:
            return self._is_set_operator()
        return token.key not in CLAUSES or self.sees_clause

    def _group(self) -> None:
        """Read the content of brackets: a query, or expressions."""
        if not self.sees_any("(", "["):
            raise self.unexpected("`(`")
        opened = self.take()
        is_query = opened.key == "(" and self._begins_query()
        if is_query and not self._is_table_argument():
            self._query()
        self._skip_to()
        closing = ")" if opened.key == "(" else "]"
        if self.is_at_end:
            raise refused(self.text, opened.start, f"the `{opened.key}` is never closed")
        self.expect(closing)

    def _is_table_argument(self) -> bool:
        """Return True if TABLE t or TABLE(…) is an argument of a function here."""
        last = self.last
        if not self.sees("TABLE") or last is None or last.key not in ("(", ",", "=>"):
            return False
        return self.peek(1).is_name or self.peek(1).key == "("

    def _table_argument(self) -> None:
        self.expect("TABLE")
        if self.sees("(") and self._begins_query(1):
            self._group()
            return
        is_enclosed = self.took("(")
        start = self.peek().start
        self._close([self._table(has_alias=False)], start)
        if is_enclosed:
            self.expect(")")


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
