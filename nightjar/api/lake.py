"""What is in the lake: events, alerts, what the nights corrected, why an alert stands; and drafts on past days."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from nightjar.api.inputs import Rules, Streams, day_from, rules_from, streams_from
from nightjar.backfill.backtest.labels import refuse_unknown_field
from nightjar.backfill.explain.explanation import Explanation
from nightjar.backfill.explain.explanation import explain as explained
from nightjar.backfill.reconcile.reconciliation import latest_revisions, well_formed
from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import Settings, load_settings
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, CORRECTIONS, events_table
from nightjar.operations.unarchived import OnKafka
from nightjar.rules.errors import SettingsError
from nightjar.rules.streams import Stream, stream_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nightjar.backfill.backtest.comparison import BacktestResult

_IN_ORDER = ("event_time", "alert_id", "revision")


class Lake:
    """The lake of a folder or an object store, read only. Values are as stored: those of sensitive fields, too.

    path: its folder, or the URL of one in an object store; None: that of the settings (`lake_dir`), which also say how
    the store is reached. streams: a TOML file of declarations, or declarations by name; None: those of the settings.

    Raises:
        LakeError: there is no lake.
        SettingsError, DeclarationError: the settings or the streams cannot be used.
    """

    def __init__(self, path: Path | str | None = None, *, streams: Streams = None) -> None:
        self._settings = _settings_of(path)
        self._streams = streams_from(streams)
        self._config = backfill_config(self._settings, self._streams, spark=False)
        self._root = self._config.lake.root
        self._config.lake.refuse_missing()

    def alerts(self, day: date | str | None = None, *, revisions: bool = False) -> pl.DataFrame:
        """The alerts about events of a day (UTC; None: of all days), of each the latest revision.

        A retracted alert has the kind `retraction`. revisions: all records of each. The columns are those of
        docs/reference/records.md, with group and measures as JSON objects, and the place of the record in Kafka.
        """
        records = _on(day, pl.col("event_time").dt.date(), well_formed(scan(self._root, ALERTS))).collect()
        return (records if revisions else latest_revisions(records)).sort(_IN_ORDER)

    def corrections(self, day: date | str | None = None) -> pl.DataFrame:
        """What the nights of a day (None: of all days) corrected, with the `cause` of each.

        A row for each correction that was published; those that were held back because nothing explains them are not.
        """
        return _on(day, pl.col("day"), scan(self._root, CORRECTIONS)).collect().sort("day", *_IN_ORDER)

    def events(self, stream: str, day: date | str | None = None) -> pl.LazyFrame:
        """The events of a stream that happened on a day (UTC; None: all), duplicates included, to be collected.

        Columns: the stream's fields, arrival_time, partition and offset. Rejected records are left out.

        Raises:
            SettingsError: there is no such stream.
        """
        declared = stream_named(stream, self._streams)
        found = scan(self._root, events_table(declared)).filter(pl.col("rejected").is_null())
        found = _on(day, pl.col(declared.event_time).dt.date(), found)
        return found.select(*declared.fields, "arrival_time", "partition", "offset")

    def explain(self, alert_id: str, *, reveal: bool = False) -> Explanation:
        """How an alert stands and why, as `nightjar explain` shows it.

        Kafka is asked for what the archive has yet to bring, if it can be reached. reveal: show the values of fields
        that are declared sensitive.

        Raises:
            BackfillError: there is no such alert.
        """
        found = explained(self._config, alert_id, OnKafka(self._settings))
        return found if reveal else found.masked()


def backtest(
    rules: Rules,
    first: date | str,
    last: date | str,
    *,
    lake: Path | str | None = None,
    streams: Streams = None,
    threshold: str | None = None,
    labels: pl.LazyFrame | pl.DataFrame | str | None = None,
    spark: SparkSession | None = None,
) -> list[BacktestResult]:
    """What drafts would have announced on past days of the lake: for each draft a comparison with the live rules.

    The same as `nightjar backtest`; it publishes nothing. rules, streams: see `check`. first, last: days (UTC). lake:
    see `Lake`. threshold: a measure or field that `when` compares with a number, to be varied. labels: a frame of
    `event_id` and `label` (NULL, false, 0 and "genuine" mean no fraud), or a field of the stream that is the label.
    spark: a session with Delta; None: one is started, which stays for the next call.

    Raises:
        RuleError: a draft is not valid, or does not compare `threshold` with a number.
        LakeError: there is no lake.
        BackfillError: the lake has no events of these streams on these days.
        SettingsError: a day or the labels cannot be used.
    """
    from nightjar.backfill.backtest.backtest import backtest as compared
    from nightjar.backfill.backtest.backtest import drafts_of
    from nightjar.lake.session import open_session

    declared = streams_from(streams)
    drafts = drafts_of(rules_from(rules, declared), declared, threshold)
    begin, end = day_from(first, "first"), day_from(last, "last")
    if end < begin:
        raise SettingsError("is before the first day", where=f"last {end}", remedy=f"Give a day from {begin} on")
    config = backfill_config(_settings_of(lake), declared, spark=spark is None)
    config.lake.refuse_missing()
    known = _labels(labels, [declared[draft.rule.stream] for draft in drafts])
    return compared(spark or open_session(config.lake), config, drafts, begin, end, known)


def _labels(labels: Any, streams: Iterable[Stream]) -> pl.LazyFrame | str | None:
    """Labels as the backtest takes them.

    Raises:
        SettingsError: it is not a frame with the two columns, nor a field of the streams.
    """
    if isinstance(labels, str):
        for stream in streams:
            refuse_unknown_field(labels, stream)
        return labels
    if labels is None:
        return None
    frame = labels.lazy() if isinstance(labels, pl.DataFrame) else labels
    if not isinstance(frame, pl.LazyFrame) or not {"event_id", "label"} <= set(frame.collect_schema()):
        remedy = "Give a frame of Polars with event_id and label, or the name of a field"
        raise SettingsError("cannot be used", where="labels", remedy=remedy)
    return frame


def _on(day: date | str | None, dates: pl.Expr, rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows of a day; None: all."""
    return rows if day is None else rows.filter(dates == day_from(day, "day"))


def _settings_of(lake: Path | str | None) -> Settings:
    return load_settings(**({} if lake is None else {"lake_dir": str(lake)}))
