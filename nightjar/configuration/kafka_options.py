"""The options of every Kafka client, kafka-python's and Spark's, from one set of settings in Kafka's own names."""

from typing import Any

from nightjar.configuration.kafka_security import java_security, python_security
from nightjar.configuration.settings import Settings

# By default a client that has not reached a broker for a while retries only every half minute.
_RECONNECT_MS = 1_000


def python_options(settings: Settings) -> dict[str, Any]:
    """Options of every kafka-python client: the brokers and the security settings under kafka-python's names.

    Raises:
        SettingsError: kafka-python does not support a security setting.
    """
    return {
        "bootstrap_servers": settings.bootstrap.split(","),
        "reconnect_backoff_max_ms": _RECONNECT_MS,
        **python_security(java_security(settings)),
    }


def spark_options(settings: Settings) -> dict[str, str]:
    """Options of Spark's Kafka source and sink: the same, under `kafka.` names."""
    return {
        "kafka.bootstrap.servers": settings.bootstrap,
        **{f"kafka.{name}": value for name, value in java_security(settings).items()},
    }
