"""Every command, what it prints and what it leaves behind."""

import json
from contextlib import closing
from pathlib import Path

import apsw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate
from tests.cli.conftest import Run


def test_init_creates_a_lake_at_the_given_address(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_LAKE", "from-the-environment")
    assert run("init").code == 0
    assert run("init", "--lake", "from-an-option").code == 0
    made = run("init", "from-an-argument")
    assert made.out == (
        "Created a lake at from-an-argument; its tables are stored under"
        f" file://{tmp_path}/from-an-argument.\n"
    )
    assert made.err == ("Use it with --lake from-an-argument, or HEADGATE_LAKE=from-an-argument.\n")
    lakes = {path.parent.name for path in tmp_path.glob("*/headgate.db")}
    assert lakes == {"from-the-environment", "from-an-option", "from-an-argument"}


def test_init_with_a_root_stores_tables_there(run: Run, tmp_path: Path) -> None:
    run("init", "--root", f"file://{tmp_path}/elsewhere")
    run("create", "orders", "id long")
    assert len(list(tmp_path.glob("elsewhere/tables/*"))) == 1


def test_create_applies_all_its_options(run: Run) -> None:
    run("init")
    made = run(
        "create",
        "sales.orders",
        "id long not null, day date comment 'when', amount decimal(10,2)",
        "--partition-by=day",
        "--property=delta.appendOnly=true",
        "--property=team=a=b",
        "--comment=what was sold",
        "--create-namespace",
    )
    assert made.lines == ["Created main.sales.orders, id <id>."]
    shown = json.loads(run("show", "sales.orders", "--json").out)
    assert shown["columns"] == [
        {"name": "id", "type": "long", "nullable": False, "comment": None},
        {"name": "day", "type": "date", "nullable": True, "comment": "when"},
        {"name": "amount", "type": "decimal(10,2)", "nullable": True, "comment": None},
    ]
    assert shown["partitionBy"] == ["day"]
    assert shown["comment"] == "what was sold"
    assert shown["properties"]["delta.appendOnly"] == "true"
    assert shown["properties"]["team"] == "a=b"


def test_namespaces_are_created_and_dropped(run: Run) -> None:
    run("init")
    assert run("create-namespace", "sales").out == "Created the namespace main.sales.\n"
    assert run("create", "sales.orders", "id long").code == 0
    assert run("drop-namespace", "sales").code == 1
    run("rename", "sales.orders", "orders")
    assert run("drop-namespace", "sales").out == "Dropped the namespace main.sales.\n"
    assert run("show").err == "Namespaces: main.default.\n"


def test_create_namespace_option_accepts_an_existing_namespace(run: Run) -> None:
    run("init")
    assert run("create", "sales.a", "id long", "--create-namespace").code == 0
    assert run("create", "SALES.b", "id long", "--create-namespace").code == 0


def test_append_reads_files_of_every_format_in_one_commit(run: Run, tmp_path: Path) -> None:
    run("init")
    run("create", "orders", "id long, item string")
    (tmp_path / "a.csv").write_text("item,id\nbolt,1\n")
    (tmp_path / "b.jsonl").write_text('{"id": 2}\n\n{"id": 3, "item": "gear"}\n')
    pq.write_table(pa.table({"id": [4]}), tmp_path / "c.parquet")
    done = run("append", "orders", "a.csv", "b.jsonl", "c.parquet")
    assert done.lines == [
        "main.default.orders is at version 1: 4 rows appended, inline, txnId <id>."
    ]
    with headgate.connect(tmp_path / "lake") as session:
        rows = session.table("orders").to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["item"]) for row in rows] == [
        (1, "bolt"),
        (2, None),
        (3, "gear"),
        (4, None),
    ]


def test_the_format_option_overrides_the_file_extension(run: Run, tmp_path: Path) -> None:
    run("init")
    run("create", "orders", "id long")
    (tmp_path / "rows.txt").write_text("id\n1\n")
    done = json.loads(run("append", "orders", "rows.txt", "--format=csv", "--json").out)
    assert (done["version"], done["rows"], done["way"]) == (1, 1, "inline")


def test_append_without_rows_commits_nothing(orders: Run) -> None:
    done = orders("append", "orders", "-", "--format", "csv", stdin="id,item\n")
    assert (done.code, done.out) == (0, "The files have no rows: nothing was committed.\n")
    assert json.loads(orders("show", "orders", "--json").out)["latest"] == 2


def test_rows_that_were_shown_can_be_appended_again(run: Run, tmp_path: Path) -> None:
    types = (
        "l long, d double, n decimal(20,3), b boolean, day date, t timestamp, w timestamp_ntz,"
        " x binary, a array<int>, m map<string, int>, s struct<p: string, q: date>"
    )
    row = (
        '{"l": -5, "d": "NaN", "n": 12345.678, "b": true, "day": "2026-03-01",'
        ' "t": "2026-03-01T12:00:00.000001Z", "w": "2026-03-01T12:00:00", "x": "aGk=",'
        ' "a": [1, null], "m": {"k": 1}, "s": {"p": "é", "q": "1970-01-01"}}'
    )
    run("init")
    run("create", "all_types", types)
    assert run("append", "all_types", "-", "--format=json", stdin=row).code == 0
    shown = json.loads(run("show", "all_types", "--json").out)["rows"]
    again = run("append", "all_types", "-", "--format=json", stdin=json.dumps(shown[0]))
    assert again.code == 0
    assert json.loads(run("show", "all_types", "--json").out)["rows"] == shown * 2


def test_tables_are_listed(orders: Run) -> None:
    shown = orders("show")
    assert shown.lines == [
        "table  latest  published  created",
        "main.default.orders  2  2  <time>",
    ]
    assert shown.err == "Namespaces: main.default.\n"


def test_a_table_is_shown(orders: Run, tmp_path: Path) -> None:
    shown = orders("show", "orders", "--limit", "2")
    assert shown.lines == [
        "table  main.default.orders",
        "id  <id>",
        f"location  file://{tmp_path}/lake/tables/<id>",
        "version  2, committed <time>",
        "latest  2",
        "published  up to 2",
        shown.lines[6],
        "property  delta.enableInCommitTimestamps=true",
        "property  io.unitycatalog.tableId=<id>",
        "",
        "column  type  null",
        "id  long  not null",
        "item  string",
        "price  decimal(10,2)",
        "",
        "id  item  price",
        "1  bolt  1.50",
        "2  nut  NULL",
    ]
    assert shown.lines[6].startswith("files  2, ")
    assert shown.err == "There are more rows: use --limit 20.\n"


def test_output_has_no_escape_codes_without_a_terminal(orders: Run) -> None:
    for arguments in (["show"], ["show", "orders"], ["log", "orders"]):
        assert orders(*arguments).out.isascii()
        assert "\x1b" not in orders(*arguments).out


def test_show_reads_earlier_versions(orders: Run) -> None:
    commits = json.loads(orders("log", "orders", "--json").out)["commits"]
    asked = (
        ["--version", "1"],
        ["--as-of", commits[1]["timestamp"]],
        ["--sequence", str(commits[1]["sequence"])],
    )
    for when in asked:
        shown = json.loads(orders("show", "orders", "--columns", "id", *when, "--json").out)
        assert (shown["version"], shown["latest"]) == (1, 2)
        assert shown["rows"] == [{"id": 1}, {"id": 2}]


def test_a_table_without_rows_says_so(run: Run) -> None:
    run("init")
    run("create", "orders", "id long")
    assert run("show", "orders").lines[-1] == "No rows."
    assert run("show", "orders", "--limit", "0").lines[-1] == "id  long"


def test_a_lake_without_tables_says_so(run: Run) -> None:
    run("init")
    assert run("show").out == "No tables.\n"


def test_a_value_cannot_move_the_cursor(run: Run) -> None:
    run("init")
    run("create", "t", "s string")
    run("append", "t", "-", "--format=json", stdin='{"s": "a\\u001b[2Jb\\nc"}')
    assert run("show", "t").lines[-1] == r"a\x1b[2Jb\nc"


def test_times_that_python_does_not_support_are_shown(run: Run, tmp_path: Path) -> None:
    run("init")
    run("create", "t", "at timestamp")
    beyond = pa.array([400_000_000_000_000_000], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": beyond}), tmp_path / "rows.parquet")
    assert run("append", "t", "rows.parquet").code == 0
    assert run("show", "t").lines[-1].startswith("14645-06-30")


def test_the_log_shows_each_commit_newest_first(orders: Run) -> None:
    assert orders("log", "orders").lines == [
        "version  way  state  proposed  ratified  published  txnId  operation",
        "2  inline  published  <time>  <later>  <later>  <id>  WRITE Append, 1 row",
        "1  inline  published  <time>  <later>  <later>  <id>  WRITE Append, 2 rows",
        "0  inline  published  <time>  <later>  <later>  <id>  CREATE TABLE",
    ]


def test_the_log_can_be_limited(orders: Run) -> None:
    short = orders("log", "orders", "--limit", "1")
    assert len(short.lines) == 2
    assert short.err == "There are older commits: use --limit 3.\n"


def test_the_log_as_json_has_all_times(orders: Run) -> None:
    result = json.loads(orders("log", "orders", "--json").out)
    newest = result["commits"][0]
    assert (newest["version"], newest["way"], newest["state"]) == (2, "inline", "published")
    assert newest["proposed"] <= newest["ratified"] <= newest["published"]
    assert newest["operation"] == "WRITE"
    assert newest["metrics"]["numOutputRows"] == "1"


def test_a_table_is_published_and_checkpointed(orders: Run, tmp_path: Path) -> None:
    assert orders("publish", "orders", "--up-to=1").out == (
        "main.default.orders is published up to version 2.\n"
    )
    assert orders("checkpoint", "orders", "--version=1").out == (
        "Wrote a checkpoint of main.default.orders at version 1.\n"
    )
    assert json.loads(orders("checkpoint", "orders", "--json").out)["version"] == 2
    written = [path.name for path in tmp_path.glob("lake/tables/*/_delta_log/*.parquet")]
    assert sorted(written) == [f"{version:020d}.checkpoint.parquet" for version in (1, 2)]


def test_a_v2_checkpoint_has_sidecars(run: Run, tmp_path: Path) -> None:
    run("init")
    run("create", "t", "id long", "--property=delta.checkpointPolicy=v2")
    assert run("checkpoint", "t", "--v2").code == 0
    assert list(tmp_path.glob("lake/tables/*/_delta_log/*.checkpoint.*-*.parquet"))


def test_if_not_exists_keeps_an_existing_lake_and_namespace(run: Run) -> None:
    assert run("init", "--if-not-exists").code == 0
    again = run("init", "--if-not-exists", "--json")
    assert json.loads(again.out) == {"lake": "lake", "created": False}
    for _ in range(2):
        assert run("create-namespace", "sales", "--if-not-exists").code == 0
    assert run("init").code == 1
    assert run("create-namespace", "sales").code == 1


def test_a_namespace_and_a_catalog_are_renamed(run: Run) -> None:
    run("init")
    run("create", "other.sales.orders", "id long", "--create-namespace")
    assert run("rename-namespace", "other.sales", "sold").out == (
        "Renamed the namespace other.sales to other.sold.\n"
    )
    result = run("rename-catalog", "other", "archive", "--json")
    assert json.loads(result.out) == {"catalog": "archive"}
    assert json.loads(run("show", "archive.sold.orders", "--json").out)["latest"] == 0


def test_a_table_is_renamed(orders: Run) -> None:
    assert orders("rename", "orders", "sold").out == (
        "Renamed main.default.orders to main.default.sold.\n"
    )
    assert orders("show", "orders").code == 1
    assert json.loads(orders("show", "sold", "--json").out)["latest"] == 2


def test_a_table_is_dropped_and_undropped(orders: Run) -> None:
    dropped = orders("drop", "orders")
    assert dropped.lines == ["Dropped main.default.orders, id <id>."]
    assert dropped.err == ("Its files are kept: see `headgate undrop` and `headgate purge`.\n")
    assert orders("show").out == "No tables.\n"
    assert orders("show", "--dropped").lines == [
        "table  latest  published  created  state  dropped  id",
        "main.default.orders  2  2  <time>  dropped  <time>  <id>",
    ]
    assert orders("undrop", "orders", "--as", "again").lines == [
        "Restored main.default.again at version 2, id <id>."
    ]


def test_a_dropped_table_is_undropped_by_its_id(orders: Run) -> None:
    table_id = json.loads(orders("drop", "orders", "--json").out)["tableId"]
    back = json.loads(orders("undrop", table_id, "--json").out)
    assert back == {"table": "main.default.orders", "tableId": table_id, "version": 2}


def test_purge_asks_for_confirmation(orders: Run, tmp_path: Path) -> None:
    orders("drop", "orders")
    refused = orders("purge", "orders", stdin="n\n")
    assert refused.code == 1
    assert refused.err.splitlines()[-3:] == [
        "Nothing was purged.",
        "Pass --yes to skip the question.",
        "[refused]",
    ]
    unasked = orders("purge", "orders", "--json", stdin="y\n")
    assert (unasked.code, unasked.out) == (1, "")
    assert json.loads(unasked.err)["error"]["remedy"] == "Pass --yes to skip the question."
    assert list(tmp_path.glob("lake/tables/*/*.parquet"))
    done = orders("purge", "orders", stdin="y\n")
    assert (done.code, done.out) == (0, "Purged orders: 5 files deleted.\n")
    assert list(tmp_path.glob("lake/tables/*")) == []


def test_of_dropped_tables_with_one_name_purge_takes_the_given_id(orders: Run) -> None:
    first = json.loads(orders("drop", "orders", "--json").out)["tableId"]
    orders("create", "orders", "id long")
    second = json.loads(orders("drop", "orders", "--json").out)["tableId"]
    refused = orders("purge", "orders", "--yes")
    assert refused.code == 1
    assert first in refused.err
    assert second in refused.err
    assert orders("purge", first, "--yes").code == 0
    assert orders("undrop", "orders").code == 0


def test_fsck_finds_no_problems_in_a_healthy_lake(orders: Run) -> None:
    assert orders("fsck").out == "No problems found.\n"
    assert json.loads(orders("fsck", "orders", "--json").out) == {
        "findings": [],
        "errors": 0,
        "warnings": 0,
    }


def test_fsck_shows_findings_with_their_remedies(orders: Run, tmp_path: Path) -> None:
    (log,) = tmp_path.glob("lake/tables/*/_delta_log")
    gone = log / f"{1:020d}.json"
    gone.rename(tmp_path / "aside.json")
    found = orders("fsck", "orders")
    assert found.code == 1
    assert "error: main.default.orders version 1" in found.out
    result = json.loads(orders("fsck", "--json").out)
    assert result["errors"] == 1
    assert result["findings"][0]["remedy"]
    (tmp_path / "aside.json").rename(gone)
    assert orders("fsck", "--repair").code == 0


def test_fsck_fails_with_a_warning_but_not_with_a_note(orders: Run, tmp_path: Path) -> None:
    (log,) = tmp_path.glob("lake/tables/*/_delta_log")
    (log / "notes.txt").write_text("mine")
    assert orders("fsck").code == 0
    (log / f"{7:020d}.json").write_text("{}\n")
    result = orders("fsck", "--json")
    assert (result.code, json.loads(result.out)["warnings"]) == (1, 1)
    assert orders("fsck", "--repair").code == 0
    assert orders("fsck").code == 0


@pytest.mark.parametrize("damage", ["leaf", "half", "header", "cut"])
def test_fsck_reports_a_malformed_database_as_a_finding(
    orders: Run, tmp_path: Path, damage: str
) -> None:
    database = tmp_path / "lake" / "headgate.db"
    with closing(apsw.Connection(str(database))) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        [[leaf]] = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'listeners' AND type = 'table'"
        )
    content = bytearray(database.read_bytes())
    half = len(content) // 2
    match damage:
        case "leaf":  # of a table that no check of the logs reads
            content[(leaf - 1) * 4096 : leaf * 4096] = b"\xa5" * 4096
        case "half":
            content[half:] = b"\xa5" * half
        case "header":
            content[:100] = b"\xa5" * 100
        case _:
            del content[half:]
    database.write_bytes(content)
    for arguments in (("fsck",), ("fsck", "--repair"), ("fsck", "orders")):
        found = orders(*arguments, "--json")
        assert found.code == 1
        report = json.loads(found.out)
        assert [(one["rule"], one["severity"]) for one in report["findings"]] == [
            ("database", "error")
        ]
        assert "headgate restore" in report["findings"][0]["remedy"]
    found = orders("fsck")
    assert found.code == 1
    assert found.out.startswith("error: catalog cannot be checked")
    assert "Traceback" not in found.out + found.err


def test_the_same_commands_work_on_a_filesystem_catalog(run: Run, tmp_path: Path) -> None:
    lake = f"--lake=file://{tmp_path}/files?catalog=filesystem"
    assert run(lake, "init").code == 0
    assert run(lake, "create", "sales.orders", "id long", "--create-namespace").code == 0
    done = run(lake, "append", "sales.orders", "-", "--format=csv", stdin="id\n1\n")
    assert done.lines == [
        "main.sales.orders is at version 1: 1 row appended, put-if-absent, txnId <id>."
    ]
    assert run(lake, "show", "sales.orders").lines[-1] == "1"
    assert run(lake, "log", "sales.orders").lines[1] == (
        "1  put-if-absent  published  <time>  <later>  <later>  <id>  WRITE Append, 1 row"
    )
    assert run(lake, "publish", "sales.orders").code == 0
    assert run(lake, "checkpoint", "sales.orders").code == 0
    assert run(lake, "fsck").out == "No problems found.\n"
    (version,) = tmp_path.glob(f"files/main/sales/orders/_delta_log/{1:020d}.json")
    version.rename(tmp_path / "aside.json")
    (version.parent / f"{2:020d}.json").write_bytes((tmp_path / "aside.json").read_bytes())
    found = run(lake, "fsck", "sales.orders")
    assert found.code == 1
    assert "error: main.sales.orders version 1" in found.out
    (tmp_path / "aside.json").rename(version)
    (version.parent / f"{2:020d}.json").unlink()
    assert run(lake, "drop", "sales.orders").code == 0
    assert json.loads(run(lake, "fsck", "--json").out)["findings"][0]["severity"] == "note"
    refused = [
        run(lake, "rename", "sales.orders", "b"),
        run(lake, "undrop", "sales.orders"),
    ]
    assert [ran.code for ran in refused] == [1, 1]
    assert run(lake, "purge", "sales.orders", "--yes").code == 0
