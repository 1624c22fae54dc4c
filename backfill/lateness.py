"""How late events could be, and still count in the stream: `allowed_lateness` is a setting, which a restart may change.

How it works: answers to rule messages report the setting of their time. Between two answers that report different ones
it may have been either, and after the last one also today's.

Known limitation: a setting that was changed again before any answer reported it is not known.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nightjar.rules.streams import Stream


@dataclass(frozen=True)
class Allowed:
    """The least and the greatest `allowed_lateness` (µs) that the stream may have had about some days.

    So an event that counted when it arrived did so before its day's end plus the greatest, and one that did not arrived
    after its day's end plus the least.
    """

    least: int
    greatest: int


class Lateness:
    """The `allowed_lateness` of one stream over time.

    reported: of answers their arrival and the setting of then; today: the setting as it is declared now, all µs.
    """

    def __init__(self, reported: Sequence[tuple[int, int]], today: int) -> None:
        ordered = sorted(reported)
        self._arrivals = [arrival for arrival, _ in ordered]
        self._values = [*(value for _, value in ordered), today]

    @classmethod
    def of(cls, stream: Stream, reported: Mapping[str, Sequence[tuple[int, int]]]) -> Lateness:
        """The stream's. reported: by the name of a stream."""
        return cls(reported.get(stream.name, ()), stream.allowed_lateness)

    @property
    def least(self) -> int:
        """The least of all."""
        return min(self._values)

    @property
    def greatest(self) -> int:
        """The greatest of all."""
        return max(self._values)

    def about(self, instant: int) -> int:
        """The lesser of what was reported last before an instant, and next."""
        after = bisect.bisect_left(self._arrivals, instant)
        return min(self._values[max(after - 1, 0)], self._values[after])

    def around(self, begin: int, end: int) -> Allowed:
        """What it may have been when an event arrived that is dated from `begin` to `end`, or arrived then (µs)."""
        most = self.greatest
        before = bisect.bisect_right(self._arrivals, begin - most) - 1
        after = bisect.bisect_right(self._arrivals, end + most)
        values = self._values[max(before, 0) : after + 1]
        return Allowed(min(values), max(values))
