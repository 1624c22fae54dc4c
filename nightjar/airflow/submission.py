"""Builds the arguments of a backfill stage from a DAG run, and defines its exit codes and schedule.

This is the only place where values from a form reach a command line. They are passed as a list of arguments, never as a
shell string, and every value must match its pattern; the form checks it first, this module enforces it.

Nothing heavy is imported, so that a DAG file can import this module.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from typing import Any, Protocol

from nightjar.rules.errors import NightjarError
from nightjar.rules.lateness import largest_allowed_lateness
from nightjar.rules.names import IDENTIFIER, RULE_ID

# The program's other tasks. Runs the pending days before the run's own day.
PENDING = "pending"
# Brings Kafka to the lake, outside of any run.
ARCHIVE_NOW = "archive-now"

# Exit codes of a failed stage, and of a stage whose checks failed. Not 1, which is Python's own after a crash.
FAILED = 2
VERDICT = 3

# The lake allows one writer: every task that writes to it takes the only slot of this pool.
LAKE_POOL = "nightjar_lake"

# The field in which a person says why they approve rules. Not `reason`, the author's in the DAG's form: Airflow
# fills in that form's values.
APPROVAL_REASON = "approval_reason"

# The value of the form of `rule_backtest` that says whether anybody is asked to approve.
PUBLISH = "publish"

# The folder, in `data_dir`, of the backtests' drafts and reports, a folder for each run.
BACKTESTS = "backtests"

# Time between the latest arrival of a day's events on time and the day's run.
_MARGIN = timedelta(minutes=30)
_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)

# Patterns of the form's values. Values of groups are ids without spaces, `,` or `;`, which are separators.
_VALUE = r"[A-Za-z0-9._:@+/=~#-]{1,200}"
_RULE_ID = re.compile(RULE_ID)
_GROUP = re.compile(rf"{IDENTIFIER}={_VALUE}(,{_VALUE})*", re.ASCII)
_DAY_TEXT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_REMEDIES = {
    _RULE_ID: "Write a rule's id: lower-case letters, digits and . _ -, without spaces",
    _GROUP: "Write a field and its values, without spaces: customer_id=C1,C2",
    _DAY_TEXT: "Write YYYY-MM-DD",
}

_LONGEST_FOLDER = 120


class SubmissionError(NightjarError):
    """A stage cannot be submitted with these values."""


class FormError(SubmissionError):
    """The values of a form cannot be used. `problems` has all that is wrong, in the order of the form."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        counted = "1 value cannot" if len(problems) == 1 else f"{len(problems)} values cannot"
        listed = (f"- {problem}".replace("\n", "\n  ") for problem in problems)
        super().__init__("\n".join([f"{counted} be used", *listed]), where="the form")


class DagRun(Protocol):
    """The attributes of Airflow's DAG run that are used here."""

    run_id: str
    run_after: datetime
    data_interval_end: datetime | None


def delay() -> timedelta:
    """Time from the end of a day to its run: the largest allowed lateness of the declared streams plus half an hour.

    Rounded up to whole minutes for the schedule.

    Raises:
        NightjarError: the settings or the stream declarations cannot be read.
    """
    from nightjar.configuration.settings import load_settings

    lateness = timedelta(microseconds=largest_allowed_lateness(load_settings().streams))
    return -(-(lateness + _MARGIN) // _MINUTE) * _MINUTE


def schedule(dag_id: str, default: str = "") -> str | None:
    """Cron expression (UTC) of a DAG by the setting `schedules`, else `default`; None: it never runs by itself.

    An empty default stands for the night's: once a day, at the delay's time of day.
    """
    from nightjar.configuration.settings import load_settings

    given = load_settings().schedules.get(dag_id)
    if given is not None:
        return None if given == "off" else given
    if default:
        return default
    minutes = delay() % _DAY // _MINUTE
    return f"{minutes % 60} {minutes // 60} * * *"


def due(day: date) -> datetime:
    """When the run of the day is due: the first of the schedule that finds all its events on time.

    Without a schedule, when a run of the day may begin.

    Raises:
        NightjarError: as `delay` does.
    """
    from croniter import croniter

    over = datetime.combine(day, time(), UTC) + _DAY + delay()
    cron = schedule("nightly_backfill")
    return over if cron is None else croniter(cron, over - _MINUTE, ret_type=datetime).get_next()


def stage_arguments(stage: str, dag_run: DagRun, params: Mapping[str, Any]) -> list[str]:
    """The arguments of `backfill_stage.py`.

    params: `day` (text or None), `rules` and `groups` (lists of text, or None), `dry_run`, `publish`.

    Raises:
        SubmissionError: a value that does not match its pattern.
    """
    day = run_day(dag_run, params.get("day")).isoformat()
    arguments = [stage, "--run-id", run_folder(dag_run.run_id), "--day", day]
    if rules := asked_rules(params):
        arguments += ["--rules", ",".join(rules)]
    if groups := asked_groups(params):
        arguments += ["--groups", ";".join(f"{name}={','.join(values)}" for name, values in groups.items())]
    if params.get("dry_run"):
        arguments.append("--dry-run")
    if not params.get("publish", True):
        arguments.append("--no-publish")
    return arguments


def run_folder(run_id: str) -> str:
    """A folder name for a DAG run's staged data: unique per run and the same for each of its tries.

    Hadoop paths cannot contain colons; if a character had to be replaced, a hash keeps the name unique.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", run_id).lstrip("._-")[:_LONGEST_FOLDER] or "run"
    return safe if safe == run_id else f"{safe}-{sha256(run_id.encode()).hexdigest()[:8]}"


def run_day(dag_run: DagRun, asked: str | None = None) -> date:
    """The day (UTC) a DAG run processes: the requested one, else the last one that was due when its interval ended.

    A run triggered without a logical date has no interval; then the time it should run after counts.
    """
    if asked is None:
        return ((dag_run.data_interval_end or dag_run.run_after) - delay() - _DAY).date()
    return day_of("day", asked)


def day_of(field: str, written: object) -> date:
    """The day that a field of a form names.

    Raises:
        SubmissionError: it names none.
    """
    try:
        return date.fromisoformat(*_matching(field, [written], _DAY_TEXT))
    except ValueError:
        where = f"{field} {written!r:.40}"
        raise SubmissionError("is not a valid date", where=where, remedy=_REMEDIES[_DAY_TEXT]) from None


def asked_rules(params: Mapping[str, Any]) -> list[str]:
    """The ids of rules in a form; none: all.

    Raises:
        SubmissionError: one is not an id.
    """
    return _matching("rules", params.get("rules"), _RULE_ID)


def asked_groups(params: Mapping[str, Any]) -> dict[str, list[str]]:
    """The groups in a form, values by field; none: all.

    Raises:
        SubmissionError: one is not a field and its values.
    """
    merged: dict[str, list[str]] = {}
    for group in _matching("groups", params.get("groups"), _GROUP):
        name, _, values = group.partition("=")
        merged.setdefault(name, []).extend(values.split(","))
    return merged


def has_options(params: Mapping[str, Any]) -> bool:
    """Whether the form restricts the run in any way; then the run does not process earlier pending days."""
    return any(params.get(name) for name in ("day", "rules", "groups", "dry_run")) or not params.get("publish", True)


def options(params: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a form that restrict the run, without the day."""
    found = {name: list(params[name]) for name in ("rules", "groups") if params.get(name)}
    switches = {"dry_run": True} if params.get("dry_run") else {}
    return found | switches | ({} if params.get("publish", True) else {"publish": False})


def described(dag_run: DagRun, params: Mapping[str, Any]) -> str:
    """What a run is about, in words.

    Raises:
        SubmissionError: the day cannot be used.
    """
    words = [
        f"the day {run_day(dag_run, params.get('day'))} (UTC)",
        f"rules {', '.join(map(str, params['rules']))}" if params.get("rules") else "all rules",
        f"groups {'; '.join(map(str, params['groups']))}" if params.get("groups") else "all groups",
    ]
    words += ["dry run"] if params.get("dry_run") else []
    words += [] if params.get("publish", True) else ["nothing published to Kafka"]
    return ", ".join(words)


def _matching(name: str, values: Iterable[object] | None, pattern: re.Pattern[str]) -> list[str]:
    kept, wrong = [], []
    for value in values or ():
        if isinstance(value, str) and pattern.fullmatch(value):
            kept.append(value)
        else:
            wrong.append(f"{value!r:.100}")
    if wrong:
        raise SubmissionError("is not valid", where=f"{name} {', '.join(wrong)}", remedy=_REMEDIES[pattern])
    return kept
