"""May this content become a version? Every reason why not is a `Violation`.

`examine` reads content by itself, once per proposal; `judge` holds what it found against the table;
`compose` writes what is stored of an inline commit. Content that cannot be read at all is
`MalformedError`. What others did meanwhile is `conflicts`' business, which files are there is the
catalog's.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from urllib.parse import unquote

import msgspec

from headgate.errors import HeadgateError, InvariantError, MalformedError
from headgate.protocol import features, schema
from headgate.protocol.actions import (
    AddCdcFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Known,
    Line,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    TableId,
    TxnId,
    Unknown,
    Version,
    encode,
    join,
)
from headgate.protocol.commits import Inline
from headgate.protocol.conflicts import (
    NO_BOUNDS,
    ROW_TRACKING,
    Bounds,
    Changes,
    summarize,
)
from headgate.protocol.paths import LOG
from headgate.protocol.tables import TABLE_ID_PROPERTY

# The one violation that is not final: a commit that removes every file may partition anew.
PARTITIONING_CHANGED = "partitioning-changed"

MAX_AHEAD_MS = 300_000
TIMESTAMPS_PROPERTY = "delta.enableInCommitTimestamps"
PROTECTED_BEFORE_PROPERTY = "delta.requireCheckpointProtectionBeforeVersion"
MAX_COLUMN_ID_PROPERTY = "delta.columnMapping.maxColumnId"
DELTA_DOMAINS = frozenset({ROW_TRACKING, "delta.clustering"})


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that content breaks, and where."""

    rule: str
    says: str
    line: int | None = None

    def __str__(self) -> str:
        return self.says if self.line is None else f"line {self.line}: {self.says}"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much content is looked at before it is refused."""

    max_bytes: int = 64 << 20
    max_line_bytes: int = 16 << 20
    max_lines: int = 1_000_000
    max_depth: int = 64


DEFAULT_LIMITS = Limits()


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


@dataclass(frozen=True, slots=True)
class Facts:
    """What the catalog knows of a table at the version before."""

    table_id: TableId
    version: Version
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    row_id_high_water: int | None = None


# Reading content by itself


def examine(content: Inline, limits: Limits = DEFAULT_LIMITS) -> Examined:
    """Read an inline commit. Spec: AU-02, CM-09."""
    info = _given_info(content.commit_info, limits)
    rows = _read(content.actions, limits)
    found: list[Violation] = []
    for row in rows:
        if row.name == _COMMIT_INFO:
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
    rows = _read(content, limits)
    infos = [row for row in rows if row.name == _COMMIT_INFO]
    found.extend(_info_violations(infos))
    return _understand(rows, _info_of(infos[0]) if infos else _NO_INFO, found)


class _Row(msgspec.Struct, frozen=True, gc=False):
    """A line as far as everybody reads it alike."""

    number: int
    name: str
    line: Line
    body: dict[str, object] | None = None  # decoded; kept of `commitInfo` alone


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
_COMMIT_INFO = "commitInfo"
_CATALOGS_KEYS = ("inCommitTimestamp", "txnId")  # of an inline commit the catalog's to write
_KINDS: Mapping[str, type[Known]] = {
    "add": AddFile,
    "remove": RemoveFile,
    "metaData": Metadata,
    "protocol": Protocol,
    "txn": SetTransaction,
    "domainMetadata": DomainMetadata,
    _COMMIT_INFO: CommitInfo,
    "cdc": AddCdcFile,
    "sidecar": SidecarFile,
    "checkpointMetadata": CheckpointMetadata,
}


def _info_violations(infos: Many[_Row]) -> Iterator[Violation]:
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


def _info_of(row: _Row) -> _Info:
    info = row.line.action
    if not isinstance(info, CommitInfo):
        raise InvariantError(f"A {row.name} was taken for a commitInfo.")
    txn_id = TxnId(info.txn_id) if info.txn_id else None
    return _Info(False, row.body or {}, b"", txn_id, info.in_commit_timestamp)


def _understand(rows: Many[_Row], info: _Info, found: list[Violation]) -> Examined:
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
    lines = tuple([row.line for row in rows if row.name != _COMMIT_INFO])
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
    removed = {file.path for file in removes}
    said = []
    for line in lines:
        match line.action:
            case AddFile(base_row_id=None, default_row_commit_version=None):
                said.append(line.raw)
            case AddFile(path=path) if path not in removed:
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


# Reading bytes, more strictly than msgspec does: it lets duplicate keys and huge integers pass

_generic = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode
_objects = msgspec.json.Decoder(dict[str, object])
_LEAST, _GREATEST = -(2**63), 2**63 - 1


class _UnreadableError(Exception):
    """Why a line cannot be read; whoever knows its number says it."""


def _read(content: bytes, limits: Limits) -> list[_Row]:
    if len(content) > limits.max_bytes:
        raise MalformedError(
            f"The commit has {len(content)} bytes, over the limit of {limits.max_bytes}."
        )
    if content.startswith(b"\xef\xbb\xbf"):
        raise MalformedError("Line 1 of the commit begins with a byte order mark.")
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if len(lines) > limits.max_lines:
        raise MalformedError(
            f"The commit has {len(lines)} lines, over the limit of {limits.max_lines}."
        )
    rows: list[_Row] = []
    for number, raw in enumerate(lines, start=1):
        try:
            value = _decode(raw, limits)
            _check(raw, value, limits.max_depth)
            rows.append(_row(number, raw, value))
        except _UnreadableError as error:
            raise MalformedError(f"Line {number} of the commit cannot be read: {error}.") from None
    return rows


def _given_info(given: Mapping[str, object], limits: Limits) -> _Info:
    """Read the `commitInfo` of an inline commit, which comes decoded."""
    rest = {key: value for key, value in given.items() if key not in _CATALOGS_KEYS}
    try:
        raw = msgspec.json.encode(rest)
        _check(raw, _objects.decode(raw), limits.max_depth - 1)
    except _UnreadableError as error:
        raise MalformedError(f"The commitInfo cannot be read: {error}.") from None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise MalformedError(f"The commitInfo cannot be read: {str(error).rstrip('.')}.") from None
    txn_id = given.get("txnId")
    if txn_id is not None and not isinstance(txn_id, str):
        raise MalformedError("The commitInfo cannot be read: its txnId is not text.")
    return _Info(True, given, raw, TxnId(txn_id) if txn_id else None)


def _decode(raw: bytes, limits: Limits) -> dict[str, object]:
    if len(raw) > limits.max_line_bytes:
        raise _UnreadableError(
            f"it has {len(raw)} bytes, over the limit of {limits.max_line_bytes}"
        )
    if b"\r" in raw:
        raise _UnreadableError("it has a carriage return; lines end with a newline alone")
    try:
        value: object = _generic.decode(raw)
    except RecursionError:
        raise _UnreadableError(f"it nests deeper than {limits.max_depth} levels") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _UnreadableError(_reason(raw, error)) from None
    if not isinstance(value, dict) or len(value) != 1:
        raise _UnreadableError("it is not an object with exactly one key")
    return value


def _reason(raw: bytes, error: Exception) -> str:
    if not raw.strip():
        return "it is blank"
    try:
        raw.decode()
    except UnicodeDecodeError as where:
        return f"byte {where.start + 1} is not UTF-8"
    if _LONE_SURROGATE.search(raw) is not None:
        return "it has half of a surrogate pair"
    return str(error).rstrip(".")


_LONE_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2})"
)


_SHAPE = bytes.maketrans(b"012345678[", b"999999999{")  # digits alike, and what opens a level
_LONG_RUN = b"9" * 19  # the fewest digits an integer beyond 64 bits can have


def _check(raw: bytes, value: dict[str, object], room: int) -> None:
    """Refuse keys that stand twice, nesting deeper than `room` and integers beyond 64 bits.

    Every line of every commit comes by here, so first counting tells whether it can be at fault.
    """
    shape = raw.translate(_SHAPE)
    if shape.count(b"{") > room or _LONG_RUN in shape:
        _walk(value, room)
    # Decoding kept one of two equal keys, and with it one of two colons. An escaped colon would be
    # one more that is not in the text.
    if raw.count(b":") != _encode(value).count(b":") or b"\\u003" in raw:
        _refuse_duplicates(raw)


def _walk(value: dict[str, object] | list[object], room: int) -> None:
    if not room:
        raise _UnreadableError("it nests too deep")
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)):
            _walk(item, room - 1)
        elif isinstance(item, int) and not _LEAST <= item <= _GREATEST:
            raise _UnreadableError("an integer has more than 64 bits")


def _refuse_duplicates(raw: bytes) -> None:
    def check(members: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for key, _ in members:
            if key in seen:
                raise _UnreadableError(f"key {key[:100]!r} is there twice")
            seen.add(key)

    json.loads(raw, object_pairs_hook=check)


def _row(number: int, raw: bytes, value: dict[str, object]) -> _Row:
    ((name, body),) = value.items()
    kind = _KINDS.get(name)
    if kind is None:
        return _Row(number, name, Line(raw, Unknown(name)))
    try:
        action: Known = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _UnreadableError(f"{name} is not as the protocol says: {error}") from None
    if kind is CommitInfo and isinstance(body, dict):
        return _Row(number, name, Line(raw, action), body)
    return _Row(number, name, Line(raw, action))


# What a file may be


def _judge_file(add: AddFile, number: int, found: list[Violation]) -> Bounds:
    bounds = NO_BOUNDS
    if add.stats is not None:
        try:
            bounds = _bounds.decode(add.stats)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            says = f"the statistics of {add.path!r} cannot be read: {error}"
            found.append(Violation(rule="stats-malformed", says=says, line=number))
    records = bounds.num_records
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


_bounds = msgspec.json.Decoder(Bounds, strict=False)
_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]*+", re.ASCII)
_UUID_LETTERS = 20
_INT32 = 2**31


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
    rows: Many[_Row],
    adds: Many[AddFile],
    removes: Many[RemoveFile],
    txns: Many[SetTransaction],
    domains: Many[DomainMetadata],
) -> Iterator[Violation]:
    """Find what a commit says twice, so that the order of its lines would matter."""
    if (
        len({file.path for file in adds}) < len(adds)
        or len({file.path for file in removes}) < len(removes)
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
            if (rule, name) in seen:
                yield Violation(rule=rule, says=f"{name!r} {what} twice", line=row.number)
            seen.add((rule, name))
    if not removes or not adds:
        return
    both = {file.key for file in removes}.intersection([file.key for file in adds])
    for path, _ in sorted(both, key=repr):
        yield Violation(rule="added-and-removed", says=f"{path!r} is both added and removed")


# Judging it against the table


def judge(
    examined: Examined,
    facts: Facts,
    *,
    now_ms: int,
    max_ahead_ms: int = MAX_AHEAD_MS,
    txn_id: TxnId,
) -> list[Violation]:
    """List what keeps content from being the next version, beyond what it breaks by itself.

    Spec: AU-02, EN-01, CM-04, CM-36.
    """
    found = list(_txn_id_violations(examined, txn_id))
    found.extend(_timestamp_violations(examined, facts.timestamp_ms, now_ms, max_ahead_ms))
    protocol, metadata = facts.protocol, facts.metadata
    if examined.protocol is not None:
        protocol = examined.protocol
        found.extend(_protocol_violations(facts.protocol, protocol))
    if examined.metadata is not None:
        metadata = examined.metadata
        found.extend(_identity_violations(metadata, facts.table_id))
        found.extend(_schema_violations(protocol, metadata, facts.metadata))
        found.extend(_metadata_violations(facts, protocol, metadata))
    found.extend(
        _action_violations(
            examined, protocol, metadata, Version(facts.version + 1), facts.row_id_high_water
        )
    )
    return found


def judge_first(
    examined: Examined,
    table_id: TableId,
    *,
    now_ms: int,
    max_ahead_ms: int = MAX_AHEAD_MS,
    txn_id: TxnId | None,
) -> list[Violation]:
    """List what keeps content from being version 0 of a managed table. Spec: LC-02."""
    found: list[Violation] = []
    if txn_id is not None:
        found.extend(_txn_id_violations(examined, txn_id))
    found.extend(_timestamp_violations(examined, None, now_ms, max_ahead_ms))
    protocol, metadata = examined.protocol, examined.metadata
    if protocol is None:
        found.append(Violation(rule="no-protocol", says="version 0 has no protocol"))
    else:
        found.extend(_first_protocol_violations(protocol))
    if metadata is None:
        found.append(Violation(rule="no-metadata", says="version 0 has no metaData"))
    else:
        found.extend(_identity_violations(metadata, table_id))
    if examined.removes:
        says = "version 0 removes files where none can be"
        found.append(Violation(rule="remove-in-first", says=says))
    if protocol is not None and metadata is not None:
        found.extend(_schema_violations(protocol, metadata, None))
        found.extend(_action_violations(examined, protocol, metadata, Version(0), None))
    return found


def _txn_id_violations(examined: Examined, txn_id: TxnId) -> Iterator[Violation]:
    if examined.txn_id is not None and examined.txn_id != txn_id:
        says = f"commitInfo has txnId {examined.txn_id}, the proposal {txn_id}"
        yield Violation(rule="txn-id-mismatch", says=says)


def _timestamp_violations(
    examined: Examined, previous_ms: int | None, now_ms: int, max_ahead_ms: int
) -> Iterator[Violation]:
    stamp = examined.timestamp_ms
    if stamp is None:  # inline: the catalog gives it
        return
    if stamp < 0 or (previous_ms is not None and stamp <= previous_ms):
        says = f"inCommitTimestamp {stamp} is not after {previous_ms}, that of the version before"
        yield Violation(rule="timestamp-not-rising", says=says)
    if stamp > now_ms + max_ahead_ms:
        says = f"inCommitTimestamp {stamp} is more than {max_ahead_ms} ms ahead of {now_ms}"
        yield Violation(rule="timestamp-ahead", says=says)


_LOST = {
    features.CATALOG_MANAGED: "catalog-managed-gone",
    features.IN_COMMIT_TIMESTAMP: "timestamps-gone",
}


def _protocol_violations(before: Protocol, after: Protocol) -> Iterator[Violation]:
    for problem in features.valid(after):
        yield Violation(rule="protocol-malformed", says=f"in the protocol {problem}")
    if (
        after.min_reader_version < before.min_reader_version
        or after.min_writer_version < before.min_writer_version
    ):
        says = (
            f"the protocol goes down from {before.min_reader_version}/{before.min_writer_version}"
            f" to {after.min_reader_version}/{after.min_writer_version}"
        )
        yield Violation(rule="protocol-downgrade", says=says)
    for name in features.drops(before, after):
        says = f"feature {name} is taken away; dropping one is an operation of its own"
        yield Violation(rule=_LOST.get(name, "feature-gone"), says=says)
    for name in sorted(set(features.unreadable(after)).difference(features.unreadable(before))):
        yield Violation(rule="unreadable-feature", says=f"{name} is unknown here to readers")


def _first_protocol_violations(protocol: Protocol) -> Iterator[Violation]:
    for problem in features.valid(protocol):
        yield Violation(rule="protocol-malformed", says=f"in the protocol {problem}")
    if not features.is_catalog_managed(protocol):
        says = (
            f"a managed table has reader version {features.READER_WITH_FEATURES}, writer version"
            f" {features.WRITER_WITH_FEATURES} and {features.CATALOG_MANAGED} among the features"
            " of both"
        )
        yield Violation(rule="not-catalog-managed", says=says)
    if not features.is_supported(protocol, features.IN_COMMIT_TIMESTAMP):
        says = f"{features.IN_COMMIT_TIMESTAMP} is not supported"
        yield Violation(rule="timestamps-gone", says=says)
    for name in features.unreadable(protocol):
        yield Violation(rule="unreadable-feature", says=f"{name} is unknown here to readers")


def _identity_violations(metadata: Metadata, table_id: TableId) -> Iterator[Violation]:
    """Check what makes the table this one and no other, in any version."""
    if metadata.id != table_id:
        says = f"metaData.id is {metadata.id!r}, the table's id {table_id}"
        yield Violation(rule="metadata-id-differs", says=says)
    if (named := metadata.configuration.get(TABLE_ID_PROPERTY)) != table_id:
        says = f"{TABLE_ID_PROPERTY} is {named!r}, the table's id {table_id}"
        yield Violation(rule="table-id-differs", says=says)
    if metadata.configuration.get(TIMESTAMPS_PROPERTY, "").strip().lower() != "true":
        says = f"{TIMESTAMPS_PROPERTY} is not true"
        yield Violation(rule="timestamps-off", says=says)
    if metadata.format.provider != "parquet":
        says = f"data files are {metadata.format.provider!r}, not parquet"
        yield Violation(rule="not-parquet", says=says)


def _schema_violations(
    protocol: Protocol, metadata: Metadata, before: Metadata | None
) -> Iterator[Violation]:
    struct = _schema_of(metadata)
    if isinstance(struct, Violation):
        yield struct
        return
    mode = features.mapping_mode(protocol, metadata)
    if (
        before is None
        or before.schema_string != metadata.schema_string
        or before.partition_columns != metadata.partition_columns
    ) and struct.fields:
        is_mapped = mode != "none"
        for problem in schema.problems(
            struct, metadata.partition_columns, column_mapping=is_mapped
        ):
            yield Violation(rule="schema-invalid", says=f"in the schema {problem}")
    if mode != "none":
        yield from _mapping_violations(struct, metadata)


def _mapping_violations(struct: schema.StructType, metadata: Metadata) -> Iterator[Violation]:
    """Check that under column mapping every field has an id of its own and a physical name."""
    greatest = _number(metadata, MAX_COLUMN_ID_PROPERTY)
    seen: set[int] = set()
    for path, field in schema.all_fields(struct):
        name, number = ".".join(path), schema.field_id(field)
        if number is None or not isinstance(field.metadata.get(schema.MAPPING_NAME), str):
            problem = "has no id or no physical name"
        elif number in seen:
            problem = f"has id {number}, which another column has"
        elif greatest is None or number > greatest:
            problem = f"has id {number} above {MAX_COLUMN_ID_PROPERTY} {greatest}"
        else:
            problem = None
        if problem is not None:
            says = f"column {name!r} {problem}"
            yield Violation(rule="column-mapping-malformed", says=says)
        if number is not None:
            seen.add(number)


def _metadata_violations(facts: Facts, protocol: Protocol, after: Metadata) -> Iterator[Violation]:
    """Check what metadata must keep of the version before."""
    before = facts.metadata
    old, new = features.mapping_mode(facts.protocol, before), features.mapping_mode(protocol, after)
    if old != new and (old, new) != ("none", "name"):
        says = f"column mapping cannot go from {old} to {new}"
        yield Violation(rule="column-mapping-changed", says=says)
    for key, rule in (
        (MAX_COLUMN_ID_PROPERTY, "max-column-id-lowered"),
        (PROTECTED_BEFORE_PROPERTY, "protection-lowered"),
    ):
        least = _number(before, key)
        given = _number(after, key)
        if least is not None and (given is None or given < least):
            says = f"{key} goes down from {least} to {after.configuration.get(key)}"
            yield Violation(rule=rule, says=says)
    partitioned_by = _partition_names(facts.protocol, before)
    if partitioned_by is not None and partitioned_by != _partition_names(protocol, after):
        says = (
            f"partition columns change from {before.partition_columns} to {after.partition_columns}"
        )
        yield Violation(rule=PARTITIONING_CHANGED, says=says)


def _action_violations(
    examined: Examined,
    protocol: Protocol,
    metadata: Metadata,
    version: Version,
    row_id_high_water: int | None,
) -> Iterator[Violation]:
    supported = features.effective(protocol)
    if examined.adds or examined.cdcs:
        yield from _partition_violations(examined, protocol, metadata)
    if "deletionVectors" not in supported:
        for add, number in zip(examined.adds, examined.add_lines, strict=True):
            if add.deletion_vector is not None:
                says = f"{add.path!r} has a deletion vector, which the table does not support"
                yield Violation(rule="deletion-vectors-unsupported", says=says, line=number)
    if examined.removes and features.is_active(protocol, metadata, "appendOnly"):
        for remove in examined.removes:
            if remove.data_change:
                says = f"{remove.path!r} is removed from a table that is append-only"
                yield Violation(rule="append-only", says=says)
    yield from _domain_violations(examined, supported)
    if "rowTracking" in supported:
        yield from _row_id_violations(examined, version, row_id_high_water)


def _partition_violations(
    examined: Examined, protocol: Protocol, metadata: Metadata
) -> Iterator[Violation]:
    names = _partition_names(protocol, metadata)
    if names is None:
        return  # the schema cannot be read, which is said elsewhere
    wanted = set(names)
    for add, number in zip(examined.adds, examined.add_lines, strict=True):
        if add.partition_values.keys() != wanted:
            says = (
                f"{add.path!r} has partition values for {sorted(add.partition_values)}, not {names}"
            )
            yield Violation(rule="partition-values", says=says, line=number)
    for cdc in examined.cdcs:
        if cdc.partition_values.keys() != wanted:
            says = (
                f"{cdc.path!r} has partition values for {sorted(cdc.partition_values)}, not {names}"
            )
            yield Violation(rule="partition-values", says=says)


def _domain_violations(examined: Examined, supported: frozenset[str]) -> Iterator[Violation]:
    for domain in examined.domains:
        if "domainMetadata" not in supported:
            says = f"domain {domain.domain!r} is set and domainMetadata is not supported"
            yield Violation(rule="domains-unsupported", says=says)
        elif domain.domain.startswith("delta.") and domain.domain not in DELTA_DOMAINS:
            says = f"domain {domain.domain!r} is Delta's and unknown here"
            yield Violation(rule="unknown-domain", says=says)
        elif domain.domain == ROW_TRACKING and (domain.removed or _high_water(domain) is None):
            says = f"domain {ROW_TRACKING} is removed or has no rowIdHighWaterMark"
            yield Violation(rule="row-id-high-water", says=says)


# Row tracking


def _row_id_violations(
    examined: Examined, version: Version, row_id_high_water: int | None
) -> Iterator[Violation]:
    used = -1 if row_id_high_water is None else row_id_high_water
    removed = {file.path: file.base_row_id for file in examined.removes}
    ranges: list[tuple[int, int]] = []
    for add, number, bounds in zip(examined.adds, examined.add_lines, examined.bounds, strict=True):
        rule = problem = None
        # A file added again has ids already, unless it is older than row tracking here.
        is_again = add.path in removed or not add.data_change
        if is_again and add.base_row_id is not None and add.base_row_id <= used:
            if removed.get(add.path) not in (None, add.base_row_id):
                rule, problem = "row-ids-changed", "is added again with other row ids"
            elif add.default_row_commit_version is None:
                rule, problem = "no-row-ids", "is added again without its rows' version"
        elif removed.get(add.path) is not None:
            rule, problem = "row-ids-changed", "is added again and loses its row ids"
        elif bounds.num_records is None:
            rule, problem = "no-num-records", "has no numRecords, which row tracking needs"
        elif examined.is_inline:
            if add.base_row_id is not None or add.default_row_commit_version is not None:
                rule, problem = "row-ids-given", "brings row ids, which the catalog gives"
        elif add.base_row_id is None or add.default_row_commit_version is None:
            rule, problem = "no-row-ids", "has no row ids, which the table tracks"
        elif add.base_row_id <= used:
            rule, problem = (
                "row-ids-taken",
                f"has row ids from {add.base_row_id}, used up to {used}",
            )
        elif add.default_row_commit_version != version:
            rule, problem = "row-version-differs", f"has not {version} as its rows' version"
        else:
            ranges.append((add.base_row_id, add.base_row_id + max(bounds.num_records, 0)))
        if rule is not None:
            yield Violation(rule=rule, says=f"{add.path!r} {problem}", line=number)
    yield from _range_violations(examined, sorted(ranges))


def _range_violations(examined: Examined, ranges: Many[tuple[int, int]]) -> Iterator[Violation]:
    if any(end > start for (_, end), (start, _) in itertools.pairwise(ranges)):
        yield Violation(rule="row-ids-overlap", says="two files share row ids")
    marks = [_high_water(domain) for domain in examined.domains if domain.domain == ROW_TRACKING]
    last = max((end - 1 for _, end in ranges), default=None)
    if last is not None and not any(mark is not None and mark >= last for mark in marks):
        says = f"row ids go up to {last} and domain {ROW_TRACKING} does not say so"
        yield Violation(rule="row-id-high-water", says=says)


class _RowTracking(msgspec.Struct, frozen=True, rename="camel"):
    row_id_high_water_mark: int


def _high_water(domain: DomainMetadata) -> int | None:
    try:
        mark = msgspec.json.decode(domain.configuration, type=_RowTracking)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return mark.row_id_high_water_mark


# What metadata says


def _schema_of(metadata: Metadata) -> schema.StructType | Violation:
    try:
        return schema.from_json(metadata.schema_string)
    except HeadgateError as error:
        return Violation(rule="schema-malformed", says=error.message.rstrip("."))


def _partition_names(protocol: Protocol, metadata: Metadata) -> list[str] | None:
    """Give the names partition values go by; None if the schema cannot be read."""
    if not metadata.partition_columns or features.mapping_mode(protocol, metadata) == "none":
        return metadata.partition_columns
    struct = _schema_of(metadata)
    if isinstance(struct, Violation):
        return None
    columns = {field.name: schema.physical_name(field) for field in struct.fields}
    return [columns.get(name, name) for name in metadata.partition_columns]


def _number(metadata: Metadata, key: str) -> int | None:
    text = metadata.configuration.get(key, "").strip()
    return int(text) if _DIGITS.fullmatch(text) is not None else None


_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)


# Writing what is stored of an inline commit


def compose(
    examined: Examined,
    *,
    txn_id: TxnId,
    timestamp_ms: int,
    version: Version,
    row_id_high_water: int | None,
) -> tuple[bytes, int | None]:
    """Write the content of an inline commit for a version; give the new high-water mark too.

    The `commitInfo` line is ours, all others pass byte for byte; on a table that tracks rows
    (`row_id_high_water` given, -1 if there are none yet) new files get their row ids. Spec: CM-41.
    """
    if not examined.is_inline:
        raise InvariantError("The content of a file is stored as it is.")
    first = _info_line(examined, txn_id, timestamp_ms)
    if row_id_high_water is None:
        return join([first, *[line.raw for line in examined.lines]]), None
    lines, mark = _with_row_ids(examined, version, row_id_high_water)
    return join([first, *lines]), mark


def _info_line(examined: Examined, txn_id: TxnId, timestamp_ms: int) -> bytes:
    own: dict[str, object] = {"inCommitTimestamp": timestamp_ms, "txnId": txn_id}
    if "timestamp" not in examined.commit_info:
        own["timestamp"] = timestamp_ms
    head, rest = msgspec.json.encode(own), examined.commit_info_rest
    # Both are objects and share no key, so their members can stand in one.
    return b'{"commitInfo":%b%b%b}' % (head[:-1], b"," if len(rest) > len(b"{}") else b"", rest[1:])


def _with_row_ids(examined: Examined, version: Version, mark: int) -> tuple[list[bytes], int]:
    bounds = iter(examined.bounds)
    lines: list[bytes] = []
    is_marked = False
    for line in examined.lines:
        match line.action:
            case AddFile() as add:
                records = next(bounds).num_records
                if add.base_row_id is not None:
                    lines.append(line.raw)
                    continue
                if records is None:
                    raise InvariantError(f"{add.path!r} has no numRecords and needs row ids.")
                lines.append(_with_fields(line.raw, mark + 1, version))
                mark += records
                is_marked = True
            case DomainMetadata(domain=domain) if domain == ROW_TRACKING:
                is_marked = True  # written anew below
            case _:
                lines.append(line.raw)
    if is_marked:
        configuration = msgspec.json.encode(_RowTracking(mark)).decode()
        lines.append(
            encode(DomainMetadata(domain=ROW_TRACKING, configuration=configuration, removed=False))
        )
    return lines, mark


def _with_fields(raw: bytes, base_row_id: int, version: Version) -> bytes:
    body = _line_of_raws.decode(raw)
    # Values pass as they are spelled; of an object as a whole only blanks between them may go.
    body["add"]["baseRowId"] = msgspec.Raw(b"%d" % base_row_id)
    body["add"]["defaultRowCommitVersion"] = msgspec.Raw(b"%d" % version)
    return msgspec.json.encode(body)


_line_of_raws = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])
