"""Where the job cannot run in real time, it says so before it starts."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from nightjar.cases.model import Step
from nightjar.ingestion.spark_config import SparkConfig
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.rules.streams import load_streams
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.driver.engine_link import EngineLink, refuse_real_time
from nightjar.streaming.driver.places import Places
from nightjar.streaming.driver.planning import PlannedQuery
from nightjar.streaming.driver.query import packer_of
from nightjar.streaming.driver.session import spark_settings
from nightjar.streaming.state.checkpoint import Checkpoint
from tests.support.job_host import CaseRun, logins_job
from tests.support.logins import NOON, login, more_than

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = more_than(1)
JAR = Path("/jars/engine-bridge-0.jar")
CONFIG = JobConfig(load_streams(), Path("/checkpoint"), spark=SparkConfig("local[2]", jars=(JAR,)), latency="real-time")


def test_it_runs_on_one_machine() -> None:
    refuse_real_time(CONFIG)


@pytest.mark.parametrize("spark", [SparkConfig("spark://host:7077", jars=(JAR,)), SparkConfig("local[2]")])
def test_a_cluster_and_a_missing_operator_are_refused(spark: SparkConfig) -> None:
    with pytest.raises(JobError, match='latency = "real-time"'):
        refuse_real_time(replace(CONFIG, spark=spark))


@pytest.mark.parametrize(
    ("master", "with_slots"),
    [
        ("local[*,4]", "local[1000,4]"),
        ("local[2]", "local[1000]"),
        ("local", "local[1000]"),
        ("spark://h:1", "spark://h:1"),
    ],
)
def test_a_task_of_each_partition_has_a_slot(master: str, with_slots: str) -> None:
    """Tasks of a real-time batch run all the time, whatever the number of cores."""
    settings = spark_settings(replace(CONFIG, spark=SparkConfig(master)))
    assert settings["spark.master"] == with_slots
    assert settings.get("spark.default.parallelism", "2") == "2"


@pytest.mark.spark
def test_too_many_partitions_are_refused(spark: "SparkSession") -> None:
    begins = json.dumps({"transactions": dict.fromkeys(range(1001), 0)})
    plan = BucketPlan("c", "r", Path("/state"), CONFIG.streams, (), 1, CONFIG.topics, ())
    planned = PlannedQuery(
        CONFIG, spark, Places(spark, 2), "/query", packer_of(CONFIG, ()), plan, begins, 0, 0, has_gap=False
    )
    with EngineLink.start() as engine, pytest.raises(JobError, match="1001 of at most 1000"):
        planned.start_in_real_time(engine, 60, only_one=False)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_a_micro_batch_that_was_not_committed_is_repeated_before_real_time(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Its alerts may have left: other groups of the same records could come to others under the same revision."""
    with logins_job(spark, tmp_path) as (broker, job):
        job.take(Step(NOON - 1, crash=False, rules=(json.dumps(MANY).encode(),), events=()))
        job.take(Step(NOON, crash=False, rules=(), events=tuple(map(login, (0, 1)))))
        job.take(Step(NOON, crash=False, rules=(), events=tuple(map(login, (4, 2, 3)))))
        job.crash()
        streams, query = job.streams, Checkpoint(job.config).query
        last = max(int(file.name) for file in (query / "commits").iterdir() if file.name.isdigit())
        offsets, commit = ((query / log / str(last)) for log in ("offsets", "commits"))
        before = offsets.read_text()
        commit.unlink()
        assert Checkpoint(job.config).unfinished == "micro-batch"
        with CaseRun(spark, broker.settings, streams, latency="real-time", real_time_batch=2_000_000) as again:
            again.take(Step(NOON, crash=False, rules=(), events=(login(5),)))
            found = again.outcome().alerts
        with Reader(broker.settings, broker.settings.job_progress_topic) as reader:
            reports = [json.loads(record.value) for record in reader.all()]
    assert offsets.read_text() == before
    assert commit.exists()
    content = idempotent(found)
    assert [(e["event_id"], e["text"]) for e in content][-1] == ("l5", "6")
    parts = {part for each in reports if each.get("mode") == "real-time" for part in each["parts_ms"]}
    assert parts == {"wait", "evaluate", "log", "reply", "whole"}, "also after the query has ended"


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_a_killed_engine_process_is_replaced_once_in_a_batch(spark: "SparkSession", tmp_path: Path) -> None:
    """Its groups are evaluated again, to the same alerts; the job goes on. Killed again, it ends the job."""
    again = pytest.raises(JobError, match="killed twice within one batch")
    with again, logins_job(spark, tmp_path, latency="real-time", real_time_batch=900_000_000) as (broker, job):

        def send(number: int, alerts: int) -> None:
            with producer(broker.settings) as client:
                client.send(job.streams["logins"].topic, login(number).raw, timestamp_ms=NOON // 1000)
            job.wait_for(lambda: len(idempotent(job.outcome().alerts)) >= alerts, f"{alerts} alerts")

        job.take(Step(NOON - 1, crash=False, rules=(json.dumps(MANY).encode(),), events=()))
        send(0, 0)
        send(1, 1)
        kill_engine()
        send(2, 2)
        assert [each["text"] for each in idempotent(job.outcome().alerts)] == ["2", "3"]
        kill_engine()
        job.wait_for(lambda: False, "the end of the job")


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_an_engine_process_that_is_killed_before_its_query_runs_is_replaced(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def kill_the_first() -> None:
        while not (found := engines()):
            time.sleep(0.1)
        found[0].kill()

    with ThreadPoolExecutor(1) as beside:
        killing = beside.submit(kill_the_first)
        with logins_job(spark, tmp_path, latency="real-time", real_time_batch=2_000_000) as (_, job):
            killing.result()
            job.take(Step(NOON - 1, crash=False, rules=(json.dumps(MANY).encode(),), events=()))


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_the_job_says_why_its_query_failed_also_where_the_engine_misses_its_tasks_first(
    spark: "SparkSession", tmp_path: Path
) -> None:
    failing = pytest.raises(JobError, match=r"the query failed: .*the engine process has ended")
    with failing, logins_job(spark, tmp_path, latency="real-time", real_time_batch=900_000_000) as (broker, job):
        job.take(Step(NOON - 1, crash=False, rules=(json.dumps(MANY).encode(),), events=()))
        (engine,) = engines()
        (path,) = {str(each.laddr) for each in engine.net_connections(kind="unix") if each.laddr}
        with producer(broker.settings) as client, socket.socket(socket.AF_UNIX) as task:
            client.send(broker.settings.rules_topic, json.dumps({**MANY, "version": 2}).encode())
            task.connect(path)
        job.wait_for(lambda: False, "the end of the job")


def engines() -> list[psutil.Process]:
    """The engine processes of the job in this process."""
    module = "nightjar.streaming.real_time.engine_process"
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # another child, which has ended meanwhile
            found += [child] if module in child.cmdline() else []
    return found


def kill_engine() -> None:
    (engine,) = engines()
    engine.kill()


def idempotent(alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The alerts, once each; copies differ only in the time of emission."""
    content: dict[tuple[str, int], dict[str, Any]] = {}
    for each in alerts:
        timeless = {**each, "emitted_at": 0}
        assert content.setdefault((each["alert_id"], each["revision"]), timeless) == timeless
    return [*content.values()]


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(600)
@pytest.mark.parametrize("then", ["real-time", "micro-batch"])
def test_a_new_checkpoint_resumes_in_its_first_batch(spark: "SparkSession", tmp_path: Path, then: str) -> None:
    """Nothing is committed yet. A rule that was published while the batch ran is known to the same events again."""
    with logins_job(spark, tmp_path, latency="real-time", real_time_batch=900_000_000) as (broker, job):

        def send(*numbers: int, alerts: int) -> None:
            with producer(broker.settings) as client:
                for number in numbers:
                    client.send(job.streams["logins"].topic, login(number).raw, timestamp_ms=NOON // 1000)
            job.wait_for(lambda: len(job.outcome().alerts) >= alerts, f"{alerts} alerts")

        job.take(Step(NOON - 1, crash=False, rules=(json.dumps(MANY).encode(),), events=()))
        send(0, 1, alerts=1)
        job.take(Step(NOON - 1, crash=False, rules=(json.dumps(more_than(2, "more")).encode(),), events=()))
        send(2, alerts=3)
        before = job.outcome().alerts
        assert Checkpoint(job.config).unfinished == "real-time"
        job.crash()
        with CaseRun(spark, broker.settings, job.streams, latency=then, real_time_batch=2_000_000) as again:
            again.take(Step(NOON, crash=False, rules=(), events=(login(3),)))
            found = again.outcome().alerts
    assert idempotent(found)[: len(before)] == idempotent(before)
    last = [(each["rule_id"], each["text"]) for each in idempotent(found) if each["event_id"] == "l3"]
    assert sorted(last) == [("many", "4"), ("more", "4")]
