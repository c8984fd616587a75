"""Catalog Responsibilities: the protocol, the metadata and the checksum that the catalog serves are
those of the log, at every version of any history. The log is read here as plain JSON, by no reader
of ours."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headgate.api.messages import Resolved
from headgate.protocol.actions import DomainMetadata, Metadata, Protocol, encode
from headgate.protocol.commit.content import Way
from tests.conformance.conftest import WAYS, Lake, Story, lines, log_of
from tests.kit import req, shows
from tests.kit.builders import ManualClock


@dataclass
class Folded:
    """What a log comes to, found out line by line."""

    protocol: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    txn_id: str = ""
    timestamp_ms: int = 0

    def take(self, actions: Iterable[dict[str, Any]]) -> None:
        for line in actions:
            [(kind, fields)] = line.items()
            match kind:
                case "commitInfo":
                    self.txn_id, self.timestamp_ms = fields["txnId"], fields["inCommitTimestamp"]
                case "protocol":
                    self.protocol = fields
                case "metaData":
                    self.metadata = fields
                case "add":
                    self.sizes[fields["path"]] = fields["size"]
                case "remove":
                    del self.sizes[fields["path"]]
                case "domainMetadata":
                    self.domains[fields["domain"]] = fields


def plain(action: Protocol | Metadata | DomainMetadata | None) -> dict[str, Any]:
    assert action is not None
    [fields] = json.loads(encode(action)).values()
    assert isinstance(fields, dict)
    return fields


def agrees(resolved: Resolved, folded: Folded) -> None:
    """Hold what the catalog serves against what its log comes to."""
    checksum = resolved.checksum
    assert plain(resolved.protocol) == folded.protocol
    assert plain(resolved.metadata) == folded.metadata
    assert resolved.timestamp_ms == folded.timestamp_ms
    assert checksum is not None
    assert plain(checksum.protocol) == folded.protocol
    assert plain(checksum.metadata) == folded.metadata
    assert checksum.num_files == len(folded.sizes)
    assert checksum.table_size_bytes == sum(folded.sizes.values())
    assert checksum.txn_id == folded.txn_id
    assert checksum.in_commit_timestamp_opt == folded.timestamp_ms
    assert {
        action.domain: plain(action) for action in checksum.domain_metadata or ()
    } == folded.domains


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "overwrite", "remove", "set", "unset", "comment", "feature"]
        ),
        st.integers(0, 30),
        st.sampled_from(WAYS),
    ),
    max_size=12,
)


def take_step(story: Story, what: str, number: int, way: Way) -> None:
    table = story.lake.table(story.name, way)
    match what:
        case "append":
            story.append(*range(number, number + 3), way=way)
        case "overwrite":
            story.overwrite(*range(number), way=way)
        case "remove":
            story.remove(number, way)
        case "set":
            story.set_property(str(number), way)
        case "unset" if "number" in table.properties:
            table.unset_properties(["number"])
        case "comment":
            table.comment(f"comment {number}" if number % 3 else None)
        case "feature":
            features = ["enableChangeDataFeed", "enableDeletionVectors", "enableTypeWidening"]
            table.set_properties({f"delta.{features[number % 3]}": "true"})
    latest = story.lake.catalog.resolve(story.id).latest
    while story.latest < latest:  # of what was done around the model
        story.versions.append(story.versions[-1])


@req("RD-03")
@shows("S16")
@pytest.mark.slow
@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS, publish_every=st.integers(1, 5), tracked=st.booleans())
def test_what_the_catalog_serves_is_what_the_log_says_after_every_step(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int, Way]],
    publish_every: int,
    tracked: bool,
) -> None:
    root = tmp_path_factory.mktemp("root")
    lake = Lake(root, root / "scratch", ManualClock())
    try:
        story = lake.story(properties={"delta.enableRowTracking": str(tracked).lower()})
        folded = Folded()
        folded.take(lines(lake, story.id, 0))
        agrees(lake.catalog.resolve(story.id), folded)
        for number, step in enumerate(steps):
            known = story.latest
            take_step(story, *step)
            for version in range(known + 1, story.latest + 1):
                folded.take(lines(lake, story.id, version))
            if number % publish_every == 0:
                story.publish()
                if number % 2:
                    story.checkpoint(story.latest)
            resolved = lake.catalog.resolve(story.id)
            assert resolved.latest == story.latest
            agrees(resolved, folded)
            agrees(lake.sessions[Way.STAGED].catalog.resolve(story.id), folded)
    finally:
        lake.close()


def test_at_an_earlier_sequence_protocol_and_metadata_are_those_of_then_or_not_given(
    lake: Lake,
) -> None:
    story = lake.story()
    story.write()
    lake.table().comment("later")
    folded, sequences = Folded(), [entry.commit.sequence for entry in lake.table().log()]
    for version, sequence in enumerate(sequences):
        folded.take(lines(lake, story.id, version))
        resolved = lake.catalog.resolve(story.id, sequence)
        assert resolved.latest == version
        if resolved.metadata is not None:
            assert plain(resolved.metadata) == folded.metadata
            assert plain(resolved.protocol) == folded.protocol
        snapshot = lake.table().snapshot(sequence=sequence)
        assert plain(snapshot.metadata) == folded.metadata
        assert plain(snapshot.protocol) == folded.protocol


@req("RD-03", "CM-29")
def test_the_checksum_of_an_unpublished_version_is_what_its_log_comes_to(lake: Lake) -> None:
    story = lake.story(properties={"delta.enableRowTracking": "true"})
    story.write()
    story.publish(3)
    table = lake.table()
    folded = Folded()
    for version in range(story.latest + 1):
        folded.take(lines(lake, story.id, version))
        table.write_checksum(version)
        checksum = json.loads((log_of(story.location) / f"{version:020d}.crc").read_text())
        assert checksum["numFiles"] == len(folded.sizes) == len(story.versions[version])
        assert checksum["tableSizeBytes"] == sum(folded.sizes.values())
        assert checksum["metadata"] == folded.metadata
        assert checksum["protocol"] == folded.protocol
        assert checksum["inCommitTimestampOpt"] == folded.timestamp_ms
        found = {domain["domain"]: domain for domain in checksum["domainMetadata"]}
        assert found == folded.domains


@req("CM-07", "CM-08")
@pytest.mark.slow
def test_a_hundred_commits_nobody_published_are_served_to_another_client(lake: Lake) -> None:
    story = lake.story()
    for number in range(100):
        story.set_property(str(number), WAYS[number % 2])
    resolved = lake.connect().catalog.resolve(story.id)
    assert [commit.version for commit in resolved.commits] == [*range(101)]
    assert not list(log_of(story.location).glob("*.json"))
    assert lake.table().properties["number"] == "99"
