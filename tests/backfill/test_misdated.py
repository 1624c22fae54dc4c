"""A record of 1970 in a real run: it is judged, published, and nothing between it and the day is touched."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from deltalake import DeltaTable

from nightjar.backfill.config import RunRequest
from nightjar.backfill.run import Run
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, LATE_EVENTS, PROGRESS, VIOLATIONS
from tests.support.payments import NOON, add, config_of, days, fill, payment, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

RULE = {
    "id": "twice",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n >= 2",
    "measures": {"n": {"count": "*", "over": "1h"}},
    "effective": "1970-01-01T00:00:00Z",
}


def test_a_misdated_record_costs_its_own_windows_only(spark: "SparkSession", tmp_path: Path) -> None:
    """Two of them an hour apart violate the rule; the results of the days between are not even written again."""
    for table in (ALERTS, LATE_EVENTS):
        fill(tmp_path, table)
    # the stream had read all of it before it came to know the rule: none of its alerts is still to come
    consumed = json.dumps({"transactions": {"0": 1 << 40}})
    fill(tmp_path, PROGRESS, {"consumed": consumed, "arrival_time": NOON, "offset": 0, "arrival_date": NOON.date()})
    publish(tmp_path, RULE, at=NOON + days(9))
    offset = 0
    for back in (2, 1, 0):
        for minutes in (0, 10):
            at = NOON - days(back) + timedelta(minutes=minutes)
            add(tmp_path, payment(f"e{back}-{minutes}", at, offset=offset))
            offset += 1
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    config = config_of(tmp_path, arrival="producer")

    def run(name: str, back: int) -> tuple[dict[str, object], set[str]]:
        day = Run(spark, config, RunRequest(name, (NOON - days(back)).date(), publish=False))
        counts: dict[str, object] = {}
        for stage in ("evaluate", "reconcile", "publish"):
            counts |= day.do(stage)
        return counts, set(DeltaTable(str(tmp_path / VIOLATIONS.name)).file_uris())

    run("first", 2)
    _, before = run("second", 1)
    add(tmp_path, *(payment(f"old{at}", epoch + timedelta(minutes=30 * at), NOON, offset=offset + at) for at in (0, 1)))
    counts, after = run("third", 0)
    assert (counts["violations"], counts["violations_changed"], counts["groups"]) == (2, 2, 1)
    assert before < after
    events = scan(tmp_path, VIOLATIONS).sort("event_time").select(pl.col("event_id")).collect().to_series()
    assert events.to_list() == ["old1", "e2-10", "e1-10", "e0-10"]
    counts, again = run("again", 0)
    assert (counts["violations_changed"], again) == (0, after)
