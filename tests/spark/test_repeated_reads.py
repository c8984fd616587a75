"""Rows that a statement reads twice are the same twice, and what it read through a view counts."""

from collections.abc import Iterator

import pytest

from headgate.errors import ConflictError
from tests.spark.conftest import Water, rows

MANY = 400
MODES = ["copy-on-write", "deletion-vectors"]


@pytest.fixture
def chance(water: Water) -> Iterator[str]:
    """A function of the session that says something else each time."""
    water.spark.sql(
        "CREATE OR REPLACE TEMPORARY FUNCTION by_chance(x BIGINT) RETURNS BOOLEAN"
        " NOT DETERMINISTIC RETURN rand() < 0.5"
    )
    yield "by_chance"
    water.spark.sql("DROP TEMPORARY FUNCTION by_chance")


def filled(water: Water, mode: str) -> None:
    water.make(delta__enableDeletionVectors="true", headgate__dml=mode)
    water.lake.append("t", water.frame(f"SELECT id, 'old' v FROM range(0, {MANY}, 1, 2)"))


@pytest.mark.parametrize("mode", MODES)
def test_a_row_is_deleted_or_stays_whatever_chance_says_the_second_time(
    water: Water, chance: str, mode: str
) -> None:
    filled(water, mode)
    [(deleted,)] = water.sql(f"DELETE FROM t WHERE {chance}(id)")
    left = [row[0] for row in water.rows()]
    assert 0 < deleted < MANY
    assert len(left) == len(set(left)) == MANY - deleted


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["{chance}(id)", "id IN (SELECT id FROM t WHERE {chance}(id))"])
def test_a_row_is_updated_once_whatever_chance_says_the_second_time(
    water: Water, chance: str, mode: str, where: str
) -> None:
    filled(water, mode)
    [(updated,)] = water.sql(f"UPDATE t SET v = 'new' WHERE {where.format(chance=chance)}")
    found = water.rows()
    assert [row[0] for row in found] == list(range(MANY))
    assert 0 < updated < MANY
    assert sum(row[1] == "new" for row in found) == updated


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "source",
    [
        "SELECT id, 'new' v FROM s WHERE by_chance(id)",
        "SELECT id, 'new' v FROM s ORDER BY `rand`() LIMIT 150",
        "SELECT id, v FROM (SELECT id, 'new' v, row_number() OVER (ORDER BY id % 2, rand()) n"
        " FROM s) WHERE n <= 150",
    ],
)
def test_the_source_of_a_merge_is_chosen_once(
    water: Water, chance: str, mode: str, source: str
) -> None:
    filled(water, mode)
    water.make("s")
    water.lake.append("s", water.frame(f"SELECT id * 2 id, 'x' v FROM range(0, {MANY}, 1, 2)"))
    [(affected, updated, deleted, inserted)] = water.sql(
        f"MERGE INTO t USING ({source}) s ON t.id = s.id"
        " WHEN MATCHED AND t.id % 4 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v"
        " WHEN NOT MATCHED THEN INSERT *"
    )
    found = water.rows()
    ids = [row[0] for row in found]
    assert affected == updated + deleted + inserted > 0
    assert len(ids) == len(set(ids)) == MANY - deleted + inserted
    assert sum(row[1] == "new" for row in found) == updated + inserted


def test_a_view_is_of_the_moment_it_was_made_and_who_writes_from_it_has_read_it(
    water: Water,
) -> None:
    """What came meanwhile is not lost."""
    filled(water, "copy-on-write")
    water.lake.sql("CREATE OR REPLACE TEMP VIEW few AS SELECT * FROM t WHERE id < 5")
    try:
        water.other().delete("t", "id = 3")
        for text in (
            "INSERT OVERWRITE t SELECT * FROM few",
            "INSERT INTO t SELECT id + 1000, v FROM few",
            "MERGE INTO t USING few ON t.id = few.id WHEN MATCHED THEN UPDATE SET v = 'x'",
            "MERGE INTO t USING (SELECT * FROM few) s ON t.id = s.id WHEN MATCHED THEN DELETE",
            "DELETE FROM t WHERE id IN (SELECT id FROM few)",
            "UPDATE t SET v = (SELECT max(v) FROM few)",
            "CREATE OR REPLACE TABLE t AS SELECT * FROM few",
        ):
            with pytest.raises(ConflictError):
                water.lake.sql(text)
        assert len(water.rows()) == MANY - 1
        water.lake.sql("CREATE OR REPLACE TEMP VIEW few AS SELECT * FROM t WHERE id < 5")
        water.lake.sql("INSERT INTO t SELECT id + 1000, v FROM few WHERE id = 4")
        assert not water.session.table("t").history(1)[0].is_blind_append
    finally:
        water.spark.catalog.dropTempView("few")


def test_all_clocks_of_a_statement_tell_one_moment(
    water: Water, monkeypatch: pytest.MonkeyPatch
) -> None:
    water.make("t", "id long, a timestamp, b timestamp")
    clock = water.session.clock
    began = clock.now_ms()
    ticks = iter(range(10_000))
    monkeypatch.setattr(clock, "now_ms", lambda: began + 1000 * next(ticks), raising=False)
    water.lake.sql("INSERT INTO t VALUES (1, now(), current_timestamp())")
    water.lake.sql("INSERT INTO t SELECT 2, now(), (SELECT now())")
    water.lake.sql("UPDATE t SET a = now(), b = current_timestamp() WHERE id = 1 AND now() >= a")
    water.lake.sql(
        "MERGE INTO t USING (SELECT 2L id UNION ALL SELECT 3) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET a = now(), b = now()"
        " WHEN NOT MATCHED THEN INSERT (id, a, b) VALUES (s.id, now(), now())"
    )
    found = rows(water.lake.read("t"))
    assert [row[0] for row in found] == [1, 2, 3]
    assert all(row[1] == row[2] for row in found)
