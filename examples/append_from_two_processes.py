"""Two processes append to one table at once: every commit gets a version of its own.

    python examples/append_from_two_processes.py [LAKE]

Each process runs the catalog itself, on the same database. No commit is lost or overwritten: an
append whose version is taken moves to the next one.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile

import pyarrow as pa

import headgate

COMMITS = 20


def append(lake: str, writer: str) -> None:
    """Append one row per commit."""
    with headgate.connect(lake) as session:
        events = session.table("events")
        for number in range(COMMITS):
            events.append(pa.table({"writer": [writer], "number": [number]}))


def main(lake: str) -> None:
    """Run both writers, then show rows and versions."""
    with headgate.connect(lake) as session:
        session.create_table("events", "writer string, number long")

    spawned = multiprocessing.get_context("spawn")  # a fork would share open databases
    writers = [spawned.Process(target=append, args=(lake, name)) for name in ("ann", "bea")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    with headgate.connect(lake) as session:
        events = session.table("events")
        writers_of = [row["writer"] for row in events.to_arrow().to_pylist()]
        versions = [entry.commit.version for entry in events.log()]
    print(f"versions 0 to {versions[-1]}, none missing: {versions == list(range(len(versions)))}")
    for name in ("ann", "bea"):
        print(f"{name} has {writers_of.count(name)} rows of {COMMITS}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder)
