"""Statements on Spark whose answer is lost, and that are then refused or throttled.

The commit may have been ratified: its files stay, it is not run again, and it is reported as
unknown.
"""

from __future__ import annotations

import pytest

from headgate.api.messages import Ratified
from headgate.client.session import Session
from headgate.client.transaction import Patience
from headgate.clock import RandomIds, SystemClock
from headgate.errors import (
    BusyError,
    ConflictError,
    HeadgateError,
    InvalidCommitError,
    MalformedError,
    NotAuthenticatedError,
    NotFoundError,
    OutcomeUnknownError,
    TooLargeError,
    TooSlowError,
    UnavailableError,
)
from headgate.spark import Lake
from tests.client.test_lost_answers import LOST, NEVER_ARRIVED, raising
from tests.kit import req, shows
from tests.kit.faulty_catalogs import Fault, ScriptedCatalog
from tests.spark.conftest import Water

ROWS = [(1, "a"), (2, "b")]
STATEMENTS = {
    "INSERT INTO t VALUES (3, 'c')": [*ROWS, (3, "c")],
    "INSERT INTO t SELECT id + 10, v FROM t": [*ROWS, (11, "a"), (12, "b")],
    "DELETE FROM t WHERE id = 1": [(2, "b")],
    "UPDATE t SET v = concat(v, '!') WHERE id = 1": [(1, "a!"), (2, "b")],
    "MERGE INTO t USING (SELECT 2L id, 'm' v UNION ALL SELECT 3L, 'm') s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *": [
        (1, "a"),
        (2, "m"),
        (3, "m"),
    ],
    "INSERT OVERWRITE t VALUES (9, 'z')": [(9, "z")],
    "CREATE OR REPLACE TABLE t AS SELECT 9L id, 'z' v": [(9, "z")],
}
REFUSALS: list[type[HeadgateError]] = [
    InvalidCommitError,
    MalformedError,
    NotAuthenticatedError,
    NotFoundError,
    TooLargeError,
]
PASSING: list[type[HeadgateError]] = [BusyError, UnavailableError, TooSlowError]


def lake_on(water: Water, *script: Fault, wait_s: float = 0.05) -> tuple[Lake, ScriptedCatalog]:
    """Give a lake whose proposals go wrong, one after the other, and how long it asks again."""
    catalog = ScriptedCatalog(water.catalog, *script)
    clock = SystemClock()
    session = Session(
        catalog,
        clock=clock,
        ids=RandomIds(clock),
        store_for=water.store_for,
        patience=Patience(unknown_wait_s=wait_s, busy_wait_s=wait_s),
    )
    return Lake(water.spark, session), catalog


def made(water: Water, **properties: str) -> None:
    water.make(**properties)
    water.lake.append("t", water.frame("VALUES (1L, 'a'), (2L, 'b') AS (id, v)"))


def assert_unknown(water: Water, statement: str, *script: Fault) -> None:
    lake, catalog = lake_on(water, *script)
    with pytest.raises(OutcomeUnknownError) as error:
        lake.sql(statement)
    # It was sent under one id only: a statement of unknown outcome is not run again.
    assert {proposal.txn_id for proposal in catalog.proposals} == {error.value.txn_id}


@req("CM-43")
@shows("FC4", "FX4")
@pytest.mark.parametrize("vectors", ["true", "false"], ids=["vectors", "copies"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_conflict_after_a_lost_answer_neither_repeats_nor_undoes_a_statement(
    water: Water, statement: str, vectors: str
) -> None:
    """A conflict is what a statement is run again for; here it may have been ratified before."""
    made(water, delta__enableDeletionVectors=vectors)
    assert_unknown(water, statement, LOST, Fault(raising(ConflictError)))
    assert water.rows() == sorted(STATEMENTS[statement])
    assert water.session.table("t").version == 2


@req("CM-43")
@shows("FC4", "FX4")
def test_a_refusal_after_a_lost_answer_deletes_no_file_of_a_ratified_commit(water: Water) -> None:
    made(water)
    expected = list(ROWS)
    for number, kind in enumerate(REFUSALS):
        text = f"INSERT INTO t VALUES ({10 + number}, 'c')"
        assert_unknown(water, text, LOST, Fault(raising(kind)))
        expected.append((10 + number, "c"))
        assert water.rows() == expected
    assert_unknown(water, "DELETE FROM t WHERE id >= 10", LOST, *[Fault(raising(BusyError))] * 99)
    assert water.rows() == ROWS


@req("CM-43")
def test_errors_that_pass_after_a_lost_answer_end_in_the_first_answer(water: Water) -> None:
    made(water)
    passing = [Fault(raising(kind)) for kind in PASSING]
    lake, catalog = lake_on(water, LOST, *passing, LOST, wait_s=60)
    lake.sql("INSERT INTO t VALUES (3, 'c')")
    assert len(catalog.proposals) == 3 + len(PASSING)
    assert water.rows() == [*ROWS, (3, "c")]


@req("CM-43")
def test_files_stay_while_it_is_unknown_whether_a_request_arrived(water: Water) -> None:
    made(water)
    lake, catalog = lake_on(water, NEVER_ARRIVED, Fault(raising(NotAuthenticatedError)))
    with pytest.raises(OutcomeUnknownError):
        lake.sql("INSERT INTO t VALUES (3, 'c')")
    assert water.rows() == ROWS
    # The same proposal is ratified when it comes again, and finds its files.
    assert isinstance(water.catalog.propose(catalog.proposals[0]), Ratified)
    assert water.rows() == [*ROWS, (3, "c")]


def test_a_refusal_without_a_lost_answer_leaves_no_file_behind(water: Water) -> None:
    made(water)
    table = water.session.table("t")
    before = sorted(item.path for item in water.store_for(table.location).list("", recursive=True))
    lake, _ = lake_on(water, Fault(raising(NotAuthenticatedError)))
    with pytest.raises(NotAuthenticatedError):
        lake.sql("INSERT INTO t VALUES (3, 'c')")
    after = sorted(item.path for item in water.store_for(table.location).list("", recursive=True))
    assert after == before
