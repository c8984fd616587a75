"""What the tests share: marks, builders, a world in memory and stores that misbehave."""

import pytest

req = pytest.mark.req
shows = pytest.mark.shows

__all__ = ["req", "shows"]
