"""Read a plain Delta table by its path, without a catalog.

    python examples/read_a_plain_table.py [PATH [VERSION]]

Without a path it creates a small table by hand, which also shows what a Delta table is: Parquet
files, and a log that lists those that belong to it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headgate


def main(path: str, version: int | None = None) -> None:
    """Show location, columns, history and rows."""
    table = headgate.open(path, version=version)
    print(f"{table.location} at version {table.version}")
    for column in table.schema.fields:
        print(f"  {column.name}: {column.type}")
    for entry in table.history():
        print(f"version {entry.version}: {entry.operation}")
    for row in table.to_arrow().slice(0, 10).to_pylist():
        print(row)


def create_table(folder: Path) -> str:
    """Write a file with rows and the commit that adds it."""
    pq.write_table(pa.table({"id": [1, 2], "item": ["bolt", "nut"]}), folder / "rows.parquet")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("item", "string"))
    ]
    actions = [
        {"commitInfo": {"timestamp": 0, "operation": "WRITE"}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "created-by-hand",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
            }
        },
        {
            "add": {
                "path": "rows.parquet",
                "partitionValues": {},
                "size": (folder / "rows.parquet").stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
            }
        },
    ]
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    return str(folder)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1], *map(int, sys.argv[2:3]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(create_table(Path(temporary)))
