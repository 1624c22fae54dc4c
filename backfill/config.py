"""The configuration of a backfill: the lake, how to publish, and the request of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from pathlib import Path
from typing import Literal

from nightjar.expectations.own import OwnExpectations, own_expectations
from nightjar.expectations.suites import events_suite, reconciliation_suite, violations_suite
from nightjar.lake.config import LakeConfig
from nightjar.lake.tables import events_table
from nightjar.rules.errors import NightjarError
from nightjar.rules.streams import Stream, recorded_streams
from nightjar.rules.timestamps import microseconds
from nightjar.storage.lease import Fence
from nightjar.storage.paths import AnyPath

DAY = 86_400_000_000  # µs


class BackfillError(NightjarError):
    """A run cannot start, or failed."""


@dataclass(frozen=True)
class BackfillConfig:
    """The lake, and how a run judges and publishes."""

    lake: LakeConfig
    arrival: Literal["broker", "producer"]
    """Who stamps arrivals; only if the broker does, the end of a day is known."""
    staging_retention: int = 7 * DAY
    """How long the staged folder of a finished run is kept, µs."""
    pending_days: int = 31
    """How many days back to search for pending ones."""
    alerts_per_rule_and_hour: int | None = None
    """New alerts of a rule after which further ones are marked as overflow; None: none is."""
    expectations: Path | None = None
    """Folder of what the gate checks beside what is shipped."""

    @cached_property
    def own(self) -> OwnExpectations:
        """What is in that folder.

        Raises:
            DeclarationError: something in it cannot be used.
        """
        events = [
            events_suite(stream, events_table(stream).columns) for stream in recorded_streams(self.streams.values())
        ]
        return own_expectations(self.expectations, [*events, violations_suite(), reconciliation_suite(0, 0)])

    def fenced(self, fence: Fence | None) -> BackfillConfig:
        """The same, for the holder of the lease on a lake in an object store; None: it is on a file system."""
        return replace(self, lake=replace(self.lake, fence=fence))

    @property
    def streams(self) -> Mapping[str, Stream]:
        """The declared streams, by name."""
        return self.lake.streams


@dataclass(frozen=True)
class RunRequest:
    """A run as asked for."""

    run_id: str
    day: date
    rules: tuple[str, ...] = ()
    """Ids; none: all."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field to values; none: all."""
    publish: bool = True
    """Put corrections on Kafka."""
    dry_run: bool = False
    """Stop before anything but the staged data is written."""
    days: int = 1
    """How many, from `day` on, to evaluate at once, where nothing is reconciled."""

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

    def staged(self, lake: LakeConfig) -> AnyPath:
        """The folder of the run's results so far; it is kept for inspection if the run fails."""
        return staging_folder(lake) / self.run_id


def staging_folder(lake: LakeConfig) -> AnyPath:
    """Where the staged folders of all runs are, each under its run's id."""
    return lake.root / "staging"


def microseconds_of_day(day: date) -> int:
    """When the day begins (UTC), in µs."""
    return microseconds(datetime.combine(day, time.min, UTC))
