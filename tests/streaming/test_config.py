"""The job's configuration."""

from pathlib import Path

from nightjar.ingestion.kafka_config import KafkaConfig
from nightjar.streaming.config import JobConfig


def test_a_password_is_in_no_text_of_the_configuration() -> None:
    """Configurations end up in logs and tracebacks; the clients' options may hold passwords."""
    secret = {"kafka.sasl.jaas.config": "hunter2"}
    config = JobConfig({}, Path("checkpoint"), KafkaConfig(secret, secret))
    assert "hunter2" not in repr(config)
