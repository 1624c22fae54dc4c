"""Builds the options of every Kafka client from one set of settings in Kafka's own names."""

from nightjar.configuration.kafka_security import java_security, python_security
from nightjar.configuration.settings import Settings
from nightjar.ingestion.kafka_config import KafkaConfig

# By default a client that has not reached a broker for a while retries only every half minute.
_RECONNECT_MS = 1_000


def kafka_config(settings: Settings) -> KafkaConfig:
    """The brokers and the security settings, under the names of Spark and of kafka-python.

    Raises:
        SettingsError: kafka-python does not support a security setting.
    """
    security = java_security(settings)
    spark = {"bootstrap.servers": settings.bootstrap, **security}
    python = {
        "bootstrap_servers": settings.bootstrap.split(","),
        "reconnect_backoff_max_ms": _RECONNECT_MS,
        **python_security(security),
    }
    return KafkaConfig({f"kafka.{name}": value for name, value in spark.items()}, python)
