"""The rules a running job knows, from the `rules` topic alone: which versions there are, and which route serves each.

How it works: every message of the topic, in the order of offsets, goes through `receive`. An event is sent to one
bucket a route; a rule is evaluated where its group-by's route sends its events. Entity fields are routes from the
start. A rule whose group-by holds no route waits: the job starts again with the new route and then publishes
`activate`, from whose arrival on the rule may take effect. So everything, routes included, follows from the topic, and
is the same after any restart, in every bucket, and for the backfill.

What it does not do: read Kafka, or decide when to start again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rules.publication import Answer, Status, publish
from rules.streams import Stream
from rules.timestamps import microseconds
from rules.versions import RuleSet

ACTIVATE = "activate"
WHOLE_STREAM = ""
_NOT_YET = 1 << 62


@dataclass(frozen=True)
class Route:
    """Events of a stream are sent to buckets by this field's value; WHOLE_STREAM sends all of them to one."""

    stream: str
    field: str


@dataclass(frozen=True)
class RuleMessage:
    """A record of the rules topic; arrival in µs."""

    offset: int
    arrival: int
    value: bytes


@dataclass
class RuleBook:
    """All versions and routes after the messages received so far."""

    streams: Mapping[str, Stream]
    activation_delay: int
    ruleset: RuleSet = field(default_factory=RuleSet)
    routes: list[Route] = field(default_factory=list)
    serving: dict[tuple[str, tuple[str, ...]], Route] = field(default_factory=dict)
    next_offset: int = 0

    def __post_init__(self) -> None:
        self.routes = [Route(s.name, entity) for s in self.streams.values() for entity in s.entities]
        self._running = set(self.routes)
        self._waiting: dict[tuple[str, int], tuple[Route, int]] = {}

    @property
    def waiting(self) -> list[tuple[str, int]]:
        """(rule id, version) of the rules that wait for `activate`."""
        return list(self._waiting)

    def receive(self, message: RuleMessage) -> list[Status]:
        """Take the next message of the topic; returns the answers. What was received before is passed over."""
        if message.offset < self.next_offset:
            return []
        self.next_offset = message.offset + 1
        activated = _activation(message.value)
        if activated is not None:
            return self._activate(activated, message.arrival)
        before = len(self.ruleset.versions)
        self.ruleset, status = publish(
            self.ruleset, message.value, message.arrival, self.streams, self.activation_delay
        )
        if len(self.ruleset.versions) == before:
            return [status]
        newest = self.ruleset.versions[-1]
        route = self._serve(newest.rule.stream, newest.rule.group_by)
        if route in self._running:
            return [status, replace(status, answer=Answer.ACTIVE)] if newest.rule.state.is_evaluated else [status]
        self._waiting[newest.rule.id, newest.version] = route, message.arrival
        self._set_effective(newest.rule.id, newest.version, _NOT_YET)
        wait = f"no route serves group_by {list(newest.rule.group_by)} yet: it takes effect once the job has made one"
        return [replace(status, effective=None, reasons=(wait,))]

    def activations(self) -> list[tuple[bytes, int]]:
        """The messages to publish once the job runs with all `routes`, each with the arrival (µs) of its rule."""
        return [
            (json.dumps({"control": ACTIVATE, "rule": rule_id, "rule_version": version}).encode(), arrival)
            for (rule_id, version), (_, arrival) in self._waiting.items()
        ]

    def served_by(self, route: Route) -> frozenset[tuple[str, ...]]:
        """The group-bys that are evaluated in the buckets of a route."""
        return frozenset(
            group_by
            for (stream, group_by), served in self.serving.items()
            if served == route and stream == route.stream
        )

    def _serve(self, stream: str, group_by: tuple[str, ...]) -> Route:
        """The route of a group-by, fixed when it is first seen: its first field that is one, else a new one."""
        known = self.serving.get((stream, group_by))
        if known is None:
            of_stream = {route.field for route in self.routes if route.stream == stream}
            name = next((f for f in group_by if f in of_stream), group_by[0] if group_by else WHOLE_STREAM)
            known = Route(stream, name)
            if known not in self.routes:
                self.routes.append(known)
            self.serving[stream, group_by] = known
        return known

    def _activate(self, activated: tuple[str, int], arrival: int) -> list[Status]:
        waited = self._waiting.pop(activated, None)
        if waited is None:  # published again after a crash
            return []
        self._running.add(waited[0])
        rule_id, number = activated
        rule = self.ruleset.of_rule(rule_id)[number - 1].rule
        effective = arrival + self.activation_delay
        if rule.effective is not None:
            effective = max(arrival, microseconds(rule.effective))
        self._set_effective(rule_id, number, effective)
        return [Status(Answer.ACTIVE, rule_id, number, effective)] if rule.state.is_evaluated else []

    def _set_effective(self, rule_id: str, number: int, effective: int) -> None:
        self.ruleset = RuleSet(
            tuple(
                replace(known, effective=effective) if (known.rule.id, known.version) == (rule_id, number) else known
                for known in self.ruleset.versions
            )
        )


def _activation(value: bytes) -> tuple[str, int] | None:
    if ACTIVATE.encode() not in value:
        return None
    try:
        written: Any = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(written, dict) or written.get("control") != ACTIVATE:
        return None
    rule_id, number = written.get("rule"), written.get("rule_version")
    return (rule_id, number) if isinstance(rule_id, str) and isinstance(number, int) else ("", 0)
