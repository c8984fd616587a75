"""The world with HTTP between its clients and its catalog: no socket, and everything else."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from headgate.catalog.service import Catalog
from headgate.client.remote import RemoteCatalog
from headgate.http import app
from headgate.http.server import Server
from tests.kit.asgi import AsgiTransport
from tests.kit.world import World


class ServedWorld(World):
    """A world whose catalog is behind an application in the same process."""

    def open(self) -> None:
        super().open()
        assert isinstance(self.catalog, Catalog)
        server = Server(
            catalog=self.catalog, settings=self.settings, clock=self.clock, ids=self.ids
        )
        transport = AsgiTransport(app.Application(server))
        self._running = ExitStack()
        self._running.enter_context(transport.running())
        self._remote = RemoteCatalog(
            "http://world", clock=self.clock, ids=self.ids, sender=transport
        )

    def leave(self) -> None:
        self._running.close()
        super().leave()

    @property
    def door(self) -> Any:
        return _Door(self._remote, self.catalog)


class _Door:
    """The way over HTTP; to the catalog itself for what only its own process can ask."""

    def __init__(self, remote: RemoteCatalog, catalog: object) -> None:
        self._remote = remote
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote if hasattr(self._remote, name) else self._catalog, name)
