"""Finds out why brokers turn a client away, which kafka-python logs but does not raise.

How it works: while a client connects, its log's warnings that carry an exception are kept. The last one that says why
is translated into an error with the remedy; without one, the brokers are not there.

Known limitation: kafka-python (3.0.12, KafkaTCPTransport._read_from_sock) drops an answer that it reads together with
the end of the connection, as that of a rejected login often is. A connection that ends so early is taken for one.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import kafka.errors

from nightjar.configuration.settings import Settings

_LOG = logging.getLogger("kafka.net")

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
# What a broker that wants a client's certificate answers without one, or to one of an unknown authority (TLS alerts).
_CERTIFICATE_WANTED = ("BAD_CERTIFICATE", "CERTIFICATE_REQUIRED", "UNKNOWN_CA", "CERTIFICATE_UNKNOWN")
_NO_TLS_THERE = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF")

_CHECK_LOGIN = (
    "Check the name and the password (kafka_username and kafka_password_file, or sasl.jaas.config in kafka), and that "
    "the brokers have this login for the sasl.mechanism in kafka"
)
_CHECK_AUTHORITY = (
    "Set ssl.truststore.location in kafka to the PEM file of the authority that signed it, and bootstrap_servers to "
    "host names that it was issued for"
)
_CHECK_CERTIFICATE = "Set ssl.keystore.location in kafka to a PEM file with a key and a certificate that they trust"
_CHECK_PROTOCOL = (
    "Set security.protocol in kafka to that of the listener: SSL or SASL_SSL with TLS, PLAINTEXT or SASL_PLAINTEXT "
    "without"
)


class Refusals(logging.Handler):
    """The exceptions with which connections failed, in order."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.failures: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exceptions of a message."""
        given = record.args if isinstance(record.args, tuple) else ()
        self.failures += [each for each in given if isinstance(each, BaseException)]


@contextmanager
def noted() -> Iterator[Refusals]:
    """What kafka-python reports about connections inside the block; nothing of it is shown."""
    refusals = Refusals()
    level, propagate = _LOG.level, _LOG.propagate
    _LOG.addHandler(refusals)
    _LOG.setLevel(logging.WARNING)
    _LOG.propagate = False
    try:
        yield refusals
    finally:
        _LOG.removeHandler(refusals)
        _LOG.setLevel(level)
        _LOG.propagate = propagate


def described(refusals: Refusals, settings: Settings) -> tuple[str, str] | None:
    """What is wrong, and the remedy; None if the brokers did not say."""
    for failure in reversed(refusals.failures):
        if (found := _described(failure, settings)) is not None:
            return found
    protocol = settings.kafka.get("security.protocol")
    by_sasl = protocol is not None and protocol.get_secret_value().startswith("SASL")
    if by_sasl and any("socket disconnected" in str(failure) for failure in refusals.failures):
        return f"the brokers end the connection when {_login(settings)} logs in", _CHECK_LOGIN
    return None


def _login(settings: Settings) -> str:
    return f"user {settings.kafka_username}" if settings.kafka_username else "this client"


def _described(failure: BaseException, settings: Settings) -> tuple[str, str] | None:
    text = str(failure).upper().replace(" ", "_")
    if isinstance(failure, kafka.errors.SaslAuthenticationFailedError):
        return f"the brokers reject the login of {_login(settings)}", _CHECK_LOGIN
    if isinstance(failure, kafka.errors.UnsupportedSaslMechanismError):
        mechanism = settings.kafka["sasl.mechanism"].get_secret_value()
        return f"the brokers do not offer {mechanism}", "Set sasl.mechanism in kafka to one that they do"
    if _UNTRUSTED in text:
        reason = str(failure).rpartition("certificate verify failed: ")[2].partition(" (_ssl")[0]
        return f"the broker's certificate is not trusted ({reason})", _CHECK_AUTHORITY
    if any(name in text for name in _CERTIFICATE_WANTED):
        return "the brokers do not accept this client's certificate", _CHECK_CERTIFICATE
    if isinstance(failure, kafka.errors.InvalidReceiveError) or any(name in text for name in _NO_TLS_THERE):
        return "the brokers speak another protocol at this port", _CHECK_PROTOCOL
    return None
