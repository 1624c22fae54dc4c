"""What the driver reports once a second (contracts.job_progress), from Spark's own progress and its standings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from contracts.job_progress import Batches, Lag
from streaming.clock import Standing

# Spark's names for the parts of a micro-batch, and ours.
_PARTS = {
    "latestOffset": "offsets", "getBatch": "read", "queryPlanning": "plan", "walCommit": "log",
    "addBatch": "run", "commitOffsets": "commit", "triggerExecution": "whole",
}  # fmt: skip


def batches_told(progress: Iterable[Mapping[str, Any]]) -> Batches:
    """Spark's progress of some batches as one: rows, and mean milliseconds of the parts of those that had rows."""
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


def lag_told(standings: Mapping[str, list[Standing]], now: int | None) -> dict[str, Lag]:
    """How far behind the job is, by stream.

    now: the brokers' present, µs; None where it is not known yet.
    """
    told: dict[str, Lag] = {}
    for stream, partitions in standings.items():
        waiting = [standing.waiting for standing in partitions if standing.lag and standing.waiting is not None]
        seconds = 0.0 if now is None or not waiting else round(max(0, now - min(waiting)) / 1_000_000, 3)
        told[stream] = {
            "events": sum(standing.lag for standing in partitions),
            "seconds": seconds,
            "end": sum(standing.end for standing in partitions),
        }
    return told
