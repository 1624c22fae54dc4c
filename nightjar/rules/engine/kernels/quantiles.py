"""median and percentile: the value at a rank, or a point between two neighbours (S17.2).

How it works: a *band* is what is held of a window's values: those around the wanted rank, each different one with how
often it occurs, and how many values are below them. A row that enters or leaves the window beside the band is only
counted, so a row costs the same however long the window is. Where the wanted rank leaves the band, or the band is full,
it is chosen again from all values of the window, by radix select, whose time is linear in whatever order they are.

Values are int64 in their own order: integers as they are, doubles as `_key` makes them.
"""

from __future__ import annotations

import math

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels import floats, totals
from nightjar.rules.engine.kernels.order import bounds, is_scanned
from nightjar.rules.functions import LIMBS, WHOLE

# A band: values of the window, those below the band, in it, its different values (some may no longer occur), how many
# of these it may have, the place of the last answer among them, how many values are before that place, and whether the
# band has all values below (1) and above (2).
VALUES, BELOW, INSIDE, SIZE, LIMIT, PLACE, BEFORE, OPEN = range(8)
HEAD = 8
# Different values on either side of the wanted rank, at least; of n values, as many as make choosing rare and moving
# them cheap: this many times the root of n.
_LEAST, _ROOTS = 64, 4
# Room for bands of windows that are not carried.
_ROOM = 8192
_BUCKETS = 1024
_FEW = 48  # as many are sorted by insertion
_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)
_LOW = np.int64(0xFFFFFFFF)


@kernel(inline="always")
def _key(values, p, column, is_double):
    """An int64 in the order of the values. Of a double its bits; the lower it is below 0, the larger they are."""
    x = np.int64(values[p, column])
    return x ^ _MAGNITUDE if is_double and x < 0 else x


@kernel
def _sort_few(values, n):
    for i in range(1, n):
        x = values[i]
        j = i - 1
        while j >= 0 and values[j] > x:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = x


@kernel
def _sort(values, n, scratch):
    """Merge sort of values[:n], bottom up from runs of 16: its time does not depend on the order. scratch: of n."""
    for a in range(0, n, 16):
        _sort_few(values[a:], min(16, n - a))
    width = 16
    while width < n:
        for a in range(0, n - width, 2 * width):
            middle = a + width
            stop = min(middle + width, n)
            if values[middle - 1] <= values[middle]:
                continue
            for i in range(a, middle):
                scratch[i - a] = values[i]
            i, j, k = 0, middle, a
            while i < width:
                if j < stop and values[j] < scratch[i]:
                    values[k] = values[j]
                    j += 1
                else:
                    values[k] = scratch[i]
                    i += 1
                k += 1
        width *= 2


@kernel
def _select(pool, n, rank, spare, buckets):
    """The value of this rank (from 0) among pool[:n], which stays as it is. spare: of n; buckets: of _BUCKETS."""
    least = most = pool[0]
    for i in range(n):
        least = min(least, pool[i])
        most = max(most, pool[i])
    source = pool
    while least < most:
        if n <= _FEW:
            for i in range(n):
                spare[i] = source[i]
            _sort_few(spare, n)
            return spare[rank]
        # the bucket of the rank: each has the values of a part of the range
        begin = np.uint64(least)
        shift = np.uint64(0)
        while (np.uint64(most) - begin) >> shift >= np.uint64(_BUCKETS):
            shift += np.uint64(1)
        buckets[:] = 0
        for i in range(n):
            buckets[np.int64((np.uint64(source[i]) - begin) >> shift)] += 1
        wanted = 0
        while buckets[wanted] <= rank:
            rank -= buckets[wanted]
            wanted += 1
        # its values
        kept = 0
        low, high = most, least
        for i in range(n):
            x = source[i]
            if np.int64((np.uint64(x) - begin) >> shift) == wanted:
                spare[kept] = x
                kept += 1
                low = min(low, x)
                high = max(high, x)
        source = spare
        n = kept
        least, most = low, high
    return least


@kernel(inline="always")
def _ranks(n, share, whole):
    """(rank, next rank, weight): the answer is so many parts of `whole` of the way from one value to the next one."""
    position = (n - 1) * share
    rank = position // whole
    weight = position - rank * whole
    return rank, rank + (weight > 0), weight


@kernel
def choose(band, keys, counts, pool, n, share, whole):
    """Choose the band anew, of the values pool[:n]."""
    band[:] = 0
    band[VALUES] = n
    band[LIMIT] = min(4 * _LEAST, len(keys))
    band[OPEN] = 3
    if n == 0:
        return
    spare, buckets = np.empty(n, np.int64), np.empty(_BUCKETS, np.int64)
    rank, following, _ = _ranks(n, share, whole)
    reach = min(max(_LEAST, int(_ROOTS * math.sqrt(n))), len(keys) // 4)
    a, b = max(rank - reach, 0), min(following + reach, n - 1)
    low, high = _select(pool, n, a, spare, buckets), _select(pool, n, b, spare, buckets)
    below = of_low = of_high = between = 0
    for i in range(n):
        x = pool[i]
        if x < low:
            below += 1
        elif x == low:
            of_low += 1
        elif x < high:
            spare[between] = x
            between += 1
        elif x == high:
            of_high += 1
    _sort(spare, between, keys)
    keys[0], counts[0] = low, of_low
    size = 1
    for i in range(between):
        if spare[i] != keys[size - 1]:
            keys[size], counts[size] = spare[i], 0
            size += 1
        counts[size - 1] += 1
    if high > low:
        keys[size], counts[size] = high, of_high
        size += 1
    band[BELOW] = band[BEFORE] = below
    band[INSIDE] = of_low + between + of_high
    band[SIZE] = size
    band[LIMIT] = 4 * reach
    band[OPEN] = (a == 0) + 2 * (b == n - 1)


@kernel(inline="always")
def change(band, keys, counts, x, sign):
    """Add a value to the window, or with sign -1 remove it; returns whether the band has room for another one."""
    size = band[SIZE]
    band[VALUES] += sign
    if not band[OPEN] & 1 and x < keys[0]:
        band[BELOW] += sign
        band[BEFORE] += sign
    elif band[OPEN] & 2 or x <= keys[size - 1]:
        a, b = np.int64(0), size
        while a < b:
            middle = (a + b) >> 1
            if keys[middle] < x:
                a = middle + 1
            else:
                b = middle
        if a == size or keys[a] != x:
            for i in range(size, a, -1):
                keys[i] = keys[i - 1]
                counts[i] = counts[i - 1]
            keys[a] = x
            counts[a] = 0
            band[SIZE] = size + 1
            band[PLACE] += a < band[PLACE]
        counts[a] += sign
        band[INSIDE] += sign
        if a < band[PLACE]:
            band[BEFORE] += sign
    return band[SIZE] < band[LIMIT]


@kernel(inline="always")
def _is_inside(band, rank, following):
    return band[BELOW] <= rank and following < band[BELOW] + band[INSIDE]


@kernel
def _neighbours(band, keys, counts, rank, following):
    """The values of two ranks that are in the band, the second not below the first and at most one above."""
    at, before = band[PLACE], band[BEFORE]
    while before > rank:
        at -= 1
        before -= counts[at]
    while before + counts[at] <= rank:
        before += counts[at]
        at += 1
    band[PLACE], band[BEFORE] = at, before
    after = at
    if following >= before + counts[at]:
        after += 1
        while counts[after] == 0:
            after += 1
    return keys[at], keys[after]


@kernel
def _between(low, high, weight, whole, scale, is_double, scratch):
    """The double nearest to the point that is weight / whole of the way from low to high; scratch: see _scratch."""
    bits, doubles, limbs, magnitude, words = scratch
    if low == high or weight == 0:
        high, weight, whole = low, np.int64(0), np.int64(1)
    if is_double:
        bits[0] = low ^ _MAGNITUDE if low < 0 else low
        bits[1] = high ^ _MAGNITUDE if high < 0 else high
        if weight == 0:
            return doubles[0] + 0.0  # -0.0 is 0.0, as in a mean
        limbs[:] = 0
        floats.add(limbs, doubles[0], whole - weight)
        floats.add(limbs, doubles[1], weight)
        return floats.mean_of(limbs, whole, magnitude, words)
    # as the mean of so many of each
    upper = (low >> 32) * (whole - weight) + (high >> 32) * weight
    lower = (low & _LOW) * (whole - weight) + (high & _LOW) * weight
    return totals.read(whole, upper, lower, scale)[1]


@kernel
def _scratch():
    bits = np.zeros(2, np.int64)
    return bits, bits.view(np.float64), np.zeros(LIMBS, np.int64), np.zeros(LIMBS, np.int64), np.zeros(4, np.int64)


@kernel
def _fraction(share):
    """The share and what it is a share of, without common divisors."""
    divisor = math.gcd(share, WHOLE)
    return share // divisor, WHOLE // divisor


@kernel
def _scan(run_first, fill, begin, ops, marks, word, bit, values, column, is_double, share, scale, out, found):
    """As quantiles, of the runs that are scanned; returns how many others have rows."""
    share, whole = _fraction(share)
    scratch = _scratch()
    most = 0
    for r in range(len(run_first) - 1):
        most = max(most, fill[r, 1] - fill[r, 0] + begin[run_first[r + 1]] - begin[run_first[r]])
    pool, spare, buckets = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(_BUCKETS, np.int64)
    others = 0
    for r in range(len(run_first) - 1):
        k = run_first[r]
        if not is_scanned(run_first, begin, ops, r):
            others += k < run_first[r + 1]
            continue
        n = 0
        filled = fill[r, 1] - fill[r, 0]
        for step in range(filled + begin[k + 1] - begin[k]):
            p = fill[r, 0] + step if step < filled else ops[begin[k] + step - filled] - 1
            if (marks[p, word] >> bit) & 1:
                pool[n] = _key(values, p, column, is_double)
                n += 1
        found[k] = n > 0
        out[k] = 0.0
        if n == 0:
            continue
        rank, following, weight = _ranks(n, share, whole)
        if n <= _FEW:
            _sort_few(pool, n)
            low, high = pool[rank], pool[following]
        else:
            low = high = _select(pool, n, rank, spare, buckets)
            if weight:
                high = _select(pool, n, following, spare, buckets)
        out[k] = _between(low, high, weight, whole, scale, is_double, scratch)
    return others


@kernel
def quantiles(run_first, fill, begin, ops, marks, word, bit, values, column, is_double, share, scale, out, found):
    """out[k]: the value that `share` of the values of window k (in parts of WHOLE) lie below, where found[k].

    It is taken between the two values next to it, as by PERCENTILE_CONT, divided by scale, and rounded once. values:
    int32 or int64, or the bits of doubles. A run of one row is scanned, as in `order`.
    """
    if _scan(run_first, fill, begin, ops, marks, word, bit, values, column, is_double, share, scale, out, found) == 0:
        return
    share, whole = _fraction(share)
    scratch = _scratch()
    band, keys, counts = np.zeros(HEAD, np.int64), np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
    live, pool = np.zeros(64, np.uint8), np.empty(64, np.int64)
    for r in range(len(run_first) - 1):
        if run_first[r] == run_first[r + 1] or is_scanned(run_first, begin, ops, r):
            continue
        base, stop = bounds(run_first, fill, begin, ops, r)
        if stop - base > len(live):
            live, pool = np.zeros(2 * (stop - base), np.uint8), np.empty(2 * (stop - base), np.int64)
        # the window to fill
        n = 0
        oldest, newest = fill[r, 0], fill[r, 1] - 1  # all rows of the window are there or between
        for p in range(fill[r, 0], fill[r, 1]):
            if (marks[p, word] >> bit) & 1:
                live[p - base] = 1
                pool[n] = _key(values, p, column, is_double)
                n += 1
        choose(band, keys, counts, pool, n, share, whole)
        # its changes
        for k in range(run_first[r], run_first[r + 1]):
            has_room = True
            for o in range(begin[k], begin[k + 1]):
                sign = (ops[o] >> 31) | 1
                p = sign * ops[o] - 1
                if not (marks[p, word] >> bit) & 1:
                    continue
                live[p - base] = sign > 0
                oldest, newest = min(oldest, p), max(newest, p)
                if has_room:
                    has_room = change(band, keys, counts, _key(values, p, column, is_double), sign)
            rank, following, weight = _ranks(band[VALUES], share, whole)
            if not has_room or (band[VALUES] and not _is_inside(band, rank, following)):
                while oldest <= newest and not live[oldest - base]:
                    oldest += 1
                n = 0
                for p in range(oldest, newest + 1):
                    if live[p - base]:
                        pool[n] = _key(values, p, column, is_double)
                        n += 1
                choose(band, keys, counts, pool, n, share, whole)
                rank, following, weight = _ranks(n, share, whole)
            found[k] = band[VALUES] > 0
            out[k] = 0.0
            if band[VALUES]:
                low, high = _neighbours(band, keys, counts, rank, following)
                out[k] = _between(low, high, weight, whole, scale, is_double, scratch)
        live[: stop - base] = 0


@kernel
def _chosen(band, keys, counts, rows, marks, word, bit, values, column, is_double, share, whole):
    """Choose the band anew, of the values of these rows."""
    pool = np.empty(rows[1] - rows[0], np.int64)
    n = 0
    for p in range(rows[0], rows[1]):
        if (marks[p, word] >> bit) & 1:
            pool[n] = _key(values, p, column, is_double)
            n += 1
    choose(band, keys, counts, pool, n, share, whole)


@kernel
def _parts(state):
    places = (len(state) - HEAD) // 2
    return state[:HEAD], state[HEAD : HEAD + places], state[HEAD + places :]


@kernel
def move(state, old, new, marks, word, bit, values, column, is_double, share):
    """Move a carried state (a band, its values and how often each occurs) from one stretch of rows to another."""
    share, whole = _fraction(share)
    band, keys, counts = _parts(state)
    changed = new[0] - old[0] + new[1] - old[1]
    if changed == 0:
        return
    if 2 * changed < new[1] - new[0]:
        has_room = True
        for sign, a, b in ((1, old[1], new[1]), (-1, old[0], new[0])):
            for p in range(a, b):
                if has_room and (marks[p, word] >> bit) & 1:
                    has_room = change(band, keys, counts, _key(values, p, column, is_double), sign)
        # with the wanted rank about in its middle, so that windows which go on from there find theirs in it
        rank, following, _ = _ranks(band[VALUES], share, whole)
        half = band[LIMIT] // 8
        low = rank if band[OPEN] & 1 else rank - half
        high = following if band[OPEN] & 2 else following + half
        if has_room and band[VALUES] and _is_inside(band, low, high):
            return
    _chosen(band, keys, counts, new, marks, word, bit, values, column, is_double, share, whole)


@kernel
def answer(state, window, marks, word, bit, values, column, is_double, share, scale, out, found):
    """As quantiles, of the windows that begin in a carried stretch and end behind it; see carried.answer."""
    first, last, end, low, own, a, b = window
    share, whole = _fraction(share)
    scratch = _scratch()
    held, held_keys, held_counts = _parts(state)
    band, size = held.copy(), held[SIZE]
    keys, counts = np.empty(max(held[LIMIT], size), np.int64), np.empty(max(held[LIMIT], size), np.int64)
    keys[:size], counts[:size] = held_keys[:size], held_counts[:size]
    for k in range(first, last):
        has_room = True
        for sign, begin, behind in ((1, b, end[k] + own), (-1, a, low[k])):
            for p in range(begin, behind):
                if has_room and (marks[p, word] >> bit) & 1:
                    has_room = change(band, keys, counts, _key(values, p, column, is_double), sign)
        a, b = low[k], end[k] + own
        rank, following, weight = _ranks(band[VALUES], share, whole)
        if not has_room or (band[VALUES] and not _is_inside(band, rank, following)):
            _chosen(band, keys, counts, (a, b), marks, word, bit, values, column, is_double, share, whole)
            rank, following, weight = _ranks(band[VALUES], share, whole)
        found[k] = band[VALUES] > 0
        out[k] = 0.0
        if band[VALUES]:
            lower, higher = _neighbours(band, keys, counts, rank, following)
            out[k] = _between(lower, higher, weight, whole, scale, is_double, scratch)
