"""Checks the forms of the DAGs before anything runs: all problems at once, in words.

How it works: Airflow compares a form with its JSON Schema, which ends at the first problem and shows the schema. So the
schemas of our DAGs only choose the fields to show; the first task of a DAG checks the values here, where the published
rules and the clock are known.

What it does not do: keep a wrong value from a command line, which is submission.py's.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from nightjar.airflow.submission import DagRun, FormError, SubmissionError, asked_groups, asked_rules, run_day
from nightjar.configuration.settings import Settings
from nightjar.rules.errors import RuleError
from nightjar.rules.names import did_you_mean, rule_meant
from nightjar.rules.streams import Stream

T = TypeVar("T")
Streams = Mapping[str, Stream]


class Problems:
    """Collects what is wrong with the values of a form. found: a text for each problem."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, what: str, *, where: str, remedy: str) -> None:
        """Add a problem."""
        self.found.append(str(SubmissionError(what, where=where, remedy=remedy)))

    def tried(self, value: Callable[[], T]) -> T | None:
        """What the function returns; None if it raises an error, which is then added."""
        try:
            return value()
        except RuleError as error:
            self.found += map(str, error.problems)
        except SubmissionError as error:
            self.found.append(str(error))
        return None


def check_night(
    params: Mapping[str, Any], dag_run: DagRun, settings: Settings, streams: Streams, now: datetime
) -> date:
    """The day that a form of `nightly_backfill` asks for. now: the time, with its zone.

    Raises:
        FormError: a value cannot be used. KafkaError: the published rules cannot be read.
    """
    problems = Problems()
    day = problems.tried(lambda: run_day(dag_run, params.get("day")))
    if day is not None:
        # Arrivals that producers set do not follow the clock, so nobody knows when their day is over.
        may_run_early = settings.arrival != "broker" or bool(params.get("dry_run"))
        _check_over(problems, day, streams, now, early=may_run_early)
    asked = [problems.tried(partial(asked_rules, {"rules": [rule]})) or [] for rule in params.get("rules") or ()]
    if rules := [rule for each in asked for rule in each]:
        _check_published(problems, rules, settings, streams)
    fields = {name: None for stream in streams.values() for name in stream.fields}
    for group in params.get("groups") or ():
        for name in problems.tried(partial(asked_groups, {"groups": [group]})) or ():
            if name not in fields:
                remedy = did_you_mean(name, fields, "Fields are")
                problems.add("is not a field of any stream", where=f"groups {group}", remedy=remedy)
    if problems.found or day is None:
        raise FormError(problems.found)
    return day


def _check_over(problems: Problems, day: date, streams: Streams, now: datetime, *, early: bool) -> None:
    """Whether no event of the day can arrive any more, unless it may be run early: a dry run shows what is there."""
    lateness = max((stream.allowed_lateness for stream in streams.values()), default=0)
    over = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1, microseconds=lateness)
    today = now.astimezone(UTC).date()
    if day > today:
        problems.add("is in the future", where=f"day {day}", remedy=f"Today is {today} (UTC)")
    elif now < over and not early:
        remedy = f"Run it from {over:%Y-%m-%d %H:%M} UTC on, or as a dry run"
        problems.add("is not over: its events may still arrive", where=f"day {day}", remedy=remedy)


def _check_published(problems: Problems, rules: list[str], settings: Settings, streams: Streams) -> None:
    from nightjar.kafka.rule_topics import rule_book

    known = list(rule_book(settings, streams).ruleset.rule_ids)
    for rule in rules:
        if rule not in known:
            problems.add("was never published", where=f"rules {rule}", remedy=rule_meant(rule, known))
