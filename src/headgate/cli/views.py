"""What commands show of a lake, a table, its commits and its findings.

Each view gives programs and people the same: one value for JSON, one text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.cli.render import Output, facts, later, moment, size, table

if TYPE_CHECKING:  # all of these are slow to load
    from headgate.api.messages import Finding, Resolved, TableEntry, TimelineEntry
    from headgate.client.table import HistoryEntry
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
    """Show the tables of a lake, by name."""
    entries = sorted(tables, key=lambda entry: (entry.name or "", entry.created_ms))
    columns = ["table", "latest", "published", "made"]
    if dropped:
        columns += ["state", "dropped", "id"]
    rows = [
        [
            entry.name,
            entry.kind.value if entry.latest is None else entry.latest,
            "-" if entry.published is None else entry.published,
            moment(entry.created_ms),
            entry.state.value,
            moment(entry.dropped_ms) or "-",
            entry.table_id,
        ][: len(columns)]
        for entry in entries
    ]
    output.result(
        {
            "lake": lake,
            "namespaces": namespaces,
            "tables": [
                {
                    "table": entry.name,
                    "tableId": entry.table_id,
                    "kind": entry.kind.value,
                    "state": entry.state.value,
                    "location": entry.location,
                    "latest": entry.latest,
                    "published": entry.published,
                    "created": moment(entry.created_ms),
                    "dropped": moment(entry.dropped_ms),
                }
                for entry in entries
            ],
        },
        table(columns, rows, empty="No tables.", short=()),
    )
    output.say(f"Namespaces: {', '.join(namespaces)}.")


def show_external(output: Output, resolved: Resolved) -> None:
    """Show what a catalog knows of a table it does not manage."""
    from headgate.protocol.schema.types import from_json  # slow to load

    declared = "" if resolved.metadata is None else resolved.metadata.schema_string
    columns = from_json(declared).fields if declared else ()
    known = [
        ("table", resolved.name),
        ("id", resolved.table_id),
        ("kind", f"external, {resolved.format}"),
        ("location", resolved.location),
    ]
    described = [{"name": field.name, "type": str(field.type)} for field in columns]
    text = facts(known)
    if described:
        text += "\n" + table(("column", "type"), [(c["name"], c["type"]) for c in described])
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
    output: Output,
    name: str,
    snapshot: Snapshot,
    entry: TableEntry | None,
    rows: Any,
    limit: int,
) -> None:
    """Show where a table stands, its columns, and some rows."""
    names, values = rows.column_names, list(zip(*map(_values, rows.columns), strict=True))
    published = None if entry is None else entry.published
    known: list[tuple[str, object]] = [
        ("table", name),
        ("id", snapshot.table_id),
        ("location", snapshot.location),
        ("version", f"{snapshot.version}, of {moment(snapshot.timestamp_ms)}"),
        ("latest", "-" if entry is None else entry.latest),
        ("published", "nothing" if published is None else f"up to {published}"),
        ("files", f"{snapshot.num_files:,}, {size(snapshot.size_in_bytes)}"),
    ]
    if snapshot.metadata.description is not None:
        known.append(("comment", snapshot.metadata.description))
    if snapshot.partition_columns:
        known.append(("partitioned by", ", ".join(snapshot.partition_columns)))
    known += [("property", f"{key}={value}") for key, value in sorted(snapshot.properties.items())]
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
        facts(known),
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
            "timestamp": moment(snapshot.timestamp_ms),
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
        output.say(f"There are more rows: --limit {limit * 10}.")


def show_log(
    output: Output,
    name: str,
    entries: Sequence[TimelineEntry],
    told: Mapping[Version, HistoryEntry],
) -> None:
    """Show the life of each commit, and what it says it did."""
    output.result(
        {"table": name, "commits": [_commit(e, told.get(e.commit.version)) for e in entries]},
        table(
            ("version", "way", "state", "proposed", "ratified", "published", "txnId", "what"),
            [
                (
                    entry.commit.version,
                    entry.commit.way.value,
                    "published" if entry.commit.is_published else "ratified",
                    moment(entry.proposed_ms),
                    later(entry.ratified_ms, entry.proposed_ms),
                    later(entry.commit.published_ms, entry.proposed_ms),
                    entry.commit.txn_id,
                    _what(told.get(entry.commit.version)),
                )
                for entry in entries
            ],
            short=["txnId"],
        ),
    )


def show_findings(output: Output, found: Sequence[Finding]) -> int:
    """Show what a check found; return how many errors and warnings are not repaired."""
    left = [one.severity.value for one in found if not one.repaired]
    errors, warnings = left.count("error"), left.count("warning")
    output.result(
        {
            "findings": [
                {
                    "rule": one.rule,
                    "severity": one.severity.value,
                    "table": one.table,
                    "version": one.version,
                    "path": one.path,
                    "says": one.says,
                    "remedy": one.remedy,
                    "repaired": one.repaired,
                }
                for one in found
            ],
            "errors": errors,
            "warnings": warnings,
        },
        "\n".join(map(_finding, found)) or "Catalog and logs agree.",
    )
    if found and all(one.severity.value == "note" for one in found):
        output.say("Catalog and logs agree; a note only tells how things are.")
    return errors + warnings


def _values(column: Any) -> list[object]:
    try:
        return list(column.to_pylist(maps_as_pydicts="strict"))
    except (ValueError, OverflowError, KeyError):  # times Python has no years for, for one
        return list(column.cast("string").to_pylist())


def _commit(entry: TimelineEntry, told: HistoryEntry | None) -> dict[str, object]:
    commit = entry.commit
    return {
        "version": commit.version,
        "way": commit.way.value,
        "state": "published" if commit.is_published else "ratified",
        "txnId": commit.txn_id,
        "sequence": commit.sequence,
        "timestamp": moment(commit.timestamp_ms),
        "proposed": moment(entry.proposed_ms),
        "ratified": moment(entry.ratified_ms),
        "published": moment(commit.published_ms),
        "bytes": commit.size,
        "sha256": commit.sha256,
        "operation": told and told.operation,
        "parameters": told and dict(told.parameters),
        "metrics": told and dict(told.metrics),
    }


def _finding(found: Finding) -> str:
    where = "" if found.version is None else f" version {found.version}"
    path = "" if found.path is None else f" ({found.path})"
    said = f"{found.severity.value}: {found.table}{where}{path} {found.says.rstrip('.')}."
    remedy = "Repaired." if found.repaired else found.remedy
    return f"{said} [{found.rule}]\n  {remedy}".rstrip()


def _what(told: HistoryEntry | None) -> str:
    """Sum up what a commit says it did."""
    if told is None:
        return "-"
    words = [told.operation or "-"]
    if mode := told.parameters.get("mode"):
        words.append(str(mode))
    for metric, thing in (("numOutputRows", "row"), ("numRemovedFiles", "file removed")):
        count = told.metrics.get(metric)
        if isinstance(count, str) and count.isdigit() and count != "0":
            words.append(f"{int(count):,} {thing}" if count == "1" else _plural(count, thing))
    return f"{words[0]} {', '.join(words[1:])}".rstrip()


def _plural(count: str, thing: str) -> str:
    first, _, rest = thing.partition(" ")
    return f"{int(count):,} {first}s {rest}".rstrip()
