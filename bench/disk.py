"""Make files durable and delete files, for sides that must do it themselves."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path


def sync(paths: Iterable[Path]) -> None:
    """Make files and folders outlive a power loss."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def data_files(root: Path) -> set[Path]:
    """List the files of a table's folder that are not in its log."""
    inside = (path for path in root.rglob("*") if path.is_file())
    return {path for path in inside if "_delta_log" not in path.relative_to(root).parts}


def sweep(root: Path, kept: Collection[Path]) -> None:
    """Remove new data files, which would fill the disk and the page cache."""
    for path in data_files(root).difference(kept):
        path.unlink()
