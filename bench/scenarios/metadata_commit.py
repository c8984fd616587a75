"""1: a durable commit that changes metadata only, by one client on one kept connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.harness import Block, Side
from bench.scenario import Claim, Scenario, Sense, Sizes, floor_of
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.metadata_commit"
_KEY = "bench"
_WARM_UP = 20
_SERVED, _RAW, _EMBEDDED = "headgate over HTTP", "headgate over HTTP, request alone", "headgate"
_SYNCED, _AS_IT_COMES = "pyiceberg, synced", "pyiceberg"


def served(watch: Watch, place: str, count: int) -> Iterator[Seen]:
    """Set a property through a session on our server."""
    from bench.ours import NAME, connect
    from bench.server import headgate

    with headgate(place) as server, connect(server.address) as session:
        table = session.create_table(NAME, "id long, name string")
        yield from _set(watch, table, count)


def embedded(watch: Watch, place: str, count: int) -> Iterator[Seen]:
    """Set a property with the catalog in this process; it publishes in the background."""
    from bench.ours import NAME, connect

    with connect(place) as session:
        table = session.create_table(NAME, "id long, name string")
        yield from _set(watch, table, count)


def _set(watch: Watch, table: object, count: int) -> Iterator[Seen]:
    from headgate.client.table import Table

    assert isinstance(table, Table)
    number = 0
    for _ in range(_WARM_UP):
        table.set_properties({_KEY: number})
    while True:
        before = table.version
        with watch.together():
            for _ in range(count):
                number += 1
                with watch.sample():
                    table.set_properties({_KEY: number})
        missing = count - (table.version - before)
        assert table.properties[_KEY] == str(number)
        table.publish()
        yield Seen(rows=missing)


def raw(watch: Watch, place: str, count: int) -> Iterator[Seen]:
    """Send the same commit as a request made in advance: the server without our client."""
    from bench.load import Line, commit_request, is_good
    from bench.ours import NAME, connect
    from bench.server import headgate
    from headgate.clock import RandomIds
    from headgate.protocol.actions import encode
    from headgate.protocol.encoding import replaced

    ids = RandomIds()
    commit_info: dict[str, object] = {"operation": "SET TBLPROPERTIES", "isBlindAppend": False}
    with headgate(place) as server, connect(server.address) as session:
        table = session.create_table(NAME, "id long, name string")
        metadata = table.snapshot().metadata
        version = 0
        while True:
            requests = []
            for number in range(version + 1, version + count + 1):
                configuration = {**metadata.configuration, _KEY: str(number)}
                actions = encode(replaced(metadata, configuration=configuration)) + b"\n"
                txn_id = str(ids.ordered())
                requests.append(commit_request(table.id, txn_id, number, actions, commit_info)[0])
            version += count
            line = Line(server.port)  # a new one each turn: the server lets go of idle ones
            with watch.together():
                for request in requests:
                    with watch.sample():
                        answer = line.ask(request)
                    assert is_good(answer), answer
            line.close()
            missing = version - table.snapshot().version
            table.publish()
            yield Seen(rows=missing)


def pyiceberg(watch: Watch, place: str, count: int, synced: bool) -> Iterator[Seen]:
    """Set a property; `synced` also makes the commit survive a power loss."""
    from bench.peers.iceberg import new_table, property_of, set_property, sync_metadata

    catalog, table = new_table(place)
    number = 0
    while True:
        for _ in range(count):
            number += 1
            with watch.measure():
                set_property(table, _KEY, str(number))
                if synced:
                    sync_metadata(table)
        yield Seen(rows=number - int(property_of(catalog, _KEY)))


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure our three ways and pyiceberg, as it comes and made durable."""
    from bench.prepared import WORK, fresh

    def side(name: str, function: str, place: str, count: int, **more: object) -> Side:
        folder = WORK / place
        return Side(
            name,
            f"{_HERE}:{function}",
            {"place": str(folder), "count": count, **more},
            is_durable=more.get("synced", True) is True,
            stays=True,
            reset=lambda: fresh(folder),
        )

    ours, theirs = sizes["commits"], sizes["theirs"]
    return [
        Block(
            name="metadata commit",
            per="commit",
            sides=(
                side(_SERVED, "served", "metadata-a", ours),
                side(_RAW, "raw", "metadata-b", ours),
                side(_EMBEDDED, "embedded", "metadata-c", ours),
                side(_SYNCED, "pyiceberg", "metadata-d", theirs, synced=True),
                side(_AS_IT_COMES, "pyiceberg", "metadata-e", theirs, synced=False),
            ),
            floor=Side(
                "SQLite: read the head, insert, compare and set",
                "bench.floors:compare_and_set",
                {"place": str(WORK / "floor-1"), "count": 2_000, "size": 700},
            ),
        )
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    floor = floor_of("metadata commit")
    why = (
        "One exchange; what the server itself takes is the request alone. Most of it is Python: "
        "two processes take turns, and in the server a request passes through four threads."
    )
    return [
        Claim("over HTTP, against the floor", _SERVED, Sense.SHARE, 4, floor, why=why),
        Claim(
            "over HTTP, against pyiceberg made as durable, its metadata files synced",
            _SERVED,
            Sense.FASTER,
            20,
            _SYNCED,
            why=why,
        ),
        Claim("over HTTP, against pyiceberg itself", _SERVED, Sense.FASTER, None, _AS_IT_COMES),
        Claim("the request alone, against the floor", _RAW, Sense.SHARE, None, floor),
        Claim("embedded, against the floor", _EMBEDDED, Sense.SHARE, None, floor),
        Claim("embedded, against pyiceberg, synced", _EMBEDDED, Sense.FASTER, None, _SYNCED),
    ]


SCENARIO = Scenario(
    number=1,
    title="metadata-only commit, durable, one client",
    how="`Table.set_properties` {commits:,} times in each turn over one connection that stays "
    "open; the same commit as a request made in advance, without our client; and with the catalog "
    "in the process. Publishing continues in the background. pyiceberg {theirs} times in each "
    "turn, with its SQL catalog on SQLite as it comes (rollback journal, synchronous FULL). It "
    "does not sync its metadata files, so it runs twice: as it comes, marked as not durable, and "
    "with each file and its folder synced.",
    full={"commits": 2_000, "theirs": 100},
    quick={"commits": 200, "theirs": 10},
    blocks=blocks,
    claims=claims,
    is_quick=True,
)
