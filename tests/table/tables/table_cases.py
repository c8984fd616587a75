"""Cases about types, partitions and table features, and tables with a long history."""

from spark_table import (
    DELTA,
    Table,
    case,
    commit_timestamps,
    keep_old_schema,
    keep_row_ids,
    move_in,
    sibling,
)

# Types


@case(
    "Every change type widening allows, at the top and in struct, array and map, rows before and"
    " after each.",
    notes={"each_version_has_its_own_schema": True},
    older=(1,),
)
def widening(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, grows TINYINT, f FLOAT, d DATE, dec DECIMAL(5,2),"
        " to_double INT, to_decimal INT, long_to_decimal BIGINT,"
        " s STRUCT<v: SMALLINT, w: INT>, a ARRAY<INT>, m MAP<TINYINT, FLOAT>) USING delta"
        " TBLPROPERTIES (delta.enableTypeWidening = true, delta.checkpointInterval = 100,"
        " 'delta.feature.timestampNtz' = 'supported')"
    )
    table.sql(
        "INSERT INTO {t} VALUES (1, -128, 1.5, DATE'1969-12-31', 123.45, -2147483648, 2147483647,"
        " 9223372036854775807, struct(-32768, 7), array(1, NULL, -1),"
        " map(1Y, FLOAT(0.1), -1Y, NULL)),"
        " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )

    def row(number: int) -> None:
        names = "(id, grows, f, d, dec, to_double, to_decimal, long_to_decimal, s, a, m)"
        table.sql(
            f"INSERT INTO {{t}} {names} SELECT {number}, {number}, 2.5, DATE'2024-02-29', 999.99,"
            f" {number}, {number}, {number}, named_struct('v', {number}, 'w', {number}),"
            f" array({number}), map({number}, 1.25)"
        )

    def change(column: str, to: str) -> None:
        table.sql(f"ALTER TABLE {{t}} ALTER COLUMN {column} TYPE {to}")

    change("grows", "SMALLINT")
    row(3)
    change("grows", "INT")
    change("f", "DOUBLE")
    row(4)
    change("grows", "BIGINT")
    change("d", "TIMESTAMP_NTZ")
    change("dec", "DECIMAL(7,3)")
    row(5)
    change("dec", "DECIMAL(20,10)")
    change("to_double", "DOUBLE")
    change("to_decimal", "DECIMAL(11,1)")
    change("long_to_decimal", "DECIMAL(22,2)")
    change("s.v", "BIGINT")
    change("s.w", "DOUBLE")
    change("a.element", "BIGINT")
    change("m.key", "INT")
    change("m.value", "DOUBLE")
    row(6)
    table.checkpoint()
    table.sql(
        "INSERT INTO {t} VALUES (7, 9223372036854775807, 1e300, TIMESTAMP_NTZ'2024-01-01 12:34:56',"
        " 1234567890.0123456789BD, 0.5, 1234567890.1, 12345678901234567890.12,"
        " struct(9223372036854775807, 0.25), array(9223372036854775807),"
        " map(2147483647, 1e300))"
    )


@case("Every primitive type at its edges, and nulls at each level of nested ones.", older=(1,))
def types(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, t_boolean BOOLEAN, t_byte TINYINT, t_short SMALLINT, t_int INT,"
        " t_long BIGINT, t_float FLOAT, t_double DOUBLE, t_dec5 DECIMAL(5,2),"
        " t_dec18 DECIMAL(18,4), t_dec38 DECIMAL(38,10), t_string STRING, t_binary BINARY,"
        " t_date DATE, t_timestamp TIMESTAMP, t_ntz TIMESTAMP_NTZ,"
        " n_struct STRUCT<a: INT, b: STRUCT<c: STRING, d: ARRAY<INT>>>,"
        " n_array ARRAY<ARRAY<STRUCT<e: DECIMAL(5,2)>>>,"
        " n_map MAP<STRING, MAP<INT, ARRAY<TIMESTAMP>>>) USING delta"
    )
    table.sql(
        "INSERT INTO {t} VALUES"
        " (1, true, -128, -32768, -2147483648, -9223372036854775808, FLOAT('NaN'), DOUBLE('NaN'),"
        "  -999.99, -12345678901234.5678BD, -1234567890123456789012345678.0123456789BD, '',"
        "  X'', DATE'0001-01-01', TIMESTAMP'1900-01-01 00:00:00.000001Z',"
        "  TIMESTAMP_NTZ'0001-01-01 00:00:00',"
        "  struct(1, struct('c', array(1, NULL))), array(array(struct(1.25)), array()),"
        "  map('k', map(1, array(TIMESTAMP'2024-01-01 00:00:00Z', NULL)))),"
        " (2, false, 127, 32767, 2147483647, 9223372036854775807, FLOAT('Infinity'),"
        "  DOUBLE('-Infinity'), 999.99, 12345678901234.5678BD,"
        "  1234567890123456789012345678.0123456789BD,"
        "  'naïve 日本語 😀 \\u0000 \\n \\\\ \"', X'00FF10', DATE'9999-12-31',"
        "  TIMESTAMP'9999-12-31 23:59:59.999999Z', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999',"
        "  struct(NULL, struct(NULL, NULL)), array(NULL, array(NULL, struct(NULL))),"
        "  map('k', NULL, '', map())),"
        " (3, NULL, 0, 0, 0, 0, FLOAT('-0.0'), DOUBLE('-0.0'), 0, 0, 0, ' ', X'20',"
        "  DATE'1970-01-01', TIMESTAMP'1970-01-01 00:00:00Z', TIMESTAMP_NTZ'1970-01-01 00:00:00',"
        "  struct(3, NULL), array(), map()),"
        " (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,"
        "  NULL, NULL, NULL, NULL),"
        " (5, true, 1, 1, 1, 1, FLOAT('1.17549435E-38'), DOUBLE('4.9E-324'), 0.01, 0.0001,"
        "  0.0000000001BD, 'e\\u0301', X'DEADBEEF', DATE'1582-10-15',"
        "  TIMESTAMP'1582-10-15 00:00:00Z', TIMESTAMP_NTZ'1969-12-31 23:59:59.999999',"
        "  struct(5, struct('', array())), array(array(struct(NULL), NULL)),"
        "  map('k', map(1, NULL, 2, array())))"
    )
    table.checkpoint()
    table.sql("INSERT INTO {t} (id, t_string) VALUES (6, 'only a string')")


@case(
    "The same columns in every Parquet form Spark writes: timestamps as INT96, micros and millis,"
    " the legacy layout of lists, maps and decimals, pages of version 2, four codecs.",
)
def parquet_forms(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, at TIMESTAMP, dec DECIMAL(9,2), dec18 DECIMAL(18,2),"
        " dec30 DECIMAL(30,2), list ARRAY<INT>, lists ARRAY<STRUCT<x: INT>>,"
        " dict MAP<STRING, INT>, word STRING) USING delta"
    )
    parquet = "spark.sql.parquet."
    forms = [
        {parquet + "outputTimestampType": "INT96", parquet + "compression.codec": "snappy"},
        {
            parquet + "outputTimestampType": "TIMESTAMP_MICROS",
            parquet + "compression.codec": "zstd",
        },
        {
            parquet + "outputTimestampType": "TIMESTAMP_MILLIS",
            parquet + "compression.codec": "gzip",
        },
        {parquet + "writeLegacyFormat": "true", parquet + "compression.codec": "uncompressed"},
        {"parquet.writer.version": "v2"},
    ]
    statement = (
        "SELECT INT({n}) id, TIMESTAMP'2024-02-29 12:34:56.789Z' at, {n}.25BD dec, -{n}.75BD dec18,"
        " 1e20BD + {n} dec30, array({n}, NULL) list, array(struct({n} AS x), NULL) lists,"
        " map('k', {n}, 'l', NULL) dict, concat('word ', {n}) word"
        " UNION ALL SELECT {n} + 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
    )
    for number, form in enumerate(forms):
        with table.conf(form):
            write_form(table, statement.replace("{n}", str(number * 10)))


def write_form(table: Table, query: str) -> None:
    table.append(
        "SELECT id, at, CAST(dec AS DECIMAL(9,2)) dec, CAST(dec18 AS DECIMAL(18,2)) dec18,"
        f" CAST(dec30 AS DECIMAL(30,2)) dec30, list, lists, dict, word FROM ({query})"
    )


@case(
    "Variant values of each kind, at the top and in a struct, not shredded.",
    select=("id", "to_json(v) v", "if(s IS NULL, NULL, struct(s.n n, to_json(s.v) v)) s"),
    notes={"variant_as_json": ["v", "s.v"]},
    older=(1,),
)
def variant(table: Table) -> None:
    table.sql("CREATE TABLE {t} (id INT, v VARIANT, s STRUCT<n: INT, v: VARIANT>) USING delta")
    values = [
        "parse_json('null')",
        "parse_json('true')",
        "parse_json('12')",
        "parse_json('1234567890123')",
        "parse_json('1.25')",
        "parse_json('1e100')",
        "parse_json('\"text\"')",
        "parse_json('[1, \"a\", null, [], {}]')",
        'parse_json(\'{"b": {"c": [true]}, "a": 1, "é": "日本"}\')',
        "CAST(DATE'2024-02-29' AS VARIANT)",
        "CAST(TIMESTAMP'2024-02-29 12:34:56Z' AS VARIANT)",
        "CAST(TIMESTAMP_NTZ'2024-02-29 12:34:56' AS VARIANT)",
        "CAST(X'00FF' AS VARIANT)",
        "CAST(FLOAT(0.5) AS VARIANT)",
        f"parse_json('\"{'long' * 20}\"')",
        "NULL",
    ]
    rows = ", ".join(f"({n}, {v}, struct({n}, {v}))" for n, v in enumerate(values))
    table.sql(f"INSERT INTO {{t}} SELECT col1, col2, col3 FROM VALUES {rows}")
    table.checkpoint()
    table.sql("INSERT INTO {t} VALUES (100, parse_json('{}'), NULL)")


@case("CHAR and VARCHAR columns: strings in the schema, their lengths in its metadata.")
def char_varchar(table: Table) -> None:
    table.sql("CREATE TABLE {t} (id INT, c CHAR(5), v VARCHAR(5), l ARRAY<VARCHAR(3)>) USING delta")
    table.sql("INSERT INTO {t} VALUES (1, 'ab', 'ab', array('a', NULL)), (2, NULL, '', NULL)")


@case("A column of type void, in which nothing was ever written, at the top and in a struct.")
def void(table: Table) -> None:
    table.sql("CREATE TABLE {t} (id INT, nothing VOID, s STRUCT<x: INT, n: VOID>) USING delta")
    table.sql("INSERT INTO {t} (id, s) VALUES (1, named_struct('x', 1, 'n', NULL))")
    table.sql("INSERT INTO {t} (id) VALUES (2)")


@case(
    "Columns added at several levels, so that older files lack them; an order changed by FIRST and"
    " AFTER.",
    notes={"each_version_has_its_own_schema": True},
    older=(1, 3),
)
def schema_evolution(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, s STRUCT<a: INT>, l ARRAY<STRUCT<a: INT>>,"
        " m MAP<STRING, STRUCT<a: INT>>) USING delta"
    )
    table.sql(
        "INSERT INTO {t} VALUES (1, struct(1), array(struct(1), NULL), map('k', struct(1))),"
        " (2, NULL, NULL, NULL), (3, struct(NULL), array(), map('k', NULL))"
    )
    table.sql(
        "ALTER TABLE {t} ADD COLUMNS (top STRING FIRST, s.b STRUCT<c: INT, d: ARRAY<INT>>,"
        " l.element.b DATE FIRST, m.value.b DECIMAL(5,2))"
    )
    table.sql(
        "INSERT INTO {t} VALUES ('four', 4, struct(4, struct(4, array(4))),"
        " array(struct(DATE'2024-02-29', 4)), map('k', struct(4, 4.25)))"
    )
    table.append(
        "SELECT INT(5) id, named_struct('a', 5, 'e', 'new') s, 'fresh' added",
        options={"mergeSchema": "true"},
    )


# Partitions

SPECIAL = [
    "plain",
    "two words",
    " edge",
    "50%",
    "%20",
    "a/b",
    "a:b",
    "a=b",
    "a?b#c",
    "[x]{y}(z)",
    "quote ' and \"",
    "back\\\\slash",
    "naïve 日本語 😀",
    "a+b&c",
    "tab\\tline\\n",
    "a..b",
    "*^~`",
    "",
    "__HIVE_DEFAULT_PARTITION__ not",
]


@case(
    "Strings with every awkward character as partition values. Paths are escaped twice: once as"
    " folder names, once as URLs in the log.",
    older=(1,),
    notes={"empty_string_is_null": True},
)
def partitions_special(table: Table) -> None:
    table.sql("CREATE TABLE {t} (id INT, part STRING) USING delta PARTITIONED BY (part)")
    rows = [f"({n}, '{quoted(value)}')" for n, value in enumerate(SPECIAL)]
    table.sql(f"INSERT INTO {{t}} VALUES {', '.join(rows)}, (99, NULL)")
    table.checkpoint()
    table.sql("INSERT INTO {t} VALUES (100, 'a=b/c d%')")
    table.sql("DELETE FROM {t} WHERE part = 'plain'")


def write_partitions(table: Table, columns: str, rows: list[str]) -> None:
    """Write each row in a commit of its own, then the first again in the older form of times."""
    names = ", ".join(part.split()[0] for part in columns.split(", "))
    table.sql(f"CREATE TABLE {{t}} (id INT, {columns}) USING delta PARTITIONED BY ({names})")
    for number, row in enumerate(rows):
        table.sql(f"INSERT INTO {{t}} VALUES ({number}, {row})")
    with table.conf({DELTA + "write.utcTimestampPartitionValues": "false"}):
        table.sql(f"INSERT INTO {{t}} VALUES (10, {rows[0]})")
    table.checkpoint()
    table.sql(f"INSERT INTO {{t}} VALUES (11, {rows[1]})")


@case(
    "Partition columns of text, time, boolean and binary, null and edge values, timestamps in both"
    " forms Delta writes (UTC ISO 8601, and the older one of the session, here UTC). Spark puts"
    " binary in the log as text, so bytes that are no UTF-8 are lost as it writes.",
    older=(1,),
)
def partitions_types(table: Table) -> None:
    write_partitions(
        table,
        "p_string STRING, p_date DATE, p_time TIMESTAMP, p_ntz TIMESTAMP_NTZ, p_bool BOOLEAN,"
        " p_bin BINARY",
        [
            "'a', DATE'2024-02-29', TIMESTAMP'2024-02-29 12:34:56.789012Z',"
            " TIMESTAMP_NTZ'2024-02-29 12:34:56.789012', true, X'610162'",
            "'b', DATE'0001-01-01', TIMESTAMP'1969-12-31 23:59:59Z',"
            " TIMESTAMP_NTZ'1970-01-01 00:00:00', false, X'FFC3A9'",
            "NULL, NULL, NULL, NULL, NULL, NULL",
            "'', DATE'9999-12-31', TIMESTAMP'2024-01-01 00:00:00Z',"
            " TIMESTAMP_NTZ'2024-01-01 00:00:00.5', true, X''",
        ],
    )


@case("Partition columns of every number type, null and edge values.", older=(1,))
def partitions_numbers(table: Table) -> None:
    write_partitions(
        table,
        "p_byte TINYINT, p_short SMALLINT, p_int INT, p_long BIGINT, p_dec DECIMAL(10,4),"
        " p_float FLOAT, p_double DOUBLE",
        [
            "-128, -32768, -2147483648, -9223372036854775808, -1.25, 0.1, 1e-300",
            "127, 32767, 2147483647, 9223372036854775807, 123456.7891, FLOAT('NaN'),"
            " DOUBLE('-Infinity')",
            "NULL, NULL, NULL, NULL, NULL, NULL, NULL",
            "0, 0, 0, 0, 0, FLOAT('-0.0'), DOUBLE('-0.0')",
        ],
    )


@case(
    "Column names with spaces and other characters Parquet refuses, partition column included.",
    sort_by=("the id",),
    older=(1,),
)
def partitions_special_names(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (`the id` INT, `a,b;c{d}(e)=f` STRING, `per cent % / day` STRING,"
        " `日 本` INT) USING delta PARTITIONED BY (`per cent % / day`, `日 本`)"
        " TBLPROPERTIES (delta.columnMapping.mode = 'name')"
    )
    table.sql("INSERT INTO {t} VALUES (1, 'x', 'a b', 1), (2, 'y', 'c/d%', NULL), (3, NULL, '', 2)")
    table.checkpoint()
    table.sql("INSERT INTO {t} VALUES (4, 'z', 'a b', 1)")


# Features writers keep


@case("Row tracking from the start: insert, update, delete with vectors, optimize.", older=(2, 3))
def row_tracking(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, word STRING) USING delta TBLPROPERTIES"
        " (delta.enableRowTracking = true, delta.enableDeletionVectors = true)"
    )
    table.append("SELECT INT(id), concat('w', id) word FROM range(10)", files=2)
    table.append("SELECT INT(id), concat('w', id) word FROM range(10, 15)")
    table.sql("UPDATE {t} SET word = 'changed' WHERE id IN (1, 12)")
    table.sql("DELETE FROM {t} WHERE id IN (2, 13)")
    keep_row_ids(table)
    table.sql("OPTIMIZE {t}")
    table.append("SELECT INT(id), concat('w', id) word FROM range(15, 17)")
    keep_row_ids(table)


@case("Row tracking put on later: existing files are given ids by a backfill.", older=(2,))
def row_tracking_later(table: Table) -> None:
    table.sql("CREATE TABLE {t} (id INT, word STRING) USING delta")
    table.append("SELECT INT(id), concat('w', id) word FROM range(5)")
    table.append("SELECT INT(id), concat('w', id) word FROM range(5, 8)")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableRowTracking = true)")
    table.sql("UPDATE {t} SET word = 'changed' WHERE id = 6")
    keep_row_ids(table)


@case("Generated, identity and default columns, NOT NULL and a CHECK constraint.", older=(1,))
def generated_identity(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY 5),"
        " own BIGINT GENERATED BY DEFAULT AS IDENTITY, at TIMESTAMP NOT NULL,"
        " day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), word STRING DEFAULT 'none') USING delta"
        " PARTITIONED BY (day) TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    table.sql("INSERT INTO {t} (at, word) VALUES (TIMESTAMP'2024-02-29 12:00:00Z', 'first')")
    table.sql("ALTER TABLE {t} ADD CONSTRAINT not_early CHECK (at > '2000-01-01')")
    table.sql("INSERT INTO {t} (own, at) VALUES (1000, TIMESTAMP'2024-03-01 12:00:00Z')")
    table.sql("INSERT INTO {t} (at, word) VALUES (TIMESTAMP'2024-03-01 13:00:00Z', DEFAULT)")


@case("Clustered by two columns, with an OPTIMIZE.", older=(2,))
def clustered(table: Table) -> None:
    table.sql("CREATE TABLE {t} (id INT, a STRING, b DATE) USING delta CLUSTER BY (a, b)")
    for first in (0, 10):
        table.append(
            "SELECT INT(id), concat('a', id % 3) a, DATE_ADD(DATE'2024-01-01', INT(id)) b"
            f" FROM range({first}, {first + 10})"
        )
    table.sql("OPTIMIZE {t}")
    table.sql("ALTER TABLE {t} CLUSTER BY (b)")


@case("In-commit timestamps from the start.", older=(1,))
def ict(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT) USING delta TBLPROPERTIES (delta.enableInCommitTimestamps=true)"
    )
    table.sql("INSERT INTO {t} VALUES (1)")
    table.checkpoint()
    table.sql("INSERT INTO {t} VALUES (2)")
    table.notes["in_commit_timestamps"] = commit_timestamps(table, since=0)


@case(
    "In-commit timestamps put on later, so that the enablement version and time are set.",
    older=(1,),
)
def ict_later(table: Table) -> None:
    table.sql("CREATE TABLE {t} (id INT) USING delta")
    table.sql("INSERT INTO {t} VALUES (1)")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableInCommitTimestamps = true)")
    table.sql("INSERT INTO {t} VALUES (2)")
    table.notes["in_commit_timestamps"] = commit_timestamps(table, since=2)


@case(
    "Change data feed through insert, update, delete and merge, with a partition column.",
    older=(1, 2, 3),
    notes={
        "changes": "expected/changes.parquet: Spark's change feed from version 0, without the"
        " commit timestamp, which is the file's time here"
    },
)
def cdf(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, word STRING, part INT) USING delta PARTITIONED BY (part)"
        " TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    table.append("SELECT INT(id), concat('w', id) word, INT(id % 2) part FROM range(10)")
    table.sql("UPDATE {t} SET word = 'changed' WHERE id IN (1, 2)")
    table.sql("DELETE FROM {t} WHERE id = 3")
    table.sql("DELETE FROM {t} WHERE part = 0 AND id >= 8")
    table.sql(
        "MERGE INTO {t} t USING (SELECT explode(array(4, 5, 20)) id) s ON t.id = s.id"
        " WHEN MATCHED AND t.id = 4 THEN DELETE WHEN MATCHED THEN UPDATE SET word = 'merged'"
        " WHEN NOT MATCHED THEN INSERT (id, word, part) VALUES (s.id, 'new', 0)"
    )
    reader = table.spark.read.format("delta").option("readChangeFeed", "true")
    changes = reader.option("startingVersion", 0).load(str(table.path)).drop("_commit_timestamp")
    changes = changes.orderBy("_commit_version", "id", "_change_type")
    table.extra["changes"] = changes.toArrow()


@case("Application transactions of two writers, and user metadata in commitInfo.", older=(1,))
def txn_domain(table: Table) -> None:
    table.sql("CREATE TABLE {t} (id INT) USING delta")
    steps = [("loader", 1), ("loader", 2), ("other", 7), ("loader", 2), ("loader", 3)]
    for number, (app, version) in enumerate(steps):
        table.append(
            f"SELECT INT({number}) id",
            options={"txnAppId": app, "txnVersion": str(version), "userMetadata": f"run {number}"},
        )
        if number == 1:
            table.checkpoint()
    table.notes["transactions"] = {"loader": 3, "other": 7}


@case(
    "Many features at once: column mapping, deletion vectors, row tracking, in-commit timestamps,"
    " change feed, type widening, clustering, a V2 checkpoint.",
    sort_by=("number",),
    older=(4,),
)
def many_features(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, word STRING, place STRUCT<x: INT>) USING delta CLUSTER BY (word)"
        " TBLPROPERTIES (delta.columnMapping.mode = 'name', delta.enableDeletionVectors = true,"
        " delta.enableRowTracking = true, delta.enableInCommitTimestamps = true,"
        " delta.enableChangeDataFeed = true, delta.enableTypeWidening = true,"
        " delta.checkpointPolicy = 'v2')"
    )
    table.append("SELECT INT(id), concat('w', id) word, struct(INT(id) x) place FROM range(10)")
    table.sql("ALTER TABLE {t} RENAME COLUMN id TO number")
    table.sql("ALTER TABLE {t} ALTER COLUMN place.x TYPE BIGINT")
    table.sql("DELETE FROM {t} WHERE number IN (1, 5)")
    table.checkpoint()
    table.sql(
        "UPDATE {t} SET word = 'changed', place = named_struct('x', 9876543210) WHERE number = 7"
    )
    table.append("SELECT INT(id) number, concat('w', id) word FROM range(20, 22)")
    table.notes["in_commit_timestamps"] = commit_timestamps(table, since=0)
    keep_row_ids(table, key="number")


# Whole tables


@case(
    "Files at absolute places, beside files of the table's own; one of the absolute ones removed.",
    produced="delta-spark SHALLOW CLONE, then writes to the clone; the script copies the source's"
    " files to table/source and puts the placeholder in the log",
    older=(0, 1),
)
def absolute_paths(table: Table) -> None:
    source = sibling(table, "source")
    source.sql("CREATE TABLE {t} (id INT, part STRING) USING delta PARTITIONED BY (part)")
    source.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b c'), (3, '50%/x'), (4, NULL)")
    table.sql(f"CREATE TABLE {{t}} SHALLOW CLONE delta.`{source.path}`")
    table.sql("INSERT INTO {t} VALUES (5, 'b c')")
    table.sql("DELETE FROM {t} WHERE id = 1")
    move_in(table, source)


@case(
    "A table replaced again and again: replaceWhere, overwrite with another schema and other"
    " partitions, REPLACE, CREATE OR REPLACE.",
    notes={"each_version_has_its_own_schema": True},
    sort_by=("key",),
)
def replaced(table: Table) -> None:
    table.append("SELECT INT(id) id, INT(id % 2) part FROM range(6)", by=("part",))
    table.append("SELECT 10 id, 1 part", mode="overwrite", options={"replaceWhere": "part = 1"})
    old = [keep_old_schema(table, version=v, sort_by="id") for v in (0, 1)]
    table.append(
        "SELECT concat('i', id) id, DATE'2024-02-29' day FROM range(3)",
        mode="overwrite",
        by=("day",),
        options={"overwriteSchema": "true"},
    )
    old.append(keep_old_schema(table, version=2, sort_by="id"))
    table.sql("REPLACE TABLE {t} (key STRING, word INT) USING delta")
    table.sql("CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1 key, 'one' word")
    table.sql("INSERT INTO {t} VALUES (2, 'two')")
    table.notes["versions_of_old_schema"] = [version for kept in old for version in kept]


@case(
    "Restored to an older version, then written again; files come back after their removal.",
    older=(1, 2, 3),
)
def restored(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, word STRING) USING delta"
        " TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    table.append("SELECT INT(id), concat('w', id) word FROM range(10)", files=2)
    table.sql("DELETE FROM {t} WHERE id IN (1, 6)")
    table.sql("DELETE FROM {t} WHERE id >= 0")
    table.sql("RESTORE TABLE {t} TO VERSION AS OF 2")
    table.sql("RESTORE TABLE {t} TO VERSION AS OF 1")
    table.sql("INSERT INTO {t} VALUES (100, 'after')")


@case(
    "Statistics a reader may not trust blindly: long strings cut short, NaN, all nulls, columns"
    " left out, a file with none.",
    older=(1,),
)
def statistics(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, long STRING, f DOUBLE, nothing INT, at TIMESTAMP, out INT)"
        " USING delta TBLPROPERTIES"
        " (delta.dataSkippingStatsColumns = 'id,long,f,nothing,at')"
    )
    table.sql(
        "INSERT INTO {t} VALUES"
        " (1, repeat('a', 40), DOUBLE('NaN'), NULL, TIMESTAMP'2024-01-01 00:00:00.000999Z', 1),"
        " (2, repeat('😀', 40), 1.0, NULL, TIMESTAMP'2024-01-01 00:00:00.001999Z', 2)"
    )
    table.sql(
        "INSERT INTO {t} VALUES (3, concat(repeat('z', 31), '\\uffff\\uffff'), NULL, NULL, NULL, 3)"
    )
    with table.conf({DELTA + "stats.collect": "false"}):
        table.sql("INSERT INTO {t} VALUES (4, 'none', -1.0, 4, TIMESTAMP'2024-01-02 00:00:00Z', 4)")


def quoted(value: str) -> str:
    return value.replace("'", "\\'")
