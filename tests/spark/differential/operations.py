"""Random operations on a table, each in the words of ours, delta-spark and DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

from headgate.spark.merge import Clause, Do, When
from tests.spark.differential import values
from tests.spark.differential.tables import KEY, Column, Table, random_rows
from tests.spark.differential.values import Text, name_of, text

SOURCE = "source"  # what the rows an operation brings are called, as a view
NOTHING = Text("NULL", "NULL")


@dataclass(frozen=True)
class Written:
    """Rows written by a DataFrame."""

    mode: str = "append"
    where: str | None = None
    dynamic: bool = False
    merges_schema: bool = False

    @property
    def options(self) -> dict[str, str]:
        """What delta-spark calls all this."""
        options = {"mergeSchema": str(self.merges_schema).lower()}
        if self.where is not None:
            options["replaceWhere"] = self.where
        if self.dynamic:
            options["partitionOverwriteMode"] = "dynamic"
        return options


@dataclass(frozen=True)
class Called:
    """A DELETE, UPDATE or MERGE as the lake's own method takes it."""

    where: str | None = None
    values: tuple[tuple[str, str], ...] | None = None
    on: str | None = None
    clauses: tuple[Clause, ...] = ()
    evolves: bool = False


@dataclass(frozen=True)
class Operation:
    """One thing done to a table."""

    after: Table
    sql: str | None = None  # in Spark's words, `{t}` for the table; else it is `written`
    written: Written | None = None
    called: Called | None = None  # ours is asked by a method instead of by SQL
    duck: tuple[str, ...] | None = None  # None: DuckDB cannot say it
    source: pa.Table | None = None
    may_be_refused: bool = False

    def __str__(self) -> str:
        statement = self.sql if self.written is None else str(self.written)
        asked = "" if self.called is None else "  -- by method"
        with_rows = "" if self.source is None else f"\n    source: {self.source.to_pylist()}"
        return f"{statement}{asked}{with_rows}"


class Plan:
    """What is done next: chance decides, knowing the table as it then is."""

    def __init__(self, chance: Random, table: Table) -> None:
        self.chance = chance
        self.table = table
        self.keys: list[int] = []
        self.added = 0

    def first(self) -> Operation:
        return self._append(num_rows=12)

    def next(self) -> Operation:
        kinds: list[tuple[int, Callable[[], Operation]]] = [
            (3, self._append),
            (2, self._insert),
            (4, self._delete),
            (4, self._update),
            (2, self._replace_where),
            (1, self._overwrite),
            (2, self._add_column),
            (2, self._merge_schema),
        ]
        # A MERGE that names such a column is refused by delta-spark.
        can_merge = not any("`" in column.name for column in self.table.columns)
        if can_merge:
            kinds.append((6, self._merge))
        if self.table.partition_by:
            kinds.append((2, self._dynamic))
        if any(column.kind is values.POINT for column in self.table.given):
            kinds.append((2, self._grow_field))
            if can_merge:
                kinds.append((2, self._merge_field))
        if self.table.mapping != "none":
            kinds.append((1, self._rename))
            kinds.append((1, self._drop_column))
        [choice] = self.chance.choices([k for _, k in kinds], [w for w, _ in kinds])
        return choice()

    # Writes

    def _append(self, num_rows: int = 5) -> Operation:
        breaks = 0.0 if num_rows > 5 else 0.04
        source = self._rows(self.table.given, self._new_keys(num_rows), breaks)
        return self._by_frame(Written(), source, ())

    def _overwrite(self) -> Operation:
        source = self._rows(self.table.given, self._new_keys(8))
        return self._by_frame(Written("overwrite"), source, ("DELETE FROM t",))

    def _replace_where(self) -> Operation:
        low = self.chance.choice(self.keys or [0])
        high = low + self.chance.randint(1, 6)
        bounds = [Text(str(low), str(low)), Text(str(high), str(high))]
        where = text("{0} >= {1} AND {0} < {2}", name_of(KEY), *bounds)
        keys = [self.chance.randrange(low, high) for _ in range(4)]
        outside = self.chance.random() < 0.1
        source = self._rows(self.table.given, [*keys, high] if outside else keys)
        gone = (f"DELETE FROM t WHERE {where.duck}",)
        if self.chance.random() < 0.5:
            return self._by_frame(Written("overwrite", where.spark), source, gone, refused=outside)
        names = _listed(self.table.given)
        return Operation(
            self.table,
            f"INSERT INTO {{t}} REPLACE WHERE {where.spark}"
            f" SELECT {self._selected()} FROM {SOURCE}",
            duck=(*gone, *self._inserted(names)),
            source=source,
            may_be_refused=True,
        )

    def _dynamic(self) -> Operation:
        source = self._rows(self.table.given, self._new_keys(5))
        same = " AND ".join(
            f"s.{name_of(name).duck} IS NOT DISTINCT FROM t.{name_of(name).duck}"
            for name in self.table.partition_by
        )
        gone = (f"DELETE FROM t WHERE EXISTS (SELECT 1 FROM {SOURCE} AS s WHERE {same})",)
        return self._by_frame(Written("overwrite", dynamic=True), source, gone)

    def _merge_schema(self) -> Operation:
        column = self._new_column()
        after = self.table.with_column(column)
        # delta-spark wants partition columns in every DataFrame, and what others are computed of;
        # and whether one that leaves a column out means its default is each engine's own word.
        computed = [c.generated.spark for c in after.columns if c.generated is not None]
        given = [
            c
            for c in after.given
            if c is column
            or any(c.quoted.spark in text for text in computed)
            or not c.nullable
            or c.default is not None
            or c.name in self.table.partition_by
            or self.chance.random() < 0.8
        ]
        self.chance.shuffle(given)
        source = self._rows(given, self._new_keys(4))
        added = f"ALTER TABLE t ADD COLUMN {column.defined().duck}"
        statements = (added, *self._inserted(_listed(given)))
        return Operation(
            after,
            written=Written(merges_schema=True),
            duck=statements,
            source=source,
            may_be_refused=self._has_rules(),
        )

    def _grow_field(self) -> Operation:
        """Append rows whose struct has a field more."""
        after = self._grown()
        return Operation(
            after,
            written=Written(merges_schema=True),
            source=self._rows(after.given, self._new_keys(4)),
            may_be_refused=self._has_rules(),
        )

    def _merge_field(self) -> Operation:
        """Merge with rows whose struct has a field more, which rows that stay do not have."""
        after = self._grown()
        plain = [c for c in self.table.columns if c.kind is not values.POINT]
        condition = self.condition(plain, "t", depth=1).spark
        on = text("{} = {}", name_of("t", KEY), name_of("s", KEY))
        clauses = [
            f"WHEN MATCHED AND {condition} THEN UPDATE SET *",
            f"WHEN MATCHED THEN UPDATE SET {name_of(KEY).spark} = `s`.{name_of(KEY).spark}",
            "WHEN NOT MATCHED THEN INSERT *",
            self.chance.choice(
                ["", f"WHEN NOT MATCHED BY SOURCE AND `t`.{name_of(KEY).spark} > 5 THEN DELETE"]
            ),
        ]
        return Operation(
            after,
            f"MERGE WITH SCHEMA EVOLUTION INTO {{t}} AS t USING {SOURCE} AS s ON {on.spark} "
            + " ".join(clauses),
            source=self._rows(after.given, self._met_keys(8)),
            may_be_refused=True,
        )

    def _grown(self) -> Table:
        column = self.chance.choice([c for c in self.table.given if c.kind is values.POINT])
        grown = replace(column, kind=values.GROWN_POINT)
        columns = tuple(grown if c is column else c for c in self.table.columns)
        return replace(self.table, columns=columns)

    def _by_frame(
        self, written: Written, source: pa.Table, gone: tuple[str, ...], *, refused: bool = False
    ) -> Operation:
        return Operation(
            self.table,
            written=written,
            duck=(*gone, *self._inserted(_listed(self.table.given))),
            source=source,
            may_be_refused=refused or self._has_rules(),
        )

    def _insert(self) -> Operation:
        """Insert some columns: by their names, from rows written out or from the source."""
        columns = [
            c
            for c in self.table.given
            if c.name == KEY or (not c.nullable and c.default is None) or self.chance.random() < 0.6
        ]
        self.chance.shuffle(columns)
        names = _listed(columns)
        if all(c.kind.is_plain for c in columns) and self.chance.random() < 0.6:
            rows = [
                [c.literal(key if c.name == KEY else self._plain_value(c)) for c in columns]
                for key in self._new_keys(3)
            ]
            spark = ", ".join(f"({', '.join(cell.spark for cell in row)})" for row in rows)
            duck = ", ".join(f"({', '.join(cell.duck or '' for cell in row)})" for row in rows)
            return Operation(
                self.table,
                f"INSERT INTO {{t}} ({names.spark}) VALUES {spark}",
                duck=(f"INSERT INTO t ({names.duck}) VALUES {duck}",),
                may_be_refused=self._has_rules(),
            )
        source = self._rows(columns, self._new_keys(4), 0.03)
        how = self.chance.choice([f"({names.spark})", "BY NAME"])
        return Operation(
            self.table,
            f"INSERT INTO {{t}} {how} SELECT {names.spark} FROM {SOURCE}",
            duck=self._inserted(names),
            source=source,
            may_be_refused=self._has_rules(),
        )

    # Changes

    def _delete(self) -> Operation:
        if self.chance.random() < 0.05:
            return Operation(self.table, "DELETE FROM {t}", duck=("DELETE FROM t",))
        where = self.condition(self.table.columns)
        return Operation(
            self.table,
            f"DELETE FROM {{t}} WHERE {where.spark}",
            called=Called(where.spark) if self.chance.random() < 0.3 else None,
            duck=None if where.duck is None else (f"DELETE FROM t WHERE {where.duck}",),
        )

    def _update(self) -> Operation:
        columns = self.chance.sample(
            self.table.settable, min(len(self.table.settable), self.chance.randint(1, 3))
        )
        where = self.condition(self.table.columns)
        assignments = [(c.quoted, self.value(c, self.table.columns)) for c in columns]
        points = [c for c in self.table.settable if c.kind is values.POINT and c not in columns]
        if points and self.chance.random() < 0.4:
            field = name_of(points[0].name, "a")
            assignments.append((Text(field.spark, None), text("{} + 1", name_of(KEY), duck=None)))
        spark = ", ".join(f"{name.spark} = {value.spark}" for name, value in assignments)
        duck = ", ".join(f"{name.duck} = {value.duck}" for name, value in assignments)
        can_duck = where.duck is not None and all(n.duck and v.duck for n, v in assignments)
        by_method = self.chance.random() < 0.3 and not any("." in c.name for c in columns)
        named = tuple((c.name, v.spark) for c, (_, v) in zip(columns, assignments, strict=False))
        return Operation(
            self.table,
            f"UPDATE {{t}} SET {spark} WHERE {where.spark}",
            called=Called(where.spark, named)
            if by_method and len(assignments) == len(columns)
            else None,
            duck=(f"UPDATE t SET {duck} WHERE {where.duck}",) if can_duck else None,
            may_be_refused=True,
        )

    def _merge(self) -> Operation:
        table = self.table
        evolves = self.chance.random() < 0.2
        column = self._new_column() if evolves else None
        after = table if column is None else table.with_column(column)
        given = after.given
        source = self._rows(given, self._met_keys(8))
        on = text("{} = {}", name_of("t", KEY), name_of("s", KEY))
        if self.chance.random() < 0.4:
            on = text("{} AND {}", on, self.condition(table.columns, "t", depth=1))
        # A star asks delta-spark's source for generated columns too, unless the schema may change.
        stars = evolves or len(table.given) == len(table.columns)
        clauses = self._clauses(table, given, stars=stars)
        if column is not None and not any(
            c.values is None and c.do is not Do.DELETE for c in clauses
        ):
            after = table  # only a star brings the source's columns in
        parts = [_clause(clause, after) for clause in clauses]
        duck = None
        if all(part.duck is not None for part in parts) and on.duck is not None:
            ducks = [] if after is table else [f"ALTER TABLE t ADD COLUMN {column.defined().duck}"]
            merged = " ".join(part.duck or "" for part in parts)
            duck = (*ducks, f"MERGE INTO t USING {SOURCE} AS s ON {on.duck} {merged}")
        evolving = "WITH SCHEMA EVOLUTION " if evolves else ""
        called = None
        if self.chance.random() < 0.3:
            called = Called(
                on=on.spark, clauses=tuple(c.called() for c in clauses), evolves=evolves
            )
        return Operation(
            after,
            f"MERGE {evolving}INTO {{t}} AS t USING {SOURCE} AS s ON {on.spark} "
            + " ".join(part.spark for part in parts),
            called=called,
            duck=duck,
            source=source,
            may_be_refused=True,
        )

    def _clauses(self, table: Table, given: Sequence[Column], *, stars: bool) -> list[MergeClause]:
        clauses: list[MergeClause] = []
        both = [("t", c) for c in table.columns] + [("s", c) for c in given]
        for when in When:
            wanted = self.chance.choice([0, 1, 1, 2])
            for number in range(wanted):
                alone = {When.NOT_MATCHED: "s", When.NOT_MATCHED_BY_SOURCE: "t"}.get(when)
                seen = [(a, c) for a, c in both if alone in (None, a)]
                condition = None
                if number < wanted - 1 or self.chance.random() < 0.4:
                    condition = self._of_both(seen)
                clauses.append(self._clause(when, condition, table, seen, stars=stars))
        if clauses:
            return clauses
        return [MergeClause(When.MATCHED, Do.DELETE)]

    def _clause(
        self,
        when: When,
        condition: Text | None,
        table: Table,
        seen: Sequence[tuple[str, Column]],
        *,
        stars: bool,
    ) -> MergeClause:
        star = self.chance.random() < 0.4 and stars
        if when is When.NOT_MATCHED:
            if star:
                return MergeClause(when, Do.INSERT, condition)
            columns = [
                c
                for c in table.given
                if c.name == KEY
                or (not c.nullable and c.default is None)
                or self.chance.random() < 0.7
            ]
            taken = [(c.name, name_of("s", c.name)) for c in columns]
            return MergeClause(when, Do.INSERT, condition, tuple(taken))
        if self.chance.random() < 0.35:
            return MergeClause(when, Do.DELETE, condition)
        if when is When.MATCHED and star:
            return MergeClause(when, Do.UPDATE, condition)
        columns = self.chance.sample(
            table.settable, min(len(table.settable), self.chance.randint(1, 3))
        )
        found = tuple((c.name, self._value_of(c, seen)) for c in columns)
        return MergeClause(when, Do.UPDATE, condition, found)

    # Columns

    def _add_column(self) -> Operation:
        column = replace(self._new_column(), default=None)
        return Operation(
            self.table.with_column(column),
            f"ALTER TABLE {{t}} ADD COLUMNS ({column.quoted.spark} {column.kind.spark})",
            duck=(f"ALTER TABLE t ADD COLUMN {column.defined().duck}",),
        )

    def _rename(self) -> Operation:
        free = self._free()
        if not free:
            return self._delete()
        column = self.chance.choice(free)
        self.added += 1
        new = replace(column, name=f"new name {self.added}")
        columns = tuple(new if c is column else c for c in self.table.columns)
        return Operation(
            replace(self.table, columns=columns),
            f"ALTER TABLE {{t}} RENAME COLUMN {column.quoted.spark} TO {new.quoted.spark}",
            duck=(f"ALTER TABLE t RENAME COLUMN {column.quoted.duck} TO {new.quoted.duck}",),
        )

    def _drop_column(self) -> Operation:
        free = self._free()
        if len(free) < 3:
            return self._update()
        column = self.chance.choice(free)
        return Operation(
            replace(self.table, columns=tuple(c for c in self.table.columns if c is not column)),
            f"ALTER TABLE {{t}} DROP COLUMN {column.quoted.spark}",
            duck=(f"ALTER TABLE t DROP COLUMN {column.quoted.duck}",),
        )

    def _free(self) -> list[Column]:
        """The columns nothing else depends on."""
        held = [check.condition.spark for check in self.table.checks]
        held += [c.generated.spark for c in self.table.columns if c.generated is not None]
        return [
            c
            for c in self.table.settable
            if c.name not in self.table.partition_by and not any(c.quoted.spark in h for h in held)
        ]

    def _new_column(self) -> Column:
        self.added += 1
        kind = self.chance.choice([*values.PLAIN, *values.NESTED])
        return Column(f"added{self.added}", kind)

    # Conditions and values

    def condition(self, columns: Sequence[Column], alias: str = "", depth: int = 2) -> Text:
        """Make a condition on columns, of one table or of the one called so."""
        return self._of_both([(alias, column) for column in columns], depth)

    def _of_both(self, seen: Sequence[tuple[str, Column]], depth: int = 2) -> Text:
        if depth and self.chance.random() < 0.5:
            one, other = self._of_both(seen, depth - 1), self._of_both(seen, depth - 1)
            joined = self.chance.choice(["({} AND {})", "({} OR {})", "NOT ({})"])
            return text(joined, one) if joined.startswith("NOT") else text(joined, one, other)
        keys = [(a, c) for a, c in seen if c.name == KEY]
        alias, column = self.chance.choice(keys if self.chance.random() < 0.4 else list(seen))
        named = name_of(*([alias] if alias else []), column.name)
        if column.name == KEY:
            return self._of_key(named)
        return self._of_column(named, column)

    def _of_key(self, named: Text) -> Text:
        some = [str(self.chance.choice(self.keys or [0])) for _ in range(3)]
        one, two, three = (Text(key, key) for key in some)
        return self.chance.choice(
            [
                text("{} = {}", named, one),
                text("{} IN ({}, {}, {})", named, one, two, three),
                text("{} NOT IN ({}, NULL)", named, one),
                text("{} BETWEEN {} AND {}", named, one, two),
                text("{} % 3 = 1", named),
                text("{} < {}", named, one),
                text("{} >= {}", named, one),
                text("{} > 2.5", named),
                text("-{} < {}", named, two),
                text("coalesce({}, {}) = {}", named, one, one),
            ]
        )

    def _of_column(self, named: Text, column: Column) -> Text:
        choices = [text("{} IS NULL", named)]
        if column.kind is values.POINT:
            choices += [
                text("{}.a > 0", named),
                text("{}.b <> 'a'", named),
                text("{}.a IS NULL", named),
            ]
        if column.kind.spark.startswith("ARRAY"):
            choices.append(text("size({}) > 1", named, duck="len({}) > 1"))
        if column.kind.is_plain:
            one, two = (column.literal(self._plain_value(column)) for _ in range(2))
            sign = self.chance.choice(["=", "<>", "<", "<=", ">", ">="])
            choices = [
                *choices,
                text(f"{{}} {sign} {{}}", named, one),
                text(f"{{}} {sign} {{}}", two, named),
                text(f"{{}} {sign} {{}}", named, two),
                text("{} <=> {}", named, one, duck="{} IS NOT DISTINCT FROM {}"),
                text("{} IN ({}, {})", named, one, two),
                text("{} NOT IN ({}, {})", named, one, two),
                text("{} BETWEEN {} AND {}", named, one, two),
            ]
        if column.kind is values.STRING:
            choices += [text("{} LIKE 'a%'", named), text("{} LIKE '%b%'", named)]
        if column.kind is values.BOOLEAN:
            choices += [named, text("NOT {}", named)]
        if column.kind in (values.DATE, values.NTZ):
            choices += [text("{} >= '2024-02-29'", named), text("{} <> DATE'2024-02-29'", named)]
        if column.kind in (values.DOUBLE, values.FLOAT, values.SMALL, values.LONG, values.BYTE):
            choices += [text("{} > 0", named), text("{} <= 1.25", named)]
        return self.chance.choice(choices)

    def value(self, column: Column, columns: Sequence[Column]) -> Text:
        """Make a value for a column, out of others of the same row."""
        return self._value_of(column, [("", other) for other in columns])

    def _value_of(self, column: Column, seen: Sequence[tuple[str, Column]]) -> Text:
        same = [
            name_of(*([alias] if alias else []), other.name)
            for alias, other in seen
            if other.kind is column.kind
        ]
        choices = list(same)
        if column.nullable:
            choices.append(NOTHING)
        if column.kind.is_plain:
            literal = column.literal(self._plain_value(column))
            choices += [literal, literal]
            choices += [text("coalesce({}, {})", name, literal) for name in same]
            cast = text(f"CAST({{}} AS {column.kind.spark})", literal, duck="")
            cast = replace(cast, duck=f"CAST({literal.duck} AS {column.kind.duck})")
            choices += [
                text("CASE WHEN {} THEN {} ELSE {} END", self._of_both(seen, 1), cast, name)
                for name in same
            ]
        if column.kind in (values.BYTE, values.SHORT, values.INT, values.LONG):
            choices += [text("{} + 1", name) for name in same]
        if column.kind is values.STRING:
            choices += [text("concat({}, 'z')", name, duck="({} || 'z')") for name in same]
        return self.chance.choice(choices) if choices else NOTHING

    def _plain_value(self, column: Column) -> Any:
        return self.chance.choice(column.pool or column.kind.pool)

    # Rows

    def _rows(
        self, columns: Sequence[Column], keys: Sequence[int | None], breaks: float = 0.0
    ) -> pa.Table:
        return random_rows(self.chance, columns, keys, breaks=breaks)

    def _new_keys(self, number: int) -> list[int | None]:
        start = len(self.keys)
        self.keys += range(start, start + number)
        # Now and then a key that is there already, or none.
        return [
            self.chance.choice([None, self.chance.choice(self.keys)])
            if self.chance.random() < 0.06 and not self.table.checks
            else key
            for key in self.keys[start:]
        ]

    def _met_keys(self, number: int) -> list[int | None]:
        """Give keys half of which are there; rarely one of them twice."""
        old = self.chance.sample(self.keys, min(len(self.keys), number // 2))
        new = self._new_keys(number - len(old))
        again = [old[0]] if old and self.chance.random() < 0.1 else []
        return [*old, *new, *again]

    def _has_rules(self) -> bool:
        return bool(self.table.checks) or any(not c.nullable for c in self.table.columns)

    def _selected(self) -> str:
        """Give what SELECT lists for all columns in order, generated ones computed."""
        return ", ".join(
            c.quoted.spark if c.generated is None else f"{c.generated.spark} AS {c.quoted.spark}"
            for c in self.table.columns
        )

    def _inserted(self, names: Text) -> tuple[str, ...]:
        return (f"INSERT INTO t ({names.duck}) SELECT {names.duck} FROM {SOURCE}",)


def _listed(columns: Sequence[Column]) -> Text:
    return Text(
        ", ".join(c.quoted.spark for c in columns), ", ".join(c.quoted.duck or "" for c in columns)
    )


@dataclass(frozen=True)
class MergeClause:
    """WHEN … THEN …; without values all the source's are taken."""

    when: When
    do: Do
    condition: Text | None = None
    values: tuple[tuple[str, Text], ...] | None = None

    def called(self) -> Clause:
        """Give it as the lake's own method takes it."""
        given = (
            None if self.values is None else {(name,): value.spark for name, value in self.values}
        )
        condition = None if self.condition is None else self.condition.spark
        return Clause(self.when, self.do, condition, given)


def _clause(clause: MergeClause, after: Table) -> Text:
    """Say a clause in SQL. What DuckDB calls `*` goes by places, so it gets every column."""
    when = f"WHEN {clause.when.value.upper()}"
    start = Text(when, when)
    if clause.condition is not None:
        start = text("{} AND {}", start, clause.condition)
    if clause.do is Do.DELETE:
        return text("{} THEN DELETE", start)
    if clause.values is not None:
        change = _set(clause.values) if clause.do is Do.UPDATE else _values(clause.values)
        return text("{} THEN {} {}", start, Text(clause.do.value.upper(), clause.do.value), change)
    every = [(c.name, name_of("s", c.name)) for c in after.given]
    if clause.do is Do.UPDATE:
        return text("{} THEN UPDATE {}", start, Text("SET *", _set(every).duck))
    return text("{} THEN INSERT {}", start, Text("*", _values(every).duck))


def _set(given: Sequence[tuple[str, Text]]) -> Text:
    pairs = [text("{} = {}", name_of(name), value) for name, value in given]
    return text("SET " + ", ".join("{}" for _ in pairs), *pairs)


def _values(given: Sequence[tuple[str, Text]]) -> Text:
    places = ", ".join("{}" for _ in given)
    names = text(places, *[name_of(name) for name, _ in given])
    return text("({}) VALUES ({})", names, text(places, *[value for _, value in given]))
