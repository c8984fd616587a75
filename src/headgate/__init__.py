"""Headgate: the catalog every commit of a Delta table passes through."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate import errors
    from headgate._connect import connect, open
    from headgate.api.events import Event, Listener
    from headgate.client.session import Session
    from headgate.client.table import Table

__all__ = ["Event", "Listener", "Session", "Table", "connect", "errors", "open"]

_HOMES = {
    "Event": "headgate.api.events",
    "Listener": "headgate.api.events",
    "Session": "headgate.client.session",
    "Table": "headgate.client.table",
    "connect": "headgate._connect",
    "open": "headgate._connect",
}


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for: importing Headgate costs nothing."""
    if name == "errors":
        return import_module("headgate.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headgate' has no attribute {name!r}")
