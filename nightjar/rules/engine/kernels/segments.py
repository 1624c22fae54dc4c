"""Keeping every group's rows in (time, id) order: gapped segments in one arena.

A group's segment is a stretch of the arena with room to grow: spans[group] = (start, end, room, scratch), where scratch
is -1 between calls. Appending costs O(1); a row out of order moves the tail of its own group only; a full
segment evicts old rows, or moves to where there is more room: to a hole that another has left, or to the arena's end.
Once the end is at its limit, a pass over the arena compacts the segments. Nothing else costs O(all groups).

Holes are in linked lists by size class: holes[class] is a hole's first place, -1 for none; at that place `rows` has the
next hole of the class, and `times` the hole's size.

The arena is five arrays: store rows (int32), their times, and their *facts*, what aggregates read of a row side by
side: marks (uint8), values of columns that fit int32, and others (int64). So a window is a few stretches of memory: a
small batch spends more time on fetching memory than on sums.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels import texts

_NONE_LATE = np.int64(1 << 62)
START, END, ROOM, SCRATCH = range(4)
CLASSES = 256  # of holes
# Moving a segment of at least this many rows within its room is expensive: it exceeds the cache.
_LONG = 4096
# So many rows at the end of a segment are moved for one that came late.
_NEAR = 16


@kernel
def _before(x, y, times, ties, ends, heap):
    """S1.1's order: event time, then the tie-breaker (NULL last), then the id's hash, then the id's bytes.

    ties: (int64, uint8), the tie-breakers of rows and where they are NULL; either may be empty.
    """
    if times[x] != times[y]:
        return times[x] < times[y]
    values, null = ties
    if len(values):
        if len(null) and null[x] != null[y]:
            return null[x] < null[y]
        if values[x] != values[y] and not (len(null) and null[x]):
            return values[x] < values[y]
    i, i_end = np.int64(ends[x]), np.int64(ends[x + 1])
    j, j_end = np.int64(ends[y]), np.int64(ends[y + 1])
    return texts.before(heap, i, i_end, j, j_end)


@kernel
def spare(length):
    """The spare room that a segment of this many rows gets at compaction."""
    return length // 4 if length >= _LONG else length // 8 + 1


@kernel
def _suffices(length, room):
    """Whether the room suffices for some time."""
    return (room - length) * (8 if room >= _LONG else 16) >= room


@kernel
def _sort(order, first, last, scratch, times, ties, ends, heap):
    """Merge sort of order[first:last], bottom up from runs of 16; stretches already in order are not touched."""
    for a in range(first, last, 16):
        for i in range(a + 1, min(a + 16, last)):
            x = order[i]
            j = i - 1
            while j >= a and _before(x, order[j], times, ties, ends, heap):
                order[j + 1] = order[j]
                j -= 1
            order[j + 1] = x
    width = 16
    while width < last - first:
        for a in range(first, last - width, 2 * width):
            middle = a + width
            stop = min(middle + width, last)
            if not _before(order[middle], order[middle - 1], times, ties, ends, heap):
                continue
            for i in range(a, middle):
                scratch[i - a] = order[i]
            i, j, k = a, middle, a
            while i < middle:
                if j < stop and _before(order[j], scratch[i - a], times, ties, ends, heap):
                    order[k] = order[j]
                    j += 1
                else:
                    order[k] = scratch[i - a]
                    i += 1
                k += 1
        width *= 2


@kernel
def _copy(source, p, target, q):
    for j in range(target.shape[1]):
        target[q, j] = source[p, j]


@kernel
def first_of(facts, p):
    """A fact at the place, 0 if there is none."""
    return np.int64(facts[p, 0]) if facts.shape[1] else np.int64(0)


@kernel
def _move(rows, arena_times, marks, narrow, wide, p, q):
    rows[q] = rows[p]
    arena_times[q] = arena_times[p]
    _copy(marks, p, marks, q)
    _copy(narrow, p, narrow, q)
    _copy(wide, p, wide, q)


@kernel
def _shift(array, p, q, n):
    """Move n places from p on to q, one value after the other, for places of any shape."""
    flat = array.reshape(-1)
    width = flat.size // max(len(array), 1)
    p, q, n = p * width, q * width, n * width
    if q < p:
        for i in range(n):
            flat[q + i] = flat[p + i]
    elif q > p:
        for i in range(n - 1, -1, -1):
            flat[q + i] = flat[p + i]


@kernel
def move_all(rows, arena_times, marks, narrow, wide, p, q, n):
    """Move n rows from place p on to q: array by array takes a third of the time that row by row does."""
    _shift(rows, p, q, n)
    _shift(arena_times, p, q, n)
    _shift(marks, p, q, n)
    _shift(narrow, p, q, n)
    _shift(wide, p, q, n)


@kernel
def first_from(arena_times, a, b, time):
    """The first place from a to b whose time is not before `time`."""
    while a < b and arena_times[a] < time:
        a += 1
    return a


@kernel
def _class(room):
    """The class of holes of this size up to an eighth more; each size below 16 has a class of its own."""
    shift = 0
    while room >> shift >= 16:
        shift += 1
    return 8 * shift + (room >> shift)


@kernel
def _take_hole(room, holes, rows):
    """A hole of at least this size and less than half as much again; -1 where there is none."""
    least = _class(room - 1) + 1
    for c in range(least, least + 4):
        hole = np.int64(holes[c])
        if hole >= 0:
            holes[c] = rows[hole]
            return hole
    return np.int64(-1)


@kernel
def widen(g, more, horizon, spans, rows, arena_times, marks, narrow, wide, used, limit, holes):
    """Give a full segment room for `more` rows; returns the arena's use, -1 where that would be above `limit`.

    Rows before `horizon` are evicted. If that makes room the segment stays, else it moves and leaves a hole.
    """
    start, end, room = np.int64(spans[g, START]), np.int64(spans[g, END]), np.int64(spans[g, ROOM])
    kept = first_from(arena_times, start, end, horizon)
    length = end - kept
    target = start
    if not _suffices(length + more, room):
        wanted = length + more + spare(length + more)
        target = _take_hole(wanted, holes, rows)
        if target >= 0:
            wanted = arena_times[target]
        elif used + wanted > limit:
            return np.int64(-1)
        else:
            target = used
            used += wanted
        spans[g, ROOM] = wanted
    move_all(rows, arena_times, marks, narrow, wide, kept, target, length)
    spans[g, START] = target
    spans[g, END] = target + length
    if target != start and room:
        c = _class(room)
        rows[start] = holes[c]
        arena_times[start] = room
        holes[c] = start
    return used


@kernel
def insert(
    groups,
    base,
    fresh_marks,
    fresh_narrow,
    fresh_wide,
    times,
    ties,
    ends,
    heap,
    horizon,
    spans,
    rows,
    arena_times,
    marks,
    narrow,
    wide,
    used,
    limit,
    holes,
):
    """Insert store rows base, base + 1, … with their facts (fresh) into their groups' segments (groups[i] < 0: none).

    Returns (used, touched, first, places). used: the arena's use afterwards, or -1 where that would be above `limit`:
    no row is inserted then. Else touched are the groups, and places: for each of them the arena places of its new rows,
    ascending, in places[first[t]:first[t + 1]]. A full segment evicts rows before `horizon`.
    """
    # the groups that have new rows, and how many each
    n = len(groups)
    touched = np.empty(n, np.int64)
    count = 0
    first = np.zeros(n + 1, np.int64)
    for i in range(n):
        g = groups[i]
        if g < 0:
            continue
        if spans[g, SCRATCH] < 0:
            spans[g, SCRATCH] = count
            touched[count] = g
            count += 1
        first[spans[g, SCRATCH] + 1] += 1
    for t in range(count):
        first[t + 1] += first[t]
    # room for them: where the arena has none, nothing has been changed but numbers in SCRATCH
    for t in range(count):
        g, more = touched[t], first[t + 1] - first[t]
        if np.int64(spans[g, END]) - np.int64(spans[g, START]) + more > spans[g, ROOM]:
            used = widen(g, more, horizon, spans, rows, arena_times, marks, narrow, wide, used, limit, holes)
            if used < 0:
                for i in range(count):
                    spans[touched[i], SCRATCH] = -1
                return used, touched[:0], first[:1], touched[:0]
    # the new rows, group by group
    cursor = first[:count].copy()
    order = np.empty(first[count], np.int64)
    for i in range(n):
        if groups[i] >= 0:
            s = spans[groups[i], SCRATCH]
            order[cursor[s]] = base + i
            cursor[s] += 1
    longest = 0
    for t in range(count):
        longest = max(longest, first[t + 1] - first[t])
    scratch = np.empty(longest, np.int64)
    places = np.empty(len(order), np.int64)
    for t in range(count):  # only reads what will be written, to bring it into the cache: of many groups at once
        end = np.int64(spans[touched[t], END])
        places[t] = arena_times[end] + rows[end] + first_of(marks, end) + first_of(narrow, end) + first_of(wide, end)
    for t in range(count):
        g = touched[t]
        spans[g, SCRATCH] = -1
        # in the order of S1.1; most often they come in it
        a, b = first[t], first[t + 1]
        for i in range(a + 1, b):
            if _before(order[i], order[i - 1], times, ties, ends, heap):
                _sort(order, a, b, scratch, times, ties, ends, heap)
                break
        # merged with the segment's rows, from behind
        start = np.int64(spans[g, START])
        length = spans[g, END] - start
        i = start + length - 1
        j = b - 1
        k = i + b - a
        spans[g, END] = k + 1
        while j >= a:
            x = order[j]
            if i >= start and (
                times[x] < arena_times[i]
                or (times[x] == arena_times[i] and _before(x, rows[i], times, ties, ends, heap))
            ):
                _move(rows, arena_times, marks, narrow, wide, i, k)
                i -= 1
            else:
                rows[k] = x
                arena_times[k] = times[x]
                _copy(fresh_marks, x - base, marks, k)
                _copy(fresh_narrow, x - base, narrow, k)
                _copy(fresh_wide, x - base, wide, k)
                places[j] = k
                j -= 1
            k -= 1
    return used, touched[:count], first[: count + 1], places


@kernel
def append(
    groups,
    base,
    fresh_marks,
    fresh_narrow,
    fresh_wide,
    times,
    ties,
    ends,
    heap,
    spans,
    rows,
    arena_times,
    marks,
    narrow,
    wide,
):
    """Insert store rows base, base + 1, … as `insert` does, in turns, while each has room near its segment's end.

    Returns how many. Of many rows in order it takes a third of the time of `insert`, which looks for their places.
    """
    for i in range(len(groups)):
        g = groups[i]
        if g < 0:
            continue
        start, k = np.int64(spans[g, START]), np.int64(spans[g, END])
        x = base + i
        if k - start >= spans[g, ROOM]:
            return i
        nearest = max(start, k - _NEAR)
        at = k
        while at > nearest and (
            times[x] < arena_times[at - 1]
            or (times[x] == arena_times[at - 1] and _before(x, rows[at - 1], times, ties, ends, heap))
        ):
            at -= 1
        if at == nearest and at > start:
            return i
        for p in range(k - 1, at - 1, -1):
            _move(rows, arena_times, marks, narrow, wide, p, p + 1)
        rows[at] = x
        arena_times[at] = times[x]
        _copy(fresh_marks, i, marks, at)
        _copy(fresh_narrow, i, narrow, at)
        _copy(fresh_wide, i, wide, at)
        spans[g, END] = k + 1
    return len(groups)


@kernel
def _past(arena_times, a, b, bound):
    """The first index from a to b whose time is after bound."""
    if a < b and arena_times[b - 1] <= bound:
        return b
    while a < b:
        middle = (a + b) >> 1
        if arena_times[middle] <= bound:
            a = middle + 1
        else:
            b = middle
    return a


@kernel
def affected(touched, first, places, base, spans, rows, arena_times, late, order, newest, reach, settled, has_resets):
    """Runs of rows to evaluate: the new rows on time and all within `reach` after them, in their group (S7).

    New are the rows from `base` on. Within `reach` after a late one those that arrived after it are evaluated again,
    where it had arrived before what was held: before the row whose order is `newest`; with `has_resets` the others too,
    as they depend on what holds at those. Rows before `settled` (µs) and late rows are in no run (S8.3).
    Returns (run_first, run_start, at, longest): run r evaluates the arena places at[run_first[r]:run_first[r + 1]] of
    the segment that starts at run_start[r]; no window of any of them has more rows than `longest`.
    """
    # the stretches of rows that may be affected, of each: its segment's start, begin, end, and the least order of the
    # late rows before its end
    stretches = np.empty((len(places), 4), np.int64)
    runs = 0
    total = 0
    longest = 0
    for t in range(len(touched)):
        start, end = np.int64(spans[touched[t], START]), np.int64(spans[touched[t], END])
        stop = -1
        for i in range(first[t], first[t + 1]):
            p = places[i]
            least = _NONE_LATE
            if late[rows[p]]:
                if order[rows[p]] > newest:
                    continue
                least = np.int64(-1)
                if not has_resets:
                    least = order[rows[p]]
            begin = max(p, stop)
            if arena_times[begin if begin < end else p] < settled:
                begin = _past(arena_times, begin, end, settled - 1)
            a = max(_past(arena_times, begin, end, arena_times[p] + reach), p + 1)
            if begin == stop:
                stretches[runs - 1, 3] = min(stretches[runs - 1, 3], least)
            if a <= begin:
                continue
            total += a - begin
            longest = max(longest, a - start)
            if begin == stop:
                stretches[runs - 1, 2] = a
            else:
                stretches[runs, 0] = start
                stretches[runs, 1] = begin
                stretches[runs, 2] = a
                stretches[runs, 3] = least
                runs += 1
            stop = a
    # of the stretches the rows that are evaluated
    run_first = np.empty(runs + 1, np.int64)
    run_start = np.empty(runs, np.int64)
    at = np.empty(total, np.int64)
    n = 0
    kept = 0
    for r in range(runs):
        run_first[kept] = n
        run_start[kept] = stretches[r, 0]
        least = stretches[r, 3]
        until = arena_times[stretches[r, 1]] - 1
        for p in range(stretches[r, 1], stretches[r, 2]):
            row = rows[p]
            if late[row]:
                continue
            if row >= base:
                until = arena_times[p] + reach
            if arena_times[p] <= until or order[row] > least:
                at[n] = p
                n += 1
        kept += n > run_first[kept]
    run_first[kept] = n
    return run_first[: kept + 1], run_start[:kept], at[:n], longest


@kernel
def whole(spans, arena_times, settled):
    """As `affected`, where all rows are new and none is late: a run for each group, of its rows from `settled` (µs)."""
    runs = 0
    total = 0
    longest = np.int64(0)
    begins = np.empty(len(spans), np.int64)
    for g in range(len(spans)):
        start, end = np.int64(spans[g, START]), np.int64(spans[g, END])
        begins[g] = _past(arena_times, start, end, settled - 1)
        if begins[g] < end:
            runs += 1
            total += end - begins[g]
            longest = max(longest, end - start)
    run_first = np.zeros(runs + 1, np.int64)
    run_start = np.empty(runs, np.int64)
    at = np.empty(total, np.int64)
    r = 0
    n = 0
    for g in range(len(spans)):
        if begins[g] < spans[g, END]:
            for p in range(begins[g], spans[g, END]):
                at[n] = p
                n += 1
            run_start[r] = spans[g, START]
            r += 1
            run_first[r] = n
    return run_first, run_start, at, longest


@kernel
def fill(spans, rows, source, facts, fact):
    """facts[p, fact] = source[rows[p]] in all segments."""
    for g in range(len(spans)):
        for p in range(spans[g, START], spans[g, END]):
            facts[p, fact] = source[rows[p]]


@kernel
def renumber(spans, rows, new_row):
    """Give the rows in all segments their new numbers; those that have none (-1) are first and are removed."""
    for g in range(len(spans)):
        start, end = np.int64(spans[g, START]), np.int64(spans[g, END])
        first = start
        while first < end and new_row[rows[first]] < 0:
            first += 1
        spans[g, START] = first
        spans[g, ROOM] -= first - start
        for i in range(first, end):
            rows[i] = new_row[rows[i]]
