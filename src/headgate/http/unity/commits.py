"""Commits, which work alike in both dialects: a staged file, and a claim of what is published."""

from collections.abc import Callable, Collection
from functools import partial

from headgate.api.messages import Answer, Ratified, RatifiedCommit, TableInfo, VersionTaken
from headgate.catalog.decider import Decided
from headgate.catalog.proposer import StagedProposal
from headgate.catalog.service import Catalog
from headgate.errors import ConflictError, InvalidCommitError, LogDivergedError
from headgate.http.async_answers import PendingAnswer
from headgate.http.unity import bodies
from headgate.http.unity.declarations import contradictions
from headgate.http.unity.problems import Case, DialectError, invalid
from headgate.protocol.actions import Version
from headgate.protocol.commit.content import Staged

_COUNTS = ("version", "timestamp", "file_size", "file_modification_timestamp")


def refuse_wrong_claim(before: TableInfo, upto: int) -> None:
    """Raise if a version that is claimed to be published does not exist."""
    # Version 0 is never claimed: the creator of the table wrote it to the log.
    latest = before.latest
    if latest == 0:
        raise invalid(f"{before.name} has no commit to publish.")
    if not 0 <= upto <= latest:
        raise invalid(f"Version {upto} of {before.name} is not published: {latest} is the latest.")


def enqueue(
    catalog: Catalog, proposed: StagedProposal, claim: int | None, pending: PendingAnswer
) -> Callable[[Decided], tuple[TableInfo, RatifiedCommit]] | None:
    """Queue a staged file without blocking; None if it must be proposed by `propose`.

    Returns what the decision means, as `propose` does.
    """
    if proposed.before.last_without_file is not None:
        return None  # the answer would wait until it is published
    if not catalog.enqueue(proposed, pending, pending.wake):
        return None
    return lambda decided: _committed(catalog, proposed, claim, decided)


def staged(
    before: TableInfo, commit: bodies.Commit, declared: Collection[bodies.Update]
) -> StagedProposal:
    """Return what a commit and declared updates propose; raise if its numbers cannot be right."""
    for field in _COUNTS:
        if not 0 < getattr(commit, field) < 1 << 63:
            raise invalid(f"{field} is {getattr(commit, field)}.")
    file = Staged(file_name=commit.file_name, size=commit.file_size)
    judge = partial(contradictions, declared, before=before)
    return StagedProposal(before, Version(commit.version), file, judge)


def is_replay(catalog: Catalog, proposed: StagedProposal) -> bool:
    """Return whether this staged file became this version, however long ago."""
    known = catalog.file_of(proposed.before.table_id, proposed.version)
    return known == proposed.staged.file_name


def propose(
    catalog: Catalog, proposed: StagedProposal, claim: int | None
) -> tuple[TableInfo, RatifiedCommit]:
    """Propose a staged file, record the client's claim, and return the table after the commit."""
    before = proposed.before
    if before.diverged is not None and not is_replay(catalog, proposed):
        raise LogDivergedError(before.diverged)
    return _committed(catalog, proposed, claim, catalog.decide(proposed))


def _committed(
    catalog: Catalog, proposed: StagedProposal, claim: int | None, decided: Decided
) -> tuple[TableInfo, RatifiedCommit]:
    before = proposed.before
    ratified = _ratified(decided.answer, proposed)
    if claim is not None and claim > before.published:
        # The commit is ratified: an error of the claim cannot undo it.
        catalog.confirm_published_later(before.table_id, Version(claim))
    return catalog.table_after(before, decided), ratified.commits[before.table_id]


def valid_claim(before: TableInfo, upto: int | None, commit: bodies.Commit) -> int | None:
    """Return the version that a commit claims to be published; raise if it does not exist."""
    # Nothing precedes the first commit, so its claim is ignored.
    if upto is None or commit.version == 1:
        return None
    refuse_wrong_claim(before, upto)
    return upto


def _ratified(answer: Answer, proposed: StagedProposal) -> Ratified:
    before = proposed.before
    match answer:
        case Ratified():
            return answer
        case VersionTaken():
            [latest] = answer.latest.values()
            raise DialectError(
                Case.VERSION_TAKEN,
                f"Version {proposed.version} of {before.name} is taken; {latest} is the latest.",
                remedy="Load the table again, and propose a later version.",
            )
        case _ if answer.violations:
            raise InvalidCommitError(str(before.name), answer.violations)
        case _:
            raise ConflictError(str(before.name), answer.conflicts)
