"""Namespaces: create, change, rename and drop schemas and the catalogs that contain them.

Names belong to the catalog and not to the log, so none of this commits to a table. Renaming takes
a sequence, so that a cut knows what a name meant.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.api.status import CatalogDetails, NamespaceDetails
from headgate.catalog import lookup, namespace_details
from headgate.catalog.allowed_locations import AllowedLocations
from headgate.catalog.component import Component, Shared
from headgate.catalog.idempotency import RequestKey
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import AlreadyExistsError, InvalidArgumentError, NotEmptyError, NotFoundError
from headgate.names import DEFAULT_CATALOG, SchemaName, TableName, fold
from headgate.protocol.encoding import replaced
from headgate.storage import locations

_UNITY_STORAGE = "__unitystorage"  # the folder of a storage root that Unity Catalog reserves


class NamespaceService(Component):
    """Creates, changes, renames and drops namespaces."""

    def __init__(self, shared: Shared, allowed: AllowedLocations) -> None:
        super().__init__(shared)
        self._allowed = allowed

    def names(self) -> tuple[SchemaName, ...]:
        with self._store.read() as unit:
            return tuple(unit.namespaces())

    def creation_times(self) -> dict[SchemaName, int]:
        with self._store.read() as unit:
            return unit.namespace_creation_times()

    def details(self, catalog: str) -> CatalogDetails:
        with self._store.read() as unit:
            return namespace_details.read(unit, catalog)

    def create(
        self,
        name: SchemaName,
        *,
        key: RequestKey | None = None,
        storage_root: str | None = None,
        details: NamespaceDetails | None = None,
        catalog_details: NamespaceDetails | None = None,
    ) -> None:
        """Create a schema.

        `catalog_details` are stored if it is the first schema of its catalog.
        """
        details = details or NamespaceDetails(storage_root=storage_root)
        own = self._new_details(details, "schemas")
        of_new_catalog = self._new_details(catalog_details or NamespaceDetails(), "catalogs")

        def create(unit: WriteUnit) -> None:
            known = unit.namespaces()
            if any(namespace.key == name.key for namespace in known):
                raise AlreadyExistsError(f"There is a namespace {name} already.")
            unit.insert_namespace(name, self._clock.now_ms())
            written: list[tuple[SchemaName | str, NamespaceDetails]] = [(name, own)]
            if not any(namespace.key[0] == name.key[0] for namespace in known):
                written.append((name.catalog, of_new_catalog))
            for namespace, new in written:
                if new.storage_location is not None:
                    lookup.refuse_overlap(unit, new.storage_location)
                namespace_details.write(unit, namespace, new)

        self._change(str(name), create, key)

    def _new_details(self, details: NamespaceDetails, kind: str) -> NamespaceDetails:
        """Add an id, and check the storage root: it must be an allowed location."""
        new_id = str(self._ids.random())
        if details.storage_root is None:
            return replaced(details, id=new_id)
        if _UNITY_STORAGE in details.storage_root:
            shown = locations.shown(details.storage_root)
            raise InvalidArgumentError(
                f"The storage root {shown[:200]!r} contains {_UNITY_STORAGE}, which is reserved.",
                remedy="Choose another storage root.",
            )
        self._allowed.refuse_unless_allowed(details.storage_root)
        root = locations.without_links(details.storage_root)
        location = self._allowed.check(locations.join(root, f"{_UNITY_STORAGE}/{kind}/{new_id}"))
        self._allowed.refuse_inside_table(location)
        return replaced(details, id=new_id, storage_root=root, storage_location=location)

    def change_details(
        self,
        namespace: SchemaName | str,
        change: Callable[[NamespaceDetails], NamespaceDetails],
        new_name: str | None = None,
    ) -> None:
        """Change the details of a schema, or of a catalog, and rename it if asked."""

        def write(unit: WriteUnit) -> None:
            if isinstance(namespace, SchemaName):
                lookup.require_namespace(unit, namespace)
            before = namespace_details.read_one(unit, namespace)
            after = change(before)
            if after != before:
                after = replaced(after, changed_ms=self._clock.now_ms())
                namespace_details.write(unit, namespace, after)
            if new_name is not None:
                self._rename(unit, namespace, new_name)

        self._change(str(namespace), write)

    def rename_schema(self, name: SchemaName, new_name: str, key: RequestKey | None = None) -> None:
        self._change(str(name), lambda unit: self._rename(unit, name, new_name), key)

    def rename_catalog(self, name: str, new_name: str, key: RequestKey | None = None) -> None:
        self._change(name, lambda unit: self._rename(unit, name, new_name), key)

    def drop(self, name: SchemaName, key: RequestKey | None = None) -> None:

        def drop(unit: WriteUnit) -> None:
            lookup.require_namespace(unit, name)
            if unit.tables(name, limit=1):
                raise NotEmptyError(f"Namespace {name} has tables.")
            unit.delete_namespace(name)
            namespace_details.write(unit, name, None)
            if not any(known.key[0] == name.key[0] for known in unit.namespaces()):
                namespace_details.write(unit, name.catalog, None)

        self._change(str(name), drop, key)

    def _rename(self, unit: WriteUnit, namespace: SchemaName | str, new_name: str) -> None:
        """Rename a schema or a catalog; the names of all its tables change at one sequence."""
        created_ms = unit.namespace_creation_times()
        if isinstance(namespace, SchemaName):
            lookup.require_namespace(unit, namespace)
            [old] = [known for known in created_ms if known.key == namespace.key]
            moves = {old: SchemaName(old.catalog, new_name)}
            is_taken = any(known.key == moves[old].key for known in created_ms if known != old)
        else:
            moves = {
                known: SchemaName(new_name, known.schema)
                for known in created_ms
                if known.key[0] == fold(namespace)
            }
            if fold(namespace) == fold(DEFAULT_CATALOG):
                raise InvalidArgumentError(
                    f"The catalog {DEFAULT_CATALOG} is part of every lake and cannot be renamed.",
                    remedy="Create another catalog and rename its schemas or tables as needed.",
                )
            if not moves:
                raise NotFoundError(f"There is no catalog {namespace}.")
            others = {known.key[0] for known in created_ms} - {fold(namespace)}
            is_taken = fold(new_name) in others | {fold(DEFAULT_CATALOG)}
        if is_taken:
            kind = "schema" if isinstance(namespace, SchemaName) else "catalog"
            raise AlreadyExistsError(f"There is a {kind} {new_name} already.")
        if all(old == new for old, new in moves.items()):
            return
        moved = [
            (row.id, TableName(new.catalog, new.schema, name.table))
            for old, new in moves.items()
            for row, name, _ in unit.tables(old)
        ]
        if moved:
            sequence = self._next_sequence(unit)
            for table_id, _ in moved:
                unit.release_name(table_id, sequence)
            for table_id, name in moved:
                unit.assign_name(name, table_id, sequence)
        for old, new in moves.items():
            unit.delete_namespace(old)
            unit.insert_namespace(new, created_ms[old])
        before = namespace_details.read_one(unit, namespace)
        former = namespace if isinstance(namespace, str) else namespace.schema
        after = replaced(
            before,
            id=before.id or namespace_details.id_of(namespace),
            former_name=former,
            changed_ms=self._clock.now_ms(),
        )
        if isinstance(namespace, str):
            namespace_details.move(unit, namespace, new_name)
            namespace_details.write(unit, new_name, after)
        else:
            namespace_details.write(unit, namespace, None)
            namespace_details.write(unit, SchemaName(namespace.catalog, new_name), after)
