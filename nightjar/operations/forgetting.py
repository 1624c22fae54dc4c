"""Erases a person from the lake, and finds out until when Kafka and the job's state still have them."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from nightjar.backfill.config import BackfillConfig
from nightjar.backfill.erasure.forgetting import Removal, forget
from nightjar.backfill.erasure.person import Person
from nightjar.configuration.settings import Settings
from nightjar.ingestion.offsets import end_offsets
from nightjar.kafka.clients import KafkaError, admin, consumer, explained
from nightjar.lake import delta
from nightjar.lake.archive import archived_offsets, archived_until
from nightjar.lake.config import LakeError
from nightjar.lake.stream_state import rule_book
from nightjar.lake.tables import RULE_STATUS
from nightjar.operations.locks import sole_writer
from nightjar.rules.errors import SettingsError
from nightjar.rules.names import did_you_mean
from nightjar.rules.retention import widest
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import after, from_microseconds, microseconds


@dataclass(frozen=True)
class InTopic:
    """What a topic may still have of the person. until: when Kafka has deleted what had arrived by now (None: it never
    deletes). unarchived: records that the lake does not have yet: the next archive brings them."""

    topic: str
    until: datetime | None
    unarchived: int


@dataclass(frozen=True)
class Remains:
    """What is left outside the lake. topics: None if Kafka did not answer, with the reason in `unknown`. state_until:
    by stream, when the job's state has no event of the person any more, as long as it runs."""

    topics: tuple[InTopic, ...] | None
    unknown: str
    state_until: Mapping[str, datetime]


def person_of(keys: Sequence[str]) -> Person:
    """FIELD=VALUE texts as a person. Raises SettingsError if one is not of that form."""
    found: dict[str, tuple[str, ...]] = {}
    for key in keys:
        name, equals, value = key.partition("=")
        if not (name and equals and value.strip()):
            raise SettingsError("is not FIELD=VALUE", where="--key", remedy="Write --key customer_id=C123")
        found[name] = (*found.get(name, ()), value)
    return Person(found)


def searched_streams(config: BackfillConfig, names: Sequence[str], person: Person) -> list[Stream]:
    """The streams of these names; of none, all that declare a key. Raises SettingsError for an unknown one."""
    for name in names:
        if name not in config.streams:
            remedy = did_you_mean(name, config.streams, "Streams are")
            raise SettingsError("is not a declared stream", where=f"--stream {name}", remedy=remedy)
    chosen = [config.streams[name] for name in names] or [*config.streams.values()]
    declaring = [stream for stream in chosen if set(person.keys) & set(stream.fields)]
    return declaring or chosen


def forget_person(
    settings: Settings, config: BackfillConfig, person: Person, streams: Sequence[Stream], *, dry_run: bool
) -> tuple[Removal, Remains]:
    """Erase the person from the lake, as its only writer; with dry_run only count.

    Raises:
        AlreadyRunningError: an archive or a backfill is running.
        LakeError: there is no lake.
        BackfillError: a key cannot name a person.
    """
    root = config.lake.root
    if not root.is_dir():
        raise LakeError("there is no lake", where=str(root), remedy="Check lake_dir; `nightjar archive` creates a lake")
    with sole_writer(root) as fence:
        removal = forget(config.fenced(fence), person, streams, datetime.now(UTC), dry_run=dry_run)
        return removal, _remains(settings, config, streams, removal)


def _remains(settings: Settings, config: BackfillConfig, streams: Sequence[Stream], removal: Removal) -> Remains:
    states = dict(_state_until(config, streams, removal))
    try:
        return Remains(_in_topics(settings, config, streams, removal), "", states)
    except KafkaError as failure:
        return Remains(None, str(failure), states)


def _state_until(config: BackfillConfig, streams: Sequence[Stream], removal: Removal) -> list[tuple[str, datetime]]:
    root, found = config.lake.root, []
    versions = rule_book(root, config.streams).ruleset.versions if delta.exists(root, RULE_STATUS) else ()
    for stream in streams:
        if (last := removal.last_events.get(stream.name)) is not None:
            mine = (v.rule for v in versions if v.rule.stream == stream.name)
            kept = max((widest(rule) for rule in mine), default=0) + stream.allowed_lateness
            found.append((stream.name, from_microseconds(after(microseconds(last), kept))))
    return found


def _in_topics(
    settings: Settings, config: BackfillConfig, streams: Sequence[Stream], removal: Removal
) -> tuple[InTopic, ...]:
    """Of the streams' topics, and of those with what follows from events."""
    names = config.lake.topics
    archived = archived_offsets(config.lake.root)
    until = archived_until(config.lake.root)
    latest = datetime.now(UTC) if until is None else from_microseconds(until)
    arrivals = {stream.topic: removal.last_arrivals.get(stream.name, latest) for stream in streams}
    arrivals |= dict.fromkeys((names.alerts, names.restrictions, names.late_events, names.quarantine), latest)
    with admin(settings) as client, explained(settings, "looking up the retention of topics"):
        present = set(client.list_topics())
        topics = [topic for topic in arrivals if topic in present]
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
        described = client.describe_configs(resources, config_filter="all")["topic"]
    ends = _ends(settings, topics)
    return tuple(
        InTopic(
            topic,
            _deleted_at(arrivals[topic], described[topic]),
            sum(end - archived.get(topic, {}).get(partition, 0) for partition, end in ends[topic].items()),
        )
        for topic in topics
    )


def _ends(settings: Settings, topics: Sequence[str]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    with closing(consumer(settings)) as client, explained(settings, "looking up where topics end"):
        places = [TopicPartition(topic, n) for topic in topics for n in client.partitions_for_topic(topic) or ()]
        for place, end in end_offsets(client, places).items():
            found[place.topic][place.partition] = end
    return found


def _deleted_at(arrived: datetime, config: Mapping[str, Any]) -> datetime | None:
    """When Kafka has deleted a record: a segment goes once it is closed, and its last record is old enough."""
    kept, segment = (int(config[name]["value"]) for name in ("retention.ms", "segment.ms"))
    if kept < 0 or "delete" not in str(config["cleanup.policy"]["value"]):
        return None
    try:
        return arrived + timedelta(milliseconds=kept + segment)
    except OverflowError:
        return None
