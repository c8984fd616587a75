"""The names users rely on, and what importing them costs."""

import subprocess
import sys

import headgate


def test_the_public_names_are_these() -> None:
    assert sorted(headgate.__all__) == [
        "Event",
        "Listener",
        "Session",
        "Table",
        "Transaction",
        "connect",
        "errors",
        "open",
    ]


def test_dir_lists_the_public_names_before_they_are_loaded() -> None:
    program = "import headgate; print(*dir(headgate))"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split() == sorted(headgate.__all__)


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(headgate, name) is not None for name in headgate.__all__)


def test_importing_headgate_loads_no_heavy_library() -> None:
    program = "import sys, headgate; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    )
    assert {"pyarrow", "obstore", "apsw", "rich", "typer"} & set(done.stdout.split()) == set()
