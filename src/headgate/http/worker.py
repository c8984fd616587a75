"""A worker process serves an application on a listening socket until it receives a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable

import uvloop

from headgate.http.asgi import Application
from headgate.http.connection import HttpListener, Limits

BACKLOG = 2_048  # connections that the system queues until they are accepted


def run(
    listening: socket.socket,
    create: Callable[[], Application],
    limits: Limits,
    *,
    tls: ssl.SSLContext | None = None,
    stop_s: float,
) -> None:
    """Serve until SIGTERM or SIGINT, then answer the requests that were received.

    Ends after `stop_s` seconds at the latest.
    """

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        app = create()
        async with app.running():
            listener = HttpListener(app, limits, "http" if tls is None else "https")
            server = await loop.create_server(
                listener.connect,
                sock=listening,
                backlog=BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else limits.headers_s,
            )
            await stopping.wait()
            server.close()
            await listener.close(stop_s)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
