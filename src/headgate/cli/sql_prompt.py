"""The prompt of `headgate sql`: history, completion, multi-line statements."""

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

from headgate.cli.output import Output
from headgate.cli.spark_engine import state_folder
from headgate.cli.sql_results import Results
from headgate.client.session import Session
from headgate.errors import HeadgateError, SyntaxRefusedError
from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from headgate.sql.positions import tokenize
from headgate.sql.script import split

_WELCOME = "Statements end with `;`. Tab completes, Ctrl-C clears or cancels, Ctrl-D exits."
_PROMPT = "headgate> "
_PROMPT_INSIDE = "headgate*> "  # in a transaction
_EXIT = ("exit", "quit")
_WORD = re.compile(r"[\w.`]+")
_KEYWORDS = """
    ADD ALTER AND AS ASC BEGIN BETWEEN BY CASE CAST COLUMN COLUMNS COMMENT COMMIT CONSTRAINT CREATE
    CROSS DATE DECIMAL DEFAULT DELETE DESC DESCRIBE DETAIL DISTINCT DROP ELSE END EXCEPT EXISTS
    EXPLAIN EXTENDED FALSE FROM FULL GROUP HAVING HISTORY IF IN INNER INSERT INTERSECT INTO IS JOIN
    LEFT LIKE LIMIT MATCHED MERGE NAMESPACE NOT NULL OF OFFSET ON OR ORDER OVER OVERWRITE PARTITION
    PARTITIONED PROPERTIES RENAME REPLACE RIGHT ROLLBACK SAVEPOINT SCHEMA SCHEMAS SELECT SET SHOW
    SOURCE TABLE TABLES TBLPROPERTIES TEMPORARY THEN TIMESTAMP TO TRANSACTION TRUE TRUNCATE UNDROP
    UNION UNSET UPDATE USE USING VALUES VERSION VIEW WHEN WHERE WITH
"""


def run(output: Output, results: Results, session: Session) -> None:
    """Read and run statements until the end of input."""
    names = Names(session)
    prompt: PromptSession[str] = PromptSession(
        history=_history(),
        completer=names,
        complete_while_typing=False,
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation=lambda width, line, wrapped: "...> ".rjust(width),
        output=create_output(stdout=sys.stderr),  # results go to stdout
    )
    output.note(_WELCOME)
    while True:
        try:
            text = prompt.prompt(_PROMPT_INSIDE if results.is_in_transaction else _PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        if text.strip(" \n;").lower() in _EXIT:
            break
        _execute(output, results, text)
        names.refresh()
    if results.is_in_transaction:
        output.note("The open transaction was rolled back.")


def is_complete(text: str) -> bool:
    """Return True if a text ends with a `;` that ends a statement, or is blank."""
    try:
        *tokens, _ = tokenize(text)
    except SyntaxRefusedError:  # a string, a quoted name or a comment is still open
        return False
    if tokens and tokens[-1].key != ";":
        return text.strip().lower() in _EXIT
    # If an END would complete it, a block is still open. Other mistakes are reported when it runs.
    return _can_split(text) or not _can_split(f"{text}\nEND;")


def _can_split(text: str) -> bool:
    try:
        split(text)
    except SyntaxRefusedError:
        return False
    return True


class Names(Completer):
    """Completes keywords and the names of tables."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tables: list[str] | None = None

    def refresh(self) -> None:
        """Read the tables again for the next completion: a statement may have created one."""
        self._tables = None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield completions of the word before the cursor."""
        word = document.get_word_before_cursor(pattern=_WORD)
        for candidate in self._candidates(word):
            yield Completion(candidate, start_position=-len(word))

    def _candidates(self, word: str) -> Iterator[str]:
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
    """Return every spelling of the tables' names, including the short ones."""
    try:
        names = [entry.name.split(".") for entry in session.tables() if entry.name]
    except HeadgateError:  # reported when a statement runs
        return set()
    defaults = [[DEFAULT_CATALOG], [DEFAULT_CATALOG, DEFAULT_SCHEMA]]
    return {
        ".".join(parts[start:])
        for parts in names
        for start in range(3)
        if start == 0 or parts[:start] in defaults
    }


def _execute(output: Output, results: Results, text: str) -> None:
    """Run statements and report every error, so that the prompt continues."""
    try:
        results.run(text)
    except KeyboardInterrupt:  # the engine has reported the outcome
        return
    except Exception as error:
        output.error(error)


def _history() -> History:
    path = state_folder() / "sql_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Statements may be as private as their results.
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
