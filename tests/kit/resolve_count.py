"""Counting what a client resolves."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Any

import pytest

from headgate.api.port import ManagingCatalog, Ref


def count_resolves(monkeypatch: pytest.MonkeyPatch, catalog: ManagingCatalog) -> list[str]:
    """Return a list that gets the table of every resolve from now on, by name or id."""
    tables: list[str] = []
    resolve, resolve_many = catalog.resolve, getattr(catalog, "resolve_many", None)

    def counted(ref: Ref, *args: Any, **kwargs: Any) -> Any:
        tables.append(str(ref))
        return resolve(ref, *args, **kwargs)

    def counted_many(refs: Many[Ref], *args: Any, **kwargs: Any) -> Any:
        tables.extend(map(str, refs))
        return resolve_many(refs, *args, **kwargs)  # type: ignore[misc]

    monkeypatch.setattr(catalog, "resolve", counted)
    if resolve_many is not None:
        monkeypatch.setattr(catalog, "resolve_many", counted_many)
    return tables
