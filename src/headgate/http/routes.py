"""The native API: path -> service method -> body. Nouns in paths, one row each."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from headgate.api import bodies, problems
from headgate.api.messages import Answer, Part, Proposal, Ratified, Rejected, Resolved, StagingTable
from headgate.api.status import CommitReports
from headgate.catalog.idempotency import AnsweredError
from headgate.errors import BusyError, InvalidArgumentError, NotFoundError
from headgate.http import event_routes
from headgate.http.async_answers import Coming
from headgate.http.operations import Call, Kind, Operation, Parameter, Pool
from headgate.names import SchemaName, TableName, plain_name
from headgate.protocol.actions import TxnId
from headgate.protocol.commit.content import Inline
from headgate.protocol.log.known_files import KnownFile
from headgate.release import version
from headgate.settings import TRANSACTION_LIMIT_BYTES, TRANSACTION_TABLES, Settings

_AT = Parameter("at", "A sequence: the tables as they were then.")
_MIN = Parameter("minSequence", "The least sequence the answer may be from.")
_FIRST = Parameter("first", "The first version asked for.")
_LAST = Parameter("last", "The last version asked for.")
_PAGE = 1_000


def all_operations(settings: Settings) -> list[Operation]:
    """List all that can be asked."""
    return [*operations(settings), *event_routes.operations(settings)]


def operations(settings: Settings) -> list[Operation]:
    """List what concerns tables and commits; what is asked most comes first."""
    return [
        Operation(
            "POST",
            "/v1/tables/{tableId}/commits",
            "propose",
            "Propose a commit to one table, staged or inline.",
            _propose_one,
            body=bodies.OnePart,
            answer=Ratified,
            pool=Pool.PROPOSALS,
            soon=lambda call, coming: _soon(call, call.body.proposal(call.table_id), coming),
            then=lambda call, answer: _as_body(call, _parts_of(call), answer),
            problems=("conflict", "version-taken", "must-restage", "txn-id-reused", *_REFUSED),
        ),
        Operation(
            "GET",
            "/v1/names/{name}",
            "resolve",
            "Resolve a table: return everything that a client needs.",
            lambda call: _resolved(call, TableName.parse(call.path["name"])),
            answer=Resolved,
            query=(_AT, _MIN),
        ),
        Operation(
            "GET",
            "/v1/tables/{tableId}",
            "resolve_by_id",
            "Resolve a table by its id.",
            lambda call: _resolved(call, call.table_id),
            answer=Resolved,
            query=(_AT, _MIN),
        ),
        Operation(
            "GET",
            "/v1/names",
            "resolve_many",
            "Resolve several tables at one sequence.",
            _resolve_many,
            answer=bodies.ResolvedTables,
            query=(
                Parameter("name", "A table's name.", Kind.TEXT, is_repeated=True),
                Parameter("tableId", "A table's id.", Kind.TEXT, is_repeated=True),
                _AT,
                _MIN,
            ),
        ),
        Operation(
            "GET",
            "/v1/tables/{tableId}/commits",
            "ratified_commits",
            "Return pages of the ratified commits that are stored, and the latest version.",
            _ratified_commits,
            answer=bodies.CommitPage,
            query=(_FIRST, _LAST),
        ),
        Operation(
            "GET",
            "/v1/tables/{tableId}/timeline",
            "timeline",
            "Return pages of the times when commits were proposed, ratified and published.",
            _timeline,
            answer=bodies.Timeline,
            query=(_FIRST, _LAST),
        ),
        Operation(
            "GET",
            "/v1/tables/{tableId}/reports",
            "reported",
            "Return the totals that writers reported, which are not checked.",
            lambda call: call.catalog.commit_reports(call.table_id),
            answer=CommitReports,
        ),
        Operation(
            "POST",
            "/v1/transactions/{txnId}/proposal",
            "propose_many",
            "Propose commits to several tables, which are ratified all or none.",
            _propose_many,
            body=Proposal,
            answer=Ratified,
            pool=Pool.PROPOSALS,
            soon=lambda call, coming: _soon(call, _whole(call), coming),
            then=lambda call, answer: _as_body(call, _parts_of(call), answer),
            problems=("conflict", "version-taken", "must-restage", "txn-id-reused", *_REFUSED),
        ),
        Operation(
            "GET",
            "/v1/transactions/{txnId}",
            "outcome",
            "Return the outcome of a transaction.",
            _outcome,
            answer=Ratified | Rejected,
        ),
        Operation(
            "GET",
            "/v1/sequence",
            "sequence_at",
            "Return the newest sequence that is not later than a time.",
            _sequence_at,
            answer=bodies.AtSequence,
            query=(Parameter("timestampMs", "Milliseconds since 1970."),),
            problems=("in-the-future", "version-gone"),
        ),
        Operation(
            "POST",
            "/v1/tables/{tableId}/published",
            "confirm_published",
            "Report that all versions up to one are published; the catalog checks the log.",
            _confirm,
            body=bodies.UpTo,
            answer=bodies.Published,
            pool=Pool.CHANGES,
            problems=("not-published", "log-diverged"),
        ),
        Operation(
            "POST",
            "/v1/tables/{tableId}/publication",
            "publish",
            "Publish in order up to a version, by default the latest.",
            lambda call: bodies.Published(
                published=call.catalog.publish(call.table_id, call.body.upto)
            ),
            body=bodies.UpTo,
            answer=bodies.Published,
            pool=Pool.CHANGES,
            problems=("log-diverged",),
        ),
        Operation(
            "POST",
            "/v1/tables/{tableId}/files",
            "add_file",
            "Report a checkpoint, a compaction or a checksum.",
            lambda call: call.catalog.add_file(call.table_id, call.body),
            body=KnownFile,
            pool=Pool.CHANGES,
            problems=("not-published", "log-diverged"),
        ),
        Operation(
            "GET",
            "/v1/tables",
            "tables",
            "List tables in pages.",
            _tables,
            answer=bodies.Tables,
            query=(
                Parameter("namespace", "Only those in it.", Kind.TEXT),
                Parameter("dropped", "The dropped ones, too.", Kind.TRUTH),
                Parameter("after", "What the page before gave as `next`.", Kind.TEXT),
                Parameter("limit", f"At most so many; {_PAGE} if not said."),
            ),
        ),
        Operation(
            "POST",
            "/v1/staging-tables",
            "stage_table",
            "Create a staging table: a location and an id without a name.",
            _stage,
            body=bodies.NewStagingTable,
            answer=StagingTable,
            pool=Pool.CHANGES,
            problems=("not-empty", "permission-denied"),
        ),
        Operation(
            "POST",
            "/v1/tables",
            "register_table",
            "Register a staging table, create a table in one call, or register an external one.",
            _register,
            body=bodies.NewTable,
            answer=Resolved,
            pool=Pool.CHANGES,
            problems=_REFUSED,
        ),
        Operation(
            "PATCH",
            "/v1/tables/{tableId}",
            "change_table",
            "Rename a table, or undrop one.",
            _change,
            body=bodies.TableChange,
            pool=Pool.CHANGES,
        ),
        Operation(
            "DELETE",
            "/v1/tables/{tableId}",
            "drop_table",
            "Drop a table; with `purge`, delete the files of a dropped table.",
            _drop,
            answer=bodies.Purged,
            query=(Parameter("purge", "Delete the files of a dropped table.", Kind.TRUTH),),
            pool=Pool.CHANGES,
        ),
        Operation(
            "GET",
            "/v1/namespaces",
            "namespaces",
            "List the namespaces.",
            lambda call: bodies.Namespaces(namespaces=tuple(map(str, call.catalog.namespaces()))),
            answer=bodies.Namespaces,
        ),
        Operation(
            "POST",
            "/v1/namespaces",
            "create_namespace",
            "Create a namespace.",
            lambda call: call.catalog.create_namespace(
                SchemaName.parse(call.body.name),
                storage_root=call.body.storage_root,
                key=call.key,
            ),
            body=bodies.NewNamespace,
            pool=Pool.CHANGES,
            problems=("permission-denied",),
        ),
        Operation(
            "PATCH",
            "/v1/namespaces/{name}",
            "rename_namespace",
            "Rename a namespace within its catalog; its tables keep their ids and history.",
            lambda call: call.catalog.rename_namespace(
                SchemaName.parse(call.path["name"]), plain_name(call.body.name), key=call.key
            ),
            body=bodies.NewName,
            pool=Pool.CHANGES,
        ),
        Operation(
            "PATCH",
            "/v1/catalogs/{name}",
            "rename_catalog",
            "Rename a catalog with all its namespaces and tables.",
            lambda call: call.catalog.rename_catalog(
                plain_name(call.path["name"]), plain_name(call.body.name), key=call.key
            ),
            body=bodies.NewName,
            pool=Pool.CHANGES,
        ),
        Operation(
            "DELETE",
            "/v1/namespaces/{name}",
            "drop_namespace",
            "Drop an empty namespace.",
            lambda call: call.catalog.drop_namespace(
                SchemaName.parse(call.path["name"]), key=call.key
            ),
            pool=Pool.CHANGES,
            problems=("not-empty",),
        ),
        Operation(
            "POST",
            "/v1/checks",
            "fsck",
            "Compare one table or all with their logs, and repair them on request.",
            lambda call: bodies.Findings(
                findings=call.catalog.fsck(call.body.table_id, repair=call.body.repair)
            ),
            body=bodies.Check,
            answer=bodies.Findings,
            pool=Pool.CHANGES,
        ),
        Operation(
            "GET",
            "/v1/locations",
            "locations",
            "List the locations outside the root where clients may put tables.",
            lambda call: bodies.Locations(locations=call.catalog.locations()),
            answer=bodies.Locations,
        ),
        Operation(
            "GET",
            "/v1/config",
            "config",
            "Return the version of the API and the limits of the server.",
            lambda call: bodies.Config(
                version=version(),
                api="v1",
                inline_limit_bytes=settings.inline_limit_bytes,
                transaction_limit_bytes=TRANSACTION_LIMIT_BYTES,
                commit_limit_bytes=settings.commit_limit_bytes,
                transaction_tables=TRANSACTION_TABLES,
                request_limit_bytes=settings.request_limit_bytes,
                longest_wait_s=settings.longest_wait_ms // 1000,
            ),
            answer=bodies.Config,
        ),
    ]


_REFUSED = ("invalid-commit", "log-ahead", "unsupported-by-catalog")


# Reading


def _resolved(call: Call, ref: Any) -> Resolved:
    resolved = call.catalog.resolve(ref, call.sequence("at"), reserve=call.reserve)
    _refuse_if_behind(call, resolved)
    return resolved


def _resolve_many(call: Call) -> bodies.ResolvedTables:
    refs = call.refs()
    if not refs:
        raise InvalidArgumentError("No table is named.", remedy="Name some: ?name=a&name=b.")
    found = call.catalog.resolve_many(refs, call.sequence("at"), reserve=call.reserve)
    for resolved in found:
        _refuse_if_behind(call, resolved)
    return bodies.ResolvedTables(tables=found)


def _refuse_if_behind(call: Call, resolved: Resolved) -> None:
    """Refuse to answer from before what this client was told already. Spec: CA-03."""
    least = call.number("minSequence")
    if least is not None and (resolved.sequence or 0) < least and call.number("at") is None:
        raise BusyError(f"This server's store is at sequence {resolved.sequence}, before {least}.")


def _ratified_commits(call: Call) -> bodies.CommitPage:
    found, following = call.catalog.ratified_page(
        call.table_id, call.version("first"), call.version("last"), reserve=call.reserve
    )
    return bodies.CommitPage(latest=found.latest, commits=found.commits, next=following)


def _timeline(call: Call) -> bodies.Timeline:
    entries, following = call.catalog.timeline_page(
        call.table_id, call.version("first"), call.version("last"), reserve=call.reserve
    )
    return bodies.Timeline(entries=entries, next=following)


def _outcome(call: Call) -> Ratified | Rejected:
    txn_id = TxnId(call.path["txnId"])
    found = call.catalog.outcome(txn_id)
    if found is None:
        raise NotFoundError(
            f"Transaction {txn_id} was never decided.", remedy="Propose it, or make a new one."
        )
    return found


def _sequence_at(call: Call) -> bodies.AtSequence:
    timestamp_ms = call.number("timestampMs")
    if timestamp_ms is None:
        raise InvalidArgumentError("No time is named.", remedy="Name one: ?timestampMs=….")
    return bodies.AtSequence(sequence=call.catalog.sequence_at(timestamp_ms))


def _tables(call: Call) -> bodies.Tables:
    limit = min(call.number("limit") or _PAGE, _PAGE)
    return _with_dropped(call, limit) if call.truth("dropped") else _by_name(call, limit)


def _by_name(call: Call, limit: int) -> bodies.Tables:
    after = call.text("after")
    name = None if after is None else TableName.parse(after)
    # One more than asked for tells whether there are more.
    found = call.catalog.table_page(call.namespace(), name, limit + 1)
    following = found[limit - 1].name if len(found) > limit else None
    return bodies.Tables(tables=found[:limit], next=following)


def _with_dropped(call: Call, limit: int) -> bodies.Tables:
    found = call.catalog.tables(call.namespace(), dropped=True)
    after = call.text("after")
    if after is not None:  # names are not unique among the dropped
        place = next((i for i, entry in enumerate(found) if entry.table_id == after), -1)
        found = found[place + 1 :]
    following = found[limit - 1].table_id if len(found) > limit else None
    return bodies.Tables(tables=found[:limit], next=following)


# Committing


def _propose_one(call: Call) -> Ratified | problems.Problem:
    return _propose(call, call.body.proposal(call.table_id))


def _propose_many(call: Call) -> Ratified | problems.Problem:
    return _propose(call, _whole(call))


def _whole(call: Call) -> Proposal:
    proposal: Proposal = call.body
    if proposal.txn_id != call.path["txnId"]:
        raise InvalidArgumentError(
            f"The path says {call.path['txnId'][:60]}, the body {proposal.txn_id[:60]}."
        )
    return proposal


def _soon(call: Call, proposal: Proposal, coming: Coming) -> bool:
    _refuse_other_key(call, proposal)
    return call.catalog.propose_soon(proposal, coming, coming.call)


def _propose(call: Call, proposal: Proposal) -> Ratified | problems.Problem:
    _refuse_other_key(call, proposal)
    return _as_body(call, proposal.parts, call.catalog.propose(proposal))


def _parts_of(call: Call) -> Iterable[bodies.OnePart | Part]:
    body: bodies.OnePart | Proposal = call.body
    return body.parts if isinstance(body, Proposal) else (body,)


def _as_body(
    call: Call, parts: Iterable[bodies.OnePart | Part], answer: Answer
) -> Ratified | problems.Problem:
    if isinstance(answer, Ratified):
        return answer
    is_staged = any(not isinstance(part.content, Inline) for part in parts)
    return problems.from_answer(answer, is_staged=is_staged, request_id=call.request_id)


def _refuse_other_key(call: Call, proposal: Proposal) -> None:
    if call.key is not None and call.key.key != proposal.txn_id:
        raise InvalidArgumentError(
            f"The idempotency key of a proposal is its txnId, {proposal.txn_id[:60]}."
        )


# Changing


def _confirm(call: Call) -> bodies.Published:
    if call.body.upto is None:
        raise InvalidArgumentError("No version is named.", remedy="Say `upto`.")
    published = call.catalog.confirm_published(call.table_id, call.body.upto)
    return bodies.Published(published=published)


def _register(call: Call) -> Resolved:
    body: bodies.NewTable = call.body
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


def _stage(call: Call) -> StagingTable:
    body: bodies.NewStagingTable = call.body
    namespace = None if body.namespace is None else SchemaName.parse(body.namespace)
    return call.catalog.stage_table(body.location, namespace=namespace, key=call.key)


def _change(call: Call) -> None:
    body: bodies.TableChange = call.body
    name = None if body.name is None else TableName.parse(body.name)
    if body.state is bodies.Wanted.ACTIVE:
        call.catalog.undrop_table(call.table_id, name, key=call.key)
    elif name is not None:
        call.catalog.rename_table(call.table_id, name, key=call.key)
    else:
        raise InvalidArgumentError("Nothing is to be changed.", remedy="Say `name` or `state`.")


def _drop(call: Call) -> bodies.Purged:
    if call.truth("purge"):
        try:
            return bodies.Purged(files=call.catalog.purge_table(call.table_id, key=call.key))
        except AnsweredError as answered:
            return bodies.Purged(files=bodies.decode(answered.answer, int))
    with suppress(AnsweredError):
        call.catalog.drop_table(call.table_id, key=call.key)
    return bodies.Purged(files=0)
