"""The command that runs a server."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.context import Globals
from headgate.errors import InvalidArgumentError

_PORT = 8750
_STORES = ("--store", "--lake")  # options that take the address of a store


def serve(
    ctx: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A directory, sqlite:///FILE or postgresql://…; else HEADGATE_STORE, else --lake.",
            envvar="HEADGATE_STORE",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = _PORT,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes; more than one needs PostgreSQL.")
    ] = 1,
    auth: Annotated[
        bool, typer.Option("--auth", help="Ask every client for a token: `headgate token create`.")
    ] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's key.")
    ] = None,
    log_level: Annotated[
        str, typer.Option(help="debug, info, warning or error; lines of JSON on stderr.")
    ] = "info",
) -> None:
    """Serve a lake to many clients over HTTP.

    Publishing and housekeeping run inside. SIGTERM or Ctrl-C stops it once every request that
    came is answered. Beyond this machine it listens only with --auth.

    For example:
      headgate serve
      headgate --lake /data/lake serve --port 9000
      headgate serve --store postgresql://headgate@db/headgate --workers 4 --auth --host 0.0.0.0
    """
    from headgate import serve as serving  # slow to load

    here: Globals = ctx.obj
    store = here.lake if store is None else store
    hide_store(store)
    if log_level not in ("debug", "info", "warning", "error"):
        raise InvalidArgumentError(
            f"There is no log level {log_level!r}.", remedy="Say debug, info, warning or error."
        )
    wanted = serving.Serving(
        store=store,
        host=host,
        port=port,
        workers=workers,
        auth=auth,
        certificate=tls_certificate,
        key=tls_key,
        log_level=log_level,
    )

    def tell() -> None:
        here.output.result(
            {"address": wanted.address, "store": wanted.shown_store},
            f"Serving {wanted.shown_store} at {wanted.address}",
        )
        place = wanted.found_at
        here.output.say(f'Connect: headgate.connect("{place}"), or headgate --lake {place}')
        if auth:
            here.output.say(
                "Clients need a token: `headgate --lake STORE token create NAME` makes one, "
                "HEADGATE_TOKEN or token= carries it."
            )
        here.output.say(f"Stop: Ctrl-C. API: {place}/openapi.json")

    serving.serve(wanted, on_ready=tell)


def hide_store(store: str) -> None:
    """Run this command again without a store's password among its arguments.

    Everybody on the machine can read the arguments of a process, and a server runs for long. The
    environment, which takes the address, is for its own user to read.
    """
    from headgate.storage.locations import shown  # slow to load

    named = {store, *(f"{option}={store}" for option in _STORES)}
    if shown(store) == store or not named.intersection(sys.orig_argv):
        return
    kept: list[str] = []
    for argument in sys.orig_argv[1:]:
        if argument == store and kept and kept[-1] in _STORES:
            kept.pop()
        elif argument not in named:
            kept.append(argument)
    os.environ["HEADGATE_STORE"] = store
    os.execv(sys.executable, [sys.executable, *kept])
