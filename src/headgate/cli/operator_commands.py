"""Commands for who runs a catalog: what happens, how it stands, copies, tokens, listeners."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli import operator_views
from headgate.cli.context import Globals
from headgate.cli.render import moment, write

_DAY_MS = 24 * 3600 * 1000


def events(
    ctx: typer.Context,
    after: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Those after this sequence; else all that are kept."),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="TABLE", help="Only of this table; may come again."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as they happen, until Ctrl-C.")
    ] = False,
) -> None:
    """Show every ratification in order, one a line.

    A transaction is one event, however many tables it wrote. With --json each line is a JSON
    object. To go on where you were, say --after and the last sequence you saw.

    For example:
      headgate events --after 1041
      headgate events --follow --table sales.orders
      headgate events --json | jq .sequence
    """
    here: Globals = ctx.obj
    with here.opened() as session:
        for event in session.events(after, tables=table or (), follow=follow):
            write(operator_views.event_line(event, as_json=here.output.as_json))


def status(ctx: typer.Context) -> None:
    """Show how the catalog stands.

    Tables, commits that wait to be published, what is in trouble, listeners, the store. Exit code
    1 if the publishing of a table has stopped.

    For example:
      headgate status
      headgate --lake http://127.0.0.1:8750 status --json
    """
    here: Globals = ctx.obj
    with here.session("Asking") as session:
        found = session.status()
    if operator_views.show_status(here.output, found):
        raise typer.Exit(1)


def backup(
    ctx: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
) -> None:
    """Copy the catalog to a file, while others go on.

    One instant of all that the catalog knows, without the tables' files. Of a catalog on
    PostgreSQL make a backup with that database's own tools.

    For example:
      headgate backup /backups/lake-monday.db
    """
    here: Globals = ctx.obj
    with here.session("Copying") as session:
        session.backup(target)
    here.output.result(
        {"backup": str(target), "bytes": target.stat().st_size},
        f"The catalog of {here.shown_lake} is copied to {target}.",
    )


def restore(
    ctx: typer.Context,
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="What `backup` wrote.")],
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The lake's directory, or sqlite:///FILE.")
    ],
) -> None:
    """Make a lake's database anew from a backup.

    Overwrites nothing: move headgate.db and what lies beside it away first. The tables stay where
    they are. What was committed after the backup is in their logs: run `headgate fsck --repair`.

    For example:
      headgate restore /backups/lake-monday.db /data/lake
    """
    from headgate._connect import DATABASE
    from headgate.catalog import restoration  # slow to load
    from headgate.clock import SystemClock

    here: Globals = ctx.obj
    if address.startswith("sqlite:///"):
        database = Path(address.removeprefix("sqlite://"))
    elif "://" in address or not address:
        raise typer.BadParameter("only a directory or sqlite:///FILE can be restored to.")
    else:
        database = Path(address) / DATABASE
    root = restoration.restore(backup, database, SystemClock())
    here.output.result(
        {"lake": address, "database": str(database), "root": root},
        f"Restored {database}; its tables lie under {root}.",
    )
    here.output.say(
        f"Now run `headgate --lake {address} fsck --repair`: what was committed after the backup "
        "is found in the tables' logs and ratified again."
    )


class TokenAction(enum.Enum):
    """What can be done with tokens."""

    CREATE = "create"
    LIST = "list"
    REVOKE = "revoke"


def token(
    ctx: typer.Context,
    action: Annotated[TokenAction, typer.Argument(metavar="ACTION", help="create, list, revoke.")],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Whose token; not for list.")
    ] = None,
    days: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="It expires after N days; else never.")
    ] = None,
) -> None:
    """Say who may come in to a server that asks for tokens.

    --lake names the server's own store here, not the server. A secret is shown once, when it is
    made; the catalog keeps only its hash.

    For example:
      headgate token create nightly-load --days 90
      headgate token list
      headgate token revoke nightly-load
    """
    here: Globals = ctx.obj
    wanted = _named(name, action is not TokenAction.LIST)
    if days is not None and action is not TokenAction.CREATE:
        raise typer.BadParameter("--days is for `token create`.")
    with here.session("Asking") as session:
        if action is TokenAction.LIST:
            found = session.tokens()
        elif action is TokenAction.REVOKE:
            session.revoke_token(wanted)
        else:
            secret = session.create_token(wanted, expires=_in_days(days))
    if action is TokenAction.LIST:
        operator_views.show_tokens(here.output, found)
    elif action is TokenAction.REVOKE:
        here.output.result({"token": wanted}, f"The token {wanted} opens nothing any more.")
    else:
        here.output.result({"token": wanted, "secret": secret}, secret)
        here.output.say(f"This is the token {wanted}. It is not shown again: HEADGATE_TOKEN=…")


class ListenerAction(enum.Enum):
    """What can be done with listeners."""

    ADD = "add"
    LIST = "list"
    REMOVE = "remove"


def listener(
    ctx: typer.Context,
    action: Annotated[ListenerAction, typer.Argument(metavar="ACTION", help="add, list, remove.")],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which listener; not for list.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where `add` has events posted.")
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Begin after this sequence; else now."),
    ] = None,
) -> None:
    """Say who is told of events, and how far each one is.

    A server posts each event as JSON to the URL, in order and at least once, until it is answered
    with a status of 200 to 299. Adding one that is there changes its URL; it goes on where it was.

    For example:
      headgate listener add warehouse --url https://jobs.example.com/headgate --after 1041
      headgate listener list
      headgate listener remove warehouse
    """
    here: Globals = ctx.obj
    wanted = _named(name, action is not ListenerAction.LIST)
    if (url is None) is (action is ListenerAction.ADD):
        raise typer.BadParameter("--url is for `listener add`, which needs it.")
    if after is not None and action is not ListenerAction.ADD:
        raise typer.BadParameter("--after is for `listener add`.")
    with here.session("Asking") as session:
        if action is ListenerAction.LIST:
            found = session.listeners()
        elif action is ListenerAction.REMOVE:
            session.delete_listener(wanted)
        else:
            put = session.put_listener(wanted, url or "", after)
    if action is ListenerAction.LIST:
        operator_views.show_listeners(here.output, found)
    elif action is ListenerAction.REMOVE:
        here.output.result({"listener": wanted}, f"The listener {wanted} is told no more.")
    else:
        here.output.result(
            {"listener": put.name, "url": put.target, "position": put.position},
            f"{put.name} is told of everything after sequence {put.position}, at {put.target}.",
        )
        here.output.say("A server does so: `headgate serve`.")


class LocationAction(enum.Enum):
    """What can be done with locations."""

    ADD = "add"
    LIST = "list"
    REMOVE = "remove"


def location(
    ctx: typer.Context,
    action: Annotated[LocationAction, typer.Argument(metavar="ACTION", help="add, list, remove.")],
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="A URL or a directory; not for list."),
    ] = None,
) -> None:
    """Choose where clients may put tables outside the root.

    A server refuses a table whose location is not under the root or under a location added here.
    Add and remove work on the server's own store: --lake names that store, not the server.
    Removing a location refuses new tables there; tables that are there already stay.

    For example:
      headgate location add s3://bucket/landing
      headgate location list
      headgate location remove s3://bucket/landing
    """
    here: Globals = ctx.obj
    if (url is None) is (action is not LocationAction.LIST):
        needed = "list takes no URL." if action is LocationAction.LIST else "a URL is needed."
        raise typer.BadParameter(needed)
    with here.session("Asking") as session:
        match action:
            case LocationAction.LIST:
                operator_views.show_locations(here.output, session.locations())
            case LocationAction.ADD:
                added = session.add_location(url or "").url
                here.output.result({"location": added}, f"Clients may put tables under {added}.")
            case LocationAction.REMOVE:
                session.remove_location(url or "")
                here.output.result({"location": url}, f"Removed {url}: no new tables there.")


def _named(name: str | None, is_needed: bool) -> str:
    if (name is None) is is_needed:
        raise typer.BadParameter("a NAME is needed." if is_needed else "list takes no NAME.")
    return name or ""


def _in_days(days: int | None) -> str | None:
    from headgate.clock import SystemClock

    return None if days is None else moment(SystemClock().now_ms() + days * _DAY_MS)
