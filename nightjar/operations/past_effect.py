"""What a version that applies to the past changes there: how many alerts the nights will announce and retract.

How it works: the lake's events since its effective time are evaluated twice by `Truth`, with the rule's versions as
they are and with this one too, and alerts are compared as a night compares them. A version is part of an alert's id, so
a night retracts each alert of the earlier version from then on, and announces those of this one. Rules that depend on
the version have their alerts compared as well: those that count its alerts (S23), and those that it silences (S24).

Known limitation: it is exact for what the lake has, and within MOST_EVENTS events; of more, the newest are evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import polars as pl
import pyarrow as pa

from nightjar.backfill.config import DAY
from nightjar.backfill.inputs.event_selection import ARRIVED
from nightjar.backfill.reconcile.reconciliation import by_verdict, content_differs
from nightjar.lake import delta, stream_state
from nightjar.lake.archive import archived_until
from nightjar.lake.events import as_declared
from nightjar.lake.scanning import scan_files
from nightjar.lake.table_rows import lake_rows
from nightjar.lake.tables import events_table
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.retention import widest
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, from_microseconds
from nightjar.rules.truth import Truth
from nightjar.rules.versions import NOT_YET, Published, RuleSet, RuleVersion
from nightjar.storage.paths import AnyPath

# Evaluated in half a minute at most, with a gigabyte of memory.
MOST_EVENTS = 1_000_000


@dataclass(frozen=True)
class PastEffect:
    """What a version changes of the past."""

    rule_id: str
    version: int
    effective: datetime
    """From when on it applies."""
    since: datetime
    """From when on nights correct, which is later where `effective` is further back than `pending_days`."""
    events: int
    skipped: int
    """Events since then that were too many."""
    first: datetime | None
    last: datetime | None
    """`first` and `last`: event times of the evaluated events since then, None without any."""
    announced: int
    retracted: int
    revised: int
    """`announced`, `retracted` and `revised`: alerts; the last ones are of other rules, or silenced now or no more."""

    def __str__(self) -> str:
        """For the person who approves or publishes it."""
        known = f"version {self.version} of {self.rule_id} applies to the past, from {_minute(self.effective)} on"
        if self.first is None or self.last is None:
            return f"{known}; the lake has no events since then, so it is not known how many alerts that changes"
        span = f"{_minute(self.first)} to {_minute(self.last)}"
        verbs = [f"announce {self.announced:,}", f"retract {self.retracted:,}"]
        verbs += [f"revise {self.revised:,}"] if self.revised else []
        changes = f"the next nights will {', '.join(verbs[:-1])} and {verbs[-1]} alerts"
        counted = f"{known}: {changes} (by {self.events:,} events of the lake, {span})"
        if self.skipped:
            counted += f"; {self.skipped:,} earlier events were not evaluated, and change more"
        if self.since > self.effective:
            counted += f"; nights go back to {self.since:%Y-%m-%d}, `nightjar backfill --days` corrects days before"
        return counted


def past_effect(
    root: AnyPath,
    streams: Mapping[str, Stream],
    known: Published,
    made: RuleVersion,
    now: int,
    *,
    pending_days: int,
    most: int = MOST_EVENTS,
) -> PastEffect | None:
    """What publishing or approving a version changes of the past; None if it applies from now on, or not yet.

    root: the lake's folder; known: the versions so far, `made` among them or not; made: as
    `nightjar.rules.publishing.judge` makes it; now: µs; pending_days: the setting; most: events to evaluate. Reads the
    lake, and no service.

    Raises:
        LakeError: the lake has the stream's events with other fields than are declared.
    """
    if made.is_proposed or made.effective >= now:
        return None
    stream = streams[made.rule.stream]
    earlier, all_of_them = _rule_sets(known, made)
    since = max(made.effective, _nights_go_back_to(root, streams, now, pending_days), MIN_TIMESTAMP)
    total, events = _newest(root, stream, since, max(widest(each) for each in all_of_them.versions), most)
    judged = events.get_column(stream.event_time).dt.epoch("us") >= since
    rows = as_declared(events.to_arrow(), stream)
    tables, places = lake_rows(root, stream), judged.arg_true().to_numpy()
    was, will_be = (_alerts(stream, each, rows, places, tables) for each in (earlier, all_of_them))
    both = was.join(will_be, on="alert_id", suffix="_then")
    at = pl.col(stream.event_time)
    count, first, last = events.filter(judged).select(pl.len(), at.min().alias("first"), at.max().alias("last")).row(0)
    return PastEffect(
        rule_id=made.rule.id,
        version=made.version,
        effective=from_microseconds(max(made.effective, MIN_TIMESTAMP)),
        since=from_microseconds(since),
        events=count,
        skipped=total - count,
        first=first,
        last=last,
        announced=will_be.height - both.height,
        retracted=was.height - both.height,
        revised=both.filter(content_differs("_then", by_verdict(all_of_them.versions), ())).height,
    )


def _rule_sets(known: Published, made: RuleVersion) -> tuple[RuleSet, RuleSet]:
    """The versions in force whose alerts can change, and what these depend on; the same with `made`."""
    ids = [rule_id for rule_id in known.rule_ids if known.of_rule(rule_id)[0].rule.stream == made.rule.stream]
    versions = [
        replace(version, named=())  # which may have `made` among them
        for rule_id in ids
        for version in known.of_rule(rule_id)
        if version.effective != NOT_YET and (rule_id != made.rule.id or version.version < made.version)
    ]
    after, about = RuleSet((*versions, made)), {made.rule.id}
    depending = [v for v in after.versions if v.rule.id in about or about & {other.rule.id for other in v.named}]
    needed = {v.rule.id for v in depending} | {other.rule.id for v in depending for other in v.named}
    of = [version for version in versions if version.rule.id in needed]
    return RuleSet(tuple(of)), RuleSet((*of, made))


def _nights_go_back_to(root: AnyPath, streams: Mapping[str, Stream], now: int, pending_days: int) -> int:
    """The begin (µs) of the first day that the next night takes for pending; see backfill.pending."""
    until = archived_until(root)
    lateness = max(stream.allowed_lateness for stream in streams.values())
    return (((now if until is None else until) - lateness) // DAY - pending_days) * DAY


def _newest(root: AnyPath, stream: Stream, since: int, reach: int, most: int) -> tuple[int, pl.DataFrame]:
    """How many usable events there are since then (µs), and the newest of them and of what their windows reach."""
    table = events_table(stream)
    files: list[delta.File] = []
    if delta.exists(root, table):
        stream_state.refuse_other_fields(root, stream)
        span = (since - reach, MAX_TIMESTAMP)
        files = delta.files_within(root, table, delta.version(root, table), instant=stream.event_time, spans=[span])
    at = pl.col(stream.event_time)
    records = scan_files(table, files).filter(
        pl.col("rejected").is_null(), pl.col(stream.event_id).is_not_null(), at.dt.epoch("us") >= since - reach
    )
    total = records.filter(at.dt.epoch("us") >= since).select(pl.len()).collect(engine="streaming").item()
    order = [stream.event_time, *ARRIVED]
    newest = records.select(*stream.fields, *ARRIVED).top_k(most, by=order)
    return int(total), newest.collect(engine="streaming").sort(ARRIVED)


def _alerts(stream: Stream, ruleset: RuleSet, rows: pa.Table, at: np.ndarray, tables: TableRows | None) -> pl.DataFrame:
    """The alerts at some of the rows."""
    truth = Truth(stream, ruleset, rows, tables=tables)
    return pl.DataFrame(truth.violations(at.astype(np.int64)))


def _minute(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"
