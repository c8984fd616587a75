"""Version checksums: what a snapshot must come to, computed from the one before."""

from __future__ import annotations

import msgspec

from headgate.protocol.actions import DomainMetadata, Metadata, Protocol, SetTransaction


class VersionChecksum(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """What `<v>.crc` holds."""

    table_size_bytes: int
    num_files: int
    num_metadata: int = 1
    num_protocol: int = 1
    metadata: Metadata
    protocol: Protocol
    txn_id: str | None = None
    in_commit_timestamp_opt: int | None = None
    set_transactions: tuple[SetTransaction, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None
