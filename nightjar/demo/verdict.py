"""Whether what the stream said is right: its final alerts against the truth, and its counts against what was sent.

How it works: the stream's final alert of each id is compared with the truth's violation, row by row. A difference is
explained where the event is late (the stream evaluates none that is), or where a late event of the same group lies in
the window of one of the rule's measures (alerts from before it came do not count it: S8.4). Anything else is a
defect.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rules.alert_ids import alert_id
from rules.streams import Stream
from rules.timestamps import microseconds
from rules.truth import Truth
from rules.versions import RuleSet, RuleVersion

LATE_ITSELF = "the event is late"
LATE_IN_WINDOW = "a late event in the window"


@dataclass(frozen=True)
class Difference:
    """An alert that stream and truth do not agree on. said, true: the measures' JSON, None where there is no alert.

    cause: LATE_ITSELF, LATE_IN_WINDOW, or None: unexplained.
    """

    stream: str
    rule_id: str
    rule_version: int
    event_id: str
    said: str | None
    true: str | None
    cause: str | None
    alert_id: str = ""


@dataclass(frozen=True)
class Comparison:
    """Of one stream: how many alerts the truth has, how many the stream's final ones equal, and the others."""

    violations: int
    equal: int
    differences: list[Difference]


def compare(stream: Stream, ruleset: RuleSet, events: pa.Table, final: Iterable[Mapping[str, Any]]) -> Comparison:
    """Compare the stream's final alerts with the truth about the events.

    events: the stream's fields and arrival_time, an event id's first arrival once. final: alert records (S10) of
    this stream, of each id the highest revision, without retracted ones; their measures as `exact_json` reads them.
    """
    found = Truth(stream, ruleset, events)
    found.refuse_failures()
    truth = {_key(row): row for row in found.table().to_pylist()}
    true = {key: _canonical(exact_json(row["measures"])) for key, row in truth.items()}
    said = {record["alert_id"]: record for record in final}
    told = {key: _canonical(record["measures"]) for key, record in said.items()}
    differing = {
        key: truth[key] if key in truth else said[key]
        for key in sorted(true.keys() | told.keys())
        if true.get(key) != told.get(key)
    }
    late = _Lateness(stream, events, {row["event_id"] for row in differing.values()})
    differences = []
    for key, row in differing.items():
        named = row["rule_id"], row["rule_version"], row["event_id"]
        version = _version(ruleset, named[0], named[1])
        cause = None if version is None else late.cause(version, row["event_id"])
        differences.append(Difference(stream.name, *named, told.get(key), true.get(key), cause, key))
    return Comparison(len(true), len(true.keys() | told.keys()) - len(differences), differences)


def exact_json(text: str | bytes) -> dict[str, Any]:
    """A JSON object with its numbers as the text they are written in."""
    read: dict[str, Any] = json.loads(text, parse_float=str, parse_int=str)
    return read


class _Lateness:
    """Which of the asked events are late, and when the late events of a group happened."""

    def __init__(self, stream: Stream, events: pa.Table, asked: Iterable[str]) -> None:
        self._stream = stream
        arrived, happened = (events[name].cast(pa.int64()) for name in ("arrival_time", stream.event_time))
        late = events.filter(pc.greater(pc.subtract(arrived, happened), stream.allowed_lateness))
        about = events.filter(pc.is_in(events[stream.event_id], value_set=pa.array(sorted(asked), pa.string())))
        # of millions of events, these alone become objects
        self._late = late.to_pylist()
        self._late_ids = {row[stream.event_id] for row in self._late}
        self._events = {row[stream.event_id]: row for row in about.to_pylist()}
        self._times: dict[tuple[str, ...], dict[tuple[Any, ...], list[int]]] = {}

    def cause(self, version: RuleVersion, event_id: str) -> str | None:
        """Why stream and truth may differ about the event; None where nothing says so."""
        event = self._events.get(event_id)
        if event is None:
            return None
        if event_id in self._late_ids:
            return LATE_ITSELF
        group_by = version.rule.group_by
        times = self._by_group(group_by).get(tuple(event[name] for name in group_by), [])
        at = microseconds(event[self._stream.event_time])
        widest = max((measure.over for measure in version.rule.measures.values()), default=0)
        first = bisect_left(times, at - widest)
        return LATE_IN_WINDOW if first < len(times) and times[first] <= at else None

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
