"""May this content become a version? Every reason why not is a `Violation`."""

from __future__ import annotations

import msgspec


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that content breaks, and where."""

    rule: str
    says: str
    line: int | None = None

    def __str__(self) -> str:
        return self.says if self.line is None else f"line {self.line}: {self.says}"
