"""Table Discovery and Getting Ratified Commits: resolving a name is one call, and brings all that a
reader needs; what the catalog knows is not read from the log."""

import pytest

import headgate
from headgate.protocol.commit.content import Way
from headgate.storage import locations
from headgate.storage.local import LocalStore
from tests.conformance.conftest import Lake, Story, directory, ours, published
from tests.kit import req, shows
from tests.kit.faulty_catalogs import LosingCatalog
from tests.kit.faulty_stores import CountingStore, NoStagedListing


def counting(story: Story) -> CountingStore:
    """Count the calls to the table's location from now on; staged commits cannot be listed."""
    store = CountingStore(NoStagedListing(LocalStore(directory(story.location))))
    locations.mount(story.location, store)
    return store


def in_log(store: CountingStore, *methods: str) -> int:
    return store.count(*methods, prefix="_delta_log")


def cold(lake: Lake) -> tuple[headgate.Table, LosingCatalog]:
    """Open the table in a client that knows nothing yet, over a catalog that counts."""
    catalog = LosingCatalog(lake.connect().catalog)
    return lake.through(catalog).table("orders"), catalog


@req("CM-21", "RD-04", "RD-08")
def test_an_inline_table_is_read_cold_in_one_call_and_without_a_look_at_its_log(
    lake: Lake,
) -> None:
    story = lake.story()
    for number in range(12):
        story.append(number)
    story.remove(3)
    counted = counting(story)
    table, catalog = cold(lake)
    assert table.version == 13
    assert dict(catalog.calls) == {"resolve": 1}
    assert ours(table) == story.rows_at(13)
    assert dict(catalog.calls) == {"resolve": 2}  # a read asks for the latest, once
    assert counted.count("list", "folders") == 0
    assert in_log(counted) == 0


@req("RD-08")
def test_inline_content_comes_with_the_answer_for_as_long_as_its_commit_is_listed(
    lake: Lake,
) -> None:
    story = lake.story()
    for number in range(8):
        story.append(number)
    story.publish()
    assert published(story.location, 8).exists()
    counted = counting(story)
    table, catalog = cold(lake)
    assert ours(table) == story.rows_at(8)
    assert set(catalog.calls) == {"resolve"}
    assert in_log(counted) == counted.count("list", "folders") == 0


@req("CM-21", "RD-04")
def test_a_staged_tail_costs_one_call_and_a_read_of_each_of_its_files(lake: Lake) -> None:
    story = lake.story()
    for number in range(6):
        story.append(number, way=Way.STAGED)
    counted = counting(story)
    table, catalog = cold(lake)
    assert table.version == 6
    assert dict(catalog.calls) == {"resolve": 1}
    assert list(counted.calls) == []
    assert ours(table) == story.rows_at(6)
    assert dict(catalog.calls) == {"resolve": 2}
    assert in_log(counted, "get") == in_log(counted) == 6
    assert counted.count("list", "folders") == 0


@req("CM-21", "RD-04")
@pytest.mark.slow
def test_a_long_published_past_is_read_in_one_call_from_the_checkpoint_the_catalog_knows(
    lake: Lake,
) -> None:
    story = lake.story()
    story.write()
    for number in range(150):
        story.set_property(str(number))
    story.publish(150)
    story.checkpoint(150)
    story.publish(155)
    lake.forget()
    counted = counting(story)
    table, catalog = cold(lake)
    assert table.version == story.latest
    assert ours(table) == story.rows_at(story.latest)
    assert catalog.calls["resolve"] == 2
    assert counted.count("list", "folders") == 0
    # Versions 151 to 155 are published and no longer listed; the catalog still has them.
    assert catalog.calls["ratified_commits"] <= 1


@req("RD-04")
@pytest.mark.slow
def test_a_long_published_past_without_a_checkpoint_is_read_without_a_listing(lake: Lake) -> None:
    story = lake.story()
    story.write()
    for number in range(150):
        story.set_property(str(number))
    story.publish()
    lake.forget()
    counted = counting(story)
    table, catalog = cold(lake)
    assert ours(table) == story.rows_at(story.latest)
    assert counted.count("list", "folders") == 0
    assert catalog.calls["ratified_commits"] <= 1


@req("RD-03")
def test_what_a_table_is_is_known_before_anything_is_read(lake: Lake) -> None:
    story = lake.story(properties={"delta.enableRowTracking": "true"})
    story.write()
    story.publish(6)
    story.checkpoint(4)
    lake.table().write_checksum()
    counted = counting(story)
    resolved = lake.catalog.resolve(story.id)
    assert resolved.metadata is not None
    assert resolved.protocol is not None
    assert resolved.checksum is not None
    assert resolved.metadata.configuration["number"] == "first"
    assert resolved.metadata.partition_columns == ["part"]
    assert "rowTracking" in (resolved.protocol.writer_features or ())
    assert resolved.checksum.num_files == len(story.versions[-1])
    assert list(counted.calls) == []
    table, _ = cold(lake)
    assert ours(table) == story.rows_at(story.latest)
    assert not any(path.endswith(".crc") for call in counted.calls for path in call.paths)


@req("CM-03")
@shows("FX16", "S13")
def test_staged_files_nobody_ratified_cost_nothing_and_change_nothing(lake: Lake) -> None:
    story = lake.story()
    story.write()
    staged = directory(story.location) / "_delta_log" / "_staged_commits"
    for version in range(story.latest + 3):
        for number in range(40):
            name = f"{version:020d}.00000000-0000-4000-8000-{number:012d}.json"
            (staged / name).write_bytes(b'{"add":')
    counted = counting(story)
    table, catalog = cold(lake)
    assert ours(table) == story.rows_at(story.latest)
    assert set(catalog.calls) == {"resolve"}
    assert counted.count("list", "folders") == 0
    ratified = lake.catalog.resolve(story.id).commits
    assert in_log(counted) == sum(commit.way is Way.STAGED for commit in ratified)


@req("RD-01")
def test_the_catalog_is_asked_before_storage_is_looked_at(lake: Lake) -> None:
    story = lake.story()
    story.write()
    story.publish(5)
    lake.forget()
    counted = counting(story)
    asked: list[int] = []

    class Noting(LosingCatalog):
        def resolve(self, *args: object) -> object:  # type: ignore[override]
            asked.append(len(counted.calls))
            return super().resolve(*args)  # type: ignore[arg-type]

    table = lake.through(Noting(lake.connect().catalog)).table("orders")
    assert asked == [0]
    assert len(table.snapshot().files()) > 0
    assert asked == [0, 0]
    assert len(counted.calls) > 0
    assert table.version == story.latest
