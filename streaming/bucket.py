"""One bucket: the engine of one route's share of a stream, and the rules it goes by. Knows no Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rules.engine import Advance, Delta, Engine, Failure
from rules.publication import Answer, Status
from rules.streams import Stream
from streaming.rulebook import Route, RuleBook, RuleMessage
from streaming.wire import PRIMARY


@dataclass
class Counts:
    """What a bucket has seen since the checkpoint began. Events are counted where they are primary: once each."""

    events: int = 0
    late: int = 0
    duplicates: int = 0
    announced: int = 0

    def add(self, other: Counts) -> None:
        """Count what the other counted."""
        self.events += other.events
        self.late += other.late
        self.duplicates += other.duplicates
        self.announced += other.announced


@dataclass(frozen=True)
class Heard:
    """What a batch led to. late: the late events for which this bucket speaks; delta: what to keep."""

    alerts: pa.Table
    late: pa.Table
    failures: list[Failure]
    delta: Delta
    counts: Counts


class Bucket:
    """A bucket in memory, after the rule messages and events it has been given.

    failed: rule id, version and measure of every failure that was told.
    """

    def __init__(self, stream: Stream, route: Route, book: RuleBook) -> None:
        self.stream = stream
        self.route = route
        self.book = book
        self.counts = Counts()
        self.failed: set[tuple[str, int, str]] = set()
        self.engine = Engine(stream, book.ruleset, group_bys=book.served_by(route))

    def restore(self, deltas: Iterable[Delta]) -> None:
        """Take back what earlier batches took in, oldest first."""
        for delta in deltas:
            self.engine.restore(delta)

    def receive(self, messages: Iterable[RuleMessage]) -> list[tuple[RuleMessage, Status]]:
        """Take rule messages in the order of their offsets; returns the answers. Those received before are passed."""
        before = self.book.ruleset
        answers = [(message, status) for message in messages for status in self.book.receive(message)]
        if self.book.ruleset is not before:
            self.engine.set_rules(self.book.ruleset, self.book.served_by(self.route))
        return answers

    def advance(self, events: pa.Table, clock: int | None) -> Heard:
        """Take events (wire.events_schema) in. clock: µs, as Engine.advance."""
        advance = self.engine.advance(events, clock)
        late = self._primary(advance.late, events)
        primary = pc.sum(events.column(PRIMARY)).as_py() or 0
        taken = self._primary(advance.delta.events, events).num_rows
        counts = Counts(primary, late.num_rows, primary - taken, advance.alerts.num_rows)
        self.counts.add(counts)
        return Heard(advance.alerts, late, self._new_failures(advance), advance.delta, counts)

    def _primary(self, taken: pa.Table, events: pa.Table) -> pa.Table:
        if not taken.num_rows:
            return taken
        ids = events.column(self.stream.event_id).combine_chunks()
        at = pc.index_in(taken.column(self.stream.event_id), value_set=ids)
        return taken.filter(events.column(PRIMARY).take(at))

    def _new_failures(self, advance: Advance) -> list[Failure]:
        """One failure a rule version and measure: the first."""
        new = []
        for failure in advance.failures:
            about = (failure.rule_id, failure.rule_version, failure.measure)
            if about not in self.failed:
                self.failed.add(about)
                new.append(failure)
        return new


def status_record(status: Status, message: RuleMessage, topic: str) -> tuple[str, dict[str, Any]]:
    """(key, value) of an answer on rule-status. Its `message` names the record it answers, so repeats are known."""
    about = f"{topic}-0-{message.offset}"
    return status.rule_id or about, status.record() | {"message": about}


def failure_record(failure: Failure) -> tuple[str, dict[str, Any]]:
    """(key, value) on rule-status of a rule whose measure left its range at an event."""
    reason = (
        f"measures.{failure.measure}: its exact value at event {failure.event_id} leaves 64 bits, so the rule says "
        "nothing there. Narrow the window, or take the average"
    )
    status = Status(Answer.FAILED, failure.rule_id, failure.rule_version, reasons=(reason,))
    return failure.rule_id, status.record() | {"event_id": failure.event_id}
