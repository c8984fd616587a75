"""The installed release of Headgate."""

from functools import cache


@cache
def version() -> str:
    """Return the installed version."""
    import importlib.metadata  # slow to load: a tenth of the start of a server

    return importlib.metadata.version("headgate")
