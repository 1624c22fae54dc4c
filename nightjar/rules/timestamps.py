"""Points in time: conversion between ISO 8601 text and microseconds since 1970 in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = EPOCH.replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)

# Years 1 to 9999, which datetime, Arrow, Polars and Spark all support.
MIN_TIMESTAMP = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
MAX_TIMESTAMP = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND

# Seconds read as milliseconds (µs): those of the years 1973 to 5138 are points in time of 1970 to 1973.
SECONDS_AS_MILLISECONDS = range(10**11, 10**14)

# The limit of Java and PostgreSQL too; no zone is further from UTC than 14 hours.
_MAX_OFFSET = 18 * 60

_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?",
    re.ASCII,
)


def parse_timestamp(text: str, *, zone_required: bool) -> int | None:
    """Microseconds since 1970-01-01 UTC of `YYYY-MM-DD[T]HH:MM[:SS[.f…]]` and a zone (`Z`, `±hh:mm`), or None.

    A fraction finer than a microsecond is cut off. Without `zone_required` the time may be omitted, and the zone, which
    is then UTC.
    """
    found = _ISO.fullmatch(text)
    if found is None or (zone_required and (found[8] is None or found[4] is None)):
        return None
    offset = zone_offset(found[8])
    if offset is None:
        return None
    try:
        written = datetime.fromisoformat(text[: found.start(8)] if found[8] else text)
    except ValueError:
        return None
    instant = (written - _LOCAL_EPOCH) // _MICROSECOND - offset
    return instant if MIN_TIMESTAMP <= instant <= MAX_TIMESTAMP else None


def local_timestamp(text: str, zone: ZoneInfo) -> int | None:
    """Microseconds since 1970-01-01 UTC of `YYYY-MM-DD[[T]HH:MM[:SS[.f…]]]`, a time of that zone; else None.

    None also for a time that the zone does not have, or has twice, because its clocks are changed.
    """
    found = _ISO.fullmatch(text)
    written = parse_timestamp(text, zone_required=False)
    if found is None or found[8] is not None or written is None:
        return None
    return in_zone(written, zone)


def in_zone(local_time: int, zone: ZoneInfo) -> int | None:
    """Microseconds since 1970-01-01 UTC of a time of that zone, given as if it were of UTC; else None, as above."""
    local = from_microseconds(local_time)
    offsets = {local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1)}
    if len(offsets) > 1:
        return None
    instant = local_time - offsets.pop() // _MICROSECOND
    return instant if MIN_TIMESTAMP <= instant <= MAX_TIMESTAMP else None


NO_ZONE = "its zone is missing; write it like 2026-01-05T12:00:00Z"
# Characters; a longer text resembles no point in time.
_LONGEST = 80
# What is wrong with a text that resembles a point in time, the most specific first.
_MISTAKES = (
    (r"\s.*|.*\s", "it has white space around it"),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a time of day and a zone are missing; write it like 2026-01-05T12:00:00Z"),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]*)?)?", NO_ZONE),
    (r".*:[0-9.]+\s*[+-][0-9]{4}", "a colon is missing in its zone; write it like +02:00"),
    (r".*:[0-9.]+\s*[+-][0-9]{1,2}", "its zone has no minutes; write it like +02:00"),
    (r".*:[0-9.]+\s*\[?[A-Za-z][A-Za-z/_ ]+\]?", "its zone is a name; write Z for UTC, or an offset like +02:00"),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].*[Zz]?", "write it like 2026-01-05T12:00:00.000000Z"),
    (r"[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}.*", "year, month and day are written like 2026-01-05T12:00:00Z"),
)


def timestamp_mistake(text: str, zone: ZoneInfo | None = None) -> str:
    """Why a text is not a point in time with a zone; with `zone`, why it is not one of that zone either."""
    if zone is not None and parse_timestamp(text, zone_required=False) is not None:
        return f"clocks in {zone.key} are changed then, so that the time is missing or occurs twice"
    found = _ISO.fullmatch(text)
    if found is not None and found[4] is not None and found[8] is not None:
        return "no calendar has it, or no zone is so far from UTC"
    for pattern, what in _MISTAKES if len(text) <= _LONGEST else ():
        if re.fullmatch(pattern, text, re.ASCII | re.DOTALL):
            return what
    return "write it like 2026-01-05T12:00:00Z"


def zone_offset(zone: str | None) -> int | None:
    """Microseconds by which a zone (`Z`, `±hh:mm`; None: UTC) is ahead of UTC; None if no zone is."""
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    total = hours * 60 + minutes
    if minutes > 59 or total > _MAX_OFFSET:
        return None
    return 60_000_000 * (-total if zone[0] == "-" else total)


def microseconds(instant: datetime) -> int:
    """Microseconds since 1970-01-01 UTC of an aware datetime."""
    return (instant - EPOCH) // _MICROSECOND


def from_microseconds(instant: int) -> datetime:
    """The aware UTC datetime of microseconds since 1970-01-01 UTC."""
    return EPOCH + instant * _MICROSECOND


def after(instant: int, duration: int) -> int:
    """The instant (µs) so long (µs) after another; the last of year 9999 where that would be later, which no record can
    write."""
    return min(instant + duration, MAX_TIMESTAMP)


def iso_text(instant: int) -> str:
    """ISO 8601 text of µs since 1970 in UTC, always with six decimal digits of seconds, as in records."""
    return from_microseconds(instant).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
