"""What stands around an event in a record: CloudEvents, in both of its modes, and Debezium's envelope of changes.

An envelope is taken off before the paths of fields are read. Of a CloudEvent the attributes are at their own names, and
the event is at `data`, whichever mode its sender uses. Of a change the fields are those of the row, and the rest of the
envelope is at `$change`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.rules.encodings import Change, Encoding, Envelope
from nightjar.rules.field_paths import ABSENT, CHANGE, HEADERS, KEY, FieldPath

# The attributes that every CloudEvent has.
_REQUIRED = ("id", "source", "type")
_VERSION = "specversion"
# Of the headers of a CloudEvent in binary mode.
PREFIX = "ce_"
_DATA = "data"
_CHANGES = {change.letter: change for change in Change}
# Of a truncated table, and of a message that is no change of a row.
_NO_ROW = ("t", "m")
# What a record in a file has beside its value.
_CONTEXT = (KEY, HEADERS)


class NoEventError(Exception):
    """A record whose envelope says that it is no event of the stream; the text: why."""


class EnvelopeError(Exception):
    """A record that has not the envelope that is declared; the text: why."""


def unwrapped(content: Any, headers: Mapping[str, Any], encoding: Encoding) -> Any:
    """What the paths of fields are read in. content: a record's, ABSENT if it has none; headers: name to text.

    Raises:
        NoEventError, EnvelopeError
    """
    match encoding.envelope:
        case Envelope.CLOUDEVENTS:
            return _cloud_event(content, headers)
        case Envelope.DEBEZIUM:
            return _row(content, encoding)
        case _:
            return content


def wrapped(record: dict[str, Any], encoding: Encoding) -> dict[str, Any]:
    """A record with its envelope, so that `unwrapped` returns it; members that every envelope has are made up."""
    match encoding.envelope:
        case Envelope.CLOUDEVENTS:
            return {_VERSION: "1.0", "id": "0", "source": "nightjar", "type": "event", **record}
        case Envelope.DEBEZIUM:
            row = {name: value for name, value in record.items() if name not in (CHANGE, *_CONTEXT)}
            change = {"op": encoding.changes[0].letter, **record.get(CHANGE, {})}
            image, other = ("before", "after") if change["op"] == Change.DELETE.letter else ("after", "before")
            context = {name: record[name] for name in _CONTEXT if name in record}
            return {other: None, **change, image: row, **context}
        case _:
            return record


def inner_steps(path: FieldPath, encoding: Encoding) -> list[tuple[str | int, ...]]:
    """Where in the value of a record, with its envelope, the value at a path may be; CloudEvents in binary mode."""
    if path.is_beside:
        return []
    match encoding.envelope:
        case Envelope.CLOUDEVENTS:
            return [path.steps[1:]] if path.steps[0] == _DATA else []
        case Envelope.DEBEZIUM if path.steps[0] == CHANGE:
            return [path.steps[1:]]
        case Envelope.DEBEZIUM:
            return [(image, *path.steps) for image in ("before", "after")]
        case _:
            return [path.steps]


def _cloud_event(content: Any, headers: Mapping[str, Any]) -> Any:
    if headers.get(PREFIX + _VERSION) is not None:
        attributes = {
            name.removeprefix(PREFIX): value
            for name, value in headers.items()
            if name.startswith(PREFIX) and value is not None
        }
        event = attributes if content is ABSENT else {**attributes, _DATA: content}
    elif not isinstance(content, dict):
        raise EnvelopeError("the record is neither a CloudEvent nor has it the header ce_specversion")
    else:
        event = content
    if event.get(_VERSION) != "1.0":
        raise EnvelopeError("specversion is not 1.0, the version of CloudEvents that is read")
    for name in _REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            raise EnvelopeError(f"{name}, which every CloudEvent has, is absent or empty")
    return event


def _row(content: Any, encoding: Encoding) -> Any:
    if isinstance(content, dict) and content.keys() == {"schema", "payload"}:
        content = content["payload"]  # as a converter writes it that also sends the schema
    if content is None:
        raise NoEventError("a tombstone")
    if not isinstance(content, dict) or "op" not in content:
        raise EnvelopeError("the record is not a change with the member op")
    letter = content["op"]
    if letter in _NO_ROW:
        raise NoEventError(f"op is {letter}, which is not a change of a row")
    change = _CHANGES.get(letter) if isinstance(letter, str) else None
    if change is None:
        raise EnvelopeError("op is not one of c, u, d, r, t, m")
    if change not in encoding.changes:
        raise NoEventError(f"a {change}, and the events of the stream are {', '.join(encoding.changes)}")
    image = "before" if change is Change.DELETE else "after"
    row = content.get(image)
    if not isinstance(row, dict):
        raise EnvelopeError(f"op is {letter}, and {image} is not an object")
    return {**row, CHANGE: content}
