"""What the pages read of a topic as a whole: one reading serves everybody who looks within some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from nightjar.kafka.clients import KafkaError

# Everybody who looks within so many seconds sees the same reading.
_FRESH = 5.0
# Seconds after a failure in which pages that do without Kafka do not ask it again.
_PATIENCE = 30.0

Read = TypeVar("Read")


class Reading(Generic[Read]):
    """What `read` returns, for all threads of a process at once."""

    def __init__(self, read: Callable[[], Read]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._known: tuple[float, Read] | None = None
        self._failed: float | None = None

    def now(self, *, fresh: bool = False) -> Read:
        """It, at most some seconds old. fresh: as it is now.

        Raises:
            KafkaError: a topic cannot be read.
        """
        with self._lock:
            return self._current(fresh=fresh)

    def now_or(self, instead: Callable[[], Read], *, fresh: bool = False) -> tuple[Read, bool]:
        """It, and whether it is of Kafka: where that cannot be read, it is what `instead` returns."""
        with self._lock:
            if self._failed is None or time.monotonic() - self._failed > _PATIENCE:
                try:
                    return self._current(fresh=fresh), True
                except KafkaError:
                    pass
        return instead(), False

    def drop(self) -> None:
        """Read again when it is next asked for."""
        with self._lock:
            self._known = None

    def _current(self, *, fresh: bool) -> Read:
        if fresh or self._known is None or time.monotonic() - self._known[0] > _FRESH:
            try:
                found = self._read()
            except KafkaError:
                self._failed = time.monotonic()
                raise
            self._failed, self._known = None, (time.monotonic(), found)
        return self._known[1]
