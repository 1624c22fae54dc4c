"""Says what alerts were: labels of single alerts, and of the events of a file, sent to the labels topic."""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl

from nightjar.backfill.backtest.labels import is_genuine, label_rows, named_column
from nightjar.backfill.publish.precision import Precision, precision
from nightjar.configuration.settings import Settings
from nightjar.contracts.label_values import Label
from nightjar.contracts.labels import label_record, message
from nightjar.contracts.record_type import Row
from nightjar.kafka.sending import send_all
from nightjar.lake.scanning import rows
from nightjar.lake.tables import ALERTS
from nightjar.rules.errors import SettingsError, shortened
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds, parse_timestamp
from nightjar.storage.paths import AnyPath

# Sources of labels where nobody names another.
ANALYST, CHARGEBACK = "analyst", "chargeback"

_TIME_REMEDY = "Write it like 2026-11-20T08:00:00Z"
_COLUMNS = ("label", "scenario", "fraud", "is_fraud")


class _Recent(Protocol):
    @property
    def notes(self) -> Sequence[str]:
        """What was read, and what was not."""

    def alerts(self, alert_id: str) -> pl.DataFrame:
        """Rows of ALERTS that the lake does not have yet."""


class Labelled(NamedTuple):
    """An alert: what a label or a snooze of it names. group: canonical JSON."""

    alert_id: str
    rule_id: str
    stream: str
    event_id: str
    group: str
    event_time: datetime


def alert_named(root: AnyPath, alert_id: str, recent: _Recent | None) -> Labelled:
    """The alert, from the lake or from what Kafka has besides.

    Raises:
        SettingsError: nobody knows such an alert.
    """
    columns = Labelled._fields
    known = rows(root, ALERTS).filter(pl.col("alert_id") == alert_id).select(columns).head(1).collect()
    if not known.height and recent is not None:
        known = recent.alerts(alert_id).select(columns).head(1)
    if not known.height:
        remedy = " ".join(
            [
                "Take the id from `nightjar alerts tail`, or from the pages.",
                *(recent.notes if recent is not None else ()),
            ]
        )
        raise SettingsError("there is no such alert", where=f"alert {alert_id}", remedy=remedy)
    return Labelled(*known.row(0))


def label_of_alert(alert: Labelled, label: str, author: str, reason: str | None) -> Row:
    """The record by which somebody says now what an alert was.

    Raises:
        SettingsError: see `label_record`.
    """
    return label_record(
        alert_id=alert.alert_id,
        stream=alert.stream,
        event_id=alert.event_id,
        label=label,
        reason=reason,
        author=author,
        source=ANALYST,
        known_at=now(),
    )


def labels_of_file(
    path: Path,
    stream: Stream,
    *,
    column: str | None = None,
    known: str | None = None,
    source: str = CHARGEBACK,
    author: str,
    reason: str | None = None,
) -> list[Row]:
    """A record for each event of a file that has a label; see `backtest.labels.read_labels` for files and columns.

    column: that of the labels; None: the first of label, scenario, fraud, is_fraud. known: the column of when each
    became known, text with a zone or timestamps; None: now. NULL is no label; `unsure` is one; false, 0 and `genuine`
    are legitimate; anything else is fraud.

    Raises:
        SettingsError: the file cannot be read, or one of its times is none or is later than now.
    """
    read = label_rows(path)
    schema = read.collect_schema()
    names = schema.names()
    event_id = named_column(path, names, ("event_id", stream.event_id))
    label = named_column(path, names, _COLUMNS if column is None else (column,))
    when = pl.lit(None, pl.String)
    if known is not None:
        when = pl.col(named_column(path, names, (known,)))
        is_time = isinstance(schema[known], pl.Date | pl.Datetime)
        when = when.cast(pl.Datetime("us")).dt.epoch("us") if is_time else when.cast(pl.String)
    text = pl.col(label).cast(pl.String)
    meant = (
        pl.when(text.str.to_lowercase() == Label.UNSURE.value)
        .then(pl.lit(Label.UNSURE.value))
        .when(is_genuine(text))
        .then(pl.lit(Label.LEGITIMATE.value))
        .otherwise(pl.lit(Label.FRAUD.value))
    )
    wanted = read.filter(pl.col(label).is_not_null(), pl.col(event_id).is_not_null())
    found = wanted.select(pl.col(event_id).cast(pl.String), meant.alias("label"), when.alias("known"))
    latest = now()
    return [
        label_record(
            stream=stream.name,
            event_id=event,
            label=said,
            reason=reason,
            author=author,
            source=source,
            known_at=latest if known is None else _time(path, number, at, latest),
        )
        for number, (event, said, at) in enumerate(found.collect(engine="streaming").iter_rows(), start=1)
    ]


def _time(path: Path, number: int, written: str | int | None, latest: int) -> int:
    at = parse_timestamp(written, zone_required=False) if isinstance(written, str) else written
    where = f"{path}, label {number}: {shortened(str(written), 40)}"
    if at is None:
        raise SettingsError("is not a time", where=where, remedy=_TIME_REMEDY)
    if at > latest:
        raise SettingsError("is in the future", where=where, remedy="Give the time at which the label became known")
    return at


def rules_precision(root: AnyPath, days: int, until: str | None) -> list[Precision]:
    """What the labelled alerts of so many days were, up to the newest with an alert. until: a time; None: now.

    Raises:
        SettingsError: it is not a time.
    """
    at = now() if until is None else parse_timestamp(until, zone_required=False)
    if at is None:
        raise SettingsError("is not a time", where=f"--until {until}", remedy=_TIME_REMEDY)
    newest = rows(root, ALERTS).select(pl.col("event_time").max()).collect().item()
    if newest is None:
        return []
    last = newest.date()
    return precision(root, last - timedelta(days=days - 1), last, from_microseconds(at))


def send_labels(settings: Settings, records: Iterable[Row]) -> int:
    """Send labels to their topic; how many there were. All are delivered when this returns.

    Raises:
        KafkaError: Kafka does not take them, some of which may have been sent.
    """
    return send_all(settings, settings.labels_topic, map(message, records))


def now() -> int:
    """The time by this host's clock, µs."""
    return time.time_ns() // 1000
