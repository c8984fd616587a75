"""A server whose disk failed to sync leaves, loudly, and another worker takes its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.api.messages import Part, Proposal, Ratified
from headgate.errors import OutcomeUnknownError
from headgate.protocol.actions import TxnId, Version
from tests.faults import failing_disk
from tests.faults.server_harness import (
    SOON,
    appending,
    check_rows,
    hold,
    remote,
    session_at,
    values_in,
)
from tests.kit import req, shows
from tests.kit.builders import inline
from tests.kit.conditions import eventually
from tests.kit.server import RunningServer

pytestmark = [pytest.mark.faults, pytest.mark.slow]


class FailingServer(RunningServer):
    """A server on a disk that fails on request."""

    program = (failing_disk.__file__,)

    def __init__(self, lake: Path) -> None:
        self._asked = lake.parent / "asked"
        super().__init__(str(lake), environment={**SOON, failing_disk.ASKED: str(self._asked)})

    def fail(self, what: str) -> None:
        unfinished = self._asked.with_suffix(".new")
        unfinished.write_text(what)
        unfinished.rename(self._asked)


@req("CM-43")
@shows("FC12", "S4", "S6", "L1", "L3", "L8")
def test_a_commit_whose_sync_failed_is_unknown_and_the_worker_leaves_for_another(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    with FailingServer(lake) as server:
        with session_at(server.address) as session:
            table = session.create_table("t", "value long")
            table.publish()
        [first] = server.workers
        client = remote(server.address)
        part = Part(table_id=table.id, version=Version(1), content=inline(operation="NOTHING"))
        proposal = Proposal(txn_id=TxnId(str(client._ids.ordered())), parts=(part,))
        server.fail("database")
        with pytest.raises(OutcomeUnknownError):
            client.propose(proposal)
        eventually(lambda: first not in server.workers)
        eventually(server.is_ready)  # another one is there, and can be used
        settled = client.propose(proposal)
        assert isinstance(settled, Ratified)
        assert settled.commits[table.id].version == 1
        client.close()
        assert "cannot store anything and exits" in server.log()
        assert '"level": "critical"' in server.log()
        assert server.stop() == 0
    hold(lake)


@shows("FC12", "S4", "L2", "L8")
@pytest.mark.parametrize("what", ["database", "files"])
def test_writers_go_on_by_themselves_when_a_sync_failed_and_nothing_acknowledged_is_lost(
    tmp_path: Path, what: str
) -> None:
    """The process leaves in which it failed: the worker, or the publisher process."""
    lake = tmp_path / "lake"
    with FailingServer(lake) as server:
        with session_at(server.address) as session:
            session.create_table("t", "value long")
        writers = [appending(server.address, "t", number * 1_000_000) for number in (1, 2)]
        for writer in writers:
            writer.wait_for(3)
        eventually(lambda: bool(server.publishers))
        [worker], [publisher] = server.workers, server.publishers
        server.fail(what)
        if what == "files":
            eventually(lambda: publisher not in server.publishers)
            assert server.workers == [worker]
        else:
            eventually(lambda: worker not in server.workers)
        for writer in writers:
            writer.wait_for(len(writer.acknowledged) + 5)
            writer.end()
        with session_at(server.address) as session:
            check_rows(values_in(session.table("t")), writers)
            eventually(lambda: session.status().unpublished == 0)
        server.kill()
    hold(lake)
