"""The status of an alert, and why, in sentences: by what was published about it, what the nights found, and what the
lake has.

A pure function of rows; explanation.py reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cached_property
from typing import Any

from nightjar.backfill.config import DAY, microseconds_of_day
from nightjar.backfill.explain.reevaluation import AlertSubject, Reevaluation
from nightjar.backfill.lateness import Allowed
from nightjar.contracts.alerts import BACKFILL, RETRACTED, STREAM
from nightjar.contracts.reconciliation import Cause, Outcome
from nightjar.rules.allowing import allowed_by
from nightjar.rules.canonical import rewritten
from nightjar.rules.durations import format_duration
from nightjar.rules.retention import widest
from nightjar.rules.states import Revisions
from nightjar.rules.timestamps import from_microseconds, microseconds

# What each cause says of an alert, after "because".
BECAUSE = {
    Cause.LATE_EVENT: "an event of its window was late for the stream, which does not count it",
    Cause.STREAM_DOWN: "the stream had not read all events of its window",
    Cause.RULE_PROPAGATION: "its event had arrived before the version of the rule that applies to it",
    Cause.COLD_START: "the stream lacked the beginning of its window when the version of the rule came",
    Cause.SETTINGS_CHANGED: "what was late for the stream, or the order of equal times, was another then",
    Cause.REFERENCE_CHANGED: "a table that the rule asks had changed after the stream read an event of its window",
    Cause.DUPLICATE_CONFLICT: "two different events of its window have one id, of which the first to arrive counts",
    Cause.FORGOTTEN: "an event of its window may have been erased with a person",
    Cause.UNEXPLAINED: "of nothing that is known, which is a defect",
}
_CAUSES = {cause.value: cause for cause in Cause}


class PublishedState(StrEnum):
    """What consumers of the alerts topic have of an alert."""

    ANNOUNCED = "announced"
    REVISED = "revised"
    RETRACTED = "retracted"
    NEVER = "not announced"


@dataclass(frozen=True)
class AlertRecords:
    """What is known of an alert."""

    latest: Mapping[str, Any] | None
    """Its highest revision; None if none is known."""
    night: date | None
    """The day whose run published that; None if it was the stream."""
    outcome: Mapping[str, Any] | None
    """The row of RECONCILIATION of the last day that judged it."""
    runs: tuple[tuple[date, int], ...]
    """Of each finished run that covered the alert's rule and group its day and cut-off (µs)."""
    answered: Mapping[int, int]
    """When (µs) each version of the rule was answered."""
    allowed: Allowed
    """How late events of its day could be."""


@dataclass(frozen=True)
class LakeCoverage:
    """What the lake has of the stream. first: its first date of arrivals; until: all arrivals before this (µs);
    forgotten: whether the alert depends on erased events (S15.3)."""

    first: date | None
    until: int | None
    forgotten: bool


@dataclass(frozen=True)
class AlertStatus:
    """The status of an alert."""

    published: PublishedState
    by: str | None
    """Who published it, `stream` or `backfill`."""
    night: date | None
    """The day whose run did."""
    muted: bool
    muted_by: str | None
    allowed_by: str | None
    """The allow rule that silences it, by what was published last."""
    confirmed: bool | None
    """Whether the lake as it is now agrees with it; None: that cannot be determined."""
    see: str | None
    """The alert of the version that applies instead."""
    judged_by: date | None
    """The day whose run has yet to judge the alert."""
    reasons: tuple[str, ...]
    """Sentences."""

    @property
    def headline(self) -> str:
        """In a few words."""
        if self.published is PublishedState.NEVER:
            return self.published.value
        night = "a night" if self.night is None else f"the night of {day_text(self.night)}"
        is_correction = self.published is PublishedState.REVISED and self.by == BACKFILL
        words = "corrected" if is_correction else self.published.value
        silent = "" if not self.muted else f", allowed by {self.allowed_by}" if self.allowed_by else ", muted"
        return f"{words} by {'the stream' if self.by == STREAM else night}{silent}"


def status_of(subject: AlertSubject, found: Reevaluation, records: AlertRecords, coverage: LakeCoverage) -> AlertStatus:
    """Its status. found: what the lake has at its event."""
    case = _Case(subject, found, records, coverage)
    return AlertStatus(
        case.published,
        None if records.latest is None else records.latest["source"],
        records.night,
        muted=case.is_announced and bool((records.latest or {})["muted"]),
        muted_by=found.muted_by,
        allowed_by=allowed_by((records.latest or {}).get("measures")) if case.is_announced else None,
        confirmed=case.confirmed,
        see=None if case.applies or found.violation is None else found.violation["alert_id"],
        judged_by=case.judged_by,
        reasons=tuple(case.reasons()),
    )


def day_text(day: date) -> str:
    """A day as people write it."""
    return f"{day.day} {day:%B %Y}"


def _instant(instant: int) -> str:
    return f"{from_microseconds(instant):%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True)
class _Case:
    subject: AlertSubject
    found: Reevaluation
    records: AlertRecords
    coverage: LakeCoverage

    @cached_property
    def published(self) -> PublishedState:
        latest = self.records.latest
        if latest is None:
            return PublishedState.NEVER
        if latest["kind"] == RETRACTED:
            return PublishedState.RETRACTED
        return PublishedState.ANNOUNCED if latest["revision"] == 1 else PublishedState.REVISED

    @property
    def is_announced(self) -> bool:
        return self.published in (PublishedState.ANNOUNCED, PublishedState.REVISED)

    @property
    def applies(self) -> bool:
        """Whether the alert's version is the one that its event sees."""
        return self.found.applies is not None and self.found.applies.version == self.subject.version.version

    @property
    def true(self) -> Mapping[str, Any] | None:
        """The alert as the lake has it, None if it has none."""
        return self.found.violation if self.applies else None

    @cached_property
    def confirmed(self) -> bool | None:
        if self.coverage.forgotten or (self.applies and self.found.arrival is None):
            return None
        latest = self.records.latest
        if self.true is None or latest is None or not self.is_announced:
            return (self.true is not None) == self.is_announced
        if bool(latest["muted"]) != self.true["muted"]:
            return False
        if allowed_by(latest["measures"]) != allowed_by(self.true["measures"]):
            return False
        verdict_only = self.subject.version.rule.revisions is Revisions.VERDICT
        return verdict_only or rewritten(latest["measures"]) == rewritten(self.true["measures"])

    @cached_property
    def judged_by(self) -> date | None:
        if self.records.outcome is not None or self.found.arrival is None:
            return None
        day, arrival, allowed = self.subject.event_time.date(), self.found.arrival, self.records.allowed
        late = arrival - microseconds_of_day(day) - DAY
        days = [day] if late < allowed.greatest else []
        days += [from_microseconds(arrival).date()] if late >= allowed.least else []
        if any(done in days and arrival < cut for done, cut in self.records.runs):
            return None
        return next((belongs for belongs in days if all(done != belongs for done, _ in self.records.runs)), None)

    def reasons(self) -> Iterator[str]:
        yield from self._of_version()
        yield from self._of_publication()
        yield from self._of_event()
        yield from self._of_waiting()
        yield from self._of_muting()
        yield from self._of_difference()
        if self.judged_by is not None:
            yield f"No night has judged it yet: its event belongs to the night of {day_text(self.judged_by)}."

    def _of_version(self) -> Iterator[str]:
        """That another version applies to its event."""
        applies = self.found.applies
        if self.applies:
            return
        if applies is None:
            since = _instant(self.subject.version.effective)
            yield f"No version of the rule applies to its event: this one applies to events from {since} on."
            return
        came = self.records.answered.get(applies.version)
        published = "" if came is None else f", published {_instant(came)},"
        words = (
            f"Version {applies.version} of the rule{published} applies to events since {_instant(applies.effective)}"
        )
        if not applies.rule.state.is_evaluated:
            yield f"{words}: since then the rule is {applies.rule.state.value}, and has no alerts."
        elif self.found.violation is not None:
            yield f"{words}, so to this one, too: see alert {self.found.violation['alert_id']}."
        elif self.found.arrival is not None:
            yield f"{words}, so to this one, too, and has no alert at it."
        else:
            yield f"{words}, so to this one, too."

    def _of_publication(self) -> Iterator[str]:
        """Why somebody published what they did, or did not."""
        latest, outcome = self.records.latest, self.records.outcome
        if latest is not None and latest["source"] == BACKFILL:
            if (cause := _CAUSES.get(latest["cause"] or "")) is not None:
                yield f"Stream and night differed because {BECAUSE[cause]} ({cause.value})."
            return
        if self.published is PublishedState.RETRACTED and self.applies:
            yield "The stream retracted it: an event on time, out of order, changed its window."
        cause = _CAUSES.get((outcome or {}).get("cause") or "")
        if outcome is None or cause is None or outcome["outcome"] == Outcome.MATCHED:
            return
        night = f"The night of {day_text(outcome['day'])} found it {outcome['outcome']}: {BECAUSE[cause]}"
        what = {
            Cause.STREAM_DOWN: "It is left to the stream, and later nights look again.",
            Cause.UNEXPLAINED: "Its correction is held back.",
            Cause.FORGOTTEN: "What was announced stands.",
        }
        yield f"{night} ({cause.value}). {what.get(cause, 'No correction of it is known here.')}"

    def _of_event(self) -> Iterator[str]:
        """Why its event cannot be evaluated."""
        coverage, found = self.coverage, self.found
        if found.displaced:
            yield "Another event with the id of its event arrived first, and counts instead."
        if found.failed is not None:
            yield f"Measure {found.failed} has no value at its event: the exact one does not fit its type."
        if coverage.forgotten:
            yield "Events that it depends on may have been erased with a person, so it cannot be evaluated again."
        if found.arrival is not None:
            return
        words = "Its event is not in the lake, so nothing can be recomputed"
        if coverage.first is not None and self.subject.event_time.date() < coverage.first:
            first = day_text(coverage.first)
            yield f"{words}: arrivals before {first} have been removed (lake_retention), or never came."
        else:
            until = "has not run" if coverage.until is None else f"has come to {_instant(coverage.until)}"
            yield f"{words}: the archive {until}."

    def _of_waiting(self) -> Iterator[str]:
        """What has followed its event, if the rule waits for that."""
        found, unless = self.found, self.found.shown.rule.unless
        if unless is None or found.measures is None or not self.applies:
            return
        if found.followed_by is not None:
            event_id, at = found.followed_by
            yield f"Event {event_id} of {_instant(microseconds(at))} meets what the rule waits for: {unless.where}."
        else:
            due = _instant(self.subject.at + unless.within)
            yield f"Until {due} no event of its group met what the rule waits for: {unless.where}."

    def _of_muting(self) -> Iterator[str]:
        if self.found.allowed_by is not None and self.applies:
            yield f"Allow rule {self.found.allowed_by} holds at its event, and silences it."
        mute = self.subject.version.rule.mute
        if self.found.muted_by is not None and self.applies and mute is not None:
            yield f"Alert {self.found.muted_by} mutes it (mute: {format_duration(mute)})."

    def _of_difference(self) -> Iterator[str]:
        """That the lake has something else than was published, and why."""
        if self.confirmed is not False:
            return
        latest, true = self.records.latest, self.true
        if true is None:
            now = "there is no such alert"
        elif latest is None or not self.is_announced:
            now = "it holds"
        elif bool(latest["muted"]) != true["muted"]:
            now = "it is muted" if true["muted"] else "it is not muted"
        else:
            now = "it has other measures"
        yield f"By the lake as it is now {now}, and no record about the alert has that."
        cut = max((cut for _, cut in self.records.runs), default=None)
        if cut is not None and self.found.window.height:
            arrivals = self.found.window.get_column("arrival_time").dt.epoch("us")
            newer = int((arrivals >= cut).sum())
            if newer:
                some = "1 event of its window" if newer == 1 else f"{newer} events of its window"
                yield f"{some} arrived after the cut-off of the last night, and the next one counts them."
        if cut is not None and self.found.applies is not None:
            came = self.records.answered.get(self.found.applies.version)
            if came is not None and came >= cut:
                yield "The version that applies came after the last night; `nightjar backfill --pending` judges again."
        first = self.coverage.first
        if first is not None and self.subject.at - widest(self.subject.version) < microseconds_of_day(first):
            yield f"The lake has arrivals since {day_text(first)} only, and its window begins before."
