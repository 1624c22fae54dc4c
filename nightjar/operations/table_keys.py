"""How tables stand towards keys: whether a table has one, since when, until when, by whom and why (S22.2).

What it does not do: decide whether a table has a key. The rows that rules are evaluated with say so, here at each time
from which a change of the key is valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nightjar.files.table_files import Key
from nightjar.operations.tables import TableHistory
from nightjar.rules.engine.table_rows import EVERY, Change
from nightjar.rules.types import FieldType


@dataclass(frozen=True)
class Standing:
    """How a table stands towards a key at a time. has: whether it has it.

    began: the change since which that is so, None if it was never otherwise; ends: the one by which it will be
    otherwise, None if none is known.
    """

    key: Key
    has: bool
    began: Change | None = None
    ends: Change | None = None


def standings(known: TableHistory, table: str, kind: FieldType, keys: Sequence[Key], at: int) -> list[Standing]:
    """How a table, whose key has this type, stands towards each of some keys at an event time (µs)."""
    changes: dict[Key, dict[int, Change]] = {key: {} for key in keys}
    for change in known.changes:
        if change.table == table:
            for key in changes.keys() & {*change.keys}:
                changes[key][change.valid_from] = change  # of several with the same time the last record counts
    asked = [(key, time) for key, valid in changes.items() for time in sorted({*valid, at})]
    had = dict(zip(asked, _holds(known, table, kind, asked), strict=True))
    return [
        _standing(key, valid, {time: had[key, time] for time in (*valid, at)}, at) for key, valid in changes.items()
    ]


def _standing(key: Key, valid: dict[int, Change], had: dict[int, bool], at: int) -> Standing:
    has = had[at]
    before, after = sorted(time for time in valid if time <= at), sorted(time for time in valid if time > at)
    others = [time for time in before if had[time] != has]
    since = [time for time in before if not others or time > others[-1]]
    began = since[0] if since and (has or others) else None
    ends = next((time for time in after if had[time] != has), None)
    return Standing(key, has, *(None if time is None else valid[time] for time in (began, ends)))


def newest_keys(known: TableHistory, table: str, kind: FieldType, at: int) -> list[Key]:
    """The keys that a table has at an event time (µs), those first that were changed last."""
    changes = (each for each in reversed(known.changes) if each.table == table)
    every: list[Key] = [*dict.fromkeys(key for each in changes for key in each.keys[::-1])]
    held = _holds(known, table, kind, [(key, at) for key in every])
    return [key for key, has in zip(every, held, strict=True) if has]


def _holds(known: TableHistory, table: str, kind: FieldType, asked: Iterable[tuple[Key, int]]) -> list[bool]:
    asked = [*asked]
    keys = pa.array([key for key, _ in asked], kind.arrow)
    times = np.array([time for _, time in asked], np.int64)
    held = known.rows.holds(table, keys, times, np.full(len(times), EVERY))
    return [bool(each) for each in held]
