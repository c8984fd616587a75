"""RemoteCatalog: the port of a catalog, over HTTP.

A read is repeated when its answer is lost. A change carries a key, so that repeating it returns the
first answer; if no answer comes at all, the outcome is reported as unknown.
"""

import math
import threading
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from headgate import errors
from headgate.api import bodies, messages, problems
from headgate.api.bodies import EventPage, ListenerList, NewListener
from headgate.api.events import Event
from headgate.api.port import Progress, Ref
from headgate.api.status import ListenerEntry, LocationEntry, Status
from headgate.arguments import checked_texts
from headgate.client.http_connections import Connections, LostError, Reply, Sender
from headgate.clock import Clock, Ids
from headgate.failpoints import fail_point
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Inline, Put
from headgate.protocol.log.known_files import KnownFile

Body = TypeVar("Body")
Page = TypeVar("Page", bodies.CommitPage, bodies.Timeline, bodies.Tables)

_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class RemotePatience:
    """How long to wait for a server, in seconds."""

    connect_s: float = 5.0
    answer_s: float = 60.0  # longer than a server holds a proposal back
    lost_s: float = 10.0  # how long a request without an answer is repeated
    busy_s: float = 60.0  # how long a request to a busy server is repeated


@checked_texts
class RemoteCatalog:
    """A catalog behind a server. It has every capability of the port that the server has."""

    def __init__(
        self,
        address: str,
        *,
        clock: Clock,
        ids: Ids,
        token: str | None = None,
        certificates: str | None = None,  # a file of trusted authorities
        patience: RemotePatience | None = None,
        sender: Sender | None = None,  # by default connections of its own
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
        self._newest_seen = Sequence(0)  # no answer may be older. Spec: CA-03
        self._lock = threading.Lock()

    def close(self) -> None:
        self._sender.close()

    # Reading

    def resolve(self, ref: Ref, at: Sequence | None = None) -> messages.Resolved:
        path = _path("names" if isinstance(ref, TableName) else "tables", ref)
        resolved = self._get(path, messages.Resolved, at=at, minSequence=self._min_sequence(at))
        self._note_sequence(resolved.sequence)
        return resolved

    def resolve_many(
        self, refs: Many[Ref], at: Sequence | None = None
    ) -> tuple[messages.Resolved, ...]:
        refs = list(refs)
        if not refs:
            return ()
        asked = [("name" if isinstance(ref, TableName) else "tableId", ref) for ref in refs]
        found = self._get(
            "/v1/names", bodies.ResolvedTables, *asked, at=at, minSequence=self._min_sequence(at)
        ).tables
        for resolved in found:
            self._note_sequence(resolved.sequence)
        # Names come first in the answer, then ids: put them back in the order asked for.
        num_names = sum(isinstance(ref, TableName) for ref in refs)
        names, ids = iter(found[:num_names]), iter(found[num_names:])
        return tuple(next(names) if isinstance(ref, TableName) else next(ids) for ref in refs)

    def sequence_at(self, timestamp_ms: int | None = None) -> Sequence:
        return self._get("/v1/sequence", bodies.AtSequence, timestampMs=timestamp_ms).sequence

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> messages.RatifiedCommits:
        path = _path("tables", table_id, "commits")
        commits: list[messages.RatifiedCommit] = []
        begin = first
        for page in self._pages(path, bodies.CommitPage, "first", first=first, last=last):
            # Commits that were held when a page was read may be published and no longer held when
            # the next one is: return the end of the range, without a gap.
            if commits and (not page.commits or page.commits[0].version != begin):
                commits.clear()
            commits += page.commits
            latest, begin = page.latest, page.next
        return messages.RatifiedCommits(latest=latest, commits=tuple(commits))

    def timeline(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> tuple[messages.TimelineEntry, ...]:
        path = _path("tables", table_id, "timeline")
        pages = self._pages(path, bodies.Timeline, "first", first=first, last=last)
        return tuple(entry for page in pages for entry in page.entries)

    def outcome(self, txn_id: TxnId) -> messages.Ratified | messages.Rejected | None:
        kind: Any = messages.Ratified | messages.Rejected
        try:
            found: messages.Ratified | messages.Rejected = self._get(
                _path("transactions", txn_id), kind
            )
        except errors.NotFoundError:
            return None
        return found

    # Committing

    def propose(self, proposal: messages.Proposal) -> messages.Answer:
        # Sent once: the proposer decides how long to repeat it.
        if len(proposal.parts) == 1 and not isinstance(proposal.parts[0].content, Put):
            part = proposal.parts[0]
            path = _path("tables", part.table_id, "commits")
            body: object = bodies.OnePart(
                txn_id=proposal.txn_id,
                version=part.version,
                content=part.content,  # type: ignore[arg-type]  # not a `Put`, see above
                scans=proposal.scans,
                isolation=proposal.isolation,
                names=proposal.names,
            )
        else:
            path, body = _path("transactions", proposal.txn_id, "proposal"), proposal
        try:
            answer = _decoded(self._send("POST", path, body, proposal.txn_id), messages.Ratified)
        except _NotRatifiedError as decided:
            return decided.answer
        except LostError as lost:
            raise errors.OutcomeUnknownError(proposal.txn_id, str(lost)) from lost
        fail_point("remote.after_answer")
        self._note_sequence(answer.sequence)
        return answer

    # Publishing

    def publish(self, table_id: TableId, upto: Version | None = None) -> Version:
        return self._published("publication", table_id, upto)

    def confirm_published(self, table_id: TableId, upto: Version) -> Version:
        return self._published("published", table_id, upto)

    def add_file(self, table_id: TableId, file: KnownFile) -> None:
        self._request_change("POST", _path("tables", table_id, "files"), file)

    # Names and tables

    def create_namespace(self, name: SchemaName, *, storage_root: str | None = None) -> None:
        body = bodies.NewNamespace(name=str(name), storage_root=storage_root)
        self._request_change("POST", "/v1/namespaces", body)

    def drop_namespace(self, name: SchemaName) -> None:
        self._request_change("DELETE", _path("namespaces", name))

    def rename_namespace(self, name: SchemaName, new_name: str) -> None:
        body = bodies.NewName(name=new_name)
        self._request_change("PATCH", _path("namespaces", name), body)

    def rename_catalog(self, name: str, new_name: str) -> None:
        self._request_change("PATCH", _path("catalogs", name), bodies.NewName(name=new_name))

    def namespaces(self) -> tuple[SchemaName, ...]:
        answer = self._get("/v1/namespaces", bodies.Namespaces)
        return tuple(map(SchemaName.parse, answer.namespaces))

    def tables(
        self, namespace: SchemaName | None = None, *, dropped: bool = False
    ) -> tuple[messages.TableEntry, ...]:
        which = {"namespace": namespace, "dropped": "true" if dropped else None}
        pages = self._pages("/v1/tables", bodies.Tables, "after", **which)
        return tuple(entry for page in pages for entry in page.tables)

    def stage_table(
        self, location: str | None = None, *, namespace: SchemaName | None = None
    ) -> messages.StagingTable:
        within = None if namespace is None else str(namespace)
        body = bodies.NewStagingTable(location=location, namespace=within)
        return self._change("POST", "/v1/staging-tables", body, messages.StagingTable)

    def register_table(self, name: TableName, table_id: TableId) -> messages.Resolved:
        return self._register(bodies.NewTable(name=str(name), table_id=table_id))

    def create_table(
        self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline
    ) -> messages.Resolved:
        return self._register(
            bodies.NewTable(name=str(name), table_id=table_id, txn_id=txn_id, first=first)
        )

    def register_external(
        self,
        name: TableName,
        location: str,
        format: str = "delta",
        schema_string: str | None = None,
    ) -> messages.Resolved:
        external = bodies.External(location=location, format=format, schema_string=schema_string)
        return self._register(bodies.NewTable(name=str(name), external=external))

    def rename_table(self, table_id: TableId, name: TableName) -> None:
        self._request_change("PATCH", _path("tables", table_id), bodies.TableChange(name=str(name)))

    def drop_table(self, table_id: TableId) -> None:
        self._request_change("DELETE", _path("tables", table_id))

    def undrop_table(self, table_id: TableId, name: TableName | None = None) -> None:
        new = None if name is None else str(name)
        body = bodies.TableChange(name=new, state="active")
        self._request_change("PATCH", _path("tables", table_id), body)

    def purge_table(self, table_id: TableId, *, progress: Progress | None = None) -> int:
        path = f"{_path('tables', table_id)}?purge=true"
        return self._change("DELETE", path, None, bodies.Purged).files

    # Checking

    def fsck(
        self,
        table_id: TableId | None = None,
        *,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[messages.Finding, ...]:
        body = bodies.Check(table_id=table_id, repair=repair)
        return self._change("POST", "/v1/checks", body, bodies.Findings).findings

    def status(self) -> Status:
        return self._get("/v1/status", Status)

    def events(
        self, after: Sequence | None = None, limit: int = 1_000, wait_s: float = 0.0
    ) -> tuple[Event, ...]:
        wait = math.ceil(min(wait_s, self._patience.answer_s / 2))
        return self._get(
            "/v1/events", EventPage, after=after, limit=limit, wait=wait or None
        ).events

    def listeners(self) -> tuple[ListenerEntry, ...]:
        return self._get("/v1/listeners", ListenerList).listeners

    def put_listener(self, name: str, target: str, after: Sequence | None = None) -> ListenerEntry:
        body = NewListener(url=target, after=after)
        return self._change("PUT", _path("listeners", name), body, ListenerEntry)

    def delete_listener(self, name: str) -> None:
        self._request_change("DELETE", _path("listeners", name))

    def locations(self) -> tuple[LocationEntry, ...]:
        return self._get("/v1/locations", bodies.LocationList).locations

    # Requests

    def _published(self, what: str, table_id: TableId, upto: Version | None) -> Version:
        path = _path("tables", table_id, what)
        return self._change("POST", path, bodies.UpTo(upto=upto), bodies.Published).published

    def _register(self, body: bodies.NewTable) -> messages.Resolved:
        resolved = self._change("POST", "/v1/tables", body, messages.Resolved)
        self._note_sequence(resolved.sequence)
        return resolved

    def _get(
        self, path: str, kind: type[Body], *asked: tuple[str, object], **parameters: object
    ) -> Body:
        query = [(name, str(value)) for name, value in asked]
        query += [(name, str(value)) for name, value in parameters.items() if value is not None]
        if query:
            path = f"{path}?{urlencode(query)}"
        try:
            return _decoded(self._repeat(lambda: self._send("GET", path, None)), kind)
        except LostError as lost:
            raise errors.UnavailableError(f"The server did not answer: {lost}.") from lost

    def _pages(
        self, path: str, kind: type[Page], begin: str, **parameters: object
    ) -> Iterator[Page]:
        """Yield the pages of an answer; `begin` is the parameter that names where one begins."""
        while True:
            page = self._get(path, kind, **parameters)
            yield page
            if page.next is None:
                return
            parameters[begin] = page.next

    def _change(self, method: str, path: str, body: object, kind: type[Body]) -> Body:
        """Request a change under a new key; return its decoded answer."""
        return self._keyed(method, path, body, lambda content: _decoded(content, kind))

    def _request_change(self, method: str, path: str, body: object = None) -> None:
        """Request a change under a new key; its answer has no content."""
        self._keyed(method, path, body, lambda _: None)

    def _keyed(self, method: str, path: str, body: object, decode: Callable[[bytes], Body]) -> Body:
        key = str(self._ids.ordered())
        try:
            content = self._repeat(lambda: self._send(method, path, body, key), is_change=True)
            return decode(content)
        except LostError as lost:
            raise errors.OutcomeUnknownError(key, str(lost)) from lost

    def _repeat(self, send: Callable[[], bytes], *, is_change: bool = False) -> bytes:
        """Send a request until an answer comes; raise `LostError` if one was lost and none came."""
        # After a lost answer the refusal of a change counts as lost too: the server may refuse the
        # second request before it looks up the outcome of the first.
        began, pause_s = self._clock.monotonic(), _PAUSE_S
        lost: LostError | None = None
        while True:
            error: Exception
            patience_s = self._patience.lost_s
            try:
                return send()
            except errors.BusyError as busy:
                error, patience_s = busy, self._patience.busy_s
            except errors.UnavailableError as unavailable:
                error = unavailable
            except LostError as again:
                error = lost = again
            except errors.OutcomeUnknownError as unknown:
                error = lost = LostError(unknown.message.rstrip("."))
            except errors.HeadgateError as refusal:
                if lost is None or not is_change:
                    raise
                refused = refusal.message.rstrip(".")
                why = f"{lost}, and the repeated request was refused: {refused}"
                raise LostError(why) from refusal
            if self._clock.monotonic() - began + pause_s > patience_s:
                raise lost or error
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def _send(self, method: str, path: str, body: object, key: str | None = None) -> bytes:
        """Send one request once; return the body of its answer, or raise the error it carries."""
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
        except errors.MalformedError:  # a proxy answered, or another kind of server
            message = f"{self._address} answered {reply.status}, not as a Headgate server does"
            if reply.status < 500:
                return errors.InvalidArgumentError(f"{message}.", remedy="Check the address.")
            return LostError(message)
        if problem.answer is not None:
            return _NotRatifiedError(problem.answer)
        if problem.code == errors.HeadgateError.code:  # a fault, before or after the server acted
            return LostError(f"{problem.detail.rstrip('.')} (request {problem.request_id})")
        if reply.status == 429 and reply.retry_after is not None and reply.retry_after.isdigit():
            self._clock.sleep(min(float(reply.retry_after), _LONGEST_PAUSE_S))
        return problems.to_error(problem)

    def _min_sequence(self, at: Sequence | None) -> Sequence | None:
        return None if at is not None or not self._newest_seen else self._newest_seen

    def _note_sequence(self, sequence: Sequence | None) -> None:
        if sequence is not None and sequence > self._newest_seen:
            with self._lock:
                self._newest_seen = max(self._newest_seen, sequence)


class _NotRatifiedError(Exception):
    """Carries the answer to a proposal that was not ratified."""

    def __init__(self, answer: messages.Rejected | messages.VersionTaken) -> None:
        super().__init__()
        self.answer = answer


def _decoded(content: bytes, kind: type[Body]) -> Body:
    """Decode a successful answer; one that cannot be decoded counts as lost."""
    try:
        return bodies.decode(content, kind)
    except errors.MalformedError as error:
        raise LostError(error.message.rstrip(".")) from error


def _path(*parts: object) -> str:
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)
