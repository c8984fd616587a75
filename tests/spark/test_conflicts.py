"""Statements that meet: steps in an order, what loses, what wins, what is done again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from cachetools import FIFOCache

from headgate.errors import ConflictError
from headgate.spark import Lake, dml
from headgate.spark.dml import Outcome
from headgate.spark.insert import Insertion, insert
from headgate.spark.merge import Clause, Do, When
from headgate.spark.statement import Statement
from tests.spark.conftest import Water, listed, rows

MODES = ["copy-on-write", "deletion-vectors"]


def filled(water: Water, mode: str = "copy-on-write") -> None:
    """Two partitions, a file each."""
    water.make(
        schema="id long, p string",
        by=["p"],
        delta__enableDeletionVectors="true",
        headgate__dml=mode,
    )
    query = "SELECT id, if(id < 5, 'a', 'b') p FROM range(0, 10, 1, 1)"
    water.lake.append("t", water.frame(query))


def deleting(lake: Lake, where: str) -> Callable[[Statement], Outcome]:
    return lambda statement: dml.delete(statement, lake._engine.condition(where, statement.base))


@contextmanager
def slow(lake: Lake, name: str = "t") -> Iterator[Statement]:
    """A statement begun now, to be carried out after others."""
    with lake._engine.statement(name) as statement:
        yield statement


@pytest.mark.parametrize("mode", MODES)
def test_of_two_deletes_on_one_file_the_second_loses_and_says_to_whom(
    any_water: Water, mode: str
) -> None:
    water = any_water
    filled(water, mode)
    other = water.other()
    with slow(water.lake) as mine:
        winner = other.delete("t", "id = 1").committed
        assert winner is not None
        before = listed(water.session.table("t"))
        with pytest.raises(ConflictError) as raised:
            deleting(water.lake, "id = 2")(mine)
    assert str(winner.version) in str(raised.value)
    versions = {getattr(conflict, "version", None) for conflict in raised.value.conflicts}
    assert versions == {winner.version}
    assert [row[0] for row in water.rows()] == [0, *range(2, 10)]
    assert listed(water.session.table("t")) == before


@pytest.mark.parametrize("mode", MODES)
def test_deletes_on_other_partitions_both_win(any_water: Water, mode: str) -> None:
    water = any_water
    filled(water, mode)
    with slow(water.lake) as mine:
        water.other().delete("t", "id = 1 AND p = 'a'")
        deleting(water.lake, "id = 7 AND p = 'b'")(mine)
    assert [row[0] for row in water.rows()] == [0, 2, 3, 4, 5, 6, 8, 9]
    assert water.session.table("t").version == 3


def test_a_delete_conflicts_with_a_file_that_went_where_it_looked(water: Water) -> None:
    filled(water)
    with slow(water.lake) as mine:
        water.other().delete("t", "p = 'a'")  # a whole file, and nothing in its place
        with pytest.raises(ConflictError, match="removed files that we read"):
            deleting(water.lake, "abs(id) = 7")(mine)
    assert [row[0] for row in water.rows()] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_statement_is_run_again_on_what_is_there_then(water: Water, mode: str) -> None:
    filled(water, mode)
    other, met = water.other(), []

    def run(statement: Statement) -> Outcome:
        if not met:
            met.append(other.delete("t", "id = 1"))
        return deleting(water.lake, "id < 3")(statement)

    outcome = water.lake._engine.redo("t", run)
    assert outcome.counts == {"num_affected_rows": 2}
    assert [row[0] for row in water.rows()] == list(range(3, 10))


def test_a_statement_that_loses_every_time_gives_up_with_the_conflict(water: Water) -> None:
    filled(water)
    other = water.other()
    numbers = iter(range(5))

    def run(statement: Statement) -> Outcome:
        other.delete("t", f"id = {next(numbers)}")
        return deleting(water.lake, "id = 4")(statement)

    with pytest.raises(ConflictError):
        water.lake._engine.redo("t", run)
    assert next(numbers) == 3  # three tries
    assert 4 in [row[0] for row in water.rows()]
    assert set(listed(water.session.table("t"))) >= {file.path for file in water.files()}


def test_appends_never_conflict_with_appends_or_deletes(any_water: Water) -> None:
    water = any_water
    filled(water)
    with slow(water.lake) as mine, slow(water.lake) as later:
        water.other().delete("t", "id = 1")
        rows_of_mine = water.frame("SELECT 100L id, 'a' p")
        insert(mine, rows_of_mine, Insertion())
        insert(later, water.frame("SELECT 101L id, 'b' p"), Insertion())
    assert [row[0] for row in water.rows()] == [0, *range(2, 10), 100, 101]


def test_a_delete_conflicts_with_rows_that_came_where_it_looked_if_serializable(
    water: Water,
) -> None:
    filled(water)
    table = water.session.table("t")
    with slow(water.lake) as mine:
        water.other().append("t", water.frame("SELECT 2L id, 'a' p"))
        deleting(water.lake, "id = 2 AND p = 'a'")(mine)  # as if it had come before the append
    assert [row[0] for row in water.rows()].count(2) == 1
    table.set_properties({"delta.isolationLevel": "Serializable"})
    with slow(water.lake) as mine:
        water.other().append("t", water.frame("SELECT 3L id, 'a' p"))
        with pytest.raises(ConflictError):
            deleting(water.lake, "id = 3 AND p = 'a'")(mine)
    with slow(water.lake) as mine:  # where it did not look rows may come
        water.other().append("t", water.frame("SELECT 8L id, 'b' p"))
        deleting(water.lake, "id = 3 AND p = 'a'")(mine)
    assert [row[0] for row in water.rows()].count(3) == 0


def test_an_overwrite_loses_to_what_it_did_not_see_go(water: Water) -> None:
    filled(water)
    with slow(water.lake) as mine:
        water.other().delete("t", "id = 1")
        with pytest.raises(ConflictError):
            insert(mine, water.frame("SELECT 1L id, 'a' p"), Insertion(replaces=True))
    assert len(water.rows()) == 9
    assert len(listed(water.session.table("t"))) == len(
        {f.path for v in (1, 2) for f in water.session.table("t").snapshot(v).files()}
    )


def test_a_merge_loses_to_a_change_of_what_it_matched(water: Water) -> None:
    filled(water)
    lake, other = water.lake, water.other()
    clauses = [Clause(When.MATCHED, Do.UPDATE, values={("p",): "'b'"})]
    source = water.frame("SELECT 1L id")
    real = lake._engine.statement

    def interrupted(name: str) -> Statement:
        begun = real(name)
        other.delete("t", "id = 2")
        return begun

    lake._engine.statement = interrupted  # type: ignore[method-assign]
    with pytest.raises(ConflictError):
        lake.merge("t", source, "target.id = source.id", clauses)
    assert [row[0] for row in water.rows()] == [0, 1, *range(3, 10)]


def test_a_write_made_from_a_read_remembers_what_was_read(water: Water) -> None:
    """Rows read, computed on and written over: what came meanwhile would be lost."""
    filled(water)
    water.make("copy", "id long, p string")
    doubled = water.lake.read("t").selectExpr("id * 2 AS id", "p")
    water.other().delete("t", "id = 1")
    with pytest.raises(ConflictError):
        water.lake.overwrite("t", doubled)
    assert len(water.rows()) == 9
    # Into another table as well: it says what it was made from.
    doubled = water.lake.read("t").selectExpr("id * 2 AS id", "p")
    outcome = water.lake.append("copy", doubled)
    assert outcome.committed is not None
    assert not water.session.table("copy").history(1)[0].is_blind_append
    assert len(rows(water.lake.read("copy"))) == 9


def test_a_write_was_made_from_the_oldest_read_that_has_its_files(
    water: Water, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later read has them too, and would hide what came in between."""
    monkeypatch.setattr(water.lake._engine, "_reads", FIFOCache(2))
    filled(water)
    for name in ("u", "w"):
        water.make(name)
        water.lake.read(name)
    doubled = water.lake.read("t").selectExpr("id * 2 AS id", "p")
    water.other().append("t", water.frame("SELECT 50L id, 'a' p"))
    water.lake.read("t")
    with pytest.raises(ConflictError):
        water.lake.overwrite("t", doubled)
    assert [row[0] for row in water.rows()] == [*range(10), 50]


def test_what_is_read_of_the_past_is_not_disturbed(water: Water) -> None:
    """A table is put back as it was, whatever happened since."""
    filled(water)
    water.lake.delete("t", "id < 5")
    water.lake.overwrite("t", water.other().read("t", version=1))
    water.lake.delete("t", "id < 5")
    water.lake.overwrite("t", water.lake.read("t", version=3))
    assert [row[0] for row in water.rows()] == list(range(10))
    water.lake.delete("t", "id >= 5")
    water.sql("INSERT INTO t SELECT * FROM t VERSION AS OF 1 WHERE id = 9")
    water.sql("DELETE FROM t WHERE id IN (SELECT id FROM t VERSION AS OF 2 WHERE id < 9)")
    assert [row[0] for row in water.rows()] == [0, 1, 2, 3, 4, 9]


def test_a_table_that_is_read_only_does_not_stop_an_append(water: Water) -> None:
    filled(water)
    unrelated = water.frame("SELECT 50L id, 'a' p")
    water.lake.read("t").count()
    water.lake.append("t", unrelated)
    assert water.session.table("t").history(1)[0].is_blind_append


def test_columns_that_both_add_collide_and_the_second_is_told(water: Water) -> None:
    filled(water)
    with slow(water.lake) as mine:
        water.other().append("t", water.frame("SELECT 1L id, 'a' p, 'x' more"), merge_schema=True)
        with pytest.raises(ConflictError, match="metadata"):
            insert(
                mine,
                water.frame("SELECT 1L id, 'a' p, 'x' other"),
                Insertion(merges_schema=True),
            )
    assert water.lake.read("t").columns == ["id", "p", "more"]
