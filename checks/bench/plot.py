"""Draws all figures with a goal as one chart: docs/figures/performance.svg, for docs/explanation/performance.md.

    python -m checks.bench.plot

A bar is the ratio to the control as a share of the goal; the thin line is the spread over the turns.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from nightjar.jvm.jars import PROJECT

FIGURES = PROJECT / "docs" / "figures"
# In the order of docs/explanation/performance.md.
FILES = ("latency", "drain", "start", "night", "engine", "backfill", "gate")
MET, MISSED = "#3f9168", "#d1583d"
# Readable on a white page and on a dark one, as the picture has no background.
INK = "#7d8894"
# The picture is as wide as a page, so that its text has this size there (points).
TEXT = 10


def figures() -> list[dict[str, Any]]:
    """The figures with a control and a goal, each with the name of its bar: where a file has one measurement of several
    runs, also what differs in the command of the run."""
    found: list[dict[str, Any]] = []
    for name in FILES:
        file, options = FIGURES / f"{name}.jsonl", ""
        for figure in map(json.loads, file.read_text().splitlines() if file.exists() else ()):
            if figure["name"] == "run":
                options = figure["command"].partition(" --")[2]
            elif figure.get("goal") is not None and "ratio" in figure:
                found.append(figure | {"label": f"{figure['name']}, against {figure['control']}", "options": options})
    labels = Counter(figure["label"] for figure in found)
    for figure in found:
        if labels[figure["label"]] > 1:
            figure["label"] += f"\n(--{figure['options']})"
    return found


def main() -> None:
    """Draw the chart."""
    mpl.rcParams["svg.hashsalt"] = "nightjar"  # so that the same figures give the same file
    colours = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    mpl.rcParams.update({**colours, "font.size": TEXT})
    found = figures()[::-1]
    picture, axes = plt.subplots(figsize=(9, 0.75 * len(found) + 1.2), layout="constrained")
    for row, figure in enumerate(found):
        goal = figure["goal"]
        share, (low, high) = figure["ratio"] / goal, (each / goal for each in figure["spread"])
        axes.barh(row, share, color=MET if figure["met"] else MISSED, height=0.3)
        axes.plot([low, high], [row, row], color=INK, linewidth=1)
        axes.annotate(figure["label"], (0, row + 0.2), xytext=(2, 0), textcoords="offset points", va="bottom")
        label = f" {figure['ratio']:.2f} of at most {goal:.3g}"
        axes.annotate(label, (max(share, high, 1.0), row), va="center")
    axes.set_yticks([])
    axes.set_ylim(-0.6, len(found))
    axes.axvline(1, color=INK, linewidth=1.5)
    axes.set_xlabel(
        "ratio to the control as a share of the goal (the line): less is better; medians and spread of the turns"
    )
    axes.set_xlim(0, max(1.4, *(max(figure["spread"]) / figure["goal"] for figure in found)))
    axes.spines[["top", "right", "left"]].set_visible(False)
    picture.savefig(FIGURES / "performance.svg", metadata={"Date": None}, transparent=True)


if __name__ == "__main__":
    main()
