"""Cases about the log: deletion vectors, column mapping, checkpoints and other log files."""

from typing import Any

from spark_table import (
    DELTA,
    Table,
    case,
    compact_log,
    keep_old_schema,
    move_in,
    read_vector,
    sibling,
    vectors_in,
)

# Deletion vectors


def write_deletions(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, word STRING) USING delta"
        " TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    for first in (0, 20, 40):
        table.append(f"SELECT INT(id), concat('w', id) word FROM range({first}, {first + 20})")
    table.sql("DELETE FROM {t} WHERE id % 7 = 0")
    table.sql("DELETE FROM {t} WHERE id IN (3, 23)")
    table.sql("DELETE FROM {t} WHERE id >= 40 AND id < 60")


@case(
    "Deletion vectors in files beside the data; a vector replaced by a later one; a file deleted"
    " whole; an update through vectors; a checkpoint; a delete after it.",
    older=(3, 4, 5, 6, 8),
)
def dv_relative(table: Table) -> None:
    write_deletions(table)
    table.append("SELECT INT(id), concat('w', id) word FROM range(60, 70)")
    table.sql("UPDATE {t} SET word = 'changed' WHERE id IN (1, 2, 61)")
    table.checkpoint()
    table.sql("DELETE FROM {t} WHERE id IN (4, 24, 62)")


@case(
    "Deletion vectors inside the log (storage type i), among them one that replaces another.",
    produced="written by delta-spark with vectors in files; the script then moves each vector into"
    " the log with Delta's own DeletionVectorDescriptor.inlineInLog and removes the files; rows"
    " are what Spark read after that",
    older=(4, 5),
)
def dv_inline(table: Table) -> None:
    write_deletions(table)
    descriptor = table.delta.actions.DeletionVectorDescriptor

    def inline(action: dict[str, Any]) -> None:
        for vector in vectors_in(action):
            payload = read_vector(table, vector)
            made = descriptor.inlineInLog(payload, vector["cardinality"])
            del vector["offset"]
            vector.update(
                storageType=made.storageType(),
                pathOrInlineDv=made.pathOrInlineDv(),
                sizeInBytes=made.sizeInBytes(),
            )

    table.rewrite_log(inline)
    for file in table.path.glob("deletion_vector_*.bin"):
        file.unlink()
    table.forget()


@case(
    "Deletion vectors at absolute places (storage type p), beside relative ones made later for the"
    " same and for other files.",
    produced="delta-spark SHALLOW CLONE of a table with vectors, then writes to the clone; the"
    " script copies the source's files to table/source and puts the placeholder in the log",
    older=(0, 1),
)
def dv_absolute(table: Table) -> None:
    source = sibling(table, "source")
    write_deletions(source)
    table.sql(f"CREATE TABLE {{t}} SHALLOW CLONE delta.`{source.path}`")
    table.append("SELECT INT(id), concat('own', id) word FROM range(100, 110)")
    table.sql("DELETE FROM {t} WHERE id IN (5, 105)")
    move_in(table, source)


@case(
    "Deletion vectors whose bitmaps need every kind of container (run, bitmap, array) and several"
    " of them; rows repeat, so compare as a bag or in order.",
    sort_by=("block", "turn"),
    older=(1, 2),
)
def dv_containers(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (block INT, turn INT) USING delta"
        " TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    table.append("SELECT INT(id div 10000) block, INT(id % 5) turn FROM range(0, 150000, 1, 1)")
    table.sql("DELETE FROM {t} WHERE block < 3")
    table.sql("DELETE FROM {t} WHERE block BETWEEN 6 AND 12 AND turn = 2")
    table.sql("DELETE FROM {t} WHERE block = 14 AND turn = 4")


@case(
    "Random prefixes before data files, and so before deletion vectors.",
    older=(1,),
)
def dv_prefix(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, word STRING) USING delta TBLPROPERTIES"
        " (delta.enableDeletionVectors = true, delta.randomizeFilePrefixes = true,"
        " delta.randomPrefixLength = 3)"
    )
    table.append("SELECT INT(id), concat('w', id) word FROM range(20)", files=2)
    table.sql("DELETE FROM {t} WHERE id IN (1, 5, 11)")


@case(
    "Deletion vectors in a V2 checkpoint with several sidecars, and one after it.",
    older=(4, 5),
)
def dv_in_checkpoint_v2(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, word STRING) USING delta TBLPROPERTIES"
        " (delta.enableDeletionVectors = true, delta.checkpointPolicy = 'v2')"
    )
    for first in (0, 20, 40):
        table.append(f"SELECT INT(id), concat('w', id) word FROM range({first}, {first + 20})")
    table.sql("DELETE FROM {t} WHERE id % 7 = 0")
    table.sql("DELETE FROM {t} WHERE id IN (3, 23)")
    with table.conf({DELTA + "checkpoint.partSize": "2"}):
        table.checkpoint()
    table.sql("DELETE FROM {t} WHERE id IN (4, 44)")


# Column mapping

NESTED = (
    "id INT, gone STRING, place STRUCT<x: INT, y: STRUCT<z: STRING, w: INT>>,"
    " list ARRAY<STRUCT<a: INT, b: STRING>>, dict MAP<STRING, STRUCT<k: INT, l: STRING>>,"
    " part STRING"
)


def write_mapping(table: Table, mode: str) -> None:
    table.sql(
        f"CREATE TABLE {{t}} ({NESTED}) USING delta PARTITIONED BY (part)"
        f" TBLPROPERTIES (delta.columnMapping.mode = '{mode}')"
    )
    table.sql(
        "INSERT INTO {t} VALUES"
        " (1, 'g', struct(1, struct('z1', 10)), array(struct(1, 'b1'), struct(2, 'b2')),"
        "  map('m', struct(1, 'l1')), 'p1'),"
        " (2, NULL, struct(2, NULL), array(NULL, struct(NULL, 'b3')), map('n', NULL), 'p2'),"
        " (3, 'h', NULL, NULL, NULL, NULL)"
    )
    table.sql("ALTER TABLE {t} RENAME COLUMN id TO number")
    table.sql("ALTER TABLE {t} RENAME COLUMN part TO section")
    table.sql("ALTER TABLE {t} RENAME COLUMN place.y.z TO zed")
    table.sql("ALTER TABLE {t} RENAME COLUMN list.element.a TO `an a`")
    table.sql("ALTER TABLE {t} RENAME COLUMN dict.value.k TO `k,;={}()`")
    table.sql("ALTER TABLE {t} DROP COLUMN gone")
    table.sql("ALTER TABLE {t} DROP COLUMN place.y.w")
    table.sql("ALTER TABLE {t} ADD COLUMNS (gone INT, place.fresh DATE)")
    table.sql(
        "INSERT INTO {t} (number, place, list, dict, section, gone) VALUES"
        " (4, struct(4, struct('z4'), DATE'2024-02-29'), array(struct(4, 'b4')),"
        "  map('o', struct(4, 'l4'), 'p', struct(5, 'l5')), 'p1', 44),"
        " (5, struct(5, NULL, NULL), array(), map(), 'p3', NULL)"
    )


MAPPED = (
    "Column mapping by {}: nested columns and the partition column renamed, columns dropped and one"
    " of a dropped name added again, rows before and after."
)


@case(MAPPED.format("name"), sort_by=("number",))
def mapping_name(table: Table) -> None:
    write_mapping(table, "name")
    table.notes["versions_of_old_schema"] = keep_old_schema(table, version=1, sort_by="id")


@case(MAPPED.format("id"), sort_by=("number",))
def mapping_id(table: Table) -> None:
    write_mapping(table, "id")
    table.notes["versions_of_old_schema"] = keep_old_schema(table, version=1, sort_by="id")


@case(
    "Column mapping by name put on a plain table, so that old files carry logical names and no"
    " field ids; then a rename.",
    sort_by=("number",),
)
def mapping_upgraded(table: Table) -> None:
    table.sql("CREATE TABLE {t} (id INT, place STRUCT<x: INT, y: STRING>) USING delta")
    table.sql("INSERT INTO {t} VALUES (1, struct(1, 'a')), (2, NULL)")
    table.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES (delta.columnMapping.mode = 'name',"
        " delta.minReaderVersion = 2, delta.minWriterVersion = 5)"
    )
    table.sql("ALTER TABLE {t} RENAME COLUMN id TO number")
    table.sql("ALTER TABLE {t} RENAME COLUMN place.y TO why")
    table.sql("INSERT INTO {t} VALUES (3, struct(3, 'c'))")
    table.notes["versions_of_old_schema"] = keep_old_schema(table, version=1, sort_by="id")


# Checkpoints and the shape of the log


def write_some_commits(table: Table, properties: str = "") -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, word STRING, part INT) USING delta PARTITIONED BY (part)"
        f" TBLPROPERTIES (delta.appendOnly = false {properties})"
    )
    for part in (0, 1, 2):
        table.append(
            f"SELECT INT({part} * 10 + id) id, concat('w', id) word, {part} part FROM range(3)"
        )
    table.sql("DELETE FROM {t} WHERE id = 11")
    table.sql("DELETE FROM {t} WHERE part = 2")


def write_after(table: Table) -> None:
    table.append("SELECT 100 id, 'after' word, 1 part")
    table.sql("UPDATE {t} SET word = 'later' WHERE id = 0")


@case("V2 checkpoint, JSON at the top, two or more sidecars, commits after it.", older=(4, 5))
def v2_json(table: Table) -> None:
    write_some_commits(table, ", delta.checkpointPolicy = 'v2'")
    settings = {"checkpointV2.topLevelFileFormat": "json", "checkpoint.partSize": "2"}
    with table.conf({DELTA + name: value for name, value in settings.items()}):
        table.checkpoint()
    write_after(table)


@case("V2 checkpoint, Parquet at the top, two or more sidecars, commits after it.", older=(4, 5))
def v2_parquet(table: Table) -> None:
    write_some_commits(table, ", delta.checkpointPolicy = 'v2'")
    settings = {"checkpointV2.topLevelFileFormat": "parquet", "checkpoint.partSize": "2"}
    with table.conf({DELTA + name: value for name, value in settings.items()}):
        table.checkpoint()
    write_after(table)


@case("Classic checkpoint in several parts, commits after it.", older=(4, 5))
def multipart(table: Table) -> None:
    write_some_commits(table)
    with table.conf({DELTA + "checkpoint.partSize": "3"}):
        table.checkpoint()
    write_after(table)


@case(
    "A whole checkpoint, then a newer one in parts of which one is missing: the newer one must be"
    " passed over, whatever _last_checkpoint says.",
    produced="delta-spark; the script removes one part and leaves _last_checkpoint at the newer",
    older=(5, 6),
)
def multipart_incomplete(table: Table) -> None:
    write_some_commits(table)
    table.checkpoint()
    write_after(table)
    with table.conf({DELTA + "checkpoint.partSize": "3"}):
        table.checkpoint()
    part = min(table.log.glob("*7.checkpoint.0*2.0*.parquet"))
    part.unlink()
    table.forget()


@case(
    "Log compaction files 0..3 and 4..8, the second with removes of files added before it.",
    produced="delta-spark; the compaction files by the LogCompactionWriter of the Delta Kernel it"
    " ships with; the script checks that Spark's snapshot is built from them",
    older=(3, 4, 6),
)
def compacted(table: Table) -> None:
    write_some_commits(table)
    write_after(table)
    table.append("SELECT 200 id, 'last' word, 2 part", options={"txnAppId": "a", "txnVersion": "1"})
    for first, last in ((0, 3), (4, 8)):
        compact_log(table, first, last)
    table.forget()
    table.sql("DELETE FROM {t} WHERE id = 1")
    table.forget()
    used = table.delta_log().unsafeVolatileSnapshot().logSegment().deltas().mkString(",")
    if used.count(".compacted.json") != 2:
        raise RuntimeError(f"Spark read no compaction file: {used}")


@case(
    "Only a checkpoint and what follows: earlier commits expired and Delta cleaned them up.",
    produced="delta-spark; the script backdates the early log files and the cleanup after the"
    " second checkpoint removes them",
    older=(5, 6),
)
def log_cleaned(table: Table) -> None:
    write_some_commits(table)
    table.checkpoint()
    write_after(table)
    table.age(through=5, days=60)
    table.notes["first_version"] = 5
    table.checkpoint()
    # Spark refuses to travel to a version older than the retention of removed files.
    table.age(through=5, days=0)
    table.forget()
    table.sql("DELETE FROM {t} WHERE id = 1")


@case(
    "A V2 checkpoint table after cleanup: also a checkpoint of classic name with V2 content, if"
    " Delta left one.",
    produced="delta-spark; the script backdates the early log files so that cleanup takes them",
    older=(6,),
)
def v2_cleaned(table: Table) -> None:
    write_some_commits(table, ", delta.checkpointPolicy = 'v2'")
    table.checkpoint()
    write_after(table)
    table.age(through=5, days=60)
    table.notes["first_version"] = 5
    table.checkpoint()
    # Spark refuses to travel to a version older than the retention of removed files.
    table.age(through=5, days=0)
    table.forget()
    table.sql("DELETE FROM {t} WHERE id = 1")


@case("Checkpoint with statistics as structs and none as JSON, partitioned.", older=(5,))
def checkpoint_struct_stats(table: Table) -> None:
    write_some_commits(
        table,
        ", delta.checkpoint.writeStatsAsStruct = true, delta.checkpoint.writeStatsAsJson = false",
    )
    table.checkpoint()
    write_after(table)


@case(
    "Deletion vectors dropped as a feature: checkpointProtection takes their place, with the"
    " barrier checkpoints that come with it.",
    older=(2, 3),
)
def dropped_feature(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, word STRING) USING delta"
        " TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    table.append("SELECT INT(id), concat('w', id) word FROM range(20)", files=2)
    table.sql("DELETE FROM {t} WHERE id IN (1, 5, 11)")
    table.sql("ALTER TABLE {t} DROP FEATURE deletionVectors")
    table.append("SELECT INT(id), concat('w', id) word FROM range(20, 22)")


@case("Nothing but a schema: no file was ever added.", older=())
def empty(table: Table) -> None:
    table.sql(
        "CREATE TABLE {t} (id INT, place STRUCT<x: INT>, part DATE) USING delta"
        " PARTITIONED BY (part)"
    )
