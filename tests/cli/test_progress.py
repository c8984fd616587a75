"""On a terminal a command that takes its time says how far it is, and of how much."""

from __future__ import annotations

import os
import pty
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate
from headgate.cli import terminal
from headgate.cli.main import main
from headgate.data.arrow_types import delta_schema
from headgate.data.import_files import read_input
from tests.cli.conftest import Run

Seen = Callable[..., str]


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Run a command whose messages go to a terminal; give what was to be seen there."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(terminal, "_PATIENCE_S", 0.0)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        screen, theirs = pty.openpty()
        with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            assert main(arguments) == 0
        shown = b""
        try:
            while piece := os.read(screen, 65536):
                shown += piece
        except OSError:  # the writer has closed it
            pass
        os.close(screen)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())

    return run


def test_rows_are_appended_by_bytes_of_their_files(seen: Seen, orders: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,item\n" + "1,bolt\n" * 2_000)
    (tmp_path / "b.json").write_text('{"id": 1}\n' * 2_000)
    pq.write_table(pa.table({"id": range(2_000)}), tmp_path / "c.parquet")
    total = sum((tmp_path / name).stat().st_size for name in ("a.csv", "b.json", "c.parquet"))
    shown = seen("append", "orders", "a.csv", "b.json", "c.parquet")
    assert "Appending to orders" in shown
    assert f"{total / 1000:,.1f} kB of {total / 1000:,.1f} kB" in shown


def test_commits_are_published_one_after_the_other(
    seen: Seen, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init")
    with headgate.connect(tmp_path / "lake", publisher=False) as session:
        table = session.create_table("t", "id long")
        for number in range(7):
            table.append(pa.table({"id": [number]}))
    monkeypatch.setenv("HEADGATE_PUBLISH_EVERY_MS", "3600000")  # no publisher in the background
    assert "7 of 7 commits" in seen("publish", "t")


def test_files_are_purged_and_tables_checked_by_number(
    seen: Seen, orders: Run, tmp_path: Path
) -> None:
    orders("create", "more", "id long")
    assert "2 of 2 tables" in seen("fsck")
    orders("drop", "orders")
    shown = seen("purge", "orders", "--yes")
    there = re.search(r"(\d+) of (\d+) files", shown)
    assert there is not None
    assert int(there[2]) >= 5


@pytest.mark.parametrize("arguments", [("fsck", "--json"), ("append", "orders", "a.csv", "--json")])
def test_with_json_a_terminal_sees_nothing(
    seen: Seen, orders: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "a.csv").write_text("id,item\n1,bolt\n")
    assert seen(*arguments) == ""


# Where the numbers come from


def test_publishing_reports_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.client.table._PUBLISHED_AT_ONCE", 3)
    with headgate.connect(tmp_path / "lake", publisher=False) as session:
        table = session.create_table("t", "id long")
        for number in range(10):
            table.append(pa.table({"id": [number]}))
        updates: list[tuple[int, int]] = []

        def update(done: int, total: int) -> None:
            updates.append((done, total))

        assert table.publish(2, update) == 2
        assert updates == [(2, 2)]
        assert table.publish(progress=update) == 10
        assert updates[1:] == [(3, 8), (6, 8), (8, 8)]
        assert table.publish(4, update) == table.publish(progress=update) == 10
        with pytest.raises(headgate.errors.NotFoundError):
            table.publish(11, update)
        assert len(updates) == 4


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "csv.gz"])
def test_progress_of_a_file_ends_at_its_size(tmp_path: Path, format: str) -> None:
    path, rows = tmp_path / f"rows.{format}", 100_000
    table = pa.table({"id": pa.array(range(rows), pa.int64())})
    match format:
        case "csv":
            path.write_text("id\n" + "\n".join(map(str, range(rows))))
        case "json":
            path.write_text("\n".join(f'{{"id": {number}}}' for number in range(rows)))
        case "parquet":
            pq.write_table(table, path, row_group_size=10_000)
        case _:
            with pa.CompressedOutputStream(path, "gzip") as sink:
                sink.write(b"id\n" + "\n".join(map(str, range(rows))).encode())
    heard: list[int] = []
    schema = delta_schema(table.schema)
    read = read_input(path, format.removesuffix(".gz"), schema, heard.append).read_all()
    assert read["id"].to_pylist() == list(range(rows))
    assert heard == sorted(heard)
    assert heard[-1] == path.stat().st_size
