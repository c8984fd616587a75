"""Resolve the tables that a SQL text names to DataFrames, all at the same moment.

Spark resolves other tables, views and functions. Errors of Spark are reported with the position in
the user's script.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.api.messages import Resolved
from headgate.client.open_transaction import scan_of
from headgate.errors import InvalidNameError, NotFoundError, UnsupportedFeatureError
from headgate.names import TableName, fold
from headgate.spark import scan
from headgate.spark.conditions import is_utc, moment_of
from headgate.spark.engine import Engine
from headgate.spark.failures import first_line, offset_of, quietly
from headgate.spark.schema_conversion import parts_of, quoted
from headgate.spark.sessions import is_remote, resolved
from headgate.spark.statement import Cut, Statement
from headgate.sql import positions
from headgate.sql.condition_analysis import contents, table_predicate
from headgate.sql.queries import Reference, find_count
from headgate.sql.rewrite import STAND_IN_WIDTH, Spliced, StandIn, splice
from headgate.sql.statements import Name, Piece, TableReference
from headgate.table.snapshot import Snapshot

Answer = TypeVar("Answer")

_ALONE: Final = "t0"
# What Spark says of a name it knows no table by, and the parameter that has the name. The second
# is of names of three parts: in its own catalog they have two.
_UNKNOWN: Final = {
    "TABLE_OR_VIEW_NOT_FOUND": "relationName",
    "REQUIRES_SINGLE_PART_NAMESPACE": "identifier",
}
_REMOTE_WIDTH: Final = 59  # of the name that a DataFrame gets over Spark Connect


@dataclass(frozen=True)
class Relations:
    """A piece of text, and the DataFrames for the tables in it."""

    spliced: Spliced
    has_subqueries: bool
    foreign: tuple[Name, ...]  # views and tables of Spark's
    frames: dict[str, DataFrame]

    @property
    def text(self) -> str:
        """The text as it goes to Spark: formatted where it has subqueries, else as it is."""
        return self.spliced.text if self.has_subqueries else self.spliced.expression


class Resolver:
    """Finds the tables of one script, and asks Spark in its words."""

    def __init__(self, engine: Engine, script: str) -> None:
        self.script = script
        self.engine = engine
        self._spark = engine.spark
        self._session = engine.session
        self.begin()

    def begin(self) -> None:
        """Begin a statement: functions of the time return this moment."""
        self.moment = moment_of(self._session.clock.now_ms())
        self._sources = Cut(self._session)
        self._writing: Statement | None = None
        self._foreign: list[Name] = []  # of the statement: left to Spark

    def read_for(self, statement: Statement) -> None:
        """Read tables as of the sequence of a statement that writes, and record them in it."""
        self._sources = statement.sources
        self._writing = statement

    def full_name(self, name: Name) -> TableName:
        """Return the full name of a table, whether it exists or not."""
        return self._session.table_name(str(name))

    def table_name(self, name: Name) -> TableName | None:
        """Return the full name of a table of the catalog; None if it is not one."""
        # A view of the session hides what lies behind it.
        if len(name.parts) > 1 or not self._spark.catalog.tableExists(quoted(name.parts[0])):
            with suppress(InvalidNameError):
                full = self.full_name(name)
                if self._sources.find(full) is not None:
                    return full
        self._foreign.append(name)
        return None

    def target(self, name: Name) -> Resolved:
        """Resolve a managed table that is written to or described."""
        text, at = str(name), name.piece.start
        try:
            found = self._session.find(text)
        except InvalidNameError as error:
            raise self.refused(at, error.message.rstrip(".")) from error
        if found is None:
            raise NotFoundError(
                f"There is no table {name}, {positions.pointed(self.script, at)}"
                f"{self._session.suggestion(text).strip()}"
            )
        if not found.catalog_managed:
            raise UnsupportedFeatureError(
                f"{name} is an external {found.format} table at {found.location}, which the catalog"
                f" does not manage, {positions.pointed(self.script, at)}",
                remedy="Read it with SELECT; change it with the engine that owns it.",
            )
        return found

    def relations(
        self,
        piece: Piece,
        *,
        within: Piece | None = None,
        target: TableName | None = None,
        first: int = 0,
    ) -> Relations:
        """Splice a query, or an expression on the rows of a table, and read what it names.

        All tables are read as of one sequence.
        """
        before = len(self._foreign)
        spliced = splice(
            self.script,
            piece,
            resolve=self.table_name,
            within=within,
            targets=() if target is None else (target,),
            first=first,
            moment=self.moment,
        )
        has_subqueries = bool(spliced.stand_ins) or contents(piece.text).has_subquery
        foreign = tuple(self._foreign[before:])
        for name in foreign if self._writing is not None else ():
            with quietly(), suppress(AnalysisException):  # Spark will report what is wrong with it
                self._record_view(self._foreign_table(name))
        return Relations(spliced, has_subqueries, foreign, self._read(spliced.stand_ins))

    def _record_view(self, view: DataFrame) -> None:
        """Record which tables of ours a view reads, as they were when it was made."""
        if self._writing is not None:
            scans = self.engine.scans_of(view)
            self._writing.add_scans(scans)
            self._writing.reads_views |= bool(scans)

    def _foreign_table(self, name: Name) -> DataFrame:
        return resolved(self._spark.table(".".join(map(quoted, name.parts))))

    def table(self, reference: TableReference) -> tuple[DataFrame, bool]:
        """Read a table that is named outside any query; also return whether it is ours."""
        if (alone := self._alone(reference)) is not None:
            return self._read([alone])[_ALONE], True
        theirs = self.asked(reference.piece, lambda: self._foreign_table(reference.name))
        self._record_view(theirs)
        return theirs, False

    def count(self, query: Piece) -> DataFrame | None:
        """Answer a query that counts a table's rows from its log; None if that is not possible."""
        if (count := find_count(self.script, query)) is None:
            return None
        table, column = count
        if (alone := self._alone(table)) is None:
            return None
        [snapshot] = self._snapshots([alone])
        file = None if snapshot.num_rows is None else snapshot.some_file()
        if file is None:
            return None
        # One row of a file: a write that uses the answer has read this table, which is recognized
        # by the files of its plan.
        if table.as_of is None:
            self.engine.remember(snapshot, None, snapshot.files())
        number = F.lit(snapshot.num_rows).cast("bigint").alias(column)
        return scan.dataframe(self._spark, snapshot, [file]).limit(1).select(number)

    def _alone(self, reference: TableReference) -> StandIn | None:
        name = self.table_name(reference.name)
        if name is None:
            return None
        alone = Reference(reference, None, None, (), frozenset(), reference.piece)
        return StandIn(_ALONE, name, alone)

    def _read(self, stand_ins: Sequence[StandIn]) -> dict[str, DataFrame]:
        frames: dict[str, DataFrame] = {}
        for stand_in, snapshot in zip(stand_ins, self._snapshots(stand_ins), strict=True):
            where = table_predicate(stand_in, snapshot.schema, is_utc=is_utc(self._spark))
            files = snapshot.files(where)
            frames[stand_in.name] = scan.dataframe(self._spark, snapshot, files)
            if stand_in.reference.table.as_of is not None:
                continue  # the past does not change: nothing that comes could disturb this read
            if snapshot.table_id is None:
                continue  # an external table: no commit of this catalog changes it
            self.engine.remember(snapshot, where, files)
            if self._writing is not None:
                self._writing.add_scans([scan_of(snapshot, where, files)])
        return frames

    def ask(self, relations: Relations) -> DataFrame:
        """Return the result of a query."""
        frames: dict[str, Any] = dict(relations.frames)
        # Without frames Spark formats nothing: braces are not doubled.
        text = relations.spliced.text if frames else relations.spliced.expression
        return self.asked(relations.spliced, lambda: resolved(self._spark.sql(text, **frames)))

    def asked(self, text: Piece | Spliced, ask: Callable[[], Answer], *, begins: int = 0) -> Answer:
        """Call Spark, and report its errors at the position in the script.

        The text that Spark parses begins with `begins` characters that are not the user's.
        """
        try:
            with quietly():
                return ask()
        except (ParseException, AnalysisException) as error:
            offset = offset_of(error)
            offset = None if offset is None else max(0, offset - begins)
            if isinstance(text, Spliced):
                width = _REMOTE_WIDTH if is_remote(self._spark) else STAND_IN_WIDTH
                at = text.piece.start if offset is None else text.origin(offset, width)
            else:
                at = text.start + (offset or 0)
            why = first_line(error).rstrip(".")
            named = self._unknown(error)
            if named is not None and offset is None:  # Spark says neither where nor what is wrong
                at, why = named.piece.start, f"there is no table {named}"
            remedy = None if named is None else self._hint(named)
            raise self.refused(at, why, remedy) from error

    def _unknown(self, error: AnalysisException) -> Name | None:
        """Return the name that Spark cannot resolve, if that is the error."""
        key = _UNKNOWN.get(error.getCondition() or "")
        name = (error.getMessageParameters() or {}).get(key or "", "")
        parts = tuple(map(fold, parts_of(name) or ()))
        return next((n for n in self._foreign if tuple(map(fold, n.parts)) == parts), None)

    def _hint(self, name: Name) -> str | None:
        """Return a remedy that suggests a similar table."""
        try:
            hint = self._session.suggestion(str(name))
        except InvalidNameError:
            return None
        except NotFoundError as error:  # there is no such namespace
            return error.message
        return f"{hint.strip()} SHOW TABLES lists the tables." if hint else None

    def refused(self, at: int, why: str, remedy: str | None = None) -> Exception:
        """Make the error that points at a place in the script."""
        return positions.refused(self.script, min(at, len(self.script)), why, remedy)

    def _snapshots(self, stand_ins: Sequence[StandIn]) -> list[Snapshot]:
        """Load each table: at the version or time it names, or as of the sequence of all."""
        names = {stand_in.table.key for stand_in in stand_ins}
        managed_now = {
            stand_in.table.key
            for stand_in in stand_ins
            if stand_in.reference.table.as_of is None
            and self._sources.resolved(stand_in.table).catalog_managed
        }
        if len(managed_now) > 1:
            self._sources.require_sequence()
        found = []
        for stand_in in stand_ins:
            resolved = self._sources.resolved(stand_in.table)
            match stand_in.reference.table.as_of:
                case int() as version:
                    found.append(self._session.load(resolved, version))
                case Piece() as piece:
                    at = self.time_ms(piece)
                    if len(names) > 1 and resolved.catalog_managed:
                        # Several tables are read at one cut; a single one by its own commits.
                        name = str(stand_in.table)
                        found.append(self._session.read_cut([name], as_of=at)[name])
                    else:
                        found.append(self._session.load(resolved, as_of=at))
                case None:
                    found.append(self._sources.snapshot(stand_in.table))
        return found

    def time_ms(self, piece: Piece) -> int:
        """Evaluate a time, which Spark parses in its own time zone."""
        text = splice(self.script, piece, resolve=lambda _: None, moment=self.moment).expression
        asked = f"SELECT unix_millis(CAST(({text}) AS TIMESTAMP_LTZ)) AS at"
        row = self.asked(piece, lambda: self._spark.sql(asked).first())
        if row is None or row["at"] is None:
            raise self.refused(piece.start, "this is not a valid time")
        return int(row["at"])
