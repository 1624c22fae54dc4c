"""A night through Airflow: the DAG's own tasks, a real stage server, a real Kafka and a real lake."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from nightjar.airflow.submission import PENDING
from nightjar.backfill.stages import STAGES
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.lake.scanning import scan
from nightjar.lake.tables import RECONCILIATION, RUNS, VIOLATIONS, events_table
from nightjar.rules.timestamps import microseconds
from tests.support.airflow import Airflow, settings_file
from tests.support.answers import answered
from tests.support.topics import TestTopics

# A server with its JVM, and three runs of the DAG.
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

DAY = datetime(2026, 1, 5, tzinfo=UTC)
RULE = {
    "id": "busy",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "measures": {"n": {"count": "*", "over": "10m"}},
    "when": "n >= 3",
}

NEXT_NIGHTS = """
import nightly_backfill
others = "archive|evaluate|gate|reconcile|publish"
nights = [nightly_backfill.dag.test(mark_success_pattern=others) for _ in range(2)]
report([run.get_task_instance("pending").state for run in nights])
"""

OTHER_DAGS = """
import archive, lake_maintenance, nightly_backfill
others = "archive|evaluate|gate|reconcile|publish"
states = [archive.dag.test().state, lake_maintenance.dag.test().state]
report([*states, nightly_backfill.dag.test(mark_success_pattern=others).get_task_instance("pending").state])
"""

RUN = """
import nightly_backfill
run = nightly_backfill.dag.test(run_conf={"day": "2026-01-05", "rules": ["busy"], "groups": ["customer_id=ann,bob"]})
from airflow.models import Variable
report({
    "state": run.state, "tasks": {ti.task_id: ti.state for ti in run.get_task_instances()},
    "result": run.get_task_instance("publish").xcom_pull(task_ids="publish"), "rules": Variable.get("nightjar_rules"),
})
"""


def publish(own: TestTopics, at: datetime) -> None:
    """Send what a job answered to RULE."""
    (answer,) = answered(own.streams, RULE, at=microseconds(at))
    with producer(own.settings) as client:
        client.send(own.settings.rule_status_topic, answer.value, timestamp_ms=answer.arrival // 1000).get()


def pay(own: TestTopics, number: int, customer: str, at: datetime) -> None:
    """Send a payment, which arrives when it happens."""
    event = {
        "transaction_id": f"t{number}",
        "event_time": at.isoformat(),
        "customer_id": customer,
        "terminal_id": "m1",
        "amount": "5.00",
    }
    with producer(own.settings) as client:
        stamp = int(at.timestamp() * 1000)
        client.send(own.streams["transactions"].topic, json.dumps(event).encode(), timestamp_ms=stamp).get()


def test_a_night_brings_a_day_from_kafka_to_its_results(
    airflow: Airflow, kafka_topics: TestTopics, tmp_path: Path
) -> None:
    """No job ran that day: the one alert of the groups asked for is missing; the stream may still say it."""
    own = kafka_topics.with_arrival("producer").ensure()
    publish(own, DAY - timedelta(days=1))
    for number in range(6):
        pay(own, number, "ann" if number < 3 else "eve", DAY + timedelta(hours=9, minutes=number))
    base = {"AIRFLOW__API__BASE_URL": "https://airflow.example/base"}
    airflow.environment = base | {"NIGHTJAR_SETTINGS": str(settings_file(own, tmp_path))}
    airflow.make_database()
    ended = airflow.run(RUN)
    tasks = dict.fromkeys(["form", *STAGES, PENDING, "night"], "success")
    assert (ended["state"], ended["tasks"], ended["rules"]) == ("success", tasks, "busy")
    run_id = ended["result"].pop("run")
    assert ended["result"] == {
        "day": "2026-01-05",
        "alerts": 0,
        "matched": 0,
        "corrections": {"stream_down": 1},
        "published": 0,
        "held_back": 0,
        "data_docs": f"https://airflow.example/base/plugin/data-docs/base/data-docs/index.html#{run_id}",
    }

    lake = tmp_path / "data" / "lake"
    (run,) = scan(lake, RUNS).collect().to_dicts()
    assert (run["state"], run["day"], run["only_rules"]) == ("finished", DAY.date(), '["busy"]')
    assert (lake / "staging" / run["run_id"]).is_dir()
    (violation,) = scan(lake, VIOLATIONS).collect().to_dicts()
    assert (violation["event_id"], violation["measures"]) == ("t2", '{"n":3}')
    (found,) = scan(lake, RECONCILIATION).collect().to_dicts()
    assert (found["alert_id"], found["outcome"], found["cause"]) == (violation["alert_id"], "missed", "stream_down")
    with Reader(own.settings, own.settings.alerts_topic) as alerts:
        assert list(alerts.all()) == []

    # the day is still pending, as that run was about one rule and two groups
    assert airflow.run(NEXT_NIGHTS) == ["success"] * 2
    (whole,) = scan(lake, RUNS).filter(pl.col("only_rules").is_null()).collect().to_dicts()
    assert (whole["state"], whole["day"]) == ("finished", DAY.date())
    assert whole["run_id"].endswith(DAY.date().isoformat())
    assert {row["event_id"] for row in scan(lake, VIOLATIONS).collect().to_dicts()} == {"t2", "t5"}
    assert scan(lake, RUNS).collect().height == len([run, whole]), "the second had nothing left to do"

    # the other DAGs of the lake, on the same server: nothing of what is there is lost or doubled
    pay(own, 6, "eve", DAY + timedelta(hours=10))
    staged = {folder.name for folder in (lake / "staging").iterdir()}
    assert airflow.run(OTHER_DAGS) == ["success"] * 3
    assert len(scan(lake, events_table(own.streams["transactions"])).collect()) == 7
    assert staged <= {folder.name for folder in (lake / "staging").iterdir()}
    assert {row["event_id"] for row in scan(lake, VIOLATIONS).collect().to_dicts()} == {"t2", "t5"}
