"""One bucket: the engine of one shuffle key's share of a stream, and its rules. Independent of Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nightjar.contracts import rule_status
from nightjar.contracts.rule_status import fold
from nightjar.ingestion.event_schema import PRIMARY
from nightjar.rules.engine import Advance, Delta, Engine, Failure
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.hourly_cap import HourlyCap
from nightjar.rules.rulebook import Answered, Record, RuleBook, ShuffleKey
from nightjar.rules.streams import Stream
from nightjar.rules.versions import RuleVersion, actions_of


@dataclass
class Counts:
    """Counts of a bucket since the checkpoint began. Events are counted once, in buckets of the primary shuffle key."""

    events: int = 0
    late: int = 0
    duplicates: int = 0
    announced: int = 0
    skipped: int = 0
    """Invalid records on nightjar's own topics."""
    overflow: int = 0
    """Those of the announced that are marked so."""

    def add(self, other: Counts) -> None:
        """Add the other's counts."""
        self.events += other.events
        self.late += other.late
        self.duplicates += other.duplicates
        self.announced += other.announced
        self.skipped += other.skipped
        self.overflow += other.overflow


@dataclass(frozen=True)
class BatchResult:
    """The results of a batch."""

    alerts: pa.Table
    rows: Int64Array
    """The row of each alert's event in the batch, as in InputRows."""
    late: pa.Table
    """The late events that this bucket reports."""
    dead: pa.Table
    """Those, reported or not, from before the horizon."""
    failures: list[Failure]
    delta: Delta
    """What to store."""
    overflow: NDArray[np.bool_] | None = None
    """Whether each alert is beyond the cap; None without one."""


class Bucket:
    """A bucket in memory, after the rule messages and events it has processed.

    failed: rule id, version and measure of each reported failure; actions: by rule id and version. awaits_history:
    whether it serves a version that waits for its effective time. most_alerts: of a rule in an hour, after which
    further ones are marked (S10.6); None: none is. tables: the rows of the stream's tables, if it has some.
    """

    def __init__(
        self,
        stream: Stream,
        key: ShuffleKey,
        book: RuleBook,
        most_alerts: int | None = None,
        tables: TableRows | None = None,
    ) -> None:
        self.stream = stream
        self.shuffle_key = key
        self.book = book
        self.counts = Counts()
        self.failed: set[tuple[str, int, str]] = set()
        self.engine = Engine(stream, book.ruleset, group_bys=book.served_by(key), tables=tables)
        self.actions = actions_of(book.ruleset.versions)
        self.cap = None if most_alerts is None else HourlyCap(most_alerts)
        self.awaits_history = any(map(self._serves, book.waiting))

    def _serves(self, version: RuleVersion) -> bool:
        rule = version.rule
        return rule.state.is_evaluated and self.book.serving.get((rule.stream, rule.group_by)) == self.shuffle_key

    def receive(self, answers: Iterable[Record]) -> tuple[bool, list[str]]:
        """Fold answers of `rule-status`, in order of their offsets. Those received before are skipped.

        Returns whether one changed anything, and the exports of history that they name for this bucket
        (primed_state.py).
        """
        changes = [change for answer in answers if (change := fold(self.book, answer)) is not None]
        if changes:
            self.engine.set_rules(self.book.ruleset, self.book.served_by(self.shuffle_key))
            self.actions = actions_of(self.book.ruleset.versions)
            self.awaits_history = any(map(self._serves, self.book.waiting))
        named = ((change, change.primed.name) for change in changes if change.primed is not None and change.primed.name)
        return bool(changes), [name for change, name in named if self._serves(self._version(change))]

    def _version(self, answer: Answered) -> RuleVersion:
        return self.book.of_rule(str(answer.rule_id))[int(answer.rule_version or 0) - 1]

    def advance(self, events: pa.Table, clock: int | None, known: int | None = None) -> BatchResult:
        """Process events (events_schema). clock (µs) and known: as in Engine.advance."""
        horizon = self.engine.horizon
        advance = self.engine.advance(events, clock, known)
        late = dead = events.slice(0, 0)
        if len(advance.rows.late):
            times = advance.late.column(self.stream.event_time).cast(pa.int64())
            dead = advance.late.filter(pc.less(times, horizon))
            late = advance.late.filter(advance.late.column(PRIMARY))
        primary = sum(chunk.true_count for chunk in events.column(PRIMARY).chunks)
        counts = Counts(primary, late.num_rows, advance.duplicates if primary else 0, advance.alerts.num_rows)
        overflow = None
        if self.cap is not None:
            overflow = self.cap.mark(advance.alerts)
            self.cap.evict(self.engine.announced_since)
            counts.overflow = int(overflow.sum())
        self.counts.add(counts)
        return BatchResult(
            advance.alerts,
            advance.rows.alerts,
            late,
            dead,
            self._new_failures(advance),
            advance.delta,
            overflow,
        )

    def _new_failures(self, advance: Advance) -> list[Failure]:
        """The first failure per rule version and measure. A rule that does not fit the declaration fails as a whole."""
        new = []
        unfit = [Failure(*version, "", "", why) for version, why in self.engine.unfit.items()]
        for failure in [*unfit, *advance.failures]:
            about = (failure.rule_id, failure.rule_version, failure.measure)
            if about not in self.failed:
                self.failed.add(about)
                new.append(failure)
        return new


def failure_record(failure: Failure) -> tuple[str, dict[str, Any]]:
    """(key, value) on rule-status for a measure out of range at an event, or a rule that cannot be evaluated."""
    reason = failure.why or (
        f"measures.{failure.measure}: its exact value at event {failure.event_id} does not fit its type, so the rule "
        "is not evaluated there. Narrow the window, or take the average"
    )
    return rule_status.failure_record(failure.rule_id, failure.rule_version, failure.event_id, reason)
