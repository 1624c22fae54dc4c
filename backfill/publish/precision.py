"""How many of a rule's alerts were fraud, as far as somebody has found out: from the labels in the lake.

How it works: an alert has the label that became known last of those about itself and those about its event
(contracts.labels). Labels that became known after `until` do not count, so that what is asked about an earlier time has
nothing that was found out later. The alerts count as they stand: a retracted one has no label.

What it does not do: estimate. Alerts without a label, and those labelled `unsure`, are in neither part of a precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import polars as pl

from nightjar.contracts.alerts import ANNOUNCED, BACKFILL
from nightjar.contracts.label_values import Label
from nightjar.lake import scanning
from nightjar.lake.tables import ALERTS, LABELS
from nightjar.storage.paths import AnyPath

# Days that are looked back where nobody asks for others: a chargeback takes weeks.
PRECISION_DAYS = 90

_SUBJECT = ("alert_id", "stream", "event_id")
_ORDER = ("known_at", "arrival_time", "partition", "offset")
_SAID = ("label", "reason", "author", "source", "known_at")


@dataclass(frozen=True)
class Precision:
    """What the labelled alerts of a rule's version were; retracted ones do not count."""

    rule_id: str
    rule_version: int
    fraud: int
    legitimate: int
    unsure: int

    @property
    def precision(self) -> float | None:
        """The share of fraud among the alerts known to be fraud or legitimate; None if there is none."""
        known = self.fraud + self.legitimate
        return self.fraud / known if known else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; the precision with four digits."""
        rounded = None if self.precision is None else round(self.precision, 4)
        return {**self.__dict__, "precision": rounded}


def read_precision(written: Mapping[str, Any]) -> Precision:
    """What `as_dict` has written."""
    return Precision(**{name: value for name, value in written.items() if name != "precision"})


def known_labels(root: AnyPath, until: datetime, newer: pl.DataFrame | None = None) -> pl.LazyFrame:
    """The labels that were known by then: what they are about, what they say, and their place in Kafka.

    newer: rows of LABELS that the lake does not have yet.
    """
    rows = scanning.rows(root, LABELS).select(*_SUBJECT, *_SAID, *_ORDER[1:])
    if newer is not None and newer.height:
        rows = pl.concat([rows, newer.lazy().select(rows.collect_schema().names())])
    return rows.filter(pl.col("label").is_not_null() & (pl.col("known_at") <= until))


def labelled(alerts: pl.LazyFrame, labels: pl.LazyFrame) -> pl.LazyFrame:
    """The alerts (with alert_id, stream, event_id) that have a label, each with the one that counts.

    labels: see `known_labels`. Adds label, reason, author, source, known_at.
    """
    of_alert = labels.filter(pl.col("alert_id").is_not_null()).drop("stream", "event_id")
    of_event = labels.filter(pl.col("alert_id").is_null()).drop("alert_id")
    both = [alerts.join(of_alert, on="alert_id"), alerts.join(of_event, on=["stream", "event_id"])]
    return pl.concat(both, how="diagonal").sort(_ORDER).unique("alert_id", keep="last").drop(_ORDER[1:])


def precision(
    root: AnyPath, first: date, last: date, until: datetime, newer: pl.DataFrame | None = None
) -> list[Precision]:
    """What the alerts about events of these days (UTC, both included) were, by rule and version.

    until, newer: see `known_labels`. Versions without a labelled alert there are left out.
    """
    labels = known_labels(root, until, newer).collect()
    begin, end = (datetime.combine(day, time(), UTC) for day in (first, last + timedelta(days=1)))
    inside = (pl.col("event_time") >= begin) & (pl.col("event_time") < end)
    return precisions([label_counts(scanning.rows(root, ALERTS).filter(inside), labels)])


def label_counts(alerts: pl.LazyFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """How many alerts have each label: the date of the event (`day`), rule_id, rule_version, and a column for each.

    alerts: rows of ALERTS, of an alert all or none; labels: see `known_labels`.
    """
    of_label = [(pl.col("label") == each.value).sum().alias(each.value) for each in Label]
    of_alerts = labelled(holding(_named(alerts, labels)), labels.lazy())
    by = [pl.col("event_time").dt.date().alias("day"), "rule_id", "rule_version"]
    return of_alerts.group_by(by).agg(*of_label).collect()


def precisions(counts: Sequence[pl.DataFrame]) -> list[Precision]:
    """By rule and version, of such counts of some dates."""
    if not counts:
        return []
    of_version = pl.concat(counts).drop("day").group_by("rule_id", "rule_version").sum()
    return [Precision(**row) for row in of_version.sort("rule_id", "rule_version").iter_rows(named=True)]


def _named(alerts: pl.LazyFrame, labels: pl.DataFrame) -> pl.LazyFrame:
    """The records of alerts that a label is about: few of many."""
    needed = alerts.select("revision", "source", "kind", "rule_id", "rule_version", "event_time", *_SUBJECT)
    of_alert, of_event = (labels.filter(pl.col("alert_id").is_null() == whole) for whole in (False, True))
    found = [
        needed.join(some.lazy(), on=by, how="semi")
        for some, by in ((of_alert, ["alert_id"]), (of_event, ["stream", "event_id"]))
        if some.height
    ]
    return pl.concat(found).collect(engine="streaming").lazy() if found else needed.clear()


def holding(alerts: pl.LazyFrame) -> pl.LazyFrame:
    """Of records of alerts the latest revision of each, if it is not retracted."""
    latest = alerts.sort("alert_id", "revision", pl.col("source") == BACKFILL).unique("alert_id", keep="last")
    return latest.filter(pl.col("kind") == ANNOUNCED)


def of_rules(found: Iterable[Precision]) -> dict[str, Precision]:
    """The versions of each rule taken together, by rule; `rule_version` is the latest."""
    rules: dict[str, Precision] = {}
    for each in found:
        before = rules.get(each.rule_id, Precision(each.rule_id, 0, 0, 0, 0))
        rules[each.rule_id] = Precision(
            each.rule_id,
            max(before.rule_version, each.rule_version),
            before.fraud + each.fraud,
            before.legitimate + each.legitimate,
            before.unsure + each.unsure,
        )
    return rules
