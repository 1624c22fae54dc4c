"""sum, avg and stddev of doubles, exact to the last bit: a sum must not depend on the order rows came and went in.

A superaccumulator: a fixed-point number wide enough for every double, in limbs of 32 bits with deferred carries
(Kulisch; the small superaccumulator of R. Neal, "Fast exact summation using small and large superaccumulators", 2015).
Adding and removing are exact, so a sliding window ends where a fresh one would; reads are rounded once, half to even.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_LIMBS = 68  # 2046 + 53 bits and room for carries
_LOW = np.int64(0xFFFFFFFF)
LARGEST_SQUARED = 1e150  # beyond it a square has no exact pair of doubles


@njit(cache=True)
def _add(limbs, x, sign):  # type: ignore[no-untyped-def]
    mantissa, exponent = math.frexp(x)
    place = exponent - 53 + 1074  # of the lowest bit, in units of the smallest double
    m = np.int64(mantissa * 9007199254740992.0)
    if place < 0:  # subnormal: its low bits are zero
        m >>= -place
        place = 0
    if m < 0:
        m = -m
        sign = -sign
    j = place >> 5
    shift = place & 31
    low = (m & _LOW) << shift
    high = (m >> 32) << shift
    limbs[j] += sign * (low & _LOW)
    limbs[j + 1] += sign * ((low >> 32) + (high & _LOW))
    limbs[j + 2] += sign * (high >> 32)


@njit(cache=True)
def _round(limbs, scratch):  # type: ignore[no-untyped-def]
    """The double nearest to the accumulator."""
    n = len(limbs)
    for j in range(n):
        scratch[j] = limbs[j]
    for j in range(n - 1):
        scratch[j + 1] += scratch[j] >> 32
        scratch[j] &= _LOW
    negative = scratch[n - 1] < 0
    if negative:
        for j in range(n):
            scratch[j] = -scratch[j]
        for j in range(n - 1):
            scratch[j + 1] += scratch[j] >> 32
            scratch[j] &= _LOW
    top = n - 1
    while top >= 0 and scratch[top] == 0:
        top -= 1
    if top < 0:
        return 0.0
    bits = 0
    while scratch[top] >> bits:
        bits += 1
    lowest = top * 32 + bits - 53  # place of the last bit that a double keeps
    if lowest <= 0:
        m = np.int64(0)
        for j in range(top, -1, -1):
            m = (m << 32) | scratch[j]
        value = math.ldexp(np.float64(m), -1074)
        return -value if negative else value
    j = lowest >> 5
    shift = lowest & 31
    m = scratch[j] >> shift
    taken = 32 - shift
    i = j + 1
    while i <= top:
        m |= scratch[i] << taken
        taken += 32
        i += 1
    half = lowest - 1
    rest_half = (scratch[half >> 5] >> (half & 31)) & 1 == 1
    rest_more = (scratch[half >> 5] & ((np.int64(1) << (half & 31)) - 1)) != 0
    i = (half >> 5) - 1
    while i >= 0 and not rest_more:
        rest_more = scratch[i] != 0
        i -= 1
    if rest_half and (rest_more or m & 1):
        m += 1
    value = math.ldexp(np.float64(m), lowest - 1074)
    return -value if negative else value


@njit(cache=True)
def sums(run_first, fill, begin, ops, marks, bit, values, counts, out):  # type: ignore[no-untyped-def]
    """out[k]: the sum of the window, correctly rounded; infinite where it is beyond the doubles."""
    limbs = np.zeros(_LIMBS, np.int64)
    scratch = np.zeros(_LIMBS, np.int64)
    for r in range(len(run_first) - 1):
        limbs[:] = 0
        n = 0
        for p in range(fill[r, 0], fill[r, 1]):
            if (marks[p] >> bit) & 1:
                n += 1
                _add(limbs, values[p], 1)
        for k in range(run_first[r], run_first[r + 1]):
            for o in range(begin[k], begin[k + 1]):
                sign = 1 if ops[o] > 0 else -1
                p = sign * ops[o] - 1
                if (marks[p] >> bit) & 1:
                    n += sign
                    _add(limbs, values[p], sign)
            counts[k] = n
            out[k] = _round(limbs, scratch)


@njit(cache=True)
def _product(a, b):  # type: ignore[no-untyped-def]
    """a * b as a rounded double and its exact error (Dekker, Veltkamp)."""
    c = 134217729.0 * a
    a1 = c - (c - a)
    a2 = a - a1
    c = 134217729.0 * b
    b1 = c - (c - b)
    b2 = b - b1
    p = a * b
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


@njit(cache=True)
def _pair(limbs, scratch):  # type: ignore[no-untyped-def]
    high = _round(limbs, scratch)
    _add(limbs, high, -1)
    low = _round(limbs, scratch)
    _add(limbs, high, 1)
    return high, low


@njit(cache=True)
def stddevs(run_first, fill, begin, ops, marks, bit, values, counts, out):  # type: ignore[no-untyped-def]
    """Sample standard deviation from the exact sums of x and x**2; infinite where |x| > LARGEST_SQUARED was met."""
    first_power = np.zeros(_LIMBS, np.int64)
    second_power = np.zeros(_LIMBS, np.int64)
    scratch = np.zeros(_LIMBS, np.int64)
    for r in range(len(run_first) - 1):
        first_power[:] = 0
        second_power[:] = 0
        n = 0
        huge = 0
        for p in range(fill[r, 0], fill[r, 1]):
            if (marks[p] >> bit) & 1:
                n += 1
                if abs(values[p]) > LARGEST_SQUARED:
                    huge += 1
                    continue
                _add(first_power, values[p], 1)
                square, error = _product(values[p], values[p])
                _add(second_power, square, 1)
                _add(second_power, error, 1)
        for k in range(run_first[r], run_first[r + 1]):
            for o in range(begin[k], begin[k + 1]):
                sign = 1 if ops[o] > 0 else -1
                p = sign * ops[o] - 1
                if (marks[p] >> bit) & 1:
                    n += sign
                    if abs(values[p]) > LARGEST_SQUARED:
                        huge += sign
                        continue
                    _add(first_power, values[p], sign)
                    square, error = _product(values[p], values[p])
                    _add(second_power, square, sign)
                    _add(second_power, error, sign)
            counts[k] = n
            if n < 2:
                continue
            if huge:
                out[k] = np.inf
                continue
            s1, e1 = _pair(first_power, scratch)
            s2, e2 = _pair(second_power, scratch)
            p, q = _product(np.float64(n), s2)
            q += n * e2
            u, v = _product(s1, s1)
            v += 2.0 * s1 * e1
            spread = (p - u) + (q - v)
            out[k] = np.sqrt(max(spread, 0.0) / (np.float64(n) * np.float64(n - 1)))
