"""How far the archive has come, and where Kafka has deleted records before they were read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from kafka import TopicPartition
from polars.testing import assert_frame_equal

from nightjar.configuration.lake import lake_config
from nightjar.kafka.clients import admin, producer
from nightjar.lake.archive import archive, archived_until
from nightjar.lake.config import LakeError
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ARCHIVES, events_table
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


def test_missing_records_stop_the_archive_until_it_may_skip_them(
    spark: "SparkSession", kafka_topics: TestTopics, tmp_path: Path
) -> None:
    """The error has the remedy, which works, and every record that still existed is in the lake."""
    topics = replace(kafka_topics, settings=kafka_topics.settings.model_copy(update={"partitions": 1})).ensure()
    config = lake_config(topics.settings.model_copy(update={"data_dir": tmp_path}), topics.streams)
    stream = topics.streams["logins"]
    place = TopicPartition(stream.topic, 0)

    def send(count: int) -> None:
        with producer(topics.settings) as client:
            for _ in range(count):
                client.send(stream.topic, b"{}", partition=0)
            client.flush()

    def archived() -> list[int]:
        return scan(config.root, events_table(stream)).select("offset").collect()["offset"].sort().to_list()

    send(2)
    archive(spark, config)
    send(3)
    with admin(topics.settings) as client:
        client.delete_records({place: 4})
    with pytest.raises(LakeError, match="nightjar archive --leave-out-deleted"):
        archive(spark, config)
    assert archived() == [0, 1]
    assert archive(spark, config, leave_out_deleted=True).rows[events_table(stream).name] == 1
    send(1)
    archive(spark, config)
    assert archived() == [0, 1, 4, 5]


def test_it_notes_how_far_it_has_come_by_the_brokers_time(
    spark: "SparkSession", kafka_topics: TestTopics, tmp_path: Path
) -> None:
    """What was sent before the archive arrived before that time, give or take the margin, and is in the lake."""
    topics = kafka_topics.ensure()
    config = lake_config(topics.settings.model_copy(update={"data_dir": tmp_path}), topics.streams)
    stream, margin = topics.streams["logins"], 2_000_000
    assert archived_until(config.root) is None
    reached = []
    for _ in range(2):
        with producer(topics.settings) as client:
            arrived = client.send(stream.topic, b"{}").get().timestamp * 1000
        done = archive(spark, config)
        assert done.until + margin >= arrived
        assert archived_until(config.root) == done.until
        reached.append(done.until)
    assert reached == sorted(reached)
    noted = scan(config.root, ARCHIVES).collect().sort("until")
    assert [json.loads(rows)[events_table(stream).name] for rows in noted["rows"]] == [1, 1]


def test_a_topic_without_the_brokers_time_is_refused(
    spark: "SparkSession", kafka_topics: TestTopics, tmp_path: Path
) -> None:
    """Its records would show the clock of this host."""
    settings = kafka_topics.settings.model_copy(update={"data_dir": tmp_path})
    stamped = {"num_partitions": 1, "replication_factor": 1, "configs": {"message.timestamp.type": "CreateTime"}}
    with admin(settings) as client:
        client.create_topics({settings.job_progress_topic: stamped})
        client.wait_for_topics([settings.job_progress_topic])
    with pytest.raises(LakeError, match="its timestamps are set by producers"):
        archive(spark, lake_config(settings, kafka_topics.streams))


def test_a_large_batch_is_written_by_tasks_and_holds_the_same(
    spark: "SparkSession", kafka_topics: TestTopics, tmp_path: Path
) -> None:
    """Row by row, every table: events good and bad, records of the other topics that can and cannot be read, rules."""
    topics = kafka_topics.ensure()
    config = lake_config(topics.settings.model_copy(update={"data_dir": tmp_path}), topics.streams)
    event = {"login_id": "l1", "event_time": "2026-01-05T09:00:00Z", "customer_id": "ann"}
    alerts, rules = topics.settings.alerts_topic, topics.settings.rules_topic
    with producer(topics.settings) as client:
        for value in (json.dumps(event).encode(), b"{}", b"\xff", None):
            client.send(topics.streams["logins"].topic, value, key=b"k", headers=[("sent_at", b"17")])
        for topic in (alerts, topics.settings.late_events_topic, topics.settings.quarantine_topic, rules):
            client.send(topic, b'{"stream": "logins"}')
            client.send(topic, b"no JSON")
        client.flush()
    small, large = config, replace(config, root=tmp_path / "large", max_driver_bytes=0)
    counted = [archive(spark, each).rows for each in (small, large)]
    for rows in counted:
        rows.pop("job_progress")  # a record of each archive's own
    assert counted[0] == counted[1]
    for name in counted[0]:
        found = [pl.scan_delta(str(each.root / name)).collect().sort("partition", "offset") for each in (small, large)]
        assert found[0].height == counted[0][name] > 0
        assert_frame_equal(found[0], found[1])
