"""The prompt of `headgate sql`: history, completion, statements over several lines."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from headgate.cli.render import Output
from headgate.cli.spark_engine import state_folder
from headgate.cli.sql_output import Results
from headgate.client.session import Session
from headgate.errors import HeadgateError, SyntaxRefusedError
from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from headgate.sql.lexer import tokenize
from headgate.sql.script import split

_WELCOME = "Statements end with `;`. Tab completes, Ctrl-C clears or cancels, Ctrl-D leaves."
_PROMPT = "headgate> "
_LEAVING = ("exit", "quit")
_WORD = re.compile(r"[\w.`]+")
_KEYWORDS = """
    ADD ALTER AND AS ASC BETWEEN BY CASE CAST COLUMN COLUMNS COMMENT CONSTRAINT CREATE CROSS DATE
    DECIMAL DEFAULT DELETE DESC DESCRIBE DETAIL DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN
    EXTENDED FALSE FROM FULL GROUP HAVING HISTORY IF IN INNER INSERT INTERSECT INTO IS JOIN LEFT
    LIKE LIMIT MATCHED MERGE NAMESPACE NOT NULL OF OFFSET ON OR ORDER OVER OVERWRITE PARTITION
    PARTITIONED PROPERTIES RENAME REPLACE RIGHT SCHEMA SCHEMAS SELECT SET SHOW SOURCE TABLE TABLES
    TBLPROPERTIES TEMPORARY THEN TIMESTAMP TO TRUE TRUNCATE UNDROP UNION UNSET UPDATE USE USING
    VALUES VERSION VIEW WHEN WHERE WITH
"""


def converse(output: Output, results: Results, session: Session) -> None:
    """Ask for statements and run them until there are no more."""
    names = Names(session)
    asking: PromptSession[str] = PromptSession(
        history=_history(),
        completer=names,
        complete_while_typing=False,
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation=lambda width, line, wrapped: "...> ".rjust(width),
        output=create_output(stdout=sys.stderr),  # stdout is for results
    )
    output.say(_WELCOME)
    while True:
        try:
            text = asking.prompt(_PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.strip(" \n;").lower() in _LEAVING:
            return
        _run(output, results, text)
        names.forget()


def is_complete(text: str) -> bool:
    """Say whether a text can be run: it ends with a `;` that ends a statement, or is blank."""
    try:
        *tokens, _ = tokenize(text)
    except SyntaxRefusedError:  # a string, a quoted name or a comment goes on
        return False
    if tokens and tokens[-1].key != ";":
        return text.strip().lower() in _LEAVING
    # Where an END makes sense of it, a block goes on; other mistakes are told when it is run.
    return _is_cut(text) or not _is_cut(f"{text}\nEND;")


def _is_cut(text: str) -> bool:
    try:
        split(text)
    except SyntaxRefusedError:
        return False
    return True


class Names(Completer):
    """Completes keywords, and the names of the tables there are."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tables: list[str] | None = None

    def forget(self) -> None:
        """Look for tables anew: a statement may have made one."""
        self._tables = None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Give what the word before the cursor may become."""
        word = document.get_word_before_cursor(pattern=_WORD)
        for found in self._beginning_with(word):
            yield Completion(found, start_position=-len(word))

    def _beginning_with(self, word: str) -> Iterator[str]:
        if not word:
            return
        if self._tables is None:
            self._tables = sorted(_spellings(self._session))
        for name in self._tables:
            if name.lower().startswith(word.lower()):
                yield name
        for keyword in _KEYWORDS.split():
            if keyword.startswith(word.upper()):
                yield keyword.lower() if word.islower() else keyword


def _spellings(session: Session) -> set[str]:
    """Give every way to write the tables' names, the short ones included."""
    try:
        names = [entry.name.split(".") for entry in session.tables() if entry.name]
    except HeadgateError:  # it will be told when a statement is run
        return set()
    home = [[DEFAULT_CATALOG], [DEFAULT_CATALOG, DEFAULT_SCHEMA]]
    return {
        ".".join(parts[start:])
        for parts in names
        for start in range(3)
        if start == 0 or parts[:start] in home
    }


def _run(output: Output, results: Results, text: str) -> None:
    """Run what was typed; whatever goes wrong is told, and the prompt comes again."""
    try:
        results.run(text)
    except KeyboardInterrupt:  # what became of the statement has been told
        return
    except HeadgateError as error:
        output.error(error)
    except OSError as error:
        output.refusal(error)
    except Exception as error:
        output.bug(error)


def _history() -> History:
    path = state_folder() / "sql_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What was asked may be as private as what was answered.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        if is_complete(event.current_buffer.text):
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    return keys
