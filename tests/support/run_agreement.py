"""Whether stream and backfill say of a random run what the oracle and the reference allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from nightjar.cases.corrections import corrections_of
from nightjar.rules.engine.plan import IN_TIME, Fold
from nightjar.rules.engine.store import LATE, LONG_AGO
from nightjar.rules.rulebook import ShuffleKey
from tests.support.agreement import Key, Measured, announced, differing, final, plain, wrongly_muted
from tests.support.evicting import evicting_early
from tests.support.explained import disagreements, lake_of
from tests.support.histories import setting
from tests.support.oracle import Oracle
from tests.support.random_runs import ELSEWHERE, Answer, Answers, Batch, Restart, Run
from tests.support.reference import Event, Version, violations
from tests.support.stream_host import Emitted, StreamHost, change_record, lake_table


class RunAgreement:
    """A run played by a host. explained: of how many alerts at most the explanation is compared, too, from a lake.

    complaints: lines for people; counts: what has been compared.
    """

    def __init__(self, run: Run, explained: int = 0, host: type[StreamHost] = StreamHost) -> None:
        self._run, self._host_type = run, host
        self._answers, self._alerts, self._late = Answers(), list[dict[str, Any]](), set[tuple[str, int, int]]()
        self._published: dict[tuple[str, int], tuple[int, int]] = {}  # arrival of the message, and the horizon then
        self._clocks: dict[str, int] = {}
        beside = len(run.events_of(ELSEWHERE))
        self.counts: Counter[str] = Counter(events=len(run.events), beside=beside, changes=len(run.changes))
        # histories are small: look for what can go as soon as a few events are held
        with evicting_early(), TemporaryDirectory(prefix="nightjar-run-") as folder:
            self.complaints = [*self._streamed(Path(folder) / "state"), *self._corrected()]
            if explained and not self.complaints:
                self.complaints += self._explained(Path(folder) / "lake", explained)

    def _streamed(self, folder: Path) -> Iterator[str]:
        self._host = host = self._host_type(self._run, folder)
        oracles, begun = list[Oracle](), list[int]()
        self._made = dict[ShuffleKey, int]()  # of those that no entity field is: since when (µs) they have all events
        failed: set[tuple[str, int, str]] = set()
        for number, step in enumerate(self._run.steps):
            if isinstance(step, Restart):
                self._restart = step
                self._declared = self._run.streams(step)
                self._evaluated = {name: of for name, of in self._declared.items() if self._run.evaluates(name)}
                host.restart(step)
                self._renew(oracles, begun)
                continue
            self._prime(step, oracles, begun)
            expected, answers = list[Answer](), list[Answer]()
            for message in step.messages:
                expected.append(self._answers.take(message, self._restart))
                answers += [Answer.read(answer) for answer in host.answer([message])]
                if answers[-1] == replace(expected[-1], effective=None) != expected[-1] and self._may_wait(answers[-1]):
                    self._answers.wait(answers[-1].rule_id)
                    expected[-1] = answers[-1]
                    self.counts["waiting"] += 1
            if answers != expected:
                yield f"step {number}: answers {answers}, expected {expected}"
                return
            self._published = dict(self._newest(oracles)) | self._published
            read = {name: step.of(name) for name in self._evaluated}
            for name, of in read.items():
                known = self._clocks.get(name, LONG_AGO)
                self._clocks[name] = known if of.clock is None else max(known, of.clock)
            shares = {name: host.shares(name, of.events) for name, of in read.items()}
            for at, (oracle, emitted) in enumerate(zip(oracles, host.take(step), strict=True)):
                if not host.runs(at):
                    continue
                stream = host.buckets[at].stream
                where = f"step {number}, bucket {at} of {stream}.{host.buckets[at].field}: "
                self._alerts += emitted.alerts
                self._late |= {(row["stream"], row["partition"], row["offset"]) for row in emitted.late}
                self._count(emitted)
                found = oracle.complaints(
                    replace(read[stream], events=shares[stream][at]),
                    self._answers.of(stream),
                    self._evaluated[stream].allowed_lateness,
                    emitted.alerts,
                    [row["event_id"] for row in emitted.late] if host.speaks(at) else None,
                )
                yield from (where + line for line in found)
                failed |= {_failure(row) for row in emitted.rule_status if row["status"] == "FAILED"}
        overflown = set().union(*(oracle.overflown for oracle in oracles))
        if failed - overflown:
            yield f"FAILED {sorted(failed - overflown)}, whose values fit"

    def _renew(self, oracles: list[Oracle], begun: list[int]) -> None:
        """An oracle that knows nothing for each bucket that has begun without state."""
        host = self._host
        for at, times in enumerate(host.begun):
            if begun[at : at + 1] != [times]:
                key = host.buckets[at]
                serves = partial(self._serves, key)
                seen = self._run.as_arrived if key.stream == self._run.declared.name else _as_read
                oracles[at : at + 1] = [Oracle(self._declared[key.stream], serves, host.unread(at), seen)]
                begun[at : at + 1] = [times]
                self.counts["begun_again"] += times > 1

    def _newest(self, oracles: list[Oracle]) -> Iterator[tuple[tuple[str, int], tuple[int, int]]]:
        """The arrival of each version's message, and the horizon of its stream now."""
        host, arrivals = self._host, self._answers.arrivals
        for name in self._evaluated:
            of_stream = zip(oracles, host.buckets, strict=True)
            horizon = max(oracle.horizon for oracle, key in of_stream if key.stream == name)
            for version in self._answers.of(name):
                made = self._made.get(host.shuffle_key_of(name, version.group_by), horizon)
                about = version.rule_id, version.version
                yield about, (arrivals[about], max(horizon, made))

    def _serves(self, key: ShuffleKey, version: Version) -> bool:
        return self._host.shuffle_key_of(key.stream, version.group_by) == key

    def _may_wait(self, answer: Answer) -> bool:
        """Whether a version may take effect only later."""
        return self._run.primes or self._host.is_made(self._host.shuffle_key_of_rule(answer.rule_id))

    def _prime(self, step: Batch, oracles: list[Oracle], begun: list[int]) -> None:
        """What the driver does before a batch for versions that wait for their shuffle key, or for history."""
        host = self._host
        key = host.prepare(step)
        self._renew(oracles, begun)
        for at, oracle in enumerate(oracles):
            if host.buckets[at] == key:
                oracle.export()
        for activated in host.activate(step.at) if step.history in ("answer", "both") else ():
            name = activated.rule_id, activated.version
            asked = self._answers.arrivals[name]
            self._answers.activate(*name, activated.effective, step.at)
            # a key that is not primed lacks what was read before, which may be dated ahead
            since = step.at + self._declared[activated.shuffle_key.stream].max_future_skew + 1
            self._published[name] = step.at, LONG_AGO if self._run.primes else since
            self.counts["shuffle_keys"] += host.is_made(activated.shuffle_key)
            if not self._run.primes:
                self._made[activated.shuffle_key] = since
                self._began_late(activated.shuffle_key, asked, since)
            if activated.has is not None:
                self.counts["primed"] += 1
                self.counts["primed_shuffle_keys"] += host.is_made(activated.shuffle_key)
                steps = {_fold(fold): since for fold, since in activated.has.steps.items()}
                for at, oracle in enumerate(oracles):
                    if host.buckets[at] == activated.shuffle_key:
                        oracle.prime(activated.has.rows, steps, activated.settled)

    def _began_late(self, key: ShuffleKey, asked: int, since: int) -> None:
        """A shuffle key that was asked for has all events since then (µs): others that came meanwhile took effect at
        once, and lacked what came before the key."""
        for version in self._answers.of(key.stream):
            about = version.rule_id, version.version
            arrival, horizon = self._published.get(about, (asked - 1, 0))
            if arrival >= asked and self._host.shuffle_key_of(key.stream, version.group_by) == key:
                self._published[about] = arrival, max(horizon, since)

    def _count(self, emitted: Emitted) -> None:
        self.counts["alerts"] += len(emitted.alerts)
        self.counts["revisions"] += sum(record["revision"] > 1 for record in emitted.alerts)
        self.counts["late_events"] += len(emitted.late)

    def _corrected(self) -> Iterator[str]:
        """With the night's corrections the alerts are the truth, and each has a cause."""
        streams, versions = self._evaluated, self._answers.versions
        tables = {name: lake_table(self._run.events_of(name), stream) for name, stream in streams.items()}
        events = {name: table.append_column(LATE, pa.array(self._is_late(name))) for name, table in tables.items()}
        book = self._host.book
        corrections = corrections_of(
            self._declared,
            book.ruleset,
            self._published,
            events,
            self._alerts,
            clocks=self._clocks,
            reported=book.reported,
            rows=self._run.rows,
        )
        self.counts["corrections"] += len(corrections)
        self.counts.update(f"cause_{record['cause']}" for record in corrections)
        yield from (f"night: unexplained: {record}" for record in corrections if record["cause"] == "unexplained")
        self._records = [*self._alerts, *corrections]
        try:
            records = final(self._records).values()
        except AssertionError as wrong:
            yield f"night: {wrong}"
            return
        yield from wrongly_muted("night", versions, records)
        for name in streams:
            yield from self._untrue(name, [record for record in records if record["stream"] == name])

    def _is_late(self, stream: str) -> list[bool]:
        """Whether each event of a stream was reported as late."""
        return [(stream, each["partition"], each["offset"]) in self._late for each in self._run.events_of(stream)]

    def _untrue(self, name: str, records: list[dict[str, Any]]) -> Iterator[str]:
        """What the last records of the alerts on a stream say otherwise than the reference."""
        stream, versions = self._declared[name], self._answers.of(name)
        truth = violations(
            setting(stream, truth=True), versions, self._run.true_events_of(name), self._clocks.get(name)
        )
        measures = {(v.rule_id, v.version): v.measures for v in versions}
        got: dict[Key, Measured] = {}
        for record in records:
            subject = record["rule_id"], record["rule_version"]
            if subject not in measures:
                yield f"night: {record} is of no version"
                continue
            got[*subject, record["event_id"]] = plain(measures[subject], stream, record["measures"])
        yield from differing(f"night of {name}", got, announced(versions, truth))

    def _explained(self, root: Path, most: int) -> Iterator[str]:
        """Explanations from a lake with the corrections say what they say."""
        events = {name: lake_table(self._run.events_of(name), of) for name, of in self._evaluated.items()}
        changes = map(change_record, self._run.changes)
        config = lake_of(root, self._declared, events, self._records, self._host.answers, changes)
        self.counts["explained"] += min(most, len({record["alert_id"] for record in self._records}))
        yield from disagreements(config, self._records, most)


def _as_read(event: Event) -> Event:
    return event


def _fold(fold: Fold) -> tuple[Any, ...]:
    """A fold as the reference names it."""
    return fold.group_by, fold.resolution, fold.family, fold.mask.predicates - {IN_TIME}, fold.mask.field


def _failure(record: dict[str, Any]) -> tuple[str, int, str]:
    """Rule id, version and measure."""
    measure = record["reasons"][0].removeprefix("measures.").partition(":")[0]
    return record["rule_id"], record["rule_version"], measure
