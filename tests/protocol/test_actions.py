# ruff: noqa: E501 (log lines are as long as their writers made them)
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import MalformedError
from headgate.protocol import actions, features
from headgate.protocol.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    Rewritten,
    SetTransaction,
    SidecarFile,
    Unknown,
)
from headgate.protocol.commit import strict_json
from headgate.protocol.encoding import from_json, replaced, to_json
from tests.kit import req

relaxed = settings(deadline=None)

text = st.text(max_size=6)
long = st.integers(-(2**63), 2**63 - 1)
maybe_long = st.none() | long
tags = st.none() | st.dictionaries(text, st.none() | text, max_size=2)
values = st.dictionaries(text, st.none() | text, max_size=2)
vectors = st.none() | st.builds(
    DeletionVector,
    storage_type=st.sampled_from("uip"),
    path_or_inline_dv=text,
    offset=maybe_long,
    size_in_bytes=long,
    cardinality=long,
)
known: st.SearchStrategy[Action] = st.one_of(
    st.builds(
        AddFile,
        path=text,
        partition_values=values,
        size=long,
        modification_time=long,
        data_change=st.booleans(),
        stats=st.none() | text,
        tags=tags,
        deletion_vector=vectors,
        base_row_id=maybe_long,
        default_row_commit_version=maybe_long,
        clustering_provider=st.none() | text,
    ),
    st.builds(
        RemoveFile,
        path=text,
        deletion_timestamp=maybe_long,
        data_change=st.booleans(),
        extended_file_metadata=st.none() | st.booleans(),
        partition_values=st.none() | values,
        size=maybe_long,
        stats=st.none() | text,
        tags=tags,
        deletion_vector=vectors,
        base_row_id=maybe_long,
        default_row_commit_version=maybe_long,
    ),
    st.builds(
        Metadata,
        id=text,
        name=st.none() | text,
        description=st.none() | text,
        format=st.builds(Format, provider=text, options=st.dictionaries(text, text, max_size=1)),
        schema_string=text,
        partition_columns=st.lists(text, max_size=2),
        configuration=st.dictionaries(text, text, max_size=2),
        created_time=maybe_long,
    ),
    st.builds(
        Protocol,
        min_reader_version=long,
        min_writer_version=long,
        reader_features=st.none() | st.lists(text, max_size=2),
        writer_features=st.none() | st.lists(text, max_size=2),
    ),
    st.builds(SetTransaction, app_id=text, version=long, last_updated=maybe_long),
    st.builds(DomainMetadata, domain=text, configuration=text, removed=st.booleans()),
    st.builds(CommitInfo, in_commit_timestamp=maybe_long, txn_id=st.none() | text, operation=text),
    st.builds(
        AddCdcFile,
        path=text,
        partition_values=values,
        size=long,
        data_change=st.just(False),
        tags=tags,
    ),
    st.builds(SidecarFile, path=text, size_in_bytes=long, modification_time=long, tags=tags),
    st.builds(CheckpointMetadata, version=long, tags=tags),
)
json_values = st.recursive(
    st.none() | st.booleans() | long | text | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
NAMES = {
    "add",
    "remove",
    "commitInfo",
    "metaData",
    "protocol",
    "txn",
    "domainMetadata",
    "cdc",
    "sidecar",
    "checkpointMetadata",
}


@given(known)
@relaxed
def test_an_action_comes_back_from_its_line(action: Action) -> None:
    (line,) = strict_json.read(actions.encode(action))
    assert line.action == action


@req("CM-09")
@given(known, st.dictionaries(text.map("future-{}".format), json_values, max_size=3))
@relaxed
def test_a_line_with_fields_nobody_knows_keeps_its_bytes(
    action: Action, more: dict[str, object]
) -> None:
    ((name, body),) = json.loads(actions.encode(action)).items()
    raw = json.dumps({name: body | more}, ensure_ascii=False).encode()
    (line,) = strict_json.read(raw)
    assert line.raw == raw
    if isinstance(line.action, Rewritten):
        assert json.loads(actions.encode(line.action)) == json.loads(raw)
        (decoded,) = actions.decode(raw)
        assert decoded.action() == line.action
    else:
        assert line.action == action


@req("CM-09")
def test_what_is_written_anew_keeps_the_fields_nobody_knows() -> None:
    raw = (
        b'{"metaData":{"id":"5f3c","format":{"provider":"parquet","options":{},"codec":["zstd"]},'
        b'"schemaString":"{}","partitionColumns":[],"configuration":{"headgate.unknown":"mine"},'
        b'"owner":{"name":"ops"},"headgate.unknown":{"a":3}}}'
    )
    ((line,), (decoded,)) = strict_json.read(raw), actions.decode(raw)
    assert line.action == decoded.meta_data
    for read in (line.action, from_json(to_json(line.action), Metadata)):
        (body,) = json.loads(actions.encode(replaced(read, description="new"))).values()
        assert body["description"] == "new"
        assert (body["owner"], body["headgate.unknown"]) == ({"name": "ops"}, {"a": 3})
        assert body["format"] == {"provider": "parquet", "options": {}, "codec": ["zstd"]}
        assert body["configuration"] == {"headgate.unknown": "mine"}


@req("CM-09")
@pytest.mark.parametrize(
    "spelled",
    [
        b'{"metaData":{"id":"%d","schemaString":"{}","owner":"%d"}}',
        b'{"meta\\u0044ata":{"id":"%d","schemaString":"{}","owner":"%d"}}',
        b'{"metaData":\n{"id":"%d","schemaString":"{}","owner":"%d"}}',
    ],
)
def test_among_others_each_action_keeps_its_own_fields(spelled: bytes) -> None:
    other = b'{"commitInfo":{"operation":"say \\"protocol\\" and \\"metaData\\"","protocol":7}}'
    version = b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2,"minVacuumVersion":9}}'
    lines = [other, spelled % (1, 1), b"", version, other, spelled % (2, 2), other]
    decoded = actions.decode(b"\n".join(lines))
    assert len(decoded) == 6
    kept = [line.meta_data.unknown for line in decoded if line.meta_data is not None]
    assert kept == [{"owner": "1"}, {"owner": "2"}]
    assert [line.protocol.unknown for line in decoded if line.protocol] == [{"minVacuumVersion": 9}]


@req("CM-09")
def test_a_protocol_that_is_given_a_feature_keeps_the_fields_nobody_knows() -> None:
    raw = b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2,"minVacuumVersion":9}}'
    protocol = actions.decode(raw)[0].protocol
    assert protocol is not None
    after = json.loads(actions.encode(features.upgraded(protocol, "deletionVectors")))["protocol"]
    assert "deletionVectors" in after["writerFeatures"]
    assert after["minVacuumVersion"] == 9


@req("CM-09")
@given(text.filter(lambda name: name not in NAMES), json_values)
@relaxed
def test_an_action_nobody_knows_is_kept(name: str, body: object) -> None:
    raw = json.dumps({name: body}).encode()
    (line,) = strict_json.read(raw)
    assert (line.raw, line.action) == (raw, Unknown(name))


OTHERS = b"""\
{"commitInfo":{"timestamp":1700000000000,"operation":"WRITE","operationParameters":{"mode":"Append"},"engineInfo":"Apache-Spark/4.0 Delta-Lake/4.0","txnId":"5f3c"}}
{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors","appendOnly"]}}
{"metaData":{"id":"5f3c","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":["a b"],"configuration":{},"createdTime":1700000000000}}
{"add":{"path":"a%20b=x/part-0.parquet","partitionValues":{"a b":"x"},"size":5,"modificationTime":1,"dataChange":true,"stats":"{\\"numRecords\\":1}","deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6},"baseRowId":4071,"defaultRowCommitVersion":41,"clusteringProvider":"liquid"}}
{"remove":{"path":"part-1.parquet","deletionTimestamp":1515488792485,"baseRowId":4071,"defaultRowCommitVersion":41,"dataChange":true}}
{"cdc":{"path":"_change_data/c.parquet","partitionValues":{},"size":1213,"dataChange":false}}
{"txn":{"appId":"3ba13872","version":364475}}
{"domainMetadata":{"domain":"delta.x","configuration":"{\\"key1\\":\\"value1\\"}","removed":false}}
{"sidecar":{"path":"s.parquet","sizeInBytes":2304522,"modificationTime":1512909768000,"tags":{}}}
{"checkpointMetadata":{"version":1,"tags":{}}}
{ "spaced" : 1.0e3 }
"""


@req("CM-09")
def test_a_log_of_another_writer_comes_back_byte_for_byte() -> None:
    lines = strict_json.read(OTHERS)
    assert actions.join(line.raw for line in lines) == OTHERS
    assert [type(line.action).__name__ for line in lines] == [
        "CommitInfo",
        "Protocol",
        "Metadata",
        "AddFile",
        "RemoveFile",
        "AddCdcFile",
        "SetTransaction",
        "DomainMetadata",
        "SidecarFile",
        "CheckpointMetadata",
        "Unknown",
    ]


def test_the_fast_way_reads_the_same_actions() -> None:
    slowly = [line.action for line in strict_json.read(OTHERS)]
    assert [wrapped.action() for wrapped in actions.decode(OTHERS)] == [*slowly[:-1], None]


def test_a_file_is_known_by_its_path_and_deletion_vector() -> None:
    wrapped = actions.decode(OTHERS)
    add, remove = wrapped[3].add, wrapped[4].remove
    assert add is not None
    assert add.key == ("a b=x/part-0.parquet", "uab^-aqEH.-t@S}K{vb[*k^@4")
    assert remove is not None
    assert remove.key == ("part-1.parquet", None)


def test_empty_fields_of_metadata_are_written_since_others_expect_them() -> None:
    written = json.loads(actions.encode(Metadata(id="5f3c", schema_string="{}")))
    assert written["metaData"].keys() >= {"format", "partitionColumns", "configuration"}


MALFORMED = [
    b"nothing",
    b"[]",
    b"5",
    b'{"add":5}',
    b'{"add":{}}',
    b'{"add":{"path":1}}',
    b'{"protocol":{"minReaderVersion":"3","minWriterVersion":7}}',
    b'{"txn":{"appId":"x","version":1.5}}',
    b'{"x":NaN}',
    b'{"add":{"path":"\\ud800"}}',
    b'{"commitInfo":{"operation":"\xff"}}',
    b'\xef\xbb\xbf{"x":1}',
    b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"a":1',
]


@pytest.mark.parametrize("raw", MALFORMED, ids=range(len(MALFORMED)))
def test_a_line_that_is_no_action_is_malformed_and_numbered(raw: bytes) -> None:
    content = b'{"txn":{"appId":"x","version":1}}\n' + raw + b"\n"
    with pytest.raises(MalformedError, match="Line 2"):
        strict_json.read(content)
    with pytest.raises(MalformedError):
        actions.decode(content)


def test_two_actions_on_one_line_are_malformed() -> None:
    with pytest.raises(MalformedError, match="Line 1"):
        strict_json.read(b'{"a":1}{"b":2}')


@given(st.binary(max_size=40))
@relaxed
def test_any_bytes_are_a_commit_or_malformed(content: bytes) -> None:
    try:
        lines = strict_json.read(content)
    except MalformedError:
        return
    assert b"".join(line.raw for line in lines).split() == content.split()
