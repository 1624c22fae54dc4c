"""Writes a rule of the catalogue, and its case, in the names of a stream of somebody else.

How it works: names are replaced where they are read: in lists of fields, in predicates outside of quotes, and in the
placeholders of the text. What comes of it is for the check of rules to judge, the types of fields among it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from nightjar.cases.documents import json_text
from nightjar.catalogue.entries import CONDITIONS, Entry, replaced_names
from nightjar.rules.descriptions import PLACEHOLDER
from nightjar.rules.errors import Problem, RuleError, SettingsError, shortened
from nightjar.rules.functions import Function
from nightjar.rules.model import Rule, rule_to_mapping
from nightjar.rules.names import did_you_mean
from nightjar.rules.states import State
from nightjar.rules.streams import Stream

_WIDTH = 110


@dataclass(frozen=True)
class Adaptation:
    """An entry for a stream. names: of the entry's fields and measures to those to be written instead."""

    entry: Entry
    stream: Stream
    names: Mapping[str, str]
    rule_id: str
    state: State

    @classmethod
    def of(
        cls,
        entry: Entry,
        stream: Stream,
        names: Mapping[str, str],
        *,
        rule_id: str | None = None,
        state: State = State.ACTIVE,
    ) -> "Adaptation":
        """The entry for a stream; the event's time has the name that the stream declares.

        Raises:
            SettingsError: the rule has no such name as one of `names`.
            RuleError: the stream lacks fields that the rule reads, or a measure's name is taken; it has all of these.
        """
        known = (*entry.fields, *entry.rule.measures)
        for name in names:
            if name not in known:
                remedy = did_you_mean(name, known, "It has")
                raise SettingsError(f"is not a name in {entry.id}", where=shortened(name), remedy=remedy)
        adaptation = cls(
            entry, stream, {entry.stream.event_time: stream.event_time, **names}, rule_id or entry.id, state
        )
        if problems := [*adaptation._missing(), *adaptation._taken()]:
            raise RuleError(problems, where=f"stream {stream.name} for {entry.id}")
        return adaptation

    def _missing(self) -> Iterator[Problem]:
        for field in self.entry.fields:
            if (name := self._name(field)) not in self.stream.fields:
                what = f"there is no field {name!r} ({self.entry.stream.fields[field]}: {self.entry.meanings[field]})"
                remedy = did_you_mean(name, self.stream.fields, "Fields are")
                yield Problem(field, name, what, f"Name yours, as in --field {field}=NAME. {remedy}")

    def _taken(self) -> Iterator[Problem]:
        names = [*map(self._name, self.entry.rule.measures)]
        for measure, name in zip(self.entry.rule.measures, names, strict=True):
            if name in self.stream.fields or names.count(name) > 1:
                whose = "a field of the stream" if name in self.stream.fields else "another measure"
                remedy = f"Give the measure a name of its own, as in --field {measure}=NAME"
                yield Problem(measure, name, f"{name!r} is {whose}, too", remedy)

    def _name(self, name: str) -> str:
        return self.names.get(name, name)

    @property
    def rule(self) -> dict[str, Any]:
        """The rule's written form. Of a shadow rule without its action, which such a rule cannot have."""
        written = self._adapted(self.entry.rule) | {"id": self.rule_id, "state": self.state.value}
        if self.state is State.SHADOW:
            written.pop("action", None)
        return written

    def _adapted(self, rule: Rule) -> dict[str, Any]:
        written = rule_to_mapping(rule) | {"stream": self.stream.name}
        written["group_by"] = [*map(self._name, written["group_by"])]
        for key in {"where", "when"} & written.keys():
            written[key] = replaced_names(written[key], self.names)
        if "unless" in written:
            written["unless"] |= {"where": replaced_names(written["unless"]["where"], self.names)}
        if "measures" in written:
            written["measures"] = {self._name(name): self._measure(of) for name, of in written["measures"].items()}
        description = written.get("description", "")
        if description:
            written["description"] = PLACEHOLDER.sub(lambda at: f"{{{self._name(at[1])}}}", description)
        return written

    def _measure(self, written: Mapping[str, Any] | str) -> dict[str, Any] | str:
        if isinstance(written, str):
            return replaced_names(written, self.names)
        read = {*CONDITIONS, *(() if "over_alerts" in written else Function)}
        found = {key: self._read(value) if key in read else value for key, value in written.items()}
        return found | ({"per": [*map(self._name, written["per"])]} if "per" in written else {})

    def _read(self, written: Any) -> Any:
        """A condition, or what stands under a function."""
        if isinstance(written, list):
            return [*map(self._read, written)]
        if isinstance(written, Mapping):
            return {**written, "of": self._read(written["of"])}
        return replaced_names(written, self.names)

    def case(self) -> str:
        """The text of a case file that shows the rule, on a stream that has the fields which it reads.

        Raises:
            SettingsError: two fields of the case would have one name.
        """
        entry = self.entry
        fields = [name for name in entry.declaration["fields"] if name in self._in_case]
        if len({*map(self._name, fields)}) < len(fields):
            remedy = "Write the case without --field, or give each field a name of its own"
            raise SettingsError("two fields of the case have one name", where=entry.id, remedy=remedy)
        document = json.loads(json_text(entry.case_document))
        del document["streams"]
        declared = {self._name(name): entry.declaration["fields"][name] for name in fields}
        entities = [name for name in entry.declaration["entities"] if name in fields]
        stream: dict[str, Any] = {key: self._name(entry.declaration[key]) for key in ("event_id", "event_time")}
        stream |= {"entities": [*map(self._name, entities)], "fields": declared}
        steps: list[dict[str, Any]] = [{"at": "0m", "rules": [*map(self._adapted, entry.beside), self.rule]}]
        for step in document["steps"][1:]:
            events = [self._values(event) for event in step.get("events", {}).get(entry.stream.name, ())]
            # others only pass the time
            steps.append({**step, **({"events": {self.stream.name: events}} if events else {})})
        expect = {
            section: [{key: self._expected(value) for key, value in row.items()} for row in rows]
            for section, rows in document["expect"].items()
        }
        if self.state is State.SHADOW:
            expect.pop("restrictions", None)
        whole = {**document, "streams": {self.stream.name: stream}, "steps": steps, "expect": expect}
        keys = ("title", "description", "streams", "settings", "steps", "expect")
        return str(
            yaml.safe_dump(
                {key: whole[key] for key in keys},
                sort_keys=False,
                default_flow_style=None,
                allow_unicode=True,
                width=_WIDTH,
            )
        )

    @property
    def _in_case(self) -> set[str]:
        stream = self.entry.stream
        return {stream.event_id, stream.event_time, *self.entry.fields}

    def _values(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return {self._name(name): value for name, value in event.items() if name in self._in_case}

    def _expected(self, value: Any) -> Any:
        """A cell of an expected row: those of groups and measures have names."""
        return {self._name(name): each for name, each in value.items()} if isinstance(value, dict) else value
