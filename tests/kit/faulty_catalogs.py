"""Wrappers around a catalog that count its calls, and lose or double proposals on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass

from headgate.api.messages import Answer, Proposal, RatifiedCommits, Resolved
from headgate.api.port import Cuts, ManagingCatalog, Ref, require
from headgate.errors import OutcomeUnknownError, UnavailableError
from headgate.protocol.actions import Sequence, TableId, TxnId, Version


class LosingCatalog:
    """Wraps a catalog; loses or doubles as many proposals as requested.

    `lost_requests` never arrive; `lost_answers` belong to calls that took effect; `doubled` ones
    arrive twice and the second answer is returned. `overtakers` run one by one, each just before a
    proposal arrives, so that it loses the race.
    """

    def __init__(
        self,
        inner: ManagingCatalog,
        *,
        lost_requests: int = 0,
        lost_answers: int = 0,
        doubled: int = 0,
        error: Callable[[TxnId], Exception] | None = None,
    ) -> None:
        self.inner = inner
        self.lost_requests = lost_requests
        self.lost_answers = lost_answers
        self.doubled = doubled
        self.error = error or unavailable
        self.overtakers: list[Callable[[], object]] = []
        self.calls: Counter[str] = Counter()
        self.proposals: list[Proposal] = []
        self.answers: list[Answer] = []

    def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
        self.calls["resolve"] += 1
        return self.inner.resolve(ref, at)

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        self.calls["ratified_commits"] += 1
        return self.inner.ratified_commits(table_id, first, last)

    def propose(self, proposal: Proposal) -> Answer:
        self.calls["propose"] += 1
        self.proposals.append(proposal)
        if self.overtakers:
            self.overtakers.pop(0)()
        if self.lost_requests:
            self.lost_requests -= 1
            raise self.error(proposal.txn_id)
        answer = self.inner.propose(proposal)
        if self.doubled:
            self.doubled -= 1
            answer = self.inner.propose(proposal)
        self.answers.append(answer)
        if self.lost_answers:
            self.lost_answers -= 1
            raise self.error(proposal.txn_id)
        return answer


@dataclass(frozen=True)
class Fault:
    """The error a call raises, and whether the call takes effect all the same."""

    error: Callable[[TxnId], Exception]
    takes_effect: bool = False


class LosingCuts(LosingCatalog):
    """Such a wrapper around a catalog with one sequence over all tables."""

    def resolve_many(self, refs: Many[Ref], at: Sequence | None = None) -> tuple[Resolved, ...]:
        return require(self.inner, Cuts).resolve_many(refs, at)

    def sequence_at(self, timestamp_ms: int | None = None) -> Sequence:
        return require(self.inner, Cuts).sequence_at(timestamp_ms)


class ScriptedCatalog(LosingCatalog):
    """Wraps a catalog; the nth proposal meets the nth fault of the script.

    None lets a proposal pass, and so does the end of the script.
    """

    def __init__(self, inner: ManagingCatalog, *script: Fault | None) -> None:
        super().__init__(inner)
        self.script = list(script)

    def propose(self, proposal: Proposal) -> Answer:
        fault = self.script.pop(0) if self.script else None
        if fault is None:
            return super().propose(proposal)
        if fault.takes_effect:
            super().propose(proposal)
        else:
            self.calls["propose"] += 1
            self.proposals.append(proposal)
        raise fault.error(proposal.txn_id)


def unavailable(txn_id: TxnId) -> Exception:
    """Return the error for a server that cannot be reached."""
    return UnavailableError("The connection was lost.")


def unknown(txn_id: TxnId) -> Exception:
    """Return the error for an unknown outcome."""
    return OutcomeUnknownError(txn_id, "the connection was lost")
