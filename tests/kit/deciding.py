"""Decide proposals in a unit of work, as a ratifier does under the store's lock."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.catalog.decider import Decided, Decider, Draft
from headgate.catalog.heads import Heads
from headgate.catalog.stores.writer import WriteUnit
from headgate.protocol.commit.decide import concerned
from headgate.protocol.commit.facts import ExaminedProposal, Gathered


def decide_in(
    unit: WriteUnit, decider: Decider, proposals: Iterable[ExaminedProposal]
) -> list[Decided]:
    """Decide proposals one after another as one batch, and write it."""
    proposals = list(proposals)
    heads = Heads()
    heads.load(unit, {table_id for proposal in proposals for table_id in concerned(proposal)})
    draft = Draft(heads, unit=unit)
    answers: list[Decided] = []
    for proposal in proposals:
        decided = decider.decide(draft, proposal, Gathered())
        assert isinstance(decided, Decided), decided
        answers.append(decided)
    unit.write_batch(draft.batch())
    return answers
