"""Examination: what the content of a proposal says by itself, and what makes it unreadable."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import MalformedError
from headgate.protocol.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    Unknown,
    decode,
    encode,
)
from headgate.protocol.commit.admission import judge, judge_first
from headgate.protocol.commit.content import Inline
from headgate.protocol.commit.examination import Examined, examine, examine_file
from headgate.protocol.commit.strict_json import ParseLimits, read
from tests.kit import req, shows
from tests.kit.builders import START_MS, add, inline, remove
from tests.protocol.commit import fuzz_commits as fuzz
from tests.protocol.commit.commit_cases import (
    ADD,
    DOMAIN,
    FILE,
    INFO,
    METADATA,
    ODD_AND_READABLE,
    PROTOCOL,
    TABLE,
    TRACKED,
    TXN,
    VECTOR,
    at,
    facts,
    in_file,
    mapped,
    relaxed,
    rules,
    with_vector,
)

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
    "an action on two lines": (INFO + b'{"x":\n{"y":1}}\n', "Line 2"),
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
    "not UTF-8 in an unknown field": (INFO + b'{"x":{"y":"\xc0\x80"}}\n', "not UTF-8"),
    "a surrogate in UTF-8": (INFO + b'{"x":"\xed\xa0\x80"}\n', "not UTF-8"),
    "half a surrogate pair": (INFO + b'{"x":"\\ud800"}\n', "half of a surrogate pair"),
    "the other half": (INFO + b'{"x":"\\udc00 "}\n', "half of a surrogate pair"),
    "half a pair as key": (INFO + b'{"x":{"\\uD800":1}}\n', "half of a surrogate pair"),
    "the same action twice in a line": (INFO + b'{"x":1,"x":2}\n', "key 'x' twice"),
    "a key twice": (INFO + b'{"txn":{"appId":"a","version":1,"version":2}}\n', "'version'"),
    "a key twice, one escaped": (INFO + b'{"x":{"a":1,"\\u0061":2}}\n', "key 'a' twice"),
    "a key twice in an unknown field": (INFO + b'{"x":[[{"y":{"z":1,"z":1}}]]}\n', "'z'"),
    "a key twice, hidden by a colon": (INFO + b'{"x":{"a":1,"a":"\\u003a"}}\n', "'a'"),
    "a key twice, hidden by blanks": (INFO + b'{"x":{"a":1,"a"\t :2}}\n', "'a'"),
    "a key twice in commitInfo": (
        b'{"commitInfo":{"inCommitTimestamp":1,"txnId":"a","txnId":"b"}}\n',
        "'txnId'",
    ),
    "65 levels deep": (INFO + NESTED, "Line 2 .* nested too deeply"),
    "100,000 levels deep": (INFO + b'{"x":' + b"[" * 100_000 + b"\n", "Line 2 .* nested deeper"),
    "100,000 objects deep": (INFO + b'{"x":' * 100_000 + b"\n", "Line 2 .* nested deeper"),
    "one line of 64 MB": (INFO + b'{"x":"' + b"y" * (63 << 20) + b'"}\n', "Line 2 .* limit"),
    "an add without its fields": (INFO + b'{"add":{"path":"a"}}\n', "Line 2 .* add is malformed"),
    "an add that is null": (INFO + b'{"add":null}\n', "Line 2 .* add is malformed"),
    "a size that is text": (INFO + ADD.replace(b'"size":100', b'"size":"100"'), "size"),
    "a size with a point": (INFO + ADD.replace(b'"size":100', b'"size":100.5'), "size"),
    "a timestamp that is text": (b'{"commitInfo":{"inCommitTimestamp":"1"}}\n', "Line 1"),
    "a txnId that is a number": (b'{"commitInfo":{"txnId":1}}\n', "Line 1"),
}


@req("AU-02", "CM-09")
@shows("FI3")
@pytest.mark.parametrize("case", UNREADABLE)
def test_content_that_cannot_be_read_is_refused_with_line_and_reason(case: str) -> None:
    content, why = UNREADABLE[case]
    with pytest.raises(MalformedError, match=why) as refused:
        examine_file(content)
    assert refused.value.code == "malformed"


@req("CM-09")
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
        ({"txnId": 7}, "txnId is not a string"),
        ({"x": 2**63}, "64 bits"),
        ({"x": "\ud800"}, "surrogate"),
        pytest.param({"x": object()}, "object", id="an object of Python"),
        ({"x": {1: "a", "1": "b"}}, "key '1' twice"),
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
        (ParseLimits(max_bytes=len(INFO + ADD) - 1), "bytes, over the limit"),
        (ParseLimits(max_line_bytes=len(ADD) - 2), "Line 2 .* over the limit"),
        (ParseLimits(max_lines=1), "2 lines, over the limit"),
        (ParseLimits(max_depth=2), "Line 2 .* nested"),
    ],
)
def test_limits_hold_to_the_byte(limits: ParseLimits, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        examine_file(INFO + ADD, limits=limits)


def test_at_the_limits_content_is_read() -> None:
    limits = ParseLimits(
        max_bytes=len(INFO + ADD), max_line_bytes=len(ADD) - 1, max_lines=2, max_depth=3
    )
    assert examine_file(INFO + ADD, limits=limits).violations == ()


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
    "a number of records that does not fit into 64 bits": (
        [add("a", records=2**63)],
        ["stats-malformed"],
    ),
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


# At random


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
    assert [line.action for line in read(content) if not isinstance(line.action, CommitInfo)] == [
        line.action for line in examined.lines
    ]
    decode(content)


@relaxed
@given(st.lists(fuzz.json_lines, max_size=3))
def test_lines_are_read_exactly_when_a_plain_reader_reads_them(lines: list[str]) -> None:
    content = b"".join(line.encode() + b"\n" for line in lines)
    is_read = admitted(INFO + content) is not None
    assert is_read is all(map(fuzz.reads_strictly, lines))


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
