"""Whether stream, batch, reference and SQL say the same of a random history."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from nightjar.cases import CaseOutcome
from nightjar.cases.simulate import simulate
from nightjar.rules.absence import DUE
from nightjar.rules.engine import Engine
from nightjar.rules.publishing import judge
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import microseconds, parse_timestamp
from nightjar.rules.truth import Truth
from nightjar.rules.types import Kind
from nightjar.rules.versions import RuleSet
from tests.support import rules_in_sql
from tests.support.evicting import evicting_early
from tests.support.histories import result_kind, setting, table
from tests.support.random_cases import History
from tests.support.reference import (
    ALLOWED_BY,
    LONG_AGO,
    OVERFLOW,
    Measure,
    Version,
    evaluations,
    in_order,
    lateness,
    muted,
    retained,
    violations,
)

Key = tuple[str, int, str]
Measured = dict[str, Any]


def final(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The highest revision of each alert, retracted ones left out, as a consumer keeps it."""
    last: dict[str, dict[str, Any]] = {}
    for record in records:
        known = last.get(record["alert_id"])
        assert known is None or record["revision"] == known["revision"] + 1, "revisions count up by one"
        assert record["kind"] == "alert" or (known is not None and known["kind"] == "alert"), "retracts an alert"
        last[record["alert_id"]] = record
    return {key: record for key, record in last.items() if record["kind"] == "alert"}


def plain(measures: Mapping[str, Measure], stream: Stream, found: dict[str, Any]) -> Measured:
    """A record's measures as the reference has them."""
    # what is computed is of no kind that JSON has no values of
    return {
        name: _plain(result_kind(measures[name], stream), value) if name in measures else value
        for name, value in found.items()
        if name != DUE
    }


def _plain(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind is Kind.DECIMAL:
        return Decimal(value)
    return parse_timestamp(value, zone_required=True) if kind is Kind.TIMESTAMP else value


def same(got: Any, expected: Any, slack: float = 0.0) -> bool:
    """Doubles to the last digits: two ways to divide and take roots differ there. slack: how much they may differ."""
    if isinstance(expected, float) and isinstance(got, int | float):
        # a denormal has few digits of its own
        return math.isclose(got, expected, rel_tol=1e-12, abs_tol=max(slack, 1e-320))
    return bool(got == expected) and (got is None) == (expected is None)


def announced(versions: Iterable[Version], found: Mapping[Key, Measured]) -> dict[Key, Measured]:
    """What announcements may be held against: of versions that announce no change of values, that there is one, and
    what silences it."""
    by_verdict = {(version.rule_id, version.version) for version in versions if version.by_verdict}
    return {
        key: {ALLOWED_BY: measures[ALLOWED_BY]} if key[:2] in by_verdict else measures
        for key, measures in found.items()
    }


def wrongly_muted(what: str, versions: Iterable[Version], records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each of all alerts that stand which is muted where it should not be, or the other way round."""
    silenced = []
    unretracted = []
    for record in records:
        measures = json.loads(record["measures"]) if isinstance(record["measures"], str) else record["measures"]
        (silenced if ALLOWED_BY in measures else unretracted).append(record)
    for record in silenced:
        if not record["muted"]:
            yield f"{what}: {record} is silenced, and not muted"
    mutes = {(version.rule_id, version.version): version.mute for version in versions if version.mute}
    alerts = []
    for record in unretracted:
        version, group = (record["rule_id"], record["rule_version"]), record["group"]
        time = record["event_time"]
        instant = parse_timestamp(time, zone_required=True) if isinstance(time, str) else microseconds(time)
        alerts.append((version, json.dumps(group), instant, record["event_id"]))
    expected = muted(mutes, alerts)
    for at, record in enumerate(unretracted):
        if record["muted"] != (at in expected):
            yield f"{what}: {record} is {'not ' if at in expected else ''}muted"


def differing(
    what: str, got: Mapping[Key, Measured], expected: Mapping[Key, Measured], slack: float = 0.0
) -> Iterator[str]:
    """A line for each key of one side only, and for each measure that differs."""
    for key in sorted(got.keys() ^ expected.keys()):
        yield f"{what}: {key} is {'missing' if key in expected else 'too much'}"
    for key in sorted(got.keys() & expected.keys()):
        for name, value in expected[key].items():
            known = got[key].get(name) if name == ALLOWED_BY else got[key][name]
            if value is not OVERFLOW and not same(known, value, slack):
                yield f"{what}: {name} of {key} is {known!r}, expected {value!r}"


class Agreement:
    """The answers of everyone to one history, against the reference's.

    differences: lines for people; counts: what has been compared.
    """

    def __init__(self, history: History, connection: duckdb.DuckDBPyConnection) -> None:
        self._history, self._stream = history, history.stream
        self._measures = {(v.rule_id, v.version): v.measures for v in history.versions}
        self._ruleset = RuleSet()
        for happening in history.happenings:
            for message in happening.messages:
                streams = {self._stream.name: self._stream}
                made, _ = judge(self._ruleset, message, happening.at, streams, history.activation_delay)
                if made is not None:
                    self._ruleset = RuleSet((*self._ruleset.versions, made))
        true = setting(self._stream, truth=True)
        self._truth = evaluations(true, history.versions, history.true_events)
        self._clock = history.happenings[-1].at
        self._truth_then = evaluations(true, history.versions, history.true_events, self._clock)
        self._expected = violations(setting(self._stream), history.versions, history.events, self._clock)
        self.counts = Counter(events=len(history.events), rule_versions=len(history.versions))
        self.differences = [*self._batch(connection), *self._published(), *self._streamed()]

    def _key(self, record: Mapping[str, Any]) -> Key:
        return record["rule_id"], record["rule_version"], record["event_id"]

    def _batch(self, connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
        """Every evaluation of the batch, whose rows come in any order; and SQL."""
        arrived = self._arrived()
        backwards = arrived.take(pa.array(range(arrived.num_rows)[::-1], pa.int64()))
        self._batched = Truth(self._stream, self._ruleset, backwards, tables=self._history.rows)
        rows = {self._key(row): row for row in self._batched.table(every=True).to_pylist()}
        got = {key: plain(self._measures[key[:2]], self._stream, json.loads(r["measures"])) for key, r in rows.items()}
        self.counts["evaluations"] += len(rows)
        yield from differing("batch", got, {key: measures for key, (_, measures) in self._truth.items()})
        for key in rows.keys() & self._truth.keys():
            if rows[key]["violated"] != self._truth[key][0]:
                yield f"batch: {key} is {'a' if rows[key]['violated'] else 'no'} violation"
        yield from wrongly_muted("batch", self._history.versions, self._batched.violations().to_pylist())
        silent = {(version.rule_id, version.version) for version in self._history.versions if version.allows}
        every = {(f.rule_id, f.rule_version, f.event_id) for f in self._batched.failures}
        failed = {key for key in every if key[:2] not in silent}
        self.counts["overflows"] += len(failed)
        if failed != self._overflown(self._truth):
            yield f"batch: sums too large at {sorted(failed)}, expected {sorted(self._overflown(self._truth))}"
        verdicts = {key: row["violated"] for key, row in rows.items()}
        judged = {
            key: {name: value for name, value in of_key.items() if name != ALLOWED_BY} for key, of_key in got.items()
        }
        yield from self._said_by_sql(connection, judged, verdicts)

    def _arrived(self) -> pa.Table:
        events = self._history.events
        arrived = table(events, self._stream).append_column("partition", pa.array([0] * len(events), pa.int32()))
        return arrived.append_column("offset", pa.array(range(len(events)), pa.int64()))

    @staticmethod
    def _overflown(found: Mapping[Key, tuple[bool, Measured]]) -> set[Key]:
        return {key for key, (_, measures) in found.items() if OVERFLOW in measures.values()}

    def _said_by_sql(
        self, connection: duckdb.DuckDBPyConnection, got: Mapping[Key, Measured], verdicts: Mapping[Key, bool]
    ) -> Iterator[str]:
        for version in self._ruleset.versions:
            if not version.rule.state.is_evaluated or version.rule.allows or not self._history.events:
                continue
            rule_id, number = version.rule.id, version.version
            versions = [*self._ruleset.of_rule(rule_id)]
            found = rules_in_sql.evaluated(connection, self._stream, versions, version, self._history.true_events)
            mine = {key[2] for key in got if key[:2] == (rule_id, number)}
            if found.keys() != mine:
                yield f"SQL: judges {sorted(found.keys() ^ mine)} otherwise by version {number} of {rule_id}"
            for event_id in found.keys() & mine:
                key = (rule_id, number, event_id)
                holds, measures = found[event_id]
                values = {n: v for n, v in measures.items() if v is not rules_in_sql.UNKNOWN}
                yield from differing("SQL", {key: got[key]}, {key: values}, slack=1e-9)
                self.counts["sql_rows"] += 1
                self.counts["sql_values"] += len(values)
                # a double that SQL has otherwise in its last digit may lie on the other side of a threshold
                if holds is not rules_in_sql.UNKNOWN and values == got[key]:
                    self.counts["sql_verdicts"] += 1
                    if holds != verdicts[key]:
                        yield f"SQL: {key} is {'a' if holds else 'no'} violation"

    def _published(self) -> Iterator[str]:
        """The stream as it runs: rules come and go between batches, and what is in memory is lost now and then."""
        history, stream, expected = self._history, self._stream, self._expected
        outcome = simulate(history.case)
        records = final(outcome.alerts)
        self.counts["alerts"] += len(records)
        self.counts["silenced"] += sum(ALLOWED_BY in record["measures"] for record in records.values())
        self.counts["revisions"] += sum(record["revision"] > 1 for record in outcome.alerts)
        got = {self._key(r): plain(self._measures[self._key(r)[:2]], stream, r["measures"]) for r in records.values()}
        yield from differing("stream", got, announced(history.versions, expected))
        yield from wrongly_muted("stream", history.versions, records.values())
        if outcome.quarantine:
            yield f"stream: {outcome.quarantine[0]} is refused"
        late = sorted(e[stream.event_id] for e in in_order(setting(stream), history.events) if self._late(e))
        self.counts["late_events"] += len(late)
        if sorted(row["event_id"] for row in outcome.late) != late:
            yield f"stream: late are {outcome.late}, expected {late}"
        failed = {(r["rule_id"], r["rule_version"]) for r in outcome.rule_status if r["status"] == "FAILED"}
        judged = evaluations(setting(stream), history.versions, history.events, self._clock)
        for key in self._overflown(judged):
            if key[:2] not in failed:
                yield f"stream: says nothing of a sum that is too large at {key}"
        state = outcome.state.get(stream.name, {})
        for group_by, rows in retained(setting(stream), history.versions, history.events, history.passed).items():
            if state.get(",".join(group_by)) != rows:
                yield f"stream: holds {state.get(','.join(group_by))} events by {group_by}, expected {rows}"
        if not late and judged == self._truth_then:
            yield from self._word_by_word(records)
        yield from self._corrected(outcome)

    def _corrected(self, outcome: CaseOutcome) -> Iterator[str]:
        """With the night's corrections the alerts are the truth, and nothing but late events ever asked for one."""
        records = final([*outcome.alerts, *outcome.corrections]).values()
        got = {self._key(r): plain(self._measures[self._key(r)[:2]], self._stream, r["measures"]) for r in records}
        truth = {key: found for key, (holds, found) in self._truth_then.items() if holds}
        yield from differing("night", got, announced(self._history.versions, truth))
        yield from wrongly_muted("night", self._history.versions, records)
        self.counts["corrections"] += len(outcome.corrections)
        for record in outcome.corrections:
            explained = record["cause"] == "cold_start" and any(v.since > LONG_AGO for v in self._history.versions)
            explained |= record["cause"] == "reference_changed" and self._history.true_events != self._history.events
            if not explained and (record["cause"] != "late_event" or not outcome.late):
                yield f"night: {self._key(record)} is corrected because of {record['cause']}"

    def _late(self, event: Mapping[str, Any]) -> bool:
        return lateness(setting(self._stream), dict(event)) > self._stream.allowed_lateness

    def _word_by_word(self, records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        """Where nothing is late, the stream's final alerts are the batch's."""
        found = {row["alert_id"]: row for row in self._batched.violations().to_pylist()}
        by_verdict = {(version.rule_id, version.version) for version in self._history.versions if version.by_verdict}
        for identifier in found.keys() & records.keys():
            verdict_only = self._key(records[identifier])[:2] in by_verdict
            for name in ("rule_state", "stream", "severity", "muted", *([] if verdict_only else ["text"])):
                if found[identifier][name] != records[identifier][name]:
                    yield f"stream: {name} is {records[identifier]!r}, and in the batch {found[identifier]!r}"
            for name in ("group",) if verdict_only else ("group", "measures"):
                if json.loads(found[identifier][name]) != records[identifier][name]:
                    yield f"stream: {name} is {records[identifier]!r}, and in the batch {found[identifier]!r}"

    def _streamed(self) -> Iterator[str]:
        """The stream's engine with other batches, other crashes, and eviction as early as it may be."""
        history, stream = self._history, self._stream
        arrived = table(history.events, stream)
        times: dict[str, set[int]] = {}
        for event in history.events:
            times.setdefault(event[stream.event_id], set()).add(event[stream.event_time])
        # an evicted id is no longer known: another event under it would be a new one
        evicting = all(len(of_id) == 1 for of_id in times.values())
        edges = [0, *sorted(cut % (len(history.events) + 1) for cut in history.cuts), len(history.events)]
        rows = history.rows
        running, deltas, alerts = Engine(stream, self._ruleset, tables=rows), [], []
        # histories are small: look for what can go as soon as a few events are held
        with evicting_early():
            for number, (begin, end) in enumerate(itertools.pairwise(edges)):
                if number in history.crashes:
                    deltas = [running.snapshot()] if number % 2 else deltas
                    lost, running = running, Engine(stream, self._ruleset, tables=rows)
                    running.restore(deltas)
                    running.resume(lost.position)
                clock = history.events[end - 1]["arrival"] if evicting and end else None
                advance = running.advance(arrived.slice(begin, end - begin), clock)
                deltas.append(advance.delta)
                alerts += advance.alerts.to_pylist()
        records = final(alerts)
        got = {
            self._key(record): plain(self._measures[self._key(record)[:2]], stream, json.loads(record["measures"]))
            for record in records.values()
        }
        yield from wrongly_muted("stream in other batches", history.versions, records.values())
        # here all rules are known from the start
        versions = [replace(version, since=LONG_AGO, folded={}) for version in history.versions]
        expected = violations(setting(stream), versions, history.events, running.clock)
        yield from differing("stream in other batches", got, announced(versions, expected))
