"""A day from end to end on real Kafka, Spark and Delta: the stream's alerts are corrected, once and for all."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nightjar.backfill.gate.gating import docs_folder
from nightjar.backfill.publish import results
from nightjar.backfill.publish.precision import Precision
from nightjar.backfill.publish.snoozed import Snoozed
from nightjar.backfill.staging import EVALUATED
from nightjar.contracts.labels import label_record
from nightjar.contracts.snoozes import snooze_record
from nightjar.expectations.findings import GateError
from nightjar.kafka.clients import producer
from nightjar.lake import delta
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, CORRECTIONS, RECONCILIATION, RUNS, VIOLATIONS, Table, events_table
from nightjar.operations.labelling import send_labels
from nightjar.operations.snoozing import send_snoozes
from nightjar.rules.durations import MICROSECONDS
from nightjar.rules.timestamps import microseconds
from tests.support.nights import DAY, FirstNight, Night, expected, latest_alerts

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


OWN = {
    "violations/few.toml": """
[few_violations]
sentence = "no violation is of the rule busy"
holds = "rule_id <> 'busy'"
severity = "critical"
""",
    "violations/rules.py": """
import great_expectations as gx

suite = gx.ExpectationSuite("rules", expectations=[
    gx.expectations.ExpectColumnDistinctValuesToBeInSet(
        column="rule_id", value_set=["busy", "busier", "popular", "guessing", "paid-after-failure"])])
""",
    "events_transactions/amounts.json": json.dumps(
        {
            "expectations": [
                {
                    "type": "expect_column_values_to_be_between",
                    "kwargs": {"column": "amount", "max_value": 99.99},
                    "severity": "warning",
                }
            ],
        }
    ),
    "reconciliation/outcomes.json": json.dumps(
        {
            "expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "outcome"}}],
        }
    ),
}


def versions_of(night: Night, *tables: Table) -> list[int]:
    """The newest version of each table."""
    return [delta.version(night.config.lake.root, table) for table in tables]


def test_a_night_puts_the_stream_right_and_a_second_one_changes_nothing(first_night: FirstNight) -> None:
    """S8 to S10: every difference is explained and corrected once; after that the latest revisions are the truth."""
    night, before, counts = first_night.night, first_night.alerts_before, first_night.counts
    root = night.config.lake.root
    assert latest_alerts(before) != expected(night), "the day has late events, or this shows nothing"
    assert counts["archived"]["events_transactions"] == night.history.streams["transactions"].plan.num_rows
    assert counts["outcomes"]["matched"] > 50
    assert set(counts["causes"]) == {"late_event"}
    assert counts["published"] == counts["corrections"] == sum(counts["causes"].values()) > 0
    corrected = night.alerts()
    assert latest_alerts(corrected) == expected(night)
    assert corrected.height == before.height + counts["published"]
    violations = scan(root, VIOLATIONS).collect()
    assert set(violations["alert_id"]) == {alert_id for alert_id, _ in expected(night)}
    for table in (violations, scan(root, CORRECTIONS).collect()):  # also of a union
        assert table.filter(stream="activity").height > 0

    versions = versions_of(night, VIOLATIONS, RECONCILIATION, CORRECTIONS)
    alert = corrected.filter(pl.col("kind") == "alert").sort("alert_id", "revision").row(-1, named=True)
    about = {name: alert[name] for name in ("alert_id", "stream", "event_id")}
    for known_at, label in ((microseconds(DAY), "fraud"), (microseconds(DAY) + 10**13, "legitimate")):
        send_labels(
            night.settings,
            [label_record(**about, label=label, author="kim", source="analyst", known_at=known_at)],
        )
    begin, end = microseconds(DAY), microseconds(DAY) + MICROSECONDS["d"]
    group, rule_id = scan(root, ALERTS).filter(kind="alert").select("group", "rule_id").first().collect().row(0)
    snoozed = {"rule_id": rule_id, "group": group, "since": begin, "until": end}
    snooze = snooze_record(**snoozed, author="kim", reason="travels", now=begin)
    send_snoozes(night.settings, [snooze])
    again = night.run("second")
    archived = {"alerts": counts["published"], "job_progress": 1, "labels": 2, "snoozes": 1}
    assert again["archived"] == archived, "the corrections, its own mark, the labels, and the snooze"
    of_group = scan(root, ALERTS).filter(rule_id=rule_id, group=group).sort("alert_id", "revision").collect()
    held = of_group.unique("alert_id", keep="last").filter(kind="alert")
    of_day = held.filter(pl.col("event_time").dt.epoch("us").is_between(begin, end, closed="left"))
    assert again["snoozed"] == [Snoozed(snooze["snooze_id"], rule_id, of_day.height).as_dict()]
    assert of_day.height > 0
    precision = Precision(alert["rule_id"], alert["rule_version"], 1, 0, 0)
    assert again["precision"] == [precision.as_dict()], "what was known later is not known yet"
    assert (again["corrections"], again["published"], again["violations_changed"]) == (0, 0, 0)
    assert again["outcomes"] == counts["outcomes"]
    assert night.alerts().height == corrected.height
    assert versions_of(night, VIOLATIONS, RECONCILIATION, CORRECTIONS) == versions
    runs = scan(root, RUNS).filter(pl.col("run_id").is_in(["first", "second"])).collect()
    assert runs.get_column("state").to_list() == ["finished", "finished"]


def test_alerts_beyond_the_cap_are_counted_and_corrected_like_others(first_night: FirstNight) -> None:
    """S10.6: their corrections have the mark, too, and it makes no difference to any outcome."""
    counts, latest = first_night.counts, first_night.alerts_before.sort("revision").unique("alert_id", keep="last")
    marked = latest.filter(pl.col("kind") == "alert", pl.col("overflow"))
    ids = set(marked.get_column("alert_id"))
    assert counts["overflow"] == len(ids) > 10
    rows = first_night.results[RECONCILIATION.name]
    assert {row["alert_id"] for row in rows if row["stream_overflow"] and row["outcome"] != "missed"} == ids
    assert {row["outcome"] for row in rows if row["stream_overflow"]} > {"matched"}
    published = first_night.night.alerts().filter(pl.col("source") == "backfill").unique(["alert_id", "revision"])
    with_mark = set(published.filter(pl.col("overflow")).get_column("alert_id"))
    assert set(published.get_column("alert_id")) & ids <= with_mark
    noted = [row for row in first_night.results[CORRECTIONS.name] if row["overflow"]]
    assert {row["alert_id"] for row in noted} <= with_mark
    assert counts["overflow_corrections"] == len(noted) > 0


def test_every_record_is_in_the_lake_once(first_night: FirstNight) -> None:
    """Offsets without a gap or a repetition, the unusable with their reason and bytes."""
    night = first_night.night
    for name, share in night.history.streams.items():
        records = scan(night.config.lake.root, events_table(share.stream)).collect()
        assert sorted(records["offset"].to_list()) == list(range(share.plan.num_rows)), name
        rejected = records.filter(pl.col("rejected").is_not_null())
        assert dict(rejected["rejected"].value_counts().iter_rows()) == dict(share.reasons)
        assert rejected["original"].null_count() == 0


def test_a_run_that_fails_between_kafka_and_the_tables_publishes_nothing_twice(
    first_night: FirstNight, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Corrections are on Kafka, the results are not yet in their tables: the next run completes it."""
    night = first_night.night
    root = night.config.lake.root
    # retract one alert whose violation holds, so that the run has a correction to publish
    wrong = night.alerts().filter(pl.col("kind") == "alert").sort("alert_id").tail(1).to_dicts()[0]
    retract(night, wrong)

    def crash(*_: object) -> int:
        raise RuntimeError("the machine went away")

    with monkeypatch.context() as broken:
        broken.setattr(results, "publish_violations", crash)
        with pytest.raises(RuntimeError, match="went away"):
            night.run("crashes")
    after = night.alerts()
    assert latest_alerts(after) == expected(night)
    assert night.run("crashes", "publish")["published"] == 0, "the retried task finds its corrections on Kafka"
    assert night.alerts().height == after.height
    counts = night.run("completes")
    assert (counts["corrections"], counts["published"]) == (0, 0)
    assert night.alerts().height == after.height
    states = scan(root, RUNS).collect().sort("finished_at").select("run_id", "state").rows()
    assert states[-3:] == [("crashes", "failed"), ("crashes", "finished"), ("completes", "finished")]


def test_a_dry_run_writes_and_publishes_nothing(first_night: FirstNight) -> None:
    """It shows what it would do."""
    night = first_night.night
    before, versions = night.alerts().height, versions_of(night, VIOLATIONS, RECONCILIATION, CORRECTIONS, ALERTS)
    counts = night.run("dry", "evaluate", "reconcile", "publish", dry_run=True)
    assert counts["published"] == 0
    assert night.alerts().height == before
    assert versions_of(night, VIOLATIONS, RECONCILIATION, CORRECTIONS, ALERTS) == versions


def test_a_staged_row_that_does_not_hold_is_stopped_by_the_gate(first_night: FirstNight) -> None:
    """The gate names the expectation and shows the row, both rows of what is there twice; nothing is published, and the
    pages say so."""
    night = first_night.night
    night.run("corrupted", "evaluate")
    folder = night.config.lake.root / "staging" / "corrupted" / EVALUATED
    staged = pl.read_parquet(folder / "*.parquet")
    first = pl.int_range(pl.len()) == 0
    wrong = staged.sort(pl.col("rule_id") != "busy").with_columns(
        pl.when(first).then(pl.col("measures").str.replace(r'"n":\d+', '"n":1')).otherwise("measures").alias("measures")
    )
    for file in folder.glob("*.parquet"):
        file.unlink()
    pl.concat([wrong, wrong.tail(1)]).write_parquet(folder / "part-00000.parquet")
    before = night.alerts().height
    with pytest.raises(GateError) as refused:
        night.run("corrupted", "gate")
    assert "condition_true" in str(refused.value)
    (twice,) = [found for found in refused.value.findings if found.expectation == "alert_id_unique"]
    last = wrong.tail(1).to_dicts()[0]
    assert [(row["alert_id"], row["event_id"]) for row in twice.examples] == [(last["alert_id"], last["event_id"])] * 2
    assert night.alerts().height == before
    assert (docs_folder(night.config.lake.root) / "site" / "index.html").is_file()


@pytest.mark.parametrize("rows_of", ["spark", "pandas"])
def test_the_gate_checks_what_a_team_expects_too(first_night: FirstNight, tmp_path: Path, rows_of: str) -> None:
    """Conditions in SQL and suites of Great Expectations, of events, violations and outcomes; a critical one stops."""
    night = first_night.night
    for name, content in OWN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    lake = replace(night.config.lake, max_driver_rows=-1 if rows_of == "spark" else 200_000)
    own = replace(night, config=replace(night.config, lake=lake, expectations=tmp_path))
    own.run(f"own-{rows_of}", "evaluate")
    with pytest.raises(GateError) as refused:
        own.run(f"own-{rows_of}", "gate")
    assert [found.expectation for found in refused.value.findings] == ["few_violations"]
    checked = json.loads((own.config.lake.root / "staging" / f"own-{rows_of}" / "checked.json").read_text())
    found = {each["suite"]: {f["expectation"]: f for f in each["findings"]} for each in checked}
    usable = scan(own.config.lake.root, events_table(night.config.streams["transactions"]))
    usable = usable.filter(pl.col("rejected").is_null(), pl.col("arrival_date") == DAY.date()).collect()
    above = usable.filter(pl.col("amount") >= 100).height
    amounts = found["events_transactions_amounts"]["expect_column_values_to_be_between_amount"]
    assert (amounts["observed"], len(amounts["examples"])) == (above, 5)
    violations = scan(own.config.lake.root, VIOLATIONS).collect()
    rules = found["violations_rules"]["expect_column_distinct_values_to_be_in_set_rule_id"]
    assert rules["success"], violations["rule_id"].unique()

    (tmp_path / "violations" / "few.toml").unlink()
    own = replace(own, config=replace(own.config))  # one that has not read the folder yet
    own.run(f"own-{rows_of}", "gate")
    after = own.run(f"own-{rows_of}", "reconcile")
    assert after["severities"]["critical"]["broken"] == 0
    assert after["severities"]["warning"]["broken"] >= 1


def test_a_run_of_one_rule_and_one_group_judges_those_alone(first_night: FirstNight) -> None:
    """The others are neither looked at nor replaced."""
    night = first_night.night
    whole = scan(night.config.lake.root, VIOLATIONS).collect()
    customer = json.loads(whole.filter(pl.col("rule_id") == "busy")["group"][0])["customer_id"]
    counts = night.run("one", "evaluate", "reconcile", "publish", rules="busy", groups=f"customer_id={customer}")
    mine = whole.filter((pl.col("rule_id") == "busy") & pl.col("group").str.contains(f'"{customer}"'))
    assert counts["violations"] == mine.height
    assert counts["groups"] == 1
    assert counts["violations_changed"] == 0
    assert scan(night.config.lake.root, VIOLATIONS).collect().height == whole.height


def retract(night: Night, record: dict[str, Any]) -> None:
    """Somebody retracts an alert on the topic, as an earlier backfill with other data would have."""
    reported = record | {"revision": int(str(record["revision"])) + 1, "kind": "retraction"}
    reported |= {"source": "backfill", "cause": "late_event"}
    for name in ("group", "measures"):  # read as a table, they have every rule's
        reported[name] = {key: value for key, value in dict(reported[name]).items() if value is not None}
    with producer(night.settings) as client:
        client.send(night.settings.alerts_topic, json.dumps(reported, default=str).encode(), key=b"x").get()
