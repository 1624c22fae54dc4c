"""What reaches a stage's command line: the form's values, as a list, and nothing odd."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nightjar.airflow.submission import (
    SubmissionError,
    described,
    due,
    has_options,
    run_day,
    run_folder,
    schedule,
    stage_arguments,
)
from nightjar.rules.errors import DeclarationError
from nightjar.rules.lateness import largest_allowed_lateness
from nightjar.rules.streams import load_streams


@dataclass
class DagRun:
    """What is looked at of Airflow's."""

    run_id: str = "scheduled__2026-11-20T00:40:00+00:00"
    run_after: datetime = datetime(2026, 11, 21, 0, 40, tzinfo=UTC)
    data_interval_end: datetime | None = datetime(2026, 11, 21, 0, 40, tzinfo=UTC)


FOLDER = run_folder(DagRun().run_id)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, ["--day", "2026-11-20"]),
        ({"day": None, "rules": None, "groups": [], "publish": True}, ["--day", "2026-11-20"]),
        ({"day": "2026-03-01"}, ["--day", "2026-03-01"]),
        ({"rules": ["burst", "far.away"]}, ["--day", "2026-11-20", "--rules", "burst,far.away"]),
        (
            {"groups": ["customer_id=c1,c2", "ip=2001:db8::1", "customer_id=c3"]},
            ["--day", "2026-11-20", "--groups", "customer_id=c1,c2,c3;ip=2001:db8::1"],
        ),
        ({"dry_run": True, "publish": False}, ["--day", "2026-11-20", "--dry-run", "--no-publish"]),
    ],
)
def test_arguments_are_what_was_asked_for(params: dict[str, Any], expected: list[str]) -> None:
    """One element each, in one order."""
    assert stage_arguments("gate", DagRun(), params) == ["gate", "--run-id", FOLDER, *expected]


@pytest.mark.parametrize(
    "params",
    [
        {"rules": ["--dry-run"]},
        {"rules": ["a,b"]},
        {"rules": ["Burst"]},
        {"rules": ["a\n"]},
        {"rules": [["a"]]},
        {"groups": ["customer_id"]},
        {"groups": ["=c1"]},
        {"groups": ["a=b;c=d"]},
        {"groups": ["a=b c"]},
        {"groups": ["a=b,"]},
        {"groups": ["--x=1"]},
        {"groups": ["a=$(reboot)"]},
        {"day": "2026-02-30"},
        {"day": "today"},
        {"day": "20260101"},
        {"day": ""},
        {"day": "2026-01-01\n"},
    ],
)
def test_what_does_not_match_its_pattern_is_refused(params: dict[str, Any]) -> None:
    """Also where the form's own validation was passed by."""
    with pytest.raises(SubmissionError) as refused:
        stage_arguments("evaluate", DagRun(), params)
    assert next(iter(params)).rstrip("s") in str(refused.value)
    assert "[" not in refused.value.remedy, "the remedy is in words, not the pattern"


def test_a_run_is_described_in_words() -> None:
    """For its note and its tasks' logs."""
    assert described(DagRun(), {}) == "the day 2026-11-20 (UTC), all rules, all groups"
    params = {"day": "2026-03-01", "rules": ["a", "b"], "groups": ["ip=1"], "dry_run": True, "publish": False}
    expected = "the day 2026-03-01 (UTC), rules a, b, groups ip=1, dry run, nothing published to Kafka"
    assert described(DagRun(), params) == expected


def test_a_run_without_an_interval_is_about_the_last_day_that_is_due() -> None:
    """Started by hand without a logical date: yesterday, and the day before while yesterday's run is not due."""
    late, early = datetime(2026, 11, 21, 18, tzinfo=UTC), datetime(2026, 11, 21, 0, 39, tzinfo=UTC)
    assert run_day(DagRun(run_after=late, data_interval_end=None)) == date(2026, 11, 20)
    assert run_day(DagRun(run_after=early, data_interval_end=None)) == date(2026, 11, 19)


@pytest.mark.parametrize(
    ("lateness", "cron", "begins"),
    [
        ({"one": "10m", "two": "500ms"}, "40 0 * * *", datetime(2026, 11, 21, 0, 40, tzinfo=UTC)),
        ({"one": None, "two": "45m"}, "15 1 * * *", datetime(2026, 11, 21, 1, 15, tzinfo=UTC)),
        ({"one": "500ms"}, "31 0 * * *", datetime(2026, 11, 21, 0, 31, tzinfo=UTC)),
        ({"one": "36h"}, "30 12 * * *", datetime(2026, 11, 22, 12, 30, tzinfo=UTC)),
        ({"one": "1d"}, "30 0 * * *", datetime(2026, 11, 22, 0, 30, tzinfo=UTC)),
    ],
)
def test_a_night_begins_once_the_latest_event_may_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lateness: dict[str, str | None], cron: str, begins: datetime
) -> None:
    """Half an hour after the largest allowed lateness, and the run that begins then is about the day that ended."""
    declared = tmp_path / "streams.toml"
    given = ((name, "" if value is None else f'allowed_lateness = "{value}"\n') for name, value in lateness.items())
    declared.write_text("".join(f"[streams.{name}]\n{line}" for name, line in given))
    monkeypatch.setenv("NIGHTJAR_STREAMS", str(declared))
    assert schedule("nightly_backfill") == cron
    assert due(date(2026, 11, 20)) == begins
    assert run_day(DagRun(data_interval_end=begins)) == date(2026, 11, 20)
    assert run_day(DagRun(run_after=begins, data_interval_end=None)) == date(2026, 11, 20)
    monkeypatch.setenv("NIGHTJAR_SCHEDULES", '{"nightly_backfill": "0 3 * * *", "archive": "off"}')
    assert schedule("nightly_backfill") == "0 3 * * *"
    assert due(date(2026, 11, 20)) == three_after(begins)
    assert schedule("archive", "*/15 * * * *") is None
    assert schedule("lake_maintenance", "0 12 * * 0") == "0 12 * * 0"
    early = begins - timedelta(minutes=2)  # less than that is within the minute to which the schedule is rounded
    assert run_day(DagRun(run_after=early, data_interval_end=None)) == date(2026, 11, 19)
    monkeypatch.setenv("NIGHTJAR_SCHEDULES", '{"nightly_backfill": "off"}')
    assert due(date(2026, 11, 20)) == begins


def three_after(begins: datetime) -> datetime:
    """The first three o'clock from then on."""
    three = begins.replace(hour=3, minute=0)
    return three if three >= begins else three + timedelta(days=1)


def test_the_lateness_of_the_shipped_streams_is_what_they_declare() -> None:
    """The quick look at the file and the thorough one agree."""
    assert largest_allowed_lateness() == max(stream.allowed_lateness for stream in load_streams().values())


def test_declarations_that_cannot_be_read_are_an_error_with_their_file(tmp_path: Path) -> None:
    """Airflow shows it where it shows the DAG."""
    for number, text in enumerate(("[streams", "x = 1", "[streams]", '[streams.a]\nallowed_lateness = "soon"', None)):
        file = tmp_path / f"{number}.toml"
        if text is not None:
            file.write_text(text)
        with pytest.raises(DeclarationError, match=str(file)):
            largest_allowed_lateness(file)


@pytest.mark.parametrize("params", [{"day": "2026-03-01"}, {"rules": ["a"]}, {"dry_run": True}, {"publish": False}])
def test_a_run_that_was_asked_for_something_leaves_pending_days_alone(params: dict[str, Any]) -> None:
    """The form as it comes asks for nothing."""
    shown = {"day": None, "rules": [], "groups": None, "dry_run": False, "publish": True}
    assert not has_options(shown)
    assert has_options({**shown, **params})


def test_a_run_has_one_folder_and_no_other_run_has_it() -> None:
    """Whatever the run is called, the name is a safe one."""
    names = ["manual__2026-11-21T18:22:31.569736+00:00", "a:b", "a+b", "a-b", "../../etc", "..", "x" * 250, "x" * 249]
    folders = [run_folder(name) for name in names]
    assert folders == [run_folder(name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert len(folder) <= 200
        assert folder[0].isalnum()
        assert set(folder) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def test_the_form_takes_ids_with_the_characters_ids_have() -> None:
    """Among them those of addresses and of base64."""
    params = {"groups": ["ip=10.0.0.1", "user=ann@example.org", "key=YWJj+/=="]}
    assert stage_arguments("gate", DagRun(), params)[-1] == "ip=10.0.0.1;user=ann@example.org;key=YWJj+/=="
