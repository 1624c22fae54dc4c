"""Durations, written by people as `500ms`, `10s`, `1h30m`, `90d`, and counted by the engine in microseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from nightjar.rules.errors import NightjarError

MICROSECONDS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}

# Longer than any sensible window, and far inside the int64 range of event times in microseconds.
MAX_DURATION = 100_000 * MICROSECONDS["d"]

_PART = r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h|d)\s*"
_PATTERN = rf"\s*(?:{_PART}){{1,5}}"
_REMEDY = "Write a number and one of the units ms, s, m, h, d, as in 500ms, 10s, 3m, 1h30m or 90d"


def parse_duration(text: str) -> int:
    """Microseconds of a written duration: `90m`, `1.5h`, or parts from the largest unit to the smallest, as `1h30m`.

    Raises:
        NightjarError: anything else, including a number without a unit, and a fraction of a microsecond.
    """
    if not isinstance(text, str) or re.fullmatch(_PATTERN, text, re.ASCII) is None:
        raise NightjarError(f"{text!r} is not a duration", remedy=_REMEDY)
    parts = re.findall(_PART, text, re.ASCII)
    sizes = [MICROSECONDS[unit] for _, unit in parts]
    if any(smaller >= larger for larger, smaller in pairwise(sizes)):
        raise NightjarError(
            f"{text!r} is not a duration", remedy="Write each unit once, the largest first: 1d12h, 1h30m"
        )
    if any("." in number for number, _ in parts[:-1]):
        raise NightjarError(f"{text!r} is not a duration", remedy="Only the last number has a fraction, as in 1m30.5s")
    exact = sum(Decimal(number) * size for (number, _), size in zip(parts, sizes, strict=True))
    if exact != int(exact):
        raise NightjarError(f"{text!r} is finer than a microsecond", remedy="Microseconds are the finest step there is")
    if exact > MAX_DURATION:
        raise NightjarError(f"{text!r} is too long", remedy=f"The longest duration is {format_duration(MAX_DURATION)}")
    return int(exact)


def format_duration(microseconds: int) -> str:
    """The shortest written form without a fraction, down to milliseconds; `parse_duration` reads it back exactly."""
    for unit in ("d", "h", "m", "s", "ms"):
        if microseconds and microseconds % MICROSECONDS[unit] == 0:
            return f"{microseconds // MICROSECONDS[unit]}{unit}"
    if microseconds == 0:
        return "0s"
    return f"{Decimal(microseconds) / MICROSECONDS['ms']:f}ms"


def _validated(value: Any) -> int:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    try:
        return parse_duration(value)
    except NightjarError as refusal:
        raise ValueError(str(refusal)) from None


# A pydantic field: written as text (or a timedelta), held as int microseconds, dumped as text.
Duration = Annotated[
    int,
    BeforeValidator(_validated),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^{_PATTERN}$", "examples": ["10m", "1h", "1h30m"]}),
]
