"""Tables that must be there: found for one reading of the store, or refused by name."""

from __future__ import annotations

from headgate.api.port import Ref
from headgate.catalog.stores.port import NamedTableRow, ReadUnit, TableRow
from headgate.errors import InvalidArgumentError, NotFoundError
from headgate.names import TableName
from headgate.protocol.actions import TableId
from headgate.protocol.table_states import TableKind, TableStatus


def known(unit: ReadUnit, table_id: TableId) -> TableRow:
    """Give a table in whatever state it is."""
    row = unit.table(table_id)
    if row is None:
        raise NotFoundError(f"There is no table {table_id}.")
    return row


def active(unit: ReadUnit, table_id: TableId) -> TableRow:
    """Give a table that is neither staged nor dropped."""
    row = known(unit, table_id)
    if row.state is not TableStatus.ACTIVE:
        raise NotFoundError(
            f"Table {table_id} is {row.state.value}.",
            remedy="Undrop it while it is dropped: session.undrop().",
        )
    return row


def active_by(unit: ReadUnit, ref: Ref) -> NamedTableRow:
    """Give an active table by its name or its id, with its name."""
    found = unit.named_table(ref)
    if found is None:
        if not isinstance(ref, TableName):
            active(unit, ref)  # says what has become of it
        raise NotFoundError(f"There is no table {ref}.")
    return found


def managed(row: TableRow) -> TableRow:
    """Give a table back, unless its commits do not pass through here."""
    if row.kind is TableKind.EXTERNAL:
        raise not_managed(row.id)
    return row


def not_managed(table_id: TableId) -> InvalidArgumentError:
    """Return the refusal of an operation on an external table."""
    return InvalidArgumentError(
        f"Table {table_id} is external: this catalog knows its place and nothing more.",
        remedy="Use it with the tool that writes it.",
    )
