"""Limits how many alerts of a rule and hour are shown, and counts the others: none is lost, all are on the topic."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

from nightjar.rules.errors import printable

# Rules and hours whose shown alerts are counted; alerts of dropped ones are shown again up to the limit.
_REMEMBERED = 10_000


class AlertCap:
    """At most so many alerts of a rule in an hour of event time, with their revisions. left_out: records by rule id."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._shown: OrderedDict[tuple[str, str], set[str]] = OrderedDict()
        self.left_out: Counter[str] = Counter()

    def admits(self, record: dict[str, Any]) -> bool:
        """Whether to show a record (contracts.alerts); counts it where not."""
        key = record["rule_id"], record["event_time"][:13]
        shown = self._shown.setdefault(key, set())
        self._shown.move_to_end(key)
        if len(self._shown) > _REMEMBERED:
            self._shown.popitem(last=False)
        if record["alert_id"] in shown or len(shown) < self._most:
            shown.add(record["alert_id"])
            return True
        self.left_out[record["rule_id"]] += 1
        return False


class Flood:
    """Summarises alerts that the job has marked `overflow`: one line when an hour's first comes, and totals."""

    def __init__(self) -> None:
        self._left_out: Counter[tuple[str, str]] = Counter()

    def take(self, record: dict[str, Any]) -> str | None:
        """Count a record; returns the line that announces the overflow, where it is the first of its rule and hour."""
        key = printable(record["rule_id"]), printable(record["event_time"][:13].replace("T", " "))
        self._left_out[key] += 1
        if self._left_out[key] > 1:
            return None
        return f"{key[0]}: beyond the cap in the hour from {key[1]}:00 on, further alerts are counted only"

    def summary(self) -> Iterator[str]:
        """A line for each rule and hour."""
        for (rule_id, hour), records in sorted(self._left_out.items()):
            count = f"{records:,} record{'' if records == 1 else 's'}"
            yield f"{rule_id}: {count} marked overflow in the hour from {hour}:00 on"
