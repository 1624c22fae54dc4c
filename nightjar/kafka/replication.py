"""Checks `min.insync.replicas`: whether acknowledged records survive the loss of a broker."""

from collections.abc import Iterable

import kafka
import structlog
from kafka.admin import ConfigResource, ConfigResourceType

_SETTING = "min.insync.replicas"


def warn_of_few_replicas(client: kafka.KafkaAdminClient, topics: Iterable[str]) -> None:
    """Log a warning for each topic on which a broker's failure can lose records or block writes.

    Call it once the topics exist, for example at the end of `topics.ensure`.
    """
    names = list(topics)
    if not names:
        return
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    settings = client.describe_configs(resources, config_filter="all")["topic"]
    for described in client.describe_topics(names):
        name = described["name"]
        if not settings.get(name):  # this login may not read them
            continue
        replicas = min((len(partition["replica_nodes"]) for partition in described["partitions"]), default=0)
        if (found := problem(replicas, int(settings[name][_SETTING]["value"]))) is not None:
            structlog.get_logger().warning("few_replicas", topic=name, replicas=replicas, reason=found)


def problem(replicas: int, in_sync: int) -> str | None:
    """The risk for a topic with this many replicas and this `min.insync.replicas`; None if there is none."""
    if replicas <= 1:
        return None  # a single replica is a deliberate choice of the topic's owner
    if in_sync < 2:
        lost = "a record acknowledged by only one broker is lost if that broker is"
        return f"{_SETTING} is {in_sync}: {lost}. Set it to 2, and use 3 replicas"
    if in_sync >= replicas:
        blocked = "no record can be written while one broker is down"
        return f"{_SETTING} is {in_sync} of {replicas} replicas: {blocked}. Lower it, or use more replicas"
    return None
