"""Dense codes for tuples of values: the group of a row, its `per` value, its value for a distinct count."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.strings import Int64Array


@kernel
def _mix(h, value):  # type: ignore[no-untyped-def]
    h ^= np.uint64(value)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(32))


@kernel
def _encode(columns, slots, keys, count, codes):  # type: ignore[no-untyped-def]
    rows, width = columns.shape
    last = np.uint64(len(slots) - 1)
    for i in range(rows):
        if codes[i] < 0:
            continue
        h = np.uint64(0x9E3779B97F4A7C15)
        for j in range(width):
            h = _mix(h, columns[i, j])
        at = h & last
        code = slots[at]
        while code >= 0:
            j = 0
            while j < width and keys[code, j] == columns[i, j]:
                j += 1
            if j == width:
                break
            at = (at + np.uint64(1)) & last
            code = slots[at]
        if code < 0:
            code = count
            count += 1
            slots[at] = code
            for j in range(width):
                keys[code, j] = columns[i, j]
        codes[i] = code
    return count


@kernel
def _rehash(slots, keys, count):  # type: ignore[no-untyped-def]
    slots[:] = -1
    last = np.uint64(len(slots) - 1)
    for code in range(count):
        h = np.uint64(0x9E3779B97F4A7C15)
        for j in range(keys.shape[1]):
            h = _mix(h, keys[code, j])
        at = h & last
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & last
        slots[at] = code


class KeyTable:
    """Codes of int64 tuples, in order of first occurrence."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self._slots: Int64Array = np.full(64, -1, np.int64)
        self._keys: Int64Array = np.zeros((32, width), np.int64)

    def keys(self, codes: Int64Array) -> Int64Array:
        """The tuples that have these codes: int64 (codes, width)."""
        found: Int64Array = self._keys[codes]
        return found

    def encode(self, columns: Int64Array, valid: np.ndarray) -> Int64Array:
        """columns: int64 (rows, width); valid: bool (rows,). Returns int64 codes, -1 where not valid."""
        rows = len(columns)
        if self.count + rows > len(self._keys):
            keys = np.zeros((max(self.count + rows, 2 * len(self._keys)), self._keys.shape[1]), np.int64)
            keys[: self.count] = self._keys[: self.count]
            self._keys = keys
        if 2 * (self.count + rows) > len(self._slots):
            self._slots = np.empty(1 << (4 * (self.count + rows) - 1).bit_length(), np.int64)
            _rehash(self._slots, self._keys, self.count)
        codes = np.where(valid, 0, -1).astype(np.int64)
        self.count = _encode(np.ascontiguousarray(columns), self._slots, self._keys, self.count, codes)
        return codes
