"""The state that all requests to a server share."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headgate.api import bodies
from headgate.catalog.service import Catalog
from headgate.clock import Clock, Ids
from headgate.http.async_answers import Answers, SharedWork
from headgate.http.auth import Tokens
from headgate.http.budget import Budget
from headgate.http.metrics import Metrics
from headgate.http.operations import Pool
from headgate.http.origins import Origins
from headgate.settings import Settings

PROPOSERS = 64  # threads for proposals that have to wait for something
REQUEST_HEADER = bodies.REQUEST_HEADER.encode()
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}")

Result = TypeVar("Result")


@dataclass(slots=True)
class Server:
    """The catalog, limits, thread pools and metrics of a server."""

    catalog: Catalog
    settings: Settings
    clock: Clock
    ids: Ids
    tokens: Tokens | None = None  # None: no token is required
    origins: Origins = field(default_factory=lambda: Origins(None, ()))
    metrics: Metrics = field(default_factory=lambda: Metrics(str(os.getpid())))
    answers: Answers = field(default_factory=Answers)
    shared_work: SharedWork = field(default_factory=SharedWork)
    budget: Budget = field(init=False)
    name: str = field(init=False)  # the prefix of request ids, which are then numbered
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    pools: dict[Pool, ThreadPoolExecutor] = field(default_factory=dict)
    slots: dict[Pool, asyncio.Semaphore] = field(default_factory=dict)  # one for each thread

    def __post_init__(self) -> None:
        self.name = self.ids.random().hex[:16]
        self.budget = Budget(self.settings.bodies_limit_bytes, self.clock)

    def start(self) -> None:
        sizes = {Pool.READS: 8, Pool.CHANGES: 16, Pool.PROPOSALS: PROPOSERS}
        self.pools = {
            pool: ThreadPoolExecutor(size, thread_name_prefix=f"headgate-{pool.value}")
            for pool, size in sizes.items()
        }
        self.slots = {pool: asyncio.Semaphore(size) for pool, size in sizes.items()}

    def stop(self) -> None:
        """Shut down the thread pools after their current work."""
        for pool in self.pools.values():
            pool.shutdown(wait=True, cancel_futures=False)

    async def run(self, pool: Pool, do: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pools[pool], do, *arguments)

    def request_id(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the id that the client gave its request, or a new one."""
        given = headers.get(REQUEST_HEADER)
        if given is not None and _REQUEST_ID.fullmatch(text := given.decode("latin-1")):
            return text
        return f"{self.name}-{next(self.numbers):x}"
