"""The content of a commit, as it is proposed to a catalog."""

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
    """Content sent to the catalog, which adds the `commitInfo` line."""

    commit_info: dict[str, object]
    actions: bytes  # all other lines, each with its newline


class Staged(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="staged", tag_field="way"
):
    """Content in a staged file, named without its folder. Spec: CM-01, CM-02."""

    file_name: str
    size: int

    @property
    def commit(self) -> StagedCommit | None:
        return parse_staged_name(self.file_name)


class Put(msgspec.Struct, frozen=True, kw_only=True, tag="put-if-absent", tag_field="way"):
    """All content, for a catalog that ratifies by writing the published file itself."""

    content: bytes
