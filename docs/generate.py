"""Write the pages that are made from the code, the ledgers and the tests.

`python docs/generate.py` writes them, `--check` only says which ones are stale. Whole pages:
`conformance.md`, `errors.md`, `cli.md`, `settings.md`, `openapi.json`. In `commit-life.md` and
`http.md` only what stands between their marks is replaced.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import re
import sys
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))  # run as a script, only the folder of the script is on the path

from typer.main import get_command  # noqa: E402

from headgate import errors  # noqa: E402
from headgate.api import (  # noqa: E402
    problems,
    table_states,
)
from headgate.cli import commands  # noqa: E402
from headgate.cli.main import application  # noqa: E402
from headgate.http import openapi  # noqa: E402
from headgate.http.operations import Operation  # noqa: E402
from headgate.http.routes import all_operations  # noqa: E402
from headgate.settings import Settings  # noqa: E402
from tests.kit.marks import marks_under  # noqa: E402

NOTE = "<!-- Made by docs/generate.py: change what it is made from, not this page. -->\n"
LEVELS = {"M": "must", "S": "should", "D": "derived"}
AREAS = {
    "CM": "Catalog-managed tables: the core",
    "IN": "Inline commits",
    "PB": "Publishing",
    "RD": "Reading",
    "EN": "Enablement",
    "MN": "Maintenance",
    "LC": "A table's life",
    "AU": "Policy",
    "MT": "Transactions",
    "EV": "Events and follow-ups",
    "CP": "Checkpoint protection",
    "PT": "The pointer",
    "CA": "Kinds of catalog",
    "FC": "Faults: crash and network",
    "FS": "Faults: server and database",
    "FP": "Faults: publisher, checkpoint, cleanup",
    "FT": "Faults: time",
    "FM": "Faults: many tables",
    "FR": "Faults: readers",
    "FI": "Faults: input",
    "FX": "Faults: what broke for other systems",
    "S": "Safety",
    "L": "Liveness",
}

Ledger = dict[str, dict[str, Any]]
Lifecycle = Mapping[Any, Mapping[Any, Any]]


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` name those that would change."""
    stale = [path for path, text in pages() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run `make docs`.", file=sys.stderr)
        return 1 if stale else 0
    for path, text in pages():
        if path in stale:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


def pages() -> Iterator[tuple[Path, str]]:
    """Return every generated page as it has to be now."""
    yield DOCS / "conformance.md", conformance()
    yield DOCS / "errors.md", error_page()
    yield DOCS / "cli.md", command_page()
    yield DOCS / "settings.md", settings_page()
    life = DOCS / "commit-life.md"
    yield life, fill(life.read_text(), "table", drawing(table_states.LIFECYCLE))
    rows = all_operations(Settings())
    api = DOCS / "http.md"
    text = fill(api.read_text(), "operations", operation_table(rows))
    yield api, fill(text, "problems", problem_table())
    document = openapi.document(rows, importlib.metadata.version("headgate"))
    yield DOCS / "openapi.json", json.dumps(document, indent=1) + "\n"


def conformance() -> str:
    """Return the page that tells, clause by clause, which tests show it."""
    clauses: Ledger = tomllib.loads((DOCS / "requirements.toml").read_text())
    faults: Ledger = tomllib.loads((DOCS / "faults.toml").read_text())
    shown: dict[str, list[str]] = defaultdict(list)
    for mark in marks_under(ROOT):
        if mark.where not in shown[mark.id]:
            shown[mark.id].append(mark.where)
    rows = clauses | faults
    by_area: dict[str, list[str]] = defaultdict(list)
    for row_id in rows:
        by_area[re.split(r"[-\d]", row_id)[0]].append(row_id)

    out = [
        NOTE,
        "# Conformance\n\n",
        "What Headgate has to keep, clause by clause, with the tests that show it. The clauses\n",
        "are `requirements.toml`, faults and invariants `faults.toml`; *planned* is to come.\n\n",
        f"Shown: {tally(clauses, shown)} clauses, {tally(faults, shown)} faults and invariants.\n",
    ]
    for area, title in AREAS.items():
        out.append(f"\n## {title}\n\n")
        for row_id in by_area.pop(area):
            out.extend(entry(row_id, rows[row_id], shown[row_id]))
    if by_area:
        raise SystemExit(f"Areas without a title: {sorted(by_area)}")
    return "".join(out)


def tally(ledger: Ledger, shown: Mapping[str, list[str]]) -> str:
    """Return how many rows of the ledger are shown, of how many."""
    return f"{sum(bool(shown.get(row_id)) for row_id in ledger)} of {len(ledger)}"


def entry(row_id: str, row: dict[str, Any], tests: list[str]) -> Iterator[str]:
    """Return the lines of one row."""
    keeper = f" ({LEVELS[row['level']]}, {row['who']}; {row['source']})" if "level" in row else ""
    yield f"- **{row_id}**{keeper} {escaped(row['says'])}\n"
    if "not_done" in row:
        yield f"    - *not done*: {escaped(row['not_done'])}\n"
    elif "deviates" in row:
        yield f"    - *deviates*: {escaped(row['deviates'])}\n"
    elif isinstance(row.get("planned"), str):
        yield f"    - *planned*: {row['planned']}\n"
    elif "planned" in row:
        yield "    - *planned*\n"
    for test in tests:
        yield f"    - `{test}`\n"


def escaped(text: str) -> str:
    """Keep `<v>` and the like outside code from being taken for HTML."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def error_page() -> str:
    """Return the page of errors, the tree from the top down."""
    out = [
        NOTE,
        "# Errors\n\n",
        "Every error has a stable `code`, a remedy, and says whether coming again can help:\n",
        "`never`, `after-refresh` (read the table anew first) or `same-again`. Decide on `code`\n",
        "and `retry`, never on the words of a message. All are in `headgate.errors`.\n",
    ]
    for error, depth in family(errors.HeadgateError):
        bases = "" if depth == 0 else f" ({error.__bases__[0].__name__})"
        prose = re.sub(r"\s+", " ", error.__doc__ or "").strip()
        out.append(f"\n## {error.__name__}{bases}\n\n{prose}\n\n")
        out.append(f"- code: `{error.code}`\n- retry: `{error.retry.value}`\n")
        out.append(f"- remedy: {error.remedy}\n")
    return "".join(out)


def family(
    error: type[errors.HeadgateError], depth: int = 0
) -> Iterator[tuple[type[errors.HeadgateError], int]]:
    """Return an error and all below it, in the order they are written, with their depth."""
    yield error, depth
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from family(child, depth + 1)


def command_page() -> str:
    """Return the page of commands, in the order in which help lists them."""
    everything = get_command(application())
    out = [
        NOTE,
        "# Commands\n\n",
        "The lake is `--lake`, else `HEADGATE_LAKE`, else `./lake`; only `headgate init` makes\n",
        "one. Results go to stdout, all else to stderr. With `--json` a result is one JSON\n",
        "object, and so is an error. Times are ISO 8601 in UTC. On a terminal, what takes over a\n",
        "second shows that it goes on.\n\n",
        "| exit code | means |\n|---|---|\n",
        "| 0 | done |\n",
        "| 1 | refused, or `fsck` found an error: the same again is refused again |\n",
        "| 2 | not understood |\n",
        "| 3 | conflict, unknown outcome, busy or unavailable: try again |\n",
        "| 70 | a bug; `HEADGATE_DEBUG=1` shows where |\n",
        "| 130, 141 | interrupted, by Ctrl-C or because nobody reads the result |\n\n",
        "`headgate --version` tells the version. These may stand before or after any command:\n\n",
        *(line for line in options_of(everything) if "--version" not in line),
    ]
    for function in commands.COMMANDS:
        name = commands.name_of(function)
        command = everything.commands[name]  # type: ignore[attr-defined]  # it is a group
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        words = [
            f"{p.metavar}..." if p.nargs != 1 else p.metavar if p.required else f"[{p.metavar}]"
            for p in arguments
        ]
        examples = commands.examples_of(function).partition("For example:\n")[2]
        out += [
            f"\n## headgate {name}\n\n",
            f"`{' '.join(['headgate', name, *words, '[OPTIONS]'])}`\n\n",
            f"{escaped(commands.help_of(function))}\n\n",
            *(f"- `{p.metavar}`: {p.help}\n" for p in arguments),
            *options_of(command),
            f"\n```text\n{textwrap.dedent(examples).strip()}\n```\n",
        ]
    return "".join(out)


def options_of(command: Any) -> Iterator[str]:
    """Return a line for each option of a command."""
    for option in command.params:
        if option.param_type_name == "option" and "--help" not in option.opts:
            spelled = ", ".join(f"`{word}`" for word in option.opts)
            value = f" `{option.metavar}`" if option.metavar else ""
            default = f" Default: `{option.default}`." if option.default else ""
            yield f"- {spelled}{value}: {option.help}{default}\n"


def settings_page() -> str:
    """Return the page of settings, in the order in which they are written."""
    out = [
        NOTE,
        "# Settings\n\n",
        "How a catalog and its clients behave. Each setting is read from its variable when a\n",
        "session or a server starts; a program may give them instead:\n",
        "`headgate.connect(address, settings=Settings(listed_ms=0))`, with `Settings` of\n",
        "`headgate.settings`. On a server the catalog's are the server's.\n\n",
        "Other variables: `HEADGATE_LAKE` is the lake of commands, `HEADGATE_TOKEN` the secret\n",
        "for a server, `HEADGATE_STORE` the store of `headgate serve`; `HEADGATE_DEBUG=1` shows\n",
        "where a bug is. Where credentials for object stores come from is told in\n",
        "[Operating](operating.md#object-stores).\n\n",
        "| variable | default | what it is |\n|---|---|---|\n",
    ]
    told = setting_comments((ROOT / "src" / "headgate" / "settings.py").read_text())
    for field in dataclasses.fields(Settings):
        value = "none" if field.default == "" else f"`{field.default}`"
        unit = {"ms": " milliseconds", "bytes": " bytes"}.get(field.name.rpartition("_")[2], "")
        if not (said := told.get(field.name)):
            raise SystemExit(f"Nothing is said of the setting {field.name}.")
        out.append(f"| `HEADGATE_{field.name.upper()}` | {value}{unit} | {said} |\n")
    return "".join(out)


def setting_comments(source: str) -> dict[str, str]:
    """Return what stands behind each setting in the source, or above a group of them."""
    told, above, is_new_group = {}, "", True
    for line in source.partition("class Settings:")[2].splitlines():
        setting = re.match(r"    (\w+): (?:int|str) = [^#]*(?:# (.+))?$", line)
        if setting is not None:
            told[setting[1]] = setting[2] or above
        comment = re.match(r"    # (.+)$", line)
        if comment is not None:
            above = comment[1] if is_new_group else f"{above} {comment[1]}"
        elif setting is None:
            above = ""
        is_new_group = comment is None
    return told


def operation_table(rows: Sequence[Operation]) -> str:
    """List what the native API can be asked."""
    lines = ["| | path | query | what it does |", "|---|---|---|---|"]
    for row in rows:
        query = ", ".join(f"`{parameter.name}`" for parameter in row.query)
        lines.append(f"| {row.method} | `{row.path}` | {query} | {row.says} |")
    return "\n".join(lines)


def problem_table() -> str:
    """List the codes by status."""
    kinds = {kind.code for kind in vars(errors).values() if hasattr(kind, "code")}
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in kinds | set(problems.STATUS):
        by_status[problems.status_of(code)].append(code)
    lines = ["| status | codes |", "|---|---|"]
    for status, codes in sorted(by_status.items()):
        lines.append(f"| {status} | {', '.join(f'`{code}`' for code in sorted(codes))} |")
    return "\n".join(lines)


def drawing(lifecycle: Lifecycle) -> str:
    """Draw a table of transitions, one move a line."""
    moves = [
        (word(state), word(event), word(target))
        for state, events in lifecycle.items()
        for event, target in events.items()
    ]
    width = max(len(state) for state, _, _ in moves)
    lines = [f"{state:<{width}} --{event}--> {target}" for state, event, target in moves]
    ends = [word(state) for state, events in lifecycle.items() if not events]
    return "\n".join(
        ["```text", *lines, "```", "", f"Nothing follows: {', '.join(ends) or 'none'}."]
    )


def word(member: Enum) -> str:
    """Return the word for a state or an event."""
    return member.name.lower().replace("_", " ")


def fill(text: str, name: str, content: str) -> str:
    """Replace what stands between the marks of this name."""
    start, end = f"<!-- {name}: drawn -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"A page has no marks {start} and {end}.")
    return f"{before}{start}\n{content}\n{end}{after}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
