"""Durations as people write them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from nightjar.rules.durations import MAX_DURATION, Duration, format_duration, parse_duration
from nightjar.rules.errors import NightjarError


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("500ms", 500_000),
        ("10s", 10_000_000),
        ("3m", 180_000_000),
        ("1h", 3_600_000_000),
        ("90d", 7_776_000_000_000),
        ("0s", 0),
        ("1.5h", 5_400_000_000),
        ("0.001ms", 1),
        (" 10 m ", 600_000_000),
        ("1h30m", 5_400_000_000),
        ("1d 12h", 129_600_000_000),
        ("1m30.5s", 90_500_000),
        ("1s500ms", 1_500_000),
        ("1d1h1m1s1ms", 90_061_001_000),
    ],
)
def test_numbers_with_their_units_are_a_duration(text: str, microseconds: int) -> None:
    """ms, s, m, h and d are the units; the engine counts microseconds. The schema for editors takes what is taken."""
    assert parse_duration(text) == microseconds
    assert re.search(Window.model_json_schema()["properties"]["over"]["pattern"], text)


@pytest.mark.parametrize(
    "text",
    [
        "10",
        "",
        "m",
        "-1h",
        "1 hour",
        "1H",
        "30m1h",
        "1h1h",
        "1.5h30m",
        "1h30",
        "1ms1m",
        "1h-30m",
        "1e3s",
        "٣m",
        "1,5h",
        "0.0001ms",
        "200000d",
    ],
)
def test_anything_else_is_refused_with_what_would_be_right(text: str) -> None:
    """A number without a unit is refused, and the error shows how to write it."""
    with pytest.raises(NightjarError) as refusal:
        parse_duration(text)
    assert refusal.value.remedy


@given(st.integers(0, MAX_DURATION))
def test_a_written_duration_reads_back_exactly(microseconds: int) -> None:
    """Formatting loses nothing."""
    assert parse_duration(format_duration(microseconds)) == microseconds


@pytest.mark.parametrize(
    ("microseconds", "text"), [(0, "0s"), (90_000_000, "90s"), (5_400_000_000, "90m"), (1, "0.001ms")]
)
def test_the_largest_whole_unit_is_written(microseconds: int, text: str) -> None:
    """90m rather than 5400s or 1.5h."""
    assert format_duration(microseconds) == text


class Window(BaseModel):
    over: Duration


def test_a_model_holds_microseconds_and_shows_text() -> None:
    """As a pydantic field a duration is read from text, held as an integer and dumped as text; a number is refused."""
    window = Window.model_validate({"over": "10m"})
    assert window.over == 600_000_000
    assert window.model_dump() == {"over": "10m"}
    assert Window.model_validate({"over": "1h30m"}).model_dump() == {"over": "90m"}
    with pytest.raises(ValidationError, match="10 is not a duration"):
        Window.model_validate({"over": 10})
