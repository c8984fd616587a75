"""What clients recorded of their transactions, and a check of it that knows nothing of Headgate.

Rows are values that occur once, each in a set: a table and a key. A transaction reads whole sets
and adds values to them, so two additions do not depend on each other. The cut that a transaction
read is known by its sequence. Who saw whose values, and who did not, are edges between
transactions, and cycles of edges are the anomalies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

Rows: TypeAlias = tuple[str, int]  # a table, and a key in it
Value: TypeAlias = int


class Outcome(Enum):
    """How a transaction ended, as far as its client knows."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"  # unknown


class Level(Enum):
    """Isolation levels, from the weakest to the strongest."""

    SNAPSHOT = "snapshot"
    WRITE_SERIALIZABLE = "write_serializable"
    SERIALIZABLE = "serializable"


@dataclass(frozen=True)
class Read:
    """A read of a whole set; `fed` means that something written may depend on it."""

    of: Rows
    values: frozenset[Value]
    fed: bool = True


@dataclass(frozen=True)
class Add:
    """A value that was added to a set."""

    to: Rows
    value: Value


@dataclass
class Recorded:
    """One transaction: what it did in order, and how it ended."""

    name: str
    level: Level
    begun: int  # the sequence as of which it read
    steps: list[Read | Add] = field(default_factory=list)
    outcome: Outcome = Outcome.INFO
    sequence: int | None = None  # at which it was ratified

    @property
    def adds(self) -> list[Add]:
        return [step for step in self.steps if isinstance(step, Add)]

    @property
    def reads(self) -> list[Read]:
        return [step for step in self.steps if isinstance(step, Read)]

    @property
    def is_blind(self) -> bool:
        return not any(read.fed for read in self.reads)


@dataclass(frozen=True)
class Anomaly:
    """Something that the isolation level does not allow."""

    kind: str
    says: str


class EdgeKind(Enum):
    """Why one transaction comes before another."""

    WR = "wr"
    RW = "rw"


@dataclass(frozen=True)
class Edge:
    """`before` comes before `after` in every serial order."""

    before: str
    after: str
    kind: EdgeKind
    of: Rows


def check(history: Sequence[Recorded], final: Mapping[Rows, Iterable[Value]]) -> list[Anomaly]:
    """Return every anomaly of a history, given what the sets hold in the end."""
    end = {of: list(values) for of, values in final.items()}
    anomalies = list(_lost_and_found(history, end))
    settled = [found for txn in history if (found := _settled(txn, end)) is not None]
    anomalies += _reads(history, settled)
    if not anomalies:  # else edges would follow from what never was
        anomalies += _cycles(settled)
    return anomalies


def _settled(txn: Recorded, end: Mapping[Rows, Sequence[Value]]) -> Recorded | None:
    """Return a transaction that took effect: an unknown one did if its values are there."""
    if txn.outcome is Outcome.OK:
        return txn
    did = [a for a in txn.adds if a.value in end.get(a.to, ())]
    return txn if txn.outcome is Outcome.INFO and did else None


def _lost_and_found(
    history: Sequence[Recorded], end: Mapping[Rows, Sequence[Value]]
) -> Iterator[Anomaly]:
    owners = {add.value: txn for txn in history for add in txn.adds}
    for of, values in end.items():
        for value in set(values):
            if values.count(value) > 1:
                yield Anomaly("doubled", f"{value} is {values.count(value)} times in {of}")
            if value not in owners or owners[value].outcome is Outcome.FAIL:
                yield Anomaly("aborted read", f"{value} in {of} was never committed")
    for txn in history:
        there = [add.value in end.get(add.to, ()) for add in txn.adds]
        if txn.outcome is Outcome.OK and not all(there):
            yield Anomaly("lost", f"{txn.name} was committed, and some of it is not there")
        if txn.outcome is Outcome.INFO and any(there) and not all(there):
            yield Anomaly("torn", f"{txn.name} is there in part")


def _reads(history: Sequence[Recorded], settled: Sequence[Recorded]) -> Iterator[Anomaly]:
    """Compare every read with the cut it was made in, and with own writes before it."""
    written: dict[Rows, list[tuple[int, Value]]] = {}
    for txn in settled:
        for add in txn.adds:
            assert txn.sequence is not None, f"{txn.name} was settled without a sequence"
            written.setdefault(add.to, []).append((txn.sequence, add.value))
    for txn in history:
        own: dict[Rows, set[Value]] = {}
        for step in txn.steps:
            if isinstance(step, Add):
                own.setdefault(step.to, set()).add(step.value)
                continue
            cut = {value for at, value in written.get(step.of, ()) if at <= txn.begun}
            expected = cut | own.get(step.of, set())
            if missing := own.get(step.of, set()) - step.values:
                yield Anomaly("own writes", f"{txn.name} did not see its own {sorted(missing)}")
            elif step.values != expected:
                yield Anomaly(
                    "fractured read",
                    f"{txn.name} as of {txn.begun} read {sorted(step.values)} of {step.of}, "
                    f"and not {sorted(expected)}",
                )


def edges(settled: Sequence[Recorded]) -> set[Edge]:
    """Return the edges that follow from what transactions read and wrote."""
    writers: dict[Rows, list[tuple[Recorded, Value]]] = {}
    for txn in settled:
        for add in txn.adds:
            writers.setdefault(add.to, []).append((txn, add.value))
    found = set()
    for of, written in writers.items():
        for reader in settled:
            for read in reader.reads:
                if read.of != of:
                    continue
                for txn, value in written:
                    if txn is reader:
                        continue
                    if value in read.values:
                        found.add(Edge(txn.name, reader.name, EdgeKind.WR, of))
                    else:
                        found.add(Edge(reader.name, txn.name, EdgeKind.RW, of))
    return found


def _cycles(settled: Sequence[Recorded]) -> Iterator[Anomaly]:
    by_name = {txn.name: txn for txn in settled}
    all_edges = edges(settled)
    # Each edge is judged by the level of the transaction that it leaves.
    checked = {edge for edge in all_edges if not _is_allowed(edge, by_name)}
    for cycle in _components(checked):
        yield Anomaly("cycle", f"{_described(cycle, checked)} cannot be ordered")
    # Whatever the levels: a cycle needs two edges from a read to a later write.
    few = {edge for edge in all_edges if edge.kind is not EdgeKind.RW}
    for cycle in _components(few):
        yield Anomaly("cycle without reads", _described(cycle, few))
    for edge in all_edges:
        if edge.kind is EdgeKind.RW and _reaches(few, edge.after, edge.before):
            yield Anomaly("single anti-dependency", f"{edge.before} and {edge.after}")


def _is_allowed(edge: Edge, by_name: Mapping[str, Recorded]) -> bool:
    if edge.kind is not EdgeKind.RW:
        return False
    reader, writer = by_name[edge.before], by_name[edge.after]
    reads = [read for read in reader.reads if read.of == edge.of]
    match reader.level:
        case Level.SNAPSHOT:
            return True
        case Level.WRITE_SERIALIZABLE:
            return writer.is_blind or not any(read.fed for read in reads) or not reader.adds
        case Level.SERIALIZABLE:
            return False


def _components(found: Iterable[Edge]) -> Iterator[frozenset[str]]:
    """Yield the sets of transactions that reach each other (Tarjan)."""
    after: dict[str, set[str]] = {}
    for edge in found:
        after.setdefault(edge.before, set()).add(edge.after)
        after.setdefault(edge.after, set())
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    for root in after:
        if root in index:
            continue
        work = [(root, iter(sorted(after[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    work.append((other, iter(sorted(after[other]))))
                    break
                if other in stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    component, stack = frozenset(stack[at:]), stack[:at]
                    if len(component) > 1:
                        yield component


def _reaches(found: Iterable[Edge], first: str, last: str) -> bool:
    after: dict[str, set[str]] = {}
    for edge in found:
        after.setdefault(edge.before, set()).add(edge.after)
    seen, ahead = set(), [first]
    while ahead:
        node = ahead.pop()
        if node == last:
            return True
        if node not in seen:
            seen.add(node)
            ahead += after.get(node, ())
    return False


def _described(cycle: frozenset[str], found: Iterable[Edge]) -> str:
    inside = sorted(
        (edge for edge in found if {edge.before, edge.after} <= cycle),
        key=lambda edge: (edge.before, edge.after, edge.kind.value),
    )
    return ", ".join(f"{e.before} {e.kind.value} {e.after} ({e.of[0]})" for e in inside)
