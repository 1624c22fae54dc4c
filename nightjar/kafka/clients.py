"""Creates Kafka clients (kafka-python's and Spark's) from one set of security settings in Kafka's own names.

A client that cannot reach the brokers raises our `KafkaError`, which names them.
Known limitation: kafka-python reads PEM files only and cannot configure an OAUTHBEARER login from settings; both raise
an error with the remedy.
"""

import logging
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import kafka
import kafka.errors
from pydantic import SecretStr

from nightjar.configuration.settings import Settings
from rules.errors import NightjarError, SettingsError

# kafka-python logs every connection attempt; failures are raised as our own errors instead.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

CONNECT_TIMEOUT_MS = 10_000
# By default a client that has not reached a broker for a while retries only every half minute.
_RECONNECT_MS = 1_000

# Kafka's name -> kafka-python's, where the value means the same in both.
_SAME_MEANING = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.password": "ssl_password",
}
_JAAS_OPTION = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


class KafkaError(NightjarError):
    """Kafka cannot be reached, or rejected a request."""


def admin(settings: Settings) -> kafka.KafkaAdminClient:
    """An admin client; a context manager. Raises KafkaError if no broker responds."""
    return _connected(kafka.KafkaAdminClient, settings, {})


def producer(settings: Settings, **options: Any) -> kafka.KafkaProducer:
    """A producer that waits for all replicas; a context manager. Raises KafkaError if no broker responds."""
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
    Raises KafkaError if no broker responds.
    """
    given = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "isolation_level": "read_committed",
        **options,
    }
    return _connected(kafka.KafkaConsumer, settings, given, *topics)


def python_options(settings: Settings) -> dict[str, Any]:
    """Options of every kafka-python client: the brokers and the security settings under kafka-python's names.

    Raises:
        SettingsError: kafka-python does not support a security setting.
    """
    return {
        "bootstrap_servers": settings.bootstrap.split(","),
        "reconnect_backoff_max_ms": _RECONNECT_MS,
        **_python_security(_revealed(settings.kafka)),
    }


def spark_options(settings: Settings) -> dict[str, str]:
    """Options of Spark's Kafka source and sink: the same, under `kafka.` names."""
    return {
        "kafka.bootstrap.servers": settings.bootstrap,
        **{f"kafka.{name}": value for name, value in _revealed(settings.kafka).items()},
    }


@contextmanager
def explained(settings: Settings, doing: str) -> Iterator[None]:
    """Convert kafka-python's exceptions inside the block to a KafkaError that names the action and the brokers."""
    try:
        yield
    except kafka.errors.KafkaError as error:
        reason = str(error) or type(error).__name__
        raise KafkaError(
            f"{doing} failed: {reason}",
            where=f"Kafka at {settings.bootstrap}",
            remedy="See the brokers' log for the cause",
        ) from error


def _connected(client: Any, settings: Settings, options: Mapping[str, Any], *topics: str) -> Any:
    try:
        _probe(settings.bootstrap)
        return client(*topics, bootstrap_timeout_ms=CONNECT_TIMEOUT_MS, **python_options(settings), **options)
    except (kafka.errors.KafkaError, OSError) as error:
        raise KafkaError(
            f"no broker responds ({str(error) or type(error).__name__})",
            where=f"Kafka at {settings.bootstrap}",
            remedy="Start one with `nightjar up`, or set bootstrap_servers (and kafka, if it requires a login)",
        ) from error


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


def _revealed(security: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in security.items()}


def _python_security(security: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {ours: security[name] for name, ours in _SAME_MEANING.items() if name in security}
    for store in ("truststore", "keystore"):
        if f"ssl.{store}.location" in security and security.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
            raise _refused(
                f"ssl.{store}.type",
                "not every client can read formats other than PEM",
                f'Convert the {store} and set it to "PEM"',
            )
    for name in ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"):
        if name in security:
            raise _refused(
                name,
                "not every client can read certificates from a setting",
                "Put it in a PEM file and give its location",
            )
    if "ssl_certfile" in options:
        options["ssl_keyfile"] = options[
            "ssl_certfile"
        ]  # a PEM key store holds the key and its certificates in one file
    if "ssl.endpoint.identification.algorithm" in security:
        options["ssl_check_hostname"] = security["ssl.endpoint.identification.algorithm"] != ""
    mechanism = security.get("sasl.mechanism", "").upper()
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        login = {
            name: re.sub(r"\\(.)", r"\1", value)
            for name, value in _JAAS_OPTION.findall(security.get("sasl.jaas.config", ""))
        }
        if set(login) != {"username", "password"}:
            raise _refused(
                "sasl.jaas.config",
                "has no username and password",
                'Write: ... required username="NAME" password="WORD";',
            )
        options |= {"sasl_plain_username": login["username"], "sasl_plain_password": login["password"]}
    elif mechanism and mechanism != "GSSAPI":
        raise _refused(
            "sasl.mechanism",
            f"not every client supports {mechanism}",
            "Use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or GSSAPI",
        )
    return options


def _refused(name: str, what: str, remedy: str) -> SettingsError:
    return SettingsError(what, where=f"kafka: {name}", remedy=remedy)
