"""What a writer sent and received, written to disk before it counts.

A line each: `sent` with the whole proposal, before it goes out; `ratified` or `rejected` once that
was heard. A process that is killed leaves half a line at the most, which was never acknowledged.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.api.messages import Proposal
from headgate.protocol.actions import TableId, TxnId
from headgate.protocol.encoding import from_json, to_json


class Recorder:
    """Writes a history, each line synced before the writer goes on."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._file.close()

    def sent(self, proposal: Proposal) -> None:
        self.write(sent=proposal.txn_id, proposal=base64.b64encode(to_json(proposal)).decode())

    def write(self, **what: object) -> None:
        with self._lock:
            self._file.write(json.dumps(what).encode() + b"\n")
            os.fsync(self._file.fileno())


@dataclass
class History:
    """All that the writers of a campaign wrote down."""

    proposals: dict[TxnId, list[Proposal]] = field(default_factory=dict)
    ratified: dict[TxnId, dict[TableId, int]] = field(default_factory=dict)
    rejected: dict[TxnId, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)  # what a writer saw that must not be
    reads: int = 0

    @property
    def unsettled(self) -> list[TxnId]:
        return [t for t in self.proposals if t not in self.ratified and t not in self.rejected]

    def take(self, line: dict[str, Any]) -> None:
        match line:
            case {"sent": txn_id, "proposal": text}:
                proposal = from_json(base64.b64decode(text), Proposal)
                self.proposals.setdefault(txn_id, []).append(proposal)
            case {"ratified": txn_id, "versions": versions}:
                if self.ratified.setdefault(txn_id, versions) != versions:
                    self.broken.append(f"{txn_id} was acknowledged at two versions")
            case {"rejected": txn_id, "code": code}:
                self.rejected[txn_id] = code
            case {"broken": says}:
                self.broken.append(says)
            case {"read": _}:
                self.reads += 1


def load(paths: Iterable[Path]) -> History:
    """Read what several writers wrote."""
    history = History()
    for path in sorted(paths):
        for raw in path.read_bytes().splitlines(keepends=True):
            if raw.endswith(b"\n"):
                history.take(json.loads(raw))
    return history
