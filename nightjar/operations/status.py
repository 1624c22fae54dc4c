"""Reads the state of the job from its reports on the job-progress topic and its latest alerts and late events."""

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nightjar.configuration.settings import Settings
from nightjar.contracts.job_progress import JobReport
from nightjar.contracts.late_events import LATE_EVENT
from nightjar.kafka.clients import KafkaError
from nightjar.kafka.readers import Reader
from nightjar.kafka.rule_topics import rule_book
from nightjar.operations.job_watch import JobState
from nightjar.operations.throughput import Pace, pace
from nightjar.rules.model import State
from nightjar.rules.timestamps import SECONDS_AS_MILLISECONDS

# Latency is measured over at most this many alerts per partition of their topic.
_LATEST_ALERTS = 500

# Of each partition of their topic: enough to see what a producer does wrong.
_LATEST_LATE_EVENTS = 100

# Batch times are averaged over this many reports of the driver, which sends one per second.
_LATEST_REPORTS = 60

# No job has more batches per second; a forged report may claim any number.
_MOST_BATCHES = 1000

# The reports of a driver and some dozens of buckets over a few minutes.
_LATEST_RECORDS = 5000


@dataclass(frozen=True)
class JobStatus:
    """The state of the job."""

    running: bool
    heartbeat_seconds: float | None
    """Since the driver's last report."""
    last: JobReport | None = None
    """Its driver's last report."""
    batches: dict[str, Any] = field(default_factory=dict)
    """As the driver reports them, averaged over the last minute."""
    latency: dict[str, float] = field(default_factory=dict)
    """Of the latest alerts, from the event's `sent_at` to the alert's arrival on its topic; empty if no alert has
    both."""
    epoch_seconds: dict[str, int] = field(default_factory=dict)
    """How many of the latest late events of a stream have a time that looks like seconds, not milliseconds."""
    pace: dict[str, Pace] = field(default_factory=dict)
    """For streams with a lag, how fast events arrive and are read."""
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Since the checkpoint was created."""
    retained: dict[str, dict[str, int]] = field(default_factory=dict)
    """Events still needed, by group-by (comma-separated fields)."""
    state_bytes: int = 0
    """Size of the state in the checkpoint."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Unusable records by kind."""
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rule id to last version, its state and stream, without retired rules."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        keys = ("state", "mode", "process", "lag", "skew", "priming")
        return {
            "running": self.running,
            "heartbeat_seconds": self.heartbeat_seconds,
            **{key: None if self.last is None else self.last.get(key) for key in keys},
            "batches": self.batches,
            "latency": self.latency,
            "epoch_seconds": self.epoch_seconds,
            "pace": {stream: found.as_dict() for stream, found in self.pace.items()},
            "counts": self.counts,
            "retained": self.retained,
            "state_bytes": self.state_bytes,
            "skipped": self.skipped,
            "rules": self.rules,
        }


def read_status(settings: Settings) -> JobStatus:
    """Read the current state of the job.

    Raises:
        KafkaError: its topics cannot be read.
    """
    state = JobState()
    reports: deque[JobReport] = deque(maxlen=_LATEST_REPORTS)
    with Reader(settings, settings.job_progress_topic) as reader:
        for record in reader.last(_LATEST_RECORDS):
            state.take(record)
            if state.driver is not None and (not reports or reports[-1] is not state.driver):
                reports.append(state.driver)
    if state.driver is None:
        return JobStatus(running=False, heartbeat_seconds=None, skipped=dict(state.skipped.counts))
    now = time.time_ns() // 1000
    streams = list(state.driver["lag"])
    of_run = [report for report in reports if report["run_id"] == state.driver["run_id"]]
    paces = {stream: pace(of_run, stream) for stream in streams if state.driver["lag"][stream]["events"]}
    counts = {stream: state.counts(stream) for stream in streams}
    return JobStatus(
        running=state.runs(now),
        heartbeat_seconds=round((now - state.driver["at"]) / 1_000_000, 3),
        last=state.driver,
        batches=_batches(of_run),
        latency=_latency(settings),
        pace={stream: found for stream, found in paces.items() if found is not None},
        epoch_seconds=_epoch_seconds(settings) if any(found.get("late") for found in counts.values()) else {},
        counts=counts,
        retained={stream: state.retained(stream) for stream in streams},
        state_bytes=state.stored,
        skipped=dict(state.skipped.counts),
        rules=_rules(settings),
    )


def _rules(settings: Settings) -> dict[str, dict[str, Any]]:
    last = {version.rule.id: version for version in rule_book(settings, {}).ruleset.versions}
    return {
        rule_id: {"version": version.version, "state": version.rule.state.value, "stream": version.rule.stream}
        for rule_id, version in last.items()
        if version.rule.state is not State.RETIRED
    }


def _batches(reports: list[JobReport]) -> dict[str, Any]:
    """Totals and times of the non-empty batches of all these reports; a part's mean is over batches.

    A report has only the averages of its second, so the percentiles count every batch at its second's average.
    """
    busy = [report for report in reports if report["batches"]]
    if not busy:
        return {}
    batches = sum(report["batches"] for report in busy)
    parts = {
        name: round(sum(report["parts_ms"].get(name, 0.0) * report["batches"] for report in busy) / batches, 1)
        for name in busy[-1]["parts_ms"]
    }
    names = list(busy[-1]["parts_ms"])
    weights = [min(report["batches"], _MOST_BATCHES) for report in busy]
    took = {name: np.repeat([report["parts_ms"].get(name, 0.0) for report in busy], weights) for name in names}
    return {
        "batches": batches,
        "p50_ms": {name: round(float(np.percentile(each, 50)), 1) for name, each in took.items()},
        "p99_ms": {name: round(float(np.percentile(each, 99)), 1) for name, each in took.items()},
        "rows": sum(report["rows"] for report in busy),
        "parts_ms": parts,
        "most_rows": max(report.get("most_rows", 0) for report in busy),
        "slowest_ms": max(report["slowest_ms"] for report in busy),
    }


def _epoch_seconds(settings: Settings) -> dict[str, int]:
    try:
        with Reader(settings, settings.late_events_topic) as reader:
            rows = [LATE_EVENT.row(record.value) for record in reader.last(_LATEST_LATE_EVENTS)]
    except KafkaError:  # only a hint: whoever may not read the topic does without
        return {}
    return Counter(row["stream"] for row in rows if row is not None and row["event_time"] in SECONDS_AS_MILLISECONDS)


def _latency(settings: Settings) -> dict[str, float]:
    with Reader(settings, settings.alerts_topic) as reader:
        latest = [(record.arrival, record.sent_at) for record in reader.last(_LATEST_ALERTS)]
    took = [(arrival - sent_at) / 1000 for arrival, sent_at in latest if sent_at is not None]
    if not took:
        return {}
    half, most = np.percentile(took, [50, 99])
    return {"alerts": len(took), "p50_ms": round(float(half), 1), "p99_ms": round(float(most), 1)}
