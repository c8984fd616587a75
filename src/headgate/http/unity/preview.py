"""`delta/preview/commits`: the older way to commit and to ask for commits. Snake case.

Clients list the log themselves and ask here for what is staged; the Java kernel takes nothing else.
Sail takes every version from here, never looks at the log by itself, and takes any staged file it
finds for a version that is not named. So Sail is told of every version of the range: of one that is
not published by its staged file, of one that is by the URL it lies at.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headgate.api.messages import RatifiedCommit, TableInfo
from headgate.errors import InvalidArgumentError
from headgate.http.operations import Call, Operation, Pool
from headgate.http.unity import bodies, problems, table_views
from headgate.http.unity.commits import heard, propose, refuse_wrong_claim
from headgate.http.unity.problems import BASE
from headgate.protocol.actions import Version
from headgate.protocol.commit.content import Way
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.paths import PublishedCommit
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.settings import Settings
from headgate.storage import locations

_PATH = f"{BASE}/delta/preview/commits"
_TOLD_OF_ALL = "Sail/"
_OK = 200  # what clients expect as the body of an answer that says nothing else


def operations(settings: Settings) -> list[Operation]:
    """List what this dialect can be asked."""
    return [
        Operation(
            "POST",
            _PATH,
            "unity_add_commit",
            "Commit to a table, or say what is published.",
            _add,
            body=bodies.OlderCommit,
            pool=Pool.PROPOSALS,
            refused=problems.snake_on_commit,
        ),
        Operation(
            "GET",
            _PATH,
            "unity_commits",
            "Give the commits of a range, newest first.",
            _commits,
            pool=Pool.CHANGES,
            refused=problems.snake,
            reads_body=True,
        ),
    ]


def _at_its_place(described: TableInfo, table_uri: str) -> TableInfo:
    """Hold the place that is said to be a table's own against it."""
    if described.protocol is None:
        raise InvalidArgumentError(f"{described.name} is not managed.", remedy="")
    if locations.normalize(table_uri) != described.location:
        raise InvalidArgumentError(
            f"Table {described.table_id} lies at {described.location}, not at {table_uri[:500]}.",
            remedy="",
        )
    return described


# Committing


def _add(call: Call) -> int:
    body: bodies.OlderCommit = call.body
    table_views.refuse_uniform(body.uniform)
    table_id = table_views.parse_id(body.table_id)
    if body.commit_info is None:
        before = _at_its_place(call.catalog.describe_briefly(table_id), body.table_uri)
        if body.latest_backfilled_version is None or body.metadata is not None:
            raise InvalidArgumentError(
                "Without commit_info there is latest_backfilled_version, and nothing else.",
                remedy="",
            )
        refuse_wrong_claim(before, body.latest_backfilled_version)
        call.catalog.confirm_published(before.table_id, Version(body.latest_backfilled_version))
        return _OK
    wanted = bodies.Commit(**msgspec.structs.asdict(body.commit_info))
    described = call.catalog.describe(table_id, Version(wanted.version))
    before = _at_its_place(described, body.table_uri)
    claim = heard(before, body.latest_backfilled_version, wanted)
    changed = body.metadata
    if changed is not None:
        _refuse_unless_something(changed, before)

    def judge(examined: Examined) -> Iterable[Violation]:
        metadata = examined.metadata or before.metadata
        commit = bodies.AddCommit(commit=wanted)
        yield from table_views.contradictions((commit,), examined, before)
        if changed is not None and changed.description is not None:
            yield from table_views.comment_differs(metadata, changed.description)
        if changed is not None and changed.properties is not None:
            yield from table_views.properties_differ(metadata, changed.properties.properties)

    propose(call.catalog, before, wanted, claim, judge)
    return _OK


def _refuse_unless_something(changed: bodies.ChangedMetadata, before: TableInfo) -> None:
    if changed.description is None and changed.properties is None and changed.schema is None:
        raise InvalidArgumentError("metadata has no part.", remedy="")
    if changed.properties is not None:
        named = changed.properties.properties.get(TABLE_ID_PROPERTY)
        if named != before.table_id:
            raise InvalidArgumentError(
                f"{TABLE_ID_PROPERTY} is {str(named)[:60]}, not {before.table_id}.",
                remedy="Properties replace all that were there, and the table's id stays.",
            )


# Asking


def _commits(call: Call) -> bodies.Commits:
    wanted = _wanted(call)
    if wanted.start_version < 0 or (wanted.end_version or 0) < 0:
        raise InvalidArgumentError("A version is not below 0.", remedy="")
    first = max(wanted.start_version, 1)
    table_id = table_views.parse_id(wanted.table_id)
    described = call.catalog.describe_in_files(table_id, Version(first))
    found = _at_its_place(described, wanted.table_uri)
    table_views.make_staging_folder(found)
    head = found.latest
    last = head if wanted.end_version is None else min(wanted.end_version, head)
    if call.agent.startswith(_TOLD_OF_ALL):
        told = [_by_any_name(found, commit) for commit in reversed(found.commits)]
    else:
        told = [_by_staged_name(commit) for commit in table_views.in_staged_files(found)]
    return bodies.Commits(
        commits=tuple(commit for commit in told if first <= commit.version <= last),
        latest_table_version=head,
    )


def _wanted(call: Call) -> bodies.WantedCommits:
    if call.raw:
        return bodies.decode(call.raw, bodies.WantedCommits)
    table_id, table_uri = call.text("table_id"), call.text("table_uri")
    start = call.number("start_version")
    if table_id is None or table_uri is None or start is None:
        raise InvalidArgumentError(
            "Say table_id, table_uri and start_version.",
            remedy="Send them as a JSON body, or as parameters.",
        )
    return bodies.WantedCommits(
        table_id=table_id,
        table_uri=table_uri,
        start_version=start,
        end_version=call.number("end_version"),
    )


def _by_any_name(found: TableInfo, commit: RatifiedCommit) -> bodies.CommitInfo:
    # What came inline was published before this is told, though it was not when it was read.
    if commit.way is Way.STAGED and commit.published_ms is None:
        return _by_staged_name(commit)
    return _info(commit, locations.join(found.location, PublishedCommit(commit.version).path))


def _by_staged_name(commit: RatifiedCommit) -> bodies.CommitInfo:
    assert commit.file_name is not None  # it is staged
    return _info(commit, commit.file_name)


def _info(commit: RatifiedCommit, name: str) -> bodies.CommitInfo:
    return bodies.CommitInfo(
        version=commit.version,
        timestamp=commit.timestamp_ms,
        file_name=name,
        file_size=commit.size,
        file_modification_timestamp=commit.modified_ms or commit.timestamp_ms,
    )
