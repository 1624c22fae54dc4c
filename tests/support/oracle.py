"""What one bucket may emit at each step, and what must stand after it: docs/semantics.md in a few dozen obvious lines.

Times are µs. The clock only grows. `settled` only grows, and only with a batch's clock: nothing is emitted about an
event before it. `horizon` only grows too: what lies before it is gone for good, its id included. An event is late that
arrives more than the allowed lateness after it happened, or that is read when it is settled; it counts for what arrives
after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import parse_timestamp
from tests.support.agreement import Measured, plain, same, wrongly_muted
from tests.support.random_runs import Batch, place
from tests.support.reference import (
    ALLOWED_BY,
    OVERFLOW,
    Alive,
    Event,
    Passed,
    Setting,
    Version,
    allowed_by,
    applicable,
    as_then,
    can_allow,
    horizon_of,
    is_due,
    is_followed,
    judged,
    judges,
    last_violation,
    living,
    over_alerts,
    place_in_order,
)

Subject = tuple[str, int]  # rule id and version
_NEVER = -(1 << 62)
_IDENTITY = ("rule_id", "rule_version", "stream", "event_id", "event_time")
_CONTENT = (*_IDENTITY, "rule_state", "group", "measures", "severity", "text", "muted")


class Oracle:
    """Follows the bucket of one shuffle key. serves: whether the shuffle key serves the group-by of a version; unread:
    its events that were read before it began; as_arrived: an event as it is seen that comes into the state otherwise
    than by being read (S22.4).

    `complaints` of each batch are lines for people. overflown: rule id, version and measure wherever a value has been
    too large.
    """

    def __init__(
        self,
        stream: Stream,
        serves: Callable[[Version], bool],
        unread: Iterable[Event] = (),
        as_arrived: Callable[[Event], Event] = lambda event: event,
    ) -> None:
        self._stream, self._serves, self._as_arrived = stream, serves, as_arrived
        self._setting = Setting(stream.event_id, stream.event_time, None, stream.max_future_skew, stream.tiebreaker)
        self._clock = _NEVER
        self._passed = Passed(_NEVER, _NEVER)
        self._rows: list[Event] = []  # in the order of S1.1
        self._last: dict[str, dict[str, Any]] = {}  # the last record of each alert
        self._read = 0
        self._outdated: set[tuple[Subject, str, int]] = set()
        self._unread = [*unread]
        self._lacks_unread = bool(self._unread)  # until something is primed
        self._all: list[Event] = []  # as read, with whether they were `dead`
        self._past: list[Event] = []  # what was primed into steps
        self._exported = 0, self._passed  # how many had been read then, and how far the bucket was
        self._primed: list[tuple[int, dict[Any, int], int]] = []
        self.overflown: set[tuple[str, int, str]] = set()

    def complaints(
        self,
        batch: Batch,
        versions: list[Version],
        allowed_lateness: int,
        alerts: list[dict[str, Any]],
        late: list[str] | None,
    ) -> Iterator[str]:
        """What is wrong with what the bucket has emitted for a batch.

        versions: all, as answered, its messages included; late: the ids of the late events that it has
        reported, None where another bucket does.
        """
        alive = partial(self._alive, versions)
        self._passed = self._passed.published(alive)
        for rows, steps, settled in self._primed:
            self._passed = replace(self._passed, settled=max(self.settled, settled))
            self._prime(rows, steps, alive, allowed_lateness)
        self._primed.clear()
        expected_late = self._take_in(batch.events, versions, allowed_lateness)
        for row in self._rows:
            if self._time(row) >= self._passed.folded:  # what has been folded stays
                row["in_time"] = row["arrival"] - self._time(row) <= 2 * allowed_lateness
                row["changed"] = row["in_time"] is not row.setdefault("was_in_time", row["in_time"])
        if late is not None and sorted(late) != sorted(expected_late):
            yield f"reports {sorted(late)} as late, expected {sorted(expected_late)}"
        self._clock = self._clock if batch.clock is None else max(self._clock, batch.clock)
        concluded = self._concluded(versions)
        for record in alerts:
            yield from self._wrong(record, concluded, versions)
            self._last[record["alert_id"]] = record
        yield from self._wrong_in_force(concluded, versions)
        unretracted = [record for record in self._last.values() if record["kind"] == "alert"]
        yield from wrongly_muted("stands", versions, unretracted)
        if batch.clock is not None:
            setting = replace(self._setting, allowed_lateness=allowed_lateness)
            kept = [row for row in self._rows if row["late"] and self._time(row) >= self.horizon]
            late = [(self._time(row), row["arrival"]) for row in kept]
            self._passed = self._passed.until(setting, alive, self._clock, late)
            oldest = min([self.horizon, *(since for _, since in self._passed.held.values())])
            self._rows = [row for row in self._rows if self._time(row) >= oldest]

    def export(self) -> None:
        """What has been read so far is exported for versions that wait."""
        self._exported = len(self._all), self._passed

    def prime(self, rows: int, steps: dict[Any, int], settled: int) -> None:
        """The next batch brings what was exported: single events from `rows` on, and steps of folds from `steps` on,
        for what the stream had not settled by then."""
        self._primed.append((rows, steps, settled))

    def _prime(self, since: int, steps: dict[Any, int], alive: Alive, allowed_lateness: int) -> None:
        count, then = self._exported
        setting = replace(self._setting, allowed_lateness=allowed_lateness)
        target = horizon_of(setting, alive(self.settled), self.settled, ())
        complete = {fold: max(then.held.get(fold, (then.folded,))) for fold in steps}
        until = max(then.folded, since)
        # one that no rule has needed meanwhile, and that has begun again since, keeps what it has
        steps = {
            fold: begin
            for fold, begin in steps.items()
            if max(self._passed.held.get(fold, (-_NEVER,))) <= min(complete[fold], until)
        }

        unread = {place(event) for event in self._unread} if self._lacks_unread else set()

        def lacks(event: Event) -> bool:
            return since <= self._time(event) and (self._time(event) < then.horizon or place(event) in unread)

        def folds_lacking(event: Event) -> frozenset[Any]:
            time, always = self._time(event), place(event) in unread
            return frozenset(
                f for f, begin in steps.items() if begin <= time < until and (always or time < complete[f])
            )

        first: dict[str, Event] = {}
        for event in sorted([*self._unread, *self._all[:count]], key=place):
            if lacks(event) or folds_lacking(event):
                first.setdefault(event[self._stream.event_id], event)
        known = {row[self._stream.event_id] for row in self._rows if self._time(row) >= self.horizon}
        dead = [event for event in self._all[count:] if event["dead"]]
        missed = sorted(dead, key=lambda event: event["arrival"])  # those of one time as they were read
        for number, event in enumerate([*first.values(), *missed]):
            time, is_missed = self._time(event), number >= len(first)
            lateness = event["arrival"] - time
            past = {**event, "late": False, "past": True, "in_time": lateness <= 2 * allowed_lateness}
            if not is_missed and (folds := folds_lacking(event)):
                self._past.append({**past, "only": folds})
            if (is_missed or lacks(event)) and event[self._stream.event_id] not in known:
                known.add(event[self._stream.event_id])
                is_folded = time < self._passed.folded
                if is_folded and (is_missed or time >= until):
                    self._past.append({**past, "only": frozenset(steps)})
                if not any(
                    row[self._stream.event_id] == event[self._stream.event_id] and self._time(row) == time
                    for row in self._rows
                ):
                    order = event["arrival"], self._read if is_missed else number - len(first)
                    late = is_missed or lateness > allowed_lateness
                    only = {"only": frozenset[Any]()} if is_folded else {}  # else it counts like any other
                    row = {**self._as_arrived(event), "late": late, "order": order, "picks": {}, "in_time": False}
                    self._rows.append({**row, **only})
        self._rows.sort(key=lambda row: place_in_order(self._setting, row))
        self._past.sort(key=lambda row: place_in_order(self._setting, row))
        self._lacks_unread = False
        held = self._passed.held | {fold: (complete[fold], begin) for fold, begin in steps.items()}
        horizon = min(self.horizon, max(since, target))
        self._passed = replace(self._passed, horizon=horizon, held=held)

    @property
    def settled(self) -> int:
        """Nothing is emitted about an event before it."""
        return self._passed.settled

    @property
    def horizon(self) -> int:
        """An event before it is gone, its id included, but for what it counted for in measures with a resolution."""
        return self._passed.horizon

    def _time(self, row: Mapping[str, Any]) -> int:
        return row[self._stream.event_time]  # type: ignore[no-any-return]

    def _alive(self, versions: list[Version], settled: int) -> list[Version]:
        """What applies to some event that is not settled, but for retired versions."""
        return [version for version in living(versions, settled) if self._serves(version)]

    def _take_in(self, events: list[Event], versions: list[Version], allowed_lateness: int) -> list[str]:
        """Insert the events that are new; returns the ids of the late ones."""
        late: list[str] = []
        known = {row[self._stream.event_id] for row in self._rows if self._time(row) >= self.horizon}
        for event in sorted(events, key=place):
            event_id, time = event[self._stream.event_id], self._time(event)
            self._all.append({**event, "dead": time < self.horizon})
            if event_id in known:
                continue
            self._read += 1
            is_late = event["arrival"] - time > allowed_lateness or time < self.settled
            late += [event_id] * is_late
            picks = {v.rule_id: applicable(versions, v.rule_id, time) for v in versions}
            known_by_then = _effective(versions, time)
            if time >= self.horizon:
                known.add(event_id)
                order = (event["arrival"], self._read)
                # one that comes when events of its time have been folded counts in no step (S14.4)
                row = {**event, "late": is_late, "order": order, "picks": picks, "in_time": False}
                self._rows.append({**row, "known": known_by_then})
        self._rows.sort(key=lambda row: place_in_order(self._setting, row))
        return late

    def _concluded(self, versions: list[Version]) -> dict[tuple[Subject, str, int], tuple[bool, Measured]]:
        """Whether what applies is violated, and the measures, at every event that is neither settled nor late."""
        found = {}
        self._outdated = set()
        violated: dict[Subject, set[str]] = {}
        places = {id(row): place for place, row in enumerate(self._rows)}
        then: dict[Any, bool] = {}

        def is_violation(version: Version, row: dict[str, Any]) -> bool:
            return row[self._stream.event_id] in violated.get((version.rule_id, version.version), ())

        def visible(version: Version, row: dict[str, Any]) -> list[dict[str, Any]]:
            return [
                other
                for other in [*(self._past if version.has_resolution else ()), *self._rows[: places[id(row)] + 1]]
                if (not other["late"] or other["order"] <= row["order"])
                and all(other[f] == row[f] for f in version.group_by)
                and version.where(other)
                and (version.has_resolution or self._time(other) >= self.horizon)
            ]

        for row in self._rows:
            if row["late"] or self._time(row) < self.horizon:
                continue
            at = {v.rule_id: applicable(versions, v.rule_id, self._time(row)) for v in versions}
            picked = [version for version in at.values() if version is not None]
            silent: set[str] = set()
            for version in sorted(picked, key=lambda version: (not version.allows, version.over_alerts)):
                if not self._serves(version) or not judges(version, row):
                    continue
                if not is_due(self._setting, version, row, self._clock):
                    continue
                seen = visible(version, row)
                seeing = as_then(self._setting, self._passed.since_of(version), visible, then)
                seeing = over_alerts(self._setting, seeing, versions, is_violation)
                subject = (version.rule_id, version.version)
                before = violated.setdefault(subject, set())
                after = last_violation(self._setting, version, [e for e in seen if not e["late"]], before)
                holds, measures = judged(self._setting, seeing, row, seen, after)
                on_time = [e for e in self._rows if not e["late"] and self._time(e) >= self.horizon]
                holds = holds and not is_followed(self._setting, version, row, on_time)
                if holds:
                    before.add(row[self._stream.event_id])
                if version.allows:
                    silent |= {version.rule_id} if holds else set()
                    self.overflown |= {(*subject, name) for name, value in measures.items() if value is OVERFLOW}
                    continue
                by = allowed_by(version, picked, lambda other, holding=silent: other.rule_id in holding)
                measures = {**measures, ALLOWED_BY: by if holds else None}
                if self._time(row) < self.settled - version.within:
                    continue
                key = subject, row[self._stream.event_id], self._time(row)
                found[key] = holds, measures
                if version.has_resolution and any(other.get("changed") for other in seen):
                    self._outdated.add(key)
                depends = version.over_alerts or any(can_allow(other, version) for other in versions)
                if depends and row.get("known") != _effective(versions, self._time(row)):
                    self._outdated.add(key)
                self.overflown |= {(*subject, name) for name, value in measures.items() if value is OVERFLOW}
        return found

    def _wrong(
        self, record: dict[str, Any], concluded: Mapping[Any, tuple[bool, Measured]], versions: list[Version]
    ) -> Iterator[str]:
        """A record that may not be emitted now."""
        key = _key(record)
        record_name = f"{record['kind']} {record['revision']} of {key}"
        last = self._last.get(record["alert_id"])
        if key[2] < self.settled - _of(record, versions).within:
            yield f"{record_name}: the event is settled"
        if record["revision"] != (1 if last is None else last["revision"] + 1):
            yield f"{record_name} follows {last}"
        if last is not None and any(last[name] != record[name] for name in _IDENTITY):
            yield f"{record_name}: the alert was about another event: {last}"
        holds, measures = concluded.get(key, (False, {}))
        if record["kind"] == "retraction":
            if last is None or last["kind"] == "retraction":
                yield f"{record_name} withdraws nothing"
            elif _content(last) != _content(record):
                yield f"{record_name} withdraws other content than was announced: {last}"
            if holds:
                yield f"{record_name}: it holds, with {measures}"
        elif not holds:
            yield f"{record_name}: it does not hold"
        elif (wrong := self._differing(record, measures, versions)) and not (
            # that it is muted is announced with the values that were announced first
            _of(record, versions).by_verdict and last is not None and last["measures"] == record["measures"]
        ):
            yield f"{record_name}: {wrong}"
        elif last is not None and last["kind"] == "alert" and _content(last) == _content(record):
            yield f"{record_name} changes nothing"
        elif last is not None and _is_values_alone(last, record) and _of(record, versions).by_verdict:
            yield f"{record_name} changes values alone"

    def _wrong_in_force(self, concluded: Mapping[Any, tuple[bool, Measured]], versions: list[Version]) -> Iterator[str]:
        """Alerts on unsettled events that should be retracted, are missing, or have other measures.

        A version that came to apply to an event after it was read announces nothing: the event is not evaluated again.
        Nor is one for another `allowed_lateness`, by which other events count in measures with a resolution (S14.4).
        """
        announced = {_key(r): r for r in self._last.values() if r["kind"] == "alert"}
        unretracted = {key: r for key, r in announced.items() if key[2] >= self.settled - _of(r, versions).within}
        picks = {(row[self._stream.event_id], self._time(row)): row["picks"] for row in self._rows}
        for key in sorted({key for key, (holds, _) in concluded.items() if holds} | unretracted.keys()):
            (rule_id, _), event_id, time = key
            then = picks.get((event_id, time), {}).get(rule_id)
            if then is not applicable(versions, rule_id, time) or key in self._outdated:
                continue
            holds, measures = concluded.get(key, (False, {}))
            if not holds:
                yield f"{key} stands, and does not hold"
            elif key not in unretracted:
                yield f"{key} holds with {measures}, and does not stand"
            elif wrong := self._differing(
                unretracted[key],
                {ALLOWED_BY: measures[ALLOWED_BY]} if _of(unretracted[key], versions).by_verdict else measures,
                versions,
            ):
                yield f"{key} stands: {wrong}"

    def _differing(self, record: dict[str, Any], expected: Measured, versions: list[Version]) -> str:
        """How the record's measures differ; empty where they do not."""
        version = _of(record, versions)
        got = plain(version.measures, self._stream, record["measures"])
        got.setdefault(ALLOWED_BY, None)
        wrong = [name for name, value in expected.items() if not same(got[name], value)]
        return ", ".join(f"{name} is {got[name]!r}, expected {expected[name]!r}" for name in wrong)


def _effective(versions: list[Version], time: int) -> set[tuple[str, int]]:
    """The versions that events of that time may see, or events before them."""
    return {(version.rule_id, version.version) for version in versions if version.effective <= time}


def _is_values_alone(last: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    silenced = [each["measures"].get(ALLOWED_BY) for each in (last, record)]
    return last["kind"] == record["kind"] == "alert" and last["muted"] == record["muted"] and len({*silenced}) == 1


def _of(record: Mapping[str, Any], versions: list[Version]) -> Version:
    return next(v for v in versions if (v.rule_id, v.version) == (record["rule_id"], record["rule_version"]))


def _key(record: Mapping[str, Any]) -> tuple[Subject, str, int]:
    time = parse_timestamp(record["event_time"], zone_required=True)
    return (record["rule_id"], record["rule_version"]), record["event_id"], time  # type: ignore[return-value]


def _content(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in _CONTENT}
