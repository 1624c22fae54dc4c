"""A night over a lake with lists that were changed, back-dated and removed (S22.5)."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from nightjar.cases import load_case
from nightjar.cases.simulate import read_event, simulate
from nightjar.formats.encoding import Encoder
from nightjar.lake.scanning import scan
from nightjar.lake.tables import RECONCILIATION, TABLES
from nightjar.rules.timestamps import from_microseconds
from tests.support.answers import answered
from tests.support.lake_nights import LakeNights

CASE = load_case(Path(__file__).parents[1] / "cases" / "blocked-addresses.yaml")
STREAM = CASE.streams["logins"]
HOUR = timedelta(hours=1)


def changes() -> pa.Table:
    """The case's changes as the archive keeps them."""
    sent = [(step.at, value) for step in CASE.steps for value in step.tables]
    rows = [
        {"value": value, "partition": 0, "offset": n, "arrival_time": from_microseconds(at), "arrival_date": None}
        for n, (at, value) in enumerate(sent)
    ]
    return pa.Table.from_pylist(rows, TABLES.arrow)


def events() -> list[dict[str, Any]]:
    """The case's events."""
    sent = [(step.at, event.raw) for step in CASE.steps for event in step.events]
    found = []
    for offset, (at, raw) in enumerate(sent):
        event = read_event(Encoder(STREAM).encode(raw), STREAM, at)
        assert isinstance(event, dict)
        found.append({**event, "arrival": at, "partition": 0, "offset": offset})
    return found


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> LakeNights:
    """The lake once the night has been published."""
    nights, outcome = LakeNights(tmp_path_factory.mktemp("lake") / "lake", STREAM), simulate(CASE)
    first, last = CASE.steps[0].at, CASE.steps[-1].at
    nights.answer(answered(CASE.streams, *(json.loads(rule) for rule in CASE.steps[0].rules), at=first))
    nights.send(events())
    write_deltalake(str(nights.root / TABLES.name), changes(), mode="append")
    nights.read(last, events(), outcome.alerts, [])
    end = last + 48 * 3600 * 1_000_000
    nights.archive(end)
    nights.night(date(2026, 1, 1), now=end)
    return nights


def test_the_night_finds_what_a_change_that_came_later_makes_of_the_day(lake: LakeNights) -> None:
    """Everything else is as it was, by the lists as they were."""
    outcomes = scan(lake.root, RECONCILIATION).collect()
    wrong = outcomes.filter(pl.col("outcome") != "matched").select("rule_id", "event_id", "outcome", "cause").rows()
    assert wrong == [("blocked-login", "b1", "missed", "reference_changed")]
    assert outcomes.height - len(wrong) == len(simulate(CASE).alerts)
    (correction,) = [alert for alert in lake.alerts if alert["source"] == "backfill"]
    assert (correction["event_id"], correction["cause"]) == ("b1", "reference_changed")


def test_a_second_night_corrects_nothing_more(lake: LakeNights) -> None:
    """What the stream missed stays so, and its correction is right."""
    lake.archive(lake.archived + 24 * 3600 * 1_000_000)
    lake.night(date(2026, 1, 1), now=lake.archived)
    assert scan(lake.root, RECONCILIATION).filter(pl.col("outcome") != "matched").collect().height == 1
    assert len([alert for alert in lake.alerts if alert["source"] == "backfill"]) == 1
