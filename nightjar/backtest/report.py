"""A backtest as one HTML file, with its plots inside, and as JSON."""

import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from backfill.backtest_comparison import Comparison, Curve
from storage.paths import whole

_DRAFT, _LIVE = "#2563a8", "#b0b7bf"


def as_mapping(found: Comparison) -> dict[str, Any]:
    """One rule's result for JSON: the members of `Comparison`, with precision and recall."""
    mapping = asdict(found)
    if found.quality is not None:
        mapping["quality"] |= {"precision": found.quality.precision, "recall": found.quality.recall}
    return mapping


def write_report(found: Sequence[Comparison], path: Path) -> None:
    """Write the page; whole or not at all."""
    environment = Environment(
        loader=PackageLoader("nightjar.backtest", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["percent"] = lambda share: "" if share is None else f"{share:.1%}"
    environment.filters["number"] = lambda value: f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    pages = [
        {
            "result": each,
            "days": _days_plot(each),
            "curve": None if each.curve is None else _curve_plot(each.curve, len(each.days)),
        }
        for each in found
    ]
    text = environment.get_template("report.html").render(pages=pages, first=found[0].days[0], last=found[0].days[-1])
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _days_plot(found: Comparison) -> str:
    figure, axes = _axes(2.4)
    if found.change is not None:
        axes.bar(found.days, found.change.live_by_day, color=_LIVE, width=0.9, label="live version")
    axes.bar(found.days, found.by_day, color=_DRAFT, width=0.5, label="this draft")
    axes.set_ylabel("alerts")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis_date()
    figure.autofmt_xdate()
    axes.legend(frameon=False)
    return _svg(figure)


def _curve_plot(curve: Curve, days: int) -> str:
    figure, axes = _axes(3.0)
    points = [point for point in curve.points if point.alerts]
    axes.plot([point.threshold for point in points], [point.alerts / days for point in points], color=_DRAFT)
    axes.axvline(curve.current, color="black", linewidth=1, linestyle="--", label=f"now {curve.current:g}")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_xlabel(f"threshold: {curve.name} {curve.operator} …")
    axes.set_ylabel("alerts a day")
    axes.legend(frameon=False)
    return _svg(figure)


def _axes(height: float) -> tuple[Figure, Any]:
    with mpl.rc_context({"font.size": 9}):
        figure, axes = plt.subplots(figsize=(8, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Figure) -> str:
    """The picture as an element of the page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]
