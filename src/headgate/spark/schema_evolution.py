"""A table whose schema changes with the rows that are written to it."""

from headgate.client.table_changes import described
from headgate.names import fold
from headgate.protocol import features
from headgate.protocol.actions import Action
from headgate.protocol.expressions.dependents import dependents
from headgate.protocol.schema.evolution import Widens, merged, never
from headgate.protocol.schema.types import GENERATION, Path, StructType
from headgate.spark.schema_conversion import all_nullable
from headgate.spark.statement import Statement
from headgate.spark.write import Target


def evolved(statement: Statement, given: StructType) -> tuple[list[Action], Target]:
    """Give a table what rows of another schema bring: columns and wider types.

    Returns the actions that change its schema, if any, and the table after them.
    """
    base = statement.base
    schema = merged(base.schema, all_nullable(given), _widens(statement))
    if schema == base.schema:
        return [], statement.target()
    protocol, metadata = described(base, base.metadata, schema, statement.table.committer.ids)
    actions: list[Action] = [metadata]
    if protocol != base.protocol:
        actions.insert(0, protocol)
    return actions, statement.target(metadata, protocol)


def _widens(statement: Statement) -> Widens:
    """Decide which types a write may widen: those that ALTER TABLE could change as well."""
    base = statement.base
    is_on = any(
        features.is_active(base.protocol, base.metadata, feature)
        for feature in ("typeWidening", "typeWidening-preview")
    )
    if not is_on:
        return never
    fixed = {fold(name) for name in base.partition_columns}
    fixed |= {fold(item.name) for item in base.schema.fields if GENERATION in item.metadata}

    def widens(path: Path) -> bool:
        return fold(path[0]) not in fixed and not dependents(base.metadata, path)

    return widens
