"""Every error that Headgate raises, in one tree, which docs/errors.md shows.

Each error has a stable `code`, a `remedy` (what to do next) and `retry` (whether another try can
help). Callers decide on `code` and `retry`, never on the text. This module knows nothing of HTTP.
"""

import enum
from collections.abc import Sequence
from typing import Final

LONGEST_MESSAGE: Final = 8_000  # a message may repeat what a client sent, and it is logged


def shortened(text: str, most: int) -> str:
    """Cut a text that is too long, in its middle."""
    if len(text) <= most:
        return text
    kept = most // 2
    return f"{text[:kept]}… ({len(text) - 2 * kept} characters left out) …{text[-kept:]}"


class Retry(enum.Enum):
    """Whether another try can help: after reading the table again, or with the same request."""

    NEVER = "never"
    AFTER_REFRESH = "after-refresh"
    SAME_AGAIN = "same-again"


class HeadgateError(Exception):
    """The base class. Its text is the message, then the remedy, then the code."""

    code = "error"
    retry = Retry.NEVER
    remedy = "Report this with the message above."

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        self.message = shortened(message, LONGEST_MESSAGE)
        if remedy is not None:
            self.remedy = shortened(remedy, LONGEST_MESSAGE)
        super().__init__(f"{self.message} {self.remedy} [{self.code}]")


class RefusedError(HeadgateError):
    """The request was understood and is not allowed. The same request is refused again."""

    code = "refused"
    remedy = "Correct the request."


class NotFoundError(RefusedError):
    """The table, namespace, version or transaction does not exist."""

    code = "not-found"
    remedy = "Check the name: session.tables() or `headgate show` list what exists."


class AlreadyExistsError(RefusedError):
    """The name or the location is already in use."""

    code = "already-exists"
    remedy = "Choose another name, or drop the existing one."


class NotEmptyError(RefusedError):
    """A namespace or directory that must be empty is not."""

    code = "not-empty"
    remedy = "Empty it first, or choose another one."


class PermissionDeniedError(RefusedError):
    """The principal lacks the privilege for this operation."""

    code = "permission-denied"
    remedy = "Ask the table's owner for the privilege."


class InvalidNameError(RefusedError):
    """A name contains characters that are not allowed, or has too many parts."""

    code = "invalid-name"
    remedy = (
        "A name is catalog.schema.table; each part has 1 to 255 letters, digits, `_`, `@` or `-`."
    )


class InvalidSchemaError(RefusedError):
    """The schema is not valid for a Delta table."""

    code = "invalid-schema"
    remedy = "Correct the schema: write columns as `name type`, with the type names of Delta."


class InvalidArgumentError(RefusedError):
    """An argument has the wrong type or an invalid value."""

    code = "invalid-argument"
    remedy = "Correct the argument."


class InvalidDataError(RefusedError):
    """Rows do not fit the table: a wrong type, an unexpected NULL or a violated constraint."""

    code = "invalid-data"
    remedy = "Correct the rows and write them again. Nothing was committed."


class InvalidCommitError(RefusedError):
    """The content of a commit breaks the protocol. Carries every violation. Spec: AU-02."""

    code = "invalid-commit"
    remedy = "Correct all listed violations. Nothing was recorded."

    def __init__(self, table: str, violations: Sequence[object]) -> None:
        self.table = table
        self.violations = tuple(violations)
        listed = "; ".join(str(violation) for violation in self.violations)
        super().__init__(f"The commit to {table} is invalid: {listed}.")


class NotPublishedError(RefusedError):
    """The operation needs a version that is not published yet. Spec: CM-27."""

    code = "not-published"
    retry = Retry.AFTER_REFRESH
    remedy = "Publish it first: table.publish(), or `headgate publish TABLE`."

    def __init__(self, table: str, version: int) -> None:
        super().__init__(f"{table} version {version} is ratified but not published.")


class UnsupportedFeatureError(RefusedError):
    """A table feature, data type or file format is not supported."""

    code = "unsupported-feature"
    remedy = "Use a client that supports it, or drop the feature from the table."


class PathAccessError(RefusedError):
    """A catalog-managed table was opened by its path. Spec: RD-02."""

    code = "path-access"
    remedy = "Open it through its catalog: headgate.connect(ADDRESS).table(NAME)."


class VersionGoneError(RefusedError):
    """The version or event was deleted because its retention period is over."""

    code = "version-gone"
    remedy = "Read a later version."


class InTheFutureError(RefusedError):
    """The requested time, version or sequence is later than the latest one."""

    code = "in-the-future"
    remedy = "Read the latest version instead."


class TransactionExpiredError(RefusedError):
    """The transaction or request is too old: earlier answers may be deleted. Spec: MT-17."""

    code = "transaction-expired"
    remedy = "Begin a new transaction and run it again."


class TransactionEndedError(RefusedError):
    """The transaction was committed, rejected or rolled back before."""

    code = "transaction-ended"
    remedy = "Begin another transaction."


class TxnIdReusedError(RefusedError):
    """The txnId belongs to another commit, ratified or rejected before. Spec: CM-42."""

    code = "txn-id-reused"
    remedy = "Use a new txnId for a new commit."


class KeyReusedError(RefusedError):
    """The idempotency key belongs to another request."""

    code = "key-reused"
    remedy = "Use a new key for a new request."


class SyntaxRefusedError(RefusedError):
    """A SQL statement is invalid. Carries line and column, both counted from 1."""

    code = "syntax"
    remedy = "Correct the statement at this position."

    def __init__(
        self,
        message: str,
        *,
        remedy: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        self.line = line
        self.column = column
        super().__init__(message, remedy=remedy)


class TooLargeError(RefusedError):
    """A request exceeds the limit named in the message."""

    code = "too-large"
    remedy = "Send smaller requests, or stage the commit."


class UnsupportedMediaTypeError(RefusedError):
    """The body of a request is not declared as JSON."""

    code = "unsupported-media-type"
    remedy = "Send the body with `Content-Type: application/json`."


class NotAuthenticatedError(RefusedError):
    """The token is missing, or the server does not know it."""

    code = "not-authenticated"
    remedy = "Pass token=, or set HEADGATE_TOKEN."


class LogAheadError(RefusedError):
    """The log has versions that the catalog does not know: its database is an older copy."""

    code = "log-ahead"
    remedy = "Run `headgate fsck TABLE --repair`, then try again."


class UnsupportedByCatalogError(RefusedError):
    """The operation is not supported by this kind of catalog. Spec: CA-01, CA-05."""

    code = "unsupported-by-catalog"
    remedy = "Use an embedded catalog, a PostgreSQL database or a server."


class ConflictError(HeadgateError):
    """The commit conflicts with commits ratified since. Carries the conflicts."""

    code = "conflict"
    retry = Retry.AFTER_REFRESH
    remedy = "Read the table again and repeat the operation."

    def __init__(self, table: str, conflicts: Sequence[object]) -> None:
        self.table = table
        self.conflicts = tuple(conflicts)
        listed = "; ".join(str(conflict) for conflict in self.conflicts)
        super().__init__(f"The commit to {table} conflicts: {listed}.")


class MalformedError(HeadgateError):
    """A file or request does not follow the Delta protocol or the format of its API."""

    code = "malformed"
    remedy = "Correct the file or the request."


class UnavailableError(HeadgateError):
    """Storage, database or server cannot be reached. Nothing was changed."""

    code = "unavailable"
    retry = Retry.SAME_AGAIN
    remedy = "Try again when it can be reached."


class BusyError(UnavailableError):
    """The request was refused because of load. The same request may succeed later."""

    code = "busy"
    remedy = "Wait a moment, then send the same request again."


class TooSlowError(UnavailableError):
    """The body of a request did not arrive in time. Nothing was changed."""

    code = "too-slow"
    remedy = "Send the whole request without pauses."


class OutcomeUnknownError(HeadgateError):
    """A proposal got no answer: it may have been ratified. Spec: CM-43."""

    code = "outcome-unknown"
    retry = Retry.SAME_AGAIN
    remedy = "Keep all files and propose again with the same txnId."

    def __init__(self, txn_id: str, why: str) -> None:
        self.txn_id = txn_id
        super().__init__(f"It is not known whether transaction {txn_id} was ratified: {why}.")


class DamagedError(HeadgateError):
    """The catalog's database is corrupt and cannot be used."""

    code = "damaged"
    remedy = "Restore it from a backup."


class InvariantError(HeadgateError):
    """Catalog and log contradict each other."""

    code = "invariant"
    remedy = "Run `headgate fsck` and report what it finds."


class LogDivergedError(InvariantError):
    """A file in the log differs from the commit ratified at its version. Spec: PB-02."""

    code = "log-diverged"
    remedy = (
        "Run `headgate fsck TABLE --repair`, which keeps the file under another name and publishes "
        "the ratified commit."
    )
