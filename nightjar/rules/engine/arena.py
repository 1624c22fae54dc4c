"""An arena: gapped segments of rows, one for each group, in a few arrays (see kernels.segments)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nightjar.rules.engine.facts import Facts
from nightjar.rules.engine.kernels import compaction, segments
from nightjar.rules.engine.memory import allocate
from nightjar.rules.engine.strings import Int32Array, Int64Array


class Arena:
    """The segments of all groups. `rows`, `times`, `marks`, `narrow`, `wide`: by place."""

    def __init__(self) -> None:
        self.rows: Int32Array = np.zeros(0, np.int32)
        self.times: Int64Array = np.zeros(0, np.int64)
        self.marks, self.narrow, self.wide = Facts(np.uint8), Facts(np.int32), Facts(np.int64)
        # the arena's places in use, and the number beyond which it is compacted
        self._used = self._limit = 0
        # start, end, room, -1 of each group
        self._spans: Int32Array = np.zeros((0, 4), np.int32)
        self._holes: Int32Array = np.full(segments.CLASSES, -1, np.int32)

    def _have_groups(self, count: int) -> None:
        """Have a segment for each of so many groups."""
        if count > len(self._spans):
            spans = allocate((max(64, count, 2 * len(self._spans)), 4), np.int32)
            spans[: len(self._spans)] = self._spans
            spans[len(self._spans) :, segments.SCRATCH] = -1
            self._spans = spans

    @property
    def _arena(self) -> tuple[npt.NDArray[Any], ...]:
        return self.rows, self.times, self.marks.all, self.narrow.all, self.wide.all

    def _make_room(self, touched: Int64Array, first: Int64Array, since: int) -> None:
        """Compact the segments, each with room for its new rows and some spare."""
        total = compaction.plan(self._spans, touched, first, since, self.times)
        by_start = np.flatnonzero(self._spans[:, segments.ROOM])
        by_start = by_start[np.argsort(self._spans[by_start, segments.START], kind="stable")]
        used = compaction.gather(self._spans, by_start, *self._arena)
        self._limit = total + total // 8 + 64
        if not self._limit <= len(self.rows) <= 4 * self._limit:
            self.rows, self.times = self._resized(self.rows, used), self._resized(self.times, used)
            for facts in (self.marks, self.narrow, self.wide):
                facts.all = self._resized(facts.all, used)
        compaction.spread(self._spans, by_start, total, *self._arena)
        self._used = total
        self._holes[:] = -1

    def _resized(self, array: npt.NDArray[Any], used: int) -> npt.NDArray[Any]:
        resized = allocate((2 * self._limit, *array.shape[1:]), array.dtype)
        resized[:used] = array[:used]
        return resized
