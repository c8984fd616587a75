"""Errors <-> problem documents, both ways.

The one table `code -> status` is here; nothing below knows of statuses. A client that reads a
problem raises the very class the server raised, with the same code, retry and remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from headgate.api.messages import Rejected, VersionTaken
from headgate.errors import (
    ConflictError,
    HeadgateError,
    InvalidCommitError,
    OutcomeUnknownError,
    RefusedError,
    Retry,
    UnavailableError,
    VetoedError,
)
from headgate.protocol.commit.conflicts import Conflict
from headgate.protocol.commit.examination import Violation

# Not here: 400, for what cannot be parsed or is simply wrong to ask.
STATUS: Final[Mapping[str, int]] = {
    "not-authenticated": 401,
    "permission-denied": 403,
    "not-found": 404,
    "too-slow": 408,
    "already-exists": 409,
    "conflict": 409,
    "version-taken": 409,
    "must-restage": 409,
    "txn-id-reused": 409,
    "key-reused": 409,
    "version-gone": 410,
    "transaction-expired": 410,
    "too-large": 413,
    "unsupported-media-type": 415,
    "invalid-commit": 422,
    "invalid-data": 422,
    "invalid-schema": 422,
    "vetoed": 422,
    "not-empty": 422,
    "not-published": 422,
    "unsupported-feature": 422,
    "unsupported-by-catalog": 422,
    "path-access": 422,
    "in-the-future": 422,
    "log-ahead": 422,
    "busy": 429,
    "error": 500,
    "damaged": 500,
    "invariant": 500,
    "unavailable": 503,
    "outcome-unknown": 503,
    "put-unknown": 503,
    "log-diverged": 503,
}
_OTHERWISE: Final = 400


class Problem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A problem document (RFC 9457). Decide on `code` and `retry`, never on text."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    remedy: str = ""
    retry: Retry = Retry.NEVER
    request_id: str | None = None
    # What some errors carry.
    table: str | None = None
    txn_id: str | None = None
    policy: str | None = None
    reason: str | None = None
    violations: tuple[Violation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    # A proposal that did not win: the answer itself, with the winners.
    answer: Rejected | VersionTaken | None = None


def status_of(code: str) -> int:
    """Give the status of an error's code."""
    return STATUS.get(code, _OTHERWISE)


def from_error(error: HeadgateError, request_id: str | None = None) -> Problem:
    """Say an error as a problem document."""
    status = status_of(error.code)
    carried: dict[str, Any] = {
        field: getattr(error, field, None) for field in ("table", "txn_id", "policy", "reason")
    }
    if isinstance(error, InvalidCommitError):
        carried["violations"] = error.violations
    if isinstance(error, ConflictError):
        carried["conflicts"] = error.conflicts
    return Problem(
        type=f"urn:headgate:{error.code}",
        title=HTTPStatus(status).phrase,
        status=status,
        code=error.code,
        detail=error.message,
        remedy=error.remedy,
        retry=error.retry,
        request_id=request_id,
        **carried,
    )


def from_answer(
    answer: Rejected | VersionTaken, *, is_staged: bool, request_id: str | None = None
) -> Problem:
    """Say an answer that is not `ratified` as a problem document that holds it."""
    retry = Retry.NEVER
    match answer:
        case VersionTaken():
            code = "must-restage" if is_staged else "version-taken"
            detail = "Others took the version; their commits are in the answer."
            remedy = "Move past the winners, then propose above the latest version."
            retry = Retry.AFTER_REFRESH
        case Rejected(violations=()):
            code, retry = ConflictError.code, ConflictError.retry
            detail = "; ".join(str(conflict) for conflict in answer.conflicts)
            remedy = ConflictError.remedy
        case Rejected():
            code = InvalidCommitError.code
            detail = "; ".join(str(violation) for violation in answer.violations)
            remedy = InvalidCommitError.remedy
    status = status_of(code)
    return Problem(
        type=f"urn:headgate:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=detail,
        remedy=remedy,
        retry=retry,
        request_id=request_id,
        txn_id=answer.txn_id,
        answer=answer,
    )


def to_error(problem: Problem) -> HeadgateError:
    """Give the error a problem stands for, of the class it was raised as."""
    kind = _KINDS.get(problem.code)
    if kind is None:  # of a newer server: what matters is whether it happened
        kind = RefusedError if problem.status < 500 else UnavailableError
    error = kind.__new__(kind)
    said = problem.detail
    if problem.request_id is not None and problem.status >= 500:
        said = f"{said.rstrip('.')} (request {problem.request_id})."
    HeadgateError.__init__(error, said, remedy=problem.remedy or None)
    match error:
        case InvalidCommitError():
            error.table, error.violations = problem.table or "", problem.violations
        case ConflictError():
            error.table, error.conflicts = problem.table or "", problem.conflicts
        case VetoedError():
            error.policy, error.reason = problem.policy or "", problem.reason or ""
        case OutcomeUnknownError():
            error.txn_id = problem.txn_id or ""
    return error


def _all(kind: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _all(child)


_KINDS: Final = {kind.code: kind for kind in reversed(list(_all(HeadgateError)))}
