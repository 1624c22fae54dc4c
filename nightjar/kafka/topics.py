"""Defines and creates nightjar's topics: events, rules, and the job's output."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import kafka.errors
import structlog
from kafka.admin import ConfigResource, ConfigResourceType

from nightjar.configuration.settings import Settings
from nightjar.contracts.snoozes import MAX_DAYS
from nightjar.kafka.clients import KafkaError, admin, explained
from nightjar.kafka.replication import warn_of_few_replicas
from nightjar.rules.durations import MICROSECONDS
from nightjar.rules.streams import Stream, recorded_streams

FOREVER = "-1"

# Milliseconds: a day, for troubleshooting.
_CLOCKS_KEPT = str(24 * 3600 * 1000)

# The topic settings that affect the meaning of events and rules, and the remedy if an existing topic has another value.
_REMEDIES = {
    "message.timestamp.type": "Set arrival to match the topic, name another topic, or remove this one",
}
_NEVER_COMPACTED = "Change it with kafka-configs: rules and their answers must be kept as they were published"


@dataclass(frozen=True)
class Topic:
    """A topic to create. config: Kafka's topic settings."""

    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


def topics(settings: Settings, streams: Iterable[Stream]) -> list[Topic]:
    """Every topic, as the settings define it."""
    arrival = {"message.timestamp.type": "CreateTime" if settings.arrival == "producer" else "LogAppendTime"}
    # An arrival set by the producer may be years ago: retention by time would delete the record immediately.
    events = {"retention.ms": FOREVER if settings.arrival == "producer" else _ms(settings.event_retention)}
    answers, declared = _answers(settings), [*streams]
    # The history is needed: rule messages and answers are never compacted, and one partition keeps their order.
    rules = {"cleanup.policy": "delete", "retention.ms": FOREVER, "retention.bytes": FOREVER}
    return [
        *(Topic(stream.topic, settings.partitions, arrival | events) for stream in recorded_streams(declared)),
        Topic(settings.rules_topic, 1, arrival | rules),
        # The job takes the current time from the brokers' timestamps; a clock record is only used for seconds.
        Topic(settings.clock_topic, 1, {"message.timestamp.type": "LogAppendTime", "retention.ms": _CLOCKS_KEPT}),
        Topic(settings.alerts_topic, settings.partitions, answers),
        Topic(settings.restrictions_topic, settings.partitions, answers),
        Topic(settings.late_events_topic, settings.partitions, answers),
        Topic(settings.quarantine_topic, settings.partitions, answers),
        Topic(settings.rule_status_topic, 1, arrival | rules),
        Topic(settings.job_progress_topic, 1, answers),
        Topic(settings.labels_topic, settings.partitions, answers),
        Topic(settings.snoozes_topic, 1, _snoozes(settings)),
        *([Topic(settings.tables_topic, 1, arrival | rules)] if any(stream.tables for stream in declared) else []),
    ]


def ensure(settings: Settings, streams: Iterable[Stream], only: Collection[str] | None = None) -> list[str]:
    """Create the missing topics and return their names, once each has a leader; idempotent.

    An existing topic is not changed: its number of partitions and its retention are its owner's choice. Settings that
    this login may not read are not checked.

    only: names of the topics to look at, for a login that may not see the others.

    Raises:
        KafkaError: no broker responds, a topic cannot be created, or an existing one has settings that would change
            the meaning of events or rules: another timestamp type than `arrival` requires, or a rules topic that is
            compacted, has a limited retention or has several partitions.
    """
    wanted = [topic for topic in topics(settings, streams) if only is None or topic.name in only]
    with admin(settings) as client, explained(settings, "creating the topics"):
        missing = _create_missing(client, wanted, settings)
        _refuse_unfit(client, [topic for topic in wanted if topic.name not in missing], settings)
        warn_of_few_replicas(client, [topic.name for topic in wanted])
    return missing


def of_alerts(settings: Settings, name: str) -> Topic:
    """A topic for copies of the alerts, with the settings that theirs has."""
    return Topic(name, settings.partitions, _answers(settings))


def create(settings: Settings, topic: Topic) -> None:
    """Create a topic that is not one of nightjar's own, if it is missing; it has a leader then.

    Raises:
        KafkaError: no broker responds, or it cannot be created.
    """
    with admin(settings) as client, explained(settings, f"creating topic {topic.name}"):
        _create_missing(client, [topic], settings)
        warn_of_few_replicas(client, [topic.name])


def _answers(settings: Settings) -> dict[str, str]:
    return {"message.timestamp.type": "LogAppendTime", "retention.ms": _ms(settings.alert_retention)}


def _snoozes(settings: Settings) -> dict[str, str]:
    """The last record of each snooze is kept as long as alerts that it covers."""
    kept = MAX_DAYS * MICROSECONDS["d"] + settings.alert_retention
    return _answers(settings) | {"cleanup.policy": "compact,delete", "retention.ms": _ms(kept)}


def _create_missing(client: kafka.KafkaAdminClient, wanted: Iterable[Topic], settings: Settings) -> list[str]:
    """Create those that are missing, and return their names once each has a leader."""
    existing = set(client.list_topics())
    missing = {
        topic.name: {
            "num_partitions": topic.partitions,
            "replication_factor": settings.replication_factor,
            "configs": topic.config,
        }
        for topic in wanted
        if topic.name not in existing
    }
    if missing:
        answers = client.create_topics(missing, raise_errors=False)["topics"]
        _refuse_failed(answers, settings)
        client.wait_for_topics(list(missing))
    return list(missing)


def _refuse_failed(answers: list[dict[str, object]], settings: Settings) -> None:
    for answer in answers:
        # Another process may create the same topics at the same time.
        if answer["error_code"] not in (0, kafka.errors.TopicAlreadyExistsError.errno):
            reason = answer.get("error_message") or kafka.errors.for_code(answer["error_code"]).__name__
            raise KafkaError(
                f"topic {answer['name']} cannot be created: {reason}",
                where=f"Kafka at {settings.bootstrap}",
                remedy="An administrator can create it, and grant access to it: `nightjar topics create` and `nightjar "
                "topics grant`",
            )


def _kept_forever(settings: Settings) -> dict[str, str]:
    """The topics that must not lose a record, because they define the rules, and the remedy if one could."""
    remedy = "Change it with kafka-configs: after losing records, a restarted job would miss rules and versions"
    return dict.fromkeys((settings.rules_topic, settings.rule_status_topic, settings.tables_topic), remedy)


def _refuse_unfit(client: kafka.KafkaAdminClient, present: list[Topic], settings: Settings) -> None:
    if not present:
        return
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in present]
    found = client.describe_configs(resources, config_filter="all")["topic"]
    forever = _kept_forever(settings)
    for topic in present:
        if not found.get(topic.name):  # so brokers answer a login without the right to read them
            structlog.get_logger().info("topic_settings_not_checked", topic=topic.name)
            continue
        remedies = dict(_REMEDIES)
        if topic.name in forever:
            remedies |= dict.fromkeys(("retention.ms", "retention.bytes"), forever[topic.name])
            remedies["cleanup.policy"] = _NEVER_COMPACTED
        for name, remedy in remedies.items():
            value = found[topic.name][name]["value"]
            if name in topic.config and value != topic.config[name]:
                raise KafkaError(
                    f"{name} is {value}, but must be {topic.config[name]}",
                    where=f"topic {topic.name} at {settings.bootstrap}",
                    remedy=remedy,
                )
    for name in (topic.name for topic in present if topic.name in forever):
        (description,) = client.describe_topics([name])
        if len(description["partitions"]) != 1:
            raise KafkaError(
                f"has {len(description['partitions'])} partitions, but must have one, which keeps the rules in order",
                where=f"topic {name} at {settings.bootstrap}",
                remedy="Name another topic in the settings",
            )


def _ms(microseconds: int) -> str:
    return str(microseconds // 1000)
