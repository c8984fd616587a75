"""The schemas of the databases, as scripts that each lead from one version to the next."""

from collections.abc import Mapping
from functools import cache
from importlib import resources


@cache
def scripts(database: str) -> Mapping[int, str]:
    """Return the scripts of a kind of database, by the version that each leads to."""
    folder = resources.files(__name__) / database
    return {int(script.name[:4]): script.read_text("utf-8") for script in folder.iterdir()}
