"""A pause of the garbage collector while many objects are created, none of them in a cycle.

The collector runs whenever a number of objects was created, in the end over all live objects: in a
process that has loaded some libraries it takes as long as reading thousands of commits.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Turn the garbage collector off, for the whole process, until the block ends.

    If it is off already it stays off. Of several threads the first one turns it on again, which is
    early for the others and does no harm.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
