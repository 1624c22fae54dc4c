"""When the events of each block of a store's rows arrived and happened, so that few rows need to be searched."""

from __future__ import annotations

from bisect import bisect_right

from nightjar.rules.engine import memory
from nightjar.rules.engine.kernels.columns import latest
from nightjar.rules.engine.strings import Int64Array

_BEFORE_ALL, _OVER = -(1 << 62), 1 << 62  # µs, before and after any event


class Blocks:
    """The blocks that have rows."""

    def __init__(self) -> None:
        # per block the latest arrival in it, the latest up to its end, and the latest event time, _OVER once it has
        # been released
        self._arrived: list[int] = []
        self._until: list[int] = []
        self._happened: list[int] = []
        self._full = 0  # the first so many blocks were full when it was last looked for expired ones
        self._look_again_at = _OVER  # event time (µs) before which none of these is expired

    @property
    def arrived(self) -> int:
        """The latest arrival (µs)."""
        return self._until[-1] if self._until else _BEFORE_ALL

    def append(self, old: int, arrival: Int64Array, times: Int64Array) -> None:
        """Take in the rows from `old` on: their arrival and event times (µs), one element per row."""
        at, rows = 0, len(arrival)
        while at < rows:
            block = (old + at) // memory.BLOCK
            stop = min(rows, (block + 1) * memory.BLOCK - old)
            arrived, happened = latest(arrival, times, at, stop)
            until = max(arrived, self.arrived)
            if block == len(self._arrived):
                self._arrived.append(arrived)
                self._until.append(until)
                self._happened.append(happened)
            else:
                self._arrived[block], self._until[block] = max(self._arrived[block], arrived), until
                self._happened[block] = max(self._happened[block], happened)
            at = stop

    def after(self, arrival: int) -> list[slice]:
        """The rows of the blocks that have one which arrived after this time (µs).

        They are the last ones, and some before them if a state was restored whose log is not in order of arrival.
        """
        first = bisect_right(self._until, arrival)
        return memory.stretches([at for at in range(first, len(self._arrived)) if self._arrived[at] > arrival])

    def expire(self, full: int, horizon: int) -> list[int]:
        """The first `full` blocks that have just expired: all their events are before `horizon` (event time, µs)."""
        self._look_again_at = min([self._look_again_at, *self._happened[self._full : full]])
        self._full = full
        if horizon <= self._look_again_at:
            return []
        over = [block for block in range(full) if self._happened[block] < horizon]
        for block in over:
            self._happened[block] = _OVER
        self._look_again_at = min(self._happened[:full], default=_OVER)
        return over

    def held(self, full: int) -> list[int]:
        """The first `full` blocks without the expired ones."""
        return [block for block in range(full) if self._happened[block] < _OVER]
