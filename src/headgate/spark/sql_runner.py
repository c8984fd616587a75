"""Run SQL statements: those on our tables by the lake, the rest by Spark."""

from collections.abc import Callable
from functools import partial
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.client.open_transaction import Transaction
from headgate.errors import InvalidArgumentError, SyntaxRefusedError, UnsupportedFeatureError
from headgate.names import TableName, fold
from headgate.protocol.commit.conflicts import Isolation
from headgate.protocol.schema.types import DEFAULT, Path, StructField, StructType
from headgate.spark import ddl, describe, dml, sessions
from headgate.spark.conditions import (
    Condition,
    Expression,
    Expressions,
    is_utc,
    refuse_nondeterministic,
)
from headgate.spark.dml import Outcome, field_of
from headgate.spark.engine import Engine
from headgate.spark.failures import translated
from headgate.spark.insert import Insertion, insert
from headgate.spark.merge import Clause, Merge, merge
from headgate.spark.relations import Relations, Resolver
from headgate.spark.schema_conversion import quoted
from headgate.spark.sessions import resolved
from headgate.spark.statement import Statement
from headgate.spark.store_assignment import fitted_cast
from headgate.spark.transactions import OpenTransaction
from headgate.sql import statements
from headgate.sql.condition_analysis import condition_predicate, contents
from headgate.sql.rewrite import Edit, Spliced
from headgate.sql.script import parse
from headgate.sql.statements import Name, Piece, When

_RETRIES: Final = 3  # of BEGIN ATOMIC … END, after conflicts
_VIEWS_AS_PLANS: Final = "spark.sql.legacy.storeAnalyzedPlanForView"


def run(engine: Engine, text: str) -> DataFrame:
    """Run every statement of a script, and return the result of the last one.

    A transaction that the script begins is rolled back if it does not end it, or fails.
    """
    connection = Connection(engine)
    try:
        result = connection.run(text)
        connection.refuse_open()
    finally:
        connection.close()
    return result


class Connection:
    """Runs scripts one after the other; a transaction may extend over several."""

    def __init__(self, engine: Engine) -> None:
        self.outside = engine
        self.transaction: OpenTransaction | None = None  # begun by a statement
        self._inside: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The engine that runs the next statement."""
        return self._inside or self.outside

    def begin(self, transaction: Transaction) -> OpenTransaction:
        """Run the next statements in a transaction."""
        self.transaction = OpenTransaction(transaction)
        self._inside = self.outside.within(transaction, feeds=False)
        return self.transaction

    def end(self) -> None:
        """Run the next statements outside of a transaction."""
        self.transaction = self._inside = None

    def run(self, text: str) -> DataFrame:
        """Run every statement of a script, and return the result of the last one."""
        result: DataFrame | None = None
        for statement in parse(text):
            result = _Script(self, text).run(statement)
        if result is None:
            raise InvalidArgumentError("There is no statement in this text.")
        return result

    def refuse_open(self) -> None:
        """Refuse to end inside a transaction, which is rolled back."""
        if self.close():
            raise InvalidArgumentError(
                "The script ended inside a transaction, which was rolled back.",
                remedy="End it with COMMIT or ROLLBACK in the same text.",
            )

    def close(self) -> bool:
        """Roll back the transaction that is open; return whether there was one."""
        transaction = self.transaction
        self.end()
        if transaction is None or transaction.is_ended:
            return False
        transaction.rollback()
        return True


class _Script:
    """A script that is running."""

    def __init__(self, connection: Connection, text: str) -> None:
        self._connection = connection
        self._engine = engine = connection.engine
        self._spark = engine.spark
        self._find = Resolver(engine, text)

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
                return self._change(statement.target, partial(self._insert, statement))
            case statements.Delete():
                return self._change(statement.target, partial(self._delete, statement))
            case statements.Update():
                return self._change(statement.target, partial(self._update, statement))
            case statements.MergeInto():
                return self._change(statement.target, partial(self._merge, statement))
            case statements.CreateTable():
                ddl.create(self._find, statement)
                return self._nothing()
            case statements.AlterTable():
                ddl.alter(self._find, statement)
                return self._nothing()
            case statements.BeginTransaction():
                return self._begin(statement)
            case statements.AtomicBlock():
                return self._atomic(statement)
            case statements.EndTransaction(commits=commits):
                return self._end(statement.whole, commits=commits)
            case statements.OnSavepoint():
                self._open(statement.whole).on_savepoint(statement.action, statement.name)
                return self._nothing()
            case statements.ShowTransaction():
                return self._open(statement.whole).described(self._spark)
            case statements.Describe() | statements.Show():
                return describe.answer(self._find, statement)
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
                ddl.manage(self._find, statement)
                return self._nothing()

    def _refuse_caching(self, verb: str, name: Name) -> None:
        """Refuse to cache a table of the catalog: its next statement reads the latest version."""
        if self._find.table_name(name) is not None:
            raise self._find.refused(
                name.piece.start,
                f"{verb} TABLE is not supported for {name}, which is a table of the catalog",
                f"Cache a query instead: CACHE TABLE cached AS SELECT * FROM {name}.",
            )

    def _change(self, name: Name, run: Callable[[TableName, Statement], Outcome]) -> DataFrame:
        """Run a statement that changes a table's rows, and return its counts."""
        found = self._find.target(name)
        target = self._find.full_name(name)

        def attempt(statement: Statement) -> Outcome:
            self._find.read_for(statement)
            return run(target, statement)

        outcome = self._engine.redo(str(target), attempt, found)
        counts: dict[str, int | None] = {**outcome.counts} or {"num_affected_rows": None}
        schema = ", ".join(f"{name} long" for name in counts)
        return self._spark.createDataFrame([tuple(counts.values())], schema)

    def _nothing(self) -> DataFrame:
        return self._spark.createDataFrame([], "result string")

    # Transactions

    def _refuse_second(self, whole: Piece) -> None:
        if self._engine.transaction is not None:
            raise self._find.refused(
                whole.start,
                "a transaction is open already",
                "End it first, or use SAVEPOINT for a part of it.",
            )

    def _atomic(self, block: statements.AtomicBlock) -> DataFrame:
        self._refuse_second(block.whole)

        def run(transaction: Transaction) -> OpenTransaction:
            inside = self._connection.begin(transaction)
            try:
                for statement in block.body:
                    _Script(self._connection, self._find.script).run(statement)
            finally:
                self._connection.end()
            return inside

        ended = self._engine.session.transact(
            run,
            tries=1 + (_RETRIES if block.retries is None else block.retries),
            isolation=block.isolation or Isolation.WRITE_SERIALIZABLE,
        )
        return ended.described(self._spark)

    def _begin(self, begin: statements.BeginTransaction) -> DataFrame:
        self._refuse_second(begin.whole)
        as_of = begin.as_of
        transaction = self._engine.session.transaction(
            isolation=begin.isolation or Isolation.WRITE_SERIALIZABLE,
            read_only=begin.read_only,
            sequence=as_of if isinstance(as_of, int) else None,
            as_of=self._find.time_ms(as_of) if isinstance(as_of, Piece) else None,
        )
        return self._connection.begin(transaction).described(self._spark)

    def _end(self, whole: Piece, *, commits: bool) -> DataFrame:
        transaction = self._open(whole)
        try:
            if commits:
                transaction.commit()
            else:
                transaction.rollback()
        finally:
            if transaction.is_ended:
                self._connection.end()
        return transaction.described(self._spark)

    def _open(self, whole: Piece) -> OpenTransaction:
        transaction = self._connection.transaction
        if transaction is None:
            raise self._find.refused(
                whole.start, "no transaction is open", "Begin one with BEGIN TXN."
            )
        return transaction

    # INSERT

    def _insert(
        self, inserting: statements.Insert, target: TableName, statement: Statement
    ) -> Outcome:
        schema = statement.base.schema
        dynamic = self._is_dynamic(inserting, statement)
        replaced = None if dynamic else _replaced(inserting)
        where = None
        if replaced is not None:
            where = self._engine.condition(replaced, statement.base, self._find.moment)
        if isinstance(inserting.source, Piece):
            rows = self._find.ask(self._find.relations(inserting.source))
        else:
            rows = self._values(inserting, inserting.source, schema)
        how = Insertion(
            replaces=inserting.overwrites or inserting.replace_where is not None,
            where=where,
            dynamic=dynamic,
            merges_schema=inserting.evolves_schema,
        )
        return insert(statement, self._in_columns(inserting, rows, schema), how)

    def _is_dynamic(self, inserting: statements.Insert, statement: Statement) -> bool:
        """Return True for an INSERT OVERWRITE of the partitions that get rows, as Spark is set."""
        mode = self._spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static") or ""
        given = {fold(item.column) for item in inserting.partition}
        is_open = any(fold(name) not in given for name in statement.base.partition_columns)
        return inserting.overwrites and mode.lower() == "dynamic" and is_open

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

    def _delete(
        self, delete: statements.Delete, target: TableName, statement: Statement
    ) -> Outcome:
        condition = None
        if delete.condition is not None:
            condition = self._condition(statement, delete.condition, target, delete.alias)
        return dml.delete(statement, condition)

    def _update(
        self, update: statements.Update, target: TableName, statement: Statement
    ) -> Outcome:
        alias = update.alias or target.table
        columns = [_column(item.column, update.target, alias) for item in update.assignments]
        condition = Condition(text="true", shown="true", alias=alias, is_repeatable=True)
        if update.condition is not None:
            condition = self._condition(statement, update.condition, target, update.alias)
        values: list[Spliced] = []
        frames: dict[str, DataFrame] = {}
        has_subqueries = False
        for path, assignment in zip(columns, update.assignments, strict=True):
            if _is_default(assignment.value):
                default = _default(field_of(statement.base.schema, path[0], str(update.target)))
                values.append(Spliced(Piece(default, 0), (), ()))
                continue
            relations = self._expression(
                statement, assignment.value, target, alias, first=len(frames)
            )
            values.append(relations.spliced)
            frames |= relations.frames
            has_subqueries |= relations.has_subqueries
        texts = tuple(value.text if has_subqueries else value.expression for value in values)
        expressions = Expressions(texts, alias, frames, has_subqueries)
        return dml.update(statement, columns, expressions, condition)

    def _condition(
        self, statement: Statement, piece: Piece, target: TableName, alias: str | None
    ) -> Condition:
        """Read the condition of a DELETE or UPDATE."""
        relations = self._expression(statement, piece, target, alias or target.table)
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

    def _expression(
        self, statement: Statement, piece: Piece, target: TableName, alias: str, first: int = 0
    ) -> Relations:
        """Read an expression on a table's columns, and the tables its subqueries read."""
        refuse_nondeterministic(contents(piece.text))
        found = self._find.relations(piece, target=target, first=first)
        # Spark resolves it while its place is known.
        asked = Expressions((found.text,), alias, found.frames, found.has_subqueries)
        self._find.asked(
            found.spliced,
            lambda: asked.beside(statement.frame([]))[0].schema,
            begins=len("SELECT *, (") if found.has_subqueries else 0,
        )
        return found

    # MERGE

    def _merge(
        self, merging: statements.MergeInto, target: TableName, statement: Statement
    ) -> Outcome:
        target_alias = merging.target_alias or target.table
        source_alias = merging.source_alias or "source"
        if merging.source_alias is None and not isinstance(merging.source, Piece):
            source_alias = merging.source.name.parts[-1]
        refuse_nondeterministic(contents(merging.on.text))
        source = self._source(statement, merging)
        schema = statement.base.schema
        predicate = condition_predicate(
            merging.on.text,
            schema,
            labels=_labels(target, merging.target_alias),
            others=[fold(source_alias), *map(fold, source.columns)],
            is_utc=is_utc(self._spark),
        )
        planned = Merge(
            source,
            self._plain(merging.on, target),
            [self._clause(c, target, target_alias, merging, schema) for c in merging.clauses],
            target_alias,
            source_alias,
            predicate=predicate,
            evolves=merging.evolves_schema,
        )
        try:
            return merge(statement, planned)
        except (InvalidArgumentError, SyntaxRefusedError) as error:
            if isinstance(error.__cause__, AnalysisException):
                self._point_at_fault(statement, merging, planned, target)
            raise

    def _point_at_fault(
        self, statement: Statement, merging: statements.MergeInto, planned: Merge, target: TableName
    ) -> None:
        """Let Spark check each expression alone, and report the position of the first error."""
        source = planned.source.alias(planned.source_alias)
        rows = statement.frame([]).alias(planned.target_alias)
        sides = {
            When.MATCHED: rows.crossJoin(source),
            When.NOT_MATCHED: source,
            When.NOT_MATCHED_BY_SOURCE: rows,
        }
        pieces = [(When.MATCHED, merging.on)]
        for clause in merging.clauses:
            found = (clause.condition, *(clause.values or ()))
            pieces += [(clause.when, p) for p in found if p is not None and not _is_default(p)]
        for when, piece in pieces:
            spliced = self._find.relations(piece, target=target).spliced
            self._find.asked(spliced, partial(_look_at, sides[when], spliced.expression))

    def _source(self, statement: Statement, merging: statements.MergeInto) -> DataFrame:
        # Rows are read twice and must be the same: those that may change are written to a folder.
        if isinstance(merging.source, Piece):
            relations = self._find.relations(merging.source)
            frame = self._find.ask(relations)
            made_of = contents(merging.source.text)
            is_fixed = made_of.is_rowwise and not made_of.is_choosing and not relations.foreign
        else:
            frame, is_fixed = self._find.table(merging.source)
        if is_fixed:
            return frame
        with translated():
            return statement.aside(frame)

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


def _replaced(inserting: statements.Insert) -> str | None:
    """Return the condition on the rows that an INSERT replaces; None for all rows, or none."""
    if inserting.replace_where is not None:
        return inserting.replace_where.text
    if not inserting.overwrites:
        return None
    static = [f"{quoted(item.column)} <=> ({item.value.text})" for item in inserting.partition]
    return " AND ".join(static) or None


def _look_at(rows: DataFrame, text: str) -> None:
    """Have Spark resolve an expression on rows, and compute nothing."""
    _ = rows.select(F.expr(text)).schema


def _labels(target: TableName, alias: str | None) -> list[tuple[str, ...]]:
    """Return the names that a table's columns may be qualified with."""
    if alias is not None:
        return [(alias,)]
    parts = (target.catalog, target.schema, target.table)
    return [parts[n:] for n in range(3)]


def _column(name: Name, target: Name, alias: str) -> Path:
    """Return the assigned column, without its qualifier."""
    parts = name.parts
    for label in (target.parts, target.parts[-1:], (alias,)):
        size = len(label)
        if len(parts) > size and [*map(fold, parts[:size])] == [*map(fold, label)]:
            return parts[size:]
    return parts


def _is_default(piece: Piece) -> bool:
    return piece.text.strip().upper() == "DEFAULT"


def _default(field: StructField) -> str:
    default = field.metadata.get(DEFAULT)
    return default if isinstance(default, str) else "NULL"
