"""Parse one event's JSON: the slow, obvious reference for the parse by columns (nightjar/ingestion/parsing.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa

from nightjar.rules.derived import with_derived
from nightjar.rules.durations import format_duration
from nightjar.rules.encodings import Envelope
from nightjar.rules.envelopes import EnvelopeError, NoEventError, unwrapped
from nightjar.rules.errors import printable, shortened
from nightjar.rules.event_values import JsonNumber, mistake, text_mistake, too_long, typed, typed_text
from nightjar.rules.field_paths import ABSENT, BLOCKED, HEADERS, KEY
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import microseconds
from nightjar.rules.types import Kind

# Levels of objects and lists in a record, including undeclared fields: a fixed bound, since what a parser can read
# depends on how deep its stack is already.
MAX_NESTING = 100
# A bracket, or a string with all the brackets in it.
_BRACKET = re.compile(r'[{}\[\]]|"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)
_WHITE_SPACE = " \t\r\n"  # JSON's

# In the place of a Reason in the lake: the event was erased with the person that it was about.
ERASED = "forgotten"


class Reason(StrEnum):
    """Why a record is not an event."""

    NOT_JSON = "not_json"
    NOT_AVRO = "not_avro"
    NOT_PROTOBUF = "not_protobuf"
    UNKNOWN_SCHEMA = "unknown_schema"
    NOT_AN_OBJECT = "not_an_object"
    BAD_ENVELOPE = "bad_envelope"
    NO_ID = "no_id"
    MISSING_FIELD = "missing_field"
    MISTYPED_FIELD = "mistyped_field"
    FUTURE_EVENT_TIME = "future_event_time"
    IGNORED = "ignored"
    """Its envelope says that it is none, so it is not quarantined; the lake has it."""


QUARANTINE_REASONS = tuple(reason for reason in Reason if reason is not Reason.IGNORED)


@dataclass(frozen=True)
class Rejection:
    """A record that is not an event: the reason's code, and the detail for a person."""

    reason: Reason
    detail: str


def parse_event(
    raw: bytes | str | Mapping[str, Any], stream: Stream, zone: ZoneInfo | None = None
) -> dict[str, Any] | Rejection:
    """The declared fields of one event in declaration order, derived ones too, or why it cannot be used.

    Values are those of `parse_recorded`.
    """
    event = parse_recorded(raw, stream, zone)
    return event if isinstance(event, Rejection) else completed(event, stream)


def completed(event: dict[str, Any], stream: Stream) -> dict[str, Any]:
    """An event of `parse_recorded` with its derived fields, in declaration order."""
    if not stream.derived:
        return event
    (row,) = with_derived(recorded_table([event], stream), stream).to_pylist()
    return {name: event.get(name, _value(row[name])) for name in stream.fields}


def _value(value: Any) -> Any:
    return microseconds(value) if isinstance(value, datetime) else value


def recorded_table(events: Sequence[Mapping[str, Any]], stream: Stream) -> pa.Table:
    """Events from `parse_recorded` as a table of the fields that records have, in their Arrow types."""
    columns = {}
    for name, kind in stream.recorded.items():
        values = [event[name] for event in events]
        is_time = kind.kind is Kind.TIMESTAMP
        columns[name] = pa.array(values, pa.int64()).view(kind.arrow) if is_time else pa.array(values, kind.arrow)
    return pa.table(columns)


def parse_recorded(
    raw: bytes | str | Mapping[str, Any],
    stream: Stream,
    zone: ZoneInfo | None = None,
    beside: Mapping[str, Any] | None = None,
) -> dict[str, Any] | Rejection:
    """The fields that one event's record has in declaration order, or why it cannot be used.

    Values: str, int, float, bool, Decimal (of the field's scale), int microseconds since 1970 UTC for a timestamp, and
    None for an explicit null, and for an optional field that is absent. Any other absent field is missing; unknown keys
    are ignored. A string takes numbers and booleans as text; an int64 takes integers only; a decimal takes numbers and
    numeric strings that fit it exactly; a timestamp takes ISO 8601 text with a zone, or integer epoch milliseconds. A
    mapping may also hold Decimal and aware datetime. Of a key that is repeated the last value counts.

    zone: of times written without one, in a file; in the stream there is none, and such a time is refused. beside: what
    stands beside the value of a record on Kafka, at KEY and HEADERS; a record in a file has it within itself.
    """
    if isinstance(raw, Mapping):
        fields: Any = {key: _as_json(value) for key, value in raw.items()}
    elif not raw and stream.encoding.envelope is Envelope.DEBEZIUM:
        fields = None
    elif not raw and stream.encoding.envelope is Envelope.CLOUDEVENTS and (beside or {}).get(HEADERS):
        fields = ABSENT
    else:
        try:
            fields = read_json(raw.decode("utf-8") if isinstance(raw, bytes) else raw)
        except ValueError as failure:
            return Rejection(Reason.NOT_JSON, _short(str(failure)))
    if stream.encoding.envelope is not None:
        if beside is None and isinstance(fields, dict):
            beside = {name: fields[name] for name in (KEY, HEADERS) if name in fields}
        try:
            headers = (beside or {}).get(HEADERS)
            fields = unwrapped(fields, headers if isinstance(headers, dict) else {}, stream.encoding)
        except NoEventError as why:
            return Rejection(Reason.IGNORED, str(why))
        except EnvelopeError as why:
            return Rejection(Reason.BAD_ENVELOPE, str(why))
    if not isinstance(fields, dict):
        return Rejection(Reason.NOT_AN_OBJECT, f"the JSON is {'no object' if stream.sensitive else _short(fields)}")
    if beside is not None:
        fields = {**fields, **beside}
    if stream.value_in(fields, stream.event_id) in (None, "", ABSENT):
        return Rejection(Reason.NO_ID, f"{stream.shown_place(stream.event_id)} is absent, null or empty")
    event: dict[str, Any] = {}
    for name, declared in stream.recorded.items():
        value, written = stream.value_in(fields, name), stream.times.get(name)
        if value is ABSENT:
            if name not in stream.optional:
                return Rejection(Reason.MISSING_FIELD, f"{stream.shown_place(name)} is absent")
            value = None
        if value is BLOCKED:
            return Rejection(Reason.MISTYPED_FIELD, f"{stream.shown_place(name)}: {stream.path(name).obstacle(fields)}")
        if name == stream.event_time and value is None:
            return Rejection(Reason.MISSING_FIELD, f"{stream.shown_place(name)} is null")
        read, explain = (typed_text, text_mistake) if stream.is_text(name, value) else (typed, mistake)
        event[name] = None if value is None else read(value, declared, zone, written)
        if (long := too_long(value, declared)) is not None:
            return Rejection(Reason.MISTYPED_FIELD, f"{stream.shown_place(name)} {long}")
        if value is not None and event[name] is None:
            shown = "a value that is not shown" if name in stream.sensitive else _short(value)
            what = f"{stream.shown_place(name)} is {shown}, which is not a valid {declared}"
            return Rejection(Reason.MISTYPED_FIELD, f"{what}: {explain(value, declared, zone, written)}")
    return event


def read_json(text: str) -> Any:
    """The JSON of a text, its numbers as JsonNumber; ValueError if it is not JSON, or nested too deep."""
    if not text.strip(_WHITE_SPACE):
        raise ValueError("the record is empty")
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark, which JSON has not")
    # Only a text with this many brackets can be this deep, and hardly any has them.
    if text.count("{") + text.count("[") > MAX_NESTING and _depth(text) > MAX_NESTING:
        raise ValueError(f"it is nested deeper than {MAX_NESTING} levels")
    return _DECODER.decode(text)


def _depth(text: str) -> int:
    """How many brackets are open at once, outside strings."""
    deepest = depth = 0
    for bracket in _BRACKET.finditer(text):
        if bracket[0] in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket[0] in "}]":
            depth -= 1
    return deepest


def check_skew(event_time_us: int, arrival_us: int, stream: Stream) -> Rejection | None:
    """The rejection of an event whose time is further after its arrival than the stream allows."""
    skew = event_time_us - arrival_us
    if skew <= stream.max_future_skew:
        return None
    allowed = format_duration(stream.max_future_skew)
    return Rejection(
        Reason.FUTURE_EVENT_TIME, f"{stream.event_time} is {format_duration(skew)} after arrival; {allowed} are allowed"
    )


def _as_json(value: Any) -> Any:
    """A value of a mapping as it would be read from JSON."""
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return JsonNumber(repr(value))
    if isinstance(value, Decimal):
        return JsonNumber(format(value, "f"))
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=_no_constant)


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, str) and value else json.dumps(value, default=str)
    return printable(shortened(text, 80))
