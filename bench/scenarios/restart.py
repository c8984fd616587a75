"""11: the server is killed in the middle of load; from its restart to the first commit."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from bench.harness import Block, Side, SideError
from bench.scenario import Claim, Scenario, Sense, Sizes, floor_of
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.restart"
_CLIENTS = 16
_LOADED_S = 1.0  # of load until the kill
_EACH = 5_000  # commits a client has ready: more than it gets done
_LOST = "lost"
_HOT = "headgate, all on one table"
_WORKER = "headgate, its worker alone killed"
_PATIENCE_S = 60.0


def ours(watch: Watch, place: str, tables: int, only_worker: bool) -> Seen:
    """Kill our server, start it, commit; then check all that it acknowledged.

    If only its worker is killed, the server restarts that itself; the clock runs from the kill.
    """
    from bench.load import Generator, Line, Plan, get_request, is_good
    from bench.ours import NAME, connect
    from bench.prepared import SCHEMA
    from bench.server import ask, headgate

    with headgate(place) as server:
        with connect(server.address) as session:
            table = session.table(NAME)
            table_id, head = table.id, int(table.version)
            heads = {table_id: head}
            for number in range(1, tables):
                other = session.create_table(f"{NAME}{number}", SCHEMA, partition_by=["day"])
                heads[other.id] = 0
        chosen = [*heads] * (_CLIENTS // tables)
        plans = [
            Plan(found, heads[found] + 1, _EACH, number * _EACH, follows=True)
            for number, found in enumerate(chosen)
        ]
        generator = Generator(server.port, plans)
        generator.go()
        [worker] = server.workers
        body, key = _commit(head)
        time.sleep(_LOADED_S)
        if not only_worker:
            server.kill()
            found = generator.wait()
        with watch.together(), watch.sample():
            if only_worker:
                os.kill(worker, signal.SIGKILL)
            else:
                server.start()
            deadline = time.monotonic() + _PATIENCE_S
            while True:
                with suppress(OSError, http.client.HTTPException):
                    ask(server.port, "POST", f"/v1/tables/{table_id}/commits", body, key)
                    break
                if time.monotonic() > deadline:
                    raise SideError("the server did not come back")
                time.sleep(0.002)
        if only_worker:
            found = generator.wait()
        watch.facts["acknowledged before the kill"] = found.good
        line = Line(server.port)
        asked = (line.ask(get_request(f"/v1/transactions/{t}")) for t in found.acknowledged)
        lost = sum(not (is_good(answer) and b'"ratified"' in answer) for answer in asked)
        line.close()
    watch.worst[_LOST] = lost
    return Seen(rows=lost)


def _commit(head: int) -> tuple[dict[str, object], dict[str, str]]:
    """Return the first commit after the restart: a blind append to any version."""
    import base64

    from bench.prepared import add_file, inline
    from headgate.clock import RandomIds
    from headgate.protocol.actions import encode

    txn_id = str(RandomIds().ordered())
    content = inline(encode(add_file(10**9)) + b"\n")
    content = {
        "way": "inline",
        "commitInfo": dict(content.commit_info),
        "actions": base64.b64encode(content.actions).decode(),
    }
    return {"txnId": txn_id, "version": head + 1, "content": content}, {"idempotency-key": txn_id}


def postgres(watch: Watch, place: str, commits: int) -> Iterator[Seen]:
    """Kill PostgreSQL under the same load, start it, commit; then check what it acknowledged."""
    import psycopg

    from bench.load import PROCESSES
    from bench.peers.postgres import TRANSACTION, Clients, Postgres

    with Postgres(place) as server:
        ids = server.prepare(_CLIENTS)
        server.fill(ids[0], commits)
        turn = 0
        while True:
            heads = server.each_head()
            clients = Clients(server, heads, _EACH, TRANSACTION, turn, PROCESSES)
            clients.go()
            time.sleep(_LOADED_S)
            server.kill()
            found = clients.wait()
            watch.facts["acknowledged before the kill"] = len(found["acknowledged"])
            with watch.together(), watch.sample():
                server.start()
                deadline = time.monotonic() + _PATIENCE_S
                while True:
                    try:
                        server.commit_once(ids[-1], f"first-{turn}")
                        break
                    except psycopg.OperationalError:
                        server.start_if_dead()
                    if time.monotonic() > deadline:
                        raise SideError("PostgreSQL did not come back")
                    time.sleep(0.002)
            lost = len(set(found["acknowledged"]) - server.held())
            watch.worst[_LOST] = lost
            server.checkpoint()  # each turn starts from the same
            yield Seen(rows=lost)
            turn += 1


def nothing(watch: Watch, times: int) -> Seen:
    """Start a server that does nothing, to its first answer."""
    from bench.server import empty

    for _ in range(times):
        server = empty()
        with watch.together(), watch.sample():
            server.start()
            server.wait()
        server.kill()
    return Seen(rows=times)


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure both sides at both sizes."""
    return [_block(sizes["small"], is_hot=True), _block(sizes["large"])]


def _block(commits: int, *, is_hot: bool = False) -> Block:
    from bench.history import history
    from bench.peers.postgres import programs
    from bench.prepared import WORK, fresh

    prepared = history(commits)
    theirs = WORK / f"restart-{commits}-pg"
    peer = Side(
        f"PostgreSQL {_at(commits)}",
        f"{_HERE}:postgres",
        {"place": str(theirs), "commits": commits},
        stays=True,
        reset=lambda: fresh(theirs),
    )

    def ours(name: str, tables: int, *, only_worker: bool = False) -> Side:
        return Side(
            name,
            f"{_HERE}:ours",
            {"place": str(prepared.lake), "tables": tables, "only_worker": only_worker},
            reset=prepared.put_back,
        )

    return Block(
        name=_at(commits),
        per="restart",
        sides=(
            ours(f"headgate {_at(commits)}", _CLIENTS),
            *((ours(_HOT, 1),) if is_hot else (ours(_WORKER, _CLIENTS, only_worker=True),)),
            *((peer,) if programs() is not None else ()),
        ),
        floor=Side(
            "start an empty application, to its first answer",
            f"{_HERE}:nothing",
            {"times": 3},
        ),
    )


def _at(commits: int) -> str:
    return f"with {commits:,} commits"


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    small, large = _at(sizes["small"]), _at(sizes["large"])
    return [
        Claim(
            f"{large}, against PostgreSQL's crash restart",
            f"headgate {large}",
            Sense.SHARE,
            0.5,
            f"PostgreSQL {large}",
            why="Starting the interpreter and importing takes nearly all of it.",
        ),
        Claim(
            f"{large}, against {small}",
            f"headgate {large}",
            Sense.FLAT,
            0.2,
            f"headgate {small}",
            why="Something grows with the number of commits.",
        ),
        *(
            Claim(f"{at}, acknowledged and lost", f"headgate {at}", Sense.FACT, 0, lap=_LOST)
            for at in (small, large)
        ),
        Claim(
            "all on one table, its tail unpublished, against the load spread",
            _HOT,
            Sense.SHARE,
            None,
            f"headgate {small}",
        ),
        Claim(
            f"{large}, its worker alone killed, against PostgreSQL's crash restart",
            _WORKER,
            Sense.SHARE,
            None,
            f"PostgreSQL {large}",
        ),
        Claim(
            f"{large}, its worker alone killed, acknowledged and lost",
            _WORKER,
            Sense.FACT,
            0,
            lap=_LOST,
        ),
        Claim(
            f"{large}, against starting an empty server",
            f"headgate {large}",
            Sense.SHARE,
            None,
            floor_of(large),
        ),
    ]


def _not_run() -> Sequence[str]:
    from bench.peers.postgres import lacking

    return lacking()


SCENARIO = Scenario(
    number=11,
    title="kill -9 with {small:,} and {large:,} ratified commits, restart to the first commit",
    how="One table has the history, published and with a checkpoint. 16 clients append to it and "
    "to 15 other tables for a second, and then all to that one, which leaves a long unpublished "
    "tail; then all processes of the server are killed at once. The clock runs from the start of "
    "the new server to the first acknowledged commit of the table with the history; afterwards "
    "every txnId that was acknowledged before the kill is looked up. In another case only the "
    "worker is killed and the parent process forks another: that clock runs from the kill to the "
    "first commit. PostgreSQL has as many rows, a checkpoint after they were inserted, and the "
    "load of scenario 2 on 16 tables. The floor is an empty application on the same HTTP server: "
    "the cost of Python and its imports. Both have compiled bytecode, as in an installation.",
    full={"small": 1_000, "large": 100_000},
    quick={"small": 100, "large": 1_000},
    blocks=blocks,
    claims=claims,
    not_run=_not_run,
)
