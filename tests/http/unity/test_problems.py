"""Every error has its words in both forms, and the status that makes clients do the right thing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from headgate import errors
from headgate.errors import HeadgateError
from headgate.http.unity import problems
from headgate.http.unity.problems import Case, DialectError


def family(kind: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from family(child)


KINDS = {kind.code: kind for kind in family(HeadgateError) if kind.__module__ == errors.__name__}


def made(kind: type[HeadgateError]) -> HeadgateError:
    error = kind.__new__(kind)
    HeadgateError.__init__(error, "It is so.", remedy="Do this.")
    return error


# What a client does with a status: once, rebase, or the same again for minutes.
ON_A_COMMIT = {
    "busy": 429,
    "too-slow": 503,
    "not-authenticated": 401,
    "not-found": 404,
    "error": 500,
    "damaged": 500,
    "invariant": 500,
    "outcome-unknown": 500,
    "unavailable": 503,
    "put-unknown": 503,
    "log-diverged": 503,
}


@pytest.mark.parametrize("code", KINDS)
def test_an_error_about_a_commit_is_400_unless_sending_it_again_can_help(code: str) -> None:
    status, raw = problems.kebab_on_commit(made(KINDS[code]))
    body = json.loads(raw)["error"]
    assert status == body["code"] == ON_A_COMMIT.get(code, 400)
    assert body["type"].endswith("Exception")
    assert body["message"].startswith("It is so.")
    older, _ = problems.snake_on_commit(made(KINDS[code]))
    assert older == status


@pytest.mark.parametrize("case", Case)
def test_what_has_a_word_of_its_own_is_said_with_it_also_of_a_commit(case: Case) -> None:
    error = DialectError(case, "It is so.")
    assert problems.kebab_on_commit(error) == problems.kebab(error)
    assert problems.snake_on_commit(error) == problems.snake(error)


@pytest.mark.parametrize("code", KINDS)
def test_both_forms_tell_every_error(code: str) -> None:
    status, raw = problems.snake(made(KINDS[code]))
    body = json.loads(raw)
    assert body["details"] == [{"@type": "google.rpc.ErrorInfo", "reason": body["error_code"]}]
    assert body["error_code"].isupper()
    newer, _ = problems.kebab(made(KINDS[code]))
    assert status == (400 if code == "already-exists" else newer)


def test_a_privilege_that_is_missing_is_403_and_on_a_commit_400() -> None:
    error = made(errors.PermissionDeniedError)
    assert problems.kebab(error)[0] == problems.snake(error)[0] == 403
    status, raw = problems.kebab_on_commit(error)
    assert status == 400
    assert json.loads(raw)["error"]["message"] == "It is so. Do this."


@pytest.mark.parametrize("case", Case)
def test_409_is_said_only_where_something_is_really_taken(case: Case) -> None:
    status, _ = problems.kebab(DialectError(case, "It is so."))
    is_taken = case.name.endswith("_THERE") or case in (Case.VERSION_TAKEN, Case.NOT_AS_ASSERTED)
    assert (status == 409) is is_taken
