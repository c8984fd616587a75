"""Commits at random: JSON that tries to say two things, and good commits with damage done to them.

`reads_strictly` is a second reader of lines, slow and plain, to hold the fast one against.
"""

from __future__ import annotations

import json
import math

import msgspec
from hypothesis import strategies as st

from headgate.protocol.actions import (
    Action,
    AddCdcFile,
    DeletionVector,
    DomainMetadata,
    RemoveFile,
    SetTransaction,
    TableId,
    TxnId,
)
from tests.kit.builders import add, file_content, metadata, protocol, remove

TABLE = TableId("11111111-1111-4111-8111-111111111111")
TXN = TxnId("01953a3c-0000-7000-8000-000000000001")
DEEPEST = 64

# Texts

_LETTERS = ["a", "b", ":", "{", "[", "é", " ", "1", "\x01", "9" * 19]
_ESCAPES = ['\\"', "\\\\", "\\n", "\\u0061", "\\u003a", "\\u003A"]
_SURROGATES = ["\\ud83d\\ude00", "\\ud800", "\\udc00"]
_characters = st.sampled_from([*_LETTERS, *_ESCAPES, *_SURROGATES])
_strings = st.lists(_characters, max_size=4).map(lambda parts: '"' + "".join(parts) + '"')
_GREATEST, _LEAST = 2**63 - 1, -(2**63)
_BOUNDARIES = [f"{number}" for number in (_GREATEST, _GREATEST + 1, _LEAST, _LEAST - 1)]
_ODD_NUMBERS = ["-0", "01", "1.", "1.5", "1e5", "1e999", "NaN", "Infinity", "1" * 5000]
_numbers = st.sampled_from(["0", "-1", *_ODD_NUMBERS, *_BOUNDARIES])
_blanks = st.sampled_from(["", "", "", " ", "\t", "  ", "\r"])


def _members(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(_strings, _blanks, _blanks, values).map(
        lambda parts: f"{parts[0]}{parts[1]}:{parts[2]}{parts[3]}"
    )
    return st.lists(member, max_size=4).map(lambda parts: "{" + ",".join(parts) + "}")


def _elements(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=4).map(lambda parts: "[" + ",".join(parts) + "]")


_deep = st.integers(DEEPEST - 4, DEEPEST + 4).map(lambda depth: "[" * depth + "]" * depth)
json_texts = st.recursive(
    st.one_of(_strings, _numbers, st.sampled_from(["true", "false", "null"]), _deep),
    lambda values: st.one_of(_members(values), _elements(values)),
    max_leaves=12,
)
"""Text that is nearly JSON, or JSON, or JSON with keys twice in one of many spellings."""
json_lines = st.one_of(json_texts, json_texts.map(lambda value: '{"x":' + value + "}"))


class NotReadableError(Exception):
    """The plain reader refuses it."""


def reads_strictly(line: str) -> bool:
    """Return True if a line is one JSON object with one key that every parser reads alike."""
    try:
        if "\r" in line:
            raise NotReadableError
        value = json.loads(
            line, object_pairs_hook=_once, parse_constant=_refuse, parse_int=_within_64_bits
        )
        _check(value, 1)
    except (ValueError, RecursionError, NotReadableError):
        return False
    return isinstance(value, dict) and len(value) == 1


def _once(members: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in members}) < len(members):
        raise NotReadableError
    return dict(members)


def _refuse(constant: str) -> None:
    raise NotReadableError(constant)


def _within_64_bits(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise NotReadableError
    return int(digits)


def _check(value: object, depth: int) -> None:
    if isinstance(value, str):
        value.encode()  # a lone surrogate cannot be
    elif isinstance(value, float) and not math.isfinite(value):
        raise NotReadableError
    elif isinstance(value, dict | list):
        if depth > DEEPEST:
            raise NotReadableError
        for key in value if isinstance(value, dict) else ():
            _check(key, depth)
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth + 1)


# Commits

_vectors = st.builds(
    DeletionVector,
    storage_type=st.sampled_from(["u", "i", "p", "x"]),
    path_or_inline_dv=st.sampled_from(["ab" * 10, "short", "../" + "ab" * 10, ""]),
    offset=st.sampled_from([None, 0, 1, -1]),
    size_in_bytes=st.integers(-1, 100),
    cardinality=st.integers(-1, 100),
)
_paths = st.one_of(
    st.sampled_from(["a", "b", "c/d.parquet", "../a", "/a", "_delta_log/a", "%2e%2e/a", "s3://a"]),
    st.text(max_size=8),
)
_texts = st.one_of(st.sampled_from(["", "{}", "[]", "null", "{", '{"numRecords":1}']), st.text())


def _changed(action: Action, **fields: st.SearchStrategy[object]) -> st.SearchStrategy[Action]:
    return st.fixed_dictionaries({}, optional=fields).map(
        lambda changes: msgspec.structs.replace(action, **changes)
    )


_FILE = add("a", records=10)
_OLD = RemoveFile(path="b", data_change=True)
actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(add, path=_paths.filter(bool), records=st.integers(-1, 5)),
    _changed(
        _FILE,
        path=_paths,
        size=st.integers(-1, 5),
        stats=st.none() | _texts,
        deletion_vector=st.none() | _vectors,
        base_row_id=st.none() | st.integers(-1, 200),
        default_row_commit_version=st.none() | st.integers(-1, 9),
        data_change=st.booleans(),
        partition_values=st.dictionaries(st.sampled_from(["day", "id"]), st.none() | _texts),
    ),
    _changed(_OLD, path=_paths, deletion_vector=st.none() | _vectors),
    st.just(remove(_FILE)),
    _changed(
        metadata(TABLE, "id long, day date", ["day"]),
        id=_texts,
        schema_string=_texts,
        partition_columns=st.lists(st.sampled_from(["id", "day", "x"]), max_size=2),
        configuration=st.dictionaries(
            st.sampled_from(
                [
                    "delta.columnMapping.mode",
                    "delta.columnMapping.maxColumnId",
                    "delta.appendOnly",
                    "delta.requireCheckpointProtectionBeforeVersion",
                    "io.unitycatalog.tableId",
                ]
            ),
            st.sampled_from(["name", "id", "none", "true", "5", "-5", "9" * 30, "", "٣"]),
        ),
    ),
    st.lists(
        st.sampled_from(["columnMapping", "rowTracking", "domainMetadata", "deletionVectors", "x"])
    ).map(lambda names: protocol(*names)),
    _changed(
        protocol(),
        min_reader_version=st.integers(-1, 9),
        min_writer_version=st.integers(-1, 9),
        reader_features=st.none() | st.lists(st.sampled_from(["catalogManaged", "columnMapping"])),
    ),
    st.builds(SetTransaction, app_id=st.sampled_from(["a", "b"]), version=st.integers(-1, 5)),
    st.builds(
        DomainMetadata,
        domain=st.sampled_from(["mine", "delta.rowTracking", "delta.clustering", "delta.x"]),
        configuration=_texts,
        removed=st.booleans(),
    ),
    st.builds(
        AddCdcFile,
        path=_paths,
        partition_values=st.just({}),
        size=st.integers(-1, 5),
        data_change=st.booleans(),
    ),
)
action_lists = st.lists(actions, max_size=5)
files = action_lists.map(lambda items: file_content(*items, txn_id=TXN))

_WORDS = [
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\n", b"\r", b"\0", b" ", b"null", b"-"),
    *(b"\xff", b"\xef\xbb\xbf", b"\\ud800", b"\\u003a", b"9" * 20, b"NaN", b"1e999", b"../"),
    *(b'"path":', b'"txnId":"a",', b'{"commitInfo":{}}\n', b'"baseRowId":5,', b"[" * 70),
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Give a commit with pieces cut out, put in, doubled and overwritten."""
    content = draw(files)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(len(content), start + 40)))
        piece = draw(st.one_of(st.sampled_from(_WORDS), st.binary(max_size=4), st.none()))
        middle = content[start:end] * 2 if piece is None else piece
        content = content[:start] + middle + content[end:]
    return content
