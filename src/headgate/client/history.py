"""The history of a table: the `commitInfo` of its commits."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from headgate.api.messages import RatifiedCommit
from headgate.api.port import ManagingCatalog
from headgate.errors import MalformedError
from headgate.protocol.actions import Version
from headgate.protocol.encoding import from_json
from headgate.table.log_files import DeltaLog
from headgate.table.ratified_content import ratified_content
from headgate.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The `commitInfo` of a commit, as in DESCRIBE HISTORY; what is missing is None or empty."""

    version: Version
    timestamp_ms: int | None
    operation: str | None
    parameters: Mapping[str, object]
    read_version: int | None
    isolation: str | None
    is_blind_append: bool | None
    metrics: Mapping[str, object]
    engine: str | None
    txn_id: str | None


def history_of(
    snapshot: Snapshot, limit: int | None = None, catalog: ManagingCatalog | None = None
) -> list[HistoryEntry]:
    """Return the `commitInfo` of commits, newest first; those not published come from `catalog`."""
    oldest = Version(0 if limit is None else max(0, snapshot.version - limit + 1))
    held: dict[int, RatifiedCommit] = {}
    if catalog is not None and snapshot.table_id is not None:
        answer = catalog.ratified_commits(snapshot.table_id, oldest, snapshot.version)
        held = {commit.version: commit for commit in answer.commits}
    log = DeltaLog(snapshot.store)
    entries: list[HistoryEntry] = []
    for version in map(Version, range(snapshot.version, oldest - 1, -1)):
        commit = held.get(version)
        content = log.read_published(version) if commit is None else ratified_content(log, commit)
        if content is None:
            break  # cleaned up
        entries.append(_entry(version, content))
    return entries


def _entry(version: Version, content: bytes) -> HistoryEntry:
    info = _commit_info(content)
    timestamp = info.get("inCommitTimestamp", info.get("timestamp"))
    read = info.get("readVersion")
    return HistoryEntry(
        version=version,
        timestamp_ms=timestamp if isinstance(timestamp, int) else None,
        operation=_text(info.get("operation")),
        parameters=_mapping(info.get("operationParameters")),
        metrics=_mapping(info.get("operationMetrics")),
        read_version=read if isinstance(read, int) else None,
        isolation=_text(info.get("isolationLevel")),
        is_blind_append=info.get("isBlindAppend") is True if "isBlindAppend" in info else None,
        txn_id=_text(info.get("txnId")),
        engine=_text(info.get("engineInfo")),
    )


def _commit_info(content: bytes) -> Mapping[str, object]:
    for line in content.split(b"\n"):
        if b'"commitInfo"' in line:
            with suppress(MalformedError):
                action = from_json(line, dict[str, object])
                if "commitInfo" in action:
                    return _mapping(action["commitInfo"])
    return {}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
