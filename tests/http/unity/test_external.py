"""External tables: what clients declare of them is kept, returned and changed."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import HeadgateError
from headgate.http.unity import bodies, external_tables
from headgate.protocol.actions import Format, Metadata
from headgate.protocol.schema import types as schemas
from tests.http.conftest import Served
from tests.http.unity.conftest import BASE, IN_DEFAULT, add_commit, claim, error, older_error
from tests.kit import req

URL = f"{IN_DEFAULT}/tables/ext"

# As the connector sends it: a type, and nothing else, in `type_json`.
COLUMNS = [
    {
        "name": "id",
        "type_text": "bigint",
        "type_name": "LONG",
        "type_json": '"long"',
        "nullable": False,
        "position": 0,
        "comment": "which one",
    },
    {"name": "town", "type_text": "string", "type_json": '"string"', "partition_index": 1},
    {"name": "day", "type_text": "date", "type_json": '"date"', "partition_index": 0},
]
CSV = {
    "name": "ext",
    "catalog_name": "main",
    "schema_name": "default",
    "table_type": "EXTERNAL",
    "data_source_format": "CSV",
    "storage_location": "file:///elsewhere/ext",
    "columns": COLUMNS,
    "comment": "from the shops",
    "properties": {"header": "true", "sep": ";", "nothing": None},
}
DELTA = {**CSV, "data_source_format": "DELTA", "properties": {"owner": "me", "old": "x"}}


def named(http: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    made = http.post(f"{BASE}/tables", json=body)
    assert made.status_code == 200, made.text
    return dict(made.json())


def change(table: dict[str, Any], *updates: Any, etag: str | None = None) -> dict[str, Any]:
    requirements = [{"type": "assert-table-uuid", "uuid": table["table_id"]}]
    if etag is not None:
        requirements.append({"type": "assert-etag", "etag": etag})
    return {"requirements": requirements, "updates": list(updates)}


def test_all_that_is_declared_is_told_again(served: Served) -> None:
    made = named(served.http, CSV)
    table = served.http.get(f"{BASE}/tables/main.default.ext").json()
    assert table == made
    where = {"catalog_name": "main", "schema_name": "default"}
    assert served.http.get(f"{BASE}/tables", params=where).json()["tables"] == [table]
    assert table["comment"] == "from the shops"
    assert table["properties"] == {"header": "true", "sep": ";"}
    first, town, day = table["columns"]
    assert (first["comment"], first["nullable"]) == ("which one", False)
    assert json.loads(first["type_json"]) == {
        "name": "id",
        "type": "long",
        "nullable": False,
        "metadata": {"comment": "which one"},
    }
    assert "partition_index" not in first
    assert (town["partition_index"], day["partition_index"]) == (1, 0)
    resolved = served.http.get("/v1/names/ext").json()["metadata"]
    assert resolved["configuration"] == table["properties"]
    assert resolved["description"] == "from the shops"
    assert resolved["partitionColumns"] == ["day", "town"]


def test_what_has_no_columns_keeps_its_properties(served: Served) -> None:
    made = named(served.http, {**CSV, "columns": []})
    assert (made["columns"], made["properties"]["sep"]) == ([], ";")
    resolved = served.http.get("/v1/names/ext").json()
    assert resolved["metadata"]["configuration"]["sep"] == ";"


def test_the_same_again_is_answered_as_the_first_time_and_another_is_not(served: Served) -> None:
    made = named(served.http, CSV)
    with served.catalog._store.read() as unit:
        before = unit.clock()
    again = {**CSV, "storage_location": "file:/elsewhere//ext/"}
    assert named(served.http, again) == made
    for other in (
        {"name": "EXT"},
        {"storage_location": "file:///elsewhere/other"},
        {"data_source_format": "JSON"},
        {"columns": COLUMNS[:2]},
        {"comment": "others"},
        {"properties": {"header": "false"}},
    ):
        refused = served.http.post(f"{BASE}/tables", json={**CSV, **other})
        assert older_error(refused) == (400, "TABLE_ALREADY_EXISTS")
    with served.catalog._store.read() as unit:
        assert unit.clock() == before


def test_what_clients_say_of_it_later_is_kept(http: httpx.Client) -> None:
    made = named(http, DELTA)
    etag = http.get(URL).json()["metadata"]["etag"]
    field = {"name": "n", "type": "long", "nullable": True, "metadata": {"x": [1, None]}}
    town = {"name": "town", "type": "string", "nullable": True, "metadata": {}}
    columns = {"type": "struct", "fields": [field, town]}
    protocol = {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": ["deletionVectors"],
        "writer-features": ["deletionVectors", "rowTracking"],
    }
    domains = {
        "delta.clustering": {"clusteringColumns": [["n"]]},
        "delta.rowTracking": {"rowIdHighWaterMark": 41},
    }
    snapshot = {"last-commit-version": 3, "last-commit-timestamp-ms": 1_790_000_000_000}
    body = change(
        made,
        {"action": "update-metadata-snapshot-version", **snapshot},
        {"action": "set-table-comment", "comment": "ours"},
        {"action": "set-domain-metadata", "updates": domains},
        {"action": "remove-properties", "removals": ["old"]},
        {"action": "set-properties", "updates": {"owner": "you", "new": "y"}},
        {"action": "set-protocol", "protocol": protocol},
        {"action": "set-columns", "columns": columns},
        etag=etag,
    )
    answer = http.post(URL, json=body)
    assert answer.status_code == 200, answer.text
    loaded = answer.json()
    assert loaded == http.get(URL).json()
    assert loaded.keys() == {"metadata"}
    table = loaded["metadata"]
    assert table["etag"] != etag
    assert table["updated-time"] >= table["created-time"]
    assert table["columns"] == columns
    assert table["partition-columns"] == ["town"]
    assert table["last-commit-version"] == 3
    assert table["last-commit-timestamp-ms"] == 1_790_000_000_000
    assert table["properties"] == {
        "owner": "you",
        "new": "y",
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
        "delta.feature.deletionVectors": "supported",
        "delta.feature.rowTracking": "supported",
        "clusteringColumns": '[["n"]]',
        "delta.lastUpdateVersion": "3",
        "delta.lastCommitTimestamp": "1790000000000",
    }
    older = http.get(f"{BASE}/tables/main.default.ext").json()
    assert (older["comment"], older["properties"]) == ("ours", table["properties"])
    # Sent again it changes nothing, though the etag is another by now.
    assert http.post(URL, json=body).json() == loaded
    undone = change(
        made,
        {"action": "remove-domain-metadata", "domains": ["delta.clustering"]},
        {"action": "set-table-comment"},
        {"action": "set-partition-columns", "partition-columns": []},
        {"action": "set-protocol", "protocol": {"min-reader-version": 1, "min-writer-version": 2}},
    )
    table = http.post(URL, json=undone).json()["metadata"]
    assert table["partition-columns"] == []
    assert "clusteringColumns" not in table["properties"]
    assert not [key for key in table["properties"] if key.startswith("delta.feature.")]
    assert "comment" not in http.get(f"{BASE}/tables/main.default.ext").json()


def test_a_change_of_what_changed_meanwhile_is_409(http: httpx.Client) -> None:
    made = named(http, DELTA)
    etag = http.get(URL).json()["metadata"]["etag"]
    first = {"action": "set-properties", "updates": {"owner": "first"}}
    second = {"action": "set-properties", "updates": {"owner": "second"}}
    assert http.post(URL, json=change(made, first, etag=etag)).status_code == 200
    lost = http.post(URL, json=change(made, second, etag=etag))
    assert error(lost) == (409, "UpdateRequirementConflictException")
    assert http.get(URL).json()["metadata"]["properties"]["owner"] == "first"


WRONG: dict[str, dict[str, Any]] = {
    "a commit": add_commit(
        {
            "version": 1,
            "timestamp": 1,
            "file-name": "x",
            "file-size": 1,
            "file-modification-timestamp": 1,
        }
    ),
    "a published version": claim(1),
    "columns that are none": {"action": "set-columns", "columns": {"type": "long"}},
    "partitioning by no column": {
        "action": "set-partition-columns",
        "partition-columns": ["none"],
    },
    "an unknown domain": {"action": "set-domain-metadata", "updates": {"mine": {}}},
    "a domain of another form": {
        "action": "set-domain-metadata",
        "updates": {"delta.clustering": {}},
    },
    "an unknown domain to go": {"action": "remove-domain-metadata", "domains": ["mine"]},
    "a version below 0": {
        "action": "update-metadata-snapshot-version",
        "last-commit-version": -1,
        "last-commit-timestamp-ms": 1,
    },
    "to be managed": {
        "action": "set-properties",
        "updates": {"delta.feature.catalogManaged": "supported"},
    },
    "to be managed by protocol": {
        "action": "set-protocol",
        "protocol": {
            "min-reader-version": 3,
            "min-writer-version": 7,
            "writer-features": ["catalogManaged"],
        },
    },
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_said_of_it_is_400_and_changes_nothing(
    http: httpx.Client, case: str
) -> None:
    made = named(http, DELTA)
    before = http.get(URL).json()
    fine = {"action": "set-table-comment", "comment": "new"}
    refused = http.post(URL, json=change(made, WRONG[case], fine))
    assert error(refused)[0] == 400
    assert http.get(URL).json() == before


@req("EN-02")
def test_a_table_that_says_it_is_managed_is_not_named(http: httpx.Client) -> None:
    body = {**DELTA, "properties": {"delta.feature.catalogManaged": "supported"}}
    refused = http.post(f"{BASE}/tables", json=body)
    assert older_error(refused) == (400, "INVALID_ARGUMENT")


def test_what_is_no_delta_table_is_not_changed_here(http: httpx.Client) -> None:
    made = named(http, CSV)
    update = {"action": "set-table-comment", "comment": "new"}
    refused = http.post(URL, json=change(made, update))
    assert error(refused) == (400, "UnsupportedTableFormatException")
    assert http.get(f"{BASE}/tables/main.default.ext").json() == made


TEXTS = st.sampled_from(["a", "b", "", "delta.lastUpdateVersion", "delta.feature.x", "ä\0"])
FIELDS = st.fixed_dictionaries(
    {
        "name": TEXTS,
        "type": st.sampled_from(["long", "decimal(3,1)", "what", None, {"type": "array"}]),
        "nullable": st.booleans(),
        "metadata": st.dictionaries(TEXTS, st.integers() | st.none(), max_size=2),
    }
)
STRUCTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["struct", "map"]), "fields": st.lists(FIELDS, max_size=3)}
)
NUMBERS = st.integers(-(1 << 70), 1 << 70)
NAMES = st.lists(TEXTS, max_size=3).map(tuple)
DOMAINS = st.sampled_from(["delta.clustering", "delta.rowTracking", "mine"])
UPDATES = st.tuples(
    st.builds(bodies.SetColumns, columns=STRUCTS),
    st.builds(bodies.SetPartitionColumns, partition_columns=NAMES),
    st.builds(
        bodies.SetProtocol,
        protocol=st.builds(
            bodies.DeltaProtocol,
            min_reader_version=NUMBERS,
            min_writer_version=NUMBERS,
            reader_features=NAMES,
            writer_features=NAMES,
        ),
    ),
    st.builds(bodies.SetProperties, updates=st.dictionaries(TEXTS, TEXTS | st.none(), max_size=3)),
    st.builds(bodies.RemoveProperties, removals=NAMES),
    st.builds(
        bodies.SetDomainMetadata,
        updates=st.dictionaries(
            DOMAINS,
            st.sampled_from([{"clusteringColumns": [["a"]]}, {"rowIdHighWaterMark": 1}, {}, None]),
            max_size=2,
        ),
    ),
    st.builds(bodies.RemoveDomainMetadata, domains=st.lists(DOMAINS, max_size=2).map(tuple)),
    st.builds(bodies.SetTableComment, comment=TEXTS | st.none()),
    st.builds(
        bodies.SetSnapshotVersion, last_commit_version=NUMBERS, last_commit_timestamp_ms=NUMBERS
    ),
)


@given(UPDATES, st.sets(st.integers(0, 8)), st.randoms())
def test_updates_in_any_order_are_one_change_that_can_be_told_again(
    drawn: tuple[bodies.Update, ...], chosen: set[int], chance: Any
) -> None:
    updates = [drawn[place] for place in sorted(chosen)]
    before = Metadata(
        id="x",
        format=Format(provider="delta"),
        schema_string=schemas.to_json(schemas.StructType(())),
        configuration={"a": "old", "delta.feature.x": "supported"},
    )
    shuffled = list(updates)
    chance.shuffle(shuffled)
    try:
        after = external_tables.changed(before, updates)
    except HeadgateError:
        with pytest.raises(HeadgateError):
            external_tables.changed(before, shuffled)
        return
    assert external_tables.changed(before, shuffled) == after
    assert external_tables.changed(after, updates) == after
    fields = schemas.from_json(after.schema_string).fields
    assert {field.name for field in fields}.issuperset(after.partition_columns)
    external_tables.last_commit(after)
