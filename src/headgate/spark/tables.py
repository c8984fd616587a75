"""CREATE, ALTER, DROP and their kin: statements about tables and schemas."""

from __future__ import annotations

from typing import assert_never

from headgate.errors import (
    AlreadyExistsError,
    NotEmptyError,
    NotFoundError,
    UnsupportedFeatureError,
)
from headgate.protocol.schema import COMMENT, DEFAULT, GENERATION, StructField, StructType
from headgate.spark.engine import Engine
from headgate.spark.relations import Resolver
from headgate.sql import statements
from headgate.sql.statements import Commented, Creation, Name

Managed = (
    statements.DropTable
    | statements.UndropTable
    | statements.CommentOn
    | statements.CreateSchema
    | statements.DropSchema
    | statements.Use
)


def create(engine: Engine, find: Resolver, statement: statements.CreateTable) -> None:
    """Make a table."""
    if statement.location is not None:
        raise UnsupportedFeatureError(
            "The catalog chooses where its tables lie.", remedy="Leave LOCATION out."
        )
    name = _text(statement.name)
    is_there = engine.session.find_name(name) is not None
    if is_there and statement.creation is Creation.IF_NOT_EXISTS:
        return
    if is_there:
        raise AlreadyExistsError(f"There is a table {name} already.")
    engine.session.create_table(
        name,
        StructType(tuple(_field(column) for column in statement.columns)),
        statement.partition_by,
        properties=dict(statement.properties),
        comment=statement.comment,
    )


def _field(column: statements.Column) -> StructField:
    metadata: dict[str, object] = {}
    if column.comment is not None:
        metadata[COMMENT] = column.comment
    if column.default is not None:
        metadata[DEFAULT] = column.default.text
    if column.generated is not None:
        metadata[GENERATION] = column.generated.text
    if column.identity is not None:
        raise UnsupportedFeatureError(f"Column {column.name!r} is an identity column.")
    return StructField(column.name, column.type, column.nullable, metadata)


def alter(engine: Engine, find: Resolver, statement: statements.AlterTable) -> None:
    """Change a table."""
    name = str(find.target(statement.name))
    table = engine.session.table(name)
    match statement.change:
        case statements.SetProperties(properties):
            table.set_properties(properties)
        case statements.UnsetProperties(keys, if_exists):
            known = [key for key in keys if not if_exists or key in table.properties]
            if known:
                table.unset_properties(known)
        case statements.RenameTable(to):
            engine.session.rename(name, _text(to))
        case change:
            raise UnsupportedFeatureError(f"{type(change).__name__} cannot be done here yet.")


def manage(engine: Engine, find: Resolver, statement: Managed) -> None:
    """Name, unname and comment on tables and schemas."""
    session = engine.session
    match statement:
        case statements.DropTable(name=name, if_exists=if_exists, purge=purge):
            if if_exists and session.find_name(_text(name)) is None:
                return
            table_id = session.drop(str(find.target(name)))
            if purge:
                session.purge(table_id)
        case statements.UndropTable(name=name):
            session.undrop(_text(name))
        case statements.CommentOn(on=Commented.TABLE, name=name, comment=comment):
            session.table(str(find.target(name))).comment(comment)
        case statements.CommentOn(on=on):
            raise UnsupportedFeatureError(f"A comment on a {on.value} cannot be kept.")
        case statements.CreateSchema(name=name, if_not_exists=if_not_exists):
            try:
                session.create_namespace(_text(name))
            except AlreadyExistsError:
                if not if_not_exists:
                    raise
        case statements.DropSchema(name=name, if_exists=if_exists, cascade=cascade):
            _drop_schema(engine, _text(name), if_exists=if_exists, cascade=cascade)
        case statements.Use(name=name, is_catalog=False):
            session.use(_text(name))
        case statements.Use(name=name):
            raise UnsupportedFeatureError(f"{name} cannot be used as a whole catalog.")
        case _:
            assert_never(statement)


def _drop_schema(engine: Engine, name: str, *, if_exists: bool, cascade: bool) -> None:
    session = engine.session
    known = {found.key for found in session.namespaces()}
    if session.schema_name(name).key not in known:
        if if_exists:
            return
        raise NotFoundError(f"There is no schema {name}.")
    entries = session.tables(name)
    if entries and not cascade:
        raise NotEmptyError(f"The schema {name} has tables.", remedy="Drop them, or add CASCADE.")
    for entry in entries:
        if entry.name is not None:
            session.drop(entry.name)
    session.drop_namespace(name)


def _text(name: Name) -> str:
    return ".".join(name.parts)
