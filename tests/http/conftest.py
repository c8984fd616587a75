"""The application in process, on a catalog of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate._connect import embedded_catalog
from headgate.catalog.service import Catalog
from headgate.client.remote import RemoteCatalog
from headgate.clock import RandomIds, SystemClock
from headgate.http import app
from headgate.http.auth import Tokens
from headgate.http.server import PROPOSERS, Server
from headgate.settings import Settings
from tests.kit.asgi import AsgiTransport


@dataclass
class Served:
    """A server without a socket, and those who speak to it."""

    server: Server
    transport: AsgiTransport
    http: httpx.Client

    @property
    def catalog(self) -> Catalog:
        return self.server.catalog

    def remote(self, **how: Any) -> RemoteCatalog:
        """Connect a client to the application."""
        return RemoteCatalog(
            "http://testserver",
            clock=SystemClock(),
            ids=RandomIds(),
            sender=self.transport,
            **how,
        )

    def problem(self, response: httpx.Response) -> dict[str, Any]:
        """Read a problem document, and hold its form."""
        assert response.headers["content-type"] == "application/problem+json"
        body: dict[str, Any] = response.json()
        assert body["status"] == response.status_code
        assert body["code"]
        assert body["detail"]
        return body


def serving(
    lake: Path | str,
    settings: Settings | None = None,
    *,
    auth: bool = False,
    publisher: bool = False,
) -> Iterator[Served]:
    settings = settings or Settings(verify_staged=0)
    clock = SystemClock()
    ids = RandomIds(clock)
    catalog = embedded_catalog(
        str(lake),
        settings=settings,
        publisher=publisher,
        clock=clock,
        ids=ids,
        proposers=PROPOSERS,
    )
    catalog.add_location("file:///elsewhere")
    tokens = Tokens(catalog.principal_of, clock) if auth else None
    server = Server(catalog=catalog, settings=settings, clock=clock, ids=ids, tokens=tokens)
    transport = AsgiTransport(app.Application(server))
    with (
        transport.running(),
        httpx.Client(
            base_url="http://testserver",
            transport=transport,
            timeout=60,
            headers={"content-type": "application/json"},
        ) as http,
    ):
        yield Served(server, transport, http)
    catalog.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    yield from serving(tmp_path / "lake")
