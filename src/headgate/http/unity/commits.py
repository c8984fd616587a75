"""Committing, which is the same in both dialects: a staged file, a claim of what is published."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.api.messages import Answer, Ratified, RatifiedCommit, TableInfo, VersionTaken
from headgate.catalog.service import Catalog
from headgate.errors import (
    ConflictError,
    InvalidArgumentError,
    InvalidCommitError,
    LogDivergedError,
)
from headgate.http.unity import bodies
from headgate.http.unity.problems import Case, SaidError
from headgate.protocol.actions import Version
from headgate.protocol.commit.content import Staged
from headgate.protocol.commit.examination import Examined, Violation

_COUNTS = ("version", "timestamp", "file_size", "file_modification_timestamp")


def refuse_wrong_claim(before: TableInfo, upto: int) -> None:
    """Refuse to hear that a version is published which is not there.

    Version 0 is never claimed: whoever made the table wrote it into the log.
    """
    latest = before.latest
    if latest == 0:
        raise InvalidArgumentError(f"{before.name} has no commit to be published.", remedy="")
    if not 0 <= upto <= latest:
        raise InvalidArgumentError(
            f"Version {upto} of {before.name} is not published: {latest} is the latest.", remedy=""
        )


def heard(before: TableInfo, upto: int | None, commit: bodies.Commit) -> int | None:
    """Give what a commit says was published before it, or refuse it.

    The first commit has nothing before it to publish, whatever is claimed.
    """
    if upto is None or commit.version == 1:
        return None
    refuse_wrong_claim(before, upto)
    return upto


def is_replay(catalog: Catalog, before: TableInfo, commit: bodies.Commit) -> bool:
    """Say whether this very file became this version, however long ago."""
    return catalog.file_of(before.table_id, Version(commit.version)) == commit.file_name


def propose(
    catalog: Catalog,
    before: TableInfo,
    commit: bodies.Commit,
    claim: int | None,
    judge: Callable[[Examined], Iterable[Violation]],
) -> tuple[TableInfo, RatifiedCommit]:
    """Have a staged file ratified, and hear what was published before; or refuse.

    Gives the table as it is then.
    """
    for field in _COUNTS:
        if not 0 < getattr(commit, field) < 1 << 63:
            raise InvalidArgumentError(f"{field} is {getattr(commit, field)}.", remedy="")
    if before.diverged is not None and not is_replay(catalog, before, commit):
        raise LogDivergedError(before.diverged)
    staged = Staged(file_name=commit.file_name, size=commit.file_size)
    answer, after = catalog.propose_staged(before, Version(commit.version), staged, judge)
    ratified = _ratified(answer, before, commit)
    if claim is not None and claim > before.published:
        # It is committed: what becomes of the claim cannot take that back.
        catalog.hear_published(before.table_id, Version(claim))
    return after, ratified.commits[before.table_id]


def _ratified(answer: Answer, before: TableInfo, commit: bodies.Commit) -> Ratified:
    match answer:
        case Ratified():
            return answer
        case VersionTaken():
            [latest] = answer.latest.values()
            raise SaidError(
                Case.VERSION_TAKEN,
                f"Version {commit.version} of {before.name} is taken; {latest} is the latest.",
                remedy="Load the table again, and commit above it.",
            )
        case _ if answer.violations:
            raise InvalidCommitError(str(before.name), answer.violations)
        case _:
            raise ConflictError(str(before.name), answer.conflicts)
