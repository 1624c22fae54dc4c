"""Runs `nightjar backtest` in a process of its own, for who waits for it elsewhere: Airflow's task, and the pages.

What it leaves, in a folder of the run: the drafts, the report, and the figures, a JSON object for each rule.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl

from nightjar.backfill.publish.precision import known_labels
from nightjar.contracts.label_values import Label
from nightjar.rules.errors import NightjarError, RuleError, printable
from nightjar.rules.model import Rule
from nightjar.rules.streams import Stream
from nightjar.rules.thresholds import threshold_of, thresholds_of
from nightjar.storage.paths import AnyPath

DRAFTS, REPORT, FIGURES, LABELLED = "rules.yaml", "report.html", "figures.jsonl", "labels.parquet"


class BacktestError(NightjarError):
    """The command failed."""


def run_backtest(
    folder: Path,
    text: str,
    rules: Sequence[Rule],
    days: tuple[date, date],
    *,
    threshold: str | None,
    reason: str,
    lake: AnyPath,
    log: Callable[[str], object],
    cleanup: ExitStack,
) -> list[dict[str, Any]]:
    """Run the command over the days, the last included; its figures, a member for each rule.

    text: the drafts; rules: those in it; lake: whose labels say which events are known to be fraud, if it has any; log:
    gets each line that the command says; cleanup: ends the command when it is closed.

    Raises:
        BacktestError: it failed; the log has the reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drafts, figures = folder / DRAFTS, folder / FIGURES
    drafts.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "nightjar", "backtest", "--rules", str(drafts)]
    command += ["--from", days[0].isoformat(), "--to", days[1].isoformat(), "--html", str(folder / REPORT), "--json"]
    command += ["--reason", reason]
    if threshold is not None:
        command += ["--threshold", threshold]
    if (labels := _labels(lake, rules)) is not None:
        labels.write_parquet(folder / LABELLED)
        command += ["--labels", str(folder / LABELLED)]
    last = ""
    with figures.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)
        cleanup.callback(_end, process)
        assert process.stderr is not None  # noqa: S101  it is a pipe
        for line in process.stderr:
            last = printable(line.decode(errors="replace").rstrip("\n"))
            log(last)
    if process.wait() != 0:
        raise BacktestError(f"the backtest failed: {last}", where=str(drafts), remedy="The log has the reason")
    return figures_of(folder)


def _labels(lake: AnyPath, rules: Sequence[Rule]) -> pl.DataFrame | None:
    """What events of the rules' stream are known to be, as `nightjar backtest` takes labels; None: nothing is known, or
    the rules are on several streams. Of several labels of an event and its alerts the one known last counts."""
    streams = {rule.stream for rule in rules}
    if len(streams) != 1:
        return None
    known = known_labels(lake, datetime.now(UTC)).filter(pl.col("stream").is_in(streams))
    last = known.sort("known_at", "arrival_time", "partition", "offset").unique("event_id", keep="last")
    said = last.filter(pl.col("label") != Label.UNSURE.value).collect()
    meant = pl.when(pl.col("label") == Label.LEGITIMATE.value).then(pl.lit("genuine")).otherwise("label")
    return said.select("event_id", meant.alias("label")) if said.height else None


def figures_of(folder: Path) -> list[dict[str, Any]]:
    """The figures that a run has left; empty if it has left none, or not all of them."""
    try:
        lines = (folder / FIGURES).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines] if (folder / REPORT).is_file() else []
    except (OSError, ValueError):
        return []


def first_threshold(rules: Sequence[Rule], streams: Mapping[str, Stream]) -> str | None:
    """What the rules compare with a number first, such that the curve of it can be computed for each; None: nothing."""
    rule, *others = rules
    for found in thresholds_of(rule, streams[rule.stream]):
        if all(_has_threshold(each, streams[each.stream], found.name) for each in (rule, *others)):
            return found.name
    return None


def _has_threshold(rule: Rule, stream: Stream, name: str) -> bool:
    try:
        threshold_of(rule, stream, name)
    except RuleError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait()
