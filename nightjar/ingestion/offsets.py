"""Looks up the first and end offsets of partitions with kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

# A partition has no leader while its topic is being created, or while its broker is down.
_LEADER_SECONDS = 10.0
_POLL_SECONDS = 0.05


def beginning_offsets(consumer: KafkaConsumer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset of each partition.

    Raises:
        KafkaError: the brokers do not respond, or a partition has had no leader for ten seconds.
    """
    return _of_each(consumer.beginning_offsets, partitions)


def end_offsets(consumer: KafkaConsumer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset after the last record of each partition; raises as `beginning_offsets` does."""
    return _of_each(consumer.end_offsets, partitions)


def _of_each(
    ask: Callable[[list[TopicPartition]], dict[TopicPartition, int]], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    # kafka-python (3.0.12, Fetcher._group_list_offset_requests) omits a partition whose leader it does not know if it
    # knows another's, requests new metadata, and then raises KeyError for the missing entry.
    places = list(partitions)
    deadline = time.monotonic() + _LEADER_SECONDS
    while True:
        try:
            return ask(places)
        except KeyError as unknown:
            if time.monotonic() > deadline:
                raise KafkaTimeoutError(f"{unknown.args[0]} has no leader") from unknown
        time.sleep(_POLL_SECONDS)
