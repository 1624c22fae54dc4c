"""A small model of a micro-batch on many executors, from costs that checks/bench/scale.py measured on one machine.

Assumptions: every core is as fast as those of the measured machine; the network is not a bottleneck; the shared file
system is as fast as the local disk; one job per cluster; keys follow Zipf's law. So the results show which part becomes
the bottleneck, and roughly at which rate; they are extrapolated, not measured.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from checks.bench.scale_costs import Line, Local, Scheduling

_LONGEST = 2.0  # seconds of a batch, beyond which it is behind
_SHUFFLE_KEYS = 2  # each event goes to a bucket of each
_BUCKETS = 2  # of a shuffle key, in each partition
_KEYS = 1_000_000


@dataclass(frozen=True)
class Costs:
    """local, scheduling: see scale_costs.py. driver: s a batch that the driver needs besides its tasks.

    an_event: s of a core that the whole job needs for one more event; most of it goes between the parts that are ours.
    """

    local: Local
    scheduling: Scheduling
    driver: float
    an_event: float


def shares(partitions: int, zipf: float, seed: int = 1) -> float:
    """The fullest partition's share of events, whose keys are frequent by Zipf's law (0: all alike), over the mean."""
    weights = np.arange(1, _KEYS + 1, dtype=float) ** -zipf
    place = np.random.default_rng(seed).integers(0, partitions, _KEYS)
    of = np.bincount(place, weights, partitions)
    return float(of.max() / of.mean())


def batch(costs: Costs, partitions: int, events: int, fullest: float) -> dict[str, float]:
    """Seconds of a batch by part, where each partition has a core. fullest: see `shares`."""
    local, mean = costs.local, events / partitions
    spark = max(0.0, costs.an_event - local.packing.each - local.processing.each)
    return {
        "driver": costs.driver + costs.scheduling.job,
        "launching tasks": costs.scheduling.task * 2 * partitions,
        "packing": local.packing.fixed + local.packing.each * mean,
        "fetching blocks": costs.scheduling.block * partitions,  # a task's, one from each packer
        "Kafka, Arrow, JVM": spark * mean,
        "buckets": local.processing.fixed * _SHUFFLE_KEYS * _BUCKETS + local.processing.each * mean,
        "skew": local.processing.each * mean * (fullest - 1),
    }


def most(costs: Costs, cores: int, zipf: float) -> dict[str, Any]:
    """The most events a second that batches of two seconds keep up with, with the best number of partitions that the
    cores can take at once; and where the time of such a batch goes."""
    best: dict[str, Any] = {"value": -1}
    for halvings in range(cores.bit_length()):
        partitions = max(2, cores >> halvings)
        fullest = shares(partitions, zipf)
        empty, one = (sum(batch(costs, partitions, events, fullest).values()) for events in (0, 1_000_000))
        events = int(max(0.0, (_LONGEST - empty) / (one - empty) * 1_000_000))
        if events / _LONGEST > best["value"]:
            parts = batch(costs, partitions, events, fullest)
            rows = _SHUFFLE_KEYS * _BUCKETS * partitions * partitions
            rows = min(rows, _SHUFFLE_KEYS * events)
            shuffled = costs.local.shuffled.each * events + costs.local.shuffled.fixed * rows
            best = {
                "value": round(events / _LONGEST),
                "unit": "events/s",
                "shuffle_partitions": partitions,
                "limit": max(parts, key=parts.__getitem__),
                "seconds": {name: round(took, 3) for name, took in parts.items()},
                "shuffled MB": round(shuffled / 1e6, 1),
                "blocks": partitions * partitions,
                "fullest over mean partition": round(fullest, 2),
                "ms of an empty batch": round(1000 * empty),
            }
    return {"name": f"extrapolated: {cores} cores, Zipf {zipf}", **best}


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
        "the whole job an event, us of a core": round(costs.an_event * 1e6, 1),
    }
