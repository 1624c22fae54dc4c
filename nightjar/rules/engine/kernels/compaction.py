"""Compaction of an arena's segments (see segments) in place: to its front, then apart with their room."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels.segments import END, ROOM, SCRATCH, START, first_from, move_all, spare


@kernel
def plan(spans, touched, first, horizon, arena_times):
    """Calculate every segment's room, with its new rows if it is touched; returns the total.

    Rows before `horizon` are evicted. The segments stay where they are until `gather` and `spread` move them.
    """
    for t in range(len(touched)):
        spans[touched[t], SCRATCH] = first[t + 1] - first[t]
    total = 0
    for g in range(len(spans)):
        start, end = np.int64(spans[g, START]), np.int64(spans[g, END])
        start = first_from(arena_times, start, end, horizon)
        length = end - start + max(spans[g, SCRATCH], 0)
        room = length + spare(length) if length else 0
        spans[g, START] = start
        spans[g, ROOM] = room
        spans[g, SCRATCH] = -1
        total += room
    return total


@kernel
def gather(spans, by_start, rows, arena_times, marks, narrow, wide):
    """Move all segments to the front of the arena, without room; returns its use."""
    used = np.int64(0)
    for g in by_start:
        start, end = np.int64(spans[g, START]), np.int64(spans[g, END])
        move_all(rows, arena_times, marks, narrow, wide, start, used, end - start)
        spans[g, START] = used
        used += end - start
        spans[g, END] = used
    return used


@kernel
def spread(spans, by_start, total, rows, arena_times, marks, narrow, wide):
    """Move all segments, as `gather` left them, apart so that each has its room, up to `total`."""
    for at in range(len(by_start) - 1, -1, -1):
        g = by_start[at]
        start, length = np.int64(spans[g, START]), np.int64(spans[g, END]) - np.int64(spans[g, START])
        total -= spans[g, ROOM]
        move_all(rows, arena_times, marks, narrow, wide, start, total, length)
        spans[g, START] = total
        spans[g, END] = total + length
