from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import MalformedError
from headgate.protocol.actions import (
    AddFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Version,
)
from headgate.protocol.encoding import to_json
from headgate.protocol.log import checksums
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.replay import TableState

relaxed = settings(deadline=None)
METADATA = Metadata(id="5f3c", schema_string='{"type":"struct","fields":[]}')
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=["deletionVectors"],
    writer_features=["deletionVectors", "appendOnly"],
)


def vector(cardinality: int) -> DeletionVector:
    return DeletionVector(
        storage_type="i",
        path_or_inline_dv=f"{cardinality:05d}",
        size_in_bytes=4,
        cardinality=cardinality,
    )


def add(
    path: str, size: int = 10, *, data_change: bool = True, deleted: int | None = None
) -> AddFile:
    return AddFile(
        path=path,
        partition_values={},
        size=size,
        modification_time=0,
        data_change=data_change,
        deletion_vector=None if deleted is None else vector(deleted),
    )


def remove(path: str, size: int | None = 10, *, deleted: int | None = None) -> RemoveFile:
    return RemoveFile(
        path=path,
        data_change=True,
        size=size,
        deletion_vector=None if deleted is None else vector(deleted),
    )


def first(*adds: AddFile, domains: Sequence[DomainMetadata] = ()) -> VersionChecksum:
    files = checksums.files_after(None, adds, ())
    assert files is not None
    return VersionChecksum(
        table_size_bytes=files.size_bytes,
        num_files=files.num_files,
        metadata=METADATA,
        protocol=PROTOCOL,
        domain_metadata=tuple(domains),
    )


def advance(before: VersionChecksum, **commit: object) -> VersionChecksum | None:
    commit = {"metadata": METADATA, "protocol": PROTOCOL} | commit
    return checksums.advance(before, **commit)  # type: ignore[arg-type]


def counts(checksum: VersionChecksum | None) -> tuple[int, int]:
    assert checksum is not None
    return checksum.num_files, checksum.table_size_bytes


def test_version_0_counts_its_own_files() -> None:
    assert checksums.files_after(None, [add("a", 5), add("b", 6)], []) == (2, 11)


def test_counters_go_on_from_the_version_before() -> None:
    before = first(add("a", 5), add("b", 6))
    after = advance(before, adds=[add("c", 7)], removes=[remove("a", 5)])
    assert counts(after) == (2, 13)


def test_metadata_and_protocol_are_the_newest() -> None:
    renamed = msgspec.structs.replace(METADATA, name="other")
    lower = Protocol(min_reader_version=1, min_writer_version=2)
    after = advance(first(), metadata=renamed, protocol=lower)
    assert after is not None
    assert (after.metadata, after.protocol) == (renamed, lower)


def test_a_file_with_another_deletion_vector_is_replaced_and_still_one_file() -> None:
    before = first(add("a", 5), add("b", 6, deleted=2))
    after = advance(
        before,
        adds=[add("a", 5, deleted=3), add("b", 6, deleted=4)],
        removes=[remove("a", None), remove("b", 6, deleted=2)],
    )
    assert counts(after) == (2, 11)


def test_a_removed_file_of_unknown_size_makes_the_sum_unknown() -> None:
    assert advance(first(add("a")), removes=[remove("a", None)]) is None


def test_a_file_added_again_without_data_change_makes_the_sum_unknown() -> None:
    assert advance(first(add("a")), adds=[add("a", data_change=False)]) is None


def test_compaction_is_counted() -> None:
    before = first(add("a"), add("b"))
    after = advance(
        before,
        adds=[add("ab", 18, data_change=False)],
        removes=[remove("a"), remove("b")],
    )
    assert counts(after) == (1, 18)


def test_one_path_twice_makes_the_sum_unknown() -> None:
    assert advance(first(), adds=[add("a"), add("a", deleted=1)]) is None
    both = [remove("a"), remove("a", deleted=1)]
    assert advance(first(add("a"), add("b")), removes=both) is None


def test_more_removed_than_was_there_makes_the_sum_unknown() -> None:
    assert advance(first(), removes=[remove("a")]) is None


def test_a_removed_domain_is_taken_out() -> None:
    kept = DomainMetadata(domain="d", configuration="{}", removed=False)
    gone = DomainMetadata(domain="e", configuration="{}", removed=False)
    before = first(domains=[kept, gone])
    after = advance(before, domains=[DomainMetadata(domain="e", configuration="{}", removed=True)])
    assert after is not None
    assert after.domain_metadata == (kept,)


def test_domains_that_are_not_known_stay_unknown() -> None:
    domain = DomainMetadata(domain="d", configuration="{}", removed=False)
    after = advance(msgspec.structs.replace(first(), domain_metadata=None), domains=[domain])
    assert after is not None
    assert after.domain_metadata is None


histories = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), max_size=4),
        st.sets(st.integers(0, 20), max_size=4),
    ),
    max_size=8,
)


@given(histories)
@relaxed
def test_the_sums_agree_with_the_files_that_are_there(
    history: list[tuple[list[tuple[int, int]], set[int]]],
) -> None:
    live: dict[str, int] = {}
    checksum = first()
    for version, (new, old) in enumerate(history):
        removes = [remove(path, live[path]) for path in sorted(live) if int(path[1:]) in old]
        adds = [add(f"{version}{number}", size) for number, size in dict(new).items()]
        after = advance(checksum, adds=adds, removes=removes)
        assert after is not None
        checksum = after
        live = {path: size for path, size in live.items() if int(path[1:]) not in old}
        live |= {item.path: item.size for item in adds}
        assert counts(checksum) == (len(live), sum(live.values()))


# The file


def test_a_checksum_comes_back_from_its_file() -> None:
    checksum = msgspec.structs.replace(
        first(add("a"), domains=[DomainMetadata(domain="d", configuration="{}", removed=False)]),
        txn_id="t",
        in_commit_timestamp_opt=5,
        set_transactions=(SetTransaction(app_id="x", version=1),),
    )
    assert checksums.parse(to_json(checksum)) == checksum


def test_a_file_has_every_field_the_protocol_requires() -> None:
    written = msgspec.json.decode(to_json(first()))
    assert written.keys() >= {
        "tableSizeBytes",
        "numFiles",
        "numMetadata",
        "numProtocol",
        "metadata",
        "protocol",
    }
    assert (written["numMetadata"], written["numProtocol"]) == (1, 1)


def test_what_other_writers_add_is_ignored() -> None:
    written = msgspec.json.decode(to_json(first()))
    written |= {"allFiles": [{"path": "a", "future": 1}], "histogramOpt": {"fileCounts": []}}
    assert checksums.parse(msgspec.json.encode(written)) == first()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"numFiles":"x"}', b"\xff", b"[" * 99_999]
)
def test_what_is_no_checksum_is_malformed(content: bytes) -> None:
    with pytest.raises(MalformedError):
        checksums.parse(content)


def test_a_checksum_of_two_protocols_is_malformed() -> None:
    written = msgspec.json.decode(to_json(first())) | {"numProtocol": 2}
    with pytest.raises(MalformedError):
        checksums.parse(msgspec.json.encode(written))


def state(
    num_files: int, size: int, metadata: Metadata = METADATA, protocol: Protocol = PROTOCOL
) -> TableState:
    return TableState(Version(0), protocol, metadata, num_files=num_files, size_in_bytes=size)


def test_every_difference_from_a_state_is_named() -> None:
    checksum = first(add("a", 5))
    assert checksums.mismatches(checksum, state(1, 5)) == []
    other = msgspec.structs.replace(METADATA, id="other")
    lower = Protocol(min_reader_version=1, min_writer_version=2)
    assert checksums.mismatches(checksum, state(2, 6, other, lower)) == [
        "2 files, not 1",
        "6 bytes, not 5",
        "another metaData",
        "another protocol",
    ]


def test_the_order_of_features_makes_no_difference() -> None:
    turned = msgspec.structs.replace(PROTOCOL, writer_features=["appendOnly", "deletionVectors"])
    assert checksums.mismatches(first(), state(0, 0, METADATA, turned)) == []
