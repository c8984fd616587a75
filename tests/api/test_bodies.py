"""Bodies of the native API: what is decoded, and what is refused with its place."""

from __future__ import annotations

import pytest

from headgate.api import bodies
from headgate.api.messages import Part, Proposal
from headgate.errors import MalformedError
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Inline, Staged
from tests.kit.builders import add, inline

STAGED = Staged(file_name="00000000000000000001.a.json", size=10)
LONGEST = 2**63 - 1


@pytest.mark.parametrize("content", [inline(add()), STAGED])
def test_a_proposal_for_one_table_arrives_as_it_was_sent(content: Inline | Staged) -> None:
    sent = bodies.OnePart(txn_id=TxnId("x"), version=Version(1), content=content)
    arrived = bodies.decode(bodies.encode(sent), bodies.OnePart)
    part = Part(table_id=TableId("t"), version=Version(1), content=content)
    assert arrived.proposal(TableId("t")) == Proposal(txn_id=TxnId("x"), parts=(part,))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"sequence":"1"}', "$.sequence"),
        (b'{"sequence":1} x', "trailing"),
        (b'{"sequence":1,"other":"\xff"}', "utf-8"),
        (b'{"sequence":1,"other":' + b"[" * 5_000, "recursion"),
    ],
)
def test_a_body_that_cannot_be_decoded_is_refused_with_the_place(raw: bytes, text: str) -> None:
    with pytest.raises(MalformedError) as raised:
        bodies.decode(raw, bodies.AtSequence)
    assert "The body is not a AtSequence" in str(raised.value)
    assert text in str(raised.value)


@pytest.mark.parametrize("number", [LONGEST, -LONGEST - 1])
def test_integers_of_64_bits_are_decoded(number: int) -> None:
    body = bodies.decode(b'{"sequence":%d}' % number, bodies.AtSequence)
    assert body.sequence == Sequence(number)


@pytest.mark.parametrize("number", [LONGEST + 1, -LONGEST - 2, 10**40])
@pytest.mark.parametrize("field", [b"sequence", b"other"])
def test_integers_beyond_64_bits_are_refused(field: bytes, number: int) -> None:
    raw = b'{"sequence":1,"%s":%d}' % (field, number)
    with pytest.raises(MalformedError, match=r"64 bits|not a AtSequence"):
        bodies.decode(raw, bodies.AtSequence)


@pytest.mark.parametrize("value", [b'"99999999999999999999"', b"0.99999999999999999999"])
def test_long_digits_that_are_not_integers_are_decoded(value: bytes) -> None:
    raw = b'{"sequence":1,"other":' + value + b"}"
    assert bodies.decode(raw, bodies.AtSequence).sequence == 1
