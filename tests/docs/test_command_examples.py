"""The examples of every command, which docs/cli.md shows, run as written, and again.

Each command has a directory of its own, prepared with what its examples name. Some commands are
refused when they are repeated; how is listed here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate
from headgate.cli import commands
from headgate.client.session import Session
from tests.cli.conftest import runner
from tests.kit import java

pytestmark = pytest.mark.slow

# Examples that are not run, with the reason.
NOT_RUN = {
    "headgate init /data/lake --root s3://bucket/lake": "needs a bucket",
    "headgate serve": "tests/docs/test_snippets.py runs a server",
    "headgate --lake /data/lake serve --port 9000": "tests/docs/test_snippets.py runs a server",
    "headgate serve --store postgresql://headgate@db/headgate --workers 4 --auth --host 0.0.0.0": (
        "needs PostgreSQL"
    ),
    "headgate --lake http://127.0.0.1:8750 status --json": "needs a server",
    "headgate sql": "a prompt, which tests/cli/test_sql.py tests",
    "headgate events --follow --table sales.orders": "never ends",
    "headgate purge sales.orders": "asks on a terminal",
    # The table of the example before has its name again.
    "headgate undrop sales.orders --as sales.orders_again": "tests/cli/test_commands.py runs it",
}
# The errors of examples that are refused when all examples of their command are repeated.
REFUSED_AGAIN = {
    "headgate init": "already-exists",
    "headgate init /data/lake": "already-exists",
    "headgate create-namespace sales": "already-exists",
    "headgate drop-namespace sales": "not-found",
    "headgate rename-namespace sales sales_2026": "already-exists",
    "headgate rename-catalog other archive": "already-exists",
    'headgate create orders "id long not null, item string"': "already-exists",
    'headgate create sales.orders "id long, day date" --partition-by day --create-namespace': (
        "already-exists"
    ),
    'headgate create events "id long, n int" --property delta.constraints.positive="n > 0"': (
        "already-exists"
    ),
    "headgate rename sales.orders sales.orders_2026": "not-found",
    "headgate drop sales.orders": "not-found",
    "headgate undrop sales.orders": "not-found",
    "headgate purge 6f0d5a4e-5d43-4c55-9d0f-1f7a3a9f2a11 --yes": "not-found",
    "headgate backup /backups/lake-monday.db": "already-exists",
    "headgate restore /backups/lake-monday.db /data/lake": "already-exists",
    "headgate token create nightly-load --days 90": "already-exists",
}
TABLE_ID = "6f0d5a4e-5d43-4c55-9d0f-1f7a3a9f2a11"
ORDERS = "id long, day date, item string, price decimal(10,2)"


def examples() -> dict[str, list[str]]:
    """Return the examples of each command; a line that ends in a backslash goes on."""
    found = {}
    for command in commands.COMMANDS:
        text = commands.examples_of(command).partition("For example:\n")[2]
        lines = text.replace("\\\n", " ").splitlines()
        found[commands.name_of(command)] = [line.strip() for line in lines if line.strip()]
    return found


EXAMPLES = examples()


def row(number: int) -> dict[str, object]:
    return {"id": number, "day": date(2026, 3, 1), "item": "bolt", "price": Decimal("0.35")}


class Desk:
    """A directory in which a user tries the examples of one command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places = {
            "/data/": f"{folder}/data/",
            "/backups/": f"{folder}/backups/",
        }
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        self.environment.pop("HEADGATE_LAKE", None)

    def prepare(self, command: str) -> None:
        """Make what the examples of a command name."""
        for name in ("data", "backups"):
            (self.folder / name).mkdir()
        if command == "init":
            return
        with headgate.connect(str(self.folder / "lake")) as session:
            match command:
                case "create-namespace":
                    pass
                case "drop-namespace":
                    session.create_namespace("sales")
                case "rename-namespace" | "rename-catalog" | "create":
                    pass
                case "overwrite":
                    self._prices(session)
                case _:
                    self._orders(session)
            match command:
                case "undrop" | "purge":
                    session.drop("sales.orders")
                case "register-external":
                    (self.folder / "data" / "raw").mkdir()
                    session.add_location("s3://bucket")
                    session.add_location(f"file://{self.folder}/data")
        (self.folder / "monday.csv").write_text("id,day,item,price\n1,2026-03-02,bolt,0.35\n")
        (self.folder / "tuesday.csv").write_text("id,day,item,price\n2,2026-03-03,nut,0.20\n")
        (self.folder / "prices.csv").write_text("item,price\nbolt,0.40\n")
        (self.folder / "rows.jsonl").write_text('{"id": 3, "item": "gear"}\n')
        pq.write_table(pa.Table.from_pylist([row(4)]), self.folder / "rows.parquet")
        (self.folder / "nightly.sql").write_text("SELECT count(*) FROM sales.orders;\n")
        if command == "restore":
            self.run("headgate backup /backups/lake-monday.db")

    def _orders(self, session: Session) -> None:
        session.create_namespace("sales")
        table = session.create_table(
            "sales.orders", ORDERS, properties={"delta.checkpointPolicy": "v2"}
        )
        self.places[TABLE_ID] = table.id
        for number in range(10):
            table.append([row(number)])
        self.places["2026-03-01T12:00:00Z"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        for number in range(35):
            table.append([row(number)])

    def _prices(self, session: Session) -> None:
        session.create_namespace("sales")
        table = session.create_table("sales.prices", "item string, price decimal(10,2)")
        for _ in range(7):
            table.append([{"item": "bolt", "price": Decimal("0.35")}])

    def run(self, line: str) -> str | None:
        """Run an example; return the code of its error, if it is refused."""
        for written, real in self.places.items():
            line = line.replace(written, real)
        words = shlex.split(line)
        if {"|", ">", "sql"} & {*words}:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", line],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            code, out, err = done.returncode, done.stdout, done.stderr
        else:  # in this process, which is much faster
            ran = runner(self.folder)(*words[1:])
            code, out, err = ran.code, ran.out, ran.err
        if code == 0:
            return None
        found = re.search(r"\[([a-z-]+)\]", err)
        assert code == 1, f"{line}\n{out}\n{err}"
        assert found is not None, f"{line}\n{out}\n{err}"
        return found[1]


def test_examples_that_are_not_run_and_refusals_are_of_examples() -> None:
    known = {line for lines in EXAMPLES.values() for line in lines}
    assert {*NOT_RUN, *REFUSED_AGAIN} <= known


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", [name for name in EXAMPLES if name != "sql"])
def test_the_examples_of_a_command_run_and_again(command: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.prepare(command)
    lines = [line for line in EXAMPLES[command] if line not in NOT_RUN]
    assert {line: desk.run(line) for line in lines} == dict.fromkeys(lines)
    refused = {line: REFUSED_AGAIN.get(line) for line in lines}
    if command == "rename-namespace":
        refused[lines[0]] = None  # the name is free again
    assert {line: desk.run(line) for line in lines} == refused


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_examples_of_sql_run(tmp_path: Path) -> None:
    java.require()
    desk = Desk(tmp_path)
    desk.prepare("sql")
    lines = [line for line in EXAMPLES["sql"] if line not in NOT_RUN]
    # Each starts Spark, and only reads: once is enough.
    assert {line: desk.run(line) for line in lines} == dict.fromkeys(lines)
