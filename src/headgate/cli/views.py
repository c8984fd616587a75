"""What commands show, each as one value for JSON and one text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.cli.output import (
    Output,
    Record,
    byte_size,
    counted,
    delay,
    iso_time,
    key_values,
    listing,
    record,
    table,
)

if TYPE_CHECKING:  # all of these are slow to load
    from headgate.api.events import Event
    from headgate.api.messages import Finding, Resolved, TableEntry, TimelineEntry
    from headgate.api.status import ListenerEntry, LocationEntry, Status, TokenEntry
    from headgate.client.history import HistoryEntry
    from headgate.protocol.actions import Version
    from headgate.table.snapshot import Snapshot


def show_lake(
    output: Output,
    lake: str,
    tables: Sequence[TableEntry],
    namespaces: Sequence[str],
    *,
    dropped: bool,
) -> None:
    """Show the tables of a lake, sorted by name."""
    columns = ["table", "latest", "published", "created"]
    if dropped:
        columns += ["state", "dropped", "id"]
    entries = sorted(tables, key=lambda entry: (entry.name or "", entry.created_ms))
    records = [record(entry, name="table") for entry in entries]
    shown = [
        item
        | {"id": item["tableId"], "latest": item["kind" if item["latest"] is None else "latest"]}
        for item in records
    ]
    output.result(
        {"lake": lake, "namespaces": namespaces, "tables": records},
        listing(columns, shown, empty="No tables.", shorten=()),
    )
    output.note(f"Namespaces: {', '.join(namespaces)}.")


def show_external(output: Output, resolved: Resolved) -> None:
    """Show what the catalog knows about an external table."""
    from headgate.protocol.schema.types import from_json  # slow to load

    declared = "" if resolved.metadata is None else resolved.metadata.schema_string
    columns = from_json(declared).fields if declared else ()
    text = key_values(
        [
            ("table", resolved.name),
            ("id", resolved.table_id),
            ("kind", f"external, {resolved.format}"),
            ("location", resolved.location),
        ]
    )
    described = [{"name": field.name, "type": str(field.type)} for field in columns]
    if described:
        text += "\n" + table(("column", "type"), [tuple(column.values()) for column in described])
    output.result(
        {
            "table": resolved.name,
            "tableId": resolved.table_id,
            "kind": "external",
            "format": resolved.format,
            "location": resolved.location,
            "columns": described,
        },
        text,
    )


def show_table(
    output: Output, name: str, snapshot: Snapshot, entry: TableEntry | None, rows: Any, limit: int
) -> None:
    """Show the state of a table, its columns, and some rows."""
    names, values = rows.column_names, list(zip(*map(_values, rows.columns), strict=True))
    published = None if entry is None else entry.published
    pairs: list[tuple[str, object]] = [
        ("table", name),
        ("id", snapshot.table_id),
        ("location", snapshot.location),
        ("version", f"{snapshot.version}, committed {iso_time(snapshot.timestamp_ms)}"),
        ("latest", "-" if entry is None else entry.latest),
        ("published", "nothing" if published is None else f"up to {published}"),
        ("files", f"{snapshot.num_files:,}, {byte_size(snapshot.size_in_bytes)}"),
    ]
    if snapshot.metadata.description is not None:
        pairs.append(("comment", snapshot.metadata.description))
    if snapshot.partition_columns:
        pairs.append(("partitioned by", ", ".join(snapshot.partition_columns)))
    pairs += [("property", f"{key}={value}") for key, value in sorted(snapshot.properties.items())]
    described = [
        {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "comment": field.metadata.get("comment"),
        }
        for field in snapshot.schema.fields
    ]
    text = [
        key_values(pairs),
        table(
            ("column", "type", "null"),
            [(c["name"], c["type"], "" if c["nullable"] else "not null") for c in described],
        ),
    ]
    if limit:
        text.append(table(names, values[:limit], empty="No rows."))
    output.result(
        {
            "table": name,
            "tableId": snapshot.table_id,
            "location": snapshot.location,
            "version": snapshot.version,
            "timestamp": iso_time(snapshot.timestamp_ms),
            "latest": None if entry is None else entry.latest,
            "published": published,
            "files": snapshot.num_files,
            "bytes": snapshot.size_in_bytes,
            "comment": snapshot.metadata.description,
            "partitionBy": list(snapshot.partition_columns),
            "properties": dict(snapshot.properties),
            "columns": described,
            "rows": [dict(zip(names, row, strict=True)) for row in values[:limit]],
        },
        "\n\n".join(text),
    )
    if limit and len(values) > limit:
        output.note(f"There are more rows: use --limit {limit * 10}.")


def show_log(
    output: Output,
    name: str,
    entries: Sequence[TimelineEntry],
    history: Mapping[Version, HistoryEntry],
) -> None:
    """Show how each commit was made, when, and what it did according to its `commitInfo`."""
    commits = [_commit(entry, history.get(entry.commit.version)) for entry in entries]
    shown = [
        commit
        | {
            "ratified": delay(entry.ratified_ms, entry.proposed_ms),
            "published": delay(entry.commit.published_ms, entry.proposed_ms),
            "operation": _operation(history.get(entry.commit.version)),
        }
        for commit, entry in zip(commits, entries, strict=True)
    ]
    columns = ["version", "way", "state", "proposed", "ratified", "published", "txnId", "operation"]
    output.result({"table": name, "commits": commits}, listing(columns, shown, shorten=["txnId"]))


def show_findings(output: Output, findings: Sequence[Finding]) -> int:
    """Show findings; return how many errors and warnings are not repaired."""
    left = [finding.severity.value for finding in findings if not finding.repaired]
    errors, warnings = left.count("error"), left.count("warning")
    output.result(
        {
            "findings": [record(finding) for finding in findings],
            "errors": errors,
            "warnings": warnings,
        },
        "\n".join(map(_finding, findings)) or "No problems found.",
    )
    if findings and all(finding.severity.value == "note" for finding in findings):
        output.note("No problems found: notes need no action.")
    return errors + warnings


def event_line(event: Event, *, as_json: bool) -> str:
    """Format an event as one line."""
    if as_json:
        from headgate.protocol.encoding import to_json  # slow to load

        return to_json(event).decode()
    return f"{event.sequence}  {iso_time(event.timestamp_ms)}  {', '.join(_changes(event)) or '-'}"


def show_status(output: Output, status: Status) -> int:
    """Show the state of a catalog; return for how many tables publishing has stopped."""
    stopped = sum(trouble.is_stopped for trouble in status.troubles)
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(status.tables.items()))
    external = f" ({status.external:,} of the active external)" if status.external else ""
    pairs: list[tuple[str, object]] = [
        ("Headgate", status.version),
        ("store", status.store),
        ("root", status.root),
        ("sequence", f"{status.sequence:,}, now {iso_time(status.clock_ms)}"),
        ("tables", f"{states or 'none'}{external}"),
        ("unpublished", _unpublished(status)),
        ("open transactions", f"{status.open_transactions:,}"),
        ("tokens", f"{status.tokens:,}"),
    ]
    text = [key_values(pairs)]
    if status.troubles:  # not as a table: reasons are long and must not be shortened
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
    listeners = [record(entry, name="listener") for entry in status.listeners]
    if listeners:
        text.append(_listener_table(listeners))
    fields = record(status, publisher_lag_ms="publisherLagMs") | {
        "publisherLagMs": status.publisher_lag_ms,  # a duration, not a time
        "tails": [record(tail, name="table") for tail in status.tails],
        "troubles": [record(item, name="table", is_stopped="stopped") for item in status.troubles],
        "listeners": listeners,
    }
    output.result(fields, "\n\n".join(text))
    if stopped:
        output.note(f"Publishing has stopped for {counted(stopped, 'table')}: run `headgate fsck`.")
    return stopped


def show_tokens(output: Output, tokens: Sequence[TokenEntry]) -> None:
    """Show access tokens, without their secrets."""
    records = [record(token, name="token") for token in tokens]
    columns = ("token", "created", "expires", "revoked")
    output.result({"tokens": records}, listing(columns, records, empty="No tokens."))


def show_locations(output: Output, locations: Sequence[LocationEntry]) -> None:
    """Show the registered locations."""
    records = [record(entry, url="location", created_ms="added") for entry in locations]
    columns = ("location", "added")
    output.result({"locations": records}, listing(columns, records, empty="No locations."))


def show_listeners(output: Output, listeners: Sequence[ListenerEntry]) -> None:
    """Show listeners and the position of each."""
    records = [record(entry, name="listener") for entry in listeners]
    output.result({"listeners": records}, _listener_table(records))


def _values(column: Any) -> list[object]:
    try:
        return list(column.to_pylist(maps_as_pydicts="strict"))
    except (ValueError, OverflowError, KeyError):  # such as years that Python does not support
        return list(column.cast("string").to_pylist())


def _commit(entry: TimelineEntry, history: HistoryEntry | None) -> dict[str, object]:
    commit = entry.commit
    return {
        "version": commit.version,
        "way": commit.way.value,
        "state": "published" if commit.is_published else "ratified",
        "txnId": commit.txn_id,
        "sequence": commit.sequence,
        "timestamp": iso_time(commit.timestamp_ms),
        "proposed": iso_time(entry.proposed_ms),
        "ratified": iso_time(entry.ratified_ms),
        "published": iso_time(commit.published_ms),
        "bytes": commit.size,
        "sha256": commit.sha256,
        "operation": history and history.operation,
        "parameters": history and dict(history.parameters),
        "metrics": history and dict(history.metrics),
    }


def _finding(finding: Finding) -> str:
    version = "" if finding.version is None else f" version {finding.version}"
    path = "" if finding.path is None else f" ({finding.path})"
    place = f"{finding.severity.value}: {finding.table}{version}{path}"
    remedy = "Repaired." if finding.repaired else finding.remedy
    return f"{place} {finding.says.rstrip('.')}. [{finding.rule}]\n  {remedy}".rstrip()


def _operation(history: HistoryEntry | None) -> str:
    """Summarise what a commit did according to its `commitInfo`."""
    if history is None:
        return "-"
    words = [history.operation or "-"]
    if mode := history.parameters.get("mode"):
        words.append(str(mode))
    for metric, noun in (("numOutputRows", "row"), ("numRemovedFiles", "file")):
        count = history.metrics.get(metric)
        if isinstance(count, str) and count.isdigit() and count != "0":
            removed = " removed" if metric == "numRemovedFiles" else ""
            words.append(f"{counted(int(count), noun)}{removed}")
    return f"{words[0]} {', '.join(words[1:])}".rstrip()


def _listener_table(listeners: Sequence[Record]) -> str:
    columns = ("listener", "kind", "position", "behind", "target")
    drawn = listing(columns, listeners, empty="No listeners.")
    failing = [
        f"{one['listener']} is failing: {one['failing']}" for one in listeners if one["failing"]
    ]
    return "\n".join([drawn, *failing])


def _unpublished(status: Status) -> str:
    if not status.unpublished:
        return "nothing"
    lag_s = status.publisher_lag_ms / 1000
    return f"{counted(status.unpublished, 'commit')}, the oldest for {lag_s:,.1f} s"


def _changes(event: Event) -> Iterator[str]:
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
