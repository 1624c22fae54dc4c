"""Purpose: find the rules whose alerts have reached the cap of an hour in all buckets together (S10.6).

How it works: each bucket counts its own alerts, durably, and reports the numbers on job-progress. The driver adds them
up and publishes the hours on the clock topic, from where every bucket learns of them, as of the clock, in an order that
a repeated batch keeps.

Known limitation: until then the buckets together announce more alerts without the mark than the cap: those of about a
second, and never more than the cap times the number of buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog
from kafka import TopicPartition

from nightjar.contracts.job_progress import read_report
from nightjar.rules.timestamps import iso_text

if TYPE_CHECKING:
    from kafka import KafkaConsumer

_log = structlog.get_logger(__name__)

Counts = Mapping[str, Mapping[str, int]]


class CapWatch:
    """Adds up the counts of the buckets. most: alerts of a rule in an hour."""

    def __init__(self, most: int, consumer: KafkaConsumer, topic: str) -> None:
        self._most = most
        self._consumer = consumer
        self._of_bucket: dict[int, Counts] = {}
        self._reached: set[tuple[str, int]] = set()
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_end(partition)

    def reached(self) -> dict[str, tuple[int, ...]]:
        """By rule the hours (their begin, µs) in which the cap has been reached since the last call.

        Raises:
            KafkaError: no broker answers.
        """
        for records in self._consumer.poll(timeout_ms=0).values():
            for record in records:
                self.take(record.value or b"")
        total: Counter[tuple[str, int]] = Counter()
        for counts in self._of_bucket.values():
            for rule_id, hours in counts.items():
                total.update({(rule_id, int(hour)): counted for hour, counted in hours.items()})
        new = {key for key, counted in total.items() if counted >= self._most} - self._reached
        self._reached = (self._reached & total.keys()) | new
        found: dict[str, tuple[int, ...]] = {}
        for rule_id, hour in sorted(new):
            found[rule_id] = (*found.get(rule_id, ()), hour)
            _log.warning("a rule's alerts have reached the cap", rule=rule_id, hour=iso_text(hour), alerts=self._most)
        return found

    def take(self, value: bytes) -> None:
        """Take a record of the job-progress topic, which anybody may have written."""
        report = read_report(value)
        if report is not None and report["kind"] == "bucket":
            capped = report.get("capped", {})
            if all(hour.removeprefix("-").isdecimal() and hour.isascii() for of in capped.values() for hour in of):
                self._of_bucket[report["bucket"]] = capped
