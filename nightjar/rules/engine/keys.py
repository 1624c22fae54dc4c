"""Dense codes for tuples of values: the group of a row, its `per` value, its value for a distinct count."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.kernels import keys as kernels
from nightjar.rules.engine.strings import Int64Array


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
            kernels.rehash(self._slots, self._keys, self.count)
        codes = np.where(valid, 0, -1).astype(np.int64)
        self.count = kernels.encode(np.ascontiguousarray(columns), self._slots, self._keys, self.count, codes)
        return codes
