"""The buckets of a task: evaluate a micro-batch in each, with its engine in the memory of an engine process.

How it works: the bucket's log of deltas (state/statelog.py) is its state, in files that are final once Spark commits
the batch (state/state_files.py); resident_buckets.py holds the engines, and bucket_batch.py has the steps of a batch.
An answer that gives a version its effective time may bring history (primed_state.py), which is taken in before the
batch's events.

What it does not do: commit. Spark does, once all tasks of a batch are done and the sink has all their records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from nightjar.streaming.buckets.bucket_batch import BucketBatch, Packed
from nightjar.streaming.buckets.engine_processes import Remote
from nightjar.streaming.buckets.output_records import RECORDS, ROWS_A_BATCH, json_records
from nightjar.streaming.buckets.payloads import PayloadKind, from_ipc, to_ipc
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.resident_buckets import Residents
from nightjar.streaming.partitioning import bucket_of


@dataclass(frozen=True)
class BucketTasks:
    """What `mapInArrow` runs: passes a task's buckets to their engine processes."""

    evaluate: Remote
    processes: int
    """Bucket b is in the process b % processes: with a shuffle, that of its partition."""

    @classmethod
    def of(cls, plan: BucketPlan, processes: int) -> Self:
        """The tasks of one run of the query."""
        program = cloudpickle.dumps(BucketProcessor(plan))  # type: ignore[no-untyped-call]
        return cls(Remote(plan.checkpoint, plan.run_id, program), processes)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A task's packed rows (PACKED_SCHEMA) to rows of OUTPUT_SCHEMA."""
        context = TaskContext.get()
        assert context is not None  # noqa: S101  a task runs this
        version = int(context.getLocalProperty("streaming.sql.batchId") or 0) + 1
        requests: dict[int, tuple[int, dict[int, dict[str, list[bytes]]]]] = {}
        for batch in batches:
            keys, kinds, payloads = (batch.column(name).to_pylist() for name in ("bucket", "kind", "payload"))
            for key, kind, payload in zip(keys, kinds, payloads, strict=True):
                if kind == PayloadKind.QUARANTINE:
                    yield from from_ipc(payload).to_batches()
                else:
                    bucket = bucket_of(key)
                    _, buckets = requests.setdefault(bucket % self.processes, (version, {}))
                    buckets.setdefault(bucket, {}).setdefault(kind, []).append(payload)
        for records in self.evaluate(requests):
            yield from from_ipc(records).to_batches(ROWS_A_BATCH)


class BucketProcessor:
    """Evaluates the events of buckets, in an engine process, and keeps their engines; see the module."""

    def __init__(self, plan: BucketPlan) -> None:
        self._plan = plan
        self._residents = Residents(plan)

    def __call__(self, request: tuple[int, dict[int, dict[str, list[bytes]]]]) -> bytes:
        """Process a batch in an engine process, given its version and its payloads by bucket and kind; returns an
        Arrow stream of RECORDS."""
        version, packed = request
        if self._plan.fence is not None:
            self._plan.fence.check()  # after Spark has logged the batch, so that whoever takes over repeats it
        records = [table for number in sorted(packed) for table in self.process(number, version, packed[number])]
        return to_ipc(pa.concat_tables([RECORDS.empty_table(), *records]))

    def process(self, number: int, version: int, packed: Packed) -> Iterator[pa.Table]:
        """Process one bucket's share of the batch of this version into RECORDS; QUARANTINE is not its own."""
        parts = _Parts()
        batch = BucketBatch(self._plan, self._residents, number, version)
        batch.remove_earlier()
        parts.end("read")
        records = batch.take(packed, self._plan.run_id)
        parts.end("evaluate")
        batch.store()
        parts.end("write")
        yield from records
        if (report := batch.report(parts.seconds)) is not None:
            yield json_records(self._plan.topics.job_progress, [report])


@dataclass
class _Parts:
    """The seconds that the parts of a batch took, one after the other."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def end(self, part: str) -> None:
        """End this part, and begin the next one."""
        now = time.perf_counter()
        self.seconds[part], self._since = now - self._since, now
