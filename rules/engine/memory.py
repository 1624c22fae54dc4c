"""Arrays with a place for each row of a store, of which stretches go back to the system while row numbers stay.

Large arrays are maps of anonymous memory. The system backs a page of them once it is written to, so room to grow costs
nothing; and where nobody needs a stretch of rows any more its pages are given back, and read as zeros from then on.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Rows given back together: whole pages, even of one byte a row.
BLOCK = 8192
# Below this many bytes plain memory will do.
_PLAIN = 1 << 17
# From so many on pages of 2 MiB, which make random reads cheaper, are not too much to round up to (as in NumPy).
_HUGE = 1 << 22
# Not counted against what the machine has: most of a map's room is never written to. A flag of Linux alone.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE


def allocate(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of zeros, for random reads."""
    array, memory = _mapped(shape, dtype)
    if memory is not None and array.nbytes >= _HUGE:
        memory.madvise(mmap.MADV_HUGEPAGE)
    return array


def _mapped(shape: tuple[int, ...], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], mmap.mmap | None]:
    """An array of zeros, and the map it lives in if it is large."""
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
    """One value a row, or `width` of them. `all`: the array itself, rows and room, zeros where nothing was written."""

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self.all: npt.NDArray[Any]
        self._memory: mmap.mmap | None
        self.all, self._memory = _mapped((64,) if width is None else (64, width), dtype)

    def reserve(self, rows: int, live: Sequence[slice]) -> None:
        """Have room for so many rows; what is in the live stretches stays."""
        if rows > len(self.all):
            self._become((max(rows, 2 * len(self.all)), *self.all.shape[1:]), self.all.dtype, live)

    def cast(self, dtype: npt.DTypeLike, live: Sequence[slice]) -> None:
        """Hold values of another type from now on."""
        self._become(self.all.shape, dtype, live)

    def widen(self, width: int, live: Sequence[slice]) -> None:
        """Hold so many values a row from now on, the new ones 0."""
        self._become((len(self.all), width), self.all.dtype, live)

    def _become(self, shape: tuple[int, ...], dtype: npt.DTypeLike, live: Sequence[slice]) -> None:
        old = self.all
        self.all, self._memory = _mapped(shape, dtype)
        for rows in live:  # not the others: to write zeros takes memory too
            held = slice(rows.start, min(rows.stop, len(old)))
            target = self.all[held] if old.ndim == 1 else self.all[held, : old.shape[1]]
            target[...] = old[held]

    def keep(self, rows: npt.NDArray[np.int64]) -> None:
        """Drop all but these rows; they become 0, 1, …"""
        kept = self.all[rows]
        self.all, self._memory = _mapped((max(64, len(rows)), *kept.shape[1:]), kept.dtype)
        self.all[: len(rows)] = kept

    def release(self, rows: slice) -> None:
        """Give back the memory of these rows, as far as whole pages hold nothing else."""
        if self._memory is None:
            return
        width = self.all.strides[0]
        first = -(-rows.start * width // mmap.PAGESIZE) * mmap.PAGESIZE
        last = min(rows.stop, len(self.all)) * width // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)
