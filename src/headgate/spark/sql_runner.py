"""Run SQL statements: those on our tables by the lake, the rest by Spark."""

from functools import partial
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.errors import InvalidArgumentError, SyntaxRefusedError, UnsupportedFeatureError
from headgate.names import TableName, fold
from headgate.protocol.schema.types import DEFAULT, StructField, StructType
from headgate.spark import ddl, describe, dml, sessions
from headgate.spark.conditions import (
    Condition,
    Expression,
    Expressions,
    is_utc,
    refuse_nondeterministic,
)
from headgate.spark.dml import Outcome, Path, field_of
from headgate.spark.engine import Engine
from headgate.spark.failures import translated
from headgate.spark.insert import Insertion, insert
from headgate.spark.merge import Clause, Merge, merge
from headgate.spark.relations import Relations, Resolver
from headgate.spark.schema_conversion import quoted
from headgate.spark.sessions import resolved
from headgate.spark.statement import Statement
from headgate.spark.store_assignment import fitted_cast
from headgate.sql import statements
from headgate.sql.condition_analysis import condition_predicate, contents
from headgate.sql.rewrite import Edit, Spliced
from headgate.sql.script import parse
from headgate.sql.statements import Name, Piece, When

_VIEWS_AS_PLANS: Final = "spark.sql.legacy.storeAnalyzedPlanForView"


def run(engine: Engine, text: str) -> DataFrame:
    """Run every statement of a script, and return the result of the last one."""
    script = _Script(engine, text)
    result: DataFrame | None = None
    for statement in parse(text):
        result = script.run(statement)
    if result is None:
        raise InvalidArgumentError("There is no statement in this text.")
    return result


class _Script:
    """A script that is running."""

    def __init__(self, engine: Engine, text: str) -> None:
        self._engine = engine
        self._spark = engine.spark
        self._find = Resolver(engine.spark, engine.session, text, engine.remember, engine.scans_of)

    def run(self, statement: statements.Statement) -> DataFrame:
        # Spark's own statements are not checked: SET puts a setting right.
        if not (isinstance(statement, statements.Foreign) and statement.query is None):
            sessions.check(self._spark)
        self._find.begin()
        match statement:
            case statements.Query(whole):
                counted = self._find.count(whole)
                return self._find.ask(self._find.relations(whole)) if counted is None else counted
            case statements.Insert():
                return self._counts(self._insert(statement))
            case statements.Delete():
                return self._counts(self._delete(statement))
            case statements.Update():
                return self._counts(self._update(statement))
            case statements.MergeInto():
                return self._counts(self._merge(statement))
            case statements.CreateTable():
                ddl.create(self._engine, self._find, statement)
                return self._nothing()
            case statements.AlterTable():
                ddl.alter(self._engine, self._find, statement)
                return self._nothing()
            case statements.Describe() | statements.Show():
                return describe.tell(self._engine, self._find, statement)
            case statements.Foreign(whole, verb, query, name):
                if name is not None:
                    self._refuse_caching(verb, name)
                if query is None:
                    return self._find.asked(whole, lambda: resolved(self._spark.sql(whole.text)))
                # A view's text would have names in it that mean our tables only now.
                with sessions.held(self._spark, {_VIEWS_AS_PLANS: "true"}):
                    return self._find.ask(self._find.relations(whole, within=query))
            case statements.Unsupported(verb=verb):
                raise UnsupportedFeatureError(
                    f"{verb} is not supported.", remedy="Run the other statements without it."
                )
            case _:
                ddl.manage(self._engine, self._find, statement)
                return self._nothing()

    def _refuse_caching(self, verb: str, name: Name) -> None:
        """Refuse to cache a table of the catalog: its next statement reads the latest version."""
        if self._find.table_name(name) is not None:
            raise self._find.refused(
                name.piece.start,
                f"{verb} TABLE is not supported for {name}, which is a table of the catalog",
                f"Cache a query instead: CACHE TABLE cached AS SELECT * FROM {name}.",
            )

    # INSERT

    def _insert(self, inserting: statements.Insert) -> Outcome:
        found = self._find.target(inserting.target)
        target = self._find.full_name(inserting.target)

        def rows(statement: Statement) -> DataFrame:
            schema = statement.base.schema
            if isinstance(inserting.source, Piece):
                relations = self._find.relations(inserting.source, sources=statement.sources)
                self._find.record(statement, relations)
                return self._in_columns(inserting, self._find.ask(relations), schema)
            return self._in_columns(
                inserting, self._values(inserting, inserting.source, schema), schema
            )

        def run(statement: Statement) -> Outcome:
            dynamic = self._is_dynamic(inserting, statement)
            where = None if dynamic else self._replaced(inserting)
            how = Insertion(
                replaces=inserting.overwrites or inserting.replace_where is not None,
                where=None
                if where is None
                else self._engine.condition(where, statement.base, self._find.moment),
                dynamic=dynamic,
                merges_schema=inserting.evolves_schema,
            )
            return insert(statement, rows(statement), how)

        return self._engine.redo(str(target), run, found)

    def _is_dynamic(self, inserting: statements.Insert, statement: Statement) -> bool:
        """Whether an INSERT OVERWRITE is of the partitions that get rows, as Spark is set."""
        mode = self._spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static") or ""
        given = {fold(item.column) for item in inserting.partition}
        is_open = any(fold(name) not in given for name in statement.base.partition_columns)
        return inserting.overwrites and mode.lower() == "dynamic" and is_open

    def _replaced(self, inserting: statements.Insert) -> str | None:
        """Return the condition on the rows that an INSERT replaces."""
        if inserting.replace_where is not None:
            return inserting.replace_where.text
        static = [f"{quoted(item.column)} <=> ({item.value.text})" for item in inserting.partition]
        return " AND ".join(static) or None if inserting.overwrites else None

    def _values(
        self, inserting: statements.Insert, values: statements.Values, schema: StructType
    ) -> DataFrame:
        columns = self._columns(inserting, schema)
        defaults: list[Edit] = []
        for row in values.rows:
            if len(row) != len(columns):
                at = row[0].start if row else values.piece.start
                raise self._find.refused(
                    at, f"{len(columns)} values are wanted, and {len(row)} are given"
                )
            defaults += [
                Edit(cell.start, cell.end, _default(column))
                for cell, column in zip(row, columns, strict=True)
                if _is_default(cell)
            ]
        spliced, before = Spliced(values.piece, tuple(defaults), ()), "SELECT * FROM VALUES "
        return self._find.asked(
            spliced,
            lambda: resolved(self._spark.sql(before + spliced.expression)),
            begins=len(before),
        )

    def _columns(self, inserting: statements.Insert, schema: StructType) -> list[StructField]:
        """Return the columns that values are given for, in order."""
        if inserting.columns:
            return [field_of(schema, name, str(inserting.target)) for name in inserting.columns]
        static = {fold(item.column) for item in inserting.partition}
        return [item for item in schema.fields if fold(item.name) not in static]

    def _in_columns(
        self, inserting: statements.Insert, rows: DataFrame, schema: StructType
    ) -> DataFrame:
        """Rename the columns of rows to those they are inserted into."""
        if not inserting.by_name:
            columns = [column.name for column in self._columns(inserting, schema)]
            # Further columns can only be new ones, by their own names.
            may_be_more = inserting.evolves_schema and not inserting.columns
            new = rows.columns[len(columns) :] if may_be_more else []
            if len(rows.columns) != len(columns) + len(new):
                raise self._find.refused(
                    inserting.target.piece.start,
                    f"table {inserting.target} takes {len(columns)} columns here,"
                    f" and {len(rows.columns)} are given",
                )
            rows = rows.toDF(*columns, *new)
        values = {}
        for item in inserting.partition:
            field = field_of(schema, item.column, str(inserting.target))
            values[item.column] = fitted_cast(F.expr(item.value.text), field.type, (field.name,))
        return rows.withColumns(values) if values else rows

    # DELETE and UPDATE

    def _delete(self, delete: statements.Delete) -> Outcome:
        found = self._find.target(delete.target)
        target = self._find.full_name(delete.target)

        def run(statement: Statement) -> Outcome:
            condition = delete.condition
            if condition is None:
                return dml.delete(statement, None)
            return dml.delete(
                statement, self._condition(statement, condition, target, delete.alias)
            )

        return self._engine.redo(str(target), run, found)

    def _update(self, update: statements.Update) -> Outcome:
        found = self._find.target(update.target)
        target = self._find.full_name(update.target)
        alias = update.alias or target.table
        columns = [_column(item.column, update.target, alias) for item in update.assignments]

        def run(statement: Statement) -> Outcome:
            condition = Condition(text="true", shown="true", alias=alias, is_repeatable=True)
            if update.condition is not None:
                condition = self._condition(statement, update.condition, target, update.alias)
            values = self._assigned(statement, update, target, columns)
            return dml.update(statement, columns, values, condition)

        return self._engine.redo(str(target), run, found)

    def _assigned(
        self,
        statement: Statement,
        update: statements.Update,
        target: TableName,
        columns: list[Path],
    ) -> Expressions:
        """Read the values of a SET list, and the tables their subqueries read."""
        found: list[str | Relations] = []
        first = 0
        for path, assignment in zip(columns, update.assignments, strict=True):
            if _is_default(assignment.value):
                field = field_of(statement.base.schema, path[0], str(update.target))
                found.append(_default(field))
                continue
            refuse_nondeterministic(contents(assignment.value.text))
            relations = self._find.relations(
                assignment.value, target=target, first=first, sources=statement.sources
            )
            first += len(relations.frames)
            self._resolve(statement, relations, update.alias or target.table)
            self._find.record(statement, relations)
            found.append(relations)
        asks = any(isinstance(item, Relations) and item.has_subqueries for item in found)
        texts = [
            (item.replace("{", "{{").replace("}", "}}") if asks else item)
            if isinstance(item, str)
            else (item.spliced.text if asks else item.spliced.expression)
            for item in found
        ]
        frames = {
            name: frame
            for item in found
            if isinstance(item, Relations)
            for name, frame in item.frames.items()
        }
        return Expressions(tuple(texts), update.alias or target.table, frames, asks)

    def _condition(
        self, statement: Statement, piece: Piece, target: TableName, alias: str | None
    ) -> Condition:
        """Read the condition of a DELETE or UPDATE, and the tables its subqueries read."""
        refuse_nondeterministic(contents(piece.text))
        relations = self._find.relations(piece, target=target, sources=statement.sources)
        self._resolve(statement, relations, alias or target.table)
        self._find.record(statement, relations)
        return Condition(
            text=relations.text,
            shown=piece.text,
            alias=alias or target.table,
            frames=relations.frames,
            has_subqueries=relations.has_subqueries,
            is_repeatable=not relations.has_subqueries and contents(piece.text).is_rowwise,
            predicate=condition_predicate(
                piece.text,
                statement.base.schema,
                labels=_labels(target, alias),
                is_utc=is_utc(self._spark),
            ),
        )

    def _resolve(self, statement: Statement, relations: Relations, alias: str) -> None:
        """Have Spark look at an expression on a table's columns while its place is known."""
        asked = Expressions((relations.text,), alias, relations.frames, relations.has_subqueries)
        self._find.asked(
            relations.spliced,
            lambda: asked.beside(statement.frame([]))[0].schema,
            begins=len("SELECT *, (") if relations.has_subqueries else 0,
        )

    # MERGE

    def _merge(self, merging: statements.MergeInto) -> Outcome:
        found = self._find.target(merging.target)
        target = self._find.full_name(merging.target)
        target_alias = merging.target_alias or target.table
        source_alias = merging.source_alias or _called(merging.source)
        refuse_nondeterministic(contents(merging.on.text))

        def run(statement: Statement) -> Outcome:
            source = self._source(statement, merging)
            predicate = condition_predicate(
                merging.on.text,
                statement.base.schema,
                labels=_labels(target, merging.target_alias),
                others=[fold(source_alias), *map(fold, source.columns)],
                is_utc=is_utc(self._spark),
            )
            clauses = [
                self._clause(clause, target, target_alias, merging, statement.base.schema)
                for clause in merging.clauses
            ]
            planned = Merge(
                source,
                self._plain(merging.on, target),
                clauses,
                target_alias=target_alias,
                source_alias=source_alias,
                predicate=predicate,
                evolves=merging.evolves_schema,
            )
            try:
                return merge(statement, planned)
            except (InvalidArgumentError, SyntaxRefusedError) as error:
                if isinstance(error.__cause__, AnalysisException):
                    self._point_at_fault(statement, merging, planned, target)
                raise

        return self._engine.redo(str(target), run, found)

    def _point_at_fault(
        self, statement: Statement, merging: statements.MergeInto, planned: Merge, target: TableName
    ) -> None:
        """Let Spark check each expression alone, and report the position of the first error."""
        sides = {
            When.NOT_MATCHED: planned.source.alias(planned.source_alias),
            When.NOT_MATCHED_BY_SOURCE: statement.frame([]).alias(planned.target_alias),
        }
        left, right = sides[When.NOT_MATCHED_BY_SOURCE], sides[When.NOT_MATCHED]
        sides[When.MATCHED] = left.crossJoin(right)
        pieces = [(When.MATCHED, merging.on)]
        for clause in merging.clauses:
            pieces += [(clause.when, piece) for piece in _expressions(clause)]
        for when, piece in pieces:
            spliced = self._find.relations(piece, target=target).spliced
            self._find.asked(spliced, partial(_look_at, sides[when], spliced.expression))

    def _source(self, statement: Statement, merging: statements.MergeInto) -> DataFrame:
        if not isinstance(merging.source, Piece):
            return self._table(statement, merging.source)
        relations = self._find.relations(merging.source, sources=statement.sources)
        frame = self._find.ask(relations)
        self._find.record(statement, relations)
        # Rows are read twice and must be the same: those that may change are written to a folder.
        made_of = contents(merging.source.text)
        if made_of.is_rowwise and not made_of.is_choosing and not relations.foreign:
            return frame
        with translated():
            return statement.aside(frame)

    def _table(self, statement: Statement, reference: statements.TableReference) -> DataFrame:
        if (ours := self._find.table(reference, statement.sources)) is not None:
            frame, scans = ours
            statement.add_scans(scans)
            return frame
        name = ".".join(map(quoted, reference.name.parts))
        theirs = self._find.asked(reference.piece, lambda: resolved(self._spark.table(name)))
        self._find.record_view(statement, theirs)
        with translated():
            return statement.aside(theirs)

    def _clause(
        self,
        clause: statements.MergeClause,
        target: TableName,
        alias: str,
        merging: statements.MergeInto,
        schema: StructType,
    ) -> Clause:
        condition = None
        if clause.condition is not None:
            refuse_nondeterministic(contents(clause.condition.text))
            condition = self._plain(clause.condition, target)
        if clause.values is None:
            return Clause(clause.when, clause.do, condition)
        columns = [_column(name, merging.target, alias) for name in clause.columns]
        columns, given = columns or [(item.name,) for item in schema.fields], clause.values
        if len(columns) != len(given):
            raise self._find.refused(
                given[0].start if given else merging.on.start,
                f"{len(columns)} values are wanted, and {len(given)} are given",
            )
        given_values: dict[str | Path, Expression] = {
            path: _default(field_of(schema, path[0], str(target)))
            if _is_default(value)
            else self._plain(value, target)
            for path, value in zip(columns, given, strict=True)
        }
        return Clause(clause.when, clause.do, condition, given_values)

    def _plain(self, piece: Piece, target: TableName) -> str:
        """Return an expression; raise if it has subqueries."""
        relations = self._find.relations(piece, target=target)
        if relations.has_subqueries:
            raise self._find.refused(piece.start, "MERGE takes no subqueries in its clauses")
        return relations.text

    # Telling

    def _counts(self, outcome: Outcome) -> DataFrame:
        counts: dict[str, int | None] = {**outcome.counts} or {"num_affected_rows": None}
        schema = ", ".join(f"{name} long" for name in counts)
        return self._spark.createDataFrame([tuple(counts.values())], schema)

    def _nothing(self) -> DataFrame:
        return self._spark.createDataFrame([], "result string")


def _look_at(rows: DataFrame, text: str) -> None:
    """Have Spark resolve an expression on rows, and compute nothing."""
    _ = rows.select(F.expr(text)).schema


def _expressions(clause: statements.MergeClause) -> list[Piece]:
    """Yield the expressions of a clause, in the order of the text."""
    found = [] if clause.condition is None else [clause.condition]
    return [piece for piece in (*found, *(clause.values or ())) if not _is_default(piece)]


def _labels(target: TableName, alias: str | None) -> list[tuple[str, ...]]:
    """Return the names that a table's columns may be qualified with."""
    if alias is not None:
        return [(alias,)]
    parts = (target.catalog, target.schema, target.table)
    return [parts[n:] for n in range(3)]


def _called(source: statements.TableReference | Piece) -> str:
    return "source" if isinstance(source, Piece) else source.name.parts[-1]


def _column(name: Name, target: Name, alias: str) -> Path:
    """Return the assigned column, without its qualifier."""
    parts = name.parts
    for label in (target.parts, target.parts[-1:], (alias,)):
        if len(parts) > len(label) and list(map(fold, parts[: len(label)])) == list(
            map(fold, label)
        ):
            return parts[len(label) :]
    return parts


def _is_default(piece: Piece) -> bool:
    return piece.text.strip().upper() == "DEFAULT"


def _default(field: StructField) -> str:
    default = field.metadata.get(DEFAULT)
    return default if isinstance(default, str) else "NULL"
