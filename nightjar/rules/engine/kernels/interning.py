"""The hash table of strings: what is far apart in memory is read for many strings at once, not for each in turn."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels.texts import byte, hash_bytes, hash_text, length, put, same

_BLOCK = 512
# Tags of slots: never used; released; else a tag is _TAKEN and seven bits.
_EMPTY, _LEFT, _TAKEN = np.uint8(0), np.uint8(1), np.uint8(128)


@kernel
def _home(h, size):
    """The first slot to probe for a string with this hash, among any number of slots below 2**32."""
    return np.int64(((h >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))


@kernel
def _tag(h):
    return np.uint8(h & np.uint64(127)) | _TAKEN


@kernel
def _seek(codes, slots, tags, ends, heap, sought):
    """Hash the codes' strings into `sought`, one longer, and bring the slots that they begin at into the cache."""
    fetched = np.int64(0)
    for i in range(len(codes)):
        sought[i] = hash_text(heap, np.int64(ends[codes[i]]), np.int64(ends[codes[i] + 1]))
    for i in range(len(codes)):
        at = _home(sought[i], len(slots))
        fetched += np.int64(slots[at]) + np.int64(tags[at])
    sought[len(codes)] = np.uint64(fetched)


@kernel
def fill(first, last, slots, tags, ends, heap):
    """Insert the codes first, first + 1, … below last, none of whose strings is in the table."""
    sought = np.empty(_BLOCK + 1, np.uint64)
    for begin in range(first, last, _BLOCK):
        _fill_block(np.arange(begin, min(begin + _BLOCK, last)), slots, tags, ends, heap, sought)


@kernel
def _fill_block(codes, slots, tags, ends, heap, sought):
    _seek(codes, slots, tags, ends, heap, sought)
    for i in range(len(codes)):
        at = _home(sought[i], len(slots))
        while tags[at] != _EMPTY:
            at = at + 1 if at + 1 < len(slots) else 0
        tags[at] = _tag(sought[i])
        slots[at] = codes[i]


@kernel
def leave(codes, slots, tags, ends, heap):
    """Remove the codes from the table; returns how many slots become empty. Codes not in it are skipped."""
    sought = np.empty(_BLOCK + 1, np.uint64)
    emptied = 0
    for begin in range(0, len(codes), _BLOCK):
        emptied += _leave_block(codes[begin : begin + _BLOCK], slots, tags, ends, heap, sought)
    return emptied


@kernel
def _leave_block(codes, slots, tags, ends, heap, sought):
    _seek(codes, slots, tags, ends, heap, sought)
    emptied = 0
    size = len(slots)
    for i in range(len(codes)):
        at = _home(sought[i], size)
        while tags[at] != _EMPTY and (slots[at] != codes[i] or tags[at] == _LEFT):
            at = at + 1 if at + 1 < size else 0
        if tags[at] == _EMPTY:
            continue
        tags[at] = _LEFT
        if tags[at + 1 if at + 1 < size else 0] != _EMPTY:
            continue
        while tags[at] == _LEFT:  # no probe for a string in the table has to pass this slot
            tags[at] = _EMPTY
            emptied += 1
            at = at - 1 if at else size - 1
    return emptied


@kernel
def _intern_block(in_offsets, in_data, valid, slots, tags, ends, heap, count, taken, codes, adding, sought):
    """The codes of the strings, in passes: distant memory is read for many strings at once, not in turn.

    The first passes only read what the last will most likely need, to bring it into the cache.
    """
    n = len(codes)
    size = len(slots)
    # the hashes; the slots; where the strings are; their first bytes
    for i in range(n):
        sought[i] = hash_bytes(in_data, in_offsets[i], in_offsets[i + 1])
    for i in range(n):
        at = _home(sought[i], size)
        code = slots[at]  # in any case: a new string is most likely written there
        codes[i] = code if tags[at] == _tag(sought[i]) else -1
    for i in range(n):
        if codes[i] >= 0:
            codes[i] = ends[codes[i]]
    for i in range(n):
        if codes[i] >= 0:
            codes[i] = heap[min(codes[i], len(heap) - 1)]
    # the codes, and new strings
    for i in range(n):
        if len(valid) and not valid[i]:
            codes[i] = -1
            continue
        start, end = in_offsets[i], in_offsets[i + 1]
        h = sought[i]
        wanted = _tag(h)
        at = _home(h, size)
        free = -1
        found = -1
        while tags[at] != _EMPTY:
            if tags[at] == wanted:
                code = slots[at]
                if same(heap, np.int64(ends[code]), np.int64(ends[code + 1]), in_data, start, end):
                    found = code
                    break
            elif free < 0 and tags[at] == _LEFT:
                free = at
            at = at + 1 if at + 1 < size else 0
        if found < 0 and adding:
            if free < 0:
                free = at
                taken += 1
            found = count
            tags[free] = wanted
            slots[free] = count
            ends[count + 1] = put(in_data, start, end, heap, np.int64(ends[count]))
            count += 1
        codes[i] = found
    return count, taken


@kernel
def intern(in_offsets, in_data, valid, slots, tags, ends, heap, count, taken, codes, adding):
    """The codes of the strings, in blocks small enough that everything the passes read fits in the cache."""
    sought = np.empty(min(_BLOCK, len(codes)), np.uint64)
    for at in range(0, len(codes), _BLOCK):
        stop = at + _BLOCK
        count, taken = _intern_block(
            in_offsets[at:],
            in_data,
            valid[at:stop],
            slots,
            tags,
            ends,
            heap,
            count,
            taken,
            codes[at:stop],
            adding,
            sought,
        )
    return count, taken


@kernel
def lengths(codes, ends, heap, offsets):
    """The offsets of the codes' strings side by side; -1 has none."""
    offsets[0] = 0
    for i in range(len(codes)):
        n = 0 if codes[i] < 0 else length(heap, np.int64(ends[codes[i]]), np.int64(ends[codes[i] + 1]))
        offsets[i + 1] = offsets[i] + n


@kernel
def copy(codes, ends, heap, offsets, data):
    """Write the codes' texts side by side."""
    for i in range(len(codes)):
        base = np.int64(ends[codes[i]])
        for j in range(offsets[i + 1] - offsets[i]):
            data[offsets[i] + j] = byte(heap, base, j)


@kernel
def gather(codes, ends, heap, new_ends, new_heap):
    """Write what the heap has of the codes side by side."""
    at = 0
    for i in range(len(codes)):
        for j in range(ends[codes[i]], ends[codes[i] + 1]):
            new_heap[at] = heap[j]
            at += 1
        new_ends[i + 1] = at
