"""Evaluate draft rules over past days of the lake, beside the live rules.

How it works: one pass of the nightly evaluation, over the drafts and the newest versions of the live rules on their
streams, as if all of them had always existed; nightjar/rules/drafts.py says which of them name which. Nothing is
reconciled or published, and the staged folder is removed at the end.

Known limitation: an event that arrived after its day was settled counts on the day of its arrival, as in a nightly run.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

import polars as pl

from nightjar.backfill.backtest import comparison
from nightjar.backfill.backtest.comparison import BacktestResult
from nightjar.backfill.backtest.labels import is_genuine
from nightjar.backfill.config import BackfillConfig, BackfillError, RunRequest
from nightjar.backfill.evaluate.evaluation import evaluate_rules
from nightjar.backfill.inputs.context import RunContext
from nightjar.backfill.inputs.event_selection import events_of_days
from nightjar.backfill.inputs.published_rules import PublishedRules
from nightjar.backfill.staging import EVALUATED, take_notes
from nightjar.lake.scanning import parquet
from nightjar.rules.allowing import can_allow
from nightjar.rules.drafts import ALLOWED_BY_DRAFT, DRAFT, HOLDS, allowing, beside_drafts, holding, on_trial
from nightjar.rules.masking import masked_text
from nightjar.rules.measures import Measure
from nightjar.rules.model import Rule, State
from nightjar.rules.retention import waits_for
from nightjar.rules.streams import Stream
from nightjar.rules.thresholds import Threshold, threshold_of
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.rules.versions import RuleSet, RuleVersion
from nightjar.storage.paths import AnyPath, remove_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Under this id a draft is evaluated without its threshold. No rule's own id has a space.
_ANY_THRESHOLD = "{} (any threshold)"
# Holds the compared value where the threshold is on a field.
_VALUE = "threshold_value"


@dataclass(frozen=True)
class Draft:
    """A rule to try. threshold: the comparison whose constant varies; None: none."""

    rule: Rule
    threshold: Threshold | None = None

    @property
    def trials(self) -> list[RuleVersion]:
        """The versions to evaluate for it."""
        rule = self.rule.model_copy(update={"id": DRAFT.format(self.rule.id), "state": State.ACTIVE})
        found = [rule]
        if self.threshold is not None:
            measures = dict(rule.measures)
            if self.measure not in measures:
                measures[self.measure] = Measure.model_validate({"last": self.threshold.name, "over": "1ms"})
            of_any = {"id": _ANY_THRESHOLD.format(self.rule.id), "when": self.threshold.without, "description": ""}
            found.append(rule.model_copy(update={**of_any, "measures": measures}))
        return [RuleVersion(each, 1, MIN_TIMESTAMP) for each in found]

    @property
    def measure(self) -> str:
        """The measure with the value that the threshold is compared with."""
        compared = "" if self.threshold is None else self.threshold.name
        return compared if compared in self.rule.measures else _VALUE


def drafts_of(rules: Iterable[Rule], streams: Mapping[str, Stream], threshold: str | None) -> list[Draft]:
    """threshold: the measure or field whose constant is to vary.

    Raises:
        RuleError: a rule does not compare it with a constant.
    """
    return [
        Draft(rule, None if threshold is None else threshold_of(rule, streams[rule.stream], threshold))
        for rule in rules
    ]


def backtest(
    session: SparkSession,
    config: BackfillConfig,
    drafts: Sequence[Draft],
    first: date,
    last: date,
    labels: pl.LazyFrame | str | None = None,
) -> list[BacktestResult]:
    """What the drafts would have announced on these days, one result per draft.

    labels: `event_id` and `label` (any type; NULL, false, 0 and "genuine" mean that the event is no fraud); or a field
    of the drafts' streams that is the label.

    Raises:
        BackfillError: the lake has no events of the drafts' streams on these days.
    """
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    request = RunRequest(f"backtest-{uuid.uuid4()}", first, dry_run=True, days=len(days))
    lateness = max((stream.allowed_lateness for stream in config.streams.values()), default=0)
    waiting = max((waits_for(draft.rule) for draft in drafts), default=0)
    notes = take_notes(config, request.end + lateness + waiting, time.time_ns() // 1000)
    run = RunContext(config, request, notes, session)
    live = live_versions(run.rules.every, {draft.rule.stream for draft in drafts})
    ruleset = to_evaluate(live.values(), drafts)
    with _folder(run.folder) as folder:
        counts = evaluate_rules(replace(run, other_rules=PublishedRules(ruleset, ruleset, {})))
        if not counts["groups"]:
            raise BackfillError(
                "the lake has no events of these rules' streams",
                where=f"{first}..{last}",
                remedy="Bring Kafka to the lake with `nightjar archive`, or name days that have events",
            )
        violations = parquet(folder / EVALUATED / "*.parquet").filter(pl.col("failed").is_null())
        return [_compared(run, draft, live, violations, days, labels) for draft in drafts]


def to_evaluate(live: Collection[RuleVersion], drafts: Sequence[Draft]) -> RuleSet:
    """The versions of drafts and of live rules, as if all had always applied; see nightjar/rules/drafts.py."""
    tried, rules = [draft.rule for draft in drafts], [version.rule for version in live]
    versions = [
        RuleVersion(beside_drafts(version.rule, tried, rules), version.version, MIN_TIMESTAMP) for version in live
    ]
    for draft in drafts:
        versions += replace(draft, rule=on_trial(draft.rule, tried, rules)).trials
    copies = [*holding(rules), *allowing(tried)]
    return RuleSet((*versions, *(RuleVersion(rule, 1, MIN_TIMESTAMP) for rule in copies)))


def live_versions(published: RuleSet, streams: Iterable[str]) -> dict[str, RuleVersion]:
    """The newest version of every rule on these streams that is evaluated, by rule."""
    wanted = set(streams)
    newest = {version.rule.id: version for version in published.versions}
    return {
        rule_id: version
        for rule_id, version in newest.items()
        if version.rule.stream in wanted and version.rule.state.is_evaluated
    }


def _compared(
    run: RunContext,
    draft: Draft,
    live: Mapping[str, RuleVersion],
    violations: pl.LazyFrame,
    days: Sequence[date],
    labels: pl.LazyFrame | str | None,
) -> BacktestResult:
    rule, stream = draft.rule, run.config.streams[draft.rule.stream]
    of_stream = {rule_id for rule_id, version in live.items() if version.rule.stream == rule.stream}
    mine = _of(violations, DRAFT.format(rule.id))
    by_day = comparison.alerts_by_day(mine, days)
    groups, top = comparison.top_groups(mine)
    hidden = stream.sensitive
    fraud = None if labels is None else labelled_as_fraud(events_of_days(run, stream), stream, labels)
    curve = None
    if draft.threshold is not None:
        candidates = _of(violations, _ANY_THRESHOLD.format(rule.id))
        curve = comparison.curve(candidates, draft.threshold, draft.measure, len(days), fraud)
    change, replaced = None, rule.shadow_of or rule.id
    if replaced in of_stream:
        before = HOLDS.format(replaced) if live[replaced].rule.allows else replaced
        change = comparison.changed(mine, _of(violations, before), live[replaced].version, days, hidden)
    others = of_stream - {rule.id, replaced}
    if rule.allows:
        others = {other for other in others if can_allow(rule, live[other].rule)}
    return BacktestResult(
        rule=rule,
        live=live[replaced] if replaced in of_stream else None,
        days=list(days),
        alerts=sum(by_day),
        by_day=by_day,
        groups=groups,
        top_groups=[(str(masked_text(group, hidden)), alerts) for group, alerts in top],
        overlaps=comparison.overlaps(mine, {other: _of(violations, other) for other in sorted(others)}),
        change=change,
        quality=None if fraud is None else comparison.quality(mine, fraud),
        curve=curve,
        examples=comparison.examples(mine, hidden),
    )


def _of(violations: pl.LazyFrame, rule_id: str) -> pl.LazyFrame:
    """The violations of one rule; the draft of an allow rule that silences them has its own id there."""
    measures = pl.col("measures").str.replace(ALLOWED_BY_DRAFT, '${1}"')
    return violations.filter(pl.col("rule_id") == rule_id).with_columns(measures)


def labelled_as_fraud(events: pl.LazyFrame, stream: Stream, labels: pl.LazyFrame | str) -> pl.LazyFrame:
    """The events that are labelled as fraud: `event_id`, unique, and `label` (text)."""
    of_days = events.select(pl.col(stream.event_id).alias("event_id"), *([labels] if isinstance(labels, str) else []))
    if isinstance(labels, str):
        labelled = of_days.rename({labels: "label"})
    else:
        labelled = labels.select(pl.col("event_id").cast(pl.String), "label").join(of_days, on="event_id", how="semi")
    text = pl.col("label").cast(pl.String)
    return labelled.with_columns(text).filter(~is_genuine(text).fill_null(value=True)).unique("event_id")


@contextmanager
def _folder(place: AnyPath) -> Iterator[AnyPath]:
    try:
        yield place
    finally:
        remove_tree(place)
