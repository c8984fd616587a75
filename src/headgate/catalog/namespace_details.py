"""What is stored of catalogs and schemas beyond their names: comment, properties, id.

All of a catalog is stored under one key, so that a listing reads it at once.
"""

from __future__ import annotations

import uuid

from headgate.api.status import CatalogRemarks, Remarks
from headgate.catalog.stores.port import ReadUnit, WriteUnit
from headgate.names import SchemaName, fold
from headgate.protocol.encoding import from_json, replaced, to_json


def read(unit: ReadUnit, catalog: str) -> CatalogRemarks:
    """Return what is stored of a catalog and of its schemas."""
    kept = unit.setting(_key(catalog))
    return CatalogRemarks() if kept is None else from_json(kept.encode(), CatalogRemarks)


def read_one(unit: ReadUnit, of: SchemaName | str) -> Remarks:
    """Return what is stored of a schema, or of a catalog by its name."""
    if isinstance(of, str):
        return read(unit, of).catalog
    return read(unit, of.catalog).schemas.get(of.key[1], Remarks())


def write(unit: WriteUnit, of: SchemaName | str, said: Remarks | None) -> None:
    """Store what is known of a schema, or of a catalog; None removes it."""
    catalog = of if isinstance(of, str) else of.catalog
    before = read(unit, catalog)
    if isinstance(of, str):
        after = replaced(before, catalog=said or Remarks())
    else:
        others = {key: told for key, told in before.schemas.items() if key != of.key[1]}
        after = replaced(before, schemas=others if said is None else {**others, of.key[1]: said})
    _write(unit, catalog, before, after)


def storage_location(unit: ReadUnit, namespace: SchemaName) -> str | None:
    """Return where new tables of a schema are stored: its own location, or its catalog's."""
    known = read(unit, namespace.catalog)
    own = known.schemas.get(namespace.key[1], Remarks()).storage_location
    return own or known.catalog.storage_location


def move(unit: WriteUnit, catalog: str, to: str) -> None:
    """Store what is known of a catalog and its schemas under the catalog's new name."""
    moved = read(unit, catalog)
    _write(unit, catalog, moved, CatalogRemarks())
    _write(unit, to, CatalogRemarks(), moved)


def id_of(of: SchemaName | str) -> str:
    """Return the id of a catalog or schema that was created before ids were stored."""
    key = fold(of) if isinstance(of, str) else ".".join(of.key)
    return str(uuid.uuid5(uuid.NAMESPACE_URL, key))


def _write(unit: WriteUnit, catalog: str, before: CatalogRemarks, after: CatalogRemarks) -> None:
    if after != before:
        unit.set_setting(_key(catalog), to_json(after).decode())


def _key(catalog: str) -> str:
    return f"remarks:{fold(catalog)}"
