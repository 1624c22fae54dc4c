"""Measures the costs of parts for checks/bench/scale.py: a bucket's work, shuffled bytes, and Spark's cost per task."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from checks.bench.pipeline import RULES, events, message
from nightjar.contracts.rule_status import fold
from nightjar.contracts.topics import Topics
from nightjar.rules.rulebook import Record, RuleBook
from nightjar.rules.streams import load_streams
from nightjar.streaming.buckets.packer import Packer
from nightjar.streaming.buckets.payloads import encoded
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.processor import BucketProcessor
from nightjar.streaming.driver.answering import answer_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HELD = 40_000  # events that the engines hold before anything is measured
_BATCHES = 12


@dataclass(frozen=True)
class Line:
    """A cost that is `fixed` for each of some things and `each` for each event.

    error: the median of |fit / measured - 1|.
    """

    fixed: float
    each: float
    error: float

    @classmethod
    def fitted(cls, points: list[tuple[float, float, float]]) -> Line:
        """Of (things, events, cost), by least squares of relative errors."""
        things, count, cost = np.array(points).T
        found = np.linalg.lstsq(np.column_stack([things / cost, count / cost]), np.ones(len(cost)), rcond=None)[0]
        fixed, each = np.maximum(found, 0.0)
        return cls(float(fixed), float(each), float(np.median(np.abs((fixed * things + each * count) / cost - 1))))


@dataclass(frozen=True)
class Local:
    """packing: s a batch and event; processing: s a bucket and event; shuffled: bytes a row and event."""

    packing: Line
    processing: Line
    shuffled: Line


def local_costs(folder: Path, buckets: list[int], sizes: list[int]) -> Local:
    """Packing batches, and evaluating them in all their buckets one after the other, in this process."""
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for number in buckets:
        streams = load_streams()
        book, answers = RuleBook(streams), []
        for offset, rule in enumerate(RULES):
            whole = {"stream": "transactions", "group_by": ["customer_id"], "effective": "2000-01-01T00:00:00Z", **rule}
            record = Record(offset, 0, json.dumps(whole).encode())
            _, value = answer_to(record, f"rules-0-{offset}", book, book.shuffle_keys, 0)
            answers.append(Record(offset, 0, json.dumps(value).encode()))
            fold(book, answers[-1])
        shuffle_keys, topics = tuple(book.shuffle_keys), Topics()
        packer = Packer(
            streams, shuffle_keys, number, number, topics.rule_status, topics.clock, topics.quarantine, bounded=True
        )
        plan = BucketPlan(
            "scale", f"run-{number}", folder / str(number), streams, shuffle_keys, number, topics, tuple(answers)
        )
        processor = BucketProcessor(plan)
        for version, (size, records) in enumerate(_batches(sizes), 1):
            began = time.perf_counter()
            packed = [(bucket, kind, encoded(payload)) for bucket, kind, payload in packer.packed(records)]
            took = time.perf_counter() - began
            of_bucket: dict[int, dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
            for bucket, kind, payload in packed:
                of_bucket[bucket][kind].append(payload)
            began = time.perf_counter()
            for bucket, payloads in of_bucket.items():
                list(processor.process(bucket, version, payloads))
            processed = time.perf_counter() - began
            if size:
                found["packing"].append((1, size, took))
                found["processing"].append((len(of_bucket), size, processed))
                found["shuffled"].append((len(packed), size, sum(len(payload) for _, _, payload in packed)))
    return Local(**{name: Line.fitted(points) for name, points in found.items()})


def _batches(sizes: list[int]) -> Iterator[tuple[int, pa.Table]]:
    """(events, Kafka records): first what fills the engines and has code compiled, which counts as 0 events."""
    again = [of for of in sizes for _ in range(_BATCHES // len(sizes))]
    for seed, size in enumerate([-_HELD, *(-of for of in sizes), *again], 1):
        now = 1_767_225_600_000 + seed * 60_000  # some minute
        values = [message(event, now) for event in events(abs(size), hot=False, seed=seed)]
        rows = len(values)
        yield (
            max(size, 0),
            pa.table(
                {
                    "topic": pa.array(["transactions"] * rows),
                    "partition": pa.array([0] * rows, pa.int32()),
                    "offset": pa.array(range(seed * 1_000_000, seed * 1_000_000 + rows), pa.int64()),
                    "timestamp": pa.array([now * 1000] * rows, pa.timestamp("us", "UTC")),
                    "value": pa.array(values, pa.binary()),
                    "sent_at": pa.nulls(rows, pa.int64()),
                }
            ),
        )


@dataclass(frozen=True)
class Scheduling:
    """Of Spark: s a job, a task, and a block that a task of a shuffle fetches."""

    job: float
    task: float
    block: float


def scheduling_costs(session: SparkSession, partitions: list[int], repeats: int = 3) -> Scheduling:
    """By jobs that do nothing, without and with a shuffle from each task to each."""
    rows = []
    for number in partitions:
        plain = session.range(0, number, 1, number)
        shuffled = session.range(0, number * number, 1, number).repartition(number)
        for frame, tasks, blocks in ((plain, number, 0), (shuffled, 2 * number, number * number)):
            for turn in range(repeats + 1):
                began = time.perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                if turn:  # the first compiles
                    rows.append((1, tasks, blocks, time.perf_counter() - began))
    *costs, took = np.array(rows).T
    weighed = np.column_stack([cost / took for cost in costs])
    job, task, block = np.maximum(np.linalg.lstsq(weighed, np.ones(len(took)), rcond=None)[0], 0.0)
    return Scheduling(float(job), float(task), float(block))
