"""Commits, which work alike in both dialects: a staged file, and a claim of what is published."""

from collections.abc import Callable, Iterable

from headgate.api.messages import Answer, Ratified, RatifiedCommit, TableInfo, VersionTaken
from headgate.catalog.service import Catalog
from headgate.errors import ConflictError, InvalidCommitError, LogDivergedError
from headgate.http.unity import bodies
from headgate.http.unity.problems import Case, DialectError, invalid
from headgate.protocol.actions import Version
from headgate.protocol.commit.content import Staged
from headgate.protocol.commit.examination import Examined, Violation

_COUNTS = ("version", "timestamp", "file_size", "file_modification_timestamp")


def refuse_wrong_claim(before: TableInfo, upto: int) -> None:
    """Raise if a version that is claimed to be published does not exist."""
    # Version 0 is never claimed: the creator of the table wrote it to the log.
    latest = before.latest
    if latest == 0:
        raise invalid(f"{before.name} has no commit to publish.")
    if not 0 <= upto <= latest:
        raise invalid(f"Version {upto} of {before.name} is not published: {latest} is the latest.")


def is_replay(catalog: Catalog, before: TableInfo, commit: bodies.Commit) -> bool:
    """Return whether this staged file became this version, however long ago."""
    return catalog.file_of(before.table_id, Version(commit.version)) == commit.file_name


def propose(
    catalog: Catalog,
    before: TableInfo,
    commit: bodies.Commit,
    claim: int | None,
    judge: Callable[[Examined], Iterable[Violation]],
) -> tuple[TableInfo, RatifiedCommit]:
    """Propose a staged file, record the client's claim, and return the table after the commit."""
    for field in _COUNTS:
        if not 0 < getattr(commit, field) < 1 << 63:
            raise invalid(f"{field} is {getattr(commit, field)}.")
    if before.diverged is not None and not is_replay(catalog, before, commit):
        raise LogDivergedError(before.diverged)
    staged = Staged(file_name=commit.file_name, size=commit.file_size)
    answer, after = catalog.propose_staged(before, Version(commit.version), staged, judge)
    ratified = _ratified(answer, before, commit)
    if claim is not None and claim > before.published:
        # The commit is ratified: an error of the claim cannot undo it.
        catalog.confirm_published_later(before.table_id, Version(claim))
    return after, ratified.commits[before.table_id]


def valid_claim(before: TableInfo, upto: int | None, commit: bodies.Commit) -> int | None:
    """Return the version that a commit claims to be published; raise if it does not exist."""
    # Nothing precedes the first commit, so its claim is ignored.
    if upto is None or commit.version == 1:
        return None
    refuse_wrong_claim(before, upto)
    return upto


def _ratified(answer: Answer, before: TableInfo, commit: bodies.Commit) -> Ratified:
    match answer:
        case Ratified():
            return answer
        case VersionTaken():
            [latest] = answer.latest.values()
            raise DialectError(
                Case.VERSION_TAKEN,
                f"Version {commit.version} of {before.name} is taken; {latest} is the latest.",
                remedy="Load the table again, and propose a later version.",
            )
        case _ if answer.violations:
            raise InvalidCommitError(str(before.name), answer.violations)
        case _:
            raise ConflictError(str(before.name), answer.conflicts)
