"""Exempts groups from rules for a time: snoozes, sent to their topic, and read from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nightjar.configuration.settings import Settings
from nightjar.contracts.json_text import json_object
from nightjar.contracts.record_type import Row
from nightjar.contracts.snoozes import SNOOZE, Snooze, Snoozes, end_record, message, snooze_record
from nightjar.kafka.readers import Reader, Skipped
from nightjar.kafka.sending import send_all
from nightjar.operations.labelling import Labelled
from nightjar.rules.errors import SettingsError
from nightjar.rules.masking import MASK, masked_text, sensitive_names
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import Stream

# Seconds that reading the topic may take.
_PATIENCE = 20.0


class SnoozeLog:
    """What the topic has, read on from where it was read last."""

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.snoozes_topic
        self._rows: list[Row] = []
        self._offsets: dict[int, int] = {}
        self._known = Snoozes()
        self._skipped = Skipped()

    def read(self, reader: Reader) -> Snoozes:
        """All snoozes up to the topic's present end. reader: of this topic alone.

        Raises:
            KafkaError: it cannot be read.
        """
        reader.from_offsets({self._topic: self._offsets})
        before = len(self._rows)
        for record in reader.all(seconds=_PATIENCE):
            row = SNOOZE.row(record.value)
            if row is not None:
                self._rows.append(row)
            elif record.value:  # else a tombstone
                self._skipped.add(record, "not a snooze")
        self._offsets = {place.partition: offset for place, offset in reader.positions().items()}
        if len(self._rows) > before:
            self._known = Snoozes(self._rows)
        return self._known


def read_snoozes(settings: Settings, log: SnoozeLog | None = None) -> Snoozes:
    """All snoozes of the topic. log: what was read of it before.

    Raises:
        KafkaError: it cannot be read.
    """
    with Reader(settings, settings.snoozes_topic) as reader:
        return (log or SnoozeLog(settings)).read(reader)


def snooze_of_alert(alert: Labelled, *, since: int, until: int, author: str, reason: str, at: int) -> Row:
    """The record by which somebody snoozes an alert's rule for its group at a time. Times in µs.

    Raises:
        SettingsError: see `snooze_record`.
    """
    return snooze_record(
        rule_id=alert.rule_id,
        group=alert.group,
        since=since,
        until=until,
        author=author,
        reason=reason,
        now=at,
    )


def ends_of_alert(known: Snoozes, alert: Labelled, *, author: str, reason: str, at: int) -> list[Row]:
    """The records that end at a time (µs) what snoozes an alert's rule for its group then or later.

    Raises:
        SettingsError: nothing does, or author or reason cannot be used.
    """
    found = [each for each in known.of_group(alert.rule_id, alert.group) if each.until > at]
    if not found:
        remedy = "`nightjar alerts snoozes` lists what is snoozed"
        raise SettingsError("its group is not snoozed", where=f"alert {alert.alert_id}", remedy=remedy)
    return [end_record(each, author=author, reason=reason, now=at) for each in found]


def send_snoozes(settings: Settings, records: Iterable[Row]) -> int:
    """Send records of snoozes to their topic; how many there were. All are delivered when this returns.

    Raises:
        KafkaError: Kafka does not take them, some of which may have been sent.
    """
    return send_all(settings, settings.snoozes_topic, map(message, records))


def shown_group(snooze: Snooze, book: RuleBook, streams: Mapping[str, Stream]) -> str:
    """The group as JSON without values of sensitive fields; all masked where nobody knows the rule."""
    if not any(stream.sensitive for stream in streams.values()):
        return snooze.group
    versions = book.of_rule(snooze.rule_id)
    if not versions or any(version.rule.stream not in streams for version in versions):
        return MASK
    names = {name for each in versions for name in sensitive_names(each.rule, streams[each.rule.stream])}
    return str(masked_text(snooze.group, names))


def as_dict(snooze: Snooze, group: str) -> dict[str, Any]:
    """A snooze for JSON, as its last record has it. group: as it is shown."""
    record = SNOOZE.record(snooze.__dict__)
    return record | {"group": json_object(group.encode()) or group}
