"""Checks a file of rules without a service: errors, doubts, and what the rules retain."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nightjar.configuration.settings import Settings
from nightjar.operations.retention import Estimate, estimates
from nightjar.rules.doubts import doubts, misspelt
from nightjar.rules.errors import Problem
from nightjar.rules.model import Rule, load_rules, parse_rules
from nightjar.rules.streams import Stream


@dataclass(frozen=True)
class CheckedRules:
    """Valid rules. costs: by rule id, where the stream's rate is known; warnings: what is doubtful in the rules."""

    rules: list[Rule]
    costs: dict[str, Estimate]
    warnings: list[Problem]


def check_file(
    settings: Settings, streams: Mapping[str, Stream], file: Path, rates: Mapping[str, float]
) -> CheckedRules:
    """Check the rules of a file. rates: events per day by stream, instead of those in the lake.

    Raises:
        RuleError: everything wrong with the rules, or that one would retain more than `max_retained_events`.
    """
    return checked(settings, streams, load_rules(file, streams), rates, where=str(file))


def check_text(
    settings: Settings, streams: Mapping[str, Stream], text: str, rates: Mapping[str, float], *, where: str
) -> CheckedRules:
    """Check the rules of a text as `check_file` does. where: what the text is called in errors."""
    return checked(settings, streams, parse_rules(text, streams, where=where), rates, where=where)


def checked(
    settings: Settings,
    streams: Mapping[str, Stream],
    rules: list[Rule],
    rates: Mapping[str, float],
    *,
    where: str,
) -> CheckedRules:
    """Check valid rules as `check_file` does. where: what they are called in errors."""
    costs = estimates(settings, streams, rules, rates, where=where)
    warnings = [
        Problem(f"rule {rule.id}, {doubt.place}", doubt.found, doubt.message, doubt.remedy)
        for rule in rules
        for doubt in (*doubts(rule, streams[rule.stream]), *misspelt(rule, rules))
    ]
    return CheckedRules(rules, costs, warnings)
