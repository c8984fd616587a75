"""The command that runs SQL: from an argument, a file, a pipe or the prompt."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from headgate.cli.context import Globals
from headgate.cli.options import RowFormat
from headgate.errors import InvalidArgumentError


def sql(
    here: Globals,
    text: Annotated[
        str | None, Option("--execute", "-e", metavar="TEXT", help="Statements to run.")
    ] = None,
    file: Annotated[
        str | None, Option("--file", "-f", metavar="FILE", help="Run a file; - for standard input.")
    ] = None,
    format: Annotated[
        RowFormat | None, Option(help="Format of rows; default: table, or json with --json.")
    ] = None,
    all_rows: Annotated[
        bool, Option("--all-rows", help="Show all rows in a table, not only 1,000.")
    ] = False,
    master: Annotated[
        str, Option(metavar="URL", help="Where Spark runs: local[2], spark://…, sc://….")
    ] = "local[*]",
) -> None:
    """Run SQL on the tables of the lake, with Spark.

    Without -e or -f the command opens a prompt, or runs the script from standard input. A script
    is parsed completely before its first statement runs, and stops at the first error. A
    transaction that is open then is rolled back. JSON has one object per line; JSON and CSV are
    written while rows arrive.

    Needs PySpark and Java 17: pip install 'pyspark>=4.0,<4.4'.

    For example:
      headgate sql
      headgate sql -e "SELECT item, sum(price) FROM sales.orders GROUP BY item"
      headgate sql -f nightly.sql
      headgate sql -e "TABLE sales.orders" --format csv > orders.csv
    """
    script = _script(text, file)
    from headgate.cli.spark_engine import SparkRunner  # these are slow to load
    from headgate.cli.sql_results import Results
    from headgate.sql.script import parse

    if script is not None and not parse(script):
        here.output.note("The script contains no statement.")
        return
    with here.open() as session:
        engine = SparkRunner(here.output, session, master)
        chosen = format or ("json" if here.output.as_json else "table")
        results = Results(engine, here.output, chosen, all_rows=all_rows)
        if script is not None:
            results.run(script)
            results.finish()
            return
        from headgate.cli import sql_prompt

        sql_prompt.run(here.output, results, session)


def _script(text: str | None, file: str | None) -> str | None:
    """Return the script to run; None to open the prompt."""
    if text is not None and file is not None:
        raise typer.BadParameter("pass -e or -f, not both.")
    if text is not None:
        return text
    if file is None and sys.stdin.isatty():
        return None
    try:
        if file is None or file == "-":
            return sys.stdin.read()
        return Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"The script is not valid UTF-8: {error}.") from error
