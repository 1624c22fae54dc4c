"""Evaluate groups of records in the buckets of one process, until the batch's state is stored."""

from __future__ import annotations

import time
from concurrent.futures import Executor
from typing import Any

import pyarrow as pa

from nightjar.streaming.buckets.bucket_batch import BucketBatch
from nightjar.streaming.buckets.output_records import json_records
from nightjar.streaming.buckets.packer import Packer
from nightjar.streaming.buckets.payloads import PayloadKind
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.resident_buckets import Residents

# Events of a bucket whose state is written while others are evaluated. Their entry is too large to be merged later.
_MANY = 20_000


class GroupEvaluator:
    """The buckets of one run of the query, all in this process. writing: writes state."""

    def __init__(self, plan: BucketPlan, packer: Packer, writing: Executor) -> None:
        self._plan, self._packer = plan, packer
        self._residents = Residents(plan)
        self._batch: dict[int, BucketBatch] = {}
        self._follows_committed = False
        """Whether the batches before this one are committed."""
        self._writing = writing

    def evaluate(self, records: pa.Table, version: int, run_id: str, emitted_at: int) -> list[pa.Table]:
        """Evaluate a group of the batch of this version; returns RECORDS.

        records: frames.SCHEMA. run_id, emitted_at: see order_log.Group.
        """
        found = list[pa.Table]()
        packed: dict[int, dict[str, list[Any]]] = {}
        for bucket, kind, payload in self._packer.packed(records):
            if kind is PayloadKind.QUARANTINE:
                found.append(payload)
            else:
                packed.setdefault(bucket, {}).setdefault(kind, []).append(payload)
        for number in sorted(packed):
            began = time.perf_counter()
            batch = self._batch.get(number)
            if batch is None:
                batch = self._batch[number] = BucketBatch(self._plan, self._residents, number, version)
                if self._follows_committed:
                    batch.remove_earlier()
            found += batch.take(packed[number], run_id, emitted_at)
            batch.write_ahead(self._writing, _MANY)
            if (report := batch.report({"evaluate": time.perf_counter() - began})) is not None:
                found.append(json_records(self._plan.topics.job_progress, [report]))
        return found

    def remove_earlier(self) -> None:
        """Remove what earlier batches have left, since the last one is committed."""
        self._follows_committed = True
        for batch in self._batch.values():
            batch.remove_earlier()

    def write_ahead(self) -> None:
        """Have most of the state written before the batch ends, so that `store` takes less time."""
        for batch in self._batch.values():
            batch.write_ahead(self._writing)

    def store(self) -> None:
        """End the batch: store the state of each of its buckets."""
        for batch in self._batch.values():
            batch.store()
        self._batch.clear()
        self._follows_committed = False
