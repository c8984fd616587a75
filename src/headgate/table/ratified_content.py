"""The content of a ratified commit: the catalog's copy, its staged file, or its published file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from headgate.protocol.actions import Version
from headgate.protocol.paths import STAGED, PublishedCommit
from headgate.table.log_files import DeltaLog


class Commit(Protocol):
    """The fields of a ratified commit by which its content is found."""

    @property
    def version(self) -> Version: ...
    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str: ...
    @property
    def file_name(self) -> str | None: ...
    @property
    def content(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class FoundContent:
    """The ratified bytes, or why they were not found."""

    content: bytes | None = None
    altered: tuple[str, ...] = ()  # files of the commit that hold other bytes
    unreadable: HeadgateError | None = None  # why its staged file could not be read
    is_published: bool = False  # `<v>.json` was looked for and exists, whatever its bytes


def ratified_content(log: DeltaLog, commit: Commit) -> FoundContent:
    """Find the bytes that were ratified. Spec: CM-46.

    The catalog's own copy is trusted; a file counts only if it has the ratified hash, since anybody
    with access to storage can replace it.
    """
    if commit.content is not None:
        return FoundContent(commit.content)
    altered: list[str] = []
    unreadable: HeadgateError | None = None
    if commit.file_name is not None:
        path = f"{STAGED}/{commit.file_name}"
        try:
            staged = log.read(path)
        except NotFoundError:
            pass
        except (InvalidArgumentError, PermissionDeniedError) as error:
            unreadable = error
        else:
            if is_ratified(staged, commit):
                return FoundContent(staged)
            altered.append(path)
    published = log.read_published(commit.version)
    if published is not None and is_ratified(published, commit):
        return FoundContent(published, tuple(altered), unreadable, is_published=True)
    if published is not None:
        altered.append(PublishedCommit(commit.version).path)
    return FoundContent(None, tuple(altered), unreadable, is_published=published is not None)


def is_ratified(content: bytes, commit: Commit) -> bool:
    """Return True if these are the bytes that were ratified."""
    return len(content) == commit.size and hashlib.sha256(content).hexdigest() == commit.sha256
