"""Read files of a snapshot into a DataFrame with the table's columns.

Spark reads the files by name, at its own speed; what only the log has is added: partition values,
deletion vectors, the columns' names. The files are chosen before: Spark lists nothing and infers
nothing.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it
from pyspark.sql import types as spark_types

from headgate.data.file_reader import Layout, deleted_rows, partition_value
from headgate.data.file_writer import NULL_FOLDER
from headgate.errors import InvariantError, UnsupportedFeatureError
from headgate.names import fold
from headgate.protocol.actions import AddFile
from headgate.protocol.features import mapping_mode
from headgate.protocol.scalars import DistantDate, DistantMoment
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.column_mapping import physical_name, without_mapping
from headgate.spark import file_names
from headgate.spark.schema_conversion import (
    helper_column,
    physical,
    quoted,
    refuse_reserved_names,
    spark_schema,
    to_spark,
)
from headgate.spark.sessions import writing_files
from headgate.storage import locations
from headgate.table.snapshot import Snapshot

FILE: Final = helper_column("file")  # position of a row: the file as Spark names it,
ROW: Final = helper_column("row")  # and the row's index in it

_MOST_GROUPS: Final = 8  # a union of more groups is slower than a lookup of each row's file
# Spark reads them from the names of folders as the log does.
_FOLDERED: Final = (delta.STRING, delta.DATE, *map(delta.Primitive, delta.BITS))
_ROW_COUNTER: Final = "_tmp_metadata_row_index"  # Spark's own, whatever a file has by that name
_MANY_FILES: Final = 200_000
_MANY_PARTITIONS: Final = 1_000_000
_MOST_WORDS: Final = 4 << 20  # of 64 rows each, of all files; above it rows are looked up singly

_KEY: Final = helper_column("key")
_NAME: Final = helper_column("name")
_PATH: Final = helper_column("path")
_WORDS: Final = helper_column("words")
_HIDDEN: Final = {FILE: "file_path", _NAME: "file_name", ROW: "row_index"}  # in `_metadata`


@dataclass(frozen=True)
class Files:
    """Some files of a snapshot, found by the names that Spark has for them."""

    snapshot: Snapshot
    files: Sequence[AddFile]

    @cached_property
    def by_url(self) -> Mapping[str, AddFile]:
        """The files by their normalized URLs."""
        urls = file_names.urls_of(self.snapshot.location, self.files)
        return dict(zip(urls, self.files, strict=True))

    def find(self, named: str) -> AddFile:
        """Return the file that Spark reports under this name."""
        found = self.by_url.get(locations.normalize(named))
        if found is None:
            raise InvariantError(f"Spark read {named}, which is not a file of this snapshot.")
        return found


def dataframe(
    spark: SparkSession,
    snapshot: Snapshot,
    files: Sequence[AddFile],
    *,
    located: bool = False,
    without: Mapping[str, Sequence[int]] | None = None,
    only: Mapping[str, Sequence[int]] | None = None,
) -> DataFrame:
    """Read files of a snapshot, in the table's columns; if `located`, with each row's position.

    `without` lists for some files, by path, further rows to leave out; `only` lists for every file
    the rows to read, none of them deleted.
    """
    left_out = without or {}
    scan = _Scan(spark, snapshot, located=located)
    if not files:
        return scan.nothing()
    if len(files) > _MANY_FILES:
        warnings.warn(
            f"{len(files)} files are read: naming them to Spark takes long. Give a filter with"
            " where=, or make fewer files of them.",
            stacklevel=4,
        )
    if only is not None:
        return scan.without(files, [only[file.path] for file in files], keeps=True)
    vectored = {
        file.path: _together(deleted_in(snapshot, file), left_out.get(file.path, ()))
        for file in files
        if file.deletion_vector is not None or file.path in left_out
    }
    parts = scan.plain([file for file in files if file.path not in vectored])
    if vectored:
        of_vectors = [file for file in files if file.path in vectored]
        parts.append(scan.without(of_vectors, list(vectored.values())))
    if len(parts) == 1:
        return parts[0]
    # Spark's optimizer moves projections below a union (`PushProjectionThroughUnion`), and fails on
    # those with correlated subqueries. It moves columns and filters, but no other expression, below
    # a `coalesce`. One to more partitions than there are leaves the partitions as they are.
    return reduce(DataFrame.union, parts).coalesce(_MANY_PARTITIONS)


def by_partition(
    snapshot: Snapshot, files: Sequence[AddFile]
) -> dict[tuple[str | None, ...], list[AddFile]]:
    """Group files by their partition values, as texts that Spark reads in a cast."""
    groups: dict[tuple[str | None, ...], list[AddFile]] = {}
    for texts, file in zip(_partition_texts(snapshot, files), files, strict=True):
        groups.setdefault(texts, []).append(file)
    return groups


def partitions(spark: SparkSession, snapshot: Snapshot, files: Sequence[AddFile]) -> DataFrame:
    """Return one row for each group of `by_partition`: its number as `FILE`, and its values."""
    groups = list(by_partition(snapshot, files))
    names = {item.name: item.type for item in _partitioned(snapshot)}
    return _values(spark, names, groups, {FILE: pa.array(range(len(groups)), pa.int64())})


def _values(
    spark: SparkSession,
    columns: Mapping[str, delta.DataType],
    rows: Sequence[Sequence[str | None]],
    others: Mapping[str, pa.Array],
) -> DataFrame:
    """Return rows of partition values that are given as texts, beside other columns."""
    texts = {
        name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(columns)
    }
    known = spark.createDataFrame(pa.table({**texts, **others}))
    typed = [_typed(F.col(quoted(name)), item).alias(name) for name, item in columns.items()]
    return known.select(*typed, *map(F.col, others))


def deleted_in(snapshot: Snapshot, file: AddFile) -> Sequence[int]:
    """Return the positions that a file's deletion vector marks, ascending."""
    if file.deletion_vector is None:
        return ()
    layout = Layout(
        store=snapshot.store,
        location=snapshot.location,
        label=_label(snapshot),
        schema=snapshot.schema,
        partition_columns=frozenset(snapshot.partition_columns),
    )
    return deleted_rows(layout, file)


def _label(snapshot: Snapshot) -> str:
    return f"{snapshot.label} version {snapshot.version}"


class _Scan:
    """Reads the files of one snapshot."""

    def __init__(self, spark: SparkSession, snapshot: Snapshot, *, located: bool) -> None:
        self._spark = spark
        self._snapshot = snapshot
        self._located = located
        self._schema = _schema(snapshot)
        refuse_reserved_names(self._schema, snapshot.label)
        self._partitioned = _partitioned(snapshot)
        stored = [item for item in self._schema.fields if item not in self._partitioned]
        read = physical(delta.StructType(tuple(item for item in stored if item.type != delta.VOID)))
        self._read_schema = spark_schema(read)
        if _ROW_COUNTER in map(fold, self._read_schema.names):
            raise UnsupportedFeatureError(
                f"{snapshot.label}: Spark reads the position of each row instead of the column"
                f" {_ROW_COUNTER!r}.",
                remedy="Read it with table.to_arrow().",
            )

    def nothing(self) -> DataFrame:
        schema = spark_schema(self._schema)
        if self._located:
            schema = schema.add(FILE, "string").add(ROW, "long")
        return self._spark.createDataFrame([], schema)

    def plain(self, files: Sequence[AddFile]) -> list[DataFrame]:
        """Read files without deleted rows: a scan per partition if there are few, else one scan."""
        if not files:
            return []
        groups = by_partition(self._snapshot, files)
        if len(groups) <= _MOST_GROUPS:
            return [self._constant(texts, group) for texts, group in groups.items()]
        folders = _by_folder(groups, self._partitioned)
        if folders is None or len(folders) > _MOST_GROUPS or not self._is_free_of_partitions():
            return [self._joined(*self._keyed(files), files)]
        return [self._foldered(folder, group) for folder, group in folders.items()]

    def without(
        self, files: Sequence[AddFile], places: Sequence[Sequence[int]], *, keeps: bool = False
    ) -> DataFrame:
        """Read files, each without the rows at some positions, or `keeps` only these."""
        rows, key = self._keyed(files, ROW)
        if _num_words(places) <= _MOST_WORDS:
            return self._joined(rows, key, files, list(map(_words, places)), int(keeps))
        # Few rows in files with very many are looked up one by one.
        keys = self._known_by(files)
        named = pa.table(
            {
                _KEY: pa.array([k for k, at in zip(keys, places, strict=True) for _ in at]),
                _WORDS: pa.array([row for at in places for row in at], pa.int64()),
            }
        )
        is_named = (F.col(_PATH) == F.col(_KEY)) & (F.col(ROW) == F.col(_WORDS))
        left = rows.withColumn(_PATH, key).join(
            F.broadcast(self._spark.createDataFrame(named)),
            is_named,
            "left_semi" if keeps else "left_anti",
        )
        return self._joined(left, F.col(_PATH), files, [_words(())] * len(files))

    def _constant(self, texts: Sequence[str | None], files: Sequence[AddFile]) -> DataFrame:
        values = {
            item.name: _typed(F.lit(text), item.type)
            for item, text in zip(self._partitioned, texts, strict=True)
        }
        return self._in_columns(self._files(files), values)

    def _foldered(self, folder: str, files: Sequence[AddFile]) -> DataFrame:
        """Let Spark parse partition values from folder names, which equal those in the log."""
        location = locations.normalize(self._snapshot.location)
        base = file_names.hadoop(locations.join(location, folder) if folder else location)
        values = {item.name: F.col(quoted(item.name)) for item in self._partitioned}
        return self._in_columns(self._files(files, more=self._partitioned, basePath=base), values)

    def _is_free_of_partitions(self) -> bool:
        """Whether no file has a column by the name of a partition column."""
        stored = {fold(name) for name in self._read_schema.names}
        return all(fold(item.name) not in stored for item in self._partitioned)

    def _joined(
        self,
        rows: DataFrame,
        key: Column,
        files: Sequence[AddFile],
        words: Sequence[pa.ListArray] | None = None,
        bit: int = 0,
    ) -> DataFrame:
        """Join rows with the log's facts about their file, by its name; keep rows with that bit."""
        # Joined by a hash of the name, several times faster in Spark than by text; `_sure` compares
        # the names themselves.
        known = F.broadcast(self._known(files, words))
        found = rows.join(known, F.xxhash64(key) == F.xxhash64(F.col(_KEY)), "left")
        if words is not None:
            found_bit = F.getbit(
                F.get(F.col(_WORDS), F.shiftright(F.col(ROW), 6).cast("int")),
                F.col(ROW).bitwiseAND(63).cast("int"),
            )
            found = found.where(_sure(key, F.coalesce(found_bit, F.lit(0).cast("tinyint"))) == bit)
        values = {
            item.name: _sure(key, F.col(quoted(_partition(item)))) for item in self._partitioned
        }
        return self._in_columns(found, values)

    # Reading

    def _files(
        self,
        files: Sequence[AddFile],
        *hidden: str,
        more: Sequence[delta.StructField] = (),
        **options: str,
    ) -> DataFrame:
        """Read files, with the requested ones of Spark's hidden columns."""
        # Request only what is needed: Spark reads slower even if a hidden column is not used.
        schema = spark_types.StructType(list(self._read_schema.fields))
        for item in more:
            schema = schema.add(item.name, to_spark(item.type))
        reader = self._spark.read.schema(schema).options(**file_names.OPTIONS, **options)
        rows = file_names.read_named(reader, [file_names.pattern(key) for key in self._keys(files)])
        wanted = {*hidden, FILE, ROW} if self._located else {*hidden}
        if not wanted:
            return rows
        # By this name also where the table has a column `_metadata` of its own.
        known = rows.metadataColumn("_metadata")
        found = [known.getField(_HIDDEN[name]).alias(name) for name in sorted(wanted)]
        return rows.select("*", *found)

    def _keyed(self, files: Sequence[AddFile], *hidden: str) -> tuple[DataFrame, Column]:
        """Return the rows, and for each row the name of its file."""
        if self._have_unique_last_names(files):
            return self._files(files, _NAME, *hidden), F.col(_NAME)
        if all(map(file_names.is_plain, self._keys(files))):
            return self._files(files, FILE, *hidden), F.col(FILE)
        # Spark spells names percent-encoded; a plus sign is one, whatever a form would make of it.
        decoded = F.url_decode(F.replace(F.col(FILE), F.lit("+"), F.lit("%2B")))
        return self._files(files, FILE, *hidden), decoded

    def _have_unique_last_names(self, files: Sequence[AddFile]) -> bool:
        """Whether last parts of names are unique: shorter names make the join faster."""
        names = [file.path.rpartition("/")[2] for file in files]
        return len(set(names)) == len(names) and all(map(file_names.is_simple, names))

    def _known_by(self, files: Sequence[AddFile]) -> list[str]:
        keys = self._keys(files)
        if self._have_unique_last_names(files):
            return [key.rpartition("/")[2] for key in keys]
        return keys

    def _known(self, files: Sequence[AddFile], words: Sequence[pa.ListArray] | None) -> DataFrame:
        others = {_KEY: pa.array(self._known_by(files), pa.string())}
        if words is not None:
            others[_WORDS] = pa.concat_arrays(words)
        columns = {_partition(item): item.type for item in self._partitioned}
        return _values(self._spark, columns, _partition_texts(self._snapshot, files), others)

    def _in_columns(self, rows: DataFrame, values: Mapping[str, Column]) -> DataFrame:
        """Convert what was read to the table's columns."""
        columns = [self._column(item, values) for item in self._schema.fields]
        if self._located:
            columns += [quoted(FILE), quoted(ROW)]
        names = [column for column in columns if isinstance(column, str)]
        if len(names) == len(columns) and names == [quoted(name) for name in rows.columns]:
            return rows
        return rows.select(*columns)

    def _column(self, item: delta.StructField, values: Mapping[str, Column]) -> Column | str:
        """Return a column, by name if it is unchanged: each `Column` costs calls to the JVM."""
        if item.name in values:
            return values[item.name].alias(item.name)
        wanted, stored = to_spark(item.type), physical_name(item)
        if item.type == delta.VOID:
            return F.lit(None).cast(wanted).alias(item.name)
        # Fields of structs are renamed by their place; a cast that changes nothing would keep
        # Spark from handing filters to the files.
        if to_spark(physical(item.type)) != wanted:
            return F.col(quoted(stored)).cast(wanted).alias(item.name)
        return quoted(stored) if stored == item.name else F.col(quoted(stored)).alias(item.name)

    def _keys(self, files: Sequence[AddFile]) -> list[str]:
        return [
            file_names.hadoop(url) for url in file_names.urls_of(self._snapshot.location, files)
        ]


def _sure(key: Column, column: Column) -> Column:
    """Raise where a row's file is not the known one: deleted rows would be back, values lost."""
    unknown = F.concat(F.lit("Headgate does not know the file "), key)
    return F.when(F.col(_KEY).eqNullSafe(key), column).otherwise(F.raise_error(unknown))


def _schema(snapshot: Snapshot) -> delta.StructType:
    """Return a table's columns, with physical names where the table maps columns."""
    if mapping_mode(snapshot.protocol, snapshot.metadata) == "none":
        return without_mapping(snapshot.schema)
    return snapshot.schema


def _partitioned(snapshot: Snapshot) -> list[delta.StructField]:
    names = {fold(name) for name in snapshot.partition_columns}
    return [item for item in _schema(snapshot).fields if fold(item.name) in names]


def _partition(item: delta.StructField) -> str:
    return helper_column(f"partition_{physical_name(item)}")


# Values from the log


def _by_folder(
    groups: Mapping[tuple[str | None, ...], Sequence[AddFile]],
    partitioned: Sequence[delta.StructField],
) -> dict[str, list[AddFile]] | None:
    """Group files by the folder that contains their partition folders, `part=1/other=x`.

    None if the folder names of a file differ from its partition values in the log.
    """
    if any(item.type not in _FOLDERED for item in partitioned):
        return None
    folders: dict[str, list[AddFile]] = {}
    for texts, files in groups.items():
        if NULL_FOLDER in texts:
            return None
        named = zip(partitioned, texts, strict=True)
        names = [f"{item.name}={NULL_FOLDER if text is None else text}" for item, text in named]
        ending = "/" + "/".join(names)
        for file in files:
            folder = f"/{file.path}".rpartition("/")[0]
            if not folder.endswith(ending) or not file_names.is_simple(file.path):
                return None
            folders.setdefault(folder.removesuffix(ending)[1:], []).append(file)
    return folders


def _partition_texts(snapshot: Snapshot, files: Sequence[AddFile]) -> list[tuple[str | None, ...]]:
    """Return the partition values of each file, as texts that Spark reads in a cast."""
    label, items = _label(snapshot), _partitioned(snapshot)
    return [tuple(_partition_text(label, file, item) for item in items) for file in files]


def _partition_text(label: str, file: AddFile, item: delta.StructField) -> str | None:
    """Return a partition value as text that Spark casts the same in every time zone."""
    match partition_value(label, file, item):
        case None:
            return None
        case bool() as truth:
            return "true" if truth else "false"
        case bytes() as content:
            return content.hex()
        case datetime() as moment:
            return moment.isoformat(timespec="microseconds")
        case date() | DistantDate() | DistantMoment() as distant:
            return distant.isoformat()
        case Decimal() as number:
            return f"{number:f}"
        case float() as number:
            text = repr(number)
            return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)
        case value:
            return str(value)


def _typed(text: Column, data_type: delta.DataType) -> Column:
    wanted = to_spark(data_type)
    if isinstance(wanted, spark_types.StringType):
        return text.cast("string")
    if isinstance(wanted, spark_types.BinaryType):
        return F.unhex(text)
    return text.cast(wanted)


def _together(rows: Sequence[int], others: Sequence[int]) -> Sequence[int]:
    """Merge two ascending sequences of positions."""
    return sorted({*rows, *others}) if rows and others else rows or others


def _num_words(rows: Sequence[Sequence[int]]) -> int:
    return sum(places[-1] // 64 + 1 for places in rows if places)


def _words(rows: Sequence[int]) -> pa.ListArray:
    """Convert ascending positions to bits of a list of 64-bit words."""
    count = rows[-1] // 64 + 1 if rows else 0
    # One more place than there are bits, and nothing in it: so there are nulls, and bits of them.
    marked = pc.inverse_permutation(pa.array(rows, pa.int64()), max_index=64 * count)
    values = pa.Array.from_buffers(pa.int64(), count, [None, marked.buffers()[0]])
    return pa.ListArray.from_arrays([0, count], values)


def written_down(frame: DataFrame, location: str, folder: str) -> DataFrame:
    """Write rows into a folder of a table, and return them as read from there."""
    path = file_names.hadoop(locations.join(location, folder))
    with writing_files(frame.sparkSession):
        frame.write.mode("append").parquet(path)
    read = frame.sparkSession.read.schema(frame.schema).options(**file_names.OPTIONS)
    return read.parquet(file_names.pattern(path))
