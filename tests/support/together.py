"""Many cases as one, so that a job, a lake and a run serve all of them.

How it works: cases share the streams that they declare alike (but for those that need clocks or have sessions), each
with one field more that says whose an event is, and every rule's `where` asks for it, so that a rule sees the events
of its own case alone. Ids of rules and events begin with the case's mark. `Part.own` takes the marks off what comes
of it.

Known limitations: settings are those of the job that plays them, `alerts_per_rule_and_hour` is 2; of a case's own
settings only `approvals` counts. Groups are shared: where one case's event comes out of order, another's later events
of that group are looked at again, which shows where a version took effect in the past. Such a case names customers that
no other has.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType
from typing import Any

import yaml

from nightjar.cases import Case, Message, Step
from nightjar.cases.documents import Number, json_text
from nightjar.cases.simulate import read_event
from nightjar.formats.encoding import Encoder
from nightjar.rules.encodings import PLAIN, Envelope
from nightjar.rules.envelopes import inner_steps
from nightjar.rules.field_paths import HEADERS, FieldPath
from nightjar.rules.streams import Stream, load_streams, tables_of
from nightjar.rules.timestamps import MAX_TIMESTAMP
from nightjar.rules.types import STRING, FieldType
from tests.support.reference import fnv64
from tests.support.unions import with_members

OWNER = "of_case"
# Before the id of a rule in the Flink demo's text form.
_FLINK_TEXT = re.compile(rb"^(?=[0-9]+,)")

Row = dict[str, Any]


def marked_names(mark: str, named: Iterable[str]) -> list[str]:
    """Ids and tags by which rules name others, as they are beside other cases. `*` stays: a rule of a case holds at the
    case's events alone."""
    parts = [name.rpartition(":") for name in named]
    return [name if name == "*" else f"{tag}{colon}{mark}{name}" for tag, colon, name in parts]


@dataclass(frozen=True)
class Part:
    """One case of several. names: its streams' names to those they have together; waits: whether a rule waits for what
    follows an event, so that it needs clocks."""

    case: Case
    mark: str
    names: Mapping[str, str]
    waits: bool = False

    @property
    def steps(self) -> list[Step]:
        """The case's steps with everything marked."""
        return [
            replace(step, rules=tuple(map(self._rule, step.rules)), events=tuple(map(self._event, step.events)))
            for step in self.case.steps
        ]

    def own(self, row: Row) -> Row:
        """A record as the case knows it."""
        found: Row = json.loads(json.dumps(row).replace(self.mark, ""))
        own = {shared: name for name, shared in self.names.items()}
        return {**found, "stream": own[found["stream"]]} if "stream" in found else found

    def owns(self, rule_id: str | None) -> bool:
        """Whether a rule is the case's."""
        return self.mark in str(rule_id)

    def _rule(self, message: bytes) -> bytes:
        try:
            written = json.loads(message)
        except ValueError:
            return _FLINK_TEXT.sub(self.mark.encode(), message)
        return json.dumps(self._marked(written)).encode() if isinstance(written, dict) else message

    def _marked(self, written: Row) -> Row:
        mine = f"{OWNER} = '{self.mark}'"
        if isinstance(written.get("payload"), dict):
            self._marked(written["payload"])
        for row in (written.get("before"), written.get("after")):
            if isinstance(row, dict):
                row |= {key: f"{self.mark}{row[key]}" for key in ("id", "rule_id") if key in row}
                if row.get("rule"):
                    row["rule"] = json.dumps(self._marked(yaml.safe_load(row["rule"])))
        if "ruleId" in written:
            written["ruleId"] = f"{self.mark}{written['ruleId']}"
            written["filter"] = f"({written['filter']}) AND {mine}" if "filter" in written else mine
        for key in ("id", "rule"):
            if isinstance(written.get(key), str):
                written[key] = self.mark + written[key]
        if "tags" in written:
            written["tags"] = [self.mark + tag for tag in written["tags"]]
        if "allows" in written:
            written["allows"] = marked_names(self.mark, written["allows"])
        for measure in (written.get("measures") or {}).values():
            if isinstance(measure, dict) and "over_alerts" in measure:
                measure["over_alerts"] = marked_names(self.mark, measure["over_alerts"])
        if "stream" in written:
            written["stream"] = self.names.get(written["stream"], written["stream"])
        if "when" in written:
            written["where"] = f"({written['where']}) AND {mine}" if "where" in written else mine
        if isinstance(unless := written.get("unless"), dict) and "where" in unless:
            unless["where"] = f"({unless['where']}) AND {mine}"
        return written

    def _event(self, message: Message) -> Message:
        name, stream = self.names[message.stream], self.case.streams[message.stream]
        try:
            written = json.loads(message.raw, parse_int=Number, parse_float=Number)
        except ValueError:
            return Message(name, message.raw)
        if not isinstance(written, dict):
            return Message(name, message.raw)
        path = stream.path(stream.event_id)
        is_change = stream.encoding.envelope is Envelope.DEBEZIUM and not path.is_beside
        for place in map(FieldPath, inner_steps(path, stream.encoding)) if is_change else (path,):
            written = place.changed(written, lambda value: value and f"{self.mark}{value}")
        if stream.encoding == PLAIN:
            return Message(name, json_text({OWNER: self.mark, **written}).encode())
        written[HEADERS] = {**(written.get(HEADERS) or {}), OWNER: self.mark}
        return Message(name, json_text(written).encode())


@dataclass(frozen=True)
class Together:
    """Cases as one. streams: by name, with everything they need."""

    parts: tuple[Part, ...]
    streams: Mapping[str, Stream]

    @classmethod
    def of(cls, cases: Iterable[Case]) -> "Together":
        """The cases, each with a mark of its own."""
        cases, shipped, parts = list(cases), load_streams(), []
        tables = _all_tables(cases)
        known: list[tuple[Stream, str]] = []
        alone: list[tuple[Stream, str]] = []
        for number, case in enumerate(cases):
            mark, names = _mark(number, case), {}
            used = {event.stream for step in case.steps for event in step.events}
            messages = b"".join(message for step in case.steps for message in step.rules)
            waits = b'"unless"' in messages
            for name, own in case.streams.items():
                stream = replace(own, tables=MappingProxyType({}))
                if stream.members:
                    continue
                # a stream without a rule would cost every batch its share; a Flink rule names none
                if name.encode() not in messages and name not in used:
                    continue
                shared = next((shared for declared, shared in known if declared == stream), None)
                # its steps are the stream's clock, or all events of a group make its sessions
                if waits or b'"session"' in messages:
                    shared = f"{name}_{number}"
                    alone.append((stream, shared))
                elif shared is None:
                    shared = name if stream == shipped.get(name) else f"{name}_{number}"
                    known.append((stream, shared))
                names[name] = shared
            for name, own in case.streams.items():
                if own.members:
                    names[name] = f"{name}_{number}"
                    members = tuple(
                        replace(
                            of,
                            stream=replace(of.stream, name=names[of.stream.name]),
                            fields={**of.fields, OWNER: OWNER},
                        )
                        for of in own.members
                    )
                    alone.append((replace(own, tables=MappingProxyType({}), members=members), names[name]))
            parts.append(Part(case, mark, names, waits))
        streams = {name: replace(_owned(stream, name), tables=tables) for stream, name in [*known, *alone]}
        return cls(tuple(parts), with_members(streams))

    def rounds(self) -> Iterator[list[tuple[Part, Step]]]:
        """The first step of every case, then the second of those that have one, and so on."""
        steps = [(part, part.steps) for part in self.parts]
        for number in range(max(len(of) for _, of in steps)):
            yield [(part, of[number]) for part, of in steps if number < len(of)]


def _all_tables(cases: Iterable[Case]) -> Mapping[str, FieldType]:
    """The tables of all cases, which have different names: the records that change them are not marked."""
    found: dict[str, FieldType] = {}
    for case in cases:
        own = tables_of(case.streams)
        assert not found.keys() & own.keys(), f"{case.origin}: another case has a table of that name: {[*own]}"
        found |= own
    return MappingProxyType(found)


def _owned(stream: Stream, name: str) -> Stream:
    topic = "" if stream.members else name
    named = replace(stream, name=name, topic=topic, fields=MappingProxyType({**stream.fields, OWNER: STRING}))
    if stream.encoding == PLAIN:
        return named
    return replace(named, paths=MappingProxyType({**stream.paths, OWNER: FieldPath((HEADERS, OWNER))}))


def _mark(number: int, case: Case) -> str:
    """The first under which the case's events keep their order, which at equal times is that of hashes."""
    events = []
    for message in (event for step in case.steps for event in step.events):
        stream = case.streams[message.stream]
        event = read_event(Encoder(stream).encode(message.raw), stream, MAX_TIMESTAMP)
        if isinstance(event, dict):
            events.append((message.stream, event[stream.event_time], event[stream.event_id]))

    def ordered(mark: str) -> list[Any]:
        return sorted(events, key=lambda event: (*event[:2], fnv64(mark + event[2])))

    marks = (f"c{number}_{attempt}_" for attempt in count())
    return next(mark for mark in marks if ordered(mark) == ordered(""))
