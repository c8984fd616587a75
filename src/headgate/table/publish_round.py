"""A round of publishing: the commits of many tables are written to their logs together.

It needs nothing but storage, so that it can run in a process of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from headgate.errors import (
    InvalidArgumentError,
    InvariantError,
    LogDivergedError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
)
from headgate.failpoints import fail_point
from headgate.protocol.actions import TableId, Version
from headgate.protocol.paths import STAGED, PublishedCommit, parse_staged_name
from headgate.storage.local import LocalStore
from headgate.storage.object_store import ObjectStore
from headgate.table.log_files import DeltaLog, publish_together
from headgate.table.ratified_content import find_content

_log = logging.getLogger(__name__)


class UnpublishedCommit(msgspec.Struct, frozen=True, array_like=True):
    """A ratified commit to publish."""

    version: Version
    sha256: bytes
    file_name: str | None  # of the staged commit
    content: bytes | None  # None: only the staged file has it


class TailPart(msgspec.Struct, frozen=True, array_like=True):
    """The first unpublished commits of a table, in order."""

    table_id: TableId
    location: str
    commits: tuple[UnpublishedCommit, ...]


@dataclass(frozen=True, slots=True)
class PartResult:
    """All commits of a part are in the log and will outlive a power loss, unless it failed."""

    error: Exception | None
    device: int | None = None  # of the local disk that the table is on


def publish_round(
    parts: Sequence[TailPart], store_for: Callable[[str], ObjectStore]
) -> Sequence[PartResult]:
    """Publish parts of the tails of different tables; return the result for each.

    Repeating it is safe. A failing table stops no other. Spec: CM-23, CM-24.
    """
    errors: list[Exception | None] = [None] * len(parts)
    batches: dict[int, tuple[DeltaLog, Sequence[tuple[Version, bytes]]]] = {}
    for place, part in enumerate(parts):
        try:
            log = DeltaLog(store_for(part.location))
            contents = [(one.version, _content(part.table_id, log, one)) for one in part.commits]
            batches[place] = log, contents
        except Exception as error:
            errors[place] = error
    fail_point("publisher.before_put")
    for place, failure in zip(batches, publish_together([*batches.values()]), strict=True):
        errors[place] = failure
    fail_point("publisher.after_put")
    devices = {
        place: log.store.device()
        for place, (log, _) in batches.items()
        if isinstance(log.store, LocalStore)
    }
    return [PartResult(error, devices.get(place)) for place, error in enumerate(errors)]


def altered(table_id: TableId, version: Version) -> LogDivergedError:
    """Return the error for a commit whose ratified bytes are nowhere, but others are."""
    return LogDivergedError(
        f"Version {version} of table {table_id}: the bytes found for "
        f"{PublishedCommit(version).path} are not those that were ratified."
    )


def _content(table_id: TableId, log: DeltaLog, commit: UnpublishedCommit) -> bytes:
    if commit.content is not None and commit.file_name is not None:
        _restore(table_id, log, commit.file_name, commit.content)
    found = find_content(log, commit)
    if found.content is not None:
        if found.altered:
            _log.error(
                "table %s: %s was altered after it was ratified as version %d; "
                "what is published is right",
                table_id,
                commit.file_name,
                commit.version,
            )
        return found.content
    if found.altered:
        raise altered(table_id, commit.version)
    raise InvariantError(
        f"Version {commit.version} of table {table_id} is ratified, and its content "
        f"({commit.file_name}) is gone."
    )


def _restore(table_id: TableId, log: DeltaLog, file_name: str, content: bytes) -> None:
    """Check that a staged file has the ratified content, and restore it if not. Spec: CM-46.

    Engines read it by its name. A power loss may have deleted it, since its writer need not have
    synced it, or others may have replaced it. If it cannot be restored, the commit is published
    all the same.
    """
    with suppress(NotFoundError, InvalidArgumentError, PermissionDeniedError):
        if log.read(f"{STAGED}/{file_name}") == content:
            return
    _log.error("table %s: %s was lost or altered after it was ratified", table_id, file_name)
    staged = parse_staged_name(file_name)
    assert staged is not None  # else it would not have been ratified
    try:
        log.put_back(staged, content)
    except RefusedError as error:
        _log.error("table %s: %s cannot be restored: %s", table_id, file_name, error)
