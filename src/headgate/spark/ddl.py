"""CREATE, REPLACE, ALTER, DROP and other statements about tables and schemas.

The client changes tables; Spark is used where rows are written with the table, or read.
"""

from typing import assert_never

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate import errors
from headgate.client.session import Session
from headgate.client.table_changes import RowCheck
from headgate.client.table_definition import (
    PendingTable,
    TableDefinition,
    added_metrics,
    replacement,
    table_operation,
)
from headgate.client.transaction import OperationInfo, as_text
from headgate.protocol.actions import AddFile
from headgate.protocol.schema import types as delta
from headgate.spark import scan, sessions
from headgate.spark.dml import Outcome
from headgate.spark.engine import Engine
from headgate.spark.failures import translated
from headgate.spark.relations import Resolver
from headgate.spark.schema_conversion import all_nullable, from_spark, quoted
from headgate.spark.sessions import strict_expressions
from headgate.spark.statement import Statement, refuse_followed
from headgate.spark.write import Target, conformed_to, stage_conformed
from headgate.sql import statements
from headgate.sql.statements import Commented, Creation, Name
from headgate.table.snapshot import Snapshot

# Making


def create(find: Resolver, statement: statements.CreateTable) -> None:
    """Make a table, or another in its place; with a query, filled in the same commit."""
    if statement.location is not None:
        raise errors.UnsupportedFeatureError(
            f"CREATE TABLE with a LOCATION ({statement.location!r}) is not supported: the catalog"
            " chooses the location of its tables.",
            remedy="Leave LOCATION out; name a table that exists elsewhere with"
            " session.register_external().",
        )
    engine, name, query = find.engine, str(statement.name), statement.query
    creation = statement.creation
    found = engine.session.find(name)
    existing = found if found is not None and found.catalog_managed else None
    if existing is not None and creation is Creation.IF_NOT_EXISTS:
        return
    if existing is not None and creation is Creation.CREATE:
        raise errors.AlreadyExistsError(f"There is a table {name} already.")
    if existing is None and creation is Creation.REPLACE:
        raise errors.NotFoundError(f"There is no table {name} to replace.")
    operation = f"{creation.value.removesuffix(' IF NOT EXISTS')} TABLE"
    if query is not None and existing is not None:

        def run(replacing: Statement) -> None:
            find.read_for(replacing)
            rows = find.ask(find.relations(query))
            replace(replacing, _definition(statement, rows), rows, f"{operation} AS SELECT")

        engine.redo(str(existing.name), run, existing)
    elif query is not None:
        rows = find.ask(find.relations(query))
        create_filled(engine, name, _definition(statement, rows), rows, f"{operation} AS SELECT")
    elif existing is not None:
        table = engine.session.open(existing)
        refuse_followed(table.newest_seen)
        table.replace(_definition(statement), operation, table.newest_seen)
    else:
        made = _definition(statement)
        columns = (name, made.schema, made.partition_by, made.properties, made.comment)
        if creation is Creation.OR_REPLACE:
            engine.session.replace_table(*columns, or_create=True)
        else:
            engine.session.create_table(*columns)


def create_filled(
    engine: Engine, name: str, definition: TableDefinition, rows: DataFrame, operation: str
) -> None:
    """Create a table with these rows: its name and they appear together."""
    sessions.check(engine.spark)

    def fill(new: PendingTable) -> list[AddFile]:
        target = Target(name, new.location, new.store, new.protocol, new.metadata)
        return stage_conformed(conformed_to(rows, target), target, engine.staging())

    engine.session.create_filled(name, definition, fill, operation)


def replace(
    statement: Statement, definition: TableDefinition, rows: DataFrame, operation: str | None = None
) -> Outcome:
    """Make another table of one that is there, with these rows, in one commit.

    Without an `operation` it is a write that brings its own columns.
    """
    refuse_followed(statement.base)
    committer = statement.table.committer
    made = replacement(statement.base, definition, committer.ids, committer.clock.now_ms())
    added = statement.stage(rows, statement.target(made.metadata, made.protocol))
    statement.add_scans(made.scans)
    counted = added_metrics(added)
    if operation is None:
        by = as_text(made.metadata.partition_columns)
        recorded = OperationInfo("WRITE", {"mode": "Overwrite", "partitionBy": by}, counted)
    else:
        recorded = table_operation(operation, made.metadata, counted)
    committed = statement.commit([*made.actions, *added], recorded)
    number = counted["numOutputRows"]
    return Outcome(committed, {"num_affected_rows": number, "num_inserted_rows": number})


def _definition(
    statement: statements.CreateTable, rows: DataFrame | None = None
) -> TableDefinition:
    schema = delta.StructType(statement.columns)
    if rows is not None:
        if statement.columns:
            raise errors.UnsupportedFeatureError(
                "A table made from a query has the query's columns.",
                remedy="Leave the columns out, or create the table first and insert into it.",
            )
        found = all_nullable(from_spark(rows.schema))
        schema = delta.StructType(tuple(delta.StructField(f.name, f.type) for f in found.fields))
    checks = {f"{delta.CONSTRAINTS}{c.name}": c.condition.text for c in statement.constraints}
    properties = {**statement.properties, **checks}
    return TableDefinition.parse(schema, statement.partition_by, properties, statement.comment)


# Changing


def alter(find: Resolver, statement: statements.AlterTable) -> None:
    """Change a table."""
    engine = find.engine
    table = engine.session.open(find.target(statement.name))
    for change in statement.changes:
        match change:
            case statements.AddColumns(columns):
                table.add_columns(columns)
            case statements.SetTableProperties(properties):
                table.set_properties(properties)
            case statements.UnsetTableProperties(keys, if_exists):
                table.unset_properties(keys, if_exists=if_exists)
            case statements.RenameTable(to):
                engine.session.rename(str(find.full_name(statement.name)), str(to))
            case statements.AddConstraint(constraint, condition):
                check = _holds(engine, condition.text)
                table.add_constraint(constraint, condition.text, check=check)
            case statements.DropConstraint(constraint, if_exists):
                table.drop_constraint(constraint, if_exists=if_exists)
            case statements.AlterColumn(column):
                not_null = f"{'.'.join(map(quoted, column))} IS NOT NULL"
                holds = _holds(engine, not_null) if change.nullable is False else None
                table.alter_column(column, **change.given, check=holds)
            case statements.RenameColumn(column, to):
                table.rename_column(column, to)
            case statements.DropColumns(columns, if_exists):
                table.drop_columns(columns, if_exists=if_exists)
            case _:
                assert_never(change)


def _holds(engine: Engine, condition: str) -> RowCheck:
    """Look at every row with Spark: the condition must be true for it."""

    def check(snapshot: Snapshot) -> None:
        rows = scan.dataframe(engine.spark, snapshot, snapshot.files())
        with translated():
            with strict_expressions(engine.spark, "Constraints"):
                broken = rows.where(~F.expr(condition).eqNullSafe(True))
            shown = [row.asDict() for row in broken.limit(3).collect()]
        if shown:
            raise errors.InvalidDataError(
                f"{snapshot.label} has rows for which {condition} is not true: {shown}.",
                remedy="Correct these rows first. Nothing was committed.",
            )

    return check


# Naming


def manage(find: Resolver, statement: statements.NameStatement) -> None:
    """Name, unname and comment on tables and schemas."""
    session = find.engine.session
    match statement:
        case statements.DropTable(name, if_exists, purge):
            try:
                table_id = session.drop(str(name))
            except errors.NotFoundError:
                if if_exists:
                    return
                find.target(name)  # raises an error that points at the name in the script
                raise
            if purge:
                session.purge(table_id)
        case statements.UndropTable(name):
            session.undrop(str(name))
        case statements.CommentOn(Commented.TABLE, name, comment):
            session.open(find.target(name)).comment(comment)
        case statements.CommentOn(Commented.COLUMN, name, comment):
            table = Name(name.parts[:-1], name.piece)
            session.open(find.target(table)).alter_column(name.parts[-1:], comment=comment)
        case statements.CommentOn():
            raise errors.UnsupportedFeatureError("A comment on a schema cannot be kept.")
        case statements.CreateSchema(name, if_not_exists) as create:
            _refuse_kept(create)
            try:
                session.create_namespace(str(name), storage_root=create.location)
            except errors.AlreadyExistsError:
                if not if_not_exists:
                    raise
        case statements.DropSchema(name, if_exists, cascade):
            _drop_schema(session, str(name), if_exists=if_exists, cascade=cascade)
        case statements.RenameNamespace(name, to, is_catalog):
            rename = session.rename_catalog if is_catalog else session.rename_namespace
            rename(str(name), str(to))
        case statements.UseNamespace(name, is_catalog=False):
            session.use(str(name))
        case statements.UseNamespace(name):
            raise errors.InvalidArgumentError(
                f"A catalog alone cannot be used: {name}.", remedy="Name a schema too."
            )
        case _:
            assert_never(statement)


def _refuse_kept(create: statements.CreateSchema) -> None:
    """Refuse what a schema cannot keep."""
    kept = {"COMMENT": create.comment is not None, "DBPROPERTIES": bool(create.properties)}
    if found := [word for word, is_given in kept.items() if is_given]:
        raise errors.UnsupportedFeatureError(
            f"A schema has a name and a location: {', '.join(found)} is not supported.",
            remedy="Leave it out.",
        )


def _drop_schema(session: Session, name: str, *, if_exists: bool, cascade: bool) -> None:
    known = {found.key for found in session.namespaces()}
    if session.schema_name(name).key not in known:
        if if_exists:
            return
        raise errors.NotFoundError(f"There is no schema {name}.")
    entries = session.tables(name)
    if entries and not cascade:
        raise errors.NotEmptyError(
            f"The schema {name} has tables.", remedy="Drop them, or add CASCADE."
        )
    for entry in entries:
        if entry.name is not None:
            session.drop(entry.name)
    session.drop_namespace(name)
