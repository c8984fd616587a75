"""deltalake, the Python binding of delta-rs, as it comes: opened by path, on a plain log."""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable, write_deltalake

from bench.disk import sync
from bench.watch import Seen, fingerprint

NAME = "deltalake"
REQUIRES = "deltalake==1.6.6"

__all__ = [
    "DeltaTable",
    "forget_timestamps",
    "seen",
    "sync_checkpoint",
    "sync_commit",
    "sync_written",
    "write_deltalake",
]


def seen(actions: object) -> Seen:
    """Sum up the files that `get_add_actions` gave."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.table(actions)
    return Seen(
        rows=table.num_rows,
        checksum=fingerprint(table["path"].to_pylist()),
        records=pc.sum(table["num_records"]).as_py(),
    )


def forget_timestamps(log: Path) -> None:
    """Take in-commit timestamps out of a log: deltalake writes no table that has them."""
    for path in log.glob("[0-9]*.json"):
        actions = [json.loads(line) for line in path.read_bytes().splitlines()]
        for action in actions:
            if "protocol" in action:
                features = action["protocol"]["writerFeatures"]
                features.remove("inCommitTimestamp")
            if "metaData" in action:
                del action["metaData"]["configuration"]["delta.enableInCommitTimestamps"]
        content = "".join(json.dumps(action) + "\n" for action in actions)
        path.unlink()  # it may be a link to the one it was copied from
        path.write_text(content)


def sync_written(root: Path, version: int) -> None:
    """Make a commit that deltalake wrote outlive a power loss, which it leaves to chance."""
    log = root / "_delta_log"
    commit = log / f"{version:020d}.json"
    actions = map(json.loads, commit.read_bytes().splitlines())
    files = [root / action["add"]["path"] for action in actions if "add" in action]
    sync([*files, root, commit, log])


def sync_commit(root: Path, version: int) -> None:
    """Make a commit of files that were there before outlive a power loss."""
    log = root / "_delta_log"
    sync([log / f"{version:020d}.json", log])


def sync_checkpoint(log: Path, version: int) -> None:
    """Make a checkpoint that deltalake wrote outlive a power loss."""
    sync([log / f"{version:020d}.checkpoint.parquet", log / "_last_checkpoint", log])
