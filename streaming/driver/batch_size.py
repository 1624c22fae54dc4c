"""The maximum number of records in a micro-batch, so that a backlog is processed in batches of about two seconds.

How it works: a batch of the maximum size shows how long that many records take. If that is far from the target, the
driver restarts the query with another size, which takes about a second.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

# Seconds: the interval between alerts while the job is behind. The fixed cost of a batch is then a small share.
_AIM = 2.0
# A new size must be worth a restart of the query.
_FAR = 2.0
# A batch may be fast by chance, and the first after a start is slow; one slow batch is enough.
_QUICK_BATCHES = 3

_FIRST = 20_000
_FEWEST, _MOST = 500, 200_000


class BatchSize:
    """The current size, and the batches since it was set. fixed: a size that never changes; None: adapt it."""

    def __init__(self, fixed: int | None) -> None:
        self._fixed = fixed is not None
        self.records = _FIRST if fixed is None else fixed
        self._took: deque[float] = deque(maxlen=_QUICK_BATCHES)

    def take(self, batch: Mapping[str, Any]) -> None:
        """Record a batch, from Spark's progress report."""
        if batch["numInputRows"] >= 0.9 * self.records:
            self._took.append(batch["durationMs"]["triggerExecution"] / 1000)

    @property
    def wanted(self) -> int:
        """The size that fits the recorded batches: the current one if it is close enough."""
        if self._fixed or not self._took:
            return self.records
        took = statistics.median(self._took)
        fitting = min(max(int(self.records * _AIM / max(took, 0.001)), _FEWEST), _MOST)
        if self.records > _FAR * fitting or (fitting > _FAR * self.records and len(self._took) == _QUICK_BATCHES):
            return fitting
        return self.records

    @property
    def is_unfit(self) -> bool:
        """Whether the current size is not the wanted one."""
        return self.wanted != self.records

    def change(self) -> None:
        """Make the wanted size the current one."""
        self.records = self.wanted
        self._took.clear()
