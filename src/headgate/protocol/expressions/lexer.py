"""Split SQL text into tokens exactly where Spark does.

Strings, quoted names, comments (nested ones too) and dollar quotes follow Spark's lexer, so a `;`,
a brace or a keyword inside them is never mistaken for one.
"""

import enum
import re
from collections.abc import Iterator

import msgspec


class TokenKind(enum.Enum):
    """The kinds of tokens."""

    WORD = "word"  # a keyword or a plain name, as only the parser knows
    QUOTED = "quoted"
    STRING = "string"
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


class Token(msgspec.Struct, frozen=True, gc=False):
    """A token; `key` is what it is compared by: words in upper case, signs as they are."""

    kind: TokenKind
    text: str
    start: int
    key: str

    @property
    def end(self) -> int:
        """The offset after the token."""
        return self.start + len(self.text)

    @property
    def is_name(self) -> bool:
        """Whether it can be a part of a name."""
        return self.kind in (TokenKind.WORD, TokenKind.QUOTED)

    @property
    def name(self) -> str:
        """The name, without quotes."""
        if self.kind is TokenKind.QUOTED:
            return self.text[1:-1].replace("``", "`")
        return self.text

    def is_key(self, *keys: str) -> bool:
        """Return True for one of these words and signs; quoted names and strings are neither."""
        return self.kind in (TokenKind.WORD, TokenKind.SIGN) and self.key in keys


class UnclosedError(Exception):
    """A string, a quoted name or a comment is never closed; `at` is the offset where it begins."""

    def __init__(self, why: str, at: int) -> None:
        self.why = why
        self.at = at
        super().__init__(why)


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


def lex(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Split a text, or a part of it, into tokens; the last one is always END."""
    end = len(text) if end is None else end
    return [*_tokens(text, start, end), Token(TokenKind.END, "", end, "")]


def _tokens(text: str, position: int, end: int) -> Iterator[Token]:
    while position < end:
        if text.startswith("/*", position):
            position = _comment_end(text, position, end)
            continue
        match = _PLAIN.match(text, position, end)
        assert match is not None  # the last alternative matches any character
        position = match.end()
        spelled = match[0]
        match match.lastgroup if match.lastgroup != "dollar" else "string":
            case "space":
                continue
            case "sign" if spelled in _UNCLOSED:
                raise UnclosedError(f"the {_UNCLOSED[spelled]} never ends", match.start())
            case "word":
                yield Token(TokenKind.WORD, spelled, match.start(), spelled.upper())
            case kind:
                yield Token(TokenKind(kind), spelled, match.start(), spelled)


def _comment_end(text: str, start: int, end: int) -> int:
    """Find the end of a comment; comments nest. Hints are skipped like comments."""
    depth, position = 0, start
    while True:
        edge = _COMMENT_EDGE.search(text, position, end)
        if edge is None:
            raise UnclosedError("the comment never ends", start)
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
        if depth == 0:
            return position


_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))|''|\"\"", re.DOTALL
)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%"}
_ESCAPED["_"] = "\\_"


def unquote(string: str) -> str:
    """Return the value of a string token, with its escapes read as Spark reads them."""
    quote = string[0]
    if quote in "rR":
        return string[2:-1]
    if quote == "$":
        edge = string.index("$", 1) + 1
        return string[edge:-edge]

    def unescaped(match: re.Match[str]) -> str:
        short, long, octal, plain = match.groups()
        if short or long:
            return chr(int(short or long, 16))
        if octal:
            return chr(int(octal, 8))
        if plain:
            return _ESCAPED.get(plain, plain)
        return quote if match[0][0] == quote else match[0]

    return _ESCAPE.sub(unescaped, string[1:-1])
