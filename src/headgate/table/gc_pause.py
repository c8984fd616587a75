"""Many objects made at once, and none of them in a cycle: no time for Python to look for cycles.

It looks each time a number of objects was made, in the end through all there are: for a process
with some libraries loaded that takes as long as reading thousands of commits.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no cycles looked for, in the whole process, until the block is left.

    Whoever finds it switched off leaves it so: of several threads the one that came first switches
    it on again, which is early for the others and does no harm.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
