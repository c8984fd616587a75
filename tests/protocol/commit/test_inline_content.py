"""Composing the stored content of an inline commit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InvariantError
from headgate.protocol.actions import (
    Action,
    decode,
    encode,
    join,
)
from headgate.protocol.commit.content import Inline
from headgate.protocol.commit.examination import examine, examine_file
from tests.kit import req
from tests.kit.builders import START_MS, inline
from tests.protocol.commit import fuzz_commits as fuzz
from tests.protocol.commit.commit_cases import (
    ADD,
    FILE,
    ODD_AND_READABLE,
    TXN,
    composed,
    in_file,
    judged,
    relaxed,
    rules,
)

# Composing what is stored


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
    stored = json.loads(content)["commitInfo"]
    assert stored["timestamp"] == info.get("timestamp", START_MS)
    assert stored["inCommitTimestamp"] == START_MS


def test_a_file_is_never_composed() -> None:
    with pytest.raises(InvariantError):
        composed(in_file(FILE))


# At random


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
