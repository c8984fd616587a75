"""The publisher process does what its server would do, and says how it went."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from headgate.catalog import publisher_process
from headgate.catalog.publisher_process import PublisherProcess
from headgate.clock import SystemClock
from headgate.errors import InvariantError, LogDivergedError, UnavailableError
from headgate.protocol.actions import TableId, Version
from headgate.protocol.paths import PublishedCommit, StagedCommit
from headgate.storage.local import LocalStore
from headgate.table.log_files import UnfinishedError
from headgate.table.publish_round import TailPart, UnpublishedCommit
from tests.kit.conditions import eventually

CONTENT = b'{"commitInfo":{}}\n'


@pytest.fixture
def process() -> Iterator[PublisherProcess]:
    process = PublisherProcess(SystemClock())
    yield process
    process.close()
    eventually(lambda: not children())


def children() -> list[int]:
    """The publisher processes of this process."""
    found = []
    for listed in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread or process that ended
            for child in listed.read_text().split():
                command = Path(f"/proc/{child}/cmdline").read_bytes()
                found += [int(child)] if b"publisher_process" in command else []
    return found


def part(
    root: Path, name: str, *, staged: bool = False, is_kept: bool = True, content: bytes = CONTENT
) -> TailPart:
    file_name = StagedCommit(Version(0), UUID(int=1)).path.rpartition("/")[2] if staged else None
    digest = hashlib.sha256(content).digest()
    commit = UnpublishedCommit(Version(0), digest, file_name, content if is_kept else None)
    return TailPart(TableId(name), f"file://{root}/{name}", (commit,))


def path(root: Path, name: str) -> Path:
    return root / name / PublishedCommit(Version(0)).path


def test_results_errors_and_log_lines_come_back_as_they_were(
    tmp_path: Path, process: PublisherProcess, caplog: pytest.LogCaptureFixture
) -> None:
    LocalStore(tmp_path / "other").put(PublishedCommit(Version(0)).path, b"{}\n")
    LocalStore(tmp_path / "begun").put(PublishedCommit(Version(0)).path, CONTENT[:5])
    (tmp_path / "file").write_bytes(b"")
    results = process.publish_round(
        [
            part(tmp_path, "good"),
            part(tmp_path, "other"),
            part(tmp_path, "begun"),
            part(tmp_path, "gone", staged=True, is_kept=False),
            part(tmp_path, "lost", staged=True),
        ]
    )
    errors = [result.error for result in results]
    assert [type(error) for error in errors] == [
        type(None), LogDivergedError, UnfinishedError, InvariantError, type(None),
    ]  # fmt: skip
    assert "does not hold the ratified bytes" in str(errors[1])
    assert "is gone" in str(errors[3])
    assert results[0].device == tmp_path.stat().st_dev
    assert path(tmp_path, "good").read_bytes() == path(tmp_path, "lost").read_bytes() == CONTENT
    assert not path(tmp_path, "gone").exists()
    [line] = caplog.records
    assert (line.name, line.levelname) == ("headgate.table.publish_round", "ERROR")
    assert "table lost" in line.getMessage()


def test_a_stopped_process_is_waited_for_no_longer_than_asked_and_others_get_their_answers(
    tmp_path: Path, process: PublisherProcess
) -> None:
    process.publish_round([part(tmp_path, "first")])
    [pid] = children()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            process.publish_round([part(tmp_path, "second")], 0.1)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert process.publish_round([part(tmp_path, "third")])[0].error is None
    eventually(lambda: path(tmp_path, "second").exists())
    assert children() == [pid]


def test_a_process_that_takes_nothing_is_replaced(
    tmp_path: Path, process: PublisherProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_process, "_SEND_S", 1)
    process.publish_round([part(tmp_path, "first")])
    [pid] = children()
    os.kill(pid, signal.SIGSTOP)
    large = part(tmp_path, "large", content=b"x" * (8 << 20))  # more than a socket holds
    with pytest.raises(UnavailableError, match="middle of a round"):
        process.publish_round([large])
    assert process.publish_round([large])[0].error is None
    assert path(tmp_path, "large").stat().st_size == 8 << 20
    assert pid not in children()


def test_a_process_that_cannot_start_is_tried_again(
    tmp_path: Path,
    process: PublisherProcess,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(publisher_process.sys, "executable", "/nowhere/python")
        with pytest.raises(UnavailableError, match="does not start"):
            process.publish_round([part(tmp_path, "t")], 0.3)
    assert "could not be started" in caplog.text
    assert process.publish_round([part(tmp_path, "t")])[0].error is None


def test_a_closed_process_publishes_nothing(tmp_path: Path, process: PublisherProcess) -> None:
    process.publish_round([part(tmp_path, "t")])
    process.close()
    process.close()
    eventually(lambda: not children())
    with pytest.raises(UnavailableError):
        process.publish_round([part(tmp_path, "u")])
