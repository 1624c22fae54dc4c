"""The engine process of a real-time query, with tasks that speak as EngineBridge.java does."""

import json
import socket
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightjar.configuration.kafka import kafka_config
from nightjar.configuration.settings import Settings
from nightjar.contracts.clock import Clock
from nightjar.contracts.table_changes import change_record
from nightjar.contracts.topics import Topics
from nightjar.kafka import topics
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.local.kafka import LocalKafka
from nightjar.rules.rulebook import Record, ShuffleKey
from nightjar.rules.streams import Stream, load_streams, with_tables
from nightjar.rules.timestamps import from_microseconds, iso_text, parse_timestamp
from nightjar.streaming.buckets.packer import Packer
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.table_follower import TablesTopic
from nightjar.streaming.config import JobError
from nightjar.streaming.driver.engine_link import EngineEndedError, EngineLink
from nightjar.streaming.real_time.between_batches import Brokers
from nightjar.streaming.real_time.engine_process import EnginePlan
from nightjar.streaming.state.order_log import LoggedPositions, OrderLog
from nightjar.streaming.state.state_files import begin, files_of
from tests.support.answers import answered

STREAMS = load_streams()
TOPICS = Topics()
KEYS = (ShuffleKey("transactions", "customer_id"), ShuffleKey("transactions", "terminal_id"))
NOON = parse_timestamp("2026-01-05T12:00:00Z", zone_required=True) or 0
BURST = {
    "id": "burst",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "measures": {"payments": {"count": "*", "over": "1h"}},
    "when": "payments >= 2",
    "effective": "2026-01-01T00:00:00Z",
}
(ANSWER,) = answered(STREAMS, BURST)
MINUTE = 60_000_000
HOUR = 60 * MINUTE


class Task:
    """A task of a batch that reads one partition."""

    def __init__(self, path: str, topic: str, partition: int = 0, *, batch: int = 0, tasks: int = 3, attempt: int = 0):
        self.topic, self.partition = topic.encode(), partition
        self.next = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._held = b""
        self._socket.sendall(struct.pack("<qiiii", batch, tasks, attempt, 0, 0))

    def send(self, *values: bytes | None, arrival: int = NOON + 10 * MINUTE) -> None:
        """Records with the next offsets."""
        count, size = len(values), sum(len(value or b"") for value in values)
        frame = struct.pack("<iiih", count, self.partition, size, len(self.topic)) + self.topic
        frame += struct.pack(f"<{count}q", *range(self.next, self.next + count))
        frame += struct.pack(f"<{count}q", *[arrival] * count)
        frame += struct.pack(f"<{count}q", *[arrival] * count)
        frame += struct.pack(f"<{count}i", *(-1 if value is None else len(value) for value in values))
        frame += b"".join(value or b"" for value in values)
        self._socket.sendall(struct.pack("<i", len(frame)) + frame)
        self.next += count

    def end(self) -> None:
        """The task's part of the batch has ended."""
        self.send()

    def record(self, seconds: float = 60) -> tuple[str, dict[str, Any]] | None:
        """The next record, topic and value; None once the batch is stored. Raises TimeoutError if none comes."""
        self._socket.settimeout(seconds)
        size = self._length(0)
        if not size:
            self._held = self._held[4:]
            return None
        members, at = [], 4
        for _ in range(4):
            length = self._length(at)
            members.append(self._bytes(at + 4, length).decode())
            at += 4 + max(length, 0)
        self._held = self._held[at:]
        return members[0], json.loads(members[2])

    def _length(self, at: int) -> int:
        return int(struct.unpack(">i", self._bytes(at, 4))[0])

    def _bytes(self, at: int, length: int) -> bytes:
        while len(self._held) < at + length:
            received = self._socket.recv(1 << 16)
            if not received:
                raise EOFError
            self._held += received
        return self._held[at : at + max(length, 0)]

    def close(self) -> None:
        self._socket.close()


class Job:
    """What Spark and the driver do for one run after the other on a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.streams: Mapping[str, Stream] = STREAMS
        self.topics = TOPICS
        self.tables: TablesTopic | None = None
        self.brokers: Brokers | None = None
        self.state, self.runs, self.version = folder / "state", 0, 0
        self.seconds, self.most_waiting = 600.0, 64 << 20
        self.engine: EngineLink | None = None
        self.tasks: list[Task] = []

    def start(self, *, rules: tuple[Record, ...] = (ANSWER,), needed: int = 0, only_one: bool = False) -> None:
        """A run from the state after the last committed batch."""
        self.end()
        self.runs += 1
        run = f"run{self.runs}"
        begin(self.state, self.version or None, run)
        streams, topic = self.streams, None if self.tables is None else self.tables.name
        plan = BucketPlan("checkpoint", run, self.state, streams, KEYS, 2, self.topics, rules, tables=self.tables)
        packer = Packer(streams, KEYS, 2, 1, TOPICS.rule_status, TOPICS.clock, self.topics.quarantine, bounded=False)
        packer = replace(packer, tables_topic=topic)
        self.engine = EngineLink.start()
        given = EnginePlan(plan, packer, self.engine.path, 0, needed, 0.02, self.seconds, only_one, None)
        self.engine.run(replace(given, most_waiting=self.most_waiting, brokers=self.brokers))

    def batch(self, number: int = 0, **options: int) -> list[Task]:
        """The tasks of a batch: two partitions of events, and the answers."""
        assert self.engine is not None
        events = self.streams["transactions"].topic
        topics = [(events, 0), (events, 1), (TOPICS.rule_status, 0)]
        made = [Task(self.engine.path, topic, partition, batch=number, **options) for topic, partition in topics]
        self.tasks += made
        return made

    def reported(self, wanted: int) -> int:
        """The records of the groups that the engine reports, at least so many."""
        assert self.engine is not None
        rows, until = 0, time.monotonic() + 20
        while rows < wanted and time.monotonic() < until:
            rows += sum(each.rows for each in self.engine.reports())
            time.sleep(0.05)
        return rows

    def end(self) -> None:
        for task in self.tasks:
            task.close()
        self.tasks.clear()
        if self.engine is not None:
            self.engine.end()
            self.engine = None


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    (tmp_path / "state").mkdir()
    yield made
    made.end()


def payment(name: str, minute: int, customer: str = "ann") -> bytes:
    event = {
        "transaction_id": name,
        "event_time": iso_text(NOON + minute * MINUTE),
        "customer_id": customer,
        "terminal_id": "t",
        "amount": 10,
    }
    return json.dumps(event).encode()


def alert(task: Task) -> dict[str, Any]:
    """The next alert, whole."""
    while (found := task.record()) is not None:
        if found[0] == TOPICS.alerts:
            return found[1]
    raise AssertionError("the batch has ended")


def rest(task: Task, topic: str = TOPICS.alerts) -> list[dict[str, Any]]:
    """The records of a topic until the batch is stored."""
    found = []
    while (record := task.record()) is not None:
        found += [record[1]] if record[0] == topic else []
    return found


def shown(each: dict[str, Any]) -> tuple[str, int, int]:
    return each["event_id"], each["revision"], each["measures"]["payments"]


def finish(tasks: list[Task], topic: str = TOPICS.alerts) -> list[dict[str, Any]]:
    """End the batch; its records of a topic that were not read yet."""
    for task in tasks:
        task.end()
    return [found for task in tasks for found in rest(task, topic)]


def test_alerts_leave_while_the_input_waits_and_the_state_is_stored_at_the_end(job: Job) -> None:
    job.start()
    tasks = job.batch()
    tasks[0].send(payment("a", 1), payment("b", 2))
    assert shown(alert(tasks[0])) == ("b", 1, 2)
    tasks[1].send(payment("c", 3), b"not json", None)
    assert shown(alert(tasks[0])) == ("c", 1, 3)
    heads = [file for bucket in range(4) for file in (job.state / str(bucket)).glob("head-*")]
    assert heads == []
    assert job.reported(5) == 5
    assert finish(tasks) == []
    assert max(files_of(job.state, bucket, "run1").before(9).version for bucket in range(4)) == 1
    following = job.batch(1)
    following[0].next = tasks[0].next
    following[0].send(payment("d", 4))
    assert shown(alert(following[0])) == ("d", 1, 4)


@pytest.mark.parametrize("seconds", [600, 0])
def test_another_run_goes_on_from_the_state(job: Job, seconds: float) -> None:
    """Also if part of it was written before the batch ended."""
    job.seconds = seconds
    job.start()
    tasks = job.batch()
    tasks[0].send(payment("a", 1))
    assert waited_for(tasks[0]) == []
    tasks[0].send(payment("x", 1, "bob"))
    assert finish(tasks) == []
    job.version = 1
    job.start()
    tasks = job.batch(1)
    tasks[0].send(payment("b", 2))
    assert shown(alert(tasks[0])) == ("b", 1, 2)


@pytest.mark.parametrize("most_waiting", [64 << 20, 1])
def test_after_a_crash_the_same_groups_give_the_same_records(job: Job, most_waiting: int) -> None:
    """Whatever order the records come in again: an event out of order would otherwise be a revision, or none. Where few
    may wait, what logged groups need is read all the same."""
    job.most_waiting = most_waiting
    job.start()
    tasks = job.batch()
    before = []
    for minute in (5, 1, 4, 2, 3):
        tasks[minute % 2].send(payment(f"e{minute}", minute))
        before += waited_for(tasks[0])
    assert len(before) > 5, "events out of order lead to revisions"
    with OrderLog(job.state, 1) as log:
        groups = log.groups
    assert len(groups) == 5
    job.start()
    again = job.batch()
    again[1].send(*(payment(f"e{minute}", minute) for minute in (5, 1, 3)))
    again[0].send(*(payment(f"e{minute}", minute) for minute in (4, 2)))
    again[0].send(payment("new", 6))
    found = finish(again)
    assert found[: len(before)] == before
    assert [shown(each) for each in found[len(before) :]] == [("new", 1, 6)]


@pytest.mark.kafka
def test_events_see_changes_of_tables_that_came_before_them_and_after_a_crash_no_others(
    job: Job, broker: LocalKafka
) -> None:
    """S22.4: whether or not a task has brought the change yet; what comes between the runs is not seen."""
    topic = f"tables-{uuid.uuid4().hex[:8]}"
    topics.create(broker.settings, topics.Topic(topic, 1))
    job.streams = with_tables(STREAMS, {"blocked": {}}, "test")
    job.tables = TablesTopic(topic, kafka_config(broker.settings).python)
    (rule,) = answered(job.streams, {**BURST, "measures": {}, "when": "customer_id IN blocked"})

    def block(customer: str) -> None:
        with producer(broker.settings) as client:
            key, value = change_record("blocked", [customer], is_set=True, valid_from=from_microseconds(NOON))
            client.send(topic, value, key=key).get(30)

    job.start(rules=(rule,))
    tasks = job.batch()
    tasks[0].send(payment("a1", 1, "ann"))
    assert job.reported(1) == 1
    block("ann")
    tasks[0].send(payment("a2", 2, "ann"), payment("b1", 3, "bea"))
    before = [alert(tasks[0])]
    assert before[0]["event_id"] == "a2"
    block("bea")
    job.start(rules=(rule,))
    again = job.batch()
    again[0].send(payment("a1", 1, "ann"), payment("a2", 2, "ann"), payment("b1", 3, "bea"))
    again[0].send(payment("b2", 4, "bea"))
    found = finish(again)
    assert found[0] == before[0]
    assert [each["event_id"] for each in found] == ["a2", "b2"]


class OnBroker:
    """A job whose events and alerts are on a broker, which has them for the time between two batches."""

    def __init__(self, job: Job, settings: Settings) -> None:
        names = {kind: f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("events", "alerts", "quarantine")}
        for name in names.values():
            topics.create(settings, topics.Topic(name, 2 if name == names["events"] else 1))
        self.job, self.settings, self.events = job, settings, names["events"]
        job.topics = replace(TOPICS, alerts=names["alerts"], quarantine=names["quarantine"])
        job.streams = {**STREAMS, "transactions": replace(STREAMS["transactions"], topic=self.events)}
        client = kafka_config(settings).python
        job.brokers = Brokers(client, [], [self.events], [job.topics.alerts, job.topics.quarantine])

    def send(self, *values: bytes, partition: int = 0, header: str | None = None) -> None:
        """Events at the next offsets of the topic's partition."""
        at = (NOON + 10 * MINUTE) // 1000
        headers = [] if header is None else [(header, b"")]
        with producer(self.settings) as client:
            for value in values:
                client.send(self.events, value, partition=partition, timestamp_ms=at, headers=headers).get(30)

    def begun(self) -> list[Task]:
        """The tasks of the first batch, which has brought an event."""
        self.job.start()
        tasks = self.job.batch()
        self.send(payment("a", 1))
        tasks[0].send(payment("a", 1))
        return tasks

    def batch(self, number: int, *begins: int) -> list[Task]:
        """The tasks of a batch, of which those of events begin at these offsets."""
        made = self.job.batch(number)
        for task, first in zip(made, begins, strict=False):
            task.next = first
        return made

    def published(self, topic: str, wanted: int) -> list[dict[str, Any]]:
        """The records that the engine has published itself: so many, or what there is after a second."""
        until = time.monotonic() + (20 if wanted else 1)
        while True:
            with Reader(self.settings, topic) as reader:
                found = [json.loads(record.value) for record in reader.all()]
            if time.monotonic() > until or (wanted and len(found) >= wanted):
                return found


@pytest.fixture
def on_broker(job: Job, broker: LocalKafka) -> OnBroker:
    return OnBroker(job, broker.settings)


@pytest.mark.kafka
def test_events_do_not_wait_for_the_next_batch(job: Job, on_broker: OnBroker) -> None:
    """They are its own, and its tasks bring them once more to no effect."""
    alerts = job.topics.alerts
    assert finish(on_broker.begun(), alerts) == []
    on_broker.send(payment("b", 2))
    assert [shown(each) for each in on_broker.published(alerts, 1)] == [("b", 1, 2)]
    tasks = on_broker.batch(1, 1)
    tasks[1].send(payment("z", 1, "zoe"))  # of a partition that had none yet
    tasks[0].send(payment("b", 2), payment("c", 3))
    assert [shown(each) for each in finish(tasks, alerts)] == [("c", 1, 3)]
    job.version = 2
    job.start()
    tasks = on_broker.batch(2, 3)
    tasks[0].send(payment("d", 4))
    assert [shown(each) for each in finish(tasks, alerts)] == [("d", 1, 4)]
    assert len(on_broker.published(alerts, 0)) == 1, "while tasks run, they publish"


@pytest.mark.kafka
def test_an_engine_that_is_to_rest_reads_nothing_between_two_batches(job: Job, on_broker: OnBroker) -> None:
    """As the driver has it where it waits for a moment without logged groups."""
    alerts = job.topics.alerts
    tasks = on_broker.begun()
    assert job.engine is not None
    job.engine.rest()
    assert job.reported(1) == 1
    assert finish(tasks, alerts) == []
    on_broker.send(payment("b", 2))
    assert on_broker.published(alerts, 0) == []
    assert LoggedPositions(job.state).after(2) == {}
    tasks = on_broker.batch(1, 1)
    tasks[0].send(payment("b", 2))
    assert [shown(each) for each in finish(tasks, alerts)] == [("b", 1, 2)]


@pytest.mark.kafka
@pytest.mark.parametrize("is_committed", [True, False])
def test_after_a_crash_between_two_batches_the_same_alerts_come(
    job: Job, on_broker: OnBroker, *, is_committed: bool
) -> None:
    """Whether or not Spark had committed the batch before; events out of order have led to revisions."""
    alerts = job.topics.alerts
    job.start()
    tasks = on_broker.batch(0)
    for partition in (0, 1):
        other = payment(f"bob{partition}", partition, f"bob{partition}")
        on_broker.send(other, partition=partition)
        tasks[partition].send(other)
    assert finish(tasks, alerts) == []
    for minute in (6, 3, 5):
        on_broker.send(payment(f"e{minute}", minute), partition=minute % 2)
        time.sleep(0.5)
    before = on_broker.published(alerts, 0)
    assert [(each["event_id"], each["revision"]) for each in before] == [("e6", 1), ("e5", 1), ("e6", 2)]
    job.version = int(is_committed)
    job.start()
    again = on_broker.batch(job.version, job.version, job.version)
    of_both = [payment("bob0", 0, "bob0"), payment("e6", 6)], [payment("bob1", 1, "bob1"), payment("e3", 3)]
    again[0].send(*of_both[0][job.version :])
    again[1].send(*of_both[1][job.version :], payment("e5", 5), payment("new", 7))
    found = finish(again, alerts)
    assert found[: len(before)] == before
    assert [shown(each) for each in found[len(before) :]] == [("new", 1, 4)]


@pytest.mark.kafka
def test_a_batch_may_end_before_its_tasks_bring_what_was_read_before_it(job: Job, on_broker: OnBroker) -> None:
    """Spark's offsets are behind the state then, and nothing is evaluated twice, by this run or the next one."""
    quarantine = job.topics.quarantine
    assert finish(on_broker.begun(), quarantine) == []
    on_broker.send(b"not json")
    assert len(on_broker.published(quarantine, 1)) == 1
    assert finish(on_broker.batch(1, 1), quarantine) == []
    assert LoggedPositions(job.state).after(3) == {on_broker.events: {0: 2}}
    assert finish(on_broker.batch(2, 1), quarantine) == []
    job.version = 3
    job.start()
    tasks = on_broker.batch(3, 1)
    tasks[0].send(b"not json", b"nor that one")
    assert [each["size"] for each in finish(tasks, quarantine)] == [len("nor that one")]


class _NoText(str):
    """The name of a header that no client should write."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff"


@pytest.mark.kafka
def test_what_the_client_cannot_read_waits_for_a_task(job: Job, on_broker: OnBroker) -> None:
    alerts = job.topics.alerts
    assert finish(on_broker.begun(), alerts) == []
    on_broker.send(payment("b", 2), header=_NoText("name"))
    assert on_broker.published(alerts, 0) == []
    tasks = on_broker.batch(1, 1)
    tasks[0].send(payment("b", 2))
    assert [shown(each) for each in finish(tasks, alerts)] == [("b", 1, 2)]
    on_broker.send(payment("c", 3))
    assert [shown(each) for each in on_broker.published(alerts, 1)] == [("c", 1, 3)]


def waited_for(task: Task) -> list[dict[str, Any]]:
    """The alerts that come within a second."""
    found = []
    while True:
        try:
            record = task.record(1)
        except TimeoutError:
            return found
        assert record is not None
        found += [record[1]] if record[0] == TOPICS.alerts else []


def test_events_wait_for_the_answer_that_was_published_before_them(job: Job) -> None:
    job.start(rules=())
    tasks = job.batch()
    assert job.engine is not None
    job.engine.hold()
    tasks[0].send(payment("a", 1), payment("b", 2))
    assert waited_for(tasks[0]) == []
    job.engine.note(ANSWER)
    job.engine.release()
    assert shown(alert(tasks[0])) == ("b", 1, 2)
    tasks[2].send(ANSWER.value)  # its task reads it later, and it is known
    tasks[0].send(payment("c", 3))
    assert [shown(each) for each in finish(tasks)] == [("c", 1, 3)]


def test_an_answer_is_waited_for_if_others_before_it_are_to_come(job: Job) -> None:
    job.start(rules=())
    tasks = job.batch()
    assert job.engine is not None
    job.engine.hold()
    tasks[0].send(payment("a", 1), payment("b", 2))
    job.engine.note(replace(ANSWER, offset=1))
    job.engine.release()
    assert waited_for(tasks[0]) == []
    tasks[2].send(b"of somebody else", ANSWER.value)
    assert shown(alert(tasks[0])) == ("b", 1, 2)


def test_a_batch_that_ends_while_the_engine_holds_ends_after_the_answer(job: Job) -> None:
    """Its events arrived after the answer, and belong to this batch, which the answer's own record has missed."""
    job.start(rules=())
    tasks = job.batch()
    assert job.engine is not None
    job.engine.hold()
    tasks[0].send(payment("a", 1), payment("b", 2))
    for task in tasks:
        task.end()
    assert waited_for(tasks[0]) == []
    job.engine.note(ANSWER)
    job.engine.release()
    assert [shown(each) for each in rest(tasks[0])] == [("b", 1, 2)]
    job.version = 1
    job.start(rules=())
    tasks = job.batch(1)
    tasks[2].send(ANSWER.value)
    tasks[0].send(payment("c", 3))
    assert [shown(each) for each in finish(tasks)] == [("c", 1, 3)]


def test_events_wait_for_the_answers_that_were_there_before_the_run(job: Job) -> None:
    job.start(rules=(), needed=1)
    tasks = job.batch()
    tasks[0].send(payment("a", 1), payment("b", 2))
    assert waited_for(tasks[0]) == []
    tasks[2].send(ANSWER.value)
    assert shown(alert(tasks[0])) == ("b", 1, 2)


def test_clocks_of_an_earlier_run_count_where_it_has_logged_them(job: Job) -> None:
    """A clock that was applied is applied again, though it is not this run's: the event is late both times."""
    job.start()
    tasks = job.batch(tasks=4)
    assert job.engine is not None
    clock = Task(job.engine.path, TOPICS.clock, tasks=4)
    job.tasks.append(clock)
    clock.send(Clock("run1", {"transactions": NOON + 5 * HOUR}).encoded())
    time.sleep(0.3)
    tasks[0].send(payment("a", 1), payment("b", 2))
    while (record := tasks[0].record()) is None or record[0] != TOPICS.late_events:
        pass
    job.start()
    again = job.batch(tasks=4)
    clock = Task(job.engine.path, TOPICS.clock, tasks=4)
    job.tasks.append(clock)
    again[0].send(payment("a", 1), payment("b", 2))
    clock.send(Clock("run1", {"transactions": NOON + 5 * HOUR}).encoded())
    assert finish([*again, clock]) == []


def test_a_repeated_task_ends_the_engine(job: Job) -> None:
    """Its records are in groups already, and its alerts may be lost: the whole batch is evaluated again."""
    job.start()
    assert job.engine is not None
    # alone: the engine ends at once, and others could no longer connect
    task = Task(job.engine.path, "transactions", 0, batch=0, attempt=1)
    job.tasks.append(task)
    with pytest.raises((EOFError, ConnectionError)):
        task.record()
    with pytest.raises(JobError, match="the engine process has ended"):
        job.engine.hold()


def test_a_batch_that_ends_without_what_must_come_first_ends_the_engine(job: Job) -> None:
    """Also where events had to wait for room: it does not hang."""
    job.most_waiting = 1
    job.start(rules=(), needed=1)
    tasks = job.batch()
    for name in "abc":
        tasks[0].send(payment(name, 1))
        time.sleep(0.1)
    for task in reversed(tasks):
        task.end()
    with pytest.raises((EOFError, ConnectionError)):
        tasks[0].record()


def test_a_task_that_ends_early_ends_the_engine(job: Job) -> None:
    job.start()
    tasks = job.batch()
    tasks[1].close()
    with pytest.raises((EOFError, ConnectionError)):
        tasks[0].record()


def test_a_task_that_ends_while_its_alerts_are_written_ends_the_engine_as_any_does(
    job: Job, capfd: pytest.CaptureFixture[str]
) -> None:
    """As when the query is stopped: no error of its own."""
    job.start()
    tasks = job.batch()
    tasks[1].send(*(payment(str(number), 1) for number in range(3_000)))  # more than a socket holds
    alert(tasks[0])
    tasks[0].close()
    assert job.engine is not None
    with pytest.raises(EngineEndedError):
        job.engine.hold()
    assert "Traceback" not in capfd.readouterr().err


def test_nothing_is_evaluated_after_the_only_batch(job: Job) -> None:
    job.start(only_one=True)
    assert finish(job.batch()) == []
    tasks = job.batch(1)
    tasks[0].send(payment("a", 1), payment("b", 2))
    assert waited_for(tasks[0]) == []
