"""Times are read as their declaration says they are written; ISO 8601 with a zone always is."""

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.errors import NightjarError
from nightjar.rules.timestamps import EPOCH, from_microseconds
from nightjar.rules.written_times import WrittenTime, written_time

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def at(written: WrittenTime, text: str, *, number: bool = False) -> datetime | None:
    instant = written.of_number(text) if number else written.of_text(text)
    return None if instant is None else from_microseconds(instant)


@pytest.mark.parametrize("declared", [{"unit": "s"}, {"zone": "Europe/Berlin"}, {"format": "%Y%m%d", "zone": "UTC"}])
def test_iso_text_with_a_zone_is_always_read(declared: dict[str, Any]) -> None:
    assert at(written_time(declared), "2026-01-05T13:00:00+01:00") == NOON


@pytest.mark.parametrize(
    ("unit", "text", "expected"),
    [
        ("s", "1767614400", NOON),
        ("s", "1767614400.5", NOON + timedelta(milliseconds=500)),
        ("s", "1767614400.123456", NOON + timedelta(microseconds=123_456)),
        ("s", "1.7676144e9", NOON),
        ("ms", "1767614400000", NOON),
        ("us", "1767614400000001", NOON + timedelta(microseconds=1)),
        ("ns", "1767614400000001999", NOON + timedelta(microseconds=1)),
        ("s", "-1", EPOCH - timedelta(seconds=1)),
        ("ns", "-1", EPOCH - timedelta(microseconds=1)),
        ("s", "1767614400000", None),
        ("s", "1e400", None),
        ("s", "9" * 5000, None),
    ],
)
def test_a_number_is_read_in_its_unit_also_in_quotes(unit: str, text: str, expected: datetime | None) -> None:
    assert at(WrittenTime(unit=unit), text, number=True) == expected
    assert at(WrittenTime(unit=unit), text) == expected


@given(st.sampled_from(["s", "ms"]), st.decimals("-1e9", "8.5e9", places=6))
def test_a_fraction_is_the_nearest_microsecond_of_its_double(unit: str, number: Any) -> None:
    scale = {"s": 1_000_000, "ms": 1_000}[unit]
    found = WrittenTime(unit=unit).of_number(str(number))
    assert found is not None
    assert abs(Fraction(found) - Fraction(number) * scale) <= Fraction(5, 4)
    if unit == "s":  # below 2**33 a double has more than six digits after the point
        assert abs(Fraction(found) - Fraction(number) * scale) < 1


def test_a_time_without_a_zone_is_of_the_declared_one() -> None:
    berlin = WrittenTime(zone="Europe/Berlin")
    assert at(berlin, "2026-01-05T13:00:00") == NOON
    assert at(berlin, "2026-07-05 14:00") == datetime(2026, 7, 5, 12, tzinfo=UTC)
    assert at(berlin, "2026-03-29T02:30:00") is None, "clocks leave it out"
    assert at(berlin, "2026-10-25T02:30:00") is None, "clocks show it twice"
    assert at(berlin, "1767614400000", number=True) == NOON


# From 1950 on, as earlier offsets of zones have seconds.
LOCAL = st.timedeltas(timedelta(-20 * 365), timedelta(100 * 365)).map(lambda of: (EPOCH + of).replace(tzinfo=None))
FORMATS = ["%Y-%m-%d %H:%M:%S", "%d/%m/%Y %H:%M:%S.%f", "%d/%b/%Y:%H:%M:%S %z", "%Y%m%d%H%M%S", "%m/%d/%Y %I:%M:%S %p"]


@given(st.sampled_from(FORMATS), LOCAL)
def test_what_python_writes_in_a_format_is_read(form: str, local: datetime) -> None:
    zone = timezone(timedelta(hours=5, minutes=30)) if "%z" in form else UTC
    local = local.replace(tzinfo=zone, microsecond=local.microsecond if "%f" in form else 0)
    written = WrittenTime(format=form, zone=None if "%z" in form else "UTC")
    written.check()
    assert at(written, local.strftime(form)) == local


@given(LOCAL, st.sampled_from(["America/New_York", "Asia/Kolkata"]))
def test_a_format_is_read_in_its_zone(local: datetime, name: str) -> None:
    found = at(WrittenTime(format="%Y-%m-%d %H:%M:%S.%f", zone=name), local.strftime("%Y-%m-%d %H:%M:%S.%f"))
    meant = {local.replace(tzinfo=ZoneInfo(name), fold=fold).astimezone(UTC) for fold in (0, 1)}
    assert found == meant.pop() if len(meant) == 1 else found is None


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("%Y-%m-%d", "2026-1-5"),
        ("%Y-%m-%d", "2026-02-30"),
        ("%Y-%m-%d", "2026-01-05 "),
        ("%Y-%m-%d", "\uff12\uff10\uff12\uff16-01-05"),
        ("%Y.%m.%d", "2026-01-05"),
        ("%d %b %Y", "05 Mai 2026"),
        ("%m/%d/%Y %I:%M %p", "01/05/2026 13:00 pm"),
        ("%m/%d/%Y %I:%M %p", "01/05/2026 00:00 am"),
        ("%Y-%m-%d %H", "2026-01-05 24"),
    ],
)
def test_what_is_written_otherwise_is_none(form: str, text: str) -> None:
    assert at(WrittenTime(format=form, zone="UTC"), text) is None


def test_what_fits_the_format_is_read_by_it_though_iso_could_be_meant() -> None:
    """So that the second of January is not one in some rows and the first of February in others."""
    written = WrittenTime(format="%Y-%d-%m %H:%M:%S%z")
    written.check()
    assert at(written, "2026-02-01 12:00:00Z") == datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert at(written, "2026-02-01T12:00:00Z") == datetime(2026, 2, 1, 12, tzinfo=UTC)


def test_another_zone_counts_where_none_is_declared() -> None:
    """As in a file of local times."""
    berlin, noon = ZoneInfo("Europe/Berlin"), WrittenTime().of_text("2026-01-05T12:00:00Z")
    assert WrittenTime(unit="s").of_text("2026-01-05T13:00:00", berlin) == noon
    assert WrittenTime(zone="UTC").of_text("2026-01-05T12:00:00", berlin) == noon


def test_a_number_is_read_by_its_format() -> None:
    """Not as milliseconds, which would be a day of the year 2612."""
    assert at(WrittenTime(format="%Y%m%d%H%M%S", zone="UTC"), "20260105120000", number=True) == NOON


@pytest.mark.parametrize(
    ("declared", "where"),
    [
        ({"unit": "min"}, "unit"),
        ({"unit": 5}, "unit"),
        ({"unit": ""}, "unit"),
        ({"zone": "Berlin"}, "zone"),
        ({"zone": "../etc/passwd"}, "zone"),
        ({"format": "%Y-%m-%d"}, "format"),
        ({"format": "%Y-%m-%d %z", "zone": "UTC"}, "format"),
        ({"format": "%Y-%m-%d", "zone": "UTC", "unit": "s"}, "format"),
        ({"format": "%H:%M", "zone": "UTC"}, "format"),
        ({"format": "%Y-%m-%d %I", "zone": "UTC"}, "format"),
        ({"format": "%Y-%m-%b-%d", "zone": "UTC"}, "format"),
        ({"format": "%Y-%m-%d %H %I %p", "zone": "UTC"}, "format"),
        ({"format": "%Y-%m-%d %M", "zone": "UTC"}, "format"),
        ({"format": "%Y-%m-%d %H:%S", "zone": "UTC"}, "format"),
        ({"format": "%Y-%m-%d %Y", "zone": "UTC"}, "format"),
        ({"format": "%Y-%m-%d %Q", "zone": "UTC"}, "format"),
        ({"format": "%Y-%m-%d %", "zone": "UTC"}, "format"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(declared: dict[str, Any], where: str) -> None:
    with pytest.raises(NightjarError) as refused:
        written_time(declared)
    assert refused.value.where == where
