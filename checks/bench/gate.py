"""Measures the cost of the gate, compared with only reading the same data.

    python -m checks.bench.gate [EVENTS ...] [--repeats 3]

EVENTS (1,000,000 and 10,000,000) are payments of one day in a lake's table. The gate checks the suites of a stream, for
its records and its offsets, including Great Expectations. The control is a Spark scan of the same rows and columns in
the same session, which discards them.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from checks.bench.figures import emit, log_progress, timed
from checks.bench.lakes import DAY, STREAM, fill_day
from nightjar.backfill.division import partition_count
from nightjar.backfill.gate.checking import EvaluationChecks, splits_of
from nightjar.expectations.gate import check
from nightjar.expectations.measured import COUNTS, measured, summed
from nightjar.expectations.offsets import gaps
from nightjar.expectations.suites import events_suite, offsets_suite, violations_suite
from nightjar.ingestion.spark_config import SparkConfig
from nightjar.jvm.jars import jars
from nightjar.lake import delta
from nightjar.lake.arrow_shuffle import exchange
from nightjar.lake.config import LakeConfig
from nightjar.lake.scanning import scan
from nightjar.lake.session import open_session
from nightjar.lake.tables import events_table
from nightjar.rules.versions import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOAL = 1.5
TABLE = events_table(STREAM)


def gate(session: SparkSession, config: LakeConfig, folder: Path) -> None:
    """Check both suites of the stream."""
    version, parallelism = delta.version(config.root, TABLE), session.sparkContext.defaultParallelism
    splits = splits_of(0, delta.files_of(config.root, TABLE, version, "arrival_date", [(DAY, DAY)]), parallelism, DAY)
    suites = [events_suite(STREAM, TABLE.columns), violations_suite()]
    cut = int((datetime.combine(DAY, datetime.min.time(), UTC) + timedelta(days=2)).timestamp() * 1e6)
    partitions = partition_count(splits, parallelism)
    checks = EvaluationChecks(suites, splits, partitions, [STREAM], RuleSet(()), cut, [(0, cut)], [])
    found = exchange(session, checks, COUNTS, folder / "exchanged", config.max_driver_rows)
    missing = gaps(scan(config.root, TABLE, version), partial(delta.read, session, config.root, TABLE), STREAM, DAY, {})
    offsets = offsets_suite(STREAM.name)
    checked = check([(suites[0], summed(suites[0], TABLE.columns, found)), (offsets, measured(offsets, missing))])
    assert all(finding.success for each in checked for finding in each.findings), checked


def scanned(session: SparkSession, config: LakeConfig) -> None:
    """Run the control: read the same rows and columns and discard them."""
    delta.read(session, config.root, TABLE).write.format("noop").mode("overwrite").save()


def measure(folder: Path, events: int, repeats: int) -> bool:
    """Run the gate and the scan in turns."""
    # As in a session without nightjar: the lake's own sessions disable the second compiler.
    spark = SparkConfig("local[2]", jars=tuple(jars("spark")), java_options=("-XX:TieredStopAtLevel=4",))
    config = LakeConfig(folder / "lake", {STREAM.name: STREAM}, spark=spark)
    log_progress(f"filling a lake with {events:,} events")
    fill_day(config, events)
    session = open_session(config)
    ours, control = [], []
    for turn in range(repeats + 1):
        log_progress(f"turn {turn} of {repeats}" if turn else "a first turn to warm up")
        control.append(timed(lambda: scanned(session, config)))
        ours.append(timed(lambda: gate(session, config, folder)))
        log_progress(f"scan {control[-1]:.2f} s, gate {ours[-1]:.2f} s")
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
    met = True
    with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as folder:
        for events in options.events:
            met &= measure(Path(folder), events, options.repeats)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
