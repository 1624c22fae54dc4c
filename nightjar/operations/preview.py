"""What a rule would have announced on the newest events of the lake, in seconds and without a service.

How it works: the newest events, at most MOST_EVENTS, are evaluated by `Truth` with the rule and the live rules of its
stream, all of them as if they had always been in force, and compared as a backtest compares them.

Known limitation: a window that reaches back beyond these events is incomplete; `nightjar backtest` evaluates it whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from nightjar.backfill.backtest.backtest import live_versions
from nightjar.backfill.backtest.comparison import Example, Overlap, examples, overlaps
from nightjar.lake import delta, stream_state
from nightjar.lake.events import as_declared
from nightjar.lake.scanning import scan_files
from nightjar.lake.table_rows import lake_rows
from nightjar.lake.tables import RULE_STATUS, events_table
from nightjar.rules.allowing import can_allow
from nightjar.rules.drafts import DRAFT, beside_drafts, on_trial
from nightjar.rules.model import Rule
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet, RuleVersion
from nightjar.storage.paths import AnyPath

MOST_EVENTS = 50_000
# Days of events from which on they say how many alerts a day has.
_SHORTEST = 1 / 24


@dataclass(frozen=True)
class Preview:
    """What came of one rule."""

    events: int
    """How many were evaluated, of event times from `first` to `last`."""
    first: datetime
    last: datetime
    alerts: int
    """Its violations, of which `examples` are the newest; of an allow rule the events at which it holds."""
    examples: list[Example]
    overlaps: list[Overlap]
    """Live rules with violations at the same events; of an allow rule those whose alerts it silences."""
    is_allow_rule: bool = False

    @property
    def a_day(self) -> float | None:
        """How many alerts a day this is; None where the events are of less than an hour."""
        span = (self.last - self.first) / timedelta(days=1)
        return self.alerts / span if span >= _SHORTEST else None


def previews(
    root: AnyPath,
    streams: Mapping[str, Stream],
    rules: Iterable[Rule],
    most: int = MOST_EVENTS,
    *,
    masked: bool = False,
) -> dict[str, Preview]:
    """What came of each rule, by its id; rules on streams of which the lake has no events are left out.

    root: the lake's folder. most: events to evaluate of a stream. masked: examples without values of sensitive fields.

    Raises:
        LakeError: the lake has a stream's events with other fields than are declared.
    """
    of_stream: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.state.is_evaluated:
            of_stream.setdefault(rule.stream, []).append(rule)
    found: dict[str, Preview] = {}
    for name, drafts in of_stream.items():
        if delta.exists(root, events_table(streams[name])):
            found |= _of_stream(root, streams, streams[name], drafts, most, masked=masked)
    return found


def _of_stream(
    root: AnyPath, streams: Mapping[str, Stream], stream: Stream, drafts: list[Rule], most: int, *, masked: bool
) -> dict[str, Preview]:
    stream_state.refuse_other_fields(root, stream)
    events = newest_events(root, stream, most)
    if not events.height:
        return {}
    live = live_versions(known_rules(root, streams), [stream.name])
    rules = [version.rule for version in live.values()]
    versions = [
        RuleVersion(beside_drafts(version.rule, drafts, rules), version.version, MIN_TIMESTAMP)
        for version in live.values()
    ]
    for draft in drafts:
        named = on_trial(draft, drafts, rules).model_copy(update={"id": DRAFT.format(draft.id)})
        versions.append(RuleVersion(named, 1, MIN_TIMESTAMP))
    truth = Truth(
        stream, RuleSet(tuple(versions)), as_declared(events.to_arrow(), stream), tables=lake_rows(root, stream)
    )
    violations = pl.DataFrame(truth.violations()).lazy()
    first, last = events.select(pl.min(stream.event_time), pl.max(stream.event_time).alias("last")).row(0)
    found = {}
    for draft in drafts:
        mine = violations.filter(pl.col("rule_id") == DRAFT.format(draft.id))
        ids = sorted(live.keys() - {draft.id})
        if draft.allows:  # whose alerts it silences
            ids = [other for other in ids if can_allow(draft, live[other].rule)]
        others = {other: violations.filter(pl.col("rule_id") == other) for other in ids}
        found[draft.id] = Preview(
            events.height,
            first,
            last,
            mine.select(pl.len()).collect().item(),
            examples(mine, stream.sensitive if masked else ()),
            [overlap for overlap in overlaps(mine, others) if overlap.both],
            bool(draft.allows),
        )
    return found


def known_rules(root: AnyPath, streams: Mapping[str, Stream]) -> RuleSet:
    """The versions that the lake knows to be accepted; none before its first archive."""
    return stream_state.rule_book(root, streams).ruleset if delta.exists(root, RULE_STATUS) else RuleSet()


def newest_events(root: AnyPath, stream: Stream, most: int) -> pl.DataFrame:
    """The usable events that arrived last: the stream's fields and arrival, first arrivals first."""
    table = events_table(stream)
    usable = (pl.col(stream.event_id).is_not_null(), pl.col(stream.event_time).is_not_null())
    files = delta.newest_files(root, table, most)
    records = scan_files(table, files).filter(pl.col("rejected").is_null(), *usable)
    order = ["arrival_time", "partition", "offset"]
    newest = records.select(*stream.fields, *order).top_k(most, by=order)
    return newest.collect(engine="streaming").sort(order)
