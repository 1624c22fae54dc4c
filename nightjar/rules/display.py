"""Rules and measures as people read them, on a terminal and on pages."""

from __future__ import annotations

import difflib
import math
from typing import Any

import yaml

from nightjar.rules.model import PROVENANCE, Rule, rule_to_mapping
from nightjar.rules.versions import RuleVersion

# Doubles of at least this size are shown unformatted: they have no digits after the point.
_HUGE = 1e15


def readable(value: Any) -> str:
    """Format a measure for people: doubles with two decimals, small ones with two significant digits."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {readable(each)}" for name, each in value.items())
    if not isinstance(value, float) or not math.isfinite(value) or abs(value) >= _HUGE:
        return "null" if value is None else str(value)
    return f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:,.2f}"


def changed_lines(before: RuleVersion | None, after: Rule, title: str) -> list[str]:
    """The lines of a unified diff between a version of a rule (None: there is none) and the rule."""
    lines = _lines(before.rule) if before is not None else []
    of_before = f"{after.id} version {before.version}" if before is not None else "(not published)"
    return list(difflib.unified_diff(lines, _lines(after), of_before, title, lineterm="", n=99))


def _lines(rule: Rule) -> list[str]:
    return yaml_text(rule, provenance=False).splitlines()


def yaml_text(rule: Rule, *, provenance: bool = True) -> str:
    """A rule as people write it; characters that would not be shown are escaped."""
    written = {key: value for key, value in rule_to_mapping(rule).items() if provenance or key not in PROVENANCE}
    for unescaped in (True, False):
        text: str = yaml.safe_dump(
            written, sort_keys=False, default_flow_style=None, allow_unicode=unescaped, width=110
        )
        if all(line.isprintable() for line in text.splitlines()):
            break
    return text
