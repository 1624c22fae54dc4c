"""A backtest as one HTML file, with its plots inside, and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nightjar.backfill.backtest.comparison import BacktestResult
from nightjar.backfill.backtest.plots import curve_plot, days_plot
from nightjar.rules.display import changed_lines, readable, yaml_text
from nightjar.rules.errors import printable
from nightjar.rules.model import rule_to_mapping
from nightjar.rules.timestamps import MIN_TIMESTAMP, iso_text
from nightjar.storage.paths import whole

# Examples that are shown before the others are asked for.
_SHOWN = 5


def as_mapping(found: BacktestResult) -> dict[str, Any]:
    """One rule's result for JSON: the members of `BacktestResult`, with its `thresholds`, precision and recall."""
    mapping = {"rule_id": found.rule_id, **asdict(found), "rule": rule_to_mapping(found.rule)}
    mapping["thresholds"] = [asdict(point) for point in found.thresholds]
    if found.live is not None:
        mapping["live"] = rule_to_mapping(found.live.rule)
    if found.quality is not None:
        mapping["quality"] |= {"precision": found.quality.precision, "recall": found.quality.recall}
    return mapping


def write_report(found: Sequence[BacktestResult], path: Path, reason: str | None = None) -> None:
    """Write the page; whole or not at all. reason: why the drafts are proposed; None: what they say themselves."""
    environment = Environment(
        loader=PackageLoader("nightjar.backfill.backtest", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda share: "" if share is None else f"{share:.1%}"
    environment.filters["number"] = lambda value: f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    environment.filters["shown"] = printable
    environment.filters["words"] = in_words
    pages = [
        {
            "result": each,
            "reason": reason or each.rule.reason,
            "lines": _rule_lines(each),
            "since": None if each.live is None else _since(each.live.effective),
            "days": days_plot(each),
            "curve": None if each.curve is None else curve_plot(each.curve, len(each.days)),
        }
        for each in found
    ]
    text = environment.get_template("report.html").render(
        pages=pages, first=found[0].days[0], last=found[0].days[-1], shown=_SHOWN
    )
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def in_words(group: str) -> str:
    """A group, which is a JSON object as text, as people read it."""
    try:
        fields = json.loads(group)
    except (ValueError, RecursionError):
        return printable(group)
    if not isinstance(fields, dict):
        return printable(group)
    return (
        ", ".join(f"{printable(name)} {printable(readable(value))}" for name, value in fields.items()) or "all events"
    )


def _rule_lines(found: BacktestResult) -> list[str]:
    """The rule as people write it; where it differs from the live version, as a unified diff."""
    if found.live is not None and (lines := changed_lines(found.live, found.rule, "this draft")):
        return lines[3:]  # without the names, which stand above
    return yaml_text(found.rule, provenance=False).splitlines()


def _since(effective: int) -> str | None:
    """The effective time as people read it; None: it applies to all of the past."""
    return None if effective <= MIN_TIMESTAMP else f"{iso_text(effective)[:16].replace('T', ' ')} UTC"
