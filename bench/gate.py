"""What the gate costs beside reading what it checks.

    python bench/gate.py [EVENTS ...] [--repeats 3]

EVENTS (1,000,000 and 10,000,000) are payments of one day in a lake's table, in as many files as an archive of every
quarter of an hour leaves. The gate's suites of a stream, its records' and its offsets', are checked, Great Expectations
and all; the control is Spark's scan of the same rows and columns in the same session, which does nothing with them.
Also the most memory this process, Spark's driver in Python, has had.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # before this folder, whose backfill.py is another

import numpy as np
import polars as pl
from figures import emit, say, timed

from backfill.checking import EvaluationChecks, counts, heaps_of, parts_of
from expectations.gate import check
from expectations.measured import measured, summed
from expectations.offsets import gaps
from expectations.suites import events_suite, offsets_suite, violations_suite
from lake import delta
from lake.archive import make_tables
from lake.config import LakeConfig
from lake.reading import scan
from lake.session import open_session
from lake.tables import events_table
from nightjar.jars import jars
from rules.streams import load_streams
from rules.versions import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = date(2026, 1, 5)
FILES = 96
GOAL = 1.5
STREAM = load_streams()["transactions"]
TABLE = events_table(STREAM)


def fill(config: LakeConfig, events: int) -> None:
    """A day's records, as the archive would have brought them."""
    make_tables(config)
    rng, begin = np.random.default_rng(7), int(datetime.combine(DAY, datetime.min.time(), UTC).timestamp() * 1e6)
    bounds = np.linspace(0, events, FILES + 1).astype(int)
    for number, (first, last) in enumerate(pairwise(bounds.tolist())):
        at = np.arange(first, last)
        arrived = begin + at * int(86_400e6 / events)
        columns = {
            "transaction_id": pl.Series(at).cast(pl.String),
            "event_time": pl.Series(arrived - rng.integers(0, 60_000_000, len(at))).cast(pl.Datetime("us", "UTC")),
            "customer_id": "c" + pl.Series(rng.integers(0, events // 20 + 1, len(at))).cast(pl.String),
            "terminal_id": "t" + pl.Series(rng.integers(0, 20_000, len(at))).cast(pl.String),
            "amount": (pl.Series(rng.integers(100, 100_000, len(at))) / 100).cast(pl.Decimal(12, 2)),
            "sent_at": pl.Series(arrived),
            "partition": pl.Series(at % 2).cast(pl.Int32),
            "offset": pl.Series(at // 2),
            "arrival_time": pl.Series(arrived).cast(pl.Datetime("us", "UTC")),
        }
        rows = pl.DataFrame(columns).with_columns(
            pl.lit(DAY).alias("arrival_date"),
            *(pl.lit(None, kind).alias(name) for name, kind in _lacking(columns)),
        )
        table = rows.select(list(TABLE.columns)).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(TABLE.arrow)
        delta.add(config.root, TABLE, table, "bench", number)


def _lacking(columns: Mapping[str, pl.Series]) -> list[tuple[str, pl.DataType]]:
    schema = pl.DataFrame(TABLE.arrow.empty_table()).schema
    return [(name, kind) for name, kind in schema.items() if name not in columns and name != "arrival_date"]


def gate(session: SparkSession, config: LakeConfig, folder: Path) -> None:
    """Both suites of the stream."""
    version, parallelism = delta.version(config.root, TABLE), session.sparkContext.defaultParallelism
    parts = parts_of(0, delta.files_arrived(config.root, TABLE, version, DAY), parallelism, DAY)
    suites = [events_suite(STREAM, TABLE.columns), violations_suite()]
    cut = int((datetime.combine(DAY, datetime.min.time(), UTC) + timedelta(days=2)).timestamp() * 1e6)
    heaps = heaps_of(parts, parallelism)
    checks = EvaluationChecks(suites, parts, heaps, [STREAM], RuleSet(()), cut, [(0, cut)], [])
    found = counts(session, checks, folder / "exchanged")
    missing = gaps(scan(config.root, TABLE, version), partial(delta.read, session, config.root, TABLE), STREAM, DAY, {})
    offsets = offsets_suite(STREAM.name)
    checked = check([(suites[0], summed(suites[0], TABLE.columns, found)), (offsets, measured(offsets, missing))])
    assert all(finding.success for each in checked for finding in each.findings), checked


def scanned(session: SparkSession, config: LakeConfig) -> None:
    """The control: the same rows and columns, read and dropped."""
    delta.read(session, config.root, TABLE).write.format("noop").mode("overwrite").save()


def measure(folder: Path, events: int, repeats: int) -> bool:
    """The gate and the scan, in turns."""
    config = LakeConfig(
        folder / "lake", {STREAM.name: STREAM}, {}, tuple(jars("spark")), master="local[2]",
        # as the scan would have it without nightjar: a session of the lake's own has no second compiler
        java_options=("-XX:TieredStopAtLevel=4",),
    )  # fmt: skip
    say(f"filling a lake with {events:,} events")
    fill(config, events)
    session = open_session(config)
    ours, control = [], []
    for turn in range(repeats + 1):
        say(f"turn {turn} of {repeats}" if turn else "a first turn for the compilers")
        control.append(timed(lambda: scanned(session, config)))
        ours.append(timed(lambda: gate(session, config, folder)))
        say(f"scan {control[-1]:.2f} s, gate {ours[-1]:.2f} s")
    shutil.rmtree(config.root)
    name = f"the gate over {events:,} events"
    goal = GOAL if events >= 10_000_000 else None
    return emit(name, "s", ours[1:], "Spark's scan of them", control[1:], goal=goal)


def main() -> None:
    """Measure, in turns, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("events", type=int, nargs="*", default=[1_000_000, 10_000_000])
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    met, peaks = True, []
    with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as folder:
        for events in options.events:
            met &= measure(Path(folder), events, options.repeats)
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if len(peaks) > 1:
        first, last = options.events[0], options.events[-1]
        name = f"the driver's most memory, {last:,} events"
        met &= emit(name, "MiB", [peaks[-1]], f"{first:,} events", [peaks[0]], goal=1.5)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
