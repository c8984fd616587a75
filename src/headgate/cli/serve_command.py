"""The command that runs a server."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from headgate.cli.context import Globals

_PORT = 8750
_STORE_OPTIONS = ("--store", "--lake")


def serve(
    here: Globals,
    store: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="A directory, sqlite:///FILE or postgresql://…; default: HEADGATE_STORE, --lake.",
            envvar="HEADGATE_STORE",
        ),
    ] = None,
    host: Annotated[str, Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=1, max=65535, help="The port.")] = _PORT,
    workers: Annotated[
        int, Option(min=1, max=64, help="Worker processes; more than one needs PostgreSQL.")
    ] = 1,
    auth: Annotated[
        bool, Option("--auth", help="Require a token of every client: `headgate token create`.")
    ] = False,
    tls_certificate: Annotated[
        Path | None, Option(metavar="FILE", help="Serve HTTPS with this certificate.")
    ] = None,
    tls_key: Annotated[Path | None, Option(metavar="FILE", help="The certificate's key.")] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Option(metavar="LEVEL", help="debug, info, warning or error; JSON lines on stderr."),
    ] = "info",
) -> None:
    """Serve a lake over HTTP.

    The server also publishes commits and does the housekeeping. SIGTERM or Ctrl-C stops it after
    all received requests are answered. Listening beyond this machine needs --auth.

    For example:
      headgate serve
      headgate --lake /data/lake serve --port 9000
      headgate serve --store postgresql://headgate@db/headgate --workers 4 --auth --host 0.0.0.0
    """
    from headgate import serve as serving  # slow to load

    store = here.lake if store is None else store
    hide_store(store)
    server = serving.Serving(
        store=store,
        host=host,
        port=port,
        workers=workers,
        auth=auth,
        certificate=tls_certificate,
        key=tls_key,
        log_level=log_level,
    )

    def announce() -> None:
        here.output.result(
            {"address": server.address, "store": server.shown_store},
            f"Serving {server.shown_store} at {server.address}",
        )
        url = server.client_url
        here.output.note(f'Connect: headgate.connect("{url}"), or headgate --lake {url}')
        if auth:
            here.output.note(
                "Clients need a token: `headgate --lake STORE token create NAME` creates one, "
                "HEADGATE_TOKEN or token= passes it."
            )
        here.output.note(f"Stop: Ctrl-C. API: {url}/openapi.json")

    serving.serve(server, on_ready=announce)


def hide_store(store: str) -> None:
    """Restart this process without the store's password in its arguments.

    Every user of the machine can read the arguments of a process. The address moves to the
    environment, which only the same user can read.
    """
    from headgate.storage.locations import shown  # slow to load

    named = {store, *(f"{option}={store}" for option in _STORE_OPTIONS)}
    if shown(store) == store or not named.intersection(sys.orig_argv):
        return
    kept: list[str] = []
    for argument in sys.orig_argv[1:]:
        if argument == store and kept and kept[-1] in _STORE_OPTIONS:
            kept.pop()
        elif argument not in named:
            kept.append(argument)
    os.environ["HEADGATE_STORE"] = store
    os.execv(sys.executable, [sys.executable, *kept])
