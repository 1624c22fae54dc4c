"""Checks S5 and S9 over the whole life of rules: proposed, approved, primed, changed, on trial, live again and retired.

    python -m checks.soak.rule_life [--generated 40000] [--days 3] [--rules 20] [--kills 1] [--rate 8000] [--seed 1]

Real broker, real job, real backfill. A history of payments with late, disordered, repeated and malformed records is
replayed faster than the job reads it. At even distances in it rules take the next step of their lives, some of them at
a time: each step is proposed by one person and approved by another, and takes effect an hour later. The job is killed
meanwhile. Then `nightjar backfill` runs all days. Checks: each version has exactly the answers that its life asks for,
every difference between stream and truth has a cause, and the corrected alerts equal the truth, which is computed
independently; alerts beyond the cap of an hour are marked in all their records, and none is marked early. Prints one
JSON line per fact; exits with 0 if all checks pass.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from checks.bench.figures import log_progress
from checks.bench.payments import DECLARED, STREAM, halved, rules_of, simulated
from checks.bench.processes import KilledJob
from checks.soak.end_to_end import (
    compared,
    conclude,
    consumed,
    fact,
    lake_checks,
    log_unexplained,
    night_checks,
    pass_nights,
    print_state,
    stage,
)
from nightjar.configuration.settings import Settings
from nightjar.contracts.rule_messages import Message, approval_message, rule_of
from nightjar.demo.history import DemoHistory, history_of, planned
from nightjar.demo.report import Check, checks
from nightjar.demo.sandbox import own_settings
from nightjar.kafka import rule_topics, topics
from nightjar.kafka.readers import Reader
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS
from nightjar.local.kafka import LocalKafka
from nightjar.operations.job_watch import await_consumed, await_running
from nightjar.replay import ReplayOptions, send
from nightjar.rules.publishing import CONTROLS, Answer
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.states import State
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.timestamps import iso_text, microseconds
from nightjar.terminal.stages import terminated_as_interrupt

_HOUR = 3_600_000_000
_DAY = 24 * _HOUR
# The steps of a rule's life, after its publication.
LIFE = ("change", "shadow", "resume", "pause", "resume", "retire")
# At which steps rules begin their lives, in turn; the last ones once the state has evicted events.
_START = (0, 1, 2, 6)
# Alerts of a rule in an hour, of which a few days of the history have dozens.
_CAP = 3
_ANSWER_SECONDS = 300.0
_DRAIN_SECONDS = 1200.0
_ENDED_SECONDS = 120.0


def lived(count: int, widest: int) -> list[dict[str, Any]]:
    """The rules. Those that begin last have the widest windows (µs), so that the state lacks events they need: they are
    primed."""
    made = rules_of(count, widest)
    return [rule if _START[at % len(_START)] == max(_START) else halved(halved(rule)) for at, rule in enumerate(made)]


def step_of(rule: dict[str, Any], number: int, effective: int) -> Message:
    """The message of a step of a rule's life: 0 is its publication. effective: µs."""
    by = {"effective": iso_text(effective), "author": "ann", "reason": f"step {number}"}
    if number == 0:
        return rule | by
    what = LIFE[number - 1]
    return halved(rule) | by if what == "change" else {"control": what, "rule": rule["id"]} | by


def due(rules: list[dict[str, Any]], number: int, effective: int) -> list[Message]:
    """The messages at the time of this number. effective: µs."""
    steps = ((rule, number - _START[at % len(_START)]) for at, rule in enumerate(rules))
    return [step_of(rule, step, effective) for rule, step in steps if 0 <= step <= len(LIFE)]


def publish(settings: Settings, messages: list[Message], arrival: int) -> None:
    """Have messages proposed by one person and approved by another, and wait for the answers."""
    log_progress(f"{len(messages)} rules take a step, arriving at {iso_text(arrival)}")
    proposed: dict[str, int] = {}
    with rule_topics.AnswerReader(settings) as answers:
        rule_topics.send(settings, messages, arrival)
        for status in answers.until_settled(messages, _ANSWER_SECONDS):
            if status.answer is Answer.PROPOSED:
                proposed[str(status.rule_id)] = int(status.version or 0)
    assert proposed.keys() == {rule_of(message) for message in messages}, "each is proposed"
    by_state: dict[State, list[Message]] = {}
    for message in messages:
        state = CONTROLS[message["control"]] if "control" in message else State(message["state"])
        rule_id = rule_of(message)
        by_state.setdefault(state, []).append(approval_message(rule_id, proposed[rule_id], "bob", "seen"))
    for state, approvals in by_state.items():
        with rule_topics.AnswerReader(settings) as answers:
            rule_topics.send(settings, approvals, arrival)
            for status in answers.until_settled(approvals, _ANSWER_SECONDS, state):
                assert status.answer is not Answer.REJECTED, f"{status.rule_id}: {status.reasons}"


def play(
    settings: Settings, stream: Stream, history: DemoHistory, rules: list[dict[str, Any]], options: argparse.Namespace
) -> None:
    """Send the history; between its parts rules take steps, the first ones before it begins."""
    share, span = history.streams[STREAM], history.ends - history.begins
    speed = span / 1_000_000 / (share.records / options.rate)
    steps = max(_START) + 1 + len(LIFE)
    # the last steps take effect well before the end, so that the clock comes to them
    begins = [history.begins + span * number // (steps + 1) for number in range(steps)]
    for number, (begin, end) in enumerate(zip(begins, [*begins[1:], history.ends], strict=True)):
        if messages := due(rules, number, begin + _HOUR):
            publish(settings, messages, begin if number else begin - 2 * _HOUR)
        part = history.part(begin, end)[STREAM]
        if part.num_rows:
            send(settings, stream, [part], speed=speed, shifted=False)


def await_ended(settings: Settings, streams: dict[str, Stream], rules: int) -> RuleBook:
    """The rule book, once every rule is answered RETIRED, or after a time."""
    deadline = time.monotonic() + _ENDED_SECONDS
    while True:
        book = rule_topics.rule_book(settings, streams)
        if len(book.retired) >= rules or time.monotonic() > deadline:
            return book
        time.sleep(1)


def answer_checks(settings: Settings, book: RuleBook, rules: int) -> list[Check]:
    """Checks that each version has the answers of its life, each once."""
    with Reader(settings, settings.rule_status_topic) as reader:
        answers = [json.loads(record.value) for record in reader.all()]
    given = Counter((each["status"], each["rule_id"], each["rule_version"]) for each in answers)
    total = Counter(each["status"] for each in answers)
    primed = {each["rule_id"] for each in answers if each.get("history_since") is not None}
    fact("answers", **total, primed=len(primed))
    steps = 1 + len(LIFE)
    evaluated = sum(version.rule.state.is_evaluated for version in book.every)
    approved = sum(version.approval is not None for version in book.every)
    by_number = [book.of_rule(rule_id) for rule_id in book.rule_ids]
    ended = sum(name in book.superseded for versions in by_number for name in _names(versions[:-1]))
    return [
        Check("answers: versions", len(book.every), rules * steps),
        Check("answers: versions approved by a second person", approved, rules * steps),
        Check("answers: PROPOSED", total[Answer.PROPOSED], rules * steps),
        Check("answers: ACCEPTED", total[Answer.ACCEPTED], rules * steps),
        Check("answers: ACTIVE, of each version that is evaluated", total[Answer.ACTIVE], evaluated),
        Check("answers: SUPERSEDED, of each version but the last", ended, rules * (steps - 1)),
        Check("answers: RETIRED, of each rule", total[Answer.RETIRED], rules),
        Check("answers: some rules were primed", int(bool(primed)), 1),
        Check("answers: any of them twice", sum(count > 1 for count in given.values()), 0),
    ]


def overflow_checks(settings: Settings) -> list[Check]:
    """Checks that an alert has the mark in all of its records or in none, and only beyond the cap (S10.6)."""
    records = scan(settings.lake, ALERTS).filter(pl.col("source") == "stream").collect()
    marked = pl.col("overflow").fill_null(value=False)
    alerts = records.group_by("alert_id", "rule_id", pl.col("event_time").dt.truncate("1h")).agg(
        marked.any().alias("marked"), marked.n_unique().alias("marks")
    )
    hours = alerts.group_by("rule_id", "event_time").agg(
        pl.col("marked").sum(), (~pl.col("marked")).sum().alias("rest")
    )
    most = hours.get_column("rest").max()
    fact("overflow", marked=alerts.get_column("marked").sum(), cap=_CAP, most_without_mark=most)
    early = hours.filter(pl.col("marked") > 0, pl.col("rest") < _CAP)
    return [
        Check(
            "overflow: alerts with the mark in some of their records only", alerts.filter(pl.col("marks") > 1).height, 0
        ),
        Check("overflow: hours with a mark before the cap", early.height, 0),
    ]


def _names(versions: Any) -> list[tuple[str, int]]:
    return [(version.rule.id, version.version) for version in versions]


def options_of() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generated", type=int, default=40_000)
    parser.add_argument("--days", type=int, default=3)
    for flaw, share in (("late", 0.01), ("disorder", 0.03), ("duplicates", 0.005), ("malformed", 0.001)):
        parser.add_argument(f"--{flaw}", type=float, default=share)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rules", type=int, default=20)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--rate", type=float, default=8000, help="records sent a second")
    parser.add_argument("--batch", type=int, default=5_000, help="the most records of a micro-batch")
    return parser.parse_args()


def main() -> None:
    """Replay, run the backfills, and print the facts; exit with 1 if a check fails."""
    options = options_of()
    with terminated_as_interrupt(), tempfile.TemporaryDirectory(prefix="nightjar-soak-") as folder:
        declared = Path(folder) / "streams.toml"
        declared.write_text(DECLARED)
        found = played(options, declared)
    conclude(found)


def played(options: argparse.Namespace, declared: Path) -> list[Check]:
    """Generate the history and replay it; return the checks."""
    streams = load_streams(declared)
    stream, widest = streams[STREAM], options.days * _DAY // 6
    flaws = ReplayOptions(
        late=options.late,
        disorder=options.disorder,
        duplicates=options.duplicates,
        malformed=options.malformed,
        seed=options.seed,
        max_delay=stream.allowed_lateness * 9 // 10,
        max_late=widest // 2,
    )
    with stage("planning the history"):
        events: pa.Table = simulated(options.generated, options.days, options.seed)
        share = planned(events.cast(stream.schema), stream, flaws)
        history = history_of({STREAM: share}, microseconds(pc.min(share.events["event_time"]).as_py()))
    fact("sent", records=share.records, events=share.events.num_rows, **share.kinds)
    memory = {"driver_memory": "2g", "kafka_heap": "512m"}
    given = {"streams": str(declared), "buckets": 4, "approvals": 1, "max_offsets_per_trigger": options.batch}
    given["alerts_per_rule_and_hour"] = _CAP
    with own_settings(**given, **memory) as settings:
        return run(settings, streams, history, lived(options.rules, 3 * widest), options)


def run(
    given: Settings,
    streams: dict[str, Stream],
    history: DemoHistory,
    rules: list[dict[str, Any]],
    options: argparse.Namespace,
) -> list[Check]:
    """Run everything on its own broker; return the checks."""
    share = history.streams[STREAM]
    with ExitStack() as running:
        settings = running.enter_context(LocalKafka(given)).settings
        topics.ensure(settings, streams.values())
        job = running.enter_context(KilledJob(settings, STREAM, share.records, options.kills, options.seed))
        with stage("starting the job"):
            await_running(settings, job.process)
        with stage("replay"):
            job.begin()
            play(settings, share.stream, history, rules, options)
            job.settle()
            state = await_consumed(settings, history.streams, job.process, _DRAIN_SECONDS)
        with stage("waiting until all rules have ended"):
            book = await_ended(settings, streams, len(rules))
        fact("kills", kills=len(job.downtimes), seconds_until_it_runs_again=job.downtimes)
        job.process.stop()
        print_state(settings)
        tally = consumed(settings)
        before = compared(settings, streams, history, tally)
        counts = {name: sum(getattr(tally, name).values()) for name in ("announced", "revisions", "retractions")}
        fact("alerts", violations=before.violations, **counts, equal=before.equal)
        with stage("the nights"):
            code = pass_nights(settings, history.begins, history.ends)
        if code:
            log_unexplained(settings)
        with stage("truth, after the nights"):
            after = compared(settings, streams, history, consumed(settings))
        return [
            Check("kills", len(job.downtimes), options.kills),
            *answer_checks(settings, book, len(rules)),
            *checks(history.streams, tally, state, {STREAM: before}),
            *lake_checks(settings, share.stream, share.records, tally),
            *overflow_checks(settings),
            *night_checks(settings, code, tally, before, after),
        ]


if __name__ == "__main__":
    main()
