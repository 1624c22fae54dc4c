"""sum, avg and stddev of doubles, exact to the last bit: a sum must not depend on the order in which rows were added.

A superaccumulator: a fixed-point number wide enough for every double, in limbs of 32 bits with deferred carries
(Kulisch; the small superaccumulator of R. Neal, "Fast exact summation using small and large superaccumulators", 2015).
Adding and removing are exact, so a sliding window has the same sum as one calculated from its rows. A sum and a mean
are rounded once, so that the mean of equal values is that value.
"""

from __future__ import annotations

import math

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels.totals import carry, divided, rounded, used
from nightjar.rules.functions import LIMBS, SQUARES

_LOW = np.int64(0xFFFFFFFF)
_UNIT = 1074  # the lowest bit of all doubles is 2**-1074


@kernel
def _parts(x):
    """(m, place, sign): |x| is m * 2**place, in units of the smallest double; m has at most 53 bits."""
    mantissa, exponent = math.frexp(x)
    place = exponent - 53 + _UNIT
    m = np.int64(mantissa * 9007199254740992.0)
    if place < 0:  # subnormal: its low bits are zero
        m >>= -place
        place = 0
    return (-m, place, -1) if m < 0 else (m, place, 1)


@kernel
def add(limbs, x, sign):
    m, place, own = _parts(x)
    sign *= own
    j = place >> 5
    shift = place & 31
    low = (m & _LOW) << shift
    high = (m >> 32) << shift
    limbs[j] += sign * (low & _LOW)
    limbs[j + 1] += sign * ((low >> 32) + (high & _LOW))
    limbs[j + 2] += sign * (high >> 32)


@kernel
def add_square(limbs, x, sign):
    """Add x**2, in units of the square of the smallest double."""
    m, place, _ = _parts(x)
    a, b = m >> 32, m & _LOW  # 21 and 32 bits
    whole = np.uint64(b) * np.uint64(b)
    cross = 2 * a * b
    j = place >> 4
    shift = (2 * place) & 31
    carried = np.int64(0)
    for i in range(4):  # the square in words of 32 bits, each shifted into two limbs
        if i == 0:
            carried += np.int64(whole & np.uint64(0xFFFFFFFF))
        elif i == 1:
            carried += np.int64(whole >> np.uint64(32)) + (cross & _LOW)
        elif i == 2:
            carried += (cross >> 32) + ((a * a) & _LOW)
        else:
            carried += (a * a) >> 32
        word = (carried & _LOW) << shift
        carried >>= 32
        limbs[j + i] += sign * (word & _LOW)
        limbs[j + i + 1] += sign * (word >> 32)


@kernel
def _magnitude(limbs, out):
    """The carried limbs of the absolute value; returns (least, beyond, sign): the limbs that may be nonzero."""
    for j in range(len(limbs)):
        out[j] = limbs[j]
    carry(out)
    sign = 1
    if out[len(out) - 1] < 0:
        sign = -1
        for j in range(len(out)):
            out[j] = -out[j]
        carry(out)
    beyond = used(out)
    least = 0
    while least < beyond and out[least] == 0:
        least += 1
    return least, beyond, sign


@kernel
def sum_of(limbs, scratch):
    """The accumulator, rounded once."""
    least, beyond, sign = _magnitude(limbs, scratch)
    m, place = rounded(scratch, least, beyond, 0)
    return math.ldexp(np.float64(sign * m), place - _UNIT)


@kernel
def mean_of(limbs, n, scratch, words):
    """The accumulator divided by n, rounded once."""
    least, beyond, sign = _magnitude(limbs, scratch)
    first = beyond - len(words)  # the quotient's first 65 bits at least are those of the sum's highest limbs
    for j in range(len(words)):
        words[j] = scratch[first + j] if first + j >= 0 else 0
    left = divided(words, n)
    words[0] |= 1 if left or least < first else 0  # whether there is more, far below the last bit that is kept
    m, place = rounded(words, 0, used(words), max(-32 * first, 0))
    return math.ldexp(np.float64(sign * m), place + 32 * first - _UNIT)


@kernel
def sums(run_first, fill, begin, ops, marks, word, bit, values, column, mean, out, some):
    """out[k]: the sum of the window, correctly rounded, or its mean; infinite where it exceeds the doubles.

    some[k]: whether any row counts. Returns how many windows have an infinite answer.
    """
    overflown = 0
    limbs = np.zeros(LIMBS, np.int64)
    scratch = np.zeros(LIMBS, np.int64)
    words = np.zeros(4, np.int64)
    for r in range(len(run_first) - 1):
        limbs[:] = 0
        n = 0
        for p in range(fill[r, 0], fill[r, 1]):
            if (marks[p, word] >> bit) & 1:
                n += 1
                add(limbs, values[p, column], 1)
        for k in range(run_first[r], run_first[r + 1]):
            for o in range(begin[k], begin[k + 1]):
                sign = 1 if ops[o] > 0 else -1
                p = sign * ops[o] - 1
                if (marks[p, word] >> bit) & 1:
                    n += sign
                    add(limbs, values[p, column], sign)
            some[k] = n > 0
            out[k] = mean_of(limbs, n, scratch, words) if mean and n > 0 else sum_of(limbs, scratch)
            overflown += not np.isfinite(out[k])
    return overflown


@kernel
def deviation_of(n, first, second, scratch, total):
    """sqrt((n * sum(x**2) - sum(x)**2) / (n * (n - 1))): the difference is exact, and 0 where all x are equal."""
    least, beyond, _ = _magnitude(first, scratch)
    for j in range(len(second)):
        total[j] = second[j]
    total[len(second)] = 0
    carry(total)
    for j in range(len(total)):
        total[j] *= n
    for i in range(least, beyond):
        for j in range(least, beyond):
            product = np.uint64(scratch[i]) * np.uint64(scratch[j])
            total[i + j] -= np.int64(product & np.uint64(0xFFFFFFFF))
            total[i + j + 1] -= np.int64(product >> np.uint64(32))
    carry(total)
    m, place = rounded(total, 0, used(total), 0)
    exponent = place - 2 * _UNIT
    variance = np.float64(m) / (np.float64(n) * np.float64(n - 1))
    if exponent & 1:
        variance *= 2.0
        exponent -= 1
    return math.ldexp(np.sqrt(variance), exponent >> 1)


@kernel
def stddevs(run_first, fill, begin, ops, marks, word, bit, values, column, out, several):
    """out[k]: the sample standard deviation of the window from the exact sums of x and x**2; infinite as for sums.

    several[k]: whether two rows count. Returns how many windows have an infinite answer.
    """
    overflown = 0
    first = np.zeros(LIMBS, np.int64)
    second = np.zeros(SQUARES, np.int64)
    scratch = np.zeros(LIMBS, np.int64)
    total = np.zeros(SQUARES + 1, np.int64)
    for r in range(len(run_first) - 1):
        first[:] = 0
        second[:] = 0
        n = 0
        for p in range(fill[r, 0], fill[r, 1]):
            if (marks[p, word] >> bit) & 1:
                n += 1
                add(first, values[p, column], 1)
                add_square(second, values[p, column], 1)
        for k in range(run_first[r], run_first[r + 1]):
            for o in range(begin[k], begin[k + 1]):
                sign = 1 if ops[o] > 0 else -1
                p = sign * ops[o] - 1
                if (marks[p, word] >> bit) & 1:
                    n += sign
                    add(first, values[p, column], sign)
                    add_square(second, values[p, column], sign)
            several[k] = n > 1
            out[k] = deviation_of(n, first, second, scratch, total) if n > 1 else 0.0
            overflown += not np.isfinite(out[k])
    return overflown
