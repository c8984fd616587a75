"""Spark's errors as ours: no Java trace, no positions in generated text, no repetition."""

import logging
import threading
from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from headgate.errors import InvalidArgumentError, InvalidDataError, UnavailableError
from headgate.spark.failures import first_line, log_queries, quietly, translated


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    handler = Kept()
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    monkeypatch.setattr(logger, "disabled", False)  # as in a session that is not ours
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_what_is_going_to_be_raised_is_not_printed_too(kept: Kept) -> None:
    logger = logging.getLogger("SQLQueryContextLogger")
    with quietly():
        logger.error("inside")
        with quietly():
            logger.error("further inside")
        logger.error("inside again")
    logger.error("after")
    assert kept.messages == ["after"]


def test_one_thread_is_quiet_and_another_is_not(kept: Kept) -> None:
    """Left to one flag for all, the last to end would have left it as it found it: quiet."""
    logger = logging.getLogger("SQLQueryContextLogger")
    first_is_in, second_is_in = threading.Event(), threading.Event()

    def first() -> None:
        with quietly():
            first_is_in.set()
            second_is_in.wait(10)

    def second() -> None:
        first_is_in.wait(10)
        with quietly():
            second_is_in.set()
            threads[0].join(10)
            logger.error("of the second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    first_is_in.wait(10)
    logger.error("of neither")
    threads[1].start()
    for thread in threads:
        thread.join(10)
    logger.error("after")
    assert kept.messages == ["of neither", "after"]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("[X] no column `a`. SQLSTATE: 42703; line 1 pos 7;\n'Project ['a]", "SQLSTATE: 42703."),
        ("\n[Y] near 'b'. SQLSTATE: 42601 (line 1, pos 12)\n\n== SQL ==\nb", "SQLSTATE: 42601."),
        (
            "An error occurred while calling o1.x.\n: java.io.IOException: it broke\n\tat a",
            "it broke.",
        ),
    ],
)
def test_only_what_is_wrong_is_shown(message: str, line: str) -> None:
    found = first_line(Exception(message))
    assert found.endswith(line)
    assert "pos" not in found


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("`id`, `⟦headgate⟧row`, `v`", "`id`, `v`"),
        ("`id`, `t`.`⟦headgate⟧hit`, `⟦headgate⟧row`", "`id`"),
        ("`⟦headgate⟧row`, `⟦headgate⟧file`, `t`.`id`", "`t`.`id`"),
        ("`⟦headgate⟧row`, `id`, `⟦headgate⟧file`", "`id`"),
    ],
)
def test_columns_of_ours_are_not_suggested(named: str, shown: str) -> None:
    assert first_line(Exception(f"Did you mean [{named}].")) == f"Did you mean [{shown}]."


def test_errors_of_queries_are_printed_only_if_asked_for(kept: Kept) -> None:
    logger = logging.getLogger("SQLQueryContextLogger")
    for on in (False, True, False):
        log_queries(on)
        logger.error("printed" if on else "not printed")
    assert kept.messages == ["printed"]


@pytest.mark.parametrize("writes", [True, False])
def test_what_a_query_did_not_commit_is_not_worth_a_word(writes: bool) -> None:
    for error, ours in (
        (AnalysisException("no such column"), InvalidArgumentError),
        (OSError("gone"), UnavailableError),
    ):
        with pytest.raises(ours) as raised, translated(writes=writes):
            raise error
        assert ("Nothing was committed" in raised.value.remedy) is writes
    with pytest.raises(InvalidDataError, match="does not fit: 300 is too large"), translated():
        raise RuntimeError("x\n[CAST_OVERFLOW] 300 is too large\n\tat b")
