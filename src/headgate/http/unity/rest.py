"""The part of the older REST that clients of both dialects need: catalogs, schemas, tables."""

import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from headgate import errors
from headgate.api.messages import TableInfo
from headgate.api.status import CatalogDetails, NamespaceDetails
from headgate.catalog import namespace_details
from headgate.http.operations import Call, Operations, Pool
from headgate.http.unity import bodies, columns, external_tables, new_tables, problems, table_views
from headgate.http.unity.declarations import column_names_differ
from headgate.http.unity.external_tables import without_nulls
from headgate.http.unity.problems import BASE, Case, DialectError, exists_as, invalid
from headgate.names import DEFAULT_SCHEMA, SchemaName, TableName, fold, plain_name
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.encoding import replaced

_PAGE: Final = 100  # by default
_LARGEST_PAGE: Final = 1_000
_OK: Final = 200  # the body that clients expect where there is nothing to return
_ACCESS: Final = ("READ", "READ_WRITE", "PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE")

operations = Operations(BASE, "unity_", encode_error=problems.snake)


# Catalogs


@operations.add("GET", "/catalogs")
def catalogs(call: Call) -> bodies.Catalogs:
    """List the catalogs."""
    token, size = call.text("page_token"), _page_size(call)
    after = fold(plain_name(token)) if token else ""
    known = sorted(table_views.catalogs(call.catalog).items())
    names = [name for key, name in known if key > after]
    created_ms = call.catalog.namespace_creation_times()
    return bodies.Catalogs(
        catalogs=tuple(_catalog_info(call, name, created_ms) for name in names[:size]),
        next_page_token=names[size - 1] if len(names) > size else None,
    )


@operations.add("POST", "/catalogs")
def create_catalog(call: Call, body: bodies.NewCatalog) -> bodies.CatalogInfo:
    """Create a catalog.

    Never answered as a success twice, even if the first answer was lost: clients with IF NOT EXISTS
    expect this error, and others must learn that the catalog existed. The same holds for schemas.
    """
    name = plain_name(body.name)
    if fold(name) in table_views.catalogs(call.catalog):
        raise DialectError(Case.CATALOG_THERE, f"Catalog {name} already exists.")
    with exists_as(Case.CATALOG_THERE):
        call.catalog.create_namespace(
            SchemaName(name, DEFAULT_SCHEMA), catalog_details=_details(body)
        )
    return _catalog_info(call, name)


@operations.add("GET", "/catalogs/{name}")
def catalog(call: Call) -> bodies.CatalogInfo:
    """Describe a catalog."""
    return _catalog_info(call, _existing_catalog(call))


@operations.add("PATCH", "/catalogs/{name}")
def change_catalog(call: Call, body: bodies.ChangedDetails) -> bodies.CatalogInfo:
    """Change the details of a catalog."""
    old, new = plain_name(call.path["name"]), _new_name(body)
    is_replay = (
        new is not None
        and fold(old) not in table_views.catalogs(call.catalog)
        and _has_former_name(call.catalog.details(new).catalog, old)
    )
    if not is_replay:
        name = table_views.require_catalog(call.catalog, old)
        _change_details(call, name, body, Case.CATALOG_THERE)
    return _catalog_info(call, table_views.require_catalog(call.catalog, new or old))


@operations.add("DELETE", "/catalogs/{name}")
def delete_catalog(call: Call) -> int:
    """Drop a catalog."""
    name = _existing_catalog(call)
    within = [known for known in call.catalog.namespaces() if known.catalog == name]
    if not call.truth("force") and [known.schema for known in within] != [DEFAULT_SCHEMA]:
        raise DialectError(Case.NOT_NOW, f"Catalog {name} has schemas.", remedy="Drop them first.")
    return _drop(call, within)


def _existing_catalog(call: Call) -> str:
    return table_views.require_catalog(call.catalog, plain_name(call.path["name"]))


def _catalog_info(
    call: Call, name: str, created_ms: Mapping[SchemaName, int] | None = None
) -> bodies.CatalogInfo:
    if created_ms is None:
        created_ms = call.catalog.namespace_creation_times()
    details = call.catalog.details(name).catalog
    within = [since_ms for schema, since_ms in created_ms.items() if schema.key[0] == fold(name)]
    first_ms = min(within, default=None)
    return bodies.CatalogInfo(
        id=details.id or namespace_details.id_of(name), **_described(name, details, first_ms)
    )


# Schemas


@operations.add("GET", "/schemas")
def schemas(call: Call) -> bodies.Schemas:
    """List the schemas of a catalog."""
    name = table_views.require_catalog(call.catalog, plain_name(_text(call, "catalog_name")))
    after = call.text("page_token") or ""
    created_ms, details = call.catalog.namespace_creation_times(), call.catalog.details(name)
    names = [
        schema
        for schema in created_ms
        if schema.catalog == name and (not after or schema.key > SchemaName.parse(after).key)
    ]
    size = _page_size(call)
    return bodies.Schemas(
        schemas=tuple(_schema(schema, created_ms[schema], details) for schema in names[:size]),
        next_page_token=str(names[size - 1]) if len(names) > size else None,
    )


@operations.add("POST", "/schemas")
def create_schema(call: Call, body: bodies.NewSchema) -> bodies.SchemaInfo:
    """Create a schema."""
    within = table_views.require_catalog(call.catalog, plain_name(body.catalog_name))
    name = SchemaName(within, plain_name(body.name))
    with exists_as(Case.SCHEMA_THERE):
        call.catalog.create_namespace(name, details=_details(body))
    return _schema_info(call, name)


@operations.add("GET", "/schemas/{name}")
def schema(call: Call) -> bodies.SchemaInfo:
    """Describe a schema."""
    return _schema_info(call, _existing_schema(call))


@operations.add("PATCH", "/schemas/{name}")
def change_schema(call: Call, body: bodies.ChangedDetails) -> bodies.SchemaInfo:
    """Change the details of a schema."""
    old = _schema_name(call)
    renamed = SchemaName(old.catalog, _new_name(body) or old.schema)
    known = {found.key for found in call.catalog.namespaces()}
    details = call.catalog.details(old.catalog).schemas.get(renamed.key[1], NamespaceDetails())
    if old.key in known or not _has_former_name(details, old.schema):
        name = table_views.require_schema(call.catalog, old)
        _change_details(call, name, body, Case.SCHEMA_THERE)
    return _schema_info(call, table_views.require_schema(call.catalog, renamed))


@operations.add("DELETE", "/schemas/{name}")
def delete_schema(call: Call) -> int:
    """Drop a schema."""
    return _drop(call, [_existing_schema(call)])


def _existing_schema(call: Call) -> SchemaName:
    return table_views.require_schema(call.catalog, _schema_name(call))


def _schema_name(call: Call) -> SchemaName:
    parts = call.path["name"].split(".")
    if len(parts) != 2:
        raise invalid(f"{call.path['name'][:200]!r} is not a name like catalog.schema.")
    return SchemaName(plain_name(parts[0]), plain_name(parts[1]))


def _schema_info(call: Call, name: SchemaName) -> bodies.SchemaInfo:
    created_ms = call.catalog.namespace_creation_times().get(name)
    return _schema(name, created_ms, call.catalog.details(name.catalog))


def _schema(name: SchemaName, created_ms: int | None, known: CatalogDetails) -> bodies.SchemaInfo:
    details = known.schemas.get(name.key[1], NamespaceDetails())
    return bodies.SchemaInfo(
        catalog_name=name.catalog,
        full_name=str(name),
        schema_id=details.id or namespace_details.id_of(name),
        **_described(name.schema, details, created_ms),
    )


# Catalogs and schemas alike


def _described(name: str, details: NamespaceDetails, created_ms: int | None) -> dict[str, Any]:
    return {
        "name": name,
        "comment": details.comment,
        "properties": details.properties,
        "storage_root": details.storage_root,
        "storage_location": details.storage_location,
        "created_at": created_ms,
        "updated_at": details.changed_ms or created_ms,
    }


def _details(body: bodies.NewCatalog) -> NamespaceDetails:
    return NamespaceDetails(
        comment=body.comment,
        properties=without_nulls(body.properties or {}),
        storage_root=body.storage_root or None,
    )


def _new_name(body: bodies.ChangedDetails) -> str | None:
    return None if body.new_name is None else plain_name(body.new_name)


def _has_former_name(details: NamespaceDetails, name: str) -> bool:
    """Return whether a rename from this name was carried out: its answer may have been lost."""
    return details.former_name is not None and fold(details.former_name) == fold(name)


def _change_details(
    call: Call, of: SchemaName | str, body: bodies.ChangedDetails, exists: Case
) -> None:
    def change(details: NamespaceDetails) -> NamespaceDetails:
        comment = details.comment if body.comment is None else body.comment
        kept = details.properties if body.properties is None else without_nulls(body.properties)
        return replaced(details, comment=comment, properties=kept)

    with exists_as(exists):
        call.catalog.change_details(of, change, _new_name(body))


def _drop(call: Call, names: Collection[SchemaName]) -> int:
    """Drop schemas; if the client forces it, drop their tables first, which can be undropped."""
    if call.truth("force"):
        for name in names:
            for entry in call.catalog.tables(name):
                call.catalog.drop_table(entry.table_id)
    for name in names:
        try:
            call.catalog.drop_namespace(name)
        except errors.NotEmptyError as error:
            remedy = "Drop its tables first."
            raise DialectError(Case.NOT_NOW, error.message, remedy=remedy) from None
    return _OK


# Tables


@operations.add("GET", "/tables", pool=Pool.CHANGES)
def tables(call: Call) -> bodies.OlderTables:
    """List the tables of a schema."""
    name = SchemaName(
        plain_name(_text(call, "catalog_name")), plain_name(_text(call, "schema_name"))
    )
    name = table_views.require_schema(call.catalog, name)
    size, token = _page_size(call), call.text("page_token")
    after = table_views.full_name(token) if token else None
    found, following = call.catalog.describe_page(name, after, size, reserve=call.reserve)
    omitted = {
        field: msgspec.UNSET for field in ("columns", "properties") if call.truth(f"omit_{field}")
    }
    return bodies.OlderTables(
        tables=tuple(
            msgspec.structs.replace(table_views.older_table(described), **omitted)
            for described in found
        ),
        next_page_token=None if following is None else str(following),
    )


@operations.add("GET", "/tables/{name}", pool=Pool.CHANGES)
def table(call: Call) -> bodies.OlderTable:
    """Describe a table."""
    name = table_views.existing_name([call.path["name"]])
    return table_views.older_table(table_views.find(call.catalog, name))


@operations.add("DELETE", "/tables/{name}")
def drop_table(call: Call) -> int:
    """Drop a table."""
    name = table_views.existing_name([call.path["name"]])
    found = table_views.find(call.catalog, name, call.catalog.describe_briefly)
    call.catalog.drop_table(found.table_id)
    return _OK


@operations.add("POST", "/tables")
def name_table(call: Call, body: bodies.OlderNewTable) -> bodies.OlderTable:
    """Register a staging table or an external table."""
    name = table_views.table_name(body.catalog_name, body.schema_name, body.name)
    match body.table_type:
        case table_views.MANAGED:
            described = _create_managed(call, body, name)
        case table_views.EXTERNAL:
            table_views.require_schema(call.catalog, name.namespace)
            with exists_as(Case.TABLE_THERE):
                declared = external_tables.declared(body)
                created = call.catalog.declare_external(name, body.storage_location, declared)
            described = call.catalog.describe(created.table_id)
        case other:
            raise invalid(f"A {other[:60]} cannot be created here.")
    return table_views.older_table(described)


def _create_managed(call: Call, body: bodies.OlderNewTable, name: TableName) -> TableInfo:
    properties, declared = body.properties or {}, body.columns or ()

    def judge(examined: Examined) -> Iterable[Violation]:
        updates = [bodies.SetTableComment(comment=body.comment)]
        yield from new_tables.violations(call.settings, examined, properties, updates)
        if examined.metadata is not None:
            yield from column_names_differ(examined.metadata, declared)

    try:
        return new_tables.register(call.catalog, name, body.storage_location, judge)
    except errors.InvalidCommitError as error:
        rules = {found.rule for found in error.violations if isinstance(found, Violation)}
        if rules != {"no-version-0"}:
            raise
    schema = columns.declared(declared)
    if not schema.fields:
        raise invalid("A table has at least one column.")
    partitions = columns.partitions(declared)
    return new_tables.create(
        call.catalog,
        name,
        body.storage_location,
        lambda table_id: new_tables.version_0(
            call.settings, table_id, schema, partitions, properties, body.comment
        ),
    )


@operations.add("POST", "/staging-tables")
def stage_older_table(call: Call, body: bodies.OlderNewStagingTable) -> bodies.OlderStagingTable:
    """Create a staging table."""
    name = table_views.table_name(body.catalog_name, body.schema_name, body.name)
    staged = new_tables.stage(call.catalog, name)
    return bodies.OlderStagingTable(
        id=staged.table_id,
        name=body.name,
        catalog_name=body.catalog_name,
        schema_name=body.schema_name,
        staging_location=staged.location,
    )


# Credentials


@operations.add("POST", "/temporary-table-credentials")
def open_table(call: Call, body: bodies.TableAccess) -> bodies.OlderCredentials:
    """Return credentials for a table."""
    _refuse_unless_access(body.operation)
    return bodies.OlderCredentials(
        url=call.catalog.location_of(table_views.parse_id(body.table_id))
    )


@operations.add("POST", "/temporary-path-credentials")
def open_path(call: Call, body: bodies.PathAccess) -> bodies.OlderCredentials:
    """Return credentials for a location."""
    _refuse_unless_access(body.operation)
    creates = body.operation == "PATH_CREATE_TABLE"
    return bodies.OlderCredentials(url=call.catalog.open_path(body.url, creates=creates))


def _refuse_unless_access(operation: str) -> None:
    if operation not in _ACCESS:
        raise errors.InvalidArgumentError(
            f"The operation is {operation[:60]!r}.", remedy=f"Use one of {', '.join(_ACCESS)}."
        )


@operations.add("GET", "/metastore_summary")
def summary(call: Call) -> bodies.Summary:
    """Return the id of the catalog service."""
    return bodies.Summary(
        metastore_id=str(uuid.uuid5(uuid.NAMESPACE_URL, call.catalog.status().root))
    )


# Parameters


def _text(call: Call, name: str) -> str:
    text = call.text(name)
    if not text:
        raise invalid(f"The parameter {name} is missing.")
    return text


def _page_size(call: Call) -> int:
    return min(call.number("max_results") or _PAGE, _LARGEST_PAGE)
