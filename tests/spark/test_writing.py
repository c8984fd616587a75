"""Writing: rows come, rows are put in others' place, columns are added; no file is unaccounted."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.client.transaction import OperationInfo
from headgate.errors import (
    InvalidArgumentError,
    InvalidDataError,
    InvalidSchemaError,
    RefusedError,
    UnsupportedFeatureError,
)
from headgate.protocol.actions import AddFile
from headgate.protocol.encoding import replaced
from headgate.spark import write
from headgate.storage import locations
from headgate.storage.memory import MemoryStore
from tests.kit import req
from tests.spark.conftest import Water, listed, local, rows


def stats_of(file: AddFile) -> dict[str, Any]:
    assert file.stats is not None
    read: dict[str, Any] = json.loads(file.stats)
    return read


def test_an_append_brings_rows_by_the_names_of_their_columns(any_water: Water) -> None:
    water = any_water
    table = water.make()
    outcome = water.lake.append("t", water.frame("SELECT 'a' V, 1 ID UNION ALL SELECT 'b', 2"))
    assert water.rows() == [(1, "a"), (2, "b")]
    assert outcome.counts == {"num_affected_rows": 2, "num_inserted_rows": 2}
    assert outcome.committed is not None
    assert outcome.committed.version == 1
    water.lake.append("t", water.frame("SELECT 3 id"))
    assert water.rows(where="id = 3") == [(3, None)]
    entry = table.history()[1]
    assert entry.operation == "WRITE"
    assert entry.parameters["mode"] == "Append"
    assert entry.is_blind_append
    assert {key: int(str(entry.metrics[key])) for key in ("numOutputRows", "numFiles")} == {
        "numOutputRows": 2,
        "numFiles": len(water.session.table("t").snapshot(1).files()),
    }
    # Every file is named by the log, and lies in a folder of its transaction.
    assert listed(table) == sorted(locations.decode(file.path) for file in water.files())
    assert all(file.path.startswith(f"{txn}/") for txn, file in by_transaction(water))
    assert table.to_arrow().num_rows == 3


def by_transaction(water: Water) -> list[tuple[str, AddFile]]:
    table = water.session.table("t")
    txn_ids = {entry.txn_id for entry in table.history()}
    files = [(file.path.partition("/")[0], file) for file in table.snapshot().files()]
    assert {txn for txn, _ in files} <= txn_ids
    return files


def test_an_append_of_no_rows_leaves_no_file(water: Water) -> None:
    table = water.make()
    water.lake.append("t", water.frame("SELECT 1 id WHERE false"))
    assert water.files() == []
    assert listed(table) == []


@pytest.mark.parametrize(
    ("query", "error", "says"),
    [
        ("SELECT 1 id, 2 extra", InvalidDataError, "no column 'extra'"),
        ("SELECT 1 id, 2 ID", InvalidDataError, "given twice"),
        ("SELECT 'x' id", InvalidDataError, "'id' is long"),
        ("SELECT true id", InvalidDataError, "'id' is long"),
        ("SELECT 1e30D id", InvalidDataError, "does not fit"),
        ("SELECT 300 small", InvalidDataError, "does not fit"),
        ("SELECT 12345678.5BD exact", InvalidDataError, "does not fit"),
        ("SELECT named_struct('b', 1, 'q', 2) s", InvalidDataError, "'s' is"),
        ("SELECT array('x') l", InvalidDataError, "'l' is"),
        ("SELECT INTERVAL 1 DAY id", InvalidSchemaError, "type that no table can have"),
        ("SELECT raise_error('mine') id", RefusedError, "mine"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_stays(
    water: Water, query: str, error: type[RefusedError], says: str
) -> None:
    table = water.make(
        schema="id long, small byte, exact decimal(5,2), s struct<a: int, b: int>, l array<int>"
    )
    with pytest.raises(Exception, match=says) as raised:
        water.lake.append("t", water.frame(query))
    if says != "mine":
        assert isinstance(raised.value, error)
    assert water.session.table("t").version == 0
    assert listed(table) == []


def test_values_are_given_the_types_of_their_columns(water: Water) -> None:
    water.make(
        schema="id long, small byte, exact decimal(5,2), d date, t timestamp, n timestamp_ntz,"
        " f float, s struct<a: int, b: struct<c: string>>, l array<struct<x: int, y: int>>,"
        " m map<string, struct<x: int, y: int>>, text string, raw binary, v variant"
    )
    query = """SELECT 7Y id, 100L small, 1.5D exact, DATE'2020-02-02' d,
        TIMESTAMP'2020-02-02 01:02:03.456789' t, DATE'2020-02-02' n, 0.5D f,
        named_struct('B', named_struct('c', 5), 'a', 1S) s,
        array(named_struct('y', 2, 'x', 1L)) l, map('k', named_struct('y', 2, 'x', 1L)) m,
        12 text, X'00ff' raw, parse_json('{"a": [1, 2]}') v"""
    water.lake.append("t", water.frame(query))
    shown = water.lake.read("t").selectExpr(
        "id", "small", "string(exact) exact", "string(d) d", "string(t) t", "string(n) n", "f",
        "s.a", "s.b.c", "l[0].x lx", "l[0].y ly", "m.k.x mx", "text", "hex(raw)", "to_json(v) v",
    )  # fmt: skip
    assert rows(shown) == [
        (7, 100, "1.50", "2020-02-02", "2020-02-02 01:02:03.456789", "2020-02-02 00:00:00", 0.5,
         1, "5", 1, 2, 1, "12", "00FF", '{"a":[1,2]}')
    ]  # fmt: skip
    water.lake.append("t", water.frame("SELECT null id, null s, null l, null v"))
    assert water.lake.read("t", where="id IS NULL AND s IS NULL").count() == 1


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_local_timestamps_of_arrow_stay_local_in_every_zone(water: Water, zone: str) -> None:
    # A time that New York's clocks passed over
    skipped = datetime.fromisoformat("2024-03-10T02:30:00")
    brought = pa.table({"id": [1], "n": pa.array([skipped], pa.timestamp("us")), "l": [[skipped]]})
    own = water.spark.conf.get("spark.sql.session.timeZone")
    water.spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        water.lake.create("made", brought)
        water.make(schema="id long, n timestamp_ntz, l array<timestamp_ntz>")
        water.lake.append("t", brought)
    finally:
        water.spark.conf.set("spark.sql.session.timeZone", own)
    for name in ("made", "t"):
        assert water.session.table(name).to_arrow().to_pylist() == brought.to_pylist()
        assert "timestamp_ntz" in str(water.session.table(name).schema)


def test_an_overwrite_replaces_all_or_what_matches_or_partitions_that_get_rows(
    any_water: Water,
) -> None:
    water = any_water
    table = water.make(schema="id long, p string", by=["p"])
    lake = water.lake
    lake.append("t", water.frame("VALUES (1, 'a'), (2, 'b'), (3, 'b'), (4, null) AS t(id, p)"))
    lake.overwrite("t", water.frame("VALUES (9, 'b') AS t(id, p)"), dynamic=True)
    assert water.rows() == [(1, "a"), (4, None), (9, "b")]
    assert table.history(1)[0].parameters["partitionOverwriteMode"] == "dynamic"
    lake.overwrite("t", water.frame("SELECT 5L id, null p"), dynamic=True)
    assert water.rows() == [(1, "a"), (5, None), (9, "b")]
    lake.overwrite("t", water.frame("VALUES (7, 'a'), (6, 'b') AS t(id, p)"), where="id < 8")
    before = [(6, "b"), (7, "a"), (9, "b")]
    assert water.rows() == before
    with pytest.raises(InvalidDataError, match=r"does not match id < 8.*\"id\":8"):
        lake.overwrite("t", water.frame("VALUES (7, 'a'), (8, 'b') AS t(id, p)"), where="id < 8")
    assert water.rows() == before
    lake.overwrite("t", water.frame("VALUES (6, 'z') AS t(id, p)"), where="p IS NULL OR p = 'z'")
    lake.overwrite("t", water.frame("VALUES (0, 'q') AS t(id, p)"))
    assert water.rows() == [(0, "q")]
    assert table.history(1)[0].parameters["mode"] == "Overwrite"
    lake.overwrite("t", water.frame("SELECT 1 id, 'x' p WHERE false"))
    assert water.rows() == []
    with pytest.raises(InvalidDataError, match="does not match p = 'a'"):  # it would be NULL
        lake.overwrite("t", water.frame("SELECT 1 id"), where="p = 'a'")
    with pytest.raises(InvalidArgumentError, match="Pass only one"):
        lake.overwrite("t", water.frame("SELECT 1 id"), where="id = 1", dynamic=True)


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_a_write_may_bring_columns_and_fields_within_them(water: Water, mapping: str) -> None:
    table = water.make(
        schema="id long, s struct<a: int>, l array<struct<x: int>>",
        delta__columnMapping__mode=mapping,
    )
    old = "SELECT 1 id, named_struct('a', 1) s, array(named_struct('x', 1)) l"
    water.lake.append("t", water.frame(old), merge_schema=True)
    assert water.session.table("t").version == 1
    new = """SELECT 2 id, named_struct('a', 2, 'b', named_struct('c', 'd')) s,
        array(named_struct('x', 2, 'y', 'z')) l, DATE'2020-01-01' extra"""
    with pytest.raises(InvalidDataError):
        water.lake.append("t", water.frame(new))
    water.lake.append("t", water.frame(new), merge_schema=True)
    read = water.lake.read("t")
    assert read.columns == ["id", "s", "l", "extra"]
    assert rows(read.selectExpr("id", "s.a", "s.b.c", "l[0].x", "l[0].y", "string(extra)")) == [
        (1, 1, None, 1, None, None),
        (2, 2, "d", 2, "z", "2020-01-01"),
    ]
    if mapping == "name":
        stored = pq.read_schema(local(table) / locations.decode(water.files()[-1].path))
        assert all(name.startswith("col-") for name in stored.names)
        assert all(field.metadata[b"PARQUET:field_id"] for field in stored)
    # An overwrite may, too, and rows written before the columns came are still written.
    water.lake.append("t", water.frame(old.replace("1 id", "3 id")))
    water.lake.overwrite("t", water.frame("SELECT 4 id, 'n' newest"), merge_schema=True)
    assert rows(water.lake.read("t").select("id", "newest", "extra")) == [(4, "n", None)]
    last = water.frame("SELECT 4 id, 'n' newest, 9 last")
    water.lake.overwrite("t", last, where="id = 4", merge_schema=True)
    assert rows(water.lake.read("t").select("id", "newest", "last")) == [(4, "n", 9)]
    assert water.session.table("t").to_arrow().num_rows == 1


def test_a_new_column_that_no_table_may_have_is_refused(water: Water) -> None:
    table = water.make()
    for query in ("SELECT 1 id, 2 `a b`", "SELECT 1 id, INTERVAL 1 DAY later"):
        with pytest.raises(RefusedError):
            water.lake.append("t", water.frame(query), merge_schema=True)
    with pytest.raises(InvalidDataError, match="'v' is string"):
        water.lake.append("t", water.frame("SELECT array(1) v, 1 more"), merge_schema=True)
    assert listed(table) == []
    assert water.session.table("t").version == 0


def test_statistics_are_those_that_another_engine_finds_in_the_file(water: Water) -> None:
    water.make(
        schema="i int, l long, d double, n decimal(12,3), day date, at_ts timestamp,"
        " ntz timestamp_ntz, s string, b boolean, raw binary, st struct<x: int, y: string>,"
        " arr array<int>, allnull int"
    )
    water.lake.append(
        "t",
        water.frame(
            """SELECT int(id * 7 % 101) - 50 i, if(id % 10 = 0, null, id * 1000000007) l, id / 7D d,
            decimal(id) / 8 n, date_add(DATE'2020-01-01', int(id % 40)) day,
            timestamp_micros(1500000000123456 + id * 1000000) at_ts,
            timestamp_ntz'1999-01-01 00:00:00' + make_interval(0, 0, 0, int(id)) ntz,
            concat('k', lpad(string(id), 5, '0')) s, id % 2 = 0 b, X'01' raw,
            named_struct('x', int(id), 'y', if(id % 3 = 0, null, 'y')) st, array(1) arr,
            int(null) allnull FROM range(200)"""
        ).coalesce(1),
    )
    [file] = water.files()
    stats = stats_of(file)
    path = local(water.session.table("t")) / locations.decode(file.path)
    assert stats["numRecords"] == 200
    assert path.stat().st_size == file.size

    def asked(what: str) -> Any:
        found = duckdb.sql(f"SELECT {what} FROM read_parquet('{path}')").fetchone()
        assert found is not None
        return found[0]

    for column in ("i", "l", "d", "n"):
        assert float(stats["minValues"][column]) == float(asked(f"min({column})"))
        assert float(stats["maxValues"][column]) == float(asked(f"max({column})"))
    for column in ("day", "s"):
        assert stats["minValues"][column] == str(asked(f"min({column})"))
        assert stats["maxValues"][column] == str(asked(f"max({column})"))
    assert stats["minValues"]["st"] == {"x": asked("min(st.x)"), "y": "y"}
    assert stats["maxValues"]["st"] == {"x": asked("max(st.x)"), "y": "y"}
    # Moments are cut to milliseconds: a bound may lie outside, never inside.
    low, high = asked("epoch_us(min(at_ts))"), asked("epoch_us(max(at_ts))")
    assert micros(stats["minValues"]["at_ts"]) <= low < micros(stats["minValues"]["at_ts"]) + 1000
    assert micros(stats["maxValues"]["at_ts"]) >= high > micros(stats["maxValues"]["at_ts"]) - 2000
    assert stats["minValues"]["ntz"].startswith("1999-01-01T00:00:00")
    for column in ("i", "l", "s", "b", "raw", "allnull"):
        assert stats["nullCount"][column] == asked(f"count(*) - count({column})")
    assert stats["nullCount"]["st"] == {"x": 0, "y": asked("count(*) - count(st.y)")}
    for missing in ("raw", "arr", "allnull", "b"):
        assert missing not in stats["minValues"]


def micros(text: str) -> int:
    found = duckdb.execute("SELECT epoch_us(?::TIMESTAMPTZ)", [text]).fetchone()
    assert found is not None
    return int(found[0])


def test_statistics_are_of_the_first_columns_the_table_names(water: Water) -> None:
    columns = ", ".join(f"c{n} int" for n in range(40))
    water.make(schema=columns)
    water.make("few", columns, delta__dataSkippingNumIndexedCols="2")
    some = water.frame("SELECT " + ", ".join(f"{n} c{n}" for n in range(40)))
    water.lake.append("t", some)
    water.lake.append("few", some)
    [file], [few] = water.files(), water.files("few")
    assert list(stats_of(file)["minValues"]) == [f"c{n}" for n in range(32)]
    assert list(stats_of(few)["minValues"]) == ["c0", "c1"]


def test_bounds_that_json_cannot_tell_are_left_out(water: Water) -> None:
    water.make(schema="d double, s string, big string")
    water.lake.append(
        "t",
        water.frame(
            "VALUES (1D, repeat('x', 50), repeat('z', 5000)), (double('NaN'), 'a', 'a')"
            " AS t(d, s, big)"
        ).coalesce(1),
    )
    stats = stats_of(water.files()[0])
    assert "d" not in stats.get("maxValues", {})
    assert stats["minValues"]["s"] == "a"
    assert stats["maxValues"]["s"] >= "x" * 32
    assert stats["maxValues"]["s"] > "x" * 50
    assert rows(water.lake.read("t", where="s = repeat('x', 50)").select("d")) == [(1.0,)]
    assert len(water.rows(where="big = repeat('z', 5000)")) == 1
    assert len(water.rows(where="isnan(d)")) == len(water.rows(where="d > 1")) == 1


def test_every_file_is_synced_with_its_folder_before_it_is_proposed(water: Water) -> None:
    table = water.make(schema="id long, p int", by=["p"])
    water.lake.append("t", water.frame("SELECT id, int(id % 2) p FROM range(10)"))
    synced = synced_paths(water, table.location)
    assert sorted(synced) == sorted(locations.decode(file.path) for file in water.files())
    careless = water.other(sync_data=False)
    careless.append("t", water.frame("SELECT 1 id, 1 p"))
    assert len(synced_paths(water, table.location)) == len(synced)
    water.lake.delete("t", "id = 3")
    assert len(synced_paths(water, table.location)) > len(synced)


def synced_paths(water: Water, location: str) -> list[str]:
    calls = water.stores[location].calls
    return [path for call in calls if call.method == "sync" for path in call.paths]


def test_files_are_about_as_large_as_the_table_asks(water: Water) -> None:
    water.make(schema="id long, r string", delta__targetFileSize="64kb")
    water.lake.append(
        "t", water.frame("SELECT id, uuid() r FROM range(0, 16000, 1, 1)").coalesce(1)
    )
    sizes = [
        file.size for file in sorted(water.files(), key=lambda f: stats_of(f)["minValues"]["id"])
    ]
    assert len(sizes) > 5
    assert all(32 << 10 <= size <= 96 << 10 for size in sizes[:-1]), sizes
    assert sizes[-1] <= 96 << 10
    assert sum(stats_of(file)["numRecords"] for file in water.files()) == 16000
    assert water.lake.read("t").selectExpr("count(distinct id)", "sum(id)").first() == (
        16000,
        16000 * 15999 // 2,
    )
    assert listed(water.session.table("t")) == sorted(file.path for file in water.files())


def test_large_files_of_partitions_are_cut_within_their_partition(water: Water) -> None:
    water.make(schema="id long, r string, p string", by=["p"], delta__targetFileSize="40kb")
    water.lake.append(
        "t",
        water.frame(
            "SELECT id, uuid() r, if(id % 2 = 0, 'a/b', null) p FROM range(0, 8000, 1, 1)"
        ).coalesce(1),
    )
    assert len(water.files()) > 4
    grouped = water.lake.read("t").groupBy("p").agg({"id": "sum"})
    assert rows(grouped) == [(None, sum(range(1, 8000, 2))), ("a/b", sum(range(0, 8000, 2)))]


def test_many_tiny_files_are_gathered_and_a_few_are_left(water: Water) -> None:
    many = "SELECT id, concat('v', id) v FROM range(0, 2000, 1, 40)"
    water.make()
    water.lake.append("t", water.frame("SELECT id, 'x' v FROM range(0, 100, 1, 15)"))
    assert len(water.files()) == 15
    water.lake.append("t", water.frame(many))
    assert len(water.files()) == 15 + 1
    assert water.lake.read("t").selectExpr("count(*)", "sum(id)").first() == (
        2100,
        sum(range(2000)) + sum(range(100)),
    )
    assert listed(water.session.table("t")) == sorted(file.path for file in water.files())
    # Unless exactly these files are asked for.
    water.make("u", delta__autoOptimize__optimizeWrite="false")
    water.lake.append("u", water.frame(many))
    water.other(options={"maxRecordsPerFile": "1000"}).append("u", water.frame(many))
    assert len(water.files("u")) == 80


def test_tiny_files_become_as_many_as_the_size_wanted_asks_for(water: Water) -> None:
    water.make(schema="id long, r string", delta__targetFileSize="64kb")
    water.lake.append("t", water.frame("SELECT id, uuid() r FROM range(0, 8000, 1, 160)"))
    sizes = sorted(file.size for file in water.files())
    assert 3 < len(sizes) < 12
    assert all(32 << 10 <= size <= 96 << 10 for size in sizes[1:]), sizes
    assert water.lake.read("t").selectExpr("count(distinct id)").first() == (8000,)


VALUES = ["", "a/b", "100%", "%41", "[x]{y}*", "a:b", "grün", "01", "2026-01-01", "__HIVE", "a+b"]


def test_tiny_files_of_many_partitions_are_gathered_each_in_its_own(water: Water) -> None:
    """Of partitions of any name, next to one with more than one file's worth of them."""
    water.make(
        schema="p string, id long, r string, q int",
        by=["p", "q"],
        delta__targetFileSize="64kb",
        delta__columnMapping__mode="name",
    )
    texts = ", ".join(f"'{value}'" for value in VALUES)
    spread = water.frame(
        f"SELECT element_at(array({texts}), int(id % {len(VALUES)}) + 1) p, id, 'r' r, 1 q"
        " FROM range(0, 2200, 1, 20) UNION ALL"
        " SELECT 'big', id + 10000, uuid(), NULL FROM range(0, 4000, 1, 80)"
    )
    before = sorted(tuple(row) for row in spread.select("id", "p", "q").collect())
    water.lake.append("t", spread)
    found = water.lake.read("t").select("id", "p", "q").collect()
    assert sorted((row[0], row[1] or "", row[2]) for row in found) == before
    by = water.session.table("t").snapshot().schema.fields
    key = str(by[0].metadata["delta.columnMapping.physicalName"])
    counts: dict[str | None, int] = {}
    for file in water.files():
        counts[file.partition_values[key]] = counts.get(file.partition_values[key], 0) + 1
    assert 2 <= counts.pop("big") <= 6
    assert counts == dict.fromkeys([value or None for value in VALUES], 1)
    assert listed(water.session.table("t")) == sorted(
        locations.decode(file.path) for file in water.files()
    )


def test_a_table_may_ask_for_all_small_files_to_be_gathered(water: Water) -> None:
    water.make(schema="id long, p int", by=["p"], delta__autoOptimize__optimizeWrite="true")
    water.lake.append("t", water.frame("SELECT id, int(id % 3) p FROM range(0, 90, 1, 4)"))
    assert len(water.files()) == 3
    assert len(water.rows()) == 90


@pytest.mark.parametrize("tail", [8, 200, 64 << 10])
def test_a_footer_is_read_from_a_store_that_is_elsewhere(
    tail: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_TAIL", tail)
    content = io.BytesIO()
    pq.write_table(pa.table({f"c{n}": [n] for n in range(50)}), content)
    store = MemoryStore()
    store.put("x.parquet", content.getvalue())
    footer = write._footer(store, "x.parquet", len(content.getvalue()))
    assert footer.equals(pq.read_metadata(content))


def test_what_a_task_that_was_given_up_writes_is_no_data(water: Water) -> None:
    table = water.make(schema="id long, _temporary string", by=["_temporary"])
    target = water.lake._engine.statement("t").target()
    frame = water.frame("SELECT 1L id, '_temporary' _temporary")
    writing = write._Writing(frame, target, write.Staging("folder", 0))
    writing.write()
    straggler = local(table) / "folder/_temporary/0/_temporary/attempt/part-9.parquet"
    straggler.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [7]}), str(straggler))
    [added] = writing.added()
    assert added.partition_values == {"_temporary": "_temporary"}


def test_a_fraction_has_no_place_in_a_whole_number_as_everywhere_on_spark(water: Water) -> None:
    water.make(schema="id long, n decimal(4,1)")
    water.sql("INSERT INTO t VALUES (1.9D, 1.25), (-1.9, 2)")
    assert [(row[0], str(row[1])) for row in water.rows()] == [(-1, "2.0"), (1, "1.3")]
    for given in ("1e30D, 1", "1, 12345.6"):
        with pytest.raises(InvalidDataError, match="does not fit"):
            water.sql(f"INSERT INTO t VALUES ({given})")


@pytest.mark.parametrize("size", ["0", "many", "-1mb"])
def test_a_file_size_that_is_none_is_refused(water: Water, size: str) -> None:
    table = water.make(delta__targetFileSize=size)
    with pytest.raises(InvalidArgumentError, match="targetFileSize"):
        water.lake.append("t", water.frame("SELECT 1 id"))
    assert listed(table) == []


def test_options_of_the_lake_reach_the_files(water: Water) -> None:
    table = water.make()
    lake = water.other(options={"compression": "zstd", "maxRecordsPerFile": "3"})
    lake.append("t", water.frame("SELECT id, 'x' v FROM range(0, 10, 1, 1)"))
    counts = sorted(stats_of(file)["numRecords"] for file in water.files())
    assert counts == [1, 3, 3, 3]
    footer = pq.ParquetFile(local(table) / water.files()[0].path).metadata
    assert footer.row_group(0).column(0).compression == "ZSTD"
    schema = pq.read_schema(local(table) / water.files()[0].path)
    assert schema.field("id").type == pa.int64()


def test_a_row_tracked_table_numbers_appended_rows(water: Water) -> None:
    water.make(delta__enableRowTracking="true")
    water.lake.append("t", water.frame("SELECT id, 'x' v FROM range(0, 10, 1, 1)"))
    water.lake.append("t", water.frame("SELECT 10L id, 'x' v"))
    shown = sorted((f.base_row_id, f.default_row_commit_version) for f in water.files())
    assert shown == [(0, 1), (10, 2)]


def properties_refused() -> Mapping[str, dict[str, str]]:
    return {
        "changeDataFeed": {"delta.enableChangeDataFeed": "true"},
        "rowTracking": {"delta.enableRowTracking": "true"},
        "append-only": {"delta.appendOnly": "true"},
    }


@pytest.mark.parametrize(("name", "properties"), properties_refused().items())
def test_changes_of_rows_are_refused_by_the_name_of_what_forbids_them(
    water: Water, name: str, properties: dict[str, str]
) -> None:
    table = water.session.create_table("t", "id long, v string", properties=properties)
    water.lake.append("t", water.frame("SELECT 1 id, 'a' v"))
    kept = listed(table)
    error = UnsupportedFeatureError if name != "append-only" else RefusedError
    attempts = [
        lambda: water.lake.overwrite("t", water.frame("SELECT 2 id")),
        lambda: water.lake.delete("t", "id = 1"),
        lambda: water.lake.delete("t"),
        lambda: water.lake.update("t", {"v": "'b'"}),
        lambda: water.lake.sql("MERGE INTO t USING (SELECT 1 id) s ON t.id = s.id "
                               "WHEN MATCHED THEN DELETE"),
        lambda: water.lake.sql("INSERT OVERWRITE t SELECT 1, 'b'"),
        lambda: water.lake.overwrite("t", water.frame("SELECT 2 n"), overwrite_schema=True),
        lambda: water.lake.sql("CREATE OR REPLACE TABLE t (n INT)"),
        lambda: water.lake.sql("REPLACE TABLE t AS SELECT 2 AS n"),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(error, match=name):
            attempt()
    assert water.rows() == [(1, "a")]
    assert listed(table) == kept
    assert water.session.table("t").version == 1


def test_a_table_of_partition_columns_alone_is_left_to_arrow(water: Water) -> None:
    """None is made here, but others have made such tables."""
    table = water.make(schema="p int, q string", by=["p"])
    target = water.lake._engine.statement("t").target()
    alone = replace(target, metadata=replaced(target.metadata, partition_columns=("p", "q")))
    with pytest.raises(UnsupportedFeatureError, match=r"table\.append"):
        write.conformed_to(water.frame("SELECT 1 p, 'x' q"), alone)
    assert listed(table) == []


def test_what_was_written_goes_when_the_proposal_is_refused(water: Water, tmp_path: Path) -> None:
    """The commit is lost to another schema: the files that were staged for it go."""
    table = water.make()
    lake = water.lake
    with lake._engine.statement("t") as statement:
        added = statement.stage(water.frame("SELECT 1 id, 'a' v"), statement.target())
        assert listed(table) == [added[0].path]
        table.add_columns("more int")
        with pytest.raises(Exception, match="conflict"):
            statement.commit(added, OperationInfo("WRITE", {"mode": "Append"}))
    assert listed(table) == []
    assert water.session.table("t").version == 1


@req("CM-37")
def test_no_statement_puts_a_version_into_the_log(water: Water) -> None:
    """The lake has no publisher, so a version in the log could only come from a client."""
    for statement in (
        "CREATE TABLE t (id BIGINT, v STRING)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "UPDATE t SET v = 'c' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "MERGE INTO t USING (SELECT 3 AS id, 'd' AS v) s ON t.id = s.id"
        " WHEN NOT MATCHED THEN INSERT *",
        "ALTER TABLE t ADD COLUMN more INT",
        "INSERT OVERWRITE t VALUES (4, 'e', 5)",
        "CREATE OR REPLACE TABLE t AS SELECT 6 AS id",
    ):
        water.sql(statement)
    water.lake.append("t", water.frame("SELECT 7L AS id"))
    table = water.session.table("t")
    assert table.version == 8
    assert [path.name for path in (local(table) / "_delta_log").glob("*")] == []
