"""An HTTP receiver of events, which records, refuses and hangs on request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.kit.conditions import PATIENCE_S


class Receiver:
    """Records what is posted, and answers with the given statuses."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.posted: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.statuses: list[int] = []  # of the next answers; 204 when there are none left
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._changes = threading.Condition()

    @property
    def sequences(self) -> list[int]:
        return [event["sequence"] for event in self.posted]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, or fail."""
        with self._changes:
            assert self._changes.wait_for(condition, PATIENCE_S), self.sequences

    def receive(self, body: bytes, headers: dict[str, str]) -> int:
        with self._changes:
            self.posted.append(json.loads(body))
            self.headers.append(headers)
            status = self.statuses.pop(0) if self.statuses else 204
            self._changes.notify_all()
        self.may_answer.wait(PATIENCE_S)
        return status


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    """Run a receiver on a free local port."""
    receiver: Receiver

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            named = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.receive(body, named)
            self.send_response(status)
            if status in (301, 302, 307):
                self.send_header("location", receiver.url)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}/events")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join()
