"""How the times of a field are written: the keys `unit`, `format` and `zone` of its declaration.

ISO 8601 text with a zone is read whatever is declared; where a text fits the declared format too, that counts.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from nightjar.rules.errors import DeclarationError
from nightjar.rules.timestamps import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    in_zone,
    local_timestamp,
    microseconds,
    parse_timestamp,
    timestamp_mistake,
    zone_offset,
)
from nightjar.rules.zones import zone_named

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
"""Microseconds of each unit of epoch times; of ns those of a thousand."""

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
# Characters of a whole number; no time needs more, and Python converts long ones slowly or not at all.
_MAX_NUMBER = 40
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DIRECTIVES = {
    "Y": "(?P<Y>[0-9]{4})",
    "m": "(?P<m>[0-9]{2})",
    "b": f"(?P<b>(?i:{'|'.join(_MONTHS)}))",
    "d": "(?P<d>[0-9]{2})",
    "H": "(?P<H>[0-9]{2})",
    "I": "(?P<I>[0-9]{2})",
    "p": "(?P<p>(?i:am|pm))",
    "M": "(?P<M>[0-9]{2})",
    "S": "(?P<S>[0-9]{2})",
    "f": "(?P<f>[0-9]{1,9})",
    "z": "(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})",
}
_KNOWN = ", ".join(f"%{letter}" for letter in _DIRECTIVES)


@dataclass(frozen=True)
class WrittenTime:
    """unit: of numbers, also of those in quotes; format: of texts and of numbers; zone: of times without one."""

    unit: str | None = None
    format: str | None = None
    zone: str | None = None

    def check(self) -> None:
        """Raise DeclarationError or SettingsError if this cannot be declared; where: the key."""
        if self.unit is not None and self.unit not in UNITS:
            raise DeclarationError(f"{self.unit!r} is not a unit", where="unit", remedy=f"Units are {', '.join(UNITS)}")
        zone_named(self.zone, "zone")
        if self.format is None:
            return
        if self.unit is not None:
            raise DeclarationError("a time has a unit or a format", where="format", remedy="Leave out one of them")
        letters = _letters(self.format)
        for needed in (["Y"], ["m", "b"], ["d"]):
            if not set(needed) & set(letters):
                names = " or ".join(f"%{letter}" for letter in needed)
                raise DeclarationError(f"{self.format!r} lacks {names}", where="format", remedy="Times have a date")
        if ("I" in letters) != ("p" in letters):
            raise DeclarationError(f"{self.format!r} has one of %I and %p", where="format", remedy="Write both, or %H")
        for one, other in (("m", "b"), ("H", "I")):
            if one in letters and other in letters:
                raise DeclarationError(f"{self.format!r} has %{one} and %{other}", where="format", remedy="Write one")
        for coarse, fine in (("HI", "M"), ("M", "S"), ("S", "f")):
            if fine in letters and not set(coarse) & set(letters):
                remedy = f"Write %{coarse[0]} too"
                raise DeclarationError(f"{self.format!r} has %{fine} alone", where="format", remedy=remedy)
        if ("z" in letters) == (self.zone is not None):
            what = "has a zone already" if self.zone is not None else "says nothing about the zone"
            remedy = "Leave out `zone`" if self.zone is not None else 'Add `zone`, as in zone = "Europe/Berlin"'
            raise DeclarationError(f"{self.format!r} {what}", where="format", remedy=remedy)

    @cached_property
    def _zone(self) -> ZoneInfo | None:
        return zone_named(self.zone, "zone")

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        assert self.format is not None  # noqa: S101  asked for where it is declared
        parts = re.split(r"%(.)", self.format)
        texts = [re.escape(part) if at % 2 == 0 else _DIRECTIVES.get(part, "%") for at, part in enumerate(parts)]
        return re.compile("".join(texts), re.ASCII)

    def of_text(self, text: str, zone: ZoneInfo | None = None) -> int | None:
        """µs since 1970 of a text; None if it is no such time. zone: of a time without one, if none is declared."""
        if self.format is not None and self._pattern.fullmatch(text):
            return self._formatted(text)
        if (instant := parse_timestamp(text, zone_required=True)) is not None or self.format is not None:
            return instant
        zone = self._zone or zone
        if zone is not None and (instant := local_timestamp(text, zone)) is not None:
            return instant
        return self.of_number(text) if self.unit is not None else None

    def of_number(self, text: str) -> int | None:
        """µs since 1970 of a number as it is written.

        With a fraction it is a double, and the nearest microsecond counts; nanoseconds are cut to microseconds.
        """
        if self.format is not None:
            return self._formatted(text)
        if _INTEGER.fullmatch(text):
            return self.of_whole(int(text)) if len(text) <= _MAX_NUMBER else None
        return self.of_double(float(text)) if self.unit is not None and _NUMBER.fullmatch(text) else None

    def of_whole(self, number: int) -> int | None:
        """µs since 1970 of a whole number."""
        return _within(number // 1000 if self.unit == "ns" else number * UNITS[self.unit or "ms"])

    def of_double(self, number: float) -> int | None:
        """µs since 1970 of a double: the nearest, of two the even one."""
        scaled = number / 1000 if self.unit == "ns" else number * UNITS[self.unit or "ms"]
        return _within(round(scaled)) if math.isfinite(scaled) else None

    def mistake(self, text: str) -> str:
        """Why a text or number is no such time, in words that do not repeat it."""
        if self.format is not None:
            matched = self._pattern.fullmatch(text) is not None
            return "no calendar has it, or its zone changes clocks then" if matched else f"write it like {self.format}"
        if self.unit is not None:
            return f"write a number of {self.unit} since 1970, or like 2026-01-05T12:00:00Z"
        return timestamp_mistake(text, self._zone)

    def _formatted(self, text: str) -> int | None:
        found = self._pattern.fullmatch(text)
        if found is None:
            return None
        parts = found.groupdict()
        month = int(parts["m"]) if parts.get("m") else _MONTHS.index(parts["b"].lower()) + 1
        hour = int(parts.get("H") or 0)
        if parts.get("I"):
            if not 1 <= int(parts["I"]) <= 12:
                return None
            hour = int(parts["I"]) % 12 + (12 if parts["p"].lower() == "pm" else 0)
        fraction = int((parts.get("f") or "0")[:6].ljust(6, "0"))
        minute, second = int(parts.get("M") or 0), int(parts.get("S") or 0)
        try:
            local = datetime(int(parts["Y"]), month, int(parts["d"]), hour, minute, second, fraction, tzinfo=UTC)
        except ValueError:
            return None
        written = microseconds(local)
        if self._zone is not None:
            return in_zone(written, self._zone)
        sign = parts["z"]
        offset = zone_offset(sign if ":" in sign or sign == "Z" else f"{sign[:3]}:{sign[3:]}")
        return None if offset is None else _within(written - offset)


def written_time(declared: dict[str, Any]) -> WrittenTime:
    """The declaration's keys `unit`, `format` and `zone`; DeclarationError or SettingsError if they are wrong,
    where: the key."""
    for key, value in declared.items():
        if not isinstance(value, str) or not value:
            raise DeclarationError(f"{value!r} is not a text", where=key, remedy=f'Write it like {key} = "…"')
    written = WrittenTime(**declared)
    written.check()
    return written


def _letters(text: str) -> list[str]:
    """The directives of a format."""
    letters: list[str] = []
    for found in re.finditer(r"%(.?)", text, re.DOTALL):
        letter = found[1]
        if letter == "%":
            continue
        if letter not in _DIRECTIVES:
            raise DeclarationError(f"{text!r} has %{letter}", where="format", remedy=f"Use {_KNOWN} and %%")
        if letter in letters:
            raise DeclarationError(f"{text!r} has %{letter} twice", where="format", remedy="Write each once")
        letters.append(letter)
    return letters


def _within(instant: int) -> int | None:
    return instant if MIN_TIMESTAMP <= instant <= MAX_TIMESTAMP else None
