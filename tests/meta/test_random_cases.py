"""Property tests draw new cases in every run, and say how to repeat a failure."""

import os
import re
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).resolve().parents[1]


def test_hypothesis_draws_new_cases_and_prints_how_to_repeat_a_failure() -> None:
    assert settings.default is not None
    assert not settings.default.derandomize
    assert settings.default.print_blob


def test_no_test_draws_the_same_cases_in_every_run() -> None:
    derandomized = re.compile(r"derandomize\s*=\s*" + "True")
    fixed = [path.name for path in TESTS.rglob("*.py") if derandomized.search(path.read_text())]
    assert fixed == []


def test_the_seed_of_a_run_is_drawn_and_shown(pytestconfig) -> None:
    shown = pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path=TESTS)
    lines = [line for part in shown for line in ([part] if isinstance(part, str) else part)]
    assert any(f"HEADGATE_SEED={os.environ['HEADGATE_SEED']}" in line for line in lines)
