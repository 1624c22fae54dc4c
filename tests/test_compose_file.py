"""docker-compose.yaml and what it starts with, without Docker: limits, health checks, secrets and logins."""

import os
import re
import ssl
import stat
import subprocess
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from nightjar.deployment.certificates import DAYS
from nightjar.deployment.secrets import CERTIFICATE, DONE, LOGINS, PARTS, expiry, make, renew

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
LASTING = [name for name, service in SERVICES.items() if service["restart"] != "no"]


def mounts(name: str) -> dict[str, str]:
    """Volume to where a service mounts it."""
    return dict(each.split(":")[:2] for each in SERVICES[name].get("volumes", []))


def contents(root: Path) -> dict[Path, bytes]:
    """All files, by path below `root`."""
    return {file.relative_to(root): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def hosts_of(folder: Path) -> list[str]:
    """The host names in a part's certificate."""
    certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return named.value.get_values_for_type(x509.DNSName)


def assert_certificates_are_of_one_authority(root: Path) -> None:
    """A part's key and certificate belong together, and everybody trusts the same authority, which signed all."""
    assert len({(root / part / "ca.pem").read_bytes() for part in PARTS}) == 1
    for part in (name for name, each in PARTS.items() if each.certificate is not None):
        context = ssl.create_default_context(cafile=root / part / "ca.pem")
        context.load_cert_chain(root / part / CERTIFICATE, root / part / "tls-key.pem")
        context.load_cert_chain(root / part / "tls.pem")
        (certificate,) = x509.load_pem_x509_certificates((root / part / "tls.pem").read_bytes())
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate((root / part / "ca.pem").read_bytes()))


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_confined(name: str) -> None:
    """Limits of memory and processes, no capabilities that it does not need, no way to more rights."""
    service = SERVICES[name]
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["read_only"] or name == "kafka"
    assert "privileged" not in service
    assert re.fullmatch(r"[\w/.-]+:(\$\{NIGHTJAR_TAG\}|[\w.-]*\d[\w.-]*)", service["image"]), "the image is pinned"


@pytest.mark.parametrize("name", [name for name in LASTING if name != "simulator"])
def test_each_service_that_lasts_has_a_health_check(name: str) -> None:
    """And is started again."""
    assert SERVICES[name]["restart"] == "unless-stopped"
    assert SERVICES[name]["healthcheck"]["test"]


def test_only_those_reach_out_that_serve_or_report() -> None:
    """The scheduler's tasks report their own failures, the DAG processor those of tasks that were killed."""
    outside = {name for name in SERVICES if "outside" in SERVICES[name]["networks"]}
    reporting = {"airflow-scheduler", "airflow-dag-processor", "notifier"}
    assert outside == {"kafka", "airflow", "grafana", "schema-registry", *reporting}


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "secrets"])
def test_each_service_mounts_its_own_secrets_and_cannot_write_them(name: str) -> None:
    """A part whose container is taken over has the secrets of no other."""
    mounted = [each for each in SERVICES[name].get("volumes", []) if each.startswith("secrets")]
    assert all(each.endswith(":ro") for each in mounted)
    assert not any(each.startswith("secrets:") for each in mounted)


def test_every_part_with_secrets_has_a_volume() -> None:
    """The service that makes them fills each part's own."""
    assert mounts("secrets") == {
        "secrets": "/secrets",
        **{f"secrets-{part}": f"/secrets/{part}" for part in PARTS},
    }
    assert (SERVICES["secrets"]["network_mode"], SERVICES["secrets"]["networks"]) == ("none", [])
    used = {volume for name in SERVICES for volume in mounts(name)}
    # whoever runs it has the routes of messages in a folder
    assert used == {*COMPOSE["volumes"], "${NOTIFY}"}
    assert re.search("^NOTIFY=.", (ROOT / ".env").read_text(), re.MULTILINE)


def test_the_image_has_all_packages_in_the_versions_of_the_lock() -> None:
    """Its own lock differs where Airflow's users and roles need another version, and has no more."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(packages["packages"]) <= copied
    ours, images = (
        dict(re.findall(r"^([\w.-]+)(?:\[\S+\])?==(\S+)", (ROOT / file).read_text(), re.MULTILINE))
        for file in ("requirements.lock", "deploy/image/requirements.lock")
    )
    different = {name for name in ours.keys() & images.keys() if ours[name] != images[name]}
    assert different == {"python-dateutil"}, "update it as deploy/image/requirements.in says"
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split(r"[\[<>=]", each)[0] for each in wanted} <= images.keys()


def test_each_pass_of_the_demonstration_has_ids_of_its_own(tmp_path: Path) -> None:
    """The job would take events whose ids it knows for duplicates, and be silent."""
    log = tmp_path / "log"
    commands = {
        # The time, for each that asks another one.
        "date": f"wc -l <{log}",
        # The second pass ends it.
        "nightjar": f'echo "$@" >>{log}; [ "$(grep -c ^generate {log})" -lt 2 ]',
    }
    log.touch()
    for name, script in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPEED": "100"}
    done = subprocess.run(
        ["sh", ROOT / "deploy" / "compose" / "demo" / "simulator.sh"], env=environment, timeout=60, check=False
    )
    assert done.returncode == 1
    sent = log.read_text().splitlines()
    prefixes = re.findall(r"--prefix (\S+)", log.read_text())
    assert len(set(prefixes)) == len(prefixes) == 2
    assert sorted(sent[1:3]) == [
        f"replay /tmp/live/{stream}.parquet --stream {stream} --speed 100" for stream in ("logins", "transactions")
    ]


def test_whoever_runs_the_containers_knows_which_images_they_need() -> None:
    """Those of others, but for the profile `observe`, which its test leaves out where they are missing."""
    built = re.findall(r"^FROM (\S+:\S+)", (ROOT / "deploy" / "image" / "Dockerfile").read_text(), re.MULTILINE)
    taken = [each["image"] for each in SERVICES.values() if each.get("profiles") != ["observe"]]
    wanted = {*built, *(image for image in taken if not image.startswith("nightjar"))}
    (images,) = re.findall(r"^images=\((.*)\)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert set(images.split()) == wanted
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"`{image}`" in contributing for image in wanted)


def test_environment_names_files_instead_of_secrets() -> None:
    """Everybody who may talk to Docker reads a container's environment."""
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|KEY|TOKEN", variable):
                assert str(value).startswith(("/run/", "PEM")), f"{name}: {variable}"


def test_secrets_are_made_once_and_each_is_readable_by_its_part_only(tmp_path: Path) -> None:
    """A second start changes nothing; an interrupted one is begun again."""
    assert make(tmp_path)
    files = contents(tmp_path)
    assert not make(tmp_path)
    assert files == contents(tmp_path)
    modes = {stat.S_IMODE((tmp_path / file).stat().st_mode) for file in files if file.name != DONE}
    assert modes == {0o400}
    assert {stat.S_IMODE((tmp_path / part).stat().st_mode) for part in PARTS} == {0o500}
    for login in LOGINS:
        assert files[Path("admin", f"{login}.password")] == files[Path(login, "kafka-password")]
    assert len({files[Path(login, "kafka-password")] for login in LOGINS}) == len(LOGINS)
    (tmp_path / DONE).unlink()
    assert make(tmp_path)
    assert files[Path("job", "kafka-password")] != (tmp_path / "job" / "kafka-password").read_bytes()


def test_a_renewal_makes_certificates_and_keeps_everything_else(tmp_path: Path) -> None:
    """Kafka and the databases know the passwords, and what Airflow keeps is encrypted with its key."""
    make(tmp_path)
    before = contents(tmp_path)
    renew(tmp_path, ["kafka.example.com"])
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    assert {file.name for file in after if after[file] != before[file]} == {
        "ca.pem",
        "ca.p12",
        "trusted.pem",
        "tls.pem",
        "tls-key.pem",
        CERTIFICATE,
        "tls.p12",
    }
    assert {file.name for file in after if after[file] == before[file]}.isdisjoint({"ca.pem", CERTIFICATE})
    assert timedelta(days=DAYS - 1) < expiry(tmp_path) - datetime.now(UTC) <= timedelta(days=DAYS)
    assert hosts_of(tmp_path / "kafka") == ["kafka", "localhost", "kafka.example.com"]
    password = re.search(rb"keystore-password=(.*)", after[Path("object-store", "writer.conf")])
    assert password is not None
    key, certificate, _ = pkcs12.load_key_and_certificates(after[Path("object-store", "tls.p12")], password[1])
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert certificate == x509.load_pem_x509_certificate(after[Path("object-store", CERTIFICATE)])
    assert_certificates_are_of_one_authority(tmp_path)
    assert not make(tmp_path)


def test_there_is_nothing_to_renew_before_the_first_start(tmp_path: Path) -> None:
    """A start begins with certificates and passwords that agree."""
    with pytest.raises(FileNotFoundError, match="no certificates were made here"):
        renew(tmp_path)


def test_certificates_name_the_hosts_that_clients_use(tmp_path: Path) -> None:
    """The installation's own name is in those of the parts that clients elsewhere reach, and in no other."""
    make(tmp_path, ["kafka.example.com"])
    serving = [part for part, each in PARTS.items() if each.certificate is not None and each.certificate[1]]
    assert {part for part in serving if "kafka.example.com" in hosts_of(tmp_path / part)} == {
        "kafka",
        "airflow",
        "schema-registry",
    }


def test_certificates_are_those_of_one_authority(tmp_path: Path) -> None:
    """A part's key and certificate belong together, and the authority's is the same for all."""
    make(tmp_path)
    assert_certificates_are_of_one_authority(tmp_path)
