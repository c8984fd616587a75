"""Answers that Spark, asked the obvious way, gives wrong: each is guarded against, and shown here.

Filters that lose rows of rewritten files, paths that are patterns, partition values out of
folder names and the rest lie beside what they belong to; these are the ones that lie nowhere else.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.data.file_writer import NULL_FOLDER
from headgate.errors import InvariantError
from headgate.spark import scan
from headgate.spark.file_names import hadoop, is_plain, pattern
from headgate.spark.scan import Files
from tests.spark.conftest import Water, commit, local, put_file, rows


def test_no_statement_leaves_a_view_behind_and_threads_do_not_meet(water: Water) -> None:
    """Views of one name, made by two threads at once, gave one the other's rows."""
    others = [water.other() for _ in range(2)]
    before = views(water)
    for n in range(2):
        water.make(f"t{n}", "id long")
        water.lake.append(f"t{n}", water.frame(f"SELECT id FROM range({(n + 1) * 10})"))
    ready = threading.Barrier(2)

    def count(n: int) -> list[object]:
        ready.wait()
        found: list[object] = []
        for _ in range(4):
            asked = others[n].sql(f"SELECT count(*) FROM t{n} WHERE id IN (SELECT id FROM t{n})")
            found += [row[0] for row in asked.collect()]
        return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(count, range(2))) == [[10] * 4, [20] * 4]
    water.sql("DELETE FROM t0 WHERE id IN (SELECT id FROM t1)")
    assert views(water) == before


def views(water: Water) -> list[str]:
    return [found.name for found in water.spark.catalog.listTables() if found.isTemporary]


def test_a_pattern_names_one_file_though_another_would_match(water: Water) -> None:
    table = water.make(schema="id long")
    named = [
        "a[1].parquet",
        "a1.parquet",
        "b{1,2}.parquet",
        "b1.parquet",
        "c?.parquet",
        "c*.parquet",
    ]
    added = [
        put_file(table, name, pa.table({"id": pa.array([n], pa.int64())}))
        for n, name in enumerate(named)
    ]
    for n in (0, 2, 4, 5):
        commit(table, added[n])
    assert water.rows() == [(0,), (2,), (4,), (5,)]
    assert pattern("file:/t/a[1]{x,y}*?\\") == "file:/t/a\\[1\\]\\{x,y\\}\\*\\?\\\\"


def test_files_are_found_by_the_names_spark_gives_them(water: Water) -> None:
    table = water.make(schema="id long")
    one = pa.table({"id": pa.array([1], pa.int64())})
    names = ["plain.parquet", "a b%20+c.parquet", "ü#?.parquet"]
    commit(table, *[put_file(table, name, one) for name in names])
    snapshot = table.snapshot()
    files = Files(snapshot, snapshot.files())
    frame = scan.dataframe(water.spark, snapshot, snapshot.files(), located=True)
    shown = sorted(row[scan.FILE] for row in frame.collect())
    assert all(name.startswith("file:/") and not name.startswith("file://") for name in shown)
    assert {files.find(name).path for name in shown} == {file.path for file in snapshot.files()}
    # What Spark says of a name is just what we say of it, where nothing in it is encoded.
    assert [name for name in shown if is_plain(name)] == [hadoop(f"{table.location}/plain.parquet")]
    with pytest.raises(InvariantError, match="not a file of this snapshot"):
        files.find(hadoop(f"{table.location}/other.parquet"))


def test_folders_tell_nothing_of_partition_values_when_read(water: Water) -> None:
    """The log says other values than the folders' names: the log is right."""
    table = water.make(schema="id long, p string", by=["p"])
    one = pa.table({"id": pa.array([1], pa.int64())})
    commit(
        table,
        put_file(table, f"p={NULL_FOLDER}/x.parquet", one, {"p": "given"}),
        put_file(table, "p=03%3A04/x.parquet", one, {"p": "03:04"}),
        put_file(table, "p=a/q=b/x.parquet", one, {"p": None}),
    )
    assert rows(water.lake.read("t").select("p")) == [(None,), ("03:04",), ("given",)]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_nested_columns_are_read_by_their_names_in_files(water: Water, mode: str) -> None:
    """Read by field ids with nested pruning, one field of two gave NULL, or no row."""
    water.spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")  # as delta-spark does
    table = water.make(
        schema="id long, st struct<name: string, n: int>", delta__columnMapping__mode=mode
    )
    water.lake.append("t", water.frame("SELECT 1 id, named_struct('name', 'q', 'n', 2) st"))
    assert rows(water.lake.read("t").select("st.name")) == [("q",)]
    assert rows(water.lake.read("t").where("st.name = 'q'").select("st.name")) == [("q",)]
    assert water.sql("SELECT st.n FROM t WHERE st.name = 'q'") == [(2,)]
    stored = pq.read_schema(local(table) / water.files()[0].path)
    [struct] = [field for field in stored if pa.types.is_struct(field.type)]
    assert all(inner.metadata[b"PARQUET:field_id"] for inner in struct.type)


def test_rows_that_are_kept_are_those_where_the_condition_is_not_true(water: Water) -> None:
    """NOT of a condition that is NULL is NULL: rows would be deleted that should stay."""
    for n, mode in enumerate(("copy-on-write", "deletion-vectors")):
        water.make(f"t{n}", "id long", delta__enableDeletionVectors="true", headgate__dml=mode)
        some = "SELECT * FROM VALUES (1L), (2L), (null) AS t(id)"
        water.lake.append(f"t{n}", water.frame(some).coalesce(1))
        water.sql(f"DELETE FROM t{n} WHERE id IN (SELECT * FROM VALUES (1L), (null))")
        assert water.rows(f"t{n}") == [(None,), (2,)]
        water.lake.delete(f"t{n}", "id = 2")
        assert water.rows(f"t{n}") == [(None,)]


def test_a_text_stays_the_users_own(water: Water) -> None:
    """Printed from a tree, `'O''Brien'` became CONCAT and types of numbers changed."""
    water.make(schema="id int, v string")
    water.sql("INSERT INTO t VALUES (1, 'O''Brien'), (2, r'\\n'), (3, 'a' 'b')")
    frame = water.lake.sql("SELECT id, v, 'O''Brien', 1S, 2L, 1.50, 3D FROM t WHERE v = 'O''Brien'")
    assert rows(frame)[0][:3] == (1, "O'Brien", "O'Brien")
    assert [field.dataType.simpleString() for field in frame.schema][3:] == [
        "smallint", "bigint", "decimal(3,2)", "double",
    ]  # fmt: skip
    assert water.rows(where="id > 1") == [(2, "\\n"), (3, "ab")]
    assert frame.columns[2] == "O'Brien"
