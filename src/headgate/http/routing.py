"""Which endpoint a path leads to.

Every request passes here, so it is a walk through dictionaries, one step for each part of the
path. Parts are split before they are decoded: an escaped slash stays within its part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote

Endpoint = TypeVar("Endpoint")


@dataclass(frozen=True, slots=True)
class Found(Generic[Endpoint]):
    """A path that is known: what its methods lead to, and what its parts are."""

    methods: dict[str, Endpoint]
    parts: dict[str, str]


@dataclass(slots=True)
class _Node(Generic[Endpoint]):
    fixed: dict[str, _Node[Endpoint]] = field(default_factory=dict)
    name: str = ""  # of the part that may be anything
    free: _Node[Endpoint] | None = None
    methods: dict[str, Endpoint] = field(default_factory=dict)


class Routes(Generic[Endpoint]):
    """Paths such as `/v1/tables/{tableId}/commits`, and what each method of them leads to."""

    def __init__(self) -> None:
        self._root: _Node[Endpoint] = _Node()

    def add(self, method: str, path: str, endpoint: Endpoint) -> None:
        """Have a method of a path lead to an endpoint."""
        node = self._root
        for part in path.split("/"):
            if part.startswith("{"):
                node.name = part[1:-1]
                node.free = node.free or _Node()
                node = node.free
            else:
                node = node.fixed.setdefault(part, _Node())
        node.methods[method] = endpoint

    def find(self, path: str) -> Found[Endpoint] | None:
        """Find a path as it came over the wire."""
        node, parts = self._root, {}
        for part in path.split("/"):
            if "%" in part:
                part = unquote(part)
            following = node.fixed.get(part)
            if following is None:
                if node.free is None:
                    return None
                parts[node.name] = part
                following = node.free
            node = following
        return Found(node.methods, parts) if node.methods else None
