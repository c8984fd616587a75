"""`headgate sql`: scripts, formats, what is refused, and a conversation on a terminal."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from select import select

import pytest

from headgate.cli import output
from tests.cli.conftest import Ran, Run
from tests.cli.test_main import HEADGATE, lines_of
from tests.kit import java, req
from tests.kit.server import RunningServer

ROOT = Path(__file__).resolve().parents[2]
# Runs command after command in one process, so that one Spark serves them all.
MANY = """
import json, sys
from pathlib import Path
from tests.cli.conftest import runner
for line in sys.stdin:
    asked = json.loads(line)
    ran = runner(Path.cwd())(*asked["arguments"], stdin=asked["stdin"])
    print(json.dumps([ran.code, ran.out, ran.err]), file=sys.__stdout__, flush=True)
"""
ENDLESS = "SELECT sum(sqrt(a.id * b.id)) FROM range(1000000) a, range(1000000) b"
STARTING = ["Starting Spark …", "Spark <version> on local[2], ready in <time>."]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the lake is, and beside it what outlives a command."""
    return tmp_path_factory.mktemp("sql")


@pytest.fixture(scope="module")
def sql(place: Path) -> Iterator[Run]:
    """Run commands beside a lake, all of them in one process with one Spark."""
    java.require()
    many = subprocess.Popen(
        [sys.executable, "-c", MANY],
        cwd=place,
        env=environment(place) | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert many.stdin is not None
    assert many.stdout is not None
    asks, answers = many.stdin, many.stdout

    def run(*arguments: str | Path, stdin: str = "") -> Ran:
        asked = {"arguments": [str(argument) for argument in arguments], "stdin": stdin}
        print(json.dumps(asked), file=asks, flush=True)
        return Ran(*json.loads(answers.readline()))

    assert run("init").code == 0
    yield run
    asks.close()
    assert many.wait(60) == 0
    answers.close()


def environment(place: Path) -> dict[str, str]:
    return os.environ | {"XDG_STATE_HOME": str(place / "state"), "PROMPT_TOOLKIT_NO_CPR": "1"}


def notes(ran: Ran) -> list[str]:
    """Give the prose without what differs from run to run."""
    text = re.sub(r"\d+\.\d+ s", "<time>", ran.err)
    return re.sub(r"Spark \d[\w.]*", "Spark <version>", text).splitlines()


def ask(run: Run, text: str, *options: str) -> Ran:
    return run("sql", "--master", "local[2]", "-e", text, *options)


# Without Spark


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-e", "SELECT 1", "-f", "x.sql"], 2, "pass -e or -f, not both"),
        (["-e", "SELECT 1", "--format", "xml"], 2, "'xml' is not one of"),
        (["-f", "nowhere.sql"], 1, "No such file or directory: nowhere.sql"),
        (["-f", "binary.sql"], 1, "The script is not valid UTF-8"),
        (["-e", "SELECT 1;\nGRANT x"], 1, "at line 2, column 1:\n  GRANT x\n  ^"),
        (["-e", "SELECT 'a"], 1, "The string never ends, at line 1, column 8"),
        (["-e", "SELECT 1", "--lake", "nowhere"], 1, "There is no lake at nowhere"),
    ],
)
def test_wrong_usage_is_reported_before_spark_is_started(
    run: Run, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "binary.sql").write_bytes(b"SELECT '\xff'")
    run("init")
    ran = run("sql", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert "Starting Spark" not in ran.err


@pytest.mark.parametrize("text", ["", " ;; -- nothing\n"])
def test_a_script_without_statements_does_not_start_spark(run: Run, text: str) -> None:
    run("init")
    assert run("sql", "-e", text) == Ran(0, "", "The script contains no statement.\n")
    assert run("sql", stdin=text) == Ran(0, "", "The script contains no statement.\n")


@pytest.mark.slow
def test_without_pyspark_the_error_says_what_to_install(orders: Run, tmp_path: Path) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from headgate.cli.main import main"
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}; sys.exit(main(['sql', '-e', 'SELECT 1']))"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "PySpark is not installed.\nInstall it: pip install 'pyspark>=4.0,<4.4'." in ran.stderr


@pytest.mark.slow
def test_without_java_the_error_says_what_to_install(orders: Run, tmp_path: Path) -> None:
    ran = subprocess.run(
        [HEADGATE, "sql", "-e", "SELECT 1"],
        cwd=tmp_path,
        env=environment(tmp_path) | {"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "Spark needs Java 17 or later, and none is here.\n" in ran.stderr
    assert "apt install openjdk-17-jre-headless" in ran.stderr


# Tables on a terminal


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.usefixtures("narrow")
def test_on_a_narrow_terminal_the_widest_columns_are_truncated() -> None:
    row = (7, "a text of some length, and more", "another one, about as long")
    assert lines_of(output.table(("id", "first", "second"), [row], truncate=True)) == [
        "id  first              second",
        " 7  a text of some l…  another one, abo…",
    ]


@pytest.mark.usefixtures("narrow")
def test_columns_that_do_not_fit_at_all_are_left_out() -> None:
    names = [f"column_{number}" for number in range(10)]
    drawn = lines_of(output.table(names, [[f"value {n}" for n in range(10)]], truncate=True))
    assert drawn == ["column_0  column_1  column_2  …", "value 0   value 1   value 2   …"]


@pytest.mark.usefixtures("narrow")
def test_a_table_that_fits_is_not_changed() -> None:
    drawn = lines_of(output.table(("id", "what"), [(1, "bolt")], truncate=True))
    assert drawn == ["id  what", " 1  bolt"]


# On Spark


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_statement_of_a_script_shows_its_result(sql: Run, place: Path) -> None:
    (place / "orders.sql").write_text("""
        CREATE TABLE orders (id BIGINT NOT NULL, item STRING, price DECIMAL(10,2));
        INSERT INTO orders VALUES (1, 'bolt', 0.35), (2, 'nut', NULL), (3, 'gear', 14.9);
        UPDATE orders SET price = 0.2 WHERE item = 'nut';
        DELETE FROM orders WHERE id = 1;
        SELECT * FROM orders ORDER BY id;
        SELECT * FROM orders WHERE false;
    """)
    ran = sql("sql", "--master", "local[2]", "-f", "orders.sql")
    assert (ran.code, ran.lines) == (
        0,
        [
            *["num_affected_rows  num_inserted_rows", "3  3", ""],
            *["num_affected_rows", "1", ""],
            *["num_affected_rows", "1", ""],
            *["id  item  price", "2  nut  0.20", "3  gear  14.90", ""],
            "id  item  price",
        ],
    )
    assert notes(ran) == [
        *STARTING,
        "Done in <time>.",
        *["1 row in <time>."] * 3,
        "2 rows in <time>.",
        "0 rows in <time>.",
    ]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@req("MT-09", "MT-11")
def test_a_script_commits_or_rolls_back_as_a_whole(sql: Run) -> None:
    assert ask(sql, "CREATE TABLE t1 (id BIGINT); CREATE TABLE t2 (id BIGINT)").code == 0
    ran = ask(
        sql,
        "INSERT INTO t2 VALUES (1), (2); BEGIN TXN; INSERT INTO t1 VALUE (1);"
        " DELETE FROM t2 WHERE id IN (SELECT id FROM t1); END TXN; SELECT id FROM t2",
        "--json",
    )
    assert ran.code == 0
    ended = [json.loads(line) for line in ran.lines][-3:]
    assert [(row["state"], row["table"], row["version"]) for row in ended[:2]] == [
        ("ratified", "default.t1", 1),
        ("ratified", "default.t2", 2),
    ]
    assert ended[2] == {"id": 2}
    for end, code in (("ROLLBACK", 0), ("SELECT missing", 1), ("SELECT 1", 1)):
        ran = ask(sql, f"BEGIN; DELETE FROM t2; {end}")
        assert ran.code == code
        counted = ask(sql, "SELECT count(*) AS n FROM t2", "--json").lines
        assert [json.loads(line) for line in counted] == [{"n": 1}]
    assert "ended inside a transaction" in ran.err


VALUES = """
    SELECT 1 AS id, 'a "b", c' AS text, '' AS empty, CAST(NULL AS STRING) AS none, true AS yes,
           CAST(1.50 AS DECIMAL(5,2)) AS price, DATE'2026-03-01' AS day,
           TIMESTAMP'2026-03-01 12:00:00.25Z' AS at, TIMESTAMP_NTZ'2026-03-01 12:00:00' AS clock,
           X'00ff' AS bytes, double('NaN') AS odd, array(1, NULL) AS list,
           named_struct('at', TIMESTAMP'2026-03-01 12:00:00Z') AS inner, map(1, 'x') AS pairs,
           INTERVAL '1-2' YEAR TO MONTH AS months, INTERVAL '1 02' DAY TO HOUR AS hours,
           parse_json('{"a": 1}') AS free
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_json_is_one_object_a_line(sql: Run) -> None:
    ran = ask(sql, VALUES, "--format", "json")
    assert (ran.code, json.loads(ran.out)) == (
        0,
        {
            "id": 1,
            "text": 'a "b", c',
            "empty": "",
            "none": None,
            "yes": True,
            "price": "1.50",
            "day": "2026-03-01",
            "at": "2026-03-01T12:00:00.250000Z",
            "clock": "2026-03-01T12:00:00",
            "bytes": "AP8=",
            "odd": "NaN",
            "list": [1, None],
            "inner": {"at": "2026-03-01T12:00:00Z"},
            "pairs": {"1": "x"},
            "months": "INTERVAL '1-2' YEAR TO MONTH",
            "hours": "INTERVAL '1 02' DAY TO HOUR",
            "free": '{"a":1}',
        },
    )
    several = ask(sql, "SELECT id FROM range(2); SELECT 'x' AS y", "--json")
    assert (several.out, several.err) == ('{"id": 0}\n{"id": 1}\n{"y": "x"}\n', "")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_csv_distinguishes_null_from_an_empty_text(sql: Run) -> None:
    ran = ask(sql, VALUES, "--format", "csv")
    assert ran.out.splitlines() == [
        "id,text,empty,none,yes,price,day,at,clock,bytes,odd,list,inner,pairs,months,hours,free",
        '1,"a ""b"", c","",,true,1.50,2026-03-01,2026-03-01T12:00:00.250000Z,2026-03-01T12:00:00,'
        'AP8=,NaN,"[1, null]","{""at"": ""2026-03-01T12:00:00Z""}","{""1"": ""x""}",'
        'INTERVAL \'1-2\' YEAR TO MONTH,INTERVAL \'1 02\' DAY TO HOUR,"{""a"":1}"',
    ]
    several = ask(sql, "SELECT 1 AS a; SELECT 2 AS b, 3 AS b WHERE false", "--format", "csv")
    assert several.out == "a\n1\n\nb,b_2\n"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_columns_of_one_name_are_numbered_in_every_format(sql: Run) -> None:
    twice = "SELECT 1 AS id, 2 AS id_2, 3 AS id, struct(4 AS x, 5 AS x) AS s, 6 AS id"
    result = json.loads(ask(sql, twice, "--format", "json").out)
    assert result == {"id": 1, "id_2": 2, "id_3": 3, "s": {"x": 4, "x_2": 5}, "id_4": 6}
    assert ask(sql, twice, "--format", "csv").out.splitlines()[0] == "id,id_2,id_3,s,id_4"
    assert ask(sql, twice).out.split()[:5] == ["id", "id_2", "id_3", "s", "id_4"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tables_have_a_thousand_rows_and_other_formats_all(sql: Run) -> None:
    many = "SELECT id FROM range(2500)"
    shown = ask(sql, many)
    assert len(shown.out.splitlines()) == 1 + 1000
    assert notes(shown)[-1] == "The first 1,000 rows, in <time>. Use --all-rows for all."
    whole = ask(sql, many, "--all-rows")
    assert len(whole.out.splitlines()) == 3 + 2500  # a heading for each thousand
    assert notes(whole)[-1] == "2,500 rows in <time>."
    for format, heading in (("json", 0), ("csv", 1)):
        lines = ask(sql, many, "--format", format).out.splitlines()
        assert len(set(lines)) == heading + 2500
    exactly = ask(sql, "SELECT id FROM range(1000)")
    assert notes(exactly)[-1] == "1,000 rows in <time>."


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1;\n  SELECT nothing", "at line 2, column 10:\n    SELECT nothing\n           ^"),
        ("SELECT 1; SELECT * FROM nowhere", "NOWHERE"),
        ("SELECT 1;\nSELECT 1 FROM (VALUES (1) AS", "at line 2"),
        ("SELECT 1; SELECT 1 / id FROM range(1)", "Division by zero"),
    ],
)
def test_a_script_stops_at_the_first_error(sql: Run, text: str, message: str) -> None:
    ran = ask(sql, text + "; SELECT 'not run'")
    assert ran.code == 1
    assert "not run" not in ran.out
    assert message.lower() in ran.err.lower()
    assert "Traceback" not in ran.err
    assert '{"ts"' not in ran.err


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sql_runs_on_the_lake_of_a_server(sql: Run, place: Path) -> None:
    with RunningServer(str(place / "served")) as server:
        made = "CREATE TABLE t (id BIGINT); INSERT INTO t SELECT id FROM range(3)"
        assert ask(sql, made, "--lake", server.address).code == 0
        ran = sql(
            *["sql", "--lake", server.address, "--format", "csv"],
            stdin="SELECT sum(id) AS s FROM t;",
        )
        assert (ran.code, ran.out) == (0, "s\n3\n")


# A conversation


class Terminal:
    """A person at a terminal of 80 columns."""

    def __init__(self, place: Path, *arguments: str) -> None:
        self._shown = ""
        self._screen, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        self.process = subprocess.Popen(
            [HEADGATE, "sql", *arguments],
            cwd=place,
            env=environment(place) | {"TERM": "xterm", "NO_COLOR": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def answers(self, keys: str) -> None:
        """Type at the prompt."""
        self.sees("headgate>")
        self.type(keys)

    def sees(self, text: str, within: float = 120) -> None:
        """Wait until a text is on the screen, below what was waited for before."""
        deadline = time.monotonic() + within
        while text not in self._shown:
            left = max(0, deadline - time.monotonic())
            assert select([self._screen], [], [], left)[0], self._shown[-500:]
            self._shown += os.read(self._screen, 4096).decode(errors="replace")
            self._shown = re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>])", "", self._shown)
        self._shown = self._shown.partition(text)[2]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_statements_at_the_prompt(sql: Run, place: Path) -> None:
    assert ask(sql, "CREATE TABLE visitors (id BIGINT)").code == 0
    with Terminal(place, "--master", "local[2]") as person:
        person.sees("Starting Spark …")
        person.answers("SELECT 40 +\r")  # goes on in the next line
        person.type("2 AS answer;\r")
        person.sees("1 row in")

        person.answers("SELECT 'half a string")
        person.sees("half a string")
        person.type("\x03")  # Ctrl-C: thrown away
        person.answers("INSERT INTO visi\t")  # Tab: the table's name
        person.sees("tors")
        person.type(" VALUES (7);\r")
        person.sees("num_affected_rows")
        person.sees("1 row in")

        person.answers("SELECT nothing;\r")
        person.sees("[syntax]")

        person.answers(f"{ENDLESS};\r")
        person.sees("Running")
        os.kill(person.process.pid, signal.SIGINT)
        person.sees("Cancelled.")

        person.answers("BEGIN;\r")
        person.sees("headgate*>")
        person.type("DELETE FROM visitors;\r")
        person.sees("1 row in")
        person.sees("headgate*>")
        person.type("ROLLBACK;\r")
        person.sees("abandoned")

        person.answers("SELECT id + 1000 AS id FROM visitors;\r")  # and all goes on as before
        person.sees("1007")
        person.answers("\x04")  # Ctrl-D
        assert person.process.wait(60) == 0
    history = place / "state" / "headgate" / "sql_history"
    assert "+SELECT 40 +\n+2 AS answer;" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupted_script_stops(sql: Run, place: Path) -> None:
    script = f"SELECT 1 AS one; {ENDLESS}; SELECT 2 AS two"
    ran = subprocess.Popen(
        [HEADGATE, "sql", "--master", "local[2]", "-e", script],
        cwd=place,
        env=environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ran.stdout is not None
    assert ran.stdout.readline() == "one\n"
    time.sleep(3)
    ran.send_signal(signal.SIGINT)
    out, err = ran.communicate(timeout=60)
    assert ran.returncode == 130
    assert "two" not in out
    assert err.splitlines()[-2:] == ["Cancelling …", "Cancelled."]
