"""Every error Headgate raises, in one tree.

    HeadgateError
      RefusedError            understood, and not allowed: the same again is refused again
        NotFoundError  AlreadyExistsError  NotEmptyError  PermissionDeniedError
        MaintenanceNotPermittedError  InvalidNameError  InvalidSchemaError  InvalidArgumentError
        InvalidDataError      rows that break the table's schema or constraints
        InvalidCommitError    carries every violation
        VetoedError           carries the policy and its reason
        NotPublishedError  ProtectedCheckpointError  UnsupportedFeatureError  PathAccessError
        VersionGoneError  InTheFutureError
        TransactionExpiredError  TransactionEndedError  TxnIdReusedError  KeyReusedError
        SyntaxRefusedError
        TooLargeError  UnsupportedMediaTypeError  NotAuthenticatedError  LogAheadError
        UnsupportedByCatalogError
      ConflictError           gave up rebasing; carries the conflicts
      MalformedError          bytes are not what the protocol says
      UnavailableError        storage or server cannot be reached; nothing happened
        BusyError             held back for a while; the same again may pass
        TooSlowError          a request that did not come in time
      OutcomeUnknownError     proposed, no answer; carries the txnId to ask with
      DamagedError            the catalog's own database is not what was written
      InvariantError          catalog and log contradict each other
        LogDivergedError      a published file holds other bytes than were ratified

Each has a stable `code`, a `remedy` (what to do next) and `retry` (whether to come again). Callers
decide on `retry` and `code`, never on text. Nothing here knows of HTTP.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence


class Retry(enum.Enum):
    """Whether sending the same again can help."""

    NEVER = "never"
    AFTER_REFRESH = "after-refresh"
    SAME_AGAIN = "same-again"


class HeadgateError(Exception):
    """The root: a message that says what was found, then the remedy, then the code."""

    code = "error"
    retry = Retry.NEVER
    remedy = "Report this with the message above."

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        self.message = message
        if remedy is not None:
            self.remedy = remedy
        super().__init__(f"{message} {self.remedy} [{self.code}]")


class RefusedError(HeadgateError):
    """Understood, and not allowed: the same again is refused again."""

    code = "refused"
    remedy = "Correct the request."


class NotFoundError(RefusedError):
    """No table, namespace, version or transaction answers to this name."""

    code = "not-found"
    remedy = "Check the name: session.tables(), or `headgate show`."


class AlreadyExistsError(RefusedError):
    """The name or the location is taken."""

    code = "already-exists"
    remedy = "Choose another name, or drop the one that is there."


class NotEmptyError(RefusedError):
    """Something that must be empty is not."""

    code = "not-empty"
    remedy = "Empty it first, or choose another place."


class PermissionDeniedError(RefusedError):
    """The principal may not do this."""

    code = "permission-denied"
    remedy = "Ask the table's owner for the privilege."


class MaintenanceNotPermittedError(RefusedError):
    """The catalog does not permit this maintenance job. Spec: CM-30."""

    code = "maintenance-not-permitted"
    remedy = "Ask the catalog's administrator to permit it."


class InvalidNameError(RefusedError):
    """A name that cannot be one."""

    code = "invalid-name"
    remedy = (
        "A name is catalog.schema.table; each part has 1 to 255 letters, digits, `_`, `@` or `-`."
    )


class InvalidSchemaError(RefusedError):
    """A schema that no Delta table can have."""

    code = "invalid-schema"
    remedy = "Correct the schema: columns as `name type`, types as Delta names them."


class InvalidArgumentError(RefusedError):
    """A value outside what this call takes."""

    code = "invalid-argument"
    remedy = "Correct the argument."


class InvalidDataError(RefusedError):
    """Rows that do not fit the table: another type, NULL where none may be, a constraint broken."""

    code = "invalid-data"
    remedy = "Correct the rows, then write them again. Nothing was committed."


class InvalidCommitError(RefusedError):
    """A commit whose content breaks the protocol; carries every violation. Spec: AU-02."""

    code = "invalid-commit"
    remedy = "Correct the commit: every violation is listed. Nothing was recorded."

    def __init__(self, table: str, violations: Sequence[object]) -> None:
        self.table = table
        self.violations = tuple(violations)
        said = "; ".join(str(violation) for violation in self.violations)
        super().__init__(f"The commit to {table} is invalid: {said}.")


class VetoedError(RefusedError):
    """A policy said no. Spec: AU-06."""

    code = "vetoed"
    remedy = "Read the policy's reason; the veto is final for this commit."

    def __init__(self, policy: str, reason: str) -> None:
        self.policy = policy
        self.reason = reason
        super().__init__(f"Policy {policy} vetoed the commit: {reason}.")


class NotPublishedError(RefusedError):
    """A version must be in the log before this can be done. Spec: CM-27."""

    code = "not-published"
    retry = Retry.AFTER_REFRESH
    remedy = "Publish it first: table.publish(), or `headgate publish TABLE`."

    def __init__(self, table: str, version: int) -> None:
        super().__init__(f"{table} version {version} is ratified but not published.")


class ProtectedCheckpointError(RefusedError):
    """A checkpoint that checkpoint protection keeps. Spec: CP-01."""

    code = "protected-checkpoint"
    remedy = "Clean up all versions before the protected boundary in one operation, or none."


class UnsupportedFeatureError(RefusedError):
    """A table feature, type or form this client does not know."""

    code = "unsupported-feature"
    remedy = "Use a client that supports it, or drop the feature from the table."


class PathAccessError(RefusedError):
    """A catalog-managed table was opened by path. Spec: RD-02."""

    code = "path-access"
    remedy = "Open it through its catalog: headgate.connect(ADDRESS).table(NAME)."


class VersionGoneError(RefusedError):
    """A version, or an event, was there and is deleted: it is past its retention."""

    code = "version-gone"
    remedy = "Read a later version."


class InTheFutureError(RefusedError):
    """A time or version that has not come yet."""

    code = "in-the-future"
    remedy = "Ask for the latest instead."


class TransactionExpiredError(RefusedError):
    """Its lease lapsed and cleanup has passed it. Spec: MT-17."""

    code = "transaction-expired"
    remedy = "Begin a new transaction and run it again."


class TransactionEndedError(RefusedError):
    """The transaction is over; nothing more can be done in it."""

    code = "transaction-ended"
    remedy = "Begin a new transaction."


class TxnIdReusedError(RefusedError):
    """A txnId that another commit was ratified or rejected under. Spec: CM-42."""

    code = "txn-id-reused"
    remedy = "Make a new txnId for a new commit."


class KeyReusedError(RefusedError):
    """An idempotency key that another request was answered under."""

    code = "key-reused"
    remedy = "Make a new key for a new request."


class SyntaxRefusedError(RefusedError):
    """SQL that cannot be understood; carries the line and column, both counted from 1."""

    code = "syntax"
    remedy = "Correct the statement at the place named."

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
    """More than the limit named in the message."""

    code = "too-large"
    remedy = "Send less at once, or stage the commit."


class UnsupportedMediaTypeError(RefusedError):
    """A request body that is not declared as JSON."""

    code = "unsupported-media-type"
    remedy = "Send the body with `Content-Type: application/json`."


class NotAuthenticatedError(RefusedError):
    """No token, or one the server does not know."""

    code = "not-authenticated"
    remedy = "Pass token=, or set HEADGATE_TOKEN."


class LogAheadError(RefusedError):
    """The log holds versions the catalog does not know: the catalog is an older copy."""

    code = "log-ahead"
    remedy = "Run `headgate fsck TABLE --repair`, then try again."


class UnsupportedByCatalogError(RefusedError):
    """A kind of catalog that cannot do it. Spec: CA-01, CA-05."""

    code = "unsupported-by-catalog"
    remedy = "Use an embedded, database or server catalog for this."


class ConflictError(HeadgateError):
    """Others' commits stand in the way; carries the conflicts."""

    code = "conflict"
    retry = Retry.AFTER_REFRESH
    remedy = "Read the table again and run it again."

    def __init__(self, table: str, conflicts: Sequence[object]) -> None:
        self.table = table
        self.conflicts = tuple(conflicts)
        said = "; ".join(str(conflict) for conflict in self.conflicts)
        super().__init__(f"The commit to {table} conflicts: {said}.")


class MalformedError(HeadgateError):
    """Bytes that are not what the protocol says."""

    code = "malformed"
    remedy = "Write the file or the request as the Delta protocol says."


class UnavailableError(HeadgateError):
    """Storage or server cannot be reached; nothing happened."""

    code = "unavailable"
    retry = Retry.SAME_AGAIN
    remedy = "Try again when it is back."


class BusyError(UnavailableError):
    """Held back for a while; the same again may pass."""

    code = "busy"
    remedy = "Wait a moment, then send the same again."


class TooSlowError(UnavailableError):
    """A request whose body did not come in time; nothing of it was done."""

    code = "too-slow"
    remedy = "Send the whole request without pauses."


class OutcomeUnknownError(HeadgateError):
    """Proposed, and no answer: it may have been ratified. Spec: CM-43."""

    code = "outcome-unknown"
    retry = Retry.SAME_AGAIN
    remedy = "Keep all files and ask again with the same txnId."

    def __init__(self, txn_id: str, why: str) -> None:
        self.txn_id = txn_id
        super().__init__(f"It is not known whether transaction {txn_id} was ratified: {why}.")


class DamagedError(HeadgateError):
    """The catalog's own database is not what was written; nothing more can be done with it."""

    code = "damaged"
    remedy = "Restore it from a backup."


class InvariantError(HeadgateError):
    """Catalog and log contradict each other."""

    code = "invariant"
    remedy = "Run `headgate fsck` and report what it finds."


class LogDivergedError(InvariantError):
    """A published file holds other bytes than were ratified. Spec: PB-02."""

    code = "log-diverged"
    remedy = (
        "Run `headgate fsck TABLE --repair`, which keeps the file under another name and publishes "
        "the ratified commit."
    )
