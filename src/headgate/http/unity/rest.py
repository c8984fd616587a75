"""The part of the older REST that clients of both dialects need: catalogs, schemas, tables.

A catalog is there when a schema is in it, so making one makes its schema `default`. Nothing is kept
here that the catalog core does not keep.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from headgate.api.messages import TableInfo
from headgate.api.status import CatalogDetails, NamespaceDetails
from headgate.catalog import namespace_details
from headgate.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    InvalidCommitError,
    NotEmptyError,
)
from headgate.http.operations import Call, Operation, Pool
from headgate.http.unity import bodies, columns, external_tables, problems, table_views
from headgate.http.unity.problems import BASE, Case, SaidError
from headgate.names import DEFAULT_SCHEMA, SchemaName, TableName, fold, plain_name
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.encoding import replaced
from headgate.settings import Settings

_PAGE: Final = 100  # when the client does not say
_LARGEST_PAGE: Final = 1_000
_OK: Final = 200  # what clients expect as the body of an answer that says nothing else
_READING: Final = ("READ", "READ_WRITE", "PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE")


def operations(settings: Settings) -> list[Operation]:
    """List what this part can be asked."""

    def row(
        method: str,
        path: str,
        name: str,
        says: str,
        do: Callable[[Call], object],
        body: Any = None,
        pool: Pool | None = None,
    ) -> Operation:
        chosen = pool or (Pool.READS if method == "GET" else Pool.CHANGES)
        return Operation(
            method,
            f"{BASE}{path}",
            f"unity_{name}",
            says,
            do,
            body=body,
            pool=chosen,
            refused=problems.snake,
        )

    return [
        row("GET", "/catalogs", "catalogs", "List the catalogs.", _catalogs),
        row("POST", "/catalogs", "create_catalog", "Make one.", _create_catalog, bodies.NewCatalog),
        row("GET", "/catalogs/{name}", "catalog", "Tell of a catalog.", _catalog),
        row(
            "PATCH",
            "/catalogs/{name}",
            "change_catalog",
            "Change the details of a catalog.",
            _change_catalog,
            bodies.ChangedRemarks,
        ),
        row("DELETE", "/catalogs/{name}", "delete_catalog", "Remove a catalog.", _delete_catalog),
        row("GET", "/schemas", "schemas", "List schemas.", _schemas),
        row("POST", "/schemas", "create_schema", "Make one.", _create_schema, bodies.NewSchema),
        row("GET", "/schemas/{name}", "schema", "Tell of a schema.", _one_schema),
        row(
            "PATCH",
            "/schemas/{name}",
            "change_schema",
            "Change the details of a schema.",
            _change_schema,
            bodies.ChangedRemarks,
        ),
        row("DELETE", "/schemas/{name}", "delete_schema", "Remove a schema.", _delete_schema),
        row("GET", "/tables", "tables", "List tables.", _tables, pool=Pool.CHANGES),
        row("GET", "/tables/{name}", "table", "Tell of a table.", _table, pool=Pool.CHANGES),
        row("DELETE", "/tables/{name}", "drop_table", "Drop a table.", _delete_table),
        row(
            "POST",
            "/tables",
            "name_table",
            "Name a staging table, or one that lies somewhere.",
            lambda call: _create_table(call, settings),
            bodies.OlderNewTable,
        ),
        row(
            "POST",
            "/staging-tables",
            "stage_older_table",
            "Give a place and an id.",
            _stage,
            bodies.OlderNewStagingTable,
        ),
        row(
            "POST",
            "/temporary-table-credentials",
            "open_table",
            "Open a table.",
            _open_table,
            bodies.TableAccess,
        ),
        row(
            "POST",
            "/temporary-path-credentials",
            "open_path",
            "Open a place.",
            _open_path,
            bodies.PathAccess,
        ),
        row("GET", "/metastore_summary", "summary", "Say which catalog this is.", _summary),
    ]


# Catalogs and schemas


def _catalogs(call: Call) -> bodies.Catalogs:
    token, size = call.text("page_token"), _page_size(call)
    after = fold(plain_name(token)) if token else ""
    known = sorted(table_views.catalogs(call.catalog).items())
    names = [name for key, name in known if key > after]
    made_ms = call.catalog.namespaces_made_ms()
    return bodies.Catalogs(
        catalogs=tuple(_catalog_info(call, name, made_ms) for name in names[:size]),
        next_page_token=names[size - 1] if len(names) > size else None,
    )


def _catalog(call: Call) -> bodies.CatalogInfo:
    name = table_views.require_catalog(call.catalog, plain_name(call.path["name"]))
    return _catalog_info(call, name, call.catalog.namespaces_made_ms())


# Neither a catalog nor a schema is made twice, also where the first answer was lost: whoever says
# IF NOT EXISTS looks for this very error, and whoever does not wants to know that it was there.


def _create_catalog(call: Call) -> bodies.CatalogInfo:
    name = plain_name(call.body.name)
    if fold(name) in table_views.catalogs(call.catalog):
        raise SaidError(Case.CATALOG_THERE, f"There is a catalog {name} already.")
    first = SchemaName(name, DEFAULT_SCHEMA)
    _make(call, first, Case.CATALOG_THERE, catalog_details=_details(call))
    return _catalog_info(call, name, call.catalog.namespaces_made_ms())


def _change_catalog(call: Call) -> bodies.CatalogInfo:
    old, new = plain_name(call.path["name"]), _new_name(call)
    known = table_views.catalogs(call.catalog)
    is_replay = (
        fold(old) not in known
        and new is not None
        and _has_former_name(call.catalog.details(new).catalog, old)
    )
    if not is_replay:
        name = table_views.require_catalog(call.catalog, old)
        _change_remarks(call, name, new, Case.CATALOG_THERE)
    name = table_views.require_catalog(call.catalog, new or old)
    return _catalog_info(call, name, call.catalog.namespaces_made_ms())


def _change_schema(call: Call) -> bodies.SchemaInfo:
    old, new = _schema_name(call), _new_name(call)
    renamed = SchemaName(old.catalog, new or old.schema)
    known = {found.key for found in call.catalog.namespaces()}
    details = call.catalog.details(old.catalog).schemas.get(renamed.key[1], NamespaceDetails())
    if old.key in known or not _has_former_name(details, old.schema):
        name = table_views.require_schema(call.catalog, old)
        _change_remarks(call, name, new, Case.SCHEMA_THERE)
    return _schema_info(call, table_views.require_schema(call.catalog, renamed))


def _new_name(call: Call) -> str | None:
    new_name = call.body.new_name
    return None if new_name is None else plain_name(new_name)


def _has_former_name(details: NamespaceDetails, name: str) -> bool:
    """Return True if a rename was carried out: its answer may have been lost."""
    return details.former_name is not None and fold(details.former_name) == fold(name)


def _change_remarks(call: Call, of: SchemaName | str, new_name: str | None, there: Case) -> None:
    body: bodies.ChangedRemarks = call.body

    def change(details: NamespaceDetails) -> NamespaceDetails:
        comment = details.comment if body.comment is None else body.comment
        kept = details.properties if body.properties is None else _without_nulls(body.properties)
        return replaced(details, comment=comment, properties=kept)

    try:
        call.catalog.change_details(of, change, new_name)
    except AlreadyExistsError as error:
        raise SaidError(there, error.message) from None


def _details(call: Call) -> NamespaceDetails:
    body: bodies.NewCatalog | bodies.NewSchema = call.body
    return NamespaceDetails(
        comment=body.comment,
        properties=_without_nulls(body.properties or {}),
        storage_root=body.storage_root or None,
    )


def _without_nulls(properties: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if value is not None}


def _delete_catalog(call: Call) -> int:
    name = table_views.require_catalog(call.catalog, plain_name(call.path["name"]))
    within = [known for known in call.catalog.namespaces() if known.catalog == name]
    if call.truth("force"):
        for namespace in within:
            _empty(call, namespace)
    elif [namespace.schema for namespace in within] != [DEFAULT_SCHEMA]:
        raise SaidError(Case.NOT_NOW, f"Catalog {name} has schemas.", remedy="Drop them first.")
    for namespace in within:
        _remove(call, namespace)
    return _OK


def _schemas(call: Call) -> bodies.Schemas:
    catalog = table_views.require_catalog(call.catalog, plain_name(_text(call, "catalog_name")))
    after = call.text("page_token") or ""
    made_ms, details = call.catalog.namespaces_made_ms(), call.catalog.details(catalog)
    names = [
        name
        for name in made_ms
        if name.catalog == catalog and (not after or name.key > SchemaName.parse(after).key)
    ]
    size = _page_size(call)
    return bodies.Schemas(
        schemas=tuple(_schema(name, made_ms[name], details) for name in names[:size]),
        next_page_token=str(names[size - 1]) if len(names) > size else None,
    )


def _one_schema(call: Call) -> bodies.SchemaInfo:
    return _schema_info(call, _required(call))


def _create_schema(call: Call) -> bodies.SchemaInfo:
    body: bodies.NewSchema = call.body
    catalog = table_views.require_catalog(call.catalog, plain_name(body.catalog_name))
    name = SchemaName(catalog, plain_name(body.name))
    _make(call, name, Case.SCHEMA_THERE, details=_details(call))
    return _schema_info(call, name)


def _delete_schema(call: Call) -> int:
    name = _required(call)
    if call.truth("force"):
        _empty(call, name)
    _remove(call, name)
    return _OK


def _required(call: Call) -> SchemaName:
    return table_views.require_schema(call.catalog, _schema_name(call))


def _schema_name(call: Call) -> SchemaName:
    parts = call.path["name"].split(".")
    if len(parts) != 2:
        raise InvalidArgumentError(f"{call.path['name'][:200]!r} is no catalog.schema.", remedy="")
    return SchemaName(plain_name(parts[0]), plain_name(parts[1]))


def _make(
    call: Call,
    name: SchemaName,
    there: Case,
    details: NamespaceDetails | None = None,
    catalog_details: NamespaceDetails | None = None,
) -> None:
    try:
        call.catalog.create_namespace(name, details=details, catalog_details=catalog_details)
    except AlreadyExistsError as error:
        raise SaidError(there, error.message) from None


def _remove(call: Call, name: SchemaName) -> None:
    try:
        call.catalog.drop_namespace(name)
    except NotEmptyError as error:
        raise SaidError(Case.NOT_NOW, error.message, remedy="Drop its tables first.") from None


def _empty(call: Call, name: SchemaName) -> None:
    """Drop the tables of a schema, one by one; each can be brought back."""
    for entry in call.catalog.tables(name):
        call.catalog.drop_table(entry.table_id)


def _catalog_info(call: Call, name: str, made_ms: Mapping[SchemaName, int]) -> bodies.CatalogInfo:
    details = call.catalog.details(name).catalog
    within = [since_ms for schema, since_ms in made_ms.items() if schema.key[0] == fold(name)]
    created_ms = min(within, default=None)
    return bodies.CatalogInfo(
        name=name,
        id=details.id or namespace_details.id_of(name),
        comment=details.comment,
        properties=details.properties,
        storage_root=details.storage_root,
        storage_location=details.storage_location,
        created_at=created_ms,
        updated_at=details.changed_ms or created_ms,
    )


def _schema_info(call: Call, name: SchemaName) -> bodies.SchemaInfo:
    made_ms = call.catalog.namespaces_made_ms().get(name)
    return _schema(name, made_ms, call.catalog.details(name.catalog))


def _schema(name: SchemaName, made_ms: int | None, known: CatalogDetails) -> bodies.SchemaInfo:
    details = known.schemas.get(name.key[1], NamespaceDetails())
    return bodies.SchemaInfo(
        name=name.schema,
        catalog_name=name.catalog,
        full_name=str(name),
        schema_id=details.id or namespace_details.id_of(name),
        comment=details.comment,
        properties=details.properties,
        storage_root=details.storage_root,
        storage_location=details.storage_location,
        created_at=made_ms,
        updated_at=details.changed_ms or made_ms,
    )


# Tables


def _tables(call: Call) -> bodies.Tables:
    name = SchemaName(
        plain_name(_text(call, "catalog_name")), plain_name(_text(call, "schema_name"))
    )
    name = table_views.require_schema(call.catalog, name)
    size, token = _page_size(call), call.text("page_token")
    after = table_views.full_name(token) if token else None
    found, following = call.catalog.describe_page(name, after, size, reserve=call.reserve)
    return bodies.Tables(
        tables=tuple(_without(call, table_views.info(described)) for described in found),
        next_page_token=None if following is None else str(following),
    )


def _without(call: Call, info: bodies.TableInfo) -> bodies.TableInfo:
    left_out: dict[str, Any] = {}
    if call.truth("omit_columns"):
        left_out["columns"] = msgspec.UNSET
    if call.truth("omit_properties"):
        left_out["properties"] = msgspec.UNSET
    return msgspec.structs.replace(info, **left_out) if left_out else info


def _table(call: Call) -> bodies.TableInfo:
    return table_views.info(
        table_views.find(call.catalog, table_views.wanted_name([call.path["name"]]))
    )


def _delete_table(call: Call) -> int:
    name = table_views.wanted_name([call.path["name"]])
    found = table_views.find(call.catalog, name, call.catalog.describe_briefly)
    call.catalog.drop_table(found.table_id)
    return _OK


def _create_table(call: Call, settings: Settings) -> bodies.TableInfo:
    body: bodies.OlderNewTable = call.body
    name = table_views.table_name(body.catalog_name, body.schema_name, body.name)
    match body.table_type:
        case table_views.MANAGED:
            return table_views.info(_create_managed(call, settings, name))
        case table_views.EXTERNAL:
            table_views.require_schema(call.catalog, name.namespace)
            try:
                made = call.catalog.declare_external(name, external_tables.wanted(body))
            except AlreadyExistsError as error:
                raise SaidError(Case.TABLE_THERE, error.message, remedy=error.remedy) from None
            return table_views.info(call.catalog.describe(made.table_id))
        case other:
            raise InvalidArgumentError(f"A {other[:60]} cannot be made here.", remedy="")


def _create_managed(call: Call, settings: Settings, name: TableName) -> TableInfo:
    body: bodies.OlderNewTable = call.body
    properties = body.properties or {}

    def judge(examined: Examined) -> Iterable[Violation]:
        yield from table_views.lacks_required(settings, examined, properties)
        yield from table_views.asks_for_uniform(examined)
        if examined.metadata is not None:
            yield from table_views.declared_properties_differ(examined.metadata, properties)
            yield from table_views.comment_differs(examined.metadata, body.comment)
            yield from table_views.column_names_differ(examined.metadata, body.columns or ())

    try:
        return table_views.register(call.catalog, name, body.storage_location, judge)
    except InvalidCommitError as error:
        if {violation.rule for violation in _violations(error)} != {"no-version-0"}:
            raise
    declared = body.columns or ()
    schema = columns.declared(declared)
    if not schema.fields:
        raise InvalidArgumentError("A table has at least one column.", remedy="")
    return table_views.begin(
        call.catalog,
        name,
        body.storage_location,
        lambda table_id: table_views.version_0(
            settings, table_id, schema, columns.partitions(declared), properties, body.comment
        ),
    )


def _violations(error: InvalidCommitError) -> Iterable[Violation]:
    return (found for found in error.violations if isinstance(found, Violation))


def _stage(call: Call) -> bodies.OlderStagingTable:
    body: bodies.OlderNewStagingTable = call.body
    name = table_views.table_name(body.catalog_name, body.schema_name, body.name)
    staged = table_views.stage(call.catalog, name)
    return bodies.OlderStagingTable(
        id=staged.table_id,
        name=body.name,
        catalog_name=body.catalog_name,
        schema_name=body.schema_name,
        staging_location=staged.location,
    )


# Opening


def _open_table(call: Call) -> bodies.OlderCredentials:
    _refuse_unless_access(call.body.operation)
    place = call.catalog.place_of(table_views.parse_id(call.body.table_id))
    return bodies.OlderCredentials(url=place)


def _open_path(call: Call) -> bodies.OlderCredentials:
    _refuse_unless_access(call.body.operation)
    return bodies.OlderCredentials(url=call.catalog.open_path(call.body.url))


def _refuse_unless_access(operation: str) -> None:
    if operation not in _READING:
        raise InvalidArgumentError(
            f"The operation is {operation[:60]!r}.", remedy=f"Known are {', '.join(_READING)}."
        )


def _summary(call: Call) -> bodies.Summary:
    return bodies.Summary(
        metastore_id=str(uuid.uuid5(uuid.NAMESPACE_URL, call.catalog.status().root))
    )


# Parameters


def _text(call: Call, name: str) -> str:
    text = call.text(name)
    if not text:
        raise InvalidArgumentError(f"The parameter {name} is missing.", remedy="")
    return text


def _page_size(call: Call) -> int:
    return min(call.number("max_results") or _PAGE, _LARGEST_PAGE)
