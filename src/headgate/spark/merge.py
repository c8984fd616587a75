"""MERGE: match rows of a source with rows of the table, and apply clauses to each.

The first pass finds the matching pairs: which files and rows change, and that no row of the table
is changed by two rows of the source. The second pass writes new rows, together with the remaining
rows of files that are rewritten.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.arguments import checked as checked_arguments
from headgate.client.transaction import OperationInfo, as_text
from headgate.errors import InvalidArgumentError, InvalidDataError
from headgate.names import fold
from headgate.protocol.actions import Action, AddFile
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.schema.types import GENERATION, StructField, StructType
from headgate.protocol.statistics import num_records
from headgate.spark import dml
from headgate.spark.conditions import Expression, column_of, refuse_unrepeatable, shown
from headgate.spark.failures import offset_of, translated
from headgate.spark.hits import Hit, Split, hits_of, split
from headgate.spark.scan import FILE, ROW, Files
from headgate.spark.schema_conversion import (
    from_spark,
    helper_column,
    parts_of,
    path_of,
    quoted,
    refuse_reserved_names,
    to_spark,
)
from headgate.spark.schema_evolution import evolved
from headgate.spark.sessions import resolved
from headgate.spark.statement import Statement
from headgate.spark.store_assignment import (
    assigned,
    checked,
    left_out,
    with_generated,
    with_lengths,
)
from headgate.sql.statements import Do, When

_TARGET: Final = helper_column("in_target")
_SOURCE: Final = helper_column("in_source")
_CLAUSE: Final = helper_column("clause")


@checked_arguments
@dataclass(frozen=True)
class Clause:
    """WHEN … AND condition THEN …; an update or insert without values takes all the source's.

    Values go by column: `v`, `s.a` for a field, or the names of a path.
    """

    when: When
    do: Do
    condition: Expression | None = None
    values: Mapping[str | tuple[str, ...], Expression] | None = None

    @property
    def assignments(self) -> dict[tuple[str, ...], Expression]:
        """The values by the path of the column each is for."""
        return {path_of(column): value for column, value in (self.values or {}).items()}


@dataclass(frozen=True)
class Merge:
    """A MERGE, in expressions of SQL on two names."""

    source: DataFrame  # the same rows each time it is read
    on: Expression
    clauses: Sequence[Clause]
    target_alias: str = "target"
    source_alias: str = "source"
    predicate: Predicate | None = None  # what `on` says of the table's files
    evolves: bool = False  # columns that only the source has are added, types widened


def merge(statement: Statement, merging: Merge) -> dml.Outcome:
    """Carry a MERGE out."""
    statement.refuse_changes()
    _refuse_clauses(merging.clauses)
    # Each is asked twice: to find rows, and to make new ones of them.
    for text in (merging.on, *(clause.condition for clause in merging.clauses)):
        if text is not None:
            refuse_unrepeatable(text)
    return _Merging(statement, merging).run()


@dataclass
class _Found:
    """What the first pass found about the matching pairs."""

    hits: list[Hit]
    matched: list[Hit] | None  # rows that match, changed or not; None: not computed
    updated: int = 0
    deleted: int = 0
    # Of these the rows that no row of the source matched.
    updated_alone: int = 0
    deleted_alone: int = 0


class _Merging:
    """One MERGE on its way."""

    def __init__(self, statement: Statement, merging: Merge) -> None:
        self._statement = statement
        self._merge = merging
        self._label = statement.base.label
        self._before = statement.target().schema
        self._given = from_spark(merging.source.schema)
        refuse_reserved_names(self._given, "The source")
        self._actions: list[Action] = []
        self._target = statement.target()
        if merging.evolves:
            self._actions, self._target = evolved(statement, self._brought())
        self._schema = self._target.schema
        self._clauses = list(enumerate(map(self._scoped, merging.clauses)))
        self._by_source = any(c.when is When.NOT_MATCHED_BY_SOURCE for c in merging.clauses)

    def run(self) -> dml.Outcome:
        # A clause for unmatched rows of the table needs all files.
        files = self._statement.plan(None if self._by_source else self._merge.predicate)
        if not files:  # a wrong ON is refused all the same
            with translated():
                resolved(self._joined(self._statement.frame([], located=True), "inner"))
        found = self._find(files) if files else _Found([], [])
        parts = split(self._statement.base, found.hits)
        frames, copied = self._new_frames(parts, found, files)
        written = dml.rewrite(
            self._statement,
            parts,
            frames,
            self._target,
            found.updated,
            at_least=bool(self._making(When.NOT_MATCHED)),
        )
        inserted = written.num_rows - found.updated - copied
        counts = {
            "num_affected_rows": found.updated + found.deleted + inserted,
            "num_updated_rows": found.updated,
            "num_deleted_rows": found.deleted,
            "num_inserted_rows": inserted,
        }
        actions = [*self._actions, *written.actions]
        if not actions:
            return dml.Outcome(None, counts)
        with translated():
            # Counted without reading columns: of a temporary source only the footers are read.
            num_source_rows = self._merge.source.count()
        counted = {
            "numSourceRows": num_source_rows,
            "numTargetRowsInserted": inserted,
            "numTargetRowsUpdated": found.updated,
            "numTargetRowsDeleted": found.deleted,
            "numTargetRowsMatchedUpdated": found.updated - found.updated_alone,
            "numTargetRowsMatchedDeleted": found.deleted - found.deleted_alone,
            "numTargetRowsNotMatchedBySourceUpdated": found.updated_alone,
            "numTargetRowsNotMatchedBySourceDeleted": found.deleted_alone,
            "numTargetRowsCopied": copied,
            "numOutputRows": inserted + found.updated + copied,
            **{_of_target(name): count for name, count in written.metrics.items()},
        }
        operation = OperationInfo("MERGE", self._parameters(), counted)
        return dml.Outcome(self._statement.commit(actions, operation), counts)

    # Names

    def _scoped(self, clause: Clause) -> Clause:
        """Resolve names in a clause for rows of one side to that side's columns."""
        condition, values = clause.condition, clause.assignments
        texts = [text for text in (condition, *values.values()) if text is not None]
        if not texts:
            return clause
        alias = self._merge.source_alias
        with translated():
            both = side = self._joined(self._statement.frame([], located=True), "inner")
            if clause.when is When.NOT_MATCHED:
                side = self._merge.source.alias(alias)
            elif clause.when is When.NOT_MATCHED_BY_SOURCE:
                alias = self._merge.target_alias
                side = self._statement.frame([]).alias(alias)
            # Checked even if no row matches. Columns of the other side would all be NULL here.
            _ = side.select(*map(column_of, texts)).schema
            if clause.when is When.MATCHED:
                return clause
            return replace(
                clause,
                condition=None if condition is None else _qualified(both, condition, alias),
                values=None
                if clause.values is None
                else {path: _qualified(both, text, alias) for path, text in values.items()},
            )

    # Finding

    def _find(self, files: Sequence[AddFile]) -> _Found:
        """Join once, to find the matching rows."""
        if all(clause.when is When.NOT_MATCHED for _, clause in self._clauses):
            return _Found([], None)
        how = "left" if self._by_source else "inner"
        clause = self._clause(When.MATCHED, When.NOT_MATCHED_BY_SOURCE)
        with translated():
            pairs = self._joined(self._statement.frame(files, located=True), how).select(
                FILE, ROW, F.col(_SOURCE), clause.alias(_CLAUSE)
            )
            rows = pairs.groupBy(FILE, ROW).agg(
                F.count(_SOURCE).alias("matches"),
                F.count(F.when(F.col(_CLAUSE) >= 0, 1)).alias("masters"),
                F.max(_CLAUSE).alias(_CLAUSE),
            )
            is_hit = F.col(_CLAUSE) >= 0
            place = F.when(is_hit, F.col(ROW) + 1)
            matched = F.when(F.col("matches") > 0, F.col(ROW) + 1)
            counts = {
                name: F.col(_CLAUSE).isin([n for n, c in self._clauses if c.do is do])
                for name, do in (("updated", Do.UPDATE), ("deleted", Do.DELETE))
            }
            alone = F.col("matches") == 0
            counts |= {f"{name}_alone": is_done & alone for name, is_done in counts.items()}
            counted = rows.groupBy(
                FILE, F.bitmap_bucket_number(F.col(ROW) + 1).alias("bucket")
            ).agg(
                F.bitmap_construct_agg(F.bitmap_bit_position(place)).alias("bits"),
                F.bitmap_construct_agg(F.bitmap_bit_position(matched)).alias("matched"),
                F.max("masters").alias("masters"),
                *(F.count(F.when(is_done, 1)).alias(kind) for kind, is_done in counts.items()),
            )
            counted_rows = counted.collect()
        if any(row["masters"] > 1 for row in counted_rows) and not self._only_deletes():
            raise InvalidDataError(
                f"Several rows of the source match one row of {self._label} and would change it.",
                remedy="Make the source's rows unique by what they are matched on."
                " Nothing was committed.",
            )
        known = Files(self._statement.base, files)
        return _Found(
            hits_of(counted_rows, "bits", known),
            hits_of(counted_rows, "matched", known),
            **{kind: sum(row[kind] for row in counted_rows) for kind in counts},
        )

    def _only_deletes(self) -> bool:
        """Whether a matching row is deleted in any case: then several source rows may match it."""
        matched = [c for _, c in self._clauses if c.when is When.MATCHED]
        return len(matched) == 1 and matched[0].do is Do.DELETE and matched[0].condition is None

    def _joined(self, rows: DataFrame, how: str) -> DataFrame:
        target = rows.withColumn(_TARGET, F.lit(1))
        source = self._merge.source.withColumn(_SOURCE, F.lit(1))
        left, right = target.alias(self._merge.target_alias), source.alias(self._merge.source_alias)
        return left.join(right, column_of(self._merge.on), how)

    def _clause(self, *when: When) -> Column:
        """Return the number of the clause for a pair or an unmatched row, or -1."""
        both = F.col(_TARGET).isNotNull() & F.col(_SOURCE).isNotNull()
        about = {
            When.MATCHED: both,
            When.NOT_MATCHED: F.col(_TARGET).isNull(),
            When.NOT_MATCHED_BY_SOURCE: F.col(_SOURCE).isNull(),
        }
        chosen: Column = F.lit(-1)
        for number, clause in reversed([c for c in self._clauses if c[1].when in when]):
            holds = about[clause.when]
            if clause.condition is not None:
                holds = holds & column_of(clause.condition).eqNullSafe(True)
            chosen = F.when(holds, F.lit(number)).otherwise(chosen)
        return chosen

    # Writing

    def _new_frames(
        self, parts: Split, found: _Found, files: Sequence[AddFile]
    ) -> tuple[list[DataFrame], int]:
        """Return new rows, and the remaining rows of files that are rewritten with their number."""
        frames = []
        with translated():
            if self._making(When.MATCHED, When.NOT_MATCHED):
                how = "right" if self._making(When.NOT_MATCHED) else "inner"
                # Rows without a match need not be joined a second time.
                rows = (
                    self._statement.frame(files, located=True)
                    if found.matched is None
                    else self._statement.rows_of(found.matched)
                )
                joined = self._joined(rows, how)
                made = self._new_rows(joined, When.MATCHED, When.NOT_MATCHED)
                if how == "right" or found.matched:  # else wrong values are refused all the same
                    frames.append(made)
            if self._making(When.NOT_MATCHED_BY_SOURCE):
                alone = self._joined(self._statement.frame(files, located=True), "left_anti")
                alone = alone.withColumn(_SOURCE, F.lit(None).cast("int"))
                frames.append(self._new_rows(alone, When.NOT_MATCHED_BY_SOURCE))
            new = [
                checked(frame, self._schema, self._target.metadata.configuration)
                for frame in frames
            ]
            if parts.rewritten:
                new.append(self._kept(parts.rewritten))
        return new, self._num_kept(parts.rewritten)

    def _making(self, *when: When) -> list[tuple[int, Clause]]:
        """List the clauses that produce rows."""
        return [(n, c) for n, c in self._clauses if c.when in when and c.do is not Do.DELETE]

    def _kept(self, hits: Sequence[Hit]) -> DataFrame:
        rows = self._statement.frame([hit.file for hit in hits], without=hits)
        return rows.select(*[self._old(field).alias(field.name) for field in self._schema.fields])

    def _num_kept(self, hits: Sequence[Hit]) -> int:
        if all(num_records(hit.file) is not None for hit in hits):
            return sum(hit.live - len(hit.rows) for hit in hits)
        return self._kept(hits).count()

    def _new_rows(self, joined: DataFrame, *when: When) -> DataFrame:
        """Return the rows that clauses produce from pairs and unmatched rows."""
        marked = joined.withColumn(_CLAUSE, self._clause(*when))
        making = self._making(*when)
        rows = marked.where(F.col(_CLAUSE).isin([n for n, _ in making]))
        values = {n: self._values(rows, clause) for n, clause in making}
        columns = []
        for field in self._schema.fields:
            column: Column = F.lit(None).cast(to_spark(field.type))
            for number, _ in making:
                column = F.when(F.col(_CLAUSE) == number, values[number][field.name]).otherwise(
                    column
                )
            columns.append(column.alias(field.name))
        new = with_lengths(rows.select(*columns), self._schema)
        return with_generated(new, self._schema)

    def _values(self, rows: DataFrame, clause: Clause) -> dict[str, Column]:
        """Return the value of every column according to a clause."""
        given = self._all_of_source(clause) if clause.values is None else clause.assignments
        texts = list(given.items())
        types = from_spark(rows.select(*[column_of(t).alias("v") for _, t in texts]).schema).fields
        found: dict[str, Column] = {}
        for (path, text), item in zip(texts, types, strict=True):
            top = dml.field_of(self._schema, path[0], self._label)
            if clause.values is not None:
                dml.refuse_generated(top)
            before = found.get(top.name, self._old(top, rows_of_target=True))
            found[top.name] = dml.within(column_of(text), item.type, before, top, path)
        for field in self._schema.fields:
            if field.name not in found:
                found[field.name] = (
                    left_out(field, self._label, rows)
                    if clause.do is Do.INSERT
                    else self._old(field, rows_of_target=True)
                )
        return found

    def _all_of_source(self, clause: Clause) -> dict[tuple[str, ...], Expression]:
        by_name = {fold(item.name): item.name for item in self._given.fields}
        taken: dict[tuple[str, ...], Expression] = {}
        for field in self._schema.fields:
            name = by_name.get(fold(field.name))
            if name is not None:
                alias = quoted(self._merge.source_alias)
                taken[field.name,] = f"{alias}.{quoted(name)}"
            elif GENERATION not in field.metadata and not self._merge.evolves:
                raise InvalidArgumentError(
                    f"The source has no column {field.name!r}, and {clause.do.value} * asks for it."
                )
        return taken

    def _old(self, field: StructField, *, rows_of_target: bool = False) -> Column:
        was = next((i for i in self._before.fields if fold(i.name) == fold(field.name)), None)
        if was is None:
            return F.lit(None).cast(to_spark(field.type))
        name = quoted(field.name)
        if rows_of_target:
            name = f"{quoted(self._merge.target_alias)}.{name}"
        return assigned(F.col(name), was.type, field.type, (field.name,))  # it may have grown

    def _brought(self) -> StructType:
        """Return the columns that the source brings: by a star, or under their own names."""
        if any(c.do is not Do.DELETE and c.values is None for c in self._merge.clauses):
            return self._given
        # Fields are added to a struct by a star alone.
        structs = {fold(i.name) for i in self._before.fields if isinstance(i.type, StructType)}
        named = {fold(path[0]) for c in self._merge.clauses for path in self._taken(c)}
        return StructType(tuple(i for i in self._given.fields if fold(i.name) in named - structs))

    def _taken(self, clause: Clause) -> list[tuple[str, ...]]:
        """List the columns that a clause sets to the source's column of the same name."""
        alias = fold(self._merge.source_alias)
        return [
            path
            for path, value in clause.assignments.items()
            if len(path) == 1
            and isinstance(value, str)
            and tuple(map(fold, parts_of(value.strip()) or ()))
            in ((fold(path[0]),), (alias, fold(path[0])))
        ]

    def _parameters(self) -> dict[str, object]:
        def predicates_of(when: When) -> str:
            return as_text(
                [
                    {"actionType": clause.do.value}
                    | ({} if clause.condition is None else {"predicate": shown(clause.condition)})
                    for _, clause in self._clauses
                    if clause.when is when
                ]
            )

        return {
            "predicate": as_text([f"({shown(self._merge.on)})"]),
            "matchedPredicates": predicates_of(When.MATCHED),
            "notMatchedPredicates": predicates_of(When.NOT_MATCHED),
            "notMatchedBySourcePredicates": predicates_of(When.NOT_MATCHED_BY_SOURCE),
        }


def _of_target(metric: str) -> str:
    """Name a metric as Delta does for MERGE: numRemovedFiles is numTargetFilesRemoved."""
    return re.sub("num(?:(Removed|Added)(?=Files|Bytes))?(.*)", r"numTarget\2\1", metric)


def _qualified(both: DataFrame, text: Expression, alias: str) -> Expression:
    """Qualify columns that both tables have, at the positions that Spark reports."""
    try:
        _ = both.select(column_of(text)).schema  # over Spark Connect only now something is resolved
        return text
    except AnalysisException as error:
        at = offset_of(error)
        is_ambiguous = error.getCondition() == "AMBIGUOUS_REFERENCE"
        if not isinstance(text, str) or not is_ambiguous or at is None or at >= len(text):
            raise
    return _qualified(both, f"{text[:at]}{quoted(alias)}.{text[at:]}", alias)


def _refuse_clauses(clauses: Sequence[Clause]) -> None:
    if not clauses:
        raise InvalidArgumentError("A MERGE needs a WHEN clause.")
    for clause in clauses:
        if (clause.do is Do.INSERT) is not (clause.when is When.NOT_MATCHED):
            raise InvalidArgumentError(
                f"WHEN {clause.when.value.upper()} cannot {clause.do.value}."
            )
        if (
            clause.when is When.NOT_MATCHED_BY_SOURCE
            and clause.values is None
            and clause.do is not Do.DELETE
        ):
            raise InvalidArgumentError(
                "A row that is not matched by the source has nothing to take."
            )
    for when in When:
        of_kind = [clause for clause in clauses if clause.when is when]
        if any(clause.condition is None for clause in of_kind[:-1]):
            raise InvalidArgumentError(
                f"Only the last WHEN {when.value.upper()} may be without a condition."
            )
