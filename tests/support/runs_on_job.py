"""Purpose: random runs on the real job: Kafka with several partitions, Spark, Delta and a night.

How it works: many runs share three streams, one of which is a union of two, each with an owner's field that its rules
ask for and marks on its ids and its table. Their records are sent in the order of arrival, some partitions behind the
others, while the job is started again with other settings, ended or crashed, behind or down. Then a night is passed.
What it cannot see is which batch the job made of what, and what it may therefore say at a step:
tests/support/run_agreement.py holds the operator against that.

What it checks: rules are answered as `Answers` says; nobody says a revision twice with another content; the night finds
a cause for every difference; with its corrections the alerts of each run are its truth, by the reference; and
explanations of alerts say the same.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from zlib import crc32

import polars as pl
from hypothesis import HealthCheck, Phase, given, seed, settings

from nightjar.backfill.config import RunRequest
from nightjar.backfill.run import Run as Night
from nightjar.backfill.staging import CORRECTED, HELD_BACK
from nightjar.cases.documents import json_text
from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import Settings
from nightjar.contracts.alerts import correction_record
from nightjar.kafka import topics
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.lake import stream_state
from nightjar.lake.scanning import parquet
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds
from nightjar.rules.types import STRING, FieldType
from nightjar.rules.unions import event_of_union, union_of
from tests.support.agreement import Key, Measured, announced, differing, final, plain, wrongly_muted
from tests.support.explained import Corrections, disagreements
from tests.support.histories import SECOND, TABLE, declared, setting
from tests.support.job_host import CaseRun
from tests.support.random_cases import change_json, event_json
from tests.support.random_runs import Answer, Answers, Listed, Published, Restart, Run, runs
from tests.support.reference import IN_THE_END, LONG_AGO, Event, Version, is_due, violations
from tests.support.together import marked_names
from tests.support.topics import in_folders_of_its_own
from tests.support.unions import topic_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWNER = "of_run"
OTHERS = "others"
UNION = "united"
# So many alerts are explained: some tenths of a second each.
_EXPLAINED = 100
PARTITIONS = 4
# What the runs that are played together are drawn for.
SHARED = declared(
    ("who", "place", "amount", "number", "ratio", "fraction", "flag"),
    event_id="id",
    event_time="event_time",
    allowed_lateness="10s",
    max_future_skew="2s",
    entities=("who", "place"),
    tiebreaker="number",
)


@dataclass
class _Marked:
    """A run on one of the streams, whose rules, ids and table begin with its mark. events: in the order of arrival;
    true_events: with what the table had by all changes."""

    mark: str
    stream: str
    messages: list[Published]
    events: list[Event]
    true_events: list[Event]
    changes: list[Listed]
    tables: Mapping[str, FieldType]


@dataclass
class RunsOnJob:
    """Runs of SHARED, one in three on the stream OTHERS, which is declared likewise, and one on UNION, whose streams
    are; played and judged. settings: whose topics do not exist yet; topic: with what those of the events begin.

    latencies: each start of the job draws how it runs. complaints: lines for people; counts: what has been compared.
    """

    session: SparkSession
    settings: Settings
    topic: str
    runs: list[Run]
    seed: int
    phases: int = 10
    latencies: tuple[str, ...] = ("micro-batch",)
    log: Callable[[str], None] = lambda _: None
    complaints: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        fields = MappingProxyType({**SHARED.fields, OWNER: STRING})
        members = {alias: f"{UNION}_{alias}" for alias in ("x", "y")}
        streams = {
            name: replace(SHARED, name=name, fields=fields, topic=f"{self.topic}-{name}")
            for name in (SHARED.name, OTHERS, *members.values())
        }
        union = {"union": members, "entities": [*SHARED.entities], "tiebreaker": SHARED.tiebreaker}
        streams[UNION] = union_of(UNION, union, streams, "tests")
        of_runs = [streams[name] for name in (SHARED.name, OTHERS, UNION)]
        self._marked = [_marked(run, f"r{number}_", of_runs[number % 3]) for number, run in enumerate(self.runs)]
        tables = MappingProxyType({name: kind for of in self._marked for name, kind in of.tables.items()})
        self._streams = {name: replace(stream, tables=tables) for name, stream in streams.items()}
        self._rng = random.Random(self.seed)  # noqa: S311  nothing secret
        self._how = random.Random(self.seed)  # noqa: S311
        self._answers, self._expected = Answers(), list[Answer]()
        self._ends: dict[tuple[str, int], int] = {}
        self._unanswered: list[Published] = []
        self._published = 0
        self._play()
        self.complaints += [*self._judged()]

    def _play(self) -> None:
        topics.ensure(self.settings, self._streams.values())
        messages = sorted((m for of in self._marked for m in of.messages), key=lambda message: message.arrival)
        events = sorted(
            ((of.stream, e) for of in self._marked for e in of.events), key=lambda sent: int(sent[1]["arrival"])
        )
        changes = sorted(
            ((of.mark, each) for of in self._marked for each in of.changes), key=lambda sent: sent[1].arrival
        )
        arrivals = sorted(
            {message.arrival for message in messages}
            | {listed.arrival for _, listed in changes}
            | {event["arrival"] for _, event in events}
        )
        edges = [arrivals[len(arrivals) * number // self.phases] for number in range(1, self.phases)] + [
            arrivals[-1] + 1
        ]
        waiting = {(name, partition): list[Event]() for name in self._streams for partition in range(PARTITIONS)}
        restart, begin, rng = Restart(5 * SECOND, 10 * SECOND), 0, self._rng
        with producer(self.settings) as self._producer, ExitStack() as running:
            job = running.enter_context(self._job(restart))
            for number, end in enumerate(edges):
                down = number > 0 and rng.random() < 0.5
                if down:
                    if rng.random() < 0.5:
                        job.crash()
                    running.close()
                    restart = self._changed(restart)
                for name, event in events:
                    if begin <= event["arrival"] < end:
                        waiting[name, event["partition"]].append(event)
                of_phase = [message for message in messages if begin <= message.arrival < end]
                # what arrived before an event is there before it
                self._change([(mark, each) for mark, each in changes if begin <= each.arrival < end])
                begin = end
                # what a job that runs had answered before an event came is stamped before that event
                rules_first = rng.random() < 0.5 or not down
                if rules_first:
                    self._publish(of_phase)
                    if not down:
                        job.await_answered(self._published)
                for (name, partition), unsent in waiting.items():
                    if number + 1 == self.phases or rng.random() < 0.7:
                        self._send(name, partition, unsent)
                        unsent.clear()
                if not rules_first:
                    self._publish(of_phase)
                if down:
                    job = running.enter_context(self._job(restart))
                job.await_answered(self._published)
                self._expected += [self._answers.take(message, restart) for message in self._unanswered]
                self._unanswered.clear()
                if number + 1 == self.phases or rng.random() < 0.5:
                    job.await_consumed(self._ends)
                self.log(f"phase {number + 1} of {self.phases}, {restart}{', after it was down' if down else ''}")
            job.await_reported()
        self._last = self._declared(restart)

    def _declared(self, restart: Restart) -> dict[str, Stream]:
        ours = replace(self._streams[SHARED.name], allowed_lateness=restart.allowed_lateness)
        return self._streams | {SHARED.name: ours}

    def _job(self, restart: Restart) -> CaseRun:
        given = {"activation_delay": restart.activation_delay, "approvals": restart.approvals}
        settings = self.settings.model_copy(update=given)
        how = {"latency": self._how.choice(self.latencies), "real_time_batch": 2 * SECOND}
        return CaseRun(self.session, settings, self._declared(restart), clock_interval=SECOND, **how)

    def _changed(self, restart: Restart) -> Restart:
        rng = self._rng
        if rng.random() < 0.25:
            return replace(restart, approvals=rng.choice((0, 0, 1)))
        if rng.random() < 0.3:
            return replace(restart, activation_delay=rng.choice((0, 5, 20)) * SECOND)
        return replace(restart, allowed_lateness=rng.choice((10, 10, 10, 2, 60)) * SECOND)

    def _publish(self, messages: list[Published]) -> None:
        for message in messages:
            value = json_text(message.written).encode()
            self._producer.send(self.settings.rules_topic, value, timestamp_ms=message.arrival // 1000).get(60)
        self._unanswered += messages
        self._published += len(messages)

    def _change(self, changes: list[tuple[str, Listed]]) -> None:
        """Change the runs' tables."""
        topic = self.settings.tables_topic
        for mark, listed in changes:
            written = change_json(listed.change) | {"table": mark + TABLE}
            stamp = listed.arrival // 1000
            self._producer.send(topic, json_text(written).encode(), timestamp_ms=stamp).get(60)

    def _send(self, name: str, partition: int, events: list[Event]) -> None:
        stream = self._streams[name]
        sent = [
            self._producer.send(
                topic_of(stream, event),
                event_json(stream, event).encode(),
                partition=partition,
                timestamp_ms=event["arrival"] // 1000,
            )
            for event in events
        ]
        for each in sent:
            record = each.get(60)
            self._ends[record.topic, partition] = record.offset + 1

    def _judged(self) -> Iterator[str]:
        with Reader(self.settings, self.settings.rule_status_topic) as reader:
            reports = [json.loads(record.value) for record in reader.all()]
        answers = [Answer.read(record) for record in reports if "message" in record]
        for answer, expected in zip(answers, self._expected, strict=True):
            if answer != expected:
                yield f"answer {answer}, expected {expected}"
        by_revision: dict[tuple[str, int], dict[str, Any]] = {}
        with Reader(self.settings, self.settings.alerts_topic) as reader:
            for record in reader.all():
                alert = json.loads(record.value)
                del alert["emitted_at"]
                known = by_revision.setdefault((alert["alert_id"], alert["revision"]), alert)
                if known != alert:
                    yield f"two contents under one revision: {known} and {alert}"
        corrections = self._corrections()
        self.counts.update(
            runs=len(self._marked),
            events=sum(len(of.events) for of in self._marked),
            changes=sum(len(of.changes) for of in self._marked),
            answers=len(answers),
            alerts=len(by_revision),
            corrections=len(corrections),
        )
        for correction in corrections:
            self.counts[f"cause_{correction['cause']}"] += 1
            if correction["cause"] == "unexplained":
                yield f"unexplained: {correction}"
        every = [*sorted(by_revision.values(), key=lambda alert: alert["revision"]), *corrections]
        config = backfill_config(self.settings, self._last)
        self.counts["explained"] = min(_EXPLAINED, len({record["alert_id"] for record in every}))
        yield from disagreements(config, every, _EXPLAINED, Corrections(corrections))
        clocks = stream_state.clocks(config.lake.root)
        for of in self._marked:
            records = [record for record in every if record["rule_id"].startswith(of.mark)]
            yield from self._true(of, records, clocks.get(of.stream, LONG_AGO))

    def _corrections(self) -> list[dict[str, Any]]:
        """What the night says of everything, held back or not."""
        config = backfill_config(self.settings, self._last)
        times = (e[self._streams[of.stream].event_time] for of in self._marked for e in of.events)
        first = from_microseconds(min(times)).date() - timedelta(days=1)
        request = RunRequest("runs", first, days=4)
        night = Night(self.session, config, request)
        for stage in ("archive", "evaluate", "reconcile"):
            night.do(stage)
        staged = [
            parquet(request.staged(config.lake) / name / "*.parquet").collect() for name in (CORRECTED, HELD_BACK)
        ]
        rows = pl.concat([staged[0], staged[1].drop("outcome")])
        return [correction_record(row, 0) for row in rows.to_dicts()]

    def _true(self, of: _Marked, records: list[dict[str, Any]], clock: int) -> Iterator[str]:
        """How the alerts differ from the truth. clock: what is due after it may still be left to the job (S19.6)."""
        versions = [version for version in self._answers.versions if version.rule_id.startswith(of.mark)]
        stream = self._streams[of.stream]
        truly = setting(stream, truth=True)
        of_key = {(version.rule_id, version.version): version for version in versions}
        truth = violations(truly, versions, of.true_events, IN_THE_END)
        first = {event[stream.event_id]: event for event in reversed(of.true_events)}
        try:
            latest = final(records).values()
        except AssertionError as wrong:
            yield f"{of.mark}: {wrong}: {records}"
            return
        yield from wrongly_muted(of.mark, versions, latest)
        got: dict[Key, Measured] = {}
        for record in latest:
            subject = record["rule_id"], record["rule_version"]
            got[*subject, record["event_id"]] = plain(of_key[subject].measures, stream, record["measures"])
        truth = {
            key: values
            for key, values in truth.items()
            if key in got or is_due(truly, of_key[key[:2]], first[key[2]], clock)
        }
        self.counts["violations"] += len(truth)
        yield from differing(of.mark, got, announced(versions, truth))


def drawn(number: int, count: int, *, keys: bool = False) -> list[Run]:
    """So many runs of SHARED, the same for the same number, but for those without events. keys: see runs.

    On the job producers set the arrivals, and so a version that waited for its shuffle key takes effect as of its
    publication (see streaming/driver/answering.py). Events that were read meanwhile may have arrived later than that,
    and the night could not explain what the version missed there.
    """
    found: list[Run] = []

    @seed(number)
    @settings(
        max_examples=count, database=None, deadline=None, phases=(Phase.generate,), suppress_health_check=[*HealthCheck]
    )
    @given(runs(SHARED, keys=keys))
    def draw(run: Run) -> None:
        if run.events:
            found.append(run)

    draw()
    return found


def with_topics_of_its_own(settings: Settings, mark: str, folder: Path) -> Settings:
    """Settings for RunsOnJob: topics that begin with the mark, and everything else in the folder."""
    named = {name: f"{mark}-{value}" for name, value in settings.model_dump().items() if name.endswith("_topic")}
    small = {"arrival": "producer", "partitions": PARTITIONS, "buckets": 2, "warm_up_batches": 0}
    return in_folders_of_its_own(settings.model_copy(update={**named, **small, "data_dir": folder / mark}), mark)


def _marked(run: Run, mark: str, stream: Stream) -> _Marked:
    own = run.declared
    events, true_events = (
        [{**event, "id": mark + event["id"], OWNER: mark} for event in of]
        for of in (run.events, run.true_events_of(own.name))
    )
    if stream.members:
        events, true_events = ([_united(event, stream) for event in of] for of in (events, true_events))
    tables = {mark + name: kind for name, kind in own.tables.items()}
    messages = [message for step in run.steps if not isinstance(step, Restart) for message in step.messages]
    owned = [_owned(message, mark, stream.name) for message in messages]
    return _Marked(mark, stream.name, owned, events, true_events, run.changes, tables)


def _united(event: Event, union: Stream) -> Event:
    """An event as one of the union's: all of one id are of one stream."""
    member = union.members[crc32(event["id"].encode()) % len(union.members)]
    beside = {name: value for name, value in event.items() if name not in member.stream.fields}
    return {**event_of_union(event, union, member), **beside}


def _owned(message: Published, mark: str, stream: str) -> Published:
    """The message of one run among others: its rules are about events of the run alone, and name rules of the run."""
    named = re.sub(rf"\b{TABLE}\b", mark + TABLE, json.dumps(message.written))
    written, version = json.loads(named), message.version
    if written.get("stream") == SHARED.name:
        written["stream"] = stream
    name = "rule" if "control" in written else "id"
    written[name] = mark + written[name]
    if "when" in written:
        mine = f"{OWNER} = '{mark}'"
        written["where"] = f"({written['where']}) AND {mine}" if "where" in written else mine
        # a session, and what an event is followed by, do not ask that
        written["group_by"] = [*written["group_by"], OWNER]
    if "allows" in written:
        written["allows"] = marked_names(mark, written["allows"])
    if "tags" in written:
        written["tags"] = [mark + tag for tag in written["tags"]]
    if "measures" in written:
        written["measures"] = {
            measure: of | {"over_alerts": marked_names(mark, of["over_alerts"])}
            if isinstance(of, dict) and "over_alerts" in of
            else of
            for measure, of in written["measures"].items()
        }
    return replace(message, written=written, version=None if version is None else _named(version, mark))


def _named(version: Version, mark: str) -> Version:
    """Which asks for no owner: the reference is given the events of the run alone."""
    return replace(
        version,
        rule_id=mark + version.rule_id,
        tags=tuple(mark + tag for tag in version.tags),
        allows=tuple(marked_names(mark, version.allows)),
        named=tuple(_named(other, mark) for other in version.named),
        measures={
            name: replace(measure, over_alerts=tuple(marked_names(mark, measure.over_alerts)))
            for name, measure in version.measures.items()
        },
    )
