"""Replace table names in a query by names of relations, within the user's own text.

A name becomes `{t0}`, `{t1}` …, for `spark.sql(text, t0=…, t1=…)`; every other brace is doubled.
Nothing else changes, and every place in what Spark sees can be traced back to the user's text.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headgate.names import TableName, fold
from headgate.protocol.expressions.lexer import Token, TokenKind
from headgate.sql.cursor import Cursor
from headgate.sql.keywords import BARE_CLOCKS
from headgate.sql.positions import tokenize
from headgate.sql.queries import Reference, find_references
from headgate.sql.statements import Name, Piece

STAND_IN_WIDTH = 41  # of the name PySpark gives a DataFrame in the text that Spark parses


# Literals of one moment that replace functions of the current time, by their names in upper case.
Moment: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StandIn:
    """A table of ours in the text, and the name of its relation there."""

    name: str
    table: TableName
    reference: Reference


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement in the user's text; `stand_in` is the name of the relation, if it is one."""

    start: int
    end: int
    text: str
    stand_in: str | None = None


@dataclass(frozen=True, slots=True)
class Spliced:
    """A piece of the user's text, ready for Spark."""

    piece: Piece
    edits: tuple[Edit, ...]  # in the order of the text
    stand_ins: tuple[StandIn, ...]

    @property
    def text(self) -> str:
        """The text with `{t0}` and doubled braces."""
        return "".join(self._parts(_doubled))

    @property
    def expression(self) -> str:
        """The text if it has no tables, for functions that do no formatting."""
        return "".join(self._parts(str))

    def _parts(self, write: Callable[[str], str]) -> Iterator[str]:
        for kept, edit in self._runs():
            yield write(kept.text)
            if edit is not None:
                yield write(edit.text) if edit.stand_in is None else f"{{{edit.stand_in}}}"

    def origin(self, offset: int, width: int = STAND_IN_WIDTH) -> int:
        """Convert an offset in the text that Spark parsed to one in the user's script.

        What Spark parsed has single braces, and names of `width` characters for the relations.
        """
        for kept, edit in self._runs():
            if offset < len(kept.text) or edit is None:
                return min(kept.start + offset, self.piece.end)
            offset -= len(kept.text)
            length = len(edit.text) + (0 if edit.stand_in is None else width)
            if offset < length:
                return edit.start
            offset -= length
        return self.piece.end

    def _runs(self) -> Iterator[tuple[Piece, Edit | None]]:
        """Yield the pieces that are kept, each with the edit that follows it; the last has none."""
        at = self.piece.start
        for edit in self.edits:
            yield self._cut(at, edit.start), edit
            at = edit.end
        yield self._cut(at, self.piece.end), None

    def _cut(self, start: int, end: int) -> Piece:
        base = self.piece.start
        return Piece(self.piece.text[start - base : end - base], start)


def splice(
    script: str,
    piece: Piece | None = None,
    *,
    resolve: Callable[[Name], TableName | None],
    within: Piece | None = None,
    targets: Sequence[TableName] = (),
    first: int = 0,
    moment: Moment | None = None,
) -> Spliced:
    """Replace the names of our tables in a query or expression, a piece of a script.

    `resolve` returns the full name of a table of ours, None for any other. `within` limits the
    search to a query inside the piece. `targets` are tables that Spark knows by the last part of
    their names, so longer qualifiers of their columns are shortened. Stand-ins are numbered from
    `first`. A `moment` replaces the functions of the current time.
    """
    piece = piece or Piece(script, 0)
    searched = within or piece
    found = find_references(script, searched)
    ours = [(r, name) for r in found if (name := resolve(r.table.name)) is not None]
    stand_ins = tuple(StandIn(f"t{first + i}", name, r) for i, (r, name) in enumerate(ours))
    edits: list[Edit] = []
    scopes = [_Scope(target, searched, target.table) for target in targets]
    for stand_in, label in zip(stand_ins, _labels(stand_ins), strict=True):
        reference = stand_in.reference
        piece_of_table = reference.table.piece
        edits.append(Edit(piece_of_table.start, piece_of_table.end, "", stand_in.name))
        if reference.alias is None and (at := reference.alias_at) is not None:
            edits.append(Edit(at, at, f" AS {quoted(label)}"))
            scopes.append(_Scope(stand_in.table, reference.block, label))
    taken = {reference.table.piece.start for reference in found}
    edits += _shortened(script, searched, scopes, taken)
    if moment is not None:
        edits += _timed(script, searched, moment)
    edits.sort(key=lambda edit: (edit.start, edit.end))
    return Spliced(piece, tuple(edits), stand_ins)


def quoted(name: str) -> str:
    """Quote a name for Spark."""
    return f"`{name.replace('`', '``')}`"


@dataclass(frozen=True, slots=True)
class _Scope:
    """A block in which columns may have a longer qualifier than the label, which replaces it."""

    table: TableName
    block: Piece
    label: str

    def qualifies(self, chain: Sequence[Token]) -> int:
        """Return how many parts of a dotted name are this table's name; 0 if none are."""
        for size in (3, 2):
            parts = tuple(fold(token.name) for token in chain[:size])
            if len(parts) == size and parts == self.table.key[-size:]:
                return size
        return 0


def _labels(stand_ins: Sequence[StandIn]) -> list[str]:
    """Return the label of each table in its block."""
    # Two tables of one block may share the last part of their names; then the full name is the
    # label, since the qualifiers of their columns must stay apart.

    def shared(stand_in: StandIn) -> tuple[Piece, str]:
        return stand_in.reference.block, fold(stand_in.reference.label)

    different = {(shared(s), s.table.key) for s in stand_ins if s.reference.alias is None}
    tables = Counter(block_and_label for block_and_label, _ in different)
    return [
        str(s.table) if s.reference.alias is None and tables[shared(s)] > 1 else s.reference.label
        for s in stand_ins
    ]


def _shortened(
    script: str, piece: Piece, scopes: Sequence[_Scope], taken: set[int]
) -> Iterator[Edit]:
    """Replace full names that qualify a column: Spark knows a table with an alias only by that."""
    if not scopes:
        return
    tokens = tokenize(script, piece.start, piece.end)
    at = 0
    while at < len(tokens):
        chain = _chain(tokens, at)
        if not chain or chain[0].start in taken:
            at += max(1, 2 * len(chain) - 1)
            continue
        after = tokens[at + 2 * len(chain) - 1]
        for scope in scopes:
            size = scope.qualifies(chain)
            is_column = len(chain) > size or after.key == "."  # a dot, and then a star
            if (
                size
                and is_column
                and after.key != "("
                and scope.block.start <= chain[0].start < scope.block.end
            ):
                yield Edit(chain[0].start, chain[size - 1].end, quoted(scope.label))
                break
        at += 2 * len(chain) - 1


def _chain(tokens: Sequence[Token], at: int) -> list[Token]:
    """Return the parts of a dotted name that begins here."""
    chain: list[Token] = []
    while tokens[at].is_name:
        chain.append(tokens[at])
        if tokens[at + 1].key != "." or not tokens[at + 2].is_name:
            break
        at += 2
    return chain


def _timed(script: str, piece: Piece, moment: Moment) -> Iterator[Edit]:
    cursor = Cursor(script, tokenize(script, piece.start, piece.end))
    while not cursor.is_at_end:
        token = cursor.peek()
        is_named = cursor.last is not None and cursor.last.key in ("AS", ".")
        is_operand = not (is_named or cursor.has_operand)
        literal = moment.get(token.key) if token.kind is TokenKind.WORD and is_operand else None
        is_call = cursor.peek(1).key == "(" and cursor.peek(2).key == ")"
        is_bare = token.key in BARE_CLOCKS and cursor.peek(1).key not in ("(", ".")
        cursor.take()
        if literal is None or not (is_call or is_bare):
            continue
        end = token.end
        if is_call:
            cursor.take()
            end = cursor.take().end
        yield Edit(token.start, end, literal)


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
