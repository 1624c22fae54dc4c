"""`nightjar alerts forward --avro`: alerts on a topic in Avro, by a schema in a real registry."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import httpx
import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from nightjar.contracts.alerts import ALERT, ALWAYS_THERE
from nightjar.contracts.record_type import Member, RecordType
from nightjar.formats.avro_records import avro_schema
from nightjar.formats.errors import SchemaError
from nightjar.formats.registry import Registry
from nightjar.kafka.clients import consumer, producer
from nightjar.kafka.readers import KafkaRecord, Reader
from nightjar.operations.alert_topic import group_of
from nightjar.rules.timestamps import iso_text, microseconds
from tests.support.alert_records import alert
from tests.support.command import environment, run
from tests.support.schema_registry import SchemaRegistry, schema_registry
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SECONDS = 60.0


class Site:
    """A test's own topics, and the registry. login: the file of its login."""

    def __init__(self, own: TestTopics, registry: SchemaRegistry, folder: Path) -> None:
        self.own, self.registry, self.login = own, registry, folder / "login"
        self.topic = f"{own.settings.alerts_topic}-avro"
        self.login.touch(mode=0o600)
        self.login.write_text(":".join(registry.login or ()))

    @property
    def environment(self) -> dict[str, str]:
        """Of the command."""
        return environment(self.own.settings) | {
            "NIGHTJAR_SCHEMA_REGISTRY": self.registry.url,
            "NIGHTJAR_SCHEMA_REGISTRY_LOGIN_FILE": str(self.login),
        }

    def send(self, *values: dict[str, Any] | bytes | None) -> None:
        """Put records on the alerts topic as the job does, with its keys and a header."""
        with producer(self.own.settings) as client:
            for value in values:
                written = json.dumps(value).encode() if isinstance(value, dict) else value
                key = value["alert_id"].encode() if isinstance(value, dict) else b"k"
                client.send(self.own.settings.alerts_topic, written, key=key, headers=[("sent_at", b"7")]).get()

    def forward(self, code: int = 0) -> str:
        """Run the command to the topic's end; what it prints."""
        return run(
            "alerts", "forward", "--avro", self.topic, "--until-end", code=code, environment=self.environment
        ).stderr

    def read(self) -> list[KafkaRecord]:
        """The records on the other topic."""
        with Reader(self.own.settings, self.topic) as reader:
            return list(reader.all())

    def decoded(self) -> list[dict[str, Any]]:
        """Their content, as a consumer that knows nothing but the registry decodes it."""
        schemas: dict[int, Any] = {}
        found = []
        for record in self.read():
            assert record.value[:1] == b"\0"
            number = int.from_bytes(record.value[1:5], "big")
            if number not in schemas:
                schemas[number] = fastavro.parse_schema(
                    json.loads(self.registry.get(f"/schemas/ids/{number}").json()["schema"])
                )
            source = io.BytesIO(record.value[5:])
            found.append(fastavro.schemaless_reader(source, schemas[number], None))
            assert source.read() == b""
        return found


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    """It asks for a login."""
    with schema_registry() as running:
        yield running


@pytest.fixture
def site(kafka_topics: TestTopics, registry: SchemaRegistry, tmp_path: Path) -> Site:
    """With no alerts."""
    return Site(kafka_topics.ensure(), registry, tmp_path)


def as_json(content: dict[str, Any]) -> dict[str, Any]:
    """The record that nightjar would have written."""
    return {
        name: iso_text(microseconds(value))
        if name in ("event_time", "emitted_at")
        else json.loads(value)
        if name in ("group", "measures")
        else value
        for name, value in content.items()
        if value is not None
    }


def test_a_consumer_reads_the_same_records(site: Site) -> None:
    """By the registry's schema: every record in order, with its key and headers; what it lacks is null."""
    records = [
        alert("t1", text="ä\x00'\"\u202e", measures={"n": 3, "mean": 1.5, "last": None}),
        alert("t1", revision=2, source="backfill", cause="late", event_time="2026-01-05T10:00:00.000000Z"),
        alert("t1", revision=3, kind="retraction", overflow=True),
    ]
    site.send(*records)
    assert "Forwarded 3 records, skipped 0" in site.forward()
    decoded = site.decoded()
    assert [as_json(each) for each in decoded] == records
    assert set(decoded[0]) == set(ALERT.members)
    assert {(each.key, tuple(each.headers)) for each in site.read()} == {
        (records[0]["alert_id"].encode(), (("sent_at", b"7"),))
    }


def test_a_second_run_forwards_what_is_new(site: Site) -> None:
    """It resumes from the group's offsets; one record goes to one partition, whatever the number of them."""
    site.send(alert("t1"))
    site.forward()
    site.send(alert("t2"), alert("t1", revision=2))
    assert "Forwarded 2 records" in site.forward()
    assert "Forwarded 0 records" in site.forward()
    found = [(each["event_id"], each["revision"]) for each in site.decoded()]
    assert sorted(found) == [("t1", 1), ("t1", 2), ("t2", 1)]
    partitions = {(each.key, each.partition) for each in site.read()}
    assert len(partitions) == 2


def test_what_is_no_alert_is_skipped(site: Site) -> None:
    """A record that another release wrote is none of that: what it lacks is null, what is unknown is left out."""
    site.send(b"", None, b"\xff", b"[" * 99_999, alert("t2", text="\ud800"), {"alert_id": "x"})
    site.send({name: value for name, value in alert("t1").items() if name != "emitted_at"} | {"unknown": [1]})
    assert "Forwarded 1 record, skipped 6 that are no alerts" in site.forward()
    (content,) = site.decoded()
    assert (content["event_id"], content["emitted_at"]) == ("t1", None)


def test_uncommitted_offsets_bring_records_again(site: Site) -> None:
    """As after a crash between delivery and commit; by alert_id and revision they are the same."""
    site.send(alert("t1"), alert("t2"))
    site.forward()
    topic = site.own.settings.alerts_topic
    with consumer(site.own.settings, group_id=group_of(site.topic)) as client:
        places = [TopicPartition(topic, each) for each in client.partitions_for_topic(topic)]
        client.commit({place: OffsetAndMetadata(0) for place in places})
    assert "Forwarded 2 records" in site.forward()
    found = [json.dumps(as_json(each)) for each in site.decoded()]
    assert len(found) == 4
    assert set(found) == {json.dumps(alert("t1")), json.dumps(alert("t2"))}


def test_a_killed_process_loses_nothing(site: Site) -> None:
    """Whenever it is killed, the next one forwards the rest."""
    site.forward()
    command = [str(Path(sys.executable).with_name("nightjar")), "alerts", "forward", "--avro", site.topic]
    for number in range(3):
        process = subprocess.Popen(command, env={**os.environ, **site.environment}, stderr=subprocess.DEVNULL)
        with producer(site.own.settings) as client:
            for each in range(1_000):
                record = alert(f"{number}-{each}")
                client.send(
                    site.own.settings.alerts_topic, json.dumps(record).encode(), key=record["alert_id"].encode()
                )
        before, deadline = len(site.read()), time.monotonic() + SECONDS
        while len(site.read()) == before:
            assert time.monotonic() < deadline, "nothing was forwarded"
        process.kill()
        process.wait()
    site.forward()
    assert {each["event_id"] for each in site.decoded()} == {f"{a}-{b}" for a in range(3) for b in range(1_000)}


def test_the_schema_is_registered_once(site: Site) -> None:
    """Under the topic's subject, with what the members are about."""
    site.forward()
    site.forward()
    subject = f"/subjects/{site.topic}-value/versions"
    assert site.registry.get(subject).json() == [1]
    fields = json.loads(site.registry.get(f"{subject}/latest").json()["schema"])["fields"]
    assert [each["name"] for each in fields] == list(ALERT.members)
    by_name = {each["name"]: each for each in fields}
    assert by_name["event_time"]["type"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert by_name["cause"]["type"] == ["null", "string"]
    assert by_name["cause"]["default"] is None
    assert by_name["group"]["doc"].startswith(ALERT.members["group"].about)


def test_a_later_release_may_add_members(registry: SchemaRegistry, tmp_path: Path) -> None:
    """The registry finds both schemas compatible in both directions, and refuses one that is not."""
    login = tmp_path / "login"
    login.write_text(":".join(registry.login or ()))
    client, subject = Registry(registry.url, login), f"{tmp_path.name}/x-value"
    first = client.register(subject, avro_schema(ALERT, ALWAYS_THERE))
    path = f"{registry.url}/config/{subject.replace('/', '%2F')}"
    set_to = {"compatibility": "FULL"}
    httpx.put(path, json=set_to, auth=registry.login, trust_env=False).raise_for_status()
    assert client.register(subject, avro_schema(ALERT, ALWAYS_THERE)) == first
    added = RecordType(ALERT.name, ALERT.about, {**ALERT.members, "new": Member("new")})
    assert client.register(subject, avro_schema(added, ALWAYS_THERE)) > first
    with pytest.raises(SchemaError, match=r"the registry refuses the schema \(409"):
        client.register(subject, avro_schema(added, {*ALWAYS_THERE, "new"}))


def test_a_subject_with_another_schema(site: Site) -> None:
    """Nothing is sent, and the error names the subject."""
    other = {"type": "record", "name": "other", "fields": [{"name": "x", "type": "int"}]}
    site.registry.register(f"{site.topic}-value", json.dumps(other))
    set_to = {"compatibility": "BACKWARD"}
    path = f"{site.registry.url}/config/{site.topic}-value"
    httpx.put(path, json=set_to, auth=site.registry.login, trust_env=False).raise_for_status()
    site.send(alert("t1"))
    printed = site.forward(code=2)
    assert f"error: {site.topic}-value: the registry refuses the schema (409" in printed
    assert site.read() == []


def test_a_login_that_the_registry_refuses(site: Site) -> None:
    """The error says what to set, and has no password."""
    site.login.write_text("tests:wrong-word")
    printed = site.forward(code=2)
    assert "this login may not register a schema" in printed
    assert "schema_registry_login_file" in printed
    assert "wrong-word" not in printed


def test_targets_that_are_refused(site: Site) -> None:
    """No registry, a topic of nightjar's own, and none or two targets."""

    def refused(*arguments: str, **given: str) -> str:
        return run("alerts", "forward", *arguments, code=2, environment={**site.environment, **given}).stderr

    assert "schema_registry: is empty" in refused("--avro", site.topic, NIGHTJAR_SCHEMA_REGISTRY="")
    for topic in (site.own.settings.alerts_topic, "transactions", "__consumer_offsets"):
        assert f"{topic} is a topic of nightjar's or of Kafka's own" in refused("--avro", topic)
    assert "'a b' is not a topic's name" in refused("--avro", "a b")
    assert "needs one target" in refused()
    assert "needs one target" in refused("--avro", site.topic, "--postgres", str(site.login))
