"""Logins, certificates and access control on a real broker, for both kinds of clients.

Every principal has the access that `nightjar topics grant` gives its role, and no more.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType

from nightjar.backfill.run import run_all
from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.lake import lake_config
from nightjar.configuration.settings import Settings
from nightjar.deployment.certificates import Authority
from nightjar.kafka import rule_topics
from nightjar.kafka.acls import Role
from nightjar.kafka.clients import admin, producer
from nightjar.kafka.readers import Reader
from nightjar.lake.archive import archive
from nightjar.lake.config import LakeError
from nightjar.operations.backfill_requests import request_of
from nightjar.rules.streams import SHIPPED, Stream, load_streams
from nightjar.rules.timestamps import iso_text, parse_timestamp
from tests.support.alert_records import alert
from tests.support.command import run
from tests.support.job_host import CaseRun
from tests.support.metrics_process import running
from tests.support.nights import DAY
from tests.support.schema_registry import schema_registry
from tests.support.secure_broker import SecureKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(400)]

NOON = parse_timestamp("2026-01-05T12:00:00Z", zone_required=True) or 0
HOUR = 3_600_000_000
RULE = {"id": "failed", "stream": "logins", "group_by": ["customer_id"], "when": "status = 'FAIL'"}
# The topics of one small job, whose events arrive when their producer says.
SMALL = {"arrival": "producer", "activation_delay": "0s", "partitions": 1, "buckets": 2, "warm_up_batches": 0}


@dataclass
class Site:
    """A broker with topics, logins and access made by our own commands; folder: of settings files and data."""

    broker: SecureKafka
    folder: Path
    passwords: dict[str, str]

    def settings(self, role: Role, **changes: Any) -> Settings:
        """Those of a principal."""
        common = {"streams": self.folder / "streams.toml", "lake_dir": self.folder / "lake", **SMALL}
        return self.broker.settings_of(f"nightjar-{role}", **{**common, **changes})

    def environment(self, settings: Settings) -> dict[str, str]:
        """What makes a command use these settings: the name of a file that holds no password."""
        security = {name: value.get_secret_value() for name, value in settings.kafka.items()}
        lines = [
            f"{name} = {json.dumps(str(getattr(settings, name)))}"
            for name in (
                "bootstrap_servers",
                "data_dir",
                "lake_dir",
                "streams",
                "arrival",
                "kafka_username",
                "kafka_password_file",
            )
            if getattr(settings, name)
        ]
        lines += ['activation_delay = "0s"', "partitions = 1", "[kafka]"]
        lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in security.items()]
        file = self.folder / f"{settings.kafka_username or 'admin'}-{secrets.token_hex(4)}.toml"
        file.write_text("\n".join(lines))
        return {"NIGHTJAR_SETTINGS": str(file), "HOME": str(self.folder)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Made as the documentation says, with the administrator's certificate."""
    folder = tmp_path_factory.mktemp("secure")
    declared = SHIPPED.read_text()
    (folder / "streams.toml").write_text(
        declared[declared.index("[streams.logins]") : declared.index("[streams.payments]")]
    )
    with SecureKafka(folder) as broker:
        made = Site(broker, folder, {f"nightjar-{role}": secrets.token_urlsafe(24) for role in Role})
        for user, password in made.passwords.items():
            broker.password_file(user).write_text(password + "\n")
        given = {"streams": folder / "streams.toml", "arrival": "producer"}
        admin = made.environment(broker.settings.model_copy(update=given))
        run("topics", "create", environment=admin)
        logins = [f"{user}={broker.password_file(user)}" for user in made.passwords]
        run("topics", "add-logins", *logins, environment=admin)
        assert (
            "access control entries in force for User:nightjar-producers"
            in run("topics", "grant", environment=admin).stdout
        )
        yield made


def streams(site: Site) -> dict[str, Stream]:
    """The one stream of the site."""
    return load_streams(site.folder / "streams.toml")


def send(settings: Settings, number: int, time_of: int, arrival: int) -> None:
    """A failed login, by somebody who may only send events."""
    login = {
        "login_id": f"l{number}",
        "event_time": iso_text(time_of),
        "customer_id": "ann",
        "ip": "::1",
        "device": "d",
        "status": "FAIL",
    }
    with producer(settings) as client:
        client.send("logins", json.dumps(login).encode(), timestamp_ms=arrival // 1000).get()


def alerts(settings: Settings) -> list[dict[str, Any]]:
    """What consumers of alerts read."""
    with Reader(settings, settings.alerts_topic) as reader:
        return [json.loads(record.value) for record in reader.all()]


def shown_of_processes() -> str:
    """Arguments and environment of this process's descendants: Spark's JVM, its Python workers, engine processes."""
    shown = []
    for process in psutil.Process().children(recursive=True):
        try:
            shown += [*process.cmdline(), *process.environ().values()]
        except psutil.NoSuchProcess:
            continue
    return "\n".join(shown)


def files_that_hold(folder: Path, words: list[str]) -> list[Path]:
    """The files below a folder in which one of the words is, other than those that are passwords."""
    needles = [word.encode() for word in words]
    found = []
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names if not name.endswith(".password")):
            content = path.read_bytes() if path.is_file() else b""
            found += [path] * any(needle in content for needle in needles)
    return found


@pytest.mark.spark
def test_each_principal_does_its_part_and_no_password_shows(spark: "SparkSession", site: Site) -> None:
    """Events of one principal and rules of another lead to alerts, and to a night's corrections, for a third."""
    declared, by = streams(site), {role: site.settings(role) for role in Role}
    with CaseRun(spark, by[Role.JOB], declared) as job:
        rule_topics.send(by[Role.ANALYSTS], [RULE], NOON)
        job.await_answered(1)
        send(by[Role.PRODUCERS], 1, NOON + HOUR, NOON + HOUR)
        job.await_consumed({("logins", 0): 1})
        send(by[Role.PRODUCERS], 2, NOON + HOUR, NOON + 3 * HOUR)
        job.await_consumed({("logins", 0): 2})
        job.await_reported()
        shown = shown_of_processes()
    assert [(alert["event_id"], alert["source"]) for alert in alerts(by[Role.READERS])] == [("l1", "stream")]

    backfill = by[Role.BACKFILL]
    archive(spark, lake_config(backfill, declared))
    config = backfill_config(backfill, declared)
    (done,) = run_all(spark, config, [request_of(DAY.date(), declared, run_id="night")])
    assert done.verdict is None
    assert done.counts["published"] == 1
    assert [(alert["event_id"], alert["source"]) for alert in alerts(by[Role.READERS])] == [
        ("l1", "stream"),
        ("l2", "backfill"),
    ]

    passwords = list(site.passwords.values())
    assert not [word for word in passwords if word in shown]
    assert files_that_hold(site.folder, passwords) == []


def test_metrics_need_a_reader_only(site: Site) -> None:
    """`nightjar metrics` reads every topic that it reports on as a consumer of alerts."""
    environment = site.environment(site.settings(Role.READERS))
    with running(site.folder, settings=environment["NIGHTJAR_SETTINGS"]) as exporter:
        exporter.await_value("nightjar_kafka_up", 1)


def test_alerts_are_forwarded_with_the_rights_that_the_guide_names(site: Site) -> None:
    """docs/how-to/forward-alerts.md: without the group's the error says so."""
    topic, reader = "alerts-avro", site.settings(Role.READERS)
    principal = f"User:{reader.kafka_username}"

    def grant(kind: ResourceType, name: str, *operations: ACLOperation) -> None:
        pattern = ResourcePattern(kind, name, ACLResourcePatternType.LITERAL)
        with admin(site.broker.settings) as client:
            client.create_acls([ACL(principal, "*", each, ACLPermissionType.ALLOW, pattern) for each in operations])

    with schema_registry(asks_for_login=False) as registry:
        given = site.environment(reader) | {"NIGHTJAR_SCHEMA_REGISTRY": registry.url}
        command = ("alerts", "forward", "--avro", topic, "--until-end")
        assert f"topic {topic} cannot be created" in run(*command, code=2, environment=given).stderr
        grant(ResourceType.TOPIC, topic, ACLOperation.WRITE, ACLOperation.DESCRIBE, ACLOperation.CREATE)
        refused = run(*command, code=2, environment=given).stderr
        assert f"reading the offsets of group nightjar-forward-{topic} is not allowed to this login" in refused
        grant(ResourceType.GROUP, f"nightjar-forward-{topic}", ACLOperation.READ)
        run(*command, environment=given)  # what other tests of this broker have announced
        with producer(site.settings(Role.JOB)) as client:
            client.send(reader.alerts_topic, json.dumps(alert("forwarded")).encode(), key=b"k").get()
        assert "Forwarded 1 record," in run(*command, environment=given).stderr


def test_events_can_be_replayed_by_who_may_only_send(site: Site) -> None:
    """`nightjar replay` needs no access to other topics than the stream's own."""
    events = site.folder / "events.csv"
    events.write_text("login_id,event_time,customer_id,ip,device,status\nr1,2026-01-06T10:00:00Z,bob,::1,d,FAIL\n")
    given = ["replay", str(events), "--stream", "logins", "--keep-times", "--speed", "max"]
    run(*given, environment=site.environment(site.settings(Role.PRODUCERS)))
    refused = run(*given, code=2, environment=site.environment(site.settings(Role.READERS)))
    assert "topic logins cannot be created: Authorization failed" in refused.stderr
    assert "nightjar topics grant" in refused.stderr


def test_who_may_only_send_events_cannot_publish_rules(site: Site) -> None:
    """The error says which topic it is, and who can change it."""
    rule = site.folder / "rule.yaml"
    rule.write_text(json.dumps(RULE))
    environment = site.environment(site.settings(Role.PRODUCERS))
    refused = run("rules", "publish", str(rule), code=2, environment=environment).stderr
    assert "topic rule-status" in refused
    assert "or this login may not read it" in refused
    assert "`nightjar topics grant` grants access" in refused


@pytest.mark.spark
def test_the_archive_of_who_may_not_read_alerts_says_so(spark: "SparkSession", site: Site) -> None:
    """The Java client's refusal is one sentence too."""
    settings = site.settings(Role.JOB, lake_dir=site.folder / "other-lake")
    with pytest.raises(LakeError, match=r"Kafka refuses the archive access to topic \S+\. An administrator can grant"):
        archive(spark, lake_config(settings, streams(site)))


@pytest.mark.parametrize(
    ("wrong", "command", "expected"),
    [
        ("password", "stream", "nightjar-job"),
        ("authority", "status", "the broker's certificate is not trusted (unable to get local issuer certificate)"),
    ],
)
def test_a_client_that_brokers_turn_away_is_told_why(site: Site, wrong: str, command: str, expected: str) -> None:
    """One sentence with the remedy, exit code 2, and no password."""
    good = site.settings(Role.JOB)
    security = {name: value.get_secret_value() for name, value in good.kafka.items()}
    password = site.folder / "wrong.password"
    password.write_text("hunter2-not-this-one")
    if wrong == "password":
        changed = good.model_copy(update={"kafka_password_file": password})
    else:
        other = site.folder / "other-ca.pem"
        other.write_bytes(Authority.new().pem)
        changed = site.settings(Role.JOB, kafka=security | {"ssl.truststore.location": str(other)})
    began = time.monotonic()
    done = run(command, code=2, environment=site.environment(changed))
    error = done.stderr[done.stderr.index("error: ") :]
    assert expected in error
    assert error.count("\n") == 1, f"{time.monotonic() - began:.0f} s: {done.stderr}"
    assert ". Set " in error or ". Check the name and the password" in error
    assert "hunter2" not in done.stdout + done.stderr


def test_administration_is_refused_to_others(site: Site) -> None:
    """Neither access nor logins are given by who may not alter the cluster."""
    environment = site.environment(site.settings(Role.JOB))
    refused = run("topics", "grant", code=2, environment=environment).stderr
    assert "super.users" in refused
    file = site.broker.password_file("nightjar-job")
    refused = run("topics", "add-logins", f"mallory={file}", code=2, environment=environment).stderr
    assert "super.users" in refused
