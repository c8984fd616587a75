"""What is refused: the exit code, what is read about it, and that nothing changed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import headgate._connect
from headgate.errors import (
    BusyError,
    ConflictError,
    HeadgateError,
    InvalidCommitError,
    InvariantError,
    NotPublishedError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
)
from tests.cli.conftest import Run, runner

CHANGING = {
    "a file that is not there": (
        ["append", "orders", "nowhere.csv"],
        "There is no file nowhere.csv",
    ),
    "a table that is not there": (
        ["append", "nothing", "good.csv"],
        "no table main.default.nothing",
    ),
    "a word where a number goes": (["append", "orders", "word.csv"], "word.csv row 3"),
    "a row that is too long": (["append", "orders", "long.csv"], "long.csv row 2"),
    "an unknown column": (["append", "orders", "column.csv"], "has a column 'colour'"),
    "a fraction in a long": (["append", "orders", "fraction.json"], "line 2 column 'id'"),
    "half a line of JSON": (["append", "orders", "half.json"], "half.json line 1"),
    "no Parquet at all": (["append", "orders", "none.parquet"], "none.parquet"),
    "no CSV at all": (["append", "orders", "empty.csv"], "empty.csv"),
    "nothing where something must be": (
        ["append", "orders", "good.csv", "null.csv"],
        "null.csv, rows 1 to 2: Column 'id' may not be null",
    ),
    "a constraint that is broken": (
        ["append", "orders", "negative.csv"],
        "negative.csv, rows 1 to 1: 1 row of 1 break the constraint paid (price > 0)",
    ),
    "an unknown format": (["append", "orders", "good.csv", "--format=xml"], "format 'xml'"),
    "a name that is taken": (["create", "orders", "id long"], "main.default.orders already"),
    "a name that cannot be": (["create", "a b", "id long"], "'a b' contains ' '"),
    "a name of four parts": (["create", "a.b.c.d", "id long"], "more than three parts"),
    "a namespace that is not there": (
        ["create", "x.y", "id long"],
        "no namespace main.x.\nCreate it: session.create_namespace(), or `headgate create-",
    ),
    "an unknown type": (["create", "t", "id lang"], "'lang' is not a type"),
    "a column twice": (["create", "t", "id long, ID long"], "given twice"),
    "no columns": (["create", "t", ""], "The schema"),
    "a partition column that does not exist": (
        ["create", "t", "id long", "--partition-by=day"],
        "no column 'day' to partition by",
    ),
    "a property that is none": (
        ["create", "t", "id long", "--property=x"],
        "'x' is not a valid property",
    ),
    "an unknown feature": (
        ["create", "t", "id long", "--property=delta.feature.x=supported"],
        "Tables with x",
    ),
    "a namespace that is taken": (["create-namespace", "default"], "main.default"),
    "a lake that is there": (["init"], "already a lake at lake"),
    "a version to come": (["publish", "orders", "--up-to=99"], "Its latest is 0"),
    "a checkpoint to come": (["checkpoint", "orders", "--version=99"], "no version 99"),
    "a form the table lacks": (["checkpoint", "orders", "--v2"], "delta.checkpointPolicy=v2"),
    "a new name that is taken": (["rename", "orders", "FREE"], "main.default.FREE"),
    "an old name that is not": (["rename", "nothing", "t"], "no table main.default.nothing"),
    "a new namespace that is taken": (
        ["rename-namespace", "default", "other.x"],
        "cannot be moved to another catalog",
    ),
    "the catalog of every lake": (["rename-catalog", "main", "x"], "cannot be renamed"),
    "a drop of nothing": (["drop", "nothing"], "no table main.default.nothing"),
    "an undrop of nothing": (["undrop", "orders"], "`headgate show --dropped`"),
    "a purge of what lives": (["purge", "orders", "--yes"], "There is no dropped table orders"),
    "a check of nothing": (["fsck", "nothing"], "no table main.default.nothing"),
}
READING = {
    "a table that is not there": (["show", "nothing"], "no table main.default.nothing"),
    "a log of nothing": (["log", "nothing"], "no table main.default.nothing"),
    "a version to come": (["show", "orders", "--version=99"], "its latest is 0"),
    "a version before the first": (["show", "orders", "--version=-1"], "no version -1"),
    "a sequence to come": (["show", "orders", "--sequence=99"], "sequence 99"),
    "no time": (["show", "orders", "--as-of=yesterday"], "'yesterday' is not a date or time"),
    "a time without a zone": (["show", "orders", "--as-of=2026-03-01T12:00"], "has no time zone"),
    "a time before the table": (
        ["show", "orders", "--as-of=2001-01-01T00:00:00Z"],
        "2001-01-01T00:00",
    ),
    "a time to come": (
        ["show", "orders", "--as-of=2345-06-07T08:09:10Z"],
        "has not reached 2345-06-07T08:09:10.000Z",
    ),
    "two moments": (["show", "orders", "--version=0", "--sequence=1"], "more than one of"),
    "an unknown column": (
        ["show", "orders", "--columns=x"],
        "Use columns of the table: id, item",
    ),
    "an address of nothing": (["show", "--lake="], "address is empty"),
    "an address of no kind": (["show", "--lake=ftp://localhost/x"], "not the address of a catalog"),
    "a file for a lake": (["show", "--lake=good.csv"], "not a directory"),
    "a directory that is none": (["show", "--lake=."], "not empty and is not a lake"),
    "a lake that is not there": (["show", "--lake=nowhere"], "no lake at nowhere"),
}
USAGE = {
    "no command": [],
    "an unknown command": ["conjure"],
    "an unknown option": ["show", "--colour"],
    "a table too few": ["drop"],
    "a table too many": ["drop", "a", "b"],
    "a number that is none": ["show", "orders", "--version=x"],
    "a limit below none": ["show", "orders", "--limit=-1"],
    "a moment of no table": ["show", "--version=1"],
    "standard input of no format": ["append", "orders", "-"],
    "an unknown file extension": ["append", "orders", "rows.txt"],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One lake for all: nothing that is done here changes it."""
    where = tmp_path_factory.mktemp("errors")
    run = runner(where)
    for name, text in {
        "good.csv": "id,price\n1,2\n",
        "word.csv": "id,item\n1,bolt\nx,nut\n",
        "long.csv": "id\n1,2\n",
        "column.csv": "id,colour\n1,red\n",
        "null.csv": "id,price\n1,2\n,3\n",
        "negative.csv": "id,price\n1,-1\n",
        "empty.csv": "",
        "fraction.json": '{"id": 1}\n{"id": 1.5}\n',
        "half.json": '{"id": 1\n',
        "none.parquet": "hello",
    }.items():
        (where / name).write_text(text)
    run("init")
    constraint = "--property=delta.constraints.paid=price > 0"
    run("create", "free", "id long")
    assert (
        run("create", "orders", "id long not null, item string, price long", constraint).code == 0
    )
    return run


def history(run: Run) -> object:
    entries = json.loads(run("show", "--dropped", "--json").out)["tables"]
    return [(entry["table"], entry["state"], entry["latest"]) for entry in entries]


@pytest.mark.parametrize("case", CHANGING)
def test_an_invalid_command_is_refused_and_changes_nothing(lake: Run, case: str) -> None:
    arguments, message = CHANGING[case]
    before = history(lake)
    refused = lake(*arguments)
    assert (refused.code, refused.out) == (1, "")
    assert message in refused.err
    assert "Traceback" not in refused.err
    assert history(lake) == before


@pytest.mark.parametrize("case", READING)
def test_an_invalid_read_is_refused(lake: Run, case: str) -> None:
    arguments, message = READING[case]
    refused = lake(*arguments)
    assert (refused.code, refused.out) == (1, "")
    assert message in refused.err
    assert "Traceback" not in refused.err


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_shows_the_usage(lake: Run, case: str) -> None:
    refused = lake(*USAGE[case])
    assert refused.code == 2
    assert "Usage: headgate" in refused.err + refused.out


@pytest.mark.parametrize("case", [case for case in USAGE if USAGE[case]])
def test_wrong_usage_is_reported_as_json(lake: Run, case: str) -> None:
    refused = lake(*USAGE[case], "--json")
    assert (refused.code, refused.out) == (2, "")
    error_fields = json.loads(refused.err)["error"]
    assert (error_fields["code"], error_fields["retry"]) == ("usage", "never")
    assert error_fields["message"]
    command = USAGE[case][0]
    assert error_fields["remedy"] == (
        "See `headgate --help`." if command == "conjure" else f"See `headgate {command} --help`."
    )


def test_an_error_as_text_has_message_remedy_and_code(lake: Run) -> None:
    assert lake("show", "nothing").err.splitlines() == [
        "There is no table main.default.nothing.",
        "Check the name: session.tables() or `headgate show` list what exists.",
        "[not-found]",
    ]


def test_an_error_as_json_has_the_same_fields(lake: Run) -> None:
    refused = lake("show", "nothing", "--json")
    assert (refused.code, refused.out) == (1, "")
    assert json.loads(refused.err) == {
        "error": {
            "code": "not-found",
            "message": "There is no table main.default.nothing.",
            "remedy": "Check the name: session.tables() or `headgate show` list what exists.",
            "retry": "never",
        }
    }


def test_only_init_creates_a_lake(run: Run, tmp_path: Path) -> None:
    for arguments in (["show"], ["create", "t", "id long"], ["fsck"]):
        refused = run(*arguments)
        assert refused.code == 1
        assert "`headgate init lake`" in refused.err
    (tmp_path / "lake").mkdir()  # nor is an empty directory taken for one
    assert run("show").code == 1
    assert list((tmp_path / "lake").iterdir()) == []
    assert run("show", "--lake=sqlite:///nowhere/at/all.db").code == 1


def raising(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConflictError("t", ["R5: version 2 removed files that we read"]), 3),
        (OutcomeUnknownError("0199-a", "no answer came"), 3),
        (UnavailableError("The disk is away."), 3),
        (BusyError("Too much at once."), 3),
        (NotPublishedError("t", 7), 3),
        (RefusedError("No."), 1),
        (InvalidCommitError("t", ["there is no commitInfo"]), 1),
        (InvariantError("Two truths."), 1),
        (PermissionError(13, "Permission denied", "lake/headgate.db"), 1),
        (OSError(28, "No space left on device"), 1),
        (ZeroDivisionError("division by zero"), 70),
    ],
)
def test_the_exit_code_depends_on_whether_another_try_can_help(
    lake: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    monkeypatch.setattr(headgate._connect, "connect", raising(error))
    refused = lake("show")
    assert (refused.code, refused.out) == (code, "")
    assert "Traceback" not in refused.err
    error_fields = json.loads(lake("show", "--json").err)["error"]
    assert {"code", "message", "remedy", "retry"} <= error_fields.keys()
    if isinstance(error, HeadgateError):
        assert error_fields["code"] == error.code
        assert error_fields["retry"] == error.retry.value


def test_all_conflicts_are_listed(lake: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    conflicts = [
        "R5: version 2 removed files that we read",
        "R6: version 2 removed files that we remove",
    ]
    monkeypatch.setattr(headgate._connect, "connect", raising(ConflictError("t", conflicts)))
    assert json.loads(lake("show", "--json").err)["error"]["conflicts"] == conflicts


def test_an_unknown_outcome_names_its_transaction(
    lake: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OutcomeUnknownError("0199-a", "no answer came")
    monkeypatch.setattr(headgate._connect, "connect", raising(error))
    assert json.loads(lake("show", "--json").err)["error"]["txnId"] == "0199-a"


def test_a_bug_is_reported_with_a_traceback_on_request(
    lake: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headgate._connect, "connect", raising(KeyError("surprise")))
    assert lake("show").err.startswith("This is a bug in Headgate: KeyError: 'surprise'\n")
    monkeypatch.setenv("HEADGATE_DEBUG", "1")
    assert "Traceback" in lake("show").err


def test_an_interrupt_ends_quietly(lake: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headgate._connect, "connect", raising(KeyboardInterrupt()))  # type: ignore[arg-type]
    ended = lake("show")
    assert (ended.code, ended.out, ended.err) == (130, "", "")


def test_errors_name_standard_input(lake: Run) -> None:
    refused = lake("append", "orders", "-", "--format=csv", stdin="id\nx\n")
    assert refused.err.startswith("standard input row 2 (the heading is row 1) column 'id'")
    refused = lake("append", "orders", "-", "--format=json", stdin='{"item": "nut"}\n')
    assert refused.err.startswith("standard input, rows 1 to 1: Column 'id' may not be null")
