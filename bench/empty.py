"""`python -m bench.empty --port N`: an application that does nothing, served as ours is.

It reads the body and answers as long an answer as a commit gets, in either API. What a load
generator reaches here is the most it can reach anywhere.
"""

from __future__ import annotations

import sys

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from bench.server import serve
from bench.unity import API

_ANSWER = b'{"version":1,"timestampMs":0,"content":"%s"}' % (b"x" * 1_400)
_HEADERS = [
    (b"content-length", str(len(_ANSWER)).encode()),
    (b"content-type", b"application/json"),
]


class _Handler:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            while (await receive()).get("more_body", False):
                pass
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": _ANSWER})


def create_app() -> Starlette:
    """Create the application."""
    return Starlette(
        routes=[
            Route("/v1/tables/{tableId}/commits", _Handler(), methods=["POST"]),
            Route(f"{API}/delta/v1/{{table:path}}", _Handler(), methods=["GET", "POST", "DELETE"]),
            Route("/health", _Handler(), methods=["GET"]),
        ]
    )


if __name__ == "__main__":
    serve(create_app, int(sys.argv[-1]))
