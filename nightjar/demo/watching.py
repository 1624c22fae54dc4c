"""Reads the job's output topics while the demo runs: passes alerts on as they arrive, and counts all records."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nightjar.configuration.settings import Settings
from nightjar.contracts.late_events import LATE_EVENT
from nightjar.contracts.quarantine import QUARANTINED
from nightjar.demo.verdict import exact_json
from nightjar.kafka.readers import KafkaRecord, Reader
from nightjar.terminal.alert_lines import Alert, alert_of


@dataclass
class Tally:
    """What the job has published so far."""

    final: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The alert record of the highest revision of each id, including retractions, with its measures as `exact_json`
    reads them."""
    announced: Counter[str] = field(default_factory=Counter)
    revisions: Counter[str] = field(default_factory=Counter)
    retractions: Counter[str] = field(default_factory=Counter)
    latencies: dict[str, list[int]] = field(default_factory=dict)
    """µs, by stage of an alert's way."""
    late: Counter[str] = field(default_factory=Counter)
    quarantined: dict[str, Counter[str]] = field(default_factory=dict)
    """`late` and `quarantined`: counts by stream; quarantined also by reason."""

    def final_alerts(self, stream: str) -> list[dict[str, Any]]:
        """The final alerts of a stream that are not retracted."""
        return [record for record in self.final.values() if record["stream"] == stream and record["kind"] == "alert"]

    def take_alert(self, alert: Alert, measures: dict[str, Any]) -> bool:
        """Count an alert; False if this revision or a higher one has been counted. measures: numbers as text."""
        record = {**alert.record, "measures": measures}
        before = self.final.get(record["alert_id"])
        if before is not None and before["revision"] >= record["revision"]:
            return False
        self.final[record["alert_id"]] = record
        rule_id = record["rule_id"]
        if record["kind"] == "retraction":
            self.retractions[rule_id] += 1
        elif before is None:
            self.announced[rule_id] += 1
        else:
            self.revisions[rule_id] += 1
        return True

    def take_latency(self, record: KafkaRecord) -> None:
        """Record the latency of an alert, from the sending of its event to its receipt."""
        if record.sent_at is None:
            return
        stages = {
            "event sent to alert on Kafka": record.arrival - record.sent_at,
            "alert on Kafka to receipt": record.received - record.arrival,
            "event sent to receipt": record.received - record.sent_at,
        }
        for stage, took in stages.items():
            self.latencies.setdefault(stage, []).append(took)


class Watch:
    """Reads the job's output topics from their beginning in a background thread; a context manager.

    on_alert is called in that thread with each new alert or revision.
    """

    def __init__(self, settings: Settings, on_alert: Callable[[Alert], object]) -> None:
        self.tally = Tally()
        self._settings = settings
        self._on_alert = on_alert
        self._reader = Reader(
            settings,
            settings.alerts_topic,
            settings.late_events_topic,
            settings.quarantine_topic,
        )
        self._seen: set[tuple[str, ...]] = set()
        self._leave = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join()
        self._reader.__exit__()

    def finish(self) -> Tally:
        """Read to the end of the topics as they are now; the tally is then complete."""
        self._leave.set()
        self._thread.join()
        self.check()
        for record in self._reader.all():
            self._take(record)
        return self.tally

    def check(self) -> None:
        """Raise the exception that ended the thread, if any."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._leave.is_set():
                for record in self._reader.poll():
                    self._take(record)
        except BaseException as failure:  # noqa: BLE001  `check` raises it in the main thread
            self._failure = failure

    def _take(self, record: KafkaRecord) -> None:
        names = self._settings
        if record.topic == names.alerts_topic:
            alert = alert_of(record)
            if alert is not None and self.tally.take_alert(alert, exact_json(record.value)["measures"]):
                self.tally.take_latency(record)
                self._on_alert(alert)
            return
        if record.topic == names.late_events_topic:
            late = LATE_EVENT.row(record.value)
            if late is not None and self._is_new("late", late["stream"], str(record.key)):
                self.tally.late[late["stream"]] += 1
            return
        refused = QUARANTINED.row(record.value)
        if refused is not None and self._is_new("quarantined", str(record.key)):
            self.tally.quarantined.setdefault(refused["stream"], Counter())[refused["reason"]] += 1

    def _is_new(self, *coordinates: str) -> bool:
        """Whether these coordinates were not seen before: the job publishes everything at least once."""
        if coordinates in self._seen:
            return False
        self._seen.add(coordinates)
        return True
