"""Exact interning of strings: every distinct string gets a dense code, so that kernels compare integers.

A table is open addressing over a 64-bit hash with the bytes compared on every hit: two strings that collide in the
hash are still two strings. Codes are given in order of first sight and never reused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
ByteArray = npt.NDArray[np.uint8]

_STRETCH = 1 << 15
_AT_ONCE = 1 << 28  # bytes of strings that are copied to be looked up
_BLOCK = 512
_CODE = np.int64(0xFFFFFFFF)
_NO_BYTES: ByteArray = np.empty(0, np.uint8)


@njit(cache=True)
def hash_bytes(data, start, end):  # type: ignore[no-untyped-def]
    """64-bit FNV-1a of data[start:end], finished with MurmurHash3's fmix64 so that short ids spread over all bits.

    Source: Fowler, Noll and Vo's FNV-1a; Appleby's MurmurHash3. Part of the order of events (law 1), hence
    never to be changed for a live checkpoint.
    """
    h = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        h = (h ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(33)
    return h


@njit(cache=True)
def _slot(h, code):  # type: ignore[no-untyped-def]
    """A code beside the upper half of its hash, so that most other strings are told apart within the slot."""
    return (np.int64(h >> np.uint64(33)) << 32) | code


@njit(cache=True)
def _rehash(slots, hashes, count):  # type: ignore[no-untyped-def]
    slots[:] = -1
    last = np.uint64(len(slots) - 1)
    for code in range(count):
        at = hashes[code] & last
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & last
        slots[at] = _slot(hashes[code], code)


@njit(cache=True)
def _forget(codes, slots, hashes):  # type: ignore[no-untyped-def]
    """Make the codes' strings unknown: each code stays, under a hash that its string does not have."""
    last = np.uint64(len(slots) - 1)
    for i in range(len(codes)):
        code = codes[i]
        at = hashes[code] & last
        while slots[at] != _slot(hashes[code], code):
            at = (at + np.uint64(1)) & last
        hashes[code] ^= np.uint64(1 << 33)
        slots[at] = _slot(hashes[code], code)


@njit(cache=True)
def _intern_block(  # type: ignore[no-untyped-def]
    in_offsets, in_data, valid, slots, hashes, ends, heap, count, codes, adding, sought, starts
):
    """The codes of the strings, in passes: places that are far apart in memory are looked up side by side, not in turn.

    The first three passes only look at what the last will most likely need, so that it finds it in the cache.
    """
    n = len(codes)
    last = np.uint64(len(slots) - 1)
    for i in range(n):
        sought[i] = hash_bytes(in_data, in_offsets[i], in_offsets[i + 1])
    for i in range(n):
        codes[i] = slots[sought[i] & last]
    for i in range(n):
        starts[i] = ends[max(codes[i], 0) & _CODE]
    for i in range(n):
        codes[i] = heap[min(starts[i], len(heap) - 1)]
    for i in range(n):
        if len(valid) and not valid[i]:
            codes[i] = -1
            continue
        start, end = in_offsets[i], in_offsets[i + 1]
        h = sought[i]
        wanted = _slot(h, 0)
        at = h & last
        slot = slots[at]
        while slot >= 0:
            code = slot & _CODE
            if slot - code == wanted and ends[code + 1] - ends[code] == end - start:
                base = ends[code] - start
                j = start
                while j < end and heap[base + j] == in_data[j]:
                    j += 1
                if j == end:
                    break
            at = (at + np.uint64(1)) & last
            slot = slots[at]
        if slot >= 0:
            codes[i] = slot & _CODE
        elif adding:
            slots[at] = wanted | count
            hashes[count] = h
            base = ends[count] - start
            for j in range(start, end):
                heap[base + j] = in_data[j]
            ends[count + 1] = base + end
            codes[i] = count
            count += 1
        else:
            codes[i] = -1
    return count


@njit(cache=True)
def _intern(in_offsets, in_data, valid, slots, hashes, ends, heap, count, codes, adding):  # type: ignore[no-untyped-def]
    """The codes of the strings, by blocks of which the cache holds all that the passes look at."""
    sought = np.empty(_BLOCK, np.uint64)
    starts = np.empty(_BLOCK, np.int64)
    for at in range(0, len(codes), _BLOCK):
        stop = at + _BLOCK
        count = _intern_block(
            in_offsets[at:], in_data, valid[at:stop], slots, hashes, ends, heap, count, codes[at:stop], adding,
            sought, starts,
        )  # fmt: skip
    return count


@njit(cache=True)
def _gather(codes, ends, heap, new_ends, new_heap):  # type: ignore[no-untyped-def]
    n = 0
    for i in range(len(codes)):
        for j in range(ends[codes[i]], ends[codes[i] + 1]):
            new_heap[n] = heap[j]
            n += 1
        new_ends[i + 1] = n


def grown(array: npt.NDArray[Any], needed: int) -> npt.NDArray[Any]:
    """The array itself, or a copy with at least `needed` and at least twice the places (amortised O(1) an append)."""
    if needed <= len(array):
        return array
    bigger = np.zeros((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
    bigger[: len(array)] = array
    return bigger


def _is_large(strings: pa.Array) -> bool:
    """Whether it is better looked up in two parts."""
    return len(strings) > 1 and strings.get_total_buffer_size() > _AT_ONCE and strings.nbytes > _AT_ONCE


def _parts(strings: pa.Array) -> tuple[npt.NDArray[np.int32], ByteArray, npt.NDArray[np.bool_]]:
    """Offsets, bytes and validity (empty where nothing is NULL) of a pyarrow array of string or large_string.

    Copies: Numba takes many times longer to dispatch on the read-only arrays that Arrow lends than to copy a batch.
    """
    kind = np.dtype(np.int64 if pa.types.is_large_string(strings.type) else np.int32)
    offsets = np.frombuffer(strings.buffers()[1], kind, len(strings) + 1, strings.offset * kind.itemsize)
    heap, data = strings.buffers()[2], _NO_BYTES
    if heap is not None and offsets[-1] > offsets[0]:
        data = np.frombuffer(heap, np.uint8, offsets[-1] - offsets[0], offsets[0]).copy()
    valid = strings.is_valid().to_numpy(zero_copy_only=False) if strings.null_count else np.empty(0, np.bool_)
    return (offsets - offsets[0]).astype(np.int32, copy=False), data, valid


class StringTable:
    """Distinct strings by code. `hashes[code]` is the 64-bit hash; the bytes are heap[ends[code]:ends[code + 1]]."""

    def __init__(self) -> None:
        self.count = 0
        self.slots: Int64Array = np.full(64, -1, np.int64)
        self.hashes: UInt64Array = np.zeros(32, np.uint64)
        self.ends: Int64Array = np.zeros(33, np.int64)
        self.heap: ByteArray = np.zeros(512, np.uint8)

    def intern(self, strings: pa.Array) -> Int64Array:
        """Codes (int64, -1 for NULL) of an array of string or large_string; unseen strings are added in row order."""
        if _is_large(strings):
            middle = len(strings) // 2
            return np.concatenate([self.intern(strings.slice(0, middle)), self.intern(strings.slice(middle))])
        offsets, data, valid = _parts(strings)
        codes = np.empty(len(strings), np.int64)
        at = 0
        while at < len(strings):  # by and by, so that the table grows with what is new and not with what comes
            stop = min(len(strings), at + max(_STRETCH, self.count))
            stretch = offsets[at : stop + 1]
            self._reserve(stop - at, int(stretch[-1] - stretch[0]))
            codes[at:stop] = self._look_up(stretch, data, valid[at:stop], adding=True)
            at = stop
        return codes

    def find(self, strings: pa.Array) -> Int64Array:
        """Codes of the strings, -1 where the table does not hold one; adds nothing."""
        if _is_large(strings):
            middle = len(strings) // 2
            return np.concatenate([self.find(strings.slice(0, middle)), self.find(strings.slice(middle))])
        return self._look_up(*_parts(strings), adding=False)

    def _look_up(
        self, offsets: npt.NDArray[np.int32], data: ByteArray, valid: npt.NDArray[np.bool_], *, adding: bool
    ) -> Int64Array:
        codes = np.empty(len(offsets) - 1, np.int64)
        self.count = _intern(
            offsets, data, valid, self.slots, self.hashes, self.ends, self.heap, self.count, codes, adding
        )
        return codes

    def forget(self, codes: Int64Array) -> None:
        """Find these codes' strings no more: where one comes again it gets a new code. Each code is given once."""
        _forget(codes, self.slots, self.hashes)

    def cut(self, count: int) -> None:
        """Forget all codes but the first `count`, and give the others again to what comes next."""
        self.forget(np.arange(count, self.count))
        self.count = count

    def keep(self, codes: Int64Array) -> None:
        """Forget all but these codes; they become 0, 1, …"""
        size = int((self.ends[codes + 1] - self.ends[codes]).sum())
        ends, heap = np.zeros(len(codes) + 1, np.int64), np.zeros(max(size, 1), np.uint8)
        _gather(codes, self.ends, self.heap, ends, heap)
        self.hashes, self.ends, self.heap, self.count = self.hashes[codes], ends, heap, len(codes)
        self._rehash()

    def _rehash(self) -> None:
        self.slots = np.empty(1 << max(6, (2 * len(self.hashes) - 1).bit_length()), np.int64)
        _rehash(self.slots, self.hashes, self.count)

    def _reserve(self, rows: int, size: int) -> None:
        self.hashes = grown(self.hashes, self.count + rows)
        self.ends = grown(self.ends, self.count + rows + 1)
        self.heap = grown(self.heap, int(self.ends[self.count]) + size)
        if 2 * (self.count + rows) > len(self.slots):
            self._rehash()

    def strings(self, codes: Int64Array) -> pa.Array:
        """pyarrow large_string of the codes; -1 gives NULL."""
        every = pa.LargeStringArray.from_buffers(
            self.count, pa.py_buffer(self.ends[: self.count + 1]), pa.py_buffer(self.heap)
        )
        return every.take(pa.array(codes, mask=codes < 0 if (codes < 0).any() else None))
