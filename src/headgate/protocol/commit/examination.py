"""Parse the content of a commit, and find all violations that the content alone shows.

This is done once per proposal, outside of any lock. `admission` compares the result with the table.
Content that cannot be parsed at all is `MalformedError`; everything else is a `Violation`.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from typing import Final
from urllib.parse import unquote

import msgspec

from headgate.errors import InvariantError, MalformedError, shortened
from headgate.protocol import actions
from headgate.protocol.commit import strict_json
from headgate.protocol.commit.conflicts import Changes, summarize
from headgate.protocol.commit.content import Inline
from headgate.protocol.commit.row_ids import DOMAIN as ROW_TRACKING
from headgate.protocol.commit.strict_json import DEFAULT_LIMITS, Line, ParseLimits, UnreadableError
from headgate.protocol.data_paths import normal_path
from headgate.protocol.paths import LOG
from headgate.protocol.statistics import NO_BOUNDS, UNREADABLE, Bounds, decode_bounds

_LONGEST_VIOLATION: Final = 1_000
_VIOLATIONS_REPORTED: Final = 100


class Violation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that content breaks, and where."""

    rule: str
    says: str
    line: int | None = None

    def __post_init__(self) -> None:
        if len(self.says) > _LONGEST_VIOLATION:  # it repeats a part of the content
            shorter = shortened(self.says, _LONGEST_VIOLATION)
            msgspec.structs.force_setattr(self, "says", shorter)

    def __str__(self) -> str:
        return self.says if self.line is None else f"line {self.line}: {self.says}"


def reported(violations: Many[Violation]) -> tuple[Violation, ...]:
    """Return the violations to report and record: all, or the first if there are very many."""
    left_out = len(violations) - _VIOLATIONS_REPORTED
    if left_out <= 0:
        return tuple(violations)
    rest = Violation("too-many-violations", f"there are {left_out} violations more")
    return (*violations[:_VIOLATIONS_REPORTED], rest)


# A Struct since every commit makes one: a frozen dataclass of this size takes longer to create than
# its line takes to parse.
class Examined(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The parsed content of a commit, and its violations."""

    is_inline: bool
    lines: tuple[Line, ...]  # without `commitInfo`
    commit_info: Mapping[str, object]
    commit_info_rest: bytes  # inline: encoded, without what the catalog adds
    timestamp_ms: int | None  # `inCommitTimestamp` of a file; the catalog assigns an inline one
    txn_id: actions.TxnId | None
    metadata: actions.Metadata | None
    protocol: actions.Protocol | None
    adds: tuple[actions.AddFile, ...]
    add_lines: tuple[int, ...]  # the line number of each add
    bounds: tuple[Bounds, ...]  # of each add
    removes: tuple[actions.RemoveFile, ...]
    cdcs: tuple[actions.AddCdcFile, ...]
    txns: tuple[actions.SetTransaction, ...]
    domains: tuple[actions.DomainMetadata, ...]
    changes: Changes
    intent: str  # hash of all that does not depend on the version: the same after every rebase
    violations: tuple[Violation, ...]


def examine(content: Inline, limits: ParseLimits = DEFAULT_LIMITS) -> Examined:
    """Examine an inline commit. Spec: AU-02, CM-09."""
    info = _given_info(content.commit_info, limits)
    lines = strict_json.read(content.actions, limits)
    why = "the catalog writes the commitInfo of an inline commit, so no line may be one"
    return _examined(
        lines,
        info,
        [
            Violation("two-commit-infos", why, line.number)
            for line in lines
            if isinstance(line.action, actions.CommitInfo)
        ],
    )


def examine_file(
    content: bytes, declared_size: int | None = None, limits: ParseLimits = DEFAULT_LIMITS
) -> Examined:
    """Examine a commit that is, or will be, a file. Spec: AU-02, CM-04, CM-36."""
    found: list[Violation] = []
    if declared_size is not None and declared_size != len(content):
        why = f"the file has {len(content)} bytes and {declared_size} were declared"
        found.append(Violation("size-differs", why))
    if not content:
        raise MalformedError("The commit is empty.")
    if declared_size is None and not content.endswith(b"\n"):
        # The file may be truncated. Some writers do not end the last line with a newline, which is
        # harmless if the size is declared.
        found.append(Violation("no-last-newline", "the last line does not end with a newline"))
    lines = strict_json.read(content, limits)
    infos = [line for line in lines if isinstance(line.action, actions.CommitInfo)]
    if not infos:
        found.append(Violation("no-commit-info", "there is no commitInfo"))
        return _examined(lines, _Info(False, {}), found)
    first = infos[0]
    info = _file_info(first)
    if first.number != 1:
        why = "commitInfo is not the first line"
        found.append(Violation("commit-info-not-first", why, first.number))
    for other in infos[1:]:
        why = "there is a second commitInfo"
        found.append(Violation("two-commit-infos", why, other.number))
    if info.txn_id is None:
        found.append(Violation("no-txn-id", "commitInfo has no txnId", first.number))
    if info.timestamp_ms is None:
        why = "commitInfo has no inCommitTimestamp"
        found.append(Violation("no-timestamp", why, first.number))
    return _examined(lines, info, found)


class _Info(msgspec.Struct, frozen=True, gc=False):
    """The `commitInfo` of a file or an inline commit."""

    is_inline: bool
    body: Mapping[str, object]
    rest: bytes = b""
    txn_id: actions.TxnId | None = None
    timestamp_ms: int | None = None

    @property
    def says_blind(self) -> bool:
        given = self.body.get("isBlindAppend")
        # A proposal with an inline commit has its scans; of a file only this flag is known.
        return given is not False if self.is_inline else given is True


_ASSIGNED_KEYS = ("inCommitTimestamp", "txnId")  # of an inline commit, by the catalog


def _file_info(line: Line) -> _Info:
    info = line.action
    if not isinstance(info, actions.CommitInfo):
        raise InvariantError(f"A {line.name} is not a commitInfo.")
    txn_id = actions.TxnId(info.txn_id) if info.txn_id else None
    return _Info(False, line.body or {}, b"", txn_id, info.in_commit_timestamp)


def _examined(lines: Many[Line], info: _Info, found: list[Violation]) -> Examined:
    adds: list[actions.AddFile] = []
    add_lines: list[int] = []
    removes: list[actions.RemoveFile] = []
    cdcs: list[actions.AddCdcFile] = []
    txns: list[actions.SetTransaction] = []
    domains: list[actions.DomainMetadata] = []
    metadata: actions.Metadata | None = None
    protocol: actions.Protocol | None = None
    are_all_known = True
    for line in lines:
        match line.action:
            case actions.AddFile() as add:
                adds.append(add)
                add_lines.append(line.number)
                found.extend(_path_violations(add.path, line.number))
            case actions.RemoveFile() as remove:
                removes.append(remove)
                found.extend(_path_violations(remove.path, line.number))
            case actions.SetTransaction() as txn:
                txns.append(txn)
            case actions.DomainMetadata() as domain:
                domains.append(domain)
            case actions.Metadata() as given:
                if metadata is not None:
                    found.append(
                        Violation("two-metadata", "there is a second metaData", line.number)
                    )
                metadata = given
            case actions.Protocol() as given_protocol:
                if protocol is not None:
                    found.append(
                        Violation("two-protocols", "there is a second protocol", line.number)
                    )
                protocol = given_protocol
            case actions.AddCdcFile() as cdc:
                cdcs.append(cdc)
                are_all_known = False
                found.extend(_path_violations(cdc.path, line.number))
            case actions.SidecarFile() | actions.CheckpointMetadata():
                why = f"{line.name} is for checkpoints only"
                found.append(Violation("checkpoint-action", why, line.number))
            case actions.CommitInfo():
                pass
            case actions.Unknown():
                are_all_known = False
    bounds = [_judge_file(add, number, found) for add, number in zip(adds, add_lines, strict=True)]
    if len(adds) + len(removes) > 1 or len(txns) > 1 or len(domains) > 1:
        found.extend(_repetitions(lines, adds, removes, txns, domains))
    kept = tuple([line for line in lines if not isinstance(line.action, actions.CommitInfo)])
    return Examined(
        is_inline=info.is_inline,
        lines=kept,
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
        intent=_intent(kept, removes),
        violations=tuple(found),
    )


def _intent(lines: Many[Line], removes: Many[actions.RemoveFile]) -> str:
    """Hash all content but `commitInfo` and what a rebase changes."""
    removed = {normal_path(file.path) for file in removes}
    hashed = []
    for line in lines:
        match line.action:
            case actions.AddFile(base_row_id=None, default_row_commit_version=None):
                hashed.append(line.raw)
            case actions.AddFile(path=path) if normal_path(path) not in removed:
                hashed.append(_without_row_ids(line.raw))
            case actions.DomainMetadata(domain=domain) if domain == ROW_TRACKING:
                pass
            case _:
                hashed.append(line.raw)
    return hashlib.sha256(b"\n".join(hashed)).hexdigest()


def _without_row_ids(raw: bytes) -> bytes:
    line = _lines.decode(raw)
    for key in _ROW_ID_KEYS:
        line["add"].pop(key, None)
    return msgspec.json.encode(line)


_ROW_ID_KEYS = ("baseRowId", "defaultRowCommitVersion")
_lines = msgspec.json.Decoder(dict[str, dict[str, object]])
_objects = msgspec.json.Decoder(dict[str, object])


def _given_info(given: Mapping[str, object], limits: ParseLimits) -> _Info:
    """Validate the `commitInfo` of an inline commit, which is decoded already."""
    rest = {key: value for key, value in given.items() if key not in _ASSIGNED_KEYS}
    try:
        raw = msgspec.json.encode(rest)
        strict_json.check(raw, _objects.decode(raw), limits.max_depth - 1)
    except UnreadableError as error:
        raise MalformedError(f"The commitInfo cannot be read: {error}.") from None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise MalformedError(f"The commitInfo cannot be read: {str(error).rstrip('.')}.") from None
    txn_id = given.get("txnId")
    if txn_id is not None and not isinstance(txn_id, str):
        raise MalformedError("The commitInfo cannot be read: its txnId is not a string.")
    return _Info(True, given, raw, actions.TxnId(txn_id) if txn_id else None)


# Files


def _judge_file(add: actions.AddFile, number: int, found: list[Violation]) -> Bounds:
    """Parse the bounds of an added file, and check its statistics and deletion vector."""
    bounds = NO_BOUNDS
    if add.stats is not None:
        try:
            bounds = decode_bounds(add.stats)
        except UNREADABLE as error:
            why = f"the statistics of {add.path!r} cannot be parsed: {error}"
            found.append(Violation("stats-malformed", why, number))
    records = bounds.num_records
    if records is not None and records > _GREATEST:
        why = f"the number of records of {add.path!r} has more than 64 bits"
        found.append(Violation("stats-malformed", why, number))
    if add.size < 0 or (records is not None and records < 0):
        why = f"{add.path!r} has a negative size or number of records"
        found.append(Violation("negative-size", why, number))
    if add.deletion_vector is not None:
        if records is None:
            why = f"{add.path!r} has a deletion vector and no numRecords"
            found.append(Violation("no-num-records", why, number))
        if (problem := _vector_problem(add.deletion_vector, records)) is not None:
            why = f"the deletion vector of {add.path!r} {problem}"
            found.append(Violation("deletion-vector-malformed", why, number))
    return bounds


_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]*+", re.ASCII)
_UUID_LETTERS = 20
_INT32 = 2**31
_GREATEST = 2**63 - 1


def _vector_problem(vector: actions.DeletionVector, records: int | None) -> str | None:
    where = vector.path_or_inline_dv
    if not 0 <= vector.size_in_bytes < _INT32 or not 0 <= (vector.offset or 0) < _INT32:
        return "has a size or offset out of range"
    if vector.cardinality < 0 or (records is not None and vector.cardinality > records):
        return f"deletes {vector.cardinality} rows of {records}"
    match vector.storage_type:
        case "u":
            prefix, encoded = where[:-_UUID_LETTERS], where[-_UUID_LETTERS:]
            if len(encoded) < _UUID_LETTERS or _Z85.fullmatch(encoded) is None:
                return "does not name a UUID"
            if prefix and _PLAIN.fullmatch(prefix) is None:
                return "has a prefix that is not a plain folder"
        case "i":
            if vector.offset is not None or _Z85.fullmatch(where) is None:
                return "is inline and has an offset, or is not Z85"
        case "p":
            return "has an absolute path, perhaps outside of the table"
        case other:
            return f"has the unknown storage type {other!r}"
    return None


# Nearly every path has this form and needs no further check.
_PLAIN = re.compile(r"(?!(?i:_delta_log))[\w=-][\w=.-]*+(?:/[\w=-][\w=.-]*+)*+", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:")
_SCHEME_WITHIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:[/\\]")
_SEPARATOR = re.compile(r"[/\\]")
_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ODD = re.compile(r"[\x00-\x1f\x7f?#]")


def _path_violations(path: str, number: int) -> Iterator[Violation]:
    if _PLAIN.fullmatch(path) is None and (problem := _path_problem(path)) is not None:
        rule, why = problem
        yield Violation(rule, f"path {path[:200]!r} {why}", number)


def _path_problem(path: str) -> tuple[str, str] | None:
    """Return the rule that the path of a data file, a relative URI, violates, and how."""
    if not path:
        return "path-malformed", "is empty"
    if _ODD.search(path) is not None or _NO_ESCAPE.search(path) is not None:
        return "path-malformed", "is not a URI"
    if _SCHEME.match(path) is not None:
        return "path-outside", "is absolute"
    try:
        once = unquote(path, errors="strict")
    except UnicodeDecodeError:
        return "path-malformed", "does not decode to UTF-8"
    if "\0" in once:
        return "path-malformed", "contains a NUL"
    for text in (path, once):
        parts = _SEPARATOR.split(text)
        # The path must also be safe for a reader that decodes it twice.
        plain = [unquote(part) for part in parts]
        if ".." in plain:
            return "path-outside", "leads out of the table"
        if not parts[0] or _SCHEME_WITHIN.match(text) is not None:
            return "path-outside", "is absolute"
        if plain[0].casefold() == LOG:
            return "path-in-log", "is in the log"
    if "" in once.split("/") or "." in once.split("/"):
        return "path-malformed", "has an empty part or a dot, so the file has two spellings"
    return None


def _repetitions(
    lines: Many[Line],
    adds: Many[actions.AddFile],
    removes: Many[actions.RemoveFile],
    txns: Many[actions.SetTransaction],
    domains: Many[actions.DomainMetadata],
) -> Iterator[Violation]:
    """Find duplicates, for which the order of the lines would matter."""
    if (
        len({normal_path(file.path) for file in adds}) < len(adds)
        or len({normal_path(file.path) for file in removes}) < len(removes)
        or len({txn.app_id for txn in txns}) < len(txns)
        or len({domain.domain for domain in domains}) < len(domains)
    ):
        seen: set[tuple[str, str]] = set()
        for line in lines:
            match line.action:
                case actions.AddFile(path=name):
                    rule, what, key = "added-twice", "is added", normal_path(name)
                case actions.RemoveFile(path=name):
                    rule, what, key = "removed-twice", "is removed", normal_path(name)
                case actions.SetTransaction(app_id=name):
                    rule, what, key = "two-txns", "has its txn set", name
                case actions.DomainMetadata(domain=name):
                    rule, what, key = "two-domains", "has its domainMetadata set", name
                case _:
                    continue
            if (rule, key) in seen:
                yield Violation(rule, f"{name!r} {what} twice", line.number)
            seen.add((rule, key))
    if not removes or not adds:
        return
    both = {file.key for file in removes}.intersection([file.key for file in adds])
    for path, _ in sorted(both, key=repr):
        yield Violation("added-and-removed", f"{path!r} is both added and removed")
