"""The pipeline: bronze as it was delivered, silver each order once, gold what people look at."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

import headgate
from headgate.errors import InvalidDataError
from headgate.spark import Lake
from shop import orders
from shop.telling import check, note, step, tell, title

TABLES = ("bronze.orders", "silver.orders", "gold.daily")
Sales = dict[date, tuple[int, Decimal]]

_MAKE = """
    CREATE SCHEMA bronze;
    CREATE TABLE bronze.orders (
        order_id BIGINT NOT NULL, revision INT NOT NULL, customer_id BIGINT, item STRING,
        quantity INT, price DECIMAL(10,2), ordered_at TIMESTAMP, status STRING, delivery STRING
    ) COMMENT 'Orders as they were delivered, late ones and repeated ones included';

    CREATE SCHEMA silver;
    CREATE TABLE silver.orders (
        order_id BIGINT NOT NULL, revision INT NOT NULL, customer_id BIGINT, item STRING,
        quantity INT, price DECIMAL(10,2), ordered_at TIMESTAMP, status STRING, day DATE
    ) PARTITIONED BY (day)
      COMMENT 'Each order once, as it was told last'
      TBLPROPERTIES ('delta.enableDeletionVectors' = 'true');
    ALTER TABLE silver.orders ADD CONSTRAINT sold CHECK (quantity > 0);

    CREATE SCHEMA gold;
    CREATE TABLE gold.daily (day DATE, orders BIGINT, amount DECIMAL(18,2))
      COMMENT 'What was sold on each day';
"""
_EACH_ONCE = """
    SELECT order_id, revision, customer_id, item, quantity, price, ordered_at, status,
           CAST(ordered_at AS DATE) AS day
    FROM bronze.orders
    WHERE delivery {deliveries}
    QUALIFY row_number() OVER (PARTITION BY order_id ORDER BY revision DESC) = 1
"""
_MERGE = f"""
    MERGE INTO silver.orders AS known
    USING ({_EACH_ONCE.format(deliveries="= 'late'")}) AS late
    ON known.order_id = late.order_id AND known.day = late.day
    WHEN MATCHED AND late.revision > known.revision THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *
"""
DAILY = """
    SELECT day, count(*) AS orders, sum(quantity * price) AS amount
    FROM silver.orders WHERE status <> 'cancelled' GROUP BY day
"""


def make_tables(lake: Lake) -> None:
    """Make the tables, in SQL."""
    title("A lake and three tables")
    with step("making three tables"):
        lake.sql(_MAKE)
    for name in TABLES:
        tell(str(lake.session.table(name)))


def load_the_week(lake: Lake, bea: headgate.Session, files: list[Path]) -> None:
    """Take deliveries into bronze: the large ones with Spark, a small one with Arrow."""
    title("Bronze: deliveries as they come")
    *days, phone, _ = files
    for file in days:
        with step(f"bronze: append {file.stem}"):
            append(lake, file)
    with step("bronze: append what came by phone, without Spark"):
        rows = pq.read_table(phone)
        table = bea.table("bronze.orders")
        commit = table.append(rows.append_column("delivery", [[phone.stem] * len(rows)])).commits[
            table.id
        ]
    tell(
        f"Bea appended {len(rows)} orders with Arrow: version {commit.version}, {commit.way.value}"
    )


def append(lake: Lake, file: Path) -> None:
    """Append one delivery to bronze with Spark."""
    rows = lake.spark.read.parquet(str(file)).withColumn("delivery", F.lit(file.stem))
    committed = lake.append("bronze.orders", rows).committed
    assert committed is not None
    [commit] = committed.commits.values()
    tell(f"{file.name}: version {commit.version}, {commit.way.value}, txnId {committed.txn_id}")


def clean(lake: Lake, files: list[Path]) -> None:
    """Fill silver and gold from bronze, for the first time."""
    title("Silver: each order once. Gold: what was sold")
    with step("silver: insert the week"):
        [row] = lake.sql(
            "INSERT INTO silver.orders" + _EACH_ONCE.format(deliveries="<> 'late'")
        ).collect()
    tell(f"{row[0]:,} orders in silver, a constraint held for each")
    refresh(lake, orders.sales(orders.newest(files[:-1])))
    try:
        lake.update("silver.orders", {"quantity": "0"}, where="order_id = 1")
    except InvalidDataError as error:
        broken = error.message.partition(":")[0]
        tell(f"what breaks the constraint is refused: {broken}")
    else:
        check("a broken constraint is refused", "it was taken", "it is refused")


def merge_late_ones(lake: Lake, files: list[Path]) -> None:
    """Merge late orders, corrections and repetitions into silver."""
    title("Late arrivals: MERGE")
    with step("bronze: append what came late"):
        append(lake, files[-1])
    with step("silver: MERGE what came late"):
        [row] = lake.sql(_MERGE).collect()
    counts = {name: count for name, count in row.asDict().items() if count}
    tell("MERGE: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    expected = orders.newest(files)
    check("MERGE leaves each order once", in_silver(lake), (len(expected), len(expected)))
    refresh(lake, orders.sales(expected))


def forget(lake: Lake, files: list[Path]) -> None:
    """Delete all rows of a customer: vectors are written, data files stay as they are."""
    title(f"Customer {orders.FORGOTTEN} asks to be forgotten: DELETE")
    silver = lake.session.table("silver.orders")
    before = silver.snapshot()
    with step("silver: DELETE a customer"):
        [row] = lake.sql(
            f"DELETE FROM silver.orders WHERE customer_id = {orders.FORGOTTEN}"
        ).collect()
    after = silver.snapshot()
    vectors = [file for file in after.files() if file.deletion_vector is not None]
    tell(
        f"{row[0]} rows deleted: {len(vectors)} of {after.num_files} files have a deletion vector,"
        f" {len({f.path for f in after.files()} - {f.path for f in before.files()})} were rewritten"
    )
    everything = orders.newest(files)
    left = orders.without_forgotten(everything)
    check("DELETE found every row", row[0], len(everything) - len(left))
    check("DELETE left all others", in_silver(lake), (len(left), len(left)))
    seen = silver.to_arrow(columns=["customer_id"])["customer_id"].to_pylist()
    check("Arrow sees no row of the forgotten", seen.count(orders.FORGOTTEN), 0)


def travel(lake: Lake, files: list[Path]) -> None:
    """Read silver as it was before the MERGE, by version and by time."""
    title("Time travel")
    silver = lake.session.table("silver.orders")
    merged = next(entry for entry in silver.history() if entry.operation == "MERGE")
    then = merged.version - 1
    with step("silver: read the past"):
        [row] = lake.sql(
            f"SELECT count(*), sum(quantity) FROM silver.orders VERSION AS OF {then}"
        ).collect()
        by_time = silver.log(then, then)[0].commit.timestamp_ms
        frame = lake.read("silver.orders", as_of=by_time)
        counted = frame.count()
    week = orders.newest(files[:-1])
    tell(f"before the MERGE, at version {then}: {row[0]:,} orders of {row[1]:,} pieces")
    note(f"at the time of that version, as a DataFrame: {counted:,}; now: {in_silver(lake)[0]:,}")
    check(
        "the past is what it was",
        (row[0], row[1], counted),
        (len(week), sum(week["quantity"].to_pylist()), len(week)),
    )


def refresh(lake: Lake, expected: Sales) -> None:
    """Compute gold anew from silver, and hold it against what Arrow makes of the deliveries."""
    with step("gold: INSERT OVERWRITE the totals"):
        lake.sql(f"INSERT OVERWRITE gold.daily {DAILY}")
    check_gold(lake, expected)
    total = sum(amount for _, amount in expected.values())
    tell(f"gold has {len(expected)} days, {total:,} in all: as Arrow computes it")


def check_gold(lake: Lake, expected: Sales) -> None:
    """Hold gold against what it has to be."""
    found = {row.day: (row.orders, row.amount) for row in lake.read("gold.daily").collect()}
    check("gold is the sum of all deliveries", dict(sorted(found.items())), expected)


def in_silver(lake: Lake) -> tuple[int, int]:
    """Count the rows of silver, and the orders they are about."""
    [row] = lake.sql("SELECT count(*), count(DISTINCT order_id) FROM silver.orders").collect()
    return row[0], row[1]
