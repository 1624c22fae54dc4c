"""What takes a page longer than others may wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fastapi import HTTPException, status

Found = TypeVar("Found")


class Bounded:
    """Runs what takes time outside of the event loop. workers: how many at one time; seconds: how long each may take,
    with its wait for its turn. What takes longer is no longer waited for, and keeps its worker until it ends."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._pool, self._seconds = ThreadPoolExecutor(workers, "nightjar-page"), seconds

    async def run(self, work: Callable[[], Found]) -> Found:
        """What it returns.

        Raises:
            HTTPException: 503, it takes too long.
        """
        running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            return await asyncio.wait_for(running, self._seconds)
        except TimeoutError:
            why = f"It has taken more than {self._seconds:.0f} seconds, or others were first: try it again."
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, why) from None
