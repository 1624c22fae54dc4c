"""Drafts over a day of the lake, beside the rules that were live."""

import gzip
import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

import nightjar
from nightjar.backfill.backtest.backtest import backtest, drafts_of, labelled_as_fraud
from nightjar.backfill.backtest.comparison import BacktestResult
from nightjar.backfill.backtest.labels import read_labels
from nightjar.backfill.backtest.report import as_mapping, write_report
from nightjar.backfill.config import BackfillError, staging_folder
from nightjar.rules.errors import SettingsError
from nightjar.rules.model import parse_rule
from tests.backfill.conftest import RULES
from tests.support.nights import DAY, FirstNight, truth
from tests.support.payments import STREAM

BUSY = RULES[0]


def tried(first_night: FirstNight, rule: object, threshold: str | None = None, labels: object = None) -> BacktestResult:
    """One draft over the day."""
    config = first_night.night.config
    drafts = drafts_of([parse_rule(json.dumps(rule), config.streams)], config.streams, threshold)
    (found,) = backtest(first_night.night.session, config, drafts, DAY.date(), DAY.date(), labels)  # type: ignore[arg-type]
    return found


def events_of(first_night: FirstNight, rule_id: str) -> set[str]:
    """At which events a rule is violated, by the engine over all events at once."""
    return set(truth(first_night.night).filter(rule_id=rule_id).get_column("event_id"))


@pytest.mark.slow
def test_draft_that_equals_its_live_version_changes_nothing(first_night: FirstNight) -> None:
    """The same alerts as in the night, none gained, lost or changed; nothing is left in the lake's staged folders."""
    config = first_night.night.config
    before = set(staging_folder(config.lake).iterdir())
    found = tried(first_night, BUSY)
    assert found.alerts == len(events_of(first_night, "busy")) > 0
    assert found.change is not None
    assert (found.change.gained, found.change.lost, found.change.changed) == (0, 0, 0)
    assert found.change.both == found.change.live_alerts == found.alerts
    assert set(staging_folder(config.lake).iterdir()) == before


@pytest.mark.slow
def test_narrower_draft_loses_alerts_as_the_curve_says(first_night: FirstNight) -> None:
    """What a threshold costs is what the draft with that threshold shows; labels give precision and recall."""
    live = events_of(first_night, "busy")
    labels = pl.LazyFrame({"event_id": [*sorted(live)[:4], "unknown"], "label": [1, 1, 1, 0, 1]})
    wide = tried(first_night, BUSY, "n", labels)
    narrow = tried(first_night, {**BUSY, "when": "n >= 5 AND spent > 100"})
    assert narrow.change is not None
    assert narrow.change.gained == 0
    assert 0 < narrow.change.lost == len(live) - narrow.alerts
    assert wide.curve is not None
    assert {point.threshold: point.alerts for point in wide.curve.points}[5.0] == narrow.alerts
    assert wide.quality is not None
    assert (wide.quality.found, wide.quality.labelled, wide.quality.recall) == (3, 3, 1.0)
    assert wide.quality.precision == 3 / len(live)
    assert {other.rule_id for other in wide.overlaps} == {"busier", "popular"}


@pytest.mark.slow
def test_days_without_events_are_refused(first_night: FirstNight) -> None:
    """With what would bring them."""
    night = first_night.night
    drafts = drafts_of([parse_rule(json.dumps(BUSY), night.config.streams)], night.config.streams, None)
    with pytest.raises(BackfillError, match=r"no events of these rules' streams.*nightjar archive"):
        backtest(night.session, night.config, drafts, date(2020, 1, 1), date(2020, 1, 2))


@pytest.mark.slow
def test_report_of_a_day(first_night: FirstNight, tmp_path: Path) -> None:
    """A page, and JSON."""
    found = tried(first_night, BUSY, "spent")
    write_report([found], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 4, "two plots, each for a wide and for a narrow window"
    assert found.live is not None
    assert f"version {found.live.version}, which applies" in page
    assert json.loads(json.dumps(as_mapping(found), default=str))["alerts"] == found.alerts


@pytest.mark.slow
def test_labels_from_files(tmp_path: Path, first_night: FirstNight) -> None:
    """The simulator's column, or one that is named; a file without them is refused with its columns."""
    stream = first_night.night.config.streams["transactions"]
    pl.DataFrame({"transaction_id": ["a"], "scenario": ["x"], "mine": [True]}).write_csv(tmp_path / "labels.csv")
    assert read_labels(tmp_path / "labels.csv", stream).collect().rows() == [("a", "x")]
    assert read_labels(tmp_path / "labels.csv", stream, "mine").collect().rows() == [("a", True)]
    (tmp_path / "labels.csv.gz").write_bytes(gzip.compress((tmp_path / "labels.csv").read_bytes()))
    (tmp_path / "labels.tsv").write_text((tmp_path / "labels.csv").read_text().replace(",", "\t"))
    (tmp_path / "folder").mkdir()
    pl.read_csv(tmp_path / "labels.csv").write_parquet(tmp_path / "folder" / "part-0.parquet")
    for name in ("labels.csv.gz", "labels.tsv", "folder"):
        assert read_labels(tmp_path / name, stream).collect().rows() == [("a", "x")]
    with pytest.raises(SettingsError, match=r"has no column other.*Its columns are"):
        read_labels(tmp_path / "labels.csv", stream, "other")
    with pytest.raises(SettingsError, match="not a known kind of file"):
        read_labels(tmp_path / "labels.txt", stream)


@pytest.mark.slow
def test_the_python_api_tries_drafts_alike(first_night: FirstNight) -> None:
    """`nightjar.backtest` on the same lake, with labels as a frame."""
    config = first_night.night.config
    labels = pl.DataFrame(
        {"event_id": [*sorted(events_of(first_night, "busy"))[:4], "unknown"], "label": [1, 1, 1, 0, 1]}
    )
    (found,) = nightjar.backtest(
        BUSY,
        DAY.date(),
        DAY.date().isoformat(),
        lake=str(config.lake.root),
        streams=config.streams,
        threshold="n",
        labels=labels,
        spark=first_night.night.session,
    )
    assert found == tried(first_night, BUSY, "n", labels.lazy())


@pytest.mark.parametrize(
    "labels",
    [
        pl.Series([0, 1]),
        pl.Series([0.0, 2.5]),
        pl.Series([float("nan"), 1.0]),
        pl.Series([-0.0, 1.0]),
        pl.Series(["0.00", "1.00"]),
        pl.Series([False, True]),
        pl.Series([None, "yes"]),
        pl.Series(["Genuine", "fraud"]),
        pl.Series([Decimal("0.00"), Decimal("1.00")]),
    ],
)
def test_what_a_label_means(labels: pl.Series) -> None:
    """Of any type: nothing, no, zero and genuine are no fraud."""
    frame = pl.LazyFrame({"event_id": ["a", "b"], "label": labels})
    events = pl.LazyFrame({"transaction_id": ["a", "b"]})
    assert labelled_as_fraud(events, STREAM, frame).collect().get_column("event_id").to_list() == ["b"]
