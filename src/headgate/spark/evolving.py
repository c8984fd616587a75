"""A table whose schema changes with the rows that are written to it."""

from __future__ import annotations

from headgate.errors import UnsupportedFeatureError
from headgate.protocol import features
from headgate.protocol.actions import Action
from headgate.protocol.schema import StructType, from_json
from headgate.protocol.schema_checks import check
from headgate.protocol.schema_evolution import with_schema
from headgate.spark.statement import Statement
from headgate.spark.write import Target


def evolved(statement: Statement, schema: StructType) -> tuple[list[Action], Target]:
    """Give what makes the table one of this schema, and the table as it then is."""
    base = statement.base
    mapped = features.mapping_mode(base.protocol, base.metadata) != "none"
    metadata = with_schema(base.metadata, schema, mapped=mapped, new_name=statement.new_column_name)
    check(from_json(metadata.schema_string), base.partition_columns, column_mapping=mapped)
    protocol = base.protocol
    for feature in features.features_for(metadata.configuration, schema):
        if not features.is_supported(protocol, feature):
            protocol = features.upgraded(protocol, feature)
    if found := features.unwritable(protocol, metadata, rows=False):
        raise UnsupportedFeatureError(f"{base.label} cannot be changed: {', '.join(found)}.")
    actions: list[Action] = [metadata]
    if protocol != base.protocol:
        actions = [protocol, metadata]
    return actions, statement.target(metadata, protocol)
