"""Damaged checkpoints, compactions and checksums are found, and forgotten by a repair."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from headgate.api.messages import Finding, Severity
from headgate.errors import UnavailableError
from headgate.protocol.actions import TableId, Version
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import (
    LAST_CHECKPOINT,
    LOG,
    SIDECARS,
    STAGED,
    Checksum,
    ClassicCheckpoint,
    Compaction,
    MultipartCheckpoint,
    PublishedCommit,
)
from headgate.storage import locations
from headgate.table.checkpoint_writer import CheckpointForm, write_checkpoint
from headgate.table.log_files import DeltaLog
from headgate.table.snapshot_loader import load
from tests.catalog.conftest import House
from tests.kit import shows
from tests.kit.builders import START_MS, add

Harm = Callable[[Path], object]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


HARMS = pytest.mark.parametrize("harm", [Path.unlink, cut, empty])


def findings(house: House, *, repair: bool = False) -> list[Finding]:
    """Return what fsck finds, without the data files: these commits name none that exist."""
    return [
        finding
        for finding in house.catalog.fsck(repair=repair)
        if finding.severity is not Severity.NOTE and finding.rule != "data-file"
    ]


def on_disk(house: House, table_id: TableId, path: str) -> Path:
    found = house.log(table_id).store.local_path(path)
    assert found is not None
    return Path(found)


def published_table(house: House, *, commits: int = 4) -> TableId:
    table_id = house.create(features=("v2Checkpoint",)).table_id
    for version in range(1, commits + 1):
        house.clock.ms += 1
        house.propose(table_id, version, add(f"{version}.parquet"))
    house.catalog.publish(table_id)
    return table_id


def checkpoint(
    house: House,
    table_id: TableId,
    version: int,
    form: CheckpointForm = CheckpointForm.CLASSIC,
    *,
    is_reported: bool = True,
) -> KnownFile:
    snapshot = load(
        house.catalog, table_id, version=Version(version), store_for=locations.store_for
    )
    written = write_checkpoint(
        snapshot.store,
        snapshot.state,
        table="t",
        now_ms=house.clock.ms,
        new_uuid=uuid4,
        form=form,
        files_per_sidecar=2,
    )
    if is_reported:
        house.catalog.add_file(table_id, written)
    return written


def age(house: House, table_id: TableId) -> None:
    """Make all files of a log older than what may still be being written."""
    for path in on_disk(house, table_id, LOG).rglob("*"):
        os.utime(path, (0, START_MS / 1000 - 86_400))


def number_of_files(house: House, table_id: TableId, version: int) -> int:
    return load(
        house.catalog, table_id, version=Version(version), store_for=locations.store_for
    ).num_files


@pytest.mark.parametrize("version", [1, 3, 4])
def test_an_altered_commit_is_found_wherever_the_newest_checkpoint_is(
    inline_lake: House, version: int
) -> None:
    lake = inline_lake
    table_id = published_table(lake)
    checkpoint(lake, table_id, 3)
    on_disk(lake, table_id, PublishedCommit(Version(version)).path).write_bytes(b"{}\n")
    assert [(f.rule, f.severity, f.version) for f in findings(lake) if f.rule == "S10"] == [
        ("S10", Severity.ERROR, version)
    ]


@pytest.mark.parametrize(
    ("form", "harm"),
    [
        (CheckpointForm.CLASSIC, Path.unlink),
        (CheckpointForm.V2, cut),
        (CheckpointForm.V2_JSON, empty),
    ],
)
def test_a_damaged_checkpoint_is_found_and_forgotten_by_a_repair(
    lake: House, form: CheckpointForm, harm: Harm
) -> None:
    table_id = published_table(lake)
    older = checkpoint(lake, table_id, 2)
    newer = checkpoint(lake, table_id, 4, form)
    assert findings(lake) == []
    harm(on_disk(lake, table_id, newer.paths[0]))
    [finding] = findings(lake)
    assert (finding.rule, finding.severity, finding.version, finding.path) == (
        "checkpoint",
        Severity.WARNING,
        4,
        newer.paths[0],
    )
    assert "--repair" in finding.remedy
    assert lake.catalog.resolve(table_id).checkpoint == newer  # checking changes nothing
    assert [(f.rule, f.version, f.repaired) for f in findings(lake, repair=True)] == [
        ("checkpoint", 4, True),
        ("last-checkpoint", 4, True),
    ]
    assert lake.catalog.resolve(table_id).checkpoint == older
    assert findings(lake) == []
    assert number_of_files(lake, table_id, 4) == 4
    # Its name is free again.
    again = checkpoint(lake, table_id, 4, form)
    assert lake.catalog.resolve(table_id).checkpoint == again
    assert findings(lake) == []


@HARMS
@pytest.mark.parametrize("form", [CheckpointForm.V2, CheckpointForm.V2_JSON])
def test_a_damaged_sidecar_is_damage_to_its_checkpoint(
    inline_lake: House, form: CheckpointForm, harm: Harm
) -> None:
    table_id = published_table(inline_lake)
    head = checkpoint(inline_lake, table_id, 4, form)
    sidecars = sorted(on_disk(inline_lake, table_id, SIDECARS).iterdir())
    assert len(sidecars) > 1
    harm(sidecars[-1])
    [finding] = findings(inline_lake)
    assert (finding.rule, finding.path) == ("checkpoint", head.paths[0])
    assert sidecars[-1].name in finding.says or harm is not Path.unlink
    findings(inline_lake, repair=True)
    assert inline_lake.catalog.resolve(table_id).checkpoint is None
    assert findings(inline_lake) == []


@HARMS
def test_a_damaged_part_is_damage_to_its_checkpoint(inline_lake: House, harm: Harm) -> None:
    table_id = published_table(inline_lake)
    whole = checkpoint(inline_lake, table_id, 4, is_reported=False)
    rows = pq.read_table(on_disk(inline_lake, table_id, whole.paths[0]))
    on_disk(inline_lake, table_id, whole.paths[0]).unlink()
    parts = [MultipartCheckpoint(Version(4), part, 2) for part in (1, 2)]
    half = rows.num_rows // 2
    for part, some in zip(parts, (rows[:half], rows[half:]), strict=True):
        pq.write_table(some, on_disk(inline_lake, table_id, part.path))
    file = KnownFile(
        kind=FileKind.CHECKPOINT,
        first=Version(4),
        last=Version(4),
        paths=tuple(part.path for part in parts),
    )
    inline_lake.catalog.add_file(table_id, file)
    assert findings(inline_lake) == []
    harm(on_disk(inline_lake, table_id, parts[1].path))
    assert [(f.rule, f.version) for f in findings(inline_lake)] == [("checkpoint", 4)]
    findings(inline_lake, repair=True)
    assert inline_lake.catalog.resolve(table_id).checkpoint is None
    assert findings(inline_lake) == []


@pytest.mark.parametrize("harm", [Path.unlink, cut])
def test_a_damaged_checkpoint_whose_commits_are_gone_stays_an_error(
    lake: House, harm: Harm
) -> None:
    table_id = published_table(lake)
    file = checkpoint(lake, table_id, 4)
    log = lake.log(table_id)
    for staged in list(log.store.list(STAGED)):
        log.store.delete(staged.path)
    log.store.delete(PublishedCommit(Version(1)).path)  # cleaned out of the log
    assert findings(lake) == []
    path = on_disk(lake, table_id, file.paths[0])
    content = path.read_bytes()
    harm(path)
    for repair in (False, True):
        [finding] = [f for f in findings(lake, repair=repair) if f.rule == "checkpoint"]
        assert (finding.severity, finding.repaired) == (Severity.ERROR, False)
        assert "backup" in finding.remedy
        assert lake.catalog.resolve(table_id).checkpoint == file
    path.write_bytes(content)
    assert findings(lake) == []


def test_an_altered_commit_is_not_taken_for_what_a_checkpoint_covers(inline_lake: House) -> None:
    table_id = published_table(inline_lake)
    file = checkpoint(inline_lake, table_id, 4)
    inline_lake.database._ratifier.submit(
        table_id, lambda unit: unit.delete_content(key_of(inline_lake, table_id), Version(4))
    ).result()
    on_disk(inline_lake, table_id, PublishedCommit(Version(1)).path).write_bytes(b"{}\n")
    cut(on_disk(inline_lake, table_id, file.paths[0]))
    [finding] = [f for f in findings(inline_lake, repair=True) if f.rule == "checkpoint"]
    assert (finding.severity, finding.repaired) == (Severity.ERROR, False)


def key_of(house: House, table_id: TableId) -> int:
    with house.database._store.read() as unit:
        row = unit.table(table_id)
    assert row is not None
    return row.key


def test_checkpoints_that_were_cleaned_away_with_their_commits_are_no_finding(
    lake: House,
) -> None:
    table_id = published_table(lake)
    older = checkpoint(lake, table_id, 1)
    checkpoint(lake, table_id, 3)
    for path in (older.paths[0], *(PublishedCommit(Version(v)).path for v in (0, 1))):
        on_disk(lake, table_id, path).unlink()
    assert findings(lake) == []
    assert findings(lake, repair=True) == []


@pytest.mark.parametrize("harm", [Path.unlink, cut])
@pytest.mark.parametrize("kind", [FileKind.COMPACTION, FileKind.CHECKSUM])
def test_a_damaged_compaction_or_checksum_is_found_and_forgotten(
    lake: House, kind: FileKind, harm: Harm
) -> None:
    table_id = published_table(lake)
    log = lake.log(table_id)
    if kind is FileKind.COMPACTION:
        path, first = Compaction(Version(1), Version(4)).path, Version(1)
        lines = [log.read(PublishedCommit(Version(v)).path) for v in range(1, 5)]
        content = b"".join(
            line + b"\n" for text in lines for line in text.splitlines() if b'"add"' in line
        )
    else:
        path, first = Checksum(Version(4)).path, Version(4)
        content = b'{"tableSizeBytes":4,"numFiles":4,"numMetadata":1,"numProtocol":1}'
    log.store.put(path, content)
    file = KnownFile(kind=kind, first=first, last=Version(4), paths=(path,))
    lake.catalog.add_file(table_id, file)
    with lake.database._store.read() as unit:
        assert unit.all_files(key_of(lake, table_id)) == [file]
    harm(on_disk(lake, table_id, path))
    # Half of the compaction can be read, and readers get wrong rows.
    severity = Severity.ERROR if harm is cut and kind is FileKind.COMPACTION else Severity.WARNING
    assert (kind.value, severity, path) in [(f.rule, f.severity, f.path) for f in findings(lake)]
    assert [(f.rule, f.repaired) for f in findings(lake, repair=True)] == [(kind.value, True)]
    with lake.database._store.read() as unit:
        assert unit.all_files(key_of(lake, table_id)) == []
    assert findings(lake) == []
    assert number_of_files(lake, table_id, 4) == 4


@shows("FP14")
def test_a_hint_at_a_missing_checkpoint_is_found_in_every_catalog(house: House) -> None:
    table_id = published_table(house)
    hint = on_disk(house, table_id, LAST_CHECKPOINT)
    hint.write_text(json.dumps({"version": 3, "size": 7}))
    [finding] = findings(house)
    assert (finding.rule, finding.version, finding.path) == ("last-checkpoint", 3, LAST_CHECKPOINT)
    assert [f.repaired for f in findings(house, repair=True) if f.rule == finding.rule] == [True]
    assert not hint.exists()
    assert findings(house) == []


def test_a_damaged_checkpoint_that_no_catalog_knows_is_found_once_it_is_not_fresh(
    house: House,
) -> None:
    table_id = published_table(house)
    path = on_disk(house, table_id, checkpoint(house, table_id, 3, is_reported=False).paths[0])
    cut(path)
    assert findings(house) == []  # it may still be being written
    age(house, table_id)
    assert [(f.rule, f.version) for f in findings(house)] == [("checkpoint", 3)]
    findings(house, repair=True)
    assert not path.exists()
    assert findings(house) == []
    assert number_of_files(house, table_id, 4) == 4


def test_a_fresh_checkpoint_of_another_engine_is_no_finding(house: House) -> None:
    table_id = published_table(house)
    checkpoint(house, table_id, 3, is_reported=False)
    assert findings(house) == []


def test_a_damaged_checkpoint_above_the_latest_version_is_reported_as_that_alone(
    inline_lake: House,
) -> None:
    table_id = published_table(inline_lake)
    inline_lake.log(table_id).store.put(ClassicCheckpoint(Version(9)).path, b"PAR1")
    age(inline_lake, table_id)
    assert [f.rule for f in findings(inline_lake)] == ["S14"]


def test_forgetting_a_checkpoint_cut_short_goes_on_when_it_is_called_again(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_id = published_table(inline_lake)
    cut(on_disk(inline_lake, table_id, checkpoint(inline_lake, table_id, 4).paths[0]))

    def refuse(*_: object) -> str | None:
        raise UnavailableError("The storage cannot be written.")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "set_aside", refuse)
        with pytest.raises(UnavailableError):
            findings(inline_lake, repair=True)
    inline_lake.restart()
    age(inline_lake, table_id)
    assert [(f.rule, f.repaired) for f in findings(inline_lake, repair=True)] == [
        ("checkpoint", True),
        ("last-checkpoint", True),
    ]
    assert findings(inline_lake) == []
