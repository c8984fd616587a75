"""`delta/preview/commits`: the older way to commit and to list commits. Snake case.

Clients list the log themselves and ask here for staged commits; the Java kernel accepts nothing
else. Sail takes every version from here, never lists the log, and for a version that is missing
here it uses any staged file that it finds. So Sail gets every version of the range: the name of the
staged file, or the URL of a published commit.
"""

import msgspec

from headgate.api.bodies import decode
from headgate.api.messages import RatifiedCommit, TableInfo
from headgate.catalog.decider import Decided
from headgate.catalog.proposer import StagedProposal
from headgate.errors import HeadgateError, InvalidArgumentError
from headgate.http.async_answers import PendingAnswer
from headgate.http.operations import Call, Finish, Operations, Pool
from headgate.http.unity import bodies, problems, table_views
from headgate.http.unity.commits import (
    enqueue,
    propose,
    refuse_wrong_claim,
    staged,
    valid_claim,
)
from headgate.http.unity.declarations import refuse_uniform
from headgate.http.unity.problems import BASE, invalid
from headgate.protocol.actions import Version
from headgate.protocol.commit.content import Way
from headgate.protocol.paths import PublishedCommit
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.storage import locations

_PATH = "/delta/preview/commits"
_NEEDS_ALL = "Sail/"
_OK = 200  # the body that clients expect where there is nothing to return

operations = Operations(BASE, "unity_")


def _at_location(described: TableInfo, table_uri: str) -> TableInfo:
    """Raise unless a table is managed and at the location that the client names."""
    if described.protocol is None:
        raise invalid(f"{described.name} is not managed.")
    if locations.normalize(table_uri) != described.location:
        raise invalid(
            f"Table {described.table_id} is at {described.location}, not at {table_uri[:500]}."
        )
    return described


# Committing


def _commit_soon(call: Call, pending: PendingAnswer) -> Finish | None:
    """Queue a commit to a table that is as it was described last."""
    body: bodies.CommitOrClaim = call.body
    try:
        before = call.catalog.kept_description(table_views.parse_id(body.table_id))
        if before is None or body.commit_info is None:
            return None
        proposed, claim = _proposed(body, body.commit_info, before)
        meaning = enqueue(call.catalog, proposed, claim, pending)
    except HeadgateError:
        return None  # the table may have changed since: it is looked at again
    if meaning is None:
        return None

    def finish(decided: Decided) -> int:
        call.catalog.describe_next(before, *meaning(decided))
        return _OK

    return finish


@operations.add(
    "POST",
    _PATH,
    pool=Pool.PROPOSALS,
    encode_error=problems.snake_on_commit,
    enqueue=_commit_soon,
    asks_again=True,
)
def add_commit(call: Call, body: bodies.CommitOrClaim) -> int:
    """Commit to a table, or claim what is published."""
    refuse_uniform(body.uniform)
    table_id = table_views.parse_id(body.table_id)
    if body.commit_info is None:
        before = _at_location(call.catalog.describe_briefly(table_id), body.table_uri)
        if body.latest_backfilled_version is None or body.metadata is not None:
            raise invalid("Without commit_info, send only latest_backfilled_version.")
        refuse_wrong_claim(before, body.latest_backfilled_version)
        call.catalog.confirm_published(before.table_id, Version(body.latest_backfilled_version))
        return _OK
    before = call.catalog.describe(table_id, Version(body.commit_info.version))
    after, commit = propose(call.catalog, *_proposed(body, body.commit_info, before))
    call.catalog.describe_next(before, after, commit)  # kept for the next commit
    return _OK


def _proposed(
    body: bodies.CommitOrClaim, given: bodies.OlderCommit, described: TableInfo
) -> tuple[StagedProposal, int | None]:
    """Return what a client proposes, and the version up to which it has published."""
    refuse_uniform(body.uniform)
    before = _at_location(described, body.table_uri)
    commit = bodies.Commit(**msgspec.structs.asdict(given))
    claim = valid_claim(before, body.latest_backfilled_version, commit)
    updates: list[bodies.Update] = [bodies.AddCommit(commit=commit)]
    if body.metadata is not None:
        _check_metadata(body.metadata, before)
        if body.metadata.description is not None:
            updates.append(bodies.SetTableComment(comment=body.metadata.description))
        if body.metadata.properties is not None:
            updates.append(bodies.SetProperties(updates=body.metadata.properties.properties))
    return staged(before, commit, updates), claim


def _check_metadata(changed: bodies.ChangedMetadata, before: TableInfo) -> None:
    if changed.description is None and changed.properties is None and changed.schema is None:
        raise invalid("metadata is empty.")
    if changed.properties is not None:
        named = changed.properties.properties.get(TABLE_ID_PROPERTY)
        if named != before.table_id:
            raise InvalidArgumentError(
                f"{TABLE_ID_PROPERTY} is {str(named)[:60]}, not {before.table_id}.",
                remedy="Send all properties, with the table's id unchanged.",
            )


# Listing


@operations.add("GET", _PATH, pool=Pool.CHANGES, encode_error=problems.snake, reads_body=True)
def commits(call: Call) -> bodies.OlderCommits:
    """Return the commits of a range, newest first."""
    asked = _range(call)
    if asked.start_version < 0 or (asked.end_version or 0) < 0:
        raise invalid("A version cannot be negative.")
    first = max(asked.start_version, 1)
    table_id = table_views.parse_id(asked.table_id)
    described = call.catalog.describe_in_files(table_id, Version(first))
    found = _at_location(described, asked.table_uri)
    table_views.make_staging_folder(found)
    head = found.latest
    last = head if asked.end_version is None else min(asked.end_version, head)
    if call.agent.startswith(_NEEDS_ALL):
        listed = [_with_url(found, commit) for commit in reversed(found.commits)]
    else:
        staged_files = table_views.in_staged_files(found)
        listed = [bodies.OlderCommit(**table_views.fields_of(commit)) for commit in staged_files]
    return bodies.OlderCommits(
        commits=tuple(commit for commit in listed if first <= commit.version <= last),
        latest_table_version=head,
    )


def _range(call: Call) -> bodies.CommitRange:
    if call.raw:
        return decode(call.raw, bodies.CommitRange)
    table_id, table_uri = call.text("table_id"), call.text("table_uri")
    start = call.number("start_version")
    if table_id is None or table_uri is None or start is None:
        raise InvalidArgumentError(
            "Send table_id, table_uri and start_version.",
            remedy="Send them as a JSON body, or as parameters.",
        )
    return bodies.CommitRange(
        table_id=table_id,
        table_uri=table_uri,
        start_version=start,
        end_version=call.number("end_version"),
    )


def _with_url(found: TableInfo, commit: RatifiedCommit) -> bodies.OlderCommit:
    """Return a commit with the name of its staged file, or its URL once it is published."""
    # Inline commits were published after this commit was read and before it is returned.
    fields = table_views.fields_of(commit)
    if commit.way is not Way.STAGED or commit.is_published:
        path = PublishedCommit(commit.version).path
        fields["file_name"] = locations.join(found.location, path)
    return bodies.OlderCommit(**fields)
