"""Whether acknowledged records survive the loss of a broker: `min.insync.replicas` of topics with several replicas."""

from collections.abc import Iterable

import kafka
import structlog
from kafka.admin import ConfigResource, ConfigResourceType

_SETTING = "min.insync.replicas"


def warn_of_few_replicas(client: kafka.KafkaAdminClient, topics: Iterable[str]) -> None:
    """Log a warning for each of these topics on which records can be lost, or written by no one, when a broker fails.

    Call it once the topics exist, for example at the end of `topics.ensure`.
    """
    names = list(topics)
    if not names:
        return
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    settings = client.describe_configs(resources, config_filter="all")["topic"]
    for described in client.describe_topics(names):
        replicas = min((len(partition["replica_nodes"]) for partition in described["partitions"]), default=0)
        name = described["name"]
        if (found := problem(replicas, int(settings[name][_SETTING]["value"]))) is not None:
            structlog.get_logger().warning("few_replicas", topic=name, replicas=replicas, reason=found)


def problem(replicas: int, in_sync: int) -> str | None:
    """What can happen to a topic of so many replicas of which so many must have a record; None where nothing can."""
    if replicas <= 1:
        return None  # one copy: a choice of whoever made the topic
    if in_sync < 2:
        lost = "a record acknowledged by one broker is lost with it"
        return f"{_SETTING} is {in_sync}: {lost}. Set it to 2, and have 3 replicas"
    if in_sync >= replicas:
        stuck = "while one broker is down nothing is written"
        return f"{_SETTING} is {in_sync} of {replicas}: {stuck}. Set it lower, or have more replicas"
    return None
