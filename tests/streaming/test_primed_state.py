"""S8.6 in a bucket: history is taken in by the batch that brings the answer which names it, and by no other."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nightjar.contracts.headers import SENT_AT
from nightjar.contracts.rule_status import answer_record
from nightjar.contracts.topics import Topics
from nightjar.ingestion.event_schema import PRIMARY, events_schema
from nightjar.rules.publishing import Answer, Status
from nightjar.rules.rulebook import Record, ShuffleKey
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import microseconds
from nightjar.rules.versions import Primed
from nightjar.streaming.buckets.payloads import PayloadKind, to_ipc
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.primed_state import ExportWriter, Lack
from nightjar.streaming.buckets.processor import BucketProcessor
from nightjar.streaming.state.state_files import begin, files_of
from nightjar.streaming.state.statelog import Head
from tests.support.answers import answered

STREAMS = load_streams()
STREAM = STREAMS["transactions"]
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
TOPICS = Topics()
SHUFFLE_KEY = ShuffleKey("transactions", "customer_id")
MINUTE = 60_000_000


def counting(name: str, over: str) -> dict[str, Any]:
    """A rule that announces what it counts."""
    return {
        "id": name,
        "stream": "transactions",
        "group_by": ["customer_id"],
        "when": "payments >= 1",
        "measures": {"payments": {"count": "*", "over": over}},
        "effective": "2024-01-01T00:00:00Z",
    }


def answers() -> tuple[Record, Record]:
    """A narrow rule and a wide one, which waits."""
    narrow, wide = answered(STREAMS, counting("narrow", "10m"), counting("wide", "3h"))
    return narrow, replace(wide, value=json.dumps(json.loads(wide.value) | {"effective": None}).encode())


NARROW, WIDE = answers()


def active(name: str, since: int) -> Record:
    """The answer that names the export; the wide rule is in effect from 14:00 on."""
    status = Status(Answer.ACTIVE, "wide", 1, microseconds(NOON) + 120 * MINUTE, primed=Primed(since, name))
    return Record(2, 0, json.dumps(answer_record(status)[1]).encode())


def payment(event_id: str, minute: int, arrives: int | None = None) -> dict[str, Any]:
    """A payment of ann's some minutes after noon."""
    at, arrival = (NOON + timedelta(minutes=m) for m in (minute, minute if arrives is None else arrives))
    return {
        "transaction_id": event_id,
        "event_time": at,
        "customer_id": "ann",
        "terminal_id": "m1",
        "amount": Decimal("10.00"),
        "arrival_time": arrival,
        "partition": 0,
        "offset": minute,
        SENT_AT: None,
        PRIMARY: True,
    }


class Job:
    """One bucket's batches, and the runs of the query that they belong to."""

    def __init__(self, folder: Path) -> None:
        self.state, self.version = folder, 0
        self.restart("first", (NARROW,))

    def restart(self, run: str, rules: tuple[Record, ...], *, exports: tuple[str, ...] = ()) -> None:
        """Start a run from what is committed. rules: the answers that it does not read again."""
        begin(self.state, self.version, run, exports)
        self.plan = BucketPlan("checkpoint", run, self.state, STREAMS, (SHUFFLE_KEY,), 1, TOPICS, rules)
        self.processor = BucketProcessor(self.plan)

    def batch(
        self, *events: dict[str, Any], clock: int | None = None, answer: Record | None = None
    ) -> list[tuple[str, str, int]]:
        """One micro-batch; its alerts: rule, event, payments. clock: minutes after noon."""
        packed: dict[str, list[bytes]] = {}
        if events:
            packed[PayloadKind.EVENTS] = [to_ipc(pa.Table.from_pylist(list(events), events_schema(STREAM)))]
        if clock is not None:
            at = microseconds(NOON) + clock * MINUTE
            packed[PayloadKind.CLOCK] = [
                json.dumps({"run_id": self.plan.run_id, "clocks": {"transactions": at}}).encode()
            ]
        if answer is not None:
            written = {"offset": answer.offset, "arrival": answer.arrival, "value": answer.value.decode()}
            packed[PayloadKind.RULE] = [json.dumps(written).encode()]
        self.version += 1
        tables = self.processor.process(0, self.version, packed)
        rows = [row for table in tables for row in table.to_pylist() if row["topic"] == TOPICS.alerts]
        alerts = [json.loads(row["value"]) for row in rows]
        return [(alert["rule_id"], alert["event_id"], alert["measures"]["payments"]) for alert in alerts]

    @property
    def head(self) -> Head:
        """After the last batch."""
        return files_of(self.state, 0, self.plan.run_id).before(self.version + 1)

    def export(self, *events: dict[str, Any]) -> Record:
        """Write an export, as export_history does; the answer that names it."""
        since = self.head.settled - 180 * MINUTE
        lack, first = Lack(since, self.head.horizon), self.head.first - 100
        writer = ExportWriter(files_of(self.state, 0), STREAM, "abc", lack, first=first, ends={})
        schema = events_schema(STREAM)
        assert len(events) == 2
        for event in (*events, events[0]):  # Kafka may have an event twice
            writer.take(pa.Table.from_pylist([event], schema))
        assert writer.close() == 2
        return active("abc", since)

    @property
    def files(self) -> set[str]:
        """The bucket's files of exports."""
        return {file.name for file in (self.state / "0").iterdir() if file.name.startswith("history-")}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """It has a narrow rule, and has evicted two payments when it learns of a wide one. Then a late one comes."""
    found = Job(tmp_path / "state")
    found.batch(payment("t0", 0), payment("t1", 1))
    found.batch(payment("t80", 80), clock=100)
    found.batch(answer=WIDE)
    assert found.batch(payment("late", 2, arrives=101)) == []
    assert len(found.head.held) == 1
    return found


EVICTED = payment("t0", 0), payment("t1", 1)
# the narrow rule's window, and the wide one's: t0, t1, late, t80, t125
AFTER = [("narrow", "t125", 1), ("wide", "t125", 5)]


def test_it_is_taken_in_with_the_answer(job: Job) -> None:
    """With the late event that came meanwhile; what is not needed any more is removed."""
    answer = job.export(*EVICTED)
    before = job.head
    assert sorted(job.batch(answer=answer)) == []
    head = job.head
    assert (head.horizon, head.primed, head.held) == (head.settled - 180 * MINUTE, True, ())
    assert head.first == before.first - 100
    assert sorted(job.batch(payment("t125", 125))) == AFTER
    assert job.files == {entry.name for entry in job.head.entries if entry.name.startswith("history-")} != set()


def test_a_batch_of_the_same_records_uses_it_at_once(job: Job) -> None:
    """The answer is known before the batch's events (S5.3)."""
    assert sorted(job.batch(payment("t125", 125), answer=job.export(*EVICTED))) == AFTER


def elsewhere(job: Job) -> None:
    """Another executor, which has no engine."""
    job.processor = BucketProcessor(job.plan)


def repeated(job: Job) -> None:
    """The batch was not committed: it is done again by the same executor."""
    job.version -= 1
    job.batch(answer=active("abc", job.head.settled - 180 * MINUTE))


def restarted(job: Job) -> None:
    """The job starts again after that batch."""
    job.restart("second", (NARROW, WIDE, active("abc", job.head.settled - 180 * MINUTE)))


@pytest.mark.parametrize("what", [elsewhere, repeated, restarted])
def test_it_is_in_the_state_once_the_batch_is_committed(job: Job, what: Callable[[Job], None]) -> None:
    """S9.1: whoever evaluates the next batch."""
    job.batch(answer=job.export(*EVICTED))
    what(job)
    assert sorted(job.batch(payment("t125", 125))) == AFTER


def test_an_executor_that_missed_the_batch_does_not_use_its_engine(job: Job) -> None:
    """It has evicted what is needed again."""
    answer, here = job.export(*EVICTED), job.processor
    elsewhere(job)
    job.batch(answer=answer)
    job.processor = here
    assert sorted(job.batch(payment("t125", 125))) == AFTER


def test_a_crash_before_the_batch_keeps_what_an_answer_names(job: Job) -> None:
    """The answer comes again, and the held event is in the state; an export that no answer names is removed."""
    answer = job.export(*EVICTED)
    job.restart("second", (NARROW, WIDE), exports=("abc",))
    assert job.files
    assert sorted(job.batch(payment("t125", 125), answer=answer)) == AFTER
    job.restart("third", (NARROW, WIDE, answer))
    assert sorted(job.batch(payment("t126", 126))) == [("narrow", "t126", 2), ("wide", "t126", 6)]


def test_a_crash_removes_what_no_answer_names(job: Job) -> None:
    """It is exported again."""
    job.export(*EVICTED)
    job.restart("second", (NARROW, WIDE))
    assert not job.files


def test_history_that_is_gone_stops_the_job(job: Job) -> None:
    """Of a checkpoint that was put back, say: better than to miss alerts in silence."""
    answer = job.export(*EVICTED)
    for name in job.files:
        (job.state / "0" / name).unlink()
    with pytest.raises(RuntimeError, match="the state of the checkpoint cannot be read"):
        job.batch(answer=answer)


def test_nothing_is_held_once_no_version_waits(job: Job) -> None:
    """It was given its effective time without history."""
    status = Status(Answer.ACTIVE, "wide", 1, microseconds(NOON) + 120 * MINUTE)
    before = job.head.held
    job.batch(answer=Record(2, 0, json.dumps(answer_record(status)[1]).encode()))
    job.batch(payment("later", 3, arrives=124))
    assert job.head.held == ()
    job.batch(clock=125)
    assert not any((job.state / "0" / name).exists() for name in before)
    assert sorted(job.batch(payment("t125", 125))) == [("narrow", "t125", 1), ("wide", "t125", 2)]
