"""Idempotency keys: a request that comes again is answered, not carried out again.

Key, hash of the request and answer are recorded in the very unit of work that makes the change,
so "in progress" does not exist. Proposals need none of this: their txnId is their key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar
from uuid import UUID

from headgate.catalog.stores.port import AnswerRow, ReadUnit, WriteUnit
from headgate.errors import InvalidArgumentError, KeyReusedError, TransactionExpiredError
from headgate.protocol.encoding import to_json

Result = TypeVar("Result")


class RequestKey(NamedTuple):  # every request makes one
    """What a request is known by when it comes again."""

    key: str
    request: bytes  # hash of all that was asked


class AnsweredError(Exception):
    """The request was carried out before; this is what it was answered."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


def once(
    key: RequestKey, work: Callable[[WriteUnit], Result], now_ms: int, kept_ms: int
) -> Callable[[WriteUnit], Result]:
    """Give work that is done once under its key, and remembers its answer for a while."""
    refuse_if_none(key, now_ms, kept_ms)

    def do(unit: WriteUnit) -> Result:
        refuse_if_answered(unit, key)
        result = work(unit)
        answer = b"" if result is None else to_json(result)
        unit.insert_answer(AnswerRow(key.key, key.request, answer, now_ms))
        unit.delete_answers(now_ms - kept_ms)
        return result

    return do


def refuse_if_none(key: RequestKey, now_ms: int, kept_ms: int) -> None:
    """Refuse what is no key, and one so old that its answer may be forgotten."""
    if _time_of(key.key) < now_ms - kept_ms:
        raise TransactionExpiredError(
            f"The key {key.key} is older than answers are kept.", remedy="Make a new key."
        )


def refuse_if_answered(unit: ReadUnit, key: RequestKey) -> None:
    """Raise the answer that was given under this key before, if there is one."""
    known = unit.answer(key.key)
    if known is not None:
        if known.request != key.request:
            raise KeyReusedError(f"The key {key.key} was used for another request.")
        raise AnsweredError(known.answer)


def _time_of(key: str) -> int:
    try:
        parsed = UUID(key)
    except ValueError:
        parsed = None
    if parsed is None or parsed.version != 7:
        raise InvalidArgumentError(
            f"The idempotency key {key[:60]!r} is no UUIDv7.", remedy="Make a new UUIDv7."
        )
    return parsed.int >> 80
