"""The rules a job knows, from the answers on `rule-status`: which versions there are, and which route serves each.

How it works: the driver answers each message of the `rules` topic once (see answering.py). An ACCEPTED answer carries
the rule itself, its version, effective time and route, so that whoever folds the answers in the order of offsets comes
to the same rules: every bucket, the backfill, the command line, after any restart, under any declaration, setting or
release. An event is sent to one bucket per route; a rule is evaluated where its group-by's route sends its events.
Entity fields are routes from the start. A rule whose group-by holds no route is accepted without an effective time;
once the job runs with a new route, an ACTIVE answer gives that time.

What it does not do: read Kafka, or decide anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rules.model import Rule, rule_from_mapping, rule_to_mapping
from rules.publishing import Answer, Status
from rules.streams import Stream
from rules.timestamps import iso_text, parse_timestamp
from rules.versions import RuleSet, RuleVersion

WHOLE_STREAM = ""
# Effective time of a version that waits for its route.
NOT_YET = 1 << 62


@dataclass(frozen=True)
class Route:
    """Events of a stream are sent to buckets by this field's value; WHOLE_STREAM sends all of them to one."""

    stream: str
    field: str


@dataclass(frozen=True)
class Record:
    """A record of the `rules` or the `rule-status` topic; arrival in µs."""

    offset: int
    arrival: int
    value: bytes


@dataclass(frozen=True)
class Answered:
    """What a record of `rule-status` says about a message of `rules`.

    message: offset of the message, -1 of an ACTIVE answer, which is about a version. rule, route: of an ACCEPTED answer
    that made a version. effective: µs, None where the version waits for its route.
    """

    answer: Answer
    message: int
    rule_id: str | None
    rule_version: int | None
    effective: int | None
    rule: Rule | None = None
    route: Route | None = None


def answer_record(
    status: Status, message: str | None = None, rule: Rule | None = None, route: Route | None = None
) -> tuple[str, dict[str, Any]]:
    """(key, value) of an answer on `rule-status`. message: `topic-partition-offset` of what it answers."""
    value = status.record() | ({} if message is None else {"message": message})
    if rule is not None and route is not None:
        value |= {"rule": rule_to_mapping(rule), "route": route.field}
    return status.rule_id or message or "", value


def read_answer(value: bytes) -> Answered | None:
    """The answer that a record's value holds; None where it holds none that changes what is known.

    Anybody may write to a topic: nothing is raised for a record of another shape.
    """
    try:
        written = json.loads(value.decode())
        answer, rule_id, version = Answer(written["status"]), written["rule_id"], written["rule_version"]
        effective = None if written["effective"] is None else parse_timestamp(written["effective"], zone_required=True)
        if answer is Answer.FAILED or (effective is None) != (written["effective"] is None):
            return None
        if answer is Answer.ACTIVE:
            return Answered(answer, -1, rule_id, version, effective) if _is_version(rule_id, version) else None
        message = int(written["message"].rpartition("-")[2])
        if answer is Answer.REJECTED:
            return Answered(answer, message, None, None, None)
        if not _is_version(rule_id, version):
            return None
        if "rule" not in written:
            return Answered(answer, message, rule_id, version, effective)
        json.dumps(written, ensure_ascii=False).encode()  # JSON can spell half a surrogate pair, which is no text
        rule = rule_from_mapping(written["rule"])
        if rule.id != rule_id or not isinstance(written["route"], str):
            return None
        return Answered(answer, message, rule_id, version, effective, rule, Route(rule.stream, written["route"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_version(rule_id: object, version: object) -> bool:
    return isinstance(rule_id, str) and isinstance(version, int) and not isinstance(version, bool) and version > 0


@dataclass
class RuleBook:
    """All versions and routes after the answers received so far.

    answered: (rule id, version) to the arrival (µs) of the answer that made the version, or made its route.
    next_offset: of the answers; next_message: of the messages, after the last one that has an answer. skipped: records
    that were no answer or did not fit.
    """

    streams: Mapping[str, Stream]
    routes: list[Route] = field(default_factory=list)
    serving: dict[tuple[str, tuple[str, ...]], Route] = field(default_factory=dict)
    answered: dict[tuple[str, int], int] = field(default_factory=dict)
    active: set[tuple[str, int]] = field(default_factory=set)
    next_offset: int = 0
    next_message: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self.routes = [Route(s.name, entity) for s in self.streams.values() for entity in s.entities]
        self._by_rule: dict[str, list[RuleVersion]] = {}
        self._order: list[tuple[str, int]] = []
        self._ruleset: RuleSet | None = None

    @property
    def ruleset(self) -> RuleSet:
        """All versions, in the order of their answers."""
        if self._ruleset is None:
            self._ruleset = RuleSet(tuple(self._by_rule[rule_id][number - 1] for rule_id, number in self._order))
        return self._ruleset

    @property
    def rule_ids(self) -> Iterable[str]:
        """The ids of all rules."""
        return self._by_rule.keys()

    def of_rule(self, rule_id: str) -> tuple[RuleVersion, ...]:
        """One rule's versions in the order of publication."""
        return tuple(self._by_rule.get(rule_id, ()))

    @property
    def waiting(self) -> list[RuleVersion]:
        """The versions that wait for their route."""
        return [version for of in self._by_rule.values() for version in of if version.effective == NOT_YET]

    def receive(self, record: Record) -> Answered | None:
        """Take the next record of `rule-status`; what it changed, None where it changed nothing.

        Records received before are passed over, and of several answers to one message the first counts: a driver that
        lost an acknowledgement may send one again.
        """
        if record.offset < self.next_offset:
            return None
        self.next_offset = record.offset + 1
        said = read_answer(record.value)
        if said is None:
            self.skipped += not is_failure(record.value)
            return None
        if said.answer is Answer.ACTIVE:
            return said if self._activate(said, record.arrival) else None
        if said.message < self.next_message:
            return None
        if said.rule is not None and said.rule_version != 1 + len(self._by_rule.get(said.rule.id, ())):
            self.skipped += 1
            return None
        self.next_message = said.message + 1
        if said.rule is None or said.rule_version is None or said.route is None:
            return None
        effective = NOT_YET if said.effective is None else said.effective
        self._add(RuleVersion(said.rule, said.rule_version, effective), said.route, record.arrival)
        return said

    def add(self, version: RuleVersion, arrival: int, *, running: Iterable[Route]) -> Route:
        """Add a version as its answer will, with the route that serves it; it waits where that is not `running`."""
        route = self.route_of(version.rule)
        waits = version.rule.state.is_evaluated and route not in running
        self._add(replace(version, effective=NOT_YET) if waits else version, route, arrival)
        return route

    def route_of(self, rule: Rule) -> Route:
        """The route of the rule's group-by, fixed when first seen: that of the first field with one, else a new one."""
        known = self.serving.get((rule.stream, rule.group_by))
        if known is not None:
            return known
        of_stream = {route.field for route in self.routes if route.stream == rule.stream}
        name = next((f for f in rule.group_by if f in of_stream), rule.group_by[0] if rule.group_by else WHOLE_STREAM)
        return Route(rule.stream, name)

    def served_by(self, route: Route) -> frozenset[tuple[str, ...]]:
        """The group-bys that are evaluated in the buckets of a route."""
        return frozenset(
            group_by
            for (stream, group_by), served in self.serving.items()
            if served == route and stream == route.stream
        )

    def _add(self, version: RuleVersion, route: Route, arrival: int) -> None:
        rule = version.rule
        self._by_rule.setdefault(rule.id, []).append(version)
        self._order.append((rule.id, version.version))
        self._ruleset = None
        self.answered[rule.id, version.version] = arrival
        if route not in self.routes and rule.stream in self.streams:
            self.routes.append(route)
        self.serving.setdefault((rule.stream, rule.group_by), route)

    def _activate(self, said: Answered, arrival: int) -> bool:
        """Whether the answer gives a version that waits its effective time."""
        rule_id, number = str(said.rule_id), int(said.rule_version or 0)
        versions = self._by_rule.get(rule_id, [])
        if not 0 < number <= len(versions):
            self.skipped += 1
            return False
        self.active.add((rule_id, number))
        if versions[number - 1].effective != NOT_YET or said.effective is None:
            return False
        versions[number - 1] = replace(versions[number - 1], effective=said.effective)
        self._ruleset = None
        self.answered[rule_id, number] = arrival
        return True


def is_failure(value: bytes) -> bool:
    """Whether a record tells of a failed measure, which is no answer to a message."""
    try:
        return bool(json.loads(value)["status"] == Answer.FAILED.value)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def effective_text(version: RuleVersion) -> str | None:
    """The effective time of a version as records write it; None while it waits for its route."""
    return None if version.effective == NOT_YET else iso_text(version.effective)
