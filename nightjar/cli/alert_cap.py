"""Limits how many alerts of a rule and hour are shown, and counts the others: none is lost, all are on the topic."""

from collections import Counter, OrderedDict
from typing import Any

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
