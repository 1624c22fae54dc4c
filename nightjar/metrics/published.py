"""Counts what is published: alerts, late events, quarantined records, restrictions, answers to rule messages.

Counted from the start of the process, record by record; Kafka may deliver a record twice. Anybody may write to a topic:
records of another shape are counted as skipped, and the number of different labels is limited.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

from nightjar.configuration.settings import Settings
from nightjar.contracts.alerts import ALERT, ANNOUNCED, STREAM
from nightjar.contracts.late_events import LATE_EVENT
from nightjar.contracts.quarantine import QUARANTINED
from nightjar.contracts.record_type import Row
from nightjar.contracts.restrictions import RESTRICTION
from nightjar.contracts.rule_status import RULE_STATUS
from nightjar.kafka.readers import KafkaRecord, Skipped
from nightjar.rules.allowing import ALLOWED_BY

# From a fast batch to a job that has been down for hours (seconds).
_LATENCIES = (0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 1800)

# Different rules, or streams, that a label may name; those beyond are counted together under this name.
_MOST_NAMES = 2000
_OTHERS = "(others)"


class PublishedCounters:
    """The counters of the records on the topics that the job and the backfill publish to."""

    def __init__(self, settings: Settings, registry: CollectorRegistry) -> None:
        self._names: set[str] = set()
        self._skipped = Skipped()
        self._alerts = Counter(
            "nightjar_alerts",
            "Records of the alerts topic: alerts, their revisions, and retractions.",
            ("rule", "severity", "state", "kind", "source", "muted"),
            registry=registry,
        )
        self._allowed = Counter(
            "nightjar_allowed_alerts",
            "Records of the alerts topic about alerts that an allow rule silences.",
            ("allow_rule", "rule"),
            registry=registry,
        )
        self._latency = Histogram(
            "nightjar_alert_latency_seconds",
            "From an event's sending (header sent_at) to the arrival of the first record of its alert.",
            buckets=_LATENCIES,
            registry=registry,
        )
        self._late = Counter("nightjar_late_events", "Late events.", ("stream",), registry=registry)
        self._quarantined = Counter(
            "nightjar_quarantined_records", "Records that cannot be used.", ("stream", "reason"), registry=registry
        )
        self._restrictions = Counter(
            "nightjar_restrictions", "Restrictions, and their lifts.", ("rule", "kind", "source"), registry=registry
        )
        self._answers = Counter(
            "nightjar_rule_answers",
            "Answers to rule messages, and failures of measures.",
            ("status",),
            registry=registry,
        )
        self._unusable = Counter(
            "nightjar_skipped_records", "Records that do not belong on their topic.", ("topic",), registry=registry
        )
        self._takers: dict[str, tuple[Callable[[bytes], Row | None], Callable[[Row, KafkaRecord], None]]] = {
            settings.alerts_topic: (ALERT.read, self._alert),
            settings.late_events_topic: (LATE_EVENT.read, self._late_event),
            settings.quarantine_topic: (QUARANTINED.read, self._quarantined_record),
            settings.restrictions_topic: (RESTRICTION.read, self._restriction),
            settings.rule_status_topic: (RULE_STATUS.read, self._answer),
        }
        for topic in self._takers:
            self._unusable.labels(topic)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are counted."""
        return tuple(self._takers)

    def take(self, record: KafkaRecord) -> None:
        """Count a record of one of the topics."""
        read, count = self._takers[record.topic]
        row = read(record.value)
        if row is None:
            self._skipped.add(record, "unusable record")
            self._unusable.labels(record.topic).inc()
        else:
            count(row, record)

    def _alert(self, row: Row, record: KafkaRecord) -> None:
        texts = (self._name(row[name]) for name in ("rule_id", "severity", "rule_state"))
        self._alerts.labels(*texts, row["kind"], row["source"], str(row["muted"]).lower()).inc()
        allowed = row["measures"].get(ALLOWED_BY)
        if allowed is not None and row["kind"] == ANNOUNCED:
            self._allowed.labels(self._name(allowed), self._name(row["rule_id"])).inc()
        is_first = row["revision"] == 1 and row["source"] == STREAM
        if is_first and record.sent_at is not None:
            self._latency.observe(max(0.0, (record.arrival - record.sent_at) / 1_000_000))

    def _late_event(self, row: Row, _: KafkaRecord) -> None:
        self._late.labels(self._name(row["stream"])).inc()

    def _quarantined_record(self, row: Row, _: KafkaRecord) -> None:
        self._quarantined.labels(*(self._name(row[name]) for name in ("stream", "reason"))).inc()

    def _restriction(self, row: Row, _: KafkaRecord) -> None:
        self._restrictions.labels(self._name(row["rule_id"]), row["kind"], row["source"]).inc()

    def _answer(self, row: Row, _: KafkaRecord) -> None:
        self._answers.labels(row["status"]).inc()

    def _name(self, text: object) -> str:
        name = str(text)[:200]
        if name not in self._names and len(self._names) >= _MOST_NAMES:
            return _OTHERS
        self._names.add(name)
        return name
