"""The words of SQL: a text cut into tokens exactly where Spark cuts it.

Strings, quoted names, comments (nested ones too) and dollar quotes follow Spark's lexer, so a `;`,
a brace or a keyword inside them is never taken for one. Every token knows its place.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.sql.positions import refused


class Kind(enum.Enum):
    """What a token is."""

    WORD = "word"  # keyword or plain name: which of the two, only its place tells
    QUOTED = "quoted"
    STRING = "string"
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token; `key` is what it is compared by: words in capitals, signs as they are."""

    kind: Kind
    text: str
    start: int
    key: str

    @property
    def end(self) -> int:
        """The place just behind it."""
        return self.start + len(self.text)

    @property
    def is_name(self) -> bool:
        """Whether it can be a part of a name."""
        return self.kind in (Kind.WORD, Kind.QUOTED)

    @property
    def name(self) -> str:
        """The name it spells, quotes taken off."""
        return self.text[1:-1].replace("``", "`") if self.kind is Kind.QUOTED else self.text


_PLAIN = re.compile(
    r"""
      (?P<space>\s+ | --(?:\\\n|[^\r\n])*)
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<string>[rR]'[^']*' | [rR]"[^"]*"
        | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*"
        | (?P<dollar>\$[A-Za-z]*\$).*?(?P=dollar))
    | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:[bB][dD]|[lLsSyYdDfF])?(?!\w))
    | (?P<word>\w+)
    | (?P<sign><=>|<=|>=|<>|!=|==|\|\||\|>|::|->|=>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_UNCLOSED = {"'": "string", '"': "string", "`": "quoted name"}


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Cut a text, or a part of it, into tokens; the last is always the end."""
    end = len(text) if end is None else end
    found = list(_tokens(text, start, end))
    found.append(Token(Kind.END, "", end, ""))
    return found


def _tokens(text: str, position: int, end: int) -> Iterator[Token]:
    while position < end:
        if text.startswith("/*", position):
            position = _behind_comment(text, position, end)
            continue
        match = _PLAIN.match(text, position, end)
        assert match is not None  # the last branch takes any character
        position = match.end()
        spelled = match[0]
        match match.lastgroup if match.lastgroup != "dollar" else "string":
            case "space":
                continue
            case "sign" if spelled in _UNCLOSED:
                raise refused(text, match.start(), f"the {_UNCLOSED[spelled]} never ends")
            case "word":
                yield Token(Kind.WORD, spelled, match.start(), spelled.upper())
            case kind:
                yield Token(Kind(kind), spelled, match.start(), spelled)


def _behind_comment(text: str, start: int, end: int) -> int:
    """Find the end of a comment; comments nest. Hints are comments too: none of them is for us."""
    depth, position = 0, start
    while True:
        edge = _COMMENT_EDGE.search(text, position, end)
        if edge is None:
            raise refused(text, start, "the comment never ends")
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
        if depth == 0:
            return position


_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))|''|\"\"", re.DOTALL
)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%"}
_ESCAPED["_"] = "\\_"


def unquote(token: Token) -> str:
    """Give what a string spells, its escapes read as Spark reads them."""
    if token.text[0] in "rR":
        return token.text[2:-1]
    if token.text[0] == "$":
        edge = token.text.index("$", 1) + 1
        return token.text[edge:-edge]
    quote = token.text[0]

    def meant(match: re.Match[str]) -> str:
        short, long, octal, plain = match.groups()
        if short or long:
            return chr(int(short or long, 16))
        if octal:
            return chr(int(octal, 8))
        if plain:
            return _ESCAPED.get(plain, plain)
        return quote if match[0][0] == quote else match[0]

    return _ESCAPE.sub(meant, token.text[1:-1])
