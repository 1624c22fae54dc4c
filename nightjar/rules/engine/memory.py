"""Arrays with one element per row of a store, ranges of which can be released to the system without renumbering rows.

Large arrays are maps of anonymous memory. The system backs a page only once it is written to, so room to grow is free;
the pages of a range of rows that is no longer needed are released, and read as zeros from then on.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Rows released together: whole pages, even with one byte per row.
BLOCK = 8192
# The rows that a new array has room for.
ROOM = 64
# Below this many bytes plain memory is used.
_PLAIN = 1 << 17
# From this many bytes on, pages of 2 MiB make random reads cheaper and rounding up wastes little (as in NumPy).
_HUGE = 1 << 22
# Not counted against the machine's memory: most of a map is never written to. A Linux-only flag.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE


def allocate(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of zeros, for random reads."""
    array, memory = _mapped(shape, dtype)
    if memory is not None and array.nbytes >= _HUGE:
        memory.madvise(mmap.MADV_HUGEPAGE)
    return array


def _mapped(shape: tuple[int, ...], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], mmap.mmap | None]:
    """An array of zeros, and its map if it is large."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size < _PLAIN:
        return np.zeros(shape, dtype), None
    memory = mmap.mmap(-1, size, flags=_FLAGS)
    return np.frombuffer(memory, dtype).reshape(shape), memory


def stretches(blocks: list[int]) -> list[slice]:
    """The rows of the blocks (ascending)."""
    ends = [at for at, block in enumerate(blocks) if at + 1 == len(blocks) or blocks[at + 1] != block + 1]
    firsts = [0, *(end + 1 for end in ends[:-1])]
    return [slice(blocks[a] * BLOCK, (blocks[b] + 1) * BLOCK) for a, b in zip(firsts, ends, strict=False)]


class RowArray:
    """One value per row, or `width` of them. `all`: the whole array, rows and room, zero where nothing was written."""

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self.all: npt.NDArray[Any]
        self._memory: mmap.mmap | None
        self.all, self._memory = _mapped((ROOM,) if width is None else (ROOM, width), dtype)

    def reserve(self, rows: int, live: Sequence[slice]) -> None:
        """Make room for this many rows; the live ranges keep their content."""
        if rows > len(self.all):
            self._become((max(rows, 2 * len(self.all)), *self.all.shape[1:]), self.all.dtype, live)

    def cast(self, dtype: npt.DTypeLike, live: Sequence[slice]) -> None:
        """Change the type of the values."""
        self._become(self.all.shape, dtype, live)

    def widen(self, width: int, live: Sequence[slice]) -> None:
        """Change the number of values per row; new ones are 0."""
        self._become((len(self.all), width), self.all.dtype, live)

    def _become(self, shape: tuple[int, ...], dtype: npt.DTypeLike, live: Sequence[slice]) -> None:
        old = self.all
        self.all, self._memory = _mapped(shape, dtype)
        for rows in live:  # not the others: writing zeros takes memory too
            held = slice(rows.start, min(rows.stop, len(old)))
            target = self.all[held] if old.ndim == 1 else self.all[held, : old.shape[1]]
            target[...] = old[held]

    def keep(self, rows: npt.NDArray[np.int64]) -> None:
        """Drop all but these rows; they become 0, 1, …"""
        kept = self.all[rows]
        self.all, self._memory = _mapped((max(ROOM, len(rows)), *kept.shape[1:]), kept.dtype)
        self.all[: len(rows)] = kept

    def release(self, rows: slice) -> None:
        """Release the memory of these rows: the pages that hold nothing else."""
        if self._memory is None:
            return
        width = self.all.strides[0]
        first = -(-rows.start * width // mmap.PAGESIZE) * mmap.PAGESIZE
        last = min(rows.stop, len(self.all)) * width // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)
