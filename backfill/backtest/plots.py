"""The plots of a backtest's report, as SVG elements of its page.

Each is drawn twice, for a wide and for a narrow window, and takes its colours from the page's variables, so that it
follows a dark mode.
"""

import io
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import date
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from nightjar.backfill.backtest.comparison import BacktestResult, Curve

# Colours that stand for the page's variables, in the SVG that Matplotlib writes.
_INK, _SOFT, _LINE, _DRAFT, _LIVE = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {_INK: "--ink", _SOFT: "--soft", _LINE: "--line", _DRAFT: "--draft", _LIVE: "--live"}
_STYLE: Any = {
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _SOFT,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "grid.color": _LINE,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "nightjar",
}
# Inches, and how many labels there is room for.
_WIDE, _NARROW = (8.0, 12), (4.2, 6)
# Days between two labels.
_STEPS = (1, 2, 7, 14, 28, 91, 182, 364)
# An axis is logarithmic from this ratio of its ends on.
_DECADES = 30.0
# An axis has no room for thresholds beyond this.
_LARGEST = 1e290
# As many thresholds are marked one by one.
_MARKED = 40


def days_plot(found: BacktestResult) -> str:
    """Alerts of each day, beside those of the live version."""

    def draw(axes: Any, labels: int) -> None:
        days = range(len(found.days))
        if found.change is not None:
            axes.bar(days, found.change.live_by_day, color=_LIVE, width=0.9, label="live version")
        axes.bar(days, found.by_day, color=_DRAFT, width=0.5, label="this draft")
        axes.set_ylabel("alerts")
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(_number))
        axes.set_ylim(bottom=0)
        step = next((step for step in _STEPS if len(days) / step <= labels), _STEPS[-1])
        axes.set_xticks(days[::step], _day_labels(found.days[::step]))
        axes.set_xlim(-0.7, len(days) - 0.3)

    return _both("alerts a day", 2.3, draw)


def curve_plot(curve: Curve, days: int) -> str:
    """Alerts a day by threshold."""
    points = [point for point in curve.points if point.alerts and abs(point.threshold) < _LARGEST]
    if not points or abs(curve.current) >= _LARGEST:
        return ""
    x, y = [point.threshold for point in points], [point.alerts / days for point in points]

    def draw(axes: Any, labels: int) -> None:
        marker = "o" if len(points) <= _MARKED else ""
        axes.plot(x, y, color=_DRAFT, marker=marker, markersize=4, label="alerts a day")
        axes.axvline(curve.current, color=_INK, linewidth=1, linestyle="--", label=f"now {_number(curve.current)}")
        _scale(axes, "x", [*x, curve.current], labels)
        _scale(axes, "y", y, 6)
        if len(ticks := sorted({*x, curve.current})) <= labels and axes.get_xscale() == "linear":
            axes.set_xticks(ticks)
        axes.set_xlabel(f"{curve.name} {curve.operator} …")
        axes.set_ylabel("alerts a day")

    return _both(f"alerts a day by threshold of {curve.name}", 2.9, draw)


def _scale(axes: Any, which: str, values: list[float], labels: int) -> None:
    """A linear axis, or a logarithmic one for values of several orders of magnitude, with labels at round values."""
    axis = getattr(axes, f"{which}axis")
    if min(values) > 0 and max(values) / min(values) >= _DECADES:
        getattr(axes, f"set_{which}scale")("log")
        steps = (1.0, 2.0, 5.0) if max(values) / min(values) < 10 ** (labels / 3) else (1.0,)
        rounds = [step * 10.0**power for power in range(-300, 300) for step in steps]
        least, most = bisect_right(rounds, min(values)) - 1, bisect_left(rounds, max(values))
        getattr(axes, f"set_{which}lim")(rounds[max(least, 0)], rounds[min(most, len(rounds) - 1)])
        axis.set_major_locator(LogLocator(subs=steps, numticks=99))
        axis.set_minor_locator(NullLocator())
    else:
        whole = which == "x" and all(float(value).is_integer() for value in values)
        axis.set_major_locator(MaxNLocator(nbins=labels, integer=whole))
        if which == "y":
            axes.set_ylim(bottom=0)
    axis.set_major_formatter(FuncFormatter(_number))


def _number(value: float, _position: object = None) -> str:
    return f"{value:,.6g}"


def _day_labels(days: list[date]) -> list[str]:
    """Days as people write them, with the year where it begins."""
    texts = [f"{day.day} {day:%b}" for day in days]
    new = [True, *(before.year != day.year for before, day in pairwise(days))]
    return [f"{text}\n{day.year}" if first else text for text, day, first in zip(texts, days, new, strict=True)]


def _both(name: str, height: float, draw: Callable[[Any, int], None]) -> str:
    """The plot for a wide and for a narrow window."""
    pictures = []
    for size, (width, labels) in (("wide", _WIDE), ("narrow", _NARROW)):
        with mpl.rc_context(_STYLE):
            figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
            draw(axes, labels)
            if len(axes.get_legend_handles_labels()[1]) > 1:
                axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
            plt.close(figure)
        svg = text.getvalue()[text.getvalue().index("<svg") :]
        for colour, variable in _VARIABLES.items():
            svg = svg.replace(colour, f"var({variable})")
        pictures.append(f'<div class="{size}" role="img" aria-label="{name}">{svg}</div>')
    return "\n".join(pictures)
