"""Random tables: columns of any type, how they are partitioned, mapped and kept in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

from tests.spark.differential import values
from tests.spark.differential.values import Kind, Text, name_of, text

KEY = "id"
ODD_NAMES = ("two words", "a.b", "naïve", "semi;colon", "x,y", "quo`te", "(p)=q")
# Few values of each, so that partitions meet again; what folders cannot distinguish is left out.
PARTITIONS = {
    values.STRING: values.WORDS,
    values.INT: (-1, 0, 7),
    values.LONG: (-(2**63), 0, 2**53 + 1),
    values.BYTE: (-128, 0, 5),
    values.BOOLEAN: (True, False),
    values.DATE: values.DATES[3:6],
    values.TIMESTAMP: values.TIMESTAMP.pool[3:6],
    values.NTZ: values.NTZ.pool[3:6],
    values.SMALL: values.SMALL.pool[1:4],
}


@dataclass(frozen=True)
class Column:
    """A column, and the rules it has."""

    name: str
    kind: Kind
    nullable: bool = True
    default: Any = None
    generated: Text | None = None
    pool: Sequence[Any] = ()

    @property
    def quoted(self) -> Text:
        return name_of(self.name)

    def value(self, chance: Random) -> Any:
        if self.nullable and chance.random() < 0.15:
            return None
        return chance.choice(self.pool) if self.pool else self.kind.value(chance)

    def literal(self, value: Any) -> Text:
        if value is None:
            return Text("NULL", "NULL")
        assert self.kind.literal is not None
        return self.kind.literal(value)

    def defined(self) -> Text:
        """Return the column as in CREATE TABLE; rules only for engines that keep them."""
        spark, duck = (
            f"{self.quoted.spark} {self.kind.spark}",
            f"{self.quoted.duck} {self.kind.duck}",
        )
        if self.generated is not None:
            spark += f" GENERATED ALWAYS AS ({self.generated.spark})"
        if self.default is not None:
            default = self.literal(self.default)
            spark += f" DEFAULT {default.spark}"
            duck += f" DEFAULT {default.duck}"
        return Text(spark + ("" if self.nullable else " NOT NULL"), duck)


@dataclass(frozen=True)
class Check:
    """A CHECK constraint."""

    name: str
    condition: Text


@dataclass(frozen=True)
class Table:
    """A table as it should be."""

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    mapping: str = "none"
    vectors: bool = False
    mode: str = "auto"
    checks: tuple[Check, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def given(self) -> list[Column]:
        """The columns that rows bring."""
        return [column for column in self.columns if column.generated is None]

    @property
    def plain(self) -> list[Column]:
        return [column for column in self.columns if column.kind.is_plain]

    @property
    def settable(self) -> list[Column]:
        return [c for c in self.given if c.name != KEY]

    def column(self, name: str) -> Column:
        [found] = [column for column in self.columns if column.name == name]
        return found

    def with_column(self, column: Column) -> Table:
        return replace(self, columns=(*self.columns, column))

    def created(self) -> Text:
        """Give the statement that makes it, `{t}` for its name."""
        given = {
            "delta.enableDeletionVectors": str(self.vectors).lower(),
            "delta.feature.allowColumnDefaults": "supported",
            # Where a table lacks it, delta-spark adds no column that asks for it.
            "delta.feature.timestampNtz": "supported",
            **({} if self.mapping == "none" else {"delta.columnMapping.mode": self.mapping}),
            **dict(self.properties),
        }
        by = ", ".join(name_of(name).spark for name in self.partition_by)
        columns = [column.defined() for column in self.columns]
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        spark = (
            f"CREATE TABLE {{t}} ({', '.join(c.spark for c in columns)}) USING delta"
            + (f" PARTITIONED BY ({by})" if by else "")
            + f" TBLPROPERTIES ({properties})"
        )
        return Text(spark, f"CREATE TABLE t ({', '.join(c.duck or '' for c in columns)})")


def random_table(chance: Random) -> Table:
    mapping = chance.choice(["none", "none", "name", "id"])
    names = iter(chance.sample(ODD_NAMES, len(ODD_NAMES)) if mapping != "none" else ())
    kinds = [
        *chance.sample(values.PLAIN, chance.randint(3, 6)),
        *chance.sample(values.NESTED, chance.randint(1, 3)),
    ]
    chance.shuffle(kinds)
    columns = [Column(KEY, values.INT)]
    for number, kind in enumerate(kinds):
        name = next(names, None) if chance.random() < 0.4 else None
        columns.append(_column(chance, name or f"c{number}_{kind.spark[:3].title()}", kind))
    by: list[str] = []
    if chance.random() < 0.6:
        for kind in chance.sample(list(PARTITIONS), chance.choice([1, 1, 2])):
            by.append(f"p{len(by)}")
            columns.insert(
                chance.randrange(1, len(columns) + 1), Column(by[-1], kind, pool=PARTITIONS[kind])
            )
    table = Table(
        tuple(columns),
        tuple(by),
        mapping,
        vectors=chance.random() < 0.6,
        properties=_properties(chance),
    )
    if chance.random() < 0.35:
        table = table.with_column(_generated(chance, table))
    return replace(table, checks=tuple(_checks(chance, table)))


def without_rules(table: Table) -> Table:
    """Give a table that takes every row."""
    columns = tuple(replace(column, nullable=True) for column in table.columns)
    return replace(table, columns=columns, checks=())


def _column(chance: Random, name: str, kind: Kind) -> Column:
    nullable = chance.random() < 0.85
    default = None
    if kind.is_plain and chance.random() < 0.3:
        default = kind.value(chance)
    return Column(name, kind, nullable, default)


def _properties(chance: Random) -> tuple[tuple[str, str], ...]:
    wanted = {
        "delta.checkpointPolicy": chance.choice(["classic", "v2"]),
        "delta.dataSkippingNumIndexedCols": chance.choice(["32", "2", "-1", "0"]),
    }
    return tuple((key, value) for key, value in wanted.items() if chance.random() < 0.5)


def _generated(chance: Random, table: Table) -> Column:
    key = name_of(KEY)
    choices = [(values.LONG, text("CAST({} AS BIGINT) * 2", key))]
    choices += [
        (values.STRING, text("concat({}, '!')", column.quoted, duck="({} || '!')"))
        for column in table.given
        if column.kind is values.STRING
    ]
    choices += [
        (values.DATE, text("CAST({} AS DATE)", column.quoted))
        for column in table.given
        if column.kind is values.NTZ
    ]
    kind, expression = chance.choice(choices)
    return Column("made", kind, generated=expression)


def _checks(chance: Random, table: Table) -> Iterable[Check]:
    if chance.random() < 0.5:
        yield Check("positive", text("{} > -5", name_of(KEY)))
    plain = [column for column in table.given if column.kind in (values.STRING, values.DOUBLE)]
    if plain and chance.random() < 0.5:
        column = chance.choice(plain)
        bound = column.literal(column.kind.pool[2])  # 'a', or not a number
        yield Check(
            "other",
            text("{0} IS NULL OR {0} <> {1} OR {2} < 3", column.quoted, bound, name_of(KEY)),
        )


# Rows


def random_rows(
    chance: Random, columns: Sequence[Column], keys: Sequence[int | None], *, breaks: float = 0.0
) -> pa.Table:
    """Make rows for some columns; `breaks` is how likely one has a null where none may be."""
    rows = []
    for key in keys:
        row = {column.name: column.value(chance) for column in columns}
        if any(column.name == KEY for column in columns):
            row[KEY] = key
        required = [column.name for column in columns if not column.nullable]
        if required and chance.random() < breaks:
            row[chance.choice(required)] = None
        rows.append(row)
    schema = pa.schema([(column.name, column.kind.arrow) for column in columns])
    return pa.Table.from_pylist(rows, schema=schema)
