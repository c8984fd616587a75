"""Compare the state read from a log with what the catalog and the log's checksum declare.

A difference is logged and does not stop readers: every commit was verified by its hash, so it is
the declared sum that is wrong, and a writer who declared one must not lock out all readers.
"""

import logging
from typing import cast

from headgate.api.messages import Resolved
from headgate.protocol.actions import Metadata, Protocol
from headgate.protocol.log import checksums
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.replay import TableState

_log = logging.getLogger(__name__)


def check_against_catalog(resolved: Resolved, state: TableState, label: str) -> None:
    """Log an error if a state differs from the catalog's answer. Spec: RD-03, CM-22."""
    checksum = resolved.checksum
    if checksum is not None:
        declared = (checksum.num_files, checksum.table_size_bytes)
        if (state.num_files, state.size_in_bytes) != declared:
            _log.error(
                "%s version %d has %d files of %d bytes, but its checksum declares %d of %d: "
                "run `headgate fsck --repair`",
                label,
                state.version,
                state.num_files,
                state.size_in_bytes,
                *declared,
            )
    if resolved.protocol is None or resolved.metadata is None:
        return
    found = checksums.differences(
        (resolved.protocol, resolved.metadata),
        (cast("Protocol", state.protocol), cast("Metadata", state.metadata)),
    )
    if found:
        _log.error(
            "the log of %s has %s at version %d than its catalog: run `headgate fsck`",
            label,
            " and ".join(found),
            state.version,
        )


def check_against_file(checksum: VersionChecksum | None, state: TableState, label: str) -> None:
    """Log a warning if a state differs from the `<v>.crc` of its version."""
    if checksum is None:
        return
    found = checksums.mismatches(
        checksum,
        state.size_in_bytes,
        state.num_files,
        cast("Metadata", state.metadata),
        cast("Protocol", state.protocol),
    )
    if found:
        _log.warning(
            "%s version %d does not agree with its .crc: %s",
            label,
            state.version,
            " and ".join(found),
        )
