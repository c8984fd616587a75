"""`python -m bench.empty --port N`: an application that does nothing, served as ours is.

It reads the body and answers as long an answer as a commit gets, in either API. What a load
generator reaches here is the most it can reach anywhere.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.server import serve
from headgate.http.asgi import Receive, Scope, Send

_ANSWER = b'{"version":1,"timestampMs":0,"content":"%s"}' % (b"x" * 1_400)
_HEADERS = [
    (b"content-length", str(len(_ANSWER)).encode()),
    (b"content-type", b"application/json"),
]


class Application:
    """Gives the same answer to every request."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            while (await receive()).get("more_body", False):
                pass
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": _ANSWER})


if __name__ == "__main__":
    serve(Application, int(sys.argv[-1]))
