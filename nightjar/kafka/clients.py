"""Clients of the configured Kafka, kafka-python's and Spark's, from one set of security settings in Kafka's own names.

A client that cannot reach the brokers is a `KafkaError` of ours that names them, never a traceback.
Known limitation: kafka-python reads PEM files only and takes no OAUTHBEARER login from settings; both are refused with
the remedy.
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

# kafka-python logs every connection attempt; what a person needs to know comes as an error of ours.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

CONNECT_TIMEOUT_MS = 10_000
# By default a client that met no broker for a while looks for it every half minute only.
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
    """Kafka cannot be reached, or refused what was asked of it."""


def admin(settings: Settings) -> kafka.KafkaAdminClient:
    """An admin client; a context manager. Raises KafkaError where no broker answers."""
    return _connected(kafka.KafkaAdminClient, settings, {})


def producer(settings: Settings, **options: Any) -> kafka.KafkaProducer:
    """A producer that waits for all replicas; a context manager. Raises KafkaError where no broker answers."""
    given = {
        "allow_auto_create_topics": False,
        "max_block_ms": CONNECT_TIMEOUT_MS,
        "metrics_enabled": False,
        **options,
    }
    return _connected(kafka.KafkaProducer, settings, given)


def consumer(settings: Settings, *topics: str, **options: Any) -> kafka.KafkaConsumer:
    """A consumer of whole topics without a group, from their beginning unless `options` say otherwise.

    It reads what is committed: corrections of a backfill that was killed half-way are none.
    Raises KafkaError where no broker answers.
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
    """What every kafka-python client is given: the brokers and the security settings under kafka-python's names.

    Raises:
        SettingsError: a security setting that kafka-python cannot honour.
    """
    return {
        "bootstrap_servers": settings.bootstrap.split(","),
        "reconnect_backoff_max_ms": _RECONNECT_MS,
        **_python_security(_revealed(settings.kafka)),
    }


def spark_options(settings: Settings) -> dict[str, str]:
    """What Spark's Kafka source and sink are given: the same, under `kafka.` names."""
    return {
        "kafka.bootstrap.servers": settings.bootstrap,
        **{f"kafka.{name}": value for name, value in _revealed(settings.kafka).items()},
    }


@contextmanager
def explained(settings: Settings, doing: str) -> Iterator[None]:
    """Turn what kafka-python raises inside into a KafkaError that says what was being done, and where."""
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
            f"no broker answers ({str(error) or type(error).__name__})",
            where=f"Kafka at {settings.bootstrap}",
            remedy="Start one with `nightjar up`, or set bootstrap_servers (and kafka, where it asks for a login)",
        ) from error


def _probe(bootstrap: str) -> None:
    """Raise OSError where nobody listens at any of the addresses: kafka-python would try until its time is up."""
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
                "only PEM files can be read by every client",
                f'Convert the {store} and set it to "PEM"',
            )
    for name in ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"):
        if name in security:
            raise _refused(
                name,
                "certificates inside a setting are not read by every client",
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
                "holds no username and password",
                'Write: ... required username="NAME" password="WORD";',
            )
        options |= {"sasl_plain_username": login["username"], "sasl_plain_password": login["password"]}
    elif mechanism and mechanism != "GSSAPI":
        raise _refused(
            "sasl.mechanism",
            f"{mechanism} cannot be used by every client",
            "Use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or GSSAPI",
        )
    return options


def _refused(name: str, what: str, remedy: str) -> SettingsError:
    return SettingsError(what, where=f"kafka: {name}", remedy=remedy)
