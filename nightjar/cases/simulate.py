"""Runs a case on the engine alone, without Kafka and Spark, at the case's times; also computes the corrections."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from nightjar.cases import Case, CaseOutcome, Step
from nightjar.contracts.alerts import alert_record
from nightjar.contracts.columns import late_columns, texts
from nightjar.contracts.late_events import LATE_EVENT
from nightjar.contracts.restrictions import restriction_records
from nightjar.contracts.rule_status import status_record
from nightjar.contracts.table_changes import ChangeReader
from nightjar.formats.decoding import recorded
from nightjar.formats.encoding import Encoded, Encoder
from nightjar.formats.records import Raw, Records
from nightjar.rules.engine import Delta, Engine, Failure
from nightjar.rules.engine.store import ARRIVAL, LATE
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.event_order import order_key
from nightjar.rules.events import QUARANTINE_REASONS, Rejection, check_skew, completed
from nightjar.rules.hourly_cap import HourlyCap
from nightjar.rules.publishing import Answer, Status, judge, overtaken_status
from nightjar.rules.rulebook import Record, RuleBook
from nightjar.rules.streams import Stream, recorded_streams, tables_of
from nightjar.rules.timestamps import iso_text
from nightjar.rules.types import TIMESTAMP
from nightjar.rules.unions import event_of_union
from nightjar.rules.versions import RuleSet, actions_of, overtaken


def simulate(case: Case) -> CaseOutcome:
    """Run a case's steps; each step is one batch, and its time is the engine's clock."""
    host = _Host(case)
    for step in case.steps:
        host.take(step)
    host.outcome.state = host.state
    host.outcome.corrections = host.corrections()
    host.outcome.simultaneous = [*host.simultaneous()]
    return host.outcome


def read_event(record: Encoded, stream: Stream, at: int) -> dict[str, Any] | Rejection:
    """The event of a record that arrived then (µs), or why it is none."""
    beside = Records.of([record], pa.array([at]), stream).beside([0])
    event = recorded(Raw(record.value, at, None if beside is None else beside[0]), stream)
    if isinstance(event, Rejection):
        return event
    return check_skew(event[stream.event_time], at, stream) or completed(event, stream)


class _Host:
    """Stands in for the job: keeps the published rules and the deltas, and rebuilds the engines after a crash."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.book = RuleBook(case.streams)
        tables = tables_of(case.streams)
        self.rows = TableRows(tables) if tables else None
        self.changes = ChangeReader(tables)
        self.engines = {name: self.engine(stream) for name, stream in case.streams.items()}
        most = case.settings.alerts_per_rule_and_hour
        self.caps = {name: HourlyCap(most) for name in case.streams} if most is not None else {}
        self.deltas: dict[str, list[Delta]] = {name: [] for name in case.streams}
        self.failed: set[tuple[str, int, str]] = set()
        self.published: dict[tuple[str, int], tuple[int, int]] = {}
        self.taken: dict[str, list[dict[str, Any]]] = {name: [] for name in case.streams}
        self.outcome = CaseOutcome()

    @property
    def ruleset(self) -> RuleSet:
        return self.book.ruleset

    @property
    def state(self) -> dict[str, dict[str, int]]:
        retained = {name: engine.retained for name, engine in self.engines.items()}
        return {
            name: {",".join(group_by): rows for group_by, rows in groups.items()}
            for name, groups in retained.items()
            if groups
        }

    def engine(self, stream: Stream) -> Engine:
        return Engine(stream, self.ruleset, tables=self.rows)

    def take(self, step: Step) -> None:
        if step.crash:
            self.crash()
        for message in step.rules:
            self.publish(message, step.at)
        if self.rows is not None:
            records = [Record(at, step.at, value) for at, value in enumerate(step.tables, self.rows.position)]
            self.rows.add(self.changes.read(records), self.rows.position + len(records))
        accepted: dict[str, list[dict[str, Any]]] = {}
        for stream in recorded_streams(self.case.streams.values()):
            raws = [event.raw for event in step.events if event.stream == stream.name]
            accepted[stream.name] = self.accepted(stream, raws, step.at)
        for name, stream in self.case.streams.items():
            events = accepted.get(name, [])
            for member in stream.members:
                events += [event_of_union(event, stream, member) for event in accepted[member.stream.name]]
            self.advance(stream, events, step.at)

    def crash(self) -> None:
        for name, stream in self.case.streams.items():
            lost, self.engines[name] = self.engines[name], self.engine(stream)
            self.engines[name].restore(self.deltas[name])
            self.engines[name].resume(lost.position)

    def publish(self, message: bytes, at: int) -> None:
        settings, streams = self.case.settings, self.case.streams
        newest, status = judge(
            self.book,
            message,
            at,
            streams,
            settings.activation_delay,
            forms=settings.forms,
            approvals=settings.approvals,
        )
        self.report(status, at)
        if newest is None:
            return
        self.book.add(newest, at, running=[self.book.shuffle_key_of(newest.rule)])
        for version, by in overtaken(self.book.of_rule(newest.rule.id)):
            if by.by == newest.version and newest.approval is None and newest.decline is None:
                self.report(overtaken_status(version, by), at)
        if newest.is_proposed:
            return
        self.published[newest.rule.id, newest.version] = at, self.engines[newest.rule.stream].horizon
        if newest.rule.state.is_evaluated:
            self.report(replace(status, answer=Answer.ACTIVE), at)  # nothing waits for history: a case has no lake
        for engine in self.engines.values():
            engine.set_rules(self.ruleset)

    def report(self, status: Status, at: int) -> None:
        self.outcome.rule_status.append({**status_record(status), "emitted_at": iso_text(at)})

    def accepted(self, stream: Stream, raws: list[bytes], at: int) -> list[dict[str, Any]]:
        """The usable events in order; the others go to quarantine."""
        encoder = Encoder(stream)
        events = []
        for raw in raws:
            record = encoder.encode(raw)
            event = read_event(record, stream, at)
            if isinstance(event, Rejection):
                if event.reason not in QUARANTINE_REASONS:
                    continue
                self.outcome.quarantine.append(
                    {
                        "stream": stream.name,
                        "reason": event.reason.value,
                        "detail": event.detail,
                        "raw": record.value.decode("utf-8", "backslashreplace"),
                        "arrival_time": iso_text(at),
                    }
                )
            else:
                events.append(event)
        return events

    def advance(self, stream: Stream, events: list[dict[str, Any]], at: int) -> None:
        arrived = [{**event, ARRIVAL: at, LATE: False} for event in events]
        self.taken[stream.name] += arrived
        advance = self.engines[stream.name].advance(
            _table(stream, arrived), at, None if self.rows is None else self.rows.position
        )
        for row in advance.rows.late.tolist():
            arrived[row][LATE] = True
        self.deltas[stream.name].append(advance.delta)
        self.outcome.late += _late_records(stream, advance.late)
        for failure in advance.failures:
            self.fail(failure, at)
        alerts = [alert_record(alert, at) for alert in advance.alerts.to_pylist()]
        if stream.name in self.caps:
            marks = self.caps[stream.name].mark(advance.alerts)
            alerts = [{**alert, "overflow": True} if mark else alert for alert, mark in zip(alerts, marks, strict=True)]
        self.outcome.alerts += alerts
        led_to = restriction_records(alerts, actions_of(self.ruleset.versions))
        self.outcome.restrictions += [record for _, record in led_to]

    def corrections(self) -> list[dict[str, Any]]:
        """The corrections that a backfill would publish, given all events."""
        from nightjar.cases.corrections import corrections_of  # takes half a second to import

        events = {}
        for name, taken in self.taken.items():
            if taken and self.ruleset.of_stream(name).versions:
                stream = self.case.streams[name]
                table = _table(stream, taken).append_column("partition", pa.array([0] * len(taken)))
                table = table.append_column("offset", pa.array(range(len(taken))))
                events[name] = table.append_column(LATE, pa.array([row[LATE] for row in taken]))
        clocks = {name: engine.clock for name, engine in self.engines.items()}
        return corrections_of(
            self.case.streams,
            self.ruleset,
            self.published,
            events,
            self.outcome.alerts,
            clocks=clocks,
            rows=self.rows,
        )

    def simultaneous(self) -> Iterator[dict[str, Any]]:
        """Each group of a rule's group-by with several events at one time that no tie-breaker orders."""
        for name, stream in self.case.streams.items():
            events = {event[stream.event_id]: event for event in reversed(self.taken[name])}  # the first of each id
            rules = (version.rule for version in self.ruleset.of_stream(name).versions)
            for fields in sorted({rule.group_by for rule in rules if rule.state.is_evaluated}):
                at_once: dict[tuple[Any, ...], list[str]] = {}
                for event_id, event in events.items():
                    at = event[stream.event_time], event[stream.tiebreaker] if stream.tiebreaker else None
                    at_once.setdefault((*at, *(event[each] for each in fields)), []).append(event_id)
                for (at, _, *values), ids in at_once.items():
                    if len(ids) > 1 and None not in values:
                        yield {
                            "stream": name,
                            "group": {each: str(value) for each, value in zip(fields, values, strict=True)},
                            "event_time": iso_text(at),
                            "event_ids": sorted(ids, key=lambda event_id: order_key(0, event_id)),
                        }

    def fail(self, failure: Failure, at: int) -> None:
        key = (failure.rule_id, failure.rule_version, failure.measure)
        if key in self.failed:
            return
        self.failed.add(key)
        reason = f"measures.{failure.measure}: its exact value at event {failure.event_id} does not fit its type"
        self.report(Status(Answer.FAILED, failure.rule_id, failure.rule_version, reasons=(reason,)), at)


def _table(stream: Stream, arrived: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(arrived, stream.schema.append(pa.field(ARRIVAL, TIMESTAMP.arrow)))


def _late_records(stream: Stream, late: pa.Table) -> list[dict[str, Any]]:
    return [json.loads(text) for text in texts(LATE_EVENT, late_columns(late, stream), late.num_rows).to_pylist()]
