"""Every command has help, examples, a section in the docs and a library call of the same name."""

import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from headgate import _connect, serve
from headgate.catalog import restoration
from headgate.cli import commands
from headgate.cli.main import application
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.spark import Lake

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text()
OWNERS = (Session, Table, Lake, restoration, _connect, serve)
# What a command of one word shows takes several calls, and `create` is short for what it makes.
CALLED = {
    "token": ("create_token", "tokens", "revoke_token"),
    "listener": ("put_listener", "listeners", "delete_listener"),
    "location": ("add_location", "locations", "remove_location"),
    "create": ("create_table",),
    "show": ("tables", "namespaces", "snapshot", "to_arrow"),
}

Command = Callable[..., None]


def calls_of_headgate(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    for is_operator, words in itertools.groupby(lexer, key=lambda word: word in {"|", ">"}):
        call = list(words)
        if not is_operator and call[0] == "headgate":
            yield call


@pytest.mark.parametrize("command", commands.COMMANDS, ids=commands.name_of)
def test_a_command_describes_itself_and_has_an_example(command: Command) -> None:
    first = commands.help_of(command).splitlines()[0]
    assert first.endswith(".")
    assert f"headgate {commands.name_of(command)}" in commands.examples_of(command)


@pytest.mark.parametrize("command", commands.COMMANDS, ids=commands.name_of)
def test_every_example_of_a_command_is_a_valid_command_line(command: Command) -> None:
    known = get_command(application()).commands  # type: ignore[attr-defined]  # it is a group
    examples = commands.examples_of(command).partition("For example:\n")[2].replace("\\\n", " ")
    for line in examples.splitlines():
        for words in calls_of_headgate(line):
            place = next(place for place, word in enumerate(words) if word in known)
            arguments = [word for word in words[place + 1 :] if word != "--json"]  # for all
            known[words[place]].make_context(line, arguments)  # raises if it cannot be parsed


@pytest.mark.parametrize("command", commands.COMMANDS, ids=commands.name_of)
def test_every_argument_and_option_of_a_command_is_explained(command: Command) -> None:
    section = PAGE.partition(f"\n## headgate {commands.name_of(command)}\n")[2].partition("\n## ")[
        0
    ]
    assert section
    explained = re.findall(r"^- `[^:]*`: (.+)$", section, re.MULTILINE)
    parameters = [name for name in command.__annotations__ if name not in {"here", "return"}]
    assert len(explained) == len(parameters)
    assert "None" not in explained


@pytest.mark.parametrize("command", commands.COMMANDS, ids=commands.name_of)
def test_a_command_is_a_call_of_the_library(command: Command) -> None:
    for call in CALLED.get(command.__name__, (command.__name__,)):
        assert any(hasattr(owner, call) for owner in OWNERS), call


def test_every_command_that_can_be_called_is_one_of_these() -> None:
    registered = [registered.name for registered in application().registered_commands]
    assert registered == [commands.name_of(command) for command in commands.COMMANDS]


def test_the_page_and_the_readme_name_only_existing_commands() -> None:
    known = {commands.name_of(command) for command in commands.COMMANDS}
    for page in (PAGE, (ROOT / "README.md").read_text(), (ROOT / "docs/tutorial.md").read_text()):
        named = set(re.findall(r"^(?:.*\| )?headgate ([a-z][a-z-]+)", page, re.MULTILINE))
        assert named - known == set()
