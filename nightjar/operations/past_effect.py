"""What a version that applies to the past changes there: how many alerts the nights will announce and retract.

How it works: the lake's events since its effective time are evaluated twice by `Truth`, with the rule's versions as
they are and with this one too, and alerts are compared by their ids, as a night compares them. A version is part of an
alert's id, so a night retracts each alert of the earlier version from then on, and announces those of this one.

Known limitation: it is exact for what the lake has, and within MOST_EVENTS events; of more, the newest are evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl
import pyarrow as pa

from nightjar.backfill.config import DAY
from nightjar.backfill.inputs.event_selection import ARRIVED
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
    """`announced` and `retracted`: alerts."""

    def __str__(self) -> str:
        """For the person who approves or publishes it."""
        known = f"version {self.version} of {self.rule_id} applies to the past, from {_minute(self.effective)} on"
        if self.first is None or self.last is None:
            return f"{known}; the lake has no events since then, so it is not known how many alerts that changes"
        span = f"{_minute(self.first)} to {_minute(self.last)}"
        changes = f"the next nights will announce {self.announced:,} and retract {self.retracted:,} alerts"
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
    before = [v for v in known.of_rule(made.rule.id) if v.version < made.version and v.effective != NOT_YET]
    since = max(made.effective, _nights_go_back_to(root, streams, now, pending_days), MIN_TIMESTAMP)
    earlier, all_of_them = RuleSet(tuple(before)), RuleSet((*before, made))
    total, events = _newest(root, stream, since, max(widest(each) for each in all_of_them.versions), most)
    judged = events.get_column(stream.event_time).dt.epoch("us") >= since
    rows = as_declared(events.to_arrow(), stream)
    tables, places = lake_rows(root, stream), judged.arg_true().to_numpy()
    was, will_be = (_alerts(stream, each, rows, places, tables) for each in (earlier, all_of_them))
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
        announced=len(will_be - was),
        retracted=len(was - will_be),
    )


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


def _alerts(stream: Stream, ruleset: RuleSet, rows: pa.Table, at: np.ndarray, tables: TableRows | None) -> set[str]:
    """The ids of the alerts at some of the rows."""
    truth = Truth(stream, ruleset, rows, tables=tables)
    return set(truth.violations(at.astype(np.int64)).column("alert_id").to_pylist())


def _minute(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"
