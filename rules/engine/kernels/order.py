"""min, max, first, last and count_distinct: aggregates that look at rows one by one, not at their sum."""

from __future__ import annotations

import numpy as np
from numba import njit

# Of the table of distinct values: clearing them for each group costs less than growing for most.
_SLOTS = 256


@njit(cache=True)
def _bounds(run_first, fill, begin, ops, r):  # type: ignore[no-untyped-def]
    """The least walk index of run r and one past its greatest."""
    a, b = fill[r, 0], fill[r, 1]
    for o in range(begin[run_first[r]], begin[run_first[r + 1]]):
        p = abs(ops[o]) - 1
        a = min(a, p)
        b = max(b, p + 1)
    return a, b


@njit(cache=True)
def extremes(run_first, fill, begin, ops, mask, values, largest, found, out):  # type: ignore[no-untyped-def]
    """out[k]: the least (or largest) value of window k where found[k].

    A monotonic deque; where a row comes or goes in the middle of a window, which only late rows cause, the deque is
    made anew from the rows that are in.
    """
    deque = np.empty(64, np.int64)
    live = np.zeros(64, np.uint8)
    for r in range(len(run_first) - 1):
        if run_first[r] == run_first[r + 1]:
            continue
        base, stop = _bounds(run_first, fill, begin, ops, r)
        if stop - base > len(live):
            live = np.zeros(2 * (stop - base), np.uint8)
            deque = np.empty(2 * (stop - base), np.int64)
        head = 0
        tail = 0
        newest = base - 1
        oldest = base
        for p in range(fill[r, 0], fill[r, 1]):
            if not mask[p]:
                continue
            newest = p
            live[p - base] = 1
            x = values[p]
            while tail > head and (values[deque[tail - 1]] <= x if largest else values[deque[tail - 1]] >= x):
                tail -= 1
            deque[tail] = p
            tail += 1
        for k in range(run_first[r], run_first[r + 1]):
            again = False
            for o in range(begin[k], begin[k + 1]):
                adding = ops[o] > 0
                p = abs(ops[o]) - 1
                if not mask[p]:
                    continue
                live[p - base] = adding
                if adding:
                    again = again or p < newest
                    newest = max(newest, p)
                    oldest = min(oldest, p)
                if again:
                    continue
                if adding:
                    x = values[p]
                    while tail > head and (values[deque[tail - 1]] <= x if largest else values[deque[tail - 1]] >= x):
                        tail -= 1
                    if tail == len(deque):
                        for j in range(head, tail):
                            deque[j - head] = deque[j]
                        tail -= head
                        head = 0
                    deque[tail] = p
                    tail += 1
                elif tail > head and p >= deque[head]:
                    while oldest < p and not live[oldest - base]:
                        oldest += 1
                    again = oldest < p or p > deque[head]
                    head += 1
            if again:
                head = 0
                tail = 0
                for p in range(oldest, newest + 1):
                    if not live[p - base]:
                        continue
                    x = values[p]
                    while tail > head and (values[deque[tail - 1]] <= x if largest else values[deque[tail - 1]] >= x):
                        tail -= 1
                    deque[tail] = p
                    tail += 1
            found[k] = tail > head
            if tail > head:
                out[k] = values[deque[head]]
        live[: stop - base] = 0


@njit(cache=True)
def ends(run_first, fill, begin, ops, mask, last, out):  # type: ignore[no-untyped-def]
    """out[k]: the walk index of the first (or last) row that counts in window k, -1 where none does."""
    live = np.zeros(64, np.uint8)
    for r in range(len(run_first) - 1):
        if run_first[r] == run_first[r + 1]:
            continue
        base, stop = _bounds(run_first, fill, begin, ops, r)
        if stop - base > len(live):
            live = np.zeros(2 * (stop - base), np.uint8)
        n = 0
        low = stop  # the rows that count lie in low .. high
        high = base - 1
        for p in range(fill[r, 0], fill[r, 1]):
            if mask[p]:
                live[p - base] = 1
                n += 1
                low = min(low, p)
                high = p
        for k in range(run_first[r], run_first[r + 1]):
            for o in range(begin[k], begin[k + 1]):
                p = abs(ops[o]) - 1
                if not mask[p]:
                    continue
                if ops[o] > 0:
                    live[p - base] = 1
                    n += 1
                    low = min(low, p)
                    high = max(high, p)
                else:
                    live[p - base] = 0
                    n -= 1
            if n == 0:
                low = stop
                high = base - 1
                out[k] = -1
                continue
            while not live[low - base]:
                low += 1
            while not live[high - base]:
                high -= 1
            out[k] = high if last else low
        live[: stop - base] = 0


@njit(cache=True)
def _slot(keys, counts, key):  # type: ignore[no-untyped-def]
    last = np.uint64(len(keys) - 1)
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = (h ^ (h >> np.uint64(32))) & last
    while counts[at] >= 0 and keys[at] != key:
        at = (at + np.uint64(1)) & last
    return at


@njit(cache=True)
def distincts(run_first, fill, begin, ops, mask, values, out):  # type: ignore[no-untyped-def]
    """out[k]: how many different values (int64: codes, numbers, bits of doubles) window k holds."""
    keys = np.zeros(_SLOTS, np.int64)
    counts = np.full(_SLOTS, -1, np.int64)
    for r in range(len(run_first) - 1):
        used = 0
        n = 0
        filled = fill[r, 1] - fill[r, 0]
        steps = filled
        if run_first[r + 1] > run_first[r]:
            steps += begin[run_first[r + 1]] - begin[run_first[r]]
        k = run_first[r]
        for step in range(steps):
            if step < filled:
                p = fill[r, 0] + step
                adding = True
            else:
                o = begin[run_first[r]] + step - filled
                while o >= begin[k + 1]:
                    out[k] = n
                    k += 1
                adding = ops[o] > 0
                p = abs(ops[o]) - 1
            if not mask[p]:
                continue
            at = _slot(keys, counts, values[p])
            if adding:
                if counts[at] < 0:
                    keys[at] = values[p]
                    counts[at] = 0
                    used += 1
                n += counts[at] == 0
                counts[at] += 1
                if 2 * used > len(keys):
                    old_keys, old_counts = keys, counts
                    keys = np.zeros(max(_SLOTS, 1 << int(np.ceil(np.log2(4 * n + 1)))), np.int64)
                    counts = np.full(len(keys), -1, np.int64)
                    used = n
                    for j in range(len(old_keys)):
                        if old_counts[j] > 0:
                            at = _slot(keys, counts, old_keys[j])
                            keys[at] = old_keys[j]
                            counts[at] = old_counts[j]
            else:
                counts[at] -= 1
                n -= counts[at] == 0
        while k < run_first[r + 1]:
            out[k] = n
            k += 1
        if len(keys) > 4096:  # a hot group's table is not cleared for each small one after it
            keys = np.zeros(_SLOTS, np.int64)
            counts = np.full(_SLOTS, -1, np.int64)
        counts[:] = -1
