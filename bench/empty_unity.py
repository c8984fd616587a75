"""`python -m bench.empty_unity FILE --port N`: what our server answered DuckDB, from memory.

The file has the answers by path. Those about the table follow its commits, which are kept in
memory and not checked: the time that DuckDB takes with this server is DuckDB's own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.server import serve
from headgate.http.asgi import Receive, Scope, Send


class _Application:
    def __init__(self, answers: dict[str, Any]) -> None:
        self._tables = {path: answer for path, answer in answers.items() if "commits" in answer}
        self._fixed = {
            path: json.dumps(answer).encode()
            for path, answer in answers.items()
            if path not in self._tables
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        query = scope["query_string"].decode()
        path = f"{scope['path']}?{query}" if query else scope["path"]
        answer = self._answer(path, body if scope["method"] == "POST" else b"")
        headers = [
            (b"content-length", str(len(answer)).encode()),
            (b"content-type", b"application/json"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, path: str, body: bytes) -> bytes:
        table = self._tables.get(path)
        if table is None:
            return self._fixed.get(path, b"{}")
        for update in json.loads(body)["updates"] if body else ():
            if update["action"] == "add-commit":
                table["commits"].insert(0, update["commit"])
                table["latest-table-version"] = update["commit"]["version"]
            elif update["action"] == "set-latest-backfilled-version":
                published = update["latest-published-version"]
                table["commits"] = [c for c in table["commits"] if c["version"] > published]
        return json.dumps(table).encode()


if __name__ == "__main__":
    answers = json.loads(Path(sys.argv[1]).read_bytes())
    serve(lambda: _Application(answers), int(sys.argv[-1]))
