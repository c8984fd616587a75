"""Errors to problem documents and back, as the same class, and the status of each code."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from headgate import errors
from headgate.api.messages import Message, Rejected, VersionTaken
from headgate.protocol.commit.conflicts import Conflict
from headgate.protocol.commit.examination import Violation

# All other codes have status 400.
STATUS: Final[Mapping[str, int]] = {
    code: status
    for status, codes in {
        401: "not-authenticated",
        403: "permission-denied",
        404: "not-found",
        408: "too-slow",
        409: "already-exists conflict version-taken must-restage txn-id-reused key-reused",
        410: "version-gone transaction-expired",
        413: "too-large",
        415: "unsupported-media-type",
        422: "invalid-commit invalid-data invalid-schema not-empty not-published"
        " unsupported-feature unsupported-by-catalog path-access in-the-future log-ahead",
        429: "busy",
        500: "error damaged invariant",
        503: "unavailable outcome-unknown put-unknown log-diverged",
    }.items()
    for code in codes.split()
}
_OTHERWISE: Final = 400


class Problem(Message, frozen=True, kw_only=True):
    """A problem document (RFC 9457). Decide on `code` and `retry`, never on text."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    remedy: str = ""
    retry: errors.Retry = errors.Retry.NEVER
    request_id: str | None = None
    # Fields of some errors.
    table: str | None = None
    txn_id: str | None = None
    violations: tuple[Violation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    # The answer to a proposal that was not ratified, with the winners.
    answer: Rejected | VersionTaken | None = None


def status_of(code: str) -> int:
    """Return the HTTP status of an error's code."""
    return STATUS.get(code, _OTHERWISE)


def from_error(error: errors.HeadgateError, request_id: str | None = None) -> Problem:
    """Convert an error."""
    carried: dict[str, Any] = {field: getattr(error, field, None) for field in ("table", "txn_id")}
    if isinstance(error, errors.InvalidCommitError):
        carried["violations"] = error.violations
    if isinstance(error, errors.ConflictError):
        carried["conflicts"] = error.conflicts
    return _problem(
        error.code, error.message, error.remedy, error.retry, request_id=request_id, **carried
    )


def from_answer(
    answer: Rejected | VersionTaken, *, is_staged: bool, request_id: str | None = None
) -> Problem:
    """Convert the answer to a proposal that was not ratified; the document contains it."""
    if isinstance(answer, VersionTaken):
        code = "must-restage" if is_staged else "version-taken"
        retry = errors.Retry.AFTER_REFRESH
        detail = "Others took the version; their commits are in the answer."
        remedy = "Move past the winners, then propose above the latest version."
    else:
        kind = errors.InvalidCommitError if answer.violations else errors.ConflictError
        code, retry, remedy = kind.code, kind.retry, kind.remedy
        detail = "; ".join(map(str, answer.violations or answer.conflicts))
    return _problem(
        code, detail, remedy, retry, request_id=request_id, txn_id=answer.txn_id, answer=answer
    )


def _problem(code: str, detail: str, remedy: str, retry: errors.Retry, **more: Any) -> Problem:
    status = status_of(code)
    return Problem(
        type=f"urn:headgate:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=errors.shortened(detail, errors.LONGEST_MESSAGE),
        remedy=remedy,
        retry=retry,
        **more,
    )


def to_error(problem: Problem) -> errors.HeadgateError:
    """Convert a problem document to an error of the class that the server raised."""
    kind = _KINDS.get(problem.code)
    if kind is None:  # from a newer server: what matters is whether the request was refused
        kind = errors.RefusedError if problem.status < 500 else errors.UnavailableError
    error = kind.__new__(kind)
    message = problem.detail
    if problem.request_id is not None and problem.status >= 500:
        message = f"{message.rstrip('.')} (request {problem.request_id})."
    errors.HeadgateError.__init__(error, message, remedy=problem.remedy or None)
    match error:
        case errors.InvalidCommitError():
            error.table, error.violations = problem.table or "", problem.violations
        case errors.ConflictError():
            error.table, error.conflicts = problem.table or "", problem.conflicts
        case errors.OutcomeUnknownError():
            error.txn_id = problem.txn_id or ""
    return error


def _all(kind: type[errors.HeadgateError]) -> Iterator[type[errors.HeadgateError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _all(child)


_KINDS: Final = {kind.code: kind for kind in reversed(list(_all(errors.HeadgateError)))}
