"""A short campaign on each store; `make chaos` runs longer ones."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign, Wanted
from tests.kit import postgres, req, shows
from tests.kit.postgres import Postgres

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(0)]

SECONDS = 300 if os.environ.get("HEADGATE_LONG") else 15


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Postgres | None]:
    if request.param == "sqlite":
        yield None
        return
    server = postgres.start()
    yield server
    server.close()


@req("CM-12", "CM-42", "MT-01", "MT-02", "CA-03")
@shows("FC4", "FC7", "FC9", "FS1", "FS6")
@shows("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S10", "S17", "S18", "S19", "L1", "L3")
@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
def test_whatever_is_killed_and_lost_all_that_was_acknowledged_is_there_once(
    database: Postgres | None, tmp_path: Path
) -> None:
    seed = int(os.environ.get("HEADGATE_SEED") or random.SystemRandom().randrange(2**32))
    campaign = Campaign(Wanted(SECONDS, seed, tmp_path, writers=3, postgres=database))
    print(f"HEADGATE_SEED={seed}, histories in {tmp_path}")
    print(campaign.run())
