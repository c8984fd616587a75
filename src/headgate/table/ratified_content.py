"""The content of a ratified commit: the catalog's copy, its staged file, or its published file."""

import hashlib
from dataclasses import dataclass
from typing import Protocol

from headgate import errors
from headgate.protocol.actions import Version
from headgate.protocol.paths import STAGED, PublishedCommit
from headgate.table.log_files import DeltaLog


class StoredCommit(Protocol):
    """The fields of a ratified commit by which its content is found."""

    @property
    def version(self) -> Version: ...
    @property
    def sha256(self) -> str | bytes: ...
    @property
    def file_name(self) -> str | None: ...
    @property
    def content(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class FoundContent:
    """The ratified bytes, or why they were not found."""

    content: bytes | None = None
    altered: tuple[str, ...] = ()  # files of the commit that hold other bytes
    unreadable: errors.HeadgateError | None = None  # why its staged file could not be read
    is_published: bool = False  # `<v>.json` was read, whatever its bytes are


def ratified_content(log: DeltaLog, commit: StoredCommit) -> bytes | None:
    """Read the ratified bytes; None if they are gone, or the storage's error. Spec: CM-46."""
    found = find_content(log, commit)
    if found.content is None and found.unreadable is not None:
        raise found.unreadable
    return found.content


def find_content(log: DeltaLog, commit: StoredCommit) -> FoundContent:
    """Look for the bytes that were ratified, and report files of the commit with other bytes."""
    # The catalog's own copy is trusted; a file counts only if it has the ratified hash, since
    # anybody with access to storage can replace it.
    if commit.content is not None:
        return FoundContent(commit.content)
    altered: list[str] = []
    unreadable: errors.HeadgateError | None = None
    if commit.file_name is not None:
        path = f"{STAGED}/{commit.file_name}"
        try:
            staged = log.read(path)
            if is_ratified(staged, commit):
                return FoundContent(staged)
            altered.append(path)
        except errors.NotFoundError:
            pass
        except (errors.InvalidArgumentError, errors.PermissionDeniedError) as error:
            unreadable = error
    published = log.read_published(commit.version)
    if published is None:
        return FoundContent(None, tuple(altered), unreadable)
    if is_ratified(published, commit):
        return FoundContent(published, tuple(altered), unreadable, is_published=True)
    altered.append(PublishedCommit(commit.version).path)
    return FoundContent(None, tuple(altered), unreadable, is_published=True)


def is_ratified(content: bytes, commit: StoredCommit) -> bool:
    """Return True if these are the bytes that were ratified."""
    digest = hashlib.sha256(content)
    expected = commit.sha256  # the catalog's rows have it as bytes, its answers in hexadecimal
    return (digest.digest() if isinstance(expected, bytes) else digest.hexdigest()) == expected
