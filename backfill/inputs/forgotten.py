"""Which alerts depend on events that were erased with a person (S15): nobody can evaluate these again.

How it works: of each erased event the lake keeps its time and, by group-by, a mark of its group (`mark_of`). An alert
depends on such an event if its group has that mark and its window reaches the event. Many groups share a mark, so now
and then an alert of another group is taken for one that depends, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from nightjar.backfill.config import DAY
from nightjar.backfill.inputs.scope import group_by_name
from nightjar.lake import delta
from nightjar.lake.scanning import scan
from nightjar.lake.tables import FORGOTTEN
from nightjar.rules.canonical import rewritten
from nightjar.rules.retention import waits_for, widest
from nightjar.rules.versions import RuleVersion
from nightjar.storage.paths import AnyPath

# A mark has so many values that about one group in so many has the same: enough to recognise a group that is known,
# too few to find out which one it was.
_MARKS = 4096

_Key = tuple[str, str, int]
_EMPTY = {"stream": pl.String, "at": pl.Int64, "marks": pl.String}


class _Window(NamedTuple):
    """The group-by of a version, how far before an event and after it (µs) it looks, and whether it mutes."""

    group_by: str
    reach: int
    waiting: int
    mutes: bool


@dataclass(frozen=True)
class Forgotten:
    """What is known of erased events. rows: stream, at (µs) and marks (JSON); versions: by rule id and version."""

    rows: pl.DataFrame
    versions: Mapping[tuple[str, int], _Window]

    @classmethod
    def of(cls, root: AnyPath, versions: Iterable[RuleVersion]) -> Forgotten:
        """What the lake has."""
        named = {
            (v.rule.id, v.version): _Window(
                group_by_name(v.rule.group_by), widest(v), waits_for(v.rule), v.rule.mute is not None
            )
            for v in versions
        }
        if not delta.exists(root, FORGOTTEN):
            return cls(pl.DataFrame(schema=_EMPTY), named)
        rows = scan(root, FORGOTTEN).select("stream", pl.col("event_time").dt.epoch("us").alias("at"), "marks")
        return cls(rows.collect(), named)

    @classmethod
    def none(cls) -> Forgotten:
        """Nobody was forgotten."""
        return cls(pl.DataFrame(schema=_EMPTY), {})

    @cached_property
    def _times(self) -> dict[_Key, np.ndarray]:
        """By stream, group-by and mark the times of erased events, sorted; under mark -1 those whose mark by that
        group-by is unknown, because no rule grouped by it when they were erased."""
        found: dict[_Key, list[int]] = {}
        names = {window.group_by for window in self.versions.values()}
        for stream, at, marks in self.rows.select("stream", "at", "marks").iter_rows():
            known = json.loads(marks)
            for name in names:
                mark = known.get(name, -1)
                if mark is not None:  # the event was in no group
                    found.setdefault((stream, name, mark), []).append(at)
        return {key: np.sort(np.array(times, np.int64)) for key, times in found.items()}

    def depends(self, alerts: pl.DataFrame) -> pl.Series:
        """Of each alert (stream, rule_id, rule_version, group, event_time) whether it depends on an erased event."""
        if not self.rows.height:
            return pl.repeat(value=False, n=alerts.height, eager=True)
        columns = ("stream", "rule_id", "rule_version", "group", pl.col("event_time").dt.epoch("us"))
        found = [self._depends(*row) for row in alerts.select(columns).iter_rows()]
        return pl.Series(found, dtype=pl.Boolean)

    def _depends(self, stream: str | None, rule_id: str, version: int, group: str | None, at: int | None) -> bool:
        if (rule_id, version) not in self.versions or stream is None or group is None or at is None:
            return False
        window = self.versions[rule_id, version]
        since, until = (at // DAY * DAY if window.mutes else at) - window.reach, at + window.waiting
        times = (self._times.get((stream, window.group_by, mark)) for mark in (mark_of(group), -1))
        return any(self._is_within(each, since, until) for each in times)

    @staticmethod
    def _is_within(times: np.ndarray | None, since: int, until: int) -> bool:
        return times is not None and bool(np.searchsorted(times, since) < np.searchsorted(times, until, side="right"))


def mark_of(group: str) -> int:
    """The mark of a group, given as the lake's alerts have it (JSON)."""
    return int.from_bytes(hashlib.sha256(rewritten(group).encode()).digest()[:4]) % _MARKS
