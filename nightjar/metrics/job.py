"""Metrics of the job: its last reports on the job-progress topic (contracts.job_progress), and the rules in force."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from nightjar.contracts.job_progress import ARCHIVE_KEY, BucketReport, JobReport
from nightjar.contracts.rule_status import fold
from nightjar.kafka.readers import KafkaRecord
from nightjar.operations.job_watch import JobState
from nightjar.rules import rulebook
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.versions import NOT_YET

# The counts of a bucket's reports, and what they count.
_COUNTS = {
    "events": ("nightjar_events", "Events that the job has read, since its checkpoint was created."),
    "duplicates": ("nightjar_duplicate_events", "Events whose id was known, since the checkpoint was created."),
    "overflow": ("nightjar_overflow_alerts", "Alert records beyond the cap, since the checkpoint was created."),
}


class JobMetrics:
    """Collects the metrics of the job when they are scraped. book: the rules, after the answers that were taken."""

    def __init__(self, book: RuleBook) -> None:
        self.state = JobState()
        self._book = book
        self._lock = threading.Lock()  # scrapes have threads of their own
        self._batches: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    def begin(self, record: KafkaRecord) -> None:
        """Take in a report that was there before this process: it says how things are, and is not counted."""
        with self._lock:
            self.state.take(record)

    def take(self, record: KafkaRecord) -> None:
        """Take in and count a new report."""
        if record.key == ARCHIVE_KEY:
            return
        with self._lock:
            before = self.state.driver
            self.state.take(record)
            report = self.state.driver
            if report is None or report is before:
                return
            self._batches.update(batches=report["batches"], rows=report["rows"])
            for part, mean in report["parts_ms"].items():
                self._seconds[part] = self._seconds.get(part, 0.0) + mean * report["batches"] / 1000

    def answer(self, record: KafkaRecord) -> None:
        """Take in a record of the rule-status topic."""
        with self._lock:
            fold(self._book, rulebook.Record(record.offset, record.arrival, record.value))

    def not_ready(self) -> str | None:
        """Why the job is not running; None if it is."""
        if self.state.driver is None:
            return "the job has not reported yet: start `nightjar stream`"
        if self.state.runs(_now()):
            return None
        age = (_now() - self.state.driver["at"]) / 1_000_000
        return (
            f"the last report of the job is {age:,.0f} s old, its state was {self.state.driver['state']}: see its log"
        )

    def collect(self) -> Iterator[Metric]:
        """The metrics, for a scrape."""
        with self._lock:
            found = list(self._collected())
        yield from found

    def _collected(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("nightjar_job_up", "Whether the job has reported within 15 seconds that it runs.")
        up.add_metric([], float(self.state.runs(_now())))
        yield up
        yield from self._of_rules()
        if self.state.driver is not None:
            yield from self._of_driver(self.state.driver)
            yield from self._of_buckets(list(self.state.buckets.values()))

    def _of_driver(self, report: JobReport) -> Iterator[Metric]:
        last = GaugeMetricFamily("nightjar_job_last_report_timestamp_seconds", "When the job last reported.")
        last.add_metric([], report["at"] / 1_000_000)
        yield last
        if (skew := report.get("skew")) is not None:
            ahead = GaugeMetricFamily(
                "nightjar_clock_skew_seconds", "How far the clock of the job's host is ahead of the brokers' clock."
            )
            ahead.add_metric([], skew / 1_000_000)
            yield ahead
        events = GaugeMetricFamily("nightjar_lag_events", "Events that wait to be read.", labels=["stream"])
        seconds = GaugeMetricFamily(
            "nightjar_lag_seconds", "Since when the oldest waiting event waits.", labels=["stream"]
        )
        for stream, lag in report["lag"].items():
            events.add_metric([stream], lag["events"])
            seconds.add_metric([stream], lag["seconds"])
        yield from (events, seconds)
        slowest = GaugeMetricFamily(
            "nightjar_batch_slowest_seconds",
            "The slowest micro-batch or group of the last second that had one.",
        )
        slowest.add_metric([], report["slowest_ms"] / 1000)
        yield slowest
        yield CounterMetricFamily(
            "nightjar_batches",
            "Micro-batches with records, or groups in real time.",
            value=self._batches["batches"],
        )
        yield CounterMetricFamily(
            "nightjar_batch_records", "Records of micro-batches or groups.", value=self._batches["rows"]
        )
        parts = CounterMetricFamily(
            "nightjar_batch_seconds", "Time of micro-batches or groups, by part; whole: all of it.", labels=["part"]
        )
        for part, spent in self._seconds.items():
            parts.add_metric([part], spent)
        yield parts

    def _of_buckets(self, buckets: list[BucketReport]) -> Iterator[Metric]:
        streams = sorted({report["stream"] for report in buckets})
        for name, (metric, about) in _COUNTS.items():
            counted = CounterMetricFamily(metric, about, labels=["stream"])
            for stream in streams:
                counted.add_metric([stream], self.state.counts(stream).get(name, 0))
            yield counted
        retained = GaugeMetricFamily(
            "nightjar_bucket_retained_events",
            "Events that a bucket's engine holds for a group-by.",
            labels=["bucket", "stream", "group_by"],
        )
        stored = GaugeMetricFamily(
            "nightjar_bucket_state_bytes", "Size of a bucket's state in the checkpoint.", labels=["bucket", "stream"]
        )
        for report in sorted(buckets, key=lambda report: report["bucket"]):
            bucket, stream = str(report["bucket"]), report["stream"]
            for group_by, rows in report["retained"].items():
                retained.add_metric([bucket, stream, group_by], rows)
            stored.add_metric([bucket, stream], report.get("stored", 0))
        yield from (retained, stored)

    def _of_rules(self) -> Iterator[Metric]:
        last = {version.rule.id: version for version in self._book.ruleset.versions}
        by_state = Counter((version.rule.stream, version.rule.state.value) for version in last.values())
        rules = GaugeMetricFamily(
            "nightjar_rules", "Rules by the state of their last version.", labels=["stream", "state"]
        )
        for labels, count in sorted(by_state.items()):
            rules.add_metric(list(labels), count)
        waiting = GaugeMetricFamily(
            "nightjar_rules_waiting", "Rules whose last version has no effective time yet: it waits for the job."
        )
        waiting.add_metric([], sum(version.effective == NOT_YET for version in last.values()))
        yield from (rules, waiting)


def _now() -> int:
    return time.time_ns() // 1000
