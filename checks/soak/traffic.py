"""Payments at a steady rate for checks/soak/endurance.py, made and planned minute by minute while they are sent.

How it works: a minute is a function of its number, the rate and the seed. Its plan has late, disordered, repeated and
malformed records, some of which arrive in a later minute. Once planned, the events go to disk (checks/soak/parts.py)
and the records are only counted, so the memory does not grow with the time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from checks.soak.parts import Parts
from nightjar.demo.history import planned
from nightjar.replay import ReplayOptions
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import microseconds

MINUTE = 60_000_000
# Payments of a customer and at a terminal within the widest window, and the share of those that come in bursts.
_USUAL, _AT_TERMINAL, _BURSTS, _IN_BURST = 0.5, 3, 0.002, 6
_FLAWS = ReplayOptions(disorder=0.03, late=0.002, duplicates=0.005, malformed=0.001)
_PIECE = 5_000  # records that are sent whatever happens
_SEEDS = 1 << 32


def payments(minute: int, begins: int, rate: int, window_minutes: int, seed: int) -> pa.Table:
    """A minute of payments, in order of time. begins: minute 0, µs."""
    rng, rows = np.random.default_rng([seed, minute % _SEEDS]), rate * 60
    customers = rng.integers(0, max(1, int(rows * window_minutes / _USUAL)), rows)
    bursts = rng.random(rows) < _BURSTS
    customers[bursts] = rng.integers(0, max(1, int(rows * _BURSTS / _IN_BURST)), bursts.sum()) * 7 + minute % 7
    times = np.sort(rng.integers(0, MINUTE, rows)) + begins + minute * MINUTE
    cents = np.minimum(rng.lognormal(7.8, 0.8, rows), 5_000_000)
    made = pl.DataFrame(
        {"c": customers, "t": rng.integers(0, max(1, rows * window_minutes // _AT_TERMINAL), rows)}
    ).select(
        pl.format("{}-{}", pl.lit(minute), pl.int_range(rows)).alias("transaction_id"),
        pl.format("c{}", "c").alias("customer_id"),
        pl.format("m{}", "t").alias("terminal_id"),
    )
    amounts = pc.multiply(pa.array(cents.astype(np.int32)).cast(pa.decimal128(12, 0)), pa.scalar(Decimal("0.01")))
    table: pa.Table = made.to_arrow().append_column("amount", amounts)
    return table.append_column("event_time", pa.array(times).cast(pa.timestamp("us", "UTC")))


class Traffic:
    """The payments of one stream with flaws, and counts of what was planned so far, as `nightjar.demo.report.Sent`.

    begins: minute 0, µs. stopped: set it to send nothing more. sent: everything that arrives before this time (µs) was
    handed over to be sent. ends: after the last arrival, µs.
    """

    def __init__(self, stream: Stream, parts: Parts, begins: int, window_minutes: int, seed: int) -> None:
        self.stream, self.begins = stream, begins
        self.stopped = threading.Event()
        self.sent = self.ends = begins
        self.kinds, self.reasons = Counter[str](), Counter[str]()
        self._parts, self._window_minutes, self._seed = parts, window_minutes, seed

    @property
    def records(self) -> int:
        """Number of planned records."""
        return self.kinds.total()

    def minute(self, number: int, rate: int) -> pa.Table:
        """Its records, in order of arrival, some of which is after the minute."""
        made = payments(number, self.begins, rate, self._window_minutes, self._seed)
        flaws = replace(_FLAWS, seed=(self._seed + number) % _SEEDS)
        share = planned(made.select(self.stream.schema.names).cast(self.stream.schema), self.stream, flaws)
        self._parts.add(share.events)
        self.kinds += share.kinds
        self.reasons += share.reasons
        self.ends = max(self.ends, microseconds(pc.max(share.plan["arrival_time"]).as_py()) + 1)
        return share.plan

    def minutes(self, count: int, rate: int) -> Iterator[pa.Table]:
        """All records of so many minutes, in order of arrival; the next minute is planned while one is sent."""
        left: pa.Table | None = None
        with ThreadPoolExecutor(1) as pool:
            following: Future[pa.Table] = pool.submit(self.minute, 0, rate)
            for number in range(count):
                made = following.result()
                if number + 1 < count:
                    following = pool.submit(self.minute, number + 1, rate)
                made = made if left is None else pa.concat_tables([left, made]).sort_by("arrival_time")
                arrivals = made["arrival_time"].cast(pa.int64()).to_numpy()
                due = int(np.searchsorted(arrivals, self.begins + (number + 1) * MINUTE))
                for piece in range(0, due, _PIECE):
                    if self.stopped.is_set():
                        return
                    self.sent = int(arrivals[piece])
                    yield made.slice(piece, min(_PIECE, due - piece))
                left = made.slice(due)
        self.sent = self.ends
        if left is not None and left.num_rows:
            yield left
