"""Cases on the real job: Kafka, Spark, and `nightjar.streaming.job` around one query, step by step.

Broker and Spark session are the test session's. A crash stops the query at once, and a new run of the job, which shares
nothing with the one before it, resumes from the checkpoint.
"""

import base64
import faulthandler
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nightjar.cases import CaseOutcome, Message, Step
from nightjar.configuration.job import job_config
from nightjar.configuration.schemas import registry_of
from nightjar.configuration.settings import Settings, load_settings
from nightjar.contracts.clock import Clock
from nightjar.formats.encoding import Encoded, Encoder
from nightjar.kafka import topics
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.local.kafka import LocalKafka
from nightjar.operations.locks import sole_job
from nightjar.rules.streams import Stream, load_streams
from nightjar.storage.objects import ObjectPath
from nightjar.streaming import job
from nightjar.streaming.config import JobConfig
from nightjar.streaming.driver.clock import host_clock
from nightjar.streaming.state.checkpoint import Checkpoint
from tests.support.together import Part, Together

if TYPE_CHECKING:
    from kafka.producer.future import FutureRecordMetadata
    from pyspark.sql import SparkSession

# A batch takes a fraction of a second; a busy machine's first one many times that.
PATIENCE = 240.0
# Cases begin at one time and end at different ones: a clock for all of them would end the state of those that are slow.
NEVER = 1 << 62


class CaseRun:
    """A job, its producer and what it answers. `changes` are made to the job's configuration; it primes nothing.

    clock: the wall clock of the job's host, µs.
    """

    def __init__(
        self,
        session: "SparkSession",
        settings: Settings,
        streams: Mapping[str, Stream],
        clock: Callable[[], int] = host_clock,
        **changes: Any,
    ) -> None:
        self._clock = clock
        self.settings = settings
        self.streams = streams
        # cases are also run where there is no lake
        self.config = replace(job_config(settings, streams), **{"priming_rate": 0, **changes})
        self.answers: list[dict[str, Any]] = []
        self._session = session
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        # what a step sends to a topic is one batch of Kafka's, which a query reads as a whole
        options = {"linger_ms": 60_000, "batch_size": 1 << 20}
        self._producer = self._cleanup.enter_context(producer(self.settings, **options))
        self._status = self._cleanup.enter_context(Reader(self.settings, self.settings.rule_status_topic))
        self._job = _Job(self._session, self.config, self._clock)
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.callback(self._job.end)
        self._cleanup.close()

    def take(self, *steps: Step) -> list[list[tuple[str, int]]]:
        """Take steps that happen at once; returns topic and offset of each step's records, its rules' first."""
        if any(step.crash for step in steps):
            self._job.crash()
            self._job = _Job(self._session, self.config, self._clock)
        topic = self.settings.rules_topic
        rules = self._sent([[(topic, Encoded(message)) for message in step.rules] for step in steps], steps)
        messages = [message for step in steps for message in step.rules]
        offsets = [offset for of in rules for _, offset in of]
        self.wait_for(lambda: all(map(self._settled, offsets, messages)), f"answers to {messages!r:.2000}")
        tables = self.settings.tables_topic
        changes = self._sent([[(tables, Encoded(change)) for change in step.tables] for step in steps], steps)
        self.await_consumed({(topic, 0): offset + 1 for of in changes for topic, offset in of})
        events = [[self._record(event) for event in step.events] for step in steps]
        sent = self._sent(events, steps)
        self.await_consumed({(topic, 0): offset + 1 for of in sent for topic, offset in of})
        return [one + other for one, other in zip(rules, sent, strict=True)]

    def publish(self, clocks: Mapping[str, int]) -> None:
        """Publish these clocks (µs, by stream), and wait until the job has taken them in."""
        topic, value = self.settings.clock_topic, Clock(Checkpoint(self.config).run_id, clocks).encoded()
        sent = self._producer.send(topic, value, partition=0)
        self._producer.flush(PATIENCE)
        self.await_consumed({(topic, 0): sent.get(0).offset + 1})

    def crash(self) -> None:
        """Stop the query at once; the job ends with this run."""
        self._job.crash()

    def await_consumed(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Wait until the job has committed the records of each topic and partition up to these offsets."""
        self.wait_for(lambda: self._consumed(ends), f"{ends} to be consumed")

    def await_answered(self, messages: int) -> None:
        """Wait until the job has answered so many messages of the rules topic, from its beginning."""
        about = "message"  # an answer that gives a version its effective time names none
        self.wait_for(
            lambda: len({answer[about] for answer in self.answers if about in answer}) >= messages,
            f"answers to {messages} messages",
        )

    def await_reported(self) -> None:
        """Wait until the job has reported on its progress topic the offsets that it has committed by now."""
        committed = Checkpoint(self.config).committed_offsets()
        report: dict[str, Any] = {}

        def is_reported() -> bool:
            with Reader(self.settings, self.settings.job_progress_topic) as reader:
                reports = [json.loads(record.value) for record in reader.last(50)]
            report.update(next((each for each in reversed(reports) if each["kind"] == "job"), {}))
            consumed = report.get("consumed", {})
            return all(
                consumed.get(topic, {}).get(str(partition), 0) >= offset
                for topic, of in committed.items()
                for partition, offset in of.items()
            )

        self.wait_for(is_reported, f"{committed} to be reported", report)

    def outcome(self) -> CaseOutcome:
        return CaseOutcome(
            alerts=self._records(self.settings.alerts_topic),
            restrictions=self._records(self.settings.restrictions_topic),
            late=self._records(self.settings.late_events_topic),
            quarantine=[
                {**record, "raw": base64.b64decode(record["original"]).decode("utf-8", "backslashreplace")}
                for record in self._records(self.settings.quarantine_topic)
            ],
            rule_status=_once(self.answers + [json.loads(record.value) for record in self._status.all()]),
        )

    def _record(self, event: Message) -> tuple[str, Encoded]:
        stream = self.streams[event.stream]
        return stream.topic, Encoder(stream, registry_of(self.settings)).encode(event.raw)

    def _sent(self, records: list[list[tuple[str, Encoded]]], steps: Iterable[Step]) -> list[list[tuple[str, int]]]:
        """Send each step's records (topic, record), which arrive at its time; topic and offset of each."""

        def send(topic: str, record: Encoded, step: Step) -> "FutureRecordMetadata":
            return self._producer.send(
                topic,
                record.value,
                key=record.key,
                headers=[*record.headers],
                partition=0,
                timestamp_ms=step.at // 1000,
            )

        taken = zip(records, steps, strict=True)
        sent = [[(topic, send(topic, record, step)) for topic, record in of] for of, step in taken]
        self._producer.flush(PATIENCE)
        return [[(topic, int(future.get(0).offset)) for topic, future in of] for of in sent]

    def _settled(self, offset: int, message: bytes) -> bool:
        """Whether the rule message was refused, or its version is active or looks for nothing: the events may come."""
        answer = next((a for a in self.answers if a.get("message") == f"{self.settings.rules_topic}-0-{offset}"), None)
        if answer is None or answer["status"] in ("REJECTED", "PROPOSED", "DECLINED"):
            return answer is not None
        asleep = answer.get("rule", {}).get("state") in ("paused", "retired")
        if asleep or any(word in message for word in (b"pause", b"retire")):
            return True
        version = answer["rule_id"], answer["rule_version"]
        return ("ACTIVE", *version) in {(a["status"], a["rule_id"], a["rule_version"]) for a in self.answers}

    def _consumed(self, ends: Mapping[tuple[str, int], int]) -> bool:
        committed = Checkpoint(self.config).committed_offsets()
        return all(committed.get(topic, {}).get(partition, 0) >= end for (topic, partition), end in ends.items())

    def wait_for(self, condition: Callable[[], bool], what: str, state: object = None) -> None:
        """Wait until the condition holds; after PATIENCE seconds fail with what is missing and the state."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self._job.check()
            if time.monotonic() > deadline:
                faulthandler.dump_traceback()  # what the job's own threads wait for
                raise AssertionError(f"waited for {what}; answered so far: {self.answers}; state: {state}")
            self.answers += [json.loads(record.value) for record in self._status.poll(10)]

    def _records(self, topic: str) -> list[dict[str, Any]]:
        """The topic's records in order. Copies of a record differ only in the time they were emitted."""
        with Reader(self.settings, topic) as reader:
            return [json.loads(record.value) for record in reader.all()]


def ends_of_batches(config: JobConfig) -> list[dict[str, dict[str, int]]]:
    """Where each batch that Spark still knows of ended: topic to partition to offset, the first batch first."""
    files = [file for file in (Checkpoint(config).query / "offsets").iterdir() if file.name.isdigit()]
    return [json.loads(file.read_text().splitlines()[2]) for file in sorted(files, key=lambda file: int(file.name))]


@contextmanager
def logins_job(session: "SparkSession", folder: Path, **changes: Any) -> Iterator[tuple[LocalKafka, CaseRun]]:
    """A broker of its own, and a small job on the stream of logins, whose events arrive when their producer says.

    changes: as in CaseRun.
    """
    small = {"arrival": "producer", "activation_delay": "0s", "partitions": 1, "buckets": 2, "warm_up_batches": 0}
    given = load_settings(data_dir=folder, kafka_port=0, kafka_heap="384m", **small)
    streams = {"logins": load_streams()["logins"]}
    with LocalKafka(given, short_lived=True) as broker:
        topics.ensure(broker.settings, streams.values())
        with CaseRun(session, broker.settings, streams, **changes) as job:
            yield broker, job


def _once(answers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the copies that the job published after a crash, or after its query was planned again."""
    distinct: dict[str, dict[str, Any]] = {}
    for answer in answers:
        distinct.setdefault(json.dumps(answer, sort_keys=True), answer)
    return [*distinct.values()]


def streamed(run: CaseRun, together: Together) -> list[CaseOutcome]:
    """What the job makes of each case, all of them step by step at once."""
    sender: dict[tuple[str, int], Part] = {}
    for happening in together.rounds():
        places = run.take(*(step for _, step in happening))
        for (part, _), of in zip(happening, places, strict=True):
            sender |= dict.fromkeys(of, part)
        clocks = {name: step.at for part, step in happening if part.waits for name in part.names.values()}
        if clocks:
            run.publish(clocks)
    outcome, rules = run.outcome(), run.settings.rules_topic

    def of_part(part: Part, rows: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
        return [part.own(row) for row in rows if part.owns(row[key])]

    def place(row: Mapping[str, Any]) -> tuple[str, int]:
        return (row["topic"], row["offset"]) if "topic" in row else (rules, int(row["message"].rpartition("-")[2]))

    return [
        CaseOutcome(
            alerts=of_part(part, outcome.alerts, "rule_id"),
            restrictions=of_part(part, outcome.restrictions, "rule_id"),
            late=of_part(part, outcome.late, "event_id"),
            quarantine=[part.own(row) for row in outcome.quarantine if sender[place(row)] is part],
            rule_status=[
                part.own(row)
                for row in outcome.rule_status
                if part.owns(row["rule_id"]) or (row["rule_id"] is None and sender[place(row)] is part)
            ],
        )
        for part in together.parts
    ]


class _Job:
    """`nightjar.streaming.job` in a thread, running once this is made."""

    def __init__(self, session: "SparkSession", config: JobConfig, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._session = session
        self._config = config
        self._stop, ready = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=[ready], daemon=True)
        self._thread.start()
        deadline = time.monotonic() + PATIENCE
        while not ready.wait(0.1):
            self.check()
            assert time.monotonic() < deadline, "the query does not start"

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def crash(self) -> None:
        for query in self._session.streams.active:
            query.stop()
        self.end()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self.check()

    def _run(self, ready: threading.Event) -> None:
        try:
            in_store = isinstance(self._config.checkpoint, ObjectPath)
            with sole_job(self._config.checkpoint) if in_store else nullcontext() as fence:
                config = replace(self._config, fence=fence)
                job.run(config, self._session, stop=self._stop, ready=ready.set, host=self._clock)
        except BaseException as failure:  # noqa: BLE001  raised again where the test waits
            self._failure = failure
