"""Capabilities of a catalog beyond the smallest port."""

from __future__ import annotations

import pytest

from headgate.api.port import Cuts, Locations, Outcomes, require
from headgate.errors import UnsupportedByCatalogError


class Located:
    def locations(self) -> tuple[()]:
        return ()


def test_a_catalog_with_a_capability_is_returned_as_it_is() -> None:
    catalog = Located()
    assert require(catalog, Locations) is catalog


@pytest.mark.parametrize("capability", [Cuts, Locations, Outcomes])
def test_a_missing_capability_is_refused_by_its_name(capability: type) -> None:
    with pytest.raises(UnsupportedByCatalogError, match=capability.__name__.lower()):
        require(object(), capability)
