"""Commands for operators: events, status, backups, tokens, listeners, locations."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from headgate.cli import views
from headgate.cli.context import Globals
from headgate.cli.output import write

_DAY_MS = 24 * 3600 * 1000


def events(
    here: Globals,
    after: Annotated[
        int | None,
        Option(
            metavar="N", min=0, help="Only events after this sequence; default: all that are kept."
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        Option("--table", metavar="TABLE", help="Only events of this table; may be repeated."),
    ] = None,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Continue with new events until Ctrl-C.")
    ] = False,
) -> None:
    """Show events in order, one per line.

    Every ratification is one event, also a transaction over many tables. With --json each line is
    a JSON object. To continue later, pass --after with the last sequence you have seen.

    For example:
      headgate events --after 41
      headgate events --follow --table sales.orders
      headgate events --json | jq .sequence
    """
    with here.open() as session:
        for event in session.events(after, tables=table or (), follow=follow):
            write(views.event_line(event, as_json=here.output.as_json))


def status(here: Globals) -> None:
    """Show the state of the catalog.

    Tables, unpublished commits, problems, listeners, the store. The exit code is 1 if publishing
    has stopped for a table.

    For example:
      headgate status
      headgate --lake http://127.0.0.1:8750 status --json
    """
    if views.show_status(here.output, here.call(lambda session: session.status())):
        raise typer.Exit(1)


def backup(
    here: Globals, target: Annotated[Path, Argument(metavar="FILE", help="A new file.")]
) -> None:
    """Copy the catalog's database to a new file.

    The catalog can be in use meanwhile; the copy is consistent. It does not contain the tables'
    files. For a catalog on PostgreSQL use the tools of that database.

    For example:
      headgate backup /backups/lake-monday.db
    """
    here.call(lambda session: session.backup(target), "Copying")
    here.output.result(
        {"backup": str(target), "bytes": target.stat().st_size},
        f"Copied the catalog of {here.shown_lake} to {target}.",
    )


def restore(
    here: Globals,
    backup: Annotated[Path, Argument(metavar="BACKUP", help="A file that `backup` wrote.")],
    address: Annotated[
        str, Argument(metavar="ADDRESS", help="The lake's directory, or sqlite:///FILE.")
    ],
) -> None:
    """Restore the database of a lake from a backup.

    Existing files are never overwritten: move headgate.db and its -wal and -shm files away first.
    The tables stay where they are. Then run `headgate fsck --repair`: it ratifies commits again
    that were published after the backup.

    For example:
      headgate restore /backups/lake-monday.db /data/lake
    """
    from headgate._connect import database_file
    from headgate.catalog import restoration  # slow to load
    from headgate.clock import SystemClock

    database = database_file(address) if address else None
    if database is None:
        raise typer.BadParameter("only a directory or sqlite:///FILE can be restored to.")
    root = restoration.restore(backup, database, SystemClock())
    here.output.result(
        {"lake": address, "database": str(database), "root": root},
        f"Restored {database}; its tables are under {root}.",
    )
    here.output.note(
        f"Now run `headgate --lake {address} fsck --repair`: it ratifies commits again that were "
        "published after the backup."
    )


def token(
    here: Globals,
    action: Annotated[
        Literal["create", "list", "revoke"],
        Argument(metavar="ACTION", help="create, list, revoke."),
    ],
    name: Annotated[
        str | None, Argument(metavar="NAME", help="The name of the token; not for list.")
    ] = None,
    days: Annotated[
        int | None, Option(metavar="N", min=1, help="Days until it expires; default: never.")
    ] = None,
) -> None:
    """Manage the access tokens of a server.

    --lake must name the store of the server, not its URL. The secret of a token is shown once,
    when it is created; the catalog stores only its hash.

    For example:
      headgate token create nightly-load --days 90
      headgate token list
      headgate token revoke nightly-load
    """
    token_name = _checked_name(name, action != "list")
    if days is not None and action != "create":
        raise typer.BadParameter("--days is only for `token create`.")
    if action == "list":
        views.show_tokens(here.output, here.call(lambda session: session.tokens()))
    elif action == "revoke":
        here.call(lambda session: session.revoke_token(token_name))
        here.output.result({"token": token_name}, f"Revoked token {token_name}.")
    else:
        from headgate.clock import SystemClock  # slow to load

        expires = None if days is None else SystemClock().now_ms() + days * _DAY_MS
        secret = here.call(lambda session: session.create_token(token_name, expires))
        here.output.result({"token": token_name, "secret": secret}, secret)
        here.output.note(
            f"This is the secret of token {token_name}. It is not shown again. Clients pass it as "
            "HEADGATE_TOKEN."
        )


def listener(
    here: Globals,
    action: Annotated[
        Literal["add", "list", "remove"], Argument(metavar="ACTION", help="add, list, remove.")
    ],
    name: Annotated[
        str | None, Argument(metavar="NAME", help="The name of the listener; not for list.")
    ] = None,
    url: Annotated[
        str | None, Option(metavar="URL", help="The URL that receives events; only for add.")
    ] = None,
    after: Annotated[
        int | None, Option(metavar="N", min=0, help="Start after this sequence; default: now.")
    ] = None,
) -> None:
    """Manage webhooks that receive events.

    A server posts each event as JSON to the URL, in order and at least once. It repeats an event
    until the response has a status of 200 to 299. Adding an existing name changes its URL and keeps
    its position.

    For example:
      headgate listener add warehouse --url https://jobs.example.com/headgate --after 41
      headgate listener list
      headgate listener remove warehouse
    """
    listener_name = _checked_name(name, action != "list")
    if (url is None) is (action == "add"):
        raise typer.BadParameter("`listener add` needs --url; other actions do not take it.")
    if after is not None and action != "add":
        raise typer.BadParameter("--after is only for `listener add`.")
    if action == "list":
        views.show_listeners(here.output, here.call(lambda session: session.listeners()))
    elif action == "remove":
        here.call(lambda session: session.delete_listener(listener_name))
        here.output.result({"listener": listener_name}, f"Removed listener {listener_name}.")
    else:
        added = here.call(lambda session: session.put_listener(listener_name, url or "", after))
        here.output.result(
            {"listener": added.name, "url": added.target, "position": added.position},
            f"Listener {added.name} receives events after sequence {added.position} at "
            f"{added.target}.",
        )
        here.output.note("Events are sent by a server: `headgate serve`.")


def location(
    here: Globals,
    action: Annotated[
        Literal["add", "list", "remove"], Argument(metavar="ACTION", help="add, list, remove.")
    ],
    url: Annotated[
        str | None, Argument(metavar="URL", help="A URL or a directory; not for list.")
    ] = None,
) -> None:
    """Manage the locations where clients may put tables.

    A server refuses tables that are neither under the root nor under such a location. For add and
    remove, --lake must name the store of the server, not its URL. Removing a location does not
    affect existing tables.

    For example:
      headgate location add s3://bucket/landing
      headgate location list
      headgate location remove s3://bucket/landing
    """
    if (url is None) is (action != "list"):
        raise typer.BadParameter("list takes no URL." if action == "list" else "a URL is required.")
    if action == "list":
        views.show_locations(here.output, here.call(lambda session: session.locations()))
    elif action == "add":
        with here.session("Connecting") as session:
            added = session.add_location(url or "").url
        here.output.result({"location": added}, f"Clients may put tables under {added}.")
    else:
        here.call(lambda session: session.remove_location(url or ""))
        here.output.result({"location": url}, f"Removed {url}: new tables there are refused.")


def _checked_name(name: str | None, is_required: bool) -> str:
    if (name is None) is is_required:
        raise typer.BadParameter("a NAME is required." if is_required else "list takes no NAME.")
    return name or ""
