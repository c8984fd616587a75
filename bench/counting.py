"""System calls of one side between the beginning and the end of its samples, by `strace`."""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bench.harness import PATHS, ROOT, Side, SideError, question
from bench.watch import BEGIN, END

MISSING = "not run: strace is missing"
KINDS = ("create", "link", "unlink", "open", "look", "LIST", "sync file", "sync folder")

_CALLS = (
    "openat,open,creat,link,linkat,rename,renameat,renameat2,unlink,unlinkat,"
    "stat,lstat,newfstatat,statx,access,faccessat,faccessat2,fsync,fdatasync,sync_file_range"
)
_LINE = re.compile(r"^(?:\d+\s+)?(?P<call>\w+)\((?P<arguments>.*)$")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_DESCRIPTOR = re.compile(r"^\d+<([^>]*)>")
_LOOKS = {"stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2"}


def is_available() -> bool:
    """Return True if calls can be counted on this machine."""
    return shutil.which("strace") is not None


def count(side: Side, below: Path, per: int = 1) -> dict[str, float]:
    """Run a side once under `strace` and count its calls below a folder, for one of `per`."""
    if side.reset is not None:
        side.reset()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        done = subprocess.run(
            [
                *("strace", "-f", "-y", "-s", "4096", "-e", f"trace={_CALLS}", "-o", str(trace)),
                *(sys.executable, "-W", "ignore", "-m", "bench.worker"),
            ],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": PATHS, "HEADGATE_BENCH_MARKS": "1"},
            input=question(side),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            errors = done.stderr.strip().splitlines()
            raise SideError(f"{side.name} died: {errors[-1] if errors else done.returncode}")
        counted = tally(trace.read_text(errors="replace").splitlines(), below)
    return {kind: number / per for kind, number in counted.items()}


def tally(lines: Iterable[str], below: Path) -> dict[str, int]:
    """Count the calls of a trace that are between the marks and below a folder, by kind."""
    counted = collections.Counter[str]()
    is_counting = False
    folders: set[str] = set()
    for line in lines:
        match = _LINE.match(line)
        if match is None:  # a call resumed was counted when it began
            continue
        call, arguments = match["call"], match["arguments"]
        paths = _TEXT.findall(arguments) if call not in _SYNCS else _DESCRIPTOR.findall(arguments)
        if call in _LOOKS and BEGIN in paths:
            is_counting = True
        elif call in _LOOKS and END in paths:
            is_counting = False
        elif any(Path(path).is_relative_to(below) for path in paths):
            folders.update(path for path in paths if Path(path).is_dir())
            if is_counting:
                counted[_kind(call, arguments, folders.intersection(paths))] += 1
    return {kind: counted[kind] for kind in KINDS}


_SYNCS = {"fsync", "fdatasync", "sync_file_range"}


def _kind(call: str, arguments: str, folders: Iterable[str]) -> str:
    if call in _LOOKS:
        return "look"
    if call in _SYNCS:
        return "sync folder" if any(folders) else "sync file"
    if call.startswith(("link", "rename")):
        return "link"
    if call.startswith("unlink"):
        return "unlink"
    if call == "creat" or "O_CREAT" in arguments:
        return "create"
    return "LIST" if "O_DIRECTORY" in arguments else "open"
