"""What a backfill needs to know: the lake, how to publish, and what a run is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Literal

from lake.config import LakeConfig
from rules.errors import NightjarError
from rules.streams import Stream
from rules.timestamps import microseconds


class BackfillError(NightjarError):
    """A run cannot be made, or failed."""


@dataclass(frozen=True)
class BackfillConfig:
    """lake: where events, alerts and results are. python_kafka: what kafka-python's clients are given.

    arrival: who stamps arrivals; only where the broker does has a day an end that can be known.
    """

    lake: LakeConfig
    python_kafka: Mapping[str, object] = field(repr=False)  # may hold passwords
    arrival: Literal["broker", "producer"]

    @property
    def streams(self) -> Mapping[str, Stream]:
        """The declared streams, by name."""
        return self.lake.streams


@dataclass(frozen=True)
class Request:
    """A run as asked for. rules: ids (none: all); groups: field to values (none: all); publish: put corrections on
    Kafka; dry_run: stop before anything but the staged data is written; days: how many, from `day` on, to evaluate at
    once, where nothing is reconciled."""

    run_id: str
    day: date
    rules: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    publish: bool = True
    dry_run: bool = False
    days: int = 1

    @property
    def whole(self) -> bool:
        """Whether it is about all rules and groups."""
        return not self.rules and not self.groups

    @property
    def begin(self) -> int:
        """When the day begins, µs."""
        return microseconds_of_day(self.day)

    @property
    def end(self) -> int:
        """When the day after begins, µs."""
        return microseconds_of_day(self.day + timedelta(days=self.days))

    def staged(self, lake: LakeConfig) -> Path:
        """The folder of what the run has found so far; it stays for inspection where the run fails."""
        return lake.root / "staging" / self.run_id


def microseconds_of_day(day: date) -> int:
    """When the day begins (UTC), in µs."""
    return microseconds(datetime.combine(day, time.min, UTC))
