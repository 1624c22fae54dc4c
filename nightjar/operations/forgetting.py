"""Erases a person from the lake as its only writer, and asks Kafka what it still has of them."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from nightjar.backfill.config import BackfillConfig
from nightjar.backfill.erasure.forgetting import Removal, forget
from nightjar.backfill.erasure.person import Person
from nightjar.backfill.erasure.remains import Remains, TopicState, in_topics, last_arrivals, state_until
from nightjar.configuration.settings import Settings
from nightjar.ingestion.offsets import end_offsets
from nightjar.kafka.clients import KafkaError, admin, consumer, explained
from nightjar.operations.locks import sole_writer
from nightjar.rules.streams import Stream


def forget_person(
    settings: Settings, config: BackfillConfig, person: Person, streams: Sequence[Stream], *, dry_run: bool
) -> tuple[Removal, Remains]:
    """Erase the person from the lake, as its only writer; with dry_run only count.

    Raises:
        AlreadyRunningError: an archive or a backfill is running.
        LakeError: there is no lake.
        BackfillError: a key cannot name a person.
    """
    config.lake.refuse_missing()
    with sole_writer(config.lake.root) as fence:
        removal = forget(config.fenced(fence), person, streams, datetime.now(UTC), dry_run=dry_run)
        arrivals, states = last_arrivals(config, streams, removal), state_until(config, streams, removal)
        try:
            topics = _topics(settings, arrivals)
        except KafkaError as failure:
            return removal, Remains(None, str(failure), states)
        return removal, Remains(in_topics(config, arrivals, topics), "", states)


def _topics(settings: Settings, names: Collection[str]) -> dict[str, TopicState]:
    """Those of the topics that exist."""
    with admin(settings) as client, explained(settings, "looking up the retention of topics"):
        present = set(client.list_topics())
        topics = [topic for topic in names if topic in present]
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
        described = client.describe_configs(resources, config_filter="all")["topic"]
    ends: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    with closing(consumer(settings)) as client, explained(settings, "looking up where topics end"):
        places = [TopicPartition(topic, n) for topic in topics for n in client.partitions_for_topic(topic) or ()]
        for place, end in end_offsets(client, places).items():
            ends[place.topic][place.partition] = end
    return {topic: TopicState(_retained_ms(described[topic]), ends[topic]) for topic in topics}


def _retained_ms(config: Mapping[str, Any]) -> int | None:
    """How long a record may be there: a segment goes once it is closed, and its last record is old enough."""
    kept, segment = (int(config[name]["value"]) for name in ("retention.ms", "segment.ms"))
    return None if kept < 0 or "delete" not in str(config["cleanup.policy"]["value"]) else kept + segment
