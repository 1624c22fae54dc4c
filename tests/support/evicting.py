"""Engines that evict events as soon as they may, and carry windows that are short, as histories in tests are small."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from nightjar.rules.engine import carried, engine, memory


def _overwrite(array: memory.RowArray, rows: slice) -> None:
    """What large arrays do with memory they give back, and worse: zeros might be taken for values."""
    array.all[rows] = 1


@contextmanager
def evicting_early(floor: int = 2, block: int = 3, room: int = 2, carried_from: int = 3) -> Iterator[None]:
    """Look for what can go at `floor` events, give back blocks of so few, begin with room for `room` rows, so that
    arrays grow after something was given back, and carry windows of so many rows."""
    with (
        patch.object(engine, "_EVICTION_FLOOR", floor),
        patch.object(memory, "BLOCK", block),
        patch.object(memory, "ROOM", room),
        patch.object(memory.RowArray, "release", _overwrite),
        patch.object(carried, "LONG", carried_from),
        patch.object(carried, "_TIMES", 0),
        patch.object(carried, "_AHEAD", 2),
    ):
        yield
