"""Builds malformed records of every kind the parser must reject, with the reason each is quarantined for."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from nightjar.rules.events import Reason
from nightjar.rules.field_paths import ABSENT
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import EPOCH
from nightjar.rules.types import Kind

_Event = dict[str, Any]

# A valid event's record, its values by field with a new id, and a time too far in the future -> the malformed record,
# or the values that are in it.
_Make = Callable[[bytes, _Event, str], bytes | _Event]

# Invalid values for each kind of field; a string accepts every scalar.
_MISTYPED: dict[Kind, tuple[object, ...]] = {
    Kind.STRING: ({"nested": 1}, ["a", "list"]),
    Kind.INT64: (1.5, "12", 2**63, True),
    Kind.DOUBLE: ("1.5", False, [1.5]),
    Kind.BOOLEAN: ("yes", 1),
    Kind.TIMESTAMP: ("yesterday", "2026-01-05T00:00:00", "2026-13-40T00:00:00Z", 1.5, True),
    Kind.DECIMAL: ("12,50", "", "NaN", "1e400", True, {"units": 12}),
}

# Invalid whatever the declaration says of how times are written.
_NO_TIMES = ("yesterday", True)

# A day further ahead than allowed, so that it is still in the future however long sending takes.
_AHEAD = timedelta(days=1)


@dataclass(frozen=True)
class Form:
    """One kind of malformed record: a name, the reason code it is quarantined with, and its builder."""

    name: str
    reason: Reason
    make: _Make


def forms(stream: Stream) -> list[Form]:
    """Every kind of malformed record of this stream."""
    fields = [name for name in stream.recorded if name != stream.event_id]
    required = [name for name in fields if name not in stream.optional and _can_lack(name, stream)]
    decimals = {name: kind for name, kind in stream.recorded.items() if kind.kind is Kind.DECIMAL}
    return [
        *_NOT_JSON,
        *_NOT_AN_OBJECT,
        Form("id is null", Reason.NO_ID, _changed(stream.event_id, None)),
        Form("id is empty", Reason.NO_ID, _changed(stream.event_id, "")),
        Form("id is absent", Reason.NO_ID, _without(stream.event_id)),
        Form(f"{stream.event_time} is null", Reason.MISSING_FIELD, _changed(stream.event_time, None)),
        *(Form(f"{name} is absent", Reason.MISSING_FIELD, _without(name)) for name in required),
        *(
            Form(f"{name} is {json.dumps(value)}", Reason.MISTYPED_FIELD, _changed(name, value))
            for name in fields
            for value in (_NO_TIMES if name in stream.times else _MISTYPED[stream.fields[name].kind])
        ),
        *(
            Form(f"{name} has too many digits", Reason.MISTYPED_FIELD, _changed(name, text))
            for name, kind in decimals.items()
            for text in (f"0.{'0' * kind.scale}1", "9" * (kind.precision + 1))
        ),
        Form(
            f"{stream.event_time} is in the future",
            Reason.FUTURE_EVENT_TIME,
            lambda _, event, ahead: event | {stream.event_time: ahead},
        ),
    ]


def malformed(form: Form, stream: Stream, good: bytes, serial: int, arrival: int) -> bytes:
    """The bytes of a malformed record made from a valid event's JSON.

    If it still has an id, that id is new: `serial` is unique in a replay. `arrival` is microseconds UTC.
    """
    record = json.loads(good)
    found = {name: stream.path(name).value(record) for name in stream.recorded}
    event = {name: value for name, value in found.items() if value is not ABSENT}
    event[stream.event_id] = f"malformed-{serial:09d}"
    ahead = EPOCH + timedelta(microseconds=arrival + stream.max_future_skew) + _AHEAD
    made = form.make(good, event, ahead.isoformat())
    return made if isinstance(made, bytes) else _written(stream.record(made))


def _can_lack(name: str, stream: Stream) -> bool:
    """Whether a record can have all other fields without this one: a list has no gaps."""
    others = stream.record({other: 0 for other in stream.recorded if other != name})
    return stream.path(name).value(others) is ABSENT


def _changed(name: str, value: object) -> _Make:
    return lambda _, event, __: event | {name: value}


def _without(name: str) -> _Make:
    return lambda _, event, __: {key: value for key, value in event.items() if key != name}


def _written(event: _Event) -> bytes:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


_NOT_JSON = (
    Form("cut off", Reason.NOT_JSON, lambda good, *_: good[: len(good) // 2]),
    Form("empty", Reason.NOT_JSON, lambda *_: b""),
    Form("a log line", Reason.NOT_JSON, lambda *_: b"2026-01-05 00:00:00 ERROR connection reset by peer"),
    Form("not UTF-8", Reason.NOT_JSON, lambda _, event, __: b'{"\xff\xfe":' + _written(event) + b"}"),
    Form("a comma too many", Reason.NOT_JSON, lambda _, event, __: _written(event)[:-1] + b",}"),
    Form("single quotes", Reason.NOT_JSON, lambda _, event, __: _written(event).replace(b'"', b"'")),
)
_NOT_AN_OBJECT = (
    Form("a list", Reason.NOT_AN_OBJECT, lambda _, event, __: b"[" + _written(event) + b"]"),
    Form("a text", Reason.NOT_AN_OBJECT, lambda _, event, __: json.dumps(_written(event).decode()).encode()),
    Form("null", Reason.NOT_AN_OBJECT, lambda *_: b"null"),
    Form("a number", Reason.NOT_AN_OBJECT, lambda *_: b"42"),
)
