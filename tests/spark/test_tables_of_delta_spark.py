"""Tables written by delta-spark give the rows Spark itself read, through our scan."""

import json
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it
from pyspark.sql.types import VariantType

from headgate.protocol.actions import Version
from headgate.protocol.schema.types import StructType
from headgate.spark import scan
from headgate.spark.schema_conversion import spark_schema
from headgate.table.snapshot_loader import load_path
from tests.table.test_delta_spark_tables import (
    Kept,
    Located,
    about,
    all_kept,
    cases,
    expected_rows,
    in_order,
    lines_of,
    located,
    plain,
    text_of,
)

__all__ = ["located"]


VERSION = "__version"


@pytest.mark.parametrize("case", cases())
def test_rows_are_those_that_delta_spark_read(
    case: str, located: Located, spark: SparkSession
) -> None:
    """Versions of one schema are read in one job, each in its own union."""
    of_schema: dict[StructType, dict[int, tuple[Kept, DataFrame]]] = {}
    for kept in all_kept():
        if kept.case != case:
            continue
        snapshot = load_path(located(case), version=Version(kept.version))
        frame = scan.dataframe(spark, snapshot, snapshot.files())
        assert [(f.name, f.dataType) for f in frame.schema] == [
            (f.name, f.dataType) for f in spark_schema(snapshot.schema)
        ]
        of_schema.setdefault(snapshot.schema, {})[kept.version] = (kept, frame)
    assert of_schema
    for versions in of_schema.values():
        frames = [f.withColumn(VERSION, F.lit(n)) for n, (_, f) in versions.items()]
        read = as_kept(reduce(DataFrame.union, frames), case)
        for number, (kept, _) in versions.items():
            found = in_order(read.filter(pc.field(VERSION) == number), kept.sort_by)
            found, wanted = found.drop([VERSION]), expected_rows(kept)
            assert found.schema.names == wanted.schema.names
            if "variant_as_json" not in about(case):
                types = [plain(t) for t in wanted.schema.types]
                assert [plain(t) for t in found.schema.types] == types
            assert lines_of(found) == lines_of(wanted), kept


def as_kept(frame: DataFrame, case: str) -> pa.Table:
    """Give rows as they were kept: variants as JSON, in one spelling."""
    if "variant_as_json" not in about(case):
        return frame.toArrow()
    assert isinstance(frame.schema["v"].dataType, VariantType)
    in_json = {"v": F.to_json("v"), "s": F.col("s").withField("v", F.to_json("s.v"))}
    listed = frame.withColumns(in_json).toArrow().to_pylist()
    for row in listed:
        for holder in (row, row["s"]):
            if holder is not None and holder["v"] is not None:
                holder["v"] = text_of(json.loads(holder["v"]))
    return pa.Table.from_pylist(listed)
