"""Commands that commit to a table: rows in place of others, properties, a comment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headgate
from tests.cli.conftest import Run


def ids(tmp_path: Path, version: int | None = None) -> list[int]:
    with headgate.connect(tmp_path / "lake") as session:
        found = session.table("orders").to_arrow(version=version)["id"].to_pylist()
    return sorted(found)


def test_overwrite_replaces_all_rows(orders: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,item\n7,cog\n")
    (tmp_path / "b.json").write_text('{"id": 8}\n')
    done = orders("overwrite", "orders", "a.csv", "b.json")
    assert done.lines == [
        "main.default.orders is at version 3: 2 rows written, all earlier ones replaced, inline,"
        " txnId <id>."
    ]
    assert (ids(tmp_path), ids(tmp_path, 2)) == ([7, 8], [1, 2, 3])
    result = json.loads(orders("overwrite", "orders", "a.csv", "--json").out)
    assert (result["version"], result["rows"]) == (4, 1)
    assert ids(tmp_path) == [7]


def test_overwrite_without_rows_leaves_an_empty_table(orders: Run, tmp_path: Path) -> None:
    done = orders("overwrite", "orders", "-", "--format", "csv", stdin="id,item\n")
    assert (done.code, "0 rows" in done.out) == (0, True)
    assert (ids(tmp_path), ids(tmp_path, 2)) == ([], [1, 2, 3])


def test_overwrite_with_invalid_rows_changes_nothing(orders: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("id,item\n1,bolt\nx,nut\n")
    refused = orders("overwrite", "orders", "bad.csv")
    assert (refused.code, refused.err.count("bad.csv")) == (1, 1)
    (tmp_path / "null.csv").write_text("id,item\n,bolt\n")
    refused = orders("overwrite", "orders", "null.csv")
    assert (refused.code, refused.err.startswith("null.csv, rows 1 to 1: ")) == (1, True)
    assert ids(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("command", ["append", "overwrite"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_file_that_cannot_be_read_is_named_and_no_other(
    orders: Run, tmp_path: Path, command: str, place: int
) -> None:
    (tmp_path / "good.csv").write_text("id,item\n1,bolt\n")
    (tmp_path / "bad.csv").write_text("id,item\n1,bolt\nx,nut\n")
    files = ["good.csv", "good.csv"]
    files[place] = "bad.csv"
    refused = orders(command, "orders", *files)
    assert (refused.code, refused.err.startswith("bad.csv row 3 ")) == (1, True)
    assert "good.csv" not in refused.err
    assert ids(tmp_path) == [1, 2, 3]


def test_a_file_whose_name_starts_like_the_message_is_named_once(
    orders: Run, tmp_path: Path
) -> None:
    """Such a message looks as if it contained the position already."""
    (tmp_path / "Column").write_text("id,item\n,bolt\n")
    refused = orders("append", "orders", "Column", "--format", "csv")
    assert (refused.code, refused.err.startswith("Column, rows 1 to 1: ")) == (1, True)


def test_properties_are_shown_set_and_removed(orders: Run) -> None:
    shown = orders("properties", "orders")
    assert shown.lines == [
        "delta.enableInCommitTimestamps  true",
        "io.unitycatalog.tableId  <id>",
    ]
    assert shown.err == ""
    done = orders("properties", "orders", "--set", "team=a=b", "--set", "delta.appendOnly=true")
    assert "team                            a=b" in done.out
    assert done.err == "main.default.orders is at version 3.\n"
    result = json.loads(orders("properties", "orders", "--unset", "team", "--json").out)
    assert (result["table"], result["version"]) == ("main.default.orders", 4)
    assert sorted(result["properties"]) == [
        "delta.appendOnly",
        "delta.enableInCommitTimestamps",
        "io.unitycatalog.tableId",
    ]
    assert orders("overwrite", "orders", "-", "--format=csv", stdin="id,item\n1,a\n").code == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--unset", "missing"], 1),
        (["--set", "io.unitycatalog.tableId=x"], 1),
        (["--set", "nothing"], 1),
        (["--set", "a=b", "--unset", "c"], 2),
    ],
    ids=["one that is not there", "the catalog's own", "no value", "both at once"],
)
def test_changes_of_properties_that_are_not_allowed_are_refused(
    orders: Run, arguments: list[str], code: int
) -> None:
    assert orders("properties", "orders", *arguments).code == code
    assert json.loads(orders("show", "orders", "--json").out)["latest"] == 2


def test_a_comment_is_set_and_removed(orders: Run) -> None:
    done = orders("comment", "orders", "what was sold")
    assert done.out == "main.default.orders is at version 3: its comment is 'what was sold'.\n"
    assert json.loads(orders("show", "orders", "--json").out)["comment"] == "what was sold"
    result = json.loads(orders("comment", "orders", "", "--json").out)
    assert result == {"table": "main.default.orders", "version": 4, "comment": None}
    assert json.loads(orders("show", "orders", "--json").out)["comment"] is None


def test_create_if_not_exists_does_not_change_an_existing_table(orders: Run) -> None:
    refused = orders("create", "orders", "other string")
    assert (refused.code, "[already-exists]" in refused.err) == (1, True)
    left = orders("create", "Orders", "other string", "--if-not-exists")
    assert (left.code, left.lines) == (
        0,
        ["main.default.orders already exists, id <id>: nothing was changed."],
    )
    result = json.loads(orders("create", "orders", "x long", "--if-not-exists", "--json").out)
    assert result["created"] is False
    result = json.loads(orders("create", "new", "x long", "--if-not-exists", "--json").out)
    assert result["created"] is True
    shown = json.loads(orders("show", "orders", "--json").out)
    assert (shown["tableId"] != result["tableId"], shown["latest"]) == (True, 2)


def test_create_if_not_exists_fails_if_the_name_is_not_a_table_of_the_lake(
    orders: Run, tmp_path: Path
) -> None:
    orders("register-external", "raw", str(tmp_path / "raw"), "--format", "csv")
    refused = orders("create", "raw", "id long", "--if-not-exists")
    assert (refused.code, "[already-exists]" in refused.err) == (1, True)
