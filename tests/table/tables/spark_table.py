"""A Delta table written through Spark, and what is kept of it: the folder, the rows, the notes.

Knows how a case is finished (rows read, paths of this machine taken out, read again elsewhere).
Which cases there are is in write_tables.py.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

PACKAGES = "io.delta:delta-spark_4.2_2.13:4.4.0"
PLACEHOLDER = "@TABLE@"
DELTA = "spark.databricks.delta."
DAY_S = 24 * 60 * 60


class Table:
    """One Delta table being written, at `path`, through one Spark session."""

    def __init__(self, spark: SparkSession, path: Path, work: Path) -> None:
        self.spark = spark
        self.path = path
        self.work = work
        self.notes: dict[str, Any] = {}
        self.extra: dict[str, pa.Table] = {}
        self.moved_in: Path | None = None

    @property
    def jvm(self) -> Any:
        return self.spark._jvm

    @property
    def delta(self) -> Any:
        return self.jvm.org.apache.spark.sql.delta

    @property
    def log(self) -> Path:
        return self.path / "_delta_log"

    def sql(self, statement: str) -> DataFrame:
        """Run a statement in which `{t}` stands for the table."""
        return self.spark.sql(statement.replace("{t}", f"delta.`{self.path}`"))

    def append(
        self,
        query: str,
        *,
        files: int = 1,
        mode: str = "append",
        by: tuple[str, ...] = (),
        options: dict[str, str] | None = None,
    ) -> None:
        frame = self.spark.sql(query).repartition(files) if files > 1 else self.one_file(query)
        writer = frame.write.format("delta").mode(mode).options(**(options or {}))
        (writer.partitionBy(*by) if by else writer).save(str(self.path))

    def one_file(self, query: str) -> DataFrame:
        return self.spark.sql(query).coalesce(1)

    def read(self, version: int | None = None) -> DataFrame:
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(str(self.path))

    def latest(self) -> int:
        versions = [int(p.name[:20]) for p in self.log.glob("*.json") if p.name[20:] == ".json"]
        return max(versions)

    def delta_log(self) -> Any:
        return self.delta.DeltaLog.forTable(self.spark._jsparkSession, str(self.path))

    def checkpoint(self) -> None:
        log = self.delta_log()
        log.update(False, self.none(), self.none())
        log.checkpoint()

    def none(self) -> Any:
        return self.jvm.scala.Option.empty()

    def forget(self) -> None:
        """Make Spark read the log again; stale Hadoop checksums would refuse what we rewrote."""
        remove_hadoop_checksums(self.path)
        self.delta.DeltaLog.clearCache()

    def age(self, *, through: int, days: int) -> None:
        """Backdate every log file up to a version, so that cleanup takes it for expired."""
        then = time.time() - days * DAY_S
        for file in self.log.glob("*"):
            if file.is_file() and file.name[:20].isdigit() and int(file.name[:20]) <= through:
                os.utime(file, (then + int(file.name[:20]), then + int(file.name[:20])))

    def rewrite_log(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Pass each action of every commit and each checksum through `change`, in place."""
        for file in sorted([*self.log.glob("*.json"), *self.log.glob("*.crc")]):
            if file.name.startswith("."):
                continue
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            for line in lines:
                change(line)
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            file.write_text(text)

    @contextmanager
    def conf(self, settings: dict[str, str]) -> Iterator[None]:
        """Set Spark options for a while."""
        before = {name: self.spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    self.spark.conf.unset(name)
                else:
                    self.spark.conf.set(name, old)


@dataclass(frozen=True)
class Case:
    """How one table is written, and which of its versions are kept as rows."""

    write: Callable[[Table], None]
    about: str
    produced: str
    sort_by: tuple[str, ...] = ("id",)
    older: tuple[int, ...] = ()
    select: tuple[str, ...] = ("*",)
    notes: dict[str, Any] = field(default_factory=dict)


CASES: dict[str, Case] = {}


def case(
    about: str, *, produced: str = "delta-spark alone", **rest: Any
) -> Callable[[Callable[[Table], None]], Callable[[Table], None]]:
    def register(write: Callable[[Table], None]) -> Callable[[Table], None]:
        CASES[write.__name__] = Case(write=write, about=about, produced=produced, **rest)
        return write

    return register


def session(scratch: Path) -> SparkSession:
    settings = {
        "spark.jars.packages": PACKAGES,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        # Spark pads CHAR as it reads, which is none of Delta's business.
        "spark.sql.readSideCharPadding": "false",
        DELTA + "snapshotPartitions": "2",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_case(spark: SparkSession, name: str, case: Case, folder: Path, work: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    table = Table(spark, folder / "table", work)
    case.write(table)
    latest = table.latest()
    versions = sorted({*case.older, latest})
    (folder / "expected").mkdir(parents=True, exist_ok=True)
    rows = {v: expected_rows(table.read(v), case) for v in versions}
    for version, found in rows.items():
        pq.write_table(found, folder / "expected" / f"v{version}.parquet", compression="zstd")
    for extra, found in table.extra.items():
        pq.write_table(found, folder / "expected" / f"{extra}.parquet", compression="zstd")
    detail = table.sql("DESCRIBE DETAIL {t}").first()
    if detail is None:
        raise RuntimeError(f"no detail of {name}")
    description: dict[str, Any] = {
        "about": case.about,
        "produced": case.produced,
        "versions": versions,
        "latest": latest,
        "sort_by": list(case.sort_by),
        "protocol": [detail["minReaderVersion"], detail["minWriterVersion"]],
        "features": sorted(detail["tableFeatures"]),
        "partition_by": list(detail["partitionColumns"]),
        "files": detail["numFiles"],
        **case.notes,
        **table.notes,
    }
    if case.select != ("*",):
        description["select"] = list(case.select)
    remove_hadoop_checksums(folder)
    remove_empty_folders(folder)
    if table.moved_in is not None:
        description["substitute"] = PLACEHOLDER
        description["substitute_by"] = (
            "the absolute path of the table folder without its leading slash"
        )
        put_placeholder(table)
    text = json.dumps(description, indent=2, ensure_ascii=False, default=str)
    (folder / "case.json").write_text(text + "\n")
    check_elsewhere(table, case, rows)
    check_no_path_of_ours(folder, table)


def expected_rows(frame: DataFrame, case: Case) -> pa.Table:
    return frame.selectExpr(*case.select).orderBy(*[f"`{c}`" for c in case.sort_by]).toArrow()


def check_elsewhere(table: Table, case: Case, rows: dict[int, pa.Table]) -> None:
    """Read the finished table from another folder: what is kept must be all that is needed."""
    there = Table(table.spark, table.work / "elsewhere", table.work)
    shutil.copytree(table.path, there.path)
    for file in text_files(there.path):
        file.write_text(file.read_text().replace(PLACEHOLDER, str(there.path).lstrip("/")))
    for version, found in rows.items():
        if not same(expected_rows(there.read(version), case), found):
            raise RuntimeError(f"{table.path}: rows of version {version} differ after a move")


def same(one: pa.Table, other: pa.Table) -> bool:
    # NaN is not equal to itself in Arrow; its text is.
    return one.schema == other.schema and str(one.to_pylist()) == str(other.to_pylist())


def check_no_path_of_ours(folder: Path, table: Table) -> None:
    ours = [str(path).encode() for path in (folder.parent, table.work, Path.home())]
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            if any(path in content for path in ours if len(path) > 1):
                raise RuntimeError(f"{file} names a folder of this machine")


def remove_hadoop_checksums(folder: Path) -> None:
    for file in folder.rglob(".*.crc"):
        file.unlink()


def remove_empty_folders(folder: Path) -> None:
    """Git keeps none, so a table must not be thought to need them."""
    for inner in sorted(folder.rglob("*"), reverse=True):
        if inner.is_dir() and not any(inner.iterdir()):
            inner.rmdir()


def text_files(folder: Path) -> list[Path]:
    return [f for ending in ("*.json", "*.crc") for f in folder.glob(f"_delta_log/{ending}")]


def sibling(table: Table, name: str) -> Table:
    return Table(table.spark, table.work / name, table.work)


def move_in(table: Table, source: Table) -> None:
    """Note that the source's files belong into the table's folder once Spark has read it."""
    table.moved_in = source.path


def put_placeholder(table: Table) -> None:
    source = table.moved_in
    if source is None:
        raise RuntimeError("nothing was moved in")
    ignore = shutil.ignore_patterns("_delta_log", ".*.crc")
    shutil.copytree(source, table.path / "source", ignore=ignore)
    # CLONE leaves a checkpoint, whose paths are beyond a substitution of text; none is needed.
    for file in [*table.log.glob("*.checkpoint.*"), *table.log.glob("_last_checkpoint")]:
        file.unlink()
    for file in text_files(table.path):
        text = file.read_text().replace(str(source), f"/{PLACEHOLDER}/source")
        file.write_text(text.replace(str(table.path), f"/{PLACEHOLDER}"))


def vectors_in(action: dict[str, Any]) -> list[dict[str, Any]]:
    """Find the deletion vectors of a log line, or of a checksum with all its files."""
    holders = [action.get("add"), action.get("remove"), *action.get("allFiles", [])]
    return [h["deletionVector"] for h in holders if h and h.get("deletionVector")]


def read_vector(table: Table, vector: dict[str, Any]) -> bytes:
    """Read the bitmap of a relative vector from its file: length, bitmap, checksum."""
    descriptor = table.delta.actions.DeletionVectorDescriptor
    codec = getattr(table.delta.util, "Codec$Base85Codec$")
    uuid = getattr(codec, "MODULE$").decodeUUID(vector["pathOrInlineDv"])
    file: Path = table.path / descriptor.assembleDeletionVectorFileName(uuid)
    content = file.read_bytes()
    start: int = vector["offset"]
    size = int.from_bytes(content[start : start + 4], "big")
    if size != vector["sizeInBytes"]:
        raise RuntimeError(f"{file}: size {size} at {start}, not {vector['sizeInBytes']}")
    return content[start + 4 : start + 4 + size]


def compact_log(table: Table, first: int, last: int) -> None:
    kernel = table.jvm.io.delta.kernel
    engine = kernel.defaults.engine.DefaultEngine.create(table.spark._jsc.hadoopConfiguration())
    path = kernel.internal.fs.Path
    writer = kernel.internal.compaction.LogCompactionWriter(
        path(f"file:{table.path}"), path(f"file:{table.log}"), first, last, 0
    )
    writer.writeLogCompactionFile(engine)


def keep_old_schema(table: Table, *, version: int, sort_by: str) -> list[dict[str, Any]]:
    """Keep the rows of a version whose columns, and so whose order, are not the latest's."""
    table.extra[f"v{version}"] = table.read(version).orderBy(sort_by).toArrow()
    return [{"version": version, "sort_by": [sort_by]}]


def keep_row_ids(table: Table, key: str = "id") -> None:
    version = table.latest()
    columns = (key, "_metadata.row_id", "_metadata.row_commit_version")
    name = f"v{version}.row_ids"
    table.extra[name] = table.read(version).select(*columns).orderBy(key).toArrow()
    table.notes.setdefault("row_ids", []).append(version)


def commit_timestamps(table: Table, since: int) -> dict[str, int]:
    history = table.sql("DESCRIBE HISTORY {t}").where(f"version >= {since}").orderBy("version")
    query = history.selectExpr("version", "unix_millis(timestamp) at")
    return {str(row["version"]): row["at"] for row in query.collect()}
