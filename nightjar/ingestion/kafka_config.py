"""How Kafka is reached, passed in by the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class KafkaConfig:
    """The options of every Kafka client, brokers and security, under the names of two libraries."""

    # Spark's, which begin with `kafka.`. Both may hold passwords.
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    # kafka-python's, as keyword arguments.
    python: Mapping[str, object] = field(default_factory=dict, repr=False)

    @property
    def bootstrap(self) -> str:
        """The brokers, for messages."""
        return self.spark["kafka.bootstrap.servers"]
