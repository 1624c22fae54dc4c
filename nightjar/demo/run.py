"""Runs the demo's stages in order."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from nightjar.configuration.settings import Settings
from nightjar.contracts.rule_messages import rule_message
from nightjar.demo import blocked, report
from nightjar.demo.history import DemoHistory, draw_history
from nightjar.demo.keeping import keep
from nightjar.demo.night import NightResults, pass_nights
from nightjar.demo.sandbox import own_settings
from nightjar.demo.verdict import StreamVerdict, compare
from nightjar.demo.watching import Tally, Watch
from nightjar.installation import shipped
from nightjar.kafka import rule_topics, topics
from nightjar.local.job_process import JobProcess, JobProcessError
from nightjar.local.kafka import LocalKafka
from nightjar.operations import job_watch
from nightjar.operations.job_watch import JobState
from nightjar.operations.status import read_status
from nightjar.operations.tables import read_tables
from nightjar.replay import RecordKind, send_together
from nightjar.rules.errors import NightjarError
from nightjar.rules.model import load_rules
from nightjar.rules.publishing import Answer
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.timestamps import from_microseconds, iso_text
from nightjar.terminal.alert_lines import Alert, alert_line
from nightjar.terminal.console import SafeConsole, counted, line, lines
from nightjar.terminal.stages import Stages, terminated_as_interrupt

# Two days pass in about 75 seconds.
SPEED = 2_300.0

RULES = shipped("examples") / "rules.yaml"
CHANGES = shipped("examples") / "changes.yaml"

_HOUR = 3_600_000_000
_ANSWER_SECONDS = 60.0
_DRAIN_SECONDS = 120.0


def run(console: SafeConsole, *, keep_running: bool = False) -> bool:
    """Run the demo; return whether every check passed.

    Either way, everything it started is stopped and its files are removed. keep_running: only once somebody has pressed
    Ctrl-C, to look around in it before.

    Raises:
        NightjarError: a stage fails.
    """
    stages = Stages(console)
    with terminated_as_interrupt(), own_settings(declare=blocked.declare) as given:
        streams = load_streams(given.streams)
        with stages.stage("Events", "simulating two days of payments and logins, with fraud"):
            history = draw_history(streams)
            _show_history(stages, history)
        with ExitStack() as running:
            try:
                settings, job = _start(stages, running, given, streams)
                with _log_shown_on_failure(console, job):
                    outcome = _play(stages, settings, streams, history, job)
                with stages.stage("Job", "stopping once its batch is finished; the backfill needs the processors"):
                    job.stop()
                night = pass_nights(stages, settings, streams, history)
                corrected = _corrected(settings, streams, history)
                if keep_running:
                    passed = _show(console, history, outcome, night, corrected)
                    with suppress(KeyboardInterrupt):
                        keep(stages, settings, streams, night.docs)
            except KeyboardInterrupt:
                stages.announce("Interrupted", "stopping and removing everything")
                raise
            stages.announce("Stopping", "Kafka")
    if keep_running:
        return passed
    passed = _show(console, history, outcome, night, corrected)
    console.print("`nightjar demo --keep` leaves it running, with pages to look around in.")
    return passed


@contextmanager
def _log_shown_on_failure(console: SafeConsole, job: JobProcess) -> Iterator[None]:
    try:
        yield
    except NightjarError as failure:
        if not isinstance(failure, JobProcessError | job_watch.JobNotThereError):  # which show it already
            console.print(lines(f"the job's log ends with:\n{job.tail()}", "red"), soft_wrap=True)
        raise


def _start(
    stages: Stages, running: ExitStack, settings: Settings, streams: dict[str, Stream]
) -> tuple[Settings, JobProcess]:
    with stages.stage("Kafka", f"starting a broker in {settings.kafka_dir}"):
        broker = running.enter_context(LocalKafka(settings, short_lived=True))
        settings = broker.settings
        stages.note(f"listening on {broker.bootstrap}")
    with stages.stage("Topics", "creating them so that the replay sets each record's arrival"):
        stages.note(", ".join(topics.ensure(settings, streams.values())))
    environment = {"NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap}
    job = JobProcess(settings.data_dir / "job.log", environment, settings.data_dir)
    with stages.stage("Job", "`nightjar stream` in a process of its own: Spark starts and warms up"):
        running.enter_context(job)
        with stages.waiting("takes half a minute on a slow machine"):
            job_watch.await_running(settings, job)
    return settings, job


def _play(
    stages: Stages, settings: Settings, streams: dict[str, Stream], history: DemoHistory, job: JobProcess
) -> "_Outcome":
    addresses = blocked.suspicious(history)
    many = counted(len(addresses), "address", "addresses")
    with stages.stage("List", f"blocking {many} for some hours of the first day"):
        blocked.block(settings, history, addresses)
    files = (RULES, blocked.RULES)
    named = " and ".join(file.name for file in files)
    with stages.stage("Rules", f"publishing {named} of {RULES.parent.name} an hour before the first event"):
        messages = [rule_message(rule) for file in files for rule in load_rules(file, streams)]
        with rule_topics.AnswerReader(settings) as answers:
            rule_topics.send(settings, messages, history.begins - _HOUR)
            _show_answers(stages.note, answers, messages)
    with ExitStack() as shown:
        bar = Progress(
            TextColumn("    {task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=stages.console,
            transient=True,
            disable=not stages.console.is_terminal,
        )
        replay = _Replay(settings, streams, history, addresses, bar)
        with stages.stage(
            "Replay", f"{counted(history.records, 'record')} at {SPEED:,.0f} times real time, with alerts as they come"
        ):
            watch = shown.enter_context(Watch(settings, replay.show))
            with bar:
                replay.play(job)
        with stages.stage("Catching up", "the job reads the remaining records"):
            with stages.waiting("waiting until it has committed everything"):
                state = job_watch.await_consumed(settings, history.streams, job, _DRAIN_SECONDS)
            tally, batches = watch.finish(), read_status(settings).batches
    with stages.stage("Truth", "evaluating all events at once, and comparing the result with the final alerts"):
        comparisons = _compared(settings, streams, history, tally)
    published = {rule.id for file in (*files, CHANGES) for rule in load_rules(file, streams)}
    return _Outcome(tally, state, batches, comparisons, published)


def _corrected(settings: Settings, streams: dict[str, Stream], history: DemoHistory) -> dict[str, StreamVerdict]:
    """Compare what a consumer of the alerts topic now has with the truth."""
    with Watch(settings, lambda _: None) as watch:
        return _compared(settings, streams, history, watch.finish())


def _compared(
    settings: Settings, streams: dict[str, Stream], history: DemoHistory, tally: Tally
) -> dict[str, StreamVerdict]:
    """Compare the final alerts with the truth of the rule versions on the rules topic, by stream."""
    ruleset, tables = rule_topics.rule_book(settings, streams).ruleset, read_tables(settings, streams).rows
    return {
        name: compare(share.stream, ruleset, share.events, tally.final_alerts(name), tables)
        for name, share in history.streams.items()
    }


@dataclass(frozen=True)
class _Outcome:
    """The job's alerts and counts, its batch times, its comparison with the truth by stream, and the ids of the rules
    that were published."""

    tally: Tally
    state: JobState
    batches: dict[str, Any]
    comparisons: dict[str, StreamVerdict]
    rules: set[str]


@dataclass
class _Replay:
    """Sends the history in three parts: until the rules change, until the change takes effect, and the rest."""

    settings: Settings
    streams: dict[str, Stream]
    history: DemoHistory
    addresses: list[str]
    """Those that are blocked."""
    bar: Progress

    def play(self, job: JobProcess) -> None:
        """Send all records; those from the change on only once the job has confirmed the changed rules."""
        history = self.history
        task = self.bar.add_task("", total=history.records)
        send = partial(self._send, advance=lambda count: self.bar.advance(task, count), job=job)
        send(history.begins, history.change_published)
        since = from_microseconds(history.change_holds)
        changes = [
            rule_message(rule.model_copy(update={"effective": since})) for rule in load_rules(CHANGES, self.streams)
        ]
        with rule_topics.AnswerReader(self.settings) as answers:
            self._note(
                f"publishing {' and '.join(rule['id'] for rule in changes)}, effective from {since:%d %b %H:%M}", "bold"
            )
            rule_topics.send(self.settings, changes, history.change_published)
            self._note(f"removing the addresses from {blocked.TABLE}, valid from {since:%d %b %H:%M}", "bold")
            blocked.unblock(self.settings, history, self.addresses)
            send(history.change_published, history.change_holds)
            _show_answers(self._note, answers, changes)
        send(history.change_holds, history.ends)

    def show(self, alert: Alert) -> None:
        """Print an alert above the progress bar."""
        console = self.bar.console
        terminal = console if isinstance(console, SafeConsole) else None
        console.print(alert_line(alert, terminal, "    "), soft_wrap=True)

    def _send(self, begin: int, end: int, *, advance: Callable[[int], object], job: JobProcess) -> None:
        job.check()
        parts = self.history.part(begin, end)
        send_together(self.settings, self.streams, parts, speed=SPEED, begins=begin, progress=advance)

    def _note(self, text: str, style: str = "") -> None:
        self.bar.console.print(line((f"    {text}", style)), soft_wrap=True)


def _show_answers(
    note: Callable[[str], None], answers: rule_topics.AnswerReader, messages: list[dict[str, object]]
) -> None:
    """Print rules as they become active, until all have.

    Raises:
        NightjarError: one is rejected.
    """
    for status in answers.until_settled(messages, _ANSWER_SECONDS):
        if status.answer is Answer.REJECTED:
            raise NightjarError("\n".join(status.reasons), where=f"rule {status.rule_id}", remedy="Correct the example")
        if status.answer is Answer.ACTIVE:
            note(f"{status.rule_id} version {status.version} is active, and applies from {status.effective}")


def _show_history(stages: Stages, history: DemoHistory) -> None:
    for name, share in history.streams.items():
        disordered, late, twice, malformed = (
            f"{share.kinds[kind]:,}"
            for kind in (RecordKind.DISORDERED, RecordKind.LATE, RecordKind.DUPLICATE, RecordKind.MALFORMED)
        )
        events = counted(share.events.num_rows, "event")
        stages.note(
            f"{name}: {events}, {disordered} of them out of order and {late} late; {twice} sent twice; "
            f"{malformed} malformed"
        )
    stages.note(f"from {iso_text(history.begins)} to {iso_text(history.ends)}")


def _show(
    console: SafeConsole,
    history: DemoHistory,
    outcome: _Outcome,
    night: NightResults,
    corrected: dict[str, StreamVerdict],
) -> bool:
    tally, comparisons = outcome.tally, outcome.comparisons
    found = [
        *report.checks(history.streams, tally, outcome.state, comparisons),
        report.rules_check(tally, outcome.rules),
        *report.night_checks(history, tally, night, comparisons, corrected),
    ]
    console.print()
    console.print(lines(night.explained), soft_wrap=True)
    console.print(report.records_table(history, tally, outcome.state))
    console.print(report.rules_table(tally, comparisons))
    console.print(report.latency_table(tally, outcome.batches))
    console.print(report.night_table(night))
    console.print(report.verdict(found, comparisons))
    console.print(f"data docs of the quality gate (readable offline): {night.docs}", soft_wrap=True)
    passed = all(check.holds for check in found)
    console.print(line(("All checks passed.", "bold green") if passed else ("Some checks failed.", "bold red")))
    return passed
