"""Reading and examining the parts of proposals: all that deciding needs from storage."""

from __future__ import annotations

import hashlib
import heapq
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, assert_never

from headgate.api.messages import Part, Proposal
from headgate.catalog import lookup
from headgate.catalog.component import Component, Shared
from headgate.catalog.fsck.table_check import is_next
from headgate.catalog.stores.rows import TableRow
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvalidCommitError,
    LogAheadError,
    TooLargeError,
    UnsupportedByCatalogError,
)
from headgate.protocol.actions import AddFile, TableId, Version
from headgate.protocol.commit import examination
from headgate.protocol.commit.content import Inline, Put, Staged, Way
from headgate.protocol.commit.examination import Violation
from headgate.protocol.commit.facts import ExaminedPart
from headgate.protocol.table_states import TableStatus
from headgate.settings import TRANSACTION_LIMIT_BYTES, TRANSACTION_TABLES
from headgate.storage import locations
from headgate.storage.object_store import ObjectStore

if TYPE_CHECKING:
    from headgate.table.snapshot import Snapshot

STAGED_FILE_MISSING: Final = "staged-file-missing"
_VERIFY_ABOVE_BYTES: Final = 64 << 20  # added files of this size are always checked
_PEEKED_BYTES: Final = 64 << 10  # a larger staged file is not read in the event loop

_log = logging.getLogger(__name__)


class PartReader(Component):
    """Reads and examines the parts of proposals, and checks the files that they name."""

    def __init__(self, shared: Shared, snapshot_of: Callable[[TableId], Snapshot]) -> None:
        super().__init__(shared)
        self._snapshot_of = snapshot_of
        self._looked_ahead: dict[TableId, str] = {}  # tables, and their locations

    def look_again(self, table_id: TableId) -> None:
        """Read a table's log again before its next commit: it may have been repaired or altered."""
        self._looked_ahead.pop(table_id, None)

    def read_all(self, parts: Iterable[Part]) -> list[ExaminedPart] | Violation:
        """Read, examine and verify parts; return the violation if a file is not as declared."""
        examined: list[ExaminedPart] = []
        for part in parts:
            read = self.read(part)
            if isinstance(read, Violation):
                return read
            examined.append(read)
        return self.verify(examined) or examined

    def read(self, part: Part) -> ExaminedPart | Violation:
        """Read and examine a part; return the violation if its file is not as declared."""
        match part.content:
            case Inline():
                return _inline_part(part)
            case Staged() as staged:
                return self._read_staged(part, staged)
            case Put():
                raise UnsupportedByCatalogError("This catalog does not commit by put-if-absent.")
            case unreachable:
                assert_never(unreachable)

    def verify(self, parts: Iterable[ExaminedPart]) -> Violation | None:
        """Check the logs of the tables, and that added files exist with the declared size."""
        for part in parts:
            self._look_ahead(part.table_id)
        violations = map(self._file_violation, parts)
        return next((found for found in violations if found is not None), None)

    def peek(self, part: Part) -> ExaminedPart | None:
        """Examine a part without blocking; None if anything is unusual or has to be waited for."""
        location = self._looked_ahead.get(part.table_id)
        if location is None:
            return None
        store = self._store_for(location)
        most = min(_PEEKED_BYTES, self._settings.inline_limit_bytes)  # larger ones are synced
        match part.content:
            case Inline():
                examined = _inline_part(part)
            case Staged(size=size) as staged if size <= most:
                try:
                    found = store.peek(self._staged_path(part, staged), most)
                    if found is None or found.size != size:
                        return None
                    examined = _staged_part(
                        part, staged, found.content, found.modified_ms, is_kept=True
                    )
                except HeadgateError:
                    return None  # it may be a replay all the same
            case _:
                return None
        for path, add in self._files_to_verify(examined).items():
            data = locations.data_path(path)
            seen = store.peek(data.value) if data.is_relative else None
            if seen is None or seen.size != add.size:
                return None
        return examined

    def replaced(self, parts: Iterable[ExaminedPart]) -> frozenset[TableId]:
        """Return the tables whose metadata changes while all old files are removed. Spec: FI5."""
        found: set[TableId] = set()
        for part in parts:
            table_id = part.table_id
            if part.examined.metadata is None:
                continue
            if self._row(table_id).state is not TableStatus.ACTIVE:
                continue
            snapshot = self._snapshot_of(table_id)
            removed = {file.key for file in part.examined.removes}
            if all(file.key in removed for file in snapshot.files()):
                found.add(table_id)
        return frozenset(found)

    def _staged_path(self, part: Part, staged: Staged) -> str:
        """Return the path of a staged file; raise if it cannot be what is proposed."""
        _refuse_version_zero(part)
        commit = staged.commit
        if commit is None:
            raise _invalid(
                part, "staged-name", f"{staged.file_name!r} is not the name of a staged commit"
            )
        if commit.version != part.version:
            raise _invalid(
                part,
                "staged-version",
                f"{staged.file_name} can only become version {commit.version}, not {part.version}",
            )
        if staged.size > self._settings.commit_limit_bytes:
            raise TooLargeError(f"{staged.file_name} has {staged.size} bytes.")
        return commit.path

    def _read_staged(self, part: Part, staged: Staged) -> ExaminedPart | Violation:
        """Read and examine a staged file. Spec: AU-02, CM-02."""
        path = self._staged_path(part, staged)
        store = self._storage_of(part.table_id)
        meta = store.head(path)
        if meta is None:
            return Violation(rule=STAGED_FILE_MISSING, says=f"{path} is not there")
        if meta.size != staged.size:
            says = f"{path} has {meta.size} bytes, not the {staged.size} declared"
            return Violation(rule="staged-size", says=says)
        # The file may not be synced. Small content is kept with the commit until it is published,
        # which costs less than a sync.
        is_kept = meta.size <= self._settings.inline_limit_bytes
        if not is_kept:
            store.sync([path])
        return _staged_part(part, staged, store.get(path), meta.modified_ms, is_kept=is_kept)

    def _storage_of(self, table_id: TableId) -> ObjectStore:
        location = self._looked_ahead.get(table_id)
        return self._store_for(location or lookup.managed(self._row(table_id)).location)

    def _row(self, table_id: TableId) -> TableRow:
        with self._store.read_latest() as unit:
            return lookup.known(unit, table_id)

    def _files_to_verify(self, part: ExaminedPart) -> dict[str, AddFile]:
        """Return the added files that must exist before the commit is ratified."""
        adds = part.examined.adds
        count = self._settings.verify_staged if part.way is Way.STAGED else 0
        largest = heapq.nlargest(count, adds, key=lambda add: add.size) if count else []
        files = {add.path: add for add in largest}
        files |= {add.path: add for add in adds if add.size >= _VERIFY_ABOVE_BYTES}
        return files

    def _file_violation(self, part: ExaminedPart) -> Violation | None:
        """Check that added files exist with the declared size. Spec: AU-02."""
        expected = self._files_to_verify(part)
        if not expected:
            return None
        store = self._storage_of(part.table_id)
        for path, add in expected.items():
            data = locations.data_path(path)
            if not data.is_relative or part.examined.violations:
                continue  # rejected for its content in any case
            meta = store.head(data.value)
            if meta is None:
                return Violation(rule="file-missing", says=f"{path} is not there")
            if meta.size != add.size:
                says = f"{path} has {meta.size} bytes, not the {add.size} declared"
                return Violation(rule="file-size", says=says)
        return None

    def _look_ahead(self, table_id: TableId) -> None:
        """Check once that the log is not ahead of the catalog, as after restoring an old copy.

        A file that could be the next version means that the catalog is an older copy. Any other
        file there was written without the catalog, and the publisher will stop at it.
        """
        if table_id in self._looked_ahead:
            return
        while True:
            row = lookup.managed(self._row(table_id))
            if row.state is not TableStatus.ACTIVE:
                return  # the decision refuses it
            content = self._log_of(row.location).read_published(Version(row.head + 1))
            if content is None:
                break
            if self._row(table_id).head != row.head:
                continue  # another process committed and published meanwhile
            if is_next(self._store, row, content):
                raise LogAheadError(
                    f"The log of table {table_id} has version {row.head + 1}, the catalog only "
                    f"{row.head}: the catalog is an older copy."
                )
            _log.error(
                "table %s: version %d in the log was written without the catalog",
                row.id,
                row.head + 1,
            )
            break
        self._looked_ahead[table_id] = row.location


def refuse_if_too_large(proposal: Proposal, inline_limit_bytes: int) -> None:
    """Raise if a proposal is empty, malformed or above a limit."""
    if not proposal.parts:
        raise InvalidArgumentError(f"Transaction {proposal.txn_id} proposes nothing.")
    if not proposal.txn_id or len(proposal.txn_id) > 255:
        raise InvalidArgumentError("A txnId has 1 to 255 characters.")
    if len(proposal.parts) > TRANSACTION_TABLES:
        raise TooLargeError(
            f"Transaction {proposal.txn_id} writes {len(proposal.parts)} tables; "
            f"{TRANSACTION_TABLES} are the limit."
        )
    if len({part.table_id for part in proposal.parts}) < len(proposal.parts):
        raise InvalidArgumentError(
            f"Transaction {proposal.txn_id} has two parts for one table.",
            remedy="Fold them into one commit.",
        )
    sizes = [
        len(part.content.actions) for part in proposal.parts if isinstance(part.content, Inline)
    ]
    if max(sizes, default=0) > inline_limit_bytes:
        raise TooLargeError(
            f"An inline commit of {max(sizes)} bytes; {inline_limit_bytes} are the limit."
        )
    if sum(sizes) > TRANSACTION_LIMIT_BYTES:
        raise TooLargeError(
            f"{sum(sizes)} bytes of inline commits; {TRANSACTION_LIMIT_BYTES} are "
            "the limit for a transaction."
        )


def _inline_part(part: Part) -> ExaminedPart:
    assert isinstance(part.content, Inline)
    _refuse_version_zero(part)
    examined = examination.examine(part.content)
    return ExaminedPart(part.table_id, part.version, Way.INLINE, examined)


def _staged_part(
    part: Part, staged: Staged, content: bytes, modified_ms: int, *, is_kept: bool
) -> ExaminedPart:
    return ExaminedPart(
        part.table_id,
        part.version,
        Way.STAGED,
        examination.examine_file(content, staged.size),
        file_name=staged.file_name,
        size=len(content),
        sha256=hashlib.sha256(content).digest(),
        modified_ms=modified_ms,
        content=content if is_kept else None,
    )


def _refuse_version_zero(part: Part) -> None:
    if part.version < 1:
        raise _invalid(part, "version", f"version {part.version} cannot be proposed")


def _invalid(part: Part, rule: str, says: str) -> InvalidCommitError:
    return InvalidCommitError(part.table_id, [Violation(rule=rule, says=says)])
