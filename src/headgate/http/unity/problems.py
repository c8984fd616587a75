"""Errors in the two forms that Unity Catalog's clients read.

What a client does is driven by the status, hardly ever by the words: on a commit 400 and 404 fail
at once, 409 rebases and comes again, and everything else is sent again for minutes. So a veto and
a violation are 400, and 409 is said only where the version, or what was asserted, is really gone.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from headgate.errors import HeadgateError, MalformedError, RefusedError
from headgate.http.unity import bodies

BASE: Final = "/api/2.1/unity-catalog"


class Wording(NamedTuple):
    """One thing that can be wrong, as `delta/v1` says it and as the older REST does."""

    type: str
    status: int
    error_code: str
    older_status: int


class Case(enum.Enum):
    """What can be wrong, beyond what the catalog's own errors tell apart."""

    INVALID = Wording("InvalidParameterValueException", 400, "INVALID_ARGUMENT", 400)
    NOT_NOW = Wording("BadRequestException", 400, "FAILED_PRECONDITION", 400)
    OTHER_FORMAT = Wording("UnsupportedTableFormatException", 400, "INVALID_ARGUMENT", 400)
    NO_CATALOG = Wording("NoSuchCatalogException", 404, "CATALOG_NOT_FOUND", 404)
    NO_SCHEMA = Wording("NoSuchSchemaException", 404, "SCHEMA_NOT_FOUND", 404)
    NO_TABLE = Wording("NoSuchTableException", 404, "TABLE_NOT_FOUND", 404)
    CATALOG_THERE = Wording("AlreadyExistsException", 409, "CATALOG_ALREADY_EXISTS", 400)
    SCHEMA_THERE = Wording("AlreadyExistsException", 409, "SCHEMA_ALREADY_EXISTS", 400)
    TABLE_THERE = Wording("AlreadyExistsException", 409, "TABLE_ALREADY_EXISTS", 400)
    VERSION_TAKEN = Wording("CommitVersionConflictException", 409, "COMMIT_VERSION_CONFLICT", 409)
    NOT_AS_ASSERTED = Wording(
        "UpdateRequirementConflictException", 409, "UPDATE_REQUIREMENT_CONFLICT", 409
    )
    OTHER_METHOD = Wording("BadRequestException", 405, "INVALID_ARGUMENT", 405)


class SaidError(RefusedError):
    """A refusal that has a word of its own in the dialects."""

    def __init__(self, case: Case, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.case = case


_INVALID = Case.INVALID.value
_NOT_NOW = Case.NOT_NOW.value
_BROKEN: Final = Wording("InternalServerErrorException", 500, "INTERNAL", 500)
_AWAY: Final = Wording("InternalServerErrorException", 503, "INTERNAL", 503)

WORDINGS: Final[Mapping[str, Wording]] = {
    "not-authenticated": Wording("NotAuthorizedException", 401, "UNAUTHENTICATED", 401),
    "permission-denied": Wording("PermissionDeniedException", 403, "PERMISSION_DENIED", 403),
    "not-found": Wording("NotFoundException", 404, "NOT_FOUND", 404),
    "too-slow": Wording("BadRequestException", 408, "INVALID_ARGUMENT", 408),
    "already-exists": Wording("AlreadyExistsException", 409, "RESOURCE_ALREADY_EXISTS", 400),
    "conflict": Wording("BadRequestException", 400, "ABORTED", 400),
    "malformed": Wording("BadRequestException", 400, "INVALID_ARGUMENT", 400),
    "txn-id-reused": _NOT_NOW,
    "transaction-expired": _NOT_NOW,
    "not-empty": _NOT_NOW,
    "not-published": _NOT_NOW,
    "log-ahead": _NOT_NOW,
    "vetoed": _NOT_NOW,
    "too-large": Wording("InvalidParameterValueException", 413, "INVALID_ARGUMENT", 413),
    "unsupported-media-type": Wording("BadRequestException", 415, "INVALID_ARGUMENT", 415),
    "busy": Wording("TooManyRequestsException", 429, "RESOURCE_EXHAUSTED", 429),
    "error": _BROKEN,
    "damaged": _BROKEN,
    "invariant": _BROKEN,
    "outcome-unknown": Wording("CommitStateUnknownException", 500, "COMMIT_STATE_UNKNOWN", 500),
    "unavailable": _AWAY,
    "put-unknown": _AWAY,
    "log-diverged": _AWAY,
}

# What is said otherwise of a commit: what is refused again is refused once, and not for an hour; a
# body that came too slowly may come in time; 409 is for what was taken, and for nothing else.
_ON_COMMIT: Final[Mapping[str, Wording]] = {
    "permission-denied": _INVALID,
    "too-large": _INVALID,
    "unsupported-media-type": _INVALID,
    "already-exists": _INVALID,
    "too-slow": _AWAY,
}


def wording(error: HeadgateError) -> Wording:
    """Give the words for an error; whatever has none of its own is a bad parameter."""
    if isinstance(error, SaidError):
        return error.case.value
    return WORDINGS.get(error.code, _INVALID)


def _wording_on_commit(error: HeadgateError) -> Wording:
    said = None if isinstance(error, SaidError) else _ON_COMMIT.get(error.code)
    return said or wording(error)


def kebab(error: HeadgateError) -> tuple[int, bytes]:
    """Say an error as `delta/v1` does."""
    return _kebab(error, wording(error))


def kebab_on_commit(error: HeadgateError) -> tuple[int, bytes]:
    """Say an error about a commit as `delta/v1` does."""
    return _kebab(error, _wording_on_commit(error))


def snake(error: HeadgateError) -> tuple[int, bytes]:
    """Say an error as the older REST does."""
    return _snake(error, wording(error))


def snake_on_commit(error: HeadgateError) -> tuple[int, bytes]:
    """Say an error about a commit as the older dialect does."""
    return _snake(error, _wording_on_commit(error))


def leads_nowhere(error: HeadgateError, path: str) -> tuple[int, bytes] | None:
    """Say that nothing is at a path, as whoever asks there reads it; None: no dialect is there."""
    if not f"{path}/".startswith(f"{BASE}/"):
        return None
    return kebab(error) if f"{path}/".startswith(f"{BASE}/delta/v1/") else snake(error)


def _kebab(error: HeadgateError, said: Wording) -> tuple[int, bytes]:
    inner = bodies.ErrorModel(message=_text(error), type=said.type, code=said.status)
    return said.status, bodies.encode(bodies.ErrorResponse(error=inner))


def _snake(error: HeadgateError, said: Wording) -> tuple[int, bytes]:
    body = bodies.OlderError(
        error_code=said.error_code,
        message=_text(error),
        details=(bodies.ErrorDetail(reason=said.error_code),),
    )
    return said.older_status, bodies.encode(body)


def _text(error: HeadgateError) -> str:
    if isinstance(error, MalformedError):  # its remedy points at the native API's document
        return error.message
    return f"{error.message} {error.remedy}".rstrip()
