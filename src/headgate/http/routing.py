"""The endpoint of each path.

Every request passes here, so it is a walk through dictionaries, one step for each part of the
path. Parts are split before they are decoded: an escaped slash stays within its part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote

from headgate.http.endpoint import Endpoint


@dataclass(slots=True)
class _Node:
    fixed: dict[str, _Node] = field(default_factory=dict)
    name: str = ""  # of the part that may be anything
    free: _Node | None = None
    methods: dict[str, Endpoint] = field(default_factory=dict)


class Routes:
    """The endpoints of the methods of paths such as `/v1/tables/{tableId}/commits`."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, method: str, path: str, endpoint: Endpoint) -> None:
        """Add the endpoint of a method of a path."""
        node = self._root
        for part in path.split("/"):
            if part.startswith("{"):
                node.name = part[1:-1]
                node.free = node.free or _Node()
                node = node.free
            else:
                node = node.fixed.setdefault(part, _Node())
        node.methods[method] = endpoint

    def find(self, path: str) -> tuple[dict[str, Endpoint], dict[str, str]]:
        """Return the endpoints of a path by their methods, none if it is unknown, and its parts.

        The path is as it came over the wire.
        """
        node = self._root
        parts: dict[str, str] = {}
        for part in path.split("/"):
            if "%" in part:
                part = unquote(part)
            following = node.fixed.get(part)
            if following is None:
                if node.free is None:
                    return {}, parts
                parts[node.name] = part
                following = node.free
            node = following
        return node.methods, parts
