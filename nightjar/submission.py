"""How a stage of the backfill is handed to spark-submit: its arguments, Spark's settings, and where its program is.

What a person filled into a form reaches a command line here and nowhere else. It travels as a list of arguments, never
as a shell string, and every value must match its pattern: the form says so first, this module insists on it.

Nothing heavy is imported before `spark_conf` is called, so that a DAG file may import this module.
"""

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime, timedelta
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from rules.errors import NightjarError
from rules.lateness import largest_allowed_lateness

STAGES = ("archive", "evaluate", "gate", "reconcile", "publish")

# The program's other task: it runs the days before the run's own that still need it.
PENDING = "pending"

APPLICATION = Path(__file__).with_name("backfill_stage.py")

# The program's exit code where it refuses: 1 is what any crash of Python, and 2 what an error ends with.
VERDICT = 3

# This environment's own Spark and Python, whatever PATH and SPARK_HOME say.
SPARK_HOME = str(Path(find_spec("pyspark").origin).parent)
SPARK_SUBMIT = f"{SPARK_HOME}/bin/spark-submit"
SPARK_ENVIRONMENT = {"SPARK_HOME": SPARK_HOME, "PYSPARK_PYTHON": sys.executable}

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
    from nightjar.settings import load_settings

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
        raise SubmissionError("is no day of the calendar", where=f"day {asked!r}", remedy="Write YYYY-MM-DD") from None


def pending(dag_run: DagRun, params: Mapping[str, Any]) -> list[str]:
    """The pending days before a DAG run's own, with the reasons: none where the form asks for anything in particular.

    Raises:
        NightjarError: a setting, a declaration or the lake cannot be read.
    """
    if any(params.get(name) for name in ("day", "rules", "groups", "dry_run")) or not params.get("publish", True):
        return []
    from backfill.pending import pending_days
    from nightjar.backfill_config import backfill_config
    from nightjar.settings import load_settings
    from rules.streams import load_streams

    settings = load_settings()
    config = backfill_config(settings, load_streams(settings.streams))
    return [str(found) for found in pending_days(config, before=run_day(dag_run))]


def spark_conf() -> dict[str, str]:
    """Every Spark setting of the stages but the master, which is the Spark connection's to say.

    Raises:
        SettingsError: a setting that cannot be.
        JarsError: Spark's jars have not been resolved.
    """
    from lake.session import spark_settings
    from nightjar.lake_config import lake_config
    from nightjar.settings import load_settings
    from rules.streams import load_streams

    settings = load_settings()
    conf = spark_settings(lake_config(settings, load_streams(settings.streams)))
    # spark-submit would begin with hundreds of lines of Spark's own, and a person looks for the last ones of the stage.
    return {**{name: value for name, value in conf.items() if name != "spark.master"}, "spark.log.level": "WARN"}


def _matching(name: str, values: Iterable[object] | None, pattern: str) -> list[str]:
    kept = []
    for value in values or ():
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII) or value.endswith("\n"):
            raise SubmissionError("cannot be used", where=f"{name} {value!r}", remedy=f"It must match {pattern}")
        kept.append(value)
    return kept


def _merged(groups: Collection[str]) -> dict[str, list[str]]:
    merged: dict[str, list[str]] = {}
    for group in groups:
        name, _, values = group.partition("=")
        merged.setdefault(name, []).extend(values.split(","))
    return merged
