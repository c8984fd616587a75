"""A table's life in the catalog: staged, registered, renamed, dropped, undropped, purged."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

import headgate
from headgate import failpoints
from headgate.api.messages import Part, Proposal, Ratified, Rejected
from headgate.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    InvalidCommitError,
    NotEmptyError,
    NotFoundError,
    OutcomeUnknownError,
    RefusedError,
    UnsupportedByCatalogError,
)
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import (
    Action,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    TableId,
    Version,
)
from headgate.protocol.commit.content import Inline, Way
from headgate.protocol.commit.examination import Violation
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import PublishedCommit
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.table_states import TableStatus
from headgate.settings import Settings
from headgate.storage import locations
from headgate.storage.local import LocalStore
from headgate.storage.object_store import PutUnknownError
from tests.catalog.conftest import House, first, lay
from tests.catalog.test_event_feed import every
from tests.kit import req, shows
from tests.kit.builders import (
    START_MS,
    ManualClock,
    add,
    file_content,
    inline,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
    remove,
)
from tests.kit.faulty_stores import Call, WrappedStore

Effect = TypeVar("Effect")
T = TableName.parse("t")


def names(house: House) -> list[str | None]:
    return [entry.name for entry in house.catalog.tables()]


@req("CM-39")
def test_creation_goes_by_three_phases_and_nobody_sees_the_table_before_the_third(
    inline_lake: House,
) -> None:
    house = inline_lake
    staging, another = house.database.stage_table(), house.database.stage_table()
    assert another.table_id != staging.table_id
    assert another.location != staging.location
    assert names(house) == []
    with pytest.raises(NotFoundError):
        house.catalog.resolve(staging.table_id)
    lay(staging, first(staging.table_id))
    with pytest.raises(NotFoundError):
        house.catalog.resolve(T)
    content = inline(add())
    part = Part(table_id=staging.table_id, version=Version(1), content=content)
    with pytest.raises(NotFoundError):
        house.catalog.propose(Proposal(txn_id=new_txn_id(), parts=(part,)))
    assert house.catalog.tables(dropped=True) == ()
    assert every(house.database) == ()
    registered = house.database.register_table(T, staging.table_id)
    assert registered.latest == 0
    assert names(house) == ["main.default.t"]
    [entry] = house.catalog.tables()
    assert entry.published == 0  # its creator put it: it is ratified and published at once
    assert isinstance(house.propose(staging.table_id, 1, add()), Ratified)


@req("LC-02")
def test_the_same_registration_twice_gives_one_table(inline_lake: House) -> None:
    house = inline_lake
    staging = house.database.stage_table()
    lay(staging, first(staging.table_id))
    once = house.database.register_table(T, staging.table_id)
    assert house.database.register_table(T, staging.table_id) == once
    assert len(house.catalog.tables()) == 1


ID = "9d2b0d4e-6f3a-4a5c-8a43-54f1f5f2ab01"


def _without(table_id: TableId, key: str) -> Metadata:
    made = metadata(table_id)
    del made.configuration[key]
    return made


def _listing(reader: int, writer: int, readers: str, writers: str) -> Protocol:
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=readers.split(),
        writer_features=writers.split(),
    )


MANAGED = "catalogManaged inCommitTimestamp"
VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="a" * 20, offset=1, size_in_bytes=40, cardinality=1
)
# What version 0 says, what its commitInfo says, and the rules that refuse it: those and no others.
FAULTS: dict[str, tuple[Callable[[TableId], tuple[Action, ...]], dict[str, object], str]] = {
    "another id": (lambda i: (protocol(), metadata(TableId(ID))), {}, "table-id-differs"),
    "no id": (lambda i: (protocol(), _without(i, TABLE_ID_PROPERTY)), {}, "table-id-differs"),
    "timestamps off": (
        lambda i: (protocol(), _without(i, "delta.enableInCommitTimestamps")),
        {},
        "timestamps-off",
    ),
    "no protocol": (lambda i: (metadata(i),), {}, "no-protocol"),
    "no metaData": (lambda i: (protocol(),), {}, "no-metadata"),
    "plain protocol": (
        lambda i: (Protocol(min_reader_version=1, min_writer_version=2), metadata(i)),
        {},
        "not-catalog-managed timestamps-gone",
    ),
    "feature for writers alone": (
        lambda i: (_listing(3, 7, "", MANAGED), metadata(i)),
        {},
        "not-catalog-managed protocol-malformed",
    ),
    "feature for readers alone": (
        lambda i: (_listing(3, 7, "catalogManaged", "inCommitTimestamp"), metadata(i)),
        {},
        "not-catalog-managed protocol-malformed",
    ),
    "reader version 2": (
        lambda i: (_listing(2, 7, "catalogManaged", MANAGED), metadata(i)),
        {},
        "not-catalog-managed protocol-malformed",
    ),
    "writer version 6": (
        lambda i: (_listing(3, 6, "catalogManaged", MANAGED), metadata(i)),
        {},
        "not-catalog-managed timestamps-gone protocol-malformed",
    ),
    "no feature for timestamps": (
        lambda i: (_listing(3, 7, "catalogManaged", "catalogManaged"), metadata(i)),
        {},
        "timestamps-gone protocol-malformed",
    ),
    "unknown feature for readers": (
        lambda i: (_listing(3, 7, "catalogManaged odd", f"{MANAGED} odd"), metadata(i)),
        {},
        "unreadable-feature",
    ),
    "not Parquet": (
        lambda i: (protocol(), replaced(metadata(i), format=Format(provider="csv"))),
        {},
        "not-parquet",
    ),
    "no schema": (
        lambda i: (protocol(), replaced(metadata(i), schema_string="id long")),
        {},
        "schema-malformed",
    ),
    "partitioning": (
        lambda i: (protocol(), metadata(i, partition_by=["nowhere"])),
        {},
        "schema-invalid",
    ),
    "a removal": (
        lambda i: (protocol(), metadata(i), remove(add())),
        {},
        "remove-in-first",
    ),
    "a vector without its feature": (
        lambda i: (protocol(), metadata(i), replaced(add(records=9), deletion_vector=VECTOR)),
        {},
        "deletion-vectors-unsupported",
    ),
    "a domain without its feature": (
        lambda i: (
            protocol(),
            metadata(i),
            DomainMetadata(domain="mine", configuration="{}", removed=False),
        ),
        {},
        "domains-unsupported",
    ),
    "two protocols": (lambda i: (protocol(), metadata(i), protocol()), {}, "two-protocols"),
    "no txnId": (lambda i: (protocol(), metadata(i)), {"txnId": None}, "no-txn-id"),
    "no timestamp": (
        lambda i: (protocol(), metadata(i)),
        {"inCommitTimestamp": None},
        "no-timestamp",
    ),
    "negative timestamp": (
        lambda i: (protocol(), metadata(i)),
        {"inCommitTimestamp": -1},
        "timestamp-not-rising",
    ),
    "timestamp of tomorrow": (
        lambda i: (protocol(), metadata(i)),
        {"inCommitTimestamp": START_MS + 400_000},
        "timestamp-ahead",
    ),
}


def rules_of(refusal: InvalidCommitError) -> set[str]:
    return {found.rule for found in refusal.violations if isinstance(found, Violation)}


@req("LC-02", "CM-35", "CM-36", "EN-02")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_registration_is_judged_and_each_fault_refused_by_its_own_rule(
    inline_lake: House, fault: str
) -> None:
    house = inline_lake
    actions, info, rules = FAULTS[fault]
    staging = house.database.stage_table()
    content = file_content(*actions(staging.table_id), **{"txn_id": new_txn_id(), **info})  # type: ignore[arg-type]
    lay(staging, content)
    with pytest.raises(InvalidCommitError) as refusal:
        house.database.register_table(T, staging.table_id)
    assert rules_of(refusal.value) == set(rules.split())
    assert names(house) == []


@req("LC-01", "LC-02")
@pytest.mark.parametrize("fault", [name for name, (_, info, _) in FAULTS.items() if not info])
def test_a_creation_in_one_call_is_judged_as_a_registration_is(
    inline_lake: House, fault: str
) -> None:
    actions, _, rules = FAULTS[fault]
    table_id = new_table_id()
    with pytest.raises(InvalidCommitError) as refusal:
        inline_lake.catalog.create_table(T, table_id, new_txn_id(), inline(*actions(table_id)))
    assert rules_of(refusal.value) == set(rules.split())
    assert names(inline_lake) == []


@req("LC-01", "CM-04")
def test_a_creation_under_a_used_id_or_with_anothers_txn_id_is_refused(inline_lake: House) -> None:
    table_id, txn_id = new_table_id(), new_txn_id()
    first = inline(protocol(), metadata(table_id))
    create = inline_lake.catalog.create_table
    created = create(T, table_id, txn_id, first)
    assert create(T, table_id, txn_id, first) == created
    with pytest.raises(AlreadyExistsError):
        create(TableName.parse("other"), table_id, new_txn_id(), first)
    other = new_table_id()
    of_another = inline(protocol(), metadata(other), txnId=new_txn_id())
    with pytest.raises(InvalidCommitError) as refusal:
        create(TableName.parse("other"), other, new_txn_id(), of_another)
    assert rules_of(refusal.value) == {"txn-id-mismatch"}
    assert names(inline_lake) == ["main.default.t"]


@req("LC-02", "LC-04")
def test_a_registered_table_cannot_be_registered_under_a_second_name(inline_lake: House) -> None:
    house = inline_lake
    staging = house.database.stage_table()
    lay(staging, first(staging.table_id))
    house.database.register_table(T, staging.table_id)
    with pytest.raises(RefusedError):
        house.database.register_table(TableName.parse("other"), staging.table_id)
    assert names(house) == ["main.default.t"]


@req("RD-03")
def test_domains_of_version_0_are_those_of_the_table(inline_lake: House) -> None:
    house = inline_lake
    domain = DomainMetadata(domain="mine", configuration="{}", removed=False)
    staging = house.database.stage_table()
    made = file_content(
        protocol("domainMetadata"), metadata(staging.table_id), domain, txn_id=new_txn_id()
    )
    lay(staging, made)
    checksum = house.database.register_table(T, staging.table_id).checksum
    assert checksum is not None
    assert checksum.domain_metadata == (domain,)


@req("LC-02")
def test_a_registration_without_version_0_is_refused(inline_lake: House) -> None:
    staging = inline_lake.database.stage_table()
    with pytest.raises(InvalidCommitError, match="has no version 0"):
        inline_lake.database.register_table(T, staging.table_id)


@req("LC-01")
@shows("FX11")
def test_sixteen_creators_of_one_name_make_one_table(house: House) -> None:
    def create(_: int) -> str:
        try:
            return house.create("contested").table_id
        except AlreadyExistsError:
            return ""

    with ThreadPoolExecutor(16) as pool:
        made = [table_id for table_id in pool.map(create, range(16)) if table_id]
    assert len(made) == 1
    assert house.catalog.resolve(TableName.parse("contested")).table_id == made[0]


@req("LC-01")
@pytest.mark.parametrize("crash", ["registry.before_register", "registry.after_register"])
def test_name_and_version_0_appear_together_or_not_at_all(inline_lake: House, crash: str) -> None:
    house = inline_lake
    table_id, txn_id = new_table_id(), new_txn_id()
    content = inline(protocol(), metadata(table_id))
    failpoints.arm(f"{crash}:raise")
    try:
        with pytest.raises(failpoints.FailPointError):
            house.catalog.create_table(T, table_id, txn_id, content)
    finally:
        failpoints.arm("")
    house.restart()
    expected = [] if crash == "registry.before_register" else ["main.default.t"]
    assert names(house) == expected
    # The creator, who does not know, asks again and has its table.
    assert house.catalog.create_table(T, table_id, txn_id, content).latest == 0
    assert names(house) == ["main.default.t"]


@req("EN-02")
def test_a_location_managed_by_another_catalog_is_refused_by_its_id(tmp_path: Path) -> None:
    ours = House(tmp_path / "ours", Way.INLINE, ManualClock())
    theirs = House(tmp_path / "theirs", Way.INLINE, ManualClock())
    try:
        table = theirs.create()
        theirs.catalog.publish(table.table_id)
        with pytest.raises(AlreadyExistsError, match=table.table_id):
            ours.database.stage_table(table.location)
        assert ours.catalog.tables() == ()
    finally:
        ours.close()
        theirs.close()


@req("CM-39")
@shows("FI8")
def test_locations_of_tables_do_not_contain_each_other(inline_lake: House) -> None:
    house = inline_lake
    place = locations.join(locations.normalize(str(house.root)), "elsewhere/outer")
    house.database.stage_table(place)
    for other in (place, f"{place}/inner", place.rpartition("/")[0]):
        with pytest.raises(AlreadyExistsError, match="overlaps"):
            house.database.stage_table(other)
    house.database.stage_table(place + "-beside")


@req("LC-04")
def test_a_renamed_table_keeps_id_place_and_history(lake: House) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    history = lake.catalog.timeline(table.table_id)
    lake.catalog.rename_table(table.table_id, TableName.parse("u"))
    renamed = lake.catalog.resolve(TableName.parse("u"))
    assert lake.catalog.timeline(table.table_id) == history
    assert len(history) == 2
    assert (renamed.table_id, renamed.location, renamed.latest) == (
        table.table_id,
        table.location,
        1,
    )
    with pytest.raises(NotFoundError):
        lake.catalog.resolve(T)
    assert isinstance(lake.propose(table.table_id, 2, add()), Ratified)


def test_what_a_name_meant_is_known_at_every_sequence(inline_lake: House) -> None:
    house = inline_lake
    first_table = house.create()
    before = house.catalog.resolve(T).sequence
    house.catalog.rename_table(first_table.table_id, TableName.parse("u"))
    second = house.create()
    now = house.catalog.resolve(T).sequence
    assert house.catalog.resolve(T, before).table_id == first_table.table_id
    assert house.catalog.resolve(T, now).table_id == second.table_id
    house.catalog.drop_table(second.table_id)
    assert house.catalog.resolve(T, now).table_id == second.table_id


def test_a_renamed_schema_keeps_its_tables_at_one_sequence(lake: House) -> None:
    catalog = lake.database
    sales = SchemaName.parse("sales")
    catalog.create_namespace(sales)
    one, two, other = (lake.create(name) for name in ("sales.a", "sales.b", "c"))
    before = catalog.resolve(TableName.parse("sales.a")).sequence
    catalog.rename_namespace(sales, "Archive")
    assert {str(name) for name in catalog.namespaces()} == {"main.default", "main.Archive"}
    for table, name in ((one, "archive.a"), (two, "archive.b"), (other, "c")):
        found = catalog.resolve(TableName.parse(name))
        assert (found.table_id, found.location) == (table.table_id, table.location)
        assert isinstance(lake.propose(table.table_id, 1, add()), Ratified)
    with pytest.raises(NotFoundError):
        catalog.resolve(TableName.parse("sales.a"))
    # A cut from before the rename still knows the old names, and only those.
    assert catalog.resolve(TableName.parse("sales.a"), before).table_id == one.table_id
    [event] = [event for event in every(catalog) if len(event.names) > 1]
    assert {(change.before, change.after) for change in event.names} == {
        ("main.sales.a", "main.Archive.a"),
        ("main.sales.b", "main.Archive.b"),
    }
    catalog.create_namespace(sales)
    assert lake.create("sales.a").table_id != one.table_id


def test_a_renamed_catalog_keeps_its_schemas_and_tables(lake: House) -> None:
    catalog = lake.database
    for schema in ("one", "two"):
        catalog.create_namespace(SchemaName("Other", schema))
    made_ms = catalog.namespace_creation_times()[SchemaName("Other", "one")]
    table = lake.create("other.one.t")
    catalog.rename_catalog("other", "archive")
    assert catalog.namespace_creation_times()[SchemaName("archive", "one")] == made_ms
    known = {str(name) for name in catalog.namespaces()}
    assert known == {"main.default", "archive.one", "archive.two"}
    assert catalog.resolve(TableName.parse("archive.one.t")).table_id == table.table_id
    assert [str(entry.name) for entry in catalog.tables()] == ["archive.one.t"]


def test_only_the_case_of_a_name_may_change(lake: House) -> None:
    catalog = lake.database
    catalog.create_namespace(SchemaName("other", "sales"))
    lake.create("other.sales.t")
    catalog.rename_namespace(SchemaName("OTHER", "SALES"), "Sales")
    catalog.rename_catalog("other", "Other")
    assert {str(name) for name in catalog.namespaces()} == {"main.default", "Other.Sales"}
    assert [str(entry.name) for entry in catalog.tables()] == ["Other.Sales.t"]


def test_a_schema_or_catalog_takes_no_other_name_that_is_taken_or_its_own(lake: House) -> None:
    catalog = lake.database
    for name in ("main.a", "main.b", "other.a"):
        catalog.create_namespace(SchemaName.parse(name))
    lake.create("a.t")
    before = (catalog.namespaces(), catalog.tables(), every(catalog))
    with pytest.raises(AlreadyExistsError, match="schema B already"):
        catalog.rename_namespace(SchemaName.parse("a"), "B")
    with pytest.raises(AlreadyExistsError, match="catalog MAIN already"):
        catalog.rename_catalog("other", "MAIN")
    with pytest.raises(NotFoundError, match=r"namespace main\.x"):
        catalog.rename_namespace(SchemaName.parse("x"), "y")
    with pytest.raises(NotFoundError, match="catalog x"):
        catalog.rename_catalog("x", "y")
    with pytest.raises(InvalidArgumentError, match="main"):
        catalog.rename_catalog("Main", "y")
    catalog.rename_namespace(SchemaName.parse("a"), "a")
    assert (catalog.namespaces(), catalog.tables(), every(catalog)) == before


@req("CM-40", "LC-03")
@shows("FI8", "S25")
def test_a_dropped_table_keeps_its_files_refuses_commits_and_frees_its_name(lake: House) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    lake.catalog.publish(table.table_id)
    log = lake.log(table.table_id)
    before = sorted(item.path for item in log.store.list("", recursive=True))
    attempt = lake.proposal(table.table_id, 2, add())
    after_staging = sorted(item.path for item in log.store.list("", recursive=True))
    lake.catalog.drop_table(table.table_id)
    assert sorted(item.path for item in log.store.list("", recursive=True)) == after_staging
    assert set(before) <= set(after_staging)
    refused = lake.catalog.propose(attempt)
    assert isinstance(refused, Rejected)
    assert {conflict.rule for conflict in refused.conflicts} == {"R9"}
    again = lake.create()
    assert again.table_id != table.table_id
    with pytest.raises(AlreadyExistsError):
        lake.catalog.undrop_table(table.table_id)
    lake.catalog.undrop_table(table.table_id, TableName.parse("u"))
    assert lake.catalog.resolve(TableName.parse("u")).latest == 1
    # What was refused stays refused, also now that the table is back; a new attempt passes.
    assert lake.catalog.propose(attempt) == refused
    assert isinstance(lake.propose(table.table_id, 2, add()), Ratified)
    assert lake.catalog.resolve(T).table_id == again.table_id


@pytest.mark.parametrize("is_purged", [False, True])
def test_a_table_that_was_dropped_cannot_be_renamed(lake: House, is_purged: bool) -> None:
    table = lake.create()
    lake.catalog.drop_table(table.table_id)
    if is_purged:
        lake.catalog.purge_table(table.table_id)
    u = TableName.parse("u")
    with pytest.raises(NotFoundError):
        lake.catalog.rename_table(table.table_id, u)
    with pytest.raises(NotFoundError):
        lake.catalog.resolve(u)


@pytest.mark.parametrize("path", ["rows.parquet", "day=1/rows.parquet", "a/b/c/rows.parquet"])
def test_a_location_that_is_not_empty_is_refused(lake: House, path: str) -> None:
    location = f"file://{lake.root}/mine"
    store = locations.store_for(location)
    store.put(path, b"of its owner")
    with pytest.raises(NotEmptyError):
        lake.catalog.stage_table(location)
    assert store.get(path) == b"of its owner"


@req("LC-03")
def test_an_undrop_told_again_after_a_lost_answer_is_answered_the_same(lake: House) -> None:
    table, other = lake.create(), lake.create("other")
    lake.catalog.drop_table(table.table_id)
    u = TableName.parse("u")
    for name in (None, T, None):  # as it was, and by its name
        lake.catalog.undrop_table(table.table_id, name)
        assert lake.catalog.resolve(T).table_id == table.table_id
    # Another name was not given, and what was never dropped has no other name either.
    for table_id in (table.table_id, other.table_id):
        with pytest.raises(RefusedError, match="cannot undrop"):
            lake.catalog.undrop_table(table_id, u)
    lake.catalog.drop_table(table.table_id)
    for _ in range(2):
        lake.catalog.undrop_table(table.table_id, u)
    assert lake.catalog.resolve(u).table_id == table.table_id
    with pytest.raises(RefusedError, match="cannot undrop"):
        lake.catalog.undrop_table(table.table_id, T)  # its name of before
    with pytest.raises(NotFoundError):
        lake.catalog.undrop_table(new_table_id(), u)


@req("MN-02")
def test_staging_tables_nobody_registered_expire(inline_lake: House) -> None:
    house = inline_lake
    left = house.database.stage_table()
    lay(left, first(left.table_id))
    [path] = Path(left.location.removeprefix("file://")).rglob("*.json")
    os.utime(path, (house.clock.ms / 1000,) * 2)
    house.clock.ms += 10_000
    fresh = house.database.stage_table()
    assert house.database.expire_staging(5_000) == (left.table_id,)
    assert list(locations.store_for(left.location).list("", recursive=True)) == []
    with pytest.raises(RefusedError):
        house.database.register_table(T, left.table_id)
    lay(fresh, first(fresh.table_id))
    assert house.database.register_table(T, fresh.table_id).latest == 0


def test_namespaces_are_made_listed_and_removed_when_empty(house: House) -> None:
    sales = SchemaName.parse("sales")
    with pytest.raises(NotFoundError, match="namespace"):
        house.create("sales.orders")
    house.catalog.create_namespace(sales)
    with pytest.raises(AlreadyExistsError):
        house.catalog.create_namespace(SchemaName.parse("SALES"))
    assert {str(name) for name in house.catalog.namespaces()} == {"main.default", "main.sales"}
    table = house.create("sales.orders")
    with pytest.raises(NotEmptyError):
        house.catalog.drop_namespace(sales)
    house.catalog.drop_table(table.table_id)
    house.catalog.purge_table(table.table_id)
    house.catalog.drop_namespace(sales)
    assert {str(name) for name in house.catalog.namespaces()} == {"main.default"}


@shows("FI9")
@pytest.mark.parametrize("name", ["größe", "名前", "a@b-c_d", "x" * 200, "ÅNGSTRÖM", "CON"])
def test_odd_names_are_names_and_differ_not_by_case(house: House, name: str) -> None:
    table = house.create(name)
    assert house.catalog.resolve(TableName.parse(name.swapcase())).table_id == table.table_id
    with pytest.raises(AlreadyExistsError):
        house.create(name.swapcase())
    assert len(house.catalog.tables()) == 1


@req("CA-01")
def test_what_a_filesystem_catalog_cannot_do_it_refuses_by_name(tmp_path: Path) -> None:
    house = House(tmp_path / "lake", Way.PUT_IF_ABSENT, ManualClock())
    table = house.create()
    part = house.part(table.table_id, 1, add(), txn_id=new_txn_id())
    other = house.create("u")
    with pytest.raises(UnsupportedByCatalogError, match="one table at a time"):
        house.catalog.propose(
            type(house.proposal(table.table_id, 1, add()))(
                txn_id=new_txn_id(),
                parts=(
                    part,
                    house.part(other.table_id, 1, add(), txn_id=new_txn_id()),
                ),
            )
        )
    for call in (
        lambda: house.catalog.rename_table(table.table_id, TableName.parse("v")),
        lambda: house.catalog.rename_namespace(SchemaName.parse("default"), "other"),
        lambda: house.catalog.rename_catalog("main", "other"),
        lambda: house.catalog.undrop_table(table.table_id),
        lambda: house.catalog.stage_table(),
        lambda: house.catalog.register_table(T, table.table_id),
        lambda: house.catalog.resolve(table.table_id, 1),  # type: ignore[arg-type]
    ):
        with pytest.raises(UnsupportedByCatalogError):
            call()
    assert [entry.state for entry in house.catalog.tables()] == [
        TableStatus.ACTIVE,
        TableStatus.ACTIVE,
    ]


@req("CM-13")
@pytest.mark.parametrize("crash", ["filesystem.before_put", "filesystem.after_put"])
def test_a_put_counts_from_its_visibility_whether_or_not_the_sender_hears_of_it(
    tmp_path: Path, crash: str
) -> None:
    house = House(tmp_path / "lake", Way.PUT_IF_ABSENT, ManualClock())
    table = house.create()
    proposal = house.proposal(table.table_id, 1, add())
    failpoints.arm(f"{crash}:raise")
    try:
        with pytest.raises(failpoints.FailPointError):
            house.catalog.propose(proposal)
    finally:
        failpoints.arm("")
    house.restart()
    seen = 1 if crash.endswith("after_put") else 0
    assert house.catalog.resolve(table.table_id).latest == seen
    answer = house.catalog.propose(proposal)  # the sender asks again and finds it
    assert isinstance(answer, Ratified)
    assert answer.commits[table.table_id].version == 1
    assert house.catalog.resolve(table.table_id).latest == 1


class LossyStore(WrappedStore):
    """A store whose next put gets no answer, and may have been carried out."""

    loses: bool | None = None  # whether the put is lost too; None: nothing is lost

    def around(self, call: Call, effect: Callable[[], Effect]) -> Effect:
        if call.method != "put_if_absent" or self.loses is None:
            return effect()
        if not self.loses:
            effect()
        self.loses = None
        raise PutUnknownError("The answer was lost.")


@req("CM-13", "CM-43")
@shows("FC4")
@pytest.mark.parametrize("is_put_lost", [False, True])
def test_a_put_without_an_answer_is_unknown_and_sending_it_again_settles_it(
    tmp_path: Path, is_put_lost: bool
) -> None:
    store = LossyStore(LocalStore(tmp_path / "lake"))
    locations.mount(str(tmp_path / "lake"), store)
    house = House(tmp_path / "lake", Way.PUT_IF_ABSENT, ManualClock())
    table_id = house.create().table_id
    proposal = house.proposal(table_id, 1, add())
    store.loses = is_put_lost
    with pytest.raises(OutcomeUnknownError) as unknown:
        house.catalog.propose(proposal)
    assert unknown.value.txn_id == proposal.txn_id
    assert house.catalog.resolve(table_id).latest == (0 if is_put_lost else 1)
    for _ in range(2):
        answer = house.catalog.propose(proposal)
        assert isinstance(answer, Ratified)
        assert answer.commits[table_id].version == 1
    assert house.catalog.resolve(table_id).latest == 1


@req("CM-09", "CM-13")
def test_on_a_filesystem_catalog_a_file_another_client_put_is_the_version(tmp_path: Path) -> None:
    house = House(tmp_path / "lake", Way.PUT_IF_ABSENT, ManualClock())
    table = house.create()
    content = file_content(add(), txn_id=new_txn_id(), timestamp_ms=START_MS + 5)
    house.log(table.table_id).store.put_if_absent(PublishedCommit(Version(1)).path, content)
    assert house.catalog.resolve(table.table_id).latest == 1
    assert isinstance(house.propose(table.table_id, 2, add()), Ratified)


def test_creating_with_content_that_cannot_be_a_first_version_changes_nothing(
    house: House,
) -> None:
    table_id = new_table_id()
    with pytest.raises(InvalidCommitError):
        house.catalog.create_table(
            T, table_id, new_txn_id(), Inline(commit_info={}, actions=inline(add()).actions)
        )
    assert house.catalog.tables(dropped=True) == ()


def test_a_catalog_that_publishes_has_version_0_in_the_log_before_it_answers(
    tmp_path: Path,
) -> None:
    idle = Settings(publish_linger_ms=300)  # the publisher's own turn comes later
    with headgate.connect(tmp_path / "lake", settings=idle) as session:
        made = session.create_table("t", "id long")
        log = Path(made.location.removeprefix("file://")) / "_delta_log"
        assert [path.name for path in log.glob("*.json")] == [f"{0:020d}.json"]


def test_a_table_is_made_although_version_0_cannot_be_published_yet(tmp_path: Path) -> None:
    with headgate.connect(tmp_path / "lake") as session:
        (tmp_path / "lake" / "tables").write_text("no folder")
        session.create_table("t", "id long")
        [entry] = session.tables()
        assert entry.published is None
        (tmp_path / "lake" / "tables").unlink()
        assert session.table("t").publish() == 0
