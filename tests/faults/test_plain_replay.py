"""The second opinion on a lake can say no: each kind of damage is noticed, and by its name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate.client.session import Session
from headgate.settings import Settings
from tests.kit import plain_replay, shows

LAST = 4  # version; published are those up to 2


def rows(value: int) -> pa.Table:
    return pa.table({"value": pa.array([value], pa.int64())})


@pytest.fixture(params=["inline", "staged"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two versions published and covered by a checkpoint, two that the catalog alone has."""
    settings = Settings(inline_limit_bytes=0 if request.param == "staged" else 1 << 20)
    with headgate.connect(tmp_path / "lake", publisher=False, settings=settings) as session:
        table = session.create_table("t", "value long")
        table.append(rows(1))
        table.overwrite(rows(2))
        table.publish()
        table.checkpoint()
        table.append(rows(3))
        table.set_properties({"note": "x"})
    return tmp_path / "lake"


def opinion(lake: Path) -> None:
    with headgate.connect(lake, publisher=False) as session:
        plain_replay.hold(session, session.table("t").id)


def place(lake: Path) -> Path:
    [folder] = (lake / "tables").iterdir()
    return folder


def commit(lake: Path, version: int) -> Path:
    return place(lake) / "_delta_log" / f"{version:020d}.json"


def other_bytes(lake: Path) -> None:
    file = commit(lake, 1)
    file.write_bytes(file.read_bytes().replace(b'"size"', b'"Size"'))


def checkpoint_too_early(lake: Path) -> None:
    log = place(lake) / "_delta_log"
    shutil.copy(log / f"{2:020d}.checkpoint.parquet", log / f"{LAST:020d}.checkpoint.parquet")


def lost_rows(lake: Path) -> None:
    for file in place(lake).glob("*.parquet"):
        file.unlink()


def torn_rows(lake: Path) -> None:
    for file in place(lake).glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-1])


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "other bytes": (other_bytes, "S10"),
    "a gap": (lambda lake: commit(lake, 1).unlink(), "S11"),
    "not ratified": (lambda lake: shutil.copy(commit(lake, 2), commit(lake, 3)), "S10"),
    "too early a checkpoint": (checkpoint_too_early, "S14"),
    "lost rows": (lost_rows, "S9"),
    "torn rows": (torn_rows, "S9"),
}


@shows("S9", "S10", "S11", "S14")
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_noticed_and_what_is_whole_is_not(lake: Path, damage: str) -> None:
    opinion(lake)
    do, invariant = DAMAGES[damage]
    do(lake)
    with pytest.raises(AssertionError, match=f"^{invariant}:"):
        opinion(lake)


@shows("S16")
@pytest.mark.parametrize("version", [1, 3])
def test_a_snapshot_of_other_files_is_not_the_same(lake: Path, version: int) -> None:
    with headgate.connect(lake, publisher=False) as session:
        state = whole_state(session)
        table = session.table("t")
        plain_replay.same(table.snapshot(), state)
        with pytest.raises(AssertionError, match=r"^S16:"):
            plain_replay.same(table.snapshot(version=version), state)
        state.files.clear()
        with pytest.raises(AssertionError, match=r"^S16:"):
            plain_replay.same(table.snapshot(), state)


def whole_state(session: Session) -> plain_replay.State:
    table = session.table("t")
    table.publish()
    hashes = {entry.commit.version: entry.commit.sha256 for entry in table.log()}
    folder = Path(table.location.removeprefix("file://"))
    return plain_replay.replayed(folder, dict(hashes), {})
