"""The topics of nightjar, apart from those of the streams."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topics:
    """Names of the topics, apart from those of the streams."""

    rules: str = "rules"
    tables: str = "tables"
    rule_status: str = "rule-status"
    alerts: str = "alerts"
    restrictions: str = "restrictions"
    late_events: str = "late-events"
    quarantine: str = "quarantine"
    clock: str = "clock"
    job_progress: str = "job-progress"
    labels: str = "labels"
    snoozes: str = "snoozes"
