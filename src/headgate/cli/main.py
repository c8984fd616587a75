"""The entry point: global options, reporting of errors, exit codes.

Exit codes: 0 success; 1 refused; 2 wrong usage; 3 conflict, unknown outcome or unavailable: try
again; 70 a bug in Headgate; 130 and 141 interrupted by Ctrl-C or a closed pipe.
"""

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer import Option

from headgate import release
from headgate.cli import commands, output
from headgate.cli.context import Globals
from headgate.cli.output import Output

# The base class of all usage errors. Typer has a private copy of click, so it has no public name.
_UsageError: Any = typer.BadParameter.__mro__[1]

_ABOUT = """A catalog for Delta Lake tables: every commit goes through it.

A lake is a directory with a database, which is the catalog, and the tables' data and logs. --lake
and --json may precede or follow the command.
"""
_FIRST_STEPS = """\b
First steps:
  headgate init
  headgate create orders "id long not null, item string"
  printf 'id,item\\n1,bolt\\n' | headgate append orders - --format csv
  headgate show orders
  headgate log orders

Exit codes: 0 success, 1 refused, 2 wrong usage, 3 conflict or unknown outcome: try again.
"""


def _version(is_set: bool) -> None:
    if is_set:
        output.write(f"headgate {release.version()}")
        raise typer.Exit


def _globals(
    ctx: typer.Context,
    lake: Annotated[
        str,
        Option(
            "--lake",
            metavar="ADDRESS",
            envvar="HEADGATE_LAKE",
            help="A directory, sqlite:///FILE, postgresql://…, http://…, "
            "file:///DIRECTORY?catalog=filesystem or s3://BUCKET/PREFIX?catalog=filesystem.",
        ),
    ] = "lake",
    as_json: Annotated[bool, Option("--json", help="Write results and errors as JSON.")] = False,
    version: Annotated[
        bool, Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    ctx.obj = Globals(lake, Output(as_json))


def application(functions: Sequence[Callable[..., None]] = commands.COMMANDS) -> typer.Typer:
    """Build the command line from the functions of its commands."""
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
    for command in functions:
        app.command(
            commands.name_of(command),
            help=commands.help_of(command),
            epilog=commands.examples_of(command),
        )(_with_context(command))
    return app


def _with_context(command: Callable[..., None]) -> Callable[..., None]:
    """Convert a command, which takes the global options first, to one that takes a context."""

    @functools.wraps(command)
    def call(context: typer.Context, **arguments: Any) -> None:
        command(context.obj, **arguments)

    here, *own = inspect.signature(command).parameters.values()
    context = here.replace(name="context", annotation=typer.Context)
    call.__signature__ = inspect.Signature([context, *own])  # type: ignore[attr-defined]
    return call


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options, rest = _split_options(sys.argv[1:] if arguments is None else arguments)
    out = Output(as_json="--json" in options)
    # Building all commands takes longer than most of them run.
    called = [c for c in commands.COMMANDS if commands.name_of(c) in rest[:1]]
    app = application(called or commands.COMMANDS)
    try:
        # In standalone mode typer reports wrong usage itself, but not as JSON.
        code = app([*options, *rest], prog_name="headgate", standalone_mode=not out.as_json)
        return code if isinstance(code, int) else 0
    except SystemExit as exited:
        return exited.code if isinstance(exited.code, int) else 0
    except KeyboardInterrupt:
        return 130
    except _UsageError as error:
        return out.usage_error(error.format_message(), *map(commands.name_of, called))
    except Exception as error:
        code = out.error(error)
        if code == output.BUG and os.environ.get("HEADGATE_DEBUG"):
            traceback.print_exc()
        return code


def _split_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the global options, which may be anywhere, from the rest."""
    options: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            rest += [argument, *left]
            break
        if argument == "--json" or argument.startswith("--lake="):
            options.append(argument)
        elif argument == "--lake" and left:
            options += [argument, left.pop(0)]
        else:
            rest.append(argument)
    return options, rest


if __name__ == "__main__":
    sys.exit(main())
