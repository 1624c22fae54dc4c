"""The job's reports on its progress, and with them the clocks of its streams."""

from __future__ import annotations

import os
from collections.abc import Mapping

from nightjar.contracts.job_progress import DRIVER_KEY, Batches, JobReport
from nightjar.contracts.json_text import ascii_json
from nightjar.streaming.config import JobConfig, Latency
from nightjar.streaming.driver.clock import Arrivals, BrokerClock, ClockPublisher, PartitionProgress
from nightjar.streaming.driver.outbox import Outbox
from nightjar.streaming.driver.progress import lag_report
from nightjar.streaming.driver.rule_changes import RuleChanges
from nightjar.streaming.state.checkpoint import Checkpoint
from nightjar.streaming.state.metadata import Offsets


class Reporter:
    """Publishes the reports, and the clocks when due; `rules` learns of these."""

    def __init__(
        self,
        config: JobConfig,
        checkpoint: Checkpoint,
        rules: RuleChanges,
        *,
        arrivals: Arrivals,
        brokers: BrokerClock,
        outbox: Outbox,
    ) -> None:
        self._topic, self._clock_topic = config.topics.job_progress, config.topics.clock
        self._checkpoint, self._rules = checkpoint, rules
        self._arrivals, self._brokers, self._outbox = arrivals, brokers, outbox
        self._clocks = ClockPublisher(config, brokers, outbox.send)

    def report(self, state: str, mode: Latency, batches: Batches) -> None:
        """Publish the job's state and progress. mode: of the query; batches: those since the last report.

        Raises:
            KafkaError: no broker answers.
        """
        # looked up after the brokers stamped the last clock: what arrived before it is in the partitions' progress
        stamped, committed = self._brokers.stamped, self._checkpoint.committed_offsets()
        read = self._checkpoint.positions(committed)
        progress = self._arrivals.progress(read)
        self._clocks.take_in(read.get(self._clock_topic, {}).get(0, 0))
        report = self._job_report(state, mode, batches, progress, committed)
        self._outbox.send(self._topic, ascii_json(report), key=DRIVER_KEY)
        if state != "running":
            return
        if published := self._clocks.publish_if_due(self._checkpoint.run_id, progress, stamped):
            self._rules.conclude(published, read)

    def _job_report(
        self,
        state: str,
        mode: Latency,
        batches: Batches,
        progress: Mapping[str, list[PartitionProgress]],
        committed: Offsets,
    ) -> JobReport:
        book, metadata = self._rules.answering.book, self._checkpoint.metadata
        return {
            "kind": "job",
            "state": state,
            "mode": mode,
            "run_id": self._checkpoint.run_id,
            "process": os.getpid(),
            "at": self._brokers.host(),
            "skew": self._brokers.skew,
            **batches,
            "lag": lag_report(progress, self._brokers.now()),
            # what is in the state: a rebuild begins there
            "consumed": committed,
            "began": (metadata.began if metadata else None) or {},
            "clocks": dict(self._clocks.taken_in),
            "priming": self._rules.priming.report(),
            "rules": {"versions": len(book.answered), "answers": book.next_offset, "skipped": book.skipped},
        }
