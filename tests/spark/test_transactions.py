"""Transactions over many statements and many tables, with DataFrames and with SQL."""

from __future__ import annotations

import pytest

from headgate.api.messages import Answer, Proposal
from headgate.client.open_transaction import Transaction
from headgate.errors import (
    ConflictError,
    HeadgateError,
    InvalidArgumentError,
    NotFoundError,
    RefusedError,
    SyntaxRefusedError,
    TransactionEndedError,
    UnsupportedByCatalogError,
)
from headgate.protocol.actions import TxnId
from headgate.protocol.transactions import State
from tests.kit import req
from tests.spark.conftest import Water, rows

# As the document writes it.
SCRIPT = """BEGIN TXN;
INSERT INTO `t1` VALUE (1);
DELETE FROM `t2`
WHERE id IN (SELECT id FROM `t1`);
END TXN;
"""


@pytest.fixture
def two(any_water: Water) -> Water:
    any_water.make("t1", "id long")
    any_water.make("t2", "id long")
    any_water.lake.sql("INSERT INTO t2 VALUES (1), (2)")
    return any_water


class TestScripts:
    @req("MT-03", "MT-09", "MT-16")
    def test_the_script_of_the_document_runs_as_written(self, two: Water) -> None:
        result = rows(two.lake.sql(SCRIPT))
        assert two.rows("t1") == [(1,)]
        assert two.rows("t2") == [(2,)]
        assert [row[-2:] for row in result] == [("default.t1", 1), ("default.t2", 2)]
        first, second = (two.session.table(name).log()[-1].commit for name in ("t1", "t2"))
        assert (first.txn_id, first.sequence) == (second.txn_id, second.sequence)
        assert first.timestamp_ms == second.timestamp_ms

    @req("MT-09", "MT-11")
    @pytest.mark.parametrize(
        "text",
        [
            "BEGIN; {} COMMIT",
            "BEGIN TRANSACTION; {} COMMIT TRANSACTION;",
            "BEGIN WORK; {} END WORK",
            "START TRANSACTION ISOLATION LEVEL SERIALIZABLE; {} END TRANSACTION",
            "begin txn isolation level write serializable; {} commit work",
        ],
    )
    def test_every_form_commits(self, two: Water, text: str) -> None:
        two.lake.sql(text.format("INSERT INTO t1 VALUES (5); INSERT INTO t2 SELECT id FROM t1;"))
        assert (two.rows("t1"), two.rows("t2")) == ([(5,)], [(1,), (2,), (5,)])
        assert two.session.table("t1").version == 1

    @req("MT-11")
    @pytest.mark.parametrize("end", ["ROLLBACK", "ROLLBACK TRANSACTION", "ABORT"])
    def test_a_rollback_leaves_nothing_visible(self, two: Water, end: str) -> None:
        two.lake.sql(f"BEGIN; INSERT INTO t1 VALUES (5); DELETE FROM t2; {end}")
        assert (two.rows("t1"), two.rows("t2")) == ([], [(1,), (2,)])
        assert two.session.table("t1").version == 0

    @req("MT-11")
    def test_a_script_that_fails_or_does_not_end_is_rolled_back(self, two: Water) -> None:
        with pytest.raises(HeadgateError, match="missing"):
            two.lake.sql("BEGIN; INSERT INTO t1 VALUES (5); SELECT missing FROM t2; COMMIT")
        with pytest.raises(InvalidArgumentError, match="ended inside a transaction"):
            two.lake.sql("BEGIN TXN; INSERT INTO t1 VALUES (5)")
        assert two.rows("t1") == []
        two.lake.sql("INSERT INTO t1 VALUES (6)")
        assert two.rows("t1") == [(6,)]

    @req("MT-11")
    def test_savepoints_undo_only_what_came_after_them(self, two: Water) -> None:
        two.lake.sql(
            """
            BEGIN;
            INSERT INTO t1 VALUES (1);
            SAVEPOINT a;
            INSERT INTO t1 VALUES (2);
            SAVEPOINT b;
            DELETE FROM t1;
            ROLLBACK TO SAVEPOINT b;
            INSERT INTO t1 VALUES (3);
            ROLLBACK TO a;
            INSERT INTO t1 VALUES (4);
            RELEASE SAVEPOINT a;
            COMMIT;
            """
        )
        assert two.rows("t1") == [(1,), (4,)]

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("COMMIT", "[Nn]o transaction is open"),
            ("ROLLBACK", "[Nn]o transaction is open"),
            ("SAVEPOINT a", "[Nn]o transaction is open"),
            ("SHOW TRANSACTION", "[Nn]o transaction is open"),
            ("BEGIN; BEGIN; COMMIT", "[Aa] transaction is open already"),
            ("BEGIN; COMMIT; COMMIT", "[Nn]o transaction is open"),
            ("BEGIN ISOLATION LEVEL READ COMMITTED; COMMIT", "READ COMMITTED is not a level"),
            ("BEGIN INSERT INTO t1 VALUES (1)", "BEGIN takes"),
            ("END", "TXN, TRANSACTION or WORK"),
        ],
    )
    def test_what_makes_no_sense_is_refused_at_its_place(
        self, two: Water, text: str, why: str
    ) -> None:
        with pytest.raises(SyntaxRefusedError, match=why):
            two.lake.sql(text)

    def test_an_unknown_savepoint_is_refused_by_name(self, two: Water) -> None:
        with pytest.raises(NotFoundError, match="no savepoint earlier"):
            two.lake.sql("BEGIN; SAVEPOINT early; ROLLBACK TO earlier; COMMIT")

    @req("MT-12")
    def test_a_cut_of_the_past_is_read_only(self, two: Water) -> None:
        before = two.session.resolve("t2").sequence
        two.lake.sql("INSERT INTO t2 VALUES (3)")
        read = "SELECT count(*) FROM t2; ROLLBACK"
        count = two.lake.connection()
        count.run(f"BEGIN AS OF SEQUENCE {before}")
        assert rows(count.run("SELECT count(*) FROM t2")) == [(2,)]
        with pytest.raises(RefusedError, match="read-only"):
            count.run("INSERT INTO t2 VALUES (4)")
        count.run("COMMIT")
        assert rows(two.lake.sql(f"BEGIN READ ONLY; {read}"))[0][1] == "abandoned"

    @req("MT-11")
    def test_a_statement_that_fails_undoes_itself_alone(self, two: Water) -> None:
        connection = two.lake.connection()
        connection.run("BEGIN")
        for number, text in enumerate(
            (
                "INSERT INTO t1 VALUES ('x')",
                "INSERT INTO t1 SELECT id / 0 FROM t2",
                "UPDATE t1 SET missing = 1",
                "DELETE FROM t1 WHERE id = 1 / (id - id)",
                "MERGE INTO t1 USING t2 ON true WHEN MATCHED THEN UPDATE SET id = 9",
                "INSERT INTO t3 VALUES (1)",
                "SELEKT 1",
            ),
            start=10,
        ):
            connection.run(f"INSERT INTO t1 VALUES ({number})")
            before = rows(connection.run("SELECT id FROM t1 ORDER BY id"))
            with pytest.raises(HeadgateError):
                connection.run(text)
            assert rows(connection.run("SELECT id FROM t1 ORDER BY id")) == before
        connection.run("COMMIT")
        assert sorted(two.rows("t1")) == before == [(number,) for number in range(10, 17)]
        assert two.session.table("t1").version == 1

    def test_a_transaction_of_a_connection_extends_over_texts(self, two: Water) -> None:
        connection = two.lake.connection()
        connection.run("BEGIN")
        connection.run("INSERT INTO t1 VALUES (7)")
        with pytest.raises(HeadgateError):
            connection.run("SELECT missing FROM t1")
        assert rows(connection.run("SELECT * FROM t1")) == [(7,)]
        assert two.rows("t1") == []
        connection.run("COMMIT")
        assert two.rows("t1") == [(7,)]
        assert connection.close() is False

    @req("MT-09")
    def test_a_block_commits_and_is_run_again_after_a_conflict(self, two: Water) -> None:
        block = "BEGIN ATOMIC {} INSERT INTO t1 SELECT count(*) FROM t2; DELETE FROM t2; END"
        session = two.lake.session
        propose, seen = session.catalog.propose, []

        def overtaken(proposal: Proposal) -> Answer:
            if not seen:
                seen.append(proposal)
                two.other().sql("DELETE FROM t2 WHERE id = 1")
            return propose(proposal)

        two.session.catalog.propose = overtaken  # type: ignore[method-assign]
        result = rows(two.lake.sql(block.format("")))
        assert (two.rows("t1"), two.rows("t2")) == ([(1,)], [])
        assert {row[1] for row in result} == {"ratified"}
        seen.clear()
        two.lake.sql("INSERT INTO t2 VALUES (1), (2)")
        seen.clear()
        with pytest.raises(ConflictError):
            two.lake.sql(block.format("RETRY 0"))
        assert two.rows("t1") == [(1,)]

    @req("MT-11")
    def test_an_error_inside_a_block_undoes_all_of_it(self, two: Water) -> None:
        with pytest.raises(HeadgateError, match="missing"):
            two.lake.sql("BEGIN ATOMIC INSERT INTO t1 VALUES (1); SELECT missing FROM t2; END")
        assert two.rows("t1") == []

    def test_tables_cannot_be_created_or_dropped_inside(self, two: Water) -> None:
        for text in ("CREATE TABLE t3 (id long)", "DROP TABLE t1", "CREATE SCHEMA s"):
            with pytest.raises(UnsupportedByCatalogError, match="inside a transaction"):
                two.lake.sql(f"BEGIN; {text}; COMMIT")


class TestDataFrames:
    @req("MT-03", "MT-09")
    def test_a_block_is_one_transaction(self, two: Water) -> None:
        lake = two.lake
        with lake.transaction() as txn:
            lake.append("t1", two.spark.createDataFrame([(10,)], "id long"))
            lake.overwrite("t2", lake.read("t1"))
            lake.update("t2", {"id": "id + 1"})
            assert two.other().read("t2").count() == 2
            files = lake.read("t1").inputFiles() + lake.read("t2").inputFiles()
            assert all(f"/{txn.id}/" in file for file in files)
            assert rows(lake.sql("SELECT * FROM t2")) == [(11,)]
        assert (two.rows("t1"), two.rows("t2")) == ([(10,)], [(11,)])
        assert txn.versions == {"default.t1": 1, "default.t2": 2}

    @req("MT-10")
    def test_deletion_vectors_of_several_statements_become_one(self, water: Water) -> None:
        water.make(
            "t", "id long", delta__enableDeletionVectors="true", headgate__dml="deletion-vectors"
        )
        water.lake.sql("INSERT INTO t SELECT id FROM range(100)")
        water.lake.sql(
            "BEGIN; DELETE FROM t WHERE id < 10; DELETE FROM t WHERE id >= 90;"
            " UPDATE t SET id = -1 WHERE id = 50; INSERT INTO t VALUES (1000);"
            " DELETE FROM t WHERE id = 1000; COMMIT"
        )
        expected = sorted({*range(10, 90), -1} - {50})
        assert [row[0] for row in sorted(water.rows("t"))] == expected
        assert water.session.table("t").version == 2
        water.session.table("t").publish()

    def test_a_read_that_fed_a_write_is_checked(self, two: Water) -> None:
        with pytest.raises(ConflictError, match="R5"), two.lake.transaction() as txn:
            copy_and_be_overtaken(two)
        assert txn.state is State.REJECTED
        assert two.rows("t1") == []

    def test_what_a_script_only_shows_is_checked_by_serializable_alone(self, two: Water) -> None:
        for level, passes in (("WRITE SERIALIZABLE", True), ("SERIALIZABLE", False)):
            connection = two.lake.connection()
            connection.run(f"BEGIN ISOLATION LEVEL {level}")
            connection.run("SELECT * FROM t2")
            connection.run("INSERT INTO t1 VALUES (1)")
            two.other().sql("DELETE FROM t2 WHERE id = (SELECT min(id) FROM t2)")
            if passes:
                connection.run("COMMIT")
                continue
            with pytest.raises(ConflictError, match="R5"):
                connection.run("COMMIT")
            assert connection.transaction is None

    def test_a_function_is_run_again_after_a_conflict(self, two: Water) -> None:
        runs: list[TxnId] = []

        def move(txn: Transaction) -> int:
            runs.append(txn.id)
            two.lake.append("t1", two.lake.read("t2"))
            if len(runs) < 3:
                two.other().sql(f"UPDATE t2 SET id = id + 10 WHERE id % 10 = {len(runs)}")
            return len(runs)

        assert two.lake.transact(move, tries=3) == 3
        assert len(set(runs)) == 3
        assert two.rows("t1") == [(11,), (12,)]
        with pytest.raises(InvalidArgumentError, match="at least 1"):
            two.lake.transact(move, tries=0)

    def test_other_threads_and_ended_transactions(self, two: Water) -> None:
        lake = two.lake
        with lake.transaction() as txn, pytest.raises(InvalidArgumentError, match="already"):
            lake.transaction().__enter__()
        with pytest.raises(TransactionEndedError):
            lake.read("t1", txn=txn)
        other = two.session.transaction()
        lake.append("t1", [{"id": 3}], txn=other)
        assert two.rows("t1") == []
        other.commit()
        assert two.rows("t1") == [(3,)]


def copy_and_be_overtaken(two: Water) -> None:
    two.lake.append("t1", two.lake.read("t2"))
    two.other().sql("DELETE FROM t2")
