"""What a person asks of a backfill, as text."""

from datetime import date

import pytest

from nightjar.backfill.config import BackfillError
from nightjar.operations.backfill_requests import days_of, request_of
from nightjar.rules.streams import load_streams

STREAMS = load_streams()


def test_days_are_one_or_a_range() -> None:
    """Both ends of a range are in it."""
    assert days_of("2026-11-20", None) == [date(2026, 11, 20)]
    assert days_of(None, "2026-10-31..2026-11-01") == [date(2026, 10, 31), date(2026, 11, 1)]


@pytest.mark.parametrize(
    ("day", "days", "message"),
    [
        (None, None, "exactly one of --day and --days is required"),
        ("2026-11-20", "2026-11-20..2026-11-21", "exactly one of --day and --days is required"),
        ("20.11.2026", None, "is not a valid date"),
        ("2026-02-30", None, "is not a valid date"),
        (None, "2026-11-20..2026-11-19", "--days 2026-11-20..2026-11-19: is not a valid range of days"),
        ("2026-11-20..2026-11-19", None, "--days 2026-11-20..2026-11-19: is not a valid range of days"),
        ("9999-12-31", None, "'9999-12-31': has no day after it"),
        (None, "9999-12-30..9999-12-31", "'9999-12-31': has no day after it"),
    ],
)
def test_what_is_no_day_is_refused(day: str | None, days: str | None, message: str) -> None:
    """With what would be right."""
    with pytest.raises(BackfillError, match=message):
        days_of(day, days)


def test_rules_and_groups_are_read() -> None:
    """Ids with commas; fields with their values."""
    request = request_of(date(2026, 11, 20), STREAMS, rules="b, a", groups="customer_id=c1,c2;terminal_id=m7")
    assert request.rules == ("a", "b")
    assert request.groups == {"customer_id": ("c1", "c2"), "terminal_id": ("m7",)}
    assert not request.whole


@pytest.mark.parametrize(
    ("groups", "message"), [("costumer_id=c1", "Did you mean customer_id"), ("customer_id=", "has no value")]
)
def test_a_group_that_cannot_be_is_refused(groups: str, message: str) -> None:
    """With the nearest field."""
    with pytest.raises(BackfillError, match=message):
        request_of(date(2026, 11, 20), STREAMS, groups=groups)


@pytest.mark.parametrize("run_id", ["../../etc", "", "a/b", ".hidden"])
def test_a_run_id_is_the_name_of_a_folder_and_nothing_else(run_id: str) -> None:
    """It becomes a path."""
    with pytest.raises(BackfillError, match="not a valid folder name"):
        request_of(date(2026, 11, 20), STREAMS, run_id=run_id)
