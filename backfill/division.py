"""The number of tasks that the rows of some files are divided into."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from nightjar.lake import delta
from nightjar.lake.arrow_shuffle import InputSplit

# A task holds its share in memory: some hundred megabytes at most.
_ROWS_A_TASK = 1_000_000
# A task that compares rows holds them: some hundred megabytes at most.
_ROWS_A_PARTITION = 1_000_000


def partition_count(splits: Iterable[InputSplit], parallelism: int) -> int:
    """The number of tasks that compare the rows of some files."""
    rows = sum(file.rows for split in splits for file in split.files)
    return max(parallelism, math.ceil(rows / _ROWS_A_PARTITION))


def file_splits(files: Sequence[delta.File], parallelism: int) -> list[list[delta.File]]:
    """Files spread evenly over as many tasks as can run at once, or more where that would be much; one at least."""
    wanted = max(parallelism, math.ceil(sum(file.rows for file in files) / _ROWS_A_TASK))
    spread: list[list[delta.File]] = [[] for _ in range(max(1, min(wanted, len(files))))]
    filled = [(0, number) for number in range(len(spread))]
    for file in sorted(files, key=lambda file: -file.rows):
        least, number = heapq.heappop(filled)
        spread[number].append(file)
        heapq.heappush(filled, (least + file.rows, number))
    return spread
