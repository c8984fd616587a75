"""The folders of a filesystem catalog: names as directories, namespaces and tombstones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from urllib.parse import unquote

from headgate.errors import MalformedError, NotFoundError
from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, SchemaName, TableName, fold
from headgate.protocol.actions import TableId, Version
from headgate.protocol.commit import examination
from headgate.protocol.commit.examination import Examined
from headgate.storage import locations
from headgate.storage.object_store import ObjectStore
from headgate.table.log_files import DeltaLog

_NAMESPACE: Final = "namespace.json"  # names have no dots, so it cannot be a table's directory
_DROPPED: Final = ".dropped"


class Folders:
    """The directories under one root. Names are folded: a directory has one spelling."""

    def __init__(self, root: str, store_for: Callable[[str], ObjectStore]) -> None:
        self.root = root
        self.store_for = store_for
        self.files = store_for(root)

    def location(self, name: TableName) -> str:
        return locations.join(self.root, path_of(name))

    def log(self, name: TableName) -> DeltaLog:
        return DeltaLog(self.store_for(self.location(name)))

    # Namespaces

    def namespaces(self) -> tuple[SchemaName, ...]:
        found = {SchemaName(DEFAULT_CATALOG, DEFAULT_SCHEMA)}
        for catalog in self.files.folders(""):
            for schema in self.files.folders(catalog):
                if self.files.head(f"{schema}/{_NAMESPACE}") is not None:
                    found.add(SchemaName(*map(unquote, schema.split("/"))))
        return tuple(sorted(found, key=lambda name: name.key))

    def require_namespace(self, name: SchemaName) -> None:
        is_default = name.key == (DEFAULT_CATALOG, DEFAULT_SCHEMA)
        if not is_default and self.files.head(marker_of(name)) is None:
            raise NotFoundError(
                f"There is no namespace {name}.",
                remedy="Create it: session.create_namespace(), or `headgate create-namespace`.",
            )

    # Tables

    def names(self, spaces: Iterable[SchemaName]) -> Iterator[TableName]:
        """Yield the names of all directories in namespaces, also of those without a table."""
        for space in spaces:
            for folder in sorted(self.files.folders(folder_of(space))):
                yield _named_by(space, folder)

    def first(self, name: TableName) -> Examined | None:
        """Return version 0 of the table in a directory; None if there is no table."""
        content = self.log(name).read_published(Version(0))
        return None if content is None else examination.examine_file(content)

    def table_id(self, name: TableName) -> TableId | None:
        """Return the id of the table in a directory; None if there is no table."""
        first = self.first(name)
        if first is None:
            return None
        if first.metadata is None:
            raise MalformedError("Version 0 has no metaData.")
        return TableId(first.metadata.id)

    # Tombstones

    def put_tombstone(self, name: TableName, table_id: TableId) -> None:
        """Put a tombstone beside a table's directory."""
        self.files.put_if_absent(tombstone_of(name), json.dumps({"tableId": table_id}).encode())

    def dropped_table(self, name: TableName) -> TableId | None:
        """Return the id of the table that was dropped under a name and is not purged yet."""
        try:
            content = self.files.get(tombstone_of(name))
        except NotFoundError:
            return None
        try:
            return TableId(json.loads(content)["tableId"])
        except (ValueError, KeyError, TypeError):
            raise MalformedError(f"{tombstone_of(name)} names no table.") from None

    def tombstones(self) -> Iterator[TableName]:
        """Yield the names of dropped tables, also where only the tombstone is left."""
        for space in self.namespaces():
            for item in self.files.list(folder_of(space)):
                if item.path.endswith(_DROPPED):
                    yield _named_by(space, item.path)

    def delete(self, path: str) -> None:
        self.files.delete(path)
        self.files.sync([path])


def folder_of(name: SchemaName) -> str:
    """Return the path of a namespace's folder."""
    return f"{_encoded(name.catalog)}/{_encoded(name.schema)}"


def marker_of(name: SchemaName) -> str:
    """Return the path of the file that makes a folder a namespace."""
    return f"{folder_of(name)}/{_NAMESPACE}"


def path_of(name: TableName) -> str:
    """Return the path of a table's directory."""
    return f"{folder_of(name.namespace)}/{_encoded(name.table)}"


def tombstone_of(name: TableName) -> str:
    """Return the path of the file that says that a table is dropped."""
    return path_of(name) + _DROPPED


def _named_by(space: SchemaName, path: str) -> TableName:
    """Return the name of the table with a directory or a tombstone."""
    table = path.removesuffix(_DROPPED).rpartition("/")[2]
    return TableName(space.catalog, space.schema, unquote(table))


def _encoded(part: str) -> str:
    """Return the directory of a part of a name: special characters are percent-encoded."""
    return re.sub(
        r"[^A-Za-z0-9_-]",
        lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()),
        fold(part),
    )
