"""Estimates how many events rules would retain, from given event rates or those measured in the lake."""

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nightjar.configuration.settings import Settings
from nightjar.lake import delta, stream_state
from nightjar.lake.rates import events_per_day
from nightjar.lake.tables import RULE_STATUS
from nightjar.rules.errors import Problem, RuleError, SettingsError
from nightjar.rules.model import Rule
from nightjar.rules.retention import retained, too_much
from nightjar.rules.streams import Stream, stream_named
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.rules.versions import RuleSet, RuleVersion


@dataclass(frozen=True)
class Estimate:
    """What a rule costs: events of its stream per day, and how many of them it retains."""

    per_day: float
    retained: int


def given_rates(options: Iterable[str], file: Path | None, streams: Mapping[str, Stream]) -> dict[str, float]:
    """Events per day by stream, from STREAM=NUMBER options and a TOML file of the same; options win.

    Raises:
        SettingsError: an unknown stream or a value that is not a number of events.
    """
    written: dict[str, object] = {} if file is None else dict(_toml(file))
    for option in options:
        name, _, number = option.partition("=")
        written[name] = number
    return {name: _rate(name, value, streams) for name, value in written.items()}


def estimates(
    settings: Settings, streams: Mapping[str, Stream], rules: Iterable[Rule], given: Mapping[str, float], *, where: str
) -> dict[str, Estimate]:
    """What each rule with windows would cost, by rule id; omits rules on streams of unknown rate.

    A rule retains for its own windows and for those of the rules that it depends on (S23.4, S24.4): among `rules`, or
    published, as far as the lake knows them.

    Raises:
        RuleError: a rule would retain more than `max_retained_events`; it has the figures.
    """
    found: dict[str, Estimate] = {}
    problems: list[Problem] = []
    rules = list(rules)
    unknown = {rule.stream for rule in rules} - given.keys()
    rates = {**given, **{name: events_per_day(settings.lake, streams[name]) for name in unknown}}
    # of which the lake is not asked for nothing
    beside = _published(settings, streams) if any(rates.values()) else []
    for version in _with_what_they_need(rules, beside):
        rule = version.rule
        rate = rates[rule.stream]
        if rate is None or not (rule.aggregates or rule.unless) or not rule.state.is_evaluated:
            continue
        if (problem := too_much(version, rate, settings.max_retained_events)) is not None:
            problems.append(Problem(f"rule {rule.id}, measures", problem.found, problem.message, problem.remedy))
        found[rule.id] = Estimate(rate, retained(version, rate))
    if problems:
        raise RuleError(problems, where=where)
    return found


def _published(settings: Settings, streams: Mapping[str, Stream]) -> list[Rule]:
    """The newest versions of the rules that the lake knows."""
    if not delta.exists(settings.lake, RULE_STATUS):
        return []
    versions = stream_state.rule_book(settings.lake, streams).ruleset.versions
    return [*{version.rule.id: version.rule for version in versions}.values()]


def _with_what_they_need(rules: Sequence[Rule], published: Iterable[Rule]) -> list[RuleVersion]:
    """A version of each rule, with what it depends on of the other rules and of those that are published."""
    own = {rule.id for rule in rules}
    others = [rule for rule in published if rule.id not in own and rule.state.is_evaluated]
    return [version for version in RuleSet.of([*others, *rules], MIN_TIMESTAMP).versions if version.rule.id in own]


def _toml(file: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot be read ({error.strerror})", where=str(file), remedy="Name a TOML file") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"is not TOML: {error}", where=str(file), remedy="Write transactions = 200000") from None


def _rate(name: str, value: object, streams: Mapping[str, Stream]) -> float:
    stream_named(name, streams)
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise SettingsError(
            f"{str(value)[:60]!r} is not a number of events per day", where=name, remedy=f"Write {name}=200000"
        )
    return number
