"""How many records a micro-batch reads at most, so that a backlog is worked off in batches of about two seconds.

How it works: a batch that was as large as allowed says how long so many records take. Where that is far from the aim,
another size is wanted; the driver then starts the query again with it, which takes about a second.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

# Seconds: alerts come in such steps while the job is behind. What a batch costs by itself is then a small share.
_AIM = 2.0
# A new size has to be worth a new start of the query.
_FAR = 2.0
# A batch may be quick by chance, and the first of a start is slow; a slow one is not waited for again.
_QUICK_BATCHES = 3

_FIRST = 20_000
_FEWEST, _MOST = 500, 200_000


class BatchSize:
    """The size in force, and what the batches since then say of it. fixed: not to be changed; None: to be found."""

    def __init__(self, fixed: int | None) -> None:
        self._fixed = fixed is not None
        self.records = _FIRST if fixed is None else fixed
        self._took: deque[float] = deque(maxlen=_QUICK_BATCHES)

    def take(self, batch: Mapping[str, Any]) -> None:
        """Note a batch, as Spark tells of its progress."""
        if batch["numInputRows"] >= 0.9 * self.records:
            self._took.append(batch["durationMs"]["triggerExecution"] / 1000)

    @property
    def wanted(self) -> int:
        """The size that the batches call for: the one in force where it is near enough."""
        if self._fixed or not self._took:
            return self.records
        took = statistics.median(self._took)
        fitting = min(max(int(self.records * _AIM / max(took, 0.001)), _FEWEST), _MOST)
        if self.records > _FAR * fitting or (fitting > _FAR * self.records and len(self._took) == _QUICK_BATCHES):
            return fitting
        return self.records

    def change(self) -> None:
        """Put what is wanted in force."""
        self.records = self.wanted
        self._took.clear()
