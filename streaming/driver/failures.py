"""What the driver raises if Spark, its JVM or Kafka fails: the cause, and the remedy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import structlog
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from nightjar.storage.paths import AnyPath
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.driver.query import event_topics
from nightjar.streaming.state.state_files import STATE_LOST

if TYPE_CHECKING:
    from kafka import KafkaConsumer
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger(__name__)

_GOES_ON = "The log above has the cause. Start the job again once it is fixed: it resumes where it stopped"
_UNREADABLE_STATE = (
    "Where the checkpoint's files cannot be repaired, or Kafka no longer has the next records, "
    "`nightjar stream rebuild` writes a new one from the lake"
)
_NOT_ALLOWED = (
    "An administrator can grant it: `nightjar topics` shows the access that the job needs, and `nightjar topics grant` "
    "grants it"
)
# Seconds in which a query ends whose tasks have failed.
_MOMENT = 5.0
# Spark's errors if a checkpoint is incomplete or was written by another plan, and the option that it names if Kafka no
# longer has the next records.
_ERRORS_OF_STATE = (
    STATE_LOST,
    "STREAMING_CHECKPOINT",
    "CHECKPOINT_FILE",
    "DATA_LOSS",
    "failOnDataLoss",
)


def raise_failure(query: StreamingQuery, checkpoint: AnyPath) -> None:
    """Raise JobError if the query has failed."""
    failure = query.exception()
    if failure is not None:
        detail, cause = described_failure(str(failure))
        _log.error("the query failed", detail=detail)
        remedy = _UNREADABLE_STATE if is_of_state(detail) else _NOT_ALLOWED if "Authoriz" in detail else _GOES_ON
        raise JobError(f"the query failed: {cause}", where=str(checkpoint), remedy=remedy)


def has_ended(query: StreamingQuery) -> bool:
    """Whether the query has failed or was stopped, as one whose tasks have lost something will within a moment."""
    deadline = time.monotonic() + _MOMENT
    while query.isActive and time.monotonic() < deadline:
        time.sleep(0.05)
    return not query.isActive


def is_of_state(detail: str) -> bool:
    """Whether Spark cannot resume from its checkpoint: by the names of its errors."""
    return any(name in detail for name in _ERRORS_OF_STATE)


def described_failure(text: str) -> tuple[str, str]:
    """Spark's message of a failed query without its plan, and the line that names the cause."""
    detail = text.partition("=== Streaming Query ===")[0].strip()
    lines = [line.strip() for line in detail.splitlines() if line.strip() and not line.strip().startswith("SQLSTATE")]
    # a traceback of a Python worker names its cause last
    return detail, lines[-1 if "Traceback" in detail else 0] if lines else "no reason was given"


@contextlib.contextmanager
def reporting_lost_jvm(where: str) -> Iterator[None]:
    """Turn what any call into Spark raises once its JVM is dead into a JobError."""
    from py4j.protocol import Py4JNetworkError

    try:
        yield
    except (Py4JNetworkError, ConnectionError) as lost:
        raise JobError("Spark's JVM has ended: killed, or out of memory", where=where, remedy=_GOES_ON) from lost


@contextlib.contextmanager
def reporting_lost_kafka(config: JobConfig) -> Iterator[None]:
    """Turn what kafka-python raises if no broker answers into a JobError."""
    try:
        yield
    except KafkaError as failure:
        what, remedy = f"Kafka does not answer: {failure}", _GOES_ON
        if isinstance(failure, TopicAuthorizationFailedError):
            what, remedy = f"Kafka refuses the job access to topic {failure}", _NOT_ALLOWED
        raise JobError(what, where=_brokers(config), remedy=remedy) from failure


def refuse_missing_topics(config: JobConfig, consumer: KafkaConsumer) -> None:
    """Raise JobError if a topic that the job reads or writes does not exist."""
    unused = {config.topics.labels, *(() if config.tables else (config.topics.tables,))}
    wanted = {*event_topics(config), *vars(config.topics).values()} - unused
    missing = sorted(wanted - set(consumer.topics()))
    if missing:
        raise JobError(
            f"there is no topic {', '.join(missing)}, or the job may not see it",
            where=_brokers(config),
            remedy="`nightjar up` and `nightjar topics create` make the topics, `nightjar topics grant` grants access",
        )


def _brokers(config: JobConfig) -> str:
    return f"Kafka at {config.kafka.bootstrap}"
