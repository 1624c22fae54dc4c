"""Where partitions begin and end, asked of Kafka by kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

# A partition has no leader while its topic is being made, or while its broker is lost.
_LEADER_SECONDS = 10.0
_POLL_SECONDS = 0.05


def beginning_offsets(consumer: KafkaConsumer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset of each partition.

    Raises:
        KafkaError: the brokers do not answer, or a partition has had no leader for ten seconds.
    """
    return _of_each(consumer.beginning_offsets, partitions)


def end_offsets(consumer: KafkaConsumer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset behind the last record of each partition; errors as for `beginning_offsets`."""
    return _of_each(consumer.end_offsets, partitions)


def _of_each(
    ask: Callable[[list[TopicPartition]], dict[TopicPartition, int]], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    # kafka-python (3.0.12, Fetcher._group_list_offset_requests) leaves out a partition whose leader it does not know as
    # long as it knows another's, asks for new metadata, and then fails over the missing entry.
    places = list(partitions)
    deadline = time.monotonic() + _LEADER_SECONDS
    while True:
        try:
            return ask(places)
        except KeyError as unknown:
            if time.monotonic() > deadline:
                raise KafkaTimeoutError(f"{unknown.args[0]} has no leader") from unknown
        time.sleep(_POLL_SECONDS)
