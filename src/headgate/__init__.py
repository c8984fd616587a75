"""Headgate: a catalog for Delta Lake tables."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate import errors
    from headgate._connect import connect, open
    from headgate.api.events import Event, Listener
    from headgate.client.open_transaction import Transaction
    from headgate.client.session import Session
    from headgate.client.table import Table

__all__ = ["Event", "Listener", "Session", "Table", "Transaction", "connect", "errors", "open"]

_MODULES = {
    "Event": "headgate.api.events",
    "Listener": "headgate.api.events",
    "Session": "headgate.client.session",
    "Table": "headgate.client.table",
    "Transaction": "headgate.client.open_transaction",
    "connect": "headgate._connect",
    "open": "headgate._connect",
}


def __dir__() -> list[str]:
    """List the public names, including those not loaded yet."""
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that importing Headgate loads no large library."""
    if name == "errors":
        return import_module("headgate.errors")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'headgate' has no attribute {name!r}")
