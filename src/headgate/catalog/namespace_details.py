"""Details of catalogs and schemas beyond their names: comment, properties, id, storage root.

Those of a catalog and its schemas are stored under one key, so that a listing reads them at once.
"""

from __future__ import annotations

import uuid

from headgate.api.status import CatalogDetails, NamespaceDetails
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.writer import WriteUnit
from headgate.names import SchemaName, fold
from headgate.protocol.encoding import from_json, replaced, to_json


def read(unit: ReadUnit, catalog: str) -> CatalogDetails:
    """Return the details of a catalog and of its schemas."""
    stored = unit.setting(_key(catalog))
    return CatalogDetails() if stored is None else from_json(stored.encode(), CatalogDetails)


def read_one(unit: ReadUnit, namespace: SchemaName | str) -> NamespaceDetails:
    """Return the details of a schema, or of a catalog by its name."""
    if isinstance(namespace, str):
        return read(unit, namespace).catalog
    return read(unit, namespace.catalog).schemas.get(namespace.key[1], NamespaceDetails())


def write(unit: WriteUnit, namespace: SchemaName | str, details: NamespaceDetails | None) -> None:
    """Store the details of a schema, or of a catalog; None removes them."""
    catalog = namespace if isinstance(namespace, str) else namespace.catalog
    before = read(unit, catalog)
    if isinstance(namespace, str):
        after = replaced(before, catalog=details or NamespaceDetails())
    else:
        new = {} if details is None else {namespace.key[1]: details}
        others = {key: old for key, old in before.schemas.items() if key != namespace.key[1]}
        after = replaced(before, schemas=others | new)
    _write(unit, catalog, before, after)


def storage_location(unit: ReadUnit, namespace: SchemaName) -> str | None:
    """Return the location for new tables of a schema: its own, or its catalog's, if any."""
    details = read(unit, namespace.catalog)
    own = details.schemas.get(namespace.key[1], NamespaceDetails()).storage_location
    return own or details.catalog.storage_location


def move(unit: WriteUnit, catalog: str, to: str) -> None:
    """Store the details of a catalog and its schemas under the catalog's new name."""
    details = read(unit, catalog)
    _write(unit, catalog, details, CatalogDetails())
    _write(unit, to, CatalogDetails(), details)


def id_of(namespace: SchemaName | str) -> str:
    """Return the id of a catalog or schema that was created before ids were stored."""
    key = fold(namespace) if isinstance(namespace, str) else ".".join(namespace.key)
    return str(uuid.uuid5(uuid.NAMESPACE_URL, key))


def _write(unit: WriteUnit, catalog: str, before: CatalogDetails, after: CatalogDetails) -> None:
    if after != before:
        unit.set_setting(_key(catalog), to_json(after).decode())


def _key(catalog: str) -> str:
    return f"remarks:{fold(catalog)}"
