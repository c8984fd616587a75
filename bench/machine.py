"""The machine that a result was measured on, without which a number means nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sqlite3
import subprocess
from pathlib import Path

import apsw

from bench.peers import delta_spark, unity_server

_PACKAGES = (
    "headgate",
    "deltalake",
    "duckdb",
    "duckdb-extension-delta",
    "duckdb-extension-ducklake",
    "duckdb-extension-httpfs",
    "duckdb-extension-unity-catalog",
    "pyiceberg",
    "pyarrow",
    "pyspark",
    "apsw",
    "psycopg",
    "httptools",
    "httpx",
)


def describe(place: Path) -> dict[str, str]:
    """Describe machine, disk and versions; `place` is the folder of the data."""
    device, system = _mount(place)
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB",
        "disk": device,
        "file system": system,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
        "sqlite": f"{apsw.sqlite_lib_version()} (catalog), {sqlite3.sqlite_version} (floor)",
        "postgresql": _postgres(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
        "delta-spark": delta_spark.REQUIRES,
        "unity catalog": unity_server.describe(),
        "commit": _commit(),
    }


def load() -> str:
    """Describe how busy the machine is with other work."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _mount(place: Path) -> tuple[str, str]:
    """Return device and file system of the mount of a path."""
    found = ("unknown", "unknown")
    longest = -1
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, point, system, options, *_ = line.split()
        if place.resolve().is_relative_to(point) and len(point) > longest:
            found, longest = (device, f"{system} ({options})"), len(point)
    return found


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    return output.splitlines()[0] if output else "unknown"


def _postgres() -> str:
    from bench.peers.postgres import programs

    found = programs()
    if found is None:
        return "none"
    asked = [str(found / "postgres"), "--version"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    asked = [git, "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
