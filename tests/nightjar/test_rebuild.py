"""`nightjar stream rebuild`: the job's checkpoint rebuilt from the lake, on real Kafka, Spark and Delta."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition
from rich.console import Console

from nightjar.cases import Step
from nightjar.configuration.job import job_config
from nightjar.configuration.lake import lake_config
from nightjar.configuration.settings import Settings
from nightjar.kafka.clients import admin, producer
from nightjar.lake.archive import archive
from nightjar.operations.rebuild import rebuild
from nightjar.rules.errors import NightjarError
from nightjar.streaming.state.checkpoint import Checkpoint
from nightjar.terminal.stages import Stages
from tests.support.command import run
from tests.support.job_host import CaseRun, ends_of_batches
from tests.support.places import MINUTE, NOON, RULES, Place, final, history, truth
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = Stages(Console(file=io.StringIO()))
_BATCH = 250
# Of each partition: of what the job had not reported as read, Kafka no longer holds these.
_UNREAD = 60


@pytest.fixture
def place(kafka_topics: TestTopics, tmp_path: Path) -> Place:
    """Topics whose producers give the arrival, and settings for many small batches."""
    small = {"activation_delay": 0, "warm_up_batches": 0, "buckets": 2, "max_offsets_per_trigger": _BATCH}
    streams = {"transactions": kafka_topics.streams["transactions"]}
    settings = kafka_topics.settings.model_copy(update=small)
    return Place(TestTopics(settings, streams).with_arrival("producer").ensure(), tmp_path)


def total(offsets: Any) -> int:
    """How many records lie before these offsets of a topic."""
    return sum(offsets.values())


def forget(settings: Settings, topic: str, before: dict[int, int]) -> None:
    """Kafka deletes the records before these offsets, as its retention does."""
    with admin(settings) as client:
        client.delete_records({TopicPartition(topic, partition): offset for partition, offset in before.items()})


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_crashed_job_resumes_from_the_lake_with_other_buckets(place: Place, spark: "SparkSession") -> None:
    """S8 to S10, where the job had read more than it reported, and Kafka no longer holds all of that."""
    settings, streams = place.topics.settings, place.topics.streams
    topic = streams["transactions"].topic
    events, _ = history(2400)
    first, rest = events[: len(events) * 3 // 4], events[len(events) * 3 // 4 :]
    rules = tuple(json.dumps(rule).encode() for rule in RULES)
    with CaseRun(spark, settings, streams) as job:
        job.take(Step(NOON - MINUTE, crash=False, rules=rules, events=()))
        place.send(first)
        half = len(events) // 2
        job.wait_for(
            lambda: total(Checkpoint(job.config).committed_offsets().get(topic, {})) >= half, "half of the events"
        )
        job.crash()
    archive(spark, lake_config(settings, streams))
    reports = max(
        (o for o in ends_of_batches(job.config) if total(o[topic]) <= half - _BATCH), key=lambda o: total(o[topic])
    )
    with producer(settings) as client:  # as if its last words had not reached Kafka
        word = {"kind": "job", "state": "running", "consumed": reports}
        client.send(settings.job_progress_topic, json.dumps(word).encode()).get()
    begins = {int(partition): offset for partition, offset in reports[topic].items()}
    begins = {partition: offset + _UNREAD for partition, offset in begins.items()}
    forget(settings, topic, begins)
    place.send(rest)

    wider = settings.model_copy(update={"buckets": 3})
    done = rebuild(wider, streams, QUIET, spark)
    assert done.begins[topic] == begins
    assert done.announcements > 0
    assert 0 < done.events < 3 * total(begins), "less than all of them, once a shuffle key: the oldest are of no use"
    with pytest.raises(NightjarError, match="made with buckets = 3, and the setting is 2"):
        Checkpoint(job_config(settings, streams)).refuse_unfit()
    config = job_config(wider, streams)
    with CaseRun(spark, wider, streams) as job:
        job.wait_for(
            lambda: total(Checkpoint(config).committed_offsets()[topic]) == len(events), "the rest of the events"
        )
    read = ends_of_batches(config)[0][topic]
    assert total(begins) < total(read) <= total(begins) + _BATCH, "it did not begin from nothing"

    assert final(place) == truth(place, events)


@pytest.mark.kafka
@pytest.mark.spark
def test_what_is_neither_on_kafka_nor_in_the_lake_is_lost(place: Place, spark: "SparkSession") -> None:
    """And reported; where no job ever reported anything there is nothing to rebuild."""
    settings, streams = place.topics.settings, place.topics.streams
    with pytest.raises(NightjarError, match="no job has reported that it read anything"):
        rebuild(settings.model_copy(update={"lake_dir": place.folder / "other"}), streams, QUIET, spark)
    place.send(history(20)[0])
    topic = streams["transactions"].topic
    reports = {"kind": "job", "state": "stopped", "consumed": {topic: {"0": 2, "1": 2}}}
    with producer(settings) as client:
        client.send(settings.job_progress_topic, json.dumps(reports).encode()).get()
    forget(settings, topic, {0: 3})
    with pytest.raises(NightjarError, match="neither Kafka nor the lake has 1 record that the job had yet to read"):
        rebuild(settings, streams, QUIET, spark)
    assert not job_config(settings, streams).checkpoint.exists()


def test_number_of_buckets_must_be_one(tmp_path: Path) -> None:
    """As the setting's."""
    assert "--buckets" in run("stream", "rebuild", "--buckets", "0", code=2, folder=tmp_path).stderr
