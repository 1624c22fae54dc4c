"""Alerts on another topic, in Avro with a schema in a registry.

How it works: the offsets up to which the topic has the alerts are those of a consumer group, and are committed once
the brokers have acknowledged the records. After a crash in between, these records are there twice. Keys and headers
are those of the alerts topic, so an alert's records stay in their order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from nightjar.configuration.schemas import registry_of
from nightjar.configuration.settings import Settings
from nightjar.contracts.alerts import ALERT, ALWAYS_THERE
from nightjar.formats.avro_records import AvroWriter, avro_schema
from nightjar.kafka import topics
from nightjar.kafka.clients import consumer, explained, producer
from nightjar.operations.alert_forwarding import ForwardedAlert
from nightjar.rules.errors import SettingsError
from nightjar.rules.streams import TOPIC_NAME, Stream

# What records are collected for before they are sent together, ms.
_LINGER_MS = 5
# The brokers limit a record's size, not this client.
_MAX_BYTES = 1 << 30


def group_of(topic: str) -> str:
    """The consumer group whose offsets are those of the alerts that a topic has."""
    return f"nightjar-forward-{topic}"


class AlertTopic:
    """A target; a context manager. topic: its name.

    The topic is created if it is missing, and the schema is registered, when the block begins.

    Raises:
        SettingsError: no registry is set, or the topic is one of nightjar's own or has no valid name.
        SchemaError: the registry refuses the schema.
        RegistryError: it cannot be used.
        KafkaError: the topic is missing and cannot be created.
    """

    def __init__(self, settings: Settings, streams: Collection[Stream], topic: str) -> None:
        if not TOPIC_NAME.fullmatch(topic):
            remedy = "Write letters, digits, dots, dashes and underscores"
            raise SettingsError(f"{topic!r} is not a topic's name", where="--avro", remedy=remedy)
        if topic.startswith("__") or topic in {each.name for each in topics.topics(settings, streams)}:
            remedy = "Name one for the alerts in Avro alone"
            raise SettingsError(f"{topic} is a topic of nightjar's or of Kafka's own", where="--avro", remedy=remedy)
        registry = registry_of(settings)
        if registry is None:
            raise SettingsError("is empty", where="schema_registry", remedy="Give the registry's URL")
        self._settings, self._topic, self._registry = settings, topic, registry
        self._clients = ExitStack()

    def __enter__(self) -> Self:
        topics.create(self._settings, topics.of_alerts(self._settings, self._topic))
        schema = avro_schema(ALERT, ALWAYS_THERE)
        self._writer = AvroWriter(schema, self._registry.register(f"{self._topic}-value", schema))
        with ExitStack() as opened:
            self._producer: KafkaProducer = opened.enter_context(
                producer(self._settings, linger_ms=_LINGER_MS, max_request_size=_MAX_BYTES)
            )
            self._group: KafkaConsumer = opened.enter_context(consumer(self._settings, group_id=group_of(self._topic)))
            self._clients = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clients.close()

    def start(self) -> Mapping[int, int]:
        """The offsets that the group has committed."""
        source = self._settings.alerts_topic
        with explained(self._settings, f"reading the offsets of group {group_of(self._topic)}"):
            found = {
                partition: self._group.committed(TopicPartition(source, partition))
                for partition in self._group.partitions_for_topic(source) or ()
            }
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def write(self, alerts: Sequence[ForwardedAlert], offsets: Mapping[int, int]) -> None:
        """Send the records, and commit the offsets once all are acknowledged."""
        with explained(self._settings, f"writing to topic {self._topic}"):
            sent: list[Any] = [
                self._producer.send(
                    self._topic,
                    self._writer.encode(each.row),
                    key=each.record.key,
                    headers=list(each.record.headers),
                )
                for each in alerts
            ]
            self._producer.flush()
            for future in sent:
                future.get()
        with explained(self._settings, f"committing offsets of group {group_of(self._topic)}"):
            places = {TopicPartition(self._settings.alerts_topic, each): offset for each, offset in offsets.items()}
            self._group.commit({place: OffsetAndMetadata(offset) for place, offset in places.items()})
