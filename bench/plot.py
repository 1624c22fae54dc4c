"""Draws all figures with a goal as one chart: docs/figures/performance.svg, for docs/explanation/performance.md.

    python -m bench.plot

A bar is the ratio to the control as a share of the goal; the thin line is the spread over the turns.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
# In the order of docs/explanation/performance.md.
FILES = ("latency", "drain", "start", "night", "engine", "backfill", "gate")
MET, MISSED = "#3b7a57", "#b5462f"


def figures() -> list[dict[str, Any]]:
    """The figures with a control and a goal."""
    files = [FIGURES / f"{name}.jsonl" for name in FILES]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    return [figure for figure in map(json.loads, lines) if figure.get("goal") is not None and "ratio" in figure]


def main() -> None:
    """Draw the chart."""
    mpl.rcParams["svg.hashsalt"] = "nightjar"  # so that the same figures give the same file
    found = figures()[::-1]
    picture, axes = plt.subplots(figsize=(9, 0.5 * len(found) + 1.2), layout="constrained")
    for row, figure in enumerate(found):
        goal = figure["goal"]
        share, (low, high) = figure["ratio"] / goal, (each / goal for each in figure["spread"])
        axes.barh(row, share, color=MET if figure["met"] else MISSED, height=0.55)
        axes.plot([low, high], [row, row], color="black", linewidth=1)
        label = f" {figure['ratio']:.2f} x, goal {goal:.4g} x"
        axes.annotate(label, (max(share, high, 1.0), row), va="center", fontsize=7)
    names = [f"{figure['name']}\nagainst {figure['control']}" for figure in found]
    axes.set_yticks(range(len(found)), names, fontsize=7)
    axes.set_ylim(-0.6, len(found) - 0.4)
    axes.axvline(1, color="black", linewidth=1.5)
    title = "ratio to the control as a share of the goal (the line): less is better; medians and spread of the turns"
    axes.set_xlabel(title, fontsize=8)
    axes.set_xlim(0, min(6.5, 1.3 * max(figure["ratio"] / figure["goal"] for figure in found)))
    axes.spines[["top", "right"]].set_visible(False)
    picture.savefig(FIGURES / "performance.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
