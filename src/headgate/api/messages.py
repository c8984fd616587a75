"""A commit's kinds, its life, and who wins a version.

Proposals are values over one table or many; a commit to a single table is the case of one. What
content may say is `admission`'s business, what stands in each other's way is `conflicts`'.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from headgate.errors import InvariantError
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.conflicts import Isolation, Scan
from headgate.protocol.paths import StagedCommit, parse_staged_name


class State(enum.Enum):
    """Where a commit stands."""

    PROPOSED = "proposed"
    RATIFIED = "ratified"
    PUBLISHED = "published"
    REJECTED = "rejected"


class Event(enum.Enum):
    """What can happen to a commit."""

    RATIFY = "ratify"
    REJECT = "reject"
    PUBLISH = "publish"


LIFECYCLE: Mapping[State, Mapping[Event, State]] = {
    State.PROPOSED: {Event.RATIFY: State.RATIFIED, Event.REJECT: State.REJECTED},
    State.RATIFIED: {Event.PUBLISH: State.PUBLISHED},
    State.PUBLISHED: {Event.PUBLISH: State.PUBLISHED},  # either side may publish: twice is fine
    State.REJECTED: {},
}


def step(state: State, event: Event) -> State:
    """Make a move of the lifecycle; one that is not in the table cannot happen."""
    try:
        return LIFECYCLE[state][event]
    except KeyError:
        raise InvariantError(f"A {state.value} commit cannot {event.value}.") from None


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


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a proposal wants of one table: this content as this version."""

    table_id: TableId
    version: Version
    content: Inline | Staged | Put


class Proposal(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A wish for the next version of one table, or of several at once. Spec: MT-01."""

    txn_id: TxnId
    parts: tuple[Part, ...]
    scans: tuple[Scan, ...] = ()
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE


class RatifiedCommit(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """A commit that won its version, with its place or its content. Spec: CM-20, CM-48."""

    version: Version
    way: Way
    txn_id: TxnId
    sequence: Sequence | None = None  # of catalogs that have one over all tables
    timestamp_ms: int  # the in-commit timestamp
    size: int
    sha256: str
    file_name: str | None = None  # staged: the name under `_staged_commits`
    modified_ms: int | None = None  # staged: the file's own time
    content: bytes | None = None  # as long as the catalog holds it
    published_ms: int | None = None  # when the catalog saw it in the log

    @property
    def state(self) -> State:
        return State.RATIFIED if self.published_ms is None else State.PUBLISHED
