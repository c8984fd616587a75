"""Idempotency keys: a repeated request gets the first answer and changes nothing.

The key, the request's hash and the answer are recorded in the unit of work that makes the change,
so there is no state "in progress". Proposals need no key: their txnId identifies them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import AnswerRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import InvalidArgumentError, KeyReusedError, TransactionExpiredError
from headgate.protocol import txn_ids
from headgate.protocol.encoding import to_json

Result = TypeVar("Result")


class RequestKey(NamedTuple):  # cheap, since every request creates one
    """An idempotency key and the request that it was sent with."""

    key: str
    request: bytes  # hash of the whole request


class AnsweredError(Exception):
    """The request was carried out before, with this answer."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


def once(
    key: RequestKey, work: Callable[[WriteUnit], Result], now_ms: int, kept_ms: int
) -> Callable[[WriteUnit], Result]:
    """Wrap work so that it is done once under its key and its answer is kept for `kept_ms`."""
    refuse_unless_usable(key, now_ms, kept_ms)

    def do(unit: WriteUnit) -> Result:
        refuse_if_answered(unit, key)
        result = work(unit)
        answer = b"" if result is None else to_json(result)
        unit.insert_answer(AnswerRow(key.key, key.request, answer, now_ms))
        unit.delete_answers(now_ms - kept_ms)
        return result

    return do


def refuse_unless_usable(key: RequestKey, now_ms: int, kept_ms: int) -> None:
    """Refuse an invalid key, and one so old that its answer may be deleted."""
    begun_ms = txn_ids.begun_ms(key.key)
    if begun_ms is None:
        raise InvalidArgumentError(
            f"The idempotency key {key.key[:60]!r} is not a UUIDv7.", remedy="Use a new UUIDv7."
        )
    if begun_ms < now_ms - kept_ms:
        raise TransactionExpiredError(
            f"The key {key.key} is older than answers are kept.", remedy="Use a new key."
        )


def refuse_if_answered(unit: ReadUnit, key: RequestKey) -> None:
    """Raise AnsweredError if the key has an answer; refuse a key of another request."""
    recorded = unit.answer(key.key)
    if recorded is not None:
        if recorded.request != key.request:
            raise KeyReusedError(f"The key {key.key} was used for another request.")
        raise AnsweredError(recorded.answer)
