"""Reading Catalog-managed Tables, the worked example: a log of published, staged, rejected, partial
and inline commits, which reads as version 9."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate
from headgate._connect import embedded_catalog
from headgate.api.messages import Answer, Part, Proposal, Ratified, VersionTaken
from headgate.catalog.service import Catalog
from headgate.client.session import Session
from headgate.clock import RandomIds
from headgate.names import TableName
from headgate.protocol.actions import Action, AddFile, TableId, TxnId, Version, encode, join
from headgate.protocol.commit.content import Inline, Staged, Way
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema.types import to_json
from headgate.settings import Settings
from headgate.storage import locations
from headgate.table.checkpoint_writer import write_checkpoint
from headgate.table.snapshot_loader import load
from tests.conformance.conftest import LISTED_MS, directory, log_of, published
from tests.kit import req, shows
from tests.kit.builders import ManualClock, file_content, inline, new_txn_id, remove
from tests.kit.builders import metadata as metadata_of
from tests.kit.builders import protocol as protocol_of
from tests.kit.minimal_catalog import MinimalCatalog
from tests.kit.other_readers import Rows, duckdb_reads, rows, tail_of

NAME = TableName.parse("orders")
RATIFIED_7 = "00000000000000000007.016ae953-37a9-438e-8683-9a9a4a79a395.json"
RATIFIED_8 = "00000000000000000008.7d17ac10-5cc3-401b-bd1a-9c82dd2ea032.json"
REJECTED_8 = "00000000000000000008.b91807ba-fe18-488c-a15e-c4807dbd2174.json"
UNDECIDED_10 = "00000000000000000010.0f707846-cd18-4e01-b40e-84ee0ae987b0.json"
PARTIAL_10 = "00000000000000000010.7a980438-cb67-4b89-82d2-86f73239b6d6.json"
FILES = [
    "00000000000000000000.json",
    "00000000000000000001.json",
    "00000000000000000002.checkpoint.parquet",
    "00000000000000000002.json",
    "00000000000000000003.00000000000000000005.compacted.json",
    "00000000000000000003.json",
    "00000000000000000004.json",
    "00000000000000000005.json",
    "00000000000000000006.json",
    "00000000000000000007.json",
    f"_staged_commits/{RATIFIED_7}",
    f"_staged_commits/{RATIFIED_8}",
    f"_staged_commits/{REJECTED_8}",
    f"_staged_commits/{UNDECIDED_10}",
    f"_staged_commits/{PARTIAL_10}",
]
# Version v adds the row v. 5 removes 3's file, inside the compaction; 8 removes 1's, which lies in
# the checkpoint; 9 removes 7's. What must not be seen is 80 and 100.
ROWS_AT_9 = [2, 4, 5, 6, 8, 9]


@dataclass
class Example:
    """The table of the example, its catalog, and the files that its commits add."""

    catalog: Catalog | MinimalCatalog
    clock: ManualClock
    table_id: TableId
    location: str

    def __post_init__(self) -> None:
        self.added: dict[int, AddFile] = {}

    @property
    def log(self) -> Path:
        return log_of(self.location)

    def add(self, number: int) -> AddFile:
        name = f"{number}-{uuid4()}.parquet"
        path = directory(self.location) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), path)
        stats = {
            "numRecords": 1,
            "minValues": {"id": number},
            "maxValues": {"id": number},
            "nullCount": {"id": 0},
        }
        self.added[number] = AddFile(
            path=name,
            partition_values={},
            size=path.stat().st_size,
            modification_time=self.clock.ms,
            data_change=True,
            stats=json.dumps(stats),
        )
        return self.added[number]

    def propose(self, version: int, content: Inline | Staged, txn_id: TxnId) -> Answer:
        part = Part(table_id=self.table_id, version=Version(version), content=content)
        return self.catalog.propose(Proposal(txn_id=txn_id, parts=(part,)))

    def commit_inline(self, version: int, *actions: Action) -> None:
        self.clock.ms += 1000
        answer = self.propose(version, inline(*actions), new_txn_id())
        assert isinstance(answer, Ratified)

    def stage(self, name: str, *actions: Action) -> tuple[Staged, TxnId]:
        self.clock.ms += 1000
        txn_id = new_txn_id()
        content = file_content(*actions, txn_id=txn_id, timestamp_ms=self.clock.ms)
        path = self.log / "_staged_commits" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return Staged(file_name=name, size=len(content)), txn_id

    def session(self) -> Session:
        return Session(
            self.catalog,
            clock=self.clock,
            ids=RandomIds(self.clock),
            store_for=locations.store_for,
        )

    def table(self) -> headgate.Table:
        return self.session().table("orders")


def build(example: Example) -> None:
    """Bring storage and catalog to where the example begins."""
    for version in range(1, 7):
        gone = [remove(example.added[3])] if version == 5 else []
        example.commit_inline(version, *gone, example.add(version))
    publish_up_to_6(example)
    with_checkpoint_at_2(example)
    with_compaction_of_3_to_5(example)
    # The catalog isn't aware that 7 was published: perhaps the answer was dropped.
    content, txn_id = example.stage(RATIFIED_7, example.add(7))
    assert isinstance(example.propose(7, content, txn_id), Ratified)
    staged = example.log / "_staged_commits"
    published(example.location, 7).write_bytes((staged / RATIFIED_7).read_bytes())
    # Two writers want version 8.
    winner, winner_id = example.stage(RATIFIED_8, remove(example.added[1]), example.add(8))
    loser, loser_id = example.stage(REJECTED_8, example.add(80))
    assert isinstance(example.propose(8, winner, winner_id), Ratified)
    assert isinstance(example.propose(8, loser, loser_id), VersionTaken)
    example.commit_inline(9, remove(example.added[7]), example.add(9))
    # Neither of the two staged commits for version 10 was ratified.
    example.stage(UNDECIDED_10, remove(example.added[9]), example.add(100))
    example.stage(PARTIAL_10, remove(example.added[9]), example.add(100))
    partial = staged / PARTIAL_10
    partial.write_bytes(partial.read_bytes()[:-40])
    example.clock.ms += LISTED_MS + 1  # what was published is listed no longer


def publish_up_to_6(example: Example) -> None:
    if isinstance(example.catalog, MinimalCatalog):
        example.catalog.publish_and_forget(example.table_id)
    else:
        example.catalog.publish(example.table_id)


def with_checkpoint_at_2(example: Example) -> None:
    snapshot = load(example.catalog, example.table_id, version=Version(2))
    write_checkpoint(
        snapshot.store, snapshot.state, table="orders", now_ms=example.clock.ms, new_uuid=uuid4
    )
    (example.log / "_last_checkpoint").unlink()  # the example's log has none


def with_compaction_of_3_to_5(example: Example) -> None:
    added = example.added
    net = [added[4], added[5], remove(added[3])]
    target = example.log / "00000000000000000003.00000000000000000005.compacted.json"
    target.write_bytes(join(map(encode, net)))


def of_an_embedded_catalog(root: Path) -> Iterator[Example]:
    clock = ManualClock()
    catalog = embedded_catalog(
        str(root), settings=Settings(), publisher=False, clock=clock, ids=RandomIds(clock)
    )
    table_id = TableId(str(uuid4()))
    first = inline(protocol_of(), metadata_of(table_id, "id long"), operation="CREATE TABLE")
    made = catalog.create_table(NAME, table_id, new_txn_id(), first)
    yield Example(catalog, clock, table_id, made.location)
    catalog.close()


def of_a_catalog_that_can_do_no_more_than_the_examples(root: Path) -> Iterator[Example]:
    clock = ManualClock()
    catalog = MinimalCatalog(locations.store_for, clock.now_ms)
    table_id, location = TableId(str(uuid4())), locations.normalize(str(root / "table"))
    catalog.make(NAME, table_id, location, schema_string=to_json(parse_schema("id long")))
    yield Example(catalog, clock, table_id, location)


@pytest.fixture(
    params=[of_an_embedded_catalog, of_a_catalog_that_can_do_no_more_than_the_examples],
    ids=["embedded", "minimal"],
)
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Example]:
    yield from map(built, request.param(tmp_path / "lake"))


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Example]:
    yield from map(built, of_an_embedded_catalog(tmp_path / "lake"))


def built(example: Example) -> Example:
    build(example)
    log = example.log
    found = {path.relative_to(log).as_posix() for path in log.rglob("*") if path.is_file()}
    assert sorted(found) == FILES
    return example


def numbers(*ids: int) -> Rows:
    return rows(pa.table({"id": pa.array(ids, pa.int64())}))


@req("CM-19", "CM-20")
def test_the_catalog_answers_with_7_8_and_9(example: Example) -> None:
    resolved = example.catalog.resolve(NAME)
    listed = [(commit.version, commit.way, commit.file_name) for commit in resolved.commits]
    assert resolved.latest == 9
    assert listed == [
        (7, Way.STAGED, RATIFIED_7),
        (8, Way.STAGED, RATIFIED_8),
        (9, Way.INLINE, None),
    ]
    assert resolved.commits[0].published_ms is None


@req("CM-05", "CM-15", "CM-18", "CM-19")
@shows("S13")
def test_it_reads_as_version_9(example: Example) -> None:
    table = example.table()
    assert table.version == 9
    assert rows(table.to_arrow()) == numbers(*ROWS_AT_9)


@req("CM-05", "CM-19")
@shows("FX13")
def test_duckdb_given_the_same_tail_reads_the_same(example: Example, tmp_path: Path) -> None:
    resolved = example.catalog.resolve(NAME)
    assert len(tail_of(resolved, tmp_path)) == 3
    assert duckdb_reads(resolved, tmp_path) == numbers(*ROWS_AT_9)


@req("CM-19")
def test_every_version_of_it_reads_as_duckdb_reads_it(example: Example, tmp_path: Path) -> None:
    table, resolved = example.table(), example.catalog.resolve(NAME)
    wanted = [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 4, 5], [1, 2, 4, 5, 6]]
    wanted += [[1, 2, 4, 5, 6, 7], [2, 4, 5, 6, 7, 8], ROWS_AT_9]
    for version, ids in enumerate(wanted):
        assert rows(table.to_arrow(version=version)) == numbers(*ids)
        assert duckdb_reads(resolved, tmp_path, version) == numbers(*ids)


@req("CM-16", "CM-19")
@pytest.mark.parametrize(
    "gone", [[0, 1], [0, 1, 3, 4, 5], [3, 4, 5], [7]], ids=lambda gone: ",".join(map(str, gone))
)
def test_it_reads_as_version_9_also_where_files_that_others_stand_in_for_are_gone(
    example: Example, gone: list[int]
) -> None:
    for version in gone:
        published(example.location, version).unlink()
    table = example.table()
    assert table.version == 9
    assert rows(table.to_arrow()) == numbers(*ROWS_AT_9)


@req("CM-17", "CM-19")
def test_commit_7_is_read_from_where_the_catalog_says_and_not_from_the_log(
    example: Example, tmp_path: Path
) -> None:
    intruding = join([encode(example.add(70))])
    published(example.location, 7).write_bytes(intruding)
    assert rows(example.table().to_arrow()) == numbers(*ROWS_AT_9)
    assert duckdb_reads(example.catalog.resolve(NAME), tmp_path) == numbers(*ROWS_AT_9)


@req("CM-05", "PB-02")
@shows("FP1", "S10")
def test_going_on_from_there_publishes_what_was_ratified_and_nothing_else(
    embedded: Example,
) -> None:
    catalog, log = embedded.catalog, embedded.log
    assert isinstance(catalog, Catalog)
    assert catalog.publish(embedded.table_id) == 9
    for version, name in ((7, RATIFIED_7), (8, RATIFIED_8)):
        ratified = (log / "_staged_commits" / name).read_bytes()
        assert published(embedded.location, version).read_bytes() == ratified
    assert not published(embedded.location, 10).exists()
    known = [commit.published_ms is not None for commit in catalog.resolve(NAME).commits]
    assert known == [True, True, True]
    assert rows(embedded.table().to_arrow()) == numbers(*ROWS_AT_9)
