"""A process under test: runs one scenario and reports every finished step.

Run as `python -m tests.faults.worker SCENARIO LAKE [NUMBER]`. Each line on standard output is a
JSON object: `try` before a value is sent, `ok` once it was acknowledged. `HEADGATE_FAIL` says
where the process dies.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

import headgate
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.transaction import Committer, Patience
from headgate.errors import HeadgateError, NotFoundError
from headgate.settings import Settings

SETTINGS = Settings.from_environment(os.environ)
STAGED = replace(SETTINGS, inline_limit_bytes=0)


def report(**what: object) -> None:
    print(json.dumps(what), flush=True)


def rows(value: int) -> pa.Table:
    return pa.table({"value": pa.array([value], pa.int64())})


def append(table: Table, value: int) -> None:
    report(attempt=value, table=table.name)
    done = table.append(rows(value))
    report(ok=value, table=table.name, version=done.version)


def create(
    session: Session,
    name: str,
    *,
    three_phase: bool = False,
    properties: dict[str, str] | None = None,
) -> Table:
    report(attempt=name)
    table = session.create_table(name, "value long", three_phase=three_phase, properties=properties)
    report(ok=name)
    return table


def appends(lake: str, number: int) -> None:
    """Make two tables, in one call and in three phases, and append to both."""
    with headgate.connect(lake, publisher=False) as session:
        one = create(session, "one")
        three = create(session, "three", three_phase=True)
        for value in range(5):
            append(one, value)
            append(three, 100 + value)
        report(published=one.publish())


def staged(lake: str, number: int) -> None:
    """Append by staged commits alone."""
    with headgate.connect(lake, publisher=False, settings=STAGED) as session:
        one = create(session, "one")
        for value in range(4):
            append(one, value)
        report(published=one.publish())


def pairs(lake: str, number: int) -> None:
    """Append each value to both of two tables at once, inline and staged by turns."""
    with headgate.connect(lake, publisher=False) as session:
        one, two = session.table("one"), session.table("two")
        inline = one.committer
        staging = Committer(session.catalog, inline.clock, inline.ids, Patience(inline_bytes=0))
        for value in range(number, number + 4):
            for table in (one, two):
                report(attempt=value, table=table.name)
            changes = [table._writing(table.snapshot(), rows(value)) for table in (one, two)]
            done = (staging if value % 2 else inline).commit(changes)
            for table in (one, two):
                report(ok=value, table=table.name, sequence=done.sequence, stamp=done.timestamp_ms)


def publish(lake: str, number: int) -> None:
    """Append with a publisher beside it, and publish in several batches."""
    settings = replace(SETTINGS, publish_batch=3)
    with headgate.connect(lake, publisher=False, settings=settings) as session:
        one = create(session, "one")
        for value in range(10):
            append(one, value)
        report(published=one.publish(5))
        report(published=one.publish())


def checkpoints(lake: str, number: int) -> None:
    """Write checkpoints of both kinds between appends."""
    with headgate.connect(lake, publisher=False) as session:
        one = create(session, "one", properties={"delta.checkpointPolicy": "v2"})
        for value, kind in enumerate(["classic", "v2", "classic"]):
            append(one, 2 * value)
            append(one, 2 * value + 1)
            one.publish()
            report(checkpoint=one.checkpoint(kind=kind))
        append(one, 6)


def drops(lake: str, number: int) -> None:
    """Drop one of two tables and purge it."""
    with headgate.connect(lake, publisher=False) as session:
        one, gone = create(session, "one"), create(session, "gone")
        append(one, 1)
        append(gone, 2)
        gone.publish()
        report(attempt="drop")
        table_id = session.drop("gone")
        report(ok="drop")
        report(attempt="purge")
        session.purge(table_id)
        report(ok="purge")
        append(one, 3)


def filesystem(lake: str, number: int) -> None:
    """Commit by put-if-absent; drop and purge."""
    with headgate.connect(f"file://{lake}?catalog=filesystem") as session:
        one = create(session, "one")
        for value in range(4):
            append(one, value)
        gone = create(session, "gone")
        append(gone, 9)
        report(attempt="drop")
        session.drop("gone")
        report(ok="drop")
        report(attempt="purge")
        session.purge("gone")
        report(ok="purge")


def repair(lake: str, number: int) -> None:
    """Mend a catalog that is behind its log."""
    with headgate.connect(lake, publisher=False) as session:
        session.fsck(repair=True)
        report(ok="repair")


def many(lake: str, number: int) -> None:
    """Append to one hot table for as long as it takes, with the publisher on."""
    with headgate.connect(lake) as session:
        table = session.table("hot")
        for value in range(number * 1_000_000, number * 1_000_000 + 40):
            append(table, value)


def flat_out(lake: str, number: int) -> None:
    """Propose metadata-only commits to a table of its own for a while; report how many."""
    with headgate.connect(lake, publisher=False) as session:
        table = session.table(f"t{number}")
        sys.stdin.readline()  # all start at once
        clock = session.clock  # the process's own clock, never a manual one
        done, until = 0, clock.monotonic() + 3
        while clock.monotonic() < until:
            table.set_properties({"headgate.test.turn": str(done)})
            done += 1
        report(done=done)


def listens(lake: str, number: int) -> None:
    """Hear of five commits and more, writing down each; go on where one was."""
    heard = Path(lake).parent / "heard"

    def hear(event: headgate.Event) -> None:
        with heard.open("a") as notes:
            notes.write(f"{number} {event.sequence}\n")

    with headgate.connect(lake, publisher=False) as session:
        try:
            one = session.table("one")
        except NotFoundError:
            one = create(session, "one")
        session.listen("witness", hear, after=0)
        for value in range(5):
            append(one, 10 * number + value)
        latest = session.status().sequence
        clock = session.clock  # the process's own clock, never a manual one
        until = clock.monotonic() + 30
        while session.listeners()[0].position < latest and clock.monotonic() < until:
            clock.sleep(0.02)
        report(position=session.listeners()[0].position, latest=latest)


SCENARIOS: dict[str, Callable[[str, int], None]] = {
    function.__name__: function
    for function in (
        appends,
        staged,
        pairs,
        publish,
        checkpoints,
        drops,
        filesystem,
        repair,
        many,
        flat_out,
        listens,
    )
}

if __name__ == "__main__":
    scenario, lake, *number = sys.argv[1:]
    try:
        SCENARIOS[scenario](lake, int(number[0]) if number else 0)
    except HeadgateError as error:
        report(error=error.code, message=str(error))
        sys.exit(1)
