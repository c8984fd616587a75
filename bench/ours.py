"""Headgate, opened for measuring: through its public names where there are such."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import headgate
from bench.watch import Seen, fingerprint
from headgate._connect import embedded_catalog
from headgate.client.session import Session
from headgate.client.transaction import Patience
from headgate.clock import RandomIds, SystemClock
from headgate.settings import Settings
from headgate.storage.locations import store_for

if TYPE_CHECKING:
    from headgate.table.snapshot import Snapshot

NAME = "bench"  # of the table in every lake

# pyarrow imports pandas, where it is installed, with the first array made of a list.
pa.array([0])

# Names of the package are loaded when first used: that is importing, and not to be measured.
connect = headgate.connect


def staging_session(lake: str) -> Session:
    """Open a lake with a client that stages every commit, however small."""
    clock = SystemClock()
    ids = RandomIds(clock)
    settings = Settings.from_environment(os.environ)
    catalog = embedded_catalog(lake, settings=settings, publisher=False, clock=clock, ids=ids)
    return Session(
        catalog,
        clock=clock,
        ids=ids,
        store_for=store_for,
        patience=Patience(inline_bytes=-1),
        on_close=catalog.close,
    )


def local(location: str) -> Path:
    """Return the local folder of a table."""
    return Path(location.removeprefix("file://"))


def seen(files: Any) -> Seen:
    """Sum up the files of a snapshot; with statistics their records too."""
    import pyarrow.compute as pc

    records = None
    if "stats" in files.column_names:
        found = pc.extract_regex(files["stats"], r'"numRecords":\s*(?P<records>\d+)')
        records = pc.sum(pc.struct_field(found, "records").cast(pa.int64())).as_py()
    return Seen(
        rows=files.num_rows, checksum=fingerprint(files["path"].to_pylist()), records=records
    )


def version_seen(snapshot: Snapshot) -> Seen:
    """Sum up which version a snapshot is of."""
    return Seen(rows=snapshot.num_files, checksum=snapshot.version)
