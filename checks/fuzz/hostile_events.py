"""Generates records that a faulty or malicious producer could send instead of an event, from a seed.

A record starts with a valid event's fields as JSON texts; some are replaced by texts that are known to break parsers,
and then the bytes of the whole record may be damaged. Most limits are tried on both sides.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from nightjar.rules.event_values import MAX_STRING
from nightjar.rules.events import MAX_NESTING
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import iso_text

# A pair of texts with one 64-bit FNV-1a hash; what follows them in an id keeps it equal.
COLLIDING = ("8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ")

# A sixth of the events are late where ten minutes are allowed (µs).
_LATEST = 720_000_000

# A megabyte, just below a broker's default limit.
LARGE = 1_000_000

NUMBERS = (
    "-0", "0", "-0.0", "0e0", "1E+2", "1e2", "1e400", "-1e400", "1e-400", "01", "+1", ".5", "5.", "0x10", "1_000",
    "--1", "NaN", "Infinity", "-Infinity", "1" + "0" * 1000, "9" * 18, "9" * 19, "9" * 1001, "1" * 5000,
    "0." + "1" * 1001, "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "9999999999.99", "10000000000", "9999999999.994", "9999999999.995", "9999999999.990", "0.005", "0.01", "1e-2",
    "100e-4", "12.340", "1.10", "12.3400000000000000000001", "0.1000000000000000055", "4.35", "1.15", "1234567.12",
    "12345678.12", "253402300799999", "253402300800000", "-62135596800000", "-62135596800001", "1" * 11, "1" * 12,
    "1" * 13, "1" * 14,
)  # fmt: skip
STRINGS = (
    "", " ", "x", "null", "true", "0", "NaN", "-Infinity", "1e400", "5", "12.34", "007", "+5", "\\u0000", "a\\u0000b",
    "\\ud800", "\\udc00", "\\udc00\\ud800", "\\ud83d\\ude00", "\\ud83d\\ud83d\\ude00", "\\\\ud800", "\\uD83D",
    "\\uDFFF", "\\ud8", "\\u12", "\\x41", "\\", "\\a", "\\/", "\\n", "a\\tb", "a\tb", "a\nb", "\x01", "\x00", "\x7f",
    "é", "\\u00e9", "é", "\ufeff", "\u202eabc", "\u200b", "\u3000", " ", "😀", "\ufffd", "\ufffe",
    "'; DROP TABLE events; --", "[1]", "{}", '\\"', '\\"}', "${jndi:ldap://x}", "{{7*7}}", "../../etc/passwd", "%s%n",
    "1522540800000", "152254080\\u0030000",
)  # fmt: skip
TIMES = (
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "0001-01-01T00:00:00-18:00",
    "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-00:01", "10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z",
    "1582-10-10T00:00:00Z", "1899-12-31T23:59:59Z", "1900-01-01T00:00:00Z", "2999-12-31T23:59:59Z",
    "2026-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-32T00:00:00Z", "2026-01-05",
    "2026-01-05T24:00:00Z", "2026-01-05T23:59:60Z", "2026-01-05T00:00:00", "2026-01-05T00:00:00z", "2026-01-05T00:00Z",
    "2026-01-05T00Z", "2026-01-05 00:00:00Z", "2026-01-05t00:00:00Z", "2026-01-05T00:00:00,5Z",
    "2026-01-05T00:00:00.Z", "2026-01-05T00:00:00.1234567891Z", "2026-01-05T00:00:00.123456789Z",
    "2026-01-05T00:00:00+18:00", "2026-01-05T00:00:00+18:01", "2026-01-05T00:00:00-17:59", "2026-01-05T00:00:00+05:60",
    "2026-01-05T00:00:00+0530", "2026-01-05T00:00:00+05", "2026-01-05T00:00:00 UTC", "2026-01-05T00:00:00[UTC]",
    " 2026-01-05T00:00:00Z", "2026-01-05T00:00:00Z ", "2026-01-05T00:00:00Z\\n", "2026-W01-1T00:00:00Z", "yesterday",
    "now", "epoch", "\uff12\uff10\uff12\uff16-01-05T00:00:00Z", "2026-01-05T00:00:00\u221201:00", "1767571200",
    "1767571200000",
)  # fmt: skip
_OTHERS = ("null", "true", "false", "[]", "{}", "[1, 2]", '{"a": 1}', "[[]]", "[null]", "nul", "True", "undefined", "")


class Hostile(NamedTuple):
    """A record's value (None: a tombstone), and how it was damaged."""

    value: bytes | None
    what: str


def literals(event: Mapping[str, Any]) -> dict[str, str]:
    """A valid event's fields as JSON texts."""
    return {name: _literal(value) for name, value in event.items()}


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return json.dumps(value.isoformat().replace("+00:00", "Z"))
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def _json(node: Any) -> str:
    """The text of a record whose values are JSON texts."""
    match node:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)}: {_json(value)}" for key, value in node.items()) + "}"
        case list():
            return f"[{', '.join(map(_json, node))}]"
        case _:
            return "null" if node is None else str(node)


class HostileEvents:
    """Endless records of one stream.

    events: good ones, each field as its JSON text. rarely: the share of records of about a megabyte.
    """

    def __init__(
        self, stream: Stream, events: Sequence[Mapping[str, str]], rng: random.Random, rarely: float = 0.0001
    ) -> None:
        self._stream, self._events, self._rng, self._rarely = stream, events, rng, rarely
        self._made = 0
        self._wholes: tuple[tuple[str, Callable[[dict[str, str], str], bytes | None]], ...] = (
            ("cut off", lambda _, text: text.encode()[: rng.randrange(len(text))]),
            ("bytes changed", lambda _, text: self._damaged(text.encode())),
            ("bytes that are not UTF-8", lambda _, text: self._inserted(text.encode(), rng.choice(_NO_UTF8))),
            ("a key twice", self._twice),
            ("a field absent", self._without),
            ("a key in other case", lambda _, text: self._rekeyed(text, str.upper)),
            ("a key in escapes", lambda _, text: self._rekeyed(text, lambda key: f"\\u{ord(key[0]):04x}{key[1:]}")),
            ("byte order mark", lambda _, text: b"\xef\xbb\xbf" + text.encode()),
            ("UTF-16", lambda _, text: text.encode(rng.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-32")))),
            ("white space", lambda _, text: self._spaced(text)),
            (
                "documents in one",
                lambda _, text: rng.choice(("", " ", "\n", ",", "\0", "}")).join([text, text]).encode(),
            ),
            ("an object that goes on", self._going_on),
            ("a list", lambda _, text: f"[{text}]".encode()),
            ("no object", lambda *_: rng.choice((*_OTHERS, *NUMBERS, '"x"', "{", "}", "[", "not json")).encode()),
            ("single quotes", lambda _, text: text.replace('"', "'").encode()),
            ("a comma too many", lambda _, text: f"{text[:-1]},}}".encode()),
            ("a comment", lambda _, text: rng.choice((f"// c\n{text}", f"{text} # c", f"/* c */{text}")).encode()),
            ("unknown fields", lambda _, text: f'{text[:-1]}, "extra": {self._extra()}}}'.encode()),
            ("deep", lambda _, text: self._deep(text)),
            ("nothing", lambda *_: rng.choice((None, b"", b" ", b"\n"))),
        )

    def record(self, arrival: int | None = None) -> Hostile:
        """The next one: some as good as they were, some with strange fields, some strange as a whole.

        arrival: µs, from which the event's time is at most twelve minutes back; None: the time is the event's own.
        """
        rng = self._rng
        self._made += 1
        fields = dict(rng.choice(self._events))
        if arrival is not None:
            fields[self._stream.event_time] = f'"{iso_text(arrival - rng.randrange(_LATEST))}"'
        own = f"{rng.choice(COLLIDING)}-{self._made // 2}" if rng.random() < 0.1 else f"h{self._made}"
        fields[self._stream.event_id] = f'"{own}"'
        what = []
        if rng.random() < self._rarely:
            return self._large(fields)
        if rng.random() < 0.6:
            for name in rng.sample(list(fields), rng.choice((1, 1, 1, 2, len(fields)))):
                fields[name] = self._text(fields[name])
                what.append(name)
        text = self._written(fields)
        value: bytes | None = text.encode()
        if rng.random() < 0.4:
            kind, make = rng.choice(self._wholes)
            value = make(fields, text)
            what.append(kind)
        return Hostile(value, ", ".join(what) or "good")

    def _written(self, fields: Mapping[str, str]) -> str:
        """The record with the fields at their places, and others beside them."""
        return _json(self._stream.record(fields))

    def _text(self, good: str) -> str:
        rng = self._rng
        drawn = rng.random()
        if drawn < 0.25:
            return rng.choice(NUMBERS)
        if drawn < 0.35:
            return f"{'-' * rng.randrange(2)}{rng.randrange(10 ** rng.randrange(1, 20))}{self._fraction()}"
        if drawn < 0.6:
            return f'"{rng.choice(STRINGS)}"'
        if drawn < 0.8:
            return f'"{rng.choice(TIMES)}"'
        if drawn < 0.85:
            return f'"{rng.choice(NUMBERS)}"'
        if drawn < 0.95:
            return rng.choice(_OTHERS)
        if drawn < 0.97:
            return f'"{"x" * (MAX_STRING + rng.randrange(-1, 2))}"'
        return self._damaged(good.encode()).decode("utf-8", "replace")

    def _fraction(self) -> str:
        rng = self._rng
        digits = "".join(rng.choices("0123456789", k=rng.choice((0, 1, 2, 2, 3, 14, 15, 16, 17, 30))))
        exponent = rng.choice(("", "", "", f"e{rng.randrange(-20, 20)}"))
        return f".{digits}{exponent}" if digits else exponent

    def _large(self, fields: dict[str, str]) -> Hostile:
        rng = self._rng
        size = LARGE - 1000
        where = rng.choice(("an unknown field", "a field", "a number", "garbage", "brackets", "quotes", "keys"))
        name = rng.choice(list(fields))
        match where:
            case "a field":
                fields[name] = f'"{"x" * size}"'
            case "a number":
                fields[name] = "1" * size
            case "an unknown field":
                fields["extra"] = f'"{"x" * size}"'
            case "brackets":
                fields["extra"] = "[" * (size // 2) + "]" * (size // 2)
            case "keys":
                fields |= {f"k{number}": "1" for number in range(size // 13)}
            case _:
                noise = b"\xff" if where == "garbage" else b'\\"'
                return Hostile(noise * (size // len(noise)), f"a megabyte: {where}")
        text = self._written(fields)
        return Hostile(text.encode(), f"a megabyte: {where}")

    def _damaged(self, good: bytes) -> bytes:
        rng, damaged = self._rng, bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(damaged) + 1)
            match rng.randrange(3):
                case 0:
                    damaged[at:at] = bytes([rng.choice(_NOTABLE)])
                case 1:
                    damaged[at : at + 1] = bytes([rng.choice(_NOTABLE)])
                case _:
                    del damaged[at : at + rng.choice((1, 1, 4))]
        return bytes(damaged)

    def _inserted(self, good: bytes, noise: bytes) -> bytes:
        at = self._rng.randrange(len(good) + 1)
        return good[:at] + noise + good[at:]

    def _twice(self, fields: dict[str, str], text: str) -> bytes:
        name = self._rng.choice(list(fields))
        return f'{text[:-1]}, "{name}": {self._text(fields[name])}}}'.encode()

    def _without(self, fields: dict[str, str], _: str) -> bytes:
        left_out = self._rng.choice(list(fields))
        return self._written({name: value for name, value in fields.items() if name != left_out}).encode()

    def _rekeyed(self, text: str, change: Callable[[str], str]) -> bytes:
        key = self._stream.path(self._rng.choice(list(self._stream.fields))).key
        return text.replace(f'"{key}":', f'"{change(key)}":').encode()

    def _spaced(self, text: str) -> bytes:
        space = self._rng.choice((" ", "\n", "\t", "\r\n", "\f", "\u00a0", "\u2028", "\v", " " * 500))
        return f"{space}{text.replace(', ', space + ',' + space)}{space}".encode()

    def _going_on(self, _: dict[str, str], text: str) -> bytes:
        rng = self._rng
        other = rng.choice((text, "1", "{}", '"x"', "null", "[]"))
        key = rng.choice(("record", "x", "corrupt", *self._stream.fields))
        forms = (
            f', "{key}": {other}',
            f'}}, "{key}": {other}',
            f', "{key}": {other}}}',
            f",{other}",
            f'], "x": [{other}',
        )
        return f"{text}{rng.choice(('', ' ', chr(10)))}{rng.choice(forms)}".encode()

    def _extra(self, depth: int = 0) -> str:
        rng = self._rng
        drawn = rng.random() if depth < 4 else 1.0
        if drawn < 0.3:
            return (
                "{"
                + ", ".join(f'"{rng.choice("abc}],")}": {self._extra(depth + 1)}' for _ in range(rng.randrange(4)))
                + "}"
            )
        if drawn < 0.5:
            return "[" + ", ".join(self._extra(depth + 1) for _ in range(rng.randrange(4))) + "]"
        return rng.choice((*NUMBERS[:12], "1", "null", '"}"', '"},"', '"\\"],{"', '"x"'))

    def _deep(self, text: str) -> bytes:
        rng = self._rng
        levels = rng.choice((MAX_NESTING - 1, MAX_NESTING, MAX_NESTING + 1, rng.randrange(2, 1100), 5000))
        if rng.random() < 0.5:
            inner = "[" * (levels - 1) + "]" * (levels - 1)
        else:
            inner = '{"a":' * (levels - 1) + "1" + "}" * (levels - 1)
        return rng.choice(
            (f'{text[:-1]}, "extra": {inner}}}', inner, f'{text[:-1]}, "extra": "{"[" * levels}"}}')
        ).encode()


_NOTABLE = b'{}[]",:\\ 0129-+.eE\x00\x1f\x7f\x80\xc0\xed\xff\nntfu/'
_NO_UTF8 = (b"\xff", b"\xfe\xff", b"\x80", b"\xc0\xaf", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98")
