"""Sends records that need no order among each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nightjar.configuration.settings import Settings
from nightjar.kafka.clients import explained, producer

_DELIVERY_SECONDS = 30
_SENT_AT_ONCE = 5_000


def send_all(settings: Settings, topic: str, messages: Iterable[tuple[bytes, bytes]]) -> int:
    """Send keys and values to a topic; how many there were. All are delivered when this returns.

    Raises:
        KafkaError: Kafka does not take them, some of which may have been sent.
    """
    count = 0
    with producer(settings, linger_ms=20) as client, explained(settings, f"sending to topic {topic}"):
        sent: list[Any] = []
        for key, value in messages:
            sent.append(client.send(topic, value, key=key))
            count += 1
            if len(sent) >= _SENT_AT_ONCE:
                _await(sent)
        _await(sent)
    return count


def _await(sent: list[Any]) -> None:
    for each in sent:
        each.get(_DELIVERY_SECONDS)
    sent.clear()
