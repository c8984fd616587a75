"""One writer of a campaign, in a process of its own, to be killed at any moment.

Run as `python -m tests.chaos.writer HISTORY SEED SECONDS ADDRESS...`. It does a bit of everything
and checks, whenever it reads, that what was acknowledged is there and that nothing is half there.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from headgate.api.messages import Answer, Proposal, Ratified, Rejected
from headgate.client.remote import RemotePatience
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.clock import RandomIds
from headgate.errors import (
    ConflictError,
    HeadgateError,
    InvalidArgumentError,
    InvariantError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from tests.chaos.history import Recorder
from tests.faults.server_harness import (
    CLOCK,
    Anyone,
    Remembering,
    append_to_all,
    rows,
    session_on,
    values_in,
    values_of,
)

HOT, CHURN, PAIR = "hot", "churn", ("pair_a", "pair_b")
TABLES = (HOT, CHURN, *PAIR)
ANSWER_S = 15.0  # a line that says nothing for so long is given up
UNKNOWN_S = 20.0


class Recorded(Remembering):
    """A catalog that writes down what is asked of it and what it says."""

    recorder: Recorder

    def propose(self, proposal: Proposal) -> Answer:
        self.recorder.sent(proposal)
        answer = super().propose(proposal)
        match answer:
            case Ratified(txn_id=txn_id, commits=commits):
                versions = {table_id: commit.version for table_id, commit in commits.items()}
                self.recorder.write(ratified=txn_id, versions=versions)
            case Rejected(txn_id=txn_id, violations=violations):
                code = "invalid" if violations else "conflict"
                self.recorder.write(rejected=txn_id, code=code)
        return answer


class Writer:
    """Does one thing after the other, drawn by chance."""

    def __init__(self, recorder: Recorder, chance: random.Random, addresses: list[str]) -> None:
        self._recorder = recorder
        self._chance = chance
        catalog = Recorded(
            addresses[0],
            clock=CLOCK,
            ids=RandomIds(CLOCK),
            patience=RemotePatience(answer_s=ANSWER_S, lost_s=UNKNOWN_S),
            sender=Anyone(addresses, ANSWER_S, chance.randrange(2**32)),
        )
        catalog.recorder = recorder
        self._inline = session_on(catalog, unknown_s=UNKNOWN_S)
        self._staged = session_on(catalog, staged=True, unknown_s=UNKNOWN_S)
        self._handles: dict[tuple[Session, str], Table] = {}
        self._acknowledged: set[int] = (
            set()
        )  # rows of the hot table that were acknowledged to this one

    def step(self) -> None:
        """Do something; what is refused or unknown is a part of life here."""
        deeds = {
            self._append: 40,
            self._append_to_both: 20,
            self._churn: 20,
            self._set_a_property: 5,
            self._look: 15,
            self._look_at_a_cut: 10,
            self._publish: 3,
            self._checkpoint: 2,
        }
        [deed] = self._chance.choices(list(deeds), list(deeds.values()))
        try:
            deed()
        except (UnavailableError, OutcomeUnknownError, ConflictError):
            pass
        except InvariantError as error:
            self._recorder.write(broken=f"{deed.__name__}: {error}")
            raise

    # What it does

    def _append(self) -> None:
        value = self._new_value()
        self._table(HOT).append(rows(value))
        self._acknowledged.add(value)

    def _append_to_both(self) -> None:
        session = self._session()
        append_to_all(session, [self._table(name, session) for name in PAIR], self._new_value())

    def _churn(self) -> None:
        """Add a file or take some whole file out, mine or another's: some of these conflict."""
        table = self._table(CHURN)
        paths = [file.path for file in table.snapshot().files()]
        if len(paths) < 4 or self._chance.random() < 0.5:
            table.append(rows(self._new_value()))
            return
        with suppress(InvalidArgumentError):  # another was faster, before anything was proposed
            table.remove([self._chance.choice(paths)])

    def _set_a_property(self) -> None:
        self._table(CHURN).set_properties({"headgate.test.turn": str(self._new_value())})

    def _publish(self) -> None:
        self._table(self._chance.choice(TABLES)).publish()

    def _checkpoint(self) -> None:
        table = self._table(self._chance.choice(TABLES))
        table.publish()
        try:
            table.checkpoint()
        except HeadgateError as error:
            # Others commit meanwhile, and only what is published gets a checkpoint.
            if error.code != "not-published":
                raise

    # What it sees

    def _look(self) -> None:
        acknowledged = set(self._acknowledged)
        found = values_in(self._table(HOT))
        if missing := acknowledged - set(found):
            self._recorder.write(broken=f"acknowledged and not read: {sorted(missing)[:5]}")
        self._see(found)

    def _look_at_a_cut(self) -> None:
        cut = self._inline.read_cut(PAIR)
        one, other = (values_of(cut[name]) for name in PAIR)
        if one != other:
            self._recorder.write(broken=f"a transaction is half there: {one - other}{other - one}")
        self._see(one)

    def _see(self, found: Counter[int]) -> None:
        if doubled := [value for value, times in found.items() if times > 1]:
            self._recorder.write(broken=f"twice there: {doubled[:5]}")
        self._recorder.write(read=len(found))

    # How

    def _session(self) -> Session:
        return self._staged if self._chance.random() < 0.3 else self._inline

    def _table(self, name: str, session: Session | None = None) -> Table:
        wanted = session or self._session(), name
        if wanted not in self._handles:
            self._handles[wanted] = wanted[0].table(name)
        return self._handles[wanted]

    def _new_value(self) -> int:
        return self._chance.getrandbits(53)  # each writer has chance of its own


def main(arguments: list[str]) -> int:
    path, seed, seconds, *addresses = arguments
    recorder = Recorder(Path(path))
    writer = Writer(recorder, random.Random(int(seed)), addresses)
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        try:
            writer.step()
        except NotFoundError as error:
            recorder.write(broken=f"a table is gone: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
