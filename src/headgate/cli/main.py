"""The entry: global options, what an error looks like, and exit codes.

0 done, 1 refused, 2 usage, 3 conflict or unknown or not now: try again; 70 a bug of Headgate's;
130 and 141 interrupted by Ctrl-C and by a closed pipe. Results go to stdout, prose to stderr.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from headgate import release
from headgate.cli import commands, render
from headgate.cli.context import Globals
from headgate.cli.render import Output
from headgate.errors import HeadgateError, Retry

REFUSED, USAGE, TRY_AGAIN, BUG = 1, 2, 3, 70
# Typer keeps a copy of click to itself; of what went wrong with the usage this is the most general.
_UsageError: Any = typer.BadParameter.__mro__[1]

_ABOUT = """Delta Lake tables whose every commit passes one catalog.

A lake is a directory: a database that knows every table, and the tables' data and logs. --lake
and --json may stand before or after the command.
"""
_FIRST_STEPS = """\b
First steps:
  headgate init
  headgate create orders "id long not null, item string"
  printf 'id,item\\n1,bolt\\n' | headgate append orders - --format csv
  headgate show orders
  headgate log orders

Exit codes: 0 done, 1 refused, 2 usage, 3 conflict or unknown: try again.
"""


def _version(wanted: bool) -> None:
    if wanted:
        render.write(f"headgate {release.version()}")
        raise typer.Exit


def _globals(
    ctx: typer.Context,
    lake: Annotated[
        str,
        typer.Option(
            "--lake",
            metavar="ADDRESS",
            envvar="HEADGATE_LAKE",
            help="A directory, sqlite:///FILE, postgresql://…, http://…, "
            "file:///DIRECTORY?catalog=filesystem or s3://BUCKET/PREFIX?catalog=filesystem.",
        ),
    ] = "lake",
    as_json: Annotated[
        bool, typer.Option("--json", help="Results, and errors too, as JSON.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Tell the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    ctx.obj = Globals(lake, Output(as_json))


def application(known: Sequence[Callable[..., None]] = commands.COMMANDS) -> typer.Typer:
    """Make the command line of some commands, or of all."""
    app = typer.Typer(
        name="headgate",
        help=_ABOUT,
        epilog=_FIRST_STEPS,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_globals)
    for command in known:
        app.command(
            commands.name_of(command),
            help=commands.help_of(command),
            epilog=commands.examples_of(command),
        )(command)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    ours, rest = _globals_first(sys.argv[1:] if arguments is None else arguments)
    output = Output(as_json="--json" in ours)
    # A command that is called by its name needs none of the others: to make all takes longer than
    # most of them run.
    called = [c for c in commands.COMMANDS if commands.name_of(c) in rest[:1]]
    app = application(called or commands.COMMANDS)
    try:
        # Standing alone, typer tells of wrong usage itself, and knows nothing of JSON.
        ended = app([*ours, *rest], prog_name="headgate", standalone_mode=not output.as_json)
        return ended if isinstance(ended, int) else 0
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    except KeyboardInterrupt:
        return 130
    except _UsageError as error:
        output.usage(error.format_message(), *map(commands.name_of, called))
        return USAGE
    except HeadgateError as error:
        output.error(error)
        return REFUSED if error.retry is Retry.NEVER else TRY_AGAIN
    except OSError as error:  # the disk's refusal: said by the system in words people know
        output.refusal(error)
        return REFUSED
    except Exception as error:  # whatever is left was not foreseen
        output.bug(error)
        if os.environ.get("HEADGATE_DEBUG"):
            traceback.print_exc()
        return BUG


def _globals_first(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part the options that may stand anywhere from what belongs to the command."""
    ours: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            rest += [argument, *left]
            break
        if argument == "--json" or argument.startswith("--lake="):
            ours.append(argument)
        elif argument == "--lake" and left:
            ours += [argument, left.pop(0)]
        else:
            rest.append(argument)
    return ours, rest


if __name__ == "__main__":
    sys.exit(main())
