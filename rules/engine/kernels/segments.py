"""Keeping every group's rows in (time, id) order: gapped segments in one arena.

A group's segment is arena[start:end] with room up to start + room. Appending costs O(1); a row out of order moves the
tail of its own group only; a full segment lets go of what is old, or moves to the arena's end with twice the room.
Nothing costs O(all groups).

The arena is three arrays: store rows, their times, and their *facts* (places, facts): what aggregates read of a row,
side by side. So a window is one stretch of memory: a small batch's time goes into fetching those more than into sums.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_NONE_LATE = np.int64(1 << 62)


@njit(cache=True)
def _before(x, y, times, hashes, ends, heap):  # type: ignore[no-untyped-def]
    """Law 1's order: event time, then the id's hash, then the id's bytes."""
    if times[x] != times[y]:
        return times[x] < times[y]
    if hashes[x] != hashes[y]:
        return hashes[x] < hashes[y]
    i, j = ends[x], ends[y]
    while i < ends[x + 1] and j < ends[y + 1]:
        if heap[i] != heap[j]:
            return heap[i] < heap[j]
        i += 1
        j += 1
    return ends[x + 1] - i < ends[y + 1] - j


@njit(cache=True)
def _sort(order, first, last, scratch, times, hashes, ends, heap):  # type: ignore[no-untyped-def]
    """Merge sort of order[first:last], bottom up from runs of 16; stretches already in order are not touched."""
    for a in range(first, last, 16):
        for i in range(a + 1, min(a + 16, last)):
            x = order[i]
            j = i - 1
            while j >= a and _before(x, order[j], times, hashes, ends, heap):
                order[j + 1] = order[j]
                j -= 1
            order[j + 1] = x
    width = 16
    while width < last - first:
        for a in range(first, last - width, 2 * width):
            middle = a + width
            stop = min(middle + width, last)
            if not _before(order[middle], order[middle - 1], times, hashes, ends, heap):
                continue
            for i in range(a, middle):
                scratch[i - a] = order[i]
            i, j, k = a, middle, a
            while i < middle:
                if j < stop and _before(order[j], scratch[i - a], times, hashes, ends, heap):
                    order[k] = order[j]
                    j += 1
                else:
                    order[k] = scratch[i - a]
                    i += 1
                k += 1
        width *= 2


@njit(cache=True)
def _copy(source, p, target, q):  # type: ignore[no-untyped-def]
    for j in range(target.shape[1]):
        target[q, j] = source[p, j]


@njit(cache=True)
def _move(rows, arena_times, facts, p, q):  # type: ignore[no-untyped-def]
    rows[q] = rows[p]
    arena_times[q] = arena_times[p]
    _copy(facts, p, facts, q)


@njit(cache=True)
def insert(  # type: ignore[no-untyped-def]
    groups, base, fresh, times, hashes, ends, heap, horizon, slot_of, start, end, room, rows, arena_times, facts, used
):
    """Insert store rows base, base + 1, … with their facts (fresh) into their groups' segments (groups[i] < 0: none).

    Returns (used, touched, first, places). used: the arena's use afterwards, or -1 where it is too small: nothing is
    done then, and touched[0] is the room that suffices beside what is held. touched: the groups; places: for each the
    arena places of its new rows, ascending, in places[first[t]:first[t + 1]]. A full segment lets go of rows before
    `horizon`, and stays where it is if that makes room.
    """
    n = len(groups)
    touched = np.empty(n, np.int64)
    count = 0
    first = np.zeros(n + 1, np.int64)
    for i in range(n):
        g = groups[i]
        if g < 0:
            continue
        if slot_of[g] < 0:
            slot_of[g] = count
            touched[count] = g
            count += 1
        first[slot_of[g] + 1] += 1
    needed = used
    moved = 0  # if all touched segments had to move, as they may have to after a compaction
    for t in range(count):
        g = touched[t]
        if end[g] - start[g] + first[t + 1] > room[g]:
            kept = start[g]
            while kept < end[g] and arena_times[kept] < horizon:
                kept += 1
            if 4 * (end[g] - kept + first[t + 1]) <= 3 * room[g]:  # enough for some time
                for i in range(end[g] - kept):
                    _move(rows, arena_times, facts, kept + i, start[g] + i)
                end[g] -= kept - start[g]
            else:
                room[g] -= kept - start[g]
                start[g] = kept
        twice = 2 * (end[g] - start[g] + first[t + 1]) + 4
        moved += twice
        if end[g] - start[g] + first[t + 1] > room[g]:
            needed += twice
    if needed > len(rows):
        for t in range(count):
            slot_of[touched[t]] = -1
        touched[0] = moved
        return -1, touched[:1], first[:1], touched[:0]
    for t in range(count):
        first[t + 1] += first[t]
    cursor = first[:count].copy()
    order = np.empty(first[count], np.int64)
    for i in range(n):
        if groups[i] >= 0:
            s = slot_of[groups[i]]
            order[cursor[s]] = base + i
            cursor[s] += 1
    longest = 0
    for t in range(count):
        longest = max(longest, first[t + 1] - first[t])
    scratch = np.empty(longest, np.int64)
    places = np.empty(len(order), np.int64)
    for t in range(count):
        g = touched[t]
        slot_of[g] = -1
        a, b = first[t], first[t + 1]
        for i in range(a + 1, b):
            if _before(order[i], order[i - 1], times, hashes, ends, heap):
                _sort(order, a, b, scratch, times, hashes, ends, heap)
                break
        length = end[g] - start[g]
        if length + b - a > room[g]:
            for i in range(length):
                _move(rows, arena_times, facts, start[g] + i, used + i)
            start[g] = used
            end[g] = used + length
            room[g] = 2 * (length + b - a) + 4
            used += room[g]
        i = end[g] - 1
        j = b - 1
        k = i + b - a
        end[g] = k + 1
        while j >= a:
            x = order[j]
            if i >= start[g] and (
                times[x] < arena_times[i]
                or (times[x] == arena_times[i] and _before(x, rows[i], times, hashes, ends, heap))
            ):
                _move(rows, arena_times, facts, i, k)
                i -= 1
            else:
                rows[k] = x
                arena_times[k] = times[x]
                _copy(fresh, x - base, facts, k)
                places[j] = k
                j -= 1
            k -= 1
    return used, touched[:count], first[: count + 1], places


@njit(cache=True)
def _past(arena_times, a, b, bound):  # type: ignore[no-untyped-def]
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


@njit(cache=True)
def affected(  # type: ignore[no-untyped-def]
    touched, first, places, base, start, end, rows, arena_times, late, order, newest, reach, settled
):
    """Runs of rows to evaluate: the new rows on time and all within `reach` after them, in their group (law 7).

    New are the rows from `base` on. Within `reach` after a late one those that arrived after it are evaluated again,
    where it had arrived before what was held: before the row whose order is `newest`. Rows before `settled` (µs) and
    late rows are in no run (law 8).
    Returns (run_first, run_start, at): run r evaluates the arena places at[run_first[r]:run_first[r + 1]] of the
    segment that starts at run_start[r].
    """
    # of each: its segment's start, begin, end, and the least order of the late rows before its end
    stretches = np.empty((len(places), 4), np.int64)
    runs = 0
    total = 0
    for t in range(len(touched)):
        g = touched[t]
        stop = -1
        for i in range(first[t], first[t + 1]):
            p = places[i]
            least = _NONE_LATE
            if late[rows[p]]:
                if order[rows[p]] > newest:
                    continue
                least = order[rows[p]]
            begin = max(p, stop)
            if arena_times[begin if begin < end[g] else p] < settled:
                begin = _past(arena_times, begin, end[g], settled - 1)
            a = max(_past(arena_times, begin, end[g], arena_times[p] + reach), p + 1)
            if begin == stop:
                stretches[runs - 1, 3] = min(stretches[runs - 1, 3], least)
            if a <= begin:
                continue
            total += a - begin
            if begin == stop:
                stretches[runs - 1, 2] = a
            else:
                stretches[runs, 0] = start[g]
                stretches[runs, 1] = begin
                stretches[runs, 2] = a
                stretches[runs, 3] = least
                runs += 1
            stop = a
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
    return run_first[: kept + 1], run_start[:kept], at[:n]


@njit(cache=True)
def fill(start, end, rows, source, facts, fact):  # type: ignore[no-untyped-def]
    """facts[p, fact] = source[rows[p]] in all segments."""
    for g in range(len(start)):
        for p in range(start[g], end[g]):
            facts[p, fact] = source[rows[p]]


@njit(cache=True)
def renumber(start, end, room, rows, new_row):  # type: ignore[no-untyped-def]
    """Give the rows in all segments their new numbers; those that have none (-1) stand first and go."""
    for g in range(len(start)):
        while start[g] < end[g] and new_row[rows[start[g]]] < 0:
            start[g] += 1
            room[g] -= 1
        for i in range(start[g], end[g]):
            rows[i] = new_row[rows[i]]


@njit(cache=True)
def compact(start, end, room, rows, arena_times, facts, new_rows, new_times, new_facts):  # type: ignore[no-untyped-def]
    """Copy all segments to the front of a new arena, each with half as much to spare; returns its use."""
    used = 0
    for g in range(len(start)):
        length = end[g] - start[g]
        if length == 0:
            room[g] = 0
            start[g] = end[g] = 0
            continue
        for i in range(length):
            new_rows[used + i] = rows[start[g] + i]
            new_times[used + i] = arena_times[start[g] + i]
            _copy(facts, start[g] + i, new_facts, used + i)
        start[g] = used
        end[g] = used + length
        room[g] = length + length // 2 + 2
        used += room[g]
    return used
