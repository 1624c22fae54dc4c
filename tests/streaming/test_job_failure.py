"""How a failed query is reported."""

from dataclasses import replace

import pytest

from nightjar.configuration.job import job_config
from nightjar.kafka.clients import consumer
from nightjar.rules.types import FieldType
from nightjar.streaming.config import JobError
from nightjar.streaming.driver.failures import described_failure, is_of_state, refuse_missing_topics, reporting_lost_jvm
from nightjar.streaming.state.state_files import STATE_LOST
from tests.support.topics import TestTopics

CUSTOMER = FieldType.parse("string")
PYTHON = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ValueError: no such column
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: nightjar
Logical Plan: a very long one"""


def test_cause_of_a_failed_worker_is_its_last_line() -> None:
    """The plan is left out, and the cause is the exception's own line."""
    detail, cause = described_failure(PYTHON)
    assert cause == "ValueError: no such column"
    assert "Logical Plan" not in detail


def test_cause_of_another_failure_is_its_first_line() -> None:
    """Spark's and Kafka's own failures say first what is wrong."""
    assert described_failure("Topic gone\nat java.lang.Thread\n=== Streaming Query ===\n")[1] == "Topic gone"


@pytest.mark.parametrize(
    ("detail", "rebuilt"),
    [
        (f"RuntimeError: {STATE_LOST}: [Errno 2] No such file or directory: 'state/0/head-3'", True),
        ("[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint metadata file is missing", True),
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost", True),
        ("KafkaIllegalStateException: Some data may have been lost [...] set the source option failOnDataLoss", True),
        (PYTHON, False),
        ("org.apache.kafka.common.errors.TimeoutException: Topic alerts not present in metadata", False),
    ],
)
def test_an_unusable_checkpoint_is_recognised_by_the_error_s_name(detail: str, rebuilt: bool) -> None:
    """Then the remedy is to rebuild the checkpoint, not to restart."""
    assert is_of_state(detail) is rebuilt


@pytest.mark.spark
def test_a_killed_jvm_is_reported() -> None:
    """Whatever is asked of Spark then, at once and ever after, ends in one message with a remedy."""
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    gateway.proc.kill()
    gateway.proc.wait()
    for _ in range(2):
        with pytest.raises(JobError, match=r"JVM has ended.*Start the job again"), reporting_lost_jvm("checkpoint c"):
            gateway.jvm.java.lang.System.nanoTime()


@pytest.mark.kafka
def test_only_topics_that_the_job_uses_have_to_be_there(kafka_topics: TestTopics) -> None:
    """That of tables where one is declared, and never that of labels."""
    own = kafka_topics.ensure()
    named = own.settings.model_copy(update={"labels_topic": "nobody-made-it"})
    with_tables = {name: replace(each, tables={"cards": CUSTOMER}) for name, each in own.streams.items()}
    with consumer(own.settings) as client:
        refuse_missing_topics(job_config(named, own.streams), client)
        with pytest.raises(JobError, match=f"there is no topic {own.settings.tables_topic}"):
            refuse_missing_topics(job_config(named, with_tables), client)
