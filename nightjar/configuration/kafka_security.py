"""Translates the security settings, in Kafka's own names, for both kinds of clients: kafka-python's and Java's.

A login with a name and a password needs no JAAS text: `kafka_username` and `kafka_password_file` make it, so that the
password is in one file and neither in a settings file nor in the environment.

Known limitation: kafka-python reads PEM files only and cannot configure an OAUTHBEARER login from settings; both raise
an error with the remedy.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nightjar.configuration.settings import Settings
from nightjar.rules.errors import SettingsError

# Kafka's name -> kafka-python's, where the value means the same in both.
_SAME_MEANING = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.password": "ssl_password",
}
_JAAS = "sasl.jaas.config"
_JAAS_OPTION = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_SCRAM, _PLAIN = "SCRAM-", "PLAIN"
_LOGIN_MODULES = {
    _SCRAM: "org.apache.kafka.common.security.scram.ScramLoginModule",
    _PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
}
_FILES = ("ssl.truststore.location", "ssl.keystore.location")


def java_security(settings: Settings) -> dict[str, str]:
    """The security settings of a Java client, with the login that the settings name.

    Raises:
        SettingsError: the password's file cannot be read, or settings contradict each other.
    """
    security = {name: value.get_secret_value() for name, value in settings.kafka.items()}
    if settings.kafka_username or settings.kafka_password_file is not None:
        security[_JAAS] = _jaas(settings, security)
    return security


def python_security(security: Mapping[str, str]) -> dict[str, Any]:
    """The settings of `java_security` under kafka-python's names.

    Raises:
        SettingsError: kafka-python does not support one of them.
    """
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
    if _login_module(mechanism):
        options |= _login(security)
    elif mechanism and mechanism != "GSSAPI":
        raise _refused(
            "sasl.mechanism",
            f"not every client supports {mechanism}",
            "Use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or GSSAPI",
        )
    return options


def refuse_unreadable(settings: Settings) -> None:
    """Raise SettingsError if a file of certificates cannot be read: the clients' own errors do not say which."""
    for name in _FILES:
        if name in settings.kafka:
            _readable(Path(settings.kafka[name].get_secret_value()), f"kafka: {name}")


def password_in(path: Path, setting: str) -> str:
    """The password in a file, without the end of its line. setting: what names the file, for errors.

    Raises:
        SettingsError: the file cannot be read, or is not one line of text.
    """
    password = _readable(path, setting).strip()
    if not password or not password.isprintable():
        raise SettingsError("holds no password", where=f"{setting}: {path}", remedy="Write the password in one line")
    return password


def _login(security: Mapping[str, str]) -> dict[str, str]:
    login = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS_OPTION.findall(security.get(_JAAS, ""))}
    if set(login) != {"username", "password"}:
        raise _refused(
            _JAAS,
            "has no username and password",
            'Set kafka_username and kafka_password_file, or write: ... required username="NAME" password="WORD";',
        )
    return {"sasl_plain_username": login["username"], "sasl_plain_password": login["password"]}


def _jaas(settings: Settings, security: Mapping[str, str]) -> str:
    if not settings.kafka_username or settings.kafka_password_file is None:
        missing = "kafka_password_file" if settings.kafka_username else "kafka_username"
        raise SettingsError("a login needs a name and a password", where=missing, remedy=f"Set {missing} too")
    if _JAAS in security:
        raise _refused(_JAAS, "there is a second login, kafka_username", "Remove one of the two")
    module = _login_module(security.get("sasl.mechanism", "").upper())
    if module is None:
        raise _refused(
            "sasl.mechanism",
            "kafka_username is a login by SASL, with a mechanism that takes a password",
            "Set it to SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN, and security.protocol to SASL_SSL",
        )
    password = password_in(settings.kafka_password_file, "kafka_password_file")
    return f"{module} required username={_quoted(settings.kafka_username)} password={_quoted(password)};"


def _login_module(mechanism: str) -> str | None:
    return next((module for start, module in _LOGIN_MODULES.items() if mechanism.startswith(start)), None)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _readable(path: Path, setting: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"cannot be read ({error.strerror})",
            where=f"{setting}: {path}",
            remedy="Name a file that this user can read; relative paths start at the working directory",
        ) from None
    except UnicodeDecodeError:
        raise SettingsError("is not text", where=f"{setting}: {path}", remedy="Write it as UTF-8, or PEM") from None


def _refused(name: str, what: str, remedy: str) -> SettingsError:
    return SettingsError(what, where=f"kafka: {name}", remedy=remedy)
