"""min, max, first, last and count_distinct: aggregates of single rows, not of sums."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel

# Slots of the table of distinct values: enough for most windows.
_SLOTS = 256


@kernel
def bounds(run_first, fill, begin, ops, r):
    """The least walk index of run r and one past its greatest."""
    a, b = fill[r, 0], fill[r, 1]
    for o in range(begin[run_first[r]], begin[run_first[r + 1]]):
        p = abs(ops[o]) - 1
        a = min(a, p)
        b = max(b, p + 1)
    return a, b


@kernel(inline="always")
def _only_adds(begin, ops, k):
    removed = 0
    for o in range(begin[k], begin[k + 1]):
        removed += ops[o] < 0
    return removed == 0


@kernel(inline="always")
def is_scanned(run_first, begin, ops, r):
    """Whether run r has one row, the most frequent in small batches, whose window only grows: nothing is carried on."""
    return run_first[r] + 1 == run_first[r + 1] and _only_adds(begin, ops, run_first[r])


@kernel
def _scan_extremes(run_first, fill, begin, ops, marks, word, bit, values, column, largest, out, found):
    """As extremes, of the runs that are scanned; returns how many others have rows.

    Like the other scans it allocates nothing, and what it calls is inlined: in a function that allocates an array, and
    around a call that is handed one, Numba counts references, which takes longer than such a window.
    """
    others = 0
    for r in range(len(run_first) - 1):
        k = run_first[r]
        if not is_scanned(run_first, begin, ops, r):
            others += k < run_first[r + 1]
            continue
        best = values[fill[r, 0], column]
        some = False
        filled = fill[r, 1] - fill[r, 0]
        for step in range(filled + begin[k + 1] - begin[k]):
            p = fill[r, 0] + step if step < filled else ops[begin[k] + step - filled] - 1
            if not (marks[p, word] >> bit) & 1:
                continue
            x = values[p, column]
            if not some:
                best = x
                some = True
            best = max(best, x) if largest else min(best, x)
        found[k] = some
        out[k] = best if some else 0
    return others


@kernel
def extremes(run_first, fill, begin, ops, marks, word, bit, values, column, largest, out, found):
    """out[k]: the least (or largest) value of window k where found[k].

    A run of one row, the most frequent in small batches, is scanned. Else a monotonic deque; where a row is added
    or removed in the middle of a window, which only late rows cause, the deque is rebuilt from the window's rows.
    """
    if _scan_extremes(run_first, fill, begin, ops, marks, word, bit, values, column, largest, out, found) == 0:
        return
    deque = np.empty(64, np.int64)
    live = np.zeros(64, np.uint8)
    for r in range(len(run_first) - 1):
        if run_first[r] == run_first[r + 1] or is_scanned(run_first, begin, ops, r):
            continue
        base, stop = bounds(run_first, fill, begin, ops, r)
        if stop - base > len(live):
            live = np.zeros(2 * (stop - base), np.uint8)
            deque = np.empty(2 * (stop - base), np.int64)
        # the window to fill
        head = tail = len(deque)
        newest = base - 1
        oldest = base
        best = values[base, column]
        for p in range(fill[r, 1] - 1, fill[r, 0] - 1, -1):  # from the last, so that nothing added is removed again
            counted = (marks[p, word] >> bit) & 1
            live[p - base] = counted
            x = values[p, column]
            if counted and (head == tail or (x > best if largest else x < best)):
                newest = max(newest, p)
                best = x
                head -= 1
                deque[head] = p
        # its changes, by which the deque follows as long as rows come at its ends
        for k in range(run_first[r], run_first[r + 1]):
            again = False
            for o in range(begin[k], begin[k + 1]):
                adding = ops[o] > 0
                p = abs(ops[o]) - 1
                if not (marks[p, word] >> bit) & 1:
                    continue
                live[p - base] = adding
                if adding:
                    again = again or p < newest
                    newest = max(newest, p)
                    oldest = min(oldest, p)
                if again:
                    continue
                if adding:
                    x = values[p, column]
                    while tail > head and (
                        values[deque[tail - 1], column] <= x if largest else values[deque[tail - 1], column] >= x
                    ):
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
            # the deque of all rows of the window
            if again:
                head = 0
                tail = 0
                for p in range(oldest, newest + 1):
                    if not live[p - base]:
                        continue
                    x = values[p, column]
                    while tail > head and (
                        values[deque[tail - 1], column] <= x if largest else values[deque[tail - 1], column] >= x
                    ):
                        tail -= 1
                    deque[tail] = p
                    tail += 1
            found[k] = tail > head
            out[k] = values[deque[head], column] if tail > head else 0
        live[: stop - base] = 0


@kernel
def _scan_ends(run_first, fill, begin, ops, marks, word, bit, values, column, last, out, found):
    """As ends, of the runs that are scanned; returns how many others have rows."""
    others = 0
    for r in range(len(run_first) - 1):
        k = run_first[r]
        if not is_scanned(run_first, begin, ops, r):
            others += k < run_first[r + 1]
            continue
        at = -1
        for o in range(begin[k], begin[k + 1]):
            p = ops[o] - 1
            if (marks[p, word] >> bit) & 1 and (at < 0 or (p > at if last else p < at)):
                at = p
        for step in range(fill[r, 1] - fill[r, 0]):
            p = fill[r, 1] - 1 - step if last else fill[r, 0] + step
            if at >= 0 and (p < at if last else p > at):
                break
            if (marks[p, word] >> bit) & 1:
                at = p
                break
        found[k] = at >= 0
        out[k] = values[at, column] if at >= 0 else 0
    return others


@kernel
def ends(run_first, fill, begin, ops, marks, word, bit, values, column, last, out, found):
    """out[k]: the value of the first (or last) row that counts in window k, where found[k]."""
    if _scan_ends(run_first, fill, begin, ops, marks, word, bit, values, column, last, out, found) == 0:
        return
    live = np.zeros(64, np.uint8)
    for r in range(len(run_first) - 1):
        if run_first[r] == run_first[r + 1] or is_scanned(run_first, begin, ops, r):
            continue
        base, stop = bounds(run_first, fill, begin, ops, r)
        if stop - base > len(live):
            live = np.zeros(2 * (stop - base), np.uint8)
        # the window to fill
        n = 0
        low = stop  # the rows that count lie in low .. high
        high = base - 1
        for p in range(fill[r, 0], fill[r, 1]):
            if (marks[p, word] >> bit) & 1:
                live[p - base] = 1
                n += 1
                low = min(low, p)
                high = p
        # its changes, and its ends as far as they have moved
        for k in range(run_first[r], run_first[r + 1]):
            for o in range(begin[k], begin[k + 1]):
                p = abs(ops[o]) - 1
                if not (marks[p, word] >> bit) & 1:
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
                out[k] = 0
                found[k] = 0
                continue
            while not live[low - base]:
                low += 1
            while not live[high - base]:
                high -= 1
            out[k] = values[high if last else low, column]
            found[k] = 1
        live[: stop - base] = 0


@kernel(inline="always")
def _slot(keys, owners, run, key):
    """The slot of the key, or the free one for it."""
    last = np.uint64(len(keys) - 1)
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = (h ^ (h >> np.uint64(32))) & last
    while owners[at] == run and keys[at] != key:
        at = (at + np.uint64(1)) & last
    return at


@kernel
def _table(slots):
    return np.zeros(slots, np.int64), np.zeros(slots, np.int64), np.full(slots, -1, np.int64)


@kernel
def _regrown(keys, counts, owners, run, n):
    """A table with the run's n values and room for more."""
    new_keys, new_counts, new_owners = _table(max(_SLOTS, 1 << int(np.ceil(np.log2(4 * n + 1)))))
    for j in range(len(keys)):
        if owners[j] == run and counts[j] > 0:
            at = _slot(new_keys, new_owners, run, keys[j])
            new_owners[at] = run
            new_keys[at] = keys[j]
            new_counts[at] = counts[j]
    return new_keys, new_counts, new_owners


@kernel
def _distincts(
    run,
    first,
    last,
    start,
    stop,
    begin,
    ops,
    marks,
    word,
    bit,
    values,
    column,
    out,
    keys,
    counts,
    owners,
    used,
    n,
    k,
    step,
):
    """Walk one run from `step` on until it ends or the table is full: (used, n, k, step) to continue from.

    It allocates nothing: in a function that allocates an array Numba counts references at every step.
    """
    filled = stop - start
    steps = filled
    if last > first:
        steps += begin[last] - begin[first]
    while step < steps and 2 * used <= len(keys):
        if step < filled:
            p = start + step
            adding = True
        else:
            o = begin[first] + step - filled
            while o >= begin[k + 1]:
                out[k] = n
                k += 1
            adding = ops[o] > 0
            p = abs(ops[o]) - 1
        step += 1
        if not (marks[p, word] >> bit) & 1:
            continue
        at = _slot(keys, owners, run, values[p, column])
        if adding:
            if owners[at] != run:
                owners[at] = run
                keys[at] = values[p, column]
                counts[at] = 0
                used += 1
            n += counts[at] == 0
            counts[at] += 1
        else:
            counts[at] -= 1
            n -= counts[at] == 0
    if step == steps:
        while k < last:
            out[k] = n
            k += 1
    return used, n, k, step


@kernel
def _scan_distincts(run_first, fill, begin, ops, marks, word, bit, values, column, out, keys, owners):
    """As distincts, of the runs that are scanned and have room in the table; returns how many others have rows."""
    others = 0
    for r in range(len(run_first) - 1):
        k = run_first[r]
        filled = fill[r, 1] - fill[r, 0]
        rows = filled + begin[run_first[r + 1]] - begin[k]
        if 2 * rows > len(keys) or not is_scanned(run_first, begin, ops, r):
            others += k < run_first[r + 1]
            continue
        n = 0
        for step in range(rows):
            p = fill[r, 0] + step if step < filled else ops[begin[k] + step - filled] - 1
            if (marks[p, word] >> bit) & 1:
                at = _slot(keys, owners, r, values[p, column])
                n += owners[at] != r
                owners[at] = r
                keys[at] = values[p, column]
        out[k] = n
    return others


@kernel
def distincts(run_first, fill, begin, ops, marks, word, bit, values, column, out):
    """out[k]: how many different values (int64: codes, numbers, bits of doubles) window k holds.

    A slot of the table is taken where `owners` names the run, so that nothing has to be cleared for the next one.
    """
    keys, counts, owners = _table(_SLOTS)
    if _scan_distincts(run_first, fill, begin, ops, marks, word, bit, values, column, out, keys, owners) == 0:
        return
    for r in range(len(run_first) - 1):
        rows = fill[r, 1] - fill[r, 0] + begin[run_first[r + 1]] - begin[run_first[r]]
        if 2 * rows <= _SLOTS and is_scanned(run_first, begin, ops, r):
            continue
        first, last = run_first[r], run_first[r + 1]
        used, n, k, step = 0, 0, first, 0
        while True:
            used, n, k, step = _distincts(
                r,
                first,
                last,
                fill[r, 0],
                fill[r, 1],
                begin,
                ops,
                marks,
                word,
                bit,
                values,
                column,
                out,
                keys,
                counts,
                owners,
                used,
                n,
                k,
                step,
            )
            if 2 * used <= len(keys):
                break
            keys, counts, owners = _regrown(keys, counts, owners, r, n)
            used = n
        if len(keys) > 4096:  # a hot group's table is too far apart for small ones
            keys, counts, owners = _table(_SLOTS)
