"""The queries of docs/how-to/query-the-lake.md, on DuckDB and on Spark, over a lake of two days."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nightjar
from nightjar.lake.scanning import scan
from nightjar.lake.tables import (
    ALERTS,
    LATE_EVENTS,
    QUARANTINE,
    RECONCILIATION,
    RULE_STATUS,
    RUNS,
    Table,
    events_table,
)
from tests.support.payments import STREAM
from tests.support.two_nights import DAYS, UNUSABLE, two_nights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "query-the-lake.md").read_text(encoding="utf-8")
PLACE = "/data/nightjar/lake"  # of the lake, on the page
IN_PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
IN_SQL = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"-- (.*)\n")
QUERIES = {match[1]: text for text in IN_SQL if (match := NAMED.match(text))}
STATEMENTS = [text for text in IN_SQL if not NAMED.match(text)]
EVENTS = events_table(STREAM)
# For so few rows Spark takes longer to compile a query than to run it.
INTERPRETED = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
HOUR = pl.col("announced_at").dt.truncate("1h").alias("hour")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the lake."""
    return two_nights(tmp_path_factory.mktemp("two-nights")).root


@pytest.fixture(scope="module")
def db(root: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The lake in DuckDB, opened as the page does, with its view."""
    names: dict[str, Any] = {}
    exec(IN_PYTHON[0].replace(PLACE, str(root)), names)  # noqa: S102  our own page
    names["db"].execute(STATEMENTS[1])
    yield names["db"]
    names["db"].close()


def rows(db: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    """What a query of the page finds."""
    found = db.sql(QUERIES[query])
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def table(root: Path, of: Table) -> pl.DataFrame:
    """A table's rows, by Polars."""
    return scan(root, of).collect()


def latest(root: Path) -> pl.DataFrame:
    """The latest revision of each alert, as the Python API has it."""
    return nightjar.Lake(root, streams={STREAM.name: STREAM}).alerts()


def test_every_question_has_a_query() -> None:
    """What the other tests go through."""
    assert len(QUERIES) == len(re.findall(r"^### .*\?$", PAGE, re.MULTILINE)) == 12
    assert [text.split()[1] for text in STATEMENTS] == ["TABLE", "OR"]
    assert [block.count(PLACE) for block in IN_PYTHON] == [1, 1]


def test_latest_alerts(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """S10.3: each alert once, by its highest revision, of equal ones the backfill's; what is no alert is left out."""
    found = db.sql("SELECT alert_id, revision, kind, source, measures FROM latest_alerts ORDER BY alert_id").fetchall()
    expected = latest(root).sort("alert_id").select("alert_id", "revision", "kind", "source", "measures")
    assert found == expected.rows()
    records = table(root, ALERTS)
    assert records.get_column("alert_id").null_count() == 1
    assert records.height > len(records.select("alert_id", "revision").unique()) > len(found)


def test_alerts_a_day(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """S10.3, S10.4, S10.6: the latest revision counts; shadow rules, muted alerts, and those beyond the cap do not."""
    alerts = latest(root).with_columns(day=pl.col("event_time").dt.date())
    reasons = [pl.col("kind") == "retraction", pl.col("rule_state") == "shadow", pl.col("muted"), pl.col("overflow")]
    for reason in reasons:
        others = [other.fill_null(value=False) for other in reasons if other is not reason]
        assert alerts.filter(reason, ~pl.any_horizontal(others)).height, "nothing is left out for this reason alone"
    counted = alerts.filter(~pl.any_horizontal(reason.fill_null(value=False) for reason in reasons))
    expected = counted.group_by("day", "rule_id", "severity").len("alerts").sort("day", "rule_id")
    assert rows(db, "alerts a day") == expected.to_dicts()
    assert {(row["day"], row["rule_id"]) for row in expected.to_dicts()} == {
        (day, rule) for day in DAYS for rule in ("burst", "dear", "second")
    }


def test_customers(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Group and measures are JSON, decimals in it text."""
    alerts = latest(root).filter(kind="alert", rule_id="burst")
    group, measures = (pl.col(name).str.json_path_match for name in ("group", "measures"))
    read = alerts.select(
        customer_id=group("$.customer_id"),
        n=measures("$.n").cast(pl.Int64),
        spent=measures("$.spent").cast(pl.Decimal(12, 2)),
    )
    by_customer = read.group_by("customer_id").agg(
        alerts=pl.len(), most_payments=pl.max("n"), most_spent=pl.max("spent")
    )
    found = rows(db, "customers")
    assert found == by_customer.sort("alerts", "customer_id", descending=[True, False]).to_dicts()
    assert len(found) == 6
    assert isinstance(found[0]["most_spent"], Decimal)


def test_latency(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """From the first arrival of the event to the first record of its alert; from its sending where that is known."""
    announced = table(root, ALERTS).filter(source="stream").group_by("alert_id", "event_id", "event_time")
    first = (
        table(root, EVENTS)
        .filter(pl.col("rejected").is_null())
        .sort("arrival_time")
        .unique("transaction_id", keep="first")
    )
    joined = announced.agg(announced_at=pl.min("arrival_time")).join(
        first, left_on=["event_id", "event_time"], right_on=["transaction_id", "event_time"]
    )
    ms = (pl.col("announced_at") - pl.col("arrival_time")).dt.total_microseconds() / 1000
    sent_ms = (pl.col("announced_at").dt.epoch("us") - pl.col("sent_at")) / 1000
    expected = joined.group_by(HOUR).agg(
        alerts=pl.len(),
        p50_ms=ms.quantile(0.5, "linear"),
        p99_ms=ms.quantile(0.99, "linear"),
        p50_sent_ms=sent_ms.quantile(0.5, "linear"),
        p99_sent_ms=sent_ms.quantile(0.99, "linear"),
    )
    found = rows(db, "latency")
    assert_frame_equal(pl.DataFrame(found, expected.schema), expected.sort("hour"), check_exact=False)
    assert sum(row["alerts"] for row in found) == table(root, ALERTS).filter(source="stream")["alert_id"].n_unique()
    # the job reads every five seconds, and later where another event, out of order, brings the alert about
    assert all(0 < row["p50_ms"] < 5_000 for row in found)


def test_retracted(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """By the stream, without a cause, and by the nights."""
    expected = latest(root).filter(kind="retraction").sort("event_time", "alert_id")
    found = rows(db, "retracted")
    assert found == expected.select(found[0].keys()).to_dicts()
    assert {(row["source"], row["cause"]) for row in found} == {
        ("stream", None),
        ("backfill", "late_event"),
        ("backfill", "rule_propagation"),
    }


def test_corrections(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Those that both nights have published, an hour after midnight of the day after next."""
    published = table(root, ALERTS).filter(pl.col("source") == "backfill", pl.col("arrival_time").dt.hour() == 1)
    of_night = published.with_columns(day=pl.col("arrival_date") - pl.duration(days=2))
    new, alert = pl.col("revision") == 1, pl.col("kind") == "alert"
    expected = of_night.group_by("day", "cause").agg(
        new_alerts=(new & alert).sum(), revised=(~new & alert).sum(), retracted=(~alert).sum(), corrections=pl.len()
    )
    found = rows(db, "corrections")
    assert found == expected.sort("day", "cause").to_dicts()
    assert [(row["day"], row["cause"]) for row in found] == [
        (DAYS[0], "late_event"),
        (DAYS[1], "late_event"),
        (DAYS[1], "rule_propagation"),
    ]
    assert all(row["new_alerts"] and row["retracted"] for row in found)


def test_revised(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Both values of the measure, and whether each side mutes the alert."""
    expected = table(root, RECONCILIATION).filter(outcome="revised")
    found = rows(db, "revised")
    assert len(found) == expected.height
    read = {(row["day"], row["rule_id"], row["event_id"]): row for row in found}
    for row in expected.to_dicts():
        mine = read[row["day"], row["rule_id"], row["event_id"]]
        assert f'"n":{mine["announced"]},' in row["stream_measures"]
        assert f'"n":{mine["true_value"]},' in row["measures"]
        assert (mine["stream_muted"], mine["muted"]) == (row["stream_muted"], row["muted"])
    assert any(row["announced"] != row["true_value"] for row in found)


def test_confirmed(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Each alert once, by the last night that judged it."""
    outcomes = table(root, RECONCILIATION)
    judged = outcomes.sort("day").unique("alert_id", keep="last")
    assert judged.height < outcomes.height, "no alert was judged twice"
    counts = {key: group.height for key, group in judged.group_by("rule_id", "outcome")}
    found = {row["rule_id"]: row for row in rows(db, "confirmed")}
    assert set(found) == {"burst", "cheap", "dear", "second"}
    for rule, row in found.items():
        matched, revised, retracted, missed = (
            counts.get((rule, name), 0) for name in ("matched", "revised", "retracted", "missed")
        )
        assert [row[name] for name in ("matched", "revised", "retracted", "missed")] == [
            matched,
            revised,
            retracted,
            missed,
        ]
        assert row["confirmed"] == pytest.approx((matched + revised) / (matched + revised + retracted))
        assert row["announced"] == pytest.approx((matched + revised) / (matched + revised + missed))
    assert found["cheap"]["confirmed"] == 1 > found["second"]["confirmed"] > 0


def test_runs(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """One of each day, with what its stages took and counted."""
    found, manifests = rows(db, "runs"), table(root, RUNS).sort("started_at").to_dicts()
    assert [(row["day"], row["state"]) for row in found] == [(day, "finished") for day in DAYS]
    corrected = rows(db, "corrections")
    for row, manifest in zip(found, manifests, strict=True):
        assert row["took_seconds"] == (manifest["finished_at"] - manifest["started_at"]).total_seconds()
        assert row["took_seconds"] > row["evaluate_seconds"] > 0
        assert row["published"] == sum(each["corrections"] for each in corrected if each["day"] == row["day"]) > 0
        assert row["violations"] > 0


def test_events(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Each record is an event, one that repeats its id, or unusable."""
    records = table(root, EVENTS)
    found = rows(db, "events")
    assert sum(row["records"] for row in found) == records.height
    for row in found:
        of_day = records.filter(arrival_date=row["arrival_date"])
        assert row["records"] == of_day.height == row["events"] + row["repeated"] + row["unusable"]
        assert row["events"] == of_day.get_column("transaction_id").drop_nulls().n_unique()
    assert sum(row["repeated"] for row in found) > 0
    assert sum(row["unusable"] for row in found) == len(UNUSABLE)


def test_late(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """S6.2: by more than the ten minutes that are allowed; a report that came twice counts once."""
    reports = table(root, LATE_EVENTS)
    known = reports.select("record_partition", "record_offset").drop_nulls().unique()
    assert known.height < reports.drop_nulls("record_offset").height
    found = rows(db, "late")
    assert sum(row["late_events"] for row in found) == known.height
    places = known.get_column("record_offset").implode()
    by_arrival = (
        table(root, EVENTS)
        .filter(pl.col("offset").is_in(places))
        .with_columns(late=(pl.col("arrival_time") - pl.col("event_time")).dt.total_microseconds() / 60e6)
    )
    expected = by_arrival.group_by("arrival_date").agg(pl.median("late"), most=pl.max("late")).sort("arrival_date")
    for row, (day, middle, most) in zip(found, expected.iter_rows(), strict=True):
        assert row["arrival_date"] == day
        assert row["p50_minutes"] == pytest.approx(middle)
        assert row["most_minutes"] == pytest.approx(most)
        assert row["p50_minutes"] > 10


def test_quarantine(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """By their reasons, which the table of events has too."""
    found = {row["reason"]: row["records"] for row in rows(db, "quarantine")}
    rejected = table(root, EVENTS).get_column("rejected").drop_nulls().value_counts()
    assert found == dict(rejected.iter_rows())
    assert found == {"not_an_object": 1, "not_json": 2, "missing_field": 1}
    assert table(root, QUARANTINE).height == len(UNUSABLE)


def test_versions(db: duckdb.DuckDBPyConnection, root: Path) -> None:
    """A version that another took over has its end."""
    found = {(row["rule_id"], row["rule_version"]): row for row in rows(db, "versions")}
    answers = table(root, RULE_STATUS).filter(status="ACCEPTED")
    assert set(found) == set(answers.select("rule_id", "rule_version").iter_rows())
    for rule, number, effective in answers.select("rule_id", "rule_version", "effective").iter_rows():
        assert found[rule, number]["effective"] == effective
    assert found["dear", 1]["superseded_from"] == found["dear", 2]["effective"] < found["dear", 2]["answered_at"]
    assert {row["superseded_from"] for name, row in found.items() if name != ("dear", 1)} == {None}
    assert (found["cheap", 1]["state"], found["burst", 1]["state"]) == ("shadow", "active")
    assert (found["dear", 2]["condition"], found["dear", 2]["author"]) == ("amount > 80", "ann")


@pytest.mark.spark
def test_spark_finds_the_same(db: duckdb.DuckDBPyConnection, root: Path, spark: SparkSession) -> None:
    """Each query as it is on the page, over tables that are opened as the page does."""
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    try:
        for name, value in INTERPRETED.items():
            spark.conf.set(name, value)
        spark.sql(STATEMENTS[0].replace(PLACE, str(root)))
        assert spark.table("alerts").count() == table(root, ALERTS).height
        spark.sql("DROP TABLE alerts")
        exec(IN_PYTHON[1].replace(PLACE, str(root)), {})  # noqa: S102  our own page; it finds the session that runs
        spark.sql(STATEMENTS[1])
        for name, query in QUERIES.items():
            found = [row.asDict() for row in spark.sql(query).collect()]
            expected = [{column: _near(value) for column, value in row.items()} for row in rows(db, name)]
            assert [{column: _plain(value) for column, value in row.items()} for row in found] == expected, name
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
        for view in ("latest_alerts", *(log.parent.name for log in root.glob("*/_delta_log"))):
            spark.catalog.dropTempView(view)


def _plain(value: Any) -> Any:
    """A value with times as seconds and decimals as doubles: Spark's times have no zone, and are those of the host."""
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if isinstance(value, Decimal) else value


def _near(value: Any) -> Any:
    """The same, where doubles may differ in their last digits."""
    plain = _plain(value)
    return pytest.approx(plain) if isinstance(plain, float) else plain
