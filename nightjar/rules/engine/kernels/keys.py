"""The hash table of tuples of integers."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel


@kernel
def _mix(h, value):
    h ^= np.uint64(value)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(32))


@kernel
def encode(columns, slots, keys, count, codes):
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
def rehash(slots, keys, count):
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
