"""mode: the value that occurs most often, of several such ones the one that occurred last (S17.3).

How it works: a table has for each value how often it occurs and the place of its last row. A tournament over its slots
has the winner of each pair, of each four, and so on: so a row that enters the window or leaves it costs as many
comparisons as the table's size has digits, whatever is in the window.
"""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels.order import bounds, is_scanned

# Slots of a table at first: enough for most windows.
_SLOTS = 256


@kernel(inline="always")
def _slot(keys, counts, key):
    """The key's slot, or the free one for it, whose count is -1."""
    mask = np.uint64(len(keys) - 1)
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = (h ^ (h >> np.uint64(32))) & mask
    while counts[at] >= 0 and keys[at] != key:
        at = (at + np.uint64(1)) & mask
    return np.int64(at)


@kernel(inline="always")
def _is_behind(counts, places, x, y):
    """Whether the value of slot x comes after that of slot y."""
    return counts[x] < counts[y] or (counts[x] == counts[y] and places[x] < places[y])


@kernel
def play(counts, places, winners):
    """Fill the tournament: winners[1] is the slot of the most frequent value, winners[0] is not used."""
    half = len(counts) // 2
    for node in range(len(counts) - 1, 0, -1):
        x, y = 2 * (node - half), 2 * (node - half) + 1
        if node < half:
            x, y = winners[2 * node], winners[2 * node + 1]
        winners[node] = y if _is_behind(counts, places, x, y) else x


@kernel(inline="always")
def _replay(counts, places, winners, slot):
    """Have the tournament right where one slot has changed."""
    half = len(counts) // 2
    node = half + slot // 2
    x = slot - slot % 2
    y = x + 1
    while node > 0:
        winner = y if _is_behind(counts, places, x, y) else x
        if winner == winners[node] and winner != slot:
            break
        winners[node] = winner
        node //= 2
        x, y = winners[2 * node], winners[2 * node + 1]


@kernel(inline="always")
def _enter(keys, counts, places, key, p):
    """Add the row at a place to its value; returns (slot, whether that was free)."""
    slot = _slot(keys, counts, key)
    fresh = counts[slot] < 0
    if fresh:
        keys[slot] = key
        counts[slot] = 0
    if counts[slot] == 0 or places[slot] < p:
        places[slot] = p
    counts[slot] += 1
    return slot, fresh


@kernel
def _scan(run_first, fill, begin, ops, marks, word, bit, values, column, out, found, keys, counts, places):
    """As modes, of the runs that are scanned and have room in the table; returns how many others have rows."""
    others = 0
    for r in range(len(run_first) - 1):
        k = run_first[r]
        filled = fill[r, 1] - fill[r, 0]
        rows = filled + begin[run_first[r + 1]] - begin[k]
        if 2 * rows > len(keys) or not is_scanned(run_first, begin, ops, r):
            others += k < run_first[r + 1]
            continue
        counts[:] = -1
        best = np.int64(-1)
        for step in range(rows):
            p = fill[r, 0] + step if step < filled else ops[begin[k] + step - filled] - 1
            if (marks[p, word] >> bit) & 1:
                slot, _ = _enter(keys, counts, places, np.int64(values[p, column]), p)
                if best < 0 or _is_behind(counts, places, best, slot):
                    best = slot
        found[k] = best >= 0
        out[k] = keys[best] if best >= 0 else 0
    return others


@kernel
def _table(slots):
    return (
        np.zeros(slots, np.int64),
        np.full(slots, -1, np.int64),
        np.zeros(slots, np.int64),
        np.zeros(slots, np.int64),
    )


@kernel
def _regrown(keys, counts, places):
    """A table with the values that occur, room for as many more, and how many slots are taken: (used, table)."""
    used = 0
    for slot in range(len(keys)):
        used += counts[slot] > 0
    slots = _SLOTS
    while slots < 4 * (used + 1):
        slots *= 2
    table = _table(slots)
    for old in range(len(keys)):
        if counts[old] > 0:
            slot = _slot(table[0], table[1], keys[old])
            table[0][slot], table[1][slot], table[2][slot] = keys[old], counts[old], places[old]
    return used, table


@kernel
def modes(run_first, fill, begin, ops, marks, word, bit, values, column, out, found):
    """out[k]: the value (int64: a code, a number, the bits of a double) that is most frequent in window k, where
    found[k]; of several the one whose last row is behind those of the others. A run of one row is scanned, as in
    `order`."""
    keys, counts, places, winners = _table(_SLOTS)
    if _scan(run_first, fill, begin, ops, marks, word, bit, values, column, out, found, keys, counts, places) == 0:
        return
    live = np.zeros(64, np.uint8)
    for r in range(len(run_first) - 1):
        rows = fill[r, 1] - fill[r, 0] + begin[run_first[r + 1]] - begin[run_first[r]]
        if run_first[r] == run_first[r + 1] or (2 * rows <= _SLOTS and is_scanned(run_first, begin, ops, r)):
            continue
        base, stop = bounds(run_first, fill, begin, ops, r)
        if stop - base > len(live):
            live = np.zeros(2 * (stop - base), np.uint8)
        if len(keys) > 16 * _SLOTS:  # a hot group's table is too far apart for small ones
            keys, counts, places, winners = _table(_SLOTS)
        counts[:] = -1
        used = 0
        # the window to fill
        for p in range(fill[r, 0], fill[r, 1]):
            if (marks[p, word] >> bit) & 1:
                live[p - base] = 1
                _, fresh = _enter(keys, counts, places, np.int64(values[p, column]), p)
                used += fresh
                if 2 * used > len(keys):
                    used, (keys, counts, places, winners) = _regrown(keys, counts, places)
        play(counts, places, winners)
        # its changes
        for k in range(run_first[r], run_first[r + 1]):
            for o in range(begin[k], begin[k + 1]):
                p = abs(ops[o]) - 1
                if not (marks[p, word] >> bit) & 1:
                    continue
                key = np.int64(values[p, column])
                live[p - base] = ops[o] > 0
                if ops[o] > 0:
                    slot, fresh = _enter(keys, counts, places, key, p)
                    used += fresh
                    if 2 * used > len(keys):
                        used, (keys, counts, places, winners) = _regrown(keys, counts, places)
                        play(counts, places, winners)
                        continue
                else:
                    slot = _slot(keys, counts, key)
                    counts[slot] -= 1
                    if counts[slot] and places[slot] == p:  # as only a late row is, which others are behind
                        q = p - 1
                        while not live[q - base] or values[q, column] != key:
                            q -= 1
                        places[slot] = q
                _replay(counts, places, winners, slot)
            best = winners[1]
            found[k] = counts[best] > 0
            out[k] = keys[best] if counts[best] > 0 else 0
        live[: stop - base] = 0


@kernel
def _parts(state):
    slots = (len(state) - 1) // 3
    return state[1 : 1 + slots], state[1 + slots : 1 + 2 * slots], state[1 + 2 * slots :]


@kernel
def _have_slots(state, more):
    """Whether the table has slots for so many other values; those that no longer occur lose theirs if need be."""
    keys, counts, places = _parts(state)
    if 2 * (state[0] + more) <= len(keys):
        return True
    old_keys, old_counts, old_places = keys.copy(), counts.copy(), places.copy()
    counts[:] = -1
    state[0] = 0
    for old in range(len(keys)):
        if old_counts[old] > 0:
            slot = _slot(keys, counts, old_keys[old])
            keys[slot], counts[slot], places[slot] = old_keys[old], old_counts[old], old_places[old]
            state[0] += 1
    return 2 * (state[0] + more) <= len(keys)


@kernel
def move(state, old, new, ahead, marks, word, bit, values, column):
    """Move a carried state (how many slots are taken, then the table) from one stretch of rows to another.

    ahead: how many rows behind the stretch windows will have. Returns whether there is room for all of them.
    """
    keys, counts, places = _parts(state)
    for p in range(old[0], min(old[1], new[0])):
        if (marks[p, word] >> bit) & 1:
            counts[_slot(keys, counts, np.int64(values[p, column]))] -= 1
    for p in range(max(old[1], new[0]), new[1]):  # rows that the new stretch does not have are not counted first
        if (marks[p, word] >> bit) & 1:
            if 2 * state[0] >= len(keys):
                return False
            _, fresh = _enter(keys, counts, places, np.int64(values[p, column]), p)
            state[0] += fresh
    return _have_slots(state, ahead)


@kernel
def answer(state, window, marks, word, bit, values, column, out, found):
    """As modes, of the windows that begin in a carried stretch and end behind it; see carried.answer."""
    first, last, end, low, own, a, b = window
    keys, counts, places = _parts(state.copy())
    winners = np.zeros(len(keys), np.int64)
    for k in range(first, last):
        for p in range(b, end[k] + own):
            if (marks[p, word] >> bit) & 1:
                slot, _ = _enter(keys, counts, places, np.int64(values[p, column]), p)
                if k > first:
                    _replay(counts, places, winners, slot)
        for p in range(a, low[k]):
            if (marks[p, word] >> bit) & 1:
                slot = _slot(keys, counts, np.int64(values[p, column]))
                counts[slot] -= 1
                if k > first:
                    _replay(counts, places, winners, slot)
        a, b = low[k], end[k] + own
        if k == first:
            play(counts, places, winners)
        best = winners[1]
        found[k] = counts[best] > 0
        out[k] = keys[best] if counts[best] > 0 else 0
