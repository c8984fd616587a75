"""What is said of catalogs and namespaces beyond their names: kept and told, nothing hangs on it.

All that is said within a catalog lies in one place, so that a listing reads it at once.
"""

from __future__ import annotations

from headgate.catalog.stores.port import Reading, Writing
from headgate.names import SchemaName, fold
from headgate.protocol.encoding import from_json, replaced, to_json
from headgate.protocol.overview import CatalogRemarks, Remarks


def read(unit: Reading, catalog: str) -> CatalogRemarks:
    """Give what was said of a catalog and of its namespaces."""
    kept = unit.setting(_key(catalog))
    return CatalogRemarks() if kept is None else from_json(kept.encode(), CatalogRemarks)


def write(unit: Writing, of: SchemaName | str, said: Remarks | None) -> None:
    """Keep what is said of a namespace, or of a catalog; None: nothing any more."""
    catalog = of if isinstance(of, str) else of.catalog
    before = read(unit, catalog)
    if isinstance(of, str):
        after = replaced(before, catalog=said or Remarks())
    else:
        others = {key: told for key, told in before.schemas.items() if key != of.key[1]}
        after = replaced(before, schemas=others if said is None else {**others, of.key[1]: said})
    if after != before:
        unit.set_setting(_key(catalog), to_json(after).decode())


def _key(catalog: str) -> str:
    return f"remarks:{fold(catalog)}"
