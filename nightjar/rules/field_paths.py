"""Paths into a JSON record: where the value of a declared field stands, as in `payment.items[0].price`.

A step is a key, or an index into a list from 0. A key with a point, a bracket or a leading `$` is quoted:
`"user.name".first`. What stands beside a record's value is at `$key` and `$headers.NAME`, and what Debezium says of a
change at `$change`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nightjar.rules.errors import DeclarationError

# What a record has in the place of a value: nothing; or no object, or no list, on the way to it.
ABSENT, BLOCKED = object(), object()

# The first steps to what is not in the value itself.
KEY, HEADERS, CHANGE = "$key", "$headers", "$change"

_MAX_INDEX = 999
_MAX_STEPS = 50
_BARE = re.compile(r'[^.\[\]"\s$](?:[^.\[\]"\x00-\x1f]*[^.\[\]"\s])?')
_STEP = re.compile(rf'(?P<dot>\.)?(?:"(?P<quoted>[^"]+)"|(?P<key>{_BARE.pattern}))|\[(?P<index>[0-9]{{1,4}})\]')
_BESIDE = re.compile(r"\$(?:key|headers|change)(?=[.\[]|$)")
_REMEDY = 'Write it like payment.amount, items[0].price or "user.name"."first.name"'


@dataclass(frozen=True)
class FieldPath:
    """The steps from a record to a value: keys of objects, and indices of lists."""

    steps: tuple[str | int, ...]

    @classmethod
    def parse(cls, text: object) -> FieldPath:
        """The path that a text spells; DeclarationError if none."""
        if not isinstance(text, str) or not text:
            raise DeclarationError(f"{text!r} is not a path", remedy=_REMEDY)
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise DeclarationError(f"{text!r} has half of a surrogate pair", remedy=_REMEDY)
        steps: list[str | int] = []
        at = 0
        if beside := _BESIDE.match(text):
            steps, at = [beside[0]], beside.end()
        while at < len(text):
            found = _STEP.match(text, at)
            if found is None or (found["index"] is None and bool(found["dot"]) != bool(steps)):
                raise DeclarationError(f"{text!r} is not a path, from {text[at:]!r} on", remedy=_REMEDY)
            at = found.end()
            if found["index"] is None:
                steps.append(found["quoted"] or found["key"])
            elif not steps:
                raise DeclarationError(
                    f"{text!r} begins with an index", remedy="A record is an object: begin with a key"
                )
            elif int(found["index"]) > _MAX_INDEX:
                raise DeclarationError(f"{text!r} has an index above {_MAX_INDEX}", remedy=_REMEDY)
            else:
                steps.append(int(found["index"]))
        if steps[0] in (KEY, HEADERS, CHANGE) and not beside:
            raise DeclarationError(f"{text!r}: such a key of a record cannot be read", remedy=f"{steps[0]} is Kafka's")
        if steps[0] == KEY and len(steps) > 1:
            raise DeclarationError(f"{text!r} leads into the key, which is a text", remedy=f"Write {KEY}")
        if steps[0] == HEADERS and (len(steps) != 2 or not isinstance(steps[1], str)):
            raise DeclarationError(f"{text!r} names no header", remedy=f"Write {HEADERS}.tenant")
        if steps[0] == CHANGE and (len(steps) == 1 or not isinstance(steps[1], str)):
            raise DeclarationError(f"{text!r} names no member of the change", remedy=f"Write {CHANGE}.op")
        if len(steps) > _MAX_STEPS:
            raise DeclarationError(f"{text!r} has more than {_MAX_STEPS} steps", remedy=_REMEDY)
        return cls(tuple(steps))

    def __str__(self) -> str:
        return _spelled(self.steps)

    @property
    def key(self) -> str:
        """The last key."""
        return next(step for step in reversed(self.steps) if isinstance(step, str))

    @property
    def is_beside(self) -> bool:
        """Whether the value is the text of the record's key or of a header."""
        return self.steps[0] in (KEY, HEADERS)

    @property
    def is_element(self) -> bool:
        """Whether the value is an element of a list."""
        return isinstance(self.steps[-1], int)

    def value(self, record: Mapping[str, Any]) -> Any:
        """The value of a record; ABSENT, or BLOCKED. On the way through null it is None."""
        value: Any = record
        for step in self.steps:
            if isinstance(step, str):
                if not isinstance(value, dict):
                    return None if value is None else BLOCKED
                value = value.get(step, ABSENT)
            elif not isinstance(value, list):
                return None if value is None else BLOCKED
            else:
                value = value[step] if step < len(value) else ABSENT
            if value is ABSENT:
                return ABSENT
        return value

    def changed(self, record: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
        """A copy of a record with the value changed, if it has one."""
        if self.value(record) in (None, ABSENT, BLOCKED):
            return record
        copy: Any = {**record}
        within = copy
        for step in self.steps[:-1]:
            within[step] = {**within[step]} if isinstance(within[step], dict) else [*within[step]]
            within = within[step]
        within[self.steps[-1]] = change(within[self.steps[-1]])
        changed: dict[str, Any] = copy
        return changed

    def change(self, record: dict[str, Any], change: Callable[[Any], Any]) -> None:
        """Change the value in the record itself, if it has one."""
        if self.value(record) in (ABSENT, BLOCKED):
            return
        within: Any = record
        for step in self.steps[:-1]:
            within = within[step]
        if within is not None:
            within[self.steps[-1]] = change(within[self.steps[-1]])

    def obstacle(self, record: Mapping[str, Any]) -> str:
        """What blocks the way, in words."""
        for at, step in enumerate(self.steps):
            before = FieldPath(self.steps[:at])
            if not isinstance(before.value(record), dict if isinstance(step, str) else list):
                return f"{before} is not {'an object' if isinstance(step, str) else 'a list'}"
        raise ValueError(f"nothing blocks {self}")

    def conflicts_with(self, other: FieldPath) -> bool:
        """Whether no record has values at both: one leads through the other, or what is an object here is a list
        there."""
        for mine, theirs in zip(self.steps, other.steps, strict=False):
            if mine != theirs:
                return isinstance(mine, str) != isinstance(theirs, str)
        return len(self.steps) != len(other.steps)


def nested(values: Iterable[tuple[FieldPath, Any]]) -> dict[str, Any]:
    """The record that has these values, and null at the other elements of its lists. No two of the paths conflict."""
    record: dict[str, Any] = {}
    for path, value in values:
        within: Any = record
        for at, step in enumerate(path.steps):
            if isinstance(step, int):
                within += [None] * (step + 1 - len(within))
            if at + 1 == len(path.steps):
                within[step] = value
                continue
            held = within.get(step) if isinstance(step, str) else within[step]
            if held is None:
                held = within[step] = {} if isinstance(path.steps[at + 1], str) else []
            within = held
    return record


def _spelled(steps: Iterable[str | int]) -> str:
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            is_bare = _BARE.fullmatch(step) or (not text and step in (KEY, HEADERS, CHANGE))
            text += ("." if text else "") + (step if is_bare else f'"{step}"')
    return text
