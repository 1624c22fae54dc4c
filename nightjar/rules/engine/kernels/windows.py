"""From rows to evaluate to the changes of their windows, as the aggregates read them.

A *walk* is an array of store rows in which every window is a stretch: the arena of a timeline, or, for a measure with
`per`, the rows that share one value, side by side. A *run* is a stretch of rows to evaluate, at least one, in (time,
id) order. For each run the window of its first row is given as a stretch to fill, and for each row the changes from the
window before: `at + 1` adds the row at walk index `at`, `-(at + 1)` removes it. So every rule about what a window holds
(length, `delay`, `since`, `excluding_current`, late rows) is here, and an aggregate knows only how to add and remove a
row.

The window of the row at at[k] begins with the place low[k] and ends before the place end[k], and then with the row
itself, if it is not excluded. But for windows with a `delay` end is at.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel

# Places of a window's times that are brought into the cache ahead: every eighth, one a cache line.
_FETCHED = 4


@kernel
def earliest(times, a, b, bound):
    """The first index from a to b whose time is not before bound, looked for from b: most windows are short."""
    step = 8
    while b - step > a and times[b - step] >= bound:
        b -= step
        step *= 2
    if b - step > a:
        a = b - step + 1
    while a < b:
        middle = (a + b) >> 1
        if times[middle] < bound:
            a = middle + 1
        else:
            b = middle
    return a


@kernel
def opening(time, over, resolution):
    """Where the window of a row of this time begins (S1.2, S14.1); all in µs."""
    start = time - over
    return start // resolution * resolution if resolution else start


@kernel
def lower_bounds(run_first, run_start, times, at, over, resolution, horizon):
    """low[k]: the first index of the walk whose time is within `over` of the row at at[k] (both ends included).

    resolution: µs, where the window's start is rounded down to a multiple of it; 0 where it is not. Rows before
    `horizon` (µs) are in no window. The rows at at[k] are not before it.
    """
    low = np.empty(len(at), np.int64)
    for r in range(len(run_first) - 1):  # only reads, to bring the times of short windows into the cache all at once
        first = run_first[r]
        sum_of_times = np.int64(0)
        for p in range(at[first] - 8, max(run_start[r], at[first] - 8 * _FETCHED) - 1, -8):
            sum_of_times += times[p]
        low[first] = sum_of_times
    for r in range(len(run_first) - 1):
        first, last = run_first[r], run_first[r + 1]
        for k in range(first, last):
            low[k] = max(opening(times[at[k]], over, resolution), horizon)
        a = earliest(times, run_start[r], at[first], low[first])
        # Each step goes on either in the walk or to the next row, without a branch: it would be hard to predict.
        k = first
        while k < last:
            bound = low[k]
            before = np.int64(times[a] < bound)
            low[k] = bound if before else a
            a += before
            k += 1 - before
    return low


@kernel
def first_places(run_first, run_start, times, at, bounds):
    """low[k]: the first index of the walk whose time is not before bounds[k] (µs), which ascend within a run."""
    low = np.empty(len(at), np.int64)
    for r in range(len(run_first) - 1):
        first, last = run_first[r], run_first[r + 1]
        a = earliest(times, run_start[r], at[first], bounds[first])
        for k in range(first, last):
            while times[a] < bounds[k]:
                a += 1
            low[k] = a
    return low


@kernel
def upper_bounds(run_first, run_start, times, at, delay):
    """end[k]: the first place of the walk whose time is less than `delay` (µs, above 0) before the row at at[k]."""
    end = np.empty(len(at), np.int64)
    for r in range(len(run_first) - 1):
        first, last = run_first[r], run_first[r + 1]
        b = earliest(times, run_start[r], at[first], times[at[first]] - delay + 1)
        for k in range(first, last):
            while times[b] <= times[at[k]] - delay:
                b += 1
            end[k] = b
    return end


@kernel
def after_reset(run_first, rows, at, end, marks, word, bit, late, order, low):
    """Raise low[k] past the latest row of the window before at[k] that meets `since` (a bit of its marks) and that
    at[k]'s row may see."""
    widest = 0
    for r in range(len(run_first) - 1):
        widest = max(widest, end[run_first[r + 1] - 1] - low[run_first[r]])
    found = np.empty(widest + 1, np.int64)
    for r in range(len(run_first) - 1):
        first, last = run_first[r], run_first[r + 1]
        count = 0
        p = low[first]
        for k in range(first, last):
            while p < end[k]:
                if (marks[p, word] >> bit) & 1:
                    found[count] = p
                    count += 1
                p += 1
            s = order[rows[at[k]]]
            j = count - 1
            while j >= 0 and found[j] >= low[k] and late[rows[found[j]]] and order[rows[found[j]]] > s:
                j -= 1
            if j >= 0 and found[j] >= low[k]:
                low[k] = found[j] + 1


@kernel
def split_by_value(run_first, rows, at, low, codes, numbers):
    """Re-cut runs so that each holds the rows that share one `per` value with the row to evaluate.

    codes: int64 a store row, -1 for NULL (which shares with nothing); numbers: int64 scratch, one a code, all -1.
    Returns (run_first, origin, at, low, order): the new walk's places are those of `origin` in the old one, the rest is
    as in the inputs, and new row k is old row order[k]; rows whose own value is NULL are left out.
    """
    # how many rows there are: `numbers` marks the values of the rows to evaluate
    total = 0
    kept = 0
    for r in range(len(run_first) - 1):
        first, last = run_first[r], run_first[r + 1]
        least = low[first]
        for k in range(first, last):
            least = min(least, low[k])
            if codes[rows[at[k]]] >= 0:
                numbers[codes[rows[at[k]]]] = 0
                kept += 1
        for p in range(least, at[last - 1] + 1):
            c = codes[rows[p]]
            total += c >= 0 and numbers[c] >= 0
        for k in range(first, last):
            if codes[rows[at[k]]] >= 0:
                numbers[codes[rows[at[k]]]] = -1
    # run by run
    origin = np.empty(total, np.int64)
    new_at = np.empty(kept, np.int64)
    new_low = np.empty(kept, np.int64)
    order = np.empty(kept, np.int64)
    new_first = np.empty(kept + 1, np.int64)
    runs = 0
    filled = 0
    evaluated = 0
    for r in range(len(run_first) - 1):
        first, last = run_first[r], run_first[r + 1]
        # a number for each value
        least = low[first]
        values = 0
        for k in range(first, last):
            least = min(least, low[k])
            c = codes[rows[at[k]]]
            if c >= 0 and numbers[c] < 0:
                numbers[c] = values
                values += 1
        # where the rows of each value begin: in the walk, and of those to evaluate
        begin = np.zeros(values + 1, np.int64)
        begin_eval = np.zeros(values + 1, np.int64)
        for p in range(least, at[last - 1] + 1):
            c = codes[rows[p]]
            if c >= 0 and numbers[c] >= 0:
                begin[numbers[c] + 1] += 1
        for k in range(first, last):
            c = codes[rows[at[k]]]
            if c >= 0:
                begin_eval[numbers[c] + 1] += 1
        for v in range(values):
            begin[v + 1] += begin[v]
            begin_eval[v + 1] += begin_eval[v]
        # the rows of each value side by side
        place = begin.copy()
        for p in range(least, at[last - 1] + 1):
            c = codes[rows[p]]
            if c >= 0 and numbers[c] >= 0:
                origin[filled + place[numbers[c]]] = p
                place[numbers[c]] += 1
        # the rows to evaluate, and where their windows begin
        place_eval = begin_eval.copy()
        cursor = begin.copy()
        for k in range(first, last):
            c = codes[rows[at[k]]]
            if c < 0:
                continue
            v = numbers[c]
            new = evaluated + place_eval[v]
            place_eval[v] += 1
            order[new] = k
            p = filled + cursor[v]
            while origin[p] < at[k]:
                p += 1
            new_at[new] = p
            cursor[v] = p - filled
            a, b = filled + begin[v], p
            while a < b:
                middle = (a + b) >> 1
                if origin[middle] < low[k]:
                    a = middle + 1
                else:
                    b = middle
            new_low[new] = a
        # a run of each value; `numbers` is left as it was
        for v in range(values):
            new_first[runs] = evaluated + begin_eval[v]
            runs += 1
        for k in range(first, last):
            c = codes[rows[at[k]]]
            if c >= 0:
                numbers[c] = -1
        filled += begin[values]
        evaluated += begin_eval[values]
    new_first[runs] = evaluated
    return new_first[: runs + 1].copy(), origin, new_at, new_low, order


@kernel
def ends_of_value(origin, at, low, end):
    """Where windows end in a walk that `split_by_value` has made. end: where they end in the walk that was split."""
    new_end = np.empty(len(at), np.int64)
    for k in range(len(at)):
        a, b = low[k], at[k]
        while a < b:
            middle = (a + b) >> 1
            if origin[middle] < end[k]:
                a = middle + 1
            else:
                b = middle
        new_end[k] = a
    return new_end


@kernel
def _longer(ops, needed):
    longer = np.empty(2 * needed, np.int32)
    longer[: len(ops)] = ops
    return longer


@kernel
def _slid(k, last, a, b, low, end, excluding, begin, ops, n):
    """The changes of rows k to before `last` of a run without contended rows, where the window before is from a to
    before b; returns (k, a, b, n) to continue from where there is no room in ops.

    It allocates nothing: in a function that allocates an array Numba counts references at every step.
    """
    while k < last:
        here = end[k]
        if n + (here - b) + abs(low[k] - a) + 1 > len(ops):
            break
        begin[k] = n
        while b < here:
            ops[n] = b + 1
            n += 1
            b += 1
        while a < low[k]:
            ops[n] = -(a + 1)
            n += 1
            a += 1
        while a > low[k]:
            a -= 1
            ops[n] = a + 1
            n += 1
        if not excluding:
            ops[n] = here + 1
            n += 1
            b = here + 1
        k += 1
    return k, a, b, n


@kernel(inline="always")
def _slides(low, end, excluding, first, last):
    """Whether windows only move on. One that ends before it begins would have `sliding` write outside its arrays."""
    own = 0 if excluding else 1
    others = np.int64(low[first] > end[first] + own)
    for k in range(first + 1, last):
        others |= np.int64(low[k] < low[k - 1]) | np.int64(low[k] > end[k] + own)
    return others == 0


@kernel
def changes(run_first, rows, at, low, end, excluding, late, last_late, order, slides):
    """(fill, begin, ops, slid): the windows of the rows at at[k], from low[k] to before end[k], as the aggregates read
    them. slid: int64, the runs whose windows just slide (see sliding.py), which have no changes here; none without
    `slides`. A run of one row is not among them: it has nothing to slide.

    fill: int64 (runs, 2), the stretch of the first window of each run, without the row itself; begin: int64
    (rows + 1), where each row's changes start in ops (int32): nothing is written to both if every run slides.
    A late row counts only for rows that arrived after it (S7, S8.4), so where some late row arrived after some row to
    evaluate the window is not just a stretch: such *contended* rows are added and removed as the rows to evaluate come
    before or after them in arrival (order).
    last_late: the arrival of the latest late row of all; if it precedes every row to evaluate, no row is contended.
    """
    fill = np.empty((len(run_first) - 1, 2), np.int64)
    begin = np.empty(len(at) + 1, np.int64)
    ops = np.empty(2 * len(at) + 64, np.int32)
    slid = np.empty(len(run_first) - 1, np.int64)
    sliding = 0
    rank = places = arrivals = np.empty(0, np.int64)
    n = 0
    for r in range(len(run_first) - 1):
        first, last = run_first[r], run_first[r + 1]
        # which rows are contended, in the order of arrival
        base = low[first]
        oldest = last_late
        if last_late >= 0:  # else no row is late, and asking each for its arrival takes longer than the windows
            for k in range(first, last):
                oldest = min(oldest, order[rows[at[k]]])
        contended = 0
        if last_late > oldest:
            for k in range(first, last):
                base = min(base, low[k])
            for p in range(base, end[last - 1]):
                if late[rows[p]] and order[rows[p]] > oldest:
                    contended += 1
        fill[r, 0] = low[first]
        fill[r, 1] = end[first]
        if contended == 0 and slides and first + 1 < last and _slides(low, end, excluding, first, last):
            slid[sliding] = r
            sliding += 1
            fill[r, 1] = fill[r, 0]
            continue
        if contended == 0:
            k, a, b, n = _slid(first, last, low[first], end[first], low, end, excluding, begin, ops, n)
            while k < last:
                ops = _longer(ops, n + (end[k] - b) + abs(low[k] - a) + 1)
                k, a, b, n = _slid(k, last, a, b, low, end, excluding, begin, ops, n)
            begin[last] = n
            continue
        places = np.empty(contended, np.int64)
        arrivals = np.empty(contended, np.int64)
        rank = np.full(end[last - 1] + 1 - base, -1, np.int64)
        j = 0
        for p in range(base, end[last - 1]):
            if late[rows[p]] and order[rows[p]] > oldest:
                places[j] = p
                arrivals[j] = order[rows[p]]
                j += 1
        by_arrival = np.argsort(arrivals)
        places = places[by_arrival]
        arrivals = arrivals[by_arrival]
        for j in range(contended):
            rank[places[j] - base] = j
        # the window of the first row, as if it saw all contended rows
        seen = contended
        a = low[first]
        b = end[first]
        for k in range(first, last):
            begin[k] = n
            here = end[k]
            needed = n + (here - b) + abs(low[k] - a) + contended + 1
            if needed > len(ops):
                ops = _longer(ops, needed)
            # rows that enter and leave at its ends
            while b < here:
                if rank[b - base] < seen:
                    ops[n] = b + 1
                    n += 1
                b += 1
            while a < low[k]:
                if rank[a - base] < seen:
                    ops[n] = -(a + 1)
                    n += 1
                a += 1
            while a > low[k]:
                a -= 1
                if rank[a - base] < seen:
                    ops[n] = a + 1
                    n += 1
            # contended rows that the row before saw and this one does not, or the other way round
            s = order[rows[at[k]]]
            while seen > 0 and arrivals[seen - 1] > s:
                seen -= 1
                if a <= places[seen] < b:
                    ops[n] = -(places[seen] + 1)
                    n += 1
            while seen < contended and arrivals[seen] < s:
                if a <= places[seen] < b:
                    ops[n] = places[seen] + 1
                    n += 1
                seen += 1
            if not excluding:
                ops[n] = here + 1
                n += 1
                b = here + 1
        begin[last] = n
    if sliding < len(fill):
        begin[len(at)] = n
        for i in range(sliding - 1, -1, -1):
            first, last = run_first[slid[i]], run_first[slid[i] + 1]
            begin[first:last] = begin[last]
    return fill, begin, ops, slid[:sliding]
