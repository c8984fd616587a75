"""Errors travel: what the server raised is what the client raises."""

from __future__ import annotations

import pytest

from headgate import errors
from headgate.api import bodies, problems
from headgate.api.messages import Rejected, VersionTaken
from headgate.errors import (
    ConflictError,
    HeadgateError,
    InvalidCommitError,
    NotPublishedError,
    OutcomeUnknownError,
    Retry,
)
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit.conflicts import Conflict
from headgate.protocol.commit.examination import Violation

VIOLATION = Violation(rule="path", says="`../x` leads out of the table", line=3)
CONFLICT = Conflict(
    rule="R2", table_id=TableId("t"), version=Version(7), says="removed a file", files=("a",)
)
SPECIAL: dict[type[HeadgateError], HeadgateError] = {
    InvalidCommitError: InvalidCommitError("main.default.t", [VIOLATION]),
    ConflictError: ConflictError("main.default.t", [CONFLICT]),
    NotPublishedError: NotPublishedError("main.default.t", 7),
    OutcomeUnknownError: OutcomeUnknownError("txn-1", "no answer came"),
}
KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HeadgateError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_an_error_comes_out_as_the_class_that_went_in(kind: type[HeadgateError]) -> None:
    raised = SPECIAL.get(kind) or kind("Something was found.")
    sent = bodies.encode(problems.from_error(raised, "request-1"))
    arrived = problems.to_error(bodies.decode(sent, problems.Problem))
    assert type(arrived) is kind
    assert (arrived.code, arrived.retry, arrived.remedy) == (
        raised.code,
        raised.retry,
        raised.remedy,
    )
    assert raised.message.rstrip(".") in arrived.message
    for field in ("table", "violations", "conflicts", "txn_id"):
        if field != "table" or kind in SPECIAL:
            assert getattr(arrived, field, None) == getattr(raised, field, None)


def test_an_error_of_a_newer_server_says_whether_it_happened() -> None:
    def newer(status: int) -> problems.Problem:
        return problems.Problem(
            type="urn:headgate:new", title="New", status=status, code="new", detail="New."
        )

    assert problems.to_error(newer(418)).retry is Retry.NEVER
    assert problems.to_error(newer(599)).retry is Retry.SAME_AGAIN


def test_only_a_lost_race_or_a_taken_name_is_409() -> None:
    assert {code for code, status in problems.STATUS.items() if status == 409} == {
        "already-exists",
        "conflict",
        "version-taken",
        "must-restage",
        "txn-id-reused",
        "key-reused",
    }


def test_every_status_belongs_to_an_error_or_an_answer() -> None:
    answers = {"version-taken", "must-restage", "put-unknown"}
    assert set(problems.STATUS) - answers <= {kind.code for kind in KINDS}


@pytest.mark.parametrize(
    ("answer", "is_staged", "code", "status"),
    [
        (VersionTaken(txn_id=TxnId("x"), latest={}), False, "version-taken", 409),
        (VersionTaken(txn_id=TxnId("x"), latest={}), True, "must-restage", 409),
        (Rejected(txn_id=TxnId("x"), conflicts=(CONFLICT,)), False, "conflict", 409),
        (Rejected(txn_id=TxnId("x"), violations=(VIOLATION,)), False, "invalid-commit", 422),
    ],
)
def test_an_answer_travels_within_its_problem(
    answer: Rejected | VersionTaken, is_staged: bool, code: str, status: int
) -> None:
    problem = problems.from_answer(answer, is_staged=is_staged)
    arrived = bodies.decode(bodies.encode(problem), problems.Problem)
    assert (arrived.code, arrived.status, arrived.answer) == (code, status, answer)
