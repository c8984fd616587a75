"""What a publisher reads from the store and writes to it: tails, leases, what was published.

All of a round is read together, leased in one change of the store and recorded in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

from headgate.catalog import lease_holders
from headgate.catalog.component import Component, Shared
from headgate.catalog.stores.rows import Publication, TableRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.failpoints import fail_point
from headgate.protocol.actions import TableId, Version
from headgate.table.publish_round import TailPart, UnpublishedCommit

ROUND_COMMITS: Final = 4_096
ROUND_BYTES: Final = 32 << 20  # about; the content of the commits of a round
_SURELY_SMALL: Final = 16  # commits of a table, which need not be measured
_STALLED_S = 2.0  # without progress, until a lease of another publisher is ignored
_PUBLISHING: Final = "publishing"


class RoundOutcome(NamedTuple):
    """How far a table is published after a round, and why it cannot go on."""

    row: TableRow  # as of before the round
    published: Version
    diverged: str | None = None


class Tails(Component):
    """A publisher's access to the store."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        # Since when another holder has a lease without progress, and the published version then.
        self._refused: dict[TableId, tuple[float, Version]] = {}

    def unpublished(self) -> set[TableId]:
        """Return the tables with unpublished commits that can be published."""
        with self._store.read() as unit:
            return {row.id for row in unit.unpublished_tables() if row.diverged is None}

    def take(
        self, table_ids: Iterable[TableId]
    ) -> tuple[dict[TableId, TableRow], dict[TableId, TableRow]]:
        """Acquire the leases of tables; return those held, and those that others publish.

        Leases without progress are ignored: a holder may have died, and may have had a clock that
        was ahead. Tables that do not exist are left out.
        """
        held, refused = self._acquire(table_ids, {})
        if refused and (gone := self._gone_holders(refused)):
            more, _ = self._acquire(gone, gone)
            held |= more
        now = self._clock.monotonic()
        for table_id in held:
            self._refused.pop(table_id, None)
        for table_id, row in refused.items():
            since, stood_at = self._refused.setdefault(table_id, (now, row.published))
            if stood_at != row.published:
                self._refused[table_id] = now, row.published
            elif now - since > _STALLED_S:
                held[table_id] = row
        return held, {key: row for key, row in refused.items() if key not in held}

    def parts(
        self, rows: Iterable[TableRow], upto: Mapping[TableId, Version | None]
    ) -> tuple[list[TailPart], list[TableId]]:
        """Read the first unpublished commits of tables, each up to a version or its latest.

        No more together than a round may have; returns the tables of which a part was left out.
        """
        parts: list[TailPart] = []
        cut: list[TableId] = []
        commits_left, bytes_left = ROUND_COMMITS, ROUND_BYTES
        with self._store.read_latest() as unit:
            for row in rows:
                wanted = upto.get(row.id)
                target = row.head if wanted is None else wanted
                first = Version(row.published + 1)
                most = min(self._settings.publish_batch, commits_left)
                last = Version(min(target, row.published + most))
                if bytes_left <= 0 or last < first:
                    cut.insert(0, row.id)  # it is the first of the next round
                    continue
                if last - first >= _SURELY_SMALL:
                    last = unit.last_version_within(row.key, first, last, bytes_left)
                unpublished: list[UnpublishedCommit] = []
                for one in unit.commits(row.key, first, last, content=True):
                    if unpublished and one.size > bytes_left:  # large ones are only in files
                        break
                    bytes_left -= one.size
                    unpublished.append(
                        UnpublishedCommit(one.version, one.sha256, one.file_name, one.content)
                    )
                commits_left -= len(unpublished)
                parts.append(TailPart(row.id, row.location, tuple(unpublished)))
                if unpublished[-1].version < target:
                    cut.append(row.id)
        return parts, cut

    def record(self, outcomes: Sequence[RoundOutcome], *, release: bool) -> dict[TableId, TableRow]:
        """Record the results of a round, and release the leases; return the tables afterwards."""
        fail_point("publisher.before_record")
        now_ms = self._clock.now_ms()
        publications = {
            row.id: Publication(row.key, Version(row.published + 1), published, now_ms)
            for row, published, _ in outcomes
            if row.published < published
        }
        if publications:
            self._ratifier.record(publications).result()
        if release or any(one.diverged is not None for one in outcomes):
            self._ratifier.submit(_PUBLISHING, partial(self._end, outcomes, release)).result()
        fail_point("publisher.after_record")
        before = {one.row.id: one.row for one in outcomes}
        with self._store.read_latest() as unit:  # another publisher may have got further
            return before | {row.id: row for row in unit.tables_by_id(before)}

    def _end(self, outcomes: Sequence[RoundOutcome], release: bool, unit: WriteUnit) -> None:
        for one in outcomes:
            if one.diverged is not None:
                unit.set_diverged(one.row.key, one.diverged)
        if release:
            unit.release_leases([lease_of(one.row.id) for one in outcomes], self._holder)

    def release(self, table_ids: Iterable[TableId]) -> Future[None]:
        """Release leases, without waiting for the store."""
        leases = [lease_of(table_id) for table_id in table_ids]
        return self._ratifier.submit(
            _PUBLISHING, lambda unit: unit.release_leases(leases, self._holder)
        )

    def _acquire(
        self, table_ids: Iterable[TableId], gone: Mapping[TableId, str]
    ) -> tuple[dict[TableId, TableRow], dict[TableId, TableRow]]:
        wanted = [*table_ids]
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._settings.lease_ms

        def acquire(unit: WriteUnit) -> tuple[dict[TableId, TableRow], dict[TableId, TableRow]]:
            for table_id, holder in gone.items():
                unit.release_lease(lease_of(table_id), holder)
            rows = {row.id: row for row in unit.tables_by_id(wanted)}
            leases = [lease_of(table_id) for table_id in rows]
            taken = unit.acquire_leases(leases, self._holder, now_ms, until_ms)
            held = {key: row for key, row in rows.items() if lease_of(key) in taken}
            return held, {key: row for key, row in rows.items() if key not in held}

        return self._ratifier.submit(_PUBLISHING, acquire).result()

    def _gone_holders(self, table_ids: Iterable[TableId]) -> dict[TableId, str]:
        """Return the holders of leases whose processes have ended."""
        with self._store.read_latest() as unit:
            holders = {table_id: unit.lease_holder(lease_of(table_id)) for table_id in table_ids}
        return {
            table_id: holder
            for table_id, holder in holders.items()
            if holder is not None and lease_holders.is_gone(holder)
        }


def lease_of(table_id: TableId) -> str:
    """Return the name of the lease for publishing a table."""
    return f"publish:{table_id}"
