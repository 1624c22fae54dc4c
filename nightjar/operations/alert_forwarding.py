"""Forwards the alerts topic to another system: `nightjar alerts forward`.

How it works: a target keeps the offsets up to which it has the records. Each poll's records are written, then the
offsets, or both at once. What a crash leaves undone is done again from the last offsets, so a target has every record
at least once, and must take a record that it has without harm. If a target is lost for a while, it is tried again,
and reading resumes from the offsets that it has then.

Known limitation: the topic's partitions are looked up at the start. Start it again after adding some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Protocol

import structlog

from nightjar.configuration.settings import Settings
from nightjar.contracts.alerts import ALERT
from nightjar.contracts.record_type import Row
from nightjar.kafka.readers import KafkaRecord, Reader, Skipped
from nightjar.rules.errors import NightjarError

_log = structlog.get_logger(__name__)

# Seconds between two log lines about the progress.
_REPORT_SECONDS = 30.0
# Seconds until a lost target is tried again: doubled each time, up to the second.
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0


class ForwardError(NightjarError):
    """The target refuses what is forwarded to it."""


class TargetLostError(NightjarError):
    """The target cannot be reached at the moment, or has broken off; it is worth trying again."""


@dataclass(frozen=True)
class ForwardedAlert:
    """An alert as the topic has it, and its columns (`RecordType.row`)."""

    record: KafkaRecord
    row: Row


class Target(Protocol):
    """Where alerts go. Both methods may raise TargetLostError, and ForwardError for what does not pass by itself."""

    def start(self) -> Mapping[int, int]:
        """Connect if necessary; by partition the offset up to which the target has the records."""

    def write(self, alerts: Sequence[ForwardedAlert], offsets: Mapping[int, int]) -> None:
        """Write the next alerts, each partition's in order. offsets: of each partition, once they are written."""


@dataclass
class Forwarded:
    """What has been forwarded so far. skipped: records that are no alerts."""

    alerts: int
    skipped: Skipped


class _Ends:
    """Whether the offsets that the topic ended with are reached."""

    def __init__(self, reader: Reader) -> None:
        self._ends = reader.ends()

    def are_reached(self, reader: Reader) -> bool:
        positions = reader.positions()
        return all(positions[place] >= end for place, end in self._ends.items())


def forward(settings: Settings, target: Target, stop: Event, *, until_end: bool = False) -> Forwarded:
    """Forward alerts until `stop` is set, and with until_end only to where the topic ends now.

    Raises:
        KafkaError: the topic cannot be read.
        ForwardError: the target refuses.
    """
    done = Forwarded(0, Skipped())
    waits = _waits()
    with Reader(settings, settings.alerts_topic) as reader:
        ends = _Ends(reader) if until_end else None
        while not stop.is_set():
            try:
                _resume(reader, settings.alerts_topic, target.start())
                for alerts in _written(reader, target, done.skipped):
                    waits = _waits()
                    done.alerts += alerts
                    if stop.is_set() or (ends is not None and ends.are_reached(reader)):
                        return done
            except TargetLostError as lost:
                seconds = next(waits)
                _log.warning("target_lost", reason=str(lost), again_in_seconds=seconds)
                stop.wait(seconds)
    return done


def _written(reader: Reader, target: Target, skipped: Skipped) -> Iterator[int]:
    """Poll and write for ever; each time how many alerts were written."""
    offsets = _offsets(reader)
    reported, since_then = monotonic(), 0
    while True:
        alerts = []
        for record in reader.poll():
            row = ALERT.row(record.value)
            if row is None:
                skipped.add(record, "not an alert")
            else:
                alerts.append(ForwardedAlert(record, row))
        before, offsets = offsets, _offsets(reader)
        if offsets != before:
            target.write(alerts, offsets)
        since_then += len(alerts)
        if since_then and monotonic() - reported >= _REPORT_SECONDS:
            _log.info("alerts_forwarded", alerts=since_then, skipped=skipped.counts.total(), left=reader.left())
            reported, since_then = monotonic(), 0
        yield len(alerts)


def _offsets(reader: Reader) -> dict[int, int]:
    return {place.partition: offset for place, offset in reader.positions().items()}


def _resume(reader: Reader, topic: str, offsets: Mapping[int, int]) -> None:
    """Go to where the target has the records, and log where that is not possible."""
    ends = {place.partition: end for place, end in reader.ends().items()}
    known = {}
    for partition, offset in offsets.items():
        if offset > ends.get(partition, 0):
            _log.warning("topic_restarted", topic=topic, partition=partition, forwarded=offset, end=ends.get(partition))
        else:
            known[partition] = offset
    reader.from_offsets({topic: known})
    for partition, first in _offsets(reader).items():
        if partition in known and first > known[partition]:
            lost = first - known[partition]
            _log.error("alerts_deleted_before_forwarding", topic=topic, partition=partition, at_most=lost)


def _waits() -> Iterator[float]:
    wait = _FIRST_WAIT
    while True:
        yield wait
        wait = min(2 * wait, _LONGEST_WAIT)
