"""Makes the certificates and passwords of an installation in containers: `python -m nightjar.deployment.secrets`.

How it works: every part has a folder of its own, which only its user can read and only its container mounts, with the
authority's certificate and what the part needs to prove who it is. What exists is kept, so a second start changes
nothing. `--renew` makes the certificates again and keeps passwords and keys: databases know them already.

What it does not do: keep the authority's key. It ends with this program, so nobody can add a part later; renewing
certificates makes a new authority, for all parts at once.
"""

import argparse
import base64
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import certifi
from cryptography import x509

from nightjar.deployment.certificates import Authority, java_key_store, java_trust_store, write_secret

# Users of the images: of our own (deploy/image/Dockerfile) and of Kafka's. PostgreSQL's starts as root.
NIGHTJAR, OBJECTS, CONNECT, REGISTRY, KAFKA, ROOT = 10001, 10002, 10003, 10004, 1000, 0
PROMETHEUS, GRAFANA = 65534, 472

DONE = ".complete"
LOGINS = ("job", "backfill", "rebuild", "analysts", "producers", "readers", "pages")
AIRFLOW_USERS = ("admin", "operator", "analyst", "viewer")
# The login of the connector that publishes a table of rules.
TABLE = "rules-table"
# Who has a login at the object store, and who at the schema registry.
WRITER, READER = "writer", "reader"
CERTIFICATE = "tls-certificate.pem"
KEY_STORE_PASSWORD = "s3proxy.keystore-password"  # noqa: S105  the name of a setting


@dataclass(frozen=True)
class Part:
    """One part's folder."""

    user: int
    """The id of its container's user."""
    certificate: tuple[str, tuple[str, ...]] | None = None
    """Its name and the hosts it serves, if it has one."""
    files: Mapping[str, Callable[["Passwords"], str]] = field(default_factory=dict)
    """Further files, by name, each made from all passwords."""
    outside: bool = False
    """Whether clients also use the installation's own host names."""
    objects: str = ""
    """Its login at the object store."""
    java: bool = False
    """Whether its server takes no PEM."""


class Passwords:
    """The random passwords of one installation, by name, each the same wherever it is asked for."""

    def __init__(self) -> None:
        self._made: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        return self._made.setdefault(name, secrets.token_urlsafe(32))


def _spark(passwords: Passwords) -> str:
    """Spark authenticates and encrypts all connections within the cluster, and trusts the object store."""
    trust = "-Djavax.net.ssl.trustStore=/run/secrets/nightjar/ca.p12 -Djavax.net.ssl.trustStoreType=PKCS12"
    lines = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": passwords["spark"],
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",  # what our drivers speak
        "spark.io.encryption.enabled": "true",
        "spark.master.rest.enabled": "false",  # it would take applications from anybody
        "spark.driver.defaultJavaOptions": trust,
        "spark.executor.defaultJavaOptions": trust,
    }
    return "".join(f"{name} {value}\n" for name, value in lines.items())


def _database(passwords: Passwords) -> str:
    tls = "sslmode=verify-full&sslrootcert=/run/secrets/airflow/ca.pem"
    return f"postgresql+psycopg2://airflow:{passwords['postgres']}@postgres:5432/airflow?{tls}"


def _fernet(passwords: Passwords) -> str:
    return base64.urlsafe_b64encode(passwords["fernet"].encode()[:32]).decode()


def _served(identity: str) -> Callable[[Passwords], str]:
    """What the object store's server needs to know of a login; readers cannot change anything."""

    def lines(passwords: Passwords) -> str:
        found = {
            "s3proxy.secure-endpoint": "https://0.0.0.0:9000",
            "s3proxy.keystore-path": "/run/secrets/objects/tls.p12",
            KEY_STORE_PASSWORD: passwords["key-store"],
            "s3proxy.authorization": "aws-v4",
            "s3proxy.identity": identity,
            "s3proxy.credential": passwords[f"objects-{identity}"],
            "s3proxy.read-only-blobstore": str(identity == READER).lower(),
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": "/var/lib/objects",
        }
        return "\n".join(f"{name}={value}" for name, value in found.items())

    return lines


def _credentials(identity: str, passwords: Passwords) -> str:
    """A client's login at the object store, in AWS's form."""
    secret = passwords[f"objects-{identity}"]
    return f"[default]\naws_access_key_id = {identity}\naws_secret_access_key = {secret}\n"


def _registry_password(login: str) -> Callable[[Passwords], str]:
    return lambda passwords: passwords[f"registry-{login}"]


def _registry_logins(passwords: Passwords) -> str:
    """What the schema registry needs to know of its logins; the role of each has its name."""
    users = "quarkus.security.users.embedded"
    lines = (
        f"{users}.users.{login}={_registry_password(login)(passwords)}\n{users}.roles.{login}={login}"
        for login in (WRITER, READER)
    )
    return "\n".join(lines)


def _login(name: str) -> dict[str, Callable[[Passwords], str]]:
    return {"kafka-password": lambda passwords: passwords[f"kafka-{name}"]}


_SPARK = {"spark-defaults.conf": _spark}
PARTS: Mapping[str, Part] = {
    "kafka": Part(KAFKA, ("broker", ("kafka", "localhost")), outside=True),
    "admin": Part(
        NIGHTJAR,
        ("admin", ()),
        {f"{name}.password": lambda passwords, name=name: passwords[f"kafka-{name}"] for name in (*LOGINS, TABLE)},  # type: ignore[misc]
    ),
    "postgres": Part(ROOT, ("postgres", ("postgres",)), {"password": lambda passwords: passwords["postgres"]}),
    "object-store": Part(
        OBJECTS,
        ("object-store", ("object-store",)),
        {f"{each}.conf": _served(each) for each in (WRITER, READER)},
        java=True,
    ),
    "rules-database": Part(
        CONNECT,
        None,
        {
            "pgpass": lambda passwords: f"postgres:5432:*:airflow:{passwords['postgres']}",
            "debezium-password": lambda passwords: passwords["debezium"],
        },
    ),
    "connect": Part(
        CONNECT,
        None,
        {"passwords.properties": lambda each: f"kafka={each[f'kafka-{TABLE}']}\npostgres={each['debezium']}"},
    ),
    "schema-registry": Part(
        REGISTRY,
        ("schema-registry", ("schema-registry", "localhost")),
        {"logins.properties": _registry_logins}
        | {f"{login}-password": _registry_password(login) for login in (WRITER, READER)},
        outside=True,
    ),
    "spark": Part(NIGHTJAR, None, _SPARK, objects=WRITER),
    "job": Part(NIGHTJAR, None, _login("job") | _SPARK, objects=WRITER),
    "backfill": Part(NIGHTJAR, None, _login("backfill") | _SPARK, objects=WRITER),
    "rebuild": Part(NIGHTJAR, None, _login("rebuild") | _SPARK, objects=WRITER),
    "analysts": Part(NIGHTJAR, None, _login("analysts"), objects=READER),
    "producers": Part(NIGHTJAR, None, _login("producers")),
    "readers": Part(NIGHTJAR, None, _login("readers"), objects=READER),
    "metrics": Part(NIGHTJAR, ("metrics", ("metrics", "localhost")), _login("readers"), objects=READER),
    "notifier": Part(NIGHTJAR, ("notifier", ("notifier", "localhost")), _login("readers")),
    "pages": Part(NIGHTJAR, None, _login("pages"), objects=READER),
    "airflow": Part(
        NIGHTJAR,
        ("airflow", ("airflow", "localhost")),
        {
            "database": _database,
            "fernet-key": _fernet,
            "api-secret-key": lambda passwords: passwords["api"],
            "jwt-secret": lambda passwords: passwords["jwt"] + passwords["jwt-more"],
        },
        outside=True,
    ),
    "airflow-users": Part(
        NIGHTJAR,
        None,
        {name: lambda passwords, name=name: passwords[f"airflow-{name}"] for name in AIRFLOW_USERS},  # type: ignore[misc]
    ),
    "grafana": Part(GRAFANA, None, {"admin-password": lambda passwords: passwords["grafana"]}),
    "prometheus": Part(PROMETHEUS, ("prometheus", ("prometheus", "localhost"))),
}


def make(root: Path, hosts: Sequence[str] = ()) -> bool:
    """Fill the folder of every part below `root`, all at once, unless that has been done; returns whether it was now.

    hosts: names by which clients elsewhere find this installation. A start that was interrupted is begun again. Files
    belong to the part's user where this process may give them away.
    """
    if (root / DONE).exists():
        return False
    authority, passwords = Authority.new(), Passwords()
    for name, part in PARTS.items():
        folder = root / name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        for left in list(folder.iterdir()):
            left.unlink()
        _write(folder, part, _certificates(part, authority, passwords["key-store"], hosts))
        _write(folder, part, _secrets(part, passwords))
    (root / DONE).touch()
    return True


def renew(root: Path, hosts: Sequence[str] = ()) -> None:
    """Give every part a new certificate, of a new authority. An interrupted renewal is begun again by the next one.

    Raises:
        FileNotFoundError: there is nothing to renew.
    """
    if not (root / DONE).exists():
        raise FileNotFoundError(f"{root}: no certificates were made here")
    authority, password = Authority.new(), _key_store_password(root)
    for name, part in PARTS.items():
        _write(root / name, part, _certificates(part, authority, password, hosts))


def expiry(root: Path) -> datetime:
    """When the first certificate expires."""
    certificates = [root / name / CERTIFICATE for name, part in PARTS.items() if part.certificate is not None]
    return min(x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc for file in certificates)


def _write(folder: Path, part: Part, files: Iterable[tuple[str, bytes]]) -> None:
    """Write files, in place of those that exist."""
    folder.chmod(0o700)
    for name, content in files:
        (folder / name).unlink(missing_ok=True)
        write_secret(folder / name, content)
    for made in [folder, *folder.iterdir()]:
        with suppress(PermissionError):
            os.chown(made, part.user, part.user)
    folder.chmod(0o500)


def _certificates(
    part: Part, authority: Authority, key_store_password: str, hosts: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """The files that an authority makes: a renewal writes all of them, and no other."""
    yield "ca.pem", authority.pem
    if part.certificate is not None:
        name, served = part.certificate
        more = [host for host in hosts if part.outside and host not in served]
        key, certificate = authority.certificate_for(name, [*served, *more])
        # The authority's certificate completes the chain for servers that have to trust themselves (Airflow's).
        yield "tls.pem", key + certificate
        yield "tls-key.pem", key
        yield CERTIFICATE, certificate + authority.pem
        if part.java:
            yield "tls.p12", java_key_store(key, certificate, key_store_password)
    if part.objects:
        # Their clients take one file of authorities (SSL_CERT_FILE); some of these containers also reach other hosts.
        yield "trusted.pem", authority.pem + Path(certifi.where()).read_bytes()
        yield "ca.p12", java_trust_store(authority)


def _secrets(part: Part, passwords: Passwords) -> Iterator[tuple[str, bytes]]:
    if part.objects:
        yield "s3-credentials", _credentials(part.objects, passwords).encode()
    for name, content in part.files.items():
        yield name, (content(passwords) + "\n").encode()


def _key_store_password(root: Path) -> str:
    """The one of the object store's key store, which its settings name."""
    lines = (root / "object-store" / f"{WRITER}.conf").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)[KEY_STORE_PASSWORD]


def _main() -> None:
    """Make them, or show one file: `python -m nightjar.deployment.secrets /secrets [--show airflow-users/admin]`."""
    parser = argparse.ArgumentParser(prog="python -m nightjar.deployment.secrets")
    parser.add_argument("root", type=Path)
    parser.add_argument("--host", action="append", default=[], help="a name by which clients elsewhere find it")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--show", metavar="PART/FILE", help="print a file instead")
    instead.add_argument("--renew", action="store_true", help="make new certificates, and keep passwords and keys")
    given = parser.parse_args()
    if given.show is not None:
        part, _, file = given.show.partition("/")
        if part not in PARTS or not (found := given.root / part / Path(file).name).is_file():
            sys.exit(f"error: {given.show}: there is no such secret. Parts are {', '.join(PARTS)}")
        sys.stdout.write(found.read_text())
        return
    if given.renew:
        try:
            renew(given.root, given.host)
        except FileNotFoundError as error:
            sys.exit(f"error: {error}")
        did = "Renewed the certificates"
    else:
        made = make(given.root, given.host)
        did = "Made certificates and passwords" if made else "Certificates and passwords exist"
    sys.stderr.write(f"{did}. The certificates expire on {expiry(given.root):%Y-%m-%d}.\n")


if __name__ == "__main__":
    _main()
