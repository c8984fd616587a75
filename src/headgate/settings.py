"""Every setting, its default and its environment variable: `HEADGATE_` and the name in capitals."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.arguments import checked
from headgate.errors import InvalidArgumentError

_DIGITS = 18  # of the largest number that the catalog's database holds for certain
_FEATURE = re.compile(r" *[A-Za-z][\w-]* *", re.ASCII)
_HOST = re.compile(r" *([A-Za-z0-9._-]+|[0-9A-Fa-f:.\[\]]+|\*) *", re.ASCII)
_NETWORK = re.compile(r" *([0-9A-Fa-f.:]+(/[0-9]+)?|\*) *", re.ASCII)
_PROPERTY = re.compile(r" *[A-Za-z][\w.-]* *=[^,=]*[^,= ][^,=]*", re.ASCII)
# What an entry of a setting with several, separated by commas, must look like.
_ENTRIES = {
    "allowed_hosts": (_HOST, "Name hosts, separated by commas, without scheme and port; or `*`."),
    "listener_networks": (_NETWORK, "Write networks as 10.0.0.0/8, separated by commas; or `*`."),
    "required_features": (_FEATURE, "Name features, separated by commas."),
    "suggested_features": (_FEATURE, "Name features, separated by commas."),
    "suggested_properties": (_PROPERTY, "Write key=value, separated by commas."),
}
# With none of these nothing would ever be committed, or published.
_AT_LEAST_ONE = frozenset(
    {
        "commit_limit_bytes",
        "transaction_tables",
        "unpublished_soft",
        "unpublished_hard",
        "publish_batch",
        "publish_every_ms",
        "lease_ms",
        "housekeeping_ms",
        "request_limit_bytes",
        "bodies_limit_bytes",
        "request_body_ms",
        "request_headers_ms",
        "answer_limit_bytes",
        "connections",
        "stop_ms",
        "store_readers",
    }
)


@checked
@dataclass(frozen=True, slots=True)
class Settings:
    """How a catalog and its clients behave. Times end in their unit."""

    inline_limit_bytes: int = 1 << 20  # above it the client stages
    transaction_limit_bytes: int = 8 << 20  # inline content of all tables of a transaction
    commit_limit_bytes: int = 64 << 20  # the largest commit that may be staged
    transaction_tables: int = 1_000  # tables that one transaction may write to
    max_ahead_ms: int = 300_000  # how far a staged timestamp may be ahead of the clock
    drift_ms: int = 1_000  # how far the catalog's clock may follow timestamps ahead of real time
    verify_staged: int = 16  # how many files of a staged commit are looked for, the largest first
    verify_every: int = 0  # of inline commits every so-manieth has its largest file looked for
    verify_above_bytes: int = 64 << 20  # files of that size are always looked for
    rejections_kept_ms: int = 30 * 24 * 3600 * 1000  # how long a rejection is remembered
    # how long events are kept; twice that if a listener has not received them; 0: for ever
    events_kept_ms: int = 365 * 24 * 3600 * 1000
    store_patience_ms: int = 30_000  # for others who hold the store; then it is unavailable
    store_readers: int = 32  # connections to PostgreSQL that read; one more writes
    batch_proposals: int = 256  # proposals decided in one transaction of the database
    batch_ms: int = 20  # within which such a batch ends
    ticket_after: int = 3  # lost versions in a row until a staged attempt goes first
    ticket_ms: int = 2_000  # for which it goes first
    unpublished_soft: int = 1_000  # above it writers wait for the publisher
    unpublished_hard: int = 100_000  # above it writers are refused
    unpublished_wait_ms: int = 30_000  # for which a writer waits, at the most
    publish_batch: int = 1_000  # commits that are put and synced together
    publish_every_ms: int = 1_000  # how often tails of other processes are looked for
    publish_linger_ms: int = 20  # commits gathered before a batch is published
    publish_on_close_ms: int = 2_000  # for which a session that closes still publishes
    lease_ms: int = 10_000  # for which one publisher has a table to itself
    publish_stalled_ms: int = 2_000  # without progress, another's lease is passed over
    listed_ms: int = 60_000  # how long a published commit is still listed
    staging_kept_ms: int = 24 * 3600 * 1000  # a place that was staged and never registered
    lost_kept_ms: int = 3600 * 1000  # a staged file whose version another commit has
    unproposed_kept_ms: int = 24 * 3600 * 1000  # a staged file that may still be proposed
    housekeeping_ms: int = 3600 * 1000  # how often what nobody came back for is given up
    integrity_check_ms: int = 600_000  # how often the database is checked for damage; 0: never
    request_limit_bytes: int = 16 << 20  # the largest body of a request
    bodies_limit_bytes: int = 256 << 20  # of request and response bodies in memory at once
    request_headers_ms: int = 10_000  # within which headers must have come
    request_body_ms: int = 30_000  # within which a body must have come
    answer_limit_bytes: int = 4 << 20  # of commits' contents in one answer; more comes in pages
    connections: int = 16_384  # open at once; others wait, also behind idle ones
    stop_ms: int = 40_000  # for what is under way when a server stops; longer than any waits
    longest_wait_ms: int = 10_000  # for the next event, then ask again: a server that stops waits

    # Names, beside the address it listens on, under which a server may be asked; `*`: any. With
    # `--auth` any name is served unless some are named. Web pages of these hosts may send requests.
    allowed_hosts: str = ""
    # Networks, beside public ones, that events may be posted to, such as `10.0.0.0/8`; `*`: any.
    listener_networks: str = ""
    # Delta features that a table created by another engine must support.
    required_features: str = "catalogManaged,inCommitTimestamp,vacuumProtocolCheck"
    # Delta features suggested to engines that create a table; empty: none.
    suggested_features: str = "columnMapping,deletionVectors,rowTracking,v2Checkpoint"
    # Table properties suggested to engines that create a table, beside those of the features.
    suggested_properties: str = (
        "delta.checkpoint.writeStatsAsJson=true,delta.checkpoint.writeStatsAsStruct=true,"
        "delta.parquet.compression.codec=zstd,delta.randomizeFilePrefixes=true"
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), int(field.name in _AT_LEAST_ONE)
            if isinstance(value, str):
                form, remedy = _ENTRIES[field.name]
                if value and not all(map(form.fullmatch, value.split(","))):
                    raise InvalidArgumentError(
                        f"The setting {field.name} is {value!r}.", remedy=remedy
                    )
            elif value < least:
                raise InvalidArgumentError(
                    f"The setting {field.name} is {value}.", remedy=f"Set it to {least} or more."
                )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Take the defaults, and what the environment says otherwise."""
        said: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            variable = f"HEADGATE_{field.name.upper()}"
            text = environment.get(variable)
            if text is None:
                continue
            if isinstance(field.default, str):
                said[field.name] = text
                continue
            if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
                raise InvalidArgumentError(
                    f"{variable} is {text!r}.", remedy="Set it to a whole number."
                )
            said[field.name] = int(text)
        return cls(**said)
