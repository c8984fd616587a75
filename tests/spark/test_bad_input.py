"""Bad input: a clear error, nothing committed, and no file left behind."""

import pytest

from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    SyntaxRefusedError,
)
from tests.spark.conftest import Water, listed, local

MATCHED = "MERGE INTO t USING (SELECT 1L id, 300 n, 'x' v) s ON t.id = s.id WHEN MATCHED THEN"
NEW = "MERGE INTO t USING (SELECT 70L id, 300 n, 'x' v) s ON t.id = s.id WHEN NOT MATCHED THEN"
TWICE = "MERGE INTO t USING (SELECT 1L id FROM range(2)) s ON t.id = s.id WHEN MATCHED THEN"

BAD: dict[str, tuple[type[HeadgateError], str]] = {
    # A schema that does not fit.
    "INSERT INTO t VALUES (1, 2)": (SyntaxRefusedError, "3 values are wanted, and 2"),
    "INSERT INTO t SELECT 1": (SyntaxRefusedError, "takes 3 columns"),
    "INSERT INTO t (id) VALUES ('x')": (InvalidDataError, "'id' is long, and string"),
    "UPDATE t SET n = 'x'": (InvalidDataError, "'n' is byte, and string"),
    f"{MATCHED} UPDATE SET n = s.v": (InvalidDataError, "'n' is byte, and string"),
    f"{NEW} INSERT (id, n) VALUES (s.id, s.v)": (InvalidDataError, "'n' is byte, and string"),
    # Columns that are not there.
    "INSERT INTO t (id, more) VALUES (1, 2)": (InvalidArgumentError, "no column 'more'"),
    "INSERT INTO t BY NAME SELECT 1 id, 2 more": (InvalidDataError, "no column 'more'"),
    "UPDATE t SET more = 1": (InvalidArgumentError, "no column 'more'"),
    "UPDATE t SET n = more": (SyntaxRefusedError, "more"),
    "DELETE FROM t WHERE more = 1": (SyntaxRefusedError, "more"),
    f"{MATCHED} UPDATE SET more = 1": (InvalidArgumentError, "no column 'more'"),
    f"{MATCHED} UPDATE SET n = s.more": (SyntaxRefusedError, "more"),
    # Numbers that do not fit.
    "INSERT INTO t (id, n) VALUES (1, 1), (2, 300)": (InvalidDataError, "does not fit.*300"),
    "INSERT INTO t (id, n) SELECT id, int(id) FROM range(300)": (InvalidDataError, "does not fit"),
    "INSERT OVERWRITE t SELECT 1e30D, 1, 'x'": (InvalidDataError, "does not fit"),
    "UPDATE t SET n = n + 300 WHERE id = 1": (InvalidDataError, "does not fit"),
    f"{MATCHED} UPDATE SET n = s.n": (InvalidDataError, "does not fit.*300"),
    f"{NEW} INSERT (id, n) VALUES (s.id, s.n)": (InvalidDataError, "does not fit.*300"),
    # Rows that break a rule; the error shows the row.
    "INSERT INTO t VALUES (5, 1, 'y'), (666, 1, 'y')": (InvalidDataError, 'small.*"id":666'),
    "UPDATE t SET id = id + 665 WHERE id = 1": (InvalidDataError, 'small.*"id":666'),
    f"{MATCHED} UPDATE SET id = 666": (InvalidDataError, 'small.*"id":666'),
    # Two masters.
    f"{TWICE} UPDATE SET v = 'z'": (InvalidDataError, "Several rows of the source"),
    # No SQL, and no table.
    "DELETE t WHERE": (SyntaxRefusedError, "at line 1"),
    "INSERT INTO t VALUES (1, 2": (SyntaxRefusedError, "at line 1"),
    "UPDATE t SET n = = 1": (SyntaxRefusedError, "at line 1"),
    "MERGE INTO t USING t s ON true": (SyntaxRefusedError, "at line 1"),
    "INSERT INTO t SELECT * FROM absent": (SyntaxRefusedError, "absent"),
    "DELETE FROM t WHERE id IN (SELECT id FROM absent)": (SyntaxRefusedError, "absent"),
    "MERGE INTO t USING absent s ON t.id = s.id WHEN MATCHED THEN DELETE": (
        SyntaxRefusedError,
        "absent",
    ),
    "INSERT INTO absent SELECT * FROM t": (NotFoundError, "absent"),
    "CREATE TABLE u AS SELECT tinyint(n * 100) x FROM t": (InvalidDataError, "does not fit"),
    "CREATE OR REPLACE TABLE t AS SELECT tinyint(n * 100) x FROM t": (InvalidDataError, "does not"),
}


@pytest.mark.parametrize("mode", ["copy-on-write", "deletion-vectors"])
def test_what_cannot_be_is_told_and_nothing_happens(water: Water, mode: str) -> None:
    table = water.make(
        schema="id long, n byte, v string",
        delta__enableDeletionVectors="true",
        headgate__dml=mode,
    )
    table.add_constraint("small", "id < 666")
    water.lake.append("t", water.frame("SELECT id, tinyint(id) n, 'a' v FROM range(0, 9, 1, 1)"))
    kept, version, found = listed(table), water.session.table("t").version, water.rows()
    beside = sorted(local(table).parent.iterdir())
    for text, (error, says) in BAD.items():
        with pytest.raises(error, match=says) as raised:
            water.lake.sql(text)
        assert type(raised.value) is error, text
        assert listed(table) == kept, text
        assert water.session.table("t").version == version, text
    assert water.rows() == found
    # Of a table that was not made nothing lies anywhere but its own folder, and no file in that.
    new = set(local(table).parent.iterdir()) - set(beside)
    assert [path for folder in new for path in folder.rglob("*.parquet")] == []
    assert [name for (_, name, *_) in water.sql("SHOW TABLES")] == ["t"]
