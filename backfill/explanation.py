"""One alert explained: the rule's version, the events in its window, what the measures are, and what was published.

Everything is read from the lake, and the measures are computed by the engine, over the group's events of the widest
window. So it shows the truth by the current lake, beside what the stream and the backfill have published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa

from backfill.config import BackfillError
from backfill.reconciliation import latest_revisions, well_formed
from lake import stream_state
from lake.config import LakeConfig
from lake.scanning import scan
from lake.tables import ALERTS, RECONCILIATION, VIOLATIONS, events_table
from rules.engine.store import ARRIVAL
from rules.masking import MASK, alert_text, masked, masked_text, sensitive_names
from rules.names import did_you_mean
from rules.retention import widest
from rules.streams import Stream
from rules.truth import Truth
from rules.versions import RuleSet, RuleVersion

_PLACE = ["partition", "offset"]


@dataclass(frozen=True)
class Explanation:
    """revisions: the alert's records, oldest first; window: the group's events from the widest window on to the event,
    each id once; measures: the truth, None where the event is not in the lake; outcomes: of the runs that judged it."""

    version: RuleVersion
    stream: Stream
    event_id: str
    group: str
    violated: bool
    measures: dict[str, Any] | None
    window: pl.DataFrame
    revisions: pl.DataFrame
    outcomes: pl.DataFrame

    def masked(self) -> Explanation:
        """The same without sensitive values."""
        names = sensitive_names(self.version.rule, self.stream)
        if not names:
            return self
        text = pl.col("text").map_elements(lambda text: alert_text(text, self.version.rule, self.stream), pl.String)
        hidden = [
            pl.when(pl.col(name).is_not_null()).then(pl.lit(MASK)).alias(name)
            for name in self.stream.fields
            if name in names
        ]
        return replace(
            self,
            group=str(masked_text(self.group, names)),
            measures=None if self.measures is None else masked(self.measures, names),
            window=self.window.with_columns(hidden),
            revisions=_masked(self.revisions, names).with_columns(text),
            outcomes=_masked(self.outcomes, names),
        )


def _masked(rows: pl.DataFrame, names: frozenset[str]) -> pl.DataFrame:
    """Rows about an alert with JSON members of these names masked."""
    texts = [name for name in ("group", "measures", "stream_measures") if name in rows.columns]
    masks = (pl.col(name).map_elements(lambda text: masked_text(text, names), pl.String) for name in texts)
    return rows.with_columns(*masks)


def explain(config: LakeConfig, alert_id: str) -> Explanation:
    """Explain the alert.

    Raises:
        BackfillError: the lake has no such alert, or not what it is about.
    """
    root, mine = config.root, pl.col("alert_id") == alert_id
    records = well_formed(scan(root, ALERTS).filter(mine)).collect().sort("revision", "emitted_at")
    revisions = records.unique(["revision", "source"], keep="first", maintain_order=True)
    violations = scan(root, VIOLATIONS).filter(mine).collect()
    known = violations if violations.height else latest_revisions(revisions)
    if not known.height:
        raise BackfillError(
            "the lake has no such alert", where=f"alert {alert_id}", remedy="Run `nightjar archive`, or look at the id"
        )
    alert = known.row(0, named=True)
    stream = config.streams.get(alert["stream"])
    if stream is None:
        raise BackfillError(
            f"its stream {alert['stream']} is not declared",
            where=f"alert {alert_id}",
            remedy=f"Declare the stream as it was; {did_you_mean(alert['stream'], config.streams, 'Streams are')}",
        )
    version = _version(config, alert["rule_id"], alert["rule_version"])
    window = _window(config, stream, version, alert)
    measures, violated = None, False
    if window.height:
        table = window.select(*stream.fields, ARRIVAL, *_PLACE).to_arrow().cast(_schema(stream))
        truth = Truth(stream, RuleSet((RuleVersion(version.rule, version.version, -(1 << 61)),)), table)
        own = (window.get_column(stream.event_id) == alert["event_id"]).arg_true().to_numpy()
        for row in truth.table(every=True, at=own).to_pylist():
            measures, violated = json.loads(row["measures"]), row["violated"]
    outcomes = scan(root, RECONCILIATION).filter(mine).collect().sort("day")
    return Explanation(
        version, stream, alert["event_id"], alert["group"], violated, measures, window, revisions, outcomes
    )


def _version(config: LakeConfig, rule_id: str, number: int) -> RuleVersion:
    book = stream_state.rule_book(config.root, config.streams)
    found = [version for version in book.of_rule(rule_id) if version.version == number]
    if not found:
        raise BackfillError(
            "is not among the answers to rule messages",
            where=f"rule {rule_id} version {number}",
            remedy="Run `nightjar archive`",
        )
    return found[0]


def _window(config: LakeConfig, stream: Stream, version: RuleVersion, alert: Mapping[str, Any]) -> pl.DataFrame:
    """The group's events from the widest window up to the alert's, each id's first arrival, in time's order."""
    reach = timedelta(microseconds=widest(version.rule))
    at, name = pl.col(stream.event_time), stream.event_id
    end = alert["event_time"]
    near = scan(config.root, events_table(stream)).filter(
        pl.col("rejected").is_null(), at >= end - reach, at <= end, pl.col("arrival_date") >= (end - reach).date()
    )
    event = near.filter(pl.col(name) == alert["event_id"]).sort(ARRIVAL, *_PLACE).collect()
    if not event.height:
        return event
    for field in version.rule.group_by:
        near = near.filter(pl.col(field) == event.get_column(field)[0])
    ordered = near.sort(ARRIVAL, *_PLACE).unique(name, keep="first", maintain_order=True)
    return ordered.sort(stream.event_time, name).collect()


def _schema(stream: Stream) -> pa.Schema:
    coordinates = [(ARRIVAL, pa.timestamp("us", "UTC")), ("partition", pa.int32()), ("offset", pa.int64())]
    return pa.schema([*stream.schema, *coordinates])
