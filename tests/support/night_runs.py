"""A run of the job (random_runs.py) beside a lake: what it has read, answered and announced is there for the nights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.lake_nights import LakeNights
from tests.support.random_runs import Answer, Answers, Batch, Restart, Run
from tests.support.stream_host import StreamHost


class NightRun:
    """The job of a run in a folder, and its lake. answers: the versions, for the reference."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        (folder / "state").mkdir()
        self.host = StreamHost(run, folder / "state")
        self.nights = LakeNights(folder / "lake", run.declared)
        self.answers = Answers()
        self._archived_answers = 0

    def take(self, step: Restart | Batch) -> None:
        """Play a step."""
        if isinstance(step, Restart):
            self._restart = step
            self.host.restart(step)
            self.nights.declare(step.allowed_lateness)
            return
        self._prime(step)
        for message in step.messages:
            expected = self.answers.take(message, self._restart)
            (given,) = map(Answer.read, self.host.answer([message]))
            if given == replace(expected, effective=None) != expected and self._may_wait(given.rule_id):
                self.answers.wait(given.rule_id)
            else:
                assert given == expected, f"answer {given}, expected {expected}"
        self.nights.answer(self.host.answers[self._archived_answers :])
        self._archived_answers = len(self.host.answers)
        emitted = self.host.take(step)
        alerts, late = (
            [record for of_bucket in emitted for record in getattr(of_bucket, name)] for name in ("alerts", "late")
        )
        self.nights.read(step.at, step.events, alerts, late, step.clock)

    def _may_wait(self, rule_id: str) -> bool:
        """Whether the rule's newest version may take effect only later."""
        return self._run.primes or self.host.is_made(self.host.shuffle_key_of_rule(rule_id))

    def _prime(self, step: Batch) -> None:
        """What the driver does before a batch for versions that wait for history."""
        self.host.prepare(step)
        for activated in self.host.activate(step.at) if step.history in ("answer", "both") else ():
            self.answers.activate(activated.rule_id, activated.version, activated.effective, step.at)
