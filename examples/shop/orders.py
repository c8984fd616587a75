"""Generated orders of a shop, always the same, and the expected results.

Orders are written as Parquet files, like deliveries of another system. The expected results of the
pipeline are computed here with Arrow, without Spark.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DAYS = [date(2026, 3, day) for day in range(1, 7)]
DELETED_CUSTOMER = 4711
_PER_DAY = 50_000
_LATE = 15_000  # orders of earlier days in the last delivery
_CORRECTED = 5_000  # orders that are delivered again with changes
_TWICE = 1_000  # orders that are delivered again without changes
_BY_PHONE = 500
_CUSTOMERS = 6_000
_PRICES = {
    "bolt": "0.35",
    "nut": "0.20",
    "gear": "14.90",
    "chain": "23.50",
    "pedal": "31.00",
    "saddle": "49.95",
    "wheel": "119.00",
    "frame": "640.00",
}
_SCHEMA = pa.schema(
    [
        ("order_id", pa.int64()),
        ("revision", pa.int32()),
        ("customer_id", pa.int64()),
        ("item", pa.string()),
        ("quantity", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("ordered_at", pa.timestamp("us", "UTC")),
        ("status", pa.string()),
    ]
)


def deliver(folder: Path) -> list[Path]:
    """Write a week of deliveries: one file per day, one by phone, and a late one."""
    rng = random.Random(2026)
    folder.mkdir(parents=True)
    count = 0
    days = []
    for day in DAYS:
        days.append(_orders(rng, count, [day] * _PER_DAY))
        count += _PER_DAY
    phone = _orders(rng, count, rng.choices(DAYS, k=_BY_PHONE))
    late = _orders(rng, count + _BY_PHONE, rng.choices(DAYS[:-1], k=_LATE))
    known = pa.concat_tables(days)
    again = known.take(rng.sample(range(len(known)), _CORRECTED + _TWICE))
    late = pa.concat_tables([late, _corrected(again[:_CORRECTED]), again[_CORRECTED:]])
    files = []
    for name, rows in [*zip(map(str, DAYS), days, strict=True), ("phone", phone), ("late", late)]:
        files.append(folder / f"{name}.parquet")
        pq.write_table(rows, files[-1])
    return files


def newest(files: list[Path]) -> pa.Table:
    """Return every order once, in its last revision."""
    rows = pa.concat_tables(pq.read_table(file) for file in files)
    rows = rows.sort_by([("order_id", "ascending"), ("revision", "descending")])
    ids = rows["order_id"].combine_chunks()
    is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(ids[1:], ids[:-1])])
    return rows.filter(is_first)


def without_deleted_customer(orders: pa.Table) -> pa.Table:
    """Return the orders of all other customers."""
    return orders.filter(pc.not_equal(orders["customer_id"], DELETED_CUSTOMER))


def sales(orders: pa.Table) -> dict[date, tuple[int, Decimal]]:
    """Return number and amount of the orders of each day, without cancelled ones."""
    orders = orders.filter(pc.not_equal(orders["status"], "cancelled"))
    amount = pc.multiply(orders["quantity"].cast(pa.decimal128(10, 0)), orders["price"])
    by_day = pa.table({"day": orders["ordered_at"].cast(pa.date32()), "amount": amount})
    sums = by_day.group_by("day").aggregate([("amount", "count"), ("amount", "sum")])
    return {
        row["day"]: (row["amount_count"], row["amount_sum"])
        for row in sums.sort_by("day").to_pylist()
    }


def _orders(rng: random.Random, first: int, days: list[date]) -> pa.Table:
    many = len(days)
    items = rng.choices(list(_PRICES), weights=range(len(_PRICES), 0, -1), k=many)
    midnights = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in days]
    columns = {
        "order_id": range(first + 1, first + many + 1),
        "revision": [1] * many,
        "customer_id": [rng.randint(1, _CUSTOMERS) for _ in range(many)],
        "item": items,
        "quantity": rng.choices(range(1, 10), k=many),
        "price": [Decimal(_PRICES[item]) for item in items],
        "ordered_at": [m + timedelta(seconds=rng.randrange(86_400)) for m in midnights],
        "status": rng.choices(["open", "paid", "sent"], k=many),
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in _SCHEMA], schema=_SCHEMA)


def _corrected(orders: pa.Table) -> pa.Table:
    """Cancel every third order, and double the quantity of the others."""
    rows = orders.to_pylist()
    for index, row in enumerate(rows):
        row["revision"] = 2
        if index % 3:
            row["quantity"] *= 2
        else:
            row["status"] = "cancelled"
    return pa.Table.from_pylist(rows, _SCHEMA)
