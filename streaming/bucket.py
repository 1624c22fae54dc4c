"""One bucket: the engine of one route's share of a stream, and what each micro-batch makes it say. Knows no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rules.engine import Advance, Delta, Engine
from rules.engine.records import jsonable
from rules.publication import Answer, Status
from rules.streams import Stream
from streaming.rulebook import Route, RuleBook, RuleMessage

PRIMARY = "primary"
SENT_AT = "sent_at"
SOURCE = "stream"


class Said(NamedTuple):
    """A record for the sink: which topic (by its role), key, JSON text, and the wall clock of its cause in µs."""

    role: str
    key: str
    value: str
    sent_at: int | None


@dataclass
class Counts:
    """What a bucket has seen in one batch; events are counted where they are primary, so once each."""

    events: int = 0
    late: int = 0
    duplicates: int = 0
    alerts: int = 0
    retained: int = 0


class Bucket:
    """The state of one bucket in memory. `announces_rules`: this bucket is the one that answers rule messages."""

    def __init__(self, stream: Stream, route: Route, book: RuleBook, *, announces_rules: bool) -> None:
        self.stream = stream
        self.route = route
        self.book = book
        self._announces_rules = announces_rules
        self._failed: set[tuple[str, int, str]] = set()
        self.engine = Engine(stream, book.ruleset, group_bys=book.served_by(route))

    def restore(self, deltas: Iterable[Delta]) -> None:
        """Take back what earlier batches took in, oldest first."""
        for delta in deltas:
            self.engine.restore(delta)

    def receive(self, messages: Iterable[RuleMessage]) -> list[Said]:
        """Take rule messages in the order of their offsets; returns the answers, in one bucket only."""
        before = self.book.ruleset
        statuses = [status for message in messages for status in self.book.receive(message)]
        if self.book.ruleset is not before:
            self.engine.set_rules(self.book.ruleset, self.book.served_by(self.route))
        return [_status(status) for status in statuses] if self._announces_rules else []

    def advance(self, events: pa.Table, clock: int | None, emitted_at: str) -> tuple[list[Said], Delta, Counts]:
        """Take events in; returns what to say, what to keep, and the counts.

        events: the stream's fields, arrival_time, partition, offset, sent_at (int64 µs, wall clock) and primary (bool:
        of the buckets that get the event, this one speaks for it).
        """
        advance = self.engine.advance(events, clock)
        said = self._alerts(advance, events, emitted_at)
        late_primary = _of_primary(advance.late, events, self.stream.event_id)
        said += self._late(late_primary)
        said += self._failures(advance)
        primary = int(pc.sum(events.column(PRIMARY)).as_py() or 0)
        taken = _of_primary(advance.delta.events, events, self.stream.event_id).num_rows
        counts = Counts(primary, late_primary.num_rows, primary - taken, advance.alerts.num_rows, self.engine.rows)
        return said, advance.delta, counts

    def _alerts(self, advance: Advance, events: pa.Table, emitted_at: str) -> list[Said]:
        if not advance.alerts.num_rows:
            return []
        sent = events.column(SENT_AT)
        latest = pc.max(sent).as_py()
        at = pc.index_in(advance.alerts.column("event_id"), value_set=events.column(self.stream.event_id))
        own = pc.fill_null(sent.take(at), latest).to_pylist() if latest is not None else [None] * len(at)
        columns = advance.alerts.set_column(
            advance.alerts.schema.get_field_index("event_time"),
            "event_time",
            jsonable(advance.alerts.column("event_time"), self.stream.fields[self.stream.event_time]),
        )
        return [
            Said("alerts", record["alert_id"], alert_json(record, emitted_at), when)
            for record, when in zip(columns.to_pylist(), own, strict=True)
        ]

    def _late(self, late: pa.Table) -> list[Said]:
        columns = {
            name: jsonable(late.column(name).combine_chunks(), kind) for name, kind in self.stream.fields.items()
        }
        arrival = jsonable(late.column("arrival_time").combine_chunks(), self.stream.fields[self.stream.event_time])
        return [
            Said(
                "late-events",
                record[self.stream.event_id],
                json.dumps({"stream": self.stream.name, "arrival_time": at.as_py(), "event": record}),
                None,
            )
            for record, at in zip(pa.table(columns).to_pylist(), arrival, strict=True)
        ]

    def _failures(self, advance: Advance) -> list[Said]:
        said = []
        for failure in advance.failures:
            key = (failure.rule_id, failure.rule_version, failure.measure)
            if key in self._failed:
                continue
            self._failed.add(key)
            reason = (
                f"measures.{failure.measure}: its exact value at event {failure.event_id} leaves 64 bits, so the rule "
                f"says nothing there. Narrow the window, or take the average"
            )
            said.append(_status(Status(Answer.FAILED, failure.rule_id, failure.rule_version, reasons=(reason,))))
        return said


def alert_json(record: Mapping[str, Any], emitted_at: str) -> str:
    """The alert record of design law 10 as JSON; group and measures are JSON text already and go in as they are."""
    head = {
        name: record[name]
        for name in ("alert_id", "revision", "kind", "rule_id", "rule_version", "rule_state", "stream")
    }
    tail = {name: record[name] for name in ("severity", "text")}
    tail |= {"muted": False, "source": SOURCE, "emitted_at": emitted_at}
    middle = {name: record[name] for name in ("event_id", "event_time")}
    return (
        f'{json.dumps(head)[:-1]}, "group": {record["group"]}, {json.dumps(middle)[1:-1]}, '
        f'"measures": {record["measures"]}, {json.dumps(tail)[1:]}'
    )


def _status(status: Status) -> Said:
    return Said("rule-status", status.rule_id or "", json.dumps(status.record()), None)


def _of_primary(taken: pa.Table, events: pa.Table, event_id: str) -> pa.Table:
    """The rows of `taken` for which this bucket speaks."""
    if not taken.num_rows:
        return taken
    at = pc.index_in(taken.column(event_id), value_set=events.column(event_id).combine_chunks())
    return taken.filter(events.column(PRIMARY).take(at))
