"""Parses the options of a backfill, given as text by a person or Airflow, into a `RunRequest`."""

import re
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from nightjar.backfill.config import BackfillError, RunRequest
from nightjar.rules.names import did_you_mean
from nightjar.rules.streams import Stream

_MOST_DAYS = 3660
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def request_of(
    day: date,
    streams: Mapping[str, Stream],
    *,
    run_id: str | None = None,
    rules: str = "",
    groups: str = "",
    dry_run: bool = False,
    publish: bool = True,
) -> RunRequest:
    """The request for a run. rules: comma-separated ids; groups: `field=value,value;field=value`.

    Raises:
        BackfillError: a value that cannot be parsed, or a field that no stream has.
    """
    if run_id is None:
        now = datetime.fromtimestamp(time.time(), UTC)
        run_id = f"{day.isoformat()}-{now:%Y%m%dT%H%M%S%f}"
    elif not _RUN_ID.fullmatch(run_id):
        raise BackfillError(
            "is not a valid folder name", where=f"run id {run_id!r}", remedy="Use letters, digits, . _ -"
        )
    return RunRequest(
        run_id,
        day,
        rules=tuple(sorted({name.strip() for name in rules.split(",") if name.strip()})),
        groups=_groups(groups, streams),
        publish=publish,
        dry_run=dry_run,
    )


def days_of(day: str | None, days: str | None) -> list[date]:
    """The days of `--day D` or `--days A..B`.

    Raises:
        BackfillError: none or both are given, or a date is not valid or the last that there is.
    """
    if (day is None) == (days is None):
        raise BackfillError("exactly one of --day and --days is required", remedy="Write --day 2026-11-20")
    first, _, last = (day or days or "").partition("..")
    begin, end = _day(first), _day(last or first)
    if end < begin or end - begin > timedelta(days=_MOST_DAYS):
        raise BackfillError(
            "is not a valid range of days", where=f"--days {day or days}", remedy="Write --days 2026-11-01..2026-11-20"
        )
    return [begin + timedelta(days=number) for number in range((end - begin).days + 1)]


def _day(text: str) -> date:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise BackfillError("is not a valid date", where=repr(text), remedy="Write it like 2026-11-20") from None
    if found == date.max:
        raise BackfillError("has no day after it, where it would end", where=repr(text), remedy="Give an earlier day")
    return found


def _groups(text: str, streams: Mapping[str, Stream]) -> dict[str, tuple[str, ...]]:
    fields = {name for stream in streams.values() for name in stream.fields}
    groups: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, values = part.partition("=")
        if name not in fields:
            raise BackfillError(
                "is not a field of any stream", where=f"group {part!r}", remedy=did_you_mean(name, fields, "Fields are")
            )
        found = tuple(value.strip() for value in values.split(",") if value.strip())
        if not found:
            raise BackfillError("has no value", where=f"group {part!r}", remedy="Write customer_id=c1,c2")
        groups[name] = found
    return groups
