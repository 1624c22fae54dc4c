"""Generates the two days that the demo replays: simulated events, and the records to send with every kind of flaw."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.generate import Options, generate
from nightjar.replay import RecordKind, ReplayOptions, replay_plan
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import microseconds

SIMULATION = Options(
    events=30_000,
    days=2,
    customers=2_000,
    terminals=400,
    logins=0.5,
    fraud=0.015,
    start=datetime(2026, 1, 5, tzinfo=UTC),
    seed=7,
)
# Out of order by up to 9 of the 10 allowed minutes, which at the demo's speed spans several micro-batches.
FLAWS = ReplayOptions(disorder=0.15, max_delay=540_000_000, late=0.01, duplicates=0.02, malformed=0.005, seed=11)

_FIRST_SENDINGS = [RecordKind.EVENT, RecordKind.DISORDERED, RecordKind.LATE]


@dataclass(frozen=True)
class Planned:
    """One stream's part of the history.

    plan: see `replay_plan`. events: the stream's fields and arrival_time, each event once.
    """

    stream: Stream
    plan: pa.Table
    events: pa.Table

    @property
    def records(self) -> int:
        """Number of records to send."""
        rows: int = self.plan.num_rows
        return rows

    @property
    def kinds(self) -> Counter[str]:
        """Number of records of each Kind."""
        return Counter(self.plan["kind"].to_pylist())

    @property
    def reasons(self) -> Counter[str]:
        """Malformed records by the reason for which the job must quarantine them."""
        return Counter(self.plan["reason"].drop_null().to_pylist())


@dataclass(frozen=True)
class DemoHistory:
    """All streams' parts, and two instants (µs): when rules are changed, and when the change takes effect.

    The change takes effect 3 hours after it is published. That is longer than a new rule's window, so the job has
    received all events that the rule looks back at (S9).
    """

    streams: dict[str, Planned]
    begins: int
    ends: int

    @property
    def change_published(self) -> int:
        """Arrival of the changed rules."""
        return self.begins + (self.ends - self.begins) * 2 // 5

    @property
    def change_holds(self) -> int:
        """Event time from which they are in effect."""
        return self.change_published + 3 * 3_600_000_000

    @property
    def records(self) -> int:
        """Number of records to send."""
        return sum(planned.records for planned in self.streams.values())

    def part(self, begin: int, end: int) -> dict[str, pa.Table]:
        """The records of each stream that arrive in [begin, end), both µs."""
        return {name: _between(planned.plan, begin, end) for name, planned in self.streams.items()}


def draw_history(streams: dict[str, Stream]) -> DemoHistory:
    """The demo's history; the same every time."""
    return plan_history(streams, SIMULATION)


def plan_history(streams: dict[str, Stream], simulation: Options) -> DemoHistory:
    """Simulate events and plan their replay with every flaw."""
    shares = {name: planned(table, streams[name], FLAWS) for name, table in generate(simulation).items()}
    return history_of(shares, microseconds(simulation.start))


def history_of(shares: dict[str, Planned], begins: int) -> DemoHistory:
    """The history of these parts, up to the last arrival. begins: µs."""
    last = max(microseconds(pc.max(share.plan["arrival_time"]).as_py()) for share in shares.values())
    return DemoHistory(shares, begins, last + 1)


def planned(table: pa.Table, stream: Stream, flaws: ReplayOptions) -> Planned:
    """One stream's part of the history. table: its events; columns other than the stream's fields are ignored."""
    events = table.select(stream.schema.names)
    plan = replay_plan(events, stream, flaws)
    first = pl.DataFrame(plan.select(["kind", "event_id", "arrival_time"])).filter(
        pl.col("kind").is_in(_FIRST_SENDINGS)
    )
    arrivals = first.select(pl.col("event_id").alias(stream.event_id), "arrival_time")
    arrived = pl.DataFrame(events).join(arrivals, on=stream.event_id, how="inner").to_arrow()
    return Planned(stream, plan, arrived.cast(stream.schema.append(plan.schema.field("arrival_time"))))


def _between(plan: pa.Table, begin: int, end: int) -> pa.Table:
    arrivals = plan["arrival_time"].cast(pa.int64()).to_numpy()  # in order
    first, last = np.searchsorted(arrivals, [begin, end])
    return plan.slice(first, last - first)
