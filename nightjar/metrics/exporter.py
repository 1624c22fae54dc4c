"""The loop that collects: reads the topics as they grow, and looks at the lake now and then."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import structlog
from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from nightjar.airflow import submission
from nightjar.configuration.settings import Settings
from nightjar.kafka.clients import KafkaError
from nightjar.kafka.readers import Reader
from nightjar.metrics.job import JobMetrics
from nightjar.metrics.lake import LakeMetrics
from nightjar.metrics.published import PublishedCounters
from nightjar.rules.rulebook import RuleBook

_log = structlog.get_logger(__name__)

# The lake changes when the archive or a night has run.
_LAKE_SECONDS = 60.0
# The loop polls several times per second; one that has not for so long hangs (seconds).
_STALLED = 60.0
_RETRY_SECONDS = 5.0
# A poll finds nothing both where there is nothing new and where no broker answers, so the brokers are asked this often.
_ASK_SECONDS = 5.0
_ANSWER_MS = 5_000
# Reports of a driver and some dozens of buckets over a few minutes.
_LATEST_REPORTS = 5000


class Exporter:
    """Collects metrics into `registry` until it is asked to stop."""

    def __init__(self, settings: Settings) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # else a series for each counter says when it began
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._settings = settings
        self._published = PublishedCounters(settings, self.registry)
        self._job = JobMetrics(RuleBook({}))
        self._lake = LakeMetrics(settings.lake, submission.due)
        for part in (self._job, self._lake):
            self.registry.register(part)
        self._kafka = Gauge(
            "nightjar_kafka_up", "Whether the metrics' process can read the topics.", registry=self.registry
        )
        self._beat = time.monotonic()
        self._began = False

    def run(self, stop: threading.Event) -> None:
        """Collect until `stop`. While Kafka cannot be read, it is tried again, and `nightjar_kafka_up` is 0."""
        looking = threading.Thread(target=self._look, args=(stop,), daemon=True)
        looking.start()
        while not stop.is_set():
            try:
                self._follow(stop)
            except KafkaError as failure:
                self._kafka.set(0)
                self._beat = time.monotonic()
                _log.warning("Kafka cannot be read", reason=str(failure))
                stop.wait(_RETRY_SECONDS)
        looking.join(_RETRY_SECONDS)

    def unhealthy(self) -> str | None:
        """Why this process should be restarted; None if it is well."""
        age = time.monotonic() - self._beat
        return f"the loop has not moved for {age:,.0f} s" if age > _STALLED else None

    def not_ready(self) -> str | None:
        """Why the job's metrics are not to be relied on: Kafka cannot be read, or the job does not run."""
        if not self._began:
            return "the topics cannot be read yet: see the log"
        return self._job.not_ready()

    def _follow(self, stop: threading.Event) -> None:
        """Read from where the topics end now; how things are comes from what is there already."""
        settings = self._settings
        with ExitStack() as readers:
            published = readers.enter_context(Reader(settings, *self._published.topics)).to_end()
            answers = readers.enter_context(Reader(settings, settings.rule_status_topic))
            for record in answers.all():
                self._job.answer(record)
            reports = readers.enter_context(
                Reader(settings, settings.job_progress_topic, request_timeout_ms=_ANSWER_MS)
            )
            for record in reports.last(_LATEST_REPORTS):
                self._job.begin(record)
            self._began = True
            asked = 0.0
            while not stop.is_set():
                for record in published.poll():
                    self._published.take(record)
                for record in answers.poll(timeout_ms=0):
                    self._job.answer(record)
                for record in reports.poll(timeout_ms=0):
                    self._job.take(record)
                self._beat = time.monotonic()
                if self._beat >= asked + _ASK_SECONDS:
                    reports.ends()
                    asked = self._beat
                self._kafka.set(1)

    def _look(self, stop: threading.Event) -> None:
        while True:
            self._lake.read()
            if stop.wait(_LAKE_SECONDS):
                return
