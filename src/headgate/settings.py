"""Settings and their defaults. Variables are `HEADGATE_` and the name in capitals."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from headgate.arguments import checked
from headgate.errors import InvalidArgumentError

TRANSACTION_LIMIT_BYTES: Final = 8 << 20  # of the inline commits of a transaction together
TRANSACTION_TABLES: Final = 1_000  # that one transaction may write to

Positive = Annotated[int, "at least 1"]  # with 0 nothing could be committed or published

_DIGITS = 18  # of numbers that fit into 64 bits
_FEATURE = re.compile(r" *[A-Za-z][\w-]* *", re.ASCII)
_HOST = re.compile(r" *([A-Za-z0-9._-]+|[0-9A-Fa-f:.\[\]]+|\*) *", re.ASCII)
_NETWORK = re.compile(r" *([0-9A-Fa-f.:]+(/[0-9]+)?|\*) *", re.ASCII)
_PROPERTY = re.compile(r" *[A-Za-z][\w.-]* *=[^,=]*[^,= ][^,=]*", re.ASCII)
# The format of an entry of each setting that is a comma-separated list.
_ENTRIES = {
    "allowed_hosts": (_HOST, "List hosts, separated by commas, without scheme and port; or `*`."),
    "listener_networks": (_NETWORK, "List networks like 10.0.0.0/8, separated by commas; or `*`."),
    "required_features": (_FEATURE, "List features, separated by commas."),
    "suggested_features": (_FEATURE, "List features, separated by commas."),
    "suggested_properties": (_PROPERTY, "List pairs key=value, separated by commas."),
}


@checked
@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a catalog, its clients and its server."""

    # Commits
    inline_limit_bytes: int = 1 << 20  # Largest inline commit; clients stage larger ones.
    commit_limit_bytes: Positive = 64 << 20  # Largest staged commit.
    verify_staged: int = 16  # Number of added files of a staged commit that are checked to exist.
    unpublished_soft: Positive = 1_000  # Unpublished commits of a table above which writers wait.
    unpublished_hard: Positive = 100_000  # Unpublished commits of a table above which writers fail.
    unpublished_wait_ms: int = 30_000  # Longest wait of a writer for the publisher.
    # How long a publisher has a table, or a server a listener, for itself without renewal.
    lease_ms: Positive = 10_000

    # Retention
    rejections_kept_ms: int = 30 * 24 * 3600 * 1000  # How long rejections are kept.
    # How long events are kept, and twice that if a listener has not received them. 0: always.
    events_kept_ms: int = 365 * 24 * 3600 * 1000
    staging_kept_ms: int = 24 * 3600 * 1000  # How long a staging table is kept.
    lost_kept_ms: int = 3600 * 1000  # How long a staged file is kept that lost its version.
    unproposed_kept_ms: int = 24 * 3600 * 1000  # How long an unproposed staged file is kept.
    housekeeping_ms: Positive = 3600 * 1000  # Time between two runs of housekeeping.

    # Database
    store_patience_ms: int = 30_000  # Longest wait for a database that others have locked.
    store_readers: Positive = 32  # Connections to PostgreSQL for reading; one more is for writing.
    integrity_check_ms: int = 600_000  # Time between two checks of the SQLite database. 0: none.

    # Server
    connections: Positive = 16_384  # Open connections; more are answered with 503.
    request_limit_bytes: Positive = 16 << 20  # Largest body of a request.
    bodies_limit_bytes: Positive = 256 << 20  # Bodies of requests and responses in memory together.
    request_headers_ms: Positive = 10_000  # Time within which the headers of a request must arrive.
    request_body_ms: Positive = 30_000  # Time within which the body of a request must arrive.
    stop_ms: Positive = 40_000  # Time to answer received requests when a server stops.
    # Host names of the server besides its address; `*` for any. With `--auth` any name is served
    # unless some are listed. Web pages of these hosts may send requests.
    allowed_hosts: str = ""
    # Networks, besides public ones, that may receive events, such as `10.0.0.0/8`; `*` for any.
    listener_networks: str = ""

    # Tables created by other engines

    # Delta features that such a table must support.
    required_features: str = "catalogManaged,inCommitTimestamp,vacuumProtocolCheck"
    # Delta features that are suggested to the engine; empty for none.
    suggested_features: str = "columnMapping,deletionVectors,rowTracking,v2Checkpoint"
    # Table properties that are suggested to the engine, besides those of the features.
    suggested_properties: str = (
        "delta.checkpoint.writeStatsAsJson=true,delta.checkpoint.writeStatsAsStruct=true,"
        "delta.parquet.compression.codec=zstd,delta.randomizeFilePrefixes=true"
    )

    # Internal: for tests and experiments, not documented for users
    listed_ms: int = 60_000  # How long a published commit is still listed with the tail.
    longest_wait_ms: int = 10_000  # Longest wait of a request for the next event.
    publish_batch: Positive = 1_000  # Commits that are written and synced together.
    publish_every_ms: Positive = 1_000  # Time between two searches for commits of other processes.
    publish_linger_ms: int = 20  # Time to collect commits before a batch is published.
    publish_on_close_ms: int = 2_000  # Time to publish when a session is closed.
    ticket_after: int = 3  # Lost versions in a row after which a staged proposal goes first.
    ticket_ms: int = 2_000  # Time for which it goes first.

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), int(field.type == "Positive")
            if isinstance(value, str):
                entry, remedy = _ENTRIES[field.name]
                if value and not all(map(entry.fullmatch, value.split(","))):
                    raise InvalidArgumentError(
                        f"The setting {field.name} is {value!r}.", remedy=remedy
                    )
            elif value < least:
                raise InvalidArgumentError(
                    f"The setting {field.name} is {value}.", remedy=f"Set it to {least} or more."
                )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Return the settings of an environment, with defaults for missing variables."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            variable = f"HEADGATE_{field.name.upper()}"
            text = environment.get(variable)
            if text is None:
                continue
            if isinstance(field.default, str):
                values[field.name] = text
                continue
            if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
                raise InvalidArgumentError(
                    f"{variable} is {text!r}.", remedy="Set it to a whole number."
                )
            values[field.name] = int(text)
        return cls(**values)
