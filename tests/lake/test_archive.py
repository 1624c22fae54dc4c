"""The archive where Kafka has let go of records before they were read."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import TopicPartition

from lake.archive import archive
from lake.config import LakeError
from lake.reading import scan
from lake.tables import events_table
from nightjar.kafka_clients import admin, producer
from nightjar.lake_config import lake_config
from tests.conftest import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


def test_records_that_are_gone_stop_the_archive_until_it_is_told_to_leave_them_out(
    spark: "SparkSession", kafka_topics: TestTopics, tmp_path: Path
) -> None:
    """It says how to go on, does so when told, and every record that was still there is in the lake."""
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
