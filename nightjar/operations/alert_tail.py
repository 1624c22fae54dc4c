"""Which records of the alerts topic `nightjar alerts tail` shows, and how many it leaves out."""

from collections.abc import Iterable, Iterator

from nightjar.kafka.readers import KafkaRecord, Skipped
from nightjar.operations.alert_cap import AlertCap, Flood
from nightjar.operations.alert_masks import AlertMasks
from nightjar.rules.allowing import ALLOWED_BY
from nightjar.rules.errors import printable
from nightjar.terminal.alert_lines import Alert, alert_of
from nightjar.terminal.console import counted


class AlertTail:
    """Chooses alerts, and counts the others.

    rule: only alerts of it; unmuted: leave out muted ones; overflow: also those marked so; per_hour: most alerts of a
    rule and hour; masks: what hides sensitive values, None to show them.
    """

    def __init__(
        self, *, rule: str | None, unmuted: bool, overflow: bool, per_hour: int | None, masks: AlertMasks | None
    ) -> None:
        self._rule, self._unmuted, self._overflow, self._masks = rule, unmuted, overflow, masks
        self._per_hour, self._cap = per_hour, None if per_hour is None else AlertCap(per_hour)
        self._muted, self._allowed, self._flood, self._skipped = 0, 0, Flood(), Skipped()

    def chosen(self, records: Iterable[KafkaRecord]) -> Iterator[Alert | str]:
        """The alerts to show, and a notice where an hour's alerts begin to be counted only."""
        for record in records:
            alert = alert_of(record)
            if alert is None:
                self._skipped.add(record, "not an alert")
            elif self._rule not in (None, alert.record["rule_id"]):
                continue
            elif self._unmuted and alert.record["muted"]:
                self._muted += 1
                self._allowed += ALLOWED_BY in alert.record["measures"]
            elif alert.record.get("overflow") is True and not self._overflow:
                if (notice := self._flood.take(alert.record)) is not None:
                    yield notice
            elif self._cap is None or self._cap.admits(alert.record):
                masks = self._masks
                yield alert if masks is None else alert._replace(record=masks.masked(alert.record))

    def summary(self) -> Iterator[str]:
        """A line for each kind of alerts that were left out."""
        if self._unmuted:
            allowed = f", {self._allowed:,} of them silenced by allow rules" if self._allowed else ""
            yield f"{counted(self._muted, 'muted alert')} left out{allowed}"
        for name, left_out in sorted(self._cap.left_out.items()) if self._cap else ():
            yield f"{printable(name)}: {counted(left_out, 'record')} left out, beyond {self._per_hour} alerts an hour"
        yield from self._flood.summary()
