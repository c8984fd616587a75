"""A process of the server that publishes, so that neither its work nor a disk delays commits.

It has no database: it receives rounds, does the storage part of each, and answers how it went. When
it dies, another one is started and the rounds are repeated, which is safe. It dies with its server.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import logging
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from headgate.clock import Clock
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvariantError,
    LogDivergedError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from headgate.storage import local, locations
from headgate.storage.object_store import PutUnknownError
from headgate.table.log_files import UnfinishedError
from headgate.table.publish_round import PartResult, TailPart, publish_round

_log = logging.getLogger(__name__)
_LENGTH: Final = struct.Struct("<I")  # before each message
_START_S: Final = 10.0  # until a process that was started receives rounds
_SEND_S: Final = 5  # until a process that receives nothing is replaced
_RESTART_S: Final = 0.1  # before a process that died is replaced
_LONGEST_RESTART_S: Final = 5.0  # if it died soon after it was started, again and again
_SETTLED_S: Final = 2.0  # after which a process counts as started
_CLOSE_S: Final = 1.0
_ROUNDS: Final = 64  # side by side, since each may hang on another disk
_DIED: Final = 70
_PR_SET_PDEATHSIG: Final = 1
_KINDS: Final[dict[str, type[HeadgateError]]] = {
    kind.__name__: kind
    for kind in (
        InvalidArgumentError,
        InvariantError,
        LogDivergedError,
        NotFoundError,
        PermissionDeniedError,
        PutUnknownError,
        UnavailableError,
        UnfinishedError,
    )
}


class _Round(msgspec.Struct, frozen=True, array_like=True):
    number: int
    parts: tuple[TailPart, ...]


class _Failure(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    message: str
    remedy: str


class _Result(msgspec.Struct, frozen=True, array_like=True):
    failure: _Failure | None
    device: int | None


class _LogLine(msgspec.Struct, frozen=True, array_like=True):
    logger: str
    level: int
    message: str


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    number: int
    results: tuple[_Result, ...]
    logged: tuple[_LogLine, ...]


_Message = TypeVar("_Message", _Round, _Answer)


class PublisherProcess:
    """Starts the process with the first round, sends it rounds, and replaces it when it dies."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes = threading.Condition()
        self._sending = threading.Lock()
        self._connection: socket.socket | None = None
        self._answers: dict[int, Future[Sequence[PartResult]]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def publish_round(
        self, parts: Sequence[TailPart], within_s: float | None = None
    ) -> Sequence[PartResult]:
        """Do what `publish_round` does; raise `TimeoutError` if it still goes on then."""
        answer = Future[Sequence[PartResult]]()
        with self._changes:
            if self._thread is None and not self._is_closing:
                self._thread = threading.Thread(
                    target=self._run, name="headgate-publisher-process", daemon=True
                )
                self._thread.start()
            patience_s = _START_S if within_s is None else min(within_s, _START_S)
            self._changes.wait_for(lambda: self._connection or self._is_closing, patience_s)
            connection = self._connection
            if connection is None:
                raise UnavailableError("The publisher process does not start.")
            number = next(self._numbers)
            self._answers[number] = answer
        try:
            with self._sending:
                _send(connection, _Round(number, tuple(parts)))
        except OSError:  # it is gone or hangs, and part of a message may have been sent
            _shut_down(connection)
        return answer.result(within_s)

    def close(self) -> None:
        """End the process, also in the middle of a round."""
        with self._changes:
            self._is_closing = True
            self._changes.notify_all()
            if self._connection is not None:
                _shut_down(self._connection)
        if self._thread is not None:
            self._thread.join(_CLOSE_S)  # a process that waits for a disk cannot be killed

    def _run(self) -> None:
        pause_s = _RESTART_S
        while not self._is_closing:
            began = self._clock.monotonic()
            try:
                code = self._serve()
            except Exception:  # the thread must survive
                _log.exception("a publisher process could not be started or used")
            else:
                if self._is_closing:
                    return
                _log.error("the publisher process ended with code %s: starting another", code)
            is_settled = self._clock.monotonic() - began > _SETTLED_S
            pause_s = _RESTART_S if is_settled else min(2 * pause_s, _LONGEST_RESTART_S)
            with self._changes:
                self._changes.wait_for(lambda: self._is_closing, pause_s)

    def _serve(self) -> int:
        """Start a process and take its answers until it ends; return its exit code."""
        import subprocess  # the process itself does not need it

        ours, theirs = socket.socketpair()
        with ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_S, 0))
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", __name__],
                    stdin=theirs.fileno(),
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
            with self._changes:
                self._connection = None if self._is_closing else ours
                self._changes.notify_all()
            try:
                if self._connection is not None:
                    for answer in _received(ours, _Answer):
                        self._take(answer)
            finally:
                process.kill()
                code = process.wait()
                with self._changes:
                    self._connection = None
                    lost, self._answers = self._answers, {}
                for waiting in lost.values():
                    waiting.set_exception(
                        UnavailableError(
                            "The publisher process ended in the middle of a round.",
                            remedy="Nothing is lost: the round is repeated.",
                        )
                    )
        return code

    def _take(self, answer: _Answer) -> None:
        for line in answer.logged:
            logging.getLogger(line.logger).log(line.level, "%s", line.message)
        with self._changes:
            waiting = self._answers.pop(answer.number)
        waiting.set_result([_published(result) for result in answer.results])


def main() -> None:
    """Publish rounds until the server is gone."""
    if sys.platform == "linux":  # also in the middle of a round, on a disk that hangs
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):  # may be sent to a group; the server decides
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=sys.stdin.fileno())
    lines = _Lines()
    logging.getLogger("headgate").addHandler(lines)
    failures: list[str] = []
    local.DISK.on_failed = failures.append
    sending = threading.Lock()

    def answer(round: _Round) -> None:
        try:
            published = publish_round(round.parts, locations.store_for)
            results = tuple(_result(one) for one in published)
            with sending:
                _send(connection, _Answer(round.number, results, lines.taken()))
        except BaseException:  # a round without an answer must not be waited for
            os._exit(_DIED)
        if failures:  # nothing is written after a failed sync: another process finds what is there
            os._exit(_DIED)

    with ThreadPoolExecutor(_ROUNDS) as pool:
        for round in _received(connection, _Round):
            pool.submit(answer, round)
        os._exit(0)


class _Lines(logging.Handler):
    """Collects log lines, which the server writes with its own."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: collections.deque[_LogLine] = collections.deque(maxlen=1_000)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(_LogLine(record.name, record.levelno, record.getMessage()))

    def taken(self) -> tuple[_LogLine, ...]:
        """Return the lines so far, each once."""
        return tuple(self._lines.popleft() for _ in range(len(self._lines)))


def _send(connection: socket.socket, message: _Round | _Answer) -> None:
    content = msgspec.msgpack.encode(message)
    connection.sendall(_LENGTH.pack(len(content)))
    connection.sendall(content)


def _received(connection: socket.socket, kind: type[_Message]) -> Iterator[_Message]:
    """Yield messages until the connection ends."""
    decoder = msgspec.msgpack.Decoder(kind)
    with connection.makefile("rb") as stream:
        try:
            while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
                [length] = _LENGTH.unpack(head)
                if len(content := stream.read(length)) < length:
                    return
                yield decoder.decode(content)
        except ConnectionError:
            return


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)


def _result(published: PartResult) -> _Result:
    error = published.error
    if error is None:
        return _Result(None, published.device)
    if not isinstance(error, HeadgateError):
        error = InvariantError(repr(error))
    names = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS)
    kind = next(names, InvariantError.__name__)
    return _Result(_Failure(kind, error.message, error.remedy), published.device)


def _published(result: _Result) -> PartResult:
    failure = result.failure
    if failure is None:
        return PartResult(None, result.device)
    return PartResult(_KINDS[failure.kind](failure.message, remedy=failure.remedy), result.device)


if __name__ == "__main__":
    main()
