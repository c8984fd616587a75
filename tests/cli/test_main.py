"""Global options, help, and real processes: pipes, interrupts, how soon help is there."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate.cli import commands, output, terminal
from headgate.cli.main import main
from tests.cli.conftest import Run

HEADGATE = Path(sys.executable).with_name("headgate")


def test_global_options_may_precede_or_follow_the_command(orders: Run) -> None:
    before = orders("--lake", "lake", "--json", "show", "orders")
    after = orders("show", "orders", "--json", "--lake=lake")
    assert json.loads(before.out) == json.loads(after.out)


def test_after_two_dashes_everything_is_an_argument(orders: Run) -> None:
    assert "no table main.default.--json" in orders("show", "--", "--json").err


@pytest.mark.parametrize("command", commands.COMMANDS, ids=commands.name_of)
def test_help_describes_a_command_and_gives_examples(run: Run, command: object) -> None:
    assert callable(command)
    shown = run(commands.name_of(command), "--help")
    assert shown.code == 0
    assert "For example:\n    headgate" in shown.out
    assert commands.help_of(command).splitlines()[0] in shown.out


def test_help_lists_every_command(run: Run) -> None:
    shown = run("--help").out
    for command in commands.COMMANDS:
        assert f"\n  {commands.name_of(command)} " in shown
        assert f"{commands.help_of(command).splitlines()[0]}\n" in shown  # none is cut off


def test_version_shows_the_installed_version(run: Run) -> None:
    assert run("--version").out == "headgate 0.1.0\n"


def test_help_loads_no_slow_library() -> None:
    program = "import sys, headgate.cli.main; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    )
    slow = {"pyarrow", "obstore", "apsw", "msgspec", "rich", "email"}
    assert slow & set(done.stdout.split()) == set()


@pytest.mark.slow
def test_the_command_is_installed(tmp_path: Path) -> None:
    done = subprocess.run([HEADGATE, "init"], cwd=tmp_path, check=True, capture_output=True)
    assert done.stdout.startswith(b"Created a lake at lake;")
    refused = subprocess.run([HEADGATE, "show", "t"], cwd=tmp_path, capture_output=True)
    assert (refused.returncode, refused.stdout) == (1, b"")


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error(orders: Run, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [HEADGATE, "show"], cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.slow
def test_an_interrupted_append_changes_nothing(orders: Run, tmp_path: Path) -> None:
    with (tmp_path / "many.csv").open("w") as file:
        file.write("id,item\n")
        file.writelines(f"{number},bolt number {number}\n" for number in range(3_000_000))
    before = set(tmp_path.rglob("*.parquet"))
    appending = subprocess.Popen(
        [HEADGATE, "append", "orders", "many.csv"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # Once the database is open in it, it is past loading and on its way.
    deadline = time.monotonic() + 30
    while not opened_by(appending.pid, tmp_path / "many.csv") and time.monotonic() < deadline:
        time.sleep(0.01)
    appending.send_signal(signal.SIGINT)
    out, err = appending.communicate(timeout=60)
    assert (appending.returncode, out, err) == (130, b"", b"")
    assert set(tmp_path.rglob("*.parquet")) == before
    assert json.loads(orders("show", "orders", "--json").out)["latest"] == 2
    assert orders("fsck").code == 0


def opened_by(pid: int, path: Path) -> bool:
    try:
        return any(Path(link).resolve() == path for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # a descriptor that was closed meanwhile
        return False


# What is shown on a terminal


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")


def lines_of(drawn: str) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in drawn.splitlines()]


@pytest.mark.usefixtures("narrow")
def test_on_a_narrow_terminal_values_are_folded() -> None:
    lines = lines_of(output.table(("id", "what"), [("0199-abcdef", "word " * 10)]))
    assert max(map(len, lines)) <= 40
    assert len(lines) == 3


@pytest.mark.usefixtures("narrow")
def test_on_a_narrow_terminal_columns_are_shortened() -> None:
    row = ("0199-abcdef", "word " * 6)
    assert lines_of(output.table(("id", "what"), [row], shorten=["id"])) == [
        "id         what",
        "0199-abc…  word word word word word word",
    ]


def test_progress_is_shown_after_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(terminal, "_PATIENCE_S", 0.01)
    with output.Output(as_json=False).progress("Publishing", "commits") as progress:
        time.sleep(0.2)
        progress(1234, 4321)
    shown = capsys.readouterr()
    assert "Publishing" in shown.err
    assert "1,234 of 4,321 commits" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("as_json", [True, False])
def test_progress_is_not_shown_without_a_terminal(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with output.Output(as_json).progress("Appending", "bytes") as progress:
        progress(1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (109_800_000, "109.8 MB")],
)
def test_byte_sizes_have_a_suitable_unit(count: int, expected: str) -> None:
    assert output.byte_size(count) == expected


@pytest.mark.parametrize(
    ("milliseconds", "expected"), [(None, "-"), (1012, "+12 ms"), (3_601_000, "+3,600 s")]
)
def test_times_are_shown_since_the_proposal(milliseconds: int | None, expected: str) -> None:
    assert output.delay(milliseconds, 1000) == expected


def test_main_returns_the_exit_code() -> None:
    assert main(["--version"]) == 0
