"""How a stage of the backfill is asked for: its arguments, its exit codes, and the times at which it is due.

What a person filled into a form reaches a command line here and nowhere else. It travels as a list of arguments, never
as a shell string, and every value must match its pattern: the form says so first, this module insists on it.

Nothing heavy is imported, so that a DAG file may import this module.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any, Protocol

from rules.errors import NightjarError
from rules.lateness import largest_allowed_lateness

# The program's other task: it runs the days before the run's own that still need it.
PENDING = "pending"

# The program's exit codes where it fails, and where it refuses: 1 is what a crash of Python itself ends with.
FAILED = 2
VERDICT = 3

# The lake has one writer: whatever works on it takes the one slot of this pool.
LAKE_POOL = "nightjar_lake"

# A day is run so long after its last event may have arrived.
_MARGIN = timedelta(minutes=30)
_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)

# What the form accepts. Values of groups are ids: no spaces, and neither `,` nor `;`, which separate them.
RULE_ID = r"^[a-z0-9][a-z0-9._-]{0,99}$"
GROUP = r"^[A-Za-z_][A-Za-z0-9_]{0,62}=[A-Za-z0-9._:@+/=~#-]{1,200}(,[A-Za-z0-9._:@+/=~#-]{1,200})*$"
DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"

_LONGEST_FOLDER = 120


class SubmissionError(NightjarError):
    """A stage cannot be submitted as asked."""


class DagRun(Protocol):
    """What is looked at of Airflow's DAG run."""

    run_id: str
    run_after: datetime
    data_interval_end: datetime | None


def delay() -> timedelta:
    """From the end of a day to its run: the largest allowed lateness of the declared streams, and half an hour.

    In whole minutes, as a schedule has them.

    Raises:
        NightjarError: the settings or the stream declarations cannot be read.
    """
    from nightjar.configuration.settings import load_settings

    lateness = timedelta(microseconds=largest_allowed_lateness(load_settings().streams))
    return -(-(lateness + _MARGIN) // _MINUTE) * _MINUTE


def schedule() -> str:
    """When a night begins (UTC), as cron writes it: once a day, at the delay's time of day."""
    minutes = delay() % _DAY // _MINUTE
    return f"{minutes % 60} {minutes // 60} * * *"


def stage_arguments(stage: str, dag_run: DagRun, params: Mapping[str, Any]) -> list[str]:
    """The arguments of `backfill_stage.py`.

    params: `day` (text or None), `rules` and `groups` (lists of text, or None), `dry_run`, `publish`.

    Raises:
        SubmissionError: a value that does not match its pattern.
    """
    day = run_day(dag_run, params.get("day")).isoformat()
    arguments = [stage, "--run-id", run_folder(dag_run.run_id), "--day", day]
    if rules := _matching("rules", params.get("rules"), RULE_ID):
        arguments += ["--rules", ",".join(rules)]
    if groups := _merged(_matching("groups", params.get("groups"), GROUP)):
        arguments += ["--groups", ";".join(f"{name}={','.join(values)}" for name, values in groups.items())]
    if params.get("dry_run"):
        arguments.append("--dry-run")
    if not params.get("publish", True):
        arguments.append("--no-publish")
    return arguments


def run_folder(run_id: str) -> str:
    """A folder name for a DAG run's staged data: the same for each try, another for each run.

    Hadoop's paths take no colons; where a character had to be replaced, a hash keeps two runs apart.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", run_id).lstrip("._-")[:_LONGEST_FOLDER] or "run"
    return safe if safe == run_id else f"{safe}-{sha256(run_id.encode()).hexdigest()[:8]}"


def run_day(dag_run: DagRun, asked: str | None = None) -> date:
    """The day (UTC) a DAG run is about: the one asked for, else the last whose run was due when its interval ended.

    A run triggered without a logical date has no interval; what counts is when it is to run.
    """
    if asked is None:
        return ((dag_run.data_interval_end or dag_run.run_after) - delay() - _DAY).date()
    try:
        return date.fromisoformat(*_matching("day", [asked], DAY))
    except ValueError:
        raise SubmissionError("is not a valid date", where=f"day {asked!r}", remedy="Write YYYY-MM-DD") from None


def is_asked(params: Mapping[str, Any]) -> bool:
    """Whether the form asks for anything in particular; then earlier pending days are not this run's business."""
    return any(params.get(name) for name in ("day", "rules", "groups", "dry_run")) or not params.get("publish", True)


def _matching(name: str, values: Iterable[object] | None, pattern: str) -> list[str]:
    kept = []
    for value in values or ():
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII) or value.endswith("\n"):
            raise SubmissionError("is not valid", where=f"{name} {value!r}", remedy=f"It must match {pattern}")
        kept.append(value)
    return kept


def _merged(groups: Collection[str]) -> dict[str, list[str]]:
    merged: dict[str, list[str]] = {}
    for group in groups:
        name, _, values = group.partition("=")
        merged.setdefault(name, []).extend(values.split(","))
    return merged
