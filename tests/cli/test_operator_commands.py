"""What happens, how it stands, copies, tokens and listeners, on the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headgate
from headgate.catalog.service import Catalog
from headgate.clock import SystemClock
from headgate.protocol.actions import Sequence
from tests.cli.conftest import Ran, Run
from tests.kit import req


def lines(ran: Ran) -> list[dict[str, object]]:
    return [json.loads(line) for line in ran.out.splitlines()]


# Events


@req("EV-02")
def test_events_are_shown_one_a_line(orders: Run) -> None:
    ran = orders("events")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines == [
        "1  <time>  main.default.orders named, main.default.orders version 0 inline",
        "2  <time>  main.default.orders version 1 inline",
        "3  <time>  main.default.orders version 2 inline",
    ]
    assert orders("events", "--after", "2").lines == ran.lines[2:]
    assert orders("events", "--after", "3").out == ""


def test_events_as_json_are_one_object_a_line_as_the_server_sends_them(orders: Run) -> None:
    found = lines(orders("events", "--json", "--after", "1"))
    assert [event["sequence"] for event in found] == [2, 3]
    assert all(set(event) == {"sequence", "timestampMs", "txnId", "commits"} for event in found)


def test_events_can_be_limited_to_tables(orders: Run) -> None:
    orders("create", "other", "id long")
    orders("rename", "other", "another")
    orders("drop", "another")
    ran = orders("events", "--table", "another")
    assert ran.lines == [
        "5  <time>  main.default.other renamed to main.default.another",
        "6  <time>  main.default.another dropped",
    ]
    named = orders("events", "--table", "orders", "--table", "other")
    assert [line.partition(" ")[0] for line in named.lines] == ["1", "2", "3", "4", "5"]


def test_deleted_events_are_refused_and_the_others_shown(orders: Run, tmp_path: Path) -> None:
    shown = orders("events").lines
    with headgate.connect(tmp_path / "lake", publisher=False) as session:
        assert isinstance(session.catalog, Catalog)
        with session.catalog._store.write() as unit:
            unit.delete_events(Sequence(1))
    assert orders("events").lines == shown[1:]
    refused = orders("events", "--after", "0")
    assert (refused.code, refused.out) == (1, "")
    assert "[version-gone]" in refused.err
    assert "after 1" in refused.err


def test_events_after_a_future_sequence_are_refused(orders: Run) -> None:
    ran = orders("events", "--after", "99")
    assert (ran.code, ran.out) == (1, "")
    assert "[in-the-future]" in ran.err


@pytest.mark.slow
def test_events_are_followed_until_ctrl_c(orders: Run, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate.cli.main", "events", "--follow", "--after", "2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("3  ")
        orders("append", "orders", "-", "--format", "csv", stdin="id\n4\n")
        assert process.stdout.readline().startswith("4  ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "")


# Status


def test_status_shows_the_state_of_the_catalog(orders: Run) -> None:
    ran = orders("status")
    assert ran.code == 0, ran.err
    assert "tables  1 active" in ran.lines
    assert "unpublished  nothing" in ran.lines
    assert "open transactions  0" in ran.lines
    found = json.loads(orders("status", "--json").out)
    assert found["tables"] == {"active": 1}
    assert (found["sequence"], found["unpublished"], found["publisherLagMs"]) == (3, 0, 0)
    assert found["openTransactions"] == 0
    assert "SQLite" in found["store"]


def test_entries_have_these_fields_in_json(orders: Run, tmp_path: Path) -> None:
    orders("token", "create", "nightly")
    orders("listener", "add", "hook", "--url", "https://example.com/x")
    orders("location", "add", str(tmp_path / "landing"))

    def fields(command: str, key: str) -> set[str]:
        [entry] = json.loads(orders(*command.split(), "--json").out)[key]
        return set(entry)

    assert fields("token list", "tokens") == {"token", "created", "expires", "revoked"}
    assert fields("location list", "locations") == {"location", "added"}
    table = {"table", "tableId", "kind", "state", "location", "latest", "published"}
    assert fields("show", "tables") == {*table, "created", "dropped"}
    listener = {"listener", "kind", "target", "position", "behind", "failing", "created"}
    assert fields("listener list", "listeners") == fields("status", "listeners") == listener
    state = {"version", "store", "root", "sequence", "clock", "tables", "external", "tokens"}
    work = {"unpublished", "openTransactions", "tails", "publisherLagMs", "troubles", "listeners"}
    assert set(json.loads(orders("status", "--json").out)) == state | work


def test_status_shows_tails_and_listeners(orders: Run, tmp_path: Path) -> None:
    orders("listener", "add", "hook", "--url", "https://example.com/x", "--after", "1")
    with headgate.connect(tmp_path / "lake", publisher=False) as session:
        session.table("orders").set_properties({"a": "b"})
        assert isinstance(session.catalog, Catalog)
        assert session.status().unpublished == 1
        ran = orders("status")
    assert any(line.startswith("hook  webhook") for line in ran.lines)
    assert ran.code == 0


def test_status_fails_when_the_publishing_of_a_table_has_stopped(
    orders: Run, tmp_path: Path
) -> None:
    with headgate.connect(tmp_path / "lake", publisher=False) as session:
        table = session.table("orders")
        table.set_properties({"a": "b"})
        log = Path(table.location.removeprefix("file://"), "_delta_log")
        (log / f"{table.version:020d}.json").write_text('{"commitInfo":{"operation":"HACK"}}\n')
        with pytest.raises(headgate.errors.LogDivergedError):
            table.publish()
    ran = orders("status")
    assert ran.code == 1
    assert any("stopped" in line and "ratified bytes" in line for line in ran.lines), ran.out
    assert "headgate fsck" in ran.err


# Tokens


def test_a_token_is_shown_once_listed_and_revoked(orders: Run, tmp_path: Path) -> None:
    made = orders("token", "create", "nightly", "--days", "90")
    secret = made.out.strip()
    assert (made.code, len(secret)) == (0, 46)
    assert "not shown again" in made.err
    listed = orders("token", "list")
    assert listed.lines[1].startswith("nightly  <time>  <time>  -")
    assert secret not in listed.out
    with headgate.connect(tmp_path / "lake") as session:
        assert isinstance(session.catalog, Catalog)
        assert session.catalog.principal_of(secret) == "nightly"
        [entry] = session.tokens()
        days = ((entry.expires_ms or 0) - SystemClock().now_ms()) / (24 * 3600 * 1000)
        assert 89.9 < days < 90.1
    assert orders("token", "revoke", "nightly").code == 0
    with headgate.connect(tmp_path / "lake") as session:
        assert isinstance(session.catalog, Catalog)
        assert session.catalog.principal_of(secret) is None
    [token] = json.loads(orders("token", "list", "--json").out)["tokens"]
    assert token["revoked"] is not None


@pytest.mark.parametrize(
    "arguments",
    [
        ("token", "create"),
        ("token", "list", "nightly"),
        ("token", "revoke", "x", "--days", "3"),
        ("token", "steal", "x"),
        ("listener", "add", "x"),
        ("listener", "add", "--url", "http://h/"),
        ("listener", "remove", "x", "--url", "http://h/"),
        ("listener", "list", "--after", "3"),
        ("location", "add"),
        ("location", "list", "s3://bucket/x"),
    ],
)
def test_contradicting_arguments_are_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).code == 2


# Listeners


def test_locations_are_added_listed_and_removed(orders: Run, tmp_path: Path) -> None:
    landing = (tmp_path / "landing").resolve()
    added = orders("location", "add", str(landing))
    assert (added.code, added.out) == (0, f"Clients may put tables under file://{landing}.\n")
    [entry] = json.loads(orders("location", "list", "--json").out)["locations"]
    assert entry["location"] == f"file://{landing}"
    assert orders("location", "remove", f"file://{landing}/").code == 0
    assert orders("location", "list").out == "No locations.\n"
    again = orders("location", "remove", str(landing))
    assert again.code != 0
    assert "headgate location list" in again.err
    refused = orders("location", "add", "s3://user:hunter2@bucket/x")
    assert refused.code != 0
    assert "hunter2" not in refused.err


def test_listeners_are_added_listed_and_removed(orders: Run) -> None:
    added = orders("listener", "add", "hook", "--url", "https://example.com/x", "--after", "1")
    assert added.out == (
        "Listener hook receives events after sequence 1 at https://example.com/x.\n"
    )
    [entry] = json.loads(orders("listener", "list", "--json").out)["listeners"]
    assert (entry["listener"], entry["position"], entry["behind"]) == ("hook", 1, 2)
    assert orders("listener", "remove", "hook").code == 0
    assert orders("listener", "list").out == "No listeners.\n"
    again = orders("listener", "remove", "hook")
    assert (again.code, "[not-found]" in again.err) == (1, True)
