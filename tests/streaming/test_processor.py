"""The buckets of a worker: an engine in memory is used only where the state in the bucket's files says that it fits."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from nightjar.contracts.clock import Clock
from nightjar.contracts.headers import SENT_AT
from nightjar.contracts.rule_status import fold, read_answer
from nightjar.contracts.topics import Topics
from nightjar.ingestion.event_schema import PRIMARY, SHUFFLED_BY, events_schema
from nightjar.rules.engine.ledger import LEDGER_SCHEMA
from nightjar.rules.rulebook import Record, ShuffleKey
from nightjar.rules.streams import Stream, load_streams, streams_from_mapping
from nightjar.streaming.buckets import bucket_batch, resident_buckets
from nightjar.streaming.buckets.bucket import Bucket
from nightjar.streaming.buckets.payloads import PayloadKind, from_ipc, to_ipc
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.buckets.processor import BucketProcessor
from nightjar.streaming.config import JobConfig
from nightjar.streaming.priming.bootstrap_state import share_of, write_share
from nightjar.streaming.state.state_files import begin, files_of
from tests.support.answers import answered

STREAMS = load_streams()
STREAM = STREAMS["transactions"]
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
TOPICS = Topics()
BURST = {
    "id": "burst",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "payments >= 2",
    "measures": {"payments": {"count": "*", "over": "1h"}},
    "effective": "2024-01-01T00:00:00Z",
}
EARLY = tuple(answered(STREAMS, BURST))


class Row(NamedTuple):
    """A row of the packer for the bucket."""

    kind: str
    payload: bytes


class Store:
    """The state of one bucket, the last batch that was committed, the run that resumes from it, and the executor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        self.run = ""
        self.plan = plan()
        self.executor = BucketProcessor(self.plan)

    def undo(self) -> None:
        """The last batch was not committed after all: Spark does it again."""
        self.version -= 1

    def go_elsewhere(self, executor: BucketProcessor | None = None) -> BucketProcessor:
        """Continue on another executor, None: one that has no engine; returns the one before."""
        before, self.executor = self.executor, executor or BucketProcessor(self.plan)
        return before


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A bucket that has seen nothing."""
    return Store(tmp_path / "state")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Bucket]:
    """Every bucket that was created."""
    buckets: list[Bucket] = []

    def make(*arguments: Any) -> Bucket:
        buckets.append(Bucket(*arguments))
        return buckets[-1]

    monkeypatch.setattr(resident_buckets, "Bucket", make)
    return buckets


def plan(run_id: str = "first", rules: tuple[Record, ...] = (), name: str = "checkpoint") -> BucketPlan:
    """One bucket: transactions by customer."""
    return BucketPlan(name, run_id, Path(), STREAMS, (ShuffleKey("transactions", "customer_id"),), 1, TOPICS, rules)


def rule(offset: int, written: dict[str, Any] | None = None, streams: dict[str, Stream] = STREAMS) -> Row:
    """The answer to a rule message, as the packer writes it; a control message is about BURST."""
    after = EARLY if offset and "control" in (written or {}) else ()
    (answer,) = answered(streams, written or BURST, first=offset, after=after)
    payload = json.dumps({"offset": offset, "arrival": 0, "value": answer.value.decode()}).encode()
    return Row(kind=PayloadKind.RULE.value, payload=payload)


def payment(event_id: str, minute: int) -> Row:
    """A payment of ann's that arrives at its time."""
    at = NOON + timedelta(minutes=minute)
    event = {
        "transaction_id": event_id,
        "event_time": at,
        "customer_id": "ann",
        "terminal_id": "m1",
        "amount": Decimal("10.00"),
        "arrival_time": at,
        "partition": 0,
        "offset": minute,
        SENT_AT: None,
        PRIMARY: True,
    }
    return Row(kind=PayloadKind.EVENTS.value, payload=to_ipc(pa.Table.from_pylist([event], events_schema(STREAM))))


def clock(minute: int, run_id: str = "first") -> Row:
    """A clock as the driver writes it."""
    at = int((NOON + timedelta(minutes=minute)).timestamp()) * 1_000_000
    return Row(
        kind=PayloadKind.CLOCK.value, payload=json.dumps({"run_id": run_id, "clocks": {"transactions": at}}).encode()
    )


def batch(store: Store, *rows: Row, of: BucketPlan | None = None) -> dict[str, list[dict[str, Any]]]:
    """One micro-batch in a task of its own; its output by topic."""
    packed: dict[str, list[bytes]] = {}
    for row in rows:
        packed.setdefault(row.kind, []).append(row.payload)
    of = replace(of or plan(), state=store.folder)
    if store.run != of.run_id:
        begin(store.folder, store.version, of.run_id)
        store.run = of.run_id
    if store.plan != of:
        store.plan, store.executor = of, BucketProcessor(of)
    store.version += 1
    output: dict[str, list[dict[str, Any]]] = {}
    for table in store.executor.process(0, store.version, packed):
        for record in table.to_pylist():
            output.setdefault(record["topic"], []).append(json.loads(record["value"]))
    return output


def counted(output: dict[str, list[dict[str, Any]]]) -> list[tuple[str, int, int]]:
    """The alerts: event, revision, payments."""
    return [(a["event_id"], a["revision"], a["measures"]["payments"]) for a in output.get(TOPICS.alerts, [])]


def test_an_engine_in_memory_is_used_again(store: Store, made: list[Bucket]) -> None:
    """It is created once, and used batch after batch."""
    batch(store, rule(0))
    assert counted(batch(store, payment("t1", 1), payment("t2", 2))) == [("t2", 1, 2)]
    assert counted(batch(store, payment("t3", 3))) == [("t3", 1, 3)]
    assert len(made) == 1


def test_an_engine_whose_batch_was_not_committed_is_made_anew(store: Store, made: list[Bucket]) -> None:
    """The attempt is done again on the state before it, and says the same; nothing is counted twice."""
    batch(store, rule(0), payment("t1", 1))
    first = counted(batch(store, payment("t2", 2)))
    store.undo()
    assert counted(batch(store, payment("t2", 2))) == first == [("t2", 1, 2)]
    assert counted(batch(store, payment("t3", 3))) == [("t3", 1, 3)]
    assert len(made) == 2


def test_an_engine_that_another_attempt_overtook_is_made_anew(store: Store, made: list[Bucket]) -> None:
    """Two attempts at one batch have the same number and different events: only the token tells them apart."""
    batch(store, rule(0), payment("t1", 1))
    batch(store, payment("t2", 2))
    here = store.go_elsewhere()
    store.undo()
    batch(store, payment("t2", 2), payment("t3", 3))
    store.go_elsewhere(here)
    assert counted(batch(store, payment("t4", 4))) == [("t4", 1, 4)]
    assert len(made) == 3


def test_an_engine_that_missed_batches_reads_only_those(store: Store, made: list[Bucket]) -> None:
    """Another worker did them: their events, rules and clock are taken over."""
    batch(store, rule(0), payment("t1", 1))
    here = store.go_elsewhere()
    batch(store, payment("t2", 2), rule(1, {"control": "pause", "rule": "burst"}), clock(5))
    batch(store, rule(2, {**BURST, "id": "second"}))
    store.go_elsewhere(here)
    got = batch(store, payment("t3", 3))
    assert [(a["rule_id"], a["measures"]) for a in got[TOPICS.alerts]] == [("second", {"payments": 3})]
    assert len(made) == 2


def test_an_engine_whose_task_fails_half_way_is_never_met_again(
    store: Store, made: list[Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken in events that the state does not have."""
    batch(store, rule(0), payment("t1", 1))
    with monkeypatch.context() as broken:

        def fail(*_: Any, **__: Any) -> Iterator[str]:
            raise OSError("the disk is full")

        broken.setattr(bucket_batch.StateLog, "append", fail)
        with pytest.raises(OSError, match="full"):
            batch(store, payment("t2", 2))
    store.undo()
    assert counted(batch(store, payment("t2", 2))) == [("t2", 1, 2)]
    assert len(made) == 2


def test_executors_that_take_turns_read_what_the_others_took_in(store: Store, made: list[Bucket]) -> None:
    """Each makes its engine once, and resumes from what it has; announcements and rules come with the log."""
    batch(store, rule(0))
    executors = [store.executor, BucketProcessor(store.plan), BucketProcessor(store.plan)]
    output = []
    for minute in range(1, 13):
        store.go_elsewhere(executors[minute * minute % 7 % 3])
        output += counted(batch(store, payment(f"t{minute}", minute)))
    assert output == [(f"t{minute}", 1, minute) for minute in range(2, 13)]
    assert len(made) == 3


def test_an_engine_whose_attempt_another_executor_repeated_is_not_used(store: Store, made: list[Bucket]) -> None:
    """The head of the batch is the other's: this one's announcements may lack what that one announced."""
    batch(store, rule(0), payment("t1", 1))
    batch(store, payment("t2", 2))
    store.undo()
    lost = store.go_elsewhere()
    assert counted(batch(store, payment("t2", 2))) == [("t2", 1, 2)]
    store.go_elsewhere(lost)
    assert counted(batch(store, payment("t3", 3))) == [("t3", 1, 3)]
    assert len(made) == 3


def test_a_restart_rebuilds_all_of_it_from_the_state(store: Store, made: list[Bucket]) -> None:
    """Events, revisions, counts, and the rules received since; those before come with the plan of the new run."""
    batch(store, rule(0), payment("t1", 1), payment("t3", 3))
    batch(store, rule(1, {**BURST, "id": "second", "when": "payments >= 4"}))
    again = plan("second", EARLY)
    assert counted(batch(store, payment("t2", 2), payment("t3", 3), of=again)) == [("t2", 1, 2), ("t3", 2, 3)]
    reports = batch(store, payment("t4", 4), of=plan("third", EARLY))[TOPICS.job_progress]
    counts = {"events": 5, "late": 0, "duplicates": 1, "announced": 5, "skipped": 0, "overflow": 0}
    assert reports[0]["counts"] == counts
    assert reports[0]["retained"] == {"customer_id": 4}
    assert len(made) == 3


def test_a_failure_is_reported_once_whatever_is_lost_in_memory(store: Store) -> None:
    """A worker that resumes from the state knows what was reported; a repeated attempt reports it again."""
    declared = {"event_id": "id", "event_time": "at", "entities": ["name"]}
    fields = {"id": "string", "at": "timestamp", "name": "string", "value": "int64"}
    streams = streams_from_mapping({"counters": {**declared, "fields": fields}}, "here")
    of = BucketPlan("checkpoint", "first", Path(), streams, (ShuffleKey("counters", "name"),), 1, TOPICS, ())
    total = {
        "id": "total",
        "stream": "counters",
        "group_by": ["name"],
        "when": "total > 0",
        "measures": {"total": {"sum": "value", "over": "1h"}},
        "effective": "2024-01-01T00:00:00Z",
    }

    def answers_to(number: int) -> list[str]:
        event = {
            "id": f"c{number}",
            "at": NOON,
            "name": "ann",
            "value": 2**62,
            "arrival_time": NOON,
            "partition": 0,
            "offset": number,
            SENT_AT: None,
            PRIMARY: True,
        }
        payload = to_ipc(pa.Table.from_pylist([event], events_schema(streams["counters"])))
        output = batch(store, Row(kind=PayloadKind.EVENTS.value, payload=payload), of=of)
        return [answer["status"] for answer in output.get(TOPICS.rule_status, [])]

    batch(store, rule(0, total, streams), of=of)
    assert answers_to(1) == []
    assert answers_to(2) == ["FAILED"]
    store.undo()
    assert answers_to(2) == ["FAILED"]
    store.go_elsewhere()
    assert [answers_to(3), answers_to(4)] == [[], []]


@pytest.mark.parametrize(
    "change",
    [
        {"group_by": ["gone"]},
        {"when": "gone > 1"},
        {"when": "payments >="},
        {"where": "gone = 'x'"},
        {"measures": {"payments": {"sum": "customer_id", "over": "1h"}}},
        {"measures": {"payments": {"count": "*", "over": "1h", "per": ["gone"]}}},
    ],
    ids=str,
)
def test_a_rule_that_does_not_fit_the_declaration_stops_no_other(store: Store, change: dict[str, Any]) -> None:
    """Its field may have been removed, or somebody else may have written the answer: it is FAILED, once."""
    (answer,) = answered(STREAMS, {**BURST, "id": "unfit"}, first=1, after=EARLY)
    accepted = json.loads(answer.value)
    value = json.dumps(accepted | {"rule": accepted["rule"] | change}).encode()
    payload = json.dumps({"offset": 1, "arrival": 0, "value": value.decode()}).encode()
    batch(store, rule(0), Row(kind=PayloadKind.RULE.value, payload=payload))
    first = batch(store, payment("t1", 1), payment("t2", 2))
    assert counted(first) == [("t2", 1, 2)]
    store.go_elsewhere()
    again = batch(store, payment("t3", 3))
    assert counted(again) == [("t3", 1, 3)]
    assert TOPICS.rule_status not in again


def test_an_answer_that_is_read_again_is_taken_once(store: Store) -> None:
    """After a restart a batch may bring answers that the bucket has had."""
    batch(store, rule(0))
    assert counted(batch(store, rule(0), rule(0), payment("t1", 1), payment("t2", 2))) == [("t2", 1, 2)]


def test_an_answer_that_changes_nothing_is_not_kept(store: Store) -> None:
    """A start brings one for each version, to each bucket; the next start finds the version without it."""
    batch(store, rule(0))
    kept = files_of(store.folder, 0, store.run).before(store.version + 1).rules
    active = {"status": "ACTIVE", "rule_id": "burst", "rule_version": 1, "effective": BURST["effective"], "reasons": []}
    payload = json.dumps({"offset": 1, "arrival": 0, "value": json.dumps(active)}).encode()
    batch(store, Row(kind=PayloadKind.RULE.value, payload=payload))
    assert files_of(store.folder, 0, store.run).before(store.version + 1).rules == kept != ""
    store.go_elsewhere()
    assert counted(batch(store, payment("t1", 1), payment("t2", 2))) == [("t2", 1, 2)]


def test_buckets_share_nothing_but_the_rules_that_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer is read once for all buckets of a process; what one bucket receives later is its own."""
    read: list[bytes] = []
    monkeypatch.setattr(
        "nightjar.streaming.buckets.plan.read_answer", lambda value: read.append(value) or read_answer(value)
    )
    of = plan(rules=EARLY)
    one, other = of.rule_book(), of.rule_book()
    for later in answered(STREAMS, {**BURST, "id": "later"}, first=1, after=EARLY):
        fold(one, later)
    assert len(read) == len(EARLY)
    assert (set(one.rule_ids), set(other.rule_ids)) == ({"burst", "later"}, {"burst"})
    assert len(other.ruleset.versions) == 1


@pytest.mark.parametrize(("run_id", "held"), [("first", 0), ("earlier", 2)])
def test_a_clock_of_another_run_is_not_heeded(store: Store, run_id: str, held: int) -> None:
    """It may speak of records that this run has yet to read again."""
    batch(store, rule(0), payment("t1", 1), payment("t2", 2))
    batch(store, clock(600, run_id))
    store.go_elsewhere()
    (report,) = batch(store, payment("t1", 1))[TOPICS.job_progress]
    assert report["retained"]["customer_id"] == held


def flood(store: Store, minutes: range, *rows: Row, of: BucketPlan) -> list[tuple[str, int, bool]]:
    """A batch of payments, all but the first of which alert: event, revision and whether it is marked."""
    output = batch(store, *rows, *(payment(f"t{minute}", minute) for minute in minutes), of=of)
    return [(a["event_id"], a["revision"], a.get("overflow", False)) for a in output.get(TOPICS.alerts, [])]


def overflow(hour: int, run_id: str = "first") -> Row:
    """The mark of the driver, for BURST and an hour of the day."""
    at = int(NOON.replace(hour=hour).timestamp()) * 1_000_000
    return Row(PayloadKind.CLOCK.value, Clock(run_id, {}, {"burst": (at,)}).encoded())


def test_alerts_beyond_the_cap_are_marked_also_after_a_crash(store: Store, made: list[Bucket]) -> None:
    """S10.6: a repeated batch, a restart, and a revision have the mark of the first attempt; the next hour has none."""
    capped = replace(plan(), alerts_per_rule_and_hour=3)
    batch(store, rule(0), of=capped)
    first = flood(store, range(4), of=capped)
    assert first == [("t1", 1, False), ("t2", 1, False), ("t3", 1, False)]
    store.undo()
    assert flood(store, range(4), of=capped) == first
    again = replace(capped, run_id="second")
    assert flood(store, range(4, 6), of=again) == [("t4", 1, True), ("t5", 1, True)]
    assert made[-1].counts.overflow == 2
    early = batch(store, payment("early", 0), of=again)[TOPICS.alerts]
    marked = {a["event_id"]: a["overflow"] for a in early if "overflow" in a}
    assert ({a["revision"] for a in early}, marked) == ({1, 2}, {"t4": True, "t5": True})
    assert flood(store, range(60, 61), of=again) == [("t60", 1, False)]


def test_the_mark_of_the_driver_counts_from_what_was_announced(store: Store) -> None:
    """S10.6: of whatever run it is, since it names an hour; an hour that it does not name has its own count."""
    capped = replace(plan(), alerts_per_rule_and_hour=100)
    batch(store, rule(0), of=capped)
    assert flood(store, range(58, 60), of=capped) == [("t59", 1, False)]
    marked = flood(store, range(60, 62), overflow(13, "another"), of=capped)
    assert marked == [("t60", 1, True), ("t61", 1, True)]
    store.go_elsewhere()
    assert flood(store, range(62, 63), of=capped) == [("t62", 1, True)]
    assert flood(store, range(120, 121), of=capped) == [("t120", 1, False)]


def test_a_bucket_begins_with_the_state_it_is_given(made: list[Bucket], tmp_path: Path) -> None:
    """Of a rebuilt checkpoint: events it had read, an alert's latest revision, the clock, unread events."""
    book = plan(rules=EARLY).rule_book()
    config = JobConfig(STREAMS, tmp_path, buckets=1, shuffle_partitions=1)
    arrival = int((NOON + timedelta(minutes=2)).timestamp() * 1_000_000)
    share = share_of(config, book, book.shuffle_keys.index(ShuffleKey("transactions", "customer_id")), arrival)
    one, two = (from_ipc(payment(f"t{minute}", minute).payload).drop_columns([PRIMARY]) for minute in (1, 2))
    announcement = {
        "event_id": "t3",
        "event_time": NOON + timedelta(minutes=3),
        "rule_id": "burst",
        "rule_version": 1,
        "revision": 4,
        "retracted": False,
        "rule_state": "active",
        "group": '{"customer_id":"ann"}',
        "measures": '{"payments":3}',
        "severity": "medium",
        "text": "",
        "muted": False,
        "mute": 0,
        SHUFFLED_BY: "ann",
    }
    announced = pa.Table.from_pylist([announcement], LEDGER_SCHEMA.append(pa.field(SHUFFLED_BY, pa.string())))
    assert write_share(tmp_path, share, [one], announced, [two]) == 2
    store = Store(tmp_path)
    assert files_of(tmp_path, 0).before(1).clock == share.settled  # what has become due since is evaluated again
    assert counted(batch(store, payment("t1", 1), payment("t3", 3), of=plan(rules=EARLY))) == [("t2", 1, 2)]
    assert counted(batch(store, payment("t0", 0), of=plan(rules=EARLY))) == [("t1", 1, 2), ("t2", 2, 3), ("t3", 5, 4)]
    assert len(made) == 1
    store.go_elsewhere()
    assert counted(batch(store, payment("t2", 2), payment("t4", 4), of=plan(rules=EARLY))) == [("t4", 1, 5)]
