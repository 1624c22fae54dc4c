"""The stages of a micro-batch on one machine: one while batches are small, for latency, two while they are large.

How it works: with one stage, a task reads and packs a whole batch and passes it to the engine processes; a shuffle and
a second stage would take longer than the work of a small batch. With two, several tasks read and pack, which is faster
for a large one. To change them, the driver restarts the query, which takes about a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

# Records from which on a batch is faster in two stages.
_MANY = 10_000
# So many batches in a row are large before there are two stages, and small before there is one again.
_LARGE_BATCHES, _SMALL_BATCHES = 3, 50


class Stages:
    """The current number, and the batches since it was set; on several machines always 2."""

    def __init__(self, *, one_machine: bool) -> None:
        self._one_machine = one_machine
        self.number = 1 if one_machine else 2
        self._rows: deque[int] = deque(maxlen=_SMALL_BATCHES)

    def take(self, batch: Mapping[str, Any]) -> None:
        """Record a batch, from Spark's progress report."""
        self._rows.append(batch["numInputRows"])

    @property
    def wanted(self) -> int:
        """The number that fits the recorded batches."""
        if not self._one_machine:
            return 2
        if self.number == 1:
            last = list(self._rows)[-_LARGE_BATCHES:]
            return 2 if len(last) == _LARGE_BATCHES and min(last) >= _MANY else 1
        return 1 if len(self._rows) == _SMALL_BATCHES and max(self._rows) < _MANY / 2 else 2

    @property
    def is_unfit(self) -> bool:
        """Whether the current number is not the wanted one."""
        return self.wanted != self.number

    def change(self) -> None:
        """Make the wanted number the current one."""
        self.number = self.wanted
        self._rows.clear()
