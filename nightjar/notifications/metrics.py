"""Metrics of the notifier, which serves them itself: what it has sent since its start, and what is in the outbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from nightjar.notifications.messages import Message
from nightjar.notifications.outbox import Outbox
from nightjar.rules.timestamps import parse_timestamp

# From an alert that goes out at once to one that has waited for the morning (seconds).
_DELAYS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 43200)


class NotifierMetrics:
    """The counters, and a collector of what is in the outbox. quiet: by target, whether quiet hours are on at a time
    (µs)."""

    def __init__(self, file: Path, quiet: Mapping[str, Callable[[int], bool]], now: Callable[[], int]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._file, self._quiet, self._now = file, quiet, now
        self._sent = Counter(
            "nightjar_notifications", "Messages that a target has accepted.", ("target",), registry=self.registry
        )
        self._failed = Counter(
            "nightjar_notification_failures",
            "Attempts to send a message that have failed; given_up: true for the last one.",
            ("target", "given_up"),
            registry=self.registry,
        )
        self._snoozed = Counter(
            "nightjar_notifications_snoozed",
            "Alerts that a target was not told of, because their group was snoozed.",
            ("target",),
            registry=self.registry,
        )
        self._delay = Histogram(
            "nightjar_notification_delay_seconds",
            "From an alert's emission to the delivery of its message, with the time that routes and quiet hours say.",
            ("target",),
            buckets=_DELAYS,
            registry=self.registry,
        )
        for target in quiet:
            self._sent.labels(target)
            self._delay.labels(target)
            self._snoozed.labels(target)
            for given_up in ("false", "true"):
                self._failed.labels(target, given_up)
        self.registry.register(self)

    def delivered(self, target: str, message: Message, now: int) -> None:
        """Count a message that was accepted."""
        self._sent.labels(target).inc()
        for alert in message.alerts:
            emitted = parse_timestamp(alert["emitted_at"] or "", zone_required=True)
            if emitted is not None:
                self._delay.labels(target).observe(max(0.0, (now - emitted) / 1_000_000))

    def failed(self, target: str, *, given_up: bool) -> None:
        """Count an attempt that failed."""
        self._failed.labels(target, str(given_up).lower()).inc()

    def snoozed(self, target: str, alerts: int) -> None:
        """Count alerts that it is not told of."""
        self._snoozed.labels(target).inc(alerts)

    def collect(self) -> Iterator[Metric]:
        """What is in the outbox, for a scrape."""
        waiting = GaugeMetricFamily("nightjar_notifications_waiting", "Messages in the outbox.", labels=["target"])
        given_up = GaugeMetricFamily(
            "nightjar_notifications_given_up", "Messages that were given up, and are kept.", labels=["target"]
        )
        overdue = GaugeMetricFamily(
            "nightjar_notification_overdue_seconds",
            "How long a message has been due that is not delivered, and not held by quiet hours.",
            labels=["target"],
        )
        now = self._now()
        with Outbox(self._file) as outbox:
            for target, is_quiet in self._quiet.items():
                standing = outbox.standing(target, now, quiet=is_quiet(now))
                since = standing.overdue_since
                waiting.add_metric([target], standing.waiting)
                given_up.add_metric([target], standing.given_up)
                overdue.add_metric([target], 0.0 if since is None else (now - since) / 1_000_000)
        yield from (waiting, given_up, overdue)
