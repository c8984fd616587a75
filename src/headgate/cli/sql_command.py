"""The command that runs SQL: from its argument, a file, a pipe, or a prompt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.context import Globals
from headgate.cli.render import Format
from headgate.errors import InvalidArgumentError


def sql(
    ctx: typer.Context,
    text: Annotated[
        str | None, typer.Option("--execute", "-e", metavar="TEXT", help="Statements to run.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Run a file; - is standard input."),
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="How rows are written; else a table, JSON with --json.")
    ] = None,
    all_rows: Annotated[
        bool, typer.Option("--all-rows", help="Show tables whole, not only 1,000 rows.")
    ] = False,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Where Spark runs: local[2], spark://…, sc://….")
    ] = "local[*]",
) -> None:
    """Run SQL on the tables of the lake, with Spark.

    Without -e or -f: a prompt, or the script that is piped in. A script is read to its end before
    its first statement is run, and ends at the first one that is refused. JSON is one object a
    line; JSON and CSV are written as the rows come.

    Needs PySpark and Java 17: pip install 'pyspark>=4.0,<4.4'.

    For example:
      headgate sql
      headgate sql -e "SELECT item, sum(price) FROM sales.orders GROUP BY item"
      headgate sql -f nightly.sql
      headgate sql -e "TABLE sales.orders" --format csv > orders.csv
    """
    here: Globals = ctx.obj
    script = _script(text, file)
    from headgate.cli.spark_engine import Engine  # these are slow to load
    from headgate.cli.sql_output import Results
    from headgate.sql.script import parse

    if script is not None and not parse(script):
        here.output.say("There is no statement in this text.")
        return
    with here.opened() as session:
        engine = Engine(here.output, session, master)
        chosen = format or (Format.JSON if here.output.as_json else Format.TABLE)
        results = Results(engine, here.output, chosen, all_rows=all_rows)
        if script is not None:
            results.run(script)
            return
        from headgate.cli import prompt

        prompt.converse(here.output, results, session)


def _script(text: str | None, file: str | None) -> str | None:
    """Give what is to be run; None: people will be asked."""
    if text is not None and file is not None:
        raise typer.BadParameter("say -e or -f, not both.")
    if text is not None:
        return text
    if file is None and sys.stdin.isatty():
        return None
    try:
        if file is None or file == "-":
            return sys.stdin.read()
        return Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"The script is not text in UTF-8: {error}.") from error
