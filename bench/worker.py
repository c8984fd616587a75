"""The process of one side or several: `python -m bench.worker`.

Reads a line of JSON for each alternation, with the side, its function and its arguments, and
answers each with a line of JSON. A function that is a generator is set up once for each side and
continues at each alternation; any other function is called again.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from collections.abc import Generator
from typing import Any

from bench.watch import Seen, Watch


def main() -> None:
    """Run alternations until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # prints of sides must not disturb the answers
    rounds: dict[str, Generator[Seen, None, None]] = {}
    watches: dict[str, Watch] = {}
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        name, arguments = asked["side"], asked["arguments"]
        module, _, function = asked["function"].partition(":")
        side = getattr(importlib.import_module(module), function)
        watch = watches.setdefault(name, Watch())
        watch.begin()
        if inspect.isgeneratorfunction(side):
            if name not in rounds:
                rounds[name] = side(watch, **arguments)
            seen = next(rounds[name])
        else:
            seen = side(watch, **arguments)
        answer = {
            "samples": watch.samples,
            "laps": watch.laps,
            "cpu": watch.cpu,
            "peak_rss": watch.peak_rss,
            "facts": watch.facts,
            "worst": watch.worst,
            "seen": dataclasses.asdict(seen),
        }
        print(json.dumps(answer), file=answers, flush=True)
    for going in rounds.values():
        going.close()


if __name__ == "__main__":
    main()
