"""Sends payments at a steady rate for checks/soak/endurance.py, and meanwhile changes rules, archives, and kills
workers.

How it works: one thread sends and one waits for the archive. This one looks every moment whether all is well, and does
what is due. Whatever fails, or falls far behind, ends the load at once, with the end of the job's log.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from checks.bench.figures import log_progress
from checks.bench.payments import STREAM, halved
from checks.bench.processes import quarters
from checks.soak.end_to_end import fact
from checks.soak.kill_targets import Job, Kind, Nightly
from checks.soak.traffic import Traffic
from nightjar.configuration.settings import Settings
from nightjar.demo.report import Check
from nightjar.demo.watching import Watch
from nightjar.kafka import rule_topics
from nightjar.kafka.readers import Reader
from nightjar.operations.job_watch import JobState
from nightjar.replay import send
from nightjar.replay.sending import Report
from nightjar.rules.publishing import Answer
from nightjar.rules.timestamps import iso_text

# A change takes effect this long (µs) after it is published.
_SOON = 30_000_000
_ANSWER_SECONDS = 300.0
# The rate is not sustained if the sender or the job is so far behind. A start of the job takes half a minute, and it
# then reads several times as fast.
_SENDER_BEHIND_SECONDS, _JOB_BEHIND_SECONDS = 60.0, 300.0


@dataclass
class Recurring:
    """Something that is done again and again during the load. title: of its fact; first, every: seconds."""

    title: str
    first: float
    every: float
    begun: int = 0
    took: list[float] = field(default_factory=list)

    def expected(self, seconds: float) -> int:
        """How often it is begun within so many seconds."""
        return max(0, int((seconds - self.first) // self.every) + 1)

    def begin(self, now: float) -> bool:
        """Whether it is due now (seconds); it then counts as begun."""
        due = self.begun < self.expected(now)
        self.begun += due
        return due


class Load:
    """The steady load of so many minutes. rate: payments a second."""

    def __init__(
        self,
        settings: Settings,
        traffic: Traffic,
        job: Job,
        nightly: Nightly,
        watch: Watch,
        rules: list[dict[str, Any]],
        minutes: int,
        rate: int,
    ) -> None:
        self._settings, self._traffic, self._job, self._nightly = settings, traffic, job, nightly
        self._watch, self._rules, self._minutes, self._rate = watch, rules, minutes, rate
        self._changes = Recurring("rule changes: seconds until answered", 30, 60)
        self._archives = Recurring("archive: seconds", 210, 300)
        self._kills = Recurring("workers killed: seconds until the next batch was committed", 300, 600)
        self._archiving: Future[float] | None = None
        self._state = JobState()
        self._lags: list[tuple[float, float]] = []
        self._starts = job.starts
        self._sent: Report | None = None

    def run(self) -> None:
        """Send everything. Raises at once if the sender, the job, an archive or the reader of the alerts fails."""
        traffic = self._traffic
        with ThreadPoolExecutor(2) as pool, ExitStack() as stopping:
            stopping.callback(self._nightly.stop)
            stopping.callback(traffic.stopped.set)
            reports = stopping.enter_context(Reader(self._settings, self._settings.job_progress_topic)).to_end()
            began, reported = time.monotonic(), time.monotonic()
            batches = traffic.minutes(self._minutes, self._rate)
            sending = pool.submit(send, self._settings, traffic.stream, batches, speed=1.0, shifted=False)
            while not sending.done() or self._archiving is not None:
                now = time.monotonic() - began
                self._job.process.check()
                self._watch.check()
                self._disturb(pool, min(now, self._minutes * 60), now)
                for record in reports.poll():  # waits for them, which is the pause of this loop
                    self._state.take(record)
                    reported = time.monotonic()
                if not sending.done():
                    self._refuse_lag(now, time.monotonic() - reported)
            self._sent = sending.result()

    def _disturb(self, pool: ThreadPoolExecutor, load: float, now: float) -> None:
        """Do what is due. load: as `now`, but no later than its end."""
        if self._changes.begin(load):
            arrival = self._traffic.begins + int(now * 1_000_000)
            message = change(self._changes.begun - 1, self._rules, arrival)
            self._changes.took.append(publish(self._settings, [message], arrival))
        if self._kills.begin(load):
            log_progress(f"a worker is killed after {now / 60:.0f} min")
            self._kills.took.append(self._job.kill(Kind.WORKER).seconds)
        if self._archiving is not None and self._archiving.done():
            self._archives.took.append(self._archiving.result())
            self._archiving = None
        if self._archiving is None and self._archives.begin(load):
            self._archiving = pool.submit(self._nightly.run, "archive")

    def _refuse_lag(self, now: float, silent: float) -> None:
        """Raise if the load is not what it is to be. silent: seconds since the last report of the job."""
        sent = (self._traffic.sent - self._traffic.begins) / 1_000_000
        lag = self._state.lag([STREAM])
        self._lags.append((now, float(lag)))
        for who, behind, most in (
            ("the sender", now - sent, _SENDER_BEHIND_SECONDS),
            ("the job", max(silent, lag / self._rate), _JOB_BEHIND_SECONDS),
        ):
            if behind > most:
                raise SystemExit(
                    f"{who} is {behind:.0f} s behind after {now / 60:.1f} min at {self._rate}/s; choose a lower rate, "
                    f"or see the job's log, which ends:\n{self._job.process.tail(40)}"
                )

    def print_facts(self) -> None:
        """Print what was done, also of a load that did not end."""
        if self._sent is not None:
            fact("sent at a constant rate", records=self._sent.records, seconds=round(self._sent.seconds, 1))
        for each in (self._changes, self._archives, self._kills):
            if each.took:
                median, most = round(float(np.median(each.took)), 2), round(max(each.took), 2)
                fact(each.title, count=len(each.took), median=median, most=most)
        if self._lags:
            fact("lag of the job, records", **quarters(self._lags))
        fact("starts of the job after kills of a worker", count=self._job.starts - self._starts)

    def checks(self) -> list[Check]:
        """Checks that everything was done as often as it was to be."""
        seconds = self._minutes * 60
        return [
            Check(f"load: {name}", len(each.took), each.expected(seconds))
            for name, each in (("rule changes", self._changes), ("archives", self._archives), ("kills", self._kills))
        ]


def change(number: int, rules: list[dict[str, Any]], arrival: int) -> dict[str, Any]:
    """A change of a rule: its windows halved, on trial, live again, and its windows as they were, in turn."""
    rule, step = rules[number // 4 % len(rules)], number % 4
    by = {"effective": iso_text(arrival + _SOON), "author": "soak", "reason": f"change {number}"}
    if step in {0, 3}:
        return (rule if step else halved(rule)) | by
    return {"control": "shadow" if step == 1 else "resume", "rule": rule["id"]} | by


def publish(settings: Settings, messages: list[dict[str, Any]], arrival: int) -> float:
    """Publish rule messages; return the seconds until all are in effect or wait for their time."""
    began = time.monotonic()
    with rule_topics.AnswerReader(settings) as answers:
        rule_topics.send(settings, messages, arrival)
        for status in answers.until_settled(messages, _ANSWER_SECONDS):
            assert status.answer is not Answer.REJECTED, f"{status.rule_id}: {status.reasons}"
    return time.monotonic() - began
