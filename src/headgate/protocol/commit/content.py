"""The three ways in which the content of a commit reaches a catalog."""

from __future__ import annotations

import enum

import msgspec

from headgate.protocol.paths import StagedCommit, parse_staged_name


class Way(enum.Enum):
    """The three ways to commit. Spec: IN-01, CM-13."""

    STAGED = "staged"
    INLINE = "inline"
    PUT_IF_ABSENT = "put-if-absent"


class Inline(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="inline", tag_field="way"
):
    """Content sent to the catalog, which writes the `commitInfo` line itself."""

    commit_info: dict[str, object]
    actions: bytes  # every other line, each ended by a newline


class Staged(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="staged", tag_field="way"
):
    """Content that lies in a staged file, named without its folder. Spec: CM-01, CM-02."""

    file_name: str
    size: int

    @property
    def commit(self) -> StagedCommit | None:
        """The file's name, understood."""
        return parse_staged_name(self.file_name)


class Put(msgspec.Struct, frozen=True, kw_only=True, tag="put-if-absent", tag_field="way"):
    """Content, `commitInfo` included, for a catalog that ratifies by putting the file itself."""

    content: bytes
