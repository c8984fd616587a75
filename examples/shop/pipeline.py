"""The pipeline: bronze has deliveries, silver each order once, gold daily totals."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - the usual name

import headgate
from headgate.errors import InvalidDataError
from headgate.spark import Lake
from shop import orders
from shop.output import check, log, note, step, title

TABLES = ("bronze.orders", "silver.orders", "gold.daily")
Sales = dict[date, tuple[int, Decimal]]

_CREATE = """
    CREATE SCHEMA bronze;
    CREATE TABLE bronze.orders (
        order_id BIGINT NOT NULL, revision INT NOT NULL, customer_id BIGINT, item STRING,
        quantity INT, price DECIMAL(10,2), ordered_at TIMESTAMP, status STRING, delivery STRING
    ) COMMENT 'Orders as delivered, including late and repeated ones';

    CREATE SCHEMA silver;
    CREATE TABLE silver.orders (
        order_id BIGINT NOT NULL, revision INT NOT NULL, customer_id BIGINT, item STRING,
        quantity INT, price DECIMAL(10,2), ordered_at TIMESTAMP, status STRING, day DATE
    ) PARTITIONED BY (day)
      COMMENT 'Each order once, in its last revision'
      TBLPROPERTIES ('delta.enableDeletionVectors' = 'true');
    ALTER TABLE silver.orders ADD CONSTRAINT sold CHECK (quantity > 0);

    CREATE SCHEMA gold;
    CREATE TABLE gold.daily (day DATE, orders BIGINT, amount DECIMAL(18,2))
      COMMENT 'Sales per day';
"""
_LATEST_REVISIONS = """
    SELECT order_id, revision, customer_id, item, quantity, price, ordered_at, status,
           CAST(ordered_at AS DATE) AS day
    FROM bronze.orders
    WHERE delivery {deliveries}
    QUALIFY row_number() OVER (PARTITION BY order_id ORDER BY revision DESC) = 1
"""
_MERGE = f"""
    MERGE INTO silver.orders AS known
    USING ({_LATEST_REVISIONS.format(deliveries="= 'late'")}) AS late
    ON known.order_id = late.order_id AND known.day = late.day
    WHEN MATCHED AND late.revision > known.revision THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *
"""
DAILY = """
    SELECT day, count(*) AS orders, sum(quantity * price) AS amount
    FROM silver.orders WHERE status <> 'cancelled' GROUP BY day
"""


def create_tables(lake: Lake) -> None:
    """Create the tables with SQL."""
    title("A lake and three tables")
    with step("creating three tables"):
        lake.sql(_CREATE)
    for name in TABLES:
        log(str(lake.session.table(name)))


def load_the_week(lake: Lake, bea: headgate.Session, files: list[Path]) -> None:
    """Append deliveries to bronze: large ones with Spark, a small one with Arrow."""
    title("Bronze: deliveries")
    *days, phone, _ = files
    for file in days:
        with step(f"bronze: append {file.stem}"):
            append(lake, file)
    with step("bronze: append orders by phone, without Spark"):
        rows = pq.read_table(phone)
        table = bea.table("bronze.orders")
        commit = table.append(rows.append_column("delivery", [[phone.stem] * len(rows)])).commits[
            table.id
        ]
    log(f"Bea appended {len(rows)} orders with Arrow: version {commit.version}, {commit.way.value}")


def append(lake: Lake, file: Path) -> None:
    """Append a delivery to bronze with Spark."""
    rows = lake.spark.read.parquet(str(file)).withColumn("delivery", F.lit(file.stem))
    committed = lake.append("bronze.orders", rows).committed
    assert committed is not None
    [commit] = committed.commits.values()
    log(f"{file.name}: version {commit.version}, {commit.way.value}, txnId {committed.txn_id}")


def fill_silver_and_gold(lake: Lake, files: list[Path]) -> None:
    """Fill silver and gold from bronze."""
    title("Silver: each order once. Gold: daily totals")
    with step("silver: insert the week"):
        [row] = lake.sql(
            "INSERT INTO silver.orders" + _LATEST_REVISIONS.format(deliveries="<> 'late'")
        ).collect()
    log(f"{row[0]:,} orders in silver, each satisfies the constraint")
    refresh(lake, orders.sales(orders.newest(files[:-1])))
    try:
        lake.update("silver.orders", {"quantity": "0"}, where="order_id = 1")
    except InvalidDataError as error:
        message = error.message.partition(":")[0]
        log(f"a violation of the constraint is refused: {message}")
    else:
        check("a violation of the constraint is refused", "accepted", "refused")


def merge_late_orders(lake: Lake, files: list[Path]) -> None:
    """Merge late orders, corrections and repetitions into silver."""
    title("Late orders: MERGE")
    with step("bronze: append late orders"):
        append(lake, files[-1])
    with step("silver: MERGE late orders"):
        [row] = lake.sql(_MERGE).collect()
    counts = {name: count for name, count in row.asDict().items() if count}
    log("MERGE: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    expected = orders.newest(files)
    check(
        "after MERGE each order is there once", count_silver(lake), (len(expected), len(expected))
    )
    refresh(lake, orders.sales(expected))


def delete_customer(lake: Lake, files: list[Path]) -> None:
    """Delete all rows of a customer from silver and gold in one transaction.

    Silver has deletion vectors, so its data files are not rewritten.
    """
    title(f"All data of customer {orders.DELETED_CUSTOMER}: a transaction over two tables")
    silver, gold = lake.session.table("silver.orders"), lake.session.table("gold.daily")
    before = silver.snapshot()
    with step("silver and gold: DELETE a customer"), lake.transaction() as txn:
        [row] = lake.sql(
            f"DELETE FROM silver.orders WHERE customer_id = {orders.DELETED_CUSTOMER}"
        ).collect()
        lake.sql(f"INSERT OVERWRITE gold.daily {DAILY}")
    versions = ", ".join(f"{name} version {version}" for name, version in txn.versions.items())
    log(f"ratified together at sequence {txn.sequence}: {versions}")
    sequences = {table.log()[-1].commit.sequence for table in (silver, gold)}
    check("both tables changed at one moment", sequences, {txn.sequence})
    after = silver.snapshot()
    vectors = [file for file in after.files() if file.deletion_vector is not None]
    log(
        f"{row[0]} rows deleted: {len(vectors)} of {after.num_files} files have a deletion vector,"
        f" {len({f.path for f in after.files()} - {f.path for f in before.files()})} were rewritten"
    )
    everything = orders.newest(files)
    left = orders.without_deleted_customer(everything)
    check("DELETE found every row", row[0], len(everything) - len(left))
    check("DELETE kept all others", count_silver(lake), (len(left), len(left)))
    check_gold(lake, orders.sales(left))
    customers = silver.to_arrow(columns=["customer_id"])["customer_id"].to_pylist()
    check("Arrow reads no row of the customer", customers.count(orders.DELETED_CUSTOMER), 0)


def time_travel(lake: Lake, files: list[Path]) -> None:
    """Read silver before the MERGE, by version and by time."""
    title("Time travel")
    silver = lake.session.table("silver.orders")
    merged = next(entry for entry in silver.history() if entry.operation == "MERGE")
    then = merged.version - 1
    with step("silver: read an earlier version"):
        [row] = lake.sql(
            f"SELECT count(*), sum(quantity) FROM silver.orders VERSION AS OF {then}"
        ).collect()
        by_time = silver.log(then, then)[0].commit.timestamp_ms
        frame = lake.read("silver.orders", as_of=by_time)
        counted = frame.count()
    week = orders.newest(files[:-1])
    log(f"before the MERGE, at version {then}: {row[0]:,} orders of {row[1]:,} pieces")
    note(
        f"at the time of that version, as a DataFrame: {counted:,}; now: {count_silver(lake)[0]:,}"
    )
    check(
        "the earlier version is unchanged",
        (row[0], row[1], counted),
        (len(week), sum(week["quantity"].to_pylist()), len(week)),
    )


def refresh(lake: Lake, expected: Sales) -> None:
    """Compute gold from silver, and compare it with totals computed by Arrow."""
    with step("gold: INSERT OVERWRITE the totals"):
        lake.sql(f"INSERT OVERWRITE gold.daily {DAILY}")
    check_gold(lake, expected)
    total = sum(amount for _, amount in expected.values())
    log(f"gold has {len(expected)} days, total {total:,}: the same as computed by Arrow")


def check_gold(lake: Lake, expected: Sales) -> None:
    """Compare gold with the expected totals."""
    actual = {row.day: (row.orders, row.amount) for row in lake.read("gold.daily").collect()}
    check("gold is the sum of all deliveries", dict(sorted(actual.items())), expected)


def count_silver(lake: Lake) -> tuple[int, int]:
    """Count the rows and the distinct orders of silver."""
    [row] = lake.sql("SELECT count(*), count(DISTINCT order_id) FROM silver.orders").collect()
    return row[0], row[1]
