"""The process of one side: `python -m bench.worker MODULE:FUNCTION`.

Reads its arguments as a line of JSON, then one empty line for each alternation, and answers each
with a line of JSON. A function that is a generator is set up once and goes on at each alternation;
any other is called anew.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from collections.abc import Iterator

from bench.watch import Seen, Watch


def main(name: str) -> None:
    """Serve alternations until nobody asks any more."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whoever prints must not disturb the answers
    module, _, function = name.partition(":")
    side = getattr(importlib.import_module(module), function)
    arguments = json.loads(sys.stdin.readline())
    rounds: Iterator[Seen] | None = None
    watch = Watch()
    for _ in sys.stdin:
        watch.begin()
        if inspect.isgeneratorfunction(side):
            rounds = rounds or side(watch, **arguments)
            seen = next(rounds)
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
    if rounds is not None:
        rounds.close()  # type: ignore[attr-defined]  # it is a generator


if __name__ == "__main__":
    main(sys.argv[1])
