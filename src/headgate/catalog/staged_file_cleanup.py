"""Deletion of old staged files that are not part of a commit.

A file's name contains the only version it can become (CM-02). If another commit has that version,
the file can never be ratified: it is deleted after a while, since its writer may still read it. A
file of a later version may be proposed at any moment, so its age alone does not decide: it is
abandoned in the catalog first, by the thread that decides proposals, and deleted after that. A
concurrent proposal either was first, and its file stays, or is rejected. This needs no clock.

The work of one run is bounded; the next run continues where it stopped. Spec: MN-02.
"""

from __future__ import annotations

import heapq
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headgate.api.messages import Rejected
from headgate.catalog.component import Component
from headgate.catalog.decider import ABANDONED, file_key
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import CommitRow, RejectionRow, TableRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import HeadgateError
from headgate.failpoints import fail_point
from headgate.names import TableName
from headgate.protocol.actions import TxnId, Version
from headgate.protocol.commit.examination import Violation
from headgate.protocol.encoding import to_json
from headgate.protocol.paths import STAGED, StagedCommit, parse_staged_name
from headgate.protocol.table_states import TableKind, TableStatus
from headgate.table.log_files import DeltaLog

_log = logging.getLogger(__name__)
_PLACE = "staged_swept"  # the setting with the place where the last run stopped
_TABLES = 1_000  # listed in a run
_FILES = 100_000  # compared with the catalog in a run
_DELETED = 1_000  # in a run
_NEAR = 64  # versions no further apart than this are read together


@dataclass(frozen=True, slots=True)
class _OldFile:
    """An old staged file."""

    commit: StagedCommit
    modified_ms: int

    @property
    def paths(self) -> list[str]:
        """What to delete, with the checksum file of Hadoop's local file system first.

        As long as the file itself exists, an interrupted run finds both again.
        """
        return [f"{STAGED}/.{self.commit.name}.crc", self.commit.path]


@dataclass(slots=True)
class _Turn:
    """The position of a run, and how much it may still do."""

    after: TableName | None  # the last table that is finished
    file: str  # the last file that was checked in the next table
    files: int
    deletions: int

    @property
    def is_over(self) -> bool:
        return self.files <= 0 or self.deletions <= 0


class StagedFileCleaner(Component):
    """Deletes old staged files, one table after the other."""

    def clean(self, is_stopping: Callable[[], bool] = lambda: False) -> int:
        """Do one run; return how many files were deleted."""
        with self._store.read() as unit:
            before = unit.setting(_PLACE) or json.dumps([None, ""])
            after, file = json.loads(before)
            turn = _Turn(after and TableName.parse(after), file, _FILES, _DELETED)
            tables = unit.tables(None, turn.after, _TABLES)
        for row, name, _ in tables:
            if row.kind is TableKind.MANAGED:
                try:
                    self._clean_table(row, turn, is_stopping)
                except HeadgateError as error:  # other tables must not wait for this one's storage
                    _log.warning("cannot clean up staged files of table %s: %s", row.id, error)
            if turn.is_over or is_stopping():
                break
            turn.after, turn.file = name, ""
        else:
            if len(tables) < _TABLES:
                turn.after = None  # from the beginning
        place = json.dumps([turn.after and str(turn.after), turn.file])
        if place != before:
            self._change(_PLACE, lambda unit: unit.set_setting(_PLACE, place))
        return _DELETED - turn.deletions

    def _clean_table(self, row: TableRow, turn: _Turn, is_stopping: Callable[[], bool]) -> None:
        log = self._log_of(row.location)
        # List before reading the catalog: what was ratified until then is recorded there.
        old = heapq.nsmallest(turn.files, self._old(log, turn.file), key=lambda f: f.commit.name)
        turn.files -= len(old)
        while old and not is_stopping():
            some, old = old[: turn.deletions], old[turn.deletions :]
            lost, unproposed = self._classified(row, some)
            if unproposed:
                unproposed = self._given_up(row, log, unproposed)
            self._delete(log, [*lost, *unproposed])
            turn.deletions -= len(lost) + len(unproposed)
            turn.file = some[-1].commit.name
            if turn.is_over:
                return

    def _old(self, log: DeltaLog, after: str) -> Iterator[_OldFile]:
        """Yield the staged files that are old enough to be checked, by the storage's time."""
        settings = self._settings
        before_ms = self._clock.now_ms() - min(settings.lost_kept_ms, settings.unproposed_kept_ms)
        for item in log.store.list(STAGED):
            name = item.path.rpartition("/")[2]
            if name > after and item.modified_ms < before_ms:
                commit = parse_staged_name(name)
                if commit is not None:  # other names are not staged commits
                    yield _OldFile(commit, item.modified_ms)

    def _classified(
        self, row: TableRow, files: list[_OldFile]
    ) -> tuple[list[_OldFile], list[_OldFile]]:
        """Return the due files that lost their version, and those that may still be proposed."""
        lost: list[_OldFile] = []
        unproposed: list[_OldFile] = []
        now_ms = self._clock.now_ms()
        with self._store.read() as unit:
            now = unit.table(row.id)
            if now is None or now.state is not TableStatus.ACTIVE:
                return lost, unproposed
            winners = _winners(unit, now, {file.commit.version for file in files})
        for file in files:
            winner = winners.get(file.commit.version)
            if file.commit.version > now.head:
                if file.modified_ms < now_ms - self._settings.unproposed_kept_ms:
                    unproposed.append(file)
            elif winner is not None and winner.file_name != file.commit.name:
                since_ms = max(file.modified_ms, winner.ratified_ms)
                if since_ms < now_ms - self._settings.lost_kept_ms:
                    lost.append(file)
        return lost, unproposed

    def _given_up(self, row: TableRow, log: DeltaLog, files: list[_OldFile]) -> list[_OldFile]:
        """Abandon files that were never proposed; return those to delete.

        Files that an interrupted run abandoned are returned as well.
        """
        with self._store.read() as unit:
            now = unit.table(row.id)
        if now is None or log.is_published(Version(now.head + 1)):
            return []  # the catalog is an older copy and lacks commits it ratified

        def give_up(unit: WriteUnit) -> list[_OldFile]:
            now = unit.table(row.id)
            if now is None or now.state is not TableStatus.ACTIVE:
                return []
            return [
                file
                for file in files
                if file.commit.version > now.head
                and self._is_given_up(unit, file_key(row.id, file.commit.name))
            ]

        fail_point("housekeeping.before_give_up")
        given_up = self._change(row.id, give_up)
        fail_point("housekeeping.after_give_up")
        return given_up

    def _is_given_up(self, unit: WriteUnit, key: TxnId) -> bool:
        known = unit.rejection(key)
        if known is not None:
            return known.intent == ABANDONED
        violation = Violation(rule="staged-given-up", says="was not proposed for too long")
        answer = to_json(Rejected(txn_id=key, violations=(violation,)))
        unit.insert_rejection(RejectionRow(key, ABANDONED, answer, self._clock.now_ms()))
        return True

    def _delete(self, log: DeltaLog, files: list[_OldFile]) -> None:
        paths = [path for file in files for path in file.paths]
        for path in paths:
            fail_point("housekeeping.between_files")
            log.store.delete(path)
        if paths:
            log.store.sync(paths)


def _winners(unit: ReadUnit, row: TableRow, versions: set[Version]) -> dict[Version, CommitRow]:
    """Return the commits of these versions, reading versions near each other together."""
    found: dict[Version, CommitRow] = {}
    wanted = sorted(version for version in versions if version <= row.head)
    while wanted:
        last = 0
        while last + 1 < len(wanted) and wanted[last + 1] - wanted[last] <= _NEAR:
            last += 1
        for commit in unit.commits(row.key, wanted[0], wanted[last], content=False):
            found[commit.version] = commit
        del wanted[: last + 1]
    return found
