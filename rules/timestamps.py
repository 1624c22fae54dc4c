"""Points in time: conversion between ISO 8601 text and microseconds since 1970 in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# Years 1 to 9999, which datetime, Arrow, Polars and Spark all support.
MIN_TIMESTAMP = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
MAX_TIMESTAMP = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND

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
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    fraction = int((found[7] or "0")[:6].ljust(6, "0"))
    try:
        written = datetime(year, month, day, hour, minute, second, fraction, tzinfo=UTC)
    except ValueError:
        return None
    offset = _offset_minutes(found[8])
    if offset is None:
        return None
    instant = (written - EPOCH) // _MICROSECOND - offset * 60_000_000
    return instant if MIN_TIMESTAMP <= instant <= MAX_TIMESTAMP else None


def _offset_minutes(zone: str | None) -> int | None:
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    total = hours * 60 + minutes
    if minutes > 59 or total > _MAX_OFFSET:
        return None
    return -total if zone[0] == "-" else total


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
