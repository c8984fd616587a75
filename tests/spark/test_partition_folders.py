"""Partition values by the names of folders, where these say what the log says, and only there."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import headgate
from headgate.protocol.schema.column_mapping import physical_name
from headgate.spark import scan
from tests.kit.other_readers import plain_copy
from tests.spark.conftest import Water, commit, put_file, rows


def one(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number, number + 100, number + 200], pa.int64())})


def planned(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]


def test_values_that_folders_say_as_the_log_does_are_taken_from_folders(water: Water) -> None:
    """A scan for each folder that partitions' folders lie in; no row's file is looked up."""
    water.make(schema="id long, p string, d date, n int", by=["p", "d", "n"])
    values = (
        "if(id = 3, NULL, concat('a-', id)) p, date_add(DATE'2026-01-01', int(id)) d, int(id) n"
    )
    for first in (0, 20):
        shown = f"SELECT id, {values} FROM range({first}, {first + 20})"
        water.lake.append("t", water.frame(shown))
    read = water.lake.read("t")
    assert "Join" not in planned(read)
    assert len(water.files()) > scan._MOST_GROUPS
    wanted = rows(water.frame(f"SELECT id, {values} FROM range(40)"))
    assert rows(read) == wanted
    assert water.rows(where="d = DATE'2026-01-08'") == [wanted[7]]
    water.lake.delete("t", "id % 2 = 1 AND id > 4")
    assert water.rows() == [row for row in wanted if row[0] % 2 == 0 or row[0] <= 4]


def test_a_table_opened_by_the_path_of_its_folder(water: Water, tmp_path: Path) -> None:
    """Its location is a path as it was given, and Spark gets a URL."""
    table = water.make(schema="id long, p string", by=["p"])
    files = [put_file(table, f"p=x-{n}/f.parquet", one(n), {"p": f"x-{n}"}) for n in range(12)]
    commit(table, *files)
    table.publish()
    snapshot = headgate.open(str(plain_copy(table.location, tmp_path / "copy"))).snapshot()
    read = scan.dataframe(water.spark, snapshot, snapshot.files())
    assert "Join" not in planned(read)
    assert rows(read) == water.rows()


@pytest.mark.parametrize("odd", ["p=x-1", "q=x-0", "other/p=x-0/deeper", "P=x-0"])
def test_values_are_those_of_the_log_whatever_a_folder_says(water: Water, odd: str) -> None:
    table = water.make(schema="id long, p string", by=["p"])
    folders = [odd, *(f"p=x-{n}" for n in range(1, 12))]
    commit(
        table,
        *[
            put_file(table, f"{folder}/f{n}.parquet", one(n), {"p": f"x-{n}"})
            for n, folder in enumerate(folders)
        ],
    )
    wanted = [(n + more, f"x-{n}") for more in (0, 100, 200) for n in range(12)]
    assert water.rows() == wanted


def test_a_text_that_stands_for_null_in_folders_is_a_text_where_the_log_has_it(
    water: Water,
) -> None:
    table = water.make(schema="id long, p string", by=["p"])
    texts = ["__HIVE_DEFAULT_PARTITION__", *(f"x-{n}" for n in range(1, 12))]
    commit(
        table,
        *[
            put_file(table, f"p={text}/f{n}.parquet", one(n), {"p": text})
            for n, text in enumerate(texts)
        ],
    )
    assert water.rows(where="id = 0") == [(0, texts[0])]


def test_a_folder_is_not_asked_for_a_column_whose_name_files_have_for_another(
    water: Water,
) -> None:
    """A partition column was renamed to what another column is called in the files."""
    table = water.make(
        schema="id long, v string, p string", by=["p"], delta__columnMapping__mode="name"
    )
    id_, v, p = (physical_name(field) for field in table.schema.fields)
    table.rename_column("p", v)
    commit(
        table,
        *[
            put_file(
                table,
                f"{v}=x-{n}/f{n}.parquet",
                pa.table({id_: pa.array([n], pa.int64()), v: [f"v-{n}"]}),
                {p: f"x-{n}"},
            )
            for n in range(12)
        ],
    )
    assert water.rows() == [(n, f"v-{n}", f"x-{n}") for n in range(12)]


def test_files_of_one_last_name_are_told_apart_by_their_folders(water: Water) -> None:
    table = water.make(schema="id long, p string", by=["p"])
    commit(
        table,
        *[put_file(table, f"f{n}/same.parquet", one(n), {"p": f"x-{n}"}) for n in range(12)],
    )
    wanted = [(n + more, f"x-{n}") for more in (0, 100, 200) for n in range(12)]
    assert water.rows() == wanted
