"""The local broker and the topics on it, for real."""

import json
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from nightjar.configuration.settings import load_settings
from nightjar.kafka import topics
from nightjar.kafka.clients import KafkaError, admin, producer
from nightjar.kafka.readers import Reader
from nightjar.local import kafka
from nightjar.local.kafka import LocalKafka, LocalKafkaError
from nightjar.rules.streams import load_streams
from tests.support.command import run
from tests.support.topics import TestTopics

pytestmark = pytest.mark.kafka


def test_the_log_of_a_broker_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it runs: a full log becomes `.1`, whose content before is dropped."""
    monkeypatch.setattr(kafka, "_LOG_SIZE", "8 KB")
    with LocalKafka(load_settings(data_dir=tmp_path, kafka_port=0), short_lived=True) as broker:
        pass
    logs = {file.name: file.stat().st_size for file in broker.folder.glob("broker.log*")}
    assert logs.keys() == {"broker.log", "broker.log.1"}
    assert max(logs.values()) < 16 * 1024, "a record, such as that of all settings, is written whole"


def test_topics_are_made_once(kafka_topics: TestTopics) -> None:
    """The first call makes every topic, the second none."""
    made = topics.ensure(kafka_topics.settings, kafka_topics.streams.values())
    again = topics.ensure(kafka_topics.settings, kafka_topics.streams.values())
    assert len(made) == len(kafka_topics.streams) + 10
    assert again == []


@pytest.mark.parametrize("arrival", ["broker", "producer"])
def test_the_setting_decides_who_gives_arrival(kafka_topics: TestTopics, arrival: str) -> None:
    """A record with a time stamp of 2018 arrives then if the producer decides, else now."""
    own = kafka_topics.with_arrival(arrival).ensure()
    topic = own.streams["transactions"].topic
    with producer(own.settings) as client:
        client.send(topic, b"{}", timestamp_ms=1_522_540_800_000).get()
    with Reader(own.settings, topic) as reader:
        (record,) = reader.all()
    assert (record.arrival == 1_522_540_800_000_000) == (arrival == "producer")


@pytest.mark.parametrize("name", ["rules_topic", "rule_status_topic"])
def test_rules_and_their_answers_are_kept_forever_in_one_partition(kafka_topics: TestTopics, name: str) -> None:
    """Neither deleted by age or size, nor compacted, and in one order; a topic that may lose some is refused."""
    own = kafka_topics.ensure()
    topic = getattr(own.settings, name)
    (wanted,) = [found for found in topics.topics(own.settings, []) if found.name == topic]
    assert wanted.partitions == 1
    assert wanted.config["retention.ms"] == wanted.config["retention.bytes"] == "-1"
    assert wanted.config["cleanup.policy"] == "delete"
    with admin(own.settings) as client:
        (found,) = client.describe_topics([topic])
        assert len(found["partitions"]) == 1
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "604800000"})
        client.alter_configs([changed])
        deadline = time.monotonic() + 60
        while client.describe_configs([changed])["topic"][topic]["retention.ms"]["value"] == "-1":
            assert time.monotonic() < deadline, "the broker does not take the change"
    with pytest.raises(KafkaError, match=f"topic {topic} at .*retention.ms is 604800000, but must be -1"):
        topics.ensure(own.settings, own.streams.values())


def test_topic_with_the_other_time_stamp_is_refused(kafka_topics: TestTopics) -> None:
    """An existing topic whose arrival means something else is refused, not changed."""
    own = kafka_topics.ensure()
    other = own.with_arrival("producer")
    with pytest.raises(KafkaError, match=r"message.timestamp.type is LogAppendTime, but must be CreateTime"):
        topics.ensure(other.settings, other.streams.values())


def test_refused_topic_names_the_topic(kafka_topics: TestTopics) -> None:
    """A topic that the broker refuses is named with the broker's reason."""
    streams = [replace(kafka_topics.streams["logins"], topic="..")]
    with pytest.raises(KafkaError, match=r"topic \.\. cannot be created"):
        topics.ensure(kafka_topics.settings, streams)


def test_no_broker_is_one_clear_message() -> None:
    """Where nobody listens the error names the address and what to do."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(KafkaError, match=rf"Kafka at {address}: no broker responds .*nightjar up"):
            admin(load_settings(bootstrap_servers=address))


def test_second_start_on_a_live_folder_is_refused(broker: LocalKafka, tmp_path: Path) -> None:
    """A broker of another live process is left alone."""
    record = broker.folder / "broker.json"
    mine = record.read_text()
    parent = psutil.Process(os.getppid())
    record.write_text(json.dumps({**json.loads(mine), "parent": [parent.pid, parent.create_time()]}))
    try:
        reported = f"a broker is already running here .broker {broker.pid}, started by process {parent.pid}"
        with pytest.raises(LocalKafkaError, match=reported):
            LocalKafka(load_settings(data_dir=broker.folder.parent, kafka_port=0)).start()
    finally:
        record.write_text(mine)


def test_taken_port_is_refused(tmp_path: Path) -> None:
    """The message names the port and the setting that changes it."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LocalKafkaError, match=rf"127.0.0.1:{port}: the port is in use .* kafka_port"):
            LocalKafka(load_settings(data_dir=tmp_path, kafka_port=port)).start()


def test_broker_that_does_not_come_up_shows_its_log(tmp_path: Path) -> None:
    """A storage that belongs to another node ends the start with the broker's own words."""
    data = tmp_path / "kafka" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=7\n")
    with pytest.raises(LocalKafkaError, match=r"(?s)the broker exited while starting; its log ends with:.*node"):
        LocalKafka(load_settings(data_dir=tmp_path, kafka_port=0)).start()


@pytest.mark.slow
def test_data_survives_a_killed_broker_and_its_orphaned_process(tmp_path: Path) -> None:
    """After a kill -9 of the broker, or of whoever started it, the next start has the data and the port."""
    settings = load_settings(data_dir=tmp_path, kafka_port=0)
    first = LocalKafka(settings, short_lived=True)
    first.start()
    with producer(first.settings) as client, admin(first.settings) as control:
        control.create_topics({"kept": {"num_partitions": 1}}, wait_for_metadata=True)
        client.send("kept", b"1").get()
    os.kill(first.pid or 0, signal.SIGKILL)
    orphan = LocalKafka(settings, short_lived=True)
    orphan.start()
    record = tmp_path / "kafka" / "broker.json"
    nobody = [2**22 + 1, 0.0]  # above the largest process id
    record.write_text(json.dumps({**json.loads(record.read_text()), "parent": nobody}))
    with LocalKafka(settings, short_lived=True) as second:
        assert orphan.pid is None
        assert load_settings(data_dir=tmp_path, kafka_port=0).bootstrap == second.bootstrap
        with Reader(second.settings, "kept") as reader:
            assert [kept.value for kept in reader.all()] == [b"1"]
    assert not record.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("replay", "events.jsonl", "--stream", "logins"),
        ("archive",),
        ("backfill", "--day", "2026-11-20"),
        ("stream",),
        ("stream", "rebuild"),
        ("status",),
        ("rules", "list"),
    ],
)
def test_the_broker_of_another_folder_is_refused(broker: LocalKafka, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Where the default port is that of a broker which another folder's `nightjar up` has started."""
    event = dict.fromkeys(load_streams()["logins"].fields, "x") | {"event_time": "2026-11-20T12:00:00Z"}
    (tmp_path / "events.jsonl").write_text(json.dumps(event))
    given = {"NIGHTJAR_KAFKA_PORT": str(broker.port)}
    done = run(*command, code=2, environment=given, folder=tmp_path)
    assert f"Kafka at {broker.bootstrap}: what listens there is not this installation's broker" in done.stderr
    assert f"bootstrap_servers to {broker.bootstrap}" in done.stderr


def test_the_broker_of_this_folder_is_its_own(broker: LocalKafka, tmp_path: Path) -> None:
    """By its port alone, or where somebody names it; not once its process has ended and its port is another's."""
    own = load_settings(data_dir=broker.folder.parent, kafka_port=broker.port)
    with admin(own), admin(load_settings(data_dir=tmp_path, bootstrap_servers=broker.bootstrap)):
        pass
    record, nobody = broker.folder / "broker.json", [2**22 + 1, 0.0]  # above the largest process id
    mine = record.read_text()
    record.write_text(json.dumps({**json.loads(mine), "broker": nobody}))
    try:
        with pytest.raises(KafkaError, match="not this installation's broker"):
            admin(own)
    finally:
        record.write_text(mine)
