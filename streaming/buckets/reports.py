"""A bucket's part of the job's progress reports (contracts.job_progress), from its state."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from nightjar.contracts.job_progress import BucketReport

if TYPE_CHECKING:
    from nightjar.streaming.buckets.resident_buckets import Resident
    from nightjar.streaming.state.statelog import Head


def bucket_report(number: int, resident: Resident, head: Head, parts: Mapping[str, float]) -> BucketReport:
    """The report of the bucket of this number after a batch. head: of its state; parts: seconds, by name."""
    bucket = resident.bucket
    capped: dict[str, dict[str, int]] = {}
    for rule_id, hour, counted in () if bucket.cap is None else bucket.cap.counted:
        capped.setdefault(rule_id, {})[str(hour)] = counted
    report: BucketReport = {
        "kind": "bucket",
        "bucket": number,
        "stream": bucket.stream.name,
        "route": bucket.shuffle_key.field,
        "at": time.time_ns() // 1000,
        "held": bucket.engine.rows,
        "entries": len(head.entries),
        "stored": sum(entry.size for entry in head.entries),
        "counts": asdict(bucket.counts),
        "retained": {",".join(group_by): rows for group_by, rows in resident.retained.items()},
        "parts_ms": {name: round(1000 * seconds, 2) for name, seconds in parts.items()},
        "engine": f"{socket.gethostname()}:{os.getpid()}",
        "restored": resident.restored,
    }
    if capped:
        report["capped"] = capped
    return report
