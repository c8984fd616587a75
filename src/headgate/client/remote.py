"""RemoteCatalog: the port of a catalog, over HTTP.

A question is asked again when its answer is lost. A change goes under a key, so the same again is
answered as the first time; when no answer comes at all the outcome is *unknown*, and said to be.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from headgate.api import bodies, problems
from headgate.api.bodies import EventPage, ListenerList, NewListener
from headgate.api.events import Event
from headgate.api.messages import (
    Answer,
    Finding,
    Proposal,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    Rejected,
    Resolved,
    StagingTable,
    TableEntry,
    TimelineEntry,
    VersionTaken,
)
from headgate.api.port import Progress, Ref
from headgate.api.status import ListenerEntry, LocationEntry, Status
from headgate.client.http_connections import Connections, LostError, Reply, Sender
from headgate.clock import Clock, Ids
from headgate.errors import (
    BusyError,
    HeadgateError,
    InvalidArgumentError,
    MalformedError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from headgate.failpoints import fail_point
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Inline, Put
from headgate.protocol.log.known_files import KnownFile

Body = TypeVar("Body")

_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class RemotePatience:
    """How long to wait for a server, in seconds."""

    connect_s: float = 5.0
    answer_s: float = 60.0  # longer than a server holds a proposal back
    lost_s: float = 10.0  # how long a question or a keyed change is sent again
    busy_s: float = 60.0


class RemoteCatalog:
    """A catalog behind a server. Satisfies every capability of the port that the server has."""

    def __init__(
        self,
        address: str,
        *,
        clock: Clock,
        ids: Ids,
        token: str | None = None,
        certificates: str | None = None,  # a file of authorities to trust
        patience: RemotePatience | None = None,
        sender: Sender | None = None,  # what carries requests, if not connections of its own
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._patience = patience or RemotePatience()
        self._address = address
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._sender = sender or Connections(
            address,
            connect_s=self._patience.connect_s,
            answer_s=self._patience.answer_s,
            certificates=certificates,
        )
        self._seen = Sequence(0)  # answers never go back for one client. Spec: CA-03
        self._seeing = threading.Lock()

    def close(self) -> None:
        """Let go of the connections."""
        self._sender.close()

    # Reading

    def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
        """Tell all of one table that a client needs, in one call."""
        path = f"/v1/names/{_quoted(str(ref))}" if isinstance(ref, TableName) else _table(ref)
        resolved = self._get(path, Resolved, at=at, minSequence=self._least(at))
        self._saw(resolved.sequence)
        return resolved

    def resolve_many(self, refs: Many[Ref], at: Sequence | None = None) -> tuple[Resolved, ...]:
        """Resolve several tables as of one sequence."""
        refs = list(refs)
        if not refs:
            return ()
        asked = [("name" if isinstance(ref, TableName) else "tableId", ref) for ref in refs]
        found = self._get(
            "/v1/names",
            bodies.ResolvedTables,
            *asked,
            at=at,
            minSequence=self._least(at),
        ).tables
        for resolved in found:
            self._saw(resolved.sequence)
        # Names come first in the answer, then ids: put them back in the order asked for.
        names = iter(found[: sum(isinstance(ref, TableName) for ref in refs)])
        ids = iter(found[sum(isinstance(ref, TableName) for ref in refs) :])
        return tuple(next(names) if isinstance(ref, TableName) else next(ids) for ref in refs)

    def sequence_at(self, timestamp_ms: int) -> Sequence:
        """Give the newest sequence not later than a time."""
        return self._get("/v1/sequence", bodies.AtSequence, timestampMs=timestamp_ms).sequence

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        """Give the ratified commits still held, and the latest version, always."""
        path = f"{_table(table_id)}/commits"
        commits: list[RatifiedCommit] = []
        while True:
            page = self._get(path, bodies.CommitPage, first=first, last=last)
            # What was held a moment ago may not be any more, and is published then: what is given
            # is the end of the range, without a gap.
            if commits and (not page.commits or page.commits[0].version != first):
                commits.clear()
            commits += page.commits
            if page.next is None:
                return RatifiedCommits(latest=page.latest, commits=tuple(commits))
            first = page.next

    def timeline(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> tuple[TimelineEntry, ...]:
        """Give every commit of a range, ascending, without content."""
        path = f"{_table(table_id)}/timeline"
        entries: list[TimelineEntry] = []
        while True:
            page = self._get(path, bodies.Timeline, first=first, last=last)
            entries += page.entries
            if page.next is None:
                return tuple(entries)
            first = page.next

    def outcome(self, txn_id: TxnId) -> Ratified | Rejected | None:
        """Tell what became of a transaction; None if it was never decided."""
        kind: Any = Ratified | Rejected
        try:
            found: Ratified | Rejected = self._get(f"/v1/transactions/{_quoted(txn_id)}", kind)
        except NotFoundError:
            return None
        return found

    # Committing

    def propose(self, proposal: Proposal) -> Answer:
        """Decide a proposal; the same one again gets the first answer.

        One try: whoever proposes knows best how long to ask again.
        """
        if len(proposal.parts) == 1 and not isinstance(proposal.parts[0].content, Put):
            part = proposal.parts[0]
            path = f"{_table(part.table_id)}/commits"
            body: object = bodies.OnePart(
                txn_id=proposal.txn_id,
                version=part.version,
                content=part.content,  # type: ignore[arg-type]  # `Put` was looked for above
                scans=proposal.scans,
                isolation=proposal.isolation,
            )
        else:
            path, body = f"/v1/transactions/{_quoted(proposal.txn_id)}/proposal", proposal
        try:
            answer = _understood(self._send("POST", path, body, proposal.txn_id), Ratified)
        except _DecidedError as decided:
            return decided.answer
        except LostError as lost:
            raise OutcomeUnknownError(proposal.txn_id, lost.why) from lost
        fail_point("remote.after_answer")
        self._saw(answer.sequence)
        return answer

    # Publishing

    def publish(self, table_id: TableId, upto: Version | None = None) -> Version:
        """Publish in order up to a version, by default the latest; give the last published."""
        body = bodies.UpTo(upto=upto)
        path = f"{_table(table_id)}/publication"
        return self._change("POST", path, body, bodies.Published).published

    def confirm_published(self, table_id: TableId, upto: Version) -> Version:
        """Look at what a client says it published, then believe it."""
        body = bodies.UpTo(upto=upto)
        path = f"{_table(table_id)}/published"
        return self._change("POST", path, body, bodies.Published).published

    def add_file(self, table_id: TableId, file: KnownFile) -> None:
        """Take note of a checkpoint, compaction or checksum."""
        self._changed("POST", f"{_table(table_id)}/files", file)

    # Names and tables

    def create_namespace(self, name: SchemaName, *, storage_root: str | None = None) -> None:
        """Create a namespace; its new tables are stored under its storage root, if given."""
        body = bodies.NewNamespace(name=str(name), storage_root=storage_root)
        self._changed("POST", "/v1/namespaces", body)

    def drop_namespace(self, name: SchemaName) -> None:
        """Remove an empty namespace."""
        self._changed("DELETE", f"/v1/namespaces/{_quoted(str(name))}", None)

    def rename_namespace(self, name: SchemaName, new_name: str) -> None:
        """Rename a schema within its catalog; its tables keep their ids, data and history."""
        path = f"/v1/namespaces/{_quoted(str(name))}"
        self._changed("PATCH", path, bodies.NewName(name=new_name))

    def rename_catalog(self, name: str, new_name: str) -> None:
        """Rename a catalog with all its schemas and tables."""
        self._changed("PATCH", f"/v1/catalogs/{_quoted(name)}", bodies.NewName(name=new_name))

    def namespaces(self) -> tuple[SchemaName, ...]:
        """List all namespaces."""
        found = self._get("/v1/namespaces", bodies.Namespaces).namespaces
        return tuple(SchemaName.parse(name) for name in found)

    def tables(
        self, namespace: SchemaName | None = None, *, dropped: bool = False
    ) -> tuple[TableEntry, ...]:
        """List tables, the dropped ones too if asked."""
        entries: list[TableEntry] = []
        after: str | None = None
        while True:
            page = self._get(
                "/v1/tables",
                bodies.Tables,
                namespace=namespace,
                dropped="true" if dropped else None,
                after=after,
            )
            entries += page.tables
            after = page.next
            if after is None:
                return tuple(entries)

    def stage_table(
        self, location: str | None = None, *, namespace: SchemaName | None = None
    ) -> StagingTable:
        """Return an id and a location for a table that has no name yet."""
        of = None if namespace is None else str(namespace)
        body = bodies.NewStagingTable(location=location, namespace=of)
        return self._change("POST", "/v1/staging-tables", body, StagingTable)

    def register_table(self, name: TableName, table_id: TableId) -> Resolved:
        """Judge version 0 of a staging table and give the table its name."""
        return self._register(bodies.NewTable(name=str(name), table_id=table_id))

    def create_table(
        self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline
    ) -> Resolved:
        """Make and name a table in one call; version 0 comes inline."""
        return self._register(
            bodies.NewTable(name=str(name), table_id=table_id, txn_id=txn_id, first=first)
        )

    def register_external(
        self,
        name: TableName,
        location: str,
        format: str = "delta",
        schema_string: str | None = None,
    ) -> Resolved:
        """Give a name to a table that lies somewhere and is not managed."""
        external = bodies.External(location=location, format=format, schema_string=schema_string)
        return self._register(bodies.NewTable(name=str(name), external=external))

    def rename_table(self, table_id: TableId, name: TableName) -> None:
        """Give the table another name; id, place and history stay."""
        self._changed("PATCH", _table(table_id), bodies.TableChange(name=str(name)))

    def drop_table(self, table_id: TableId) -> None:
        """Take the name away; nothing is committed and nothing deleted."""
        self._changed("DELETE", _table(table_id), None)

    def undrop_table(self, table_id: TableId, name: TableName | None = None) -> None:
        """Bring a dropped table back, under its old name or another."""
        wanted = None if name is None else str(name)
        body = bodies.TableChange(name=wanted, state=bodies.Wanted.ACTIVE)
        self._changed("PATCH", _table(table_id), body)

    def purge_table(self, table_id: TableId, *, progress: Progress | None = None) -> int:
        """Delete a dropped table's files, resumably; give how many went. Only at the end."""
        path = f"{_table(table_id)}?purge=true"
        return self._change("DELETE", path, None, bodies.Purged).files

    # Checking

    def fsck(
        self,
        table_id: TableId | None = None,
        *,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Finding, ...]:
        """Hold one table or all against their logs; mend what can be mended if asked.

        A server answers when all is done: how far it is, nobody hears.
        """
        body = bodies.Check(table_id=table_id, repair=repair)
        return self._change("POST", "/v1/checks", body, bodies.Findings).findings

    def config(self) -> bodies.Config:
        """Tell what the server speaks, and its limits."""
        return self._get("/v1/config", bodies.Config)

    def status(self) -> Status:
        """Say how everything stands."""
        return self._get("/v1/status", Status)

    def events(
        self, after: Sequence | None = None, limit: int = 1_000, wait_s: float = 0.0
    ) -> tuple[Event, ...]:
        """Give what happened after a sequence; wait for the next if there is nothing."""
        wait = math.ceil(min(wait_s, self._patience.answer_s / 2))
        return self._get(
            "/v1/events", EventPage, after=after, limit=limit, wait=wait or None
        ).events

    def listeners(self) -> tuple[ListenerEntry, ...]:
        """List who is told, and how far each one is."""
        return self._get("/v1/listeners", ListenerList).listeners

    def put_listener(self, name: str, target: str, after: Sequence | None = None) -> ListenerEntry:
        """Have a URL told of every event, from now on or from after a sequence."""
        body = NewListener(url=target, after=after)
        return self._change("PUT", f"/v1/listeners/{_quoted(name)}", body, ListenerEntry)

    def delete_listener(self, name: str) -> None:
        """Tell a listener no more, and forget how far it was."""
        self._changed("DELETE", f"/v1/listeners/{_quoted(name)}", None)

    def locations(self) -> tuple[LocationEntry, ...]:
        """List the registered locations, under which clients may have tables."""
        return self._get("/v1/locations", bodies.Locations).locations

    # How it is asked

    def _register(self, body: bodies.NewTable) -> Resolved:
        resolved = self._change("POST", "/v1/tables", body, Resolved)
        self._saw(resolved.sequence)
        return resolved

    def _get(
        self, path: str, kind: type[Body], *asked: tuple[str, object], **parameters: object
    ) -> Body:
        query = [(name, str(value)) for name, value in asked]
        query += [(name, str(value)) for name, value in parameters.items() if value is not None]
        if query:
            path = f"{path}?{urlencode(query)}"
        try:
            return _understood(self._again(lambda: self._send("GET", path, None)), kind)
        except LostError as lost:
            raise UnavailableError(f"The server did not answer: {lost.why}.") from lost

    def _change(self, method: str, path: str, body: object, kind: type[Body]) -> Body:
        key = str(self._ids.ordered())
        try:
            return _understood(self._sent(method, path, body, key), kind)
        except LostError as lost:
            raise OutcomeUnknownError(key, lost.why) from lost

    def _changed(self, method: str, path: str, body: object) -> None:
        key = str(self._ids.ordered())
        try:
            self._sent(method, path, body, key)
        except LostError as lost:
            raise OutcomeUnknownError(key, lost.why) from lost

    def _sent(self, method: str, path: str, body: object, key: str) -> bytes:
        """Have something changed once, however often it must be said."""
        return self._again(lambda: self._send(method, path, body, key), is_change=True)

    def _again(self, ask: Callable[[], bytes], *, is_change: bool = False) -> bytes:
        """Ask until an answer comes; raise `LostError` if one was lost and none came after it.

        A refusal of a change is no answer once one was lost: the server may refuse the second
        request before it looks up what became of the first.
        """
        began, pause_s = self._clock.monotonic(), _PAUSE_S
        lost: LostError | None = None
        while True:
            error: Exception
            patience_s = self._patience.lost_s
            try:
                return ask()
            except BusyError as busy:
                error, patience_s = busy, self._patience.busy_s
            except UnavailableError as gone:
                error = gone
            except LostError as without:
                error = lost = without
            except OutcomeUnknownError as doubt:
                error = lost = LostError(doubt.message.rstrip("."))
            except HeadgateError as refusal:
                if lost is None or not is_change:
                    raise
                why = f"{lost.why}, and then it was refused: {refusal.message.rstrip('.')}"
                raise LostError(why) from refusal
            if self._clock.monotonic() - began + pause_s > patience_s:
                raise lost or error
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def _send(self, method: str, path: str, body: object, key: str | None = None) -> bytes:
        """Send one request once; give the body of its answer, or raise what it says."""
        headers = dict(self._headers)
        content = None
        if key is not None:
            headers[bodies.KEY_HEADER] = key
        if body is not None:
            content = bodies.encode(body)
            headers["content-type"] = bodies.JSON
        reply = self._sender.send(method, path, headers, content)
        if 200 <= reply.status < 300:
            return reply.content
        raise self._refusal(reply)

    def _refusal(self, reply: Reply) -> Exception:
        try:
            problem = bodies.decode(reply.content, problems.Problem)
        except MalformedError:  # of a proxy in between, or of something that is no Headgate
            said = f"{self._address} answered {reply.status} in no words of ours"
            if reply.status < 500:
                return InvalidArgumentError(f"{said}.", remedy="Check the address.")
            return LostError(said)
        if problem.answer is not None:
            return _DecidedError(problem.answer)
        if problem.code == HeadgateError.code:  # a mistake of the server's, wherever it was made
            return LostError(f"{problem.detail.rstrip('.')} (request {problem.request_id})")
        if reply.status == 429 and reply.retry_after is not None and reply.retry_after.isdigit():
            self._clock.sleep(min(float(reply.retry_after), _LONGEST_PAUSE_S))
        return problems.to_error(problem)

    def _least(self, at: Sequence | None) -> Sequence | None:
        return None if at is not None or not self._seen else self._seen

    def _saw(self, sequence: Sequence | None) -> None:
        if sequence is not None and sequence > self._seen:
            with self._seeing:
                self._seen = max(self._seen, sequence)


class _DecidedError(Exception):
    """A proposal that did not win: an answer, and no error."""

    def __init__(self, answer: Rejected | VersionTaken) -> None:
        super().__init__()
        self.answer = answer


def _understood(content: bytes, kind: type[Body]) -> Body:
    """Read what was answered with success; what cannot be read says nothing, not even no."""
    try:
        return bodies.decode(content, kind)
    except MalformedError as error:
        raise LostError(error.message.rstrip(".")) from error


def _table(table_id: TableId) -> str:
    return f"/v1/tables/{_quoted(table_id)}"


def _quoted(text: str) -> str:
    return quote(text, safe="")
