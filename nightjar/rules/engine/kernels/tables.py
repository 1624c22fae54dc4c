"""Looking up rows of tables as they were at events."""

from __future__ import annotations

from nightjar.rules.engine.compiled import kernel


@kernel
def look_up(keys, valid_from, position, is_set, asked, times, known, best_from, best_position, found):
    """For each i the last change of the key asked[i] that is valid at times[i] and has a position before known[i].

    keys, valid_from, position, is_set: changes, sorted by the first three. asked: keys, below 0 for none. Where a
    change is later than (best_from[i], best_position[i]), these and found[i], whether it sets the row, become its own.
    """
    for i in range(len(asked)):
        key, time = asked[i], times[i]
        if key < 0:
            continue
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if keys[middle] < key or (keys[middle] == key and valid_from[middle] <= time):
                low = middle + 1
            else:
                high = middle
        at = low - 1
        while at >= 0 and keys[at] == key and position[at] >= known[i]:
            at -= 1
        if at < 0 or keys[at] != key:
            continue
        later = valid_from[at] > best_from[i] or (valid_from[at] == best_from[i] and position[at] > best_position[i])
        if later:
            best_from[i], best_position[i], found[i] = valid_from[at], position[at], is_set[at]
