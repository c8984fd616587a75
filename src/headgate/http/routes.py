"""The native API. Paths consist of nouns."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from headgate.api import bodies, problems
from headgate.api.events import Event
from headgate.api.messages import Answer, Proposal, Ratified, Rejected, Resolved, StagingTable
from headgate.api.status import CommitReports, ListenerEntry, Status
from headgate.catalog.event_feed import MAX_PAGE
from headgate.catalog.idempotency import AnsweredError
from headgate.errors import BusyError, InvalidArgumentError, NotFoundError
from headgate.http.async_answers import PendingAnswer
from headgate.http.operations import Call, Finish, Operations, Parameter, Pool
from headgate.names import SchemaName, TableName, plain_name
from headgate.protocol.actions import TxnId
from headgate.protocol.commit.content import Inline
from headgate.protocol.log.known_files import KnownFile
from headgate.release import version
from headgate.settings import TRANSACTION_LIMIT_BYTES, TRANSACTION_TABLES

_AT = Parameter("at", "Return the tables as of this sequence.")
_MIN = Parameter("minSequence", "The lowest sequence that the answer may be from.")
_RANGE = (Parameter("first", "The first version."), Parameter("last", "The last version."))
_PAGE = 1_000
_REFUSED = ("invalid-commit", "log-ahead", "unsupported-by-catalog")
_NOT_RATIFIED = ("conflict", "version-taken", "must-restage", "txn-id-reused", *_REFUSED)

operations = Operations("/v1")


# Proposals


def _proposal(call: Call) -> Proposal:
    """Return the proposal of a request for one table or many."""
    if isinstance(call.body, Proposal):
        proposal = call.body
        if proposal.txn_id != call.path["txnId"]:
            raise InvalidArgumentError(
                f"The path names transaction {call.path['txnId'][:60]}, the body "
                f"{proposal.txn_id[:60]}."
            )
    else:
        proposal = call.body.proposal(call.table_id)
    if call.key is not None and call.key.key != proposal.txn_id:
        raise InvalidArgumentError(
            f"The idempotency key of a proposal must be its txnId, {proposal.txn_id[:60]}."
        )
    return proposal


def _propose_soon(call: Call, pending: PendingAnswer) -> Finish | None:
    proposal = _proposal(call)
    if not call.catalog.enqueue(proposal, pending, pending.wake):
        return None
    return lambda decided: _as_body(call, proposal, decided.answer)


def _propose(call: Call) -> Ratified | problems.Problem:
    proposal = _proposal(call)
    return _as_body(call, proposal, call.catalog.propose(proposal))


def _as_body(call: Call, proposal: Proposal, answer: Answer) -> Ratified | problems.Problem:
    if isinstance(answer, Ratified):
        return answer
    is_staged = any(not isinstance(part.content, Inline) for part in proposal.parts)
    return problems.from_answer(answer, is_staged=is_staged, request_id=call.request_id)


_PROPOSING = {"pool": Pool.PROPOSALS, "enqueue": _propose_soon, "problems": _NOT_RATIFIED}


@operations.add("POST", "/tables/{tableId}/commits", **_PROPOSING)
def propose(call: Call, body: bodies.OnePart) -> Ratified | problems.Problem:
    """Propose a commit to one table, staged or inline."""
    return _propose(call)


# Reading


@operations.add("GET", "/names/{name}", query=(_AT, _MIN))
def resolve(call: Call) -> Resolved:
    """Resolve a table: return everything that a client needs."""
    return _resolved(call, TableName.parse(call.path["name"]))


@operations.add("GET", "/tables/{tableId}", query=(_AT, _MIN))
def resolve_by_id(call: Call) -> Resolved:
    """Resolve a table by its id."""
    return _resolved(call, call.table_id)


@operations.add(
    "GET",
    "/names",
    query=(
        Parameter("name", "A table's name.", "string", is_repeated=True),
        Parameter("tableId", "A table's id.", "string", is_repeated=True),
        _AT,
        _MIN,
    ),
)
def resolve_many(call: Call) -> bodies.ResolvedTables:
    """Resolve several tables at one sequence."""
    refs = call.refs()
    if not refs:
        raise InvalidArgumentError("No table is named.", remedy="Name some: ?name=a&name=b.")
    found = call.catalog.resolve_many(refs, call.sequence("at"), reserve=call.reserve)
    for resolved in found:
        _refuse_if_behind(call, resolved)
    return bodies.ResolvedTables(tables=found)


def _resolved(call: Call, ref: Any) -> Resolved:
    resolved = call.catalog.resolve(ref, call.sequence("at"), reserve=call.reserve)
    _refuse_if_behind(call, resolved)
    return resolved


def _refuse_if_behind(call: Call, resolved: Resolved) -> None:
    """Raise if the answer is older than what this client has already seen. Spec: CA-03."""
    least = call.number("minSequence")
    if least is not None and (resolved.sequence or 0) < least and call.number("at") is None:
        raise BusyError(f"This server's store is at sequence {resolved.sequence}, before {least}.")


@operations.add("GET", "/tables/{tableId}/commits", query=_RANGE)
def ratified_commits(call: Call) -> bodies.CommitPage:
    """Return pages of the ratified commits that are stored, and the latest version."""
    found, following = call.catalog.ratified_page(
        call.table_id, call.version("first"), call.version("last"), reserve=call.reserve
    )
    return bodies.CommitPage(latest=found.latest, commits=found.commits, next=following)


@operations.add("GET", "/tables/{tableId}/timeline", query=_RANGE)
def timeline(call: Call) -> bodies.Timeline:
    """Return pages of the times when commits were proposed, ratified and published."""
    entries, following = call.catalog.timeline_page(
        call.table_id, call.version("first"), call.version("last"), reserve=call.reserve
    )
    return bodies.Timeline(entries=entries, next=following)


@operations.add("GET", "/tables/{tableId}/reports")
def reported(call: Call) -> CommitReports:
    """Return the totals that writers reported, which are not checked."""
    return call.catalog.commit_reports(call.table_id)


# Transactions


@operations.add("POST", "/transactions/{txnId}/proposal", **_PROPOSING)
def propose_many(call: Call, body: Proposal) -> Ratified | problems.Problem:
    """Propose commits to several tables, which are ratified all or none."""
    return _propose(call)


@operations.add("GET", "/transactions/{txnId}")
def outcome(call: Call) -> Ratified | Rejected:
    """Return the outcome of a transaction."""
    txn_id = TxnId(call.path["txnId"])
    found = call.catalog.outcome(txn_id)
    if found is None:
        raise NotFoundError(
            f"Transaction {txn_id} was never decided.", remedy="Propose it, or make a new one."
        )
    return found


@operations.add(
    "GET",
    "/sequence",
    query=(Parameter("timestampMs", "Milliseconds since 1970; by default now."),),
    problems=("in-the-future", "version-gone"),
)
def sequence_at(call: Call) -> bodies.AtSequence:
    """Return the newest sequence, or the newest that is not later than a time."""
    return bodies.AtSequence(sequence=call.catalog.sequence_at(call.number("timestampMs")))


# Publishing


@operations.add("POST", "/tables/{tableId}/published", problems=("not-published", "log-diverged"))
def confirm_published(call: Call, body: bodies.UpTo) -> bodies.Published:
    """Report that all versions up to one are published; the catalog checks the log."""
    if body.upto is None:
        raise InvalidArgumentError("No version is named.", remedy="Name one with `upto`.")
    published = call.catalog.confirm_published(call.table_id, body.upto)
    return bodies.Published(published=published)


@operations.add("POST", "/tables/{tableId}/publication", problems=("log-diverged",))
def publish(call: Call, body: bodies.UpTo) -> bodies.Published:
    """Publish in order up to a version, by default the latest."""
    return bodies.Published(published=call.catalog.publish(call.table_id, body.upto))


@operations.add("POST", "/tables/{tableId}/files", problems=("not-published", "log-diverged"))
def add_file(call: Call, body: KnownFile) -> None:
    """Report a checkpoint, a compaction or a checksum."""
    call.catalog.add_file(call.table_id, body)


# Tables


@operations.add(
    "GET",
    "/tables",
    query=(
        Parameter("namespace", "Return only the tables of this namespace.", "string"),
        Parameter("dropped", "Return dropped tables, too.", "boolean"),
        Parameter("after", "The `next` of the previous page.", "string"),
        Parameter("limit", f"The most entries of a page; by default {_PAGE}."),
    ),
)
def tables(call: Call) -> bodies.Tables:
    """List tables in pages."""
    limit = min(call.number("limit") or _PAGE, _PAGE)
    after = call.text("after")
    following: str | None
    if call.truth("dropped"):  # paged by ids: names are not unique among dropped tables
        found = call.catalog.tables(call.namespace(), dropped=True)
        if after is not None:
            place = next((i for i, entry in enumerate(found) if entry.table_id == after), -1)
            found = found[place + 1 :]
        following = found[limit - 1].table_id if len(found) > limit else None
    else:
        name = None if after is None else TableName.parse(after)
        # One more than the page has, to learn whether there is another page.
        found = call.catalog.table_page(call.namespace(), name, limit + 1)
        following = found[limit - 1].name if len(found) > limit else None
    return bodies.Tables(tables=found[:limit], next=following)


@operations.add("POST", "/staging-tables", problems=("not-empty", "permission-denied"))
def stage_table(call: Call, body: bodies.NewStagingTable) -> StagingTable:
    """Create a staging table: a location and an id without a name."""
    namespace = None if body.namespace is None else SchemaName.parse(body.namespace)
    return call.catalog.stage_table(body.location, namespace=namespace, key=call.key)


@operations.add("POST", "/tables", problems=_REFUSED)
def register_table(call: Call, body: bodies.NewTable) -> Resolved:
    """Register a staging table, create a table in one call, or register an external one."""
    name = TableName.parse(body.name)
    match body:
        case bodies.NewTable(external=bodies.External() as external, table_id=None, first=None):
            return call.catalog.register_external(
                name, external.location, external.format, external.schema_string, key=call.key
            )
        case bodies.NewTable(table_id=str() as table_id, first=None, txn_id=None, external=None):
            return call.catalog.register_table(name, table_id, key=call.key)
        case bodies.NewTable(
            table_id=str() as table_id,
            first=Inline() as first,
            txn_id=str() as txn_id,
            external=None,
        ):
            return call.catalog.create_table(name, table_id, txn_id, first)
        case _:
            raise InvalidArgumentError(
                "A table is registered by `tableId`; by `tableId`, `txnId` and `first`; or by "
                "`external`."
            )


@operations.add("PATCH", "/tables/{tableId}")
def change_table(call: Call, body: bodies.TableChange) -> None:
    """Rename a table, or undrop one."""
    name = None if body.name is None else TableName.parse(body.name)
    if body.state == "active":
        call.catalog.undrop_table(call.table_id, name, key=call.key)
    elif name is not None:
        call.catalog.rename_table(call.table_id, name, key=call.key)
    else:
        raise InvalidArgumentError("No change is named.", remedy="Send `name` or `state`.")


@operations.add(
    "DELETE",
    "/tables/{tableId}",
    query=(Parameter("purge", "Delete the files of a dropped table.", "boolean"),),
)
def drop_table(call: Call) -> bodies.Purged:
    """Drop a table; with `purge`, delete the files of a dropped table."""
    if call.truth("purge"):
        try:
            return bodies.Purged(files=call.catalog.purge_table(call.table_id, key=call.key))
        except AnsweredError as answered:
            return bodies.Purged(files=bodies.decode(answered.answer, int))
    with suppress(AnsweredError):
        call.catalog.drop_table(call.table_id, key=call.key)
    return bodies.Purged(files=0)


# Namespaces


@operations.add("GET", "/namespaces")
def namespaces(call: Call) -> bodies.Namespaces:
    """List the namespaces."""
    return bodies.Namespaces(namespaces=tuple(map(str, call.catalog.namespaces())))


@operations.add("POST", "/namespaces", problems=("permission-denied",))
def create_namespace(call: Call, body: bodies.NewNamespace) -> None:
    """Create a namespace."""
    name = SchemaName.parse(body.name)
    call.catalog.create_namespace(name, storage_root=body.storage_root, key=call.key)


@operations.add("PATCH", "/namespaces/{name}")
def rename_namespace(call: Call, body: bodies.NewName) -> None:
    """Rename a namespace within its catalog; its tables keep their ids and history."""
    name = SchemaName.parse(call.path["name"])
    call.catalog.rename_namespace(name, plain_name(body.name), key=call.key)


@operations.add("PATCH", "/catalogs/{name}")
def rename_catalog(call: Call, body: bodies.NewName) -> None:
    """Rename a catalog with all its namespaces and tables."""
    name = plain_name(call.path["name"])
    call.catalog.rename_catalog(name, plain_name(body.name), key=call.key)


@operations.add("DELETE", "/namespaces/{name}", problems=("not-empty",))
def drop_namespace(call: Call) -> None:
    """Drop an empty namespace."""
    call.catalog.drop_namespace(SchemaName.parse(call.path["name"]), key=call.key)


# Events: a request that waits for one occupies no thread, as its answer is a future of the feed


def _wait(call: Call, pending: PendingAnswer) -> Finish | None:
    wait_s = min(call.number("wait") or 0, call.settings.longest_wait_ms // 1000)
    if not wait_s:
        return None
    events = call.catalog.events_soon(call.sequence("after"), _limit(call), wait_s)

    def hand_over(done: Future[tuple[Event, ...]]) -> None:
        error = done.exception()
        if error is not None:
            pending.set_exception(error)
        else:
            pending.set_result(done.result())
        pending.wake()

    events.add_done_callback(hand_over)
    return lambda found: bodies.EventPage(events=found)


@operations.add(
    "GET",
    "/events",
    query=(
        Parameter("after", "The last sequence received; by default, start at the oldest event."),
        Parameter("wait", "Seconds to wait for an event, up to the server's `longestWaitS`."),
        Parameter("limit", f"The most events to return; by default {MAX_PAGE}."),
    ),
    enqueue=_wait,
    problems=("in-the-future", "version-gone"),
)
def events(call: Call) -> bodies.EventPage:
    """Return events after a sequence in order, and wait for the next one on request."""
    return bodies.EventPage(events=call.catalog.events(call.sequence("after"), _limit(call)))


def _limit(call: Call) -> int:
    limit = call.number("limit")
    return MAX_PAGE if limit is None else min(limit, MAX_PAGE)


@operations.add("GET", "/listeners")
def listeners(call: Call) -> bodies.ListenerList:
    """List listeners and their positions."""
    return bodies.ListenerList(listeners=call.catalog.listeners())


@operations.add(
    "PUT", "/listeners/{name}", problems=("invalid-name", "in-the-future", "version-gone")
)
def put_listener(call: Call, body: bodies.NewListener) -> ListenerEntry:
    """Register a URL that receives every event, in order and at least once."""
    return call.catalog.put_listener(call.path["name"], body.url, body.after, key=call.key)


@operations.add("DELETE", "/listeners/{name}")
def delete_listener(call: Call) -> None:
    """Delete a listener and its position."""
    call.catalog.delete_listener(call.path["name"], key=call.key)


# The catalog itself


@operations.add("GET", "/status")
def status(call: Call) -> Status:
    """Return the state of the catalog."""
    return call.catalog.status()


@operations.add("POST", "/checks")
def fsck(call: Call, body: bodies.Check) -> bodies.Findings:
    """Compare one table or all with their logs, and repair them on request."""
    return bodies.Findings(findings=call.catalog.fsck(body.table_id, repair=body.repair))


@operations.add("GET", "/locations")
def locations(call: Call) -> bodies.LocationList:
    """List the locations outside the root where clients may put tables."""
    return bodies.LocationList(locations=call.catalog.locations())


@operations.add("GET", "/config")
def config(call: Call) -> bodies.Config:
    """Return the version of the API and the limits of the server."""
    return bodies.Config(
        version=version(),
        api="v1",
        inline_limit_bytes=call.settings.inline_limit_bytes,
        transaction_limit_bytes=TRANSACTION_LIMIT_BYTES,
        commit_limit_bytes=call.settings.commit_limit_bytes,
        transaction_tables=TRANSACTION_TABLES,
        request_limit_bytes=call.settings.request_limit_bytes,
        longest_wait_s=call.settings.longest_wait_ms // 1000,
    )
