"""Strings side by side in a heap of bytes: those of hexadecimal digits, as ids often are, at half their length.

A string is stored as its UTF-8 bytes, unless it consists of lower-case hexadecimal digits, or is a UUID in its usual
spelling: then as a byte with which no UTF-8 text begins, and two digits per byte. So two strings are equal if and only
if their bytes in the heap are.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel

# first bytes of packed texts: digits; an odd number of them (the last is 0); a UUID
_EVEN, _ODD, _UUID = 255, 254, 253
_UUID_LENGTH = 36
_SHORTEST = 4  # packed it takes less
_DASH = 45
# The value of each byte as a lower-case hexadecimal digit; 16 for anything else.
_DIGITS = np.full(256, 16, np.uint8)
_DIGITS[48:58] = range(10)
_DIGITS[97:103] = range(10, 16)


@kernel
def hash_bytes(data, start, end):
    """64-bit FNV-1a of data[start:end], finished with MurmurHash3's fmix64 so that short ids spread over all bits.

    Source: Fowler, Noll and Vo's FNV-1a; Appleby's MurmurHash3. Part of the order of events (S1.1), so it must
    never change for a live checkpoint.
    """
    h = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        h = (h ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return _finished(h)


@kernel
def _finished(h):
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(33)
    return h


@kernel
def _digit(byte):
    """The value of a lower-case hexadecimal digit, above 15 for anything else."""
    return np.int64(_DIGITS[byte])


@kernel
def _is_dash(i):
    """Whether a UUID has a dash there."""
    return i == 8 or i == 13 or i == 18 or i == 23  # noqa: PLR1714  Numba knows no sets


@kernel(inline="always")
def _form(data, start, end):
    """The first byte of data[start:end] in a heap; 0 if it is stored as it is."""
    n = end - start
    if n < _SHORTEST:
        return 0
    is_uuid = n == _UUID_LENGTH and data[start + 8] == _DASH
    for i in range(n):
        if is_uuid and _is_dash(i):
            if data[start + i] != _DASH:
                return 0
        elif _digit(data[start + i]) > 15:
            return 0
    if is_uuid:
        return _UUID
    return _ODD if n & 1 else _EVEN


@kernel(inline="always")
def put(data, start, end, heap, at):
    """Write the text data[start:end] to the heap at `at`; returns its end, at most `at` plus its length."""
    form = _form(data, start, end)
    if form == 0:
        for i in range(end - start):
            heap[at + i] = data[start + i]
        return at + end - start
    heap[at] = form
    high = np.int64(-1)
    for i in range(end - start):
        if form == _UUID and _is_dash(i):
            continue
        digit = _digit(data[start + i])
        if high < 0:
            high = digit
        else:
            at += 1
            heap[at] = (high << 4) | digit
            high = np.int64(-1)
    if high >= 0:
        at += 1
        heap[at] = high << 4
    return at + 1


@kernel
def length(heap, start, end):
    """Bytes of the text at heap[start:end]."""
    if start == end or heap[start] < _UUID:
        return end - start
    if heap[start] == _UUID:
        return np.int64(_UUID_LENGTH)
    return 2 * (end - start - 1) - (heap[start] == _ODD)


@kernel
def byte(heap, start, i):
    """Byte i of the text that begins at heap[start]."""
    form = heap[start]
    if form < _UUID:
        return heap[start + i]
    if form == _UUID:
        if _is_dash(i):
            return np.uint8(_DASH)
        i -= (i > 8) + (i > 13) + (i > 18) + (i > 23)
    pair = heap[start + 1 + (i >> 1)]
    digit = pair & 15 if i & 1 else pair >> 4
    return np.uint8(digit + 48 if digit < 10 else digit + 87)


@kernel
def hash_text(heap, start, end):
    """`hash_bytes` of the text at heap[start:end]."""
    if start == end or heap[start] < _UUID:
        return hash_bytes(heap, start, end)
    h = np.uint64(0xCBF29CE484222325)
    for i in range(length(heap, start, end)):
        h = (h ^ np.uint64(byte(heap, start, i))) * np.uint64(0x100000001B3)
    return _finished(h)


@kernel
def same(heap, start, end, data, first, last):
    """Whether the text at heap[start:end] is data[first:last]."""
    n = length(heap, start, end)
    if n != last - first:
        return False
    i = 0
    while i < n and byte(heap, start, i) == data[first + i]:
        i += 1
    return i == n


@kernel
def before(heap, i, i_end, j, j_end):
    """Whether the text at heap[i:i_end] is before the one at heap[j:j_end]: by its hash, then by its bytes."""
    h, k = hash_text(heap, i, i_end), hash_text(heap, j, j_end)
    if h != k:
        return h < k
    n, m = length(heap, i, i_end), length(heap, j, j_end)
    for at in range(min(n, m)):
        x, y = byte(heap, i, at), byte(heap, j, at)
        if x != y:
            return x < y
    return n < m
