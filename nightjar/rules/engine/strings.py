"""Exact interning of strings: every distinct string gets a dense code, so that kernels compare integers.

A table uses open addressing over a 64-bit hash and compares the bytes on every hit: strings with equal hashes are
distinguished. Codes are assigned in order of first occurrence and never reused. A slot of the table takes five bytes: a
code, and a tag of seven bits of the hash, which distinguishes most strings. Hashes are not stored: they are calculated
again when a table grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.engine.kernels import interning
from nightjar.rules.engine.memory import RowArray, allocate

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

_STRETCH = 1 << 15
_AT_ONCE = 1 << 28  # bytes of strings that are copied to be looked up
_NO_BYTES: ByteArray = np.empty(0, np.uint8)
_NO_TRUTHS: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
_FARTHEST = (1 << 31) - 1  # the largest heap offset in an int32
# The maximum share of used slots, and the slots per string of a new table.
_FULL, _ROOMY = 0.8, 1.8


def _is_large(strings: pa.Array) -> bool:
    """Whether it should be looked up in two parts."""
    return len(strings) > 1 and strings.get_total_buffer_size() > _AT_ONCE and strings.nbytes > _AT_ONCE


def _parts(strings: pa.Array) -> tuple[Int32Array, ByteArray, npt.NDArray[np.bool_]]:
    """Offsets, bytes and validity (empty if nothing is NULL) of a pyarrow array of string or large_string.

    They share Arrow's memory, and are read-only even where that is not: so kernels are compiled for one type.
    """
    is_large = pa.types.is_large_string(strings.type)
    kind = np.dtype(np.int64 if is_large else np.int32)
    _, ends, heap = strings.buffers()
    offsets = np.frombuffer(ends, kind, len(strings) + 1, strings.offset * kind.itemsize)
    data = np.frombuffer(heap, np.uint8) if heap is not None and heap.size else _NO_BYTES
    if is_large:
        data, offsets = data[offsets[0] : offsets[-1]], (offsets - offsets[0]).astype(np.int32)
    valid = strings.is_valid().to_numpy(zero_copy_only=False) if strings.null_count else _NO_TRUTHS
    offsets.flags.writeable = data.flags.writeable = False
    return offsets, data, valid


class StringTable:
    """Distinct strings by code: heap[ends[code]:ends[code + 1]] (see texts); `ends` is int32 while that suffices."""

    def __init__(self) -> None:
        self.count = 0
        self._slots: Int32Array = np.zeros(64, np.int32)
        self._tags: ByteArray = np.zeros(64, np.uint8)
        self._taken = 0  # places that are not empty
        self._ends = RowArray(np.int32)
        self._heap = RowArray(np.uint8)
        # codes whose strings are kept; all others have been released
        self._live: Sequence[slice] = (slice(0, 0),)
        self._forgotten: Int64Array = np.empty(0, np.int64)

    @property
    def ends(self) -> npt.NDArray[Any]:
        """Where in the heap each code's bytes end, one place on: int32 or int64."""
        return self._ends.all

    @property
    def heap(self) -> ByteArray:
        """All strings, as `texts` writes them."""
        return self._heap.all

    def intern(self, strings: pa.Array) -> Int64Array:
        """Codes (int64, -1 for NULL) of an array of string or large_string; unseen strings are added in row order.

        Of a dictionary-encoded array all strings of the dictionary are added.
        """
        if pa.types.is_dictionary(strings.type):
            codes = np.append(self.intern(strings.dictionary), -1)
            coded: Int64Array = codes[pc.fill_null(strings.indices, len(strings.dictionary)).to_numpy()]
            return coded
        if _is_large(strings):
            middle = len(strings) // 2
            return np.concatenate([self.intern(strings.slice(0, middle)), self.intern(strings.slice(middle))])
        if len(strings) > _STRETCH and 2 * len(strings.slice(0, _STRETCH).unique()) < _STRETCH:
            return self.intern(strings.dictionary_encode())  # takes half as long where most strings come again
        offsets, data, valid = _parts(strings)
        if len(strings) <= _STRETCH:
            self.reserve(len(strings), int(offsets[-1] - offsets[0]))
            return self._look_up(offsets, data, valid, adding=True)
        found, at = [], 0
        while at < len(strings):  # by and by, so that the table grows with what is new and not with what comes
            stop = min(len(strings), at + max(_STRETCH, self.count))
            stretch = offsets[at : stop + 1]
            self.reserve(stop - at, int(stretch[-1] - stretch[0]))
            found.append(self._look_up(stretch, data, valid[at:stop], adding=True))
            at = stop
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.int64), *found])

    def find(self, strings: pa.Array) -> Int64Array:
        """Codes of the strings, -1 where the table does not hold one; adds nothing."""
        if _is_large(strings):
            middle = len(strings) // 2
            return np.concatenate([self.find(strings.slice(0, middle)), self.find(strings.slice(middle))])
        return self._look_up(*_parts(strings), adding=False)

    def _look_up(
        self, offsets: Int32Array, data: ByteArray, valid: npt.NDArray[np.bool_], *, adding: bool
    ) -> Int64Array:
        codes = np.empty(len(offsets) - 1, np.int64)
        self.count, self._taken = interning.intern(
            offsets, data, valid, self._slots, self._tags, self.ends, self.heap, self.count, self._taken, codes, adding
        )
        return codes

    def unindex(self, codes: Int64Array) -> None:
        """Remove the codes from the table: their strings get new codes if they occur again. Pass each code once."""
        self._leave(codes)
        self._forgotten = np.append(self._forgotten, codes)

    @property
    def unindexed(self) -> Int64Array:
        """The codes that have been removed from the table, while their strings are here."""
        return self._forgotten

    def cut(self, count: int) -> None:
        """Drop all codes but the first `count`, and reuse the others."""
        self._leave(np.arange(count, self.count))
        self.count = count

    def release(self, codes: slice, live: Sequence[slice]) -> None:
        """Drop these codes and their strings, which are no longer needed. live: the codes whose strings stay."""
        self._leave(np.arange(codes.start, codes.stop))
        heap = slice(int(self.ends[codes.start]), int(self.ends[codes.stop]))
        self._live = live
        self._forgotten = self._forgotten[(self._forgotten < codes.start) | (self._forgotten >= codes.stop)]
        self._ends.release(slice(codes.start + 1, codes.stop))  # the next code's string begins where the last one ends
        self._heap.release(heap)

    def _leave(self, codes: Int64Array) -> None:
        self._taken -= interning.leave(codes, self._slots, self._tags, self.ends, self.heap)

    def keep(self, codes: Int64Array) -> None:
        """Drop all but these codes (ascending); they become 0, 1, …"""
        ends = np.zeros(len(codes) + 1, np.int64)
        heap, self._heap = self.heap, RowArray(np.uint8)
        self._heap.reserve(int((self.ends[codes + 1] - self.ends[codes]).sum(dtype=np.int64)), ())
        interning.gather(codes, self.ends, heap, ends, self.heap)
        self._ends = RowArray(np.int64 if ends[-1] > _FARTHEST else np.int32)
        self._ends.reserve(len(ends), ())
        self.ends[: len(ends)] = ends
        self._forgotten = np.flatnonzero(np.isin(codes, self._forgotten))
        self.count, self._live = len(codes), (slice(0, 0),)
        self._rehash(0)

    @property
    def _stretches(self) -> list[slice]:
        """The codes whose strings are kept; the last range has grown."""
        return [*self._live[:-1], slice(self._live[-1].start, self.count)]

    def _rehash(self, more: int) -> None:
        """Rebuild the table, with room for `more` strings."""
        stretches = self._stretches
        size = max(64, int(_ROOMY * (sum(s.stop - s.start for s in stretches) + more)))
        self._slots, self._tags = (allocate((size,), dtype) for dtype in (np.int32, np.uint8))
        for codes in stretches:
            interning.fill(codes.start, codes.stop, self._slots, self._tags, self.ends, self.heap)
        self._taken = sum(s.stop - s.start for s in stretches)
        self._leave(self._forgotten)

    def reserve(self, rows: int, size: int = 0) -> None:
        """Make room for so many more strings, of so many bytes together."""
        end = int(self.ends[self.count])
        if end + size > _FARTHEST and self.ends.dtype != np.int64:
            self._ends.cast(np.int64, [slice(s.start, s.stop + 1) for s in self._stretches])
        if self.count + rows >= len(self.ends):
            self._ends.reserve(self.count + rows + 1, [slice(s.start, s.stop + 1) for s in self._stretches])
        if end + size > len(self.heap):
            live = [slice(int(self.ends[s.start]), int(self.ends[s.stop])) for s in self._stretches]
            self._heap.reserve(end + size, live)
        if self._taken + rows > _FULL * len(self._slots):
            self._rehash(rows)

    def strings(self, codes: Int64Array) -> pa.Array:
        """pyarrow large_string of the codes; -1 gives NULL."""
        codes = codes.astype(np.int64, copy=False)
        offsets = np.empty(len(codes) + 1, np.int64)
        interning.lengths(codes, self.ends, self.heap, offsets)
        data = np.empty(offsets[-1], np.uint8)
        interning.copy(codes, self.ends, self.heap, offsets, data)
        missing = codes < 0
        bitmap = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
        return pa.LargeStringArray.from_buffers(len(codes), pa.py_buffer(offsets), pa.py_buffer(data), bitmap)
