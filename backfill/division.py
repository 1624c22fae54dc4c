"""The number of tasks that the rows of some files are divided into."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from nightjar.lake import delta

# A task holds its share in memory: some hundred megabytes at most.
_ROWS_A_TASK = 1_000_000
# A task that compares rows holds them: some hundred megabytes at most.
_ROWS_A_HEAP = 1_000_000


class Files(Protocol):
    """Files that one task reads."""

    @property
    def files(self) -> Sequence[delta.File]:
        """They."""


def heaps_of(parts: Iterable[Files], parallelism: int) -> int:
    """The number of tasks that compare the rows of some files."""
    rows = sum(file.rows for part in parts for file in part.files)
    return max(parallelism, math.ceil(rows / _ROWS_A_HEAP))


def shares(files: Sequence[delta.File], parallelism: int) -> list[list[delta.File]]:
    """Files spread evenly over as many tasks as can run at once, or more where that would be much; one at least."""
    wanted = max(parallelism, math.ceil(sum(file.rows for file in files) / _ROWS_A_TASK))
    spread: list[list[delta.File]] = [[] for _ in range(max(1, min(wanted, len(files))))]
    filled = [(0, number) for number in range(len(spread))]
    for file in sorted(files, key=lambda file: -file.rows):
        least, number = heapq.heappop(filled)
        spread[number].append(file)
        heapq.heappush(filled, (least + file.rows, number))
    return spread
