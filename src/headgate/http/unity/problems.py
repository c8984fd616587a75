"""Errors in the two forms that Unity Catalog's clients read.

Clients decide by the status, hardly ever by the text: a commit answered by 400 or 404 fails at
once, one answered by 409 is rebased and sent again, and after any other status it is repeated for
minutes. So a violation is 400, and 409 is only for a version that is taken and for a
requirement that no longer holds.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from headgate.errors import AlreadyExistsError, HeadgateError, InvalidArgumentError, RefusedError
from headgate.http.unity import bodies
from headgate.protocol.encoding import to_json

BASE: Final = "/api/2.1/unity-catalog"


class Form(NamedTuple):
    """The form of an error in `delta/v1` and in the older REST."""

    type: str
    status: int
    error_code: str
    older_status: int


class Case(enum.Enum):
    """Errors that only the dialects distinguish."""

    INVALID = Form("InvalidParameterValueException", 400, "INVALID_ARGUMENT", 400)
    NOT_NOW = Form("BadRequestException", 400, "FAILED_PRECONDITION", 400)
    OTHER_FORMAT = Form("UnsupportedTableFormatException", 400, "INVALID_ARGUMENT", 400)
    NO_CATALOG = Form("NoSuchCatalogException", 404, "CATALOG_NOT_FOUND", 404)
    NO_SCHEMA = Form("NoSuchSchemaException", 404, "SCHEMA_NOT_FOUND", 404)
    NO_TABLE = Form("NoSuchTableException", 404, "TABLE_NOT_FOUND", 404)
    CATALOG_THERE = Form("AlreadyExistsException", 409, "CATALOG_ALREADY_EXISTS", 400)
    SCHEMA_THERE = Form("AlreadyExistsException", 409, "SCHEMA_ALREADY_EXISTS", 400)
    TABLE_THERE = Form("AlreadyExistsException", 409, "TABLE_ALREADY_EXISTS", 400)
    VERSION_TAKEN = Form("CommitVersionConflictException", 409, "COMMIT_VERSION_CONFLICT", 409)
    NOT_AS_ASSERTED = Form(
        "UpdateRequirementConflictException", 409, "UPDATE_REQUIREMENT_CONFLICT", 409
    )
    OTHER_METHOD = Form("BadRequestException", 405, "INVALID_ARGUMENT", 405)


class DialectError(RefusedError):
    """An error that only the dialects distinguish."""

    def __init__(self, case: Case, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.case = case


def invalid(message: str) -> InvalidArgumentError:
    """Return the error for a wrong argument that says all by itself."""
    return InvalidArgumentError(message, remedy="")


@contextmanager
def exists_as(case: Case) -> Iterator[None]:
    """Report that a name or a location is in use as a case of the dialects."""
    try:
        yield
    except AlreadyExistsError as error:
        raise DialectError(case, error.message, remedy=error.remedy) from None


_INVALID = Case.INVALID.value
_NOT_NOW = Case.NOT_NOW.value
_BROKEN: Final = Form("InternalServerErrorException", 500, "INTERNAL", 500)
_AWAY: Final = Form("InternalServerErrorException", 503, "INTERNAL", 503)

FORMS: Final[Mapping[str, Form]] = {
    "not-authenticated": Form("NotAuthorizedException", 401, "UNAUTHENTICATED", 401),
    "permission-denied": Form("PermissionDeniedException", 403, "PERMISSION_DENIED", 403),
    "not-found": Form("NotFoundException", 404, "NOT_FOUND", 404),
    "too-slow": Form("BadRequestException", 408, "INVALID_ARGUMENT", 408),
    "already-exists": Form("AlreadyExistsException", 409, "RESOURCE_ALREADY_EXISTS", 400),
    "conflict": Form("BadRequestException", 400, "ABORTED", 400),
    "malformed": Form("BadRequestException", 400, "INVALID_ARGUMENT", 400),
    "txn-id-reused": _NOT_NOW,
    "transaction-expired": _NOT_NOW,
    "not-empty": _NOT_NOW,
    "not-published": _NOT_NOW,
    "log-ahead": _NOT_NOW,
    "too-large": Form("InvalidParameterValueException", 413, "INVALID_ARGUMENT", 413),
    "unsupported-media-type": Form("BadRequestException", 415, "INVALID_ARGUMENT", 415),
    "busy": Form("TooManyRequestsException", 429, "RESOURCE_EXHAUSTED", 429),
    "error": _BROKEN,
    "damaged": _BROKEN,
    "invariant": _BROKEN,
    "outcome-unknown": Form("CommitStateUnknownException", 500, "COMMIT_STATE_UNKNOWN", 500),
    "unavailable": _AWAY,
    "put-unknown": _AWAY,
    "log-diverged": _AWAY,
}

# Forms that differ for a commit: one that would be refused again must not be repeated for an hour;
# one whose body came too slowly may succeed; and 409 is only for a version that is taken.
_ON_COMMIT: Final[Mapping[str, Form]] = {
    "permission-denied": _INVALID,
    "too-large": _INVALID,
    "unsupported-media-type": _INVALID,
    "already-exists": _INVALID,
    "too-slow": _AWAY,
}


def unrouted(error: HeadgateError, status: int, path: str) -> bytes | None:
    """Return the body for a path without an operation; None if it belongs to no dialect."""
    if not f"{path}/".startswith(f"{BASE}/"):
        return None
    form = Case.OTHER_METHOD.value if status == 405 else _form(error)
    encode = _kebab if f"{path}/".startswith(f"{BASE}/delta/v1/") else _snake
    return encode(error, form)[1]


def _form(error: HeadgateError) -> Form:
    if isinstance(error, DialectError):
        return error.case.value
    return FORMS.get(error.code, _INVALID)


def _form_on_commit(error: HeadgateError) -> Form:
    form = None if isinstance(error, DialectError) else _ON_COMMIT.get(error.code)
    return form or _form(error)


def _kebab(error: HeadgateError, form: Form) -> tuple[int, bytes]:
    inner = bodies.ErrorModel(message=_text(error), type=form.type, code=form.status)
    return form.status, to_json(bodies.ErrorResponse(error=inner))


def _snake(error: HeadgateError, form: Form) -> tuple[int, bytes]:
    body = bodies.OlderError(
        error_code=form.error_code,
        message=_text(error),
        details=(bodies.ErrorDetail(reason=form.error_code),),
    )
    return form.older_status, to_json(body)


def _answers(
    encode: Callable[[HeadgateError, Form], tuple[int, bytes]],
    form: Callable[[HeadgateError], Form],
) -> Callable[[HeadgateError], tuple[int, bytes]]:
    return lambda error: encode(error, form(error))


# The status and body of an error: in `delta/v1`, in the older REST, and of a commit in both.
kebab, kebab_on_commit = _answers(_kebab, _form), _answers(_kebab, _form_on_commit)
snake, snake_on_commit = _answers(_snake, _form), _answers(_snake, _form_on_commit)


def _text(error: HeadgateError) -> str:
    if "/openapi.json" in error.remedy:  # it describes only the native API
        return error.message
    return f"{error.message} {error.remedy}".rstrip()
