"""Admission: what may become a version, and every reason why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InvariantError, MalformedError
from headgate.protocol import deletion_vectors
from headgate.protocol.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    TableId,
    TxnId,
    Unknown,
    Version,
    decode,
    encode,
    join,
    parse,
)
from headgate.protocol.commit.admission import PARTITIONING_CHANGED, Facts, judge, judge_first
from headgate.protocol.commit.content import Inline
from headgate.protocol.commit.examination import Examined, Violation, examine, examine_file
from headgate.protocol.commit.inline_content import compose
from headgate.protocol.commit.strict_json import Limits
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema.column_mapping import MAPPING_ID, MAPPING_NAME
from headgate.protocol.schema.types import StructField, StructType, to_json
from tests.kit import req, shows
from tests.kit.builders import START_MS, add, file_content, inline, metadata, protocol, remove
from tests.protocol.commit import fuzz_commits as fuzz

TABLE = TableId("11111111-1111-4111-8111-111111111111")
OTHER = TableId("22222222-2222-4222-8222-222222222222")
TXN = TxnId("01953a3c-0000-7000-8000-000000000001")
PREVIOUS_MS = START_MS - 1_000
MAX_AHEAD_MS = 300_000

INFO = b'{"commitInfo":{"inCommitTimestamp":1772000000000,"txnId":"%s"}}\n' % TXN.encode()
ADD = encode(add("part-0.parquet")) + b"\n"


def rules(violations: list[Violation] | tuple[Violation, ...]) -> list[str]:
    return [violation.rule for violation in violations]


def in_file(*actions: Action, timestamp_ms: int = START_MS, **info: object) -> Examined:
    content = file_content(*actions, txn_id=TXN, timestamp_ms=timestamp_ms, **info)
    return examine_file(content, len(content))


def facts(
    *features: str,
    before: Metadata | None = None,
    row_id_high_water: int | None = None,
    **properties: str,
) -> Facts:
    return Facts(
        table_id=TABLE,
        version=Version(6),
        timestamp_ms=PREVIOUS_MS,
        protocol=protocol(*features),
        metadata=before or metadata(TABLE, properties=properties),
        row_id_high_water=row_id_high_water,
    )


def judged(examined: Examined, known: Facts | None = None) -> list[str]:
    assert examined.violations == ()
    return rules(judge(examined, known or facts(), now_ms=START_MS, txn_id=TXN))


# What cannot be read

NESTED = b'{"deep":' + b"[" * 64 + b"]" * 64 + b"}\n"  # with the object around it 65 levels

UNREADABLE = {
    "empty": (b"", "empty"),
    "not JSON": (INFO + b"add part-0\n", "Line 2"),
    "cut off": (INFO + ADD[:-20], "Line 2"),
    "a list": (INFO + b"[1]\n", "exactly one key"),
    "text": (INFO + b'"add"\n', "exactly one key"),
    "an empty object": (INFO + b"{}\n", "exactly one key"),
    "two actions in a line": (INFO + b'{"txn":{"appId":"a","version":1},"x":{}}\n', "one key"),
    "two values in a line": (INFO + b'{"x":1}{"y":1}\n', "Line 2"),
    "a blank line": (INFO + b"\n" + ADD, "Line 2 of the commit cannot be read: it is blank"),
    "a line of blanks": (INFO + b"  \n" + ADD, "it is blank"),
    "byte order mark": (b"\xef\xbb\xbf" + INFO, "byte order mark"),
    "byte order mark in the middle": (INFO + b"\xef\xbb\xbf" + ADD, "Line 2"),
    "CRLF": ((INFO + ADD).replace(b"\n", b"\r\n"), "Line 1 .* carriage return"),
    "NUL": (INFO + b'{"x":"\0"}\n', "Line 2"),
    "NUL at the end": (INFO + ADD + b"\0" * 8, "Line 3"),
    "UTF-16": ((INFO + ADD).decode().encode("utf-16"), "Line 1"),
    "NaN": (INFO + b'{"x":{"y":NaN}}\n', "Line 2"),
    "Infinity": (INFO + b'{"x":{"y":-Infinity}}\n', "Line 2"),
    "a number out of range": (INFO + b'{"x":{"y":1e999}}\n', "Line 2"),
    "a leading zero": (INFO + b'{"x":{"y":01}}\n', "Line 2"),
    "an integer of 65 bits": (INFO + b'{"x":{"y":9223372036854775808}}\n', "64 bits"),
    "a negative one": (INFO + b'{"x":[-9223372036854775809]}\n', "64 bits"),
    "an integer of 5,000 digits": (INFO + b'{"x":{"y":' + b"9" * 5000 + b"}}\n", "Line 2"),
    "not UTF-8": (INFO + b'{"add":{"path":"\xff"}}\n', "Line 2 .* byte 17 is not UTF-8"),
    "not UTF-8 where nobody looks": (INFO + b'{"x":{"y":"\xc0\x80"}}\n', "not UTF-8"),
    "a surrogate in UTF-8": (INFO + b'{"x":"\xed\xa0\x80"}\n', "not UTF-8"),
    "half a surrogate pair": (INFO + b'{"x":"\\ud800"}\n', "half of a surrogate pair"),
    "the other half": (INFO + b'{"x":"\\udc00 "}\n', "half of a surrogate pair"),
    "half a pair as key": (INFO + b'{"x":{"\\uD800":1}}\n', "half of a surrogate pair"),
    "the same action twice in a line": (INFO + b'{"x":1,"x":2}\n', "'x' is there twice"),
    "a key twice": (INFO + b'{"txn":{"appId":"a","version":1,"version":2}}\n', "'version'"),
    "a key twice, one escaped": (INFO + b'{"x":{"a":1,"\\u0061":2}}\n', "'a' is there twice"),
    "a key twice where nobody looks": (INFO + b'{"x":[[{"y":{"z":1,"z":1}}]]}\n', "'z'"),
    "a key twice, hidden by a colon": (INFO + b'{"x":{"a":1,"a":"\\u003a"}}\n', "'a'"),
    "a key twice, hidden by blanks": (INFO + b'{"x":{"a":1,"a"\t :2}}\n', "'a'"),
    "a key twice in commitInfo": (
        b'{"commitInfo":{"inCommitTimestamp":1,"txnId":"a","txnId":"b"}}\n',
        "'txnId'",
    ),
    "65 levels deep": (INFO + NESTED, "Line 2 .* nests too deep"),
    "100,000 levels deep": (INFO + b'{"x":' + b"[" * 100_000 + b"\n", "Line 2 .* nests deeper"),
    "100,000 objects deep": (INFO + b'{"x":' * 100_000 + b"\n", "Line 2 .* nests deeper"),
    "one line of 64 MB": (INFO + b'{"x":"' + b"y" * (63 << 20) + b'"}\n', "Line 2 .* limit"),
    "an add without its fields": (INFO + b'{"add":{"path":"a"}}\n', "Line 2 .* add is not as"),
    "an add that is null": (INFO + b'{"add":null}\n', "Line 2 .* add is not as"),
    "a size that is text": (INFO + ADD.replace(b'"size":100', b'"size":"100"'), "size"),
    "a size with a point": (INFO + ADD.replace(b'"size":100', b'"size":100.5'), "size"),
    "a timestamp that is text": (b'{"commitInfo":{"inCommitTimestamp":"1"}}\n', "Line 1"),
    "a txnId that is a number": (b'{"commitInfo":{"txnId":1}}\n', "Line 1"),
}


@req("AU-02")
@shows("FI3")
@pytest.mark.parametrize("case", UNREADABLE)
def test_content_that_cannot_be_read_is_refused_with_line_and_reason(case: str) -> None:
    content, why = UNREADABLE[case]
    with pytest.raises(MalformedError, match=why) as refused:
        examine_file(content)
    assert refused.value.code == "malformed"


@shows("FI3")
@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(content.removeprefix(INFO), id=case)
        for case, (content, _) in UNREADABLE.items()
        if content.startswith(INFO)
    ],
)
def test_the_same_lines_inline_are_refused_too(lines: bytes) -> None:
    with pytest.raises(MalformedError):
        examine(Inline(commit_info={}, actions=lines))


@pytest.mark.parametrize(
    ("info", "why"),
    [
        ({"txnId": 7}, "txnId is not text"),
        ({"x": 2**63}, "64 bits"),
        ({"x": "\ud800"}, "surrogate"),
        pytest.param({"x": object()}, "object", id="an object of Python"),
        ({"x": {1: "a", "1": "b"}}, "'1' is there twice"),
    ],
    ids=str,
)
def test_the_commit_info_of_an_inline_commit_is_read_as_strictly(
    info: dict[str, object], why: str
) -> None:
    with pytest.raises(MalformedError, match=why):
        examine(Inline(commit_info=info, actions=ADD))


def test_a_commit_info_without_end_is_refused() -> None:
    endless: dict[str, object] = {}
    endless["x"] = endless
    with pytest.raises(MalformedError):
        examine(Inline(commit_info=endless, actions=ADD))


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(max_bytes=len(INFO + ADD) - 1), "bytes, over the limit"),
        (Limits(max_line_bytes=len(ADD) - 2), "Line 2 .* over the limit"),
        (Limits(max_lines=1), "2 lines, over the limit"),
        (Limits(max_depth=2), "Line 2 .* nests"),
    ],
)
def test_limits_hold_to_the_byte(limits: Limits, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        examine_file(INFO + ADD, limits=limits)


def test_at_the_limits_content_is_read() -> None:
    limits = Limits(
        max_bytes=len(INFO + ADD), max_line_bytes=len(ADD) - 1, max_lines=2, max_depth=3
    )
    assert examine_file(INFO + ADD, limits=limits).violations == ()


ODD_AND_READABLE = [
    b'{"x":{"y":9223372036854775807,"z":-9223372036854775808}}',
    b'{"x":{"y":12345678901234567890123.5,"z":1e300}}',
    b'{"x":"12345678901234567890123"}',
    b'{ "x" : { "a\\\\" : 1 , "b\\":" : ":" } }',
    b'{"x":{"a":1,"b":{"a":1,"b":{"a":1}}}}',
    b'{"x":"\\u003a \\u003A : \\":"}',
    b'{"x":"\\ud83d\\ude00 \xf0\x9f\x98\x80"}',
    b'{"deep":' + b"[" * 63 + b"]" * 63 + b"}",
]


@pytest.mark.parametrize("raw", ODD_AND_READABLE)
def test_what_is_odd_and_valid_is_read(raw: bytes) -> None:
    examined = examine_file(INFO + raw + b"\n")
    assert [line.raw for line in examined.lines] == [raw]


@shows("FI4")
def test_an_unknown_action_is_kept() -> None:
    raw = b'{"transactionGroup":{"id":"g","tables":[1.50]}}'
    examined = examine_file(INFO + raw + b"\n")
    assert examined.lines[0].raw == raw
    assert examined.lines[0].action == Unknown("transactionGroup")
    assert examined.violations == ()
    assert not examined.changes.blind


# What content breaks by itself

VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="ab" * 10, offset=1, size_in_bytes=40, cardinality=1
)
FILE = add("part-0.parquet", records=10)


def with_vector(vector: DeletionVector | None = VECTOR, **changes: object) -> AddFile:
    return msgspec.structs.replace(FILE, deletion_vector=vector, **changes)


def at(path: str) -> AddFile:
    return msgspec.structs.replace(FILE, path=path)


PROTOCOL = protocol()
METADATA = metadata(TABLE)
DOMAIN = DomainMetadata(domain="mine", configuration="{}", removed=False)

BROKEN: dict[str, tuple[list[Action], list[str]]] = {
    "two metaData": ([METADATA, METADATA], ["two-metadata"]),
    "two protocols": ([PROTOCOL, PROTOCOL], ["two-protocols"]),
    "two commitInfos": ([CommitInfo()], ["two-commit-infos"]),
    "added and removed": ([FILE, remove(FILE)], ["added-and-removed"]),
    "added twice": ([FILE, FILE], ["added-twice"]),
    "added twice, with two deletion vectors": ([FILE, with_vector()], ["added-twice"]),
    "removed twice": ([remove(FILE), remove(FILE)], ["removed-twice"]),
    "two txn of one application": (
        [SetTransaction(app_id="a", version=1), SetTransaction(app_id="a", version=2)],
        ["two-txns"],
    ),
    "a domain twice": ([DOMAIN, DOMAIN], ["two-domains"]),
    "a sidecar": (
        [SidecarFile(path="a.parquet", size_in_bytes=1, modification_time=1)],
        ["checkpoint-action"],
    ),
    "checkpoint metadata": ([CheckpointMetadata(version=3)], ["checkpoint-action"]),
    "a negative size": ([msgspec.structs.replace(FILE, size=-1)], ["negative-size"]),
    "a negative number of records": ([add("a", records=-1)], ["negative-size"]),
    "statistics that are not JSON": (
        [msgspec.structs.replace(FILE, stats="{numRecords:1}")],
        ["stats-malformed"],
    ),
    "statistics that are a list": (
        [msgspec.structs.replace(FILE, stats="[]")],
        ["stats-malformed"],
    ),
    "a deletion vector and no statistics": ([with_vector(stats=None)], ["no-num-records"]),
    "a deletion vector larger than the file": (
        [with_vector(msgspec.structs.replace(VECTOR, cardinality=11))],
        ["deletion-vector-malformed"],
    ),
    **{
        f"a deletion vector with {change}": (
            [with_vector(msgspec.structs.replace(VECTOR, **change))],
            ["deletion-vector-malformed"],
        )
        for change in (
            {"cardinality": -1},
            {"size_in_bytes": -1},
            {"size_in_bytes": 2**31},
            {"offset": -1},
            {"storage_type": "x"},
            {"storage_type": "i"},
            {"storage_type": "p", "path_or_inline_dv": "s3://elsewhere/dv.bin"},
            {"path_or_inline_dv": "tooshort"},
            {"path_or_inline_dv": "../" + "ab" * 10},
            {"path_or_inline_dv": "ab" * 9 + "\\ "},
        )
    },
    "three faults at once": (
        [FILE, msgspec.structs.replace(FILE, size=-1), METADATA, at("/etc/passwd"), METADATA],
        ["path-outside", "two-metadata", "negative-size", "added-twice"],
    ),
}


@req("AU-02")
@shows("FI4")
@pytest.mark.parametrize("case", BROKEN)
def test_content_that_contradicts_itself_is_named(case: str) -> None:
    actions, expected = BROKEN[case]
    assert sorted(rules(in_file(*actions).violations)) == sorted(expected)
    assert sorted(rules(examine(inline(*actions)).violations)) == sorted(expected)


def test_a_violation_says_its_line() -> None:
    (found,) = in_file(FILE, at("../x")).violations
    assert (found.line, str(found)) == (3, "line 3: path '../x' leads out of the table")
    (found,) = examine(inline(FILE, at("../x"))).violations
    assert found.line == 2


@pytest.mark.parametrize(
    "actions",
    [
        [remove(FILE), with_vector()],  # a new deletion vector
        [remove(with_vector()), FILE],
        [with_vector(msgspec.structs.replace(VECTOR, storage_type="i", offset=None))],
        [with_vector(msgspec.structs.replace(VECTOR, path_or_inline_dv="prefix" + "ab" * 10))],
        [remove(with_vector(msgspec.structs.replace(VECTOR, storage_type="p")))],
        [msgspec.structs.replace(FILE, stats=None)],
        [msgspec.structs.replace(FILE, stats="{}")],
        [SetTransaction(app_id="a", version=1), SetTransaction(app_id="b", version=1)],
    ],
)
def test_content_that_only_looks_like_a_contradiction_passes(actions: list[Action]) -> None:
    assert in_file(*actions).violations == ()


INFOS = {
    "no commitInfo": (ADD, ["no-commit-info"]),
    "commitInfo not first": (ADD + INFO, ["commit-info-not-first"]),
    "two commitInfos": (INFO + INFO + ADD, ["two-commit-infos"]),
    "no txnId": (b'{"commitInfo":{"inCommitTimestamp":1}}\n', ["no-txn-id"]),
    "an empty txnId": (b'{"commitInfo":{"inCommitTimestamp":1,"txnId":""}}\n', ["no-txn-id"]),
    "no inCommitTimestamp": (b'{"commitInfo":{"txnId":"a"}}\n', ["no-timestamp"]),
    "nothing in commitInfo": (b'{"commitInfo":{}}\n', ["no-txn-id", "no-timestamp"]),
    "no last newline": ((INFO + ADD)[:-1], ["no-last-newline"]),
}


@req("AU-02")
@shows("FI4")
@pytest.mark.parametrize("case", INFOS)
def test_a_file_without_its_provenance_is_named(case: str) -> None:
    content, expected = INFOS[case]
    assert rules(examine_file(content).violations) == expected


@req("AU-02")
def test_a_file_of_another_size_than_declared_is_not_the_one_proposed() -> None:
    content = INFO + ADD
    assert rules(examine_file(content, len(content) + 1).violations) == ["size-differs"]
    cut = content[: content.index(b"\n") + 1]  # after a whole line: all of it can be read
    assert rules(examine_file(cut, len(content)).violations) == ["size-differs"]


def test_of_a_file_as_long_as_declared_the_last_newline_may_be_missing() -> None:
    content = (INFO + ADD)[:-1]
    assert examine_file(content, len(content)).violations == ()


BAD_PATHS = {
    "path-outside": [
        "../x",
        "a/../../x",
        "a/..",
        "..",
        "%2e%2e/x",
        "a/%2E%2e/%2e%2E/x",
        "..%2fx",
        "%252e%252e/x",
        "..\\x",
        "a\\..\\..\\x",
        "%2e%2e%5cx",
        "/etc/passwd",
        "//host/share",
        "\\\\host\\share",
        "%2Fetc/passwd",
        "s3://bucket/x.parquet",
        "s3:x",
        "file:/etc/passwd",
        "FILE:x",
        "c:\\x",
        "s3%3A//bucket/x",
    ],
    "path-in-log": [
        "_delta_log/x.parquet",
        "_delta_log",
        "_DELTA_LOG/00000000000000000009.json",
        "%5fdelta_log/x",
        "_delta_log%2fx",
    ],
    "path-malformed": [
        "",
        "a//b",
        "a/",
        "./a",
        "a/./b",
        ".",
        "a\0b",
        "a%00b",
        "a\nb",
        "a%",
        "a%zz",
        "a%ffb",
        "a?b",
        "a#b",
    ],
}


@req("AU-02")
@shows("FI4")
@pytest.mark.parametrize("kind", ["add", "remove", "cdc"])
@pytest.mark.parametrize(
    ("rule", "path"), [(rule, path) for rule, paths in BAD_PATHS.items() for path in paths]
)
def test_a_path_that_is_no_file_of_the_table_is_named(rule: str, path: str, kind: str) -> None:
    actions: dict[str, Action] = {
        "add": at(path),
        "remove": RemoveFile(path=path, data_change=True),
        "cdc": AddCdcFile(path=path, partition_values={}, size=1, data_change=False),
    }
    assert rules(in_file(actions[kind]).violations) == [rule]


@pytest.mark.parametrize(
    "path",
    [
        "part-0.parquet",
        "day=2026-03-01/part-0.c000.snappy.parquet",
        "day=2026-03-01/..part.parquet",
        "a..b/c...d",
        ".hidden",
        "txn-5f3c/part-0.parquet",
        "ts=2026-03-01%2000%253A00/part.parquet",
        "name=..%252F..%252Fx/part.parquet",
        "name=a:b/part.parquet",
        "name=%C3%A9t%C3%A9/part.parquet",
        "name=été/part.parquet",
        "name=a b/part.parquet",
        "name=100%2525/part.parquet",
        "_change_data/cdc-0.parquet",
        "_delta_logs/x.parquet",
        "a/_delta_log/x.parquet",
    ],
)
def test_a_path_of_the_table_passes(path: str) -> None:
    assert in_file(at(path)).violations == ()


# What content says


def test_a_file_is_understood() -> None:
    txn = SetTransaction(app_id="stream", version=4)
    examined = in_file(METADATA, PROTOCOL, FILE, remove(at("old")), txn, DOMAIN)
    assert (examined.timestamp_ms, examined.txn_id) == (START_MS, TXN)
    assert (examined.metadata, examined.protocol) == (METADATA, PROTOCOL)
    assert (examined.adds, examined.removes) == ((FILE,), (remove(at("old")),))
    assert (examined.txns, examined.domains) == ((txn,), (DOMAIN,))
    assert examined.commit_info["operation"] == "WRITE"
    assert [type(line.action) for line in examined.lines] == [
        Metadata,
        Protocol,
        AddFile,
        RemoveFile,
        SetTransaction,
        DomainMetadata,
    ]
    changes = examined.changes
    assert changes.metadata
    assert changes.protocol
    assert changes.data_change
    assert (changes.app_ids, changes.domains) == (("stream",), ("mine",))
    assert [file.path for file in changes.added or ()] == ["part-0.parquet"]
    assert changes.removed == (("old", None),)


def test_an_inline_commit_has_no_time_of_its_own() -> None:
    examined = examine(inline(FILE, inCommitTimestamp=5, txnId=TXN))
    assert (examined.timestamp_ms, examined.txn_id) == (None, TXN)


@pytest.mark.parametrize(
    ("says", "as_file", "as_inline"),
    [
        ({"isBlindAppend": True}, True, True),
        ({"isBlindAppend": False}, False, False),
        ({}, False, True),
    ],
    ids=["blind", "not blind", "says nothing"],
)
def test_a_stranger_must_say_that_an_append_is_blind(
    says: dict[str, object], as_file: bool, as_inline: bool
) -> None:
    assert in_file(FILE, **says).changes.blind is as_file
    assert examine(inline(FILE, **says)).changes.blind is as_inline


# What the table forbids


def test_an_append_that_breaks_nothing_passes() -> None:
    assert judged(in_file(FILE)) == []
    assert judged(examine(inline(FILE))) == []


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (PREVIOUS_MS + 1, []),
        (PREVIOUS_MS, ["timestamp-not-rising"]),
        (PREVIOUS_MS - 3_600_000, ["timestamp-not-rising"]),
        (-1, ["timestamp-not-rising"]),
        (START_MS + MAX_AHEAD_MS, []),
        (START_MS + MAX_AHEAD_MS + 1, ["timestamp-ahead"]),
        (START_MS + 365 * 86_400_000, ["timestamp-ahead"]),
    ],
)
def test_a_timestamp_rises_and_is_not_far_ahead(timestamp_ms: int, expected: list[str]) -> None:
    assert judged(in_file(FILE, timestamp_ms=timestamp_ms)) == expected


def test_content_belongs_to_the_transaction_that_proposes_it() -> None:
    other = TxnId("another")
    for examined in (in_file(FILE), examine(inline(FILE, txnId=TXN))):
        found = judge(examined, facts(), now_ms=START_MS, txn_id=other)
        assert rules(found) == ["txn-id-mismatch"]


def lists(reader: list[str], writer: list[str]) -> Protocol:
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=reader,
        writer_features=writer,
    )


READER, WRITER = PROTOCOL.reader_features or [], PROTOCOL.writer_features or []


def without(*names: str) -> Protocol:
    return lists(
        [name for name in READER if name not in names],
        [name for name in WRITER if name not in names],
    )


PROTOCOLS: dict[str, tuple[Protocol, set[str]]] = {
    "lower versions": (
        Protocol(min_reader_version=1, min_writer_version=2),
        {"protocol-downgrade", "catalog-managed-gone", "timestamps-gone", "feature-gone"},
    ),
    "catalogManaged gone": (without("catalogManaged"), {"catalog-managed-gone"}),
    "catalogManaged gone for readers": (
        lists([name for name in READER if name != "catalogManaged"], WRITER),
        {"protocol-malformed"},
    ),
    "in-commit timestamps gone": (
        without("inCommitTimestamp"),
        {"timestamps-gone", "protocol-malformed"},
    ),
    "another feature gone": (without("vacuumProtocolCheck"), {"feature-gone"}),
    "an unknown feature for readers": (
        lists([*READER, "timeTravelToTomorrow"], [*WRITER, "timeTravelToTomorrow"]),
        {"unreadable-feature"},
    ),
    "a reader version nobody knows": (
        msgspec.structs.replace(PROTOCOL, min_reader_version=4),
        {"protocol-malformed", "unreadable-feature"},
    ),
    "no list of features": (
        Protocol(min_reader_version=3, min_writer_version=7),
        {"protocol-malformed", "catalog-managed-gone", "timestamps-gone", "feature-gone"},
    ),
    "a feature without what it requires": (
        lists(READER, [*WRITER, "rowTracking"]),
        {"protocol-malformed"},
    ),
    "a feature twice": (lists(READER, [*WRITER, "catalogManaged"]), {"protocol-malformed"}),
}


@req("EN-01")
@shows("FI5")
@pytest.mark.parametrize("case", PROTOCOLS)
def test_a_protocol_that_takes_away_or_cannot_be_is_refused(case: str) -> None:
    after, expected = PROTOCOLS[case]
    assert set(judged(in_file(after))) == expected
    assert set(judged(examine(inline(after)))) == expected


@pytest.mark.parametrize("feature", ["deletionVectors", "appendOnly", "unknownToWriters"])
def test_a_protocol_that_only_adds_passes(feature: str) -> None:
    assert judged(in_file(protocol(feature))) == []


def changed(**changes: object) -> Metadata:
    return msgspec.structs.replace(METADATA, **changes)


def configured(**properties: str | None) -> Metadata:
    merged = {**METADATA.configuration, **properties}
    kept = {key: value for key, value in merged.items() if value is not None}
    return changed(configuration=kept)


PROTECTED = "delta.requireCheckpointProtectionBeforeVersion"

METADATAS: dict[str, tuple[Metadata, list[str]]] = {
    "another id": (changed(id=OTHER), ["metadata-id-differs"]),
    "another table's id": (configured(**{TABLE_ID_PROPERTY: OTHER}), ["table-id-differs"]),
    "no table id": (configured(**{TABLE_ID_PROPERTY: None}), ["table-id-differs"]),
    "timestamps off": (
        configured(**{"delta.enableInCommitTimestamps": "false"}),
        ["timestamps-off"],
    ),
    "timestamps unset": (
        configured(**{"delta.enableInCommitTimestamps": None}),
        ["timestamps-off"],
    ),
    "no properties at all": (changed(configuration={}), ["table-id-differs", "timestamps-off"]),
    "not Parquet": (
        changed(format=msgspec.structs.replace(METADATA.format, provider="csv")),
        ["not-parquet"],
    ),
    "a schema that is not JSON": (changed(schema_string="id long"), ["schema-malformed"]),
    "a schema that is a list": (changed(schema_string="[]"), ["schema-malformed"]),
    "a schema 100,000 levels deep": (
        changed(schema_string='{"type":"array","elementType":' * 100_000),
        ["schema-malformed"],
    ),
    "a type nobody knows": (
        changed(schema_string=METADATA.schema_string.replace("long", "longer")),
        ["schema-malformed"],
    ),
    "a column twice": (
        changed(schema_string=to_json(StructType(parse_schema("id long").fields * 2))),
        ["schema-invalid"],
    ),
    "another partitioning": (
        msgspec.structs.replace(
            metadata(TABLE, "id long, day date", ["day"]), created_time=METADATA.created_time
        ),
        [PARTITIONING_CHANGED],
    ),
    "partitioned by no column": (
        changed(partition_columns=["day"]),
        ["schema-invalid", PARTITIONING_CHANGED],
    ),
}


@req("EN-01")
@shows("FI5")
@pytest.mark.parametrize("case", METADATAS)
def test_metadata_that_would_make_it_another_table_is_refused(case: str) -> None:
    after, expected = METADATAS[case]
    assert judged(in_file(after)) == expected
    assert judged(examine(inline(after))) == expected


@pytest.mark.parametrize(
    "after",
    [
        configured(comment="orders"),
        changed(
            description="orders", schema_string=metadata(TABLE, "id long, x string").schema_string
        ),
        configured(**{PROTECTED: "5"}),
    ],
)
def test_metadata_that_adds_passes(after: Metadata) -> None:
    assert judged(in_file(after)) == []


@pytest.mark.parametrize("after", ["9", "", "x", "-1", None])
def test_checkpoint_protection_never_goes_down(after: str | None) -> None:
    before = facts(before=configured(**{PROTECTED: "10"}))
    assert judged(in_file(configured(**{PROTECTED: after})), before) == ["protection-lowered"]
    assert judged(in_file(configured(**{PROTECTED: "11"})), before) == []


# Column mapping


def mapped(
    mode: str | None = "name",
    *columns: tuple[str, int | None, str],
    greatest: int | None = 2,
    partition_by: str | None = None,
) -> Metadata:
    fields = tuple(
        StructField(
            name,
            parse_schema("x long").fields[0].type,
            True,
            {MAPPING_NAME: physical, **({} if number is None else {MAPPING_ID: number})},
        )
        for name, number, physical in columns or (("id", 1, "col-1"), ("day", 2, "col-2"))
    )
    properties = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": greatest}
    return msgspec.structs.replace(
        METADATA,
        schema_string=to_json(StructType(fields)),
        partition_columns=[] if partition_by is None else [partition_by],
        configuration={
            **METADATA.configuration,
            **{key: str(value) for key, value in properties.items() if value is not None},
        },
    )


MAPPINGS: dict[str, tuple[Metadata, list[str]]] = {
    "to id": (mapped("id"), ["column-mapping-changed"]),
    "to none": (mapped("none"), ["column-mapping-changed"]),
    "off": (mapped(None), ["column-mapping-changed"]),
    "a greatest id that goes down": (
        mapped("name", ("id", 1, "col-1"), greatest=1),
        ["max-column-id-lowered"],
    ),
    "no greatest id": (
        mapped(greatest=None),
        ["column-mapping-malformed", "column-mapping-malformed", "max-column-id-lowered"],
    ),
    "an id above the greatest": (
        mapped("name", ("id", 1, "col-1"), ("x", 3, "col-3")),
        ["column-mapping-malformed"],
    ),
    "an id twice": (
        mapped("name", ("id", 1, "col-1"), ("x", 1, "col-3")),
        ["column-mapping-malformed"],
    ),
    "no id": (mapped("name", ("id", None, "col-1")), ["column-mapping-malformed"]),
}


@pytest.mark.parametrize("case", MAPPINGS)
def test_column_mapping_keeps_every_columns_identity(case: str) -> None:
    after, expected = MAPPINGS[case]
    assert judged(in_file(after), facts("columnMapping", before=mapped())) == expected


def test_column_mapping_by_name_may_be_turned_on_and_columns_come_and_go() -> None:
    assert judged(in_file(protocol("columnMapping"), mapped())) == []
    assert judged(in_file(protocol("columnMapping"), mapped("id"))) == ["column-mapping-changed"]
    before = facts("columnMapping", before=mapped())
    renamed = mapped("name", ("number", 1, "col-1"), ("x", 3, "col-3"), greatest=3)
    assert judged(in_file(renamed), before) == []


@pytest.mark.parametrize(
    ("feature", "key", "on", "off"),
    [
        ("deletionVectors", "delta.enableDeletionVectors", "true", "false"),
        ("v2Checkpoint", "delta.checkpointPolicy", "v2", "classic"),
        ("changeDataFeed", "delta.enableChangeDataFeed", "TRUE", ""),
    ],
)
def test_a_required_feature_stays_active_where_it_is(
    feature: str, key: str, on: str, off: str
) -> None:
    def judged_with(before: Metadata, after: Metadata, *required: str) -> list[str]:
        known = facts(feature, before=before)
        found = judge(in_file(after), known, now_ms=START_MS, txn_id=TXN, required=required)
        return rules(found)

    active, inactive = (metadata(TABLE, properties={key: value}) for value in (on, off))
    without = metadata(TABLE)
    for after in (inactive, without):
        assert judged_with(active, after, feature) == ["required-feature-off"]
        assert judged_with(active, after, "rowTracking", "inCommitTimestamp") == []
        assert judged_with(after, after, feature) == []  # it was never active: made by other rules
    assert judged_with(active, active, feature) == []
    assert judged_with(without, active, feature) == []


def mapped_add(path: str, column: str = "col-1", **more: Any) -> AddFile:
    """Give an add whose statistics are of a column by this name."""
    stats = {"numRecords": 1, "minValues": {column: 0}, "nullCount": {column: 0}}
    return msgspec.structs.replace(add(path, **more), stats=json.dumps(stats))


def test_partition_values_go_by_physical_names() -> None:
    before = facts("columnMapping", before=mapped(partition_by="day"))
    assert judged(in_file(mapped_add("a", values={"col-2": "1"})), before) == []
    assert judged(in_file(mapped_add("a", values={"day": "1"})), before) == ["partition-values"]
    renamed = mapped("name", ("id", 1, "col-1"), ("date", 2, "col-2"), partition_by="date")
    assert judged(in_file(renamed, mapped_add("a", values={"col-2": "1"})), before) == []


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_new_file_whose_columns_go_by_the_tables_own_names_is_refused(mode: str) -> None:
    before = facts("columnMapping", before=mapped(mode))
    wrong = mapped_add("a", "id")
    assert judged(in_file(wrong), before) == ["column-mapping-ignored"]
    assert judged(in_file(wrong, mapped_add("b", "id")), before) == ["column-mapping-ignored"]
    all_null = msgspec.structs.replace(wrong, stats='{"numRecords":1,"nullCount":{"day":1}}')
    assert judged(in_file(all_null), before) == ["column-mapping-ignored"]
    for right in ("col-1", "dropped long ago"):
        assert judged(in_file(mapped_add("a", right)), before) == []
    assert judged(in_file(msgspec.structs.replace(wrong, stats=None)), before) == []
    # Mapping that was turned on later: columns keep the names they had.
    kept = facts("columnMapping", before=mapped(mode, ("id", 1, "id"), ("day", 2, "col-2")))
    assert judged(in_file(wrong), kept) == []


def test_an_old_file_that_gets_a_vector_may_know_columns_that_are_gone() -> None:
    before = facts("columnMapping", "deletionVectors", before=mapped())
    old = mapped_add("a", "id")
    again = msgspec.structs.replace(old, deletion_vector=deletion_vectors.inline([0]))
    assert judged(in_file(remove(old), again), before) == []


# Files and features


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"day": "2026-03-01"}, []),
        ({"day": None}, []),
        ({}, ["partition-values"]),
        ({"day": "1", "hour": "2"}, ["partition-values"]),
        ({"hour": "2"}, ["partition-values"]),
    ],
)
def test_partition_values_are_those_of_the_partition_columns(
    values: dict[str, str | None], expected: list[str]
) -> None:
    known = facts(before=metadata(TABLE, "id long, day date", ["day"]))
    assert judged(in_file(add("a", values=values)), known) == expected
    cdc = AddCdcFile(path="c", partition_values=values, size=1, data_change=False)
    assert judged(in_file(cdc), known) == expected


def test_nothing_goes_from_a_table_that_is_append_only() -> None:
    known = facts("appendOnly", **{"delta.appendOnly": "true"})
    assert judged(in_file(remove(FILE)), known) == ["append-only"]
    assert judged(in_file(remove(FILE, data_change=False)), known) == []
    assert judged(in_file(remove(FILE)), facts("appendOnly")) == []


def test_a_deletion_vector_needs_its_feature() -> None:
    assert judged(in_file(remove(FILE), with_vector())) == ["deletion-vectors-unsupported"]
    assert judged(in_file(remove(FILE), with_vector()), facts("deletionVectors")) == []
    assert judged(in_file(remove(FILE), with_vector(), protocol("deletionVectors"))) == []


def test_a_domain_needs_its_feature_and_deltas_own_are_known() -> None:
    unknown = DomainMetadata(domain="delta.tomorrow", configuration="{}", removed=False)
    clustering = DomainMetadata(domain="delta.clustering", configuration="{}", removed=False)
    assert judged(in_file(DOMAIN)) == ["domains-unsupported"]
    assert judged(in_file(DOMAIN, clustering), facts("domainMetadata")) == []
    assert judged(in_file(unknown), facts("domainMetadata")) == ["unknown-domain"]


# Version 0


def first(examined: Examined, txn_id: TxnId | None = TXN) -> list[str]:
    assert examined.violations == ()
    return rules(judge_first(examined, TABLE, now_ms=START_MS, txn_id=txn_id))


def test_version_0_as_we_make_it_passes() -> None:
    assert first(in_file(PROTOCOL, METADATA, FILE)) == []
    assert first(examine(inline(PROTOCOL, METADATA))) == []
    assert first(in_file(PROTOCOL, METADATA), None) == []


def test_version_0_of_a_stranger_may_lack_what_is_only_our_custom() -> None:
    assert first(in_file(without("vacuumProtocolCheck"), METADATA)) == []


FIRSTS: dict[str, tuple[list[Action], list[str]]] = {
    "no protocol": ([METADATA], ["no-protocol"]),
    "no metaData": ([PROTOCOL], ["no-metadata"]),
    "a plain table": (
        [Protocol(min_reader_version=1, min_writer_version=2), METADATA],
        ["not-catalog-managed", "timestamps-gone"],
    ),
    "not catalogManaged": ([without("catalogManaged"), METADATA], ["not-catalog-managed"]),
    "catalogManaged for writers alone": (
        [lists([name for name in READER if name != "catalogManaged"], WRITER), METADATA],
        ["protocol-malformed", "not-catalog-managed"],
    ),
    "no in-commit timestamps": (
        [without("inCommitTimestamp"), METADATA],
        ["protocol-malformed", "timestamps-gone"],
    ),
    "an unknown feature": (
        [lists([*READER, "tomorrow"], [*WRITER, "tomorrow"]), METADATA],
        ["unreadable-feature"],
    ),
    "in-commit timestamps off": (
        [PROTOCOL, configured(**{"delta.enableInCommitTimestamps": "false"})],
        ["timestamps-off"],
    ),
    "another table's id": ([PROTOCOL, metadata(OTHER)], ["table-id-differs"]),
    "a schema that cannot be read": (
        [PROTOCOL, changed(schema_string="{")],
        ["schema-malformed"],
    ),
    "a remove": ([PROTOCOL, METADATA, remove(FILE)], ["remove-in-first"]),
    "a file of another partitioning": (
        [PROTOCOL, METADATA, add("a", values={"day": "1"})],
        ["partition-values"],
    ),
}


@pytest.mark.parametrize("case", FIRSTS)
def test_version_0_that_is_not_of_this_managed_table_is_refused(case: str) -> None:
    actions, expected = FIRSTS[case]
    assert first(in_file(*actions)) == expected


def test_version_0_has_a_time_and_a_transaction_of_its_own() -> None:
    ahead = in_file(PROTOCOL, METADATA, timestamp_ms=START_MS + MAX_AHEAD_MS + 1)
    assert first(ahead) == ["timestamp-ahead"]
    assert first(in_file(PROTOCOL, METADATA), TxnId("another")) == ["txn-id-mismatch"]


# Composing what is stored


def composed(examined: Examined, **changes: object) -> tuple[bytes, int | None]:
    given: dict[str, object] = {
        "txn_id": TXN,
        "timestamp_ms": START_MS,
        "version": Version(7),
        "row_id_high_water": None,
        **changes,
    }
    return compose(examined, **given)  # type: ignore[arg-type]  # each is of its own type


@req("AU-02")
def test_the_catalog_writes_commit_info_and_passes_all_else_on_byte_for_byte() -> None:
    lines = [ADD[:-1], *ODD_AND_READABLE]
    commit = Inline(
        commit_info={"operation": "WRITE", "txnId": TXN, "inCommitTimestamp": 1, "mine": [1, {}]},
        actions=join(lines),
    )
    content, mark = composed(examine(commit))
    head, *rest = content.split(b"\n")
    assert json.loads(head) == {
        "commitInfo": {
            "inCommitTimestamp": START_MS,
            "txnId": TXN,
            "timestamp": START_MS,
            "operation": "WRITE",
            "mine": [1, {}],
        }
    }
    assert rest == [*lines, b""]
    assert mark is None


def test_what_is_composed_is_admitted_as_a_file_and_read_by_everybody() -> None:
    inline_form = examine(inline(FILE, isBlindAppend=True))
    content, _ = composed(inline_form)
    as_file = examine_file(content)
    assert judged(as_file) == []
    assert (as_file.txn_id, as_file.timestamp_ms) == (TXN, START_MS)
    assert (as_file.intent, as_file.changes) == (inline_form.intent, inline_form.changes)
    assert [line.action() for line in decode(content)][1:] == [FILE]


@pytest.mark.parametrize("info", [{}, {"timestamp": 5}, {"txnId": TXN}])
def test_the_time_a_writer_gives_is_kept_as_its_own(info: dict[str, object]) -> None:
    content, _ = composed(examine(Inline(commit_info=info, actions=b"")))
    said = json.loads(content)["commitInfo"]
    assert said["timestamp"] == info.get("timestamp", START_MS)
    assert said["inCommitTimestamp"] == START_MS


def test_a_file_is_never_composed() -> None:
    with pytest.raises(InvariantError):
        composed(in_file(FILE))


# Row tracking

TRACKED = ("rowTracking", "domainMetadata")


def mark_of(content: bytes) -> list[int]:
    return [
        json.loads(domain.configuration)["rowIdHighWaterMark"]
        for domain in examine_file(content).domains
        if domain.domain == "delta.rowTracking"
    ]


@req("CM-41")
def test_row_ids_of_racing_appends_are_disjoint_and_follow_the_high_water_mark() -> None:
    attempts = [
        examine(inline(add("a", records=10), add("b", records=5))),
        examine(inline(add("c", records=3))),
        examine(inline(add("d", records=0), add("e", records=7))),
    ]
    mark: int | None = -1
    spans = []
    for version, examined in enumerate(attempts, start=7):
        known = facts(*TRACKED, row_id_high_water=mark)
        assert judged(examined, known) == []
        before = mark
        content, mark = composed(examined, version=Version(version), row_id_high_water=mark)
        stored = examine_file(content)
        for file, bounds in zip(stored.adds, stored.bounds, strict=True):
            assert file.default_row_commit_version == version
            assert file.base_row_id is not None
            assert bounds.num_records is not None
            spans.append(range(file.base_row_id, file.base_row_id + bounds.num_records))
        assert mark_of(content) == [mark]
        # What the catalog wrote is what it would admit from a stranger at this version, no other.
        here = msgspec.structs.replace(stored, violations=())
        at_version = {"version": Version(version - 1), "row_id_high_water": before}
        assert judged(here, _moved(known, **at_version)) == []
        at_version = {"version": Version(version), "row_id_high_water": mark}
        assert set(judged(here, _moved(known, **at_version))) & {
            "row-ids-taken",
            "row-version-differs",
        }
    assert [row for span in spans for row in span] == list(range(25))
    assert mark == 24


def _moved(known: Facts, **changes: object) -> Facts:
    values = {name: getattr(known, name) for name in Facts.__slots__}
    return Facts(**{**values, **changes})


@req("CM-41")
def test_moving_an_attempt_changes_what_depends_on_the_version_and_not_the_intent() -> None:
    sent = examine(inline(add("a", records=10), DOMAIN))
    seventh, _ = composed(sent, row_id_high_water=99)
    eighth, _ = composed(sent, version=Version(8), timestamp_ms=START_MS + 1, row_id_high_water=149)
    one, two = examine_file(seventh), examine_file(eighth)
    assert one.intent == two.intent == sent.intent
    assert (one.adds[0].base_row_id, two.adds[0].base_row_id) == (100, 150)
    assert one.timestamp_ms != two.timestamp_ms
    assert mark_of(seventh) == [109]
    assert mark_of(eighth) == [159]


def test_another_intent_has_another_hash() -> None:
    removed = remove(add("a"))
    kept = msgspec.structs.replace(
        with_vector(), path="a", base_row_id=5, default_row_commit_version=2
    )
    told_apart = [
        [add("a")],
        [add("b")],
        [add("a"), add("b")],
        [add("b"), add("a")],
        [remove(add("a"))],
        [removed, kept],
        # It is added again, so its row ids are not the version's but its own.
        [removed, msgspec.structs.replace(kept, base_row_id=6)],
        [],
    ]
    hashes = [examine(inline(*actions)).intent for actions in told_apart]
    assert len(set(hashes)) == len(told_apart)
    assert examine(inline(add("a"), operation="MERGE")).intent == hashes[0]
    assert in_file(add("a")).intent == hashes[0]


def test_a_file_added_again_keeps_its_row_ids() -> None:
    again = msgspec.structs.replace(with_vector(), base_row_id=5, default_row_commit_version=2)
    examined = examine(inline(remove(FILE), again, add("new", records=2)))
    known = facts("deletionVectors", *TRACKED, row_id_high_water=99)
    assert judged(examined, known) == []
    content, mark = composed(examined, row_id_high_water=99)
    stored = {file.path: file for file in examine_file(content).adds}
    assert stored[FILE.path] == again
    assert stored["new"].base_row_id == 100
    assert mark == 101


def test_a_line_that_gets_row_ids_keeps_every_other_byte_of_its_values() -> None:
    raw = (
        b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true,'
        b'"baseRowId":null,"stats":"{\\"numRecords\\":4}","mine":1.50,"yours":"\\u00e9"}}'
    )
    content, _ = composed(
        examine(Inline(commit_info={}, actions=raw + b"\n")), row_id_high_water=-1
    )
    assert content.split(b"\n")[1] == (
        b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true,'
        b'"baseRowId":0,"stats":"{\\"numRecords\\":4}","mine":1.50,"yours":"\\u00e9",'
        b'"defaultRowCommitVersion":7}}'
    )


def test_a_file_older_than_row_tracking_gets_row_ids_when_added_again() -> None:
    examined = examine(inline(remove(FILE), with_vector()))
    known = facts("deletionVectors", *TRACKED, row_id_high_water=99)
    assert judged(examined, known) == []
    content, mark = composed(examined, row_id_high_water=99)
    assert (examine_file(content).adds[0].base_row_id, mark) == (100, 109)


def test_a_commit_without_new_files_leaves_the_high_water_mark_alone() -> None:
    content, mark = composed(examine(inline(remove(FILE))), row_id_high_water=99)
    assert (mark, mark_of(content)) == (99, [])


def test_a_stale_high_water_mark_is_written_anew() -> None:
    stale = DomainMetadata(
        domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":3}', removed=False
    )
    content, mark = composed(examine(inline(stale, FILE)), row_id_high_water=99)
    assert (mark, mark_of(content)) == (109, [109])


def tracked(**changes: object) -> AddFile:
    given = {"base_row_id": 100, "default_row_commit_version": 7, **changes}
    return msgspec.structs.replace(FILE, **given)


def tracked_remove(base_row_id: int | None) -> RemoveFile:
    return msgspec.structs.replace(remove(FILE), base_row_id=base_row_id)


def marked(mark: int | None) -> DomainMetadata:
    configuration = "{}" if mark is None else f'{{"rowIdHighWaterMark":{mark}}}'
    return DomainMetadata(domain="delta.rowTracking", configuration=configuration, removed=False)


ROW_IDS: dict[str, tuple[list[Action], list[str]]] = {
    "right": ([tracked(), marked(109)], []),
    "none": ([FILE, marked(109)], ["no-row-ids"]),
    "no version": ([tracked(default_row_commit_version=None)], ["no-row-ids"]),
    "of rows that were there": ([tracked(base_row_id=99), marked(109)], ["row-ids-taken"]),
    "of a file that is restored": ([tracked(base_row_id=5, default_row_commit_version=3)], []),
    "of a file that is restored and of a new one": (
        [tracked(path="b", base_row_id=5, default_row_commit_version=3), tracked(), marked(109)],
        [],
    ),
    "of rows that others got meanwhile": (
        [tracked(base_row_id=90, default_row_commit_version=6), marked(99)],
        ["row-ids-taken"],
    ),
    "of rows that others got in part": (
        [tracked(base_row_id=95, default_row_commit_version=6), marked(104)],
        ["row-ids-taken"],
    ),
    "of another version": (
        [tracked(default_row_commit_version=6), marked(109)],
        ["row-version-differs"],
    ),
    "shared by two files": (
        [tracked(), tracked(path="b", base_row_id=109), marked(200)],
        ["row-ids-overlap"],
    ),
    "above the high-water mark": ([tracked(), marked(108)], ["row-id-high-water"]),
    "and no high-water mark": ([tracked()], ["row-id-high-water"]),
    "and a mark that cannot be read": (
        [tracked(), marked(None)],
        ["row-id-high-water", "row-id-high-water"],
    ),
    "and no number of rows": ([tracked(stats=None), marked(109)], ["no-num-records"]),
    "lost when added again": ([tracked_remove(5), with_vector()], ["row-ids-changed"]),
    "changed when added again": (
        [tracked_remove(5), tracked(base_row_id=6, deletion_vector=VECTOR)],
        ["row-ids-changed"],
    ),
    "changed from the very first when added again": (
        [tracked_remove(0), tracked(base_row_id=6, deletion_vector=VECTOR)],
        ["row-ids-changed"],
    ),
    "new when added again": (
        [tracked_remove(5), tracked(deletion_vector=VECTOR), marked(109)],
        ["row-ids-changed"],
    ),
    "without a version when added again": (
        [
            tracked_remove(5),
            tracked(base_row_id=5, default_row_commit_version=None, deletion_vector=VECTOR),
        ],
        ["no-row-ids"],
    ),
    "first given when added again": (
        [tracked_remove(None), tracked(deletion_vector=VECTOR), marked(109)],
        [],
    ),
    "kept when added again": (
        [tracked_remove(5), tracked(base_row_id=5, deletion_vector=VECTOR)],
        [],
    ),
    "kept when only statistics change": (
        [tracked(base_row_id=5, default_row_commit_version=2, data_change=False)],
        [],
    ),
}


@pytest.mark.parametrize("case", ROW_IDS)
def test_a_strangers_row_ids_are_judged(case: str) -> None:
    actions, expected = ROW_IDS[case]
    known = facts("deletionVectors", *TRACKED, row_id_high_water=99)
    assert judged(in_file(*actions), known) == expected


def test_inline_the_catalog_gives_row_ids_and_nobody_else() -> None:
    known = facts(*TRACKED, row_id_high_water=99)
    assert judged(examine(inline(tracked())), known) == ["row-ids-given"]
    assert judged(examine(inline(msgspec.structs.replace(FILE, stats=None))), known) == [
        "no-num-records"
    ]


# At random


relaxed = settings(deadline=None)


def admitted(content: bytes) -> Examined | None:
    try:
        return examine_file(content)
    except MalformedError:
        return None


@req("AU-02")
@relaxed
@given(st.one_of(st.binary(), fuzz.damaged()))
def test_any_bytes_are_understood_or_refused_and_nothing_else_happens(content: bytes) -> None:
    examined = admitted(content)
    if examined is None:
        return
    # Whatever was understood can be judged, and everybody else reads it alike.
    for known in (facts(), facts("columnMapping", *TRACKED, before=mapped(), row_id_high_water=9)):
        judge(examined, known, now_ms=START_MS, txn_id=TXN)
    judge_first(examined, TABLE, now_ms=START_MS, txn_id=TXN)
    assert [line.action for line in parse(content) if not isinstance(line.action, CommitInfo)] == [
        line.action for line in examined.lines
    ]
    decode(content)


@relaxed
@given(st.lists(fuzz.json_lines, max_size=3))
def test_lines_are_read_exactly_when_a_plain_reader_reads_them(lines: list[str]) -> None:
    content = b"".join(line.encode() + b"\n" for line in lines)
    is_read = admitted(INFO + content) is not None
    assert is_read is all(map(fuzz.reads_strictly, lines))


@relaxed
@given(fuzz.action_lists, st.lists(st.sampled_from(ODD_AND_READABLE)))
def test_any_inline_commit_comes_back_with_every_line_as_it_was(
    actions: list[Action], odd: list[bytes]
) -> None:
    lines = [*map(encode, actions), *odd]
    examined = examine(Inline(commit_info={"operation": "WRITE"}, actions=join(lines)))
    content, _ = composed(examined)
    assert content.split(b"\n")[1:] == [*lines, b""]
    stored = examine_file(content)
    assert stored.intent == examined.intent
    assert rules(stored.violations) == rules(examined.violations)


@req("CM-41")
@relaxed
@given(st.lists(st.lists(st.integers(0, 50), max_size=4)), st.integers(-1, 1000))
def test_row_ids_are_given_once_whatever_comes(commits: list[list[int]], mark: int) -> None:
    given_out, start = [], mark
    for version, sizes in enumerate(commits):
        examined = examine(inline(*(add(f"{n}", records=size) for n, size in enumerate(sizes))))
        content, new_mark = composed(examined, version=Version(version), row_id_high_water=mark)
        assert new_mark is not None
        mark = new_mark
        for file, size in zip(examine_file(content).adds, sizes, strict=True):
            assert file.base_row_id is not None
            given_out.extend(range(file.base_row_id, file.base_row_id + size))
        assert mark_of(content) == ([mark] if sizes else [])
    assert given_out == list(range(start + 1, mark + 1))


# Time


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "many lines": lambda n: INFO + b"".join(b'{"x":{"n":%d}}\n' % i for i in range(n)),
    "many keys": lambda n: INFO + b'{"x":{%s}}\n' % b",".join(b'"%d":1' % i for i in range(n)),
    "many keys and one twice": lambda n: (
        INFO + b'{"x":{%s,"a":1,"a":2}}\n' % b",".join(b'"%d":1' % i for i in range(n))
    ),
    "many elements": lambda n: INFO + b'{"x":[%s]}\n' % b",".join([b"1"] * n),
    "many lists, none deep": lambda n: INFO + b'{"x":[%s]}\n' % b",".join([b"[]"] * n),
    "many escapes": lambda n: INFO + b'{"x":"%s"}\n' % (b'\\\\\\u003a\\"' * n),
    "many digits": lambda n: INFO + b'{"x":"%s"}\n' % (b"9" * n),
    "a deep list": lambda n: INFO + b'{"x":' + b"[" * n + b"\n",
    "a long path": lambda n: INFO + encode(at("../" * n)) + b"\n",
    "a long path of escapes": lambda n: INFO + encode(at("%2e%2e%2f" * n)) + b"\n",
    "a path twice, often": lambda n: INFO + ADD * (n // 10),
    "blank lines": lambda n: INFO + b"\n" * n,
    "halves of surrogate pairs": lambda n: INFO + b'{"x":"%s"}\n' % (b"\\ud800" * n),
}


# Work that grew with the square of the size would not end before the test is stopped.
@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_content_takes_time_in_proportion_to_its_size(case: str) -> None:
    content = HOSTILE[case](300_000)
    try:
        outcome: object = examine_file(content)
    except MalformedError as error:
        outcome = error
    assert isinstance(outcome, Examined | MalformedError)
