"""Tries rules that are not live on past days of the lake: a backtest in a Spark session of its own."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from nightjar.backfill.backtest.labels import refuse_unknown_field
from nightjar.backfill.config import BackfillConfig
from nightjar.configuration import data_dir
from nightjar.configuration.settings import Settings
from nightjar.rules.errors import SettingsError
from nightjar.rules.model import Rule
from nightjar.rules.streams import Stream
from nightjar.terminal.stages import Stages

if TYPE_CHECKING:
    from nightjar.backfill.backtest.comparison import BacktestResult


def try_rules(
    settings: Settings,
    config: BackfillConfig,
    rules: Sequence[Rule],
    days: Sequence[date],
    stages: Stages,
    *,
    threshold: str | None = None,
    labels: Path | None = None,
    label: str | None = None,
) -> "list[BacktestResult]":
    """What the rules would have announced on these days, one result per rule; notes what the lake lacks for it.

    threshold: the measure or field whose constant is to vary. labels: a file of them. label: its column, or without a
    file a field of the rules' stream.

    Raises:
        SettingsError: labels for rules of several streams, or `label` is not a field.
        LakeError: there is no lake.
        BackfillError: it has no events of the streams on these days.
    """
    stream = _labelled(config, rules, labels, label)
    data_dir.prepare(settings.data_dir)
    config.lake.refuse_missing()
    with stages.stage("Spark", "starting"):
        from nightjar.operations import preload

        starting = preload.start_session(config.lake)
        from nightjar.backfill.backtest.backtest import backtest, drafts_of
        from nightjar.backfill.backtest.labels import read_labels
        from nightjar.operations.lake_gaps import gaps

        drafts = drafts_of(rules, config.streams, threshold)
        known = label if labels is None else read_labels(labels, stream, label)
        session = starting.result()
    with stages.stage(f"{days[0]} to {days[-1]}", "evaluating drafts and live rules"):
        found = backtest(session, config, drafts, days[0], days[-1], known)
    for gap in gaps(config.lake.root, config.streams, rules, days[-1]):
        stages.note(gap, "yellow")
    return found


def _labelled(config: BackfillConfig, rules: Sequence[Rule], labels: Path | None, label: str | None) -> Stream:
    """The rules' stream, which has the labels if there are any."""
    if len({rule.stream for rule in rules}) > 1 and (labels or label):
        raise SettingsError("the rules are on several streams", remedy="With labels, give the rules of one stream")
    stream = config.streams[rules[0].stream]
    if label is not None and labels is None:
        refuse_unknown_field(label, stream)
    return stream
