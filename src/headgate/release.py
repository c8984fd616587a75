"""Which release of Headgate this is."""

from __future__ import annotations

from functools import cache


@cache
def version() -> str:
    """Give the version that is installed."""
    import importlib.metadata  # a tenth of a server's start, which does without

    return importlib.metadata.version("headgate")
