"""Reading: any file path, any number of partitions, deleted rows, the past, and filters."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.errors import (
    InTheFutureError,
    InvalidArgumentError,
    MalformedError,
    NotFoundError,
    UnsupportedFeatureError,
)
from headgate.protocol.actions import Protocol, encode, join, removals
from headgate.protocol.encoding import replaced
from headgate.spark import scan
from headgate.table.snapshot_loader import load_path
from tests.kit.builders import inline_vector
from tests.spark.conftest import Water, commit, local, put_file, rows

NAMES = [
    "plain.parquet",
    "a b.parquet",
    "100%.parquet",
    "%20.parquet",
    "%2520.parquet",
    "a1.parquet",
    "a[1].parquet",
    "{a,b}.parquet",
    "star*.parquet",
    "back\\slash.parquet",
    "plus+plus.parquet",
    "hash#tag.parquet",
    "what?.parquet",
    "day=1/x=y.parquet",
    "grün ä漢.parquet",
    "_under/.dot/'quoted'.parquet",
    "in/semi;at@amp&.parquet",
    'double"quote<>|^`~.parquet',
]


def one(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number, number + 100, number + 200], pa.int64())})


def test_files_are_read_whatever_their_names(water: Water) -> None:
    table = water.make(schema="id long")
    commit(table, *[put_file(table, name, one(n)) for n, name in enumerate(NAMES)])
    everything = [(n + more,) for more in (0, 100, 200) for n in range(len(NAMES))]
    assert water.rows() == everything
    # And rows are found again in files of such names, and leave them.
    table.set_properties({"delta.enableDeletionVectors": True, "headgate.dml": "deletion-vectors"})
    water.lake.delete("t", "id >= 100 AND id < 200")
    assert all(file.deletion_vector for file in water.files())
    assert water.rows() == [row for row in everything if not 100 <= row[0] < 200]
    table.set_properties({"headgate.dml": "copy-on-write"})
    water.lake.delete("t", "id >= 200")
    assert water.rows() == everything[: len(NAMES)]


def test_files_are_read_where_a_log_names_them_absolutely(water: Water, tmp_path: Path) -> None:
    """No catalog takes such a commit, but a table opened by its path may have it."""
    managed = water.make(schema="id long")
    added = [put_file(managed, name, one(n), absolute=True) for n, name in enumerate(NAMES)]
    base = managed.snapshot()
    plain = tmp_path / "plain table"
    (plain / "_delta_log").mkdir(parents=True)
    metadata = replaced(base.metadata, configuration={})
    lines = [encode(Protocol(min_reader_version=1, min_writer_version=2)), encode(metadata)]
    content = join([*lines, *map(encode, added)])
    (plain / "_delta_log" / f"{0:020d}.json").write_bytes(content)
    snapshot = load_path(str(plain))
    assert len(snapshot.files()) == len(NAMES)
    read = rows(scan.dataframe(water.spark, snapshot, snapshot.files()))
    assert read == [(n + more,) for more in (0, 100, 200) for n in range(len(NAMES))]


def test_partition_values_are_told_by_file_names_of_any_kind(water: Water) -> None:
    """More groups than a union is made of: each row's file is looked up by its name."""
    table = water.make(schema="id long, p string", by=["p"])
    commit(
        table,
        *[put_file(table, name, one(n), {"p": name}) for n, name in enumerate(NAMES)],
    )
    assert len(NAMES) > scan._MOST_GROUPS
    wanted = [(n + more, NAMES[n]) for more in (0, 100, 200) for n in range(len(NAMES))]
    assert water.rows() == wanted
    assert water.rows(where="p = 'a[1].parquet'") == [(n, "a[1].parquet") for n in (6, 106, 206)]


YEARS = {
    ("-0001-12-31", "-9999-12-31 23:59:59.999999Z"): (-719_529, -377_673_580_800_000_001),
    ("0000-02-29", "0001-01-01T00:00:00+05:00"): (-719_469, -62_135_614_800_000_000),
    ("10000-01-01", "10000-01-01 00:00:00"): (2_932_897, 253_402_300_800_000_000),
    ("2026-01-01", "2026-01-01 00:00:00"): (20_454, 1_767_225_600_000_000),
}


@pytest.mark.parametrize("limit", [0, scan._MOST_GROUPS])
def test_values_of_partitions_may_be_of_any_year(
    water: Water, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_MOST_GROUPS", limit)
    table = water.make(schema="id long, d date, t timestamp", by=["d", "t"])
    files = [
        put_file(table, f"f{n}", pa.table({"id": [n]}), {"d": day, "t": moment})
        for n, (day, moment) in enumerate(YEARS)
    ]
    commit(table, *files)
    read = water.lake.read("t").select("id", F.unix_date("d"), F.unix_micros("t"))
    assert rows(read) == [(n, *since) for n, since in enumerate(YEARS.values())]


def test_damage_of_a_file_in_the_log_is_named_with_table_version_and_file(
    water: Water, tmp_path: Path
) -> None:
    managed = water.make(schema="id long, p int", by=["p"])
    file = put_file(managed, "f.parquet", one(1), {"p": "one"}, absolute=True)
    vector = replaced(inline_vector([1]), cardinality=2)
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=["deletionVectors"],
        writer_features=["deletionVectors"],
    )
    metadata = replaced(managed.snapshot().metadata, configuration={})
    for number, damaged in enumerate((file, replaced(file, deletion_vector=vector))):
        log = tmp_path / f"t{number}" / "_delta_log"
        log.mkdir(parents=True)
        content = join(map(encode, (protocol, metadata, damaged)))
        (log / f"{0:020d}.json").write_bytes(content)
        snapshot = load_path(str(log.parent))
        with pytest.raises(MalformedError, match=f"{log.parent} version 0: .*{file.path}"):
            scan.dataframe(water.spark, snapshot, snapshot.files())


@pytest.mark.parametrize("limit", [0, scan._MOST_GROUPS])
def test_values_of_partitions_are_typed_in_a_union_and_in_a_join(
    water: Water, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_MOST_GROUPS", limit)
    schema = "id long, b boolean, i int, d date, t timestamp, n decimal(10,2), x binary, f double"
    by = ["b", "i", "d", "t", "n", "x", "f"]
    table = water.make(schema=schema, by=by)
    texts = ["true", "-7", "0044-03-15", "2026-01-02 03:04:05.000006", "1.50", "ab", "-1.5"]
    values = dict(zip(by, texts, strict=True))
    commit(
        table,
        put_file(table, "one.parquet", one(1), values),
        put_file(table, "two.parquet", one(2), dict.fromkeys(by)),
        put_file(table, "three.parquet", one(3), values),
    )
    read = water.lake.read("t").where("id < 100").drop("id").toArrow().to_pylist()
    found = [row for row in read if row["i"] is not None]
    assert [*read].count(dict.fromkeys(by)) == 1
    assert len(found) == 2
    assert found[0] == found[1]
    assert str(found[0].pop("n")) == "1.50"
    assert found[0].pop("t") == datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    assert str(found[0].pop("d")) == "0044-03-15"
    assert found[0] == {"b": True, "i": -7, "x": b"ab", "f": -1.5}


@pytest.mark.parametrize("most_words", [scan._MOST_WORDS, 0])
def test_deleted_rows_are_left_out_by_bits_and_one_by_one(
    water: Water, most_words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_MOST_WORDS", most_words)
    water.make(
        schema="id long, p string",
        by=["p"],
        delta__enableDeletionVectors="true",
        headgate__dml="deletion-vectors",
    )
    water.lake.append("t", water.frame("SELECT id, if(id < 200, 'a b', 'c%d') p FROM range(400)"))
    gone = {0, 1, 63, 64, 65, 127, 128, 199, 200}  # of the second file none of its last words
    some = ", ".join(map(str, sorted(gone)))
    water.lake.delete("t", f"id IN ({some})")
    with_vectors = [file for file in water.files() if file.deletion_vector]
    assert len(with_vectors) == len(water.files()) >= 2
    wanted = [(n, "a b" if n < 200 else "c%d") for n in range(400) if n not in gone]
    assert water.rows() == wanted
    assert water.rows(where="id > 390") == [row for row in wanted if row[0] > 390]
    # More of the same file: what was deleted stays so.
    water.lake.delete("t", "id % 100 = 2")
    wanted = [row for row in wanted if row[0] % 100 != 2]
    assert water.rows() == wanted
    # Rows are read by their places, too.
    water.sql(
        "MERGE INTO t USING (SELECT explode(array(3, 303)) id) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET id = s.id + 1000"
    )
    assert water.rows() == sorted((n + 1000 if n in (3, 303) else n, p) for n, p in wanted)


@pytest.mark.parametrize("most_words", [scan._MOST_WORDS, 0])
def test_a_file_spark_names_otherwise_is_an_error_and_no_row_comes_back(
    water: Water, most_words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_MOST_WORDS", most_words)
    water.make(delta__enableDeletionVectors="true", headgate__dml="deletion-vectors")
    water.lake.append("t", water.frame("SELECT id, 'a' v FROM range(10)"))
    water.lake.delete("t", "id = 3")
    snapshot = water.session.table("t").snapshot()
    honest = scan._Scan._keys

    def otherwise(self: scan._Scan, files: object) -> list[str]:
        return [f"{name}x" for name in honest(self, files)]  # type: ignore[arg-type]

    def recorded(self: scan._Scan, *given: object) -> object:
        with monkeypatch.context() as lying:
            lying.setattr(scan._Scan, "_keys", otherwise)
            return known(self, *given)  # type: ignore[arg-type]

    known = scan._Scan._known
    monkeypatch.setattr(scan._Scan, "_known", recorded)
    frame = scan.dataframe(water.spark, snapshot, snapshot.files())
    with pytest.raises(Exception, match="does not know the file"):
        frame.collect()


def test_only_the_read_version_counts_and_the_past_is_there(any_water: Water) -> None:
    water = any_water
    table = water.make()
    before = water.lake.read("t")
    one = water.lake.append("t", water.frame("SELECT 1L id, 'a' v")).committed
    assert one is not None
    two = water.lake.append("t", water.frame("SELECT 2L id, 'b' v")).committed
    assert two is not None
    assert rows(before) == []
    assert water.rows(version=0) == []
    assert water.rows(version=1) == [(1, "a")] == water.rows(sequence=one.sequence)
    assert water.rows(as_of=one.timestamp_ms) == [(1, "a")]
    moment = datetime.fromtimestamp(two.timestamp_ms / 1000, UTC)
    assert water.rows(as_of=moment) == water.rows(as_of=moment.isoformat()) == water.rows()
    assert water.rows(version=1, where="id = 2") == []
    with pytest.raises(InvalidArgumentError):
        water.lake.read("t", version=1, sequence=1)
    with pytest.raises(InTheFutureError):
        water.lake.read("t", version=7)
    with pytest.raises(NotFoundError):
        water.lake.read("nobody")
    assert table.id == water.session.table("t").id


def test_where_keeps_files_from_being_read_and_rows_from_being_seen(water: Water) -> None:
    water.make(schema="id long, p int, s string", by=["p"])
    for p in range(3):
        for low in (0, 10):
            water.lake.append(
                "t",
                water.frame(f"SELECT {low} + id id, {p} p, 'x' s FROM range(3)").coalesce(1),
            )
    assert len(water.files()) == 6

    def read(where: str) -> tuple[int, list[tuple[object, ...]]]:
        frame = water.lake.read("t", where=where)
        return len(frame.inputFiles()), rows(frame.select("id", "p"))

    assert read("p = 1 AND id = 11") == (1, [(11, 1)])
    assert read("P = 1") == (2, [(n, 1) for n in (0, 1, 2, 10, 11, 12)])
    assert read("id > 11") == (3, [(12, 0), (12, 1), (12, 2)])
    assert read("id > 100") == (0, [])
    assert read("p IN (0, 2) AND id < 1") == (2, [(0, 0), (0, 2)])
    # What says nothing of files still says which rows: never fewer than without pruning.
    assert read("id % 10 = 1 AND length(s) = 1") == (6, [(n, p) for n in (1, 11) for p in range(3)])
    assert read("p = 1 OR id = 12") == (
        4,
        sorted([*[(n, 1) for n in (0, 1, 2, 10, 11, 12)], (12, 0), (12, 2)]),
    )
    assert read("cast(p AS string) = '01'")[1] == []
    for wrong in ("nothing = 1", "id = ", "id = (SELECT 1)", "rand() < 1"):
        with pytest.raises(Exception) as raised:  # noqa: PT011 - each says what is wrong with it
            water.lake.read("t", where=wrong)
        assert getattr(raised.value, "code", None) in ("invalid-argument", "syntax"), wrong


@pytest.mark.parametrize("name", ["_x.parquet", ".x.parquet", "folder/_x.parquet"])
def test_a_file_spark_would_pass_over_is_refused(water: Water, name: str) -> None:
    table = water.make(schema="id long")
    commit(table, put_file(table, "seen.parquet", one(1)), put_file(table, name, one(2)))
    with pytest.raises(UnsupportedFeatureError, match="to_arrow"):
        water.lake.read("t")
    assert table.to_arrow().num_rows == 6


@pytest.mark.parametrize("setting", ["ignoreMissingFiles", "ignoreCorruptFiles"])
def test_a_file_that_is_missing_or_broken_is_an_error_whatever_the_session_says(
    water: Water, setting: str
) -> None:
    table = water.make(schema="id long")
    added = [put_file(table, f"{n}.parquet", one(n)) for n in range(3)]
    commit(table, *added)
    water.spark.conf.set(f"spark.sql.files.{setting}", "true")
    frame = water.lake.read("t")
    assert len(rows(frame)) == 9
    victim = local(table) / "1.parquet"
    if setting == "ignoreMissingFiles":
        victim.unlink()
    else:
        victim.write_bytes(b"PAR1" + bytes(victim.stat().st_size - 8) + b"PAR1")
    for again in (frame, water.lake.read("t")) if victim.exists() else (frame,):
        with pytest.raises(Exception, match=r"1\.parquet"):
            again.collect()
    if not victim.exists():
        with pytest.raises(Exception, match=r"1\.parquet"):
            water.lake.read("t").collect()


def test_rows_that_changed_their_columns_are_read_in_those_of_now(water: Water) -> None:
    table = water.make(
        schema="id long, s struct<a: int, b: struct<c: string>>, l array<struct<x: int>>,"
        " m map<string, struct<y: int>>",
        delta__columnMapping__mode="name",
    )
    query = (
        "SELECT {n} id, named_struct('a', {n}, 'b', named_struct('c', 'c{n}')) s,"
        " array(named_struct('x', {n})) l, map('k', named_struct('y', {n})) m"
    )
    water.lake.append("t", water.frame(query.format(n=1)))
    table.rename_column("id", "key")
    table.rename_column(["s", "b", "c"], "renamed")
    table.rename_column(["l", "element", "x"], "z")
    table.add_columns("extra string")
    first = water.lake.read("t")
    assert first.columns == ["key", "s", "l", "m", "extra"]
    assert rows(first.select("key", "s.b.renamed", "l.z", "m.k.y", "extra")) == [
        (1, "c1", [1], 1, None)
    ]
    # Struct fields alone, and filters on them: what field ids got wrong.
    assert rows(first.select("s.b.renamed").where("s.b.renamed = 'c1'")) == [("c1",)]
    assert rows(first.where(F.col("s.a") == 1).select("s.a")) == [(1,)]
    assert water.rows(where="s.b.renamed = 'none'") == []
    table.drop_columns(["extra"])
    assert water.lake.read("t").columns == ["key", "s", "l", "m"]


def test_files_named_twice_in_history_are_read_once(water: Water) -> None:
    table = water.make(schema="id long")
    added = put_file(table, "x.parquet", one(1))
    commit(table, added)
    commit(table, *removals([added], 1_772_000_000_000))
    assert water.rows() == []
    commit(table, added)
    assert [row[0] for row in water.rows()] == [1, 101, 201]
