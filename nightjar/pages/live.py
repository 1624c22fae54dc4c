"""Alerts as they arrive on their topic, for everybody who looks at the live page.

How it works: one thread with one Kafka consumer for all readers of a process. It runs as long as somebody asks, and
numbers what it has read, so that a reader who was disconnected for a moment continues with what came meanwhile.

What it does not do: read what was there before the first reader came. The lake has it, once it is archived.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from nightjar.configuration.settings import Settings
from nightjar.contracts.snoozes import Snoozes
from nightjar.kafka.clients import KafkaError
from nightjar.kafka.readers import Reader
from nightjar.operations.alert_masks import AlertMasks
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds
from nightjar.terminal.alert_lines import alert_of

# Records that are kept for readers who were disconnected.
_KEPT = 500
# Seconds without a reader until the consumer is closed, and between attempts to reach Kafka.
_ALONE, _AGAIN = 30.0, 5.0
# Whether alerts are read: not yet, yes, or not at present.
CONNECTING, LIVE, LOST = "connecting", "live", "lost"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class LiveAlert:
    """A record of the alerts topic, sensitive values masked, and its number in this process."""

    number: int
    record: dict[str, Any]


class LiveAlerts:
    """What arrives on the alerts topic of the settings.

    name: of this numbering, as another process has its own; state: CONNECTING, LIVE or LOST. snoozes: those that are
    known.
    """

    def __init__(
        self, settings: Settings, streams: Mapping[str, Stream], snoozes: Callable[[], Snoozes] = Snoozes
    ) -> None:
        self._settings, self._streams, self._snoozes = settings, streams, snoozes
        self._lock = threading.Lock()
        self._records: deque[LiveAlert] = deque(maxlen=_KEPT)
        self._next, self._asked = 0, 0.0
        self._is_reading = False
        self.name, self.state = secrets.token_hex(4), CONNECTING

    @property
    def position(self) -> int:
        """The number of the next record."""
        return self._next

    def since(self, number: int) -> list[LiveAlert]:
        """The records from this number on that are still known; begins to read if nobody has."""
        with self._lock:
            self._asked = time.monotonic()
            if not self._is_reading:
                self._is_reading, self.state = True, CONNECTING
                threading.Thread(target=self._run, name="live alerts", daemon=True).start()
            return [each for each in self._records if each.number >= number]

    def _run(self) -> None:
        try:
            masks = AlertMasks(self._settings, self._streams)
            while self._is_wanted():
                try:
                    self._follow(masks)
                except KafkaError as failure:
                    if self.state != LOST:  # once, and not with each attempt
                        _log.warning("live_alerts_unreadable", why=str(failure))
                    self.state = LOST
                    time.sleep(_AGAIN)
        finally:
            with self._lock:
                self._is_reading = False

    def _follow(self, masks: AlertMasks) -> None:
        with Reader(self._settings, self._settings.alerts_topic) as reader:
            reader.to_end()
            self.state = LIVE
            while self._is_wanted():
                for record in reader.poll():
                    alert = alert_of(record)
                    if alert is not None:  # anybody may write to a topic
                        until = self._snoozes().until(alert.record)
                        snoozed = {} if until is None else {"snoozed_until": from_microseconds(until)}
                        self._add(masks.masked(alert.record) | snoozed)

    def _add(self, record: dict[str, Any]) -> None:
        with self._lock:
            self._records.append(LiveAlert(self._next, record))
            self._next += 1

    def _is_wanted(self) -> bool:
        return time.monotonic() - self._asked < _ALONE
