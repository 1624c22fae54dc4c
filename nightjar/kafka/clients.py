"""Creates Kafka clients (kafka-python's and Spark's) from one set of security settings in Kafka's own names.

A client that cannot reach the brokers, or that they turn away, raises our `KafkaError`, which names them.
"""

import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import kafka
import kafka.errors

from nightjar.configuration.kafka import kafka_config
from nightjar.configuration.kafka_security import refuse_unreadable
from nightjar.configuration.settings import Settings
from nightjar.kafka import refusals
from nightjar.processes import running_broker
from nightjar.rules.errors import NightjarError, SettingsError

# kafka-python logs every connection attempt; failures are raised as our own errors instead.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

CONNECT_TIMEOUT_MS = 10_000

AUTHORIZATION = (
    kafka.errors.TopicAuthorizationFailedError,
    kafka.errors.ClusterAuthorizationFailedError,
    kafka.errors.GroupAuthorizationFailedError,
    kafka.errors.TransactionalIdAuthorizationFailedError,
)
GRANT = (
    "An administrator can grant it: `nightjar topics` shows who needs which access, `nightjar topics grant` grants it"
)


class KafkaError(NightjarError):
    """Kafka cannot be reached, or rejected a request."""


def admin(settings: Settings) -> kafka.KafkaAdminClient:
    """An admin client; a context manager.

    Raises:
        KafkaError: no broker responds.
    """
    return _connected(kafka.KafkaAdminClient, settings, {})


def producer(settings: Settings, **options: Any) -> kafka.KafkaProducer:
    """A producer that waits for all replicas; a context manager.

    Raises:
        KafkaError: no broker responds.
    """
    given = {
        "allow_auto_create_topics": False,
        "max_block_ms": CONNECT_TIMEOUT_MS,
        "metrics_enabled": False,
        **options,
    }
    return _connected(kafka.KafkaProducer, settings, given)


def consumer(settings: Settings, *topics: str, **options: Any) -> kafka.KafkaConsumer:
    """A consumer of whole topics without a group, from their beginning unless `options` say otherwise.

    It reads committed records only, so it skips the corrections of a backfill that was killed before it finished.

    Raises:
        KafkaError: no broker responds.
    """
    given = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "isolation_level": "read_committed",
        **options,
    }
    return _connected(kafka.KafkaConsumer, settings, given, *topics)


def refuse_others(settings: Settings) -> None:
    """Raise KafkaError where the local broker is meant, and what listens on its port is not that of this `data_dir`.

    Clients of ours do so by themselves; call it before other clients connect, such as Spark's.
    """
    if settings.bootstrap_servers:
        return
    port = int(settings.bootstrap.rpartition(":")[2])
    if running_broker.runs(settings.kafka_dir, port):
        return
    try:
        _probe(settings.bootstrap)
    except OSError:
        return  # the client reports that nobody is there
    raise KafkaError(
        f"what listens there is not this installation's broker: none runs in {settings.kafka_dir.resolve()}",
        where=f"Kafka at {settings.bootstrap}",
        remedy="Run `nightjar up` here, with a kafka_port of its own, or set "
        f"bootstrap_servers to {settings.bootstrap} to use that broker",
    )


def refuse_unreachable(settings: Settings) -> None:
    """Raise KafkaError at once if nobody listens at the brokers' addresses: a client that was connected would wait."""
    try:
        _probe(settings.bootstrap)
    except OSError as error:
        what, remedy = _no_response(error)
        raise KafkaError(what, where=f"Kafka at {settings.bootstrap}", remedy=remedy) from error
    refuse_others(settings)


@contextmanager
def explained(settings: Settings, doing: str) -> Iterator[None]:
    """Convert kafka-python's exceptions inside the block to a KafkaError that names the action and the brokers."""
    try:
        yield
    except kafka.errors.KafkaError as error:
        reason = str(error) or type(error).__name__
        what, remedy = f"{doing} failed: {reason}", "See the brokers' log for the cause"
        if isinstance(error, AUTHORIZATION):
            what, remedy = f"{doing} is not allowed to this login", GRANT
        raise KafkaError(what, where=f"Kafka at {settings.bootstrap}", remedy=remedy) from error


def _connected(client: Any, settings: Settings, options: Mapping[str, Any], *topics: str) -> Any:
    given = kafka_config(settings).python
    refuse_unreadable(settings)
    with refusals.noted() as refused:
        try:
            _probe(settings.bootstrap)
            refuse_others(settings)
            return client(*topics, bootstrap_timeout_ms=CONNECT_TIMEOUT_MS, **given, **options)
        except (kafka.errors.KafkaError, OSError) as error:
            what, remedy = refusals.described(refused, settings) or _no_response(error)
            raise KafkaError(what, where=f"Kafka at {settings.bootstrap}", remedy=remedy) from error


def _no_response(error: Exception) -> tuple[str, str]:
    """What is wrong where nobody listens, and what to do."""
    what = f"no broker responds ({str(error) or type(error).__name__})"
    return what, "Start one with `nightjar up`, or set bootstrap_servers (and kafka, if it requires a login)"


def _probe(bootstrap: str) -> None:
    """Raise OSError at once if nothing listens at any address; kafka-python would retry until its timeout."""
    failures: list[OSError] = []
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_MS / 1000).close()
        except ValueError:
            raise SettingsError(
                f"{address!r} is not an address", where="bootstrap_servers", remedy="Write host:port,host:port"
            ) from None
        except OSError as failure:
            failures.append(failure)
        else:
            return
    raise failures[0]
