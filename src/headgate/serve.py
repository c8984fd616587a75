"""The server: a process that listens, and workers that serve a catalog over HTTP.

The parent opens the socket, starts the workers, replaces those that die, and does nothing else. No
secret is on a command line. SQLite allows one worker; on PostgreSQL each worker is a complete
server.
"""

import gc
import ipaddress
import json
import logging
import logging.config
import multiprocessing
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from headgate._connect import database_file, embedded_catalog, is_postgres, open_store
from headgate.catalog import server_lock
from headgate.catalog.listeners import WEBHOOK
from headgate.catalog.webhook_addresses import WebhookAddresses
from headgate.clock import RandomIds, SystemClock
from headgate.errors import DamagedError, InvalidArgumentError
from headgate.http import app, worker
from headgate.http.asgi import Application
from headgate.http.auth import Tokens
from headgate.http.connection import Limits
from headgate.http.deferred_app import Starting
from headgate.http.origins import Origins
from headgate.http.server import PROPOSERS, Server
from headgate.http.webhooks import Webhook
from headgate.protocol import features
from headgate.settings import Settings
from headgate.storage import local, locations

DEFAULT_PORT = 8750
_OTHER_FILES = 512  # file descriptors besides connections
_RESPAWN_S = 0.1  # before a worker that died is replaced
_LONGEST_RESPAWN_S = 5.0  # if it died soon after it was started, again and again
_SETTLED_S = 2.0  # after which a worker counts as started
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Serving:
    """The configuration of a server process."""

    store: str = field(repr=False)  # an address may hold a password
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    workers: int = 1
    auth: bool = False
    certificate: Path | None = None
    key: Path | None = None
    log_level: str = "info"

    @property
    def address(self) -> str:
        """The URL of the address that it listens on."""
        return self._url(self.host)

    @property
    def bound_address(self) -> str:
        """The IP address of the host, since a socket is bound to an address."""
        try:
            entries = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise InvalidArgumentError(
                f"The host {self.host!r} cannot be resolved.",
                remedy="Use an address or a name of this machine, such as 127.0.0.1 or localhost.",
            ) from None
        # Clients try every address of a name, and some support only IPv4.
        return str(min(entries, key=lambda entry: entry[0] != socket.AF_INET)[4][0])

    @property
    def client_url(self) -> str:
        """The URL for clients: with the machine's name if it listens on every address."""
        try:
            is_any = ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            is_any = False
        return self._url(socket.gethostname() if is_any else self.host)

    def _url(self, host: str) -> str:
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def shown_store(self) -> str:
        """The address of the store without a password."""
        return locations.shown(self.store)

    def validate(self) -> None:
        """Raise if the configuration is invalid or unsafe."""
        if self.workers > 1 and not is_postgres(self.store):
            raise InvalidArgumentError(
                f"{self.workers} workers cannot share one SQLite file.",
                remedy="Use one worker, or a store on PostgreSQL.",
            )
        if (self.certificate is None) != (self.key is None):
            raise InvalidArgumentError(
                "A certificate and its key must be given together.",
                remedy="Pass both --tls-certificate and --tls-key.",
            )
        for path in (self.certificate, self.key):
            if path is not None and not path.is_file():
                raise InvalidArgumentError(f"{path} is not a file.", remedy="Pass a PEM file.")
        if self.certificate is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                    self.certificate, self.key, password=""
                )
            except OSError as error:  # ssl.SSLError, too
                raise InvalidArgumentError(
                    f"{self.certificate} and {self.key} cannot be used: {error.strerror or error}.",
                    remedy="Use PEM files that belong together, and a key without a passphrase.",
                ) from error
        address = ipaddress.ip_address(self.bound_address.partition("%")[0])
        if not address.is_loopback and not self.auth:
            raise InvalidArgumentError(
                f"{self.host} can be reached from other machines, and no token would be required.",
                remedy="Add --auth and create tokens with `headgate token create NAME`, or listen "
                "on 127.0.0.1.",
            )


def serve(serving: Serving, on_ready: Callable[[], None] = lambda: None) -> None:
    """Run a server until SIGTERM or Ctrl-C; all received requests are answered first."""
    serving.validate()
    settings = Settings.from_environment(os.environ)
    # Checked here, so that errors are shown on the terminal, and migrations run only once.
    for names in (settings.required_features, settings.suggested_features):
        features.named(names)
    WebhookAddresses(settings.listener_networks)
    store, _ = open_store(serving.store, SystemClock(), settings)
    store.close()
    database = database_file(serving.store)
    with nullcontext() if database is None else server_lock.held(database, serving.address):
        listening = _listen(serving)
        with listening:
            _supervise(serving, settings, listening, on_ready)


def _listen(serving: Serving) -> socket.socket:
    """Open the socket that the workers share."""
    address = serving.bound_address
    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, serving.port))
        listening.listen(worker.BACKLOG)
    except OSError as error:
        listening.close()
        raise InvalidArgumentError(
            f"Cannot listen on {serving.host}:{serving.port}: {error.strerror}.",
            remedy="Choose another --port, or stop the process that uses it.",
        ) from error
    listening.setblocking(False)
    return listening


def _supervise(
    serving: Serving, settings: Settings, listening: socket.socket, on_ready: Callable[[], None]
) -> None:
    """Run the workers until this process receives SIGTERM or SIGINT."""
    logging.config.dictConfig(_logging(serving.log_level))
    # A forked worker has all modules loaded, also one that replaces a worker that died.
    if sys.platform == "linux":
        multiprocessing.set_start_method("fork", force=True)
    identity = _identity(serving.store)
    gc.freeze()  # garbage collection does not touch these pages, so they stay shared

    def start() -> BaseProcess:
        process = multiprocessing.Process(
            target=_work, args=(serving, settings, listening, identity)
        )
        process.start()
        return process

    clock = SystemClock()
    with _stop_signals() as stopping:
        workers = [start() for _ in range(serving.workers)]
        started = [clock.monotonic()] * len(workers)
        pause_s = _RESPAWN_S
        _log.info("listening at %s, workers: %d", serving.address, len(workers))
        on_ready()
        while stopping not in wait([stopping, *(process.sentinel for process in workers)]):
            for number, process in enumerate(workers):
                if process.exitcode is None:
                    continue
                _log.error("worker %s ended with code %s", process.pid, process.exitcode)
                is_settled = clock.monotonic() - started[number] > _SETTLED_S
                pause_s = _RESPAWN_S if is_settled else min(2 * pause_s, _LONGEST_RESPAWN_S)
                if wait([stopping], pause_s):
                    break
                workers[number], started[number] = start(), clock.monotonic()
        _log.info("stopping: received requests are answered first")
        for process in workers:
            process.terminate()
        deadline = clock.monotonic() + settings.stop_ms / 1000 + _SETTLED_S
        for process in workers:
            process.join(max(0.0, deadline - clock.monotonic()))
            process.kill()
            process.join()


@contextmanager
def _stop_signals() -> Iterator[socket.socket]:
    """Return a socket that can be read once SIGTERM or SIGINT was received."""
    received, sent = socket.socketpair()
    sent.setblocking(False)
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    wakeup = signal.set_wakeup_fd(sent.fileno(), warn_on_full_buffer=False)
    try:
        yield received
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        received.close()
        sent.close()


def _work(
    serving: Serving, settings: Settings, listening: socket.socket, identity: str | None
) -> None:
    """Serve in a worker process."""
    signal.set_wakeup_fd(-1)  # the parent's, if this process was forked, as its handlers are
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    logging.config.dictConfig(_logging(serving.log_level))
    _exit_with_parent(settings)
    tls = None
    if serving.certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(serving.certificate, serving.key)
    limits = Limits(_allowed_connections(settings.connections), settings.request_headers_ms / 1000)
    worker.run(
        listening,
        lambda: create_app(serving, settings, identity),
        limits,
        tls=tls,
        stop_s=settings.stop_ms / 1000,
    )


def create_app(serving: Serving, settings: Settings, identity: str | None) -> Application:
    """Create the application, which builds its catalog in the background."""
    clock = SystemClock()
    ids = RandomIds(clock)

    def fail(reason: str) -> None:
        _log.critical("this worker cannot store anything and exits: %s", reason)
        threading.Thread(target=_exit, args=(settings,), daemon=True).start()

    local.DISK.on_failed = fail

    def build() -> Application:
        _check_identity(serving.store, identity)
        catalog = embedded_catalog(
            serving.store,
            settings=settings,
            publisher=True,
            publisher_process=True,
            clock=clock,
            ids=ids,
            housekeeping=True,
            proposers=PROPOSERS,
            on_stopped=fail,
        )

        hosts = [host for host in settings.allowed_hosts.split(",") if host.strip()]
        server = Server(
            catalog=catalog,
            settings=settings,
            clock=clock,
            ids=ids,
            tokens=Tokens(catalog.principal_of, clock) if serving.auth else None,
            origins=Origins(None if serving.auth else serving.host, hosts),
        )
        receivers = WebhookAddresses(settings.listener_networks)
        catalog.deliver(WEBHOOK, lambda url: Webhook(url, receivers))
        return app.Application(server, on_stop=catalog.close)

    return Starting(build)


def _identity(store: str) -> str | None:
    """Return what identifies the database of a store; None if its file is missing."""
    if is_postgres(store):
        from headgate.catalog.stores.postgres import database_id  # psycopg is imported on demand

        return database_id(store)
    database = database_file(store)
    try:
        stat = None if database is None else database.stat()
    except FileNotFoundError:
        return None
    return None if stat is None else f"{stat.st_dev}:{stat.st_ino}"


def _check_identity(store: str, identity: str | None) -> None:
    """Raise if the database is not the one that the server started with."""
    # A worker may start after the database was replaced by an older copy, which lacks acknowledged
    # commits, or by an empty one, in which it would create a schema before a dump is restored.
    if identity is not None and _identity(store) != identity:
        raise DamagedError(
            f"{database_file(store) or 'The database'} was deleted or replaced while it was "
            "served.",
            remedy="Stop the server, put the right database in its place, start the server again, "
            "then run `headgate fsck --repair`.",
        )


def _allowed_connections(most: int) -> int:
    """Raise the limit of open files if possible; return how many connections it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = most + _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(limit - _OTHER_FILES, min(most, _OTHER_FILES))


def _exit_with_parent(settings: Settings) -> None:
    """Stop when the parent process is gone, since nothing else would stop this one."""
    parent = os.getppid()

    def watch() -> None:
        clock = SystemClock()
        while os.getppid() == parent:
            clock.sleep(0.2)
        _exit(settings)

    threading.Thread(target=watch, name="headgate-parent", daemon=True).start()


def _exit(settings: Settings) -> None:
    """End this process after answering received requests; the parent starts another one."""
    os.kill(os.getpid(), signal.SIGTERM)
    SystemClock().sleep(settings.stop_ms / 1000)
    os._exit(1)


class JSONFormatter(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        request_id = getattr(record, "request_id", None)
        if request_id is not None:
            fields["requestId"] = request_id
        if record.exc_info is not None:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _logging(level: str) -> dict[str, Any]:
    handler = {"class": "logging.StreamHandler", "stream": sys.stderr, "formatter": "lines"}
    logger = {"handlers": ["stderr"], "level": level.upper(), "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": "headgate.serve.JSONFormatter"}},
        "handlers": {"stderr": handler},
        "loggers": {"headgate": logger},
    }
