"""Case files on the real job: Kafka, Spark, and `streaming.job` around one query, step by step.

Every case has topics and a checkpoint of its own; broker and Spark session are the test session's. A crash stops the
query at once, and a new run of the job, which shares nothing with the one before it, goes on from the checkpoint.
"""

import base64
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nightjar import topics
from nightjar.cases import Case, Expectation, Outcome, Step
from nightjar.job_config import job_config
from nightjar.kafka_clients import producer
from nightjar.reading import Reader
from nightjar.settings import Settings
from rules.streams import Stream
from streaming import job
from streaming.checkpoint import committed_offsets
from streaming.config import JobConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A batch takes a fraction of a second; a busy machine's first one many times that.
PATIENCE = 120.0

# What the stream says of these is right in another sense: `emitted_at` is the wall clock's, where a case's time stands
# still between its steps.
_OTHERWISE = ("emitted_at",)


def comparable(expect: Expectation) -> Expectation:
    """What of an expectation must hold on the stream.

    Not `state`: the stream lets go when its clock says so, some seconds after the last record, and tells now and then.
    """
    rows = {
        section: [{key: value for key, value in row.items() if key not in _OTHERWISE} for row in expected]
        for section, expected in expect.rows.items()
    }
    return Expectation(rows)


@dataclass(frozen=True)
class SparkHost:
    """Runs cases on a session and a broker; `folder` takes the checkpoints."""

    session: "SparkSession"
    broker: Settings
    folder: Path

    def __call__(self, case: Case) -> Outcome:
        """What comes of the case's steps."""
        own = uuid.uuid4().hex[:8]
        topic_names = {name: f"{own}-{value}" for name, value in case.settings.model_dump().items() if "_topic" in name}
        settings = case.settings.model_copy(
            update={
                **topic_names,
                "bootstrap_servers": self.broker.bootstrap,
                "data_dir": self.folder / own,
                "arrival": "producer",
                "partitions": 1,  # arrival order within a step is the case's own
                "buckets": 2,
                "warm_up_batches": 0,
            }
        )
        # Streams that a case does not name would cost every batch their share.
        said = b"".join(message for step in case.steps for message in step.rules)
        streams = {
            name: replace(stream, topic=f"{own}-{stream.topic}")
            for name, stream in case.streams.items()
            if name.encode() in said
        }
        topics.ensure(settings, streams.values())
        with CaseRun(self.session, settings, streams) as run:
            for step in case.steps:
                run.take(step)
            return run.outcome()


class CaseRun:
    """One case's job, its producer and what it answers."""

    def __init__(self, session: "SparkSession", settings: Settings, streams: Mapping[str, Stream]) -> None:
        self.settings = settings
        self.streams = streams
        self.config = job_config(settings, streams)
        self.answers: list[dict[str, Any]] = []
        self._session = session
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        self._producer = self._cleanup.enter_context(producer(self.settings, linger_ms=0))
        self._status = self._cleanup.enter_context(Reader(self.settings, self.settings.rule_status_topic))
        self._job = _Job(self._session, self.config)
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.callback(self._job.end)
        self._cleanup.close()

    def take(self, step: Step) -> None:
        if step.crash:
            self._job.crash()
            self._job = _Job(self._session, self.config)
        if step.rules:
            offsets = [self._send(self.settings.rules_topic, message, step.at) for message in step.rules]
            self._await(lambda: all(map(self._settled, offsets, step.rules)), f"answers to {step.rules!r}")
        ends = {
            self.streams[event.stream].topic: self._send(self.streams[event.stream].topic, event.raw, step.at) + 1
            for event in step.events
        }
        self.await_consumed(ends)

    def await_consumed(self, ends: Mapping[str, int]) -> None:
        """Wait until the job has committed the records of each topic's partition 0 up to these offsets."""
        self._await(lambda: self._consumed(ends), f"{ends} to be consumed")

    def await_told(self) -> None:
        """Wait until the job has told on its progress topic what it has consumed by now."""
        committed = committed_offsets(self.config)
        with Reader(self.settings, self.settings.job_progress_topic) as reader:
            told: list[Any] = []

            def is_told() -> bool:
                told.extend(json.loads(record.value).get("consumed") for record in reader.poll(50))
                return {t: {str(p): o for p, o in of.items()} for t, of in committed.items()} in told

            self._await(is_told, f"{committed} to be told")

    def outcome(self) -> Outcome:
        return Outcome(
            alerts=self._records(self.settings.alerts_topic),
            late=self._records(self.settings.late_events_topic),
            quarantine=[
                {**record, "raw": base64.b64decode(record["original"]).decode("utf-8", "backslashreplace")}
                for record in self._records(self.settings.quarantine_topic)
            ],
            rule_status=self.answers + [json.loads(record.value) for record in self._status.all()],
        )

    def _send(self, topic: str, value: bytes, at: int) -> int:
        return int(self._producer.send(topic, value, partition=0, timestamp_ms=at // 1000).get(PATIENCE).offset)

    def _settled(self, offset: int, message: bytes) -> bool:
        """Whether the rule message was refused, or its version is active or looks for nothing: the events may come."""
        answer = next((a for a in self.answers if a["message"] == f"{self.settings.rules_topic}-0-{offset}"), None)
        if answer is None or answer["status"] == "REJECTED":
            return answer is not None
        if any(word in message for word in (b"pause", b"retire")):
            return True
        version = answer["rule_id"], answer["rule_version"]
        return ("ACTIVE", *version) in {(a["status"], a["rule_id"], a["rule_version"]) for a in self.answers}

    def _consumed(self, ends: Mapping[str, int]) -> bool:
        committed = committed_offsets(self.config)
        return all(committed.get(topic, {}).get(0, 0) >= end for topic, end in ends.items())

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self._job.check()
            assert time.monotonic() < deadline, f"waited for {what}; answered so far: {self.answers}"
            self.answers += [json.loads(record.value) for record in self._status.poll(10)]

    def _records(self, topic: str) -> list[dict[str, Any]]:
        """What was said, in order. A record that Kafka has twice is the same but for the time it was emitted."""
        with Reader(self.settings, topic) as reader:
            return [json.loads(record.value) for record in reader.all()]


class _Job:
    """`streaming.job` in a thread, running once this is made."""

    def __init__(self, session: "SparkSession", config: JobConfig) -> None:
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
            job.run(self._config, session=self._session, stop=self._stop, ready=ready.set)
        except BaseException as failure:  # noqa: BLE001  raised again where the test waits
            self._failure = failure
