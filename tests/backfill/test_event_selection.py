"""What a run reads: its day's events and the windows around them, wherever in time they lie."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nightjar.backfill.config import RunRequest
from nightjar.backfill.division import file_splits
from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.inputs.event_selection import EventSelection, buckets_of, judged_times, selections_of
from nightjar.lake import delta
from nightjar.lake.tables import events_table
from tests.support.payments import AT_NOON, DAY, HOUR, MINUTE, NOON, STREAM, add, config_of, days, notes_of, payment

HISTORY = 60
RULE: dict[str, Any] = {
    "id": "busy",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n >= 5",
    "measures": {"n": {"count": "*", "over": "1h"}},
}


@pytest.fixture(scope="module")
def two_months(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with an event an hour, a file for each day."""
    lake = tmp_path_factory.mktemp("two-months")
    for day in range(HISTORY):
        times = [NOON - days(day) + timedelta(hours=hour - 12) for hour in range(24)]
        add(lake, *(payment(f"e{day}-{hour}", at) for hour, at in enumerate(times)))
    return lake


@pytest.fixture
def lake(two_months: Path, tmp_path: Path) -> Path:
    """A copy of it, to write to."""
    return shutil.copytree(two_months, tmp_path / "lake")


NONE_PENDING = pl.DataFrame(schema={"stream": pl.String, "event_time": pl.Datetime("us", "UTC")})


def selection(lake: Path, day: datetime = NOON, rule: dict[str, Any] = RULE) -> EventSelection:
    """What the run of a day reads."""
    request = RunRequest("x", day.date())
    config, notes = config_of(lake), notes_of(lake, request.end + HOUR, json.dumps(rule))
    run = RunInputs(config, request, notes)
    (found,) = selections_of(run, judged_times(run, NONE_PENDING))
    return found


def read(found: EventSelection) -> tuple[int, int]:
    """How many files it reads, and how many of their rows the tasks hold."""
    return len(found.files), found.near(found.files).collect().height


def test_a_misdated_record_costs_its_own_windows_only(lake: Path) -> None:
    """One event of 1970 among those of the day: the day is read as before, and the one file more that has it."""
    files, rows = read(selection(lake))
    add(lake, payment("misdated", datetime(1970, 1, 1, tzinfo=UTC), NOON))
    assert read(selection(lake)) == (files + 1, rows + 1)
    assert files <= 2


def test_a_late_event_brings_back_the_days_that_its_windows_reach(lake: Path) -> None:
    """Of all other days nothing is read."""
    files, rows = read(selection(lake))
    add(lake, payment("late", NOON - days(30) + timedelta(minutes=5), NOON))
    assert read(selection(lake)) == (files + 2, rows + 4)  # itself, and what happened within an hour of it


def test_a_wide_window_is_read_whole(lake: Path) -> None:
    """Ten days before the first event of the day, and nothing older."""
    wide = RULE | {"measures": {"n": {"count": "*", "over": "10d"}}}
    files, rows = read(selection(lake, rule=wide))
    assert (files, rows) == (11, 11 * 24)


def test_a_file_without_statistics_is_read(lake: Path) -> None:
    """It may hold anything."""
    table = events_table(STREAM)
    spans = [(AT_NOON - MINUTE, AT_NOON + MINUTE)]
    version = notes_of(lake, 0).versions[table.name]
    known = delta.files_within(lake, table, version, instant="event_time", spans=spans)
    unknown = delta.files_within(lake, table, version, instant="sent_at_of_nobody", spans=spans)
    assert (len(known), len(unknown)) == (1, HISTORY)
    last = AT_NOON + 11 * HOUR
    assert (
        delta.files_within(lake, table, version, instant="event_time", spans=[(last + 999, last + DAY)])[0].rows == 24
    )


def test_a_bucket_has_no_more_than_a_worker_can_hold(lake: Path) -> None:
    """There are as many as rows need, and not as cores; and one task at least where there is nothing to read."""
    found = selection(lake)
    large = replace(found, files=(delta.File("x", 1_700_000), delta.File("y", 900_000)))
    assert buckets_of([found, large], 2) == 6
    assert buckets_of([found], 4) == 4
    assert [len(share) for share in file_splits([], 4)] == [0]
    assert [len(share) for share in file_splits(large.files * 2, 4)] == [1, 1, 1, 1]
