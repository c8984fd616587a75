"""What a commit's content says by itself, and all that is wrong with it already.

Read once per proposal, outside of any lock, and not held against anything: that is `admission`'s
part. Content that cannot be read at all is `MalformedError`; everything else a `Violation`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from urllib.parse import unquote

import msgspec

from headgate.errors import InvariantError, MalformedError
from headgate.protocol.actions import (
    AddCdcFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Line,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    TxnId,
    Unknown,
)
from headgate.protocol.commit import strict_json
from headgate.protocol.commit.conflicts import Changes, summarize
from headgate.protocol.commit.content import Inline
from headgate.protocol.commit.row_ids import DOMAIN as ROW_TRACKING
from headgate.protocol.commit.strict_json import (
    COMMIT_INFO,
    DEFAULT_LIMITS,
    Limits,
    Row,
    UnreadableError,
)
from headgate.protocol.data_paths import normal_path
from headgate.protocol.paths import LOG
from headgate.protocol.statistics import NO_BOUNDS, UNREADABLE, Bounds, decode_bounds


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that content breaks, and where."""

    rule: str
    says: str
    line: int | None = None

    def __str__(self) -> str:
        return self.says if self.line is None else f"line {self.line}: {self.says}"


class Examined(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Content understood by itself: what it says, and all that is wrong with it already.

    It travels nowhere. It is a Struct because every commit makes one, and a frozen dataclass of
    this size takes longer to make than the rest of its line takes to read.
    """

    is_inline: bool
    lines: tuple[Line, ...]  # every line but `commitInfo`
    commit_info: Mapping[str, object]
    commit_info_rest: bytes  # inline: encoded, without what the catalog puts in
    timestamp_ms: int | None  # in a file: `inCommitTimestamp`; inline the catalog gives it
    txn_id: TxnId | None
    metadata: Metadata | None
    protocol: Protocol | None
    adds: tuple[AddFile, ...]
    add_lines: tuple[int, ...]  # where each add stands
    bounds: tuple[Bounds, ...]  # of each add
    removes: tuple[RemoveFile, ...]
    cdcs: tuple[AddCdcFile, ...]
    txns: tuple[SetTransaction, ...]
    domains: tuple[DomainMetadata, ...]
    changes: Changes
    intent: str  # hash of all that does not depend on the version: the same over every rebase
    violations: tuple[Violation, ...]


def examine(content: Inline, limits: Limits = DEFAULT_LIMITS) -> Examined:
    """Read an inline commit. Spec: AU-02, CM-09."""
    info = _given_info(content.commit_info, limits)
    rows = strict_json.read(content.actions, limits)
    found: list[Violation] = []
    for row in rows:
        if row.name == COMMIT_INFO:
            says = "the catalog writes the commitInfo of an inline commit, so no line may be one"
            found.append(Violation(rule="two-commit-infos", says=says, line=row.number))
    return _understand(rows, info, found)


def examine_file(
    content: bytes, declared_size: int | None = None, limits: Limits = DEFAULT_LIMITS
) -> Examined:
    """Read a commit as it lies, or will lie, in a file. Spec: AU-02, CM-04, CM-36."""
    found: list[Violation] = []
    if declared_size is not None and declared_size != len(content):
        says = f"the file has {len(content)} bytes and {declared_size} were declared"
        found.append(Violation(rule="size-differs", says=says))
    if not content:
        raise MalformedError("The commit is empty.")
    if declared_size is None and not content.endswith(b"\n"):
        # Nothing else tells a whole file from one cut off. Some writers put no newline after the
        # last line; where the size is known that does no harm.
        found.append(Violation(rule="no-last-newline", says="the last line has no end"))
    rows = strict_json.read(content, limits)
    infos = [row for row in rows if row.name == COMMIT_INFO]
    found.extend(_info_violations(infos))
    return _understand(rows, _info_of(infos[0]) if infos else _NO_INFO, found)


class _Info(msgspec.Struct, frozen=True, gc=False):
    """What `commitInfo` says, in a file or beside an inline commit."""

    is_inline: bool
    body: Mapping[str, object]
    rest: bytes = b""
    txn_id: TxnId | None = None
    timestamp_ms: int | None = None

    @property
    def says_blind(self) -> bool:
        said = self.body.get("isBlindAppend")
        # Of a file nothing is known but what its writer says; inline the scans come with it.
        return said is not False if self.is_inline else said is True


_NO_INFO = _Info(False, {})
_CATALOGS_KEYS = ("inCommitTimestamp", "txnId")  # of an inline commit the catalog's to write


def _info_violations(infos: Many[Row]) -> Iterator[Violation]:
    if not infos:
        yield Violation(rule="no-commit-info", says="there is no commitInfo")
        return
    if infos[0].number != 1:
        says = "commitInfo is not the first line"
        yield Violation(rule="commit-info-not-first", says=says, line=infos[0].number)
    for other in infos[1:]:
        says = "commitInfo is there a second time"
        yield Violation(rule="two-commit-infos", says=says, line=other.number)
    info = _info_of(infos[0])
    if info.txn_id is None:
        says = "commitInfo has no txnId"
        yield Violation(rule="no-txn-id", says=says, line=infos[0].number)
    if info.timestamp_ms is None:
        says = "commitInfo has no inCommitTimestamp"
        yield Violation(rule="no-timestamp", says=says, line=infos[0].number)


def _info_of(row: Row) -> _Info:
    info = row.line.action
    if not isinstance(info, CommitInfo):
        raise InvariantError(f"A {row.name} was taken for a commitInfo.")
    txn_id = TxnId(info.txn_id) if info.txn_id else None
    return _Info(False, row.body or {}, b"", txn_id, info.in_commit_timestamp)


def _understand(rows: Many[Row], info: _Info, found: list[Violation]) -> Examined:
    adds: list[AddFile] = []
    add_lines: list[int] = []
    removes: list[RemoveFile] = []
    cdcs: list[AddCdcFile] = []
    txns: list[SetTransaction] = []
    domains: list[DomainMetadata] = []
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    are_all_known = True
    for row in rows:
        match row.line.action:
            case AddFile() as add:
                adds.append(add)
                add_lines.append(row.number)
                if (violation := _path_violation(add.path, row.number)) is not None:
                    found.append(violation)
            case RemoveFile() as remove:
                removes.append(remove)
                if (violation := _path_violation(remove.path, row.number)) is not None:
                    found.append(violation)
            case SetTransaction() as txn:
                txns.append(txn)
            case DomainMetadata() as domain:
                domains.append(domain)
            case Metadata() as given:
                if metadata is not None:
                    says = "metaData is there a second time"
                    found.append(Violation(rule="two-metadata", says=says, line=row.number))
                metadata = given
            case Protocol() as given_protocol:
                if protocol is not None:
                    says = "protocol is there a second time"
                    found.append(Violation(rule="two-protocols", says=says, line=row.number))
                protocol = given_protocol
            case AddCdcFile() as cdc:
                cdcs.append(cdc)
                are_all_known = False
                if (violation := _path_violation(cdc.path, row.number)) is not None:
                    found.append(violation)
            case SidecarFile() | CheckpointMetadata():
                says = f"{row.name} belongs into a checkpoint, not into a commit"
                found.append(Violation(rule="checkpoint-action", says=says, line=row.number))
            case CommitInfo():
                pass
            case Unknown():
                are_all_known = False
    bounds = [_judge_file(add, number, found) for add, number in zip(adds, add_lines, strict=True)]
    if len(adds) + len(removes) > 1 or len(txns) > 1 or len(domains) > 1:
        found.extend(_repetitions(rows, adds, removes, txns, domains))
    lines = tuple([row.line for row in rows if row.name != COMMIT_INFO])
    return Examined(
        is_inline=info.is_inline,
        lines=lines,
        commit_info=info.body,
        commit_info_rest=info.rest,
        timestamp_ms=info.timestamp_ms,
        txn_id=info.txn_id,
        metadata=metadata,
        protocol=protocol,
        adds=tuple(adds),
        add_lines=tuple(add_lines),
        bounds=tuple(bounds),
        removes=tuple(removes),
        cdcs=tuple(cdcs),
        txns=tuple(txns),
        domains=tuple(domains),
        changes=summarize(
            adds=adds,
            removes=removes,
            txns=txns,
            domains=domains,
            metadata=metadata,
            protocol=protocol,
            bounds=bounds,
            only_these=are_all_known,
            says_blind=info.says_blind,
        ),
        intent=_intent(lines, removes),
        violations=tuple(found),
    )


def _intent(lines: Many[Line], removes: Many[RemoveFile]) -> str:
    """Hash what the writer means: all but `commitInfo` and what moving to a version changes."""
    removed = {normal_path(file.path) for file in removes}
    said = []
    for line in lines:
        match line.action:
            case AddFile(base_row_id=None, default_row_commit_version=None):
                said.append(line.raw)
            case AddFile(path=path) if normal_path(path) not in removed:
                said.append(_without_row_ids(line.raw))
            case DomainMetadata(domain=domain) if domain == ROW_TRACKING:
                pass
            case _:
                said.append(line.raw)
    return hashlib.sha256(b"\n".join(said)).hexdigest()


def _without_row_ids(raw: bytes) -> bytes:
    line = _lines.decode(raw)
    for key in _ROW_ID_KEYS:
        line["add"].pop(key, None)
    return msgspec.json.encode(line)


_ROW_ID_KEYS = ("baseRowId", "defaultRowCommitVersion")
_lines = msgspec.json.Decoder(dict[str, dict[str, object]])
_objects = msgspec.json.Decoder(dict[str, object])


def _given_info(given: Mapping[str, object], limits: Limits) -> _Info:
    """Read the `commitInfo` of an inline commit, which comes decoded."""
    rest = {key: value for key, value in given.items() if key not in _CATALOGS_KEYS}
    try:
        raw = msgspec.json.encode(rest)
        strict_json.check(raw, _objects.decode(raw), limits.max_depth - 1)
    except UnreadableError as error:
        raise MalformedError(f"The commitInfo cannot be read: {error}.") from None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise MalformedError(f"The commitInfo cannot be read: {str(error).rstrip('.')}.") from None
    txn_id = given.get("txnId")
    if txn_id is not None and not isinstance(txn_id, str):
        raise MalformedError("The commitInfo cannot be read: its txnId is not text.")
    return _Info(True, given, raw, TxnId(txn_id) if txn_id else None)


# What a file may be


def _judge_file(add: AddFile, number: int, found: list[Violation]) -> Bounds:
    bounds = NO_BOUNDS
    if add.stats is not None:
        try:
            bounds = decode_bounds(add.stats)
        except UNREADABLE as error:
            says = f"the statistics of {add.path!r} cannot be read: {error}"
            found.append(Violation(rule="stats-malformed", says=says, line=number))
    records = bounds.num_records
    if records is not None and records > _GREATEST:
        says = f"the number of records of {add.path!r} has more than 64 bits"
        found.append(Violation(rule="stats-malformed", says=says, line=number))
    if add.size < 0 or (records is not None and records < 0):
        says = f"{add.path!r} has a negative size or number of records"
        found.append(Violation(rule="negative-size", says=says, line=number))
    if add.deletion_vector is not None:
        if records is None:
            says = f"{add.path!r} has a deletion vector and no numRecords"
            found.append(Violation(rule="no-num-records", says=says, line=number))
        if (problem := _vector_problem(add.deletion_vector, records)) is not None:
            says = f"the deletion vector of {add.path!r} {problem}"
            found.append(Violation(rule="deletion-vector-malformed", says=says, line=number))
    return bounds


_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]*+", re.ASCII)
_UUID_LETTERS = 20
_INT32 = 2**31
_GREATEST = 2**63 - 1


def _vector_problem(vector: DeletionVector, records: int | None) -> str | None:
    where = vector.path_or_inline_dv
    if not 0 <= vector.size_in_bytes < _INT32 or not 0 <= (vector.offset or 0) < _INT32:
        return "has a size or offset out of range"
    if vector.cardinality < 0 or (records is not None and vector.cardinality > records):
        return f"takes {vector.cardinality} rows away from {records}"
    match vector.storage_type:
        case "u":
            prefix, encoded = where[:-_UUID_LETTERS], where[-_UUID_LETTERS:]
            if len(encoded) < _UUID_LETTERS or _Z85.fullmatch(encoded) is None:
                return "names no UUID"
            if prefix and _PLAIN.fullmatch(prefix) is None:
                return "has a prefix that is no plain folder"
        case "i":
            if vector.offset is not None or _Z85.fullmatch(where) is None:
                return "is inline and yet has an offset or other letters than base 85"
        case "p":
            return "lies at an absolute path, perhaps outside of the table"
        case other:
            return f"is of the unknown kind {other!r}"
    return None


# Nearly every path is of this form and needs no second look.
_PLAIN = re.compile(r"(?!(?i:_delta_log))[\w=-][\w=.-]*+(?:/[\w=-][\w=.-]*+)*+", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:")
_SCHEME_WITHIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:[/\\]")
_SEPARATOR = re.compile(r"[/\\]")
_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ODD = re.compile(r"[\x00-\x1f\x7f?#]")


def _path_violation(path: str, number: int) -> Violation | None:
    if _PLAIN.fullmatch(path) is not None:
        return None
    problem = _path_problem(path)
    if problem is None:
        return None
    rule, why = problem
    return Violation(rule=rule, says=f"path {path[:200]!r} {why}", line=number)


def _path_problem(path: str) -> tuple[str, str] | None:
    """Say why a path, a relative URI, cannot be a data file of the table."""
    if not path:
        return "path-malformed", "is empty"
    if _ODD.search(path) is not None or _NO_ESCAPE.search(path) is not None:
        return "path-malformed", "is no URI"
    if _SCHEME.match(path) is not None:
        return "path-outside", "is absolute"
    try:
        once = unquote(path, errors="strict")
    except UnicodeDecodeError:
        return "path-malformed", "does not decode to UTF-8"
    if "\0" in once:
        return "path-malformed", "has a NUL"
    for text in (path, once):
        parts = _SEPARATOR.split(text)
        # Everybody decodes once; whoever does it once too often must not be led out either.
        plain = [unquote(part) for part in parts]
        if ".." in plain:
            return "path-outside", "leads out of the table"
        if not parts[0] or _SCHEME_WITHIN.match(text) is not None:
            return "path-outside", "is absolute"
        if plain[0].casefold() == LOG:
            return "path-in-log", "lies in the log"
    if "" in once.split("/") or "." in once.split("/"):
        return "path-malformed", "has an empty part or a dot, so the file has two spellings"
    return None


def _repetitions(
    rows: Many[Row],
    adds: Many[AddFile],
    removes: Many[RemoveFile],
    txns: Many[SetTransaction],
    domains: Many[DomainMetadata],
) -> Iterator[Violation]:
    """Find what a commit says twice, so that the order of its lines would matter."""
    if (
        len({normal_path(file.path) for file in adds}) < len(adds)
        or len({normal_path(file.path) for file in removes}) < len(removes)
        or len({txn.app_id for txn in txns}) < len(txns)
        or len({domain.domain for domain in domains}) < len(domains)
    ):
        seen: set[tuple[str, str]] = set()
        for row in rows:
            match row.line.action:
                case AddFile(path=name):
                    rule, what = "added-twice", "is added"
                case RemoveFile(path=name):
                    rule, what = "removed-twice", "is removed"
                case SetTransaction(app_id=name):
                    rule, what = "two-txns", "has its txn set"
                case DomainMetadata(domain=name):
                    rule, what = "two-domains", "has its domainMetadata set"
                case _:
                    continue
            key = normal_path(name) if isinstance(row.line.action, AddFile | RemoveFile) else name
            if (rule, key) in seen:
                yield Violation(rule=rule, says=f"{name!r} {what} twice", line=row.number)
            seen.add((rule, key))
    if not removes or not adds:
        return
    both = {file.key for file in removes}.intersection([file.key for file in adds])
    for path, _ in sorted(both, key=repr):
        yield Violation(rule="added-and-removed", says=f"{path!r} is both added and removed")
