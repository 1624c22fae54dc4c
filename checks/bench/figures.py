"""Prints figures as JSON lines: each is measured in turns with its control in the same run."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import structlog

# Standard output is for figures only, so the product's logs in a benchmark's process go to standard error.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


def timed(work: Callable[[], object]) -> float:
    """Wall time of one call, in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def emit(
    name: str,
    unit: str,
    values: list[float],
    control: str,
    control_values: list[float],
    *,
    goal: float | None,
    at_most: float | None = None,
) -> bool:
    """Print a figure: medians, the ratio of each turn to the control of the same turn, and whether the goal is met.

    goal: the highest ratio that meets it, None if there is no goal. at_most: a goal for the value, in its unit. Returns
    whether the goal is met.
    """
    ratios = [v / c for v, c in zip(values, control_values, strict=True)]
    ratio = statistics.median(ratios)
    value = statistics.median(values)
    goals = [ratio <= goal] if goal is not None else []
    goals += [value <= at_most] if at_most is not None else []
    met = all(goals) if goals else None
    figure = {
        "name": name,
        "value": round(value, 6),
        "unit": unit,
        "control": control,
        "control_value": round(statistics.median(control_values), 6),
        "ratio": round(ratio, 3),
        "repeats": len(values),
        "spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "goal": goal,
        **({} if at_most is None else {"at_most": at_most, "values": [round(min(values), 3), round(max(values), 3)]}),
        "met": met,
    }
    print(json.dumps(figure), flush=True)
    return met is not False


def log_progress(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)
