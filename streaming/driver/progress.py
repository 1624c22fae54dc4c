"""The driver's part of the job's progress reports (contracts.job_progress), from Spark's progress, that in the
partitions, and the engine process's reports. The buckets' part: buckets/reports.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import structlog

from nightjar.contracts.job_progress import Batches, Lag

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from nightjar.streaming.driver.clock import PartitionProgress
    from nightjar.streaming.real_time.group_times import GroupTimes

_log = structlog.get_logger(__name__)

# Spark's names for the parts of a micro-batch, and ours.
_PARTS = {
    "latestOffset": "offsets",
    "getBatch": "read",
    "queryPlanning": "plan",
    "walCommit": "log",
    "addBatch": "run",
    "commitOffsets": "commit",
    "triggerExecution": "whole",
}


class RecentBatches:
    """The batches of a query, each reported once. slow: µs; batches that take at least this long are logged."""

    def __init__(self, slow: int) -> None:
        self._slow = slow
        self._last = -1

    def restart(self) -> None:
        """Follow another query, whose batches are numbered separately."""
        self._last = -1

    def take(self, query: StreamingQuery) -> list[dict[str, Any]]:
        """Spark's progress of the batches since the last call."""
        recent: list[dict[str, Any]] = [each for each in query.recentProgress if each["batchId"] > self._last]
        self._last = max((batch["batchId"] for batch in recent), default=self._last)
        for batch in recent:
            self._warn_if_slow(batch)
        return recent

    def _warn_if_slow(self, batch: Mapping[str, Any]) -> None:
        took = batch["durationMs"].get("triggerExecution", 0)
        if took * 1000 > self._slow:
            _log.warning(
                "a micro-batch took long",
                batch=batch["batchId"],
                rows=batch["numInputRows"],
                milliseconds=took,
                parts=batch["durationMs"],
            )


def batches_report(progress: Iterable[Mapping[str, Any]]) -> Batches:
    """Spark's progress of several batches as one: rows, and mean milliseconds per part of those with rows."""
    busy = [batch for batch in progress if batch["numInputRows"] > 0]
    if not busy:
        return {"batches": 0, "rows": 0, "most_rows": 0, "parts_ms": {}, "slowest_ms": 0}
    parts = {
        ours: round(sum(batch["durationMs"].get(theirs, 0) for batch in busy) / len(busy), 1)
        for theirs, ours in _PARTS.items()
    }
    return {
        "batches": len(busy),
        "batch": busy[-1]["batchId"],
        "rows": sum(batch["numInputRows"] for batch in busy),
        "most_rows": max(batch["numInputRows"] for batch in busy),
        "parts_ms": parts,
        "slowest_ms": max(batch["durationMs"].get("triggerExecution", 0) for batch in busy),
    }


def groups_report(reported: Iterable[GroupTimes]) -> Batches:
    """What the engine process of a real-time query has reported, as of batches: it calls them groups."""
    found = [*reported]
    groups = sum(each.groups for each in found)
    parts: dict[str, float] = {}
    for each in found:
        for part, seconds in each.seconds.items():
            parts[part] = parts.get(part, 0.0) + seconds
    means = {part: round(1000 * seconds / groups, 2) for part, seconds in parts.items()}
    return {
        "batches": groups,
        "rows": sum(each.rows for each in found),
        "most_rows": max((each.most_rows for each in found), default=0),
        "parts_ms": means | ({"whole": round(sum(means.values()), 2)} if means else {}),
        "slowest_ms": round(1000 * max((each.slowest for each in found), default=0.0), 2),
    }


def lag_report(progress: Mapping[str, list[PartitionProgress]], now: int | None) -> dict[str, Lag]:
    """How far behind the job is, by stream.

    now: the brokers' present, µs; None if it is not known yet.
    """
    reported: dict[str, Lag] = {}
    for stream, partitions in progress.items():
        waiting = [each.waiting for each in partitions if each.lag and each.waiting is not None]
        seconds = 0.0 if now is None or not waiting else round(max(0, now - min(waiting)) / 1_000_000, 3)
        reported[stream] = {
            "events": sum(each.lag for each in partitions),
            "seconds": seconds,
            "end": sum(each.end for each in partitions),
        }
    return reported
