"""Lookups in a unit of work that raise if a table or namespace is not as required."""

from __future__ import annotations

from headgate.api.port import Ref
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import NamedTableRow, TableRow
from headgate.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    RefusedError,
)
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import TableId
from headgate.protocol.table_states import TableKind, TableStatus, TableTransition, allows, step


def known(unit: ReadUnit, table_id: TableId) -> TableRow:
    """Return a table in any state."""
    row = unit.table(table_id)
    if row is None:
        raise NotFoundError(f"There is no table {table_id}.")
    return row


def active(unit: ReadUnit, table_id: TableId) -> TableRow:
    """Return a table that is neither staged nor dropped."""
    row = known(unit, table_id)
    if row.state is not TableStatus.ACTIVE:
        raise NotFoundError(
            f"Table {table_id} is {row.state.value}.",
            remedy="A dropped table can be restored with session.undrop().",
        )
    return row


def active_by(unit: ReadUnit, ref: Ref) -> NamedTableRow:
    """Return an active table by its name or its id, with its name."""
    named = unit.named_table(ref)
    if named is None:
        if not isinstance(ref, TableName):
            active(unit, ref)  # raises with the table's state, if there is such a table
        raise NotFoundError(f"There is no table {ref}.")
    return named


def managed(row: TableRow) -> TableRow:
    """Return the table if it is managed by the catalog; refuse an external one."""
    if row.kind is TableKind.EXTERNAL:
        raise not_managed(row.id)
    return row


def not_managed(table_id: TableId) -> InvalidArgumentError:
    """Return the error for an operation on an external table."""
    return InvalidArgumentError(
        f"Table {table_id} is external: this catalog knows only its location.",
        remedy="Use it with the tool that writes it.",
    )


def require_namespace(unit: ReadUnit, name: SchemaName) -> None:
    """Raise if there is no such schema."""
    if not any(known.key == name.key for known in unit.namespaces()):
        raise NotFoundError(
            f"There is no namespace {name}.",
            remedy="Create it: session.create_namespace(), or `headgate create-namespace`.",
        )


def refuse_overlap(unit: ReadUnit, location: str) -> None:
    """Raise if a table is at a location, above it or below it."""
    other = unit.overlapping_table(location)
    if other is not None:
        raise overlap_error(location, other)


def overlap_error(location: str, other: TableRow) -> AlreadyExistsError:
    """Return the error for a location that overlaps another table's."""
    return AlreadyExistsError(
        f"{location} overlaps table {other.id} at {other.location}.",
        remedy="Choose a location that is not inside another table's, and contains none.",
    )


def after(row: TableRow, transition: TableTransition) -> TableRow:
    """Return a table after a transition; refuse one that its state does not allow."""
    if not allows(row.state, transition):
        raise RefusedError(
            f"Table {row.id} is {row.state.value}: it cannot {transition.value}.",
            remedy="See `headgate show --dropped` for the state of each table.",
        )
    return row._replace(state=step(row.state, transition))
