"""Compares the stream's final alerts with the truth.

How it works: the stream's final alert of each id is compared with the violation of the same id, row by row. A
difference is explained if the event is late (the stream does not evaluate late events), or if a late event of the same
group lies in the window of one of the rule's measures (alerts published before it arrived do not count it: S8.4).
Any other difference is a defect.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.alert_ids import alert_id
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.retention import waits_for, widest
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import microseconds
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet, RuleVersion

LATE_ITSELF = "the event is late"
LATE_IN_WINDOW = "a late event in the window"


@dataclass(frozen=True)
class Deviation:
    """An alert on which stream and truth differ."""

    stream: str
    rule_id: str
    rule_version: int
    event_id: str
    stream_measures: str | None
    true_measures: str | None
    """`stream_measures` and `true_measures`: the measures as JSON, None if there is no alert."""
    cause: str | None
    """LATE_ITSELF, LATE_IN_WINDOW, or None if unexplained."""
    alert_id: str = ""


@dataclass(frozen=True)
class StreamVerdict:
    """One stream's result: the number of true violations, how many of the final alerts equal one, and the rest."""

    violations: int
    equal: int
    differences: list[Deviation]


def compare(
    stream: Stream,
    ruleset: RuleSet,
    events: pa.Table,
    final: Iterable[Mapping[str, Any]],
    tables: TableRows | None = None,
) -> StreamVerdict:
    """Compare the stream's final alerts with the truth about the events; see `Violations`."""
    return Violations(stream, ruleset, events, tables=tables).compare(final)


class Violations:
    """The true violations of one stream's rules.

    events: the stream's fields and arrival_time, with the first arrival of each event id only. group_bys: only the
    rules over these (None: all), where the events are those of some of their groups. tables: the rows of tables.
    """

    def __init__(
        self,
        stream: Stream,
        ruleset: RuleSet,
        events: pa.Table,
        group_bys: frozenset[tuple[str, ...]] | None = None,
        tables: TableRows | None = None,
    ) -> None:
        self._stream, self._ruleset, self._events = stream, ruleset, events
        evaluated = Truth(stream, ruleset, events, group_bys, tables)
        evaluated.refuse_failures()
        self._rows = {_key(row): row for row in evaluated.table().to_pylist()}

    def compare(self, final: Iterable[Mapping[str, Any]]) -> StreamVerdict:
        """Compare the stream's final alerts with them.

        final: alert records (S10) of these rules, groups and events, the highest revision of each id, without
        retractions; their measures as `exact_json` reads them.
        """
        true_measures = {key: _canonical(exact_json(row["measures"])) for key, row in self._rows.items()}
        alerts = {record["alert_id"]: record for record in final}
        stream_measures = {key: _canonical(record["measures"]) for key, record in alerts.items()}
        all_ids = true_measures.keys() | stream_measures.keys()
        differing = {
            key: self._rows[key] if key in self._rows else alerts[key]
            for key in sorted(all_ids)
            if true_measures.get(key) != stream_measures.get(key)
        }
        late = _Lateness(self._stream, self._events, {row["event_id"] for row in differing.values()})
        differences = []
        for key, row in differing.items():
            named = row["rule_id"], row["rule_version"], row["event_id"]
            version = _version(self._ruleset, named[0], named[1])
            cause = None if version is None else late.cause(version, row["event_id"])
            measures = stream_measures.get(key), true_measures.get(key)
            differences.append(Deviation(self._stream.name, *named, *measures, cause, key))
        return StreamVerdict(len(self._rows), len(all_ids) - len(differences), differences)


def exact_json(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object, keeping its numbers as text."""
    read: dict[str, Any] = json.loads(text, parse_float=str, parse_int=str)
    return read


class _Lateness:
    """Which of the given events are late, and the event times of each group's late events."""

    def __init__(self, stream: Stream, events: pa.Table, asked: Iterable[str]) -> None:
        self._stream = stream
        arrived, happened = (events[name].cast(pa.int64()) for name in ("arrival_time", stream.event_time))
        late = events.filter(pc.greater(pc.subtract(arrived, happened), stream.allowed_lateness))
        about = events.filter(pc.is_in(events[stream.event_id], value_set=pa.array(sorted(asked), pa.string())))
        # Only these few of possibly millions of events become Python objects.
        self._late = late.to_pylist()
        self._late_ids = {row[stream.event_id] for row in self._late}
        self._events = {row[stream.event_id]: row for row in about.to_pylist()}
        self._times: dict[tuple[str, ...], dict[tuple[Any, ...], list[int]]] = {}

    def cause(self, version: RuleVersion, event_id: str) -> str | None:
        """Why stream and truth may differ about the event; None if lateness does not explain it."""
        event = self._events.get(event_id)
        if event is None:
            return None
        if event_id in self._late_ids:
            return LATE_ITSELF
        group_by = version.rule.group_by
        times = self._by_group(group_by).get(tuple(event[name] for name in group_by), [])
        at = microseconds(event[self._stream.event_time])
        first = bisect_left(times, at - widest(version))
        return LATE_IN_WINDOW if first < len(times) and times[first] <= at + waits_for(version.rule) else None

    def _by_group(self, group_by: tuple[str, ...]) -> dict[tuple[Any, ...], list[int]]:
        if group_by not in self._times:
            found: dict[tuple[Any, ...], list[int]] = {}
            for event in self._late:
                group = tuple(event[name] for name in group_by)
                found.setdefault(group, []).append(microseconds(event[self._stream.event_time]))
            for times in found.values():
                times.sort()
            self._times[group_by] = found
        return self._times[group_by]


def _key(row: Mapping[str, Any]) -> str:
    at = microseconds(row["event_time"])
    return alert_id(row["rule_id"], row["rule_version"], row["event_id"], at, row["group"])


def _canonical(measures: Mapping[str, Any]) -> str:
    return json.dumps(measures, sort_keys=True)


def _version(ruleset: RuleSet, rule_id: str, number: int) -> RuleVersion | None:
    versions = ruleset.of_rule(rule_id)
    return versions[number - 1] if 0 < number <= len(versions) else None
