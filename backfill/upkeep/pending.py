"""Purpose: find the past days whose results are missing or outdated, so that no night is lost silently.

How it works: from the lake alone. A day is pending where events of it are there, it is settled (all arrivals that count
are in the lake, by any `allowed_lateness` about then), and either no run of the whole day has finished, or rules have
been published since its last finished run that apply to its event times. Which days have events is read from the logs
of the events tables, without Spark.

What it does not do: look for single alerts that were left to the stream; the next run of any day judges those again
(see results.pending_alerts).

Known limitation: days further back than `pending_days` are not named one by one, only counted in a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType

import structlog

from nightjar.backfill.config import DAY, BackfillConfig, microseconds_of_day
from nightjar.backfill.inputs.scope import longest_wait
from nightjar.backfill.lateness import Lateness
from nightjar.backfill.publish.results import finished_runs, of_whole_days
from nightjar.contracts.run_manifest import read_manifest
from nightjar.lake import delta, stream_state
from nightjar.lake.archive import archived_until
from nightjar.lake.events import date_of
from nightjar.lake.tables import events_table
from nightjar.rules.rulebook import effective_text
from nightjar.rules.streams import Stream, recorded_streams
from nightjar.rules.versions import RuleVersion

_log = structlog.get_logger(__name__)

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class PendingDay:
    """A day to run, and why."""

    day: date
    why: str

    def __str__(self) -> str:
        return f"{self.day}: {self.why}"


def pending_days(config: BackfillConfig, before: date | None = None) -> list[PendingDay]:
    """The pending days, oldest first. before: only days before this one."""
    until = archived_until(config.lake.root)
    if until is None:
        return []
    book = stream_state.rule_book(config.lake.root, config.streams)
    return find_pending(config, until, book.ruleset.versions, before, book.reported)


def find_pending(
    config: BackfillConfig,
    until: int,
    versions: Sequence[RuleVersion],
    before: date | None = None,
    reported: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({}),
) -> list[PendingDay]:
    """The pending days, where the lake has all that arrived before `until` (µs) and these versions are published.

    reported: by stream, of answers their arrival and the `allowed_lateness` of then, µs.
    """
    lateness = {name: Lateness.of(stream, reported) for name, stream in config.streams.items()}
    after = date_of(until - max(stream.allowed_lateness for stream in config.streams.values()))
    oldest = after - config.pending_days * _DAY
    known = _known_rules(config)
    found, older = [], []
    for day in sorted(_days_with_events(config, lateness)):
        if day < oldest and day not in known:
            older.append(day)
        elif (
            oldest <= day < min(after, before or after)
            and _is_settled(day, lateness.values(), versions, until)
            and (why := _why(day, known.get(day), versions))
        ):
            found.append(PendingDay(day, why))
    if older:
        _log.warning(
            "days further back than pending_days have no finished run",
            days=len(older),
            first=str(older[0]),
            last=str(older[-1]),
            remedy="nightjar backfill --days FIRST..LAST",
        )
    return found


def _is_settled(day: date, lateness: Iterable[Lateness], versions: Sequence[RuleVersion], until: int) -> bool:
    """Whether all arrivals that belong to the day, and what rules wait for after it, come before `until` (µs)."""
    begin, end = microseconds_of_day(day), microseconds_of_day(day + _DAY)
    greatest = max(each.around(begin, end).greatest for each in lateness)
    return end + greatest + longest_wait(versions, begin, end) <= until


def _why(day: date, rules: Mapping[tuple[str, int], str | None] | None, versions: Sequence[RuleVersion]) -> str:
    """Empty where the day is not pending. rules: those that its last run has seen; None: there was none."""
    if rules is None:
        return "no run has finished"
    end = microseconds_of_day(day + _DAY)
    since = [
        f"{version.rule.id} version {version.version}"
        for version in versions
        if version.effective < end and rules.get((version.rule.id, version.version)) != effective_text(version)
    ]
    if not since:
        return ""
    listed = ", ".join(since[:3]) + (f" and {len(since) - 3} more" if len(since) > 3 else "")
    return f"published since its last run: {listed}"


def _known_rules(config: BackfillConfig) -> dict[date, Mapping[tuple[str, int], str | None]]:
    """The rule versions, and from when on they apply, that the last finished run of each whole day has seen."""
    runs = of_whole_days(finished_runs(config)).sort("finished_at").unique("day", keep="last").collect()
    manifests = (read_manifest(row) for row in runs.iter_rows(named=True))
    return {manifest.day: manifest.rules for manifest in manifests if manifest is not None}


def _days_with_events(config: BackfillConfig, lateness: Mapping[str, Lateness]) -> set[date]:
    found: set[date] = set()
    for stream in recorded_streams(config.streams.values()):
        if delta.exists(config.lake.root, events_table(stream)):
            spans = delta.spans_by_day(config.lake.root, events_table(stream), stream.event_time)
            found |= _days_of(stream, spans, lateness[stream.name])
    return found


def _days_of(stream: Stream, spans: Mapping[date, tuple[int, int] | None], lateness: Lateness) -> set[date]:
    """Days of arrival; those before them where an event of the day before arrived after midnight, yet in time; and
    those after them where an event dated ahead arrived before midnight.

    spans: by day of arrival the least and the greatest event time, µs.
    """
    found = set(spans)
    for arrived, span in spans.items():
        if span is None:
            continue
        earliest, latest = span
        for back in range(1, lateness.greatest // DAY + 2):
            end = microseconds_of_day(arrived - (back - 1) * _DAY)
            allowed = lateness.around(end - DAY, end).greatest
            if earliest < end and microseconds_of_day(arrived) < end + allowed:
                found.add(arrived - back * _DAY)
        ahead = ((arrived + days * _DAY) for days in range(1, stream.max_future_skew // DAY + 2))
        found |= {day for day in ahead if latest >= microseconds_of_day(day)}
    return found
