"""Aggregates of long windows, carried from one batch to the next instead of filled again.

For each aggregate (asked[j], see answers) a *state* has what is known of one stretch of a walk, the rows from `a` on
and before `b`. `move` changes the stretch; `answer` answers about windows that begin in it and end behind it, and
leaves the states as they were. Every row of the stretch is in it: windows that late rows are left out of are not for
here. `plan_runs` finds the state of each group and says how it is moved; `answer_runs` moves and asks them.

A state is int64, and in state[offsets[j]:offsets[j + 1]]:

- COUNT, TOTALS, SPREAD: the count, then as in kernels.steps high, low and four words of squares;
- SUM, MEAN, DEVIATION (of doubles): the count, the limbs of the sum, and for DEVIATION those of the squares;
- LEAST, GREATEST: head and tail, then a deque of places, each of the extreme of all rows behind the place before it;
- FIRST, LAST: the first place that counts, `b` where none does; the last one, -1 where none does;
- DISTINCT: how many values there are, how many slots are taken, then a table: keys, then counts, -1 in a free slot;
- MODE: how many slots are taken, then a table: keys, counts as above, the place of each value's last row;
- QUANTILE: a band, its values, and how often each occurs (see quantiles).
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels import floats, totals
from nightjar.rules.engine.kernels.answers import DOUBLE, WIDE
from nightjar.rules.functions import (
    COUNT,
    DEVIATION,
    DISTINCT,
    FIRST,
    GREATEST,
    LAST,
    LEAST,
    LIMBS,
    MEAN,
    MODE,
    SPECS,
    SPREAD,
    SQUARES,
    SUM,
)

_LOW = np.int64(0xFFFFFFFF)
_TABLE = 2  # where a table or a deque begins in its state
_SIZES = {
    each.code: (each.carried, each.carried_per_place)
    for spec in SPECS.values()
    for each in (spec.computation, spec.of_doubles)
    if each is not None
}


# Columns of `held`, one row per group: where its state is, of how many places, whether it is valid, the stretch, the
# store rows at both ends of it, and how many places it must have at least.
STATE, PLACES, VALID, BEGIN, END, FIRST_ROW, LAST_ROW, LEAST_PLACES = range(8)
# Columns of `plan`, one row per run: the group (NOT_CARRIED: the run is left), where its state is and of how many
# places (a later run of the group may have another), the stretch before and after, how many rows behind it windows
# have, and whether the state is to be filled from nothing.
GROUP, STATE_AT, STATE_PLACES, OLD_BEGIN, OLD_END, NEW_BEGIN, NEW_END, AHEAD, IS_NEW = range(9)
NOT_CARRIED = -1


def sizes_of(asked: np.ndarray) -> np.ndarray:
    """int64 (asked, 2): words of each state, and in addition so many per place."""
    return np.array([_SIZES[code] for code in asked[:, 0].tolist()], np.int64).reshape(-1, 2)


@kernel
def _places(rows, least):
    """Room for stretches of about so many rows: at first deques and tables take at most six bytes a row."""
    places = max(32, least)
    while 16 * places <= rows:
        places *= 2
    return places


@kernel
def _lay_out(sizes, places, offsets):
    """Write where each state begins, and where the last one ends."""
    offsets[0] = 0
    for j in range(len(sizes)):
        offsets[j + 1] = offsets[j] + sizes[j, 0] + places * sizes[j, 1]


@kernel
def _clear(state, offsets, asked, places):
    """Make the states those of an empty stretch."""
    state[:] = 0
    for j in range(len(asked)):
        if asked[j, 0] == LAST:
            state[offsets[j]] = -1
        elif asked[j, 0] == DISTINCT:
            state[offsets[j + 1] - 2 * places : offsets[j + 1]] = -1  # a table has twice as many slots
        elif asked[j, 0] == MODE:
            state[offsets[j + 1] - 4 * places : offsets[j + 1] - 2 * places] = -1


@kernel
def _is_there(known, rows, start, begin, end):
    """Whether a stretch is still where it was, with the same rows, and before the window that is wanted.

    A group's rows are in order, and only the first ones are ever removed: with the same rows at both ends, as far apart
    as before, nothing has come between them.
    """
    if not known[VALID] or not (start <= known[BEGIN] <= begin and known[END] <= end):
        return False
    return rows[known[BEGIN]] == known[FIRST_ROW] and rows[known[END] - 1] == known[LAST_ROW]


@kernel
def _in_order(rows, at, low, first, last, last_late, arrivals):
    """Whether the windows of a run's rows begin one after the other, and no late row is left out of any."""
    for k in range(first, last):
        if (last_late >= 0 and last_late > arrivals[rows[at[k]]]) or (k > first and low[k] < low[k - 1]):
            return False
    return True


@kernel
def plan_runs(run_first, run_start, at, low, end, rows, codes, last_late, arrivals, held, used, sizes, limits):
    """The plan: which state answers about each run, and how that is moved.

    held: of each group what is known of its state. used: how many words of the room are used, in an array of one.
    limits: of how many rows a window is long, how many times the rows to evaluate it must have, the share of its rows
    by which a stretch may be behind, and how many words the room has.
    """
    long, times, share, words = limits
    fixed, per_place = sizes[:, 0].sum(), sizes[:, 1].sum()
    plan = np.full((len(run_first) - 1, 9), NOT_CARRIED, np.int64)
    for r in range(len(run_first) - 1):
        first, last = run_first[r], run_first[r + 1]
        begin, stop = low[first], end[first]
        length = stop - begin
        if length < long or (last - first) * times > length or low[last - 1] > stop:
            continue
        if not _in_order(rows, at, low, first, last, last_late, arrivals):
            continue
        group = codes[rows[at[first]]]
        known = held[group]
        is_new = not _is_there(known, rows, run_start[r], begin, stop)
        if is_new:
            places = _places(length, known[LEAST_PLACES])
            if known[PLACES] < places:
                needed = fixed + places * per_place
                if used[0] + needed > words:
                    continue
                known[STATE], known[PLACES] = used[0], places
                used[0] += needed
            known[VALID], known[BEGIN], known[END] = 1, begin, begin
        old_begin, old_end = known[BEGIN], known[END]
        new_begin, new_end = old_begin, old_end
        if (begin - old_begin) + (stop - old_end) > length // share or low[last - 1] > old_end:
            new_begin, new_end = begin, stop
        known[BEGIN], known[END] = new_begin, new_end
        known[FIRST_ROW], known[LAST_ROW] = rows[new_begin], rows[new_end - 1]
        plan[r, GROUP], plan[r, IS_NEW] = group, is_new
        plan[r, STATE_AT], plan[r, STATE_PLACES] = known[STATE], known[PLACES]
        plan[r, OLD_BEGIN], plan[r, OLD_END] = old_begin, old_end
        plan[r, NEW_BEGIN], plan[r, NEW_END] = new_begin, new_end
        plan[r, AHEAD] = end[last - 1] + 1 - new_end
    return plan


@kernel
def begun(planned, known, room, sizes, offsets, asked):
    """The state of a run that is planned, where it is to be filled from nothing that of an empty stretch; empty where
    an earlier run of the same group has found no room."""
    _lay_out(sizes, planned[STATE_PLACES], offsets)
    state = room[planned[STATE_AT] : planned[STATE_AT] + offsets[-1]]
    if planned[IS_NEW]:
        _clear(state, offsets, asked, planned[STATE_PLACES])
    return state if known[VALID] else state[:0]


@kernel
def give_up(known):
    """Have a state that had no room filled again with twice as much."""
    known[VALID] = 0
    known[LEAST_PLACES] = 2 * known[PLACES]


@kernel
def _counted(marks, p, word, bit):
    return (marks[p, word] >> bit) & 1


@kernel
def _total(state, what, sign, rows, marks, word, bit, values, column):
    """Add the rows to the totals, or with sign -1 take them away."""
    n, high, low = np.int64(0), np.int64(0), np.int64(0)
    for p in range(rows[0], rows[1]):
        counted = np.int64(_counted(marks, p, word, bit))
        n += counted
        if what != COUNT:
            high += counted * (np.int64(values[p, column]) >> 32)
            low += counted * (np.int64(values[p, column]) & _LOW)
        if what == SPREAD and counted:
            totals.square(np.int64(values[p, column]), sign, state[3:])
    state[0] += sign * n
    state[1] += sign * high
    state[2] += sign * low


@kernel
def _float_total(state, what, sign, rows, marks, word, bit, values, column):
    limbs, squares = state[1 : 1 + LIMBS], state[1 + LIMBS :]
    for p in range(rows[0], rows[1]):
        if _counted(marks, p, word, bit):
            state[0] += sign
            floats.add(limbs, values[p, column], sign)
            if what == DEVIATION:
                floats.add_square(squares, values[p, column], sign)


@kernel
def _slot(keys, counts, key):
    """The key's slot, or the free one for it."""
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = np.int64((h ^ (h >> np.uint64(32))) & np.uint64(len(keys) - 1))
    while counts[at] >= 0 and keys[at] != key:
        at = at + np.int64(1) if at + 1 < len(keys) else np.int64(0)
    return at


@kernel
def _occur(state, sign, rows, marks, word, bit, values, column):
    """Have the rows' values occur once more, or with sign -1 once less; returns whether there was a slot for each."""
    slots = (len(state) - _TABLE) // 2
    keys, counts = state[_TABLE : _TABLE + slots], state[_TABLE + slots :]
    for p in range(rows[0], rows[1]):
        if not _counted(marks, p, word, bit):
            continue
        at = _slot(keys, counts, np.int64(values[p, column]))
        if counts[at] < 0:
            if 2 * state[1] >= slots:
                return False
            state[1] += 1
            keys[at] = values[p, column]
            counts[at] = 0
        counts[at] += sign
        state[0] += sign * (counts[at] == (1 if sign > 0 else 0))
    return True


@kernel
def _have_slots(state, more):
    """Whether the table has slots for so many other values; those that no longer occur lose theirs if need be."""
    slots = (len(state) - _TABLE) // 2
    if 2 * (state[1] + more) <= slots:
        return True
    keys, counts = state[_TABLE : _TABLE + slots], state[_TABLE + slots :]
    old_keys, old_counts = keys.copy(), counts.copy()
    counts[:] = -1
    for j in range(slots):
        if old_counts[j] > 0:
            at = _slot(keys, counts, old_keys[j])
            keys[at] = old_keys[j]
            counts[at] = old_counts[j]
    state[1] = state[0]
    return 2 * (state[1] + more) <= slots


@kernel
def _beats(x, y, largest):
    """Whether a row with x, after one with y, is the extreme of both."""
    return x >= y if largest else x <= y


@kernel
def _begin(state, largest, rows, marks, word, bit, values, column):
    """Fill an empty deque of extremes; returns whether there was room. From the last row on no place goes again."""
    deque = state[_TABLE:]
    head = tail = np.int64(len(deque))
    for p in range(rows[1] - 1, rows[0] - 1, -1):
        if _counted(marks, p, word, bit) and (
            head == tail or not _beats(values[deque[head], column], values[p, column], largest)
        ):
            if head == 0:
                return False
            head -= 1
            deque[head] = p
    state[0], state[1] = head, tail
    return True


@kernel
def _push(state, largest, rows, begin, marks, word, bit, values, column):
    """Append the rows to the deque of extremes, whose rows before `begin` go; returns whether there was room."""
    deque = state[_TABLE:]
    head, tail = state[0], state[1]
    while head < tail and deque[head] < begin:
        head += 1
    if head == tail:
        return _begin(state, largest, (max(rows[0], begin), rows[1]), marks, word, bit, values, column)
    for p in range(max(rows[0], begin), rows[1]):
        if not _counted(marks, p, word, bit):
            continue
        while tail > head and _beats(values[p, column], values[deque[tail - 1], column], largest):
            tail -= 1
        if tail == len(deque):
            if 2 * head < tail:
                return False
            for j in range(head, tail):
                deque[j - head] = deque[j]
            head, tail = np.int64(0), tail - head
        deque[tail] = p
        tail += 1
    state[0], state[1] = head, tail
    return True


@kernel
def _move(state, what, old, new, ahead, marks, word, bit, values, column):
    """Of one state, but for totals: whether it could be moved."""
    added = old[1], new[1]
    if what in (LEAST, GREATEST):
        return _push(state, what == GREATEST, added, new[0], marks, word, bit, values, column)
    if what == FIRST:
        p = max(state[0], new[0])
        while p < new[1] and not _counted(marks, p, word, bit):
            p += 1
        state[0] = p
    elif what == LAST:
        p = new[1] - 1
        while p >= old[1] and not _counted(marks, p, word, bit):
            p -= 1
        if p >= old[1]:
            state[0] = p
    elif what == DISTINCT:
        behind = max(old[1], new[0])  # rows that the new stretch does not have are not counted first
        _occur(state, -1, (old[0], min(old[1], new[0])), marks, word, bit, values, column)
        if not _occur(state, 1, (behind, new[1]), marks, word, bit, values, column):
            return False
        return _have_slots(state, ahead)
    return True


@kernel
def move(state, offsets, asked, old, new, ahead, marks, narrow, wide):
    """Move the states from the stretch old (first place, place behind the last) to new, no end of which is before.

    ahead: how many rows behind the stretch windows will have. False where a state has no room: none is valid then.
    """
    doubles = wide.view(np.float64)
    added, removed = (old[1], new[1]), (old[0], new[0])
    for j in range(len(asked)):
        what, word, bit, kind, column = asked[j, 0], asked[j, 1], asked[j, 2], asked[j, 3], asked[j, 4]
        held = state[offsets[j] : offsets[j + 1]]
        if what <= SPREAD:
            for sign, rows in ((1, added), (-1, removed)):
                if kind == WIDE:
                    _total(held, what, sign, rows, marks, word, bit, wide, column)
                else:
                    _total(held, what, sign, rows, marks, word, bit, narrow, column)
        elif what >= SUM:
            for sign, rows in ((1, added), (-1, removed)):
                _float_total(held, what, sign, rows, marks, word, bit, doubles, column)
        else:
            if kind == DOUBLE:
                moved = _move(held, what, old, new, ahead, marks, word, bit, doubles, column)
            elif kind == WIDE:
                moved = _move(held, what, old, new, ahead, marks, word, bit, wide, column)
            else:
                moved = _move(held, what, old, new, ahead, marks, word, bit, narrow, column)
            if not moved:
                return False
    return True


@kernel
def _totals(state, what, window, marks, word, bit, values, column, scale, to, found, doubles, flags):
    first, last, end, low, own, a, b = window
    held = state.copy()
    s1, s2, total = np.zeros(3, np.int64), np.zeros(5, np.int64), np.zeros(7, np.int64)
    overflown = 0
    for k in range(first, last):
        _total(held, what, 1, (b, end[k] + own), marks, word, bit, values, column)
        _total(held, what, -1, (a, low[k]), marks, word, bit, values, column)
        a, b = low[k], end[k] + own
        n, high, low_word = held[0], held[1], held[2]
        if what == COUNT:
            found[to[0], k] = n
            continue
        found[to[0], k], doubles[to[1], k], exceeds = totals.read(n, high, low_word, scale)
        overflown += exceeds
        flags[to[0], k] = exceeds
        flags[to[1], k] = n > 0  # it may be the same row, where neither sum nor mean is asked for
        if what == SPREAD:
            flags[to[2], k] = n > 1
            doubles[to[2], k] = totals.deviation_of(n, high, low_word, held[3:7], scale, s1, s2, total)
    return overflown


@kernel
def _float_totals(state, what, window, marks, word, bit, values, column, to, doubles, flags):
    first, last, end, low, own, a, b = window
    held = state.copy()
    limbs, squares = held[1 : 1 + LIMBS], held[1 + LIMBS :]
    scratch, words = np.zeros(LIMBS, np.int64), np.zeros(4, np.int64)
    total = np.zeros(SQUARES + 1, np.int64)
    overflown = 0
    for k in range(first, last):
        _float_total(held, what, 1, (b, end[k] + own), marks, word, bit, values, column)
        _float_total(held, what, -1, (a, low[k]), marks, word, bit, values, column)
        a, b = low[k], end[k] + own
        n = held[0]
        if what == DEVIATION:
            flags[to, k] = n > 1
            doubles[to, k] = floats.deviation_of(n, limbs, squares, scratch, total) if n > 1 else 0.0
        else:
            flags[to, k] = n > 0
            mean = what == MEAN and n > 0
            doubles[to, k] = floats.mean_of(limbs, n, scratch, words) if mean else floats.sum_of(limbs, scratch)
        overflown += not np.isfinite(doubles[to, k])
    return overflown


@kernel
def _extremes(state, largest, window, marks, word, bit, values, column, out, some):
    first, last, end, low, own, _, b = window
    deque, head, tail = state[_TABLE:], state[0], state[1]
    newest = np.int64(-1)  # the place of the extreme of the rows behind the stretch
    for k in range(first, last):
        for p in range(b, end[k] + own):
            if _counted(marks, p, word, bit) and (
                newest < 0 or _beats(values[p, column], values[newest, column], largest)
            ):
                newest = np.int64(p)
        b = end[k] + own
        while head < tail and deque[head] < low[k]:
            head += 1
        best = newest
        if head < tail and (newest < 0 or not _beats(values[newest, column], values[deque[head], column], largest)):
            best = deque[head]
        some[k] = best >= 0
        out[k] = values[max(best, 0), column] if best >= 0 else 0


@kernel
def _ends(state, latest, window, marks, word, bit, values, column, out, some):
    first, last, end, low, own, _, b = window
    p = state[0]
    for k in range(first, last):
        behind = end[k] + own
        if latest:
            for q in range(b, behind):
                if _counted(marks, q, word, bit):
                    p = q
            b = behind
        else:
            p = max(p, low[k])
            while p < behind and not _counted(marks, p, word, bit):
                p += 1
        some[k] = low[k] <= p < behind
        out[k] = values[p, column] if some[k] else 0


@kernel
def _distincts(state, window, marks, word, bit, values, column, out):
    first, last, end, low, own, begin, behind = window
    a, b = begin, behind
    for k in range(first, last):
        _occur(state, 1, (b, end[k] + own), marks, word, bit, values, column)
        _occur(state, -1, (a, low[k]), marks, word, bit, values, column)
        a, b = low[k], end[k] + own
        out[k] = state[0]
    _occur(state, 1, (begin, a), marks, word, bit, values, column)
    _occur(state, -1, (behind, b), marks, word, bit, values, column)


@kernel
def _answer(state, what, window, marks, word, bit, values, column, out, some):
    if what == DISTINCT:
        _distincts(state, window, marks, word, bit, values, column, out)
    elif what in (FIRST, LAST):
        _ends(state, what == LAST, window, marks, word, bit, values, column, out, some)
    else:
        _extremes(state, what == GREATEST, window, marks, word, bit, values, column, out, some)


@kernel
def answer(state, offsets, asked, scales, window, marks, narrow, wide, found, flags):
    """Answer every asked[j] about windows from low[k] to before end[k], for first <= k < last.

    window: first, last, end, low, whether the row at end[k] is in the window, too (0 or 1), and the stretch of the
    states: its first place and the place behind its last. All low[k] are in it, all end[k] behind it, and both ascend.
    found, flags and the result: see answers.
    """
    doubles, values_of_doubles = found.view(np.float64), wide.view(np.float64)
    overflown = 0
    for j in range(len(asked)):
        what, word, bit, kind, column = asked[j, 0], asked[j, 1], asked[j, 2], asked[j, 3], asked[j, 4]
        to = asked[j, 5], asked[j, 6], asked[j, 7]
        held = state[offsets[j] : offsets[j + 1]]
        if what >= SUM:
            overflown += _float_totals(
                held, what, window, marks, word, bit, values_of_doubles, column, to[0], doubles, flags
            )
        elif what <= SPREAD:
            if kind == WIDE:
                overflown += _totals(
                    held, what, window, marks, word, bit, wide, column, scales[j], to, found, doubles, flags
                )
            else:
                overflown += _totals(
                    held, what, window, marks, word, bit, narrow, column, scales[j], to, found, doubles, flags
                )
        elif kind == DOUBLE:
            _answer(held, what, window, marks, word, bit, values_of_doubles, column, doubles[to[0]], flags[to[0]])
        elif kind == WIDE:
            _answer(held, what, window, marks, word, bit, wide, column, found[to[0]], flags[to[0]])
        else:
            _answer(held, what, window, marks, word, bit, narrow, column, found[to[0]], flags[to[0]])
    return overflown


@kernel
def answer_runs(
    run_first, low, end, own, plan, held, room, sizes, asked, scales, marks, narrow, wide, found, flags, left
):
    """Answer about the runs that are planned (see plan_runs); left: which rows are still to be answered."""
    offsets = np.empty(len(sizes) + 1, np.int64)
    overflown = 0
    for r in range(len(plan)):
        first, last, planned = run_first[r], run_first[r + 1], plan[r]
        if planned[GROUP] == NOT_CARRIED:
            continue
        known = held[planned[GROUP]]
        state = begun(planned, known, room, sizes, offsets, asked)
        if not len(state):
            continue
        old, new = (planned[OLD_BEGIN], planned[OLD_END]), (planned[NEW_BEGIN], planned[NEW_END])
        if not move(state, offsets, asked, old, new, planned[AHEAD], marks, narrow, wide):
            give_up(known)
            continue
        window = first, last, end, low, own, new[0], new[1]
        overflown += answer(state, offsets, asked, scales, window, marks, narrow, wide, found, flags)
        left[first:last] = False
    return overflown
