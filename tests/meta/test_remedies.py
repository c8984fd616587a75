"""Remedies name only commands, options, methods and settings that exist."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate
import headgate.spark
from headgate.cli import commands
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.settings import Settings
from headgate.spark import Lake

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "headgate"
OWNERS: dict[str, object] = {
    "session": Session,
    "table": Table,
    "lake": Lake,
    "headgate": headgate,
    "headgate.spark": headgate.spark,
}
COMMANDS = {commands.name_of(command): command for command in commands.COMMANDS}
GLOBAL_OPTIONS = {"--lake", "--json", "--quiet", "--verbose", "--help", "--version"}
# Read where they are needed, and described in docs/settings.md or docs/cli.md.
VARIABLES = {
    "HEADGATE_LAKE",
    "HEADGATE_TOKEN",
    "HEADGATE_DEBUG",
    "HEADGATE_MACHINE_CREDENTIALS",
} | {f"HEADGATE_{field.name.upper()}" for field in dataclasses.fields(Settings)}


def remedies() -> Iterator[tuple[str, str]]:
    """Find the text of every remedy: a keyword, an attribute, or what `refused` is given last."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            place = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            match node:
                case ast.keyword(arg="remedy", value=value):
                    yield place, text_of(value)
                case ast.Assign(targets=[ast.Name(id="remedy")], value=value):
                    yield place, text_of(value)
                case ast.Call(func=ast.Attribute(attr="refused"), args=[*_, value]):
                    yield place, text_of(value)


def text_of(node: ast.expr) -> str:
    """Join the constant parts of an expression; what is computed is shown as `…`."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return text_of(left) + text_of(right)
        case _:
            return "…"


def options_of(command: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]*", commands_page(command))) | GLOBAL_OPTIONS


def commands_page(command: str) -> str:
    page = (ROOT / "docs" / "cli.md").read_text()
    return page.partition(f"\n## headgate {command}\n")[2].partition("\n## ")[0]


def wrong_names(text: str) -> list[str]:
    """List what a remedy names that does not exist."""
    found = []
    for command in re.findall(r"`headgate ([^`]*)`", text):
        name, *words = command.split()
        if name not in COMMANDS:
            found.append(f"headgate {name}")
            continue
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        found += sorted(options - options_of(name))
    for owner, name in re.findall(
        r"\b(headgate\.spark|headgate|session|table|lake)\.(\w+)\b", text
    ):
        if owner == "headgate" and name == "spark":
            continue
        if not hasattr(OWNERS[owner], name):
            found.append(f"{owner}.{name}")
    found += sorted(set(re.findall(r"\bHEADGATE_[A-Z_]+\b", text)) - VARIABLES)
    return found


def test_every_command_method_and_setting_that_a_remedy_names_exists() -> None:
    found = {place: wrong for place, text in remedies() if (wrong := wrong_names(text))}
    assert found == {}


@pytest.mark.parametrize(
    ("remedy", "wrong"),
    [
        ("Run `headgate fix TABLE`.", ["headgate fix"]),
        ("Run `headgate fsck --fix`.", ["--fix"]),
        ("Run `headgate fsck TABLE --repair`.", []),
        ("Use session.tabels(), or table.append().", ["session.tabels"]),
        ("Start it with headgate.spark.sesion().", ["headgate.spark.sesion"]),
        ("Set HEADGATE_LEASE or HEADGATE_LEASE_MS.", ["HEADGATE_LEASE"]),
    ],
)
def test_a_name_that_does_not_exist_is_found(remedy: str, wrong: list[str]) -> None:
    assert wrong_names(remedy) == wrong


def test_the_remedies_are_found() -> None:
    texts = [text for _, text in remedies()]
    assert len(texts) > 200
    assert "Publish it first: table.publish(), or `headgate publish TABLE`." in texts
