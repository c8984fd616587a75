"""Named places where a test can kill, fail, end or delay a process.

`HEADGATE_FAIL=name:kill`, `name:raise`, `name:exit` or `name:sleep:250`, with `@n` to act the nth
time only; several are separated by commas. The variable is read when this module is imported.
"""

import os
import re
import signal
import threading
from dataclasses import dataclass
from typing import Final

POINTS: Final = frozenset(
    f"{place}.{moment}"
    for place, moments in {
        "client": "before_stage after_stage before_propose after_propose",
        "remote": "after_answer",
        "server": "before_answer",
        "ratifier": "before_begin after_decide before_commit after_commit before_answer",
        "storage": "before_sync after_sync after_name before_sync_folders",
        "publisher": "before_put after_put before_record after_record",
        "registry": "before_version_zero after_version_zero before_register after_register "
        "after_drop purge_between_files before_forget_purged",
        "filesystem": "before_put after_put",
        "checkpoint": "before_put after_part after_put before_hint",
        "store": "migrate_before_commit between_rows",
        "listener": "before_tell after_tell after_record",
        "fsck": "before_adopt after_adopt before_set_aside after_set_aside",
        "housekeeping": "before_give_up after_give_up between_files",
    }.items()
    for moment in moments.split()
)

_ACTION: Final = re.compile(r"kill|raise|exit|sleep:[0-9]+")


class FailPointError(BaseException):
    """Raised by an armed fail point. Not an `Exception`, so that no handler continues after it."""


@dataclass(slots=True)
class _Armed:
    action: str
    left: int  # crossings until it acts


_armed: dict[str, _Armed] = {}
_lock = threading.Lock()


def fail_point(name: str) -> None:
    """Act if this fail point is armed; otherwise only check an empty dictionary."""
    if _armed:
        _cross(name)


def arm(text: str) -> None:
    """Arm fail points in the format of `HEADGATE_FAIL`; an empty text disarms all."""
    armed: dict[str, _Armed] = {}
    for item in filter(None, text.split(",")):
        item, _, nth = item.partition("@")
        name, _, action = item.partition(":")
        if name not in POINTS:
            raise ValueError(f"There is no fail point {name!r}.")
        if _ACTION.fullmatch(action) is None:
            raise ValueError(f"{action!r} is not an action of a fail point.")
        if int(nth or 1) < 1:
            raise ValueError(f"{nth!r} is not a count of a fail point: it starts at 1.")
        armed[name] = _Armed(action, int(nth or 1))
    with _lock:
        _armed.clear()
        _armed.update(armed)


def _cross(name: str) -> None:
    assert name in POINTS, name
    with _lock:
        point = _armed.get(name)
        if point is None:
            return
        point.left -= 1
        if point.left != 0:
            return
    match point.action.split(":"):
        case ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["exit"]:
            os._exit(70)
        case ["raise"]:
            raise FailPointError(name)
        case ["sleep", ms]:
            threading.Event().wait(int(ms) / 1000)


arm(os.environ.get("HEADGATE_FAIL", ""))
