"""The root of the server: settings in the environment become a catalog behind HTTP.

granian loads the application in a process of its own, also with one worker, so `create_app` builds
everything there, from the environment: no secret stands on a command line. On SQLite there is one
worker, always; on PostgreSQL each worker is a full server.
"""

from __future__ import annotations

import gc
import ipaddress
import json
import logging
import logging.config
import math
import multiprocessing
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server import Server as Granian

from headgate._connect import database_file, embedded_catalog, is_postgres, open_store
from headgate.catalog import server_lock
from headgate.catalog.listeners import WEBHOOK
from headgate.catalog.webhook_addresses import Receivers
from headgate.clock import RandomIds, SystemClock
from headgate.errors import DamagedError, InvalidArgumentError
from headgate.http import app, event_routes, routes
from headgate.http.auth import Tokens
from headgate.http.deferred_app import Starting
from headgate.http.origins import Origins
from headgate.http.webhooks import Webhook
from headgate.protocol import features
from headgate.settings import Settings
from headgate.storage import local, locations

DEFAULT_PORT = 8750
_STORE = "HEADGATE_STORE"
_AUTH = "HEADGATE_AUTH"
_HOST = "HEADGATE_HOST"
_LOG_LEVEL = "HEADGATE_LOG_LEVEL"
_DATABASE = "HEADGATE_DATABASE_IDENTITY"  # of the SQLite file as it was when the server started
_WAITING = 2_048  # connections that the system keeps until they are accepted
_OTHER_FILES = 512
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Serving:
    """How a server is to be run."""

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
        """Where it listens."""
        return self._at(self.host)

    @property
    def bound_address(self) -> str:
        """The address that the host's name stands for: a socket is bound to an address."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise InvalidArgumentError(
                f"The host {self.host!r} cannot be resolved.",
                remedy="Name an address or a name of this machine, such as 127.0.0.1 or localhost.",
            ) from None
        # Clients try every address of a name, and some know IPv4 alone.
        return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])

    @property
    def found_at(self) -> str:
        """Where clients find it: who listens on every address is found by the machine's name."""
        try:
            is_any = ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            is_any = False
        return self._at(socket.gethostname() if is_any else self.host)

    def _at(self, host: str) -> str:
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def shown_store(self) -> str:
        """The store's address without a password."""
        return locations.shown(self.store)

    def refuse_if_wrong(self) -> None:
        """Refuse what cannot be served, or should not be."""
        if self.workers > 1 and not is_postgres(self.store):
            raise InvalidArgumentError(
                f"{self.workers} workers cannot share one SQLite file.",
                remedy="Use one worker, or a store on PostgreSQL.",
            )
        if (self.certificate is None) != (self.key is None):
            raise InvalidArgumentError("A certificate needs its key, and a key its certificate.")
        for path in (self.certificate, self.key):
            if path is not None and not path.is_file():
                raise InvalidArgumentError(f"{path} is no file.")
        if self.certificate is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                    self.certificate, self.key, password=""
                )
            except OSError as error:  # also what is no certificate
                raise InvalidArgumentError(
                    f"{self.certificate} and {self.key} cannot be used: {error.strerror or error}.",
                    remedy="Name PEM files that belong together; the key without a passphrase.",
                ) from error
        if not _is_loopback(self.bound_address) and not self.auth:
            raise InvalidArgumentError(
                f"{self.host} can be reached from elsewhere, and nobody is asked for a token.",
                remedy="Add --auth (and make tokens: `headgate token create NAME`), or listen on "
                "127.0.0.1.",
            )


def serve(serving: Serving, on_ready: Callable[[], None] = lambda: None) -> None:
    """Run a server until it is told to stop; every request that came is answered first."""
    serving.refuse_if_wrong()
    settings = Settings.from_environment(os.environ)
    # Looked at here, so that what is wrong is said to who started it, and migrated once.
    for names in (settings.required_features, settings.suggested_features):
        features.named(names)
    Receivers(settings.listener_networks)
    store, _ = open_store(serving.store, SystemClock(), settings)
    store.close()
    database = database_file(serving.store)
    with nullcontext() if database is None else server_lock.held(database, serving.address):
        _refuse_if_taken(serving)
        _run(serving, settings, on_ready)


def _run(serving: Serving, settings: Settings, on_ready: Callable[[], None]) -> None:
    os.environ |= {
        _STORE: serving.store,
        _DATABASE: _identity(serving.store) or "",
        _AUTH: "1" if serving.auth else "",
        _HOST: serving.host,
        _LOG_LEVEL: serving.log_level,
    }
    granian = Granian(
        "headgate.serve:create_app",
        factory=True,
        address=serving.bound_address,
        port=serving.port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        workers=serving.workers,
        backlog=_WAITING,
        backpressure=_allowed_connections(settings.connections),
        http1_settings=HTTP1Settings(header_read_timeout=settings.request_headers_ms),
        respawn_failed_workers=True,
        respawn_interval=0.1,
        workers_kill_timeout=math.ceil(settings.stop_ms / 1000),
        ssl_cert=serving.certificate,
        ssl_key=serving.key,
        log_level=LogLevels(serving.log_level),
        log_dictconfig=_logging(serving.log_level),
    )
    granian.on_startup(on_ready)
    if sys.platform == "linux":
        # A worker, also one in place of another that died, has at once all that is loaded here.
        multiprocessing.set_start_method("fork", force=True)
        gc.freeze()  # neither side looks through it again, so its pages stay shared
    granian.serve()


def create_app() -> app.Application:
    """Make the application, in the worker's process."""
    environment = os.environ
    logging.config.dictConfig(_logging(environment.get(_LOG_LEVEL, "info")))
    settings = Settings.from_environment(environment)
    _leave_with_parent(settings)
    clock = SystemClock()
    ids = RandomIds(clock)

    def fail(why: str) -> None:
        _log.critical("this worker can keep nothing any more, and leaves: %s", why)
        threading.Thread(target=_leave, args=(settings,), daemon=True).start()

    local.when_disk_fails(fail)

    def build() -> app.Application:
        _refuse_if_replaced(environment)
        catalog = embedded_catalog(
            environment[_STORE],
            settings=settings,
            publisher=True,
            clock=clock,
            ids=ids,
            housekeeping=True,
            proposers=app.PROPOSERS,
            on_stopped=fail,
        )

        def ping() -> None:
            local.refuse_if_disk_failed()
            catalog.ping()

        has_auth = bool(environment.get(_AUTH))
        hosts = [host for host in settings.allowed_hosts.split(",") if host.strip()]
        server = app.Server(
            catalog=catalog,
            settings=settings,
            clock=clock,
            ids=ids,
            tokens=Tokens(catalog.principal_of, clock) if has_auth else None,
            origins=Origins(None if has_auth else environment.get(_HOST, ""), hosts),
            gauges=lambda: event_routes.gauges(catalog.status()),
            ping=ping,
        )
        receivers = Receivers(settings.listener_networks)
        catalog.deliver(WEBHOOK, lambda url: Webhook(url, receivers))
        return app.create(server, routes.all_operations(settings), on_stop=catalog.close)

    return Starting(build)


def _identity(store: str) -> str | None:
    """Identify the file of a store on SQLite; None for another store, or if there is no file."""
    database = database_file(store)
    try:
        found = None if database is None else database.stat()
    except FileNotFoundError:
        return None
    return None if found is None else f"{found.st_dev}:{found.st_ino}"


def _refuse_if_replaced(environment: Mapping[str, str]) -> None:
    """Refuse another database than the server started with: a worker may come after its loss.

    It may be an older copy, and what was acknowledged since is not in it.
    """
    known = environment[_DATABASE]
    if known and _identity(environment[_STORE]) != known:
        raise DamagedError(
            f"{database_file(environment[_STORE])} was deleted or replaced while it was served.",
            remedy="Stop the server, see that the right database is in its place, start the server "
            "again, then run `headgate fsck --repair`.",
        )


def _allowed_connections(most: int) -> int:
    """Have room for open connections, as far as the system lets us; say for how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(wanted - _OTHER_FILES, min(most, _OTHER_FILES))


def _leave_with_parent(settings: Settings) -> None:
    """Stop when the process that started this one is gone: nobody else would stop it."""
    parent = os.getppid()

    def watch() -> None:
        clock = SystemClock()
        while os.getppid() == parent:
            clock.sleep(0.2)
        _leave(settings)

    threading.Thread(target=watch, name="headgate-parent", daemon=True).start()


def _leave(settings: Settings) -> None:
    """End this process, once what came is answered; a parent that is there starts another."""
    os.kill(os.getpid(), signal.SIGTERM)
    SystemClock().sleep(settings.stop_ms / 1000)
    os._exit(1)


def _refuse_if_taken(serving: Serving) -> None:
    """Refuse a port another holds: several servers would share it without a word."""
    address = serving.bound_address
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, serving.port))
        except OSError as error:
            raise InvalidArgumentError(
                f"{serving.host}:{serving.port} cannot be listened on: {error.strerror}.",
                remedy="Choose another --port, or stop who holds it.",
            ) from error


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


class LogLines(logging.Formatter):
    """One JSON object a line: when, how bad, who says what, and of which request."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "says": record.getMessage(),
        }
        request_id = getattr(record, "request_id", None)
        if request_id is not None:
            said["requestId"] = request_id
        if record.exc_info is not None:
            said["trace"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def _logging(level: str) -> dict[str, Any]:
    handler = {"class": "logging.StreamHandler", "stream": sys.stderr, "formatter": "lines"}
    loud = {"handlers": ["stderr"], "level": level.upper(), "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": "headgate.serve.LogLines"}},
        "handlers": {"stderr": handler},
        "loggers": {"headgate": loud, "_granian": loud, "granian.access": loud},
    }
