"""What commands show of events, of how a catalog stands, of tokens and of listeners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headgate.cli.render import Output, facts, many, moment, table

if TYPE_CHECKING:  # slow to load
    from headgate.api.events import Event
    from headgate.api.status import ListenerEntry, LocationEntry, Status, TokenEntry


def event_line(event: Event, *, as_json: bool) -> str:
    """Write an event as one line."""
    if as_json:
        from headgate.protocol.encoding import to_json  # slow to load

        return to_json(event).decode()
    return f"{event.sequence}  {moment(event.timestamp_ms)}  {', '.join(_parts(event)) or '-'}"


def show_status(output: Output, status: Status) -> int:
    """Show how a catalog stands; give how many tables are not published any more."""
    stopped = sum(trouble.is_stopped for trouble in status.troubles)
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(status.tables.items()))
    external = f" ({status.external:,} of the active external)" if status.external else ""
    known: list[tuple[str, object]] = [
        ("Headgate", status.version),
        ("store", status.store),
        ("tables under", status.root),
        ("sequence", f"{status.sequence:,}, now {moment(status.clock_ms)}"),
        ("tables", f"{states or 'none'}{external}"),
        ("unpublished", _unpublished(status)),
        ("open transactions", f"{status.open_transactions:,}"),
        ("tokens", f"{status.tokens:,}"),
    ]
    text = [facts(known)]
    if status.troubles:  # reasons are long, and cutting them short would hide the place
        text.append(
            "\n".join(
                f"{trouble.name or trouble.table_id}: publishing "
                f"{'has stopped' if trouble.is_stopped else 'fails'}: {trouble.reason}"
                for trouble in status.troubles
            )
        )
    if status.tails:
        rows = [(tail.name or tail.table_id, tail.unpublished) for tail in status.tails]
        text.append(table(("table", "unpublished"), rows))
    if status.listeners:
        text.append(_listener_table(status.listeners))
    output.result(
        {
            "version": status.version,
            "store": status.store,
            "root": status.root,
            "sequence": status.sequence,
            "clock": moment(status.clock_ms),
            "tables": dict(status.tables),
            "external": status.external,
            "unpublished": status.unpublished,
            "openTransactions": status.open_transactions,
            "tails": [
                {"table": tail.name, "tableId": tail.table_id, "unpublished": tail.unpublished}
                for tail in status.tails
            ],
            "publisherLagMs": status.publisher_lag_ms,
            "troubles": [
                {
                    "table": trouble.name,
                    "tableId": trouble.table_id,
                    "stopped": trouble.is_stopped,
                    "reason": trouble.reason,
                }
                for trouble in status.troubles
            ],
            "listeners": [_listener(entry) for entry in status.listeners],
            "tokens": status.tokens,
        },
        "\n\n".join(text),
    )
    if stopped:
        output.say(f"Publishing of {many(stopped, 'table')} has stopped: run `headgate fsck`.")
    return stopped


def show_tokens(output: Output, tokens: Sequence[TokenEntry]) -> None:
    """Show who may come in."""
    output.result(
        {
            "tokens": [
                {
                    "token": token.name,
                    "created": moment(token.created_ms),
                    "expires": moment(token.expires_ms),
                    "revoked": moment(token.revoked_ms),
                }
                for token in tokens
            ]
        },
        table(
            ("token", "created", "expires", "revoked"),
            [
                (
                    token.name,
                    moment(token.created_ms),
                    moment(token.expires_ms) or "-",
                    moment(token.revoked_ms) or "-",
                )
                for token in tokens
            ],
            empty="No tokens.",
        ),
    )


def show_locations(output: Output, locations: Sequence[LocationEntry]) -> None:
    """Show the registered locations."""
    rows = [(location.url, moment(location.created_ms)) for location in locations]
    output.result(
        {"locations": [{"location": url, "added": added} for url, added in rows]},
        table(("location", "added"), rows, empty="No locations."),
    )


def show_listeners(output: Output, listeners: Sequence[ListenerEntry]) -> None:
    """Show who is told, and how far each one is."""
    output.result(
        {"listeners": [_listener(entry) for entry in listeners]},
        _listener_table(listeners),
    )


def _listener(entry: ListenerEntry) -> dict[str, object]:
    return {
        "listener": entry.name,
        "kind": entry.kind,
        "target": entry.target,
        "position": entry.position,
        "behind": entry.behind,
        "failing": entry.failing,
        "created": moment(entry.created_ms),
    }


def _listener_table(listeners: Sequence[ListenerEntry]) -> str:
    drawn = table(
        ("listener", "kind", "position", "behind", "target"),
        [
            (entry.name, entry.kind, entry.position, entry.behind, entry.target)
            for entry in listeners
        ],
        empty="No listeners.",
    )
    failing = [f"{entry.name} fails: {entry.failing}" for entry in listeners if entry.failing]
    return "\n".join([drawn, *failing])


def _unpublished(status: Status) -> str:
    if not status.unpublished:
        return "nothing"
    lag_s = status.publisher_lag_ms / 1000
    return f"{many(status.unpublished, 'commit')}, the oldest for {lag_s:,.1f} s"


def _parts(event: Event) -> Iterator[str]:
    for change in event.names:
        match change.before, change.after:
            case None, after:
                yield f"{after} named"
            case before, None:
                yield f"{before} dropped"
            case before, after:
                yield f"{before} renamed to {after}"
    for commit in event.commits:
        yield f"{commit.name or commit.table_id} version {commit.version} {commit.way.value}"
