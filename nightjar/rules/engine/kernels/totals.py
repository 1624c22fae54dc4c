"""count, sum, avg and stddev of integers: exact, in whatever order rows were added.

Every kernel here and beside takes the same description of windows (see windows.py): `run_first, fill, begin, ops`, then
`marks` and, but for count, `values`, both in the order of the walk. A row counts where `bit` of its marks is set: it
meets the predicates and is not NULL.
"""

from __future__ import annotations

import math

import numpy as np

from nightjar.rules.engine.compiled import kernel

_LOW = np.int64(0xFFFFFFFF)
_SHORT = np.int64(1 << 31)  # the square of what is below it fits 63 bits
_EXACT = np.int64(1 << 53)  # doubles hold all integers up to here
_FRACTION = 6  # limbs behind the point that a mean needs: what it is divided by has at most 91 bits


@kernel
def counts(run_first, fill, begin, ops, marks, word, bit, out):
    """out[k]: rows that count in window k.

    Here and below rows that do not count are multiplied by 0 instead of skipped: the branch would be hard to predict.
    """
    for r in range(len(run_first) - 1):
        n = 0
        for p in range(fill[r, 0], fill[r, 1]):
            n += (marks[p, word] >> bit) & 1
        for k in range(run_first[r], run_first[r + 1]):
            for o in range(begin[k], begin[k + 1]):
                sign = (ops[o] >> 31) | 1
                n += sign * ((marks[sign * ops[o] - 1, word] >> bit) & 1)
            out[k] = n


@kernel
def sums(run_first, fill, begin, ops, marks, word, bit, values, column, scale, before, exact, means, beyond, some):
    """exact[k]: the sum of window k, its low 64 bits where beyond[k] says that 64 do not hold it; means[k]: the mean of
    values / scale, where some[k] says that any row counts. Returns how many sums exceed 64 bits.

    The sum is held in two words of 32 bits with room for carries, so that no window can overflow it. before: int64
    (rows, 8), what else window k holds (see kernels.steps), or empty.
    """
    overflown = 0
    for r in range(len(run_first) - 1):
        n = np.int64(0)
        high = np.int64(0)
        low = np.int64(0)
        for p in range(fill[r, 0], fill[r, 1]):
            counted = (marks[p, word] >> bit) & 1
            n += counted
            high += counted * (np.int64(values[p, column]) >> 32)
            low += counted * (np.int64(values[p, column]) & _LOW)
        for k in range(run_first[r], run_first[r + 1]):
            for o in range(begin[k], begin[k + 1]):
                sign = np.int64((ops[o] >> 31) | 1)
                p = sign * ops[o] - 1
                counted = sign * ((marks[p, word] >> bit) & 1)
                n += counted
                high += counted * (np.int64(values[p, column]) >> 32)
                low += counted * (np.int64(values[p, column]) & _LOW)
            all_n, all_high, all_low = n, high, low
            if len(before):
                all_n, all_high, all_low = n + before[k, 0], high + before[k, 1], low + before[k, 2]
            exact[k], means[k], beyond[k] = read(all_n, all_high, all_low, scale)
            some[k] = all_n > 0
            overflown += beyond[k]
    return overflown


@kernel
def read(n, high, low, scale):
    """(sum, mean, whether the sum is beyond 64 bits) of a sum in two words."""
    carried = high + (low >> 32)
    rest = low & _LOW
    exact = (carried << 32) + rest
    beyond = (carried + np.int64(1 << 31)) >> 32 != 0
    n = max(n, 1)
    divisor = n * scale
    if beyond or not -_EXACT <= exact <= _EXACT or divisor > _EXACT:
        return exact, _mean(n, carried, rest, np.int64(scale)), beyond
    return exact, exact / divisor, beyond  # of what doubles hold exactly, and so rounded once


@kernel
def _mean(n, high, low, scale):
    """(high * 2**32 + low) / (n * scale), rounded once."""
    words = np.zeros(_FRACTION + 3, np.int64)
    words[_FRACTION], words[_FRACTION + 1] = low, high
    sign = 1
    if high < 0:
        sign = -1
        words[_FRACTION], words[_FRACTION + 1] = -low, -high
    carry(words)
    left = divided(words, n)
    while scale > 1:  # in steps of what `divided` takes
        step = min(scale, np.int64(1_000_000_000))
        left |= divided(words, step)
        scale //= step
    words[0] |= left  # far below the last bit that is kept
    m, place = rounded(words, 0, used(words), 0)
    return math.ldexp(np.float64(sign * m), place - 32 * _FRACTION)


@kernel
def divided(limbs, divisor):
    """Divide carried limbs, 0 or more, by a number of at most 31 bits; 1 where there is a remainder, else 0."""
    left = np.int64(0)
    for j in range(len(limbs) - 1, -1, -1):
        whole = (left << 32) | limbs[j]
        limbs[j] = whole // divisor
        left = whole - limbs[j] * divisor
    return np.int64(left != 0)


@kernel
def used(limbs):
    """The number of limbs up to the highest that is not 0."""
    beyond = len(limbs)
    while beyond > 0 and limbs[beyond - 1] == 0:
        beyond -= 1
    return beyond


@kernel
def rounded(limbs, least, beyond, lowest_place):
    """(m, place): of m * 2**place with m of a double's 53 bits the nearest to the carried limbs, half to even.

    least, beyond: the range of limbs that may be nonzero; lowest_place: no place below it is kept.
    """
    if beyond == 0:
        return np.int64(0), lowest_place
    bits = 0
    while limbs[beyond - 1] >> bits:
        bits += 1
    lowest = max((beyond - 1) * 32 + bits - 53, lowest_place)  # place of the last bit that is kept
    j = lowest >> 5
    shift = lowest & 31
    m = limbs[j] >> shift
    taken = 32 - shift
    for i in range(j + 1, beyond):
        m |= limbs[i] << taken
        taken += 32
    if lowest == 0:
        return m, 0
    half = lowest - 1
    word = limbs[half >> 5]
    more = (word & ((np.int64(1) << (half & 31)) - 1)) != 0
    for i in range(least, half >> 5):
        more = more or limbs[i] != 0
    if (word >> (half & 31)) & 1 and (more or m & 1):
        m += 1
    return m, lowest


@kernel
def carry(limbs):
    """Bring all limbs but the last, the sign's, into 0 .. 2**32 - 1."""
    for j in range(len(limbs) - 1):
        limbs[j + 1] += limbs[j] >> 32
        limbs[j] &= _LOW


@kernel
def _long_square(x, sign, squares):
    """As square, of any number."""
    m = np.uint64(abs(x)) if x != np.int64(-(2**63)) else np.uint64(1) << np.uint64(63)
    a = np.int64(m >> np.uint64(32))
    b = np.int64(m & np.uint64(0xFFFFFFFF))
    bb = np.uint64(b) * np.uint64(b)
    ab = np.uint64(a) * np.uint64(b)
    aa = np.uint64(a) * np.uint64(a)
    squares[0] += sign * np.int64(bb & np.uint64(0xFFFFFFFF))
    squares[1] += sign * (np.int64(bb >> np.uint64(32)) + 2 * np.int64(ab & np.uint64(0xFFFFFFFF)))
    squares[2] += sign * (2 * np.int64(ab >> np.uint64(32)) + np.int64(aa & np.uint64(0xFFFFFFFF)))
    squares[3] += sign * np.int64(aa >> np.uint64(32))


@kernel(inline="always")
def square(x, sign, squares):
    """Add the square of x, or for a sign of -1 remove it, in four limbs of 32 bits with room for carries.

    Inlined, as `_short_spread` and what is in `order`: a call that is handed arrays counts references to each.
    """
    if -_SHORT < x < _SHORT:
        squares[0] += sign * (x * x & _LOW)
        squares[1] += sign * (x * x >> 32)
    else:
        _long_square(x, sign, squares)


@kernel(inline="always")
def _short_spread(n, high, low, squares_0, squares_1, squares_2, squares_3):
    """n * sum(x**2) - sum(x)**2 as a double, from exact integers in limbs of 32 bits; -1 if that may exceed 64 bits."""
    if squares_1 < _SHORT >> 1 and squares_2 == 0 and squares_3 == 0 and n < _SHORT >> 1:
        squared = (squares_1 << 32) + squares_0
        if np.float64(n) * np.float64(squared) < 4e18:  # then 64 bits hold all: no square of a sum is above that
            whole = (high << 32) + low
            return np.float64(n * squared - whole * whole)
    return -1.0


@kernel
def _spread(n, high, low, squares, s1, s2, total):
    """As _short_spread, of any size."""
    for j in range(4):
        s2[j] = squares[j]
    s2[4] = 0
    carry(s2)
    high += low >> 32
    low &= _LOW
    if high < 0:  # the square of the magnitude
        low = -low
        high = -high + (low >> 32)
        low &= _LOW
    s1[0] = low
    s1[1] = high & _LOW
    s1[2] = high >> 32
    for j in range(7):
        total[j] = 0
    for j in range(5):  # each product is below 2**63: n < 2**31
        product = s2[j] * n
        total[j] += product & _LOW
        total[j + 1] += product >> 32
    for i in range(3):
        for j in range(3):
            product = np.uint64(s1[i]) * np.uint64(s1[j])
            total[i + j] -= np.int64(product & np.uint64(0xFFFFFFFF))
            total[i + j + 1] -= np.int64(product >> np.uint64(32))
    carry(total)
    value = 0.0
    for j in range(6, -1, -1):
        value = value * 4294967296.0 + np.float64(total[j])
    return value


@kernel(inline="always")
def deviation_of(n, high, low, squares, scale, s1, s2, total):
    """The sample standard deviation; 0 where less than two rows count. s1, s2, total: scratch of 3, 5 and 7."""
    spread = _short_spread(n, high, low, squares[0], squares[1], squares[2], squares[3])
    if spread < 0:
        spread = _spread(n, high, low, squares, s1, s2, total)
    n = max(n, 2)  # the spread of less is 0
    return np.sqrt(spread / (np.float64(n) * np.float64(n - 1))) / scale


@kernel
def spreads(
    run_first,
    fill,
    begin,
    ops,
    marks,
    word,
    bit,
    values,
    column,
    scale,
    before,
    exact,
    means,
    beyond,
    some,
    deviations,
    several,
):
    """As sums; deviations[k]: the sample standard deviation (n - 1), where several[k] says that two rows count."""
    overflown = 0
    squares = np.zeros(4, np.int64)
    all_squares = squares if len(before) == 0 else np.zeros(4, np.int64)
    s1 = np.zeros(3, np.int64)
    s2 = np.zeros(5, np.int64)
    total = np.zeros(7, np.int64)
    for r in range(len(run_first) - 1):
        # the window to fill
        n = np.int64(0)
        high = np.int64(0)
        low = np.int64(0)
        low_squares = np.int64(0)
        high_squares = np.int64(0)
        some_long = np.int64(0)
        for p in range(fill[r, 0], fill[r, 1]):
            counted = (marks[p, word] >> bit) & 1
            x = np.int64(values[p, column])
            n += counted
            high += counted * (x >> 32)
            low += counted * (x & _LOW)
            if -_SHORT < x < _SHORT:
                low_squares += counted * (x * x & _LOW)
                high_squares += counted * (x * x >> 32)
            else:
                some_long |= counted
        squares[0], squares[1], squares[2], squares[3] = low_squares, high_squares, 0, 0
        if some_long:  # by themselves, which keeps the loop above short
            for p in range(fill[r, 0], fill[r, 1]):
                x = np.int64(values[p, column])
                if (marks[p, word] >> bit) & 1 and not -_SHORT < x < _SHORT:
                    _long_square(x, 1, squares)
        # its changes from row to row
        for k in range(run_first[r], run_first[r + 1]):
            for o in range(begin[k], begin[k + 1]):
                sign = np.int64((ops[o] >> 31) | 1)
                p = sign * ops[o] - 1
                if (marks[p, word] >> bit) & 1:
                    n += sign
                    high += sign * (np.int64(values[p, column]) >> 32)
                    low += sign * (np.int64(values[p, column]) & _LOW)
                    square(np.int64(values[p, column]), sign, squares)
            # with what it holds of steps
            all_n, all_high, all_low = n, high, low
            if len(before):
                all_n, all_high, all_low = n + before[k, 0], high + before[k, 1], low + before[k, 2]
                for w in range(4):
                    all_squares[w] = squares[w] + before[k, 3 + w]
            exact[k], means[k], exceeds = read(all_n, all_high, all_low, scale)
            overflown += exceeds
            beyond[k] = exceeds
            some[k] = all_n > 0  # it may be the same array, where neither sum nor mean is asked for
            several[k] = all_n > 1
            deviations[k] = deviation_of(all_n, all_high, all_low, all_squares, scale, s1, s2, total)
    return overflown
