"""A small model of a micro-batch on many executors, from costs that bench/scale.py measured on one machine.

What it assumes: machines with as much to them a core as the one measured; a network that is no limit; a shared file
system as quick as the local disk was; one job a cluster; keys as events have them, by Zipf's law. So its answers say
which part gives out first, and roughly where; they are extrapolated, not measured.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scale_costs import Line, Local, Scheduling

_LONGEST = 2.0  # seconds of a batch, beyond which it is behind
_ROUTES = 2  # each event goes to a bucket of each
_KEYS = 1_000_000


@dataclass(frozen=True)
class Costs:
    """local, scheduling: see scale_costs.py. driver: s a batch that the driver needs besides its tasks."""

    local: Local
    scheduling: Scheduling
    driver: float


@dataclass(frozen=True)
class Batch:
    """Seconds of a batch by part. skew: of them, what the fullest partition takes beyond a mean one's."""

    events: int
    parts: dict[str, float]
    skew: float

    @property
    def seconds(self) -> float:
        """The whole."""
        return sum(self.parts.values())


def shares(partitions: int, zipf: float, seed: int = 1) -> float:
    """The fullest partition's share of events, whose keys are frequent by Zipf's law (0: all alike), over the mean."""
    weights = np.arange(1, _KEYS + 1, dtype=float) ** -zipf
    place = np.random.default_rng(seed).integers(0, partitions, _KEYS)
    of = np.bincount(place, weights, partitions)
    return float(of.max() / of.mean())


def batch(costs: Costs, executors: int, cores: int, events: int, fullest: float) -> Batch:
    """A batch of so many events. fullest: see `shares`."""
    slots = executors * cores
    packers = partitions = slots
    buckets = 2 * partitions
    rows = _ROUTES * min(packers * buckets, events)
    a_bucket = _ROUTES * buckets / partitions
    bucket_s = costs.local.processing.fixed * a_bucket + costs.local.processing.each * events / partitions
    parts = {
        "driver": costs.driver + costs.scheduling.job,
        "launching tasks": costs.scheduling.task * (packers + partitions),
        "packing": costs.local.packing.fixed + costs.local.packing.each * events / packers,
        "shuffle": costs.scheduling.block * min(packers * partitions, rows),
        "buckets": bucket_s,
        "skew": costs.local.processing.each * events / partitions * (fullest - 1),
    }
    return Batch(events, parts, parts["skew"])


def most(costs: Costs, executors: int, cores: int, zipf: float) -> dict[str, Any]:
    """The most events a second that batches of two seconds keep up with, and where their time goes."""
    fullest = shares(executors * cores, zipf)
    low, high = 0, 1_000_000_000
    while high - low > 1000:
        middle = (low + high) // 2
        taken = batch(costs, executors, cores, middle, fullest)
        low, high = (middle, high) if taken.seconds <= _LONGEST else (low, middle)
    at = batch(costs, executors, cores, low, fullest)
    volume = costs.local.shuffled.each * low + costs.local.shuffled.fixed * _ROUTES * min(
        (executors * cores) ** 2 * 2, low
    )
    return {
        "name": f"extrapolated: {executors} executors of {cores} cores, Zipf {zipf}",
        "value": round(low / _LONGEST), "unit": "events/s", "limit": max(at.parts, key=at.parts.__getitem__),
        "seconds": {name: round(took, 3) for name, took in at.parts.items()},
        "shuffled MB a batch": round(volume / 1e6, 1), "blocks a batch": (executors * cores) ** 2,
        "fullest over mean partition": round(fullest, 2),
        "ms of an empty batch": round(1000 * batch(costs, executors, cores, 0, fullest).seconds),
    }  # fmt: skip


def as_json(costs: Costs) -> dict[str, Any]:
    """The laws that were fitted, for a line: microseconds, bytes, and the error of each fit."""

    def line(of: Line, scale: float) -> dict[str, float]:
        return {"fixed": round(of.fixed * scale, 2), "an event": round(of.each * scale, 3), "error": round(of.error, 3)}

    return {
        "name": "fitted costs",
        "packing a batch, us": line(costs.local.packing, 1e6),
        "a bucket, us": line(costs.local.processing, 1e6),
        "shuffled a row, bytes": line(costs.local.shuffled, 1.0),
        "scheduling, ms": {name: round(1000 * of, 3) for name, of in asdict(costs.scheduling).items()},
        "driver a batch, ms": round(1000 * costs.driver, 1),
    }
