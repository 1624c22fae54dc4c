"""One JSON object a line for each figure: what was measured, against which control, in turns in the same run."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import structlog

# Standard output has figures alone: what the product logs in a bench's own process goes beside it.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


def timed(work: Callable[[], object]) -> float:
    """Seconds of wall time one call takes."""
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

    goal: the largest ratio that meets it, None where there is no goal. at_most: a goal that is a value, in the unit.
    Returns whether it is met.
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


def say(text: str) -> None:
    """Progress, for the person who waits; figures alone go to standard output."""
    print(text, file=sys.stderr, flush=True)
